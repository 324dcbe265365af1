//! Networks of a few nodes in one process, over loopback.

use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU8;

use super::*;
use crate::node::types::TxResult;

struct Blocks;

impl BlockSource for Blocks {
    fn block(&self, height: u64) -> Option<Bytes> {
        (height <= 5).then(|| block_body(format!("block {height}").as_bytes(), b"commit"))
    }
}

struct Node {
    network: Network,
    events: inbox::Receiver<Event>,
    mempool: Arc<Mempool>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// An address of this process and test alone.
fn address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::new(Ipv4Addr::new(127, high | 64, low, NEXT.fetch_add(1, Ordering::Relaxed)).into(), 26656)
}

async fn start(name: &str, chain_id: &str, listen: SocketAddr, dial: &[(&str, SocketAddr)]) -> Node {
    let (sender, events) = inbox::inbox(1 << 16);
    let mempool = Arc::new(Mempool::new(|_| TxResult { code: 0, log: String::new() }));
    let hello = Hello {
        chain_id: chain_id.into(),
        genesis_hash: [1; 32],
        name: name.into(),
        public_key: [0; 48],
        boot: listen.to_string().len() as u64,
    };
    let options = Options {
        hello,
        listen,
        dial: dial.iter().map(|(name, address)| Peer { name: (*name).into(), address: *address }).collect(),
        blocks: Arc::new(Blocks),
        mempool: mempool.clone(),
        events: sender,
    };
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let network = Network::start(options, stop.clone(), &tasks).await.unwrap();
    network.set_wants_consensus(true);
    Node { network, events, mempool, stop, tasks }
}

impl Node {
    /// The next event that `wanted` takes; others are passed over. Fails after ten seconds.
    async fn wait<T>(&self, wanted: impl Fn(Event) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            match self.events.try_recv() {
                Some(event) => {
                    if let Some(found) = wanted(event) {
                        return found;
                    }
                }
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
        panic!("the event did not come within ten seconds");
    }

    async fn up(&self, wanted: &str) -> PeerId {
        self.wait(|event| match event {
            Event::PeerUp { peer, name } if name == wanted => Some(peer),
            _ => None,
        })
        .await
    }

    async fn gossip(&self) -> Bytes {
        self.wait(|event| match event {
            Event::Gossip { payload, .. } => Some(payload),
            _ => None,
        })
        .await
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        timeout(Duration::from_secs(5), self.tasks.wait()).await.expect("all tasks end");
    }
}

#[tokio::test]
async fn a_message_reaches_nodes_that_are_not_neighbours_once() {
    let (a, b, c) = (address(), address(), address());
    let left = start("a", "x", a, &[("b", b)]).await;
    let middle = start("b", "x", b, &[("c", c)]).await;
    let right = start("c", "x", c, &[]).await;
    left.up("b").await;
    middle.up("c").await;
    right.up("b").await;
    left.network.publish(1, 0, Bytes::from_static(b"first"));
    left.network.publish(1, 0, Bytes::from_static(b"first"));
    left.network.publish(1, 0, Bytes::from_static(b"second"));
    assert_eq!(right.gossip().await, "first");
    assert_eq!(right.gossip().await, "second", "the copy was not passed on");
    left.network.publish(1, 1, Bytes::from_static(b"first"));
    assert_eq!(right.gossip().await, "first", "with another salt it is");
    left.network.publish(1000, 0, Bytes::from_static(b"far ahead"));
    left.network.publish(2, 0, Bytes::from_static(b"near"));
    assert_eq!(right.gossip().await, "near");
    left.network.submit(Bytes::from_static(b"tx")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while right.mempool.size().0 == 0 {
        assert!(Instant::now() < deadline, "the transaction did not arrive");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for node in [left, middle, right] {
        node.end().await;
    }
}

#[tokio::test]
async fn both_dial_and_one_connection_stays_and_comes_back_after_a_restart() {
    let (a, b) = (address(), address());
    let left = start("a", "x", a, &[("b", b)]).await;
    let right = start("b", "x", b, &[("a", a)]).await;
    left.up("b").await;
    right.up("a").await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while left.network.peer_infos().len() != 1 || right.network.peer_infos().len() != 1 {
        assert!(Instant::now() < deadline, "not one connection");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    right.end().await;
    left.wait(|event| matches!(event, Event::PeerDown { .. }).then_some(())).await;
    let right = start("b", "x", b, &[]).await;
    let peer = right.up("a").await;
    left.up("b").await;
    right.network.send(peer, &Message::BlockRequest(3));
    right.network.send(peer, &Message::BlockRequest(6));
    for expected in [(3, true), (6, false)] {
        let got = right
            .wait(|event| match event {
                Event::Block { height, body, .. } => Some((height, body.is_some())),
                _ => None,
            })
            .await;
        assert_eq!(got, expected);
    }
    right.network.drop_peer(peer, Duration::from_secs(60));
    right.wait(|event| matches!(event, Event::PeerDown { .. }).then_some(())).await;
    assert!(right.network.peer_infos().is_empty());
    left.end().await;
    right.end().await;
}

#[tokio::test]
async fn a_node_of_another_chain_or_with_oversized_frames_is_refused() {
    let (a, b, c) = (address(), address(), address());
    let node = start("a", "x", a, &[]).await;
    let stranger = start("b", "y", b, &[("a", a)]).await;
    let friend = start("c", "x", c, &[("a", a)]).await;
    friend.up("a").await;
    assert!(stranger.network.peer_infos().is_empty());
    let mut stream = TcpStream::connect(a).await.unwrap();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.expect("closed at once").ok();
    assert_eq!(node.network.peer_infos().len(), 1);
    for node in [node, stranger, friend] {
        node.end().await;
    }
}
