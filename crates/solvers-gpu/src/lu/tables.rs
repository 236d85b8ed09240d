//! The tables of substitution and residual with kept factors: see `lu_kept.cuh`.

use sparsebatch_solve_core::symbolic::{FactorPattern, NO_SOURCE};

use super::chunks::{ChunkStep, MINUS_ONE, NOTHING, PlacedProduct, in_chunks, split};
use super::sums::{Factor, LaneSums, Term, in_lanes};

/// Products of a chunk, one per lane.
const CHUNK: usize = 32;

/// Groups of lanes in a chunk. The lanes of a group read shared memory together.
pub(super) const HALVES: usize = 2;

/// Chunks that are prefetched while as many are processed; runs of chunks are multiples of it.
/// `FAR_AHEAD` is for few systems, where registers are to spare.
pub(super) const AHEAD: usize = 4;
pub(super) const FAR_AHEAD: usize = 8;

/// Limit of the number of elements of a vector: an index has 14 bits.
const MOST_NUMBERS: u32 = 1 << 14;

/// Mask of the source in a word.
const SOURCE: u32 = MOST_NUMBERS - 1;

/// Flag of a word: the target is complete and gets divided by its pivot; or, in a sum with A, a
/// part ends.
const LAST: u32 = 1 << 15;

/// Flag of a word: the lane writes nothing.
const IDLE: u32 = 1 << 31;

/// Words that a thread copies at once.
const WORDS_COPIED: usize = 4;

/// Values of eight bytes that are read together from device memory.
const SECTOR: usize = 4;

/// The tables of the solves with kept factors.
#[derive(Debug)]
pub(super) struct KeptTables {
    /// Places of the values that are kept, in the order of their use: pivots, factors, and from
    /// `first_of_a` on A.
    pub(super) order: Vec<u16>,
    pub(super) first_of_a: u32,
    pub(super) sizes: KeptSizes,
    /// A word for each chunk and lane, and those of one more chunk; then where the values of each
    /// chunk begin; then the parts that make up the sum of each row.
    pub(super) words: Vec<u32>,
}

/// Sizes of the tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptSizes {
    pub(super) nrows: usize,
    /// Chunks that are prefetched.
    pub(super) ahead: usize,
    /// Words of the tables.
    pub(super) words: usize,
    /// The first value of the first chunk.
    pub(super) first_value: u32,
    /// Number of chunks up to the last one of L, of U, and of A.
    pub(super) end_of_l: u32,
    pub(super) end_of_u: u32,
    pub(super) end_of_a: u32,
    /// `slots`: vector elements between the solution and the parts of the residual's sums. `parts`:
    /// these parts, at least one element per row.
    pub(super) slots: u32,
    pub(super) parts: u32,
}

impl KeptTables {
    /// The tables of a filled pattern. With `is_few` (few systems), [`FAR_AHEAD`] chunks are
    /// prefetched, unless this pads short runs with too many idle chunks. `None` when the vectors
    /// have more elements than the words can index.
    pub(super) fn new(pattern: &FactorPattern, is_few: bool) -> Option<Self> {
        let n = pattern.nrows() as u32;
        let KeptProducts { l, u, residual, first_part } = KeptProducts::new(pattern);
        let parts = residual.parts.max(n);
        if first_part + parts > MOST_NUMBERS {
            return None;
        }

        let mut order: Vec<u16> = pattern.diag().iter().map(|&place| place as u16).collect();
        order.resize(order.len().next_multiple_of(CHUNK), NOTHING);
        let first_value = order.len();
        let (l, u) = (in_chunks(&l, CHUNK), in_chunks(&u, CHUNK));
        let ahead = chunks_ahead([l.len(), u.len(), residual.steps()], is_few);
        let mut chunks = Chunks::new(n, ahead);
        chunks.append(&l, 0);
        let end_of_l = chunks.len();
        chunks.append(&u, n);
        let (end_of_u, values) = (chunks.len(), chunks.order.len());
        chunks.append_sums(&residual, first_part);
        order.append(&mut chunks.order);
        let end_of_a = chunks.spans.len();
        let words = chunks.into_words(&residual.sums);
        Some(Self {
            order,
            first_of_a: (first_value + values) as u32,
            sizes: KeptSizes {
                nrows: n as usize,
                ahead,
                words: words.len(),
                first_value: first_value as u32,
                end_of_l: end_of_l as u32,
                end_of_u: end_of_u as u32,
                end_of_a: end_of_a as u32,
                slots: first_part - n,
                parts,
            },
            words,
        })
    }
}

