//! Where a container's agent port is really reachable. What was asked for is no evidence: engines publish elsewhere, and a
//! port changes when its container restarts, so it is always read back.

use std::net::IpAddr;

use bollard::models::PortBinding;

/// A published port, as this process can dial it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Published {
    /// `host:port`.
    pub address: String,
    /// Said when other machines can reach it too.
    pub warning: Option<String>,
}

/// Reads the bindings of one port. `remote_host` is the engine's host when it is another machine: then a loopback address
/// in the answer is that machine's.
pub(super) fn read_back(bindings: &[PortBinding], remote_host: Option<&str>) -> Option<Published> {
    let bound = |binding: &PortBinding| {
        let port: u16 = binding.host_port.as_deref()?.parse().ok().filter(|port| *port != 0)?;
        // No address is the wildcard, by the engine's own documentation.
        let ip = binding.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        Some((ip.parse::<IpAddr>().ok()?, port))
    };
    let bound: Vec<(IpAddr, u16)> = bindings.iter().filter_map(bound).collect();
    let open: Vec<String> =
        bound.iter().filter(|(ip, _)| !ip.is_loopback()).map(|(ip, port)| format!("{ip} port {port}")).collect();
    // IPv4 first: the wildcard of IPv6 is often listed and not served.
    let (ip, port) = bound.iter().min_by_key(|(ip, _)| (ip.is_ipv6(), !ip.is_loopback()))?;
    let host = match remote_host {
        Some(host) if host.contains(':') => format!("[{host}]"),
        Some(host) => host.to_owned(),
        None if ip.is_unspecified() => "127.0.0.1".to_owned(),
        None if ip.is_ipv6() => format!("[{ip}]"),
        None => ip.to_string(),
    };
    let warning = (!open.is_empty()).then(|| {
        format!("the agent's port was asked for on 127.0.0.1 and is reachable from outside: {}", open.join(", "))
    });
    Some(Published { address: format!("{host}:{port}"), warning })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(ip: &str, port: &str) -> PortBinding {
        PortBinding { host_ip: Some(ip.to_owned()), host_port: Some(port.to_owned()) }
    }

    #[test]
    fn what_is_open_is_said_and_the_engines_host_is_dialled() {
        let bindings = [binding("0.0.0.0", "49153"), binding("::", "49153")];
        let published = read_back(&bindings, Some("10.0.0.5")).unwrap();
        assert_eq!(published.address, "10.0.0.5:49153");
        assert!(published.warning.unwrap().contains("reachable from outside"));
        assert_eq!(read_back(&bindings, None).unwrap().address, "127.0.0.1:49153");
    }

    #[test]
    fn loopback_is_quiet() {
        let wanted = Published { address: "127.0.0.1:49153".into(), warning: None };
        assert_eq!(read_back(&[binding("127.0.0.1", "49153")], None), Some(wanted));
    }

    #[test]
    fn nothing_published_is_no_address() {
        assert_eq!(read_back(&[], None), None);
        assert_eq!(read_back(&[binding("127.0.0.1", "0")], None), None);
        assert_eq!(read_back(&[PortBinding::default()], None), None);
    }
}
