//! Dot products over lanes, in the one order that every solver of this crate uses: element `i` is
//! added to the partial sum `i mod 4`, in ascending order, and the result is
//! `(s0 + s1) + (s2 + s3)`. Four sums, so that an addition need not wait for the one before.

use crate::simd::Vector;

/// Partial sums of a dot product, and elements taken together where there are that many.
pub(crate) const PARTIAL_SUMS: usize = 4;

/// A dot product in the making.
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

    /// Adds the next product. The sums are turned, so that the one after goes to the first again:
    /// [`Dot::sum_after`] turns them back.
    #[inline(always)]
    pub(crate) fn push(&mut self, a: V, b: V) {
        let [first, second, third, fourth] = self.0;
        self.0 = [second, third, fourth, a.mul_add(b, first)];
    }

    /// The result, when nothing was pushed one by one.
    #[inline(always)]
    pub(crate) fn sum(self) -> V {
        let [a, b, c, d] = self.0;
        a.add(b).add(c.add(d))
    }

    /// The result after `len` products were pushed, one by one or in blocks.
    #[inline(always)]
    pub(crate) fn sum_after(self, len: usize) -> V {
        let [a, b, c, d] = self.0;
        // The sum that is first now is that of the elements `len mod 4`.
        Self(match len % PARTIAL_SUMS {
            0 => [a, b, c, d],
            1 => [d, a, b, c],
            2 => [c, d, a, b],
            _ => [b, c, d, a],
        })
        .sum()
    }
}

/// The dot product of two vectors.
#[inline(always)]
pub(crate) fn dot<V: Vector>(a: &[V], b: &[V]) -> V {
    let mut sum = Dot::new();
    let (a, a_rest) = a.as_chunks::<PARTIAL_SUMS>();
    let (b, b_rest) = b.as_chunks::<PARTIAL_SUMS>();
    for (&a, &b) in a.iter().zip(b) {
        sum.push_block(a, b);
    }
    for (slot, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        sum.add(slot, a, b);
    }
    sum.sum()
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
