//! Finding and removing what carries midflush's labels.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::NetworkDisconnectRequest;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptionsBuilder, ListNetworksOptionsBuilder, ListVolumesOptionsBuilder,
    RemoveContainerOptionsBuilder, RemoveImageOptions, RemoveVolumeOptionsBuilder,
};
use futures_util::StreamExt;
use tokio::time::{Instant, sleep};

use super::IN_FLIGHT;
use super::endpoint::{Endpoint, plain};
use super::image::{LABEL_IMAGE, is_made_here};
use crate::engine::leftovers::removal_rank;
use crate::engine::owner::{LABEL_OWNER, LABEL_RUN, state_of_label};
use crate::engine::{EngineError, Found};

/// How often removal of the same things is tried.
const ROUNDS: usize = 3;
/// How long something that was asked for may take to appear, when nobody waited for the answer.
const LATE_WAIT: Duration = Duration::from_secs(4);
/// Pause between two looks for it.
const LATE_POLL: Duration = Duration::from_millis(100);

/// Everything labelled, or everything of one run.
pub(super) async fn list(endpoint: &Endpoint, run: Option<&str>) -> Result<Vec<Found>, EngineError> {
    let label = run.map_or_else(|| LABEL_RUN.to_owned(), |run| format!("{LABEL_RUN}={run}"));
    let filters = || BTreeMap::from([("label", vec![label.as_str()])]).into_iter().collect();
    let failed = |what: &str, e: Error| EngineError::new(format!("list {what}")).because(plain(&e));
    let client = &endpoint.client;
    let shared = endpoint.remote_host().is_some();
    let found = |kind: &str, id: String, label_of: &dyn Fn(&str) -> Option<String>, foreign| Found {
        kind: kind.to_owned(),
        id,
        run: label_of(LABEL_RUN),
        owner: state_of_label(label_of(LABEL_OWNER).as_deref(), shared),
        foreign,
    };

    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters()).build();
    let containers = client.list_containers(Some(options)).await.map_err(|e| failed("containers", e))?;
    let options = ListNetworksOptionsBuilder::default().filters(&filters()).build();
    let networks = client.list_networks(Some(options)).await.map_err(|e| failed("networks", e))?;
    let options = ListVolumesOptionsBuilder::default().filters(&filters()).build();
    let volumes = client.list_volumes(Some(options)).await.map_err(|e| failed("volumes", e))?;

    // The engine filters, but what is removed must not hang on an engine that ignores a filter.
    let wanted = |of: Option<String>| of.is_some() && run.is_none_or(|run| of.as_deref() == Some(run));
    let mut all = Vec::new();
    for container in &containers {
        let label = |key: &str| container.labels.as_ref()?.get(key).cloned();
        if !wanted(label(LABEL_RUN)) {
            continue;
        }
        let name = container.names.iter().flatten().next().map(|name| name.trim_start_matches('/').to_owned());
        all.push(found("container", name.or_else(|| container.id.clone()).unwrap_or_default(), &label, Vec::new()));
    }
    for network in networks {
        let label = |key: &str| network.labels.as_ref()?.get(key).cloned();
        if !wanted(label(LABEL_RUN)) {
            continue;
        }
        let id = network.name.clone().or_else(|| network.id.clone()).unwrap_or_default();
        let foreign = foreign_endpoints(endpoint, &id, &all, label(LABEL_RUN).as_deref()).await;
        all.push(found("network", id, &label, foreign));
    }
    for volume in volumes.volumes.unwrap_or_default() {
        let label = |key: &str| volume.labels.get(key).cloned();
        if wanted(label(LABEL_RUN)) {
            all.push(found("volume", volume.name.clone(), &label, Vec::new()));
        }
    }
    Ok(all)
}

/// Containers on a network that are not of its run. A network that is gone by now has none.
async fn foreign_endpoints(endpoint: &Endpoint, network: &str, containers: &[Found], run: Option<&str>) -> Vec<String> {
    let Ok(inspected) = endpoint.client.inspect_network(network, None).await else { return Vec::new() };
    let endpoints = inspected.containers.unwrap_or_default();
    let mut foreign: Vec<String> = endpoints
        .into_iter()
        .map(|(id, resource)| resource.name.unwrap_or(id))
        .filter(|name| !containers.iter().any(|ours| ours.id == *name && ours.run.as_deref() == run))
        .collect();
    foreign.sort();
    foreign
}

