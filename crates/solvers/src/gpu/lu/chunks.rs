//! Sums of products, cut into chunks of a warp: what `lu_kept.cu` goes by.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Products of a chunk, one a lane.
pub(super) const CHUNK: usize = 32;

/// Chunks that are asked for ahead, while as many are at hand: runs of chunks are multiples of both together.
pub(super) const AHEAD: usize = 4;

/// Vectors have fewer numbers than this.
pub(super) const MOST_NUMBERS: usize = 1 << 14;

/// Of a word: the sum is complete, and divided.
pub(super) const LAST: u32 = 1 << 15;

/// Of a word: the lane writes nothing.
pub(super) const IDLE: u32 = 1 << 31;

/// In place of the place of a value: -1, and that there is none.
pub(super) const MINUS_ONE: u16 = u16::MAX;
pub(super) const NOTHING: u16 = u16::MAX - 1;

/// Values that are read together from the device's memory, of eight bytes each.
const SECTOR: usize = 4;

/// Products of a sum that follow each other, about: longer ones are sums of several.
const PRODUCTS: usize = 24;

/// Shared memory has so many banks of the width of a double; lanes side by side that go to one wait for each other.
const BANKS: usize = 16;
pub(super) const HALVES: usize = 2;

/// What is subtracted from `target`: the value at `place` times `source`, both numbers of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Product {
    pub(super) target: u32,
    pub(super) source: u32,
    pub(super) place: u16,
}

/// Cuts the products of each target, the first ones to be known first, into sums of [`PRODUCTS`], of which all
/// but the last are made elsewhere, from number `free` on, and added to it. The first free number after.
pub(super) fn split(
    rows: impl IntoIterator<Item = Vec<Product>>,
    free: u32,
) -> (Vec<Product>, u32) {
    let (mut all, mut next) = (Vec::new(), free);
    for row in rows {
        let mut rest = row.as_slice();
        while let Some((part, others)) = rest.split_at_checked(PRODUCTS)
            && let Some(Product { target, .. }) = others.first()
        {
            all.extend(part.iter().map(|&product| Product { target: next, ..product }));
            all.push(Product { target: *target, source: next, place: MINUS_ONE });
            next += 1;
            rest = others;
        }
        all.extend(rest);
    }
    (all, next)
}

/// Chunks: where the values come from, and what is done with them.
#[derive(Debug)]
pub(super) struct Chunks {
    /// A number that nothing is subtracted from, for lanes without a product to read.
    zero: u32,
    /// Places of the values, those of a chunk one after the other, from a multiple of [`SECTOR`] on.
    pub(super) order: Vec<u16>,
    /// Of every chunk and each of its halves: where its values begin, and from bit 24 on how many there are. The
    /// first lanes of a half have them.
    spans: Vec<[u32; HALVES]>,
    /// Sources, flags, and from bit 16 on targets.
    pub(super) words: Vec<u32>,
}

impl Chunks {
    pub(super) fn new(zero: u32) -> Self {
        Self { zero, order: Vec::new(), spans: Vec::new(), words: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() / CHUNK
    }

    /// Appends products, in chunks of which each has every target once, and whose sources are complete. Targets
    /// below `divided` are divided after their last product. Then idle chunks up to a multiple of
    /// twice [`AHEAD`].
    pub(super) fn append(&mut self, products: &[Product], divided: u32) {
        let mut work = Work::new(products);
        while !work.ready.is_empty() {
            let lanes = work.next_chunk(products);
            let mut before = self.zero;
            let mut spans = [0; HALVES];
            for (half, span) in lanes.chunks(CHUNK / HALVES).zip(&mut spans) {
                let first = self.order.len();
                for lane in half {
                    let Some(number) = lane else {
                        // The source of the lane before costs no read of its own.
                        self.words.push(before | self.zero << 16 | IDLE);
                        continue;
                    };
                    let Product { target, source, place } = products[*number];
                    let is_last = target < divided && work.complete(target);
                    self.words.push(source | target << 16 | if is_last { LAST } else { 0 });
                    self.order.push(place);
                    before = source;
                }
                *span = first as u32 | ((self.order.len() - first) as u32) << 24;
            }
            self.spans.push(spans);
            self.order.resize(self.order.len().next_multiple_of(SECTOR), NOTHING);
            work.retire(products, &lanes);
        }
        let chunks = self.len().next_multiple_of(2 * AHEAD);
        self.spans.resize(chunks, [0; HALVES]);
        self.words.resize(chunks * CHUNK, self.zero | self.zero << 16 | IDLE);
    }

    /// For every [`AHEAD`] chunks where the values are, half by half.
    pub(super) fn spans(&self) -> impl Iterator<Item = u32> {
        self.spans.chunks(AHEAD).flat_map(|group| {
            (0..HALVES).flat_map(|half| group.iter().map(move |spans| spans[half]))
        })
    }
}

/// Products that wait, and those that may be next.
struct Work {
    /// Of each number: what is left to subtract from it, what it is a source of, and how many steps follow
    /// at least after it is complete.
    left: Vec<usize>,
    uses: Vec<Vec<usize>>,
    tail: Vec<usize>,
    /// Products of each target whose source is complete.
    open: Vec<Vec<usize>>,
    /// Targets with such products, those with the longest way to go first.
    ready: BTreeSet<(Reverse<usize>, u32)>,
}

/// Which banks the lanes of half a warp go to.
#[derive(Clone, Default)]
struct Half {
    lanes: Vec<usize>,
    targets: [Option<u32>; BANKS],
    sources: [Option<u32>; BANKS],
}

impl Half {
    fn suits(&self, product: &Product) -> bool {
        let same = |banks: &[Option<u32>; BANKS], number| {
            banks[number as usize % BANKS].is_none_or(|other| other == number)
        };
        self.lanes.len() < CHUNK / HALVES
            && same(&self.targets, product.target)
            && same(&self.sources, product.source)
    }

