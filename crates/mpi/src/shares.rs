//! Which items of a batch a rank takes: [`shares`].

use std::ops::Range;

/// The estimated cost of an item: its entries times the iterations that are expected, those of the
/// last solve or 0. Both count from 1, so that no item is free.
pub fn cost(entries: usize, iterations: u32) -> u64 {
    (entries as u64).saturating_add(1).saturating_mul(u64::from(iterations) + 1)
}

/// Divides items into consecutive shares of about equal cost, one for each rank.
///
/// Every item is in one share, and shares follow each other in the order of the ranks. Imagine the
/// items side by side, each as wide as its cost (a cost of 0 counts as 1), and the whole width cut
/// into equal parts: an item belongs to the part that holds its middle. So the cost of a share is at
/// most that of an equal part and of the dearest item. A share may be empty: where there are more
/// ranks than items, and beside an item that is dearer than an equal part. The numbers are integers,
/// so that the shares are the same on all machines.
///
/// # Panics
/// When `ranks` is 0.
///
/// # Examples
/// ```
/// use sparsebatch_mpi::shares;
/// assert_eq!(shares(&[1, 1, 1, 1, 4], 2), [0..4, 4..5]);
/// assert_eq!(shares(&[5], 3), [0..0, 0..1, 1..1]);
/// ```
pub fn shares(costs: &[u64], ranks: usize) -> Vec<Range<usize>> {
    assert!(ranks > 0, "a batch is divided among at least one rank");
    let width = |cost: u64| u128::from(cost.max(1));
    let total: u128 = costs.iter().map(|&cost| width(cost)).sum();
    let mut ends = vec![0; ranks];
    let mut before: u128 = 0;
    for (item, &cost) in costs.iter().enumerate() {
        // Twice the middle is an integer, and less than twice the total.
        let middle = 2 * before + width(cost);
        let rank = share_of(middle, 2 * total, ranks);
        ends[rank] = item + 1;
        before += width(cost);
    }
    let mut start = 0;
    ends.into_iter()
        .map(|end| {
            let share = start..end.max(start);
            start = share.end;
            share
        })
        .collect()
}

/// `floor(ranks * middle / total)`, for `middle < total`.
fn share_of(middle: u128, total: u128, ranks: usize) -> usize {
    // The product fits unless there are more than 2^60 items of the largest cost.
    (middle.saturating_mul(ranks as u128) / total).min(ranks as u128 - 1) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_items_are_divided_evenly() {
        assert_eq!(shares(&[7; 10], 4), [0..2, 2..5, 5..7, 7..10]);
        assert_eq!(shares(&[0; 6], 3), [0..2, 2..4, 4..6]);
        assert_eq!(shares(&[1; 3], 3), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn there_may_be_no_items_and_more_ranks_than_items() {
        assert_eq!(shares(&[], 2), [0..0, 0..0]);
        let of_two = shares(&[3, 3], 5);
        assert_eq!(of_two.iter().filter(|share| share.len() == 1).count(), 2);
    }

    #[test]
    fn the_largest_costs_do_not_overflow() {
        assert_eq!(shares(&[u64::MAX; 4], 2), [0..2, 2..4]);
        assert_eq!(cost(usize::MAX, u32::MAX), u64::MAX);
        assert!(cost(0, 0) > 0 && cost(10, 5) > cost(10, 4));
    }

    proptest! {
        #[test]
        fn every_item_is_in_one_share(
            costs in prop::collection::vec(0u64..1000, 0..200),
            ranks in 1usize..40,
        ) {
            let all = shares(&costs, ranks);

            prop_assert_eq!(all.len(), ranks);
            let items: Vec<usize> = all.iter().cloned().flatten().collect();
            prop_assert_eq!(items, (0..costs.len()).collect::<Vec<_>>());
            prop_assert!(all.windows(2).all(|two| two[0].end == two[1].start));
        }

        #[test]
        fn no_share_is_dearer_than_an_equal_part_and_an_item(
            costs in prop::collection::vec(1u64..1000, 1..200),
            ranks in 1usize..40,
        ) {
            let total: u64 = costs.iter().sum();
            let most = total as f64 / ranks as f64 + *costs.iter().max().unwrap() as f64;

            for share in shares(&costs, ranks) {
                let own: u64 = costs[share].iter().sum();
                prop_assert!(own as f64 <= most + 1e-6, "{own} of {total}");
            }
        }
    }
}
