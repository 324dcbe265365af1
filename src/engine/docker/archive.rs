//! Images as archives made in memory: one layer with a few files, and around it what `docker load` reads. The same input
//! gives the same bytes, so an image is known by the digest of what went into it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// User and group that agent and node run as: no account of any distribution has it, and both must have the same, since
/// the agent reads the node's memory and files.
pub(super) const USER: u64 = 65_532;
/// Where a volume with the node's data is mounted. The node's home is a folder in it, so that the agent has room beside.
pub(super) const DATA: &str = "/midflush-data";
/// The agent in every image.
pub(super) const AGENT: &str = "/midflush";

/// A file of a layer, by its place in the image and on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerFile {
    pub to: String,
    pub from: PathBuf,
}

/// What goes into an image that is made here.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// Executable files.
    pub files: Vec<LayerFile>,
    /// Folders that belong to [`USER`]. A new volume mounted on one of them takes its owner over.
    pub folders: Vec<&'static str>,
    /// Entry point.
    pub entrypoint: Vec<String>,
    /// Arguments that a user may replace.
    pub command: Vec<String>,
    /// Environment.
    pub env: Vec<String>,
    /// Docker's name of the processor family.
    pub architecture: &'static str,
    /// Labels.
    pub labels: Vec<(String, String)>,
}

/// The layer of a recipe, uncompressed.
pub(super) fn layer(files: &[LayerFile], folders: &[&'static str]) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for folder in folders {
        // Only the sticky bit keeps a shared temporary folder safe.
        let mode = if *folder == "/tmp" { 0o1777 } else { 0o755 };
        let header = header(EntryType::Directory, mode, 0, USER);
        append(&mut archive, header, &format!("{}/", relative(folder)), io::empty())?;
    }
    let mut made = BTreeSet::new();
    for file in files {
        // Written out, since a folder that an archive leaves out may be made closed to others.
        let parents: Vec<&Path> = Path::new(relative(&file.to)).ancestors().skip(1).collect();
        for parent in parents.into_iter().rev().filter(|parent| *parent != Path::new("")) {
            if made.insert(parent.to_owned()) {
                let name = format!("{}/", parent.display());
                append(&mut archive, header(EntryType::Directory, 0o755, 0, 0), &name, io::empty())?;
            }
        }
        let content = std::fs::File::open(&file.from)?;
        let size = content.metadata()?.len();
        append(&mut archive, header(EntryType::Regular, 0o755, size, 0), relative(&file.to), content)?;
    }
    archive.into_inner()
}

/// What `docker load` reads, with the image under one tag.
pub(super) fn loadable(recipe: &Recipe, tag: &str) -> io::Result<Vec<u8>> {
    let layer = layer(&recipe.files, &recipe.folders)?;
    let layer_digest = hex::encode(Sha256::digest(&layer));
    let config = serde_json::to_vec(&config(recipe, &layer_digest))?;
    let config_name = format!("{}.json", hex::encode(Sha256::digest(&config)));
    let layer_name = format!("{layer_digest}/layer.tar");
    let manifest = json!([{ "Config": config_name, "RepoTags": [tag], "Layers": [layer_name] }]);
    let manifest = serde_json::to_vec(&manifest)?;
    let mut archive = Builder::new(Vec::new());
    for (name, content) in [("manifest.json", &manifest), (&config_name, &config), (&layer_name, &layer)] {
        append(&mut archive, header(EntryType::Regular, 0o644, content.len() as u64, 0), name, content.as_slice())?;
    }
    archive.into_inner()
}

/// A build context for an image that exists plus the layer of `files` and `folders`. The original entry point is
/// replaced by the agent, and the user by the one that the data folder belongs to.
pub(super) fn build_context(base: &str, files: &[LayerFile], labels: &[(String, String)]) -> io::Result<Vec<u8>> {
    let labels: String = labels.iter().map(|(key, value)| format!("LABEL {key}={value:?}\n")).collect();
    let dockerfile = format!(
        "FROM {base}\nADD layer.tar /\nUSER {USER}:{USER}\nHEALTHCHECK NONE\nENTRYPOINT [\"{AGENT}\"]\nCMD []\n{labels}"
    );
    let layer = layer(files, &[DATA])?;
    let mut archive = Builder::new(Vec::new());
    for (name, content) in [("Dockerfile", dockerfile.as_bytes()), ("layer.tar", &layer)] {
        append(&mut archive, header(EntryType::Regular, 0o644, content.len() as u64, 0), name, content)?;
    }
    archive.into_inner()
}

