//! The timeline's file: written by one dispatcher, followed by any number of readers.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::timeline::Record;

use super::{ResultsError, ResultsErrorKind};

/// Appends records, each with one write, so that a line is on disk (in the page cache) when `append` returns and a
/// reader never meets a half line in the middle.
#[derive(Debug)]
pub struct TimelineWriter {
    path: PathBuf,
    file: File,
    next_seq: u64,
    length: u64,
    torn: bool,
}

impl TimelineWriter {
    pub(super) fn create(path: &Path) -> Result<Self, ResultsError> {
        let file = File::options()
            .append(true)
            .create_new(true)
            .open(path)
            .map_err(ResultsError::at("create the timeline", path))?;
        Ok(Self { path: path.to_owned(), file, next_seq: 0, length: 0, torn: false })
    }

    /// The sequence number that the next record must have.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Appends one record. On an error (a full disk, above all) the file is cut back to the last whole line and the
    /// same record may be tried again.
    pub fn append(&mut self, record: &Record) -> Result<(), ResultsError> {
        let failed = |kind| ResultsError::new("append to the timeline", &self.path, kind);
        if record.seq != self.next_seq {
            let (got, expected) = (record.seq, self.next_seq);
            return Err(failed(ResultsErrorKind::Refused(format!("record {got} came where {expected} was due"))));
        }
        let mut line = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        if self.torn {
            self.file.set_len(self.length).map_err(|error| failed(error.into()))?;
            self.torn = false;
        }
        // `write_all` makes one write, unless the kernel takes only a part, as it does on the last bytes of a disk.
        if let Err(error) = self.file.write_all(&line) {
            self.torn = self.file.set_len(self.length).is_err();
            return Err(failed(error.into()));
        }
        self.length += line.len() as u64;
        self.next_seq += 1;
        Ok(())
    }
}

/// Longest line that a follower takes, in bytes.
const LINE_MAX: usize = 64 << 20;

/// Reads a timeline as it grows.
#[derive(Debug)]
pub struct TimelineFollower {
    path: PathBuf,
    file: Option<File>,
    partial: Vec<u8>,
}

impl TimelineFollower {
    /// Follows the timeline of a run folder, from its first record. The file need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join(super::TIMELINE), file: None, partial: Vec::new() }
    }

    /// The records that were completed since the last call, at most `max`; empty when there are none. A last line
    /// without its end is kept until the rest has come.
    pub fn next(&mut self, max: usize) -> Result<Vec<Record>, ResultsError> {
        let mut records = Vec::new();
        loop {
            self.take_lines(max, &mut records)?;
            if records.len() >= max || !self.fill()? {
                return Ok(records);
            }
        }
    }

    fn take_lines(&mut self, max: usize, records: &mut Vec<Record>) -> Result<(), ResultsError> {
        let mut from = 0;
        while records.len() < max {
            let Some(end) = self.partial[from..].iter().position(|b| *b == b'\n') else { break };
            let line = &self.partial[from..from + end];
            let record = serde_json::from_slice(line).map_err(ResultsError::at("read a record of", &self.path))?;
            records.push(record);
            from += end + 1;
        }
        self.partial.drain(..from);
        Ok(())
    }

    /// Reads on; false at the end of the file.
    fn fill(&mut self) -> Result<bool, ResultsError> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(ResultsError::new("open", &self.path, error)),
            }
        }
        let Some(file) = self.file.as_mut() else { return Ok(false) };
        let mut chunk = vec![0; 256 << 10];
        let n = file.read(&mut chunk).map_err(ResultsError::at("read", &self.path))?;
        if self.partial.len() + n > LINE_MAX {
            let kind = ResultsErrorKind::Refused(format!("a line is longer than {LINE_MAX} bytes"));
            return Err(ResultsError::new("read", &self.path, kind));
        }
        self.partial.extend_from_slice(&chunk[..n]);
        Ok(n > 0)
    }
}

/// The records at the two ends of a timeline, without reading what lies between.
pub(super) struct Ends {
    /// At most `HEAD` first records.
    pub(super) head: Vec<Record>,
    /// Last whole records, oldest first.
    pub(super) tail: Vec<Record>,
}

/// Records that tell what a run is: its start and its set-up.
const HEAD: usize = 2;
/// Bytes from the end that surely hold the records that end a run.
const TAIL_BYTES: u64 = 64 << 10;

/// Reads both ends of the timeline in `folder`.
pub(super) fn ends(folder: &Path) -> Result<Ends, ResultsError> {
    let head = TimelineFollower::new(folder).next(HEAD)?;
    let path = folder.join(super::TIMELINE);
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(&path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = match read() {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(ResultsError::new("read", &path, error)),
    };
    // The first piece may begin, and the last may end, in the middle of a line: neither reads as a record.
    let tail = bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Ok(Ends { head, tail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Event;

    fn record(seq: u64) -> Record {
        Record { seq, at_us: seq * 10, node: Some("val-1".to_owned()), event: Event::Interrupted }
    }

    fn writer(folder: &Path) -> TimelineWriter {
        TimelineWriter::create(&folder.join(super::super::TIMELINE)).unwrap()
    }

    #[test]
    fn a_follower_sees_each_record_once_and_as_soon_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut follower = TimelineFollower::new(folder.path());
        assert_eq!(follower.next(10).unwrap(), [], "there is no file yet");
        let mut writer = writer(folder.path());
        for seq in 0..5 {
            writer.append(&record(seq)).unwrap();
        }
        assert_eq!(follower.next(2).unwrap(), [record(0), record(1)]);
        assert_eq!(follower.next(10).unwrap(), [record(2), record(3), record(4)]);
        assert_eq!(follower.next(10).unwrap(), []);
        writer.append(&record(5)).unwrap();
        assert_eq!(follower.next(10).unwrap(), [record(5)]);
    }

    #[test]
    fn a_half_line_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(super::super::TIMELINE);
        let line = serde_json::to_string(&record(0)).unwrap() + "\n";
        let mut file = File::create(path).unwrap();
        file.write_all(&line.as_bytes()[..20]).unwrap();
        let mut follower = TimelineFollower::new(folder.path());
        assert_eq!(follower.next(10).unwrap(), []);
        file.write_all(&line.as_bytes()[20..]).unwrap();
        assert_eq!(follower.next(10).unwrap(), [record(0)]);
    }

    #[test]
    fn records_out_of_order_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.append(&record(0)).unwrap();
        let error = writer.append(&record(2)).unwrap_err();
        assert!(error.to_string().contains("record 2 came where 1 was due"), "{error}");
        assert_eq!(writer.next_seq(), 1);
    }

    /// `/dev/full` answers every write as a full disk does.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_named() {
        let path = Path::new("/dev/full");
        let file = File::options().append(true).open(path).unwrap();
        let mut writer = TimelineWriter { path: path.to_owned(), file, next_seq: 0, length: 0, torn: false };
        let error = writer.append(&record(0)).unwrap_err();
        assert!(error.to_string().starts_with("append to the timeline `/dev/full`: the disk is full"), "{error}");
        assert_eq!(writer.next_seq(), 0);
    }

    #[test]
    fn both_ends_are_read_without_what_lies_between() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        for seq in 0..3000 {
            writer.append(&record(seq)).unwrap();
        }
        let ends = ends(folder.path()).unwrap();
        assert_eq!(ends.head, [record(0), record(1)]);
        assert_eq!(ends.tail.last(), Some(&record(2999)));
        assert!(ends.tail.len() < 3000);
    }
}
