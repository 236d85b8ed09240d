//! A row order that puts large entries on the diagonal: maximum product matching.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sparsebatch_formats::CsrPatternRef;

use super::{SymbolicError, check_square};

/// An entry costs 1 for each factor of `2^STEP` by which it is smaller than the largest of its row.
/// An entry within one step of the largest is good enough as a pivot, so that systems whose values
/// differ little get the same order.
const STEP: f64 = 10.0;

/// Rounds of scaling.
const ROUNDS: usize = 3;

/// The cost of an entry that may not be on the diagonal.
const NEVER: i64 = i64::MAX;

const NONE: u32 = u32::MAX;

/// An order of rows for an elimination without pivoting: row `result[k]` moves to position k, so
/// that its entry in column k becomes the k-th diagonal entry. `None` if every order has a 0 on the
/// diagonal: the matrix is singular.
///
/// `magnitudes` holds the base-2 logarithm of the size of each entry, minus infinity for 0;
/// infinite and NaN entries stay off the diagonal. Rows and columns are scaled by their largest
/// entries in turn. Then the result maximises the product of the diagonal over all orders, with
/// sizes counted in steps of 2^10. An entry that is on the diagonal already counts one step more:
/// only rows that have to move do, and the pattern stays as symmetric as it was. The result is a
/// function of the arguments alone.
///
/// Shortest augmenting paths, O(n (nnz + n) log n) at most, and little more than O(nnz) where few
/// rows have to be moved.
///
/// # Errors
/// [`SymbolicError::NotSquare`]; [`SymbolicError::Magnitudes`] unless `magnitudes` has one element
/// per entry.
///
/// # Examples
/// ```
/// use sparsebatch_solve_core::symbolic::match_rows;
/// use sparsebatch_formats::Csr;
/// // [0 2; 4 0], its zeros not stored.
/// let swap = Csr::try_new(2, 2, vec![0, 1, 2], vec![1, 0], vec![2.0f64, 4.0])?;
/// let magnitudes: Vec<f64> = swap.values().iter().map(|value| value.abs().log2()).collect();
/// assert_eq!(match_rows(swap.view().pattern(), &magnitudes)?, Some(vec![1, 0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
/// I. S. Duff, J. Koster, On algorithms for permuting large entries to the diagonal of a sparse
/// matrix, 2001, doi:10.1137/S0895479899358443 (product of the diagonal, "option 5"); X. S. Li, J.
/// W. Demmel, Making sparse Gaussian elimination scalable by static pivoting, 1998. The preference
/// for entries already on the diagonal is KLU's: T. A. Davis, E. Palamadai Natarajan, 2010,
/// doi:10.1145/1824801.1824814.
pub fn match_rows(
    pattern: CsrPatternRef<'_>,
    magnitudes: &[f64],
) -> Result<Option<Vec<u32>>, SymbolicError> {
    let nrows = check_square(pattern)?;
    if magnitudes.len() != pattern.nnz() {
        let (expected, found) = (pattern.nnz(), magnitudes.len());
        return Err(SymbolicError::Magnitudes { expected, found });
    }
    let costs = costs(pattern, magnitudes);
    let mut matching = Matching::begin(pattern, &costs);
    let mut search = Search::new(nrows);
    for row in 0..nrows as u32 {
        let is_free = matching.column_of[row as usize] == NONE;
        if is_free && !search.augment(pattern, &costs, &mut matching, row) {
            return Ok(None);
        }
    }
    Ok(Some(matching.row_of))
}

/// The cost of each entry on the diagonal, from its size relative to the largest of its row; an
/// entry off the diagonal of A costs 1 more.
fn costs(pattern: CsrPatternRef<'_>, magnitudes: &[f64]) -> Vec<i64> {
    let scaled = scaled(pattern, magnitudes);
    let mut costs = vec![NEVER; magnitudes.len()];
    for row in 0..pattern.nrows() {
        for k in pattern.row(row).filter(|&k| magnitudes[k].is_finite()) {
            let moves = pattern.col_idx()[k] as usize != row;
            // The largest scaled magnitude of a row is 0 up to rounding.
            costs[k] = (-scaled[k] / STEP).max(0.0) as i64 + i64::from(moves);
        }
    }
    costs
}

