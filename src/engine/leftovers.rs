//! What may be removed: a pure decision over what engines found. Removing too much costs somebody their work, so
//! everything that is not certainly a leftover is kept and said to be.

use std::collections::BTreeMap;

use super::{Found, OwnerState};

/// What to do with one thing, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Remove it.
    Remove,
    /// Take foreign containers off it first, then remove it. Only when forced.
    DetachAndRemove,
    /// Leave it, since its run is alive.
    KeepLive,
    /// Leave it, since it carries no label that can be read.
    KeepUnlabelled,
    /// Leave it and say so: containers of somebody else are on it.
    ReportForeign,
    /// Leave it and say so: whether its owner lives cannot be seen from here.
    ReportUnknown,
}

impl Action {
    /// Whether the thing goes.
    pub fn removes(self) -> bool {
        matches!(self, Self::Remove | Self::DetachAndRemove)
    }
}

/// Decides over everything found, in an order in which removal works: what runs first, then what it stood on. The
/// owner's state counts for the whole run: one thing with a live owner keeps all, and one with a dead owner is enough for
/// those whose own label is lost.
pub fn decide(found: &[Found], force: bool) -> Vec<(Found, Action)> {
    let mut runs: BTreeMap<&str, Vec<OwnerState>> = BTreeMap::new();
    for thing in found {
        if let Some(run) = thing.run.as_deref() {
            runs.entry(run).or_default().push(thing.owner);
        }
    }
    let mut decided: Vec<(Found, Action)> = found
        .iter()
        .map(|thing| {
            let states = thing.run.as_deref().and_then(|run| runs.get(run));
            (thing.clone(), states.map_or(Action::KeepUnlabelled, |states| decide_one(thing, states, force)))
        })
        .collect();
    decided.sort_by_key(|(thing, _)| removal_rank(&thing.kind));
    decided
}

fn decide_one(thing: &Found, of_run: &[OwnerState], force: bool) -> Action {
    if of_run.contains(&OwnerState::Alive) {
        return Action::KeepLive;
    }
    if !of_run.contains(&OwnerState::Dead) && !force {
        return Action::ReportUnknown;
    }
    match (thing.foreign.is_empty(), force) {
        (true, _) => Action::Remove,
        (false, true) => Action::DetachAndRemove,
        (false, false) => Action::ReportForeign,
    }
}

/// Position in the order of removal: processes and containers use networks, volumes and folders.
pub(crate) fn removal_rank(kind: &str) -> u8 {
    match kind {
        "process" | "container" => 0,
        "network" => 1,
        "volume" => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(obj: &str, run: Option<&str>, owner: OwnerState, foreign: &[&str]) -> Found {
        let (kind, id) = obj.split_once('/').unwrap();
        Found {
            kind: kind.to_owned(),
            id: id.to_owned(),
            run: run.map(str::to_owned),
            owner,
            foreign: foreign.iter().map(|f| (*f).to_owned()).collect(),
        }
    }

    /// Two runs and somebody's volume: run 17 is dead, run 18 alive; network and volume of run 17 carry no owner of
    /// their own, and a foreign container is on the network.
    fn leftovers() -> Vec<Found> {
        vec![
            thing("network/n17", Some("r-17"), OwnerState::Unknown, &["container/foreign"]),
            thing("volume/d17", Some("r-17"), OwnerState::Unknown, &[]),
            thing("container/x1", Some("r-17"), OwnerState::Dead, &[]),
            thing("container/x2", Some("r-18"), OwnerState::Alive, &[]),
            thing("volume/data", None, OwnerState::Unknown, &[]),
        ]
    }

    fn actions(force: bool) -> Vec<(String, Action)> {
        decide(&leftovers(), force).into_iter().map(|(found, action)| (found.id, action)).collect()
    }

    #[test]
    fn a_dead_run_goes_and_all_else_stays() {
        let wanted = [
            ("x1", Action::Remove),
            ("x2", Action::KeepLive),
            ("n17", Action::ReportForeign),
            ("d17", Action::Remove),
            ("data", Action::KeepUnlabelled),
        ];
        assert_eq!(actions(false), wanted.map(|(id, action)| (id.to_owned(), action)));
    }

    #[test]
    fn force_detaches_but_spares_the_live_and_the_unlabelled() {
        let wanted = [
            ("x1", Action::Remove),
            ("x2", Action::KeepLive),
            ("n17", Action::DetachAndRemove),
            ("d17", Action::Remove),
            ("data", Action::KeepUnlabelled),
        ];
        assert_eq!(actions(true), wanted.map(|(id, action)| (id.to_owned(), action)));
    }

    #[test]
    fn an_owner_that_cannot_be_seen_is_spared_until_forced() {
        let found = [thing("container/far", Some("r-9"), OwnerState::Unknown, &[])];
        assert_eq!(decide(&found, false)[0].1, Action::ReportUnknown);
        assert_eq!(decide(&found, true)[0].1, Action::Remove);
    }
}
