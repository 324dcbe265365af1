//! The write-ahead log of consensus: what was seen and signed at the height in progress.
//!
//! One append is one `write`; [`Wal::flush`] is one `fdatasync`. A record is framed by its length and checksum, and
//! what a crash tore off at the end is cut away when the log is opened. A finished height is marked, and at such a
//! mark a log that has grown past its limit is renamed and started anew, so the file stays bounded.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Name of the log in its folder.
const CURRENT: &str = "wal";
/// Name of the last full log, kept for the curious.
const PREVIOUS: &str = "wal.old";
/// Longest record that is written or read.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Size at which the log is started anew at the next end of a height.
pub const ROTATE_BYTES: u64 = 8 << 20;
/// Length, checksum.
const FRAME_BYTES: usize = 8;
/// Kind, height.
const HEAD_BYTES: usize = 9;

const KIND_RECORD: u8 = 1;
const KIND_END_HEIGHT: u8 = 2;

/// The log could not be read or written. A log that failed once must not be written again.
#[derive(Debug, thiserror::Error)]
#[error("{operation} the write-ahead log {}", path.display())]
pub struct WalError {
    operation: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// What a log held when it was opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Height of the last end-of-height mark.
    pub ended: Option<u64>,
    /// Records after that mark, with their heights.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Bytes cut away at the end because they were no whole record.
    pub torn_bytes: u64,
}

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub struct WalOptions {
    /// Whether [`Wal::flush`] syncs.
    pub sync: bool,
    /// Size in bytes at which the log is started anew.
    pub rotate_bytes: u64,
    /// Whether a torn end is an error instead of being cut away.
    pub refuse_torn: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self { sync: true, rotate_bytes: ROTATE_BYTES, refuse_torn: false }
    }
}

/// An open log.
#[derive(Debug)]
pub struct Wal {
    folder: PathBuf,
    file: File,
    bytes: u64,
    dirty: bool,
    options: WalOptions,
}

impl Wal {
    /// Opens or creates the log in `folder`, and repairs its end.
    pub fn open(folder: &Path, options: WalOptions) -> Result<(Self, Recovered), WalError> {
        let path = folder.join(CURRENT);
        let failed = |operation| move |source| WalError { operation, path: folder.join(CURRENT), source };
        fs::create_dir_all(folder).map_err(failed("create the folder of"))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed("open"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read"))?;
        let (mut recovered, whole) = scan(&bytes);
        recovered.torn_bytes = (bytes.len() - whole) as u64;
        if recovered.torn_bytes > 0 {
            if options.refuse_torn {
                let source = io::Error::new(io::ErrorKind::InvalidData, "its end is torn");
                return Err(failed("read")(source));
            }
            file.set_len(whole as u64).and_then(|()| file.sync_data()).map_err(failed("repair"))?;
        }
        file.seek(SeekFrom::End(0)).map_err(failed("seek in"))?;
        let wal = Self { folder: folder.to_owned(), file, bytes: whole as u64, dirty: false, options };
        wal.sync_folder()?;
        Ok((wal, recovered))
    }

    /// Appends a record of the height in progress, in one write. It is durable after the next [`Self::flush`].
    pub fn append(&mut self, height: u64, record: &[u8]) -> Result<(), WalError> {
        self.write(KIND_RECORD, height, record)
    }

    /// Makes all that was appended durable. Nothing appended: no system call.
    pub fn flush(&mut self) -> Result<(), WalError> {
        if self.dirty && self.options.sync {
            self.file.sync_data().map_err(self.failed("sync"))?;
        }
        self.dirty = false;
        Ok(())
    }

    /// Marks a height as finished and durable in the stores, and starts the log anew when it has grown too long.
    pub fn end_height(&mut self, height: u64) -> Result<(), WalError> {
        if self.bytes >= self.options.rotate_bytes {
            self.flush()?;
            let path = self.folder.join(CURRENT);
            fs::rename(&path, self.folder.join(PREVIOUS)).map_err(self.failed("rename"))?;
            self.file =
                OpenOptions::new().write(true).create_new(true).open(&path).map_err(self.failed("start anew"))?;
            self.bytes = 0;
            self.write(KIND_END_HEIGHT, height, &[])?;
            self.flush()?;
            return self.sync_folder();
        }
        self.write(KIND_END_HEIGHT, height, &[])?;
        self.flush()
    }

    fn write(&mut self, kind: u8, height: u64, record: &[u8]) -> Result<(), WalError> {
        let length = HEAD_BYTES + record.len();
        assert!(length <= RECORD_BYTES_MAX, "a record of {length} bytes could not be read back");
        let mut frame = Vec::with_capacity(FRAME_BYTES + length);
        frame.extend_from_slice(&(length as u32).to_le_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.push(kind);
        frame.extend_from_slice(&height.to_le_bytes());
        frame.extend_from_slice(record);
        let checksum = crc32(&frame[FRAME_BYTES..]);
        frame[4..FRAME_BYTES].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_all(&frame).map_err(self.failed("append to"))?;
        self.bytes += frame.len() as u64;
        self.dirty = true;
        Ok(())
    }

    fn sync_folder(&self) -> Result<(), WalError> {
        if !self.options.sync {
            return Ok(());
        }
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(self.failed("sync the folder of"))
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> WalError + use<> {
        let path = self.folder.join(CURRENT);
        move |source| WalError { operation, path: path.clone(), source }
    }
}

/// Reads whole records; the second value is where they end.
fn scan(bytes: &[u8]) -> (Recovered, usize) {
    let mut recovered = Recovered::default();
    let mut at = 0;
    while let Some((kind, height, record, next)) = frame_at(bytes, at) {
        match kind {
            KIND_END_HEIGHT => {
                recovered.ended = Some(height);
                recovered.records.clear();
            }
            KIND_RECORD => recovered.records.push((height, record.to_vec())),
            _ => break,
        }
        at = next;
    }
    (recovered, at)
}

fn frame_at(bytes: &[u8], at: usize) -> Option<(u8, u64, &[u8], usize)> {
    let length = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
    let checksum = u32::from_le_bytes(bytes.get(at + 4..at + FRAME_BYTES)?.try_into().ok()?);
    if !(HEAD_BYTES..=RECORD_BYTES_MAX).contains(&length) {
        return None;
    }
    let next = at + FRAME_BYTES + length;
    let body = bytes.get(at + FRAME_BYTES..next)?;
    if crc32(body) != checksum {
        return None;
    }
    let height = u64::from_le_bytes(body[1..HEAD_BYTES].try_into().ok()?);
    Some((body[0], height, &body[HEAD_BYTES..], next))
}

/// CRC-32 (IEEE 802.3, reflected).
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0u32; 256];
        let mut i = 0;
        while i < 256 {
            let mut value = i as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { 0xEDB8_8320 ^ (value >> 1) } else { value >> 1 };
                bit += 1;
            }
            table[i] = value;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0u32, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> (Wal, Recovered) {
        Wal::open(folder, WalOptions::default()).unwrap()
    }

    #[test]
    fn the_checksum_is_the_standard_one() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn only_records_after_the_last_finished_height_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let (mut wal, recovered) = open(folder.path());
        assert_eq!(recovered, Recovered::default());
        wal.append(7, b"vote").unwrap();
        wal.end_height(7).unwrap();
        wal.append(8, b"proposal").unwrap();
        wal.append(8, b"").unwrap();
        wal.flush().unwrap();
        drop(wal);
        let (_, recovered) = open(folder.path());
        assert_eq!(recovered.ended, Some(7));
        assert_eq!(recovered.records, [(8, b"proposal".to_vec()), (8, Vec::new())]);
        assert_eq!(recovered.torn_bytes, 0);
    }

