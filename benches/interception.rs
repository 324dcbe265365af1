//! What one intercepted call costs, and how exact an injected latency is.
//!
//! `cargo bench --bench interception -- [FOLDER…]` (default: the temporary folder and `/dev/shm`). This program starts itself as
//! a node that makes rounds of 20 writes and 5 syncs, without a filter, under `observe` and under `record`, in interleaved
//! rounds; one thread, so that the cost of an event is the time that it adds. Then it asks for latencies and prints what
//! the node saw.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use midflush::agent::Supervisor;
use midflush::agent_client::protocol::StartRequest;
use midflush::timeline::{Latency, Layout, NodeEvent, Store, Tier};

const NODE: &str = "MIDFLUSH_BENCH_NODE";
const WRITES: u32 = 20;
const SYNCS: u32 = 5;
const ROUNDS: usize = 5;
const TIERS: [Tier; 3] = [Tier::None, Tier::Observe, Tier::Record];
/// Longest wait for one start of the node.
const DEADLINE: Duration = Duration::from_secs(120);

fn main() {
    if let Ok(rounds) = std::env::var(NODE) {
        return node(rounds.parse().expect("a number of rounds"));
    }
    let folders: Vec<PathBuf> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).map(PathBuf::from).collect();
    let default = || vec![std::env::temp_dir(), PathBuf::from("/dev/shm")];
    let folders = if folders.is_empty() { default() } else { folders };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average at the start: {}", load.trim());
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        costs(folder);
        latencies(folder);
    }
}

/// The node: rounds of writes and syncs in one file; prints the time of a round in nanoseconds.
fn node(rounds: u32) {
    let file = OpenOptions::new().create(true).truncate(true).write(true).open("store").expect("a file");
    file.set_len(u64::from(WRITES) * 4096).expect("room");
    let began = Instant::now();
    let mut sync_times = Vec::new();
    for _ in 0..rounds {
        for n in 0..WRITES {
            file.write_all_at(&[7; 4096], u64::from(n) * 4096).expect("a write");
            if (n + 1) % (WRITES / SYNCS) == 0 {
                let before = Instant::now();
                file.sync_data().expect("a sync");
                sync_times.push(before.elapsed().as_micros());
            }
        }
    }
    let round = began.elapsed().as_nanos() / u128::from(rounds);
    sync_times.sort_unstable();
    println!("result {round} {}", sync_times[sync_times.len() / 2]);
}

/// Starts the node once: nanoseconds a round, and the median sync in microseconds as the node sees it.
fn run(folder: &Path, tier: Tier, rounds: u32, latency: Option<Latency>) -> (f64, f64) {
    let home = tempfile::tempdir_in(folder).expect("a folder");
    let supervisor = Supervisor::new(home.path()).expect("a supervisor");
    let store = Store { name: "store".into(), paths: vec!["store".into()], except: Vec::new() };
    let own = std::env::current_exe().expect("this program");
    let request = StartRequest {
        command: vec![own.to_string_lossy().into_owned()],
        input: String::new(),
        env: BTreeMap::from([(NODE.to_owned(), rounds.to_string())]),
        tier,
        layout: Layout { stores: vec![store], ..Layout::default() },
        sync_latency: latency.map(|latency| ("store".to_owned(), latency)).into_iter().collect(),
        seed: 1,
        height: 0,
        rpc: None,
        arms: Vec::new(),
        output_max: 1 << 16,
    };
    supervisor.start(request).expect("a start");
    let until = Instant::now() + DEADLINE;
    loop {
        let tail = supervisor.events(0).into_iter().find_map(|record| match record.event {
            NodeEvent::Exited { tail, .. } => Some(tail),
            _ => None,
        });
        if let Some(tail) = tail {
            let line = tail.iter().find_map(|line| line.strip_prefix("result ")).expect("a result");
            let mut numbers = line.split(' ').map(|number| number.parse::<f64>().expect("a number"));
            return (numbers.next().expect("a time"), numbers.next().expect("a median"));
        }
        assert!(Instant::now() < until, "the node did not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn costs(folder: &Path) {
    let rounds = if folder.starts_with("/dev/shm") { 2_000 } else { 150 };
    let mut times = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        let order: [usize; 3] = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
        for tier in order {
            times[tier].push(run(folder, TIERS[tier], rounds, None).0);
        }
    }
    let [none, observe, record] = times.map(median);
    println!("{}: {WRITES} writes and {SYNCS} syncs a round, median of {ROUNDS}", folder.display());
    println!("  none     {:9.1} us a round", none / 1e3);
    let line = |name: &str, time: f64, events: u32| {
        let each = (time - none) / f64::from(events) / 1e3;
        println!("  {name:8} {:9.1} us a round, rate {:.2}, {each:.1} us an event", time / 1e3, none / time);
    };
    line("observe", observe, SYNCS);
    line("record", record, WRITES + SYNCS);
}

fn latencies(folder: &Path) {
    for asked in [500, 2_000, 10_000] {
        let (_, got) = run(folder, Tier::Observe, 20, Some(Latency::Fixed(asked)));
        let off = (got - asked as f64) / asked as f64 * 100.0;
        println!("  asked for {asked} us a sync, the node saw {got:.0} us (median), {off:+.1} %");
    }
}
