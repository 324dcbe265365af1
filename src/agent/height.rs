//! Decodes the height of a flush from the bytes that the node writes.
//!
//! A block store writes a key such as `H:126` for each block. The bytes around it are arbitrary: keys of older
//! blocks in the same page, block parts, transactions that a stranger made. So a number counts only when it
//! continues the chain: from the height on disk up, without a gap. Where nothing continues it (the first block of a
//! chain that starts at 1,000, a count that went wrong), the largest number is taken, and said not to continue.
//!
//! The logs of LevelDB and Pebble are cut into blocks of 32 KiB, each begun with a header and each a write of its own
//! (LevelDB's `log_format.md`, Pebble's `record` package). About once in five thousand blocks of a chain the cut falls
//! into the key, so a key is also read on over such a cut.

use std::collections::BTreeSet;

/// Digits of a `u64` at most.
const DIGITS_MAX: usize = 20;
/// Numbers kept for one flush at most: a window larger than this is not decoded.
const KEPT_MAX: usize = 200_000;
/// Bytes of the header of a piece of a record: checksum, length and type; Pebble adds the log's number, and lately an
/// offset.
const PIECE_HEADERS: [usize; 3] = [7, 11, 19];
/// Where its type is, and the types of a middle and a last piece: LevelDB's, and the two of Pebble that add a number.
const PIECE_TYPE: usize = 6;
const LATER_PIECES: [u8; 6] = [3, 4, 7, 8, 11, 12];
/// Numbers further away from the height on disk are not heights.
const AHEAD_MAX: u64 = 10_000_000;

/// What the bytes of one flush say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// The last height written.
    pub(crate) height: u64,
    /// Blocks up to it.
    pub(crate) window: u64,
    /// Whether it continues from the height on disk.
    pub(crate) continues: bool,
}

/// Collects the numbers behind a prefix over the writes of one flush.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    base: u64,
    // Every number that the digits behind a prefix may be: the next byte of a page may be a digit by chance, so
    // that `H:126` followed by a value that begins with `7` reads `H:1267`.
    possible: BTreeSet<u64>,
    // The numbers as they stand there.
    whole: BTreeSet<u64>,
    // The end of the last write, if a key may go on behind it.
    cut: Vec<u8>,
}

impl Decoder {
    /// For a flush on top of `base`.
    pub(crate) fn new(base: u64) -> Self {
        Self { base, possible: BTreeSet::new(), whole: BTreeSet::new(), cut: Vec::new() }
    }

    /// Looks at the bytes of one write.
    pub(crate) fn look(&mut self, bytes: &[u8], prefix: &[u8]) {
        let cut = std::mem::take(&mut self.cut);
        if !cut.is_empty() && bytes.get(PIECE_TYPE).is_some_and(|kind| LATER_PIECES.contains(kind)) {
            for rest in PIECE_HEADERS.iter().filter_map(|header| bytes.get(*header..)) {
                let joined = [&cut, &rest[..rest.len().min(prefix.len() + DIGITS_MAX)]].concat();
                self.take(&joined, prefix);
            }
        }
        self.take(bytes, prefix);
        self.cut = begun_key(bytes, prefix).to_vec();
    }

    fn take(&mut self, bytes: &[u8], prefix: &[u8]) {
        for (_, digits) in numbers(bytes, prefix) {
            let mut number = 0u64;
            for digit in digits.iter().map(|byte| u64::from(byte - b'0')) {
                let Some(next) = number.checked_mul(10).and_then(|n| n.checked_add(digit)) else { break };
                number = next;
                self.keep(number, false);
            }
            if digits.len() < DIGITS_MAX {
                self.keep(number, true);
            }
        }
    }

    fn keep(&mut self, number: u64, whole: bool) {
        if number > self.base && number - self.base <= AHEAD_MAX && self.possible.len() < KEPT_MAX {
            if whole {
                self.whole.insert(number);
            } else {
                self.possible.insert(number);
            }
        }
    }

    /// What the bytes seen so far say.
    pub(crate) fn decoded(&self) -> Option<Decoded> {
        // Nothing is on disk yet, and the chain may begin at 1,000: its first digit is not block 1.
        let chain = if self.base == 0 { &self.whole } else { &self.possible };
        let mut height = self.base;
        while chain.contains(&(height + 1)) {
            height += 1;
        }
        if height > self.base {
            return Some(Decoded { height, window: height - self.base, continues: true });
        }
        self.whole.last().map(|height| Decoded { height: *height, window: 1, continues: false })
    }
}

