//! Who owns a run, written on everything that the run creates, so that a later process can tell leftovers from
//! things in use.
//!
//! A process id alone is not enough: ids are reused, and a label outlives a reboot or is read on another machine. So
//! the label also holds the start time, the boot, the host and the process namespace.

use serde::{Deserialize, Serialize};

use super::OwnerState;

/// Label of everything that belongs to a run: the run's id.
pub(crate) const LABEL_RUN: &str = "midflush.run";
/// Label of what belongs to one node: the node's name.
pub(crate) const LABEL_NODE: &str = "midflush.node";
/// Label with the owner, as JSON of [`Owner`].
pub(crate) const LABEL_OWNER: &str = "midflush.owner";

/// A controller process, told apart from every other one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Owner {
    /// Process id in its namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start: u64,
    /// The kernel's boot id.
    pub boot: String,
    /// Host name.
    pub host: String,
    /// Process namespace, such as `pid:[4026531836]`: ids of another one mean nothing here.
    pub namespace: String,
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start: start_time(pid).unwrap_or(0),
            boot: read_trimmed("/proc/sys/kernel/random/boot_id"),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            namespace: std::fs::read_link("/proc/self/ns/pid")
                .map(|link| link.to_string_lossy().into_owned())
                .unwrap_or_default(),
        }
    }

    /// The label's text.
    pub(crate) fn label(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always serialise")
    }

    /// Reads a label; `None` when this version did not write it.
    pub(crate) fn parse(label: &str) -> Option<Self> {
        serde_json::from_str(label).ok()
    }

    /// What is known of this owner by a process that is itself `here`. `shared` says that the label was found on
    /// something that several machines use, such as a Docker engine over TCP.
    pub(crate) fn state(&self, here: &Owner, shared: bool, alive: impl Fn(u32, u64) -> bool) -> OwnerState {
        if self.boot == here.boot && self.namespace == here.namespace {
            return if alive(self.pid, self.start) { OwnerState::Alive } else { OwnerState::Dead };
        }
        // The same host under another boot: it was started again since, and no process outlives that. Of a shared
        // engine this cannot be said, since two machines may well have the same name.
        if self.boot != here.boot && self.host == here.host && !shared {
            return OwnerState::Dead;
        }
        OwnerState::Unknown
    }
}

/// State of the owner in a label as seen from this process.
pub(crate) fn state_of_label(label: Option<&str>, shared: bool) -> OwnerState {
    label
        .and_then(Owner::parse)
        .map_or(OwnerState::Unknown, |owner| owner.state(&Owner::this(), shared, process_is_alive))
}

/// Whether the process that had this id and start time still runs. One that has ended and waits to be reaped does not.
pub(crate) fn process_is_alive(pid: u32, start: u64) -> bool {
    start_time(pid) == Some(start)
}

/// Start time of a live process, in clock ticks since boot.
#[cfg(target_os = "linux")]
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Elsewhere the start time is not read: a live process counts as started at zero.
#[cfg(not(target_os = "linux"))]
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::test_kill_process(pid).ok().map(|()| 0)
}

/// Start time out of `/proc/PID/stat`, `None` for a zombie. The command may hold blanks and brackets, so fields are
/// counted behind the last bracket.
fn parse_stat(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn read_trimmed(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner { pid: 42, start: 900, boot: "b1".into(), host: "h1".into(), namespace: "pid:[1]".into() }
    }

    #[test]
    fn a_label_reads_back() {
        assert_eq!(Owner::parse(&owner().label()), Some(owner()));
        assert_eq!(Owner::parse("4242"), None);
    }

    #[test]
    fn this_process_is_alive_and_a_reused_id_is_not() {
        let this = Owner::this();
        assert_eq!(this.state(&this, false, process_is_alive), OwnerState::Alive);
        let earlier = Owner { start: this.start.wrapping_sub(1), ..this.clone() };
        assert_eq!(earlier.state(&this, false, process_is_alive), OwnerState::Dead);
    }

    #[test]
    fn what_cannot_be_seen_is_unknown() {
        let never = |_, _| panic!("an id of another place must not be looked up");
        let other_namespace = Owner { namespace: "pid:[2]".into(), ..owner() };
        assert_eq!(owner().state(&other_namespace, false, never), OwnerState::Unknown);
        let other_host = Owner { host: "h2".into(), boot: "b2".into(), ..owner() };
        assert_eq!(owner().state(&other_host, false, never), OwnerState::Unknown);
        let rebooted = Owner { boot: "b2".into(), ..owner() };
        assert_eq!(owner().state(&rebooted, false, never), OwnerState::Dead);
        assert_eq!(owner().state(&rebooted, true, never), OwnerState::Unknown);
    }

    #[test]
    fn the_start_time_is_found_behind_any_command() {
        let fields = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 1";
        assert_eq!(parse_stat(&format!("9 (a) b) {fields}")), Some(777));
        assert_eq!(parse_stat(&format!("9 (x) {}", fields.replacen('S', "Z", 1))), None);
        assert_eq!(parse_stat("9 (x"), None);
    }
}