    fn take(&mut self, number: usize, product: &Product) {
        self.lanes.push(number);
        self.targets[product.target as usize % BANKS].get_or_insert(product.target);
        self.sources[product.source as usize % BANKS].get_or_insert(product.source);
    }
}

impl Work {
    fn new(products: &[Product]) -> Self {
        let numbers = products.iter().map(|product| product.target.max(product.source) + 1).max();
        let count = numbers.unwrap_or(0) as usize;
        let (mut left, mut uses) = (vec![0; count], vec![Vec::new(); count]);
        for (number, product) in products.iter().enumerate() {
            left[product.target as usize] += 1;
            uses[product.source as usize].push(number);
        }
        let tail = tails(products, &left, &uses);
        let mut work =
            Self { left, uses, tail, open: vec![Vec::new(); count], ready: BTreeSet::new() };
        for number in (0..count).filter(|&number| work.left[number] == 0).collect::<Vec<_>>() {
            work.release(products, number);
        }
        work
    }

    /// Steps up to the end of all, from a target on that is not complete.
    fn way(&self, target: u32) -> usize {
        self.left[target as usize] + self.tail[target as usize]
    }

    /// Whether nothing is left but what the chunk at hand does.
    fn complete(&self, target: u32) -> bool {
        self.left[target as usize] == 1
    }

    /// The number is complete: what it is a source of may be next.
    fn release(&mut self, products: &[Product], number: usize) {
        for user in std::mem::take(&mut self.uses[number]) {
            let target = products[user].target;
            self.open[target as usize].push(user);
            self.ready.insert((Reverse(self.way(target)), target));
        }
    }

    /// The lanes of the next chunk. What has the longest way to go is taken anyhow, the rest where no lanes
    /// wait for each other.
    fn next_chunk(&mut self, products: &[Product]) -> Vec<Option<usize>> {
        let longest = self.ready.first().map_or(0, |(way, _)| way.0);
        let mut halves = vec![Half::default(); HALVES];
        for &(Reverse(way), target) in &self.ready {
            let open = &mut self.open[target as usize];
            let suits = |half: &Half| open.iter().position(|&number| half.suits(&products[number]));
            let found = halves.iter().enumerate().find_map(|(h, half)| Some((h, suits(half)?)));
            let room = || halves.iter().position(|half| half.lanes.len() < CHUNK / HALVES);
            let urgent = || room().filter(|_| way == longest).map(|half| (half, 0));
            if let Some((half, at)) = found.or_else(urgent) {
                let number = open.remove(at);
                halves[half].take(number, &products[number]);
            } else if room().is_none() {
                break;
            }
        }
        let lanes = |half: &Half| {
            (0..CHUNK / HALVES).map(|lane| half.lanes.get(lane).copied()).collect::<Vec<_>>()
        };
        halves.iter().flat_map(lanes).collect()
    }

