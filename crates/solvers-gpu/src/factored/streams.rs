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
const NEXT_LANES_SHIFT: u32 = 22;
const BARRIERS_SHIFT: u32 = 27;
const MOST_BARRIERS: u32 = 15;
const LAST: u32 = 1 << 31;

/// The most products per lane in a slice.
const MOST_WIDTH: usize = 0xffff;

/// Products of a lane in a step.
const PRODUCTS: usize = 2;

/// Words that kernels read behind a slice: head, control word and two steps of each lane.
pub(super) const PADDING_WORDS: usize = 6 * LANES;

/// The lanes that a slice has words for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceLanes {
    /// All of the warp.
    All,
    /// Those that it uses, up to a power of two: for plans of several patterns, whose streams may
    /// each be read by one system alone, from device memory.
    Used,
}

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
    lanes: SliceLanes,
}

impl<'a> Streams<'a> {
    /// Distributes tasks over `warps` warps. A function of its arguments alone.
    pub(super) fn new(tasks: &'a Tasks, warps: usize, lanes: SliceLanes) -> Self {
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
        Self { tasks, levels, lanes }
    }

    /// The latency of the streams for each of some numbers of warps.
    pub(super) fn latencies(tasks: &Tasks, warps: &[usize]) -> Vec<u64> {
        let mut all = vec![0; warps.len()];
        // Of the best slices: latency with busy time, latency, and whether one warp does all.
        let mut best = vec![(u64::MAX, 0, false); warps.len()];
        let mut was_alone = vec![false; warps.len()];
        for level in by_level(tasks) {
            best.fill((u64::MAX, 0, false));
            for &length in lengths(tasks, &level) {
                let slices = slices(tasks, &level, length);
                let busy = busy(&slices);
                for (best, &warps) in best.iter_mut().zip(warps) {
                    let latency = assign(&slices, warps, |_, _| ());
                    if latency + busy < best.0 {
                        *best = (latency + busy, latency, warps == 1 || slices.len() == 1);
                    }
                }
            }
            for (((all, best), was_alone), &warps) in
                all.iter_mut().zip(&best).zip(&mut was_alone).zip(warps)
            {
                *all += best.1
                    + if best.2 && *was_alone { cycles::WARP_BARRIER } else { barrier(warps) };
                *was_alone = best.2;
            }
        }
        all
    }

    /// Appends the words of each warp, one warp after the other, and their offsets.
    ///
    /// A slice is a task and a control word for each of its lanes, then for each step two pairs of
    /// each; `padding` is the pair of lanes that have none left. A barrier of the group ends a
    /// level, unless one warp alone does this level and the next one.
    pub(super) fn append(&self, padding: u32, words: &mut Vec<u32>, starts: &mut Vec<u32>) {
        let warps = self.levels.first().map_or(1, Vec::len);
        let alone: Vec<Option<usize>> = self.levels.iter().map(|level| only_warp(level)).collect();
        let has_barrier = |level: usize| {
            alone[level].is_none() || alone.get(level + 1).is_none_or(|next| *next != alone[level])
        };
        for warp in 0..warps {
            starts.push(words.len() as u32);
            let mut last: Option<Pushed> = None;
            for (number, level) in self.levels.iter().enumerate() {
                for slice in &level[warp] {
                    last = Some(self.push(slice, last, padding, words));
                }
                if !has_barrier(number) {
                    continue;
                }
                let has_room = |last: &Pushed| barriers(words[last.head + 1]) < MOST_BARRIERS;
                let own = match last.filter(has_room) {
                    Some(own) => own,
                    None => self.push(&LevelSlice::default(), last, padding, words),
                };
                own.change(words, |word| word + (1 << BARRIERS_SHIFT));
                last = Some(own);
            }
            let last =
                last.unwrap_or_else(|| self.push(&LevelSlice::default(), None, padding, words));
            last.change(words, |word| word | LAST);
        }
    }

