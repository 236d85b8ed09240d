//! The balanced split of CSR-I and COO: equal numbers of entries, rows that straddle parts joined
//! by carried sums.

use std::ops::Range;
use std::time::{Duration, Instant};

use sparsebatch_formats::{CooPattern, CsrPatternRef, Pattern, Scalar};
use sparsebatch_solve_core::ArgumentError;

use super::chunks::{GRAIN, MAX_PARTS, partition_point, split_at};
use crate::CpuError;

/// The entries of a matrix cut into equal parts, and the row in which each part starts: the
/// preprocessing of CSR-I. Made once per pattern and reused by every product.
///
/// Part `p` of `T` holds the entries `p*nnz/T .. (p+1)*nnz/T`. A part writes the sums of the rows
/// that begin in it. Its sum of a row that began in an earlier part is carried and added
/// afterwards, in the order of the parts, so the result depends on the matrix and on `T` alone.
///
/// Source: Flegar and Quintana-Orti 2017 (doi 10.1007/978-3-319-64203-1_51), with the atomic
/// additions replaced by carries in fixed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancedSplit {
    /// First row whose sum part `p` writes; `parts + 1` entries, the last `nrows`.
    first_row: Vec<usize>,
    /// First entry of part `p`; `parts + 1` entries, the last `nnz`.
    first_entry: Vec<usize>,
    /// One past the last entry of part `p` that belongs to a row begun in an earlier part.
    carry_end: Vec<usize>,
    cost: Duration,
}

impl BalancedSplit {
    /// Finds the start rows of a CSR pattern: one binary search per part.
    ///
    /// # Errors
    /// [`CpuError::Argument`] when a given `parts` is outside `1..=256`. The default is one part
    /// per 32,768 entries and rows.
    pub fn of_csr(pattern: CsrPatternRef<'_>, parts: Option<usize>) -> Result<Self, CpuError> {
        let ptr = pattern.row_ptr();
        let row_after =
            |entry| partition_point(0..pattern.nrows(), |row| (ptr[row] as usize) < entry);
        Self::new(pattern.nrows(), pattern.nnz(), parts, row_after, |row| ptr[row] as usize)
    }

    /// Finds the start rows of a COO pattern: one look at the entry before each part.
    ///
    /// # Errors
    /// As [`BalancedSplit::of_csr`].
    pub fn of_coo(pattern: &CooPattern, parts: Option<usize>) -> Result<Self, CpuError> {
        let rows = pattern.row_idx();
        let row_after = |entry: usize| rows[entry - 1] as usize + 1;
        Self::new(pattern.nrows(), pattern.nnz(), parts, row_after, |row| {
            partition_point(0..rows.len(), |k| (rows[k] as usize) < row)
        })
    }

    fn new(
        nrows: usize,
        nnz: usize,
        parts: Option<usize>,
        row_after: impl Fn(usize) -> usize,
        entries_before_row: impl Fn(usize) -> usize,
    ) -> Result<Self, CpuError> {
        let start = Instant::now();
        let parts = match parts {
            None => ((nrows + nnz) / GRAIN).clamp(1, MAX_PARTS),
            Some(parts) if (1..=MAX_PARTS).contains(&parts) => parts,
            Some(parts) => {
                return Err(CpuError::Argument(ArgumentError::OutOfRange {
                    name: "parts",
                    expected: "1 to 256 parts",
                    found: parts.to_string(),
                }));
            }
        };
        let first_entry: Vec<usize> =
            (0..=parts).map(|p| (p as u64 * nnz as u64 / parts as u64) as usize).collect();
        let (mut first_row, mut carry_end) = (Vec::new(), Vec::new());
        for p in 0..parts {
            let (begin, end) = (first_entry[p], first_entry[p + 1]);
            let row = if begin == 0 { 0 } else { row_after(begin) };
            first_row.push(row);
            carry_end.push(entries_before_row(row).clamp(begin, end));
        }
        first_row.push(nrows);
        Ok(Self { first_row, first_entry, carry_end, cost: start.elapsed() })
    }

    /// Number of parts T.
    pub fn parts(&self) -> usize {
        self.first_entry.len() - 1
    }

    /// The first row whose sum each part writes, and the number of rows at the end.
    pub fn first_row(&self) -> &[usize] {
        &self.first_row
    }

