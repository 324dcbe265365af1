//! From the arguments that name a topology to a checked plan: shared by every command that takes a topology.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::program::{self, find};
use super::{CliError, Code, chains};
use crate::chain::Chain;
use crate::engine::Capabilities;
use crate::plan::reach::{self, HEIGHT_WAIT};
use crate::plan::{self, BuildPlan, ChainPlan, FaultPlan, NodePlan, Plan};
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
    #[arg(long, value_name = "N", default_value_t = SEED, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// Change the topology before it is read, such as `nodes.late.storage=per-block`; may be repeated. A key with a dot in it
    /// stands in double quotes, and the whole in single ones, since a shell takes the outer ones away:
    /// 'nodes.late.disk.sync."state.db"=5ms'
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,

    /// Ends the run after this time, such as `90s`; what was seen by then is judged. Heights that the chain cannot reach in it,
    /// or in one hour where it is not given, are not waited for
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) time_limit: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|_| "write a time such as `90s` or `2m`".to_owned())?;
    Duration::try_from(span).map_err(|_| "a time is never negative".to_owned())
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
    /// How long heights are waited for.
    heights_wait: Duration,
}

/// Reads a seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

impl TopologyArgs {
    /// Reads, plans and checks. Creates nothing.
    pub(crate) fn plan(&self) -> Result<Planned, CliError> {
        let name = self.file.to_string_lossy();
        let bytes = topology::read(&self.file).map_err(|e| CliError::input(format!("cannot read {name}: {e}")))?;
        let loaded = topology::load(&name, &bytes, &self.set).map_err(|problems| refused(&problems))?;
        let refuse = |list: Vec<Problem>| refused(&Problems::new(&loaded.source, list));
        let plan = plan::build(&loaded.topology, self.seed).map_err(|problem| refuse(vec![problem]))?;
        let chain = chains::of(&plan)?;
        let heights_wait = self.time_limit.unwrap_or(HEIGHT_WAIT);
        let mut planned = Planned { loaded, plan, chain, file: self.file.clone(), heights_wait };
        planned.note_heights();
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
    /// without `/` is looked up on the search path, and every relative path is beside the topology file. A program that the
    /// engine could not run is refused here, before anything is created.
    pub(crate) fn find_program(&mut self, engine: &Capabilities) -> Result<(), CliError> {
        let dir = self.file.parent().unwrap_or(Path::new("."));
        let (loaded, family) = (&self.loaded, self.plan.chain.family());
        for build in self.plan.builds_mut() {
            let BuildPlan::Binary(program) = build else { continue };
            let found = find(program, dir, std::env::var_os("PATH").as_deref())
                .ok_or_else(|| program::not_found(loaded, family, program))?;
            program::check(&found, engine).map_err(|error| program::refuse(loaded, family, program, &error))?;
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

    /// Why a node's program can run as a process of this machine only, if one is such.
    pub(crate) fn tied_to_machine(&self) -> Option<String> {
        let needed = self.chain.tied_to_machine()?;
        let mut plan = self.plan.clone();
        let program = plan.builds_mut().find_map(|build| match build {
            BuildPlan::Binary(program) => Some(program.clone()),
            _ => None,
        });
        program.map(|program| format!("the program `{program}` needs {needed}"))
    }

    /// Says which faults cannot land in time, and which node would not be started.
    fn note_heights(&mut self) {
        let plan = &self.plan;
        let far = |fault: &FaultPlan| {
            let why = reach::too_far(plan, fault, self.heights_wait)?;
            Some(format!("fault `{}` cannot land: {why}", fault.setup.id.name))
        };
        let mut notes: Vec<String> = plan.faults.iter().filter_map(far).collect();
        notes.dedup();
        notes.extend(self.never_started());
        self.loaded.notes.extend(notes);
    }

    fn never_started(&self) -> Option<String> {
        let (node, why) = reach::starts_too_far(&self.plan, self.heights_wait)?;
        Some(format!("`{node}` would never be started: {why}"))
    }

    /// A run that could not end, since a node would not be started, is refused before anything is created.
    pub(crate) fn check_starts(&self) -> Result<(), CliError> {
        self.never_started().map_or(Ok(()), |why| Err(CliError::input(why)))
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
