//! The node's binary encoding: fixed-width little-endian integers, length-prefixed bytes, and a limit on everything
//! that a peer or a damaged file may make us allocate. The same value always gives the same bytes, so that hashes can be
//! taken over them.

/// Bytes that are not the encoding of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The input ends inside a value.
    #[error("decode {what}: the input ends early")]
    Short {
        /// What was being read.
        what: &'static str,
    },
    /// A length is above its limit.
    #[error("decode {what}: {length} is above the limit of {limit}")]
    Limit {
        /// What was being read.
        what: &'static str,
        /// The length that the input claims.
        length: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// A value that no encoder writes.
    #[error("decode {what}: not a value of this type")]
    Invalid {
        /// What was being read.
        what: &'static str,
    },
    /// Bytes follow the value.
    #[error("decode: {0} bytes follow the value")]
    Trailing(usize),
}

/// A cursor over encoded bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
        let (head, tail) = self.bytes.split_at_checked(length).ok_or(CodecError::Short { what })?;
        self.bytes = tail;
        Ok(head)
    }

    /// A fixed number of bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CodecError> {
        let bytes = self.take(N, what)?;
        bytes.try_into().map_err(|_| CodecError::Short { what })
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, CodecError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length of at most `limit`, which bounds what the caller allocates.
    pub fn length(&mut self, limit: usize, what: &'static str) -> Result<usize, CodecError> {
        let length = self.u32(what)?;
        if length as usize > limit {
            return Err(CodecError::Limit { what, length: length.into(), limit: limit as u64 });
        }
        Ok(length as usize)
    }

    /// Length-prefixed bytes, at most `limit`.
    pub fn bytes(&mut self, limit: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
        let length = self.length(limit, what)?;
        self.take(length, what)
    }

    /// Length-prefixed UTF-8, at most `limit` bytes.
    pub fn string(&mut self, limit: usize, what: &'static str) -> Result<String, CodecError> {
        let bytes = self.bytes(limit, what)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| CodecError::Invalid { what })
    }

    /// Refuses bytes that nobody read.
    pub fn finish(self) -> Result<(), CodecError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(CodecError::Trailing(self.bytes.len())) }
    }
}

/// Appends length-prefixed bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("nothing encoded here reaches 4 GiB: every encoder has a limit");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a number of elements.
pub fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("nothing encoded here has 2^32 elements: every encoder has a limit");
    out.extend_from_slice(&length.to_le_bytes());
}

/// A type with one deterministic encoding.
pub trait Codec: Sized {
    /// Appends the encoding.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads one value and leaves what follows.
    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError>;

    /// The encoding.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Decodes all of `bytes`; anything after the value is refused.
    fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let value = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_length_allocates_nothing_above_the_limit() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.push(1);
        assert_eq!(
            Reader::new(&bytes).bytes(10, "tx"),
            Err(CodecError::Limit { what: "tx", length: u32::MAX.into(), limit: 10 })
        );
        let short = 9u32.to_le_bytes();
        assert_eq!(Reader::new(&short).bytes(10, "tx"), Err(CodecError::Short { what: "tx" }));
    }

    #[test]
    fn what_is_put_is_read_back() {
        let mut out = Vec::new();
        put_bytes(&mut out, b"abc");
        put_length(&mut out, 7);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.string(3, "s").unwrap(), "abc");
        assert_eq!(reader.length(7, "n").unwrap(), 7);
        reader.finish().unwrap();
    }
}
