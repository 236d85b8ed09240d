//! The cost of a sparse LU factorisation: [`lu_costs`].

use sparsebatch_formats::CsrPatternRef;

use super::{FactorPattern, min_degree};
use crate::wide::{Part, widest};

/// The size of an elimination without pivoting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LuCosts {
    /// Entries of `L + U`, the diagonal counted once.
    pub entries: usize,
    /// Multiply-adds of a factorisation.
    pub products: u64,
}

/// Largest number of rows for which each row is held as a bit set.
const MOST_BITS: usize = 128;

/// The size of an elimination without pivoting, in minimum-degree order, of a square pattern with a
/// full diagonal. `None` where the factors have more than `limit` entries, or the pattern is not
/// square.
///
/// Up to 128 rows, degrees are exact and no order is made: this takes a few microseconds, where
/// [`min_degree`] and [`FactorPattern::lu`], which larger patterns use, would take tens. The counts
/// of the two ways differ by a few entries then.
pub fn lu_costs(pattern: CsrPatternRef<'_>, limit: usize) -> Option<LuCosts> {
    if pattern.nnz() > limit || pattern.nrows() != pattern.ncols() {
        return None;
    }
    if pattern.nrows() <= MOST_BITS {
        return widest(ByBits { pattern, limit });
    }
    by_factors(pattern, limit)
}

/// The costs from an order and its factor pattern.
fn by_factors(pattern: CsrPatternRef<'_>, limit: usize) -> Option<LuCosts> {
    let order = min_degree(pattern).ok()?;
    let factors = FactorPattern::lu(pattern, Some(&order), limit).ok()?;
    Some(LuCosts { entries: factors.nnz(), products: factors.flops() })
}

/// The costs from an elimination on bit sets: each step takes the row of least degree in the graph
/// of `A + A^T`, the lowest index first.
struct ByBits<'a> {
    pattern: CsrPatternRef<'a>,
    limit: usize,
}

impl Part for ByBits<'_> {
    type Output = Option<LuCosts>;

    #[inline(always)]
    fn run(self) -> Option<LuCosts> {
        let Self { pattern, limit } = self;
        let nrows = pattern.nrows();
        let bit = |k: usize| 1u128 << k;
        let (mut rows, mut cols) = ([0u128; MOST_BITS], [0u128; MOST_BITS]);
        for (row, own) in rows.iter_mut().enumerate().take(nrows) {
            for &col in &pattern.col_idx()[pattern.row(row)] {
                *own |= bit(col as usize);
                cols[col as usize] |= bit(row);
            }
        }
        // The neighbours of each row and the row itself.
        let mut near = [0u128; MOST_BITS];
        let mut keys = [NO_ROW; MOST_BITS];
        let mut left = if nrows == MOST_BITS { u128::MAX } else { bit(nrows) - 1 };
        for row in 0..nrows {
            near[row] = rows[row] | cols[row] | bit(row);
            keys[row] = key(near[row], row);
        }
        let mut costs = LuCosts { entries: 0, products: 0 };
        while left != 0 {
            let least = keys.iter().fold(NO_ROW, |least, &key| least.min(key));
            let pivot = least as usize % MOST_BITS;
            keys[pivot] = NO_ROW;
            left &= !bit(pivot);
            let (right, below) = (rows[pivot] & left, cols[pivot] & left);
            let (of_u, of_l) = (right.count_ones(), below.count_ones());
            costs.entries += 1 + (of_u + of_l) as usize;
            costs.products += u64::from(of_u) * u64::from(of_l);
            if costs.entries > limit {
                return None;
            }
            for_bits(below, |row| rows[row] |= right);
            for_bits(right, |col| cols[col] |= below);
            let around = near[pivot] & left;
            for_bits(around, |row| {
                near[row] = (near[row] | around) & left;
                keys[row] = key(near[row], row);
            });
        }
        Some(costs)
    }
}

/// The key of rows that are eliminated or absent, above all others.
const NO_ROW: i16 = i16::MAX;

/// The key by which a row is taken: its degree, then its index. `near` holds its neighbours and
/// itself.
#[inline(always)]
fn key(near: u128, row: usize) -> i16 {
    ((near.count_ones() as usize - 1) * MOST_BITS + row) as i16
}

/// Calls `visit` with the index of each set bit.
#[inline(always)]
fn for_bits(bits: u128, mut visit: impl FnMut(usize)) {
    for (half, first) in [(bits as u64, 0), ((bits >> 64) as u64, 64)] {
        let mut half = half;
        while half != 0 {
            visit(first + half.trailing_zeros() as usize);
            half &= half - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::generate::{Family, Problem};
    use sparsebatch_formats::{CsrPattern, Pattern};

    /// A pseudo-random pattern with a full diagonal.
    fn random(nrows: usize, per_row: usize, mut seed: u64) -> CsrPattern {
        let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
        for row in 0..nrows {
            let mut own = vec![row as i32];
            for _ in 0..per_row {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                own.push(((seed >> 33) as usize % nrows) as i32);
            }
            own.sort_unstable();
            own.dedup();
            col_idx.append(&mut own);
            row_ptr.push(col_idx.len() as i32);
        }
        CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).unwrap()
    }

    #[test]
    fn costs_are_about_those_of_the_factors() {
        let (mut found, mut expected) = (0, 0);
        for seed in 0..200 {
            let pattern = random(1 + seed % 128, seed % 5, seed as u64);
            let costs = lu_costs(pattern.view(), usize::MAX).unwrap();
            let factors = by_factors(pattern.view(), usize::MAX).unwrap();
            assert!(costs.entries >= pattern.nnz(), "{seed}");
            let most = 1.25 * factors.entries as f64 + 8.0;
            assert!(costs.entries as f64 <= most, "{seed}: {costs:?} {factors:?}");
            found += costs.entries;
            expected += factors.entries;
        }
        let ratio = found as f64 / expected as f64;
        assert!((0.97..1.02).contains(&ratio), "{ratio}");
    }

    #[test]
    fn costs_without_fill_are_those_of_the_pattern() {
        for nrows in [1, 2, 100, 128, 129, 400] {
            let tri = Problem::new(Family::Tri, nrows).unwrap().batch(1).unwrap().batch;
            let pattern = tri.pattern(0);
            let costs = lu_costs(pattern, usize::MAX).unwrap();
            let expected = LuCosts { entries: pattern.nnz(), products: nrows as u64 - 1 };
            assert_eq!(costs, expected, "{nrows}");
            assert_eq!(lu_costs(pattern, pattern.nnz()), Some(expected));
            assert_eq!(lu_costs(pattern, pattern.nnz() - 1), None);
        }
    }

    #[test]
    fn patterns_that_are_not_square_or_have_no_rows() {
        let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![1]).unwrap();
        let none = CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap();

        assert_eq!(lu_costs(wide.view(), 9), None);
        assert_eq!(lu_costs(none.view(), 9), Some(LuCosts { entries: 0, products: 0 }));
    }
}
