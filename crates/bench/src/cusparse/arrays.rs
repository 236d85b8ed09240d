//! Host arrays in the formats of cuSPARSE, with 32-bit indices.

use std::iter::repeat_n;
use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_formats::{Csr, CsrPatternRef, FormatError, RaggedCsr};
use sparsebatch_spmv_gpu::GpuError;

/// Rows of a slice.
pub(crate) const SLICE: usize = 32;

/// Slots per entry above which slices are no comparison.
const MAX_FILL: usize = 4;

/// A matrix in CSR.
pub(crate) struct HostCsr<'a> {
    pub(super) row_ptr: Vec<i32>,
    pub(super) cols: Vec<i32>,
    pub(super) values: &'a [f64],
    pub(super) ncols: usize,
}

/// A matrix in slices of [`SLICE`] rows, each stored column by column; padding has column -1.
pub(super) struct HostSell {
    pub(super) slice_ptr: Vec<i32>,
    pub(super) cols: Vec<i32>,
    pub(super) values: Vec<f64>,
}

fn too_large(what: &'static str, found: usize) -> GpuError {
    GpuError::InvalidArgument {
        name: what,
        expected: format!("at most {}, what 32-bit indices count", i32::MAX),
        found: found.to_string(),
    }
}

impl<'a> HostCsr<'a> {
    /// One matrix.
    pub(crate) fn single(pattern: CsrPatternRef<'_>, values: &'a [f64]) -> Self {
        Self {
            row_ptr: pattern.row_ptr().to_vec(),
            cols: pattern.col_idx().to_vec(),
            values,
            ncols: pattern.ncols(),
        }
    }

    /// A batch as one block-diagonal matrix.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when it has more rows or entries than 32-bit indices can count.
    pub(crate) fn block_diagonal(batch: &'a RaggedCsr<f64>) -> Result<Self, GpuError> {
        let nitems = batch.nitems();
        let (nrows, ncols) = (batch.row_offsets()[nitems], batch.col_offsets()[nitems]);
        for (what, found) in [("rows", nrows), ("columns", ncols), ("entries", batch.total_nnz())] {
            if found > i32::MAX as usize {
                return Err(too_large(what, found));
            }
        }
        let items = (0..nitems).into_par_iter();
        let ends = items.clone().flat_map_iter(|item| {
            let first = batch.nnz_offsets()[item] as i32;
            batch.item(item).pattern().row_ptr()[1..].iter().map(move |&end| first + end)
        });
        let row_ptr = rayon::iter::once(0).chain(ends).collect();
        let cols = items.flat_map_iter(|item| {
            let first = batch.col_offsets()[item] as i32;
            batch.item(item).pattern().col_idx().iter().map(move |&col| first + col)
        });
        let cols = cols.collect();
        Ok(Self { row_ptr, cols, values: batch.values(), ncols })
    }

    /// The matrix in our own format.
    ///
    /// # Errors
    /// When a row has a column twice.
    pub(crate) fn into_csr(self) -> Result<Csr<f64>, FormatError> {
        let (nrows, values) = (self.nrows(), self.values.to_vec());
        Csr::try_new(nrows, self.ncols, self.row_ptr, self.cols, values)
    }

    pub(super) fn nrows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    pub(super) fn nnz(&self) -> usize {
        self.values.len()
    }

    fn row(&self, row: usize) -> Range<usize> {
        self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize
    }

    /// The row of each entry.
    pub(super) fn row_idx(&self) -> Vec<i32> {
        let rows = (0..self.nrows()).into_par_iter();
        rows.flat_map_iter(|row| repeat_n(row as i32, self.row(row).len())).collect()
    }

