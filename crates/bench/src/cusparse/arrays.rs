//! A matrix on the host in the layouts of cuSPARSE's formats, with 32-bit indices.
//!
//! Arrays are made in pieces, each copied to the device before the next: the whole arrays of a
//! large block-diagonal matrix would take as much memory again as the batch that it is made of.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError, Value};
use sparsebatch_formats::{Csr, CsrPatternRef, FormatError, RaggedCsr};

use crate::parallel::in_parts;

/// Rows per slice.
pub(crate) const SLICE: usize = 32;

/// Most slots per entry: with more padding, slices are no useful comparison.
const MAX_FILL: usize = 4;

/// Entries or slots of a piece, copied to the device at a time.
const PIECE: usize = 4 << 20;

/// Entries that one thread makes at a time.
const GRAIN: usize = 1 << 14;

/// A matrix in CSR.
pub(crate) struct HostCsr<'a, T> {
    row_ptr: Cow<'a, [i32]>,
    cols: Columns<'a, T>,
    values: &'a [T],
    ncols: usize,
}

/// Column indices, row by row.
enum Columns<'a, T> {
    /// The column indices of one matrix.
    Given(&'a [i32]),
    /// The items of a batch as diagonal blocks: the column indices of each are shifted by the
    /// columns of the items before it.
    OfBlocks(&'a RaggedCsr<T>),
}

/// Slices of [`SLICE`] rows, each stored column by column; padding has column -1.
pub(super) struct Slices {
    slice_ptr: Vec<i32>,
}

fn too_large(what: &'static str, found: usize) -> GpuError {
    GpuError::InvalidArgument {
        name: what,
        expected: format!("at most {}, the limit of 32-bit indices", i32::MAX),
        found: found.to_string(),
    }
}

impl<'a, T: Value> HostCsr<'a, T> {
    /// Wraps one matrix.
    pub(crate) fn single(pattern: CsrPatternRef<'a>, values: &'a [T]) -> Self {
        let row_ptr = Cow::Borrowed(pattern.row_ptr());
        Self { row_ptr, cols: Columns::Given(pattern.col_idx()), values, ncols: pattern.ncols() }
    }

    /// Wraps a batch as one block-diagonal matrix.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when it has more rows or entries than 32-bit indices can
    /// count.
    pub(crate) fn block_diagonal(batch: &'a RaggedCsr<T>) -> Result<Self, GpuError> {
        let nitems = batch.nitems();
        let (nrows, ncols) = (batch.row_offsets()[nitems], batch.col_offsets()[nitems]);
        for (what, found) in [("rows", nrows), ("columns", ncols), ("entries", batch.total_nnz())] {
            if found > i32::MAX as usize {
                return Err(too_large(what, found));
            }
        }
        let ends = in_parts(batch.row_offsets(), &|item, ends: &mut [i32]| {
            let first = batch.nnz_offsets()[item] as i32;
            let from = &batch.item(item).pattern().row_ptr()[1..];
            ends.iter_mut().zip(from).for_each(|(end, &from)| *end = first + from);
        });
        let mut row_ptr = Vec::with_capacity(nrows + 1);
        row_ptr.push(0);
        row_ptr.extend(ends);
        let row_ptr = Cow::Owned(row_ptr);
        Ok(Self { row_ptr, cols: Columns::OfBlocks(batch), values: batch.values(), ncols })
    }

    /// The matrix in our own format.
    ///
    /// # Errors
    /// When a row repeats a column.
    pub(crate) fn into_csr(self) -> Result<Csr<T>, FormatError> {
        let mut cols = vec![0; self.nnz()];
        self.cols(0..self.nnz(), &mut cols);
        let (nrows, values) = (self.nrows(), self.values.to_vec());
        Csr::try_new(nrows, self.ncols, self.row_ptr.into_owned(), cols, values)
    }

    pub(super) fn nrows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    pub(super) fn ncols(&self) -> usize {
        self.ncols
    }

    pub(super) fn nnz(&self) -> usize {
        self.values.len()
    }

    pub(super) fn row_ptr(&self) -> &[i32] {
        &self.row_ptr
    }

    pub(super) fn values(&self) -> &[T] {
        self.values
    }

    fn row(&self, row: usize) -> Range<usize> {
        self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize
    }

    /// Calls `visit` for the part of each block in `entries`, with its range of entries and the
    /// number to add to its stored columns. The first block is the one that holds `entries.start`.
    fn for_blocks(&self, entries: Range<usize>, mut visit: impl FnMut(Range<usize>, i32)) {
        let Columns::OfBlocks(batch) = self.cols else { return visit(entries, 0) };
        let offsets = batch.nnz_offsets();
        let mut item = offsets.partition_point(|&begin| begin <= entries.start) - 1;
        let mut begin = entries.start;
        while begin < entries.end {
            let end = offsets[item + 1].min(entries.end);
            visit(begin..end, batch.col_offsets()[item] as i32);
            (begin, item) = (end, item + 1);
        }
    }

    /// The columns as stored, not shifted by block.
    fn stored_cols(&self) -> &'a [i32] {
        match self.cols {
            Columns::Given(cols) => cols,
            Columns::OfBlocks(batch) => batch.col_idx(),
        }
    }

    /// Writes the columns of `entries` to `to`.
    fn cols(&self, entries: Range<usize>, to: &mut [i32]) {
        let stored = self.stored_cols();
        to.par_chunks_mut(GRAIN).enumerate().for_each(|(chunk, to)| {
            let begin = entries.start + chunk * GRAIN;
            self.for_blocks(begin..begin + to.len(), |run, first| {
                let to = &mut to[run.start - begin..run.end - begin];
                to.iter_mut().zip(&stored[run]).for_each(|(to, &col)| *to = first + col);
            });
        });
    }

    /// Writes the row of each of `entries` to `to`.
    fn rows(&self, entries: Range<usize>, to: &mut [i32]) {
        to.par_chunks_mut(GRAIN).enumerate().for_each(|(chunk, to)| {
            let begin = entries.start + chunk * GRAIN;
            let mut row = self.row_ptr.partition_point(|&start| start as usize <= begin) - 1;
            let mut rest = to;
            while !rest.is_empty() {
                let at = begin.max(self.row_ptr[row] as usize);
                let len = (self.row_ptr[row + 1] as usize - at).min(rest.len());
                let (of_row, behind) = rest.split_at_mut(len);
                of_row.fill(row as i32);
                (rest, row) = (behind, row + 1);
            }
        });
    }

    /// Uploads the columns.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub(super) fn upload_cols(&self, device: &Device) -> Result<DeviceBuffer<i32>, GpuError> {
        match self.cols {
            Columns::Given(cols) => device.upload(cols),
            Columns::OfBlocks(_) => {
                in_pieces(device, self.nnz(), |entries, to| self.cols(entries, to))
            }
        }
    }

    /// Uploads the row of each entry.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub(super) fn upload_rows(&self, device: &Device) -> Result<DeviceBuffer<i32>, GpuError> {
        in_pieces(device, self.nnz(), |entries, to| self.rows(entries, to))
    }

    /// Computes the slices' offsets; empty rows complete the last slice.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for too much padding, before anything is allocated.
    pub(super) fn slices(&self) -> Result<Slices, GpuError> {
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
        Ok(Slices { slice_ptr })
    }

    fn rows_of(&self, slice: usize) -> Range<usize> {
        slice * SLICE..((slice + 1) * SLICE).min(self.nrows())
    }

    /// Uploads columns and values in the layout of `slices`.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub(super) fn upload_slices(
        &self,
        device: &Device,
        slices: &Slices,
    ) -> Result<(DeviceBuffer<i32>, DeviceBuffer<T>), GpuError> {
        let starts = &slices.slice_ptr;
        let slots = slices.slots();
        let (cols, values) = (device.alloc(slots)?, device.alloc(slots)?);
        let (mut some_cols, mut some_values) = (Vec::new(), Vec::new());
        let mut first = 0;
        while first + 1 < starts.len() {
            let begin = starts[first] as usize;
            // A piece has at least one slice.
            let end = starts.partition_point(|&start| start as usize <= begin + PIECE) - 1;
            let end = end.max(first + 1);
            let range = begin..starts[end] as usize;
            some_cols.resize(range.len(), 0);
            some_values.resize(range.len(), T::ZERO);
            self.fill(first, &starts[first..=end], &mut some_cols, &mut some_values);
            device.copy_from_host(&some_cols, &mut cols.range(range.clone())?)?;
            device.copy_from_host(&some_values, &mut values.range(range)?)?;
            first = end;
        }
        Ok((cols, values))
    }

    /// Writes slices from `first` on; recursion fills the two halves in parallel.
    fn fill(&self, first: usize, starts: &[i32], cols: &mut [i32], values: &mut [T]) {
        let count = starts.len() - 1;
        if count > 256 {
            let middle = (starts[count / 2] - starts[0]) as usize;
            let (left, right) = (&starts[..=count / 2], &starts[count / 2..]);
            let (left_cols, right_cols) = cols.split_at_mut(middle);
            let (left_values, right_values) = values.split_at_mut(middle);
            rayon::join(
                || self.fill(first, left, left_cols, left_values),
                || self.fill(first + count / 2, right, right_cols, right_values),
            );
            return;
        }
        let stored = self.stored_cols();
        let (mut cols, mut values) = (cols, values);
        for (slice, ends) in (first..).zip(starts.windows(2)) {
            let slots = (ends[1] - ends[0]) as usize;
            let (of_slice, behind) = cols.split_at_mut(slots);
            let (values_of_slice, values_behind) = values.split_at_mut(slots);
            (cols, values) = (behind, values_behind);
            of_slice.fill(-1);
            values_of_slice.fill(T::ZERO);
            for (lane, row) in self.rows_of(slice).enumerate() {
                let entries = self.row(row);
                if entries.is_empty() {
                    continue;
                }
                // A row lies in one block, so `visit` is called at most once per row.
                self.for_blocks(entries, |run, first| {
                    for (place, k) in run.enumerate() {
                        of_slice[place * SLICE + lane] = first + stored[k];
                        values_of_slice[place * SLICE + lane] = self.values[k];
                    }
                });
            }
        }
    }
}

