//! One container a node: what is asked of the engine, and starting it.

use std::net::Ipv4Addr;

use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HostConfig, HostConfigLogConfig, Mount, MountType,
    MountVolumeOptions, NetworkingConfig, PortBinding, RestartPolicy, RestartPolicyNameEnum,
};
use bollard::query_parameters::{CreateContainerOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder};
use futures_util::StreamExt;

use super::archive::{AGENT, DATA, USER};
use super::endpoint::{Endpoint, plain};
use super::published::{Published, read_back};
use crate::engine::EngineError;

/// Port of the agent in its container.
pub(super) const AGENT_PORT: u16 = 26650;
/// Lines of a container's output that are shown.
const LOG_LINES: &str = "400";

/// What a container is made from.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Container and volume name.
    pub name: String,
    pub run: String,
    pub node: String,
    pub image: String,
    pub network: String,
    pub ip: Ipv4Addr,
    pub token: String,
    pub labels: Vec<(String, String)>,
}

/// The node's home in its container.
pub(super) fn home() -> String {
    format!("{DATA}/home")
}

/// The whole request: everything that makes the container is here.
pub(super) fn request(wanted: &Wanted) -> ContainerCreateBody {
    let listen = format!("{}:{AGENT_PORT}", wanted.ip);
    let home = home();
    let arguments = ["agent", "--listen", &listen, "--home", &home, "--run", &wanted.run, "--node", &wanted.node];
    let port = format!("{AGENT_PORT}/tcp");
    let address = EndpointIpamConfig { ipv4_address: Some(wanted.ip.to_string()), ..EndpointIpamConfig::default() };
    let endpoint = EndpointSettings { ipam_config: Some(address), ..EndpointSettings::default() };
    ContainerCreateBody {
        image: Some(wanted.image.clone()),
        hostname: Some(wanted.node.clone()),
        user: Some(format!("{USER}:{USER}")),
        entrypoint: Some(vec![AGENT.to_owned()]),
        cmd: Some(arguments.map(str::to_owned).to_vec()),
        // In the environment and not in the arguments: those can be read by every user of the host.
        env: Some(vec![format!("MIDFLUSH_TOKEN={}", wanted.token)]),
        exposed_ports: Some(vec![port.clone()]),
        labels: Some(wanted.labels.iter().cloned().collect()),
        host_config: Some(host_config(wanted, port)),
        networking_config: Some(NetworkingConfig {
            endpoints_config: Some([(wanted.network.clone(), endpoint)].into_iter().collect()),
        }),
        ..ContainerCreateBody::default()
    }
}

fn host_config(wanted: &Wanted, port: String) -> HostConfig {
    let loopback = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: Some("0".to_owned()) };
    let volume =
        MountVolumeOptions { labels: Some(wanted.labels.iter().cloned().collect()), ..MountVolumeOptions::default() };
    HostConfig {
        network_mode: Some(wanted.network.clone()),
        port_bindings: Some([(port, Some(vec![loopback]))].into_iter().collect()),
        mounts: Some(vec![Mount {
            typ: Some(MountType::VOLUME),
            source: Some(wanted.name.clone()),
            target: Some(DATA.to_owned()),
            volume_options: Some(volume),
            ..Mount::default()
        }]),
        // Interception needs none: agent and node are one user, and the filter is set under no_new_privs.
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        // A restart would hide the death of an agent and change the published port.
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), ..RestartPolicy::default() }),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some([("max-size".to_owned(), "4m".to_owned())].into_iter().collect()),
        }),
        ..HostConfig::default()
    }
}

/// Creates the container of a node.
pub(super) async fn create(endpoint: &Endpoint, wanted: &Wanted) -> Result<(), EngineError> {
    let options = CreateContainerOptionsBuilder::default().name(&wanted.name).build();
    let created = endpoint.client.create_container(Some(options), request(wanted)).await;
    created.map(drop).map_err(|e| failed("create", wanted).because(plain(&e)))
}

