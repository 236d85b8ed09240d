//! The matrices of Trefethen's seventh problem.

use crate::error::check_i32;
use crate::{Csr, FormatError};

/// The `nrows` x `nrows` matrix with the primes 2, 3, 5, 7, … on the diagonal and 1 wherever
/// |row - column| is a power of two (1, 2, 4, 8, …).
///
/// # Errors
/// [`FormatError::TooLarge`] when rows or entries exceed `i32`.
///
/// # Source
/// Trefethen 2002, «A hundred-dollar, hundred-digit challenge», SIAM News 35(1), problem 7.
pub fn trefethen(nrows: usize) -> Result<Csr<f64>, FormatError> {
    let size = i64::from(check_i32("nrows", nrows)?);
    let distances: Vec<i64> = (0..31).map(|k| 1i64 << k).filter(|&d| d < size).collect();
    let off_diagonal: i64 = distances.iter().map(|d| 2 * (size - d)).sum();
    check_i32("nnz", (off_diagonal + size) as usize)?;
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::with_capacity((off_diagonal + size) as usize);
    let mut values = Vec::with_capacity(col_idx.capacity());
    for (row, prime) in (0..size).zip(primes(nrows)) {
        let left = distances.iter().rev().map(|d| row - d).filter(|&col| col >= 0);
        let right = distances.iter().map(|d| row + d).take_while(|&col| col < size);
        for col in left.chain([row]).chain(right) {
            col_idx.push(col as i32);
            values.push(if col == row { prime as f64 } else { 1.0 });
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(nrows, nrows, row_ptr, col_idx, values)
}

/// The first `count` primes, by a sieve up to the bound of Rosser: the n-th prime is below
/// n (ln n + ln ln n) for n >= 6.
fn primes(count: usize) -> impl Iterator<Item = usize> {
    let n = count.max(6) as f64;
    let bound = (n * (n.ln() + n.ln().ln())) as usize + 1;
    let mut composite = vec![false; bound + 1];
    (2..=bound)
        .filter(move |&p| {
            if composite[p] {
                return false;
            }
            composite[p..].iter_mut().step_by(p).for_each(|c| *c = true);
            true
        })
        .take(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_matrix_is_as_defined() {
        let a = trefethen(4).unwrap();

        assert_eq!(a.row_ptr(), [0, 3, 7, 11, 14]);
        assert_eq!(a.col_idx(), [0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 3]);
        assert_eq!(a.values()[..7], [2.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0]);
    }

    #[test]
    fn the_20000th_prime_stands_in_the_corner() {
        let a = trefethen(20_000).unwrap();

        assert_eq!(a.nnz(), 554_466);
        assert_eq!(a.values().last(), Some(&224_737.0));
    }

    #[test]
    fn empty_and_huge_sizes_are_defined() {
        assert_eq!(trefethen(0).unwrap().nnz(), 0);
        assert_eq!(trefethen(1).unwrap().values(), [2.0]);
        assert!(trefethen(1 << 30).is_err());
    }
}
