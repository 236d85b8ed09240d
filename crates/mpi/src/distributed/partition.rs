//! Which rank has which rows of a matrix: [`Partition`].

use std::ops::Range;
use std::sync::Arc;

use sparsebatch_solve_core::{ArgumentError, check_len};

use crate::shares;

/// Consecutive rows (or columns, or elements of a vector) for each rank, all of them once. A rank may
/// have none.
///
/// With an order the rows are numbered anew before they are divided, such as by a graph partitioner
/// that wants few entries between ranks. Positions are the new numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The first position of each rank, and the number of rows at the end.
    starts: Vec<usize>,
    order: Option<Arc<Order>>,
}

/// A permutation and its inverse.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    /// The row at each position.
    row_at: Vec<i32>,
    /// The position of each row.
    position_of: Vec<i32>,
}

impl Partition {
    /// About equal numbers of rows for each of `ranks` ranks, the first of them one more.
    ///
    /// # Panics
    /// When there are no ranks.
    pub fn even(rows: usize, ranks: usize) -> Self {
        assert!(ranks > 0, "no ranks");
        let start = |rank: usize| rank * (rows / ranks) + rank.min(rows % ranks);
        Self { starts: (0..=ranks).map(start).collect(), order: None }
    }

    /// About equal costs for each of `ranks` ranks, where a row costs its `entries` and 1 more for
    /// the vectors: no rank has more than an equal part and the dearest row.
    ///
    /// # Panics
    /// When there are no ranks.
    pub fn by_entries(entries: impl Iterator<Item = usize>, ranks: usize) -> Self {
        let costs: Vec<u64> = entries.map(|entries| entries as u64 + 1).collect();
        let parts = shares(&costs, ranks);
        let starts = std::iter::once(0).chain(parts.iter().map(|part| part.end)).collect();
        Self { starts, order: None }
    }

    /// As [`Partition::by_entries`], by the entries of groups of rows, which are not cut.
    pub(super) fn by_groups(rows: usize, group: usize, entries: &[u64], ranks: usize) -> Self {
        let rows_of = |at: usize| group.min(rows - (at * group).min(rows)) as u64;
        let costs = entries.iter().enumerate().map(|(at, entries)| entries + rows_of(at));
        let parts = shares(&costs.collect::<Vec<u64>>(), ranks);
        let ends = parts.iter().map(|part| (part.end * group).min(rows));
        Self { starts: std::iter::once(0).chain(ends).collect(), order: None }
    }

    /// The rows `starts[r]..starts[r + 1]` for each rank r.
    ///
    /// # Errors
    /// [`ArgumentError::OutOfRange`] for starts that do not begin with 0, decrease, or are fewer
    /// than two.
    pub fn at(starts: Vec<usize>) -> Result<Self, ArgumentError> {
        let is_valid = starts.len() > 1 && starts[0] == 0 && starts.is_sorted();
        if !is_valid {
            return Err(ArgumentError::OutOfRange {
                name: "starts",
                expected: "0 first, then numbers that do not decrease, one more than ranks",
                found: format!("{starts:?}"),
            });
        }
        Ok(Self { starts, order: None })
    }

    /// The parts of the `ncols` columns of a matrix with these rows: those of the rows where it is
    /// square, else even ones.
    #[must_use]
    pub fn of_columns(&self, ncols: usize) -> Self {
        match self.len() == ncols {
            true => self.clone(),
            false => Self::even(ncols, self.ranks()),
        }
    }

    /// The same parts of rows in another order: position p has row `row_at[p]`.
    ///
    /// # Errors
    /// [`ArgumentError::Length`] for an order of another length, [`ArgumentError::OutOfRange`] where a
    /// row is missing.
    pub fn ordered(self, row_at: Vec<i32>) -> Result<Self, ArgumentError> {
        check_len("order", self.len(), row_at.len())?;
        let mut position_of = vec![-1; row_at.len()];
        for (position, &row) in (0..).zip(&row_at) {
            match usize::try_from(row).ok().and_then(|row| position_of.get_mut(row)) {
                Some(slot @ -1) => *slot = position,
                _ => {
                    return Err(ArgumentError::OutOfRange {
                        name: "order",
                        expected: "every row once",
                        found: format!("{row} at position {position}"),
                    });
                }
            }
        }
        Ok(Self { order: Some(Arc::new(Order { row_at, position_of })), ..self })
    }

    /// The number of rows of all ranks.
    pub fn len(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.starts.len() - 1
    }

    /// The positions of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn range(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }

