//! Reading a timeline back: NDJSON, one record a line.
//!
//! The reader is strict, since a verdict hangs on every line: what it does not know is an error with the line number.
//! Only the last line may be torn, as a controller that was killed leaves it, and that is said.

use std::io::{self, BufRead};

use super::{Event, Record, VERSION};

/// A timeline could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file itself could not be read.
    #[error("read line {line} of the timeline: {source}")]
    Io {
        /// Line number, from 1.
        line: u64,
        /// Cause.
        source: io::Error,
    },
    /// A line is no record.
    #[error("read line {line}, column {column} of the timeline: {source}")]
    Record {
        /// Line number, from 1.
        line: u64,
        /// Column, from 1.
        column: usize,
        /// Cause.
        source: serde_json::Error,
    },
    /// A record is out of place.
    #[error("read line {line} of the timeline: record {found} stands where {wanted} should")]
    Sequence {
        /// Line number, from 1.
        line: u64,
        /// Sequence number found.
        found: u64,
        /// Sequence number that should be there.
        wanted: u64,
    },
    /// The first record is not the one that every timeline begins with.
    #[error("read the timeline: it does not begin with `run_started`")]
    NoStart,
    /// Written by a newer midflush.
    #[error("read the timeline: its format is version {found}, this midflush reads up to version {VERSION}")]
    Newer {
        /// Version found.
        found: u64,
    },
}

/// A last line that was never finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Line number, from 1.
    pub line: u64,
    /// Bytes of it that are there.
    pub bytes: usize,
}

/// Reads records one by one, so that a long timeline never has to be in memory whole.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    buffer: Vec<u8>,
    line: u64,
    torn: Option<Torn>,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), line: 0, torn: None, ended: false }
    }

    /// The torn last line, once the end was reached.
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        self.buffer.clear();
        let line = self.line + 1;
        self.input.read_until(b'\n', &mut self.buffer).map_err(|source| ReadError::Io { line, source })?;
        if self.buffer.is_empty() {
            return if self.line == 0 { Err(ReadError::NoStart) } else { Ok(None) };
        }
        self.line = line;
        let whole = self.buffer.last() == Some(&b'\n');
        let record: Record = match serde_json::from_slice(&self.buffer) {
            Ok(record) => record,
            // Of the first line nothing is known but that it breaks off.
            Err(error) if !whole && (line > 1 || error.is_eof()) => {
                self.torn = Some(Torn { line, bytes: self.buffer.len() });
                return Ok(None);
            }
            Err(source) => return Err(self.refusal(line, source)),
        };
        if record.seq != line - 1 {
            return Err(ReadError::Sequence { line, found: record.seq, wanted: line - 1 });
        }
        match (&record.event, line) {
            (Event::RunStarted(start), 1) if start.version > VERSION => {
                Err(ReadError::Newer { found: u64::from(start.version) })
            }
            (Event::RunStarted(_), 1) => Ok(Some(record)),
            (_, 1) => Err(ReadError::NoStart),
            _ => Ok(Some(record)),
        }
    }

    /// A first line of a newer format need not parse at all, so its version is looked for by itself.
    fn refusal(&self, line: u64, source: serde_json::Error) -> ReadError {
        if line == 1
            && let Ok(value) = serde_json::from_slice::<serde_json::Value>(&self.buffer)
            && let Some(found) = value.pointer("/event/run_started/version").and_then(serde_json::Value::as_u64)
            && found > u64::from(VERSION)
        {
            return ReadError::Newer { found };
        }
        ReadError::Record { line, column: source.column(), source }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_record().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads a whole timeline, with the torn last line if there is one.
pub fn read_all(input: impl BufRead) -> Result<(Vec<Record>, Option<Torn>), ReadError> {
    let mut reader = Reader::new(input);
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok((records, reader.torn))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(version: u32) -> Record {
        let event = format!(
            r#"{{"run_started":{{"version":{version},"run":"r","topology":"t","seed":1,"engine":"process",
            "midflush":"0","kernel":"6","cpus":2,"started":"2026-01-01T00:00:00Z","again":"x","builds":{{}}}}}}"#
        );
        Record { seq: 0, at_us: 0, node: None, event: serde_json::from_str(&event).unwrap() }
    }

    fn text(records: &[Record]) -> String {
        records.iter().map(|r| serde_json::to_string(r).unwrap() + "\n").collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let end = Record { seq: 1, at_us: 9, node: None, event: Event::RunEnded };
        let records = vec![start(VERSION), end];
        let (read, torn) = read_all(text(&records).as_bytes()).unwrap();
        assert_eq!((read, torn), (records, None));
    }

    #[test]
    fn a_torn_last_line_is_said() {
        let whole = text(&[start(VERSION)]);
        let (read, torn) = read_all(format!("{whole}{{\"seq\":1,\"at_").as_bytes()).unwrap();
        assert_eq!((read.len(), torn), (1, Some(Torn { line: 2, bytes: 13 })));
    }

    #[test]
    fn a_bad_line_in_the_middle_is_refused_with_its_place() {
        let whole = text(&[start(VERSION)]);
        let error = read_all(format!("{whole}{{\"seq\":1,\"at_\n{{}}\n").as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::Record { line: 2, .. }), "{error}");
    }

    #[test]
    fn a_gap_is_refused() {
        let end = Record { seq: 2, at_us: 9, node: None, event: Event::RunEnded };
        let error = read_all(text(&[start(VERSION), end]).as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::Sequence { line: 2, found: 2, wanted: 1 }), "{error}");
    }

    #[test]
    fn a_newer_version_is_refused_even_with_unknown_fields() {
        let line = text(&[start(VERSION + 1)]).replace("\"run\":", "\"colour\":1,\"run\":");
        let error = read_all(line.as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::Newer { found: 2 }), "{error}");
        assert!(matches!(read_all(text(&[start(VERSION + 1)]).as_bytes()), Err(ReadError::Newer { found: 2 })));
    }

    #[test]
    fn an_empty_file_or_another_beginning_is_refused() {
        assert!(matches!(read_all(&b""[..]), Err(ReadError::NoStart)));
        let line = text(&[Record { seq: 0, at_us: 0, node: None, event: Event::RunEnded }]);
        assert!(matches!(read_all(line.as_bytes()), Err(ReadError::NoStart)));
    }
}
