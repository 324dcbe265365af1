//! The node of these tests: this test binary, run again with a name in the environment. Its home is its folder.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

/// Says which program to be.
pub const PROGRAM: &str = "MIDFLUSH_TEST_PROGRAM";

/// Large enough for many pages, so that a write can be cut short.
pub const BIG: usize = 1 << 20;

/// Becomes the program that the environment names; without one there is nothing to do.
#[test]
fn program() {
    let Ok(name) = std::env::var(PROGRAM) else { return };
    match name.as_str() {
        "chain" => chain(false),
        "rewriter" => chain(true),
        "writers" => writers(),
        "leader" => return leader(),
        "two" => two(),
        "reuse" => reuse(),
        "storm" => storm(),
        "sleep" => loop {
            std::thread::sleep(Duration::from_secs(60));
        },
        "synced" => synced(),
        "pipe" => pipe(),
        other => panic!("no program {other}"),
    }
    std::process::exit(0);
}

fn file(path: &str) -> File {
    fs::create_dir_all(path.split_once('/').unwrap().0).unwrap();
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).unwrap()
}

fn height(path: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim_start_matches("H:").trim().parse().unwrap_or(0)
}

fn put(file: &File, height: u64) {
    file.write_all_at(format!("H:{height:<10}").as_bytes(), 0).unwrap();
}

/// Makes a block every few milliseconds, for ever: block store, state, application (never synced), state. The application's
/// file may be emptied each time.
fn chain(rewrites: bool) {
    let (blocks, state, mut app, wal) = (file("blocks/1"), file("state/1"), file("app/1"), file("wal/1"));
    let from = height("blocks/1");
    println!("handshake app={} state={} store={from}", height("app/1"), height("state/1"));
    println!("enter mode=block_sync");
    for h in from + 1.. {
        if h == 4 {
            println!("enter mode=consensus");
        }
        wal.write_all_at(b"proposal", h * 16).unwrap();
        wal.sync_data().unwrap();
        put(&blocks, h);
        blocks.sync_data().unwrap();
        state.write_all_at(format!("results {h:<10}").as_bytes(), 64).unwrap();
        state.sync_data().unwrap();
        if rewrites {
            app = File::create("app/1").unwrap();
        }
        put(&app, h);
        put(&state, h);
        state.sync_data().unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// A chain, and beside it threads that overwrite a whole file with one byte again and again.
fn writers() {
    for n in 0..3u8 {
        std::thread::spawn(move || {
            let file = file(&format!("other/{n}"));
            for byte in (1..=255).cycle() {
                file.write_all_at(&vec![byte; BIG], 0).unwrap();
            }
        });
    }
    chain(false);
}

/// Threads that wait. Behind it the first thread of the process, which the kernel offers its signals to, writes that this test
/// is done into the file that `--logfile` names.
fn leader() {
    for _ in 0..3 {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
}

/// Two threads that sync two stores; the first one's syncs are slow by injection.
fn two() {
    let slow = std::thread::spawn(|| {
        let file = file("blocks/1");
        put(&file, 1);
        file.sync_data().unwrap();
        println!("slow is done");
    });
    let state = file("state/1");
    for h in 1..=20 {
        put(&state, h);
        state.sync_data().unwrap();
    }
    println!("quick is done");
    slow.join().unwrap();
}

/// One descriptor number for many files, and syncs of files that belong to no store in between.
fn reuse() {
    for h in 1..=50 {
        for (path, syncs) in [("blocks/1", 1), ("state/1", 2), ("elsewhere/1", 1), ("app/1", 3)] {
            let file = file(path);
            put(&file, h);
            (0..syncs).for_each(|_| file.sync_all().unwrap());
        }
    }
}

/// Syncs while signals with a handler rain on the process.
fn storm() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let urgent = rustix::process::Signal::URG;
    let kind = tokio::signal::unix::SignalKind::from_raw(urgent.as_raw());
    let _handler = tokio::signal::unix::signal(kind).unwrap();
    std::thread::spawn(move || {
        loop {
            rustix::process::kill_process(rustix::process::getpid(), urgent).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let blocks = file("blocks/1");
    for h in 1..=100 {
        put(&blocks, h);
        blocks.sync_data().unwrap();
    }
}

/// Syncs what cannot be synced: a pipe in place of each store's file.
fn pipe() {
    let open = |path: &str| {
        fs::create_dir_all(path.split_once('/').unwrap().0).unwrap();
        if !fs::exists(path).unwrap() {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    };
    let (blocks, state) = (open("blocks/pipe"), open("state/pipe"));
    for _ in 0..3 {
        blocks.sync_all().unwrap();
        state.sync_all().unwrap();
        state.sync_all().unwrap();
    }
}

/// A sign state as the CometBFT family writes it: a temporary file opened with `O_SYNC`, then renamed.
fn synced() {
    fs::create_dir_all("app").unwrap();
    let chained = file("blocks/1");
    for h in 1..=5 {
        put(&chained, h);
        chained.sync_data().unwrap();
        let temporary = format!("app/new-{h}");
        let options = OpenOptions::new().write(true).create_new(true).custom_flags(0o4_010_000).open(&temporary);
        options.unwrap().write_all_at(format!("H:{h}").as_bytes(), 0).unwrap();
        fs::rename(&temporary, "app/1").unwrap();
    }
}
