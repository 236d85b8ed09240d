//! The preprocessing of CSR-I.

use std::time::{Duration, Instant};

use sparsebatch_formats::CsrPatternRef;

use sparsebatch_cuda::GpuError;

/// Start rows of equal parts of the entries of a CSR pattern: made once per pattern, used by every
/// product and every set of values.
///
/// Part `p` of `nparts` holds the entries `p*nnz/nparts .. (p + 1)*nnz/nparts`.
///
/// Source: Flegar and Quintana-Orti 2017, as described in Anzt et al. 2017
/// (doi 10.1145/3148226.3148230).
#[derive(Clone, Debug)]
pub struct BalancedRows {
    nnz: usize,
    start_rows: Vec<i32>,
    time: Duration,
}

impl BalancedRows {
    /// Cuts the entries into `nparts` parts, fewer if there are fewer entries, and finds their
    /// start rows. Cost: a binary search in `row_ptr` per part.
    pub fn new(pattern: CsrPatternRef<'_>, nparts: u32) -> Self {
        Self::of_row_ptr(pattern.row_ptr(), nparts)
    }

    /// As [`BalancedRows::new`], from the row pointers of a valid pattern.
    pub(super) fn of_row_ptr(row_ptr: &[i32], nparts: u32) -> Self {
        let clock = Instant::now();
        let nnz = row_ptr.last().map_or(0, |&end| end as usize);
        let nparts = (nparts as usize).min(nnz);
        let row_before = |part: usize| match first_entry(part, nparts, nnz) {
            0 => -1,
            // The last row that begins at or before the entry before the part.
            first => row_ptr.partition_point(|&start| start < first as i32) as i32 - 1,
        };
        let start_rows =
            if nparts == 0 { Vec::new() } else { (0..=nparts).map(row_before).collect() };
        Self { nnz, start_rows, time: clock.elapsed() }
    }

    /// The number of parts; 0 for a pattern without entries.
    pub fn nparts(&self) -> usize {
        self.start_rows.len().saturating_sub(1)
    }

    /// For each part, the row of the entry before its first entry (-1 for the first part); at the
    /// end, the last row that is not empty. Empty for a pattern without entries.
    pub fn start_rows(&self) -> &[i32] {
        &self.start_rows
    }

    /// How long the preprocessing took.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Checks that the parts were made from a pattern with these rows. Cost: O(nparts).
    pub(super) fn check(&self, pattern: CsrPatternRef<'_>) -> Result<(), GpuError> {
        let refuse = |found: String| GpuError::InvalidArgument {
            name: "balanced rows",
            expected: "rows computed from this matrix".to_owned(),
            found,
        };
        if self.nnz != pattern.nnz() {
            return Err(refuse(format!("those of a matrix with {} entries", self.nnz)));
        }
        for (part, &row) in self.start_rows.iter().enumerate() {
            let first = first_entry(part, self.nparts(), self.nnz);
            let holds = match usize::try_from(row) {
                Err(_) => first == 0,
                Ok(row) => {
                    first > 0 && row < pattern.nrows() && pattern.row(row).contains(&(first - 1))
                }
            };
            if !holds {
                return Err(refuse(format!("row {row} for part {part}")));
            }
        }
        Ok(())
    }
}

/// First entry of a part, by the formula of `part_start` in the kernels.
fn first_entry(part: usize, nparts: usize, nnz: usize) -> usize {
    (part as u128 * nnz as u128 / nparts as u128) as usize
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::{CsrPattern, Pattern};

    use super::*;

    fn pattern(row_ptr: &[i32]) -> CsrPattern {
        let col_idx = row_ptr.windows(2).flat_map(|row| 0..row[1] - row[0]).collect();
        CsrPattern::try_new(row_ptr.len() - 1, 10, row_ptr.to_vec(), col_idx).unwrap()
    }

    #[test]
    fn parts_start_in_the_row_of_the_entry_before() {
        // Rows of 0, 4, 0, 1, 3 and 0 entries; parts of 2.
        let rows = pattern(&[0, 0, 4, 4, 5, 8, 8]);

        let balanced = BalancedRows::new(rows.view(), 4);

        assert_eq!(balanced.start_rows(), [-1, 1, 1, 4, 4]);
        assert_eq!(balanced.check(rows.view()), Ok(()));
    }

    #[test]
    fn there_are_no_more_parts_than_entries() {
        assert_eq!(BalancedRows::new(pattern(&[0, 1, 3]).view(), 10).start_rows(), [-1, 0, 1, 1]);
        assert_eq!(BalancedRows::new(pattern(&[0, 0, 0]).view(), 10).nparts(), 0);
        assert_eq!(BalancedRows::new(pattern(&[0]).view(), 10).nparts(), 0);
    }

    #[test]
    fn another_pattern_is_refused() {
        let balanced = BalancedRows::new(pattern(&[0, 2, 4]).view(), 2);

        for other in [pattern(&[0, 2, 5]), pattern(&[0, 1, 4]), pattern(&[0, 0, 4])] {
            let error = balanced.check(other.view()).unwrap_err();
            assert!(error.to_string().starts_with("balanced rows is "), "{error}");
        }
    }
}
