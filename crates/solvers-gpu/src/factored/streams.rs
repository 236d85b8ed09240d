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
    /// Cycles for which shared memory is busy with the values of a system: `BUSY_STEP` for those of
    /// a step, one more for every `BUSY_PRODUCTS` products (random bank conflicts), `BUSY_SLICE`
    /// for those of a slice.
    pub(super) const BUSY_STEP: u64 = 3;
    pub(super) const BUSY_PRODUCTS: u64 = 6;
    pub(super) const BUSY_SLICE: u64 = 8;
}

const LANES: usize = 32;

/// The most warps of a group.
const MOST_WARPS: usize = 32;

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

/// The slices of each warp, level by level.
#[derive(Clone, Debug)]
pub(super) struct Streams<'a> {
    tasks: &'a Tasks,
    levels: Vec<Vec<Vec<LevelSlice>>>,
}

impl<'a> Streams<'a> {
    /// Distributes tasks over `warps` warps. A function of its arguments alone.
    pub(super) fn new(tasks: &'a Tasks, warps: usize) -> Self {
        let mut levels = Vec::new();
        for level in by_level(tasks) {
            let plans = lengths(tasks, &level).iter().map(|&length| {
                let slices = slices(tasks, &level, length);
                (assign(&slices, warps, |_, _| ()) + busy(&slices), slices)
            });
            if let Some((_, slices)) = plans.min_by_key(|plan| plan.0) {
                let mut places = Vec::with_capacity(slices.len());
                assign(&slices, warps, |_, warp| places.push(warp));
                let mut assigned = vec![Vec::new(); warps];
                slices.into_iter().zip(places).for_each(|(slice, warp)| assigned[warp].push(slice));
                levels.push(assigned);
            }
        }
        Self { tasks, levels }
    }

    /// The latency of the streams for each of some numbers of warps.
    pub(super) fn latencies(tasks: &Tasks, warps: &[usize]) -> Vec<u64> {
        let mut all = vec![0; warps.len()];
        let mut best = vec![(u64::MAX, 0); warps.len()];
        for level in by_level(tasks) {
            best.fill((u64::MAX, 0));
            for &length in lengths(tasks, &level) {
                let slices = slices(tasks, &level, length);
                let busy = busy(&slices);
                for (best, &warps) in best.iter_mut().zip(warps) {
                    let latency = assign(&slices, warps, |_, _| ());
                    if latency + busy < best.0 {
                        *best = (latency + busy, latency);
                    }
                }
            }
            for ((all, best), &warps) in all.iter_mut().zip(&best).zip(warps) {
                *all += best.1 + barrier(warps);
            }
        }
        all
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

/// The numbers of the tasks of each level.
fn by_level(tasks: &Tasks) -> Vec<Vec<usize>> {
    let nlevels = tasks.tasks.iter().map(|task| task.level as usize + 1).max().unwrap_or(0);
    let mut by_level: Vec<Vec<usize>> = vec![Vec::new(); nlevels];
    for (number, task) in tasks.tasks.iter().enumerate() {
        by_level[task.level as usize].push(number);
    }
    by_level
}

/// The limits of the products per lane that are tried for a level: those beyond the first that covers
/// its longest task change nothing.
fn lengths(tasks: &Tasks, level: &[usize]) -> &'static [usize] {
    let longest = level.iter().map(|&task| tasks.tasks[task].pairs.len()).max().unwrap_or(0);
    let enough = LENGTHS.partition_point(|&length| length < longest) + 1;
    &LENGTHS[..enough.min(LENGTHS.len())]
}

/// Cycles of the barrier behind a level.
fn barrier(warps: usize) -> u64 {
    if warps == 1 { cycles::WARP_BARRIER } else { cycles::BLOCK_BARRIER }
}

/// Cuts the tasks of a level into slices of at most `length` pairs per lane, or of more where a
/// whole warp shares one sum. The longest slice comes first.
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
    slices.sort_by_key(|slice| std::cmp::Reverse(slice.latency));
    slices
}

/// What the time in which slices keep shared memory busy counts for, beside their latency.
fn busy(slices: &[LevelSlice]) -> u64 {
    slices.iter().map(|slice| slice.busy).sum::<u64>() / 4
}

/// Gives each slice to the warp with the least load; returns the largest load. Calls
/// `of(slice, warp)` for each.
fn assign(slices: &[LevelSlice], warps: usize, mut of: impl FnMut(usize, usize)) -> u64 {
    let mut loads = [0; MOST_WARPS];
    let loads = &mut loads[..warps];
    for (number, slice) in slices.iter().enumerate() {
        let first = (0..warps).min_by_key(|&warp| loads[warp]).unwrap_or(0);
        loads[first] += slice.latency;
        of(number, first);
    }
    loads.iter().copied().max().unwrap_or(0)
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
