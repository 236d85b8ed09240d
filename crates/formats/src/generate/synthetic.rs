//! Synthetic matrices that tell SpMV kernels apart.

use super::rng::{self, below, key, keyed};
use crate::error::{check_i32, reserve};
use crate::{Csr, FormatError};

// Random streams of a seed: values, columns, row lengths.
const VALUES: u64 = 31;
const COLUMNS: u64 = 32;
const LENGTHS: u64 = 33;

/// The random stream of `seed` for `purpose`: `VALUES`, `COLUMNS` or `LENGTHS`.
fn stream(seed: u64, purpose: u64) -> u64 {
    rng::mix(seed ^ rng::mix(purpose))
}

/// Checks the dimensions and the number of entries before anything is allocated.
fn check_sizes(nrows: usize, ncols: usize, nnz: u128) -> Result<(), FormatError> {
    check_i32("nrows", nrows)?;
    check_i32("ncols", ncols)?;
    check_i32("nnz", usize::try_from(nnz).unwrap_or(usize::MAX))?;
    Ok(())
}

/// A matrix with the columns that `columns(row, out)` appends, ascending, and values uniform in
/// [-1, 1), drawn from the seed and the position in CSR order.
fn with_columns(
    nrows: usize,
    ncols: usize,
    nnz: u128,
    seed: u64,
    mut columns: impl FnMut(usize, &mut Vec<i32>),
) -> Result<Csr<f64>, FormatError> {
    check_sizes(nrows, ncols, nnz)?;
    let mut row_ptr = reserve("row_ptr", nrows as u128 + 1)?;
    let mut col_idx = reserve("col_idx", nnz)?;
    let mut values = reserve("values", nnz)?;
    row_ptr.push(0);
    for row in 0..nrows {
        columns(row, &mut col_idx);
        row_ptr.push(check_i32("nnz", col_idx.len())?);
    }
    let key = key(stream(seed, VALUES), 0);
    values.extend((0..col_idx.len() as u64).map(|k| 2.0 * keyed(key, k) - 1.0));
    Csr::try_new(nrows, ncols, row_ptr, col_idx, values)
}

/// A dense matrix in sparse format; values uniform in [-1, 1).
///
/// # Errors
/// [`FormatError::TooLarge`] when a dimension or `nrows * ncols` exceeds `i32`.
///
/// # Source
/// Bell and Garland 2009 (doi 10.1145/1654059.1654078), Figure 8.
pub fn dense(nrows: usize, ncols: usize, seed: u64) -> Result<Csr<f64>, FormatError> {
    let nnz = nrows as u128 * ncols as u128;
    with_columns(nrows, ncols, nnz, seed, |_, out| out.extend(0..ncols as i32))
}

/// A square matrix with `ndiags` diagonals next to each other, the main one in their middle (one
/// more above than below when `ndiags` is even); values uniform in [-1, 1).
///
/// # Errors
/// [`FormatError::Parameter`] when there are more than `2 * nrows - 1` diagonals,
/// [`FormatError::TooLarge`] when rows or `nrows * ndiags` exceed `i32`.
///
/// # Source
/// Bell and Garland 2009 (doi 10.1145/1654059.1654078), Figure 10.
pub fn banded(nrows: usize, ndiags: usize, seed: u64) -> Result<Csr<f64>, FormatError> {
    if ndiags > (2 * nrows as u128).saturating_sub(1) as usize {
        return Err(FormatError::Parameter {
            name: "ndiags",
            expected: "at most 2 * nrows - 1 diagonals",
            found: ndiags.to_string(),
        });
    }
    let nnz = nrows as u128 * ndiags as u128;
    let (below, above) = (ndiags.saturating_sub(1) / 2, ndiags / 2);
    with_columns(nrows, nrows, nnz, seed, |row, out| {
        if ndiags > 0 {
            let first = row.saturating_sub(below) as i32;
            out.extend(first..=(row + above).min(nrows - 1) as i32);
        }
    })
}

/// `row_len` entries in every row, at random columns, all choices equally likely; values uniform
/// in [-1, 1).
///
/// # Errors
/// [`FormatError::Parameter`] when `row_len > ncols`, [`FormatError::TooLarge`] when a dimension
/// or `nrows * row_len` exceeds `i32`.
pub fn random(
    nrows: usize,
    ncols: usize,
    row_len: usize,
    seed: u64,
) -> Result<Csr<f64>, FormatError> {
    check_row_len(row_len, ncols)?;
    let nnz = nrows as u128 * row_len as u128;
    check_sizes(nrows, ncols, nnz)?;
    let mut sampler = ColumnSampler::new(ncols, seed)?;
    with_columns(nrows, ncols, nnz, seed, |row, out| sampler.push(row, row_len, out))
}

