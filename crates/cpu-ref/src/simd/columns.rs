//! Column indices that gathers need not check.

use super::{Stored, Vector};

/// Column indices with a known upper bound, for gathers without a check per entry.
///
/// Invariant: every index is below `limit`.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    idx: Vec<u32>,
    limit: usize,
}

impl Columns {
    /// Takes indices and finds their bound.
    pub(crate) fn new(idx: Vec<u32>) -> Self {
        let limit = idx.iter().map(|&c| c as usize + 1).max().unwrap_or(0);
        Self { idx, limit }
    }

    /// The indices.
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.idx
    }

    /// `acc + sum of values[k] * x[columns[k]]` over `range`, in ascending order.
    #[inline(always)]
    pub(crate) fn dot<V: Vector>(
        &self,
        range: std::ops::Range<usize>,
        values: &[V],
        x: &[V],
        acc: V,
    ) -> V {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        let mut acc = acc;
        for (&value, &col) in values.iter().zip(idx) {
            // SAFETY: (1) every index is below `limit`, the invariant of `Columns`; (2) `x` holds
            // at least `limit` vectors, asserted above.
            acc = value.mul_add(unsafe { *x.get_unchecked(col as usize) }, acc);
        }
        acc
    }

    /// The dot product of `values` and `x[columns]` over `range`, in ascending order from 0, each
    /// product rounded before it is added: the same bits whatever the instruction set.
    #[inline(always)]
    pub(crate) fn rounded_dot<V: Vector>(
        &self,
        range: std::ops::Range<usize>,
        values: &[V],
        x: &[V],
    ) -> V {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        let mut acc = V::zero();
        for (&value, &col) in values.iter().zip(idx) {
            // SAFETY: as in `dot`.
            acc = value.mul(unsafe { *x.get_unchecked(col as usize) }).add(acc);
        }
        acc
    }

    /// For each entry of `range`, its value paired with the element of `x` in its column.
    #[inline(always)]
    pub(crate) fn pairs<'a, V: Vector>(
        &'a self,
        range: std::ops::Range<usize>,
        values: &'a [V],
        x: &'a [V],
    ) -> impl Iterator<Item = (V, V)> + 'a {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        values.iter().zip(idx).map(|(&value, &col)| {
            // SAFETY: as in `dot`.
            (value, unsafe { *x.get_unchecked(col as usize) })
        })
    }

    /// `acc - sum of values[k] * x[columns[k]]` over `range`, in ascending order.
    #[inline(always)]
    pub(crate) fn neg_dot<V: Vector, S: Stored<V>>(
        &self,
        range: std::ops::Range<usize>,
        values: &[S],
        x: &[V],
        acc: V,
    ) -> V {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        let mut acc = acc;
        for (&value, &col) in values.iter().zip(idx) {
            // SAFETY: as in `dot`.
            acc = value.load().neg_mul_add(unsafe { *x.get_unchecked(col as usize) }, acc);
        }
        acc
    }

    /// `x[columns[k]] -= factor * values[k]` over `range`.
    #[inline(always)]
    pub(crate) fn scatter_sub<V: Vector>(
        &self,
        range: std::ops::Range<usize>,
        values: &[V],
        factor: V,
        x: &mut [V],
    ) {
        let (values, idx) = (&values[range.clone()], &self.idx[range]);
        assert!(x.len() >= self.limit);
        for (&value, &col) in values.iter().zip(idx) {
            // SAFETY: as in `dot`; the exclusive borrow of `x` allows the write.
            let target = unsafe { x.get_unchecked_mut(col as usize) };
            *target = factor.neg_mul_add(value, *target);
        }
    }

    /// The dot products of `R` consecutive rows of `W` entries each, from entry `start`; each as
    /// [`Columns::dot`] from 0.
    #[inline(always)]
    pub(crate) fn dots<V: Vector, const R: usize, const W: usize>(
        &self,
        start: usize,
        values: &[V],
        x: &[V],
    ) -> [V; R] {
        let (values, idx) = (&values[start..start + R * W], &self.idx[start..start + R * W]);
        assert!(x.len() >= self.limit);
        let mut sums = [V::zero(); R];
        for (row, sum) in sums.iter_mut().enumerate() {
            for k in row * W..(row + 1) * W {
                // SAFETY: (1) `k` is below `R * W`, the length of both slices; (2) the index is
                // below `limit`, the invariant of `Columns`, and `x` is at least that long.
                *sum = unsafe {
                    let col = *idx.get_unchecked(k) as usize;
                    values.get_unchecked(k).mul_add(*x.get_unchecked(col), *sum)
                };
            }
        }
        sums
    }
}
