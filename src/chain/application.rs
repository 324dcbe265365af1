//! The application in a process of its own beside each node: its build, its files and command, and where the node dials it.
//!
//! An engine runs it like a node of its own, on an address of its own, under the name that the plan gives it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::custom::{self, fill};
use super::{ChainError, FileContents, NodeFiles, bound, program};
use crate::engine::{Binding, Build, NodeBinding};
use crate::plan::template::{ApplicationContext, Context, NodeContext, PlaceContext};
use crate::plan::{ApplicationPlan, ChainPlan, NodePlan, Plan};

/// The application of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    plan: &'a Plan,
    /// As planned.
    pub application: &'a ApplicationPlan,
}

/// The application beside the nodes of a plan, if there is one.
pub fn beside(plan: &Plan) -> Option<Beside<'_>> {
    plan.application.as_ref().map(|application| Beside { plan, application })
}

impl Beside<'_> {
    /// What it is made from.
    pub fn build(&self) -> Build {
        program::build(&self.application.build)
    }

    /// Files and command of the one beside this node. Pure, like those of the node.
    ///
    /// # Errors
    /// One of the two is not bound, or a template cannot be filled in.
    pub fn render(&self, binding: &Binding, node: &NodePlan) -> Result<NodeFiles, ChainError> {
        let place = bound(binding, &ApplicationPlan::name(&node.name))?;
        let context = self.context(binding, node)?;
        let mut command = place.program.clone();
        for text in &self.application.command {
            command.push(fill(text, &context)?);
        }
        let mut files = BTreeMap::new();
        for (path, text) in &self.application.files {
            files.insert(path.clone(), FileContents::secret(fill(text, &context)?));
        }
        let mut env = place.env.clone();
        env.insert("HOME".to_owned(), place.home.to_string_lossy().into_owned());
        for (name, text) in &self.application.env {
            env.insert(name.clone(), fill(text, &context)?);
        }
        Ok(NodeFiles { files, command, env })
    }

    /// Where it serves ABCI.
    ///
    /// # Errors
    /// It is not bound.
    pub fn listens(&self, binding: &Binding, node: &NodePlan) -> Result<SocketAddr, ChainError> {
        listens(binding, node)
    }

    /// A described family has keys to name; of any other the plan's facts and the places.
    fn context(&self, binding: &Binding, node: &NodePlan) -> Result<Context, ChainError> {
        if let ChainPlan::Custom(_) = self.plan.chain {
            return custom::context(self.plan, Some(binding), Some(node));
        }
        let mut known = BTreeMap::new();
        for other in &self.plan.nodes {
            let placed = NodeContext {
                place: Some(self::place(bound(binding, &other.name)?)),
                application: context(self.plan, binding, other)?,
                ..NodeContext::of(other)
            };
            known.insert(other.name.clone(), placed);
        }
        Ok(Context::of(self.plan, Some(node), |other| known.get(&other.name).cloned().unwrap_or_default()))
    }
}

/// What templates may name of where a node lives.
pub(super) fn place(place: &NodeBinding) -> PlaceContext {
    let at = |port| SocketAddr::new(place.ip, port).to_string();
    PlaceContext {
        ip: place.ip.to_string(),
        p2p: at(place.p2p_port),
        rpc: at(place.rpc_port),
        metrics: at(place.metrics_port),
        home: place.home.to_string_lossy().into_owned(),
    }
}

/// What templates may name of the application beside a node, where there is one.
pub(super) fn context(
    plan: &Plan,
    binding: &Binding,
    node: &NodePlan,
) -> Result<Option<ApplicationContext>, ChainError> {
    if plan.application.is_none() {
        return Ok(None);
    }
    let PlaceContext { ip, rpc, metrics, home, .. } = place(bound(binding, &ApplicationPlan::name(&node.name))?);
    Ok(Some(ApplicationContext { ip, address: address(binding, node)?, rpc, metrics, home }))
}

/// `tcp://IP:PORT` at which the application beside a node serves ABCI.
pub(super) fn address(binding: &Binding, node: &NodePlan) -> Result<String, ChainError> {
    Ok(format!("tcp://{}", listens(binding, node)?))
}