/// Rows of `min_len + floor(d)` entries, d drawn from a Pareto distribution with exponent `shape`
/// and smallest value 1: d = (1 - u)^(-1 / shape), at most a full row. Random columns, values
/// uniform in [-1, 1). The smaller the shape, the heavier the tail.
///
/// # Errors
/// [`FormatError::Parameter`] when `shape` is not positive and finite or `min_len > ncols`,
/// [`FormatError::TooLarge`] when a dimension or the entries exceed `i32`.
///
/// # Source
/// Bell and Garland 2009 (doi 10.1145/1654059.1654078), Figure 9: 30,000 rows, `min_len` 32,
/// shape 1 and above.
pub fn pareto(
    nrows: usize,
    ncols: usize,
    min_len: usize,
    shape: f64,
    seed: u64,
) -> Result<Csr<f64>, FormatError> {
    check_row_len(min_len, ncols)?;
    if !(shape.is_finite() && shape > 0.0) {
        return Err(FormatError::Parameter {
            name: "shape",
            expected: "a positive finite number",
            found: shape.to_string(),
        });
    }
    check_sizes(nrows, ncols, 0)?;
    let key = key(stream(seed, LENGTHS), 0);
    let row_len = |row: usize| {
        let d = (1.0 - keyed(key, row as u64)).powf(-1.0 / shape).floor();
        min_len.saturating_add(d as usize).min(ncols)
    };
    let nnz = (0..nrows).map(|row| row_len(row) as u128).sum();
    check_sizes(nrows, ncols, nnz)?;
    let mut sampler = ColumnSampler::new(ncols, seed)?;
    with_columns(nrows, ncols, nnz, seed, |row, out| sampler.push(row, row_len(row), out))
}

/// A symmetric positive definite matrix: `row_len` draws of an off-diagonal column for each row,
/// each with a weight uniform in [-1, 1) that is added at (row, column) and (column, row), and
/// a diagonal of 1 plus the sum of the absolute values of the row's other entries, so that the
/// matrix is strictly diagonally dominant. Rows have about `2 * row_len + 1` entries.
///
/// # Errors
/// [`FormatError::TooLarge`] when `nrows * (2 * row_len + 1)` exceeds `i32`.
pub fn spd(nrows: usize, row_len: usize, seed: u64) -> Result<Csr<f64>, FormatError> {
    let count = nrows as u128 * (2 * row_len as u128 + 1);
    check_sizes(nrows, nrows, count)?;
    let mut rows: Vec<i32> = reserve("row_idx", count)?;
    let mut cols: Vec<i32> = reserve("col_idx", count)?;
    let mut values: Vec<f64> = reserve("values", count)?;
    for row in 0..nrows {
        rows.push(row as i32);
        cols.push(row as i32);
        values.push(0.0);
        let columns = key(stream(seed, COLUMNS), row as u64);
        let weights = key(stream(seed, VALUES), row as u64);
        for t in 0..row_len as u64 {
            let col = below(columns, t, nrows as u64) as i32;
            if col != row as i32 {
                let weight = 2.0 * keyed(weights, t) - 1.0;
                rows.extend([row as i32, col]);
                cols.extend([col, row as i32]);
                values.extend([weight; 2]);
            }
        }
    }
    let mut matrix = Csr::from_triplets(nrows, nrows, &rows, &cols, &values)?;
    for row in 0..nrows {
        let range = matrix.view().pattern().row(row);
        let diagonal = matrix.view().pattern().position(row, row);
        let sum: f64 = matrix.values()[range].iter().map(|v| v.abs()).sum();
        let diagonal = diagonal.expect("every diagonal entry was given");
        matrix.values_mut()[diagonal] = 1.0 + sum;
    }
    Ok(matrix)
}

fn check_row_len(row_len: usize, ncols: usize) -> Result<(), FormatError> {
    if row_len <= ncols {
        return Ok(());
    }
    Err(FormatError::Parameter {
        name: "row_len",
        expected: "at most ncols entries a row",
        found: row_len.to_string(),
    })
}

/// Draws sets of distinct columns, all sets equally likely, by Floyd's method (Bentley and Floyd
/// 1987, doi 10.1145/30401.315746).
struct ColumnSampler {
    stream: u64,
    /// For each column, one plus the row that drew it last.
    taken_by: Vec<u32>,
}