    /// Appends a slice behind the one before, if there is one in its stream.
    fn push(
        &self,
        slice: &LevelSlice,
        before: Option<Pushed>,
        padding: u32,
        words: &mut Vec<u32>,
    ) -> Pushed {
        let head = words.len();
        let most = slice.tasks.first().map_or(0, |&(_, parts)| parts);
        let mut of_lanes = [None; LANES];
        let mut used = 0;
        for &(task, parts) in &slice.tasks {
            for part in 0..1usize << parts {
                of_lanes[used] = Some((&self.tasks.tasks[task], parts, part));
                used += 1;
            }
        }
        // Kernels take the number of lanes from the slice before.
        let lanes = match (self.lanes, before) {
            (SliceLanes::Used, Some(before)) => {
                let lanes = used.max(1).next_power_of_two();
                before.change(words, |word| word | (lanes as u32 - 1) << NEXT_LANES_SHIFT);
                lanes
            }
            _ => LANES,
        };
        let of_lanes = &of_lanes[..lanes];
        let steps = slice.width.div_ceil(PRODUCTS);
        words.reserve(2 * lanes * (1 + steps));
        for lane in of_lanes {
            let (own, parts) = match lane {
                // The first lane of a task finishes it.
                &Some((task, parts, 0)) => (task.place | task.factor << 16, parts),
                &Some((_, parts, _)) => (NONE, parts),
                None => (NONE, 0),
            };
            words.push(own);
            words.push(steps as u32 | parts << OWN_PARTS_SHIFT | most << MOST_PARTS_SHIFT);
        }
        for step in 0..steps {
            for lane in of_lanes {
                for product in [PRODUCTS * step, PRODUCTS * step + 1] {
                    let pair = lane.and_then(|(task, parts, part)| {
                        let pairs = &self.tasks.pairs[task.pairs.clone()];
                        pairs.get((product << parts) + part)
                    });
                    words.push(pair.copied().unwrap_or(padding));
                }
            }
        }
        Pushed { head, lanes }
    }
}

/// Where a slice is among the words.
#[derive(Clone, Copy)]
struct Pushed {
    head: usize,
    lanes: usize,
}

impl Pushed {
    /// Changes the control word of every lane.
    fn change(self, words: &mut [u32], change: impl Fn(u32) -> u32) {
        for word in words[self.head..self.head + 2 * self.lanes].iter_mut().skip(1).step_by(2) {
            *word = change(*word);
        }
    }
}

/// The warp that does a level, if it is one alone.
fn only_warp(level: &[Vec<LevelSlice>]) -> Option<usize> {
    let mut busy = (0..level.len()).filter(|&warp| !level[warp].is_empty());
    busy.next().filter(|_| busy.next().is_none())
}