/// Removes everything of a run, what runs first, and goes on after an error. Containers of somebody else are taken off
/// its network only when `detach` is set. `unanswered` names what a launch that was given up had asked for: it may come to
/// be while the rest is removed, so it is waited for. Tells what went and what did not.
pub(super) async fn remove(
    endpoint: &Endpoint,
    run: &str,
    detach: bool,
    mut unanswered: BTreeSet<String>,
) -> Result<(Vec<Found>, Vec<String>), EngineError> {
    let mut removed = Vec::new();
    let mut left = Vec::new();
    let deadline = Instant::now() + LATE_WAIT;
    let mut rounds = 0;
    loop {
        let mut things = list(endpoint, Some(run)).await?;
        unanswered.retain(|name| !things.iter().any(|thing| thing.id == *name));
        if things.is_empty() && (unanswered.is_empty() || Instant::now() >= deadline) {
            return Ok((removed, Vec::new()));
        }
        if things.is_empty() {
            sleep(LATE_POLL).await;
            continue;
        }
        if rounds == ROUNDS {
            return Ok((removed, left));
        }
        rounds += 1;
        things.sort_by_key(|thing| removal_rank(&thing.kind));
        left.clear();
        for same_rank in things.chunk_by(|a, b| removal_rank(&a.kind) == removal_rank(&b.kind)) {
            let removals = same_rank.iter().cloned().map(|thing| async move {
                let outcome = remove_one(endpoint, &thing, detach).await;
                (thing, outcome)
            });
            let mut outcomes = futures_util::stream::iter(removals).buffered(IN_FLIGHT);
            while let Some((thing, outcome)) = outcomes.next().await {
                match outcome {
                    Ok(()) => removed.push(thing),
                    Err(why) => left.push(format!("{} {}: {why}", thing.kind, thing.id)),
                }
            }
        }
    }
}

async fn remove_one(endpoint: &Endpoint, thing: &Found, detach: bool) -> Result<(), String> {
    let client = &endpoint.client;
    let outcome = match thing.kind.as_str() {
        "container" => {
            // Volumes without a name, which the image may declare, go with it.
            let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            client.remove_container(&thing.id, Some(options)).await
        }
        "network" => {
            if !thing.foreign.is_empty() && !detach {
                return Err(format!("containers of somebody else are on it: {}", thing.foreign.join(", ")));
            }
            for container in &thing.foreign {
                let request = NetworkDisconnectRequest { container: container.clone(), force: Some(true) };
                client.disconnect_network(&thing.id, request).await.map_err(|e| plain(&e))?;
            }
            client.remove_network(&thing.id).await
        }
        _ => {
            let options = RemoveVolumeOptionsBuilder::default().force(true).build();
            client.remove_volume(&thing.id, Some(options)).await
        }
    };
    match outcome {
        Ok(()) => Ok(()),
        // Somebody was faster.
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        Err(Error::DockerResponseServerError { status_code: 409, message })
            if message.contains("already in progress") =>
        {
            gone(endpoint, &thing.id).await
        }
        Err(e) => Err(plain(&e)),
    }
}

/// Waits for a container that somebody else is removing.
async fn gone(endpoint: &Endpoint, container: &str) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if super::container::is_running(endpoint, container).await.is_none() {
            return Ok(());
        }
        sleep(LATE_POLL).await;
    }
    Err("its removal is in progress and does not end".to_owned())
}

/// Removes the images that were made here, as far as no container uses them. Tells the tags that went and those that did
/// not.
pub(super) async fn remove_images(endpoint: &Endpoint) -> Result<(Vec<String>, Vec<String>), EngineError> {
    let filters = BTreeMap::from([("label", vec![LABEL_IMAGE])]).into_iter().collect();
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    let images = endpoint.client.list_images(Some(options)).await;
    let images = images.map_err(|e| EngineError::new("list images").because(plain(&e)))?;
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    // Other tags, such as that of the dashboard's image, somebody chose and may want to keep.
    let tags = images.into_iter().flat_map(|image| image.repo_tags).filter(|tag| is_made_here(tag));
    for tag in tags {
        match endpoint.client.remove_image(&tag, None::<RemoveImageOptions>, None).await {
            Ok(_) | Err(Error::DockerResponseServerError { status_code: 404, .. }) => removed.push(tag),
            Err(e) => left.push(format!("remove the image {tag}: {}", plain(&e))),
        }
    }
    Ok((removed, left))
}
