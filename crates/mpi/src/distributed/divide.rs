//! The rows of a rank divided by columns: own ones, and those of other ranks.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_formats::{Csr, FormatError, Scalar};

use super::Partition;
use super::vectors::{CHUNK, by_chunks};

/// The parts of the own rows as matrices.
pub(super) struct Divided<'m, T: Scalar> {
    /// The whole matrix where there is no other part.
    pub(super) local: Cow<'m, Csr<T>>,
    /// The rows that have entries in columns of other ranks, without the others, and which of the
    /// own rows they are. `None` where no element of other ranks is needed.
    pub(super) remote: Option<(Csr<T>, Vec<u32>)>,
}

/// An entry.
pub(super) fn value<T: Scalar>(matrix: &Csr<T>, row: usize, col: usize) -> Option<T> {
    let (cols, values) = matrix.row(row);
    cols.binary_search(&(col as i32)).ok().map(|at| values[at])
}

/// The rows of a rank, with rows and columns by their positions.
pub(super) fn own_rows<T: Scalar>(
    whole: &Csr<T>,
    rows: &Partition,
    columns: &Partition,
    rank: usize,
) -> Result<Csr<T>, FormatError> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut entries = Vec::new();
    for position in rows.range(rank) {
        let (cols, own) = whole.row(rows.row_at(position));
        if columns.is_ordered() {
            let position_of = |&col: &i32| columns.position_of(col as usize) as i32;
            entries.clear();
            entries.extend(cols.iter().map(position_of).zip(own.iter().copied()));
            entries.sort_unstable_by_key(|&(col, _)| col);
            col_idx.extend(entries.iter().map(|&(col, _)| col));
            values.extend(entries.iter().map(|&(_, value)| value));
        } else {
            col_idx.extend_from_slice(cols);
            values.extend_from_slice(own);
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(rows.range(rank).len(), columns.len(), row_ptr, col_idx, values)
}

/// The columns of other ranks in which there are entries, ascending.
pub(super) fn needed_columns<T: Scalar>(own: &Csr<T>, own_columns: Range<usize>) -> Vec<i32> {
    let is_remote = |col: &&i32| !own_columns.contains(&(**col as usize));
    let ascending = |mut needed: Vec<i32>| {
        needed.sort_unstable();
        needed.dedup();
        needed
    };
    let parts = by_chunks(own.nnz(), |part| {
        ascending(own.col_idx()[part].iter().filter(is_remote).copied().collect())
    });
    ascending(parts.concat())
}

/// The same rows with columns numbered anew: own ones first, then those of the halo.
pub(super) fn renumbered<T: Scalar>(
    own: Csr<T>,
    own_columns: Range<usize>,
    needed: &[i32],
) -> Result<Csr<T>, FormatError> {
    if own_columns == (0..own.ncols()) {
        return Ok(own);
    }
    let ncols = own_columns.len() + needed.len();
    by_rows((own.nrows(), ncols), own.row_ptr().to_vec(), |row, made| {
        let (cols, values) = own.row(row);
        let [start, end] = ends(cols, &own_columns);
        made.extend(&cols[start..end], &values[start..end], |col| col - own_columns.start as i32);
        let place = |col| needed.binary_search(&col).unwrap_or_else(|place| place);
        for part in [0..start, end..cols.len()] {
            let renumbered = |col| (own_columns.len() + place(col)) as i32;
            made.extend(&cols[part.clone()], &values[part], renumbered);
        }
    })
}

/// A range of columns of a matrix, numbered from 0.
pub(super) fn columns_of<T: Scalar>(
    matrix: &Csr<T>,
    columns: Range<usize>,
) -> Result<Csr<T>, FormatError> {
    let counts = by_chunks(matrix.nrows(), |rows| {
        let count = |row| {
            let [start, end] = ends(matrix.row(row).0, &columns);
            (end - start) as i32
        };
        rows.map(count).collect::<Vec<_>>()
    });
    let mut row_ptr = Vec::with_capacity(matrix.nrows() + 1);
    row_ptr.push(0);
    row_ptr.extend(counts.iter().flatten().scan(0, |sum, &count| {
        *sum += count;
        Some(*sum)
    }));
    by_rows((matrix.nrows(), columns.len()), row_ptr, |row, made| {
        let (cols, values) = matrix.row(row);
        let [start, end] = ends(cols, &columns);
        made.extend(&cols[start..end], &values[start..end], |col| col - columns.start as i32);
    })
}

/// Where the entries of a range of columns begin and end in a row.
fn ends(cols: &[i32], columns: &Range<usize>) -> [usize; 2] {
    [columns.start, columns.end].map(|end| cols.partition_point(|&col| (col as usize) < end))
}

/// The entries of a row, which are written in their order.
struct RowMade<'a, T> {
    cols: &'a mut [i32],
    values: &'a mut [T],
    len: usize,
}