    #[test]
    fn a_log_torn_at_any_byte_keeps_its_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(folder.path());
        wal.append(1, b"first").unwrap();
        let first = wal.bytes;
        wal.append(1, b"second").unwrap();
        drop(wal);
        let path = folder.path().join(CURRENT);
        let whole = fs::read(&path).unwrap();
        for length in first..whole.len() as u64 {
            fs::write(&path, &whole[..length as usize]).unwrap();
            let (mut wal, recovered) = open(folder.path());
            assert_eq!(recovered.records, [(1, b"first".to_vec())]);
            assert_eq!(recovered.torn_bytes, length - first);
            wal.append(1, b"again").unwrap();
            drop(wal);
            assert_eq!(open(folder.path()).1.records.len(), 2, "what is appended after a repair is read back");
        }
    }

    #[test]
    fn a_flipped_bit_ends_the_log_and_can_be_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (mut wal, _) = open(folder.path());
        wal.append(1, b"first").unwrap();
        wal.append(1, b"second").unwrap();
        drop(wal);
        let path = folder.path().join(CURRENT);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let refused = Wal::open(folder.path(), WalOptions { refuse_torn: true, ..WalOptions::default() });
        assert!(refused.is_err());
        assert_eq!(open(folder.path()).1.records, [(1, b"first".to_vec())]);
    }

    #[test]
    fn a_long_log_starts_anew_at_the_end_of_a_height() {
        let folder = tempfile::tempdir().unwrap();
        let options = WalOptions { rotate_bytes: 100, ..WalOptions::default() };
        let (mut wal, _) = Wal::open(folder.path(), options).unwrap();
        for height in 1..20 {
            wal.append(height, &[0; 60]).unwrap();
            wal.end_height(height).unwrap();
            assert!(fs::metadata(folder.path().join(CURRENT)).unwrap().len() < 200);
        }
        wal.append(20, b"now").unwrap();
        drop(wal);
        let (_, recovered) = open(folder.path());
        assert_eq!(recovered.ended, Some(19));
        assert_eq!(recovered.records, [(20, b"now".to_vec())]);
    }
}
