//! Links with latency between the syncing node and its peers: relays on this machine that hold every byte for a while.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Pieces that are on their way at a time, in one direction: with those of 64 KiB far more than a link of tens of
/// milliseconds holds.
const PIECES: usize = 256;
const PIECE: usize = 64 << 10;

/// Relays, all ended when this is dropped.
pub(super) struct Links {
    _tasks: JoinSet<()>,
    /// Where each relay listens, in the order of the peers.
    pub(super) addresses: Vec<SocketAddr>,
}

impl Links {
    /// One relay for each peer, which delays each direction by `latency`.
    pub(super) async fn open(peers: &[SocketAddr], latency: Duration) -> io::Result<Self> {
        let mut tasks = JoinSet::new();
        let mut addresses = Vec::with_capacity(peers.len());
        for peer in peers.iter().copied() {
            let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).await?;
            addresses.push(listener.local_addr()?);
            tasks.spawn(relay(listener, peer, latency));
        }
        Ok(Self { _tasks: tasks, addresses })
    }
}

/// Accepts until it is dropped; its connections end with it.
async fn relay(listener: TcpListener, peer: SocketAddr, latency: Duration) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            // A link that breaks is seen by both ends.
            let _broken = connect(near, peer, latency).await;
        });
    }
}

async fn connect(near: TcpStream, peer: SocketAddr, latency: Duration) -> io::Result<()> {
    let far = TcpStream::connect(peer).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::try_join!(delayed(near_in, far_out, latency), delayed(far_in, near_out, latency)).map(|_| ())
}

/// Reads at once and writes each piece `latency` after it came, so that the link delays and does not slow down.
async fn delayed(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, latency: Duration) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let read = async move {
        loop {
            let mut piece = vec![0; PIECE];
            let length = from.read(&mut piece).await?;
            if length == 0 {
                return Ok::<(), io::Error>(());
            }
            piece.truncate(length);
            if sender.send((Instant::now() + latency, piece)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        let mut due = VecDeque::new();
        while let Some(first) = receiver.recv().await {
            due.push_back(first);
            while let Some((at, piece)) = due.pop_front() {
                sleep_until(at).await;
                to.write_all(&piece).await?;
                while let Ok(more) = receiver.try_recv() {
                    due.push_back(more);
                }
            }
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_come_through_in_order_and_not_before_their_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let links = Links::open(&[listener.local_addr().unwrap()], Duration::from_millis(20)).await.unwrap();
        let mut near = TcpStream::connect(links.addresses[0]).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let sent = Instant::now();
        near.write_all(b"question").await.unwrap();
        let mut question = [0; 8];
        far.read_exact(&mut question).await.unwrap();
        far.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        near.read_exact(&mut answer).await.unwrap();
        assert!(sent.elapsed() >= Duration::from_millis(40), "both ways");
        assert_eq!((&question, &answer), (b"question", b"answer"));
        let large = vec![7; 1 << 20];
        let sending = async { near.write_all(&large).await.unwrap() };
        let receiving = async {
            let mut received = vec![0; 1 << 20];
            far.read_exact(&mut received).await.unwrap();
            received
        };
        let ((), received) = tokio::join!(sending, receiving);
        assert!(received == large);
        drop(near);
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0, "an end comes through too");
    }
}
