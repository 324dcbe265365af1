//! The last thing a validator signed, on disk before its signature leaves the node: it never signs two different
//! messages at one height, round and step, and never goes back.
//!
//! The file is written whole to a temporary file opened with `O_SYNC`, renamed over the old one, and the folder is
//! synced, so a crash leaves the old or the new state.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::node::crypto::{SecretKey, Signature};

/// What is signed in a round, in the order in which it is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// A proposal.
    Propose,
    /// A prevote.
    Prevote,
    /// A precommit.
    Precommit,
}

/// A place in the order of all that is ever signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Height of the block.
    pub height: u64,
    /// Round, from 0.
    pub round: u32,
    /// Step in the round.
    pub step: Step,
}

/// Why a signature was refused or could not be made safe.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// Something later was signed before.
    #[error("sign at {asked:?}: {last:?} was signed already")]
    Regression {
        /// What was asked for.
        asked: Position,
        /// What was signed last.
        last: Position,
    },
    /// Something else was signed at the same place.
    #[error("sign at {0:?}: another message was signed there already")]
    Conflict(Position),
    /// The file makes no sense.
    #[error("read the sign state {}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file could not be read or written.
    #[error("{operation} the sign state {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// The contents of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    position: Position,
    /// The bytes that were signed, hexadecimal.
    bytes: String,
    signature: Signature,
}

/// The sign state of one validator.
#[derive(Debug)]
pub struct SignState {
    path: PathBuf,
    last: Option<Signed>,
    sync: bool,
}

impl SignState {
    /// Reads the file; absent means that nothing was ever signed. With `sync` false (a planted defect) the file is
    /// written without `O_SYNC`, and neither it nor its folder is synced.
    pub fn open(path: &Path, sync: bool) -> Result<Self, SignError> {
        let last = match fs::read(path) {
            Ok(bytes) => Some(
                serde_json::from_slice(&bytes)
                    .map_err(|e| SignError::Corrupt { path: path.to_owned(), reason: e.to_string() })?,
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(SignError::Io { operation: "read", path: path.to_owned(), source }),
        };
        Ok(Self { path: path.to_owned(), last, sync })
    }

    /// Where something was signed last.
    pub fn last(&self) -> Option<Position> {
        self.last.as_ref().map(|signed| signed.position)
    }

    /// Signs `bytes` once they are known to conflict with nothing, after writing that down. The same bytes at the
    /// same position give the same signature again.
    pub fn sign(&mut self, position: Position, bytes: &[u8], key: &SecretKey) -> Result<Signature, SignError> {
        let text = hex::encode(bytes);
        if let Some(last) = &self.last {
            if position < last.position {
                return Err(SignError::Regression { asked: position, last: last.position });
            }
            if position == last.position {
                return if last.bytes == text { Ok(last.signature) } else { Err(SignError::Conflict(position)) };
            }
        }
        let signed = Signed { position, bytes: text, signature: key.sign(bytes) };
        self.write(&signed)?;
        let signature = signed.signature;
        self.last = Some(signed);
        Ok(signature)
    }

    fn write(&self, signed: &Signed) -> Result<(), SignError> {
        let failed = |operation| move |source| SignError::Io { operation, path: self.path.clone(), source };
        let mut contents = serde_json::to_vec(signed).map_err(io::Error::from).map_err(failed("encode"))?;
        contents.push(b'\n');
        let temporary = self.path.with_extension("tmp");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(if self.sync { libc::O_SYNC } else { 0 })
            .open(&temporary)
            .map_err(failed("create"))?;
        file.write_all(&contents).map_err(failed("write"))?;
        drop(file);
        fs::rename(&temporary, &self.path).map_err(failed("rename"))?;
        if self.sync {
            let folder = self.path.parent().unwrap_or(Path::new("."));
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync the folder of"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(height: u64, round: u32, step: Step) -> Position {
        Position { height, round, step }
    }

    #[test]
    fn two_messages_at_one_step_are_never_signed_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sign_state.json");
        let key = SecretKey::from_ikm(&[1; 32]).unwrap();
        let mut state = SignState::open(&path, true).unwrap();
        let first = state.sign(at(5, 0, Step::Prevote), b"a", &key).unwrap();
        assert!(key.public_key().verify(b"a", &first));
        for _ in 0..2 {
            assert!(matches!(state.sign(at(5, 0, Step::Prevote), b"b", &key), Err(SignError::Conflict(_))));
            assert_eq!(state.sign(at(5, 0, Step::Prevote), b"a", &key).unwrap(), first);
            state = SignState::open(&path, true).unwrap();
        }
        assert_eq!(state.last(), Some(at(5, 0, Step::Prevote)));
    }

    #[test]
    fn going_back_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sign_state.json");
        let key = SecretKey::from_ikm(&[1; 32]).unwrap();
        let mut state = SignState::open(&path, true).unwrap();
        state.sign(at(5, 1, Step::Precommit), b"a", &key).unwrap();
        let mut state = SignState::open(&path, true).unwrap();
        for earlier in [at(5, 1, Step::Prevote), at(5, 0, Step::Precommit), at(4, 9, Step::Precommit)] {
            assert!(matches!(state.sign(earlier, b"x", &key), Err(SignError::Regression { .. })));
        }
        for later in [at(5, 2, Step::Propose), at(5, 2, Step::Prevote), at(6, 0, Step::Propose)] {
            state.sign(later, b"x", &key).unwrap();
        }
    }

    #[test]
    fn a_damaged_file_is_refused_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sign_state.json");
        fs::write(&path, b"{\"position\":").unwrap();
        assert!(matches!(SignState::open(&path, true), Err(SignError::Corrupt { .. })));
    }
}
