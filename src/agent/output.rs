//! The node's standard output and error: read without blocking, kept in one capped file a start, cut into lines.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use super::lines;

/// Lines kept for telling how a node ended.
const TAIL_LINES: usize = 50;
/// Longest line that is looked at; longer ones are cut.
const LINE_MAX: usize = 64 << 10;
/// Bytes taken in one go, so that a node that prints without end cannot hold up its own events.
const DRAIN_MAX: usize = 1 << 20;

/// One start's output.
pub(crate) struct Output {
    pipe: Option<io::PipeReader>,
    file: File,
    room: u64,
    partial: Vec<u8>,
    tail: VecDeque<String>,
    buffer: Vec<u8>,
}

impl Output {
    /// Reads `pipe`, which must not block, and keeps up to `room` bytes in `file`.
    pub(crate) fn new(pipe: io::PipeReader, file: File, room: u64) -> Self {
        Self { pipe: Some(pipe), file, room, partial: Vec::new(), tail: VecDeque::new(), buffer: vec![0; 16 << 10] }
    }

    /// What to wait on for more; `None` once the node has closed its output.
    pub(crate) fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there and returns its complete lines, without colour codes.
    pub(crate) fn drain(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut taken = 0;
        while taken < DRAIN_MAX {
            let Some(pipe) = self.pipe.as_mut() else { break };
            match pipe.read(&mut buffer) {
                Ok(0) => {
                    self.pipe = None;
                    self.end_line(&mut found);
                }
                Ok(count) => {
                    taken += count;
                    self.take(&buffer[..count], &mut found);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.buffer = buffer;
        found
    }

    /// The last lines, oldest first. Includes one that the node did not end.
    pub(crate) fn tail(&mut self) -> Vec<String> {
        self.end_line(&mut Vec::new());
        self.tail.iter().cloned().collect()
    }

    fn take(&mut self, bytes: &[u8], found: &mut Vec<String>) {
        self.store(bytes);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_MAX.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line(found);
            }
        }
    }

    fn end_line(&mut self, found: &mut Vec<String>) {
        if self.partial.is_empty() {
            return;
        }
        let line = lines::plain(&self.partial);
        self.partial.clear();
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line.clone());
        found.push(line);
    }

    /// A full disk loses log lines, not the run.
    fn store(&mut self, bytes: &[u8]) {
        if self.room == 0 {
            return;
        }
        let fits = bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        let _lost = self.file.write_all(&bytes[..fits]);
        self.room -= fits as u64;
        if fits < bytes.len() {
            self.room = 0;
            let _lost = self.file.write_all(b"\n[midflush: the size limit is reached, later output is dropped]\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn output(room: u64) -> (Output, io::PipeWriter, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let file = File::create(folder.path().join("log")).unwrap();
        (Output::new(reader, file, room), writer, folder)
    }

    #[test]
    fn lines_are_complete_and_never_waited_for() {
        let (mut output, mut writer, folder) = output(1000);
        assert!(output.drain().is_empty());
        writer.write_all(b"one\n\x1b[31mtw").unwrap();
        assert_eq!(output.drain(), ["one"]);
        writer.write_all(b"o\x1b[0m\nthree").unwrap();
        assert_eq!(output.drain(), ["two"]);
        drop(writer);
        assert_eq!(output.drain(), ["three"]);
        assert!(output.waits_on().is_none());
        assert_eq!(output.tail(), ["one", "two", "three"]);
        assert_eq!(fs::read(folder.path().join("log")).unwrap(), b"one\n\x1b[31mtwo\x1b[0m\nthree");
    }

    #[test]
    fn the_file_is_capped_and_says_so_and_lines_go_on() {
        let (mut output, mut writer, folder) = output(10);
        for n in 0..100 {
            writeln!(writer, "line {n}").unwrap();
        }
        assert_eq!(output.drain().len(), 100);
        let kept = fs::read_to_string(folder.path().join("log")).unwrap();
        assert!(kept.starts_with("line 0\nlin\n[midflush:"), "{kept}");
        assert_eq!(kept.matches("midflush").count(), 1);
        assert_eq!(output.tail().first().unwrap(), "line 50");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let (mut output, mut writer, _folder) = output(0);
        for _ in 0..40 {
            writer.write_all(&[b'x'; 4096]).unwrap();
            output.drain();
        }
        writer.write_all(b"\nnext\n").unwrap();
        let lines = output.drain();
        assert_eq!((lines[0].len(), lines[1].as_str()), (LINE_MAX, "next"));
    }
}
