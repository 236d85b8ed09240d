//! Backward substitution by a few lanes per system, in chunks: the tables that `lu.cu` reads.

use sparsebatch_solve_core::symbolic::FactorPattern;

use super::banks::{Names, classes};
use super::chunks::{BANKS, ChunkStep, MINUS_ONE, PlacedProduct, in_chunks};
use super::graph::Places;
use super::grid::LANES;

/// Chunks of a group: this many are prefetched while as many are processed.
pub(super) const CHUNKS: usize = 6;

/// Cycles of a chunk from its reads to its writes; `TURN_CYCLES`: for each turn in which shared
/// memory serves a warp; `FIRST_CYCLES`: for the reciprocals at the start.
const CYCLES: u64 = 75;
const TURN_CYCLES: u64 = 5;
const FIRST_CYCLES: u64 = 600;

/// Turns in which shared memory serves 32 lanes that access different banks of doubles.
const LEAST_TURNS: u64 = 2;

/// Products of rows of U with the solution, in the order in which they are subtracted. The order
/// depends on the pattern only, not on the number of lanes.
pub(super) struct Backward {
    steps: Vec<ChunkStep>,
    nrows: usize,
    /// Pairs: a number of lanes, and the number of chunks of so many lanes.
    chunks: Vec<(usize, u64)>,
}

/// How systems share a warp: `systems` side by side, with 32 / `systems` lanes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sharing {
    pub(super) systems: u32,
}

impl Sharing {
    /// Lanes of each system.
    pub(super) fn lanes(self) -> usize {
        (LANES / self.systems) as usize
    }

    /// Number of passes over all chunks for `systems` systems of a block.
    fn rounds(self, systems: u32, warps: usize) -> u64 {
        u64::from(systems.div_ceil(self.systems)).div_ceil(warps as u64)
    }
}

impl Backward {
    /// The products of a filled pattern.
    pub(super) fn new(pattern: &FactorPattern) -> Self {
        let n = pattern.nrows() as u32;
        let upper = |row: u32| {
            let entries = pattern.upper(row as usize).rev();
            entries.map(move |k| PlacedProduct {
                target: row,
                source: pattern.cols()[k],
                place: k as u16,
            })
        };
        let nothing = |row: u32| PlacedProduct { target: row, source: n, place: MINUS_ONE };
        let of_row = |row: u32| {
            let first = Some(nothing(row)).filter(|_| upper(row).len() == 0);
            first.into_iter().chain(upper(row))
        };
        let products: Vec<PlacedProduct> = (0..n).rev().flat_map(of_row).collect();
        let steps = in_chunks(&products, LANES as usize).into_iter().flatten().flatten().collect();
        Self::packing(steps, n as usize)
    }

    fn packing(steps: Vec<ChunkStep>, nrows: usize) -> Self {
        let mut backward = Self { steps, nrows, chunks: Vec::new() };
        let mut all: Vec<usize> = (1..=LANES).map(|systems| Sharing { systems }.lanes()).collect();
        all.dedup();
        let count = |lanes: usize| (lanes, backward.packed(lanes).len() as u64);
        backward.chunks = all.into_iter().map(count).collect();
        backward
    }

    fn chunks(&self, lanes: usize) -> u64 {
        self.chunks.iter().find(|(other, _)| *other == lanes).map_or(0, |(_, count)| *count)
    }

    /// Number of products.
    pub(super) fn products(&self) -> usize {
        self.steps.len()
    }

    /// Packs the products into chunks of `lanes` lanes. Each product goes to the first chunk with
    /// room after its source is complete and the earlier products of its target are subtracted.
    fn packed(&self, lanes: usize) -> Vec<Vec<ChunkStep>> {
        let mut chunks: Vec<Vec<ChunkStep>> = Vec::new();
        // The first chunk after the last product so far of each row.
        let mut free = vec![0; self.nrows + 1];
        // All chunks before this one are full.
        let mut first = 0;
        for step in &self.steps {
            let PlacedProduct { target, source, .. } = step.product;
            let mut at = first.max(free[target as usize]).max(free[source as usize]);
            while chunks.get(at).is_some_and(|chunk| chunk.len() >= lanes) {
                at += 1;
            }
            if at == chunks.len() {
                chunks.push(Vec::new());
            }
            chunks[at].push(*step);
            free[target as usize] = at + 1;
            while chunks.get(first).is_some_and(|chunk| chunk.len() >= lanes) {
                first += 1;
            }
        }
        chunks
    }

