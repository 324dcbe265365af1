//! `midflush image`: the container image of this binary, made without a registry and without a build tool. Its command
//! is `serve`, and `docker-compose.yml` runs it.

use std::path::PathBuf;

use super::engines::{self, EngineArgs};
use super::{CliError, Code};
use crate::engine::docker::local_image_archive;

/// Arguments of `image`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Name and tag of the image
    #[arg(long, default_value = "midflush:local")]
    tag: String,

    /// Write the archive to a file for `docker load -i FILE` and leave Docker alone
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Docker engine, such as `unix:///var/run/docker.sock`; without it DOCKER_HOST and the known sockets are tried
    #[arg(long, value_name = "URL")]
    docker_host: Option<String>,

    /// Linux build of midflush to put into the image; needed where midflush itself does not run on Linux
    #[arg(long, value_name = "PATH")]
    node_binary: Option<PathBuf>,
}

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<Code, CliError> {
    let engine = EngineArgs { docker_host: args.docker_host, node_binary: args.node_binary, ..EngineArgs::default() };
    if let Some(file) = args.output {
        let own =
            engines::own_binary(&engine).map_err(|e| CliError::tool(format!("find midflush's own binary: {e}")))?;
        let archive = local_image_archive(&own, &args.tag).map_err(CliError::tool)?;
        std::fs::write(&file, archive).map_err(|e| CliError::tool(format!("write {}: {e}", file.display())))?;
        super::say(format_args!("wrote {} with the image {}\n", file.display(), args.tag));
        return Ok(Code::Ok);
    }
    let docker = engines::docker(&engine).await.map_err(CliError::tool)?;
    let id = docker.load_local_image(&args.tag).await.map_err(CliError::tool)?;
    super::say(format_args!("loaded {} ({id}) into {}\n", args.tag, docker.about()));
    Ok(Code::Ok)
}
