//! Programs on this machine: whether they can run where they are to run, and what they are made of.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::EngineError;

/// Processor families that an engine may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// x86-64, Docker's `amd64`.
    X86_64,
    /// AArch64, Docker's `arm64`.
    Aarch64,
    /// Anything else, by its ELF number.
    Other(u16),
}

impl Machine {
    /// The machine that this binary was built for.
    pub(crate) fn here() -> Self {
        if cfg!(target_arch = "x86_64") { Self::X86_64 } else { Self::Aarch64 }
    }

    /// The family by Docker's name, or the kernel's.
    pub(crate) fn from_docker(name: &str) -> Option<Self> {
        match name {
            "amd64" | "x86_64" => Some(Self::X86_64),
            "arm64" | "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The family's name in Docker.
    pub(crate) fn docker_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
            Self::Other(_) => "an unknown architecture",
        }
    }
}

/// What a program file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    /// Processor family.
    pub machine: Machine,
    /// The dynamic loader that it asks for, which an empty image does not have.
    pub loader: Option<PathBuf>,
}

/// Checks that `path` is an executable Linux program for `machine`.
pub(crate) fn check(path: &Path, machine: Machine) -> Result<Elf, EngineError> {
    let elf = inspect(path)?;
    fits(path, elf.machine, machine)?;
    Ok(elf)
}

/// Checks that `path` is an executable Linux program, for whatever machine.
pub(crate) fn inspect(path: &Path) -> Result<Elf, EngineError> {
    parse(executable(path)?).map_err(|why| {
        EngineError::new(format!("use {} as a program: {why}", path.display()))
            .mend("give a Linux binary, not a script or a wrapper")
    })
}

/// Checks that this machine can execute `path`: a program whose loader is there, or a script whose interpreter is one.
pub(crate) fn check_startable(path: &Path) -> Result<(), EngineError> {
    let shown = path.display();
    let mut file = executable(path)?;
    let mut start = [0; SCRIPT_LINE_MAX];
    let length = read_up_to(&mut file, &mut start)
        .map_err(|e| EngineError::new(format!("read the program {shown}")).because(e))?;
    if let Some(interpreter) = interpreter(&start[..length]) {
        let fails = |error: EngineError| {
            EngineError::new(format!("start the script {shown}: its interpreter does not work: failed to {error}"))
                .mend("name a program with its whole path behind `#!` in the script's first line")
        };
        let elf = inspect(&interpreter).map_err(fails)?;
        return fits(&interpreter, elf.machine, Machine::here()).map_err(fails);
    }
    let elf = file.rewind().map_err(|e| e.to_string()).and_then(|()| parse(file)).map_err(|why| {
        EngineError::new(format!("use {shown} as a program: {why}"))
            .mend("give a Linux program, or a script whose first line names its interpreter behind `#!`")
    })?;
    fits(path, elf.machine, Machine::here())?;
    match elf.loader {
        Some(loader) if !loader.exists() => {
            Err(EngineError::new(format!("start {shown}: its loader {} is not on this machine", loader.display()))
                .mend("install the C library that it is linked to, or build it statically"))
        }
        _ => Ok(()),
    }
}

/// Opens a file that is there to be executed.
fn executable(path: &Path) -> Result<File, EngineError> {
    let shown = path.display();
    // Asked before it is opened: to open a pipe that nobody writes to would wait.
    let data = std::fs::metadata(path).map_err(|e| {
        EngineError::new(format!("open the program {shown}")).because(e).mend("give the path of an existing binary")
    })?;
    if !data.is_file() {
        let is = if data.is_dir() { "it is a folder" } else { "it is not a file" };
        return Err(
            EngineError::new(format!("use {shown} as a program: {is}")).mend("give the path of the binary itself")
        );
    }
    if data.permissions().mode() & 0o111 == 0 {
        return Err(EngineError::new(format!("use {shown} as a program: it is not executable"))
            .mend(format!("run `chmod +x {shown}`")));
    }
    File::open(path).map_err(|e| {
        EngineError::new(format!("open the program {shown}")).because(e).mend("make it readable for this user")
    })
}

fn fits(path: &Path, built_for: Machine, machine: Machine) -> Result<(), EngineError> {
    if built_for == machine {
        return Ok(());
    }
    let (shown, built_for, machine) = (path.display(), built_for.docker_name(), machine.docker_name());
    let what = format!("use {shown} as a program: it is built for {built_for}, the nodes run on {machine}");
    Err(EngineError::new(what).mend("give a binary of that architecture"))
}

/// The longest first line of a script that the kernel reads, in bytes.
const SCRIPT_LINE_MAX: usize = 256;

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}

/// The program that a script's first line names.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let name = line.split(|byte| matches!(byte, b' ' | b'\t')).next()?;
    Some(PathBuf::from(OsString::from_vec(name.to_vec())))
}

