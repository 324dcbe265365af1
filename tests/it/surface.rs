//! What a user meets at the edge of the command line: wrong programs, wrong arguments, output that cannot be written.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn midflush(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midflush"));
    command.args(arguments).current_dir(folder).env_remove("RUST_LOG").env_remove("MIDFLUSH_RESULTS");
    command.env("TMPDIR", folder).env("HOME", folder).env_remove("XDG_CACHE_HOME");
    command
}

fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("midflush runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The header of a program for another machine; nothing more of it is read.
fn foreign() -> Vec<u8> {
    let mut program = vec![0; 64];
    program[..6].copy_from_slice(b"\x7fELF\x02\x01");
    program[18] = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    program
}

/// Each is named as it is in the folder, and what must be said about it.
const PROGRAMS: [(&str, &str); 5] = [
    ("./nonexistent", "No such file"),
    ("./folder", "it is a folder"),
    ("./plain", "run `chmod +x"),
    ("./script", "/no/such/interpreter"),
    ("./foreign", "it is built for"),
];

fn folder_of_programs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder")).expect("a folder");
    fs::write(at("plain"), "#!/bin/sh\n").expect("written");
    fs::write(
        at("script"),
        "#!/no/such/interpreter\n# and more, so that it is no shorter than a header of a program\n",
    )
    .expect("written");
    fs::write(at("foreign"), foreign()).expect("written");
    for name in ["script", "foreign"] {
        fs::set_permissions(at(name), PermissionsExt::from_mode(0o755)).expect("executable");
    }
    folder
}

#[test]
fn a_program_that_cannot_be_started_is_not_observed() {
    let folder = folder_of_programs();
    let before = entries(folder.path());
    for (program, said) in PROGRAMS {
        let (code, stdout, stderr) = ended(&mut midflush(&["observe", "--", program], folder.path()));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{program}: {stderr}");
        assert!(stderr.contains(said) && stderr.contains(&program[2..]), "{program}: {stderr}");
    }
    let (code, _, stderr) = ended(&mut midflush(&["observe", "--", "no-such-program"], folder.path()));
    assert!(code == Some(2) && stderr.contains("search path"), "{stderr}");
    assert_eq!(entries(folder.path()), before, "nothing is created");
}

#[test]
fn a_topology_whose_program_cannot_be_started_is_refused_at_its_place() {
    let folder = folder_of_programs();
    let topology = |binary: &str| {
        format!(
            "midflush: 1\nname: n\nchain:\n  cometbft:\n    version: \"0.38\"\n    binary: {binary}\nnodes:\n  val: {{ role: validator, count: 1 }}\n"
        )
    };
    fs::write(folder.path().join("good.yaml"), topology("cometbft")).expect("written");
    fs::write(folder.path().join("bad.yaml"), "").expect("written");
    let before = entries(folder.path());
    for (program, said) in PROGRAMS {
        // The process engine runs programs only; what it would say of a script is that it is none.
        let said = if program == "./script" { "no ELF" } else { said };
        fs::write(folder.path().join("bad.yaml"), topology(program)).expect("written");
        let run = ["run", "bad.yaml", "--engine", "process"];
        let (code, stdout, stderr) = ended(&mut midflush(&run, folder.path()));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{program}: {stderr}");
        assert!(stderr.contains(said) && stderr.contains("bad.yaml:6:13"), "{program}: {stderr}");
        let set = format!("chain.cometbft.binary={program}");
        let run = ["run", "good.yaml", "--engine", "process", "--set", &set];
        let (code, _, stderr) = ended(&mut midflush(&run, folder.path()));
        assert!(code == Some(2) && stderr.contains(said) && stderr.contains("--set:1:"), "{program}: {stderr}");
        assert_eq!(entries(folder.path()), before, "nothing is created");
    }
}

