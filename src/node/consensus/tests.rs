//! Hosts of several validators in one thread, with a network that the test delivers by hand and time that it makes pass.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::wire::Wire;
use super::*;
use crate::node::crypto::SecretKey;
use crate::node::log::Log;
use crate::node::sign_state::SignState;
use crate::node::types::{Hash, Header, Validator, ValidatorSet};
use crate::node::wal::{Wal, WalOptions};

const CHAIN: &str = "c";

/// An application that proposes a new block each time it is asked.
struct App {
    height: u64,
    asked: Mutex<u64>,
}

impl Application for App {
    fn build_block(&self, proposer: Address) -> Block {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        let none = Hash::default();
        let header = Header {
            chain_id: CHAIN.into(),
            height: self.height,
            time_ms: *asked,
            last_block_id: BlockId::default(),
            last_commit_hash: none,
            data_hash: none,
            validators_hash: none,
            next_validators_hash: none,
            consensus_hash: none,
            app_hash: none,
            last_results_hash: none,
            proposer,
        };
        Block { header, txs: Vec::new(), last_commit: Commit::default() }
    }

    fn validate_block(&self, block: &Block) -> Result<(), String> {
        if block.header.height == self.height { Ok(()) } else { Err("of another height".into()) }
    }
}

type Sent = Arc<Mutex<VecDeque<(usize, Bytes)>>>;

struct Channel {
    from: usize,
    sent: Sent,
}

impl Outlet for Channel {
    fn publish(&self, _height: u64, _salt: u32, payload: Bytes) {
        self.sent.lock().unwrap().push_back((self.from, payload));
    }
}

/// A test network of `n` validators.
struct Net {
    _folder: tempfile::TempDir,
    homes: Vec<PathBuf>,
    keys: Vec<SecretKey>,
    set: Arc<ValidatorSet>,
    hosts: Vec<Option<Host>>,
    apps: Vec<App>,
    sent: Sent,
    decided: Vec<BTreeMap<u64, (BlockId, Commit)>>,
    votes: BTreeMap<(Address, u8, u64, i64), Vec<u8>>,
}

impl Net {
    fn new(n: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys: Vec<_> = (1..=n).map(|i| SecretKey::from_ikm(&[i; 32]).unwrap()).collect();
        let set = Arc::new(ValidatorSet::new(keys.iter().map(|k| Validator::new(k.public_key(), 10)).collect()));
        let homes = (0..n).map(|i| folder.path().join(i.to_string())).collect();
        let apps = (0..n).map(|i| App { height: 1, asked: Mutex::new(u64::from(i) << 32) }).collect();
        let mut net = Self {
            _folder: folder,
            homes,
            keys,
            set,
            hosts: (0..n).map(|_| None).collect(),
            apps,
            sent: Sent::default(),
            decided: vec![BTreeMap::new(); n.into()],
            votes: BTreeMap::new(),
        };
        for index in 0..n.into() {
            net.start(index);
        }
        net
    }

    /// Starts a host from its folder, at the height after its last decision.
    fn start(&mut self, index: usize) {
        let (wal, recovered) = Wal::open(&self.homes[index], WalOptions::default()).unwrap();
        let host = Host::new(Setup {
            chain_id: CHAIN.into(),
            key: self.keys[index].clone(),
            wal,
            recovered: recovered.records,
            sign_state: SignState::open(&self.homes[index].join("sign_state.json"), true).unwrap(),
            outlet: Box::new(Channel { from: index, sent: self.sent.clone() }),
            log: Log::memory(),
        });
        self.hosts[index] = Some(host);
        self.next_height(index);
    }

    fn next_height(&mut self, index: usize) {
        let height = self.decided[index].len() as u64 + 1;
        self.apps[index].height = height;
        let host = self.hosts[index].as_mut().unwrap();
        host.start_height(&self.apps[index], height, self.set.clone()).unwrap();
        self.after(index);
    }

    /// Takes a decision that has been made and goes on.
    fn after(&mut self, index: usize) {
        let host = self.hosts[index].as_mut().unwrap();
        let Some(decision) = host.take_decision() else { return };
        let height = host.height();
        decision.commit.verify(CHAIN, &self.set, height, &decision.block_id).unwrap();
        self.decided[index].insert(height, (decision.block_id, decision.commit));
        host.end_height(height).unwrap();
        self.next_height(index);
    }

    /// Delivers one message to all live hosts but its sender; false when there is none.
    fn deliver(&mut self) -> bool {
        let Some((from, payload)) = self.sent.lock().unwrap().pop_front() else { return false };
        self.note(&payload);
        for index in 0..self.hosts.len() {
            if index == from || self.hosts[index].is_none() {
                continue;
            }
            let host = self.hosts[index].as_mut().unwrap();
            host.on_messages(&self.apps[index], vec![payload.clone()]).unwrap();
            self.after(index);
        }
        true
    }

    /// Every vote that ever left a node, one a validator, kind, height and round.
    fn note(&mut self, payload: &Bytes) {
        if let Ok(Wire::Vote(vote)) = Wire::decode(payload) {
            let key = (vote.address, vote.kind as u8, vote.height.0, vote.round.as_i64());
            let bytes = vote.sign_bytes(CHAIN);
            let first = self.votes.entry(key).or_insert_with(|| bytes.clone());
            assert_eq!(*first, bytes, "two votes at {key:?}");
        }
    }

    /// Makes the earliest pending timeout fire, after the help that live peers give to those who are behind.
    fn pass_time(&mut self) {
        for index in 0..self.hosts.len() {
            self.catch_up(index);
        }
        let due = (0..self.hosts.len()).filter_map(|i| Some((self.hosts[i].as_ref()?.deadline()?, i))).min();
        let Some((deadline, index)) = due else { return };
        let host = self.hosts[index].as_mut().unwrap();
        host.on_time(&self.apps[index], deadline).unwrap();
        self.after(index);
    }

