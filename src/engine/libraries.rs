//! The shared libraries of a dynamically linked program, as its own loader finds them: by the program's run path, by
//! `LD_LIBRARY_PATH`, and in the folders of this system.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::EngineError;
use super::binary::Elf;

/// The variable that names folders with libraries, for every loader.
pub(crate) const VARIABLE: &str = "LD_LIBRARY_PATH";

/// What a program needs beside itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Libraries {
    /// Where the program looks for its loader.
    loader: PathBuf,
    /// Name of each library, and where it lies on this machine.
    found: Vec<(String, PathBuf)>,
}

impl Libraries {
    /// Those of a program; `None` for one that asks for no loader.
    ///
    /// # Errors
    /// When the loader or a library is not on this machine.
    pub(crate) fn of(program: &Path, elf: Elf) -> Result<Option<Self>, EngineError> {
        let Some(loader) = elf.loader else { return Ok(None) };
        let shown = program.display();
        // The loader lists what it would map and starts nothing of the program.
        let listed = Command::new(&loader).arg("--list").arg(program).stdin(Stdio::null()).output().map_err(|e| {
            EngineError::new(format!("list the libraries of {shown} with its loader {}", loader.display()))
                .because(e)
                .mend("install the C library that it is linked to, or build it statically")
        })?;
        let text = String::from_utf8_lossy(&listed.stdout);
        let (found, missing) = read(&text);
        if !missing.is_empty() || !listed.status.success() {
            let said = String::from_utf8_lossy(&listed.stderr);
            let what = if missing.is_empty() { said.trim().to_owned() } else { missing.join(", ") };
            return Err(EngineError::new(format!("find the libraries of {shown}: {what}"))
                .mend(format!("name their folder in {VARIABLE}, or build it statically")));
        }
        Ok(Some(Self { loader, found }))
    }

    /// Where each file goes in an image that has its libraries in one folder, and where it lies on this machine.
    pub(crate) fn placed(&self, folder: &str) -> Vec<(String, PathBuf)> {
        let loader = (self.loader.display().to_string(), self.loader.clone());
        let libraries = self.found.iter().map(|(name, from)| (format!("{folder}/{name}"), from.clone()));
        std::iter::once(loader).chain(libraries).collect()
    }
}

/// Reads a loader's list: names with paths, and names that were not found. The kernel's own library and the loader itself have
/// no arrow.
fn read(text: &str) -> (Vec<(String, PathBuf)>, Vec<String>) {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for (name, place) in text.lines().filter_map(|line| line.trim().split_once(" => ")) {
        match place.split(" (").next().filter(|path| path.starts_with('/')) {
            // A loader may be listed as a library too; it has a place of its own.
            Some(_) if name.starts_with('/') => {}
            Some(path) => found.push((name.to_owned(), PathBuf::from(path))),
            None => missing.push(name.to_owned()),
        }
    }
    (found, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaders_list_is_read() {
        let glibc = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibresolv.so.2 => /lib/x86_64-linux-gnu/libresolv.so.2 (0x00007f2)\n\
                     \tlibwasmvm.x86_64.so => not found\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n\
                     \t/lib64/ld-linux-x86-64.so.2 (0x00007f3)\n";
        let (found, missing) = read(glibc);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["libresolv.so.2", "libc.so.6"]);
        assert_eq!(found[1].1, PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"));
        assert_eq!(missing, ["libwasmvm.x86_64.so"]);
        let musl = "\t/lib/ld-musl-x86_64.so.1 (0x7f0)\n\tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f0)\n";
        assert_eq!(read(musl).0, [("libc.musl-x86_64.so.1".to_owned(), PathBuf::from("/lib/ld-musl-x86_64.so.1"))]);
    }

    #[test]
    fn the_libraries_of_a_program_of_this_system_are_found_with_its_loader() {
        // This test's own program is linked statically; the shell is not.
        let shell = Path::new("/bin/sh").canonicalize().expect("a shell");
        let elf = crate::engine::binary::check(&shell, crate::engine::binary::Machine::here()).expect("a program");
        let libraries = Libraries::of(&shell, elf).expect("libraries").expect("a dynamic program");
        let placed = libraries.placed("/lib-of-it");
        assert_eq!(placed[0].0, placed[0].1.display().to_string());
        assert!(placed[1..].iter().any(|(to, _)| to == "/lib-of-it/libc.so.6"), "{placed:?}");
        assert!(placed.iter().all(|(_, from)| from.is_file()), "{placed:?}");
    }
}
