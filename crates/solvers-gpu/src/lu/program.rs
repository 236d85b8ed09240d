//! Assignment of sums of products to the warps of a block, step by step.

use std::collections::BinaryHeap;

use super::banks::Names;
use super::graph::{Graph, NONE, Sum};

/// Bits and sizes of a record: see `programs.cuh`.
const PAIRS: usize = 6;
const WORDS: usize = 8;
const STARTS: u32 = 1 << 2;
const ENDS: u32 = 1 << 3;
const DIVIDES: u32 = 1 << 4;
const IS_LAST: u32 = 1 << 5;
const BARRIERS_SHIFT: u32 = 8;

/// Records that are prefetched beyond the last one.
const AHEAD: usize = 5;

/// Rough cycles of a multiprocessor, by which programs are compared.
mod cycles {
    /// A record without products: reading its target, the waits for it, and overhead.
    pub(super) const RECORD: u64 = 300;
    pub(super) const PRODUCT: u64 = 25;
    pub(super) const DIVISION: u64 = 120;
    pub(super) const BARRIER: u64 = 60;
    /// Cycles for which a record and a product keep the multiprocessor busy.
    pub(super) const BUSY_RECORD: u64 = 25;
    pub(super) const BUSY_PRODUCT: u64 = 8;
    /// Bytes of records per cycle.
    pub(super) const RECORD_BYTES: u64 = 64;
}

/// The threads of a block: its warps, and the targets that each warp works on at a time (`slots`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Workers {
    pub(super) warps: usize,
    pub(super) slots: usize,
}

/// A part of a target's sum.
#[derive(Clone, Debug)]
struct Piece {
    place: u32,
    divisor: u32,
    pairs: Vec<(u32, u32)>,
}

/// The work of a warp at a time: a piece for each slot, and the barriers after it.
#[derive(Clone, Debug)]
struct WarpSlice {
    pieces: Vec<Piece>,
    control: u32,
    barriers: u32,
}

impl WarpSlice {
    fn new(pieces: Vec<Piece>, mut control: u32) -> Self {
        if pieces.iter().any(|piece| piece.divisor != NONE) {
            control |= DIVIDES;
        }
        Self { pieces, control, barriers: 0 }
    }

    fn width(&self) -> usize {
        self.pieces.iter().map(|piece| piece.pairs.len()).max().unwrap_or(0)
    }

    fn cycles(&self) -> u64 {
        let division = if self.control & DIVIDES == 0 { 0 } else { cycles::DIVISION };
        cycles::RECORD + self.width() as u64 * cycles::PRODUCT + division
    }
}

/// The slices of each warp.
#[derive(Clone, Debug)]
pub(super) struct BlockProgram {
    warps: Vec<Vec<WarpSlice>>,
    slots: usize,
    /// Number of barriers of the block.
    pub(super) steps: usize,
    /// Estimated cycles from the first record to the last.
    pub(super) latency: u64,
    /// Estimated cycles for which it keeps the multiprocessor busy.
    pub(super) busy: u64,
}

/// A target that has work. The candidate with the longest chain of dependent targets comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    urgency: u64,
    target: std::cmp::Reverse<u32>,
}

/// The state of a target during the assignment of work.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Number of products already assigned; `known`: number of those whose operands are complete.
    done: usize,
    known: usize,
    complete: bool,
    /// Whether it is among the candidates.
    listed: bool,
}

struct Lists<'a> {
    graph: &'a Graph,
    states: Vec<State>,
    /// The targets that read the value of each target.
    consumers: Vec<Vec<u32>>,
    urgency: Vec<u64>,
    candidates: BinaryHeap<Candidate>,
}

impl<'a> Lists<'a> {
    fn new(graph: &'a Graph) -> Self {
        let count = graph.targets.len();
        let mut lists = Self {
            graph,
            states: vec![State::default(); count],
            consumers: vec![Vec::new(); count],
            urgency: vec![0; count],
            candidates: BinaryHeap::new(),
        };
        for (number, target) in graph.targets.iter().enumerate() {
            let products = graph.products[target.products.clone()].iter();
            let makers = products.flat_map(|product| product.makers).chain([target.divisor_maker]);
            for maker in makers.filter(|&maker| maker != NONE) {
                lists.consumers[maker as usize].push(number as u32);
            }
        }
        for consumers in &mut lists.consumers {
            consumers.dedup();
        }
        for number in (0..count).rev() {
            let after = lists.consumers[number].iter();
            let most = after.map(|&other| lists.urgency[other as usize]).max().unwrap_or(0);
            let target = &graph.targets[number];
            let division = if target.divisor == NONE { 0 } else { cycles::DIVISION };
            let step = cycles::RECORD + cycles::PRODUCT + cycles::BARRIER;
            lists.urgency[number] = most + step + division;
        }
        for number in 0..count as u32 {
            lists.look(number);
        }
        lists
    }