    /// The matrix in slices, the last one filled up with empty rows.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for too much padding, before anything is allocated.
    pub(super) fn sell(&self) -> Result<HostSell, GpuError> {
        let nslices = self.nrows().div_ceil(SLICE);
        let width = |slice| self.rows_of(slice).map(|row| self.row(row).len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..nslices).into_par_iter().map(width).collect();
        let slots = SLICE * widths.iter().sum::<usize>();
        if slots > i32::MAX as usize {
            return Err(too_large("slots of slices", slots));
        }
        if slots > MAX_FILL * self.nnz() + SLICE {
            return Err(GpuError::InvalidArgument {
                name: "slots of slices",
                expected: format!("at most {MAX_FILL} for each of {} entries", self.nnz()),
                found: slots.to_string(),
            });
        }
        let mut slice_ptr = Vec::with_capacity(nslices + 1);
        let mut end = 0;
        slice_ptr.push(0);
        slice_ptr.extend(widths.iter().map(|width| {
            end += (width * SLICE) as i32;
            end
        }));
        let (mut cols, mut values) = (vec![0; slots], vec![0.0; slots]);
        self.fill(0, &widths, &mut cols, &mut values);
        Ok(HostSell { slice_ptr, cols, values })
    }

    fn rows_of(&self, slice: usize) -> Range<usize> {
        slice * SLICE..((slice + 1) * SLICE).min(self.nrows())
    }

    /// Writes slices from `first` on, halves of them at the same time.
    fn fill(&self, first: usize, widths: &[usize], cols: &mut [i32], values: &mut [f64]) {
        if widths.len() > 256 {
            let (left, right) = widths.split_at(widths.len() / 2);
            let middle = SLICE * left.iter().sum::<usize>();
            let (left_cols, right_cols) = cols.split_at_mut(middle);
            let (left_values, right_values) = values.split_at_mut(middle);
            rayon::join(
                || self.fill(first, left, left_cols, left_values),
                || self.fill(first + left.len(), right, right_cols, right_values),
            );
            return;
        }
        let mut slots = cols.iter_mut().zip(values);
        for (slice, &width) in (first..).zip(widths) {
            let rows = self.rows_of(slice);
            for k in 0..width {
                for row in rows.start..rows.start + SLICE {
                    let entries = if row < rows.end { self.row(row) } else { 0..0 };
                    let Some((col, value)) = slots.next() else { return };
                    (*col, *value) = match entries.len() > k {
                        true => (self.cols[entries.start + k], self.values[entries.start + k]),
                        false => (-1, 0.0),
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::Csr;

    /// [1 2; 0 3] and [4].
    fn batch() -> RaggedCsr<f64> {
        let a = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![1.0, 2.0, 3.0]).unwrap();
        let b = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![4.0]).unwrap();
        let mut batch = RaggedCsr::new();
        batch.push(a.view());
        batch.push(b.view());
        batch
    }

    #[test]
    fn blocks_follow_each_other_on_the_diagonal() {
        let batch = batch();
        let matrix = HostCsr::block_diagonal(&batch).unwrap();

        assert_eq!(matrix.row_ptr, [0, 2, 3, 4]);
        assert_eq!(matrix.cols, [0, 1, 1, 2]);
        assert_eq!(matrix.row_idx(), [0, 0, 1, 2]);
        assert_eq!((matrix.ncols, matrix.values), (3, [1.0, 2.0, 3.0, 4.0].as_slice()));
    }

    #[test]
    fn one_long_row_is_no_matter_for_slices() {
        let starts = std::iter::once(0).chain([32; 32]).collect();
        let long = Csr::try_new(32, 32, starts, (0..32).collect(), vec![1.0; 32]).unwrap();
        let view = long.view();

        let refused = HostCsr::single(view.pattern(), view.values()).sell().map(|_| ());

        let text = refused.unwrap_err().to_string();
        assert!(text.ends_with("1024, expected at most 4 for each of 32 entries"), "{text}");
    }

    #[test]
    fn slices_are_filled_up_with_column_minus_one() {
        let eye =
            Csr::try_new(33, 33, (0..34).collect(), (0..33).collect(), vec![1.0; 33]).unwrap();
        let view = eye.view();
        let sell = HostCsr::single(view.pattern(), view.values()).sell().unwrap();

        assert_eq!(sell.slice_ptr, [0, 32, 64]);
        assert_eq!(sell.cols[30..34], [30, 31, 32, -1]);
        assert_eq!((sell.values[32], sell.values[33], sell.values.len()), (1.0, 0.0, 64));
    }
}
