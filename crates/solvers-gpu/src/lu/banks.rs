//! Placement of the values of L + U in shared memory, so that the slots of a warp read different
//! banks where possible.
//!
//! Shared memory delivers 128 bytes at a time, one address of each bank: lanes that access two
//! addresses of one bank wait for each other (a bank conflict). A value is at its number times
//! `systems`, so that the remainder of the number decides on the bank. Only the programs use the
//! numbers of the entries of L + U, so these are free to choose: here they are assigned so that
//! entries that are read together differ in their banks, the most often read first, then improved
//! by exchanges.

use super::graph::{NONE, Places};
use super::grid::LANES;
use crate::common::ALL_BANKS;

/// Largest number of banks: for values of four bytes.
const MOST_BANKS: usize = ALL_BANKS / 4;

/// Passes over all entries that try exchanges.
const PASSES: usize = 4;

/// Entries of another class that are tried for an exchange.
const PARTNERS: usize = 12;

/// Numbers of the places of a system: the entries of L + U are renumbered, the other places keep
/// theirs.
#[derive(Clone, Debug)]
pub(super) struct Names(Vec<u32>);

impl Names {
    /// Every place keeps its own number.
    pub(super) fn plain(places: Places) -> Self {
        Self((0..places.len as u32).collect())
    }

    /// The numbers for values of `value_bytes` bytes and `systems` systems side by side. `reads`
    /// holds the places that the slots of a warp read together, one per slot, [`NONE`] for the 0.
    pub(super) fn spread(
        places: Places,
        value_bytes: usize,
        systems: u32,
        reads: &[Vec<u32>],
    ) -> Self {
        let banks = ALL_BANKS / value_bytes;
        let classes = classes(banks, systems as usize);
        if classes == 1 {
            return Self::plain(places);
        }
        let mut search = Search::new(places, banks, classes, systems as usize, reads);
        search.give_out();
        for _ in 0..PASSES {
            search.exchange();
        }
        search.names(places)
    }

    /// The number of the 0.
    pub(super) fn zero(&self) -> u32 {
        self.0.len() as u32 - 1
    }

    /// The number of a place.
    pub(super) fn of(&self, place: u32) -> u32 {
        self.0[place as usize]
    }
}

/// Number of classes of places by the bank in which they begin, with `systems` systems side by
/// side.
pub(super) fn classes(banks: usize, systems: usize) -> usize {
    (1..=banks).find(|n| (n * systems).is_multiple_of(banks)).unwrap_or(1)
}

/// An access of a `group` of lanes, served together, to a place. `members` has a bit for each
/// system whose lanes take part.
#[derive(Clone, Copy, Debug)]
struct Use {
    group: u32,
    members: u32,
}

struct Search {
    banks: usize,
    classes: usize,
    systems: usize,
    /// Number of addresses of each bank that each group of lanes accesses.
    loads: Vec<[u8; MOST_BANKS]>,
    /// The accesses to each entry of L + U; `starts`: where those of each entry begin.
    uses: Vec<Use>,
    starts: Vec<usize>,
    class: Vec<usize>,
    /// The entries of each class.
    members: Vec<Vec<u32>>,
    /// The position of each entry in that list.
    position: Vec<usize>,
    state: u64,
}

