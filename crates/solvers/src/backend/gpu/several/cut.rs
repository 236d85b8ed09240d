//! How the items of a batch are cut into pieces: [`cut`], [`estimated_cost`].

use std::ops::Range;

use sparsebatch_cuda::Value;
use sparsebatch_formats::Batch;

/// The estimated cost of the systems of an item, in entries that are multiplied: its entries for
/// every right-hand side. Systems are taken to need equally many iterations, which are not known
/// before the solve.
pub(in crate::backend::gpu) fn estimated_cost<T: Value>(
    batch: &Batch<T>,
    item: u32,
    nrhs: usize,
) -> u64 {
    let pattern = batch.pattern(item as usize);
    (pattern.nnz() + pattern.nrows()).max(1) as u64 * nrhs as u64
}

/// Cuts a list of items with these costs into runs of about equal cost: `most` runs, or fewer where
/// each would cost less than `least`. No run costs more than its part of the sum and one item.
pub(in crate::backend::gpu) fn cut(costs: &[u64], most: usize, least: u64) -> Vec<Range<usize>> {
    let sum: u64 = costs.iter().sum();
    let pieces = (sum / least.max(1)).clamp(1, most.max(1) as u64);
    let mut runs: Vec<Range<usize>> = Vec::new();
    let (mut start, mut before) = (0, 0);
    for (place, cost) in costs.iter().enumerate() {
        before += cost;
        // The end of this run is where the costs so far reach its part of the sum.
        let reached = before as u128 * pieces as u128 >= sum as u128 * (runs.len() as u128 + 1);
        if reached || place + 1 == costs.len() {
            runs.push(start..place + 1);
            start = place + 1;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_item_is_in_one_run(
            costs in prop::collection::vec(1u64..1000, 0..200),
            most in 1usize..9,
            least in 0u64..5000,
        ) {
            let runs = cut(&costs, most, least);

            let items: Vec<usize> = runs.iter().cloned().flatten().collect();
            prop_assert_eq!(items, (0..costs.len()).collect::<Vec<_>>());
            prop_assert!(runs.len() <= most && runs.iter().all(|run| !run.is_empty()));
            prop_assert_eq!(&runs, &cut(&costs, most, least));
            let (sum, dearest) =
                (costs.iter().sum::<u64>(), costs.iter().copied().max().unwrap_or(0));
            let pieces = (sum / least.max(1)).clamp(1, most as u64);
            for run in &runs {
                let cost: u64 = costs[run.clone()].iter().sum();
                prop_assert!(cost <= sum.div_ceil(pieces) + dearest, "{cost} of {sum}: {runs:?}");
            }
        }
    }

    #[test]
    fn equal_costs_make_equal_runs() {
        assert_eq!(cut(&[7; 9], 3, 1), [0..3, 3..6, 6..9]);
        assert_eq!(cut(&[7; 2], 3, 1), [0..1, 1..2]);
        assert_eq!(cut(&[], 3, 1), []);
    }

    #[test]
    fn little_work_stays_together() {
        assert!(matches!(&cut(&[1; 10], 4, 100)[..], [run] if *run == (0..10)));
        assert_eq!(cut(&[1; 10], 4, 5), [0..5, 5..10]);
    }

    #[test]
    fn a_dear_item_makes_its_run_short() {
        assert_eq!(cut(&[1, 1, 1, 1, 4], 2, 1), [0..4, 4..5]);
        assert_eq!(cut(&[9, 1, 1], 2, 1), [0..1, 1..3]);
    }
}
