//! Whether an event is the address that a fault asks for.

use crate::agent_client::protocol::{Arm, ArmAction};
use crate::timeline::{Address, Landed, Layout, Mode, Phase, Tier, WriteAt};

use super::flush::Step;
use super::tracker::{Inside, Kind, Place, Tracker};

/// Says why a fault can never land, if so.
pub(crate) fn refuse_arm(arm: &Arm, layout: &Layout, tier: Tier) -> Result<(), String> {
    if matches!(arm.action, ArmAction::Fail(_)) && arm.address.phase != Phase::Before {
        return Err("a call that has returned cannot be made to fail: ask for `before`".to_owned());
    }
    refuse(&arm.address, layout, tier)
}

/// Says why an address can never be met, if so.
fn refuse(address: &Address, layout: &Layout, tier: Tier) -> Result<(), String> {
    if !layout.stores.iter().any(|store| store.name == address.store) {
        let names: Vec<&str> = layout.stores.iter().map(|store| store.name.as_str()).collect();
        return Err(format!("no store `{}`; this node has {}", address.store, names.join(", ")));
    }
    if address.sync == Some(0) || address.write == Some(WriteAt::Nth(0)) {
        return Err("syncs and writes count from 1".to_owned());
    }
    match (tier, address.write) {
        (Tier::None, _) => return Err("the node runs without interception".to_owned()),
        (Tier::Observe, Some(_)) => return Err("writes are only seen under `record`".to_owned()),
        _ => {}
    }
    match (address.sync, address.write, address.phase) {
        (None, None, _) => Err("an address needs a sync or a write".to_owned()),
        (None, Some(WriteAt::Last), _) => {
            Err("the last write of a store without syncs is not known when it passes: name it by number".to_owned())
        }
        (Some(_), Some(WriteAt::Last), Phase::Before) => {
            Err("a write is known to be the last only when its sync begins: ask for `after`".to_owned())
        }
        _ => Ok(()),
    }
}

/// Whether the event at `place` is what `address` asks for, now that it is held (`Before`) or has returned (`After`).
/// The last write of a commit is found when the sync behind it is held.
pub(crate) fn meets(address: &Address, store: &str, place: &Place, phase: Phase) -> bool {
    let Some(inside) = place.inside else { return false };
    address.store == store
        && address.height.contains(inside.at.height)
        && address.mode.is_none_or(|mode| inside.mode == Some(mode))
        && address.window.is_none_or(|least| inside.at.window >= least)
        && meets_event(address, place.kind, inside, phase)
}

fn meets_event(address: &Address, kind: Kind, inside: Inside, phase: Phase) -> bool {
    let writes = matches!(kind, Kind::Write { .. });
    let syncs = matches!(kind, Kind::Sync | Kind::Write { synced: true });
    let same_sync = inside.sync.is_some() && address.sync == inside.sync;
    let nth = |wanted: WriteAt, n: u32| match wanted {
        WriteAt::First => n == 1,
        WriteAt::Nth(wanted) => n == wanted,
        WriteAt::Last => false,
    };
    match (address.sync, address.write) {
        (Some(_), Some(WriteAt::Last)) => kind == Kind::Sync && same_sync && inside.write > 0 && phase == Phase::Before,
        (Some(_), Some(wanted)) => writes && same_sync && nth(wanted, inside.write) && address.phase == phase,
        (Some(_), None) => syncs && same_sync && address.phase == phase,
        (None, Some(wanted)) => writes && nth(wanted, inside.write_of_flush) && address.phase == phase,
        (None, None) => false,
    }
}

/// Where a fault landed: at `place`, with what every store has done now that all is still.
pub(crate) fn landed(arm: &Arm, place: &Place, tracker: &Tracker) -> Option<Landed> {
    let inside = place.inside?;
    let reached = tracker.reached_now().unwrap_or(inside.at);
    Some(Landed {
        height: reached.height,
        height_source: reached.source,
        store: arm.address.store.clone(),
        sync: arm.address.sync,
        write: arm.address.write,
        phase: arm.address.phase,
        mode: inside.mode.unwrap_or(Mode::Consensus),
        window: reached.window,
        done: tracker.progress(),
    })
}

