//! Tasks in the order in which the warps of a group execute them.

use super::tasks::{NONE, Tasks};

/// Rough cycle costs on a multiprocessor, by which schedules are compared.
mod cycles {
    /// A slice without products: the remaining wait for its words, the result's old value, its
    /// factor.
    pub(super) const SLICE: u64 = 140;
    /// A product of every lane, in a dependent chain.
    pub(super) const PRODUCT: u64 = 16;
    /// One addition of two partial sums.
    pub(super) const ADD_PARTS: u64 = 35;
    /// A reciprocal.
    pub(super) const INVERSE: u64 = 100;
    /// A barrier of a warp, and of a block.
    pub(super) const WARP_BARRIER: u64 = 20;
    pub(super) const BLOCK_BARRIER: u64 = 50;
    /// Cycles for which shared memory and the first-level cache are busy: `BUSY_WORDS` for the
    /// words of a step, `BUSY_STEP` for its values, one more for every `BUSY_PRODUCTS` products
    /// (random bank conflicts), `BUSY_SLICE` for the words and values of a slice.
    pub(super) const BUSY_WORDS: u64 = 2;
    pub(super) const BUSY_STEP: u64 = 3;
    pub(super) const BUSY_PRODUCTS: u64 = 6;
    pub(super) const BUSY_SLICE: u64 = 8;
}

const LANES: usize = 32;

/// Bit positions in a slice's second word: see `factor.cuh`.
const OWN_PARTS_SHIFT: u32 = 16;
const MOST_PARTS_SHIFT: u32 = 19;
const NEXT_WIDTH_SHIFT: u32 = 22;
const MOST_NEXT_WIDTH: usize = 15;
const BARRIERS_SHIFT: u32 = 26;
const MOST_BARRIERS: u32 = 31;
const LAST: u32 = 1 << 31;

/// The most products per lane in a slice.
const MOST_WIDTH: usize = 0xffff;

/// Candidate limits of the products per lane.
const LENGTHS: [usize; 18] =
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 4096, MOST_WIDTH];

/// Tasks of one level that the lanes of a warp execute side by side. A sum may be split into parts,
/// a power of two, on as many adjacent lanes.
#[derive(Clone, Debug, Default)]
struct LevelSlice {
    /// Tasks with the binary logarithm of their number of parts, in descending order of it.
    tasks: Vec<(usize, u32)>,
    width: usize,
    latency: u64,
    busy: u64,
}

/// Estimated cost of a stream, in cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Time from the first task to the last.
    pub(super) latency: u64,
    /// Time for which shared memory, common to the groups of a multiprocessor, is busy: with words,
    /// and with the values of one system.
    pub(super) busy_words: u64,
    pub(super) busy_values: u64,
}

/// The slices of each warp, level by level.
#[derive(Clone, Debug)]
pub(super) struct Streams<'a> {
    tasks: &'a Tasks,
    levels: Vec<Vec<Vec<LevelSlice>>>,
    pub(super) cost: Cost,
}

impl<'a> Streams<'a> {
    /// Distributes tasks over `warps` warps. A function of its arguments alone.
    pub(super) fn new(tasks: &'a Tasks, warps: usize) -> Self {
        let nlevels = tasks.tasks.iter().map(|task| task.level as usize + 1).max().unwrap_or(0);
        let mut by_level: Vec<Vec<usize>> = vec![Vec::new(); nlevels];
        for (number, task) in tasks.tasks.iter().enumerate() {
            by_level[task.level as usize].push(number);
        }
        let barrier = if warps == 1 { cycles::WARP_BARRIER } else { cycles::BLOCK_BARRIER };
        let mut cost = Cost::default();
        let mut levels = Vec::with_capacity(nlevels);
        for level in by_level {
            let longest = level.iter().map(|&task| tasks.tasks[task].pairs.len()).max();
            let longest = longest.unwrap_or(0);
            // Lengths beyond the first that covers the longest task change nothing.
            let enough = LENGTHS.partition_point(|&length| length < longest) + 1;
            let lengths = &LENGTHS[..enough.min(LENGTHS.len())];
            let plans = lengths.iter().map(|&length| {
                let slices = slices(tasks, &level, length);
                let words = |slice: &LevelSlice| (slice.width as u64 + 2) * cycles::BUSY_WORDS;
                let words = slices.iter().map(words).sum::<u64>();
                let values = slices.iter().map(|slice| slice.busy).sum::<u64>();
                let (assigned, latency) = assign(slices, warps);
                (latency + values / 4, latency, words, values, assigned)
            });
            if let Some((_, latency, words, values, assigned)) = plans.min_by_key(|plan| plan.0) {
                cost.latency += latency + barrier;
                cost.busy_words += words;
                cost.busy_values += values;
                levels.push(assigned);
            }
        }
        Self { tasks, levels, cost }
    }

