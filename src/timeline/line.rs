//! One line of a node's output: without colour codes, and its fields in `key=value` or JSON form, in any order.

/// The line without terminal escape sequences; `\u001b` written out, as JSON logs quote it, is removed as well.
pub fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['\u{1b}', '\\']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let quoted = ["\u{1b}", "\\u001b", "\\u001B", "\\x1b", "\\x1B", "\\033"];
        let Some(escape) = quoted.iter().find(|escape| rest.starts_with(**escape)) else {
            out.push('\\');
            rest = &rest[1..];
            continue;
        };
        rest = &rest[escape.len()..];
        if let Some(sequence) = rest.strip_prefix('[') {
            // Parameters, then one final byte in `@`..`~`.
            let end = sequence.find(|c: char| ('@'..='~').contains(&c)).map_or(sequence.len(), |end| end + 1);
            rest = &sequence[end..];
        }
    }
    out.push_str(rest);
    out
}

/// The value of `key` in a plain line: `key=value`, `key="value"`, `"key": value`, `"key":"value"`.
/// `None` where the key is absent; an empty value is `Some("")`.
pub fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut from = 0;
    while let Some(at) = line[from..].find(key) {
        let start = from + at;
        let end = start + key.len();
        from = end;
        let whole = line[..start].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '.');
        if whole && let Some(value) = value_after(&line[end..]) {
            return Some(value);
        }
    }
    None
}

fn value_after(rest: &str) -> Option<&str> {
    let rest = rest.strip_prefix('"').unwrap_or(rest).trim_start();
    let rest = rest.strip_prefix('=').or_else(|| rest.strip_prefix(':').map(str::trim_start))?;
    if let Some(quoted) = rest.strip_prefix('"') {
        return Some(quoted.split('"').next().unwrap_or_default());
    }
    Some(rest.split(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']')).next().unwrap_or_default())
}

/// The value of `key` as a height; what is no letter or digit may follow it.
pub fn number(line: &str, key: &str) -> Option<u64> {
    let value = field(line, key)?;
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let rest = value[end..].chars().next();
    if rest.is_some_and(char::is_alphanumeric) { None } else { value[..end].parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_however_they_are_written() {
        for line in ["\u{1b}[32mINF\u{1b}[0m a\u{1b}[1;36m7", "\\u001b[32mINF\\u001b[0m a\\u001b[36m7", "INF a7"] {
            assert_eq!(plain(line), "INF a7");
        }
        assert_eq!(plain("C:\\temp \\n"), "C:\\temp \\n");
    }

    #[test]
    fn fields_in_every_shape() {
        for line in [
            "INF replaying appHeight=100 stateHeight=99 module=consensus",
            "replaying\t{\"module\": \"consensus\", \"appHeight\": 100, \"stateHeight\": 99}",
            "{\"stateHeight\":\"99\",\"appHeight\":\"100\"}",
            "appHeight=\"100\" stateHeight=\"99\"",
        ] {
            assert_eq!((number(line, "appHeight"), number(line, "stateHeight")), (Some(100), Some(99)), "{line}");
        }
    }

    #[test]
    fn a_key_is_a_whole_word() {
        let line = "initialHeight=1 height=7 xheight=8";
        assert_eq!(number(line, "height"), Some(7));
        assert_eq!((number("height=7; x", "height"), number("height=7ms", "height")), (Some(7), None));
        assert_eq!((number("height=-1", "height"), number("height: 7", "height")), (None, Some(7)));
        assert_eq!(field("hash= height=1", "hash"), Some(""));
        assert_eq!(field("no such thing", "height"), None);
        assert_eq!(field("the height is 7", "height"), None);
    }
}
