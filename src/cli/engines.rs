//! Which engine runs the nodes. The only place that names concrete engines.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;

use super::CliError;
use crate::engine::Engine;
use crate::engine::docker::DockerEngine;

/// The values of `--engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// Docker when it answers and fits, else plain processes
    #[default]
    Auto,
    /// Plain processes of this machine, each node on its own loopback address
    Process,
    /// Docker containers
    Docker,
}

/// Options of every command that uses an engine.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct EngineArgs {
    /// What runs the nodes
    #[arg(long, value_enum, default_value_t)]
    pub engine: Choice,

    /// Docker engine, such as `unix:///var/run/docker.sock`; without it DOCKER_HOST and the known sockets are tried
    #[arg(long, value_name = "URL")]
    pub docker_host: Option<String>,

    /// Linux build of midflush that goes into containers; needed where midflush itself does not run on Linux
    #[arg(long, value_name = "PATH")]
    pub node_binary: Option<PathBuf>,
}

/// The engine to use, and why it is this one.
pub(crate) struct Chosen {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// One sentence for people.
    pub why: String,
}

/// Chooses the engine.
///
/// # Errors
/// The one asked for cannot be used here. Nothing was created.
pub(crate) async fn choose(args: &EngineArgs) -> Result<Chosen, CliError> {
    match args.engine {
        Choice::Process => Ok(Chosen { engine: process(args)?, why: "Engine: process, as asked.".to_owned() }),
        Choice::Docker => {
            let docker = docker(args).await.map_err(CliError::tool)?;
            docker.check().map_err(CliError::tool)?;
            let why = format!("Engine: docker, as asked: {}.", docker.about());
            Ok(Chosen { engine: Arc::new(docker), why })
        }
        Choice::Auto => {
            let unfit = match docker(args).await {
                Ok(docker) => match docker.check() {
                    Ok(()) => {
                        let why = format!("Engine: docker, since one answers and fits: {}.", docker.about());
                        return Ok(Chosen { engine: Arc::new(docker), why });
                    }
                    Err(error) => error,
                },
                // A Docker engine that somebody named and that does not answer is a mistake to tell, not to work around.
                Err(error) if args.docker_host.is_some() => return Err(CliError::tool(error)),
                Err(error) => error,
            };
            Ok(Chosen { engine: process(args)?, why: format!("Engine: process, having failed to {}.", unfit.what) })
        }
    }
}

/// Connects to Docker.
pub(crate) async fn docker(args: &EngineArgs) -> Result<DockerEngine, crate::engine::EngineError> {
    let own = own_binary(args).map_err(|e| crate::engine::EngineError {
        what: "find a Linux build of midflush for the containers".to_owned(),
        mend: Some("give one with `--node-binary PATH`".to_owned()),
        cause: Some(e.into()),
    })?;
    DockerEngine::connect(args.docker_host.as_deref(), own).await
}

/// The process engine of this machine.
#[cfg(target_os = "linux")]
pub(crate) fn process(args: &EngineArgs) -> Result<Arc<dyn Engine>, CliError> {
    let own = own_binary(args).map_err(|e| CliError::tool(format!("find midflush's own binary: {e}")))?;
    Ok(Arc::new(crate::engine::process::ProcessEngine::new(own)))
}

/// Interception is a matter of the Linux kernel.
#[cfg(not(target_os = "linux"))]
pub(crate) fn process(_: &EngineArgs) -> Result<Arc<dyn Engine>, CliError> {
    Err(CliError::input("the process engine works on Linux only; use `--engine docker` with `--node-binary PATH`"))
}

/// The Linux binary that becomes the agent: the one given, else this one.
pub(crate) fn own_binary(args: &EngineArgs) -> std::io::Result<PathBuf> {
    match &args.node_binary {
        Some(path) => std::path::absolute(path),
        None if cfg!(target_os = "linux") => std::env::current_exe(),
        None => Err(std::io::Error::other("this build of midflush is not for Linux")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Code;
    use super::*;

    fn args(engine: Choice, docker_host: Option<&str>) -> EngineArgs {
        EngineArgs { engine, docker_host: docker_host.map(str::to_owned), node_binary: None }
    }

    #[tokio::test]
    async fn an_engine_that_somebody_named_is_not_worked_around() {
        for engine in [Choice::Auto, Choice::Docker] {
            let error = choose(&args(engine, Some("unix:///nowhere.sock"))).await.err().expect("no such socket");
            assert_eq!(error.code, Code::Tool);
            assert!(error.message.contains("unix:///nowhere.sock (--docker-host)"), "{}", error.message);
        }
    }

    #[tokio::test]
    async fn auto_always_finds_one_and_says_why() {
        let chosen = choose(&args(Choice::Auto, None)).await.expect("an engine");
        let name = chosen.engine.capabilities().name;
        assert!(chosen.why.starts_with(&format!("Engine: {name}, ")), "{}", chosen.why);
        let asked = choose(&args(Choice::Process, None)).await.expect("an engine");
        assert_eq!(asked.engine.capabilities().name, "process");
    }
}
