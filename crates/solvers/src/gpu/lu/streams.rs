//! Tasks in the order in which the warps of a group work on them.

use super::tasks::{NONE, Tasks};

/// Cycles of a multiprocessor, roughly, by which schedules are compared.
mod cycles {
    /// A slice without products: its words, the result's old value, its factor.
    pub(super) const SLICE: u64 = 90;
    /// A product of each lane, as a dependent chain.
    pub(super) const PRODUCT: u64 = 16;
    /// Adding the parts of a sum once.
    pub(super) const ADD_PARTS: u64 = 35;
    /// An inverse.
    pub(super) const INVERSE: u64 = 100;
    /// A barrier of a warp, and of a block.
    pub(super) const WARP_BARRIER: u64 = 20;
    pub(super) const BLOCK_BARRIER: u64 = 50;
    /// Shared memory that is busy with the words of a step, and with a step's or a slice's values of
    /// one system, whose banks are met by chance.
    pub(super) const BUSY_WORDS: u64 = 2;
    pub(super) const BUSY_VALUES: u64 = 8;
}

const LANES: usize = 32;

/// Bits of a slice's second word: see `factor.cuh`.
const OWN_PARTS_SHIFT: u32 = 16;
const MOST_PARTS_SHIFT: u32 = 19;
const BARRIERS_SHIFT: u32 = 22;
const MOST_BARRIERS: u32 = 511;
const LAST: u32 = 1 << 31;

/// The most products of a lane in a slice.
const MOST_WIDTH: usize = 0xffff;

/// Lengths that the part of a lane is made to have at most.
const LENGTHS: [usize; 18] =
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 4096, MOST_WIDTH];

/// Tasks of one level that the lanes of a warp do side by side. A sum may be cut into parts, a power
/// of two, on so many lanes in a row.
#[derive(Clone, Debug, Default)]
struct Slice {
    /// Tasks, each with the binary logarithm of its parts, those of many parts first.
    tasks: Vec<(usize, u32)>,
    width: usize,
    cost: u64,
}

/// What a stream costs by the estimate, in cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// From the first task to the last.
    pub(super) latency: u64,
    /// Of shared memory, which groups of a multiprocessor have in common: with words, and with the
    /// values of one system.
    pub(super) busy_words: u64,
    pub(super) busy_values: u64,
}

/// The slices of each warp, level by level.
#[derive(Clone, Debug)]
pub(super) struct Streams<'a> {
    tasks: &'a Tasks,
    levels: Vec<Vec<Vec<Slice>>>,
    pub(super) cost: Cost,
}

impl<'a> Streams<'a> {
    /// Gives tasks to `warps` warps. A function of its arguments alone.
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
            // Parts no longer than the next length change nothing.
            let enough = LENGTHS.partition_point(|&length| length < longest) + 1;
            let lengths = &LENGTHS[..enough.min(LENGTHS.len())];
            let plans = lengths.iter().map(|&length| {
                let slices = slices(tasks, &level, length);
                let steps = slices.iter().map(|slice| slice.width as u64 + 2).sum::<u64>();
                let (assigned, latency) = assign(slices, warps);
                (latency + steps * cycles::BUSY_VALUES / 4, latency, steps, assigned)
            });
            if let Some((_, latency, steps, assigned)) = plans.min_by_key(|plan| plan.0) {
                cost.latency += latency + barrier;
                cost.busy_words += steps * cycles::BUSY_WORDS;
                cost.busy_values += steps * cycles::BUSY_VALUES;
                levels.push(assigned);
            }
        }
        Self { tasks, levels, cost }
    }

    /// Levels, each of which ends with a barrier.
    pub(super) fn nlevels(&self) -> usize {
        self.levels.len()
    }

    /// Places for pairs beyond those that there are.
    pub(super) fn padding(&self) -> usize {
        let slices = self.levels.iter().flatten().flatten();
        slices.map(|slice| slice.width * LANES).sum::<usize>() - self.tasks.pairs.len()
    }

    /// Appends the words of each warp, one warp after the other, and where each begins.
    ///
    /// A slice is, for each lane, its task and a word that says how to go on, then for each step a
    /// pair for each lane; `padding` is the pair of lanes that have none left.
    pub(super) fn append(&self, padding: u32, words: &mut Vec<u32>, starts: &mut Vec<u32>) {
        let warps = self.levels.first().map_or(1, Vec::len);
        for warp in 0..warps {
            starts.push(words.len() as u32);
            let mut last = None;
            for level in &self.levels {
                for slice in &level[warp] {
                    last = Some(self.push(slice, padding, words));
                }
                last = Some(match last {
                    Some(head) if barriers(words[head + 1]) < MOST_BARRIERS => head,
                    _ => self.push(&Slice::default(), padding, words),
                });
                each_lane(words, last, |word| word + (1 << BARRIERS_SHIFT));
            }
            let last = last.unwrap_or_else(|| self.push(&Slice::default(), padding, words));
            each_lane(words, Some(last), |word| word | LAST);
        }
    }

    fn push(&self, slice: &Slice, padding: u32, words: &mut Vec<u32>) -> usize {
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
                    // The first lane finishes the task.
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

fn each_lane(words: &mut [u32], head: Option<usize>, change: impl Fn(u32) -> u32) {
    if let Some(head) = head {
        for word in words[head..head + 2 * LANES].iter_mut().skip(1).step_by(2) {
            *word = change(*word);
        }
    }
}

/// Cuts the tasks of a level into slices whose lanes have at most `length` pairs each, or as many as
/// there must be with a whole warp on one sum.
fn slices(tasks: &Tasks, level: &[usize], length: usize) -> Vec<Slice> {
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
    let mut slices: Vec<Slice> = Vec::new();
    let mut free = 0;
    for (task, parts) in sorted {
        // Powers of two in descending order leave no gaps.
        if free == 0 {
            slices.push(Slice::default());
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
        slice.cost = cycles::SLICE
            + cycles::PRODUCT * slice.width as u64
            + cycles::ADD_PARTS * u64::from(most)
            + if inverts { cycles::INVERSE } else { 0 };
    }
    slices
}

/// Gives slices to the warp that is done first, long ones first; the second is when the last is done.
fn assign(mut slices: Vec<Slice>, warps: usize) -> (Vec<Vec<Slice>>, u64) {
    slices.sort_by_key(|slice| std::cmp::Reverse(slice.cost));
    let mut assigned = vec![Vec::new(); warps];
    let mut loads = vec![0; warps];
    for slice in slices {
        let first = (0..warps).min_by_key(|&warp| loads[warp]).unwrap_or(0);
        loads[first] += slice.cost;
        assigned[first].push(slice);
    }
    (assigned, loads.into_iter().max().unwrap_or(0))
}
