//! One connection: the handshake, then frames both ways until one side ends, lies about its frames or falls silent.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::message::{FRAME_BYTES_MAX, Hello, LENGTH_BYTES, Message, SALT_DIRECT};
use super::peers::{Outgoing, PeerId, Refused};
use super::{Event, Network, seen};
use crate::node::codec::CodecError;

/// How long the handshake may take.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);
/// A peer that sends nothing for so long is dropped.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A peer that is sent nothing else is sent the status this often.
const HEARTBEAT: Duration = Duration::from_secs(8);
/// Most bytes of the first frame.
const HELLO_BYTES_MAX: usize = 1024;
/// Heights above this node's own whose messages are still passed on.
const GOSSIP_AHEAD_MAX: u64 = 16;
/// Heights below this node's own whose messages are still passed on.
const GOSSIP_BEHIND_MAX: u64 = 2;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("talk to a peer: {0}")]
    Io(#[from] io::Error),
    #[error("talk to a peer: {0}")]
    Decode(#[from] CodecError),
    #[error("talk to a peer: a frame of {0} bytes")]
    FrameTooLong(usize),
    #[error("talk to a peer: nothing came for too long")]
    Silent,
    #[error("greet a peer: it has another {0}")]
    Other(&'static str),
    #[error("greet a peer: it is this node")]
    Myself,
    #[error("let in a peer: {0:?}")]
    Refused(Refused),
    #[error("talk to a peer: stopped")]
    Stopped,
}

/// Runs a connection to its end.
pub(super) async fn run(network: &Network, stream: TcpStream, dialled: Option<&str>) -> Ended {
    match run_fallible(network, stream, dialled).await {
        Ok(()) => Ended::Stopped,
        Err(ended) => ended,
    }
}

async fn run_fallible(network: &Network, stream: TcpStream, dialled: Option<&str>) -> Result<(), Ended> {
    stream.set_nodelay(true)?;
    let address = stream.peer_addr()?;
    let (read, write) = stream.into_split();
    let mut read = BufReader::with_capacity(4096, read);
    let mut write = BufWriter::with_capacity(4096, write);
    let hello = timeout(HANDSHAKE_WAIT, greet(network, &mut read, &mut write)).await.map_err(|_| Ended::Silent)??;
    if dialled.is_some_and(|name| name != hello.name) {
        return Err(Ended::Other("name than expected"));
    }
    serve(network, &hello, address, dialled.is_some(), read, write).await
}

async fn greet(
    network: &Network,
    read: &mut BufReader<OwnedReadHalf>,
    write: &mut BufWriter<OwnedWriteHalf>,
) -> Result<Hello, Ended> {
    let local = network.hello();
    write.write_all(&Message::Hello(local.clone()).encode()).await?;
    write.flush().await?;
    let Message::Hello(hello) = read_message(read, HELLO_BYTES_MAX).await? else {
        return Err(Ended::Other("first message"));
    };
    if hello.chain_id != local.chain_id {
        return Err(Ended::Other("chain"));
    }
    if hello.genesis_hash != local.genesis_hash {
        return Err(Ended::Other("genesis"));
    }
    if hello.name == local.name {
        return Err(Ended::Myself);
    }
    Ok(hello)
}

async fn serve(
    network: &Network,
    hello: &Hello,
    address: SocketAddr,
    outbound: bool,
    read: BufReader<OwnedReadHalf>,
    write: BufWriter<OwnedWriteHalf>,
) -> Result<(), Ended> {
    let admitted = network.admit(hello, address, outbound).map_err(Ended::Refused)?;
    let id = admitted.id;
    network.deliver(Event::PeerUp { peer: id, name: hello.name.clone() }, 1).await;
    let ended = tokio::select! {
        ended = read_all(network, id, read) => ended,
        ended = write_all(network, admitted.outgoing, write) => ended,
        () = admitted.stop.cancelled() => Ok(()),
    };
    network.forget(id);
    network.deliver(Event::PeerDown { peer: id }, 1).await;
    ended
}

async fn write_all(
    network: &Network,
    mut outgoing: Outgoing,
    mut write: BufWriter<OwnedWriteHalf>,
) -> Result<(), Ended> {
    write.write_all(&network.status_frame()).await?;
    write.flush().await?;
    loop {
        let frame = match timeout(HEARTBEAT, outgoing.next()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(_) => network.status_frame(),
        };
        write.write_all(&frame).await?;
        while let Some(frame) = outgoing.try_next() {
            write.write_all(&frame).await?;
        }
        write.flush().await?;
    }
}

async fn read_all(network: &Network, id: PeerId, mut read: BufReader<OwnedReadHalf>) -> Result<(), Ended> {
    loop {
        let message =
            timeout(SILENCE_MAX, read_message(&mut read, FRAME_BYTES_MAX)).await.map_err(|_| Ended::Silent)??;
        handle(network, id, message).await?;
    }
}

async fn read_message(read: &mut BufReader<OwnedReadHalf>, limit: usize) -> Result<Message, Ended> {
    let mut length = [0; LENGTH_BYTES];
    read.read_exact(&mut length).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(Ended::FrameTooLong(length));
    }
    let mut frame = Vec::new();
    // Grows with what arrives, so that a mere claim allocates nothing.
    read.take(length as u64).read_to_end(&mut frame).await?;
    if frame.len() < length {
        return Err(Ended::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(Message::decode(&frame)?)
}

async fn handle(network: &Network, id: PeerId, message: Message) -> Result<(), Ended> {
    match message {
        Message::Hello(_) => return Err(Ended::Other("second greeting")),
        Message::Status { base, height } => {
            network.set_peer_height(id, height);
            network.deliver(Event::Status { peer: id, base, height }, 1).await;
        }
        Message::BlockRequest(height) => {
            let body = network.stored_block(height);
            network.send(id, &Message::BlockResponse(height, body));
        }
        Message::BlockResponse(height, body) => {
            let weight = weight_of(body.as_deref().unwrap_or_default());
            network.deliver(Event::Block { peer: id, height, body }, weight).await;
        }
        Message::Gossip(gossip) => {
            let own = network.height();
            let near = gossip.height + GOSSIP_BEHIND_MAX > own && gossip.height <= own + GOSSIP_AHEAD_MAX;
            let direct = gossip.salt == SALT_DIRECT;
            if near && (direct || network.is_new(seen::digest(gossip.salt, &gossip.payload))) {
                if !direct {
                    network.relay(&Message::Gossip(gossip.clone()), id);
                }
                if network.wants_consensus() {
                    let weight = weight_of(&gossip.payload);
                    let event = Event::Gossip { peer: id, height: gossip.height, payload: gossip.payload };
                    network.deliver(event, weight).await;
                }
            }
        }
        Message::HeightRequest(height) => {
            if network.wants_consensus() {
                network.deliver(Event::HeightRequest { peer: id, height }, 1).await;
            }
        }
        Message::Transaction(bytes) => {
            // One that is known or refused is not passed on; the peer need not hear of it.
            let _ = network.transaction(bytes, Some(id));
        }
    }
    Ok(())
}

/// Weight in the queue to the chain thread, in KiB.
fn weight_of(bytes: &[u8]) -> u32 {
    1 + (bytes.len() / 1024) as u32
}

/// A response's body: the block's bytes, then the commit's, each with its length.
pub(crate) fn block_body(block: &[u8], commit: &[u8]) -> Bytes {
    let mut body = Vec::with_capacity(8 + block.len() + commit.len());
    crate::node::codec::put_bytes(&mut body, block);
    crate::node::codec::put_bytes(&mut body, commit);
    Bytes::from(body)
}
