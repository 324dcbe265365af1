//! The node's files: tar archives in and out, copies of folders. Nothing leaves the node's home.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use super::AgentError;

/// Suffix of a copy under way, so that a half-made one is never taken for a whole.
const UNFINISHED: &str = ".unfinished";

/// A path below home from one that a request names: plain parts only, and no symbolic link on the way.
pub(crate) fn below(home: &Path, path: &str) -> Result<PathBuf, AgentError> {
    let mut whole = home.to_owned();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => whole.push(part),
            Component::CurDir => {}
            _ => return Err(AgentError::Refused(format!("`{path}` leaves the node's home"))),
        }
        if fs::symlink_metadata(&whole).is_ok_and(|found| found.is_symlink()) {
            return Err(AgentError::Refused(format!("`{path}` goes through a symbolic link")));
        }
    }
    Ok(whole)
}

/// Unpacks plain files and folders below home. Files are replaced, folders are merged.
pub(crate) fn unpack(home: &Path, archive: impl Read) -> Result<(), AgentError> {
    let unreadable = || AgentError::io("read the archive");
    for entry in tar::Archive::new(archive).entries().map_err(unreadable())? {
        let mut entry = entry.map_err(unreadable())?;
        let name = entry.path().map_err(unreadable())?.to_string_lossy().into_owned();
        let path = below(home, &name)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            fs::create_dir_all(&path).map_err(AgentError::io("make a folder"))?;
        } else if kind.is_file() || kind.is_gnu_sparse() {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(AgentError::io("make a folder"))?;
            }
            let mode = entry.header().mode().map_err(unreadable())? & 0o777;
            write_file(&path, mode, &mut entry).map_err(AgentError::io("write a file"))?;
        } else {
            return Err(AgentError::Refused(format!("`{name}` in the archive is neither a file nor a folder")));
        }
    }
    Ok(())
}

fn write_file(path: &Path, mode: u32, contents: &mut impl Read) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    // An older file keeps its mode otherwise.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    io::copy(contents, &mut file)?;
    Ok(())
}

/// Packs these paths below home, each under its own name; a missing one is left out. A file that grows meanwhile is
/// packed as far as it was, one that shrinks is filled up with zeros.
pub(crate) fn pack(home: &Path, paths: &[String], archive: impl Write) -> Result<(), AgentError> {
    let mut builder = tar::Builder::new(archive);
    for path in paths {
        let whole = below(home, path)?;
        add(&mut builder, home, &whole).map_err(AgentError::io("pack the files"))?;
    }
    builder.into_inner().and_then(|mut archive| archive.flush()).map_err(AgentError::io("pack the files"))
}

fn add(builder: &mut tar::Builder<impl Write>, home: &Path, path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let name = path.strip_prefix(home).map_err(io::Error::other)?;
    if found.is_dir() {
        if !name.as_os_str().is_empty() {
            builder.append_dir(name, path)?;
        }
        for entry in sorted(path)? {
            add(builder, home, &entry)?;
        }
    } else if found.is_file() {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let length = file.metadata()?.len();
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&file.metadata()?);
        header.set_size(length);
        builder.append_data(&mut header, name, file.take(length).chain(io::repeat(0)).take(length))?;
    }
    Ok(())
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// Copies a folder of this machine to a path below home that must not exist, by reflink where the file system can.
pub(crate) fn clone(home: &Path, from: &Path, to: &str) -> Result<(), AgentError> {
    let to = below(home, to)?;
    if !from.is_absolute() {
        return Err(AgentError::Refused(format!("`{}` is not an absolute path", from.display())));
    }
    if to.exists() {
        return Err(AgentError::Conflict(format!("`{}` exists already", to.display())));
    }
    copy_whole(from, &to)
}

/// Replaces a path below home by a copy of another one below home.
pub(crate) fn restore(home: &Path, from: &str, to: &str) -> Result<(), AgentError> {
    let (from, to) = (below(home, from)?, below(home, to)?);
    if to == home || from.starts_with(&to) {
        return Err(AgentError::Refused("a path cannot be replaced by something inside it".to_owned()));
    }
    if !from.exists() {
        return Err(AgentError::Missing(format!("`{}` is not there", from.display())));
    }
    remove(&to).map_err(AgentError::io("remove what is replaced"))?;
    copy_whole(&from, &to)
}