/// The products of the solves, before they are packed into chunks.
///
/// The first elements of the vector are the solution. The element behind them is zero, and then
/// come elements for the sums of long rows.
struct KeptProducts {
    /// The products of the forward and of the backward substitution.
    l: Vec<PlacedProduct>,
    u: Vec<PlacedProduct>,
    /// The sums of the residual.
    residual: LaneSums,
    /// The first vector element that no substitution uses.
    first_part: u32,
}

impl KeptProducts {
    fn new(pattern: &FactorPattern) -> Self {
        let n = pattern.nrows() as u32;
        let entry = |row: u32, k: usize| PlacedProduct {
            target: row,
            source: pattern.cols()[k],
            place: k as u16,
        };
        let (zero, first_slot) = (n, n + 1);
        let lower = (0..n).map(|row| pattern.lower(row as usize).map(|k| entry(row, k)).collect());
        let (l, end_of_slots_l) = split(lower, first_slot);
        let upper = (0..n).rev().map(|row| {
            let own: Vec<PlacedProduct> =
                pattern.upper(row as usize).rev().map(|k| entry(row, k)).collect();
            let nothing = PlacedProduct { target: row, source: zero, place: MINUS_ONE };
            if own.is_empty() { vec![nothing] } else { own }
        });
        let (u, end_of_slots_u) = split(upper, first_slot);
        let residual = in_lanes(&rows_of_a(pattern), CHUNK);
        Self { l, u, residual, first_part: end_of_slots_l.max(end_of_slots_u) }
    }
}

/// The entries of A in the rows of a filled pattern, in the order of A's rows.
fn rows_of_a(pattern: &FactorPattern) -> Vec<Vec<Factor>> {
    let mut rows = vec![Vec::new(); pattern.nrows()];
    for (row, own) in pattern.perm().iter().enumerate() {
        let all = pattern.lower(row).start..pattern.upper(row).end;
        let of_a = all.filter(|&k| pattern.source()[k] != NO_SOURCE);
        let factor = |k: usize| Factor { source: pattern.cols()[k], place: k as u16 };
        rows[*own as usize] = of_a.map(factor).collect();
    }
    rows
}

/// How many chunks are prefetched: [`FAR_AHEAD`] for few systems, unless idle chunks then add more
/// than an eighth to the runs of chunks, else [`AHEAD`].
fn chunks_ahead(runs: [usize; 3], is_few: bool) -> usize {
    let filled = |ahead: usize| -> usize {
        runs.into_iter().map(|chunks| chunks.next_multiple_of(ahead)).sum()
    };
    if is_few && filled(FAR_AHEAD) * 8 <= filled(AHEAD) * 9 { FAR_AHEAD } else { AHEAD }
}

/// Chunks: where their values are, and what is done with them.
#[derive(Debug)]
struct Chunks {
    /// Index of a vector element from which nothing is subtracted; lanes without a product read it.
    zero: u32,
    ahead: usize,
    /// Places of the values. Those of a chunk are contiguous, from a multiple of [`SECTOR`] on.
    order: Vec<u16>,
    /// For each half of every chunk: where its values begin, and from bit 24 on how many there are.
    /// The first lanes of the half use them.
    spans: Vec<[u32; HALVES]>,
    /// For each chunk and lane: source, flags, and from bit 16 on the target.
    words: Vec<u32>,
}

impl Chunks {
    fn new(zero: u32, ahead: usize) -> Self {
        Self { zero, ahead, order: Vec::new(), spans: Vec::new(), words: Vec::new() }
    }

    fn len(&self) -> usize {
        self.words.len() / CHUNK
    }

    /// Appends chunks of products. Targets below `divided` are divided after their last product.
    fn append(&mut self, chunks: &[Vec<Option<ChunkStep>>], divided: u32) {
        for lanes in chunks {
            self.append_chunk(lanes.iter().map(|step| {
                step.map(|ChunkStep { product, is_last }| {
                    let flag = if is_last && product.target < divided { LAST } else { 0 };
                    (product.source | product.target << 16 | flag, product.place)
                })
            }));
        }
        self.fill();
    }