    /// The rank that has a position.
    ///
    /// # Panics
    /// When there is no such position.
    pub fn rank_of(&self, position: usize) -> usize {
        assert!(position < self.len(), "position {position} of {}", self.len());
        self.starts.partition_point(|&start| start <= position) - 1
    }

    /// The row at a position.
    ///
    /// # Panics
    /// Where there is an order, and no such position.
    pub fn row_at(&self, position: usize) -> usize {
        self.order.as_ref().map_or(position, |order| order.row_at[position] as usize)
    }

    /// The position of a row.
    ///
    /// # Panics
    /// Where there is an order, and no such row.
    pub fn position_of(&self, row: usize) -> usize {
        self.order.as_ref().map_or(row, |order| order.position_of[row] as usize)
    }

    /// Whether rows are numbered anew.
    pub fn is_ordered(&self) -> bool {
        self.order.is_some()
    }

    /// A hash of the parts and the order, the same on all machines.
    pub(super) fn digest(&self) -> u64 {
        let starts = self.starts.iter().map(|&start| start as u64);
        let order = self.order.iter().flat_map(|order| order.row_at.iter());
        let numbers = starts.chain(order.map(|&row| row as u64));
        numbers.fold(0x9e37_79b9_7f4a_7c15, |hash, number| {
            (hash ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
        })
    }

    /// The elements of a rank of a vector with one element for each row.
    ///
    /// # Panics
    /// When the vector is shorter, or there is no such rank.
    pub fn share<T: Copy>(&self, rank: usize, whole: &[T]) -> Vec<T> {
        self.range(rank).map(|position| whole[self.row_at(position)]).collect()
    }

    /// A vector by rows from one by positions, such as the shares of all ranks one after the other.
    ///
    /// # Panics
    /// When its length is another.
    pub fn by_rows<T: Copy>(&self, by_positions: Vec<T>) -> Vec<T> {
        assert_eq!(by_positions.len(), self.len(), "elements");
        match &self.order {
            None => by_positions,
            Some(order) => order.position_of.iter().map(|&at| by_positions[at as usize]).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_parts_differ_by_one_row() {
        let parts = Partition::even(7, 3);

        assert_eq!((0..3).map(|rank| parts.range(rank)).collect::<Vec<_>>(), [0..3, 3..5, 5..7]);
        assert_eq!((0..7).map(|row| parts.rank_of(row)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn more_ranks_than_rows_leave_some_without() {
        let parts = Partition::even(2, 5);

        let sizes: Vec<usize> = (0..5).map(|rank| parts.range(rank).len()).collect();
        assert_eq!((sizes, parts.rank_of(1), parts.len()), (vec![1, 1, 0, 0, 0], 1, 2));
        assert!(Partition::even(0, 2).is_empty());
    }

    #[test]
    fn a_dense_row_counts_by_its_entries() {
        let parts = Partition::by_entries([9, 1, 1, 1, 1, 1].into_iter(), 2);

        assert_eq!((parts.range(0), parts.range(1)), (0..1, 1..6));
    }

    #[test]
    fn groups_of_rows_are_not_cut() {
        let parts = Partition::by_groups(7, 3, &[30, 2, 1], 2);

        assert_eq!((parts.range(0), parts.range(1)), (0..3, 3..7));
        assert_eq!(Partition::by_groups(0, 1, &[], 2), Partition::even(0, 2));
    }

    #[test]
    fn a_rank_without_rows_owns_no_position() {
        let parts = Partition::at(vec![0, 2, 2, 3]).unwrap();

        assert_eq!((parts.rank_of(1), parts.rank_of(2), parts.range(1)), (0, 2, 2..2));
    }

    #[test]
    fn an_order_goes_there_and_back() {
        let parts = Partition::even(4, 2).ordered(vec![2, 0, 3, 1]).unwrap();

        assert_eq!((parts.share(0, &[10, 11, 12, 13]), parts.position_of(1)), (vec![12, 10], 3));
        assert_eq!(parts.by_rows(vec![12, 10, 13, 11]), [10, 11, 12, 13]);
    }

    #[test]
    fn wrong_starts_and_orders_are_refused() {
        for starts in [vec![], vec![0], vec![1, 2], vec![0, 3, 2]] {
            let error = Partition::at(starts).unwrap_err().to_string();
            assert!(error.starts_with("starts is ["), "{error}");
        }
        for order in [vec![0, 0], vec![0, 2], vec![-1, 0]] {
            let error = Partition::even(2, 1).ordered(order).unwrap_err().to_string();
            assert!(error.ends_with("expected every row once"), "{error}");
        }
        let error = Partition::even(2, 1).ordered(vec![0]).unwrap_err().to_string();
        assert_eq!(error, "order has 1 entries, expected 2");
    }
}
