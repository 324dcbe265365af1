//! Addresses for one run: a /24 of its own out of 127.0.0.0/8, so that every node has its own address and all use the
//! same ports.
//!
//! A block is held by an abstract Unix socket named after it. The kernel keeps such names for exactly the network
//! namespace in which loopback addresses clash, whoever the user is, and frees them when the holder dies, so nothing is
//! left behind. Agents that outlive their controller, and listeners of somebody else, are found by binding.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use sha2::{Digest, Sha256};

use crate::engine::EngineError;

/// Most nodes in one block: the network and broadcast addresses stay unused.
pub(super) const NODES_MAX: usize = 254;

/// Ports of every node of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub agent: u16,
    pub p2p: u16,
    pub rpc: u16,
    pub metrics: u16,
}

impl Ports {
    const USUAL: Self = Self { agent: 26650, p2p: 26656, rpc: 26657, metrics: 26660 };

    /// The usual ports moved up. A listener on the wildcard address takes its port on every address, so another block
    /// does not help then, but other ports do.
    fn moved(shift: u16) -> Self {
        let Self { agent, p2p, rpc, metrics } = Self::USUAL;
        Self { agent: agent + shift, p2p: p2p + shift, rpc: rpc + shift, metrics: metrics + shift }
    }

    fn all(self) -> [u16; 4] {
        [self.agent, self.p2p, self.rpc, self.metrics]
    }
}

/// Shifts that are tried; all stay below 32768, where the kernel hands out ports by itself.
const SHIFTS: [u16; 6] = [0, 1000, 2000, 3000, 4000, 5000];
/// Blocks that are tried for each shift.
const BLOCKS_PER_SHIFT: u16 = 24;
/// Second octets: far from 127.0 and 127.1, where resolvers and distributions listen.
const SECOND_OCTETS: std::ops::Range<u16> = 64..127;

/// A block held for a run until it is dropped.
#[derive(Debug)]
pub(super) struct Block {
    second: u8,
    third: u8,
    /// Ports that were free on every address of the block.
    pub ports: Ports,
    _held: UnixListener,
}

impl Block {
    /// Holds a free block for `nodes` nodes. The run's id says where the search starts, so that runs seldom meet.
    pub(super) fn reserve(run: &str, nodes: usize) -> Result<Self, EngineError> {
        assert!(nodes <= NODES_MAX, "the number of nodes is checked before");
        let hash = Sha256::digest(run.as_bytes());
        let start = u16::from_le_bytes([hash[0], hash[1]]);
        let mut busy = None;
        for shift in SHIFTS {
            let ports = Ports::moved(shift);
            for step in 0..BLOCKS_PER_SHIFT {
                let (second, third) = nth_block(start.wrapping_add(step));
                let Some(held) = hold(second, third) else { continue };
                match first_busy(second, third, nodes, ports) {
                    None => return Ok(Self { second, third, ports, _held: held }),
                    Some(address) => busy = Some(address),
                }
            }
        }
        let what = match busy {
            Some(address) => format!("find a free loopback block: {address}, for one, is in use"),
            None => "find a free loopback block: all that were tried belong to other runs".to_owned(),
        };
        Err(EngineError::new(what).mend("run `midflush clean`, or end what listens there"))
    }

    /// Address of the node at a position in the plan.
    pub(super) fn address(&self, index: usize) -> Ipv4Addr {
        node_address(self.second, self.third, index)
    }
}

/// The block at a position of the search, which goes round.
fn nth_block(position: u16) -> (u8, u8) {
    let width = SECOND_OCTETS.end - SECOND_OCTETS.start;
    let second = SECOND_OCTETS.start + (position / 256) % width;
    (u8::try_from(second).expect("below 127"), u8::try_from(position % 256).expect("below 256"))
}

fn node_address(second: u8, third: u8, index: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, second, third, u8::try_from(index + 1).expect("at most 254 nodes in a block"))
}

/// Takes the block's name, `None` when another run has it.
fn hold(second: u8, third: u8) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("midflush/127.{second}.{third}.0/24")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

/// The first address in the block that cannot be listened on.
fn first_busy(second: u8, third: u8, nodes: usize, ports: Ports) -> Option<SocketAddrV4> {
    (0..nodes)
        .flat_map(|index| ports.all().map(|port| SocketAddrV4::new(node_address(second, third, index), port)))
        .find(|address| TcpListener::bind(address).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_never_share_a_block_even_with_one_id() {
        let first = Block::reserve("same", 3).unwrap();
        let second = Block::reserve("same", 3).unwrap();
        assert_ne!((first.second, first.third), (second.second, second.third));
    }

    #[test]
    fn a_block_with_a_foreign_listener_is_passed_over() {
        let run = "foreign-listener";
        let free = Block::reserve(run, 2).unwrap();
        let (second, third, ports) = (free.second, free.third, free.ports);
        let _foreign = TcpListener::bind((free.address(1), ports.rpc)).unwrap();
        drop(free);
        let found = Block::reserve(run, 2).unwrap();
        assert_ne!((found.second, found.third), (second, third));
        assert_eq!(found.ports, ports);
    }

    #[test]
    fn addresses_stay_away_from_the_first_blocks() {
        for position in [0, 255, 256, 16127, 16128, u16::MAX] {
            let (second, _) = nth_block(position);
            assert!((64..127).contains(&second), "{position} gave {second}");
        }
        assert_eq!(node_address(80, 3, 0), Ipv4Addr::new(127, 80, 3, 1));
        assert_eq!(node_address(80, 3, 253), Ipv4Addr::new(127, 80, 3, 254));
    }
}
