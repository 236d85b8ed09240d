//! Sums of products that depend on each other, in chunks: one product per lane, one chunk after the
//! other.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Stand-ins for a place: `MINUS_ONE` for the constant -1, `NOTHING` for no value.
pub(super) const MINUS_ONE: u16 = u16::MAX;
pub(super) const NOTHING: u16 = u16::MAX - 1;

/// Number of products summed in sequence, about; longer sums are split into several.
pub(super) const PRODUCTS: usize = 24;

/// Banks of shared memory, counted in doubles. Lanes of a group that access different addresses of
/// one bank wait for each other.
pub(super) const BANKS: usize = 16;

/// Subtracts from the vector element `target`: the value at `place` times the vector element
/// `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedProduct {
    pub(super) target: u32,
    pub(super) source: u32,
    pub(super) place: u16,
}

/// Cuts the products of each target, which come in the order in which their sources are known, into
/// sums of [`PRODUCTS`]. All sums but the last get vector elements of their own, with indices from
/// `free` on, and are added to the target. Returns the products and the next free index.
pub(super) fn split(
    rows: impl IntoIterator<Item = Vec<PlacedProduct>>,
    free: u32,
) -> (Vec<PlacedProduct>, u32) {
    let (mut all, mut next) = (Vec::new(), free);
    for row in rows {
        let mut rest = row.as_slice();
        while let Some((part, others)) = rest.split_at_checked(PRODUCTS)
            && let Some(PlacedProduct { target, .. }) = others.first()
        {
            all.extend(part.iter().map(|&product| PlacedProduct { target: next, ..product }));
            all.push(PlacedProduct { target: *target, source: next, place: MINUS_ONE });
            next += 1;
            rest = others;
        }
        all.extend(rest);
    }
    (all, next)
}

/// The product that a lane subtracts in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkStep {
    pub(super) product: PlacedProduct,
    /// Whether this is the last product of its target.
    pub(super) is_last: bool,
}

/// Packs products into chunks of `lanes` lanes. The targets of a chunk are distinct and its sources
/// are complete. `None` stands for lanes without a product.
pub(super) fn in_chunks(products: &[PlacedProduct], lanes: usize) -> Vec<Vec<Option<ChunkStep>>> {
    let mut work = RemainingProducts::new(products);
    let mut chunks = Vec::new();
    while !work.ready.is_empty() {
        let numbers = work.next_chunk(products, lanes);
        let step = |number: usize| {
            let product = products[number];
            ChunkStep { product, is_last: work.complete(product.target) }
        };
        chunks.push(numbers.iter().map(|number| number.map(step)).collect());
        work.retire(products, &numbers);
    }
    chunks
}

/// The products that are not packed yet, and those that may be next.
struct RemainingProducts {
    /// For each vector index: the number of products left to subtract from it; `uses`: the products
    /// whose source it is; `tail`: the least number of steps that follow once it is complete.
    left: Vec<usize>,
    uses: Vec<Vec<usize>>,
    tail: Vec<usize>,
    /// The waiting products of each target whose source is complete.
    open: Vec<Vec<usize>>,
    /// Targets with open products, those with the longest remaining path first.
    ready: BTreeSet<(Reverse<usize>, u32)>,
}

/// Lanes that shared memory serves together, and the banks that they access.
#[derive(Clone, Default)]
struct Half {
    size: usize,
    lanes: Vec<usize>,
    targets: [Option<u32>; BANKS],
    sources: [Option<u32>; BANKS],
}

impl Half {
    fn has_room(&self) -> bool {
        self.lanes.len() < self.size
    }

    fn suits(&self, product: &PlacedProduct) -> bool {
        let same = |banks: &[Option<u32>; BANKS], number| {
            banks[number as usize % BANKS].is_none_or(|other| other == number)
        };
        self.has_room()
            && same(&self.targets, product.target)
            && same(&self.sources, product.source)
    }

    fn take(&mut self, number: usize, product: &PlacedProduct) {
        self.lanes.push(number);
        self.targets[product.target as usize % BANKS].get_or_insert(product.target);
        self.sources[product.source as usize % BANKS].get_or_insert(product.source);
    }
}