fn copy_whole(from: &Path, to: &Path) -> Result<(), AgentError> {
    let failed = || AgentError::io("copy a folder");
    let mut unfinished = to.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    remove(&unfinished).map_err(failed())?;
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed())?;
    }
    copy(from, &unfinished).map_err(failed())?;
    fs::rename(&unfinished, to).map_err(failed())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    if found.is_dir() {
        fs::create_dir(to)?;
        for entry in sorted(from)? {
            if let Some(name) = entry.file_name() {
                copy(&entry, &to.join(name))?;
            }
        }
    } else if found.is_file() {
        reflink_copy::reflink_or_copy(from, to)?;
        fs::set_permissions(to, found.permissions())?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("data/state.db")).unwrap();
        fs::write(folder.path().join("data/state.db/000001.log"), b"state").unwrap();
        fs::write(folder.path().join("key"), b"secret").unwrap();
        fs::set_permissions(folder.path().join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        folder
    }

    fn archive(name: &str, kind: tar::EntryType) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o640);
        header.set_size(3);
        // Written into the header by hand, since the builder refuses such names itself.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, &b"abc"[..]).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn what_is_packed_can_be_unpacked_elsewhere() {
        let (one, two) = (home(), tempfile::tempdir().unwrap());
        let mut packed = Vec::new();
        let paths = ["data", "key", "missing"].map(str::to_owned);
        pack(one.path(), &paths, &mut packed).unwrap();
        unpack(two.path(), packed.as_slice()).unwrap();
        assert_eq!(fs::read(two.path().join("data/state.db/000001.log")).unwrap(), b"state");
        assert_eq!(fs::metadata(two.path().join("key")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!two.path().join("missing").exists());
    }

    #[test]
    fn an_archive_cannot_write_outside_of_home() {
        let home = home();
        std::os::unix::fs::symlink("/tmp", home.path().join("out")).unwrap();
        for name in ["../evil", "/tmp/evil", "data/../../evil", "out/evil"] {
            let error = unpack(home.path(), archive(name, tar::EntryType::Regular).as_slice()).unwrap_err();
            assert!(matches!(error, AgentError::Refused(_)), "{name}: {error}");
        }
        for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Fifo] {
            unpack(home.path(), archive("link", kind).as_slice()).unwrap_err();
            assert!(!home.path().join("link").exists());
        }
        unpack(home.path(), archive("a/b/c", tar::EntryType::Regular).as_slice()).unwrap();
        assert_eq!(fs::read(home.path().join("a/b/c")).unwrap(), b"abc");
        assert!(pack(home.path(), &["../".to_owned()], io::sink()).is_err());
    }

    #[test]
    fn a_clone_is_a_whole_copy_and_replaces_nothing() {
        let (source, target) = (home(), tempfile::tempdir().unwrap());
        clone(target.path(), source.path(), "data/copy").unwrap();
        assert_eq!(fs::read(target.path().join("data/copy/data/state.db/000001.log")).unwrap(), b"state");
        assert_eq!(fs::metadata(target.path().join("data/copy/key")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(clone(target.path(), source.path(), "data/copy"), Err(AgentError::Conflict(_))));
        assert!(clone(target.path(), source.path(), "../copy").is_err());
    }

    #[test]
    fn a_restore_leaves_nothing_of_what_was_there() {
        let home = home();
        clone(home.path(), &home.path().join("data"), "saved").unwrap();
        fs::write(home.path().join("data/state.db/000002.log"), b"newer").unwrap();
        restore(home.path(), "saved", "data").unwrap();
        assert!(!home.path().join("data/state.db/000002.log").exists());
        assert!(home.path().join("data/state.db/000001.log").exists() && home.path().join("saved").exists());
        assert!(restore(home.path(), "data/state.db", "data").is_err());
        assert!(matches!(restore(home.path(), "nothing", "data"), Err(AgentError::Missing(_))));
    }
}
