//! Images with the agent in them. From this binary alone, or this and another static one, an image is made from
//! scratch; any other local image gets the agent as one more layer. All are tagged by content and used again.

use std::collections::BTreeMap;
use std::path::Path;

use bollard::models::ImageInspect;
use bollard::query_parameters::{BuildImageOptionsBuilder, ImportImageOptionsBuilder};
use bollard::{body_full, errors::Error};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};

use super::archive::{self, AGENT, DATA, LayerFile, Recipe};
use super::endpoint::{Endpoint, plain};
use crate::engine::binary::{self, Machine};
use crate::engine::libraries::{self, Libraries};
use crate::engine::{Build, EngineError, Prepared};

/// Label of every image made here: the digest of what went into it.
pub(super) const LABEL_IMAGE: &str = "midflush.image";
/// Names of images that are made when needed, so that nobody misses one that was removed.
const FROM_SCRATCH: &str = "midflush/node";
const WITH_AGENT: &str = "midflush/with-agent";
/// Where a node's program lies in an image made from scratch.
const PROGRAM: &str = "/node";
/// Where the libraries of a program lie that is linked to some.
const LIBRARIES: &str = "/midflush-lib";
/// Changes whenever the layout of images does, so that old ones are not taken for new.
const LAYOUT: &str = "midflush image 1";

/// A build as an image, and how its program is called there.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub image: String,
    pub prepared: Prepared,
}

/// Makes one build ready; `own` is the Linux midflush binary.
pub(super) async fn prepare(endpoint: &Endpoint, own: &Path, build: &Build) -> Result<Ready, EngineError> {
    let agent_digest = usable(own, endpoint.machine, "midflush's own binary").await?;
    match build {
        Build::Own => {
            let image = from_scratch(endpoint, vec![agent(own)], &[&agent_digest]).await?;
            Ok(Ready { image, prepared: prepared(vec![AGENT.to_owned()], agent_digest, BTreeMap::new()) })
        }
        Build::Binary { path } => of_program(endpoint, own, &agent_digest, path).await,
        Build::Image { reference } => derive(endpoint, own, &agent_digest, reference).await,
    }
}

/// The image of a program on this machine, with the libraries that it is linked to.
async fn of_program(endpoint: &Endpoint, own: &Path, agent_digest: &str, path: &Path) -> Result<Ready, EngineError> {
    let (owned, machine) = (path.to_owned(), endpoint.machine);
    let look = move || {
        let elf = binary::check(&owned, machine)?;
        Ok((binary::digest(&owned)?, Libraries::of(&owned, elf)?))
    };
    let (digest, libraries) = blocking(look).await??;
    let mut files = vec![agent(own), LayerFile { to: PROGRAM.to_owned(), from: path.to_owned() }];
    let mut content = vec![agent_digest.to_owned(), digest.clone()];
    let mut env = BTreeMap::new();
    if let Some(libraries) = libraries {
        for (to, from) in libraries.placed(LIBRARIES) {
            content.push(format!("{to} {}", binary::digest(&from)?));
            files.push(LayerFile { to, from });
        }
        env.insert(libraries::VARIABLE.to_owned(), LIBRARIES.to_owned());
    }
    let content: Vec<&str> = content.iter().map(String::as_str).collect();
    let image = from_scratch(endpoint, files, &content).await?;
    Ok(Ready { image, prepared: prepared(vec![PROGRAM.to_owned()], digest, env) })
}

/// Loads an image that serves the dashboard from this binary alone, under a tag of the user's choice.
pub(super) async fn load_local(endpoint: &Endpoint, own: &Path, tag: &str) -> Result<String, EngineError> {
    let digest = usable(own, endpoint.machine, "midflush's own binary").await?;
    load(endpoint, local_recipe(own, endpoint.machine, &digest), tag).await?;
    let loaded = find(endpoint, tag).await?;
    loaded
        .and_then(|image| image.id)
        .ok_or_else(|| EngineError::new(format!("find the image {tag} after it was loaded")))
}

/// The archive of that image, for `docker load` on a machine that cannot be reached from here.
pub(super) fn local_archive(own: &Path, tag: &str) -> Result<Vec<u8>, EngineError> {
    let machine = Machine::here();
    check_static(own, machine, "midflush's own binary")?;
    let digest = binary::digest(own)?;
    archive::loadable(&local_recipe(own, machine, &digest), tag)
        .map_err(|e| EngineError::new("make the image's archive").because(e))
}

