//! The program that a node is made from, as users name it: found, and looked at before anything is created.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::CliError;
use super::topology::refused;
use crate::engine::binary;
use crate::engine::libraries::Libraries;
use crate::engine::{Capabilities, EngineError};
use crate::topology::{Build, Loaded, Path as Place, Problem, Problems};

/// A program by its name on the search path, or by its path from a folder, with links followed; `None` for a name that is not
/// on the path. A path need not lead to anything.
pub(crate) fn find(program: &str, dir: &Path, search: Option<&OsStr>) -> Option<PathBuf> {
    let path = look_up(program, dir, search)?;
    Some(path.canonicalize().or_else(|_| std::path::absolute(&path)).unwrap_or(path))
}

/// The same as a shell does it, with links as they are: some programs do what the name says that they are called by.
pub(crate) fn look_up(program: &str, dir: &Path, search: Option<&OsStr>) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(dir.join(program));
    }
    let mut candidates = std::env::split_paths(search.unwrap_or_default()).map(|folder| folder.join(program));
    candidates.find(|path| path.is_file())
}

/// Whether an engine can run a program: as a process of this machine, with its libraries, or put into an image.
pub(crate) fn check(program: &Path, engine: &Capabilities) -> Result<(), EngineError> {
    let elf = binary::check(program, engine.machine)?;
    if engine.images {
        return Ok(());
    }
    Libraries::of(program, elf).map(drop)
}

/// What is wrong with the program of a build, at its place in the topology.
pub(crate) fn refuse(loaded: &Loaded, family: &str, program: &str, error: &EngineError) -> CliError {
    let place = place(loaded, family, program, "binary");
    let cause = error.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
    let problem = Problem::new("bad-program", &place, format!("failed to {}{cause}", error.what)).label("this program");
    let problem = match &error.mend {
        Some(mend) => problem.help(mend.as_str()),
        None => problem,
    };
    refused(&Problems::new(&loaded.source, vec![problem]))
}

/// A name that is nowhere on the search path, at its place in the topology.
pub(crate) fn not_found(loaded: &Loaded, family: &str, program: &str) -> CliError {
    let image = place(loaded, family, program, "image");
    let place = place(loaded, family, program, "binary");
    let title = format!("there is no program `{program}` on the search path");
    let help =
        format!("give its path with `--set {place}=PATH`, or in place of it an image with `--set {image}=REFERENCE`");
    let problem = Problem::new("no-program", &place, title).label("this program").help(help);
    refused(&Problems::new(&loaded.source, vec![problem]))
}

/// Where a topology names this program, by the `key` of one: in one of `builds`, else in the chain, also where that is only the default.
fn place(loaded: &Loaded, family: &str, program: &str, key: &str) -> Place {
    let named = loaded.topology.builds.iter().find(|(_, made)| made.binary.as_deref() == Some(program));
    match named {
        Some((name, _)) => Place::root().key("builds").key(name).key(key),
        None => {
            let chain = Place::root().key("chain").key(family);
            let application = loaded.topology.application.as_ref().map(|application| &application.build);
            match application {
                Some(Build::Binary(own)) if own == program => chain.key("application").key(key),
                _ => chain.key(key),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::binary::Machine;

    #[test]
    fn a_program_for_another_machine_is_refused_whatever_the_engine() {
        let program = std::env::current_exe().unwrap();
        for images in [false, true] {
            let engine =
                |machine| Capabilities { name: "any".to_owned(), nodes_max: 1, images, binaries: true, machine };
            assert!(check(&program, &engine(Machine::here())).is_ok());
            let error = check(&program, &engine(Machine::Other(1))).unwrap_err();
            assert!(error.what.contains("it is built for"), "{error}");
        }
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("bin")).unwrap();
        let program = root.join("bin/cometbft");
        std::fs::write(&program, "").unwrap();
        let search = root.join("bin").into_os_string();
        assert_eq!(find("cometbft", Path::new("/"), Some(&search)), Some(program.clone()));
        assert_eq!(find("bin/cometbft", &root, None), Some(program.clone()));
        assert_eq!(find(&program.to_string_lossy(), Path::new("/"), None), Some(program));
        assert_eq!(find("cometbft", &root, None), None);
        assert_eq!(
            find("./cometbft", &root, None),
            Some(root.join("./cometbft")),
            "that it is not there is told later"
        );
    }
}
