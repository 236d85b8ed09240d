//! Index work that is done once per pattern: orders, factor patterns, diagonal blocks.
//!
//! | module | gives |
//! | --- | --- |
//! | [`min_degree`](min_degree()) | a fill-reducing order for the factors of a matrix |
//! | [`multicolor`](multicolor()) | an order whose triangular solves have few levels |
//! | [`elimination_order`] | the order that an [`Order`] asks for |
//! | [`Band`] | whether entries are near the diagonal, in an order that brings them there |
//! | [`match_rows`] | an order of rows that puts large entries on the diagonal |
//! | [`FactorPattern`] | the entries of L + U, for ILU(0) and for LU without pivoting |
//! | [`lu_costs`] | the number of those entries, and of the multiply-adds of a factorisation |
//! | [`AssemblyTree`] | the fronts of a multifrontal LU |
//! | [`LowerPattern`] | the entries of L for IC(0), by rows and by columns |
//! | [`fixed_blocks`], [`find_blocks`], [`DiagonalBlocks`] | blocks for block-Jacobi |
//!
//! Everything here is sequential, and all but [`match_rows`] looks at indices only: one analysis
//! serves all systems of a uniform batch. Every structure maps its entries to positions in the
//! value array of A ([`NO_SOURCE`] where A has none), so that a numeric phase starts with one
//! gather.
//!
//! An **order** is a slice with one entry per row: position `k` of the permuted matrix `P A P^T`
//! holds row and column `order[k]` of A.

mod band;
mod blocks;
mod cholesky;
mod costs;
mod factor;
mod fronts;
mod matching;
mod min_degree;
mod multicolor;
mod quotient_graph;
mod reach;

pub use band::{Band, MOST_DIAGONALS, reverse_cuthill_mckee};
pub use blocks::{DiagonalBlocks, FOUND_BLOCK_SIZE, MAX_BLOCK_SIZE, find_blocks, fixed_blocks};
pub use cholesky::LowerPattern;
pub use costs::{LuCosts, lu_costs};
pub use factor::FactorPattern;
pub use fronts::{AssemblyTree, Front, FrontLimits};
pub use matching::match_rows;
pub use min_degree::min_degree;
pub use multicolor::multicolor;

use sparsebatch_formats::CsrPatternRef;

use crate::Order;

/// Marks an entry of a source map that the matrix lacks: fill, a missing diagonal, or a hole in a
/// dense block.
pub const NO_SOURCE: u32 = u32::MAX;

/// The order in which ILU(0) and IC(0) eliminate; nothing for the order of the rows.
///
/// # Errors
/// [`SymbolicError::NotSquare`].
pub fn elimination_order(
    pattern: CsrPatternRef<'_>,
    order: Order,
) -> Result<Option<Vec<u32>>, SymbolicError> {
    match order {
        Order::Natural => Ok(None),
        Order::MinDegree => min_degree(pattern).map(Some),
        Order::Multicolor => multicolor(pattern).map(Some),
    }
}

/// Why a pattern could not be analysed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolicError {
    /// Factors and diagonal blocks exist for square matrices only.
    #[error("the matrix is {nrows} x {ncols}, expected a square matrix")]
    NotSquare {
        /// Rows of the matrix.
        nrows: usize,
        /// Columns of the matrix.
        ncols: usize,
    },
    /// More rows than 32 bits can number.
    #[error("{found} rows, the largest supported number is {limit}")]
    TooManyRows {
        /// Rows asked for.
        found: usize,
        /// The most rows of a matrix.
        limit: usize,
    },
    /// An order does not hold one entry per row.
    #[error("order has {found} entries, expected {expected}")]
    OrderLength {
        /// Rows of the matrix.
        expected: usize,
        /// Entries of the order.
        found: usize,
    },
    /// An entry of an order is outside the matrix or occurs twice.
    #[error("order[{position}] is {found}, expected every index in 0..{nrows} exactly once")]
    NotPermutation {
        /// The first offending position.
        position: usize,
        /// The index found there.
        found: u32,
        /// Rows of the matrix.
        nrows: usize,
    },
    /// The number of magnitudes differs from the number of entries.
    #[error("{found} magnitudes, expected one for each of {expected} entries")]
    Magnitudes {
        /// Entries of the matrix.
        expected: usize,
        /// Magnitudes that were given.
        found: usize,
    },
    /// The factors would hold more entries than allowed.
    #[error("the factors hold {entries} entries up to row {row} of {nrows}, the limit is {limit}")]
    TooManyEntries {
        /// Entries counted when the limit was passed.
        entries: usize,
        /// The row of the permuted matrix that passed the limit.
        row: usize,
        /// Rows of the matrix.
        nrows: usize,
        /// The largest number of entries allowed.
        limit: usize,
    },
    /// Entries are too far from the diagonal for a banded solve, in the order of the rows and in
    /// reverse Cuthill-McKee order.
    #[error(
        "entries are up to {lower} below and {upper} above the diagonal, also in reverse \
         Cuthill-McKee order more than the {limit} that a banded solve takes"
    )]
    NoBand {
        /// The largest distance below the diagonal, in the order of the rows.
        lower: usize,
        /// The largest distance above the diagonal, in the order of the rows.
        upper: usize,
        /// The largest distance that is taken.
        limit: usize,
    },
    /// A block size is 0 or larger than [`MAX_BLOCK_SIZE`].
    #[error("block size is {found}, expected 1 to {limit}")]
    BlockSize {
        /// The size asked for.
        found: usize,
        /// The largest block size supported.
        limit: usize,
    },
    /// Block starts do not cut the rows into blocks.
    #[error("block start {position} is {found}, expected {expected}")]
    BlockStart {
        /// The first offending position; the number of starts when the last one is missing.
        position: usize,
        /// The start found there.
        found: u32,
        /// The start that was expected there.
        expected: String,
    },
}