/// Results lie in a folder of their own, so that a volume can keep them; it listens on all addresses of the container,
/// which makes it demand a token.
fn local_recipe(own: &Path, machine: Machine, digest: &str) -> Recipe {
    Recipe {
        files: vec![agent(own)],
        folders: vec!["/results", "/tmp"],
        entrypoint: vec![AGENT.to_owned()],
        command: ["serve", "--listen", "0.0.0.0:8420"].map(str::to_owned).to_vec(),
        env: vec!["MIDFLUSH_RESULTS=/results".to_owned()],
        architecture: machine.docker_name(),
        labels: vec![(LABEL_IMAGE.to_owned(), digest.to_owned())],
    }
}

/// Whether a tag is one of those that [`prepare`] gives.
pub(super) fn is_made_here(tag: &str) -> bool {
    tag.rsplit_once(':').is_some_and(|(name, _)| name == FROM_SCRATCH || name == WITH_AGENT)
}

fn agent(own: &Path) -> LayerFile {
    LayerFile { to: AGENT.to_owned(), from: own.to_owned() }
}

fn prepared(program: Vec<String>, digest: String, env: BTreeMap<String, String>) -> Prepared {
    Prepared { program, digest, env }
}

/// Checks a binary that is to run in an image with nothing else in it, and digests it.
async fn usable(path: &Path, machine: Machine, what: &'static str) -> Result<String, EngineError> {
    let path = path.to_owned();
    blocking(move || check_static(&path, machine, what).and_then(|()| binary::digest(&path))).await?
}

/// Checks that a binary runs in an image with nothing else in it.
pub(super) fn check_static(path: &Path, machine: Machine, what: &str) -> Result<(), EngineError> {
    if binary::check(path, machine)?.loader.is_some() {
        return Err(EngineError::new(format!(
            "put {what} {} into an image: it needs a dynamic loader",
            path.display()
        ))
        .mend("build it statically (Go: CGO_ENABLED=0; Rust: target-feature=+crt-static), or give an image"));
    }
    Ok(())
}

/// The image of these files under a tag made of what went in; loaded unless it is there.
async fn from_scratch(endpoint: &Endpoint, files: Vec<LayerFile>, content: &[&str]) -> Result<String, EngineError> {
    let content = content_digest(endpoint.machine, content);
    let tag = format!("{FROM_SCRATCH}:{}", &content[..12]);
    if !is_there(endpoint, &tag, &content).await? {
        let recipe = Recipe {
            files,
            folders: vec![DATA, "/tmp"],
            entrypoint: vec![AGENT.to_owned()],
            command: Vec::new(),
            env: Vec::new(),
            architecture: endpoint.machine.docker_name(),
            labels: vec![(LABEL_IMAGE.to_owned(), content)],
        };
        load(endpoint, recipe, &tag).await?;
    }
    Ok(tag)
}