    /// The entries of part `p`.
    pub fn entries(&self, p: usize) -> Range<usize> {
        self.first_entry[p]..self.first_entry[p + 1]
    }

    /// The entries of part `p` that belong to row `first_row()[p] - 1`, begun in an earlier part.
    pub fn carried_entries(&self, p: usize) -> Range<usize> {
        self.first_entry[p]..self.carry_end[p]
    }

    /// Time spent on finding the start rows.
    pub fn cost(&self) -> Duration {
        self.cost
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        8 * (self.first_row.len() + self.first_entry.len() + self.carry_end.len())
    }

    /// Runs `part(p, own, carried)` for every part on all cores, then adds the carried sums.
    /// `own` holds the part's rows of each right-hand side of `ys`; `carried` receives the sums of
    /// [`BalancedSplit::carried_entries`]. Allocates nothing.
    pub(super) fn run<T, F, const R: usize>(&self, alpha: T, mut ys: [&mut [T]; R], part: &F)
    where
        T: Scalar,
        F: Fn(usize, [&mut [T]; R], &mut [T; R]) + Sync,
    {
        if self.parts() == 1 {
            return part(0, ys, &mut [T::ZERO; R]);
        }
        let mut carried = [[T::ZERO; R]; MAX_PARTS];
        let carried = &mut carried[..self.parts()];
        run_parts(0, &self.first_row, ys.each_mut().map(|y| &mut **y), carried, part);
        for (p, carry) in carried.iter().enumerate() {
            if !self.carried_entries(p).is_empty() {
                for (y, &sum) in ys.iter_mut().zip(carry) {
                    y[self.first_row[p] - 1] += alpha * sum;
                }
            }
        }
    }
}

fn run_parts<T, F, const R: usize>(
    first: usize,
    first_row: &[usize],
    ys: [&mut [T]; R],
    carried: &mut [[T; R]],
    part: &F,
) where
    T: Scalar,
    F: Fn(usize, [&mut [T]; R], &mut [T; R]) + Sync,
{
    if let [carry] = carried {
        return part(first, ys, carry);
    }
    let middle = carried.len() / 2;
    let (left, right) = split_at(ys, first_row[middle] - first_row[0]);
    let (left_carried, right_carried) = carried.split_at_mut(middle);
    rayon::join(
        || run_parts(first, &first_row[..=middle], left, left_carried, part),
        || run_parts(first + middle, &first_row[middle..], right, right_carried, part),
    );
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::CsrPattern;

    use super::*;

    #[test]
    fn split_starts_each_part_at_the_first_new_row() {
        // Rows of 1, 5, 0 and 2 entries; four parts of two entries.
        let pattern =
            CsrPattern::try_new(4, 5, vec![0, 1, 6, 6, 8], vec![0, 0, 1, 2, 3, 4, 0, 1]).unwrap();

        let split = BalancedSplit::of_csr(pattern.view(), Some(4)).unwrap();

        assert_eq!(split.first_row(), [0, 2, 2, 2, 4]);
        let carried: Vec<_> = (0..4).map(|p| split.carried_entries(p)).collect();
        assert_eq!(carried, [0..0, 2..4, 4..6, 6..6]);
    }

    #[test]
    fn split_of_coo_equals_that_of_csr() {
        let csr =
            CsrPattern::try_new(4, 5, vec![0, 1, 6, 6, 8], vec![0, 0, 1, 2, 3, 4, 0, 1]).unwrap();
        let coo = CooPattern::try_new(4, 5, vec![0, 1, 1, 1, 1, 1, 3, 3], csr.col_idx().to_vec())
            .unwrap();

        for parts in 1..12 {
            let of_csr = BalancedSplit::of_csr(csr.view(), Some(parts)).unwrap();
            let of_coo = BalancedSplit::of_coo(&coo, Some(parts)).unwrap();

            assert_eq!(of_csr.first_row, of_coo.first_row);
            assert_eq!(of_csr.carry_end, of_coo.carry_end);
        }
    }

    #[test]
    fn split_refuses_no_parts_and_too_many() {
        let pattern = CsrPattern::try_new(1, 1, vec![0, 1], vec![0]).unwrap();

        for parts in [0, 257] {
            let error = BalancedSplit::of_csr(pattern.view(), Some(parts)).unwrap_err();
            assert!(matches!(
                error,
                CpuError::Argument(ArgumentError::OutOfRange { name: "parts", .. })
            ));
        }
    }
}
