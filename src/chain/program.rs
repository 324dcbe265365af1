//! Programs of nodes on this machine: where they are, and what a Go program says about the modules that it was built from.
//!
//! The linker puts the same lines that `go version -m` prints into every program: `mod` or `dep`, the module's path and its
//! version, with tabs between.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::engine::Build;
use crate::plan::{BuildPlan, Plan};

/// What an engine makes a node from.
pub(super) fn build(plan: &BuildPlan) -> Build {
    match plan {
        BuildPlan::Binary(program) => Build::Binary { path: on_path(program, std::env::var_os("PATH").as_deref()) },
        BuildPlan::Image(reference) => Build::Image { reference: reference.clone() },
    }
}

/// What the first node is made from: a set-up needs a build that is made ready anyway.
pub(super) fn first(plan: &Plan, of_chain: &BuildPlan) -> Build {
    build(plan.nodes.first().map_or(of_chain, |node| node.made_from(of_chain)))
}

/// A program's name without a folder, looked up as a shell does; anything else, and what is not found, stays as it is: the
/// engine says what is wrong with it.
fn on_path(program: &str, folders: Option<&OsStr>) -> PathBuf {
    let named = PathBuf::from(program);
    if program.contains('/') {
        return named;
    }
    let candidates = folders.into_iter().flat_map(std::env::split_paths).map(|folder| folder.join(program));
    candidates.into_iter().find(|path| path.is_file()).unwrap_or(named)
}

/// The version of a module in a program, such as `v0.38.17`. `None` where the program is no Go program, was built without the
/// module, or was built from a working tree.
pub(super) fn version(program: &Path, module: &str) -> Option<String> {
    let bytes = std::fs::read(program).ok()?;
    let wanted = format!("\t{module}\tv");
    let places = memchr_all(&bytes, wanted.as_bytes());
    places.into_iter().find_map(|at| {
        // The digits follow the `v` that was looked for.
        let rest = &bytes[at + wanted.len() - 1..];
        let end = rest.iter().take(80).position(|byte| matches!(byte, b'\t' | b'\n'))?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        text[1..].starts_with(|c: char| c.is_ascii_digit()).then(|| text.to_owned())
    })
}

fn memchr_all(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == wanted[0]) {
        let start = from + at;
        if bytes[start..].starts_with(wanted) {
            found.push(start);
        }
        from = start + 1;
    }
    found
}

/// Where Go keeps the source of a module, if it has it.
pub(super) fn module_folder(module: &str, version: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("GOMODCACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("GOPATH").map(|path| PathBuf::from(path).join("pkg/mod")))
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/pkg/mod")))?;
    Some(cache.join(format!("{module}@{version}"))).filter(|folder| folder.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_looked_up_on_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("cometbft"), "").expect("written");
        let path = std::env::join_paths([Path::new("/nowhere"), folder.path()]).expect("a path");
        assert_eq!(on_path("cometbft", Some(&path)), folder.path().join("cometbft"));
        assert_eq!(on_path("./cometbft", Some(&path)), PathBuf::from("./cometbft"));
        assert_eq!(on_path("other", Some(&path)), PathBuf::from("other"));
        assert_eq!(on_path("cometbft", None), PathBuf::from("cometbft"));
    }

    #[test]
    fn the_version_stands_behind_the_module() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("node");
        let text = b"\x7fELF..path\tx/y/cmd\nmod\tx/y\tv1.7.1\th1:abc=\ndep\tx/z\tv0.0.0-2025-abc\n\t x/w\tvendor\n";
        std::fs::write(&program, text).expect("written");
        assert_eq!(version(&program, "x/y").as_deref(), Some("v1.7.1"));
        assert_eq!(version(&program, "x/z").as_deref(), Some("v0.0.0-2025-abc"));
        assert_eq!(version(&program, "x/w"), None);
        assert_eq!(version(&program, "x"), None);
        assert_eq!(version(&folder.path().join("none"), "x/y"), None);
    }
}