/// The end of `bytes` that may be the beginning of a key: a part of the prefix, or all of it with digits.
fn begun_key<'a>(bytes: &'a [u8], prefix: &[u8]) -> &'a [u8] {
    let longest = bytes.len().min(prefix.len() + DIGITS_MAX);
    let begins = |length: &usize| {
        let end = &bytes[bytes.len() - length..];
        let (key, digits) = end.split_at(prefix.len().min(end.len()));
        prefix.starts_with(key) && digits.iter().all(u8::is_ascii_digit)
    };
    let length = (1..=longest).rev().find(begins).unwrap_or(0);
    &bytes[bytes.len() - length..]
}

/// All numbers behind `prefix` in `bytes`, without leading zeros, each with where its prefix begins.
pub(super) fn numbers<'a>(bytes: &'a [u8], prefix: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> {
    let ends = bytes.windows(prefix.len().max(1)).enumerate();
    ends.filter(move |(_, window)| !prefix.is_empty() && *window == prefix).filter_map(move |(at, _)| {
        let rest = &bytes[at + prefix.len()..];
        let length = rest.iter().take(DIGITS_MAX).take_while(|byte| byte.is_ascii_digit()).count();
        (length > 0 && rest[0] != b'0').then_some((at, &rest[..length]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(base: u64, writes: &[&str]) -> Option<Decoded> {
        let mut decoder = Decoder::new(base);
        for write in writes {
            decoder.look(write.as_bytes(), b"H:");
        }
        decoder.decoded()
    }

    fn continues(height: u64, window: u64) -> Option<Decoded> {
        Some(Decoded { height, window, continues: true })
    }

    #[test]
    fn one_block() {
        assert_eq!(decode(125, &["..H:126..BH:12AB.."]), continues(126, 1));
    }

    #[test]
    fn a_window_over_several_writes() {
        assert_eq!(decode(9, &["H:8 H:9 H:10", "H:12 H:11", "H:13"]), continues(13, 4));
    }

    #[test]
    fn a_stranger_s_number_does_not_move_the_height() {
        assert_eq!(decode(125, &["P:126:0 send H:999999", "H:126"]), continues(126, 1));
    }

    #[test]
    fn a_key_that_a_log_s_block_cuts_is_read_on_behind_the_header() {
        let headers: [&[u8]; 3] = [&[9, 9, 9, 9, 1, 0, 4], &[9, 9, 9, 9, 1, 0, 3], &[9, 9, 9, 9, 1, 0, 8, 5, 0, 0, 0]];
        let key = b"..H:6976";
        for header in headers {
            for at in 3..key.len() {
                let mut decoder = Decoder::new(6975);
                decoder.look(&key[..at], b"H:");
                decoder.look(&[header, &key[at..], b"\x01value".as_slice()].concat(), b"H:");
                assert_eq!(decoder.decoded(), continues(6976, 1), "cut at {at} by {header:?}");
            }
        }
        let mut decoder = Decoder::new(6975);
        decoder.look(b"..H:69", b"H:");
        decoder.look(b"another file76", b"H:");
        assert_eq!(decoder.decoded(), None);
    }

    #[test]
    fn digits_that_follow_by_chance_do_not_hide_a_height() {
        assert_eq!(decode(125, &["H:1267"]), continues(126, 1));
    }

    #[test]
    fn a_number_that_continues_nothing_is_taken_and_said_so() {
        assert_eq!(decode(0, &["H:1000"]), Some(Decoded { height: 1000, window: 1, continues: false }));
    }

    #[test]
    fn old_heights_and_nonsense_say_nothing() {
        assert_eq!(decode(125, &["H:125 H:12 H:0 H:0126 H: H:x H:99999999999999999999999"]), None);
        assert_eq!(decode(125, &["H"]), None);
    }

    proptest::proptest! {
        #[test]
        fn whatever_surrounds_the_keys_the_window_is_found(
            base in 1u64..1_000_000, window in 1u64..50, noise in "[a-zA-Z: ]{0,20}",
        ) {
            let mut decoder = Decoder::new(base);
            for height in base + 1..=base + window {
                decoder.look(format!("{noise}H:{height}{noise}").as_bytes(), b"H:");
            }
            proptest::prop_assert_eq!(decoder.decoded(), continues(base + window, window));
        }
    }
}