/// The number of rows of a square pattern.
///
/// # Errors
/// [`SymbolicError::NotSquare`].
pub fn check_square(pattern: CsrPatternRef<'_>) -> Result<usize, SymbolicError> {
    let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
    if nrows == ncols { Ok(nrows) } else { Err(SymbolicError::NotSquare { nrows, ncols }) }
}

/// Whether each entry of a square pattern has one on the other side of the diagonal.
pub fn is_structurally_symmetric(pattern: CsrPatternRef<'_>) -> bool {
    (0..pattern.nrows()).all(|row| {
        let cols = &pattern.col_idx()[pattern.row(row)];
        cols.iter().all(|&col| pattern.position(col as usize, row).is_some())
    })
}

/// A checked order and its inverse.
struct Permutation {
    /// Position in the permuted matrix -> index in A.
    order: Vec<u32>,
    /// Index in A -> position in the permuted matrix.
    inverse: Vec<u32>,
}

impl Permutation {
    /// Checks an order; `None` is the natural order.
    fn try_new(order: Option<&[u32]>, nrows: usize) -> Result<Self, SymbolicError> {
        let Some(order) = order else {
            let identity: Vec<u32> = (0..nrows as u32).collect();
            return Ok(Self { order: identity.clone(), inverse: identity });
        };
        if order.len() != nrows {
            return Err(SymbolicError::OrderLength { expected: nrows, found: order.len() });
        }
        let mut inverse = vec![u32::MAX; nrows];
        for (position, &found) in order.iter().enumerate() {
            match inverse.get_mut(found as usize) {
                Some(slot) if *slot == u32::MAX => *slot = position as u32,
                _ => {
                    return Err(SymbolicError::NotPermutation { position, found, nrows });
                }
            }
        }
        Ok(Self { order: order.to_vec(), inverse })
    }

    /// Overwrites `row` with the entries of row `position` of `P A P^T`: (column, position in A's
    /// value array), columns ascending.
    fn permuted_row(&self, pattern: CsrPatternRef<'_>, position: usize, row: &mut Vec<(u32, u32)>) {
        let range = pattern.row(self.order[position] as usize);
        row.clear();
        row.extend(range.map(|k| {
            let col = pattern.col_idx()[k] as usize;
            (self.inverse[col], k as u32)
        }));
        row.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_that_are_no_permutations_are_refused() {
        let check = |order: &[u32]| Permutation::try_new(Some(order), 3).err();

        assert_eq!(check(&[2, 0, 1]), None);
        assert_eq!(check(&[0, 1]), Some(SymbolicError::OrderLength { expected: 3, found: 2 }));
        assert_eq!(
            check(&[0, 1, 1]),
            Some(SymbolicError::NotPermutation { position: 2, found: 1, nrows: 3 })
        );
        assert_eq!(
            check(&[0, 3, 1]),
            Some(SymbolicError::NotPermutation { position: 1, found: 3, nrows: 3 })
        );
        assert_eq!(
            check(&[0, u32::MAX, 1]),
            Some(SymbolicError::NotPermutation { position: 1, found: u32::MAX, nrows: 3 })
        );
    }

    #[test]
    fn inverse_undoes_the_order() {
        let permutation = Permutation::try_new(Some(&[2, 0, 1]), 3).unwrap();

        assert_eq!(permutation.inverse, [1, 2, 0]);
    }
}