/// Where a node would listen for peers.
fn listens(binding: &Binding, node: &NodePlan) -> Result<SocketAddr, ChainError> {
    let place = bound(binding, &ApplicationPlan::name(&node.name))?;
    Ok(SocketAddr::new(place.ip, place.p2p_port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::cometbft::Cometbft;
    use crate::chain::tenderdash::Tenderdash;
    use crate::chain::{Chain, Made, sample};
    use crate::plan::{BESIDE, BuildPlan, CometbftPlan, TenderdashPlan};
    use crate::timeline::Layout;

    fn plan(chain: ChainPlan) -> Plan {
        let texts = |texts: &[(&str, &str)]| texts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let application = ApplicationPlan {
            build: BuildPlan::Binary("/opt/app".to_owned()),
            command: ["--address", "{{ node.application.address }}"].map(str::to_owned).to_vec(),
            env: texts(&[("DB", "{{ node.application.home }}/db"), ("NODE", "http://{{ node.place.rpc }}")]),
            files: texts(&[("config/app.toml", "name = \"{{ node.name }}\"\n")]),
            layout: Layout::default(),
        };
        Plan { application: Some(application), ..sample::plan(chain, 4) }
    }

    fn cometbft() -> Plan {
        plan(ChainPlan::Cometbft(CometbftPlan {
            app: BESIDE.to_owned(),
            version: None,
            database: "goleveldb".to_owned(),
            block_time_ms: 200,
            build: BuildPlan::Binary("/opt/node".to_owned()),
        }))
    }

    #[test]
    fn an_application_gets_its_own_files_command_and_place() {
        let plan = cometbft();
        let binding = sample::binding(&plan, "/opt/app");
        let files = beside(&plan).expect("an application").render(&binding, &plan.nodes[1]).expect("files");
        // Five nodes come first.
        assert_eq!(files.command, ["/opt/app", "--address", "tcp://127.80.3.7:26656"]);
        let env = |name: &str| files.env[name].as_str();
        assert_eq!([env("HOME"), env("DB")], ["/run/sample/val-2.app", "/run/sample/val-2.app/db"]);
        assert_eq!(env("NODE"), "http://127.80.3.2:26657");
        assert_eq!(files.files["config/app.toml"].bytes, b"name = \"val-2\"\n");
        let listens = beside(&plan).expect("an application").listens(&binding, &plan.nodes[1]).expect("an address");
        assert_eq!(listens.to_string(), "127.80.3.7:26656");
    }

    #[test]
    fn nodes_dial_it_and_have_no_store_of_an_application() {
        let no_application = |layout: Layout| {
            let commits = layout.flush.iter().map(|commit| &commit.store);
            !layout.stores.iter().map(|store| &store.name).chain(commits).any(|name| name == "application.db")
        };
        let own = cometbft();
        let binding = sample::binding(&own, "/opt/node");
        let node = &own.nodes[0];
        let files = Cometbft::new().render(&own, &binding, &Made::new(), node).expect("files");
        let address = ["--proxy_app", "tcp://127.80.3.6:26656"];
        assert_eq!(files.command[files.command.len() - 2..], address);
        assert!(no_application(Cometbft::new().layout(&own, node)));

        let other = plan(ChainPlan::Tenderdash(TenderdashPlan {
            app: BESIDE.to_owned(),
            block_time_ms: 200,
            build: BuildPlan::Binary("/opt/node".to_owned()),
        }));
        let files = Tenderdash::new().render(&other, &binding, &Made::new(), node).expect("files");
        let config = String::from_utf8_lossy(&files.files["config/config.toml"].bytes).into_owned();
        assert!(config.contains("[abci]\naddress = \"tcp://127.80.3.6:26656\"\ntransport = \"socket\""), "{config}");
        assert!(no_application(Tenderdash::new().layout(&other, node)));
    }

    #[test]
    fn an_application_that_is_not_bound_is_said() {
        let plan = cometbft();
        let mut binding = sample::binding(&plan, "/opt/app");
        binding.nodes.remove("val-1.app");
        let refused = Cometbft::new().render(&plan, &binding, &Made::new(), &plan.nodes[0]).expect_err("an error");
        assert_eq!(refused.0, "render a node: `val-1.app` is not bound");
    }
}
