//! Which items of a batch a rank takes: [`shares`].

use std::ops::Range;
use std::time::Duration;

/// What an item takes beside its iterations, in iterations: its setup, its first and last residual.
const FIXED_ITERATIONS: u64 = 16;

/// The estimated cost of an item: its entries times the iterations that are expected, those of the
/// last solve or 0, and a fixed number of them. Entries count from 1, so that no item is free.
pub fn cost(entries: usize, iterations: u32) -> u64 {
    let iterations = u64::from(iterations) + FIXED_ITERATIONS;
    (entries as u64).saturating_add(1).saturating_mul(iterations)
}

/// The costs of a rank's items in the unit of all ranks, picoseconds: they add up to the time that
/// the rank took for them.
///
/// Estimates by entries and iterations alone miss what methods differ in, such as the fill of a
/// factorisation next to the iterations of CG. `docs/design/scale.md` has what this is worth.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use sparsebatch_mpi::timed;
/// assert_eq!(timed(&[1, 3], Duration::from_nanos(8)), [2000, 6000]);
/// ```
pub fn timed(costs: &[u64], time: Duration) -> Vec<u64> {
    let total: u128 = costs.iter().map(|&cost| u128::from(cost)).sum();
    let picoseconds = time.as_nanos().saturating_mul(1000);
    let scaled = |&cost: &u64| {
        let scaled = u128::from(cost).saturating_mul(picoseconds) / total.max(1);
        u64::try_from(scaled).unwrap_or(u64::MAX).max(1)
    };
    costs.iter().map(scaled).collect()
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
        let of_years = timed(&[u64::MAX; 2], Duration::MAX);
        assert!(of_years[0] == of_years[1] && of_years[0] > u64::MAX / 4);
    }

    #[test]
    fn a_first_solve_divides_by_entries() {
        assert_eq!(cost(7, 0) * 3, cost(23, 0));
    }

    #[test]
    fn a_rank_that_took_longer_has_dearer_items() {
        let (quick, slow) = (Duration::from_micros(10), Duration::from_micros(30));
        let all = [timed(&[5; 4], quick), timed(&[5; 4], slow)].concat();

        // Half of 40 us: the first four items, and a third of the other four.
        assert_eq!(shares(&all, 2), [0..5, 5..8]);
        assert_eq!(timed(&[1, 2], Duration::ZERO), [1, 1]);
        assert_eq!(timed(&[], slow), []);
    }

    proptest! {
        #[test]
        fn costs_add_up_to_the_time(
            costs in prop::collection::vec(1u64..1000, 1..100),
            nanoseconds in 1000u64..1_000_000_000,
        ) {
            let all = timed(&costs, Duration::from_nanos(nanoseconds));

            let sum: u64 = all.iter().sum();
            prop_assert!(sum <= 1000 * nanoseconds && sum + 100 >= 1000 * nanoseconds);
        }

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