impl RemainingProducts {
    fn new(products: &[PlacedProduct]) -> Self {
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

    /// Length of the remaining path of a target that is not complete: steps up to the end of all.
    fn way(&self, target: u32) -> usize {
        self.left[target as usize] + self.tail[target as usize]
    }

    /// Whether the current chunk holds the last product of the target.
    fn complete(&self, target: u32) -> bool {
        self.left[target as usize] == 1
    }

    /// Marks `number` as complete: the products whose source it is may be next.
    fn release(&mut self, products: &[PlacedProduct], number: usize) {
        for user in std::mem::take(&mut self.uses[number]) {
            let target = products[user].target;
            self.open[target as usize].push(user);
            self.ready.insert((Reverse(self.way(target)), target));
        }
    }

    /// The products of the lanes of the next chunk. Targets with the longest remaining path are
    /// always taken, the others only where they cause no bank conflict.
    fn next_chunk(&mut self, products: &[PlacedProduct], lanes: usize) -> Vec<Option<usize>> {
        let longest = self.ready.first().map_or(0, |(way, _)| way.0);
        let size = lanes.min(BANKS);
        let mut halves = vec![Half { size, ..Half::default() }; lanes / size];
        for &(Reverse(way), target) in &self.ready {
            let open = &mut self.open[target as usize];
            let suits = |half: &Half| open.iter().position(|&number| half.suits(&products[number]));
            let found = halves.iter().enumerate().find_map(|(h, half)| Some((h, suits(half)?)));
            let room = || halves.iter().position(Half::has_room);
            let urgent = || room().filter(|_| way == longest).map(|half| (half, 0));
            if let Some((half, at)) = found.or_else(urgent) {
                let number = open.remove(at);
                halves[half].take(number, &products[number]);
            } else if room().is_none() {
                break;
            }
        }
        let of_half =
            |half: &Half| (0..size).map(|lane| half.lanes.get(lane).copied()).collect::<Vec<_>>();
        halves.iter().flat_map(of_half).collect()
    }

    /// Marks the products of a chunk as done.
    fn retire(&mut self, products: &[PlacedProduct], lanes: &[Option<usize>]) {
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

/// The least number of steps that follow once each vector index is complete.
fn tails(products: &[PlacedProduct], left: &[usize], uses: &[Vec<usize>]) -> Vec<usize> {
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
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Products that subtract from later numbers only.
    pub(crate) fn products() -> impl Strategy<Value = Vec<Vec<PlacedProduct>>> {
        let pairs = prop::collection::btree_set((0..60u32, 0..60u32), 0..700);
        pairs.prop_map(|pairs| {
            let mut rows = vec![Vec::new(); 60];
            for (place, (one, other)) in pairs.into_iter().enumerate() {
                if one != other {
                    let (source, target) = (one.min(other), one.max(other));
                    rows[target as usize].push(PlacedProduct {
                        target,
                        source,
                        place: place as u16,
                    });
                }
            }
            rows
        })
    }

    proptest! {
        #[test]
        fn every_product_once_after_its_source_and_alone_with_its_target(
            rows in products(),
            lanes in prop::sample::select(vec![8usize, 16, 32]),
        ) {
            let (all, end) = split(rows, 60);

            let chunks = in_chunks(&all, lanes);

            let mut left: Vec<usize> = (0..end).map(|number| {
                all.iter().filter(|product| product.target == number).count()
            }).collect();
            let mut waiting = all.clone();
            for chunk in chunks {
                prop_assert_eq!(chunk.len(), lanes);
                let mut targets = BTreeSet::new();
                for ChunkStep { product, is_last } in chunk.into_iter().flatten() {
                    let found = waiting.iter().position(|other| *other == product);
                    prop_assert!(found.is_some(), "{:?}", product);
                    waiting.swap_remove(found.unwrap());
                    prop_assert_eq!(left[product.source as usize], 0);
                    prop_assert!(targets.insert(product.target));
                    prop_assert_eq!(is_last, left[product.target as usize] == 1);
                }
                targets.iter().for_each(|&target| left[target as usize] -= 1);
            }
            prop_assert!(waiting.is_empty());
        }
    }

    #[test]
    fn long_sums_are_made_of_several() {
        let row = |target: u32, count: u32| -> Vec<PlacedProduct> {
            (0..count)
                .map(|source| PlacedProduct { target, source, place: source as u16 })
                .collect()
        };

        let (all, end) = split([row(100, 24), row(101, 49)], 200);

        assert_eq!(end, 202);
        assert_eq!(all.iter().filter(|product| product.target == 100).count(), 24);
        let of_101: Vec<&PlacedProduct> =
            all.iter().filter(|product| product.target == 101).collect();
        assert_eq!(of_101.len(), 3);
        assert_eq!(*of_101[1], PlacedProduct { target: 101, source: 201, place: MINUS_ONE });
        assert_eq!(*of_101[2], PlacedProduct { target: 101, source: 48, place: 48 });
    }

    #[test]
    fn lanes_of_independent_sums_go_to_different_banks() {
        let rows = (0..64).map(|row| {
            let product = |k: u32| PlacedProduct {
                target: 64 + row,
                source: (row * 7 + k * 5) % 64,
                place: 0,
            };
            (0..8).map(product).collect()
        });
        let (all, _) = split(rows, 128);

        let chunks = in_chunks(&all, 32);

        // 512 products: 16 chunks if every lane has one.
        assert!(chunks.len() <= 24, "{}", chunks.len());
        for half in chunks.iter().flat_map(|chunk| chunk.chunks(16)).take(16) {
            let banks = |number: fn(&PlacedProduct) -> u32| {
                let all: BTreeSet<u32> =
                    half.iter().flatten().map(|step| number(&step.product)).collect();
                let distinct: BTreeSet<u32> =
                    all.iter().map(|number| number % BANKS as u32).collect();
                (all.len(), distinct.len())
            };
            let (targets, target_banks) = banks(|product| product.target);
            let (sources, source_banks) = banks(|product| product.source);
            assert!(targets - target_banks <= 1 && sources - source_banks <= 1, "{half:?}");
        }
    }

    #[test]
    fn nothing_is_no_chunk() {
        assert!(in_chunks(&[], 32).is_empty());
    }
}
