//! Which Docker engine is meant, and whether it answers.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::time::timeout;

use crate::engine::EngineError;
use crate::engine::binary::Machine;

/// Client deadline for one request. Starting a container costs about 0.3 s however many start at once, and a few are in
/// flight; a loaded machine takes many times that, and an image is hundreds of megabytes in a debug build.
const REQUEST_TIMEOUT_S: u64 = 180;
/// How long an engine may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Least kernel: the agent needs `SECCOMP_USER_NOTIF_FLAG_CONTINUE`, which is in Linux 5.5.
const KERNEL_MIN: (u32, u32) = (5, 5);

/// A Docker engine that answered.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub client: Docker,
    /// As `unix:///var/run/docker.sock`.
    pub url: String,
    /// Processor family of the machine that it runs on.
    pub machine: Machine,
    /// Version, kernel and system, for people.
    pub about: String,
    /// Why agents cannot work there.
    pub unsupported: Option<String>,
}

/// One place to try, and where its name comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    source: &'static str,
    url: String,
}

/// What the environment says about where Docker is.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    docker_host: Option<String>,
    runtime_dir: Option<String>,
    home: Option<String>,
}

/// The places to try, in order. One that somebody named is the only one: to fall back to another engine would run a test
/// where nobody expects it.
fn candidates(named: Option<&str>, here: &Surroundings) -> Vec<Candidate> {
    let one = |source, url: &str| vec![Candidate { source, url: url.to_owned() }];
    if let Some(url) = named {
        return one("--docker-host", url);
    }
    if let Some(url) = here.docker_host.as_deref().filter(|url| !url.is_empty()) {
        return one("DOCKER_HOST", url);
    }
    let mut sockets = vec!["/var/run/docker.sock".to_owned()];
    sockets.extend(here.runtime_dir.iter().map(|dir| format!("{dir}/docker.sock")));
    sockets.extend(here.home.iter().map(|dir| format!("{dir}/.docker/run/docker.sock")));
    sockets.extend(here.runtime_dir.iter().map(|dir| format!("{dir}/podman/podman.sock")));
    sockets.push("/run/podman/podman.sock".to_owned());
    let url = |path| format!("unix://{path}");
    sockets.into_iter().map(|path| Candidate { source: "known socket", url: url(path) }).collect()
}

/// Finds a Docker engine: the one named, else the one in `DOCKER_HOST`, else the first known socket that answers. The
/// error says what was tried and how each failed.
pub(super) async fn connect(named: Option<&str>) -> Result<Endpoint, EngineError> {
    let variable = |key| std::env::var(key).ok();
    let here = Surroundings {
        docker_host: variable("DOCKER_HOST"),
        runtime_dir: variable("XDG_RUNTIME_DIR"),
        home: variable("HOME"),
    };
    let mut tried = Vec::new();
    for candidate in candidates(named, &here) {
        match greet(&candidate.url).await {
            Ok(endpoint) => return Ok(endpoint),
            Err(why) => tried.push(format!("{} ({}): {why}", candidate.url, candidate.source)),
        }
    }
    Err(EngineError::new(format!("reach a Docker engine; tried {}", tried.join(", ")))
        .mend("start Docker, name it with `--docker-host unix:///PATH`, or use `--engine process`"))
}

async fn greet(url: &str) -> Result<Endpoint, String> {
    let client = open(url)?;
    let version = match timeout(HELLO_TIMEOUT, client.version()).await {
        Ok(Ok(version)) => version,
        Ok(Err(e)) => return Err(plain(&e)),
        Err(_) => return Err(format!("no answer in {} s", HELLO_TIMEOUT.as_secs())),
    };
    let arch = version.arch.unwrap_or_default();
    let kernel = version.kernel_version.unwrap_or_default();
    let os = version.os.unwrap_or_default();
    let machine = Machine::from_docker(&arch).ok_or_else(|| format!("its architecture `{arch}` is not supported"))?;
    let about = format!("Docker {}, {os}/{arch}, kernel {kernel}", version.version.unwrap_or_default());
    let unsupported = unsupported(&os, &kernel);
    Ok(Endpoint { client, url: url.to_owned(), machine, about, unsupported })
}

