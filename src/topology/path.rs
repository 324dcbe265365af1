//! Where a value stands in a topology: `faults[1].at.store`.

use std::fmt;

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Into a map; the second part counts equal keys of one map from 0.
    Key(String, usize),
    /// Into a list, from 0.
    Index(usize),
}

/// A way from the top of the file to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    pub(super) steps: Vec<Step>,
}

impl Path {
    /// The whole file.
    pub fn root() -> Self {
        Self::default()
    }

    /// Into a map.
    pub fn key(&self, key: &str) -> Self {
        self.nth_key(key, 0)
    }

    /// Into a map at the n-th of several equal keys, from 0.
    pub(super) fn nth_key(&self, key: &str, nth: usize) -> Self {
        self.step(Step::Key(key.to_owned(), nth))
    }

    /// Into a list, from 0.
    pub fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Self { steps }
    }

    /// Whether `other` is this place or below it.
    pub(super) fn holds(&self, other: &Self) -> bool {
        other.steps.starts_with(&self.steps)
    }

    /// Reads what follows `--set`: keys with dots between them, `[N]` for lists, quotes around a key that has dots.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (number, after) = inner.split_once(']').ok_or("`[` without `]`")?;
                let index = number.parse().map_err(|_| format!("`[{number}]` is no place in a list: count from 0"))?;
                steps.push(Step::Index(index));
                rest = after;
            } else if let Some(inner) = rest.strip_prefix('"') {
                let (key, after) = inner.split_once('"').ok_or("a quote is not closed")?;
                steps.push(Step::Key(key.to_owned(), 0));
                rest = after;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                if end == 0 {
                    return Err("a key is empty".to_owned());
                }
                steps.push(Step::Key(rest[..end].to_owned(), 0));
                rest = &rest[end..];
            }
            match rest.strip_prefix('.') {
                Some("") => return Err("it ends with a dot".to_owned()),
                Some(after) => rest = after,
                None if rest.is_empty() || rest.starts_with('[') => {}
                None => return Err(format!("a dot is missing before `{rest}`")),
            }
        }
        if steps.is_empty() { Err("it is empty".to_owned()) } else { Ok(Self { steps }) }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.steps.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key, _) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    if key.contains(['.', '[', '"']) { write!(f, "\"{key}\"")? } else { f.write_str(key)? }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_back_as_they_are_written() {
        for text in ["nodes.late.storage", "faults[0].at.height", "disk.sync.\"application.db\"", "a[1][2].b"] {
            assert_eq!(Path::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn broken_paths_say_what_is_broken() {
        for (text, why) in [
            ("", "it is empty"),
            ("a.", "it ends with a dot"),
            (".a", "a key is empty"),
            ("a[x]", "`[x]` is no place in a list: count from 0"),
            ("a[1", "`[` without `]`"),
            ("a[1]b", "a dot is missing before `b`"),
            ("\"a", "a quote is not closed"),
        ] {
            assert_eq!(Path::parse(text).unwrap_err(), why, "{text}");
        }
    }
}
