//! CSR from triplets, and its transpose.

use std::sync::Arc;

use super::{FromCsr, SlotMap, StorageSize, ToCsr};
use crate::error::{check_i32, check_index, check_len};
use crate::{Csr, CsrPattern, CsrPatternRef, FormatError, Matrix, Pattern, Scalar};

impl FromCsr for CsrPattern {
    type Options = ();

    fn size_from_csr(pattern: CsrPatternRef<'_>, (): &()) -> Result<StorageSize, FormatError> {
        Ok(StorageSize {
            stored_len: pattern.nnz(),
            index_bytes: 4 * (pattern.nrows() + 1 + pattern.nnz()),
        })
    }

    fn from_csr(pattern: CsrPatternRef<'_>, (): &()) -> Result<(Self, SlotMap), FormatError> {
        Ok((pattern.to_pattern(), SlotMap::Identity))
    }
}

impl ToCsr for CsrPattern {
    fn to_csr(&self, _: impl Fn(usize) -> bool) -> (CsrPattern, SlotMap) {
        (self.clone(), SlotMap::Identity)
    }
}

/// Turns counts into row starts in place; `counts[r + 1]` holds the number of entries of row `r`.
pub(super) fn accumulate(counts: &mut [i32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

impl<T: Scalar> Csr<T> {
    /// Builds a matrix from triplets in any order. Duplicates are summed in the order given.
    ///
    /// `values[k]` is the entry at (`row_idx[k]`, `col_idx[k]`). Cost: a counting sort by row,
    /// O(nnz + nrows), and a sort of each row whose columns are not ascending in the order given;
    /// triplets in row-major or column-major order need no such sort. Extra memory: one row.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`], [`FormatError::Length`] or [`FormatError::IndexOutOfRange`].
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::Csr;
    /// let a = Csr::from_triplets(2, 2, &[1, 0, 1], &[1, 0, 1], &[1.0, 2.0, 3.0])?;
    /// assert_eq!(a.col_idx(), [0, 1]);
    /// assert_eq!(a.values(), [2.0, 4.0]);
    /// # Ok::<(), sparsebatch_formats::FormatError>(())
    /// ```
    pub fn from_triplets(
        nrows: usize,
        ncols: usize,
        row_idx: &[i32],
        col_idx: &[i32],
        values: &[T],
    ) -> Result<Self, FormatError> {
        check_i32("nrows", nrows)?;
        check_i32("ncols", ncols)?;
        check_i32("nnz", values.len())?;
        check_len("row_idx", values.len(), row_idx.len())?;
        check_len("col_idx", values.len(), col_idx.len())?;
        let mut row_ptr = vec![0i32; nrows + 1];
        for (position, (&row, &col)) in row_idx.iter().zip(col_idx).enumerate() {
            check_index("row_idx", position, row, nrows)?;
            check_index("col_idx", position, col, ncols)?;
            row_ptr[row as usize + 1] += 1;
        }
        accumulate(&mut row_ptr);
        let (mut cols, mut sums) = bucket_by_row(&row_ptr, row_idx, col_idx, values);
        sum_duplicates(&mut row_ptr, &mut cols, &mut sums);
        let pattern = CsrPattern::new_unvalidated(ncols, row_ptr, cols);
        Self::from_parts(Arc::new(pattern), sums)
    }

    /// The transposed matrix. Cost: O(nnz + nrows + ncols).
    pub fn transpose(&self) -> Self {
        let (pattern, map) = self.pattern().transpose();
        let mut values = vec![T::ZERO; self.nnz()];
        map.scatter(self.values(), 1, &mut values);
        Matrix::from_parts(Arc::new(pattern), values).expect("one value per entry")
    }
}

/// Copies the columns and values of triplets into their rows, in the order given.
fn bucket_by_row<T: Scalar>(
    row_ptr: &[i32],
    row_idx: &[i32],
    col_idx: &[i32],
    values: &[T],
) -> (Vec<i32>, Vec<T>) {
    let mut next = row_ptr[..row_ptr.len() - 1].to_vec();
    let mut cols = vec![0; values.len()];
    let mut sorted = vec![T::ZERO; values.len()];
    for ((&row, &col), &value) in row_idx.iter().zip(col_idx).zip(values) {
        let place = &mut next[row as usize];
        cols[*place as usize] = col;
        sorted[*place as usize] = value;
        *place += 1;
    }
    (cols, sorted)
}

/// Sorts each row by column, keeping the order of equal columns, sums these and closes the gaps.
fn sum_duplicates<T: Scalar>(row_ptr: &mut [i32], cols: &mut Vec<i32>, values: &mut Vec<T>) {
    let mut row_entries: Vec<(i32, T)> = Vec::new();
    let (mut start, mut end_of_kept) = (0, 0);
    for row_end in row_ptr.iter_mut().skip(1) {
        let range = start..*row_end as usize;
        start = range.end;
        if !cols[range.clone()].is_sorted() {
            row_entries.clear();
            row_entries.extend(range.clone().map(|k| (cols[k], values[k])));
            row_entries.sort_by_key(|&(col, _)| col);
            for (k, &(col, value)) in range.clone().zip(&row_entries) {
                (cols[k], values[k]) = (col, value);
            }
        }
        let first_kept = end_of_kept;
        for k in range {
            if end_of_kept > first_kept && cols[end_of_kept - 1] == cols[k] {
                let value = values[k];
                values[end_of_kept - 1] += value;
            } else {
                (cols[end_of_kept], values[end_of_kept]) = (cols[k], values[k]);
                end_of_kept += 1;
            }
        }
        *row_end = end_of_kept as i32;
    }
    cols.truncate(end_of_kept);
    values.truncate(end_of_kept);
}

impl CsrPattern {
    /// The pattern of the transposed matrix, and the position of each entry in it.
    pub fn transpose(&self) -> (Self, SlotMap) {
        let mut row_ptr = vec![0i32; self.ncols() + 1];
        for &col in self.col_idx() {
            row_ptr[col as usize + 1] += 1;
        }
        accumulate(&mut row_ptr);
        let mut next = row_ptr[..self.ncols()].to_vec();
        let mut rows = vec![0; self.nnz()];
        let mut slots = vec![0; self.nnz()];
        for row in 0..self.nrows() {
            for k in self.view().row(row) {
                let place = &mut next[self.col_idx()[k] as usize];
                rows[*place as usize] = row as i32;
                slots[k] = *place as u32;
                *place += 1;
            }
        }
        let pattern = Self::new_unvalidated(self.nrows(), row_ptr, rows);
        (pattern, SlotMap::Slots(slots))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Coo, Csr, FormatError};

    #[test]
    fn triplets_are_sorted_and_duplicates_summed_in_the_given_order() {
        let rows = [2, 0, 2, 2, 0];
        let cols = [1, 2, 0, 1, 0];
        // 1e16 + 1 - 1e16 depends on the order.
        let values = [1e16, 5.0, 7.0, 1.0, 0.0];

        let a = Csr::from_triplets(3, 3, &rows, &cols, &values).unwrap();

        assert_eq!(a.row_ptr(), [0, 2, 2, 4]);
        assert_eq!(a.col_idx(), [0, 2, 0, 1]);
        assert_eq!(a.values(), [0.0, 5.0, 7.0, 1e16 + 1.0]);
        let coo = Coo::from_triplets(3, 3, &rows, &cols, &values).unwrap();
        assert_eq!(Csr::from(coo), a);
    }

    #[test]
    fn triplets_outside_the_matrix_are_refused() {
        let error = Csr::from_triplets(2, 2, &[0, 1], &[0, 2], &[1.0f32, 2.0]).unwrap_err();

        assert!(matches!(
            error,
            FormatError::IndexOutOfRange { what: "col_idx", position: 1, found: 2, limit: 2 }
        ));
    }

    #[test]
    fn transpose_swaps_rows_and_columns() {
        // [1 0 2; 0 0 3]
        let a = Csr::try_new(2, 3, vec![0, 2, 3], vec![0, 2, 2], vec![1.0, 2.0, 3.0]).unwrap();

        let t = a.transpose();

        assert_eq!((t.nrows(), t.ncols()), (3, 2));
        assert_eq!(t.row_ptr(), [0, 1, 1, 3]);
        assert_eq!(t.col_idx(), [0, 0, 1]);
        assert_eq!(t.values(), [1.0, 2.0, 3.0]);
        assert_eq!(t.transpose(), a);
    }
}
