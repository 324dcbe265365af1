//! What peers say to each other, and its bytes: a length, a kind, a body.

use bytes::Bytes;

use crate::node::codec::{CodecError, Reader, put_bytes};
use crate::node::crypto::PUBLIC_KEY_BYTES;
use crate::node::types::BLOCK_BYTES_MAX;

/// Longest frame that is read or written; a block with its commit must fit.
pub const FRAME_BYTES_MAX: usize = BLOCK_BYTES_MAX + (64 << 10);
/// Bytes of a frame's length, which comes first, little-endian.
pub const LENGTH_BYTES: usize = 4;
/// Version of the protocol; peers with another are refused.
pub const VERSION: u32 = 1;
/// Longest chain id or node name.
const NAME_BYTES_MAX: usize = 64;
/// Longest transaction that is relayed.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;

/// The first message in each direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Chain that the peer runs.
    pub chain_id: String,
    /// Hash of its genesis.
    pub genesis_hash: [u8; 32],
    /// Its name in the network; one connection a name.
    pub name: String,
    /// Its public key.
    pub public_key: [u8; PUBLIC_KEY_BYTES],
    /// Drawn at each start, so that a restarted peer is told from a second connection.
    pub boot: u64,
}

/// The salt of a message that is for one peer and not passed on.
pub const SALT_DIRECT: u32 = u32::MAX;

/// A message of consensus that is passed on to every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gossip {
    /// Height it belongs to.
    pub height: u64,
    /// Changed to send the same payload once more through nodes that have seen it.
    pub salt: u32,
    /// The message itself; its meaning is consensus' affair.
    pub payload: Bytes,
}

/// Any message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who I am.
    Hello(Hello),
    /// The blocks I hold, from `base` to `height`; 0 and 0 for none.
    Status {
        /// Lowest block.
        base: u64,
        /// Highest block.
        height: u64,
    },
    /// Send me this block.
    BlockRequest(u64),
    /// The block and its commit, or nothing when I do not hold it.
    BlockResponse(u64, Option<Bytes>),
    /// Consensus.
    Gossip(Gossip),
    /// Send me all you know of this height.
    HeightRequest(u64),
    /// A transaction.
    Transaction(Bytes),
}

impl Message {
    /// The whole frame, its length included.
    pub fn encode(&self) -> Bytes {
        let mut out = vec![0; LENGTH_BYTES];
        match self {
            Self::Hello(hello) => {
                out.push(0);
                out.extend_from_slice(&VERSION.to_le_bytes());
                put_bytes(&mut out, hello.chain_id.as_bytes());
                out.extend_from_slice(&hello.genesis_hash);
                put_bytes(&mut out, hello.name.as_bytes());
                out.extend_from_slice(&hello.public_key);
                out.extend_from_slice(&hello.boot.to_le_bytes());
            }
            Self::Status { base, height } => {
                out.push(1);
                out.extend_from_slice(&base.to_le_bytes());
                out.extend_from_slice(&height.to_le_bytes());
            }
            Self::BlockRequest(height) => {
                out.push(2);
                out.extend_from_slice(&height.to_le_bytes());
            }
            Self::BlockResponse(height, body) => {
                out.push(3);
                out.extend_from_slice(&height.to_le_bytes());
                out.push(u8::from(body.is_some()));
                put_bytes(&mut out, body.as_deref().unwrap_or_default());
            }
            Self::Gossip(gossip) => {
                out.push(4);
                out.extend_from_slice(&gossip.height.to_le_bytes());
                out.extend_from_slice(&gossip.salt.to_le_bytes());
                put_bytes(&mut out, &gossip.payload);
            }
            Self::HeightRequest(height) => {
                out.push(5);
                out.extend_from_slice(&height.to_le_bytes());
            }
            Self::Transaction(bytes) => {
                out.push(6);
                put_bytes(&mut out, bytes);
            }
        }
        let length = (out.len() - LENGTH_BYTES) as u32;
        out[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        Bytes::from(out)
    }

    /// Reads a frame's contents (without its length).
    pub fn decode(frame: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(frame);
        let message = match reader.u8("kind")? {
            0 => {
                if reader.u32("version")? != VERSION {
                    return Err(CodecError::Invalid { what: "version" });
                }
                Self::Hello(Hello {
                    chain_id: reader.string(NAME_BYTES_MAX, "chain id")?,
                    genesis_hash: reader.array("genesis hash")?,
                    name: reader.string(NAME_BYTES_MAX, "name")?,
                    public_key: reader.array("public key")?,
                    boot: reader.u64("boot")?,
                })
            }
            1 => Self::Status { base: reader.u64("base")?, height: reader.u64("height")? },
            2 => Self::BlockRequest(reader.u64("height")?),
            3 => {
                let height = reader.u64("height")?;
                let present = reader.u8("presence")? == 1;
                let body = Bytes::copy_from_slice(reader.bytes(FRAME_BYTES_MAX, "block")?);
                Self::BlockResponse(height, present.then_some(body))
            }
            4 => Self::Gossip(Gossip {
                height: reader.u64("height")?,
                salt: reader.u32("salt")?,
                payload: Bytes::copy_from_slice(reader.bytes(FRAME_BYTES_MAX, "payload")?),
            }),
            5 => Self::HeightRequest(reader.u64("height")?),
            6 => Self::Transaction(Bytes::copy_from_slice(reader.bytes(TRANSACTION_BYTES_MAX, "transaction")?)),
            _ => return Err(CodecError::Invalid { what: "kind" }),
        };
        reader.finish()?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Message> {
        vec![
            Message::Hello(Hello {
                chain_id: "chain".into(),
                genesis_hash: [7; 32],
                name: "v0".into(),
                public_key: [9; 48],
                boot: 5,
            }),
            Message::Status { base: 1, height: 9 },
            Message::BlockRequest(4),
            Message::BlockResponse(4, None),
            Message::BlockResponse(4, Some(Bytes::from_static(b"block"))),
            Message::Gossip(Gossip { height: 3, salt: 1, payload: Bytes::from_static(b"vote") }),
            Message::HeightRequest(3),
            Message::Transaction(Bytes::from_static(b"tx")),
        ]
    }

    #[test]
    fn messages_round_trip_and_say_their_length() {
        for message in samples() {
            let frame = message.encode();
            assert_eq!(u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize, frame.len() - 4);
            assert_eq!(Message::decode(&frame[4..]), Ok(message));
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic() {
        for message in samples() {
            let frame = &message.encode()[4..];
            for end in 0..frame.len() {
                let _ = Message::decode(&frame[..end]);
            }
            for at in 0..frame.len() {
                let mut broken = frame.to_vec();
                broken[at] ^= 0xff;
                let _ = Message::decode(&broken);
            }
        }
        assert!(Message::decode(&[]).is_err());
    }
}
