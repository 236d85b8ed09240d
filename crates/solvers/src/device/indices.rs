//! Patterns from index arrays on a GPU: [`BatchPatterns::from_device`] and
//! [`BatchPatterns::ragged_from_device`].

use std::borrow::Cow;

use sparsebatch_cpu_ref::CpuError;
use sparsebatch_cuda::{Executor, KernelBuffer, Pod};
use sparsebatch_formats::{CsrPattern, FormatError};
use sparsebatch_solve_core::ArgumentError;

use super::patterns::BatchPatterns;
use crate::SolveError;

impl BatchPatterns<'static> {
    /// The pattern of `nitems` square matrices of `n` rows, from its arrays on a GPU: `row_ptr`
    /// with `n + 1` row starts (`indptr` in Python), and `col_idx` with one column per entry
    /// (`indices`). Both count from 0, and the columns of a row ascend.
    ///
    /// Copies both arrays to the host once, in the order of the executor's stream, and waits.
    /// Work on other streams that writes the arrays has to be done before. The host's copy is
    /// checked as any other pattern; the arrays are not read again.
    ///
    /// # Errors
    /// [`SolveError::Cpu`] with a [`FormatError`] where the arrays are no pattern: another length,
    /// a row start or a column out of range, columns that do not ascend. [`SolveError::Argument`]
    /// for an array whose address is null or not aligned. [`SolveError::Gpu`] with what the device
    /// reports.
    ///
    /// # Examples
    /// ```no_run
    /// use sparsebatch_cuda::{Device, Executor};
    /// use sparsebatch_solvers::gpu::Guess;
    /// use sparsebatch_solvers::{BatchPatterns, DeviceData, DeviceSolver, SolveOptions};
    ///
    /// let device = Device::new(0)?;
    /// // Three matrices [a b; 0 c]; another library's arrays come by `DeviceBuffer::from_raw`.
    /// let (row_ptr, col_idx) = (device.upload(&[0, 2, 3])?, device.upload(&[0, 1, 1])?);
    /// let values = device.upload(&[2.0, 1.0, 4.0, 3.0, 1.0, 4.0, 5.0, 1.0, 4.0])?;
    /// let patterns = BatchPatterns::from_device(&device, &row_ptr, &col_idx, 3)?;
    /// let (options, data) = (SolveOptions::new(), DeviceData::new());
    /// let mut solver = DeviceSolver::with_values(&device, patterns, &values, &options, data)?;
    /// let b = device.upload(&[3.0, 4.0, 4.0, 4.0, 6.0, 4.0])?;
    /// let mut x = device.alloc(6)?;
    /// assert!(solver.solve(&values, &b, Guess::Zero, &mut x)?.all_converged());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_device<E: Executor>(
        executor: &E,
        row_ptr: &E::Buffer<i32>,
        col_idx: &E::Buffer<i32>,
        nitems: usize,
    ) -> Result<Self, SolveError> {
        let row_ptr = copied(executor, "row_ptr", row_ptr)?;
        let col_idx = copied(executor, "col_idx", col_idx)?;
        // Without row starts the number of rows is not known: the check says what is missing.
        let nrows = row_ptr.len().saturating_sub(1);
        let pattern = CsrPattern::try_new(nrows, nrows, row_ptr, col_idx);
        Ok(Self::Uniform(Cow::Owned(pattern.map_err(CpuError::from)?), nitems))
    }

    /// The patterns of square matrices of any sizes, from arrays on a GPU, concatenated as in
    /// [`RaggedCsr`](sparsebatch_formats::RaggedCsr). `row_offsets` has the number of rows of all
    /// items before each item, and that of all items at its end; signed 64-bit offsets of another
    /// library have the same bits. The row starts of item `i` begin at `row_offsets[i] + i` in
    /// `row_ptr`; they are those of the item alone: the first is 0, the last its number of entries.
    /// `col_idx` has the columns of all items.
    ///
    /// Copies and checks as [`BatchPatterns::from_device`].
    ///
    /// # Errors
    /// Those of [`BatchPatterns::from_device`], also for offsets that do not begin at 0 or that
    /// decrease. Positions in `row_ptr` and `col_idx` are relative to the first item that is
    /// broken.
    pub fn ragged_from_device<E: Executor>(
        executor: &E,
        row_offsets: &E::Buffer<u64>,
        row_ptr: &E::Buffer<i32>,
        col_idx: &E::Buffer<i32>,
    ) -> Result<Self, SolveError> {
        let row_offsets = copied(executor, "row_offsets", row_offsets)?;
        let row_ptr = copied(executor, "row_ptr", row_ptr)?;
        let col_idx = copied(executor, "col_idx", col_idx)?;
        let patterns = divide(&row_offsets, &row_ptr, &col_idx).map_err(CpuError::from)?;
        Ok(Self::Ragged(Cow::Owned(patterns)))
    }
}