    /// Appends the words of each warp, one warp after the other, and their offsets.
    ///
    /// A slice is a task and a control word for each lane, then for each step a pair for each lane;
    /// `padding` is the pair of lanes that have none left.
    pub(super) fn append(&self, padding: u32, words: &mut Vec<u32>, starts: &mut Vec<u32>) {
        let warps = self.levels.first().map_or(1, Vec::len);
        for warp in 0..warps {
            starts.push(words.len() as u32);
            // Offsets of the slices.
            let mut heads = Vec::new();
            for level in &self.levels {
                for slice in &level[warp] {
                    heads.push(self.push(slice, padding, words));
                }
                let has_room = |&head: &usize| barriers(words[head + 1]) < MOST_BARRIERS;
                if heads.last().is_none_or(|head| !has_room(head)) {
                    heads.push(self.push(&LevelSlice::default(), padding, words));
                }
                if let Some(&last) = heads.last() {
                    each_lane(words, last, |word| word + (1 << BARRIERS_SHIFT));
                }
            }
            if heads.is_empty() {
                heads.push(self.push(&LevelSlice::default(), padding, words));
            }
            for pair in heads.windows(2) {
                let width = (words[pair[1] + 1] as usize & MOST_WIDTH).min(MOST_NEXT_WIDTH);
                each_lane(words, pair[0], |word| word | (width as u32) << NEXT_WIDTH_SHIFT);
            }
            if let Some(&last) = heads.last() {
                each_lane(words, last, |word| word | LAST);
            }
        }
    }

    fn push(&self, slice: &LevelSlice, padding: u32, words: &mut Vec<u32>) -> usize {
        let head = words.len();
        let most = slice.tasks.first().map_or(0, |&(_, parts)| parts);
        let mut lanes = Vec::with_capacity(LANES);
        for &(task, parts) in &slice.tasks {
            lanes.extend((0..1usize << parts).map(|part| (task, parts, part)));
        }
        for lane in 0..LANES {
            let (own, parts) = match lanes.get(lane) {
                Some(&(task, parts, part)) => {
                    let task = &self.tasks.tasks[task];
                    // The first lane of a task finishes it.
                    (if part == 0 { task.place | task.factor << 16 } else { NONE }, parts)
                }
                None => (NONE, 0),
            };
            words.push(own);
            words.push(slice.width as u32 | parts << OWN_PARTS_SHIFT | most << MOST_PARTS_SHIFT);
        }
        for step in 0..slice.width {
            for lane in 0..LANES {
                let pair = lanes.get(lane).and_then(|&(task, parts, part)| {
                    let pairs = &self.tasks.pairs[self.tasks.tasks[task].pairs.clone()];
                    pairs.get((step << parts) + part)
                });
                words.push(pair.copied().unwrap_or(padding));
            }
        }
        head
    }
}

fn barriers(word: u32) -> u32 {
    word >> BARRIERS_SHIFT & MOST_BARRIERS
}

/// Changes the control word of every lane of a slice.
fn each_lane(words: &mut [u32], head: usize, change: impl Fn(u32) -> u32) {
    for word in words[head..head + 2 * LANES].iter_mut().skip(1).step_by(2) {
        *word = change(*word);
    }
}

/// Cuts the tasks of a level into slices of at most `length` pairs per lane, or of more where a
/// whole warp shares one sum.
fn slices(tasks: &Tasks, level: &[usize], length: usize) -> Vec<LevelSlice> {
    let parts = |task: usize| {
        let parts = tasks.tasks[task].pairs.len().div_ceil(length).next_power_of_two();
        parts.min(LANES).trailing_zeros()
    };
    let width = |task: usize, parts: u32| tasks.tasks[task].pairs.len().div_ceil(1 << parts);
    let mut sorted: Vec<(usize, u32)> = level.iter().map(|&task| (task, parts(task))).collect();
    sorted.sort_unstable_by_key(|&(task, parts)| {
        let place = tasks.tasks[task].place;
        (std::cmp::Reverse((parts, width(task, parts))), place)
    });
    let mut slices: Vec<LevelSlice> = Vec::new();
    let mut free = 0;
    for (task, parts) in sorted {
        // Powers of two in descending order fill a warp without gaps.
        if free == 0 {
            slices.push(LevelSlice::default());
            free = LANES;
        }
        free -= 1 << parts;
        if let Some(slice) = slices.last_mut() {
            slice.width = slice.width.max(width(task, parts));
            slice.tasks.push((task, parts));
        }
    }
    for slice in &mut slices {
        let most = slice.tasks.first().map_or(0, |&(_, parts)| parts);
        let inverts = slice.tasks.iter().any(|&(task, _)| {
            let task = &tasks.tasks[task];
            task.place == task.factor
        });
        let pairs = |&(task, _): &(usize, u32)| tasks.tasks[task].pairs.len() as u64;
        slice.busy = cycles::BUSY_SLICE
            + cycles::BUSY_STEP * slice.width as u64
            + slice.tasks.iter().map(pairs).sum::<u64>() / cycles::BUSY_PRODUCTS;
        slice.latency = cycles::SLICE
            + cycles::PRODUCT * slice.width as u64
            + cycles::ADD_PARTS * u64::from(most)
            + if inverts { cycles::INVERSE } else { 0 };
    }
    slices
}