impl ColumnSampler {
    fn new(ncols: usize, seed: u64) -> Result<Self, FormatError> {
        let mut taken_by = reserve("columns", ncols as u128)?;
        taken_by.resize(ncols, 0);
        Ok(Self { stream: stream(seed, COLUMNS), taken_by })
    }

    /// Appends `count` columns, ascending. Rows must come in ascending order.
    fn push(&mut self, row: usize, count: usize, out: &mut Vec<i32>) {
        let ncols = self.taken_by.len();
        let (key, mark) = (key(self.stream, row as u64), row as u32 + 1);
        let start = out.len();
        for last in ncols - count..ncols {
            let drawn = below(key, last as u64, last as u64 + 1) as usize;
            let col = if self.taken_by[drawn] == mark { last } else { drawn };
            self.taken_by[col] = mark;
            out.push(col as i32);
        }
        out[start..].sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_lengths(a: &Csr<f64>) -> Vec<usize> {
        a.row_ptr().windows(2).map(|row| (row[1] - row[0]) as usize).collect()
    }

    #[test]
    fn dense_stores_every_place() {
        let a = dense(2, 3, 1).unwrap();

        assert_eq!(a.col_idx(), [0, 1, 2, 0, 1, 2]);
        assert!(a.values().iter().all(|v| (-1.0..1.0).contains(v)));
        assert!(dense(1 << 20, 1 << 20, 1).is_err());
        assert_eq!(dense(2, 3, 1).unwrap(), a);
        assert_ne!(dense(2, 3, 2).unwrap(), a);
    }

    #[test]
    fn banded_keeps_the_main_diagonal_in_the_middle() {
        let a = banded(4, 4, 1).unwrap();

        assert_eq!(a.row_ptr(), [0, 3, 7, 10, 12]);
        assert_eq!(a.col_idx()[..7], [0, 1, 2, 0, 1, 2, 3]);
        assert_eq!(banded(3, 0, 1).unwrap().nnz(), 0);
        assert_eq!(banded(3, 5, 1).unwrap().nnz(), 9);
        assert!(banded(3, 6, 1).is_err());
        assert!(banded(0, 0, 1).is_ok());
    }

    #[test]
    fn random_rows_have_their_length() {
        let a = random(50, 20, 7, 3).unwrap();

        assert_eq!(row_lengths(&a), [7; 50]);
        assert_eq!(random(3, 4, 4, 3).unwrap().col_idx()[..4], [0, 1, 2, 3]);
        assert!(random(3, 4, 5, 3).is_err());
        assert!(random(1 << 30, 1 << 30, 4, 3).is_err());
    }

    #[test]
    fn random_columns_are_spread_evenly() {
        let a = random(20_000, 10, 3, 5).unwrap();

        let mut counts = [0; 10];
        a.col_idx().iter().for_each(|&col| counts[col as usize] += 1);
        // 6,000 expected each, standard deviation 65.
        assert!(counts.iter().all(|c| (5600..6400).contains(c)), "{counts:?}");
    }

    #[test]
    fn pareto_rows_follow_the_distribution() {
        let a = pareto(20_000, 30_000, 32, 1.0, 9).unwrap();

        let lengths = row_lengths(&a);
        assert!(lengths.iter().all(|&len| len >= 33));
        // P(d >= 10) = 1/10 at shape 1: 2,000 rows expected, standard deviation 42.
        let long = lengths.iter().filter(|&&len| len >= 42).count();
        assert!((1800..2200).contains(&long), "{long}");
        assert!(pareto(10, 100, 32, 0.0, 9).is_err());
        assert!(pareto(10, 100, 32, f64::NAN, 9).is_err());
        assert!(pareto(10, 10, 32, 1.0, 9).is_err());
        assert_eq!(pareto(10, 40, 32, 1e-3, 9).unwrap().nnz(), 400);
    }

    #[test]
    fn spd_is_symmetric_and_diagonally_dominant() {
        let a = spd(40, 5, 11).unwrap();

        assert_eq!(a.transpose(), a);
        for row in 0..40 {
            let pattern = a.view().pattern();
            let diagonal = a.values()[pattern.position(row, row).unwrap()];
            let sum: f64 = a.values()[pattern.row(row)].iter().map(|v| v.abs()).sum();
            assert!(2.0 * diagonal > sum);
        }
        assert_eq!(spd(1, 5, 11).unwrap().values(), [1.0]);
        assert_eq!(spd(0, 5, 11).unwrap().nnz(), 0);
        assert!(spd(1 << 30, 1, 1).is_err());
    }
}