/// Starts it and reads back where its agent is published.
pub(super) async fn start(endpoint: &Endpoint, wanted: &Wanted) -> Result<Published, EngineError> {
    let started = endpoint.client.start_container(&wanted.name, None).await;
    started.map_err(|e| failed("start", wanted).because(plain(&e)))?;
    published(endpoint, &wanted.name).await?.ok_or_else(|| {
        failed("learn the published port of", wanted)
            .mend("look at what it printed: a container that ended publishes nothing")
    })
}

/// Removes the container and leaves its volume.
pub(super) async fn remove(endpoint: &Endpoint, wanted: &Wanted) -> Result<(), EngineError> {
    // Volumes without a name, which the image may declare, go with it.
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    let removed = endpoint.client.remove_container(&wanted.name, Some(options)).await;
    removed.map_err(|e| failed("remove", wanted).because(plain(&e)))
}

fn failed(what: &str, wanted: &Wanted) -> EngineError {
    EngineError::new(format!("{what} the container of {}", wanted.node))
}

/// Where the agent of a container is published now.
pub(super) async fn published(endpoint: &Endpoint, name: &str) -> Result<Option<Published>, EngineError> {
    let inspected = endpoint.client.inspect_container(name, None).await;
    let inspected = inspected.map_err(|e| EngineError::new(format!("inspect {name}")).because(plain(&e)))?;
    let ports = inspected.network_settings.and_then(|settings| settings.ports).unwrap_or_default();
    let bindings = ports.get(&format!("{AGENT_PORT}/tcp")).cloned().flatten().unwrap_or_default();
    let published = read_back(&bindings, endpoint.remote_host());
    if let Some(warning) = published.as_ref().and_then(|published| published.warning.as_deref()) {
        tracing::warn!(container = name, "{warning}");
    }
    Ok(published)
}

/// Whether a container runs; `None` when there is none of this name.
pub(super) async fn is_running(endpoint: &Endpoint, name: &str) -> Option<bool> {
    endpoint.client.inspect_container(name, None).await.ok()?.state?.running
}

/// The end of what a container printed.
pub(super) async fn logs(endpoint: &Endpoint, name: &str) -> Result<String, EngineError> {
    let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail(LOG_LINES).build();
    let mut lines = std::pin::pin!(endpoint.client.logs(name, Some(options)));
    let mut text = String::new();
    while let Some(line) = lines.next().await {
        let line = line.map_err(|e| EngineError::new(format!("read what {name} printed")).because(plain(&e)))?;
        text.push_str(&line.to_string());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            name: "midflush-r1-a".into(),
            run: "r1".into(),
            node: "a".into(),
            image: "midflush/node:1".into(),
            network: "midflush-r1".into(),
            ip: Ipv4Addr::new(10, 64, 0, 2),
            token: "secret".into(),
            labels: vec![("midflush.run".into(), "r1".into())],
        }
    }

    #[test]
    fn the_request_gives_nothing_away() {
        let json = serde_json::to_value(request(&wanted())).unwrap();
        let host = &json["HostConfig"];
        assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
        assert_eq!(host["SecurityOpt"], serde_json::json!(["no-new-privileges"]));
        assert_eq!(host["PortBindings"]["26650/tcp"][0]["HostIp"], "127.0.0.1");
        assert_eq!(host["PortBindings"].as_object().unwrap().len(), 1);
        assert_eq!(host["RestartPolicy"]["Name"], "no");
        assert_eq!(host["Mounts"][0]["VolumeOptions"]["Labels"]["midflush.run"], "r1");
        assert_eq!(json["User"], "65532:65532");
        assert_eq!(
            json["NetworkingConfig"]["EndpointsConfig"]["midflush-r1"]["IPAMConfig"]["IPv4Address"],
            "10.64.0.2"
        );
        assert!(!json["Cmd"].to_string().contains("secret") && json["Env"].to_string().contains("secret"));
    }
}
