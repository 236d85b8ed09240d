//! Counter-based random numbers: the output step of SplitMix64 over a key.
//!
//! Source: Steele, Lea and Flood 2014, «Fast splittable pseudorandom number generators» (doi
//! 10.1145/2660193.2660195).

/// The output step of SplitMix64 after one increment of the state `x`.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The key of index `outer` in a stream: `mix(mix(stream) + outer)`.
#[inline]
pub fn key(stream: u64, outer: u64) -> u64 {
    mix(mix(stream).wrapping_add(outer))
}

/// A number uniform in [0, 1): the upper 53 bits of `mix(key(stream, outer) + inner)` times 2^-53.
#[inline]
pub fn uniform(stream: u64, outer: u64, inner: u64) -> f64 {
    keyed(key(stream, outer), inner)
}

/// [`uniform`] with the [`key`] computed once.
#[inline]
pub fn keyed(key: u64, inner: u64) -> f64 {
    (mix(key.wrapping_add(inner)) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// An index in `0..limit`: the high half of a 64-bit number times `limit`. 0 when `limit` is 0.
#[inline]
pub(super) fn below(key: u64, inner: u64, limit: u64) -> u64 {
    ((u128::from(mix(key.wrapping_add(inner))) * u128::from(limit)) >> 64) as u64
}

/// `len` numbers uniform in [-1, 1).
pub fn vector(seed: u64, len: usize) -> Vec<f64> {
    let key = key(seed, 0);
    (0..len as u64).map(|i| 2.0 * keyed(key, i) - 1.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_splitmix64() {
        // The first outputs of the published generator seeded with 0 and with 0 + increment.
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF);
        assert_eq!(mix(0x9E37_79B9_7F4A_7C15), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn indices_stay_below_the_limit() {
        assert!((0..1000).all(|i| below(7, i, 3) < 3));
        assert!((0..3).all(|value| (0..1000).any(|i| below(7, i, 3) == value)));
        assert_eq!(below(7, 0, 0), 0);
    }
}