/// Gives each slice, the longest first, to the warp with the least load; also returns the largest
/// load.
fn assign(mut slices: Vec<LevelSlice>, warps: usize) -> (Vec<Vec<LevelSlice>>, u64) {
    slices.sort_by_key(|slice| std::cmp::Reverse(slice.latency));
    let mut assigned = vec![Vec::new(); warps];
    let mut loads = vec![0; warps];
    for slice in slices {
        let first = (0..warps).min_by_key(|&warp| loads[warp]).unwrap_or(0);
        loads[first] += slice.latency;
        assigned[first].push(slice);
    }
    (assigned, loads.into_iter().max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::tasks::Task;
    use super::*;

    /// Tasks of `(pairs, level)`; pair `k` of task `t` is `t << 16 | k`.
    fn tasks(shape: &[(usize, u32)]) -> Tasks {
        let mut all = Tasks::default();
        for (number, &(pairs, level)) in shape.iter().enumerate() {
            let first = all.pairs.len();
            all.pairs.extend((0..pairs).map(|k| (number << 16 | k) as u32));
            let (place, pairs) = (number as u32, first..all.pairs.len());
            all.tasks.push(Task { place, factor: NONE, pairs, level });
        }
        all
    }

    /// Reads the words back as the kernel does: for each warp the tasks that it finishes, with
    /// their pairs lane by lane, and a `None` for each barrier.
    fn read(words: &[u32], start: u32, padding: u32) -> Vec<Option<(u32, Vec<u32>)>> {
        let (mut at, mut events) = (start as usize, Vec::new());
        loop {
            let control = words[at + 1];
            let width = control as usize & MOST_WIDTH;
            let pairs = at + 2 * LANES;
            for lane in 0..LANES {
                let (task, own) = (words[at + 2 * lane], words[at + 2 * lane + 1]);
                assert_eq!(own & !(7 << OWN_PARTS_SHIFT), control & !(7 << OWN_PARTS_SHIFT));
                let parts = 1 << (own >> OWN_PARTS_SHIFT & 7);
                assert!(own >> OWN_PARTS_SHIFT & 7 <= control >> MOST_PARTS_SHIFT & 7);
                if task == NONE {
                    continue;
                }
                assert_eq!(lane % parts, 0);
                let steps = (0..width).flat_map(|step| {
                    (0..parts).map(move |part| words[pairs + step * LANES + lane + part])
                });
                events.push(Some((task & NONE, steps.filter(|&pair| pair != padding).collect())));
            }
            let barriers = control >> BARRIERS_SHIFT & MOST_BARRIERS;
            events.extend((0..barriers).map(|_| None));
            if control & LAST != 0 {
                return events;
            }
            at = pairs + width * LANES;
            let next = words[at + 1] as usize & MOST_WIDTH;
            assert_eq!(
                (control >> NEXT_WIDTH_SHIFT) as usize & MOST_NEXT_WIDTH,
                next.min(MOST_NEXT_WIDTH)
            );
        }
    }

    #[test]
    fn every_task_is_done_once_with_all_its_pairs_in_its_level() {
        let shape: Vec<(usize, u32)> =
            (0..500).map(|task| (task * 7919 % 97 * (task % 5), task as u32 / 3 % 70)).collect();
        let tasks = tasks(&shape);
        for warps in [1, 2, 4, 16] {
            let streams = Streams::new(&tasks, warps);
            let (mut words, mut starts) = (vec![77; 5], Vec::new());

            streams.append(u32::MAX, &mut words, &mut starts);

            assert_eq!((streams.levels.len(), starts.len()), (70, warps));
            let mut seen = vec![0; shape.len()];
            for start in starts {
                let mut level = 0;
                for event in read(&words, start, u32::MAX) {
                    let Some((task, pairs)) = event else {
                        level += 1;
                        continue;
                    };
                    let task = task as usize;
                    seen[task] += 1;
                    assert_eq!(shape[task].1, level);
                    assert_eq!(pairs, tasks.pairs[tasks.tasks[task].pairs.clone()]);
                }
                assert_eq!(level, 70, "all warps meet at the same barriers");
            }
            assert!(seen.iter().all(|&times| times == 1));
        }
    }

    #[test]
    fn nothing_to_do_is_one_empty_slice() {
        let tasks = Tasks::default();
        let (mut words, mut starts) = (Vec::new(), Vec::new());

        Streams::new(&tasks, 1).append(0, &mut words, &mut starts);

        assert_eq!((words.len(), starts), (2 * LANES, vec![0]));
        assert!(read(&words, 0, 0).is_empty());
    }

    #[test]
    fn a_single_long_sum_is_cut_for_all_lanes() {
        let tasks = tasks(&[(640, 0)]);

        let streams = Streams::new(&tasks, 2);

        assert_eq!(streams.levels[0].iter().flatten().map(|slice| slice.width).sum::<usize>(), 20);
        let places: usize =
            streams.levels.iter().flatten().flatten().map(|slice| slice.width * LANES).sum();
        assert_eq!(places, tasks.pairs.len());
    }
}
