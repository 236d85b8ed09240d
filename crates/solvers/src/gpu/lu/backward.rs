//! Backward substitution of a system by a few lanes, in chunks: what `lu.cu` goes by.

use sparsebatch_cpu_ref::symbolic::FactorPattern;

use super::banks::Names;
use super::chunks::{MINUS_ONE, Product, Step, in_chunks};
use super::graph::Places;
use super::shape::LANES;

/// Chunks that are asked for ahead, while as many are at hand: there is a multiple of it.
const AHEAD: usize = 6;

/// Lanes of a system that are looked at. More than 32 take no less time.
const WIDTHS: [usize; 3] = [8, 16, LANES as usize];

/// Cycles of a chunk from its reads to what it writes, and those that it keeps a multiprocessor busy with.
const CYCLES: u64 = 90;
const BUSY_CYCLES: u64 = 14;

/// Products of rows of U with the solution, in chunks of so many lanes.
pub(super) struct Backward {
    pub(super) lanes: usize,
    chunks: Vec<Vec<Option<Step>>>,
}

impl Backward {
    /// Of a filled pattern: in the fewest lanes that take a quarter more chunks than 32 at most.
    pub(super) fn new(pattern: &FactorPattern) -> Self {
        let n = pattern.nrows() as u32;
        let upper = |row: u32| {
            let entries = pattern.upper(row as usize).rev();
            entries.map(move |k| Product {
                target: row,
                source: pattern.cols()[k],
                place: k as u16,
            })
        };
        let nothing = |row: u32| Product { target: row, source: n, place: MINUS_ONE };
        let products: Vec<Product> = (0..n)
            .rev()
            .flat_map(|row| {
                let first = if upper(row).len() == 0 { Some(nothing(row)) } else { None };
                first.into_iter().chain(upper(row))
            })
            .collect();
        let [few, some, all] =
            WIDTHS.map(|lanes| Self { lanes, chunks: in_chunks(&products, lanes) });
        let enough = all.chunks.len() * 5 / 4;
        [few, some].into_iter().find(|other| other.chunks.len() <= enough).unwrap_or(all)
    }

    /// Groups of [`AHEAD`] chunks, of which the last ones may do nothing.
    pub(super) fn groups(&self) -> usize {
        self.chunks.len().div_ceil(AHEAD)
    }

    /// Chunks, those that do nothing among them.
    pub(super) fn len(&self) -> usize {
        self.groups() * AHEAD
    }

    /// Products of the chunks.
    pub(super) fn products(&self) -> usize {
        self.chunks.iter().flatten().flatten().count()
    }

    /// Cycles for so many systems of a block, by the estimate.
    pub(super) fn latency(&self, systems: u32, warps: usize) -> u64 {
        let at_once = warps * (LANES as usize / self.lanes);
        self.len() as u64 * CYCLES * (systems as usize).div_ceil(at_once) as u64
    }

    /// Those that the systems of a block keep a multiprocessor busy with, by the estimate.
    pub(super) fn busy(&self, systems: u32) -> u64 {
        let of_warp = LANES / self.lanes as u32;
        self.len() as u64 * BUSY_CYCLES * u64::from(systems.div_ceil(of_warp))
    }

    /// Appends the words of a system in a block of `count`.
    pub(super) fn append(
        &self,
        pattern: &FactorPattern,
        places: Places,
        count: u32,
        names: &Names,
        words: &mut Vec<u32>,
    ) {
        let at = |place: u32| names.of(place) * count;
        let zero = names.zero() * count;
        let nothing = [zero | zero << 16, zero | zero << 16];
        for step in self.chunks.iter().flatten() {
            words.extend(step.map_or(nothing, |Step { product, is_last }| {
                let Product { target, source, place } = product;
                let (factor, x) = match place {
                    MINUS_ONE => (zero, zero),
                    place => (at(place.into()), at(places.y + source)),
                };
                let pivot = if is_last { at(pattern.diag()[target as usize] as u32) } else { zero };
                [x | at(places.y + target) << 16, factor | pivot << 16]
            }));
        }
        let idle = self.len() - self.chunks.len() + AHEAD;
        words.extend(std::iter::repeat_n(nothing, idle * self.lanes).flatten());
    }
}