fn content_digest(machine: Machine, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in [&[LAYOUT, machine.docker_name()], parts].concat() {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hex::encode(hash.finalize())
}

async fn load(endpoint: &Endpoint, recipe: Recipe, tag: &str) -> Result<(), EngineError> {
    let owned_tag = tag.to_owned();
    let bytes = blocking(move || archive::loadable(&recipe, &owned_tag))
        .await?
        .map_err(|e| EngineError::new("make the image's archive").because(e))?;
    let options = ImportImageOptionsBuilder::default().quiet(true).build();
    let answers = endpoint.client.import_image(options, body_full(Bytes::from(bytes)), None);
    let failed = |e: Error| EngineError::new(format!("load the image {tag}")).because(plain(&e));
    answers.try_for_each(|_| async { Ok(()) }).await.map_err(failed)
}

/// A local image with the agent as one more layer.
async fn derive(endpoint: &Endpoint, own: &Path, agent_digest: &str, reference: &str) -> Result<Ready, EngineError> {
    let base = find(endpoint, reference).await?.ok_or_else(|| {
        EngineError::new(format!("find the image {reference} in {}", endpoint.url))
            .mend("build it or load it there first (`docker load -i FILE`); nothing is pulled")
    })?;
    check_platform(reference, &base, endpoint.machine)?;
    let id = base.id.clone().ok_or_else(|| EngineError::new(format!("learn the id of the image {reference}")))?;
    let (program, env) = program_of(reference, &base)?;
    let content = content_digest(endpoint.machine, &[agent_digest, &id]);
    let tag = format!("{WITH_AGENT}:{}", &content[..12]);
    if !is_there(endpoint, &tag, &content).await? {
        build(endpoint, own, &id, &tag, content).await?;
    }
    let digest = id.trim_start_matches("sha256:").to_owned();
    Ok(Ready { image: tag, prepared: prepared(program, digest, env) })
}

async fn build(endpoint: &Endpoint, own: &Path, base: &str, tag: &str, content: String) -> Result<(), EngineError> {
    let (own, base) = (own.to_owned(), base.to_owned());
    let context = blocking(move || archive::build_context(&base, &[agent(&own)], &[(LABEL_IMAGE.to_owned(), content)]))
        .await?
        .map_err(|e| EngineError::new("make the build context").because(e))?;
    let options = BuildImageOptionsBuilder::default().t(tag).rm(true).forcerm(true).build();
    let mut answers = std::pin::pin!(endpoint.client.build_image(options, None, Some(body_full(Bytes::from(context)))));
    while let Some(answer) = answers.next().await {
        let failed = |why: String| EngineError::new(format!("build the image {tag}")).because(why);
        let answer = answer.map_err(|e| failed(plain(&e)))?;
        if let Some(message) = answer.error_detail.and_then(|detail| detail.message) {
            return Err(failed(message));
        }
    }
    Ok(())
}

fn check_platform(reference: &str, image: &ImageInspect, machine: Machine) -> Result<(), EngineError> {
    let os = image.os.as_deref().unwrap_or("linux");
    let architecture = image.architecture.as_deref().unwrap_or_default();
    if os == "linux" && Machine::from_docker(architecture) == Some(machine) {
        return Ok(());
    }
    Err(EngineError::new(format!(
        "use the image {reference}: it is for {os}/{architecture}, this engine runs linux/{}",
        machine.docker_name()
    ))
    .mend("build it for this platform"))
}

/// The program in an image and its environment. As with `docker run IMAGE ARGS`, the entry point stays and the image's
/// own arguments give way to those that the chain adds; an image without entry point names its program first in its
/// command.
fn program_of(reference: &str, image: &ImageInspect) -> Result<(Vec<String>, BTreeMap<String, String>), EngineError> {
    let config = image.config.clone().unwrap_or_default();
    let mut program = config.entrypoint.unwrap_or_default();
    if program.is_empty() {
        program = config.cmd.unwrap_or_default().into_iter().take(1).collect();
    }
    if program.is_empty() {
        return Err(EngineError::new(format!("use the image {reference}: it has neither entry point nor command"))
            .mend("add an ENTRYPOINT that is the node's program"));
    }
    let split = |entry: &String| entry.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    Ok((program, config.env.unwrap_or_default().iter().filter_map(split).collect()))
}

async fn is_there(endpoint: &Endpoint, tag: &str, content: &str) -> Result<bool, EngineError> {
    let label = find(endpoint, tag).await?.and_then(|image| image.config?.labels?.get(LABEL_IMAGE).cloned());
    Ok(label.as_deref() == Some(content))
}

async fn find(endpoint: &Endpoint, reference: &str) -> Result<Option<ImageInspect>, EngineError> {
    match endpoint.client.inspect_image(reference).await {
        Ok(image) => Ok(Some(image)),
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
        Err(e) => Err(EngineError::new(format!("look at the image {reference}")).because(plain(&e))),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| EngineError::new("finish work on another thread").because(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ImageConfig;

    fn image(architecture: &str, entrypoint: &[&str], command: &[&str]) -> ImageInspect {
        let words = |list: &[&str]| Some(list.iter().map(|w| (*w).to_owned()).collect());
        ImageInspect {
            os: Some("linux".into()),
            architecture: Some(architecture.into()),
            config: Some(ImageConfig {
                entrypoint: words(entrypoint),
                cmd: words(command),
                env: words(&["PATH=/bin", "A=b=c"]),
                ..ImageConfig::default()
            }),
            ..ImageInspect::default()
        }
    }

    #[test]
    fn the_entry_point_stays_and_the_arguments_give_way() {
        let (program, env) = program_of("x", &image("amd64", &["/entry", "-v"], &["start"])).unwrap();
        assert_eq!(program, ["/entry", "-v"]);
        assert_eq!(env["A"], "b=c");
        assert_eq!(program_of("x", &image("amd64", &[], &["node", "start"])).unwrap().0, ["node"]);
        assert!(program_of("x", &image("amd64", &[], &[])).unwrap_err().mend.is_some());
    }

    #[test]
    fn images_of_another_platform_are_refused_before_anything_starts() {
        assert!(check_platform("x", &image("amd64", &[], &[]), Machine::X86_64).is_ok());
        let error = check_platform("x", &image("arm64", &[], &[]), Machine::X86_64).unwrap_err().to_string();
        assert!(error.contains("linux/arm64") && error.contains("linux/amd64"), "{error}");
    }

    #[test]
    fn the_tag_follows_the_content() {
        let a = content_digest(Machine::X86_64, &["a", "b"]);
        assert_ne!(a, content_digest(Machine::X86_64, &["ab"]));
        assert_ne!(a, content_digest(Machine::Aarch64, &["a", "b"]));
        assert_eq!(a, content_digest(Machine::X86_64, &["a", "b"]));
    }
}
