//! Assigns the sums of a level to the lanes of a group, for programs that are read as lists.

use super::programs::WideTask;

/// Rough cycle costs of a group's turns, by which assignments are compared; positions and values
/// are read through the caches.
mod cycles {
    /// Starting and finishing a turn; adding the partial sums of two lanes.
    pub(super) const TURN: u64 = 700;
    pub(super) const ADD: u64 = 30;
    /// A product per lane: its latency, and the throughput cost of each lane that has one.
    pub(super) const PRODUCT: u64 = 250;
    pub(super) const PRODUCT_OF_LANE: f64 = 1.2;
}

/// Candidate limits of the products per lane; the number of lanes is rounded to a power of two.
const LENGTHS: [usize; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 8192, usize::MAX];

/// The most lanes that share a sum.
const MOST_LANES: usize = 32;

/// Tasks of one level that `1 << shift` lanes each compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) shift: u32,
    pub(super) tasks: Vec<usize>,
}

/// Assigns the tasks of a non-empty level to the lanes of a group of `threads`: the segments of
/// least estimated time. A function of its arguments alone.
pub(super) fn segments(tasks: &[WideTask], mut level: Vec<usize>, threads: u32) -> Vec<Segment> {
    let products = |task: &usize| tasks[*task].pairs.len();
    level.sort_by_key(|task| std::cmp::Reverse(products(task)));
    let longest = level.first().map_or(0, products);
    let enough = LENGTHS.partition_point(|&length| length < longest) + 1;
    let cut = |length: usize| {
        let shift = move |task: &usize| {
            let lanes = products(task).div_ceil(length).clamp(1, MOST_LANES);
            lanes.next_power_of_two().trailing_zeros()
        };
        level.chunk_by(move |a, b| shift(a) == shift(b)).map(move |part| (shift(&part[0]), part))
    };
    let time = |length: usize| {
        let of_segment = |(shift, part): (u32, &[usize])| {
            let turns = part.chunks(threads as usize >> shift);
            let of_turn = |turn: &[usize]| {
                let lanes = (turn.len() << shift) as f64 * cycles::PRODUCT_OF_LANE;
                let steps = products(&turn[0]).div_ceil(1 << shift) as u64;
                let add = u64::from(shift) * cycles::ADD;
                cycles::TURN + add + steps * cycles::PRODUCT.max(lanes as u64)
            };
            turns.map(of_turn).sum::<u64>()
        };
        cut(length).map(of_segment).sum::<u64>()
    };
    let lengths = LENGTHS[..enough.min(LENGTHS.len())].iter().copied();
    let best = lengths.min_by_key(|&length| time(length)).unwrap_or(usize::MAX);
    cut(best).map(|(shift, part)| Segment { shift, tasks: part.to_vec() }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::programs::NONE;
    use super::*;

    fn tasks(lengths: &[usize]) -> Vec<WideTask> {
        let task =
            |&length: &usize| WideTask { place: 0, factor: NONE, pairs: 0..length, level: 0 };
        lengths.iter().map(task).collect()
    }

    fn found(lengths: &[usize]) -> Vec<(u32, usize)> {
        let tasks = tasks(lengths);
        let made = segments(&tasks, (0..tasks.len()).collect(), 512);
        let mut all: Vec<usize> = made.iter().flat_map(|s| s.tasks.iter().copied()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..tasks.len()).collect::<Vec<_>>());
        made.iter().map(|segment| (segment.shift, segment.tasks.len())).collect()
    }

    #[test]
    fn long_sums_have_many_lanes_and_short_ones_one() {
        assert_eq!(found(&[5000]), [(5, 1)]);
        assert_eq!(found(&[0; 3000]), [(0, 3000)]);
        assert_eq!(found(&[1; 600]), [(0, 600)]);
        let mut mixed = vec![2; 300];
        mixed[7] = 3000;
        let made = found(&mixed);
        assert_eq!((made[0], made.last().unwrap().0), ((5, 1), 0), "{made:?}");
    }
}