    /// Estimated cycles for `systems` systems of a block, and how they share a warp.
    pub(super) fn latency(&self, systems: u32, warps: usize) -> (u64, Sharing) {
        let cycles = |sharing: Sharing| {
            let chunks = self.chunks(sharing.lanes());
            chunks
                * (CYCLES + TURN_CYCLES * turns(sharing, systems))
                * sharing.rounds(systems, warps)
        };
        let all = (1..=systems).map(|systems| Sharing { systems });
        let best = all.map(|sharing| (cycles(sharing), sharing)).min_by_key(|(cycles, _)| *cycles);
        let (cycles, sharing) = best.unwrap_or((0, Sharing { systems: 1 }));
        (cycles + FIRST_CYCLES, sharing)
    }

    /// Estimated cycles for which they keep a multiprocessor busy.
    pub(super) fn busy(&self, systems: u32, sharing: Sharing) -> u64 {
        let chunks = self.chunks(sharing.lanes());
        chunks * TURN_CYCLES * turns(sharing, systems) * sharing.rounds(systems, 1)
    }

    /// The words of a system in a block of `count`, and the number of groups of chunks.
    pub(super) fn words(
        &self,
        pattern: &FactorPattern,
        places: Places,
        count: u32,
        names: &Names,
        sharing: Sharing,
    ) -> (Vec<u32>, usize) {
        let at = |place: u32| names.of(place) * count;
        let zero = names.zero() * count;
        let nothing = [zero | zero << 16, zero | zero << 16];
        let word = |ChunkStep { product, is_last }: &ChunkStep| {
            let PlacedProduct { target, source, place } = *product;
            let (factor, x) = match place {
                MINUS_ONE => (zero, zero),
                place => (at(place.into()), at(places.y + source)),
            };
            let pivot = if *is_last { at(pattern.diag()[target as usize]) } else { zero };
            [x | at(places.y + target) << 16, factor | pivot << 16]
        };
        let lanes = sharing.lanes();
        let chunks = self.packed(lanes);
        let groups = chunks.len().div_ceil(CHUNKS);
        let mut words = Vec::new();
        for chunk in &chunks {
            let idle = std::iter::repeat_n(nothing, lanes - chunk.len());
            words.extend(chunk.iter().map(word).chain(idle).flatten());
        }
        let all = (groups + 1) * CHUNKS * lanes;
        words.extend(std::iter::repeat_n(nothing, all - chunks.len() * lanes).flatten());
        (words, groups)
    }
}

/// About the number of turns in which shared memory serves what the lanes of a warp read together,
/// each system of a block of `count` at places of its own.
fn turns(sharing: Sharing, count: u32) -> u64 {
    // Neighbouring systems are in neighbouring banks, a system's places in every `count`-th.
    let reached = (classes(BANKS, count as usize) * sharing.systems as usize).min(BANKS);
    (u64::from(LANES) * 3 / 2).div_ceil(reached as u64).max(LEAST_TURNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Products in order, of a chain and of rows that wait for nothing.
    fn backward() -> Backward {
        let product = |target: u32, source: u32| PlacedProduct { target, source, place: 0 };
        let chain = (0..9u32).rev().map(|row| product(row, row + 1));
        let others = (10..50u32).map(|row| product(row, 50));
        let last = [product(9, 50)];
        let steps = last.into_iter().chain(chain).chain(others);
        let steps = steps.map(|product| ChunkStep { product, is_last: true }).collect();
        Backward::packing(steps, 50)
    }

    #[test]
    fn chunks_are_filled_after_what_products_wait_for() {
        let backward = backward();

        for (lanes, expected) in [(1, 50), (2, 25), (4, 13), (8, 10), (32, 10)] {
            let chunks = backward.packed(lanes);

            assert_eq!(chunks.len(), expected, "{lanes}");
            let of = |row: u32| {
                chunks.iter().position(|chunk| chunk.iter().any(|step| step.product.target == row))
            };
            assert!((0..9).all(|row| of(row) > of(row + 1)), "{lanes}");
            assert!(chunks.iter().all(|chunk| chunk.len() <= lanes));
            assert_eq!(chunks.iter().map(Vec::len).sum::<usize>(), 50);
        }
    }

    #[test]
    fn few_systems_have_many_lanes_each() {
        let backward = backward();

        let (alone, sharing) = backward.latency(1, 8);
        assert_eq!(sharing.systems, 1);
        let (several, sharing) = backward.latency(32, 1);
        assert!(sharing.systems > 1 && several > alone, "{sharing:?}");
    }
}