/// Magnitudes after `ROUNDS` rounds of scaling, each of which divides the columns, then the rows,
/// by their largest entries. Magnitudes that are not finite stay as they are.
fn scaled(pattern: CsrPatternRef<'_>, magnitudes: &[f64]) -> Vec<f64> {
    let mut scaled = magnitudes.to_vec();
    let column = |k: usize| pattern.col_idx()[k] as usize;
    for _ in 0..ROUNDS {
        let mut most = vec![f64::NEG_INFINITY; pattern.ncols()];
        for k in (0..scaled.len()).filter(|&k| scaled[k].is_finite()) {
            most[column(k)] = most[column(k)].max(scaled[k]);
        }
        for row in 0..pattern.nrows() {
            let finite: Vec<usize> =
                pattern.row(row).filter(|&k| magnitudes[k].is_finite()).collect();
            finite.iter().for_each(|&k| scaled[k] -= most[column(k)]);
            let most = finite.iter().map(|&k| scaled[k]).fold(f64::NEG_INFINITY, f64::max);
            finite.iter().for_each(|&k| scaled[k] -= most);
        }
    }
    scaled
}

/// A matching of rows and columns, and prices of both. The cost of an entry is at least the price
/// of its row plus that of its column, and equal to it where the two are matched.
struct Matching {
    row_of: Vec<u32>,
    column_of: Vec<u32>,
    row_prices: Vec<i64>,
    column_prices: Vec<i64>,
}

impl Matching {
    /// Matches each row with one of its cheapest columns, preferably its diagonal, if that column
    /// is free.
    fn begin(pattern: CsrPatternRef<'_>, costs: &[i64]) -> Self {
        let nrows = pattern.nrows();
        let mut this = Self {
            row_of: vec![NONE; nrows],
            column_of: vec![NONE; nrows],
            row_prices: vec![0; nrows],
            column_prices: vec![0; nrows],
        };
        for row in 0..nrows {
            let entries = pattern.row(row).filter(|&k| costs[k] != NEVER);
            let Some(least) = entries.clone().map(|k| costs[k]).min() else { continue };
            this.row_prices[row] = least;
            let mut cheapest = entries.filter(|&k| costs[k] == least);
            let own = pattern.position(row, row).filter(|&k| costs[k] == least);
            let column = |k: usize| pattern.col_idx()[k] as usize;
            if let Some(column) = own.or(cheapest.next()).map(column)
                && this.row_of[column] == NONE
            {
                this.row_of[column] = row as u32;
                this.column_of[row] = column as u32;
            }
        }
        this
    }
}