fn config(recipe: &Recipe, layer_digest: &str) -> serde_json::Value {
    let epoch = "1970-01-01T00:00:00Z";
    let labels: serde_json::Map<_, _> = recipe.labels.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    json!({
        "architecture": recipe.architecture,
        "os": "linux",
        "created": epoch,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": recipe.env,
            "Entrypoint": recipe.entrypoint,
            "Cmd": recipe.command,
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
        "history": [{ "created": epoch, "created_by": "midflush" }],
    })
}

fn header(kind: EntryType, mode: u32, size: u64, owner: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(owner);
    header.set_gid(owner);
    header.set_mtime(0);
    header
}

fn append(archive: &mut Builder<Vec<u8>>, mut header: Header, name: &str, content: impl io::Read) -> io::Result<()> {
    archive.append_data(&mut header, name, content)
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;

    fn entries(archive: &[u8]) -> BTreeMap<String, (u32, u64, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let read = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (name, (entry.header().mode().unwrap(), entry.header().uid().unwrap(), content))
        };
        archive.entries().unwrap().map(read).collect()
    }

    fn recipe(dir: &std::path::Path) -> Recipe {
        let from = dir.join("bin");
        let lib = dir.join("ld.so");
        std::fs::write(&from, "program").unwrap();
        std::fs::write(&lib, "loader").unwrap();
        Recipe {
            files: vec![
                LayerFile { to: AGENT.to_owned(), from },
                LayerFile { to: "/lib64/ld.so".to_owned(), from: lib },
            ],
            folders: vec![DATA],
            entrypoint: vec![AGENT.into()],
            command: vec![],
            env: vec![],
            architecture: "amd64",
            labels: vec![("midflush.image".into(), "x".into())],
        }
    }

    #[test]
    fn the_layer_holds_the_agent_for_all_and_the_data_folder_for_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = recipe(dir.path());
        let found = entries(&layer(&recipe.files, &recipe.folders).unwrap());
        assert_eq!(found["midflush"], (0o755, 0, b"program".to_vec()));
        assert_eq!(found["midflush-data/"], (0o755, USER, vec![]));
        assert_eq!(found["lib64/"], (0o755, 0, vec![]));
        assert_eq!(found["lib64/ld.so"], (0o755, 0, b"loader".to_vec()));
    }

    #[test]
    fn an_archive_names_its_parts_by_digest_and_is_the_same_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = recipe(dir.path());
        let archive = loadable(&recipe, "midflush/node:1").unwrap();
        assert_eq!(archive, loadable(&recipe, "midflush/node:1").unwrap());
        let found = entries(&archive);
        let manifest: serde_json::Value = serde_json::from_slice(&found["manifest.json"].2).unwrap();
        let config_name = manifest[0]["Config"].as_str().unwrap();
        let config = &found[config_name].2;
        assert_eq!(config_name, format!("{}.json", hex::encode(Sha256::digest(config))));
        let config: serde_json::Value = serde_json::from_slice(config).unwrap();
        let layer = &found[manifest[0]["Layers"][0].as_str().unwrap()].2;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(layer)));
        assert_eq!(config["rootfs"]["diff_ids"][0], digest);
        assert_eq!(config["config"]["User"], "65532:65532");
    }

    #[test]
    fn a_derived_image_keeps_its_base_and_gets_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = recipe(dir.path());
        let found = entries(&build_context("sha256:abc", &recipe.files, &recipe.labels).unwrap());
        let dockerfile = String::from_utf8(found["Dockerfile"].2.clone()).unwrap();
        assert!(dockerfile.starts_with("FROM sha256:abc\n"), "{dockerfile}");
        assert!(
            dockerfile.contains("ENTRYPOINT [\"/midflush\"]\n") && dockerfile.contains("LABEL midflush.image=\"x\"")
        );
        assert!(entries(&found["layer.tar"].2).contains_key("midflush"));
    }
}