impl Slices {
    /// Offset of each slice, and the number of slots at the end.
    pub(super) fn starts(&self) -> &[i32] {
        &self.slice_ptr
    }

    /// Total number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slice_ptr[self.slice_ptr.len() - 1] as usize
    }
}

/// Uploads `len` indices; `make` fills one range at a time.
fn in_pieces(
    device: &Device,
    len: usize,
    make: impl Fn(Range<usize>, &mut [i32]),
) -> Result<DeviceBuffer<i32>, GpuError> {
    let buffer = device.alloc(len)?;
    let mut piece = vec![0; PIECE.min(len)];
    for begin in (0..len).step_by(PIECE) {
        let range = begin..(begin + PIECE).min(len);
        let piece = &mut piece[..range.len()];
        make(range.clone(), piece);
        device.copy_from_host(piece, &mut buffer.range(range)?)?;
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::Csr;

    /// [1 2; 0 3] and [4].
    fn batch() -> RaggedCsr<f64> {
        let a = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![1.0, 2.0, 3.0]).unwrap();
        let b = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![4.0]).unwrap();
        let empty = Csr::try_new(1, 2, vec![0, 0], Vec::new(), Vec::new()).unwrap();
        let mut batch = RaggedCsr::new();
        batch.push(a.view());
        batch.push(empty.view());
        batch.push(b.view());
        batch
    }

    #[test]
    fn blocks_follow_each_other_on_the_diagonal() {
        let batch = batch();
        let matrix = HostCsr::block_diagonal(&batch).unwrap();
        let cols = |range: Range<usize>| {
            let mut to = vec![0; range.len()];
            matrix.cols(range, &mut to);
            to
        };
        let rows = |range: Range<usize>| {
            let mut to = vec![0; range.len()];
            matrix.rows(range, &mut to);
            to
        };

        assert_eq!(*matrix.row_ptr, [0, 2, 3, 3, 4]);
        assert_eq!(cols(0..4), [0, 1, 1, 4]);
        assert_eq!(cols(1..3), [1, 1]);
        assert_eq!(rows(0..4), [0, 0, 1, 3]);
        assert_eq!(rows(2..4), [1, 3]);
        assert_eq!((matrix.ncols, matrix.values), (5, [1.0, 2.0, 3.0, 4.0].as_slice()));
        let csr = matrix.into_csr().unwrap();
        assert_eq!((csr.nrows(), csr.col_idx()), (4, [0, 1, 1, 4].as_slice()));
    }

    #[test]
    fn blocks_are_the_same_whichever_threads_make_them() {
        let mut batch = RaggedCsr::new();
        let lengths = [1usize, 40, 700, 3];
        for item in 0..200usize {
            let n = lengths[item % 4];
            let dense = sparsebatch_formats::generate::dense(n.min(60), n, item as u64).unwrap();
            batch.push(dense.view());
        }
        let matrix = HostCsr::block_diagonal(&batch).unwrap();
        let nnz = matrix.nnz();
        assert!(nnz > 4 * GRAIN);
        let (mut cols, mut rows) = (vec![0; nnz], vec![0; nnz]);
        matrix.cols(0..nnz, &mut cols);
        matrix.rows(0..nnz, &mut rows);

        let mut k = 0;
        for item in 0..batch.nitems() {
            let view = batch.item(item);
            let pattern = view.pattern();
            for row in 0..pattern.nrows() {
                for entry in pattern.row(row) {
                    let col = batch.col_offsets()[item] as i32 + pattern.col_idx()[entry];
                    let row = (batch.row_offsets()[item] + row) as i32;
                    assert_eq!((rows[k], cols[k]), (row, col), "entry {k}");
                    k += 1;
                }
            }
        }
        assert_eq!(k, nnz);
    }

    #[test]
    fn one_long_row_is_no_matter_for_slices() {
        let starts = std::iter::once(0).chain([32; 32]).collect();
        let long = Csr::try_new(32, 32, starts, (0..32).collect(), vec![1.0; 32]).unwrap();
        let view = long.view();

        let refused = HostCsr::single(view.pattern(), view.values()).slices().map(|_| ());

        let text = refused.unwrap_err().to_string();
        assert!(text.ends_with("1024, expected at most 4 for each of 32 entries"), "{text}");
    }

    #[test]
    fn slices_are_filled_up_with_column_minus_one() {
        let eye =
            Csr::try_new(33, 33, (0..34).collect(), (0..33).collect(), vec![1.0; 33]).unwrap();
        let view = eye.view();
        let matrix = HostCsr::single(view.pattern(), view.values());
        let slices = matrix.slices().unwrap();
        let (mut cols, mut values) = (vec![7; 64], vec![7.0; 64]);
        matrix.fill(0, slices.starts(), &mut cols, &mut values);

        assert_eq!((slices.starts(), slices.slots()), ([0, 32, 64].as_slice(), 64));
        assert_eq!(cols[30..34], [30, 31, 32, -1]);
        assert_eq!((values[31], values[32], values[33]), (1.0, 1.0, 0.0));
    }

    #[test]
    fn slices_hold_the_entries_of_each_row_column_by_column() {
        let batch = batch();
        let matrix = HostCsr::block_diagonal(&batch).unwrap();
        let slices = Slices { slice_ptr: vec![0, 64] };
        let (mut cols, mut values) = (vec![7; 64], vec![7.0; 64]);
        matrix.fill(0, slices.starts(), &mut cols, &mut values);

        assert_eq!(cols[..4], [0, 1, -1, 4]);
        assert_eq!(cols[32..36], [1, -1, -1, -1]);
        assert_eq!(values[..4], [1.0, 3.0, 0.0, 4.0]);
        assert_eq!(values[32..34], [2.0, 0.0]);
    }
}