/// SHA-256 of a file, lower-case hex.
pub(crate) fn digest(path: &Path) -> Result<String, EngineError> {
    let failed = |e| EngineError::new(format!("read {}", path.display())).because(e);
    let mut file = File::open(path).map_err(failed)?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).map_err(failed)? {
            0 => return Ok(hex::encode(hash.finalize())),
            n => hash.update(&block[..n]),
        }
    }
}

const PT_INTERP: u32 = 3;
/// Longest path that is read.
const PATH_MAX: u64 = 4096;

/// Reads the header of a 64-bit little-endian ELF file; both supported processors are that.
fn parse(mut file: impl Read + Seek) -> Result<Elf, String> {
    let mut header = [0u8; 64];
    file.read_exact(&mut header).map_err(|_| "it is too short for a program".to_owned())?;
    if header[..4] != *b"\x7fELF" {
        return Err("it is no ELF program".to_owned());
    }
    if header[4] != 2 || header[5] != 1 {
        return Err("it is no 64-bit little-endian program".to_owned());
    }
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let machine = match word(18) {
        62 => Machine::X86_64,
        183 => Machine::Aarch64,
        other => Machine::Other(other),
    };
    let table = u64::from_le_bytes(header[32..40].try_into().expect("eight bytes"));
    let (size, count) = (word(54), word(56));
    let mut loader = None;
    for index in 0..u64::from(count) {
        let mut entry = [0u8; 56];
        file.seek(SeekFrom::Start(table + index * u64::from(size)))
            .and_then(|_| file.read_exact(&mut entry))
            .map_err(|_| "its program headers are cut off".to_owned())?;
        let number = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
        if entry[..4] == PT_INTERP.to_le_bytes() {
            let (offset, length) = (number(8), number(32).min(PATH_MAX));
            let mut name = vec![0; usize::try_from(length).unwrap_or_default()];
            file.seek(SeekFrom::Start(offset))
                .and_then(|_| file.read_exact(&mut name))
                .map_err(|_| "the name of its loader is cut off".to_owned())?;
            name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
            loader = Some(PathBuf::from(OsString::from_vec(name)));
        }
    }
    Ok(Elf { machine, loader })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn this_test_is_a_program_of_this_machine() {
        let exe = std::env::current_exe().unwrap();
        assert_eq!(check(&exe, Machine::here()).unwrap().machine, Machine::here());
        let other = if Machine::here() == Machine::X86_64 { Machine::Aarch64 } else { Machine::X86_64 };
        let error = check(&exe, other).unwrap_err().to_string();
        assert!(error.contains("is built for"), "{error}");
    }

    #[test]
    fn scripts_missing_and_unexecutable_files_are_refused_with_the_mend() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("node");
        assert!(check(&file, Machine::here()).unwrap_err().mend.is_some());
        std::fs::write(&file, "#!/bin/sh\n".repeat(20)).unwrap();
        assert!(check(&file, Machine::here()).unwrap_err().to_string().contains("chmod +x"));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(check(&file, Machine::here()).unwrap_err().to_string().contains("no ELF"));
        assert!(check(dir.path(), Machine::here()).unwrap_err().to_string().contains("it is a folder"));
    }

    #[test]
    fn what_this_machine_can_start_is_a_program_or_a_script_with_an_interpreter() {
        check_startable(&std::env::current_exe().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("node");
        for (text, trouble) in [
            ("#!/bin/sh\nexit\n", None),
            ("#! /usr/bin/env  sh\n", None),
            ("#!/no/such/interpreter -x\n", Some("/no/such/interpreter")),
            ("#!\n", Some("interpreter")),
            ("echo hello\n", Some("`#!`")),
            ("", Some("too short")),
        ] {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
            let said = check_startable(&file).map_err(|error| error.to_string());
            match trouble {
                None => assert_eq!(said, Ok(()), "{text}"),
                Some(part) => {
                    let said = said.unwrap_err();
                    assert!(said.contains(part) && said.contains(&file.display().to_string()), "{said}");
                }
            }
        }
    }

    #[test]
    fn a_program_with_a_loader_is_dynamic() {
        let mut image = vec![0u8; 64 + 56 + 4];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[18] = 62;
        image[32] = 64;
        image[54] = 56;
        image[56] = 1;
        image[64] = 1;
        assert_eq!(parse(Cursor::new(&image)), Ok(Elf { machine: Machine::X86_64, loader: None }));
        image[64] = 3;
        image[64 + 8] = 120;
        image[64 + 32] = 4;
        image[120..].copy_from_slice(b"/ld\0");
        assert_eq!(parse(Cursor::new(&image)), Ok(Elf { machine: Machine::X86_64, loader: Some("/ld".into()) }));
        assert!(parse(Cursor::new(&image[..80])).is_err() && parse(Cursor::new(&image[..60])).is_err());
    }

    #[test]
    fn digests_are_sha_256() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("abc");
        std::fs::write(&file, "abc").unwrap();
        assert!(digest(&file).unwrap().starts_with("ba7816bf8f01cfea"));
    }
}
