//! One bridge network a run, on a small private subnet that neither this host nor another network uses. The subnet is
//! chosen here: Docker's own pools hold about thirty networks and may cover routes of a VPN.

use std::net::Ipv4Addr;

use bollard::errors::Error;
use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest};
use sha2::{Digest, Sha256};

use super::endpoint::{Endpoint, plain};
use crate::engine::EngineError;

/// Most nodes in one network: a /24 without its network, gateway and broadcast address.
pub(super) const NODES_MAX: usize = 250;
/// How many subnets are offered to the engine: another run may take one between the look and the request.
const ATTEMPTS: usize = 16;

/// An IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subnet {
    base: u32,
    prefix: u8,
}

impl Subnet {
    fn new(address: Ipv4Addr, prefix: u8) -> Self {
        Self { base: u32::from(address) & mask(prefix), prefix }
    }

    /// Reads `10.1.2.0/24`.
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
        Some(Self::new(address.parse().ok()?, prefix))
    }

    fn overlaps(self, other: Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        self.base & mask(prefix) == other.base & mask(prefix)
    }

    /// The address at a position, 0 being the network's own.
    pub(super) fn address(self, position: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.base + position)
    }

    /// Address of the node at a position in the plan; the first is the gateway's.
    pub(super) fn node(self, index: usize) -> Ipv4Addr {
        self.address(u32::try_from(index).expect("at most 250 nodes in a network") + 2)
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.prefix)
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

/// Makes the network of a run and tells its subnet.
pub(super) async fn create(
    endpoint: &Endpoint,
    name: &str,
    run: &str,
    labels: &[(String, String)],
) -> Result<Subnet, EngineError> {
    let mut used = networks_in_use(endpoint).await?;
    if endpoint.remote_host().is_none() {
        used.extend(routes(&std::fs::read_to_string("/proc/net/route").unwrap_or_default()));
    }
    let mut last = None;
    for subnet in free_subnets(run, &used).take(ATTEMPTS) {
        match endpoint.client.create_network(request(name, subnet, labels)).await {
            Ok(_) => return Ok(subnet),
            Err(e) if is_overlap(&e) => last = Some(e),
            Err(e) => return Err(diagnose(name, &e)),
        }
    }
    let what = format!("make the network {name}: no free subnet was found");
    Err(match last {
        Some(e) => diagnose(name, &e),
        None => EngineError::new(what).mend("run `midflush clean`, or `docker network prune` for networks of others"),
    })
}

fn request(name: &str, subnet: Subnet, labels: &[(String, String)]) -> NetworkCreateRequest {
    let config = IpamConfig {
        subnet: Some(subnet.to_string()),
        gateway: Some(subnet.address(1).to_string()),
        ..IpamConfig::default()
    };
    NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        ipam: Some(Ipam { config: Some(vec![config]), ..Ipam::default() }),
        labels: Some(labels.iter().cloned().collect()),
        ..NetworkCreateRequest::default()
    }
}

/// Subnets that overlap nothing, from a place that the run's id gives, so that runs seldom meet.
fn free_subnets(run: &str, used: &[Subnet]) -> impl Iterator<Item = Subnet> {
    let hash = Sha256::digest(run.as_bytes());
    let start = u32::from(u16::from_le_bytes([hash[0], hash[1]]));
    // 10.64.0.0 to 10.127.255.0 first, then 172.16.0.0 to 172.31.255.0: where the whole of 10/8 is routed, as in many
    // companies, the other range is left.
    let tens = (0..0x4000).map(move |step| 0x0a40_0000 + ((start + step) % 0x4000) * 256);
    let others = (0..0x1000).map(move |step| 0xac10_0000 + ((start + step) % 0x1000) * 256);
    let candidates = tens.chain(others).map(|base| Subnet::new(Ipv4Addr::from(base), 24));
    candidates.filter(move |candidate| !used.iter().any(|taken| taken.overlaps(*candidate)))
}

async fn networks_in_use(endpoint: &Endpoint) -> Result<Vec<Subnet>, EngineError> {
    let networks = endpoint.client.list_networks(None).await;
    let networks = networks.map_err(|e| EngineError::new("list the networks").because(plain(&e)))?;
    let configs = networks.into_iter().filter_map(|network| network.ipam?.config).flatten();
    Ok(configs.filter_map(|config| Subnet::parse(&config.subnet?)).collect())
}

/// Destinations in `/proc/net/route`, without the default route, which covers everything.
fn routes(table: &str) -> Vec<Subnet> {
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok().map(u32::swap_bytes);
        let (base, mask) = (number(1)?, number(7)?);
        let prefix = u8::try_from(mask.count_ones()).ok().filter(|prefix| *prefix > 0)?;
        Some(Subnet::new(Ipv4Addr::from(base), prefix))
    };
    table.lines().skip(1).filter_map(route).collect()
}

fn is_overlap(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { message, .. }
        if message.contains("overlaps") || message.contains("is already used") || message.contains("is being used"))
}

fn diagnose(name: &str, error: &Error) -> EngineError {
    let text = plain(error);
    let full = text.contains("non-overlapping") || is_overlap(error);
    let failed = EngineError::new(format!("make the network {name}")).because(text);
    if full {
        return failed.mend(
            "all address pools are taken: run `midflush clean`, remove networks that nobody uses (`docker network prune`), \
             or widen `default-address-pools` of the engine",
        );
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        Subnet::parse(text).unwrap()
    }

    #[test]
    fn networks_overlap_when_one_holds_the_other() {
        assert!(subnet("10.0.0.0/8").overlaps(subnet("10.64.3.0/24")));
        assert!(subnet("10.64.3.0/24").overlaps(subnet("10.64.3.128/25")));
        assert!(!subnet("10.64.3.0/24").overlaps(subnet("10.64.4.0/24")));
        assert!(subnet("0.0.0.0/0").overlaps(subnet("10.64.4.0/24")));
        assert_eq!(subnet("10.64.3.77/24").to_string(), "10.64.3.0/24");
        assert_eq!(Subnet::parse("10.0.0.0/33"), None);
    }

    #[test]
    fn what_is_used_is_passed_over_and_the_second_range_is_the_last_resort() {
        let first = free_subnets("r1", &[]).next().unwrap();
        let second = free_subnets("r1", &[first]).next().unwrap();
        assert!(!first.overlaps(second));
        let elsewhere = free_subnets("r1", &[subnet("10.0.0.0/8")]).next().unwrap();
        assert!(subnet("172.16.0.0/12").overlaps(elsewhere), "{elsewhere}");
        assert!(free_subnets("r1", &[subnet("10.0.0.0/8"), subnet("172.16.0.0/12")]).next().is_none());
    }

    #[test]
    fn the_kernels_table_is_read_in_its_byte_order() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\n\
                     eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n\
                     tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\n";
        assert_eq!(routes(table), [subnet("192.168.1.0/24"), subnet("10.0.0.0/8")]);
    }

    #[test]
    fn a_full_pool_is_told_with_what_to_do() {
        let message = "could not find an available, non-overlapping IPv4 address pool among the defaults".to_owned();
        let error = diagnose("n", &Error::DockerResponseServerError { status_code: 404, message });
        assert!(error.to_string().contains("default-address-pools"), "{error}");
    }

    #[test]
    fn nodes_follow_the_gateway() {
        assert_eq!(subnet("10.64.3.0/24").node(0), Ipv4Addr::new(10, 64, 3, 2));
        assert_eq!(subnet("10.64.3.0/24").node(NODES_MAX - 1), Ipv4Addr::new(10, 64, 3, 251));
    }
}
