//! Static pivoting: rows in another order for systems in which the sparse LU has found no pivot.
//!
//! The order of a system's rows depends on its own values only. Systems that have equal patterns
//! after the permutation are factorised together.

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuError;
use sparsebatch_formats::{Batch, Csr, CsrPatternRef, RaggedCsr, Scalar};
use sparsebatch_solve_core::symbolic::match_rows;

use crate::SolveError;

/// Items with permuted rows: row `order[k]` becomes row k.
#[derive(PartialEq)]
pub(crate) struct RowOrders {
    /// Items, ascending.
    orders: Vec<(usize, Vec<u32>)>,
}

impl RowOrders {
    /// The orders that [`match_rows`] finds for some items (ascending), which put large entries on
    /// the diagonal. Items with NaN or infinities, structurally singular items, and items whose
    /// natural order is the best have none.
    pub(crate) fn find<T: Scalar>(batch: &Batch<T>, items: &[usize]) -> Result<Self, SolveError> {
        let of = |&item: &usize| {
            let mut copy = Vec::new();
            let values = batch.values_in(item, &mut copy);
            if values.iter().any(|value| !value.is_finite()) {
                return Ok(None);
            }
            let magnitudes: Vec<f64> = values.iter().map(|v| v.to_f64().abs().log2()).collect();
            let rows = match_rows(batch.pattern(item), &magnitudes).map_err(CpuError::from)?;
            Ok(rows.filter(|rows| !rows.is_sorted()).map(|rows| (item, rows)))
        };
        let orders: Result<Vec<Option<_>>, SolveError> = items.par_iter().map(of).collect();
        Ok(Self { orders: orders?.into_iter().flatten().collect() })
    }

    /// The items that have an order, ascending.
    pub(crate) fn items(&self) -> Vec<usize> {
        self.orders.iter().map(|order| order.0).collect()
    }

    /// Drops the orders of all items except these (ascending).
    pub(crate) fn keep(&mut self, items: &[usize]) {
        self.orders.retain(|order| items.binary_search(&order.0).is_ok());
    }

    /// Whether an item has an order.
    pub(crate) fn has(&self, item: usize) -> bool {
        self.of(item).is_some()
    }

    fn of(&self, item: usize) -> Option<&[u32]> {
        let place = self.orders.binary_search_by_key(&item, |order| order.0).ok()?;
        Some(&self.orders[place].1)
    }

    /// The batch with these items permuted; item numbers stay. All other items keep their rows but
    /// have no entries.
    pub(crate) fn batch<T: Scalar>(&self, batch: &Batch<T>) -> Batch<T> {
        let mut permuted = RaggedCsr::new();
        let mut values = Vec::new();
        for item in 0..batch.nitems() {
            let pattern = batch.pattern(item);
            let matrix = match self.of(item) {
                Some(rows) => permute(pattern, batch.values_in(item, &mut values), rows),
                None => Csr::zeros(pattern.nrows(), pattern.ncols()).expect("sizes of a batch"),
            };
            permuted.push(matrix.view());
        }
        permuted.into()
    }

    /// The right-hand sides of a batch, `nrhs` per item, with the rows of these items permuted.
    pub(crate) fn rhs<T: Scalar>(&self, batch: &Batch<T>, nrhs: usize, b: &[T]) -> Vec<T> {
        let mut permuted = b.to_vec();
        for (item, rows) in &self.orders {
            let start = batch.row_offset(*item) * nrhs;
            for from in (0..nrhs).map(|rhs| start + rhs * rows.len()) {
                for (to, &row) in permuted[from..].iter_mut().zip(rows.iter()) {
                    *to = b[from + row as usize];
                }
            }
        }
        permuted
    }
}

fn permute<T: Scalar>(pattern: CsrPatternRef<'_>, values: &[T], rows: &[u32]) -> Csr<T> {
    let mut row_ptr = vec![0];
    let (mut col_idx, mut permuted) = (Vec::new(), Vec::new());
    for &row in rows {
        let entries = pattern.row(row as usize);
        col_idx.extend_from_slice(&pattern.col_idx()[entries.clone()]);
        permuted.extend_from_slice(&values[entries]);
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(rows.len(), pattern.ncols(), row_ptr, col_idx, permuted)
        .expect("rows of a valid matrix")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn swap(values: [f64; 2]) -> Csr<f64> {
        Csr::try_new(2, 2, vec![0, 1, 2], vec![1, 0], values.to_vec()).unwrap()
    }

    #[test]
    fn rows_and_right_hand_sides_of_items_with_an_order_are_permuted() {
        let one = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![5.0]).unwrap();
        let batch: Batch<f64> = [swap([2.0, 4.0]), one, swap([3.0, 9.0])].into_iter().collect();

        let orders = RowOrders::find(&batch, &[1, 2]).unwrap();
        let permuted = orders.batch(&batch);
        let b = orders.rhs(&batch, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);

        assert_eq!(orders.items(), [2]);
        assert_eq!(permuted.nitems(), 3);
        assert_eq!([0, 1, 2].map(|item| permuted.pattern(item).nnz()), [0, 0, 2]);
        assert_eq!([0, 1, 2, 3].map(|item| permuted.row_offset(item)), [0, 2, 3, 5]);
        assert_eq!(permuted.pattern(2).col_idx(), [0, 1]);
        assert_eq!(permuted.item_values(2), Some([9.0, 3.0].as_slice()));
        assert_eq!(b, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 7.0, 10.0, 9.0]);
    }

    #[test]
    fn items_without_a_better_order_have_none() {
        let pattern = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![0.0; 4]).unwrap();
        let find = |values: [f64; 4]| {
            let batch = Batch::from(
                Csr::from_parts(Arc::clone(pattern.pattern()), values.to_vec()).unwrap(),
            );
            RowOrders::find(&batch, &[0]).unwrap().items()
        };

        assert_eq!(find([0.0, 1.0, 1.0, 0.0]), [0]);
        assert_eq!(find([4.0, 1.0, 1.0, 4.0]), [0usize; 0]);
        assert_eq!(find([0.0, 1.0, 0.0, 1.0]), [0usize; 0]);
        assert_eq!(find([0.0, f64::NAN, 1.0, 0.0]), [0usize; 0]);
        assert_eq!(find([0.0, 1.0, f64::INFINITY, 0.0]), [0usize; 0]);
    }
}