    /// Notes that the products of a chunk are done.
    fn retire(&mut self, products: &[Product], lanes: &[Option<usize>]) {
        let targets = || lanes.iter().flatten().map(|&number| products[number].target);
        for target in targets() {
            self.ready.remove(&(Reverse(self.way(target)), target));
            self.left[target as usize] -= 1;
            if !self.open[target as usize].is_empty() {
                self.ready.insert((Reverse(self.way(target)), target));
            }
        }
        for target in targets() {
            if self.left[target as usize] == 0 {
                self.release(products, target as usize);
            }
        }
    }
}

/// The steps that follow at least after each number is complete.
fn tails(products: &[Product], left: &[usize], uses: &[Vec<usize>]) -> Vec<usize> {
    let mut left = left.to_vec();
    let mut complete: Vec<usize> = (0..left.len()).filter(|&number| left[number] == 0).collect();
    let mut at = 0;
    while let Some(&number) = complete.get(at) {
        for &user in &uses[number] {
            let target = products[user].target as usize;
            left[target] -= 1;
            if left[target] == 0 {
                complete.push(target);
            }
        }
        at += 1;
    }
    let mut tail = vec![0; left.len()];
    for &number in complete.iter().rev() {
        let longest = uses[number].iter().map(|&user| 1 + tail[products[user].target as usize]);
        tail[number] = longest.max().unwrap_or(0);
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Beyond all numbers of these tests.
    const ZERO: u32 = 9999;

    /// Products that subtract from later numbers only.
    fn products() -> impl Strategy<Value = Vec<Vec<Product>>> {
        let pairs = prop::collection::btree_set((0..60u32, 0..60u32), 0..700);
        pairs.prop_map(|pairs| {
            let mut rows = vec![Vec::new(); 60];
            for (place, (one, other)) in pairs.into_iter().enumerate() {
                if one != other {
                    let (source, target) = (one.min(other), one.max(other));
                    rows[target as usize].push(Product { target, source, place: place as u16 });
                }
            }
            rows
        })
    }

    proptest! {
        #[test]
        fn every_product_once_after_its_source_and_alone_with_its_target(rows in products()) {
            let (all, end) = split(rows, 60);
            let mut chunks = Chunks::new(ZERO);

            chunks.append(&all, 60);

            prop_assert_eq!(chunks.len() % (2 * AHEAD), 0);
            let spans: Vec<u32> = chunks.spans().collect();
            let place = |chunk: usize, lane: usize| {
                let half = CHUNK / HALVES;
                let row = chunk / AHEAD * HALVES + lane / half;
                let span = spans[row * AHEAD + chunk % AHEAD] as usize;
                let (first, count) = (span & 0xff_ffff, span >> 24);
                Some(lane % half).filter(|&own| own < count).map(|own| chunks.order[first + own])
            };
            let held = chunks.order.iter().filter(|&&place| place != NOTHING).count();
            prop_assert_eq!(held, all.len());
            let mut left: Vec<usize> = (0..end).map(|number| {
                all.iter().filter(|product| product.target == number).count()
            }).collect();
            let mut waiting = all.clone();
            for (chunk, words) in chunks.words.chunks(CHUNK).enumerate() {
                for (lane, &word) in words.iter().enumerate() {
                    prop_assert_eq!(word & IDLE != 0, place(chunk, lane).is_none());
                    // No lane reads what another one writes.
                    prop_assert!(word & IDLE == 0 || word >> 16 & 0x3fff == ZERO);
                }
                let places = (0..CHUNK).map(|lane| place(chunk, lane));
                let lanes = words.iter().zip(places).filter_map(|(&word, place)| Some((word, place?)));
                let (mut done, mut targets) = (Vec::new(), BTreeSet::new());
                for (word, place) in lanes {
                    let (target, source) = (word >> 16, word & (LAST - 1));
                    let product = Product { target, source, place };
                    let found = waiting.iter().position(|other| *other == product);
                    prop_assert!(found.is_some(), "{:?}", product);
                    waiting.swap_remove(found.unwrap());
                    prop_assert_eq!(left[source as usize], 0);
                    prop_assert!(targets.insert(target));
                    prop_assert_eq!(word & LAST != 0, target < 60 && left[target as usize] == 1);
                    done.push(target);
                }
                done.iter().for_each(|&target| left[target as usize] -= 1);
            }
            prop_assert!(waiting.is_empty());
        }
    }

    #[test]
    fn long_sums_are_made_of_several() {
        let row = |target: u32, count: u32| -> Vec<Product> {
            (0..count).map(|source| Product { target, source, place: source as u16 }).collect()
        };

        let (all, end) = split([row(100, 24), row(101, 49)], 200);

        assert_eq!(end, 202);
        assert_eq!(all.iter().filter(|product| product.target == 100).count(), 24);
        let of_101: Vec<&Product> = all.iter().filter(|product| product.target == 101).collect();
        assert_eq!(of_101.len(), 3);
        assert_eq!(*of_101[1], Product { target: 101, source: 201, place: MINUS_ONE });
        assert_eq!(*of_101[2], Product { target: 101, source: 48, place: 48 });
    }

    #[test]
    fn lanes_of_independent_sums_go_to_different_banks() {
        let rows = (0..64).map(|row| {
            let product =
                |k: u32| Product { target: 64 + row, source: (row * 7 + k * 5) % 64, place: 0 };
            (0..8).map(product).collect()
        });
        let (all, _) = split(rows, 128);
        let mut chunks = Chunks::new(ZERO);

        chunks.append(&all, 0);

        // 512 products: 16 chunks if every lane has one.
        assert!(chunks.len() <= 24, "{}", chunks.len());
        for half in chunks.words.chunks(CHUNK / HALVES).take(16) {
            let banks = |number: fn(u32) -> u32| {
                let words = half.iter().filter(|&&word| word & IDLE == 0);
                let all: BTreeSet<u32> = words.map(|&word| number(word)).collect();
                let distinct: BTreeSet<u32> =
                    all.iter().map(|number| number % BANKS as u32).collect();
                (all.len(), distinct.len())
            };
            let (targets, target_banks) = banks(|word| word >> 16 & 0x3fff);
            let (sources, source_banks) = banks(|word| word & 0x3fff);
            assert!(targets - target_banks <= 1 && sources - source_banks <= 1, "{half:x?}");
        }
    }

    #[test]
    fn nothing_is_no_chunk() {
        let mut chunks = Chunks::new(ZERO);

        chunks.append(&[], 0);

        assert_eq!(chunks.len(), 0);
    }
}