/// The patterns of the items, from their concatenated arrays.
fn divide(
    row_offsets: &[u64],
    row_ptr: &[i32],
    col_idx: &[i32],
) -> Result<Vec<CsrPattern>, FormatError> {
    let sizes = sizes(row_offsets)?;
    let starts = sizes.iter().fold(0u128, |sum, &nrows| sum + u128::from(nrows) + 1);
    if starts != row_ptr.len() as u128 {
        let expected = usize::try_from(starts).unwrap_or(usize::MAX);
        return Err(FormatError::Length { what: "row_ptr", expected, found: row_ptr.len() });
    }
    let (mut row_ptr, mut columns) = (row_ptr, col_idx);
    let mut patterns = Vec::with_capacity(sizes.len());
    for nrows in sizes {
        let nrows = nrows as usize;
        let (own, rest) = row_ptr.split_at(nrows + 1);
        row_ptr = rest;
        // A last row start beyond the array is refused with the other row starts.
        let nnz = usize::try_from(own[nrows]).unwrap_or(0).min(columns.len());
        let (own_columns, rest) = columns.split_at(nnz);
        columns = rest;
        patterns.push(CsrPattern::try_new(nrows, nrows, own.to_vec(), own_columns.to_vec())?);
    }
    if !columns.is_empty() {
        let (expected, found) = (col_idx.len() - columns.len(), col_idx.len());
        return Err(FormatError::Length { what: "col_idx", expected, found });
    }
    Ok(patterns)
}

/// The number of rows of each item, from the offsets.
fn sizes(row_offsets: &[u64]) -> Result<Vec<u64>, FormatError> {
    let wrong = |position: usize, expected: String| FormatError::Pointer {
        what: "row_offsets",
        position,
        expected,
        // As a library with signed offsets sees it.
        found: row_offsets[position] as i64,
    };
    match row_offsets.first() {
        None => Err(FormatError::Length { what: "row_offsets", expected: 1, found: 0 }),
        Some(0) => (1..row_offsets.len())
            .map(|position| {
                let (before, offset) = (row_offsets[position - 1], row_offsets[position]);
                let size = offset.checked_sub(before).filter(|_| offset <= i64::MAX as u64);
                size.ok_or_else(|| wrong(position, format!("a value of at least {before}")))
            })
            .collect(),
        Some(_) => Err(wrong(0, "0".to_owned())),
    }
}

/// A copy of an array on the host.
fn copied<E: Executor, V: Pod>(
    executor: &E,
    name: &'static str,
    array: &E::Buffer<V>,
) -> Result<Vec<V>, SolveError> {
    check_address(name, array)?;
    Ok(executor.download(array)?)
}

/// Refuses an array at an address that cannot be one of its values.
fn check_address<V: Pod>(
    name: &'static str,
    array: &impl KernelBuffer<V>,
) -> Result<(), ArgumentError> {
    let address = array.raw();
    if array.is_empty() || (address != 0 && address.is_multiple_of(align_of::<V>() as u64)) {
        return Ok(());
    }
    Err(ArgumentError::OutOfRange {
        name,
        expected: "an array at an address that is not null and is aligned for its values",
        found: format!("at {address:#x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array that is nowhere: its values are never read.
    struct Nowhere {
        address: u64,
        len: usize,
    }

    impl KernelBuffer<i32> for Nowhere {
        fn raw(&self) -> u64 {
            self.address
        }

        fn len(&self) -> usize {
            self.len
        }
    }

    #[test]
    fn null_and_misaligned_addresses_are_refused() {
        let check = |address, len| check_address::<i32>("row_ptr", &Nowhere { address, len });

        assert_eq!(
            check(0, 3).unwrap_err().to_string(),
            "row_ptr is at 0x0, expected an array at an address that is not null and is aligned \
             for its values"
        );
        assert!(check(0x1002, 3).unwrap_err().to_string().contains("row_ptr is at 0x1002"));
        assert_eq!(check(0x1004, 3), Ok(()));
        // An array without values may be nowhere.
        assert_eq!(check(0, 0), Ok(()));
    }
}