    /// Appends sums of products, a list for each lane. Their parts are the vector elements from
    /// index `first` on.
    fn append_sums(&mut self, sums: &LaneSums, first: u32) {
        let zero = self.zero;
        for step in 0..sums.steps() {
            self.append_chunk(sums.lanes.iter().map(|lane| {
                lane.get(step).map(|&Term { factor, ends }| {
                    let end = ends.map_or(zero << 16, |part| (first + part) << 16 | LAST);
                    (factor.source | end, factor.place)
                })
            }));
        }
        self.fill();
    }

    /// Appends a chunk from the word and the place of each lane, `None` for idle lanes.
    fn append_chunk(&mut self, lanes: impl Iterator<Item = Option<(u32, u16)>>) {
        let lanes: Vec<Option<(u32, u16)>> = lanes.collect();
        let mut before = self.zero;
        let mut spans = [0; HALVES];
        for (half, span) in lanes.chunks(CHUNK / HALVES).zip(&mut spans) {
            let first = self.order.len();
            for lane in half {
                let Some((word, place)) = *lane else {
                    // Reading the source of the lane before costs no access of its own.
                    self.words.push(before | self.zero << 16 | IDLE);
                    continue;
                };
                self.words.push(word);
                self.order.push(place);
                before = word & SOURCE;
            }
            *span = first as u32 | ((self.order.len() - first) as u32) << 24;
        }
        self.spans.push(spans);
        self.order.resize(self.order.len().next_multiple_of(SECTOR), NOTHING);
    }

    /// Appends idle chunks up to a multiple of `ahead`.
    fn fill(&mut self) {
        let chunks = self.len().next_multiple_of(self.ahead);
        self.spans.resize(chunks, [0; HALVES]);
        self.words.resize(chunks * CHUNK, self.zero | self.zero << 16 | IDLE);
    }

    /// The words of the tables, with the first part and the number of parts of each row's sum.
    fn into_words(self, sums: &[(u32, u32)]) -> Vec<u32> {
        let spans: Vec<u32> = self.spans().collect();
        let mut words = self.words;
        words.resize(words.len() + CHUNK, IDLE);
        words.extend(spans);
        words.resize(words.len() + HALVES * self.ahead, 0);
        words.extend(sums.iter().map(|&(first, count)| first | count << 16));
        words.resize(words.len().next_multiple_of(WORDS_COPIED), 0);
        words
    }

    /// The spans of all chunks in groups of `ahead` chunks, within a group half by half.
    fn spans(&self) -> impl Iterator<Item = u32> {
        self.spans.chunks(self.ahead).flat_map(|group| {
            (0..HALVES).flat_map(|half| group.iter().map(move |spans| spans[half]))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::chunks::tests::products;
    use super::*;

    /// An index beyond all others of these tests.
    const ZERO: u32 = 9999;

    proptest! {
        #[test]
        fn words_and_spans_say_what_the_lanes_of_each_chunk_do(
            rows in products(),
            ahead in prop::sample::select(vec![AHEAD, FAR_AHEAD]),
        ) {
            let (all, _) = split(rows, 60);
            let mut chunks = Chunks::new(ZERO, ahead);
            let mut wanted = in_chunks(&all, CHUNK);

            chunks.append(&wanted, 60);

            prop_assert_eq!(chunks.len() % ahead, 0);
            let spans: Vec<u32> = chunks.spans().collect();
            let held = chunks.order.iter().filter(|&&place| place != NOTHING).count();
            prop_assert_eq!(held, all.len());
            wanted.resize(chunks.len(), vec![None; CHUNK]);
            for (chunk, lanes) in wanted.iter().enumerate() {
                for (lane, step) in lanes.iter().enumerate() {
                    let (half, own) = (lane / (CHUNK / HALVES), lane % (CHUNK / HALVES));
                    let row = chunk / ahead * HALVES + half;
                    let span = spans[row * ahead + chunk % ahead] as usize;
                    let (first, count) = (span & 0xff_ffff, span >> 24);
                    let word = chunks.words[chunk * CHUNK + lane];
                    let (target, source) = (word >> 16 & SOURCE, word & SOURCE);
                    prop_assert_eq!(word & IDLE != 0, step.is_none());
                    prop_assert_eq!(own < count, step.is_some());
                    match step {
                        Some(ChunkStep { product, is_last }) => {
                            let place = chunks.order[first + own];
                            prop_assert_eq!(PlacedProduct { target, source, place }, *product);
                            prop_assert_eq!(word & LAST != 0, target < 60 && *is_last);
                        }
                        // No lane reads what another one writes.
                        None => prop_assert_eq!(target, ZERO),
                    }
                }
            }
        }
    }
}
