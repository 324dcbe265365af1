//! From the arguments that name a topology to a checked plan: shared by every command that takes a topology.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::{CliError, Code, chains};
use crate::chain::Chain;
use crate::plan::{self, BuildPlan, ChainPlan, NodePlan, Plan};
use crate::run::family;
use crate::timeline::Layout;
use crate::topology::{self, Loaded, Problem, Problems};

/// The seed when none is given: the same plan every time.
const SEED: u64 = 1;

/// Arguments that name a topology and what it is made concrete with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TopologyArgs {
    /// The topology file
    #[arg(value_name = "TOPOLOGY")]
    pub(crate) file: PathBuf,

    /// Seed of everything that is drawn: keys, peer graph, times and choices of faults
    #[arg(long, value_name = "N", default_value_t = SEED)]
    pub(crate) seed: u64,

    /// Change the topology before it is read, such as `nodes.late.storage=per-block`; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
}

/// A plan that fits its topology and its nodes' stores.
pub(crate) struct Planned {
    /// What was read.
    pub(crate) loaded: Loaded,
    /// The plan.
    pub(crate) plan: Plan,
    /// The node family.
    pub(crate) chain: Box<dyn Chain>,
    file: PathBuf,
}

impl TopologyArgs {
    /// Reads, plans and checks. Creates nothing.
    pub(crate) fn plan(&self) -> Result<Planned, CliError> {
        let name = self.file.to_string_lossy();
        let bytes = std::fs::read(&self.file).map_err(|e| CliError::input(format!("cannot read {name}: {e}")))?;
        let loaded = topology::load(&name, &bytes, &self.set).map_err(|problems| refused(&problems))?;
        let refuse = |list: Vec<Problem>| refused(&Problems::new(&loaded.source, list));
        let plan = plan::build(&loaded.topology, self.seed).map_err(|problem| refuse(vec![problem]))?;
        let chain = chains::of(&plan)?;
        let planned = Planned { loaded, plan, chain, file: self.file.clone() };
        planned.check_layout()?;
        Ok(planned)
    }
}

/// All problems, coloured on a terminal.
pub(crate) fn refused(problems: &Problems) -> CliError {
    CliError { message: problems.render(std::io::stderr().is_terminal()), code: Code::BadInput }
}

impl Planned {
    /// Puts absolute paths into the plan, and makes the family know what it needs of this machine: of the program, a name
    /// without `/` is looked up on the search path, and every relative path is beside the topology file.
    pub(crate) fn find_program(&mut self) -> Result<(), CliError> {
        let dir = self.file.parent().unwrap_or(Path::new("."));
        let family = family(&self.plan.chain);
        for build in self.plan.builds_mut() {
            let BuildPlan::Binary(program) = build else { continue };
            let found = find(program, dir, std::env::var_os("PATH").as_deref()).ok_or_else(|| {
                CliError::input(format!(
                    "there is no program `{program}`; give its path with `--set chain.{family}.binary=PATH`, or for one of \
                     `builds` with `--set builds.NAME.binary=PATH`, or an image with `--set chain.{family}.image=REFERENCE`"
                ))
            })?;
            *program = found.to_string_lossy().into_owned();
        }
        if let ChainPlan::Gnoland(gnoland) = &mut self.plan.chain {
            for path in [&mut gnoland.genesis, &mut gnoland.root].into_iter().flatten() {
                *path = dir.join(&*path).to_string_lossy().into_owned();
            }
        }
        self.chain = chains::found(&self.plan)?;
        // What the program says of itself may give other stores than the file alone.
        self.check_layout()
    }

    /// Addresses, latencies and expectations against the nodes' stores.
    fn check_layout(&self) -> Result<(), CliError> {
        let layout = |node: &NodePlan| (node.name.clone(), self.chain.layout(&self.plan, node));
        let layouts: BTreeMap<String, Layout> = self.plan.nodes.iter().map(layout).collect();
        let mut problems = plan::check_layout(&self.loaded.topology, &self.plan, &layouts);
        problems.extend(plan::template::check_templates(&self.plan));
        if problems.is_empty() { Ok(()) } else { Err(refused(&Problems::new(&self.loaded.source, problems))) }
    }
}

/// A program by its name on the search path, or by its path from a folder.
pub(crate) fn find(program: &str, dir: &Path, search: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let candidates: Vec<PathBuf> = if program.contains('/') {
        vec![dir.join(program)]
    } else {
        std::env::split_paths(search.unwrap_or_default()).map(|folder| folder.join(program)).collect()
    };
    candidates.iter().find(|path| path.is_file()).and_then(|path| path.canonicalize().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("bin")).unwrap();
        let program = root.join("bin/cometbft");
        std::fs::write(&program, "").unwrap();
        let search = root.join("bin").into_os_string();
        assert_eq!(find("cometbft", Path::new("/"), Some(&search)), Some(program.clone()));
        assert_eq!(find("bin/cometbft", &root, None), Some(program.clone()));
        assert_eq!(find(&program.to_string_lossy(), Path::new("/"), None), Some(program));
        assert_eq!(find("cometbft", &root, None), None);
    }
}