fn barriers(word: u32) -> u32 {
    word >> BARRIERS_SHIFT & MOST_BARRIERS
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

    /// Bits of a slice's number of steps.
    const STEPS: u32 = 0xffff;

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
    fn read(
        words: &[u32],
        (start, of_slices): (u32, SliceLanes),
        padding: u32,
    ) -> Vec<Option<(u32, Vec<u32>)>> {
        let (mut at, mut lanes, mut events) = (start as usize, LANES, Vec::new());
        loop {
            let control = words[at + 1];
            let steps = (control & STEPS) as usize;
            let pairs = at + 2 * lanes;
            for lane in 0..lanes {
                let (task, own) = (words[at + 2 * lane], words[at + 2 * lane + 1]);
                assert_eq!(own & !(7 << OWN_PARTS_SHIFT), control & !(7 << OWN_PARTS_SHIFT));
                let parts = 1 << (own >> OWN_PARTS_SHIFT & 7);
                assert!(own >> OWN_PARTS_SHIFT & 7 <= control >> MOST_PARTS_SHIFT & 7);
                if task == NONE {
                    continue;
                }
                assert_eq!(lane % parts, 0);
                let products = (0..steps * PRODUCTS).flat_map(|product| {
                    let (step, half) = (product / PRODUCTS, product % PRODUCTS);
                    let of = move |lane| pairs + (step * lanes + lane) * PRODUCTS + half;
                    (lane..lane + parts).map(move |lane| words[of(lane)])
                });
                let own = products.filter(|&pair| pair != padding).collect();
                events.push(Some((task & NONE, own)));
            }
            let barriers = control >> BARRIERS_SHIFT & MOST_BARRIERS;
            events.extend((0..barriers).map(|_| None));
            if control & LAST != 0 {
                return events;
            }
            at = pairs + PRODUCTS * steps * lanes;
            if of_slices == SliceLanes::Used {
                lanes = (control >> NEXT_LANES_SHIFT & 31) as usize + 1;
            }
        }
    }

    /// A task as a warp did it: after how many barriers, and as which of its events.
    #[derive(Clone, Copy, Debug)]
    struct Done {
        barriers: usize,
        warp: usize,
        event: usize,
    }

    #[test]
    fn every_task_is_done_once_with_all_its_pairs_and_after_those_of_lower_levels() {
        let shape: Vec<(usize, u32)> =
            (0..500).map(|task| (task * 7919 % 97 * (task % 5), task as u32 / 3 % 70)).collect();
        // Levels of a task or two in a row, which one warp does alone.
        let narrow: Vec<(usize, u32)> = (0..120).map(|task| (task % 7, task as u32 / 2)).collect();
        let kinds = [1, 2, 4, 16]
            .into_iter()
            .flat_map(|warps| [SliceLanes::All, SliceLanes::Used].map(|lanes| (warps, lanes)));
        for ((warps, lanes), shape) in kinds.flat_map(|kind| [(kind, &shape), (kind, &narrow)]) {
            let tasks = tasks(shape);
            let streams = Streams::new(&tasks, warps, lanes);
            let (mut words, mut starts) = (vec![77; 6], Vec::new());

            streams.append(u32::MAX, &mut words, &mut starts);

            assert_eq!(starts.len(), warps);
            let mut done = vec![None; shape.len()];
            let mut met = Vec::new();
            for (warp, start) in starts.into_iter().enumerate() {
                let mut barriers = 0;
                for (event, what) in read(&words, (start, lanes), u32::MAX).into_iter().enumerate()
                {
                    let Some((task, pairs)) = what else {
                        barriers += 1;
                        continue;
                    };
                    let task = task as usize;
                    assert_eq!(pairs, tasks.pairs[tasks.tasks[task].pairs.clone()]);
                    assert!(done[task].replace(Done { barriers, warp, event }).is_none());
                }
                met.push(barriers);
            }
            assert!(met.iter().all(|barriers| *barriers == met[0]), "warps meet: {met:?}");
            let done: Vec<Done> = done.into_iter().map(Option::unwrap).collect();
            let mut order: Vec<usize> = (0..shape.len()).collect();
            order.sort_by_key(|&task| shape[task].1);
            for (at, &before) in order.iter().enumerate() {
                let later = order[at..].iter().filter(|&&after| shape[after].1 > shape[before].1);
                for &after in later {
                    let (one, two) = (done[before], done[after]);
                    let in_order = one.warp == two.warp && one.event < two.event;
                    assert!(one.barriers < two.barriers || in_order, "{one:?}, {two:?}");
                }
            }
        }
    }

    #[test]
    fn levels_of_one_warp_need_no_barrier_but_the_last() {
        let tasks = tasks(&[(2, 0), (2, 1), (2, 2)]);
        let (mut words, mut starts) = (Vec::new(), Vec::new());

        Streams::new(&tasks, 4, SliceLanes::Used).append(u32::MAX, &mut words, &mut starts);

        for start in starts {
            let events = read(&words, (start, SliceLanes::Used), u32::MAX);
            assert_eq!(events.iter().filter(|event| event.is_none()).count(), 1);
        }
    }

    #[test]
    fn a_slice_has_words_for_the_lanes_that_it_uses() {
        // A chain of levels with one task each, of one step, between two full levels.
        let full = |level: u32| (0..32).map(move |_| (1, level));
        let shape: Vec<(usize, u32)> =
            full(0).chain((1..11).map(|level| (1, level))).chain(full(11)).collect();
        let (mut words, mut starts) = (Vec::new(), Vec::new());

        let tasks = tasks(&shape);
        for (lanes, all) in [(SliceLanes::All, 12 * LANES), (SliceLanes::Used, 2 * LANES + 10)] {
            words.clear();

            Streams::new(&tasks, 1, lanes).append(u32::MAX, &mut words, &mut starts);

            assert_eq!(words.len(), all * (2 + PRODUCTS));
        }
    }

    #[test]
    fn nothing_to_do_is_one_empty_slice() {
        let tasks = Tasks::default();
        let (mut words, mut starts) = (Vec::new(), Vec::new());

        Streams::new(&tasks, 1, SliceLanes::Used).append(0, &mut words, &mut starts);

        assert_eq!((words.len(), starts), (2 * LANES, vec![0]));
        assert!(read(&words, (0, SliceLanes::Used), 0).is_empty());
    }

    #[test]
    fn a_single_long_sum_is_cut_for_all_lanes() {
        let tasks = tasks(&[(640, 0)]);

        let streams = Streams::new(&tasks, 2, SliceLanes::All);

        assert_eq!(streams.levels[0].iter().flatten().map(|slice| slice.width).sum::<usize>(), 20);
        let places: usize =
            streams.levels.iter().flatten().flatten().map(|slice| slice.width * LANES).sum();
        assert_eq!(places, tasks.pairs.len());
    }
}