/// The addresses of a flush that a node made in this mode, ready to be pasted into a topology.
pub(crate) fn addresses(steps: &[Step], mode: Option<Mode>, name: impl Fn(usize) -> String) -> Vec<String> {
    let mode = mode.map_or("", |mode| match mode {
        Mode::Consensus => ", mode: consensus",
        Mode::BlockSync => ", mode: block_sync",
        Mode::Replay => ", mode: replay",
    });
    let mut found = Vec::new();
    for step in steps {
        let (store, sync) = (name(step.store), step.sync);
        match (step.writes, step.synced) {
            (0, _) => {}
            (_, true) => found.push(format!("{{ store: {store}, sync: {sync}, write: first, phase: before{mode} }}")),
            // Without a sync of its own in the flush, or behind the last one.
            (_, false) if sync == 1 => found.push(format!("{{ store: {store}, write: first, phase: before{mode} }}")),
            (_, false) => {}
        }
        if step.synced {
            found.push(format!("{{ store: {store}, sync: {sync}, phase: before{mode} }}"));
            found.push(format!("{{ store: {store}, sync: {sync}, phase: after{mode} }}"));
        }
    }
    found
}

/// The address nearest to the one asked for that the flush has: in the same store the nearest sync, otherwise the
/// first of the flush.
pub(crate) fn nearest(asked: &Address, steps: &[Step], name: impl Fn(usize) -> String + Copy) -> Option<String> {
    let same: Vec<Step> = steps.iter().filter(|step| name(step.store) == asked.store).cloned().collect();
    let wanted = asked.sync.unwrap_or(1);
    let step = match same.iter().min_by_key(|step| step.sync.abs_diff(wanted)) {
        Some(step) => step.clone(),
        None => steps.first()?.clone(),
    };
    let candidates = addresses(&[step], None, name);
    let form = |text: &&String| text.contains("write:") == asked.write.is_some();
    candidates.iter().find(form).or_else(|| candidates.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tracker::Reached;
    use crate::timeline::{HeightSource, Store};

    fn address(text: &str) -> Address {
        serde_yaml::from_str(text).unwrap()
    }

    fn place(kind: Kind, sync: u32, write: u32) -> Place {
        let at = Reached { height: 126, source: HeightSource::Decoded, window: 3 };
        let inside =
            Inside { flush: 1, sync: Some(sync), write, write_of_flush: write + 10, at, mode: Some(Mode::BlockSync) };
        Place { store: 0, kind, inside: Some(inside) }
    }

    const WRITE: Kind = Kind::Write { synced: false };

    #[test]
    fn a_write_is_met_by_its_sync_and_number() {
        let asked = address("{ store: a, sync: 2, write: first, phase: before }");
        assert!(meets(&asked, "a", &place(WRITE, 2, 1), Phase::Before));
        assert!(!meets(&asked, "a", &place(WRITE, 2, 1), Phase::After));
        assert!(!meets(&asked, "b", &place(WRITE, 2, 1), Phase::Before));
        assert!(!meets(&asked, "a", &place(WRITE, 1, 1), Phase::Before));
        assert!(!meets(&asked, "a", &place(WRITE, 2, 2), Phase::Before));
        assert!(!meets(&asked, "a", &place(Kind::Sync, 2, 1), Phase::Before));
        let third = address("{ store: a, sync: 2, write: 3, phase: after }");
        assert!(meets(&third, "a", &place(WRITE, 2, 3), Phase::After));
    }

    #[test]
    fn the_last_write_is_found_when_its_sync_is_held() {
        let asked = address("{ store: a, sync: 2, write: last, phase: after }");
        assert!(meets(&asked, "a", &place(Kind::Sync, 2, 7), Phase::Before));
        assert!(!meets(&asked, "a", &place(Kind::Sync, 2, 7), Phase::After));
        assert!(!meets(&asked, "a", &place(Kind::Sync, 2, 0), Phase::Before), "no write at all");
    }

    #[test]
    fn height_mode_and_window_narrow_it() {
        let sync = |extra: &str| address(&format!("{{ store: a, sync: 1, phase: before{extra} }}"));
        let met = |extra: &str| meets(&sync(extra), "a", &place(Kind::Sync, 1, 1), Phase::Before);
        assert!(met(""));
        assert!(met(", height: 126") && met(", height: 100..") && !met(", height: 127.."));
        assert!(met(", mode: block_sync") && !met(", mode: consensus"));
        assert!(met(", window: 3") && !met(", window: 4"));
        let outside = Place { store: 0, kind: Kind::Sync, inside: None };
        assert!(!meets(&sync(""), "a", &outside, Phase::Before));
    }

    #[test]
    fn a_store_without_syncs_counts_from_the_flush() {
        let asked = address("{ store: a, write: 11, phase: before }");
        assert!(meets(&asked, "a", &place(WRITE, 1, 1), Phase::Before));
        assert!(!meets(&asked, "a", &place(WRITE, 1, 2), Phase::Before));
    }

    #[test]
    fn a_synced_write_is_met_as_either() {
        let both = place(Kind::Write { synced: true }, 1, 1);
        assert!(meets(&address("{ store: a, sync: 1, phase: after }"), "a", &both, Phase::After));
        assert!(meets(&address("{ store: a, sync: 1, write: first, phase: before }"), "a", &both, Phase::Before));
    }

    #[test]
    fn what_can_never_be_met_is_refused_at_once() {
        let store = Store { name: "a".into(), paths: vec!["a/".into()], except: Vec::new() };
        let layout = Layout { stores: vec![store], ..Layout::default() };
        let refused = |text: &str, tier| refuse(&address(text), &layout, tier);
        refused("{ store: a, sync: 1, write: last, phase: after }", Tier::Record).unwrap();
        refused("{ store: a, sync: 1, phase: before }", Tier::Observe).unwrap();
        for (text, tier, why) in [
            ("{ store: a, sync: 1, write: last, phase: before }", Tier::Record, "after"),
            ("{ store: a, write: last, phase: after }", Tier::Record, "number"),
            ("{ store: a, phase: after }", Tier::Record, "needs a sync or a write"),
            ("{ store: a, sync: 1, write: first, phase: before }", Tier::Observe, "record"),
            ("{ store: a, sync: 1, phase: before }", Tier::None, "without interception"),
            ("{ store: b, sync: 1, phase: before }", Tier::Record, "this node has a"),
            ("{ store: a, sync: 0, phase: before }", Tier::Record, "from 1"),
        ] {
            let said = refused(text, tier).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn the_nearest_address_is_of_the_same_store_and_form() {
        let step = |store, sync, writes, synced| Step { store, sync, writes, synced };
        let steps = [step(0, 1, 2, true), step(1, 1, 3, false)];
        let name = |store: usize| ["a", "b"][store].to_owned();
        let near = |text: &str| nearest(&address(text), &steps, name).unwrap();
        assert_eq!(near("{ store: a, sync: 3, phase: before }"), "{ store: a, sync: 1, phase: before }");
        assert_eq!(near("{ store: b, sync: 1, phase: before }"), "{ store: b, write: first, phase: before }");
        let other = near("{ store: c, sync: 1, write: first, phase: before }");
        assert_eq!(other, "{ store: a, sync: 1, write: first, phase: before }");
        for mode in [None, Some(Mode::Consensus), Some(Mode::BlockSync), Some(Mode::Replay)] {
            for text in addresses(&steps, mode, name) {
                assert_eq!(address(&text).mode, mode, "{text}");
            }
        }
        assert_eq!(nearest(&address("{ store: a, sync: 1, phase: before }"), &[], name), None);
    }
}
