//! Writing the TOML of a node's configuration: sections of keys, in the order given.

use std::fmt::Write as _;

/// A section and its keys; values are TOML already.
pub(super) fn section(out: &mut String, name: &str, values: &[(&str, String)]) {
    let _ = writeln!(out, "\n[{name}]");
    keys(out, values);
}

/// Keys of the section that is open.
pub(super) fn keys(out: &mut String, values: &[(&str, String)]) {
    for (key, value) in values {
        let _ = writeln!(out, "{key} = {value}");
    }
}

/// A basic string.
pub(super) fn text(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_cannot_break_out_of_its_quotes() {
        assert_eq!(super::text("a\"\nb\\"), r#""a\"\u000Ab\\""#);
    }
}
