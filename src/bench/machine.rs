//! What is read of the machine around a round: load, pressure, processors.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::topology::bench::Limits;

/// Load and pressure at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Load average over one minute.
    pub load1: f64,
    /// CPU pressure, `some` over ten seconds, in percent; `None` where the kernel does not tell.
    pub cpu: Option<f64>,
    /// I/O pressure, the same.
    pub io: Option<f64>,
}

impl Pressure {
    /// Reads it now.
    pub fn now() -> Self {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load1 = load.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0);
        let of = |what: &str| some_avg10(&fs::read_to_string(format!("/proc/pressure/{what}")).ok()?);
        Self { load1, cpu: of("cpu"), io: of("io") }
    }

    /// Which limit it is above, in words.
    pub fn above(&self, limits: &Limits) -> Option<String> {
        let over = |what: &str, value: Option<f64>, limit: Option<f64>, unit: &str| {
            let (value, limit) = (value?, limit?);
            (value > limit).then(|| format!("{what} {value:.1}{unit} is above {limit}{unit}"))
        };
        over("load", Some(self.load1), limits.load, "")
            .or_else(|| over("CPU pressure", self.cpu, limits.cpu_pressure, " %"))
            .or_else(|| over("I/O pressure", self.io, limits.io_pressure, " %"))
    }
}

/// `some avg10=1.25 avg60=…` of a pressure file.
fn some_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// The processors that this process may use.
pub fn cpus() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

/// Which processors run what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    /// The syncing node.
    pub node: Vec<u32>,
    /// Its peers.
    pub peers: Vec<u32>,
}

/// Cores for the syncing node and for its peers, half each; `None` where there are too few.
pub fn split(cpus: &[u32]) -> Option<Cores> {
    if cpus.len() < 2 {
        return None;
    }
    let (peers, node) = cpus.split_at(cpus.len() / 2);
    Some(Cores { node: node.to_vec(), peers: peers.to_vec() })
}

/// The processor as it names itself.
pub fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_files_are_read() {
        let text = "some avg10=1.25 avg60=0.5 avg300=0.0 total=77\nfull avg10=9.00 avg60=0.0 avg300=0.0 total=1\n";
        assert_eq!(some_avg10(text), Some(1.25));
        assert_eq!(some_avg10("full avg10=1.0"), None);
    }

    #[test]
    fn limits_are_told_with_the_figure_above_them() {
        let seen = Pressure { load1: 5.0, cpu: Some(30.0), io: None };
        let above = |limits: Limits| seen.above(&limits);
        assert_eq!(above(Limits::default()), None);
        assert_eq!(above(Limits { load: Some(6.0), io_pressure: Some(1.0), ..Limits::default() }), None);
        assert_eq!(above(Limits { load: Some(4.0), ..Limits::default() }).as_deref(), Some("load 5.0 is above 4"));
        let cpu = Limits { cpu_pressure: Some(20.0), ..Limits::default() };
        assert_eq!(above(cpu).as_deref(), Some("CPU pressure 30.0 % is above 20 %"));
    }

    #[test]
    fn cores_are_shared_and_one_is_too_few() {
        assert_eq!(split(&[0, 1]), Some(Cores { node: vec![1], peers: vec![0] }));
        assert_eq!(split(&[0, 1, 2, 3, 4]), Some(Cores { node: vec![2, 3, 4], peers: vec![0, 1] }));
        assert_eq!(split(&[3]), None);
        assert!(!cpus().is_empty());
    }
}
