//! The RPC shapes of Tenderdash 1.x: CometBFT's with other meanings.
//!
//! A GET is answered without an envelope, an error among them with HTTP status 200; a POST has one. Header H carries the app
//! hash after block H.

use crate::chain::{ChainError, Rpc};

/// Shapes of Tenderdash 1.x. The application's height is a number here, and text in CometBFT.
#[derive(Clone, Copy, Debug, Default)]
pub struct TenderdashShapes;

impl Rpc for TenderdashShapes {
    fn app_hash_offset(&self) -> u64 {
        0
    }

    /// Never a number: the node lists peers that are gone as well, and does not say which those are.
    fn peers(&self, _body: &[u8]) -> Result<u32, ChainError> {
        Err(ChainError::new("count the peers: Tenderdash lists those that are gone as well"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::tenderdash::tests::body;

    #[test]
    fn both_forms_of_a_status() {
        let get = TenderdashShapes.status(&body("status.get.txt")).expect("a status");
        assert_eq!((get.height, get.catching_up, get.peers), (1538, false, None));
        assert_eq!(get.app_hash, "ea0fef0763e358a34ea0635369f23f34e0eedf851a79d37aad61f1e7a2243b54");
        let post = TenderdashShapes.status(&body("status.post.txt")).expect("a status");
        assert_eq!(post.height, 1539);
    }

    /// The header itself, and not the one after it, has the hash that the application tells for its last block.
    #[test]
    fn a_header_carries_the_app_hash_after_its_own_block() {
        let answer: serde_json::Value = serde_json::from_slice(&body("abci_info.get.txt")).expect("JSON");
        let response = &answer["response"];
        assert_eq!(response["last_block_height"], 1539);
        for name in ["abci_info.get.txt", "abci_info.post.txt"] {
            assert_eq!(TenderdashShapes.app_height(&body(name)).expect("a height"), 1539);
        }
        let commit: serde_json::Value = serde_json::from_slice(&body("commit_tip.get.txt")).expect("JSON");
        let header = &commit["signed_header"]["header"];
        assert_eq!(header["height"], "1539");
        let told = response["data"].as_str().expect("text");
        assert!(told.contains(header["app_hash"].as_str().expect("text")), "{told}");
        assert_eq!(TenderdashShapes.app_hash_offset(), 0);
    }

    #[test]
    fn hashes_of_three_blocks() {
        let hashes = TenderdashShapes.hashes(&body("blockchain.get.txt")).expect("hashes");
        assert_eq!((hashes.first, hashes.blocks.len()), (1533, 3));
        let (id, app) = &hashes.blocks[2];
        assert_eq!(id, "6dcc878d43175429e9dbbf1066860f8c0c05630ecdc99b0bdbb7afaf5d2b7a92");
        assert_eq!(app, "2a953e7257c0fe4b7862a7e86b4e9b6c23efec076510fb0cf4348b8c46944a63");
    }

    #[test]
    fn a_transaction_that_was_taken() {
        assert!(TenderdashShapes.submitted(&body("broadcast_tx_sync.get.txt")));
    }

    #[test]
    fn errors_with_and_without_envelope_are_never_answers() {
        for name in ["block_too_high.get.txt", "block_too_high.post.txt"] {
            let error = TenderdashShapes.hashes(&body(name)).expect_err("an error");
            assert!(error.0.contains("must be less than or equal to the head"), "{error}");
            assert!(TenderdashShapes.status(&body(name)).is_err());
            assert!(TenderdashShapes.app_height(&body(name)).is_err());
            assert!(!TenderdashShapes.submitted(&body(name)));
        }
        for name in ["unknown_path.get.txt", "health.get.txt"] {
            assert!(TenderdashShapes.status(&body(name)).is_err());
            assert!(TenderdashShapes.hashes(&body(name)).is_err());
            assert!(!TenderdashShapes.submitted(&body(name)));
        }
    }

    /// `n_peers` is the length of a list with peers that are gone.
    #[test]
    fn peers_are_not_counted() {
        assert!(TenderdashShapes.peers(&body("net_info.get.txt")).is_err());
    }
}
