//! What a node has used since its start: time on processors, time inside syncs; and on which processors it runs.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use hdrhistogram::Histogram;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::AgentError;
use super::stores::StoreIndex;

/// Longest sync that is told apart from longer ones: five minutes.
const LONGEST_US: u64 = 300_000_000;
/// Clock ticks a second in `/proc`: fixed by the kernel's interface on every architecture that midflush runs on.
const TICKS: u64 = 100;

/// How many syncs there were by store, and how long those took that the agent made itself.
#[derive(Debug, Default)]
pub(crate) struct SyncTimes {
    counts: BTreeMap<StoreIndex, u64>,
    times: BTreeMap<StoreIndex, Histogram<u64>>,
}

impl SyncTimes {
    /// Counts a sync that was asked for, whoever makes it.
    pub(crate) fn count(&mut self, store: StoreIndex) {
        *self.counts.entry(store).or_default() += 1;
    }

    /// Counts by the stores' names.
    pub(crate) fn counts(&self, name: impl Fn(StoreIndex) -> String) -> BTreeMap<String, u64> {
        self.counts.iter().map(|(store, count)| (name(*store), *count)).collect()
    }

    /// Takes the time of one in.
    pub(crate) fn record(&mut self, store: StoreIndex, took_us: u64) {
        let empty = || Histogram::new_with_bounds(1, LONGEST_US, 2).expect("bounds in order and two digits");
        self.times.entry(store).or_insert_with(empty).saturating_record(took_us.max(1));
    }

    /// Microseconds and count by the stores' names, ascending.
    pub(crate) fn by_store(&self, name: impl Fn(StoreIndex) -> String) -> BTreeMap<String, Vec<(u64, u64)>> {
        let counts = |histogram: &Histogram<u64>| {
            histogram.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
        };
        self.times.iter().map(|(store, histogram)| (name(*store), counts(histogram))).collect()
    }
}

/// Time on processors of a process and all its threads.
pub(crate) fn cpu_us(pid: Pid) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    ticks(&stat).map(|ticks| ticks * (1_000_000 / TICKS)).ok_or_else(|| io::Error::other("no times in /proc/PID/stat"))
}

/// Ticks in user and kernel mode: fields 14 and 15, counted behind the name, which may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, kernel): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + kernel)
}

/// Keeps every thread of this process on some processors; threads and processes made later inherit it.
pub(crate) fn pin(cpus: &[u32]) -> Result<(), AgentError> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        let number = usize::try_from(*cpu).ok().filter(|number| *number < CpuSet::MAX_CPU);
        set.set(number.ok_or_else(|| AgentError::Refused(format!("there is no processor {cpu}")))?);
    }
    let failed = |error: io::Error| {
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        AgentError::Refused(format!("processors {} cannot be used: {error}", cpus.join(", ")))
    };
    for thread in fs::read_dir("/proc/self/task").map_err(failed)? {
        let name = thread.map_err(failed)?.file_name();
        let tid = name.to_str().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
        match sched_setaffinity(tid, &set) {
            // The thread ended meanwhile.
            Err(rustix::io::Errno::SRCH) => {}
            done => done.map_err(|error| failed(error.into()))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_name_with_anything_in_it() {
        let stat = "77 (a) R 1) S 1 77 77 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 4 0 100 1000 100";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("nothing"), None);
        assert!(cpu_us(rustix::process::getpid()).is_ok());
    }

    #[test]
    fn syncs_are_counted_by_store() {
        let mut times = SyncTimes::default();
        for _ in 0..3 {
            times.record(1, 100);
        }
        times.record(0, 0);
        times.count(1);
        times.count(1);
        assert_eq!(times.counts(|store| store.to_string()), BTreeMap::from([("1".to_owned(), 2)]));
        let of = times.by_store(|store| format!("store {store}"));
        assert_eq!(of["store 1"], [(100, 3)]);
        assert_eq!(of["store 0"], [(1, 1)]);
    }

    #[test]
    fn processors_that_are_not_there_are_refused() {
        assert!(pin(&[]).is_err(), "no processor at all");
        assert!(pin(&[4_000_000]).is_err());
    }
}
