//! How long the judge takes for a large run, and how much memory: `cargo bench --bench judge`.
//!
//! 100 nodes × 100,000 heights, in records of 20 heights as they come from RPC, plus two looks a second at each node for
//! an hour. Records are made node by node outside the measured time, taken in within it, and dropped; then the judgement
//! is made. A second figure reads a timeline file of a tenth of the size.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use midflush::judge::{Judge, Verdict};
use midflush::timeline::{
    Event, Expect, Hashes, Layout, NodeSetup, Reader, Record, Role, RunStarted, Setup, Status, VERSION,
};

const HEIGHTS: u64 = 100_000;
const CHUNK: u64 = 20;

fn head(nodes: u64) -> Vec<Record> {
    let started = RunStarted {
        version: VERSION,
        run: "bench".to_owned(),
        topology: "bench".to_owned(),
        seed: 1,
        engine: "process".to_owned(),
        midflush: String::new(),
        kernel: String::new(),
        cpus: 1,
        started: String::new(),
        again: String::new(),
        builds: BTreeMap::new(),
    };
    let node = |n: u64| NodeSetup {
        name: format!("n{n}"),
        role: Role::Validator,
        power: 10,
        group: "n".to_owned(),
        storage: None,
        layout: Layout::default(),
    };
    let setup = Setup {
        family: "reference".to_owned(),
        chain_id: "bench".to_owned(),
        initial_height: 1,
        built_blocks: 0,
        app_hash_offset: 1,
        load: true,
        nodes: (0..nodes).map(node).collect(),
        faults: Vec::new(),
        expect: Expect::default(),
    };
    let record = |seq, event| Record { seq, at_us: 0, node: None, event };
    vec![record(0, Event::RunStarted(started)), record(1, Event::Setup(Box::new(setup)))]
}

fn hash(kind: u64, height: u64) -> String {
    let mixed = (height << 1 | kind).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{mixed:016x}{:016x}{mixed:016x}{height:016x}", !mixed)
}

/// Everything about one node.
fn node_records(n: u64, heights: u64, seq: &mut u64) -> Vec<Record> {
    let mut records = Vec::new();
    let mut push = |at_us: u64, event| {
        records.push(Record { seq: *seq, at_us, node: Some(format!("n{n}")), event });
        *seq += 1;
    };
    for look in 0..7200_u64 {
        let height = 1 + look * heights / 7200;
        let status = Status { height, catching_up: false, peers: Some(9), app_hash: hash(1, height) };
        push(look * 500_000, Event::Status(status));
    }
    for first in (1..=heights).step_by(CHUNK as usize) {
        let blocks = (first..first + CHUNK).map(|h| (hash(0, h), hash(1, h))).collect();
        push(3_600_000_000, Event::Hashes(Hashes { first, blocks }));
    }
    records
}

fn tail(seq: u64) -> Vec<Record> {
    let events = [Event::Load { submitted: 9, accepted: 9, failed: 0 }, Event::RunEnded];
    (seq..).zip(events).map(|(seq, event)| Record { seq, at_us: 3_600_000_000, node: None, event }).collect()
}

/// Processor time of this thread, so that other work on the machine does not count.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A figure of `/proc/self/status` in MiB.
fn memory_mib(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn in_memory(nodes: u64) {
    let mut judge = Judge::new();
    let mut took = Duration::ZERO;
    let mut feed = |judge: &mut Judge, records: &[Record]| {
        let from = cpu();
        for record in records {
            judge.push(record);
        }
        took += cpu() - from;
    };
    let before = memory_mib("VmRSS:");
    feed(&mut judge, &head(nodes));
    let mut seq = 2;
    for n in 0..nodes {
        feed(&mut judge, &node_records(n, HEIGHTS, &mut seq));
    }
    feed(&mut judge, &tail(seq));
    let from = cpu();
    let judgement = judge.judgement();
    let concluded = cpu() - from;
    assert_eq!(judgement.verdict, Verdict::Converged, "{:?}", judgement.findings);
    assert_eq!(judgement.heights_compared, HEIGHTS);
    println!(
        "{nodes} nodes x {HEIGHTS} heights, {seq} records: taken in {:.2} s, judged {:.2} s, together {:.2} s of one core; \
         memory of the judge {} MiB",
        took.as_secs_f64(),
        concluded.as_secs_f64(),
        (took + concluded).as_secs_f64(),
        memory_mib("VmRSS:").saturating_sub(before),
    );
}

fn from_file(nodes: u64) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut out = std::io::BufWriter::new(file.as_file());
    let mut seq = 2;
    let mut write = |records: &[Record]| {
        for record in records {
            serde_json::to_writer(&mut out, record).expect("written");
            out.write_all(b"\n").expect("written");
        }
    };
    write(&head(nodes));
    for n in 0..nodes {
        write(&node_records(n, HEIGHTS, &mut seq));
    }
    write(&tail(seq));
    drop(out);
    let bytes = file.as_file().metadata().map(|m| m.len()).unwrap_or(0);
    let from = cpu();
    let mut judge = Judge::new();
    let input = std::io::BufReader::with_capacity(1 << 20, fs::File::open(file.path()).expect("opened"));
    for record in Reader::new(input) {
        judge.push(&record.expect("a record"));
    }
    let verdict = judge.judgement().verdict;
    println!(
        "from a file of {} MiB, {nodes} nodes x {HEIGHTS} heights: {:.2} s of one core with reading, {verdict}",
        bytes >> 20,
        (cpu() - from).as_secs_f64()
    );
}

fn main() {
    in_memory(100);
    from_file(10);
}
