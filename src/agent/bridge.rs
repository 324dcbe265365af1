//! Bodies as blocking readers and writers, for archives that are read and written piece by piece.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// Reads what is sent to the other end.
pub(crate) struct BodyReader {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl BodyReader {
    /// The reader, and where its pieces go; an error ends it.
    pub(crate) fn pair(pieces: usize) -> (mpsc::Sender<io::Result<Bytes>>, Self) {
        let (sender, receiver) = mpsc::channel(pieces);
        (sender, Self { pieces: receiver, rest: Bytes::new() })
    }
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.rest = piece?,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Sends what is written, in pieces of a fair size.
pub(crate) struct BodyWriter {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    gathered: Vec<u8>,
}

/// Size of a piece.
const PIECE_BYTES: usize = 64 << 10;

impl BodyWriter {
    pub(crate) fn new(pieces: mpsc::Sender<io::Result<Bytes>>) -> Self {
        Self { pieces, gathered: Vec::new() }
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.gathered));
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