impl<T: Scalar> RowMade<'_, T> {
    /// Appends entries, whose columns get the numbers that `renumbered` gives.
    fn extend(&mut self, cols: &[i32], values: &[T], renumbered: impl Fn(i32) -> i32) {
        let place = self.len..self.len + cols.len();
        self.cols[place.clone()].iter_mut().zip(cols).for_each(|(to, &col)| *to = renumbered(col));
        self.values[place.clone()].copy_from_slice(values);
        self.len = place.end;
    }
}

/// A matrix whose rows have the places that `row_ptr` says, each written by `write`.
fn by_rows<T: Scalar>(
    (nrows, ncols): (usize, usize),
    row_ptr: Vec<i32>,
    write: impl Fn(usize, &mut RowMade<'_, T>) + Send + Sync,
) -> Result<Csr<T>, FormatError> {
    let nnz = row_ptr[nrows] as usize;
    let (mut col_idx, mut values) = (vec![0i32; nnz], vec![T::ZERO; nnz]);
    let mut parts = Vec::with_capacity(nrows.div_ceil(CHUNK));
    let (mut rest_of_cols, mut rest_of_values) = (&mut col_idx[..], &mut values[..]);
    for first in (0..nrows).step_by(CHUNK) {
        let rows = first..(first + CHUNK).min(nrows);
        let entries = (row_ptr[rows.end] - row_ptr[rows.start]) as usize;
        let (cols, behind) = rest_of_cols.split_at_mut(entries);
        let (values, behind_values) = rest_of_values.split_at_mut(entries);
        (rest_of_cols, rest_of_values) = (behind, behind_values);
        parts.push((rows, cols, values));
    }
    parts.into_par_iter().for_each(|(rows, mut cols, mut values)| {
        for row in rows {
            let entries = (row_ptr[row + 1] - row_ptr[row]) as usize;
            let (own, behind) = cols.split_at_mut(entries);
            let (own_values, behind_values) = values.split_at_mut(entries);
            (cols, values) = (behind, behind_values);
            write(row, &mut RowMade { cols: own, values: own_values, len: 0 });
        }
    });
    Csr::try_new(nrows, ncols, row_ptr, col_idx, values)
}

/// The local and the remote part.
pub(super) fn divided<T: Scalar>(
    matrix: &Csr<T>,
    own_columns: usize,
) -> Result<Divided<'_, T>, FormatError> {
    if matrix.ncols() == own_columns {
        return Ok(Divided { local: Cow::Borrowed(matrix), remote: None });
    }
    let local = Cow::Owned(columns_of(matrix, 0..own_columns)?);
    let remote = columns_of(matrix, own_columns..matrix.ncols())?;
    let has_entries = |row: &u32| !remote.row(*row as usize).0.is_empty();
    let rows: Vec<u32> = (0..matrix.nrows() as u32).filter(has_entries).collect();
    let mut row_ptr = vec![0];
    row_ptr.extend(rows.iter().map(|&row| remote.row_ptr()[row as usize + 1]));
    let (col_idx, values) = (remote.col_idx().to_vec(), remote.values().to_vec());
    let remote = Csr::try_new(rows.len(), remote.ncols(), row_ptr, col_idx, values)?;
    Ok(Divided { local, remote: Some((remote, rows)) })
}
