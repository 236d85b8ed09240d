//! Orders of elimination: little fill, or short dependency chains in the factors.

use std::fmt;

use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::symbolic::{SymbolicError, min_degree};

/// The order in which rows and columns are eliminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LuOrder {
    /// The order of the rows in the matrix.
    Natural,
    /// Minimum degree: little fill.
    MinDegree,
    /// Eliminates independent rows together, in maximal sets of rows whose degree is at most
    /// `tolerance` above the least: more fill, fewer levels. A tridiagonal matrix becomes cyclic
    /// reduction.
    IndependentSets {
        /// The largest difference between the degrees of a set.
        tolerance: u32,
    },
}

impl fmt::Display for LuOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Natural => f.write_str("natural order"),
            Self::MinDegree => f.write_str("minimum-degree order"),
            Self::IndependentSets { tolerance } => {
                write!(f, "order of independent sets (degrees within {tolerance})")
            }
        }
    }
}

/// The orders that plans try.
pub(super) const TRIED: [LuOrder; 5] = [
    LuOrder::MinDegree,
    LuOrder::IndependentSets { tolerance: 1 },
    LuOrder::IndependentSets { tolerance: 3 },
    LuOrder::IndependentSets { tolerance: 6 },
    LuOrder::IndependentSets { tolerance: 12 },
];

/// Largest number of rows for which independent sets are searched: the graph is a dense bit matrix.
const MOST_ROWS: usize = 4096;

impl LuOrder {
    /// Maps a position in the factors to the row of A; `None` for the natural order.
    pub(super) fn permutation(
        self,
        pattern: CsrPatternRef<'_>,
    ) -> Result<Option<Vec<u32>>, SymbolicError> {
        match self {
            Self::Natural => Ok(None),
            Self::IndependentSets { tolerance } if pattern.nrows() <= MOST_ROWS => {
                Ok(Some(independent_sets(pattern, tolerance)))
            }
            Self::MinDegree | Self::IndependentSets { .. } => min_degree(pattern).map(Some),
        }
    }
}

/// Multiple minimum degree on the graph of `A + A^T`, in rounds. Each round eliminates a maximal
/// set of rows without edges between them, taken by least degree, then lowest index, with no degree
/// more than `tolerance` above the least. The result is a function of the pattern alone.
///
/// # Source
/// J. W. H. Liu, Modification of the minimum-degree algorithm by multiple elimination, 1985
/// (doi 10.1145/214392.214398).
fn independent_sets(pattern: CsrPatternRef<'_>, tolerance: u32) -> Vec<u32> {
    let n = pattern.nrows();
    let words = n.div_ceil(64);
    let mut graph = vec![0u64; n * words];
    for row in 0..n {
        for &col in &pattern.col_idx()[pattern.row(row)] {
            let col = col as usize;
            if col != row {
                graph[row * words + col / 64] |= 1 << (col % 64);
                graph[col * words + row / 64] |= 1 << (row % 64);
            }
        }
    }
    let mut order = Vec::with_capacity(n);
    let mut left: Vec<usize> = (0..n).collect();
    let mut blocked = vec![0u64; words];
    while !left.is_empty() {
        let degree = |row: usize| {
            graph[row * words..(row + 1) * words].iter().map(|word| word.count_ones()).sum::<u32>()
        };
        let mut degrees: Vec<(u32, usize)> = left.iter().map(|&row| (degree(row), row)).collect();
        degrees.sort_unstable();
        let most = degrees[0].0.saturating_add(tolerance);
        blocked.fill(0);
        let mut set = Vec::new();
        for &(degree, row) in &degrees {
            if degree <= most && blocked[row / 64] >> (row % 64) & 1 == 0 {
                set.push(row);
                let neighbours = &graph[row * words..(row + 1) * words];
                blocked.iter_mut().zip(neighbours).for_each(|(all, own)| *all |= own);
            }
        }
        for &row in &set {
            eliminate(&mut graph, words, row);
            order.push(row as u32);
        }
        set.sort_unstable();
        left.retain(|row| set.binary_search(row).is_err());
    }
    order
}

/// Connects the neighbours of a row with each other, and removes the row.
fn eliminate(graph: &mut [u64], words: usize, row: usize) {
    let own = graph[row * words..(row + 1) * words].to_vec();
    for (number, &word) in own.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            let other = number * 64 + rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let neighbours = &mut graph[other * words..(other + 1) * words];
            neighbours.iter_mut().zip(&own).for_each(|(all, own)| *all |= own);
            neighbours[other / 64] &= !(1 << (other % 64));
            neighbours[row / 64] &= !(1 << (row % 64));
        }
    }
    graph[row * words..(row + 1) * words].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    fn path(n: usize) -> CsrPattern {
        let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
        for row in 0..n {
            col_idx.extend((row.saturating_sub(1)..(row + 2).min(n)).map(|col| col as i32));
            row_ptr.push(col_idx.len() as i32);
        }
        CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
    }

    #[test]
    fn a_path_is_reduced_cyclically() {
        // Both ends first, of degree 1; then every second one of those between.
        assert_eq!(independent_sets(path(8).view(), 1), [0, 7, 2, 4, 1, 6, 3, 5]);
    }

    #[test]
    fn without_tolerance_a_path_shrinks_from_both_ends() {
        assert_eq!(independent_sets(path(6).view(), 0), [0, 5, 1, 4, 2, 3]);
    }

    #[test]
    fn rows_without_neighbours_come_first() {
        let pattern = CsrPattern::try_new(3, 3, vec![0, 2, 4, 4], vec![0, 1, 0, 1]).unwrap();

        assert_eq!(independent_sets(pattern.view(), 0), [2, 0, 1]);
        assert!(independent_sets(path(0).view(), 1).is_empty());
    }
}