    /// What block sync and an answered request for a height's messages do.
    fn catch_up(&mut self, index: usize) {
        for other in 0..self.hosts.len() {
            if index == other || self.hosts[index].is_none() || self.hosts[other].is_none() {
                continue;
            }
            let height = self.decided[index].len() as u64 + 1;
            if let Some(decision) = self.decided[other].get(&height).cloned() {
                self.decided[index].insert(height, decision);
                let host = self.hosts[index].as_mut().unwrap();
                host.stop_height();
                host.end_height(height).unwrap();
                self.next_height(index);
            } else if self.hosts[other].as_ref().unwrap().height() == height {
                let payloads = self.hosts[other].as_ref().unwrap().heard().to_vec();
                self.hosts[index].as_mut().unwrap().on_messages(&self.apps[index], payloads).unwrap();
                self.after(index);
            }
        }
    }

    fn run_until(&mut self, height: u64) {
        for _ in 0..10_000 {
            let live = (0..self.hosts.len()).filter(|i| self.hosts[*i].is_some());
            if live.clone().all(|i| self.decided[i].len() as u64 >= height) {
                return;
            }
            if !self.deliver() {
                self.pass_time();
            }
        }
        panic!("not decided after 10,000 steps");
    }

    fn assert_agreement(&self) {
        for a in &self.decided {
            for b in &self.decided {
                for (height, (id, _)) in a {
                    assert!(b.get(height).is_none_or(|(other, _)| other == id), "two blocks at height {height}");
                }
            }
        }
    }
}

#[test]
fn four_validators_agree_on_twenty_heights() {
    let mut net = Net::new(4);
    net.run_until(20);
    net.assert_agreement();
    let all_in_round_0 = net.decided[0].values().all(|(_, commit)| commit.round == 0);
    assert!(all_in_round_0, "nobody was slow, so no round failed");
}

#[test]
fn three_of_four_go_on_and_two_do_not() {
    let mut net = Net::new(4);
    net.hosts[2] = None;
    net.run_until(8);
    net.assert_agreement();
    assert!(net.decided[0].values().any(|(_, commit)| commit.round > 0), "the dead one's turn came");
    net.hosts[3] = None;
    let before = net.decided[0].len();
    for _ in 0..2_000 {
        if !net.deliver() {
            net.pass_time();
        }
        if net.votes.keys().any(|(_, _, _, round)| *round > 5) {
            break;
        }
    }
    assert!(net.decided[0].len() <= before + 1, "two of four decide nothing new");
}

#[test]
fn restarts_between_any_two_messages_sign_nothing_twice() {
    let mut random = ChaCha20Rng::seed_from_u64(7);
    let mut net = Net::new(4);
    let mut restarts = 0;
    for _ in 0..2_000 {
        if net.decided.iter().all(|decided| decided.len() >= 12) {
            break;
        }
        if !net.deliver() {
            net.pass_time();
        }
        if random.random_bool(0.2) {
            let index = random.random_range(0..4);
            net.hosts[index] = None;
            net.start(index);
            restarts += 1;
        }
    }
    assert!(net.decided.iter().all(|decided| decided.len() >= 12), "the chain went on");
    assert!(restarts > 15, "{restarts} restarts");
    net.assert_agreement();
}

#[test]
fn without_its_log_a_validator_still_signs_nothing_twice() {
    let mut net = Net::new(4);
    net.run_until(3);
    for _ in 0..6 {
        net.deliver();
    }
    // The log is lost, the sign state is not.
    net.hosts[1] = None;
    std::fs::remove_file(net.homes[1].join("wal")).unwrap();
    net.start(1);
    net.run_until(6);
    net.assert_agreement();
}

#[test]
fn what_was_heard_brings_a_latecomer_to_the_decision() {
    let mut net = Net::new(4);
    net.hosts[3] = None;
    let mut heard = Vec::new();
    while net.decided[0].is_empty() {
        heard = net.hosts[0].as_ref().unwrap().heard().to_vec();
        assert!(net.deliver(), "three of four decide the first height without a timeout");
    }
    net.start(3);
    assert!(net.decided[3].is_empty());
    net.hosts[3].as_mut().unwrap().on_messages(&net.apps[3], heard).unwrap();
    assert!(net.hosts[3].as_ref().unwrap().height() == 1 && !net.votes.is_empty());
    net.run_until(3);
    net.assert_agreement();
}

#[test]
fn forged_and_foreign_messages_change_nothing() {
    let mut net = Net::new(4);
    let host = net.hosts[0].as_mut().unwrap();
    let mut payloads = vec![Bytes::from_static(b"nonsense"), Bytes::new()];
    let sent: Vec<_> = net.sent.lock().unwrap().iter().cloned().collect();
    for (_, payload) in sent {
        if let Ok(Wire::Vote(mut vote)) = Wire::decode(&payload) {
            vote.signature = net.keys[0].sign(b"something else");
            payloads.push(Bytes::from(Wire::Vote(vote.clone()).encode()));
            vote.message.address = net.keys[0].public_key().address();
            payloads.push(Bytes::from(Wire::Vote(vote).encode()));
        }
    }
    assert!(payloads.len() > 2, "some vote was there to forge");
    let before = host.heard().len();
    host.on_messages(&net.apps[0], payloads).unwrap();
    assert_eq!(host.heard().len(), before, "none was accepted");
    net.run_until(2);
    net.assert_agreement();
}