    fn is_complete(&self, target: u32) -> bool {
        target == NONE || self.states[target as usize].complete
    }

    /// Adds a target to the candidates if a full piece of it, or its last one, can be computed.
    fn look(&mut self, number: u32) {
        let target = &self.graph.targets[number as usize];
        let mut state = self.states[number as usize];
        if state.complete || state.listed {
            return;
        }
        let products = &self.graph.products[target.products.clone()];
        while state.known < products.len()
            && products[state.known].makers.iter().all(|&maker| self.is_complete(maker))
        {
            state.known += 1;
        }
        let left = state.known - state.done;
        let is_last = state.known == products.len()
            && left <= PAIRS
            && self.is_complete(target.divisor_maker);
        if is_last || left >= PAIRS {
            state.listed = true;
            let urgency = self.urgency[number as usize];
            self.candidates.push(Candidate { urgency, target: std::cmp::Reverse(number) });
        }
        self.states[number as usize] = state;
    }

    /// The next piece of a candidate, and whether it is its last.
    fn piece(&mut self, number: u32) -> (Piece, bool) {
        let target = &self.graph.targets[number as usize];
        let products = &self.graph.products[target.products.clone()];
        let state = &mut self.states[number as usize];
        state.listed = false;
        let first = state.done;
        state.done = state.known.min(first + PAIRS);
        let (done, known) = (state.done, state.known);
        let is_last = done == products.len() && self.is_complete(target.divisor_maker);
        let own = &products[first..done];
        debug_assert!(done <= known);
        let piece = Piece {
            place: target.place,
            divisor: if is_last { target.divisor } else { NONE },
            pairs: own.iter().map(|product| (product.left, product.right)).collect(),
        };
        (piece, is_last)
    }

    fn complete(&mut self, number: u32) {
        self.states[number as usize].complete = true;
        for other in std::mem::take(&mut self.consumers[number as usize]) {
            self.look(other);
        }
    }
}

impl BlockProgram {
    /// The program of an elimination by list scheduling: the most urgent work first. Within a step
    /// nothing depends on anything else.
    pub(super) fn elimination(graph: &Graph, workers: Workers) -> Self {
        let mut lists = Lists::new(graph);
        let mut program = Self::empty(workers);
        let at_once = workers.warps * workers.slots;
        while !lists.candidates.is_empty() {
            let rounds = (lists.candidates.len() / at_once).clamp(1, 3);
            let mut chosen = Vec::new();
            while chosen.len() < rounds * at_once {
                let Some(Candidate { target, .. }) = lists.candidates.pop() else { break };
                let (piece, is_last) = lists.piece(target.0);
                chosen.push((piece, target.0, is_last));
            }
            // The slots of a warp get pieces of about equal work.
            chosen.sort_by_key(|(piece, number, _)| {
                (std::cmp::Reverse((piece.divisor != NONE, piece.pairs.len())), *number)
            });
            let mut spent = vec![0; workers.warps];
            let mut pieces = Vec::new();
            for (position, (piece, _, _)) in chosen.iter().enumerate() {
                pieces.push(piece.clone());
                if pieces.len() == workers.slots || position + 1 == chosen.len() {
                    let slice = WarpSlice::new(std::mem::take(&mut pieces), STARTS | ENDS);
                    program.give(slice, &mut spent);
                }
            }
            program.latency += spent.into_iter().max().unwrap_or(0) + cycles::BARRIER;
            program.barrier();
            for (_, number, is_last) in chosen {
                if is_last {
                    lists.complete(number);
                } else {
                    lists.look(number);
                }
            }
        }
        debug_assert!(lists.states.iter().all(|state| state.complete));
        program
    }

    /// The program of `steps` of sums, each of which depends on the steps before. One slot computes
    /// a sum.
    pub(super) fn product(steps: &[Vec<Sum>], workers: Workers) -> Self {
        let mut program = Self::empty(workers);
        for (number, sums) in steps.iter().filter(|sums| !sums.is_empty()).enumerate() {
            if number > 0 {
                program.latency += cycles::BARRIER;
                program.barrier();
            }
            let mut order: Vec<&Sum> = sums.iter().collect();
            order.sort_by_key(|sum| std::cmp::Reverse(sum.pairs.len()));
            let mut spent = vec![0; workers.warps];
            for some in order.chunks(workers.slots) {
                let records = some[0].pairs.len().div_ceil(PAIRS).max(1);
                let warp = program.least(&spent);
                for record in 0..records {
                    let part = |sum: &&Sum| {
                        let pairs = sum.pairs.iter().skip(record * PAIRS).take(PAIRS);
                        Piece { place: sum.place, divisor: NONE, pairs: pairs.copied().collect() }
                    };
                    let starts = if record == 0 { STARTS } else { 0 };
                    let ends = if record + 1 == records { ENDS } else { 0 };
                    let slice = WarpSlice::new(some.iter().map(part).collect(), starts | ends);
                    program.give_to(warp, slice, &mut spent);
                }
            }
            program.latency += spent.into_iter().max().unwrap_or(0);
        }
        program
    }

