//! Dot products over lanes, in the one order that every solver of this crate uses: element `i` is
//! added to the partial sum `i mod 4`, in ascending order, and the result is
//! `(s0 + s1) + (s2 + s3)`. With four sums, an addition need not wait for the one before.

use crate::simd::Vector;

/// Number of partial sums of a dot product, and of elements per unrolled block.
pub(crate) const PARTIAL_SUMS: usize = 4;

/// The partial sums of a dot product.
#[derive(Clone, Copy)]
pub(crate) struct Dot<V>([V; PARTIAL_SUMS]);

impl<V: Vector> Dot<V> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([V::zero(); PARTIAL_SUMS])
    }

    /// Adds `a * b` to the partial sum `slot`, which is a constant after unrolling.
    #[inline(always)]
    pub(crate) fn add(&mut self, slot: usize, a: V, b: V) {
        self.0[slot] = a.mul_add(b, self.0[slot]);
    }

    /// Adds the next four products.
    #[inline(always)]
    pub(crate) fn push_block(&mut self, a: [V; PARTIAL_SUMS], b: [V; PARTIAL_SUMS]) {
        self.add(0, a[0], b[0]);
        self.add(1, a[1], b[1]);
        self.add(2, a[2], b[2]);
        self.add(3, a[3], b[3]);
    }

    /// The result.
    #[inline(always)]
    pub(crate) fn sum(self) -> V {
        let [a, b, c, d] = self.0;
        a.add(b).add(c.add(d))
    }
}

/// The dot product of two vectors.
#[inline(always)]
pub(crate) fn dot<V: Vector>(a: &[V], b: &[V]) -> V {
    let [sum] = dots(a, [b]);
    sum
}

/// The dot products of `a` with each of several vectors, in one pass.
#[inline(always)]
pub(crate) fn dots<V: Vector, const N: usize>(a: &[V], with: [&[V]; N]) -> [V; N] {
    let mut sums = [Dot::new(); N];
    let (blocks, rest) = a.as_chunks::<PARTIAL_SUMS>();
    let mut with_blocks = [blocks; N];
    let mut with_rest = [rest; N];
    for ((with, blocks), rest) in with.iter().zip(&mut with_blocks).zip(&mut with_rest) {
        (*blocks, *rest) = with[..a.len()].as_chunks();
    }
    for (i, &block) in blocks.iter().enumerate() {
        for (sum, with) in sums.iter_mut().zip(&with_blocks) {
            sum.push_block(block, with[i]);
        }
    }
    for (slot, &element) in rest.iter().enumerate() {
        for (sum, with) in sums.iter_mut().zip(&with_rest) {
            sum.add(slot, element, with[slot]);
        }
    }
    let mut results = [V::zero(); N];
    for (result, sum) in results.iter_mut().zip(sums) {
        *result = sum.sum();
    }
    results
}

/// The dot product of two scalar sequences, in the order and with the rounding of [`Dot`].
#[inline(always)]
pub(crate) fn scalar_dot<V: Vector>(
    pairs: impl Iterator<Item = (V::Scalar, V::Scalar)>,
) -> V::Scalar {
    let mut sums = [V::zero().get(0); PARTIAL_SUMS];
    for (i, (a, b)) in pairs.enumerate() {
        let slot = i % PARTIAL_SUMS;
        sums[slot] = V::scalar_mul_add(a, b, sums[slot]);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}