impl Search {
    fn new(
        places: Places,
        banks: usize,
        classes: usize,
        systems: usize,
        reads: &[Vec<u32>],
    ) -> Self {
        let (entries, zero) = (places.y as usize, places.len as u32 - 1);
        let mut search = Self {
            banks,
            classes,
            systems,
            loads: Vec::new(),
            uses: Vec::new(),
            starts: Vec::new(),
            class: vec![usize::MAX; entries],
            members: vec![Vec::new(); classes],
            position: vec![0; entries],
            state: 0x9e37_79b9_7f4a_7c15,
        };
        let mut all: Vec<(u32, Use)> = Vec::new();
        let mut own: Vec<(u32, u32)> = Vec::new();
        for slots in reads {
            for first in (0..LANES as usize).step_by(banks) {
                own.clear();
                own.extend((first..first + banks).map(|lane| {
                    // Lanes without a slot read what the first slot reads.
                    let slot = Some(lane / systems).filter(|&slot| slot < slots.len()).unwrap_or(0);
                    let place = if slots[slot] == NONE { zero } else { slots[slot] };
                    (place, 1 << (lane % systems))
                }));
                own.sort_unstable();
                let group = search.loads.len() as u32;
                let mut loads = [0; MOST_BANKS];
                for same in own.chunk_by(|a, b| a.0 == b.0) {
                    let place = same[0].0;
                    let members = same.iter().fold(0, |all, (_, bits)| all | bits);
                    if (place as usize) < entries {
                        all.push((place, Use { group, members }));
                    } else {
                        for bank in search.banks_of(place as usize % classes, members) {
                            loads[bank] += 1;
                        }
                    }
                }
                search.loads.push(loads);
            }
        }
        all.sort_by_key(|(place, _)| *place);
        search.starts = (0..=entries as u32)
            .map(|place| all.partition_point(|(other, _)| *other < place))
            .collect();
        search.uses = all.into_iter().map(|(_, r#use)| r#use).collect();
        search
    }

    /// The banks of a place of a class, for the systems in `members`.
    fn banks_of(&self, class: usize, members: u32) -> impl Iterator<Item = usize> + use<> {
        let (first, banks, systems) = (class * self.systems, self.banks, self.systems);
        (0..systems).filter(move |m| members >> m & 1 == 1).map(move |m| (first + m) % banks)
    }

    fn uses(&self, entry: u32) -> &[Use] {
        &self.uses[self.starts[entry as usize]..self.starts[entry as usize + 1]]
    }

    /// Number of bank conflicts (pairs of addresses in one bank) that an entry without a class
    /// would add in `class`.
    fn cost(&self, entry: u32, class: usize) -> u32 {
        let of = |r#use: &Use| {
            let loads = &self.loads[r#use.group as usize];
            self.banks_of(class, r#use.members).map(|bank| u32::from(loads[bank])).sum::<u32>()
        };
        self.uses(entry).iter().map(of).sum()
    }

    /// Applies `change` to the loads of the banks that an entry accesses in `class`.
    fn load(&mut self, entry: u32, class: usize, change: impl Fn(&mut u8)) {
        for at in self.starts[entry as usize]..self.starts[entry as usize + 1] {
            let Use { group, members } = self.uses[at];
            for bank in self.banks_of(class, members) {
                change(&mut self.loads[group as usize][bank]);
            }
        }
    }

    fn put(&mut self, entry: u32, class: usize) {
        self.load(entry, class, |load| *load += 1);
        self.class[entry as usize] = class;
        self.position[entry as usize] = self.members[class].len();
        self.members[class].push(entry);
    }

    fn take(&mut self, entry: u32) {
        let class = self.class[entry as usize];
        self.load(entry, class, |load| *load -= 1);
        let position = self.position[entry as usize];
        self.members[class].swap_remove(position);
        if let Some(&other) = self.members[class].get(position) {
            self.position[other as usize] = position;
        }
    }

    /// Number of entries of L + U that a class has room for: its numbers below the number of
    /// entries.
    fn room(&self, class: usize) -> usize {
        (self.class.len() + self.classes - 1 - class) / self.classes
    }

    /// Assigns a class to every entry, the most often read first.
    fn give_out(&mut self) {
        let mut order: Vec<u32> = (0..self.class.len() as u32).collect();
        order.sort_by_key(|&entry| (std::cmp::Reverse(self.uses(entry).len()), entry));
        for entry in order {
            let classes = (0..self.classes).filter(|&c| self.members[c].len() < self.room(c));
            let best =
                classes.min_by_key(|&class| (self.cost(entry, class), self.members[class].len()));
            if let Some(class) = best {
                self.put(entry, class);
            }
        }
    }

    /// Exchanges entries where this reduces bank conflicts.
    fn exchange(&mut self) {
        for entry in 0..self.class.len() as u32 {
            let own = self.class[entry as usize];
            self.take(entry);
            let costs: Vec<u32> = (0..self.classes).map(|class| self.cost(entry, class)).collect();
            let best = (0..self.classes).min_by_key(|&class| costs[class]).unwrap_or(own);
            let gain = i64::from(costs[own]) - i64::from(costs[best]);
            let mut partner = None;
            let mut most = 0;
            let tries = if gain > 0 { PARTNERS.min(self.members[best].len()) } else { 0 };
            for _ in 0..tries {
                let at = self.random() % self.members[best].len() as u64;
                let other = self.members[best][at as usize];
                self.take(other);
                let before = i64::from(costs[own]) + i64::from(self.cost(other, best));
                let after = i64::from(self.cost(entry, best)) + i64::from(self.cost(other, own));
                self.put(other, best);
                let sum = before - after;
                if sum > most {
                    most = sum;
                    partner = Some(other);
                }
            }
            match partner {
                Some(other) => {
                    self.take(other);
                    self.put(other, own);
                    self.put(entry, best);
                }
                None => self.put(entry, own),
            }
        }
    }

    fn random(&mut self) -> u64 {
        // Xorshift with a fixed seed: the same in every run.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn names(&self, places: Places) -> Names {
        let mut names = Names::plain(places);
        for (class, entries) in self.members.iter().enumerate() {
            for (number, &entry) in entries.iter().enumerate() {
                names.0[entry as usize] = (class + number * self.classes) as u32;
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of `entries` entries and four rows.
    fn places(entries: usize) -> Places {
        Places::with_parts(entries, 4, 3)
    }

    /// Reads of sixteen slots each, some of which have nothing.
    fn reads(entries: u32, count: usize) -> Vec<Vec<u32>> {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32
        };
        let place = |number: u32| if number.is_multiple_of(9) { NONE } else { number % entries };
        (0..count).map(|_| (0..16).map(|_| place(next())).collect()).collect()
    }

    /// Turns in which shared memory serves two systems side by side: each number covers two of
    /// sixteen banks.
    fn turns(names: &Names, reads: &[Vec<u32>]) -> usize {
        let half = |slots: &[u32]| {
            let mut numbers: Vec<u32> = slots
                .iter()
                .map(|&place| if place == NONE { names.zero() } else { names.of(place) })
                .collect();
            numbers.sort_unstable();
            numbers.dedup();
            let of_bank = |bank| numbers.iter().filter(|&number| number % 8 == bank).count();
            (0..8).map(of_bank).max().unwrap_or(0)
        };
        reads.iter().flat_map(|slots| slots.chunks(8)).map(half).sum()
    }

    #[test]
    fn every_entry_has_a_number_of_its_own_and_other_places_keep_theirs() {
        for (entries, systems, bytes) in
            [(0, 2, 8), (1, 1, 8), (5, 3, 8), (37, 2, 8), (64, 5, 4), (50, 16, 8), (50, 32, 4)]
        {
            let places = places(entries);
            let slots = 32 / systems as usize;
            let mut reads = reads(entries.max(1) as u32, 40);
            reads.iter_mut().for_each(|slots_of| slots_of.truncate(slots));
            if entries == 0 {
                reads.iter_mut().flatten().for_each(|place| *place = NONE);
            }

            let names = Names::spread(places, bytes, systems, &reads);

            let mut all: Vec<u32> = (0..places.len as u32).map(|place| names.of(place)).collect();
            assert!(all[entries..].iter().copied().eq(entries as u32..places.len as u32));
            all.sort_unstable();
            assert!(all.into_iter().eq(0..places.len as u32), "{entries} {systems} {bytes}");
        }
    }

    #[test]
    fn entries_that_are_read_together_are_in_different_banks() {
        // Rows of eight, whose entries are all in one bank without renumbering.
        let reads: Vec<Vec<u32>> =
            (0..8).map(|row| (0..16).map(|k| (k % 8) * 8 + row).collect()).collect();
        let places = places(64);

        let names = Names::spread(places, 8, 2, &reads);

        assert_eq!(turns(&Names::plain(places), &reads), 8 * 2 * 8);
        assert_eq!(turns(&names, &reads), 8 * 2);
    }

    #[test]
    fn random_reads_take_fewer_turns() {
        let (places, reads) = (places(100), reads(100, 60));

        let names = Names::spread(places, 8, 2, &reads);

        let (plain, spread) = (turns(&Names::plain(places), &reads), turns(&names, &reads));
        assert!(spread * 10 < plain * 9, "{plain} -> {spread}");
        let again = Names::spread(places, 8, 2, &reads);
        assert!((0..places.len as u32).all(|place| names.of(place) == again.of(place)));
    }
}