#[test]
fn a_seed_is_a_whole_number() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in ["-1", "1.5", "x", "18446744073709551616"] {
        let (code, _, stderr) = ended(&mut midflush(&["check", "x.yaml", "--seed", seed], folder.path()));
        assert!(code == Some(2) && stderr.contains("a seed is a whole number from 0 to"), "{seed}: {stderr}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_is_lost_is_no_success() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for arguments in [&["check", "topologies/quickstart.yaml"][..], &["check", "topologies/quickstart.yaml", "--json"]]
    {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let (code, _, stderr) = ended(midflush(arguments, root).stdout(full));
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.contains("failed to print: No space left on device"), "{stderr}");
    }
}

#[test]
fn heights_that_the_chain_cannot_reach_in_time_are_said_up_front() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/quickstart.yaml");
    let file = file.to_string_lossy();
    let fault = ["check", &file, "--set", "faults[3].at.height=4000.."];
    let (code, stdout, _) = ended(&mut midflush(&fault, folder.path()));
    assert!(code == Some(0) && !stdout.contains("cannot land"), "in an hour it can: {stdout}");
    let (code, stdout, _) = ended(midflush(&fault, folder.path()).args(["--time-limit", "60s"]));
    assert!(code == Some(0) && stdout.contains("cannot land: height 4000 is 3 min 20 s away"), "{stdout}");
    let start = ["run", &file, "--engine", "process", "--set", "nodes.late.start={height: 10000000}"];
    let (code, stdout, stderr) = ended(&mut midflush(&start, folder.path()));
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    assert!(stderr.contains("`late` would never be started: height 10000000"), "{stderr}");
    assert_eq!(entries(folder.path()), [""; 0], "nothing is created");
}

#[test]
fn a_file_without_an_end_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["check", "run", "bench"] {
        let (code, stdout, stderr) = ended(&mut midflush(&[command, "/dev/zero"], folder.path()));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.contains("the file is larger than the 262144 bytes"), "{stderr}");
    }
    assert_eq!(entries(folder.path()), [""; 0], "nothing is created");
}

#[test]
fn a_run_is_run_again_and_looked_at_as_the_report_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/four.yaml");
    let arguments =
        ["run", &file.to_string_lossy(), "--engine", "process", "--time-limit", "1ms", "--results", "it's $HOME"];
    let (code, stdout, stderr) = ended(&mut midflush(&arguments, folder.path()));
    assert_eq!(code, Some(3), "{stderr}");
    let line = |begin: &str| {
        let line = stdout.lines().find_map(|line| line.strip_prefix(begin)).expect("the line").trim();
        line.to_owned()
    };
    let (again, look) = (line("run again"), line("look"));
    assert!(again.contains("--time-limit 0.001s"), "{again}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &again]).current_dir(folder.path()).env("TMPDIR", folder.path()).env("HOME", folder.path());
    let (code, stdout, stderr) = ended(&mut shell);
    assert!(code == Some(3) && stdout.contains("time limit"), "{again}: {stderr}");
    let runs = |folder: &Path| entries(folder).into_iter().filter(|name| name.contains("-four-")).count();
    assert_eq!(runs(&folder.path().join("it's $HOME")), 2, "the same results");
    let mut shell = Command::new("sh");
    let words = format!("printf '%s\\n' {look}");
    let (_, stdout, _) = ended(shell.args(["-c", &words]).current_dir(folder.path()));
    assert!(stdout.lines().last().is_some_and(|word| word.ends_with("it's $HOME")), "{look}: {stdout}");
}

#[test]
fn a_folder_of_results_that_cannot_be_made_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("written");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let before = entries(folder.path());
    for (command, file) in [("run", "topologies/four.yaml"), ("bench", "topologies/bench/itself.yaml")] {
        let file = root.join(file);
        let arguments = [command, &file.to_string_lossy(), "--engine", "process", "--results", "file/below"];
        let (code, stdout, stderr) = ended(&mut midflush(&arguments, folder.path()));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.contains("name another folder than `file/below` with `--results`"), "{stderr}");
        let arguments = [command, &file.to_string_lossy(), "--engine", "process", "--results", "/proc/below"];
        let (code, _, stderr) = ended(&mut midflush(&arguments, folder.path()));
        assert!(code == Some(2) && !stderr.contains("0 bytes free"), "{stderr}");
        assert_eq!(entries(folder.path()), before, "nothing is created");
    }
}