    fn empty(workers: Workers) -> Self {
        let warps = vec![Vec::new(); workers.warps];
        Self { warps, slots: workers.slots, steps: 0, latency: 0, busy: 0 }
    }

    /// The warp with the least work so far.
    fn least(&self, spent: &[u64]) -> usize {
        (0..spent.len()).min_by_key(|&warp| spent[warp]).unwrap_or(0)
    }

    fn give(&mut self, slice: WarpSlice, spent: &mut [u64]) {
        let warp = self.least(spent);
        self.give_to(warp, slice, spent);
    }

    fn give_to(&mut self, warp: usize, slice: WarpSlice, spent: &mut [u64]) {
        spent[warp] += slice.cycles();
        self.busy += cycles::BUSY_RECORD
            + slice.width() as u64 * cycles::BUSY_PRODUCT
            + (self.slots * WORDS * 4) as u64 / cycles::RECORD_BYTES;
        self.warps[warp].push(slice);
    }

    fn barrier(&mut self) {
        self.steps += 1;
        for warp in &mut self.warps {
            if warp.is_empty() {
                warp.push(WarpSlice::new(Vec::new(), 0));
            }
            if let Some(last) = warp.last_mut() {
                last.barriers += 1;
            }
        }
    }

    /// Number of pairs of places, and number of padding pairs, which fill slots up to the longest
    /// one of their warp.
    pub(super) fn pairs_and_padding(&self) -> (usize, usize) {
        let slices = self.warps.iter().flatten();
        let (pairs, all) = slices.fold((0, 0), |(pairs, all), slice| {
            let own: usize = slice.pieces.iter().map(|piece| piece.pairs.len()).sum();
            (pairs + own, all + slice.width() * self.slots)
        });
        (pairs, all - pairs)
    }

    /// The places that the slots of a warp read together, one per slot; [`NONE`] for the 0.
    pub(super) fn reads(&self) -> Vec<Vec<u32>> {
        let mut reads = Vec::new();
        for slice in self.warps.iter().flatten() {
            let mut read = |of: &dyn Fn(&Piece) -> u32| {
                let of_slot = |slot: usize| slice.pieces.get(slot).map_or(NONE, of);
                reads.push((0..self.slots).map(of_slot).collect::<Vec<u32>>());
            };
            // The target is read and written.
            read(&|piece| piece.place);
            read(&|piece| piece.place);
            if slice.control & DIVIDES != 0 {
                read(&|piece| piece.divisor);
            }
            for k in 0..slice.width().next_multiple_of(2).max(2) {
                read(&|piece| piece.pairs.get(k).map_or(NONE, |pair| pair.0));
                read(&|piece| piece.pairs.get(k).map_or(NONE, |pair| pair.1));
            }
        }
        reads
    }

    /// Appends the records of a system in a block of `count` to `words`, and where those of each
    /// warp begin to `starts`.
    pub(super) fn append(
        &self,
        count: u32,
        names: &Names,
        words: &mut Vec<u32>,
        starts: &mut Vec<u32>,
    ) {
        let at = |place: u32| names.of(place) * count;
        let zero = names.zero() * count;
        for warp in &self.warps {
            starts.push(words.len() as u32);
            let nothing = [WarpSlice::new(Vec::new(), 0)];
            let slices = if warp.is_empty() { &nothing[..] } else { warp };
            for (number, slice) in slices.iter().enumerate() {
                let twos = slice.width().div_ceil(2) as u32;
                let is_last = if number + 1 == slices.len() { IS_LAST } else { 0 };
                let control = twos | slice.control | is_last | slice.barriers << BARRIERS_SHIFT;
                for slot in 0..self.slots {
                    let piece = slice.pieces.get(slot);
                    let place = |place: u32| if place == NONE { zero } else { at(place) };
                    words.push(match piece {
                        Some(piece) => place(piece.place) | place(piece.divisor) << 16,
                        None => zero | zero << 16,
                    });
                    words.push(control);
                    words.extend((0..PAIRS).map(
                        |k| match piece.and_then(|piece| piece.pairs.get(k)) {
                            Some(&(left, right)) => at(left) | at(right) << 16,
                            None => zero | zero << 16,
                        },
                    ));
                }
            }
            words.extend(std::iter::repeat_n(0, AHEAD * self.slots * WORDS));
        }
    }
}