/// Dijkstra's algorithm from an unmatched row to the nearest unmatched column.
struct Search {
    /// The cost of the cheapest path found to each column; `from` holds the row before it.
    distance: Vec<i64>,
    from: Vec<u32>,
    is_done: Vec<bool>,
    /// Columns with a distance; `done` holds those whose distance is final.
    reached: Vec<u32>,
    done: Vec<u32>,
    next: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Search {
    fn new(ncols: usize) -> Self {
        Self {
            distance: vec![NEVER; ncols],
            from: vec![NONE; ncols],
            is_done: vec![false; ncols],
            reached: Vec::new(),
            done: Vec::new(),
            next: BinaryHeap::new(),
        }
    }

    /// Matches the row `first` along the cheapest augmenting path; false if no unmatched column can
    /// be reached.
    fn augment(
        &mut self,
        pattern: CsrPatternRef<'_>,
        costs: &[i64],
        matching: &mut Matching,
        first: u32,
    ) -> bool {
        for column in self.reached.drain(..) {
            self.distance[column as usize] = NEVER;
            self.is_done[column as usize] = false;
        }
        self.done.clear();
        self.next.clear();
        let (mut row, mut so_far) = (first, 0);
        let (end, length) = loop {
            self.relax(pattern, costs, matching, row, so_far);
            let Some((distance, column)) = self.take() else { return false };
            let other = matching.row_of[column as usize];
            if other == NONE {
                break (column, distance);
            }
            self.is_done[column as usize] = true;
            self.done.push(column);
            (row, so_far) = (other, distance);
        };
        for &column in &self.done {
            let column = column as usize;
            let gain = length - self.distance[column];
            matching.row_prices[matching.row_of[column] as usize] += gain;
            matching.column_prices[column] -= gain;
        }
        matching.row_prices[first as usize] += length;
        let mut column = end;
        loop {
            let row = self.from[column as usize];
            matching.row_of[column as usize] = row;
            let before = std::mem::replace(&mut matching.column_of[row as usize], column);
            if row == first {
                return true;
            }
            column = before;
        }
    }

    /// Updates the distances of the columns of `row`, which is reached at cost `so_far`.
    fn relax(
        &mut self,
        pattern: CsrPatternRef<'_>,
        costs: &[i64],
        matching: &Matching,
        row: u32,
        so_far: i64,
    ) {
        for k in pattern.row(row as usize).filter(|&k| costs[k] != NEVER) {
            let column = pattern.col_idx()[k] as usize;
            let prices = matching.row_prices[row as usize] + matching.column_prices[column];
            let distance = so_far + costs[k] - prices;
            if !self.is_done[column] && distance < self.distance[column] {
                if self.distance[column] == NEVER {
                    self.reached.push(column as u32);
                }
                self.distance[column] = distance;
                self.from[column] = row;
                self.next.push(Reverse((distance, column as u32)));
            }
        }
    }

    /// Takes the nearest column that is not done from the heap.
    fn take(&mut self) -> Option<(i64, u32)> {
        loop {
            let Reverse((distance, column)) = self.next.pop()?;
            let column_at = column as usize;
            if !self.is_done[column_at] && distance == self.distance[column_at] {
                return Some((distance, column));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Csr;
    use sparsebatch_testing::random_vector;

    use super::*;

    fn matched(rows: &[&[f64]]) -> Option<Vec<u32>> {
        let n = rows.len();
        let row_ptr = (0..=n).map(|row| (row * n) as i32).collect();
        let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
        let a = Csr::try_new(n, n, row_ptr, col_idx, rows.concat()).unwrap();
        let magnitudes: Vec<f64> = a.values().iter().map(|value| value.abs().log2()).collect();
        match_rows(a.view().pattern(), &magnitudes).unwrap()
    }

    #[test]
    fn rows_stay_unless_their_diagonal_is_small() {
        let two = |exponent| 2f64.powi(exponent);
        assert_eq!(matched(&[&[1.0, two(19)], &[two(9), 1.0]]), Some(vec![0, 1]));
        assert_eq!(matched(&[&[1.0, two(20)], &[two(20), 1.0]]), Some(vec![1, 0]));
        // The scaling of the second row and the second column does not matter.
        let two = |exponent: i32| 2f64.powi(exponent);
        for (row, column) in [(400, 0), (-300, 200), (0, -700), (13, 5)] {
            let of = |size: i32| {
                let rows = [[0, size + column], [size + row, row + column]];
                let [first, second] = rows.map(|row| row.map(two));
                matched(&[&first, &second])
            };
            assert_eq!(of(9), Some(vec![0, 1]), "{row} {column}");
            assert_eq!(of(21), Some(vec![1, 0]), "{row} {column}");
        }
    }

    /// Compares the result with the least cost of all orders, found by trying them.
    #[test]
    fn no_order_costs_less() {
        let mut without = 0;
        for seed in 0..600 {
            let n = 1 + seed as usize % 5;
            let numbers: Vec<f64> = random_vector(2 * n * n, seed);
            let (sizes, kept) = numbers.split_at(n * n);
            let stored: Vec<usize> = (0..n * n).filter(|&k| kept[k] < 0.2).collect();
            let row_ptr = (0..=n).map(|row| stored.partition_point(|&k| k < row * n) as i32);
            let col_idx = stored.iter().map(|k| (k % n) as i32).collect();
            let values = stored.iter().map(|&k| (60.0 * sizes[k]).exp2()).collect();
            let a = Csr::try_new(n, n, row_ptr.collect(), col_idx, values).unwrap();
            let pattern = a.view().pattern();
            let magnitudes: Vec<f64> = a.values().iter().map(|value| value.log2()).collect();
            let costs = costs(pattern, &magnitudes);
            let cost = |rows: &[u32]| {
                let at = |(column, &row): (usize, &u32)| {
                    pattern.position(row as usize, column).map(|k| costs[k])
                };
                rows.iter().enumerate().map(at).sum::<Option<i64>>()
            };
            let mut least = None;
            let mut rows: Vec<u32> = (0..n as u32).collect();
            permutations(&mut rows, 0, &mut |rows| {
                let found = cost(rows);
                least = least.into_iter().chain(found).min();
            });

            let matched = match_rows(pattern, &magnitudes).unwrap();

            without += usize::from(least.is_none());
            assert_eq!(matched.as_deref().and_then(cost), least, "seed {seed}");
            if let Some(mut rows) = matched {
                rows.sort_unstable();
                assert!(rows.into_iter().eq(0..n as u32), "seed {seed}");
            }
        }
        assert!((60..540).contains(&without), "{without}");
    }

    /// Visits every order of `rows[first..]`.
    fn permutations(rows: &mut [u32], first: usize, visit: &mut impl FnMut(&[u32])) {
        if first + 1 >= rows.len() {
            return visit(rows);
        }
        for k in first..rows.len() {
            rows.swap(first, k);
            permutations(rows, first + 1, visit);
            rows.swap(first, k);
        }
    }

    #[test]
    fn rows_without_a_diagonal_are_moved_and_few_others() {
        let a: &[&[f64]] = &[
            &[4.0, 1.0, 0.0, 0.0],
            &[1.0, 4.0, 0.0, 1.0],
            &[0.0, 0.0, 4.0, 1.0],
            &[0.0, 1.0, 1.0, 0.0],
        ];

        // Row 3 changes places with row 1 or 2, the lower column first.
        assert_eq!(matched(a), Some(vec![0, 3, 2, 1]));
    }

    #[test]
    fn what_has_a_zero_in_every_order_is_told() {
        assert_eq!(matched(&[&[1.0, 0.0], &[1.0, 0.0]]), None);
        assert_eq!(matched(&[&[1.0, 2.0], &[0.0, 0.0]]), None);
        let nan = f64::NAN;
        assert_eq!(matched(&[&[1.0, nan], &[nan, f64::INFINITY]]), None);
        assert_eq!(matched(&[&[nan, 3.0], &[2.0, nan]]), Some(vec![1, 0]));
        assert_eq!(matched(&[]), Some(vec![]));
    }

    #[test]
    fn each_entry_has_a_magnitude() {
        let a = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![1.0]).unwrap();

        let error = match_rows(a.view().pattern(), &[]).unwrap_err();

        assert_eq!(error, SymbolicError::Magnitudes { expected: 1, found: 0 });
        assert_eq!(error.to_string(), "0 magnitudes, expected one for each of 1 entries");
    }

    #[test]
    fn a_matrix_that_is_not_square_has_no_order_of_rows() {
        let a = Csr::try_new(1, 2, vec![0, 1], vec![0], vec![1.0]).unwrap();

        let error = match_rows(a.view().pattern(), &[0.0]).unwrap_err();

        assert_eq!(error, SymbolicError::NotSquare { nrows: 1, ncols: 2 });
    }
}
