//! Numbers modulo the order of the groups of BLS12-381. blst has the arithmetic, but no safe functions for it.

use blst::{
    blst_bendian_from_scalar, blst_scalar, blst_scalar_from_be_bytes, blst_sk_add_n_check, blst_sk_mul_n_check,
};

/// Such a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scalar(blst_scalar);

impl Scalar {
    /// The number that `bytes` are with the most significant first, of any length, reduced.
    pub fn from_be_bytes(bytes: &[u8]) -> Self {
        let mut out = blst_scalar::default();
        // SAFETY: reads `bytes.len()` bytes from the slice and writes one scalar; what it returns says only whether that is
        // not zero.
        unsafe { blst_scalar_from_be_bytes(&raw mut out, bytes.as_ptr(), bytes.len()) };
        Self(out)
    }

    /// Thirty-two bytes, the most significant first.
    pub fn to_be_bytes(&self) -> [u8; 32] {
        let mut out = [0; 32];
        // SAFETY: reads one scalar and writes the 32 bytes of `out`.
        unsafe { blst_bendian_from_scalar(out.as_mut_ptr(), &raw const self.0) };
        out
    }

    /// The sum.
    pub fn plus(&self, other: &Self) -> Self {
        let mut out = blst_scalar::default();
        // SAFETY: reads two scalars and writes a third; what it returns says only whether that is not zero.
        unsafe { blst_sk_add_n_check(&raw mut out, &raw const self.0, &raw const other.0) };
        Self(out)
    }

    /// The product.
    pub fn times(&self, other: &Self) -> Self {
        let mut out = blst_scalar::default();
        // SAFETY: as in `plus`.
        unsafe { blst_sk_mul_n_check(&raw mut out, &raw const self.0, &raw const other.0) };
        Self(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order itself, from the curve's definition.
    const ORDER: &str = "73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001";

    fn small(value: u64) -> Scalar {
        Scalar::from_be_bytes(&value.to_be_bytes())
    }

    fn order_plus(value: u8) -> Scalar {
        let mut bytes = hex::decode(ORDER).expect("hex");
        *bytes.last_mut().expect("bytes") += value;
        Scalar::from_be_bytes(&bytes)
    }

    #[test]
    fn arithmetic_is_modulo_the_order() {
        assert_eq!(order_plus(0), small(0));
        assert_eq!(order_plus(5), small(5));
        let minus_one = {
            let mut bytes = hex::decode(ORDER).expect("hex");
            *bytes.last_mut().expect("bytes") = 0;
            Scalar::from_be_bytes(&bytes)
        };
        assert_eq!(minus_one.plus(&small(1)), small(0));
        assert_eq!(minus_one.plus(&small(4)), small(3));
        assert_eq!(minus_one.times(&minus_one), small(1));
        assert_eq!(small(1 << 40).times(&small(1 << 20)), small(1 << 60));
        assert_eq!(small(7).times(&small(0)), small(0));
        assert_eq!(hex::encode(small(258).to_be_bytes()), format!("{}0102", "0".repeat(60)));
    }

    #[test]
    fn longer_input_is_reduced_whole() {
        let high = Scalar::from_be_bytes(&[&[1][..], &[0; 32]].concat());
        let mut half = [0; 17];
        half[0] = 1;
        let half = Scalar::from_be_bytes(&half);
        assert_eq!(high, half.times(&half));
    }
}
