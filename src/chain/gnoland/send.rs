//! Transactions of the load: bank sends, signed here.
//!
//! tm2 takes ed25519 keys for accounts too, so that the plan's one kind of key is enough. What is signed is the JSON of
//! `std.SignDoc` with its keys in order, in the rendering with `gas_wanted` and `gas_fee` that every version verifies;
//! what is sent is amino's binary form, which is that of protocol buffers (`std.proto`, `bank.proto`).
//!
//! Each account of the genesis has its number by its place there, and its own sequence. Transaction n comes from account
//! n modulo [`ACCOUNTS`], so that one that is lost spoils only what the same account sends a long time later.

use serde_json::json;

use super::keys::{account, address_text};
use crate::chain::ChainError;
use crate::plan::Plan;

/// Accounts of the genesis that send, where the plan has a load.
pub(super) const ACCOUNTS: u64 = 1_000;
/// What each has, in `ugnot`.
pub(super) const BALANCE: u64 = 1_000_000_000_000;
/// Gas that a send may use: ten times what one was seen to use.
const GAS_WANTED: u64 = 3_000_000;
/// Paid for it.
const GAS_FEE: &str = "10000ugnot";
/// What is sent.
const AMOUNT: &str = "1ugnot";

/// The n-th send, filled up to `size` bytes by its memo.
pub(super) fn transaction(plan: &Plan, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
    let (number, sequence) = (n % ACCOUNTS, n / ACCOUNTS);
    let from = account(plan, number)?;
    let send = Send {
        from: address_text(from.address())?,
        to: address_text(account(plan, (number + 1) % ACCOUNTS)?.address())?,
    };
    let bare = send.encode(&from.public(), &[0; 64], "").len();
    // The memo's own key and length take some bytes.
    let memo = "m".repeat(size.saturating_sub(bare + 4));
    let signature = from.sign(send.sign_bytes(&plan.chain_id, number, sequence, &memo).as_bytes());
    Ok(send.encode(&from.public(), &signature, &memo))
}

struct Send {
    from: String,
    to: String,
}

impl Send {
    /// Keys in alphabetical order and no spaces: `serde_json` keeps a map sorted.
    fn sign_bytes(&self, chain_id: &str, number: u64, sequence: u64, memo: &str) -> String {
        json!({
            "account_number": number.to_string(),
            "chain_id": chain_id,
            "fee": { "gas_fee": GAS_FEE, "gas_wanted": GAS_WANTED.to_string() },
            "memo": memo,
            "msgs": [{ "@type": "/bank.MsgSend", "amount": AMOUNT, "from_address": self.from, "to_address": self.to }],
            "sequence": sequence.to_string(),
        })
        .to_string()
    }

    fn encode(&self, public: &[u8], signature: &[u8], memo: &str) -> Vec<u8> {
        let message =
            concat(&[bytes(1, self.from.as_bytes()), bytes(2, self.to.as_bytes()), bytes(3, AMOUNT.as_bytes())]);
        // Signed integers are written in zigzag.
        let fee = concat(&[varint_field(1, GAS_WANTED << 1), bytes(2, GAS_FEE.as_bytes())]);
        let key = any("/tm.PubKeyEd25519", &bytes(1, public));
        let signature = concat(&[bytes(1, &key), bytes(2, signature)]);
        let mut all = vec![bytes(1, &any("/bank.MsgSend", &message)), bytes(2, &fee), bytes(3, &signature)];
        if !memo.is_empty() {
            all.push(bytes(4, memo.as_bytes()));
        }
        concat(&all)
    }
}

fn any(name: &str, value: &[u8]) -> Vec<u8> {
    concat(&[bytes(1, name.as_bytes()), bytes(2, value)])
}

/// A field with bytes, text or a message.
fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

fn varint_field(number: u8, value: u64) -> Vec<u8> {
    let mut out = vec![number << 3];
    varint(&mut out, value);
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits"));
}

fn concat(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}