fn open(url: &str) -> Result<Docker, String> {
    let path = url.strip_prefix("unix://").or_else(|| url.starts_with('/').then_some(url));
    if let Some(path) = path {
        if !Path::new(path).exists() {
            return Err("no such socket".to_owned());
        }
        return Docker::connect_with_unix(path, REQUEST_TIMEOUT_S, API_DEFAULT_VERSION).map_err(|e| plain(&e));
    }
    let secured = std::env::var("DOCKER_TLS_VERIFY").is_ok_and(|value| !value.is_empty());
    if !secured && (url.starts_with("tcp://") || url.starts_with("http://")) {
        return Docker::connect_with_http(url, REQUEST_TIMEOUT_S, API_DEFAULT_VERSION).map_err(|e| plain(&e));
    }
    Err("only unix:// and plain tcp:// are spoken; forward the socket with `ssh -L PATH:/var/run/docker.sock HOST`"
        .into())
}

/// Why agents cannot work on a system.
fn unsupported(os: &str, kernel: &str) -> Option<String> {
    if os != "linux" {
        return Some(format!("it runs {os} containers, the agent needs Linux"));
    }
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= KERNEL_MIN => None,
        _ => Some(format!("its kernel is `{kernel}`, the agent needs Linux {}.{}", KERNEL_MIN.0, KERNEL_MIN.1)),
    }
}

impl Endpoint {
    /// The host name in a TCP endpoint; `None` for a socket of this machine.
    pub(super) fn remote_host(&self) -> Option<&str> {
        remote_host(&self.url)
    }
}

fn remote_host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("tcp://").or_else(|| url.strip_prefix("http://"))?;
    let authority = rest.split('/').next()?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    (!loopback).then_some(host)
}

/// The text of a client error with its causes: the client's own says little more than "request failed".
pub(super) fn plain(error: &bollard::errors::Error) -> String {
    if let bollard::errors::Error::DockerResponseServerError { status_code, message } = error {
        return format!("{message} (HTTP {status_code})");
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Surroundings {
        let text = |s: &str| Some(s.to_owned());
        Surroundings { docker_host: None, runtime_dir: text("/run/user/7"), home: text("/home/u") }
    }

    fn urls(named: Option<&str>, here: &Surroundings) -> Vec<String> {
        candidates(named, here).into_iter().map(|candidate| candidate.url).collect()
    }

    #[test]
    fn a_named_engine_is_the_only_one_tried() {
        let with_host = Surroundings { docker_host: Some("tcp://10.0.0.5:2375".into()), ..here() };
        assert_eq!(urls(Some("unix:///x.sock"), &with_host), ["unix:///x.sock"]);
        assert_eq!(urls(None, &with_host), ["tcp://10.0.0.5:2375"]);
        let known = [
            "unix:///var/run/docker.sock",
            "unix:///run/user/7/docker.sock",
            "unix:///home/u/.docker/run/docker.sock",
            "unix:///run/user/7/podman/podman.sock",
            "unix:///run/podman/podman.sock",
        ];
        assert_eq!(urls(None, &here()), known);
    }

    #[tokio::test]
    async fn the_error_says_what_was_tried() {
        let error = connect(Some("unix:///nowhere/docker.sock")).await.unwrap_err().to_string();
        assert!(error.contains("unix:///nowhere/docker.sock (--docker-host): no such socket"), "{error}");
        let error = connect(Some("ssh://u@h")).await.unwrap_err().to_string();
        assert!(error.contains("ssh -L"), "{error}");
    }

    #[test]
    fn old_kernels_and_other_systems_are_refused() {
        assert_eq!(unsupported("linux", "6.18.44-fc-v669"), None);
        assert_eq!(unsupported("linux", "5.5"), None);
        assert!(unsupported("linux", "5.4.0-1").is_some());
        assert!(unsupported("linux", "").is_some());
        assert!(unsupported("windows", "10.0").is_some());
    }

    #[test]
    fn only_other_machines_are_remote() {
        assert_eq!(remote_host("tcp://10.0.0.5:2376"), Some("10.0.0.5"));
        assert_eq!(remote_host("tcp://[fd00::1]:2375"), Some("fd00::1"));
        assert_eq!(remote_host("tcp://127.0.0.1:2375"), None);
        assert_eq!(remote_host("unix:///var/run/docker.sock"), None);
    }
}
