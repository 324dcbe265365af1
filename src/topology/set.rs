//! `--set path=value`: changes the tree before it is read into types.

use super::path::{Path, Step};
use super::reader::listed;
use super::similar::nearest;
use super::tree::{Tree, parse};

/// Carries out one argument. The result is the path that it changed; an error says what is wrong and what is there instead.
pub(super) fn apply(tree: &mut Tree, argument: &str) -> Result<Path, String> {
    let Some((path, value)) = argument.split_once('=') else {
        return Err("there is no `=`: write it like `nodes.late.storage=per-block`".to_owned());
    };
    let path = Path::parse(path.trim()).map_err(|why| format!("`{}` is no path: {why}", path.trim()))?;
    if let Some(meant) = dotted(&path) {
        return Err(format!(
            "a key with a dot in it stands in double quotes, and these in single ones, since a shell takes the outer ones away: \
             --set '{meant}={value}'"
        ));
    }
    let value = parse(value).map_err(|error| format!("the value is no YAML: {error}"))?;
    put(tree, &path, value)?;
    Ok(path)
}

/// Keys whose map has names of stores as keys.
const OVER_STORES: [&str; 4] = ["sync", "consensus", "block_sync", "replay"];

/// What a path means that names a store such as `state.db` without quotes, which makes it two keys.
fn dotted(path: &Path) -> Option<Path> {
    let over = |step: &Step| matches!(step, Step::Key(key, _) if OVER_STORES.contains(&key.as_str()));
    path.steps.windows(3).enumerate().find_map(|(at, steps)| match steps {
        [above, Step::Key(store, _), Step::Key(kind, _)] if over(above) && (kind == "db" || kind == "wal") => {
            let mut meant = path.clone();
            let whole = Step::Key(format!("{store}.{kind}"), 0);
            meant.steps.splice(at + 1..at + 3, [whole]);
            Some(meant)
        }
        _ => None,
    })
}

/// Puts a value where a path leads.
pub(super) fn put(tree: &mut Tree, path: &Path, value: Tree) -> Result<(), String> {
    let mut at = Path::root();
    let mut place = tree;
    for (position, step) in path.steps.iter().enumerate() {
        let last = position + 1 == path.steps.len();
        place = match step {
            Step::Index(index) => element(place, &at, *index)?,
            Step::Key(key, _) => entry(place, &at, key, last)?,
        };
        at.steps.push(step.clone());
    }
    *place = value;
    Ok(())
}

fn element<'t>(place: &'t mut Tree, at: &Path, index: usize) -> Result<&'t mut Tree, String> {
    let found = place.describe();
    let Tree::List(list) = place else {
        return Err(match place {
            Tree::Null => format!("there is no list `{at}` to change an entry of"),
            _ => format!("`{at}` is {found}, not a list"),
        });
    };
    let count = list.len();
    list.get_mut(index).ok_or_else(|| match count {
        0 => format!("`{at}` is empty"),
        _ => format!("`{at}` has `[0]` to `[{}]`", count - 1),
    })
}

/// The value under a key. A key that is not there is made, unless it is likely to be misspelt; whether the language knows it
/// is found out later.
fn entry<'t>(place: &'t mut Tree, at: &Path, key: &str, last: bool) -> Result<&'t mut Tree, String> {
    if *place == Tree::Null {
        *place = Tree::Map(Vec::new());
    }
    let found = place.describe();
    let Tree::Map(map) = place else {
        return Err(format!("`{at}` is {found}: there is no `{key}` in it"));
    };
    let position = match map.iter().position(|(name, _)| name == key) {
        Some(position) => position,
        None => {
            let keys = || map.iter().map(|(name, _)| name.as_str());
            let here = if at.steps.is_empty() { "the topology".to_owned() } else { format!("`{at}`") };
            let group = at.to_string() == "nodes";
            match nearest(key, keys()).filter(|_| !last || group) {
                Some(meant) => return Err(format!("there is no `{key}` in {here}: did you mean `{meant}`?")),
                None if group => return Err(format!("there is no `{key}` in {here}, only {}", listed(keys()))),
                None => {}
            }
            map.push((key.to_owned(), Tree::Null));
            map.len() - 1
        }
    };
    Ok(&mut map[position].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(argument: &str) -> Result<String, String> {
        let mut tree =
            parse("nodes: {late: {storage: deferred}}\nload: {rate: 1/s}\nfaults: [{name: a}]\nchain: {cometbft: }")
                .unwrap();
        apply(&mut tree, argument)?;
        Ok(serde_yaml::to_string(&tree).unwrap())
    }

    #[test]
    fn values_are_replaced_and_added() {
        assert!(after("nodes.late.storage=per-block").unwrap().contains("storage: per-block"));
        assert!(after("nodes.late.start.after=2s").unwrap().contains("start:\n      after: 2s"));
        assert!(after("faults[0].at={height: 40}").unwrap().contains("at:\n    height: 40"));
        assert!(after("chain.cometbft.binary=/bin/x").unwrap().contains("cometbft:\n    binary: /bin/x"));
        assert!(after("load.rate=100/s").unwrap().contains("rate: 100/s"));
        let latency = after("nodes.late.disk.sync.\"state.db\"=5ms").unwrap();
        assert!(latency.contains("sync:\n        state.db: 5ms"), "{latency}");
    }

    #[test]
    fn errors_name_the_path_and_what_is_there() {
        for (argument, why) in [
            ("load.rate", "there is no `=`"),
            ("nodes.lat.storage=x", "no `lat` in `nodes`: did you mean `late`?"),
            ("nodes.validators.storage=x", "no `validators` in `nodes`, only `late`"),
            ("lod.rate=1/s", "no `lod` in the topology: did you mean `load`?"),
            ("faults[3].name=x", "`faults` has `[0]` to `[0]`"),
            ("load[0]=x", "`load` is a map, not a list"),
            ("builds[0].binary=x", "there is no list `builds` to change an entry of"),
            ("load.rate.x=1", "`load.rate` is the text `1/s`: there is no `x` in it"),
            ("load.rate=[", "the value is no YAML"),
            ("load..rate=1", "`load..rate` is no path: a key is empty"),
            ("nodes.late.disk.sync.state.db=5ms", "--set 'nodes.late.disk.sync.\"state.db\"=5ms'"),
            ("expect.syncs_per_block.late.consensus.cs.wal=1", "late.consensus.\"cs.wal\"=1'"),
        ] {
            let error = after(argument).unwrap_err();
            assert!(error.contains(why), "{argument}: {error}");
        }
    }
}
