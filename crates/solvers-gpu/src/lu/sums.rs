//! Sums of products whose sources are all known: each lane of a warp computes some of them in
//! sequence.

use std::cmp::Reverse;

use super::chunks::{BANKS, PRODUCTS};

/// A product of a sum: the vector element with index `source` times the value at `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Factor {
    pub(super) source: u32,
    pub(super) place: u16,
}

/// A product of a lane; `ends` is the number of the part of a sum that it completes, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) factor: Factor,
    pub(super) ends: Option<u32>,
}

/// Products, distributed among lanes.
#[derive(Debug)]
pub(super) struct LaneSums {
    /// The products of each lane. Within each half, lanes with more products come first.
    pub(super) lanes: Vec<Vec<Term>>,
    /// For each sum its first part and its number of parts, which is 0 for an empty sum.
    pub(super) sums: Vec<(u32, u32)>,
    pub(super) parts: u32,
}

impl LaneSums {
    /// Number of products of the lane that has the most.
    pub(super) fn steps(&self) -> usize {
        self.lanes.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// The products of a part of a sum, and the number of the part.
struct Part {
    factors: Vec<Factor>,
    number: u32,
}

/// Distributes the products of all sums among `lanes` lanes, of which shared memory serves
/// [`BANKS`] together.
///
/// Sums are cut into parts of at most [`PRODUCTS`], and into shorter ones where lanes would be idle
/// otherwise. Parts are assigned longest first, each to the lane with the fewest products. At each
/// step a lane takes a product whose source is in a bank that no other lane of its half reads, as
/// long as its part has one left.
pub(super) fn in_lanes(rows: &[Vec<Factor>], lanes: usize) -> LaneSums {
    let all: usize = rows.iter().map(Vec::len).sum();
    let most = all.div_ceil(lanes).clamp(4, PRODUCTS);
    let (mut parts, mut sums) = (Vec::new(), Vec::with_capacity(rows.len()));
    for row in rows {
        let count = row.len().div_ceil(most);
        sums.push((parts.len() as u32, count as u32));
        for part in row.chunks(row.len().div_ceil(count.max(1)).max(1)) {
            parts.push(Part { factors: part.to_vec(), number: parts.len() as u32 });
        }
    }
    let count = parts.len() as u32;
    parts.sort_by_key(|part| Reverse(part.factors.len()));
    let mut own: Vec<(usize, Vec<Part>)> = Vec::new();
    own.resize_with(lanes, Default::default);
    for part in parts {
        if let Some(least) = own.iter_mut().min_by_key(|lane| lane.0) {
            least.0 += part.factors.len();
            least.1.push(part);
        }
    }
    own.sort_by_key(|lane| Reverse(lane.0));
    let mut lists = Vec::with_capacity(lanes);
    for half in own.chunks_mut(lanes.min(BANKS)) {
        lists.extend(apart(half.iter_mut().map(|lane| std::mem::take(&mut lane.1)).collect()));
    }
    LaneSums { lanes: lists, sums, parts: count }
}

/// Orders the products in the parts of some lanes so that, where possible, the lanes read different
/// banks at each step.
fn apart(mut lanes: Vec<Vec<Part>>) -> Vec<Vec<Term>> {
    let mut lists = vec![Vec::new(); lanes.len()];
    loop {
        let mut waiting: Vec<usize> =
            (0..lanes.len()).filter(|&lane| !lanes[lane].is_empty()).collect();
        if waiting.is_empty() {
            return lists;
        }
        // Lanes with the fewest products to choose from come first.
        waiting.sort_by_key(|&lane| lanes[lane].last().map_or(0, |part| part.factors.len()));
        let mut banks = [None; BANKS];
        for lane in waiting {
            let Some(part) = lanes[lane].last_mut() else { continue };
            let is_free = |factor: &Factor| {
                banks[factor.source as usize % BANKS].is_none_or(|other| other == factor.source)
            };
            let at = part.factors.iter().position(is_free).unwrap_or(0);
            let factor = part.factors.swap_remove(at);
            banks[factor.source as usize % BANKS].get_or_insert(factor.source);
            let ends = part.factors.is_empty().then_some(part.number);
            lists[lane].push(Term { factor, ends });
            if ends.is_some() {
                lanes[lane].pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const LANES: usize = 32;

    fn rows() -> impl Strategy<Value = Vec<Vec<Factor>>> {
        let pairs = prop::collection::btree_set((0..50usize, 0..70u32), 0..1500);
        pairs.prop_map(|pairs| {
            let mut rows = vec![Vec::new(); 50];
            for (place, (row, source)) in pairs.into_iter().enumerate() {
                rows[row].push(Factor { source, place: place as u16 });
            }
            rows
        })
    }

    proptest! {
        #[test]
        fn every_product_once_in_a_part_of_its_sum(rows in rows()) {
            let all = in_lanes(&rows, LANES);

            prop_assert_eq!(all.lanes.len(), LANES);
            let mut parts: BTreeMap<u32, Vec<Factor>> = BTreeMap::new();
            for lane in &all.lanes {
                let mut open = Vec::new();
                for term in lane {
                    open.push(term.factor);
                    if let Some(number) = term.ends {
                        prop_assert!(open.len() <= PRODUCTS);
                        prop_assert!(parts.insert(number, std::mem::take(&mut open)).is_none());
                    }
                }
                prop_assert!(open.is_empty());
            }
            prop_assert_eq!(parts.len() as u32, all.parts);
            for (row, &(first, count)) in rows.iter().zip(&all.sums) {
                let mut found: Vec<Factor> =
                    (first..first + count).flat_map(|part| parts[&part].clone()).collect();
                found.sort_by_key(|factor| factor.source);
                prop_assert_eq!(&found, row);
            }
            for half in all.lanes.chunks(BANKS) {
                prop_assert!(half.is_sorted_by_key(|lane| Reverse(lane.len())));
            }
        }
    }

    #[test]
    fn lanes_have_as_much_as_each_other_and_go_to_different_banks() {
        // Row lengths as in a network: four full rows, the others short.
        let rows: Vec<Vec<Factor>> = (0..128u32)
            .map(|row| {
                let length = if row < 4 { 128 } else { 8 + row % 9 };
                let factor = |k: u32| Factor { source: (row * 7 + k * 5) % 128, place: 0 };
                (0..length).map(factor).collect()
            })
            .collect();

        let all = in_lanes(&rows, LANES);

        let lengths: Vec<usize> = all.lanes.iter().map(Vec::len).collect();
        let (most, total) = (lengths.iter().max().unwrap(), lengths.iter().sum::<usize>());
        assert!(*most * 8 <= total.div_ceil(LANES) * 9, "{lengths:?}");
        let mut turns = 0;
        for step in 0..*most {
            for half in all.lanes.chunks(BANKS) {
                let mut in_bank = [0; BANKS];
                let mut sources: Vec<u32> = half
                    .iter()
                    .filter_map(|lane| lane.get(step))
                    .map(|term| term.factor.source)
                    .collect();
                sources.sort_unstable();
                sources.dedup();
                sources.iter().for_each(|source| in_bank[*source as usize % BANKS] += 1);
                turns += in_bank.iter().max().unwrap();
            }
        }
        // One turn where there is no bank conflict; without any order it would be three.
        assert!(turns * 2 <= most * 2 * 3, "{turns} turns for {most} steps");
    }

    #[test]
    fn nothing_is_no_product() {
        let none = in_lanes(&[Vec::new(), Vec::new()], LANES);

        assert!(none.lanes.iter().all(Vec::is_empty));
        assert_eq!((none.parts, none.sums), (0, vec![(0, 0), (0, 0)]));
    }
}
