//! The order of a row's entries in which threads gather a vector from shared memory at once.
//!
//! The banks of shared memory together are 128 bytes wide, and each serves one address at a time:
//! lanes that read different columns of one bank wait for each other (a bank conflict). With random
//! columns, the 16 lanes that read 8-byte values together need about three turns instead of one.

use crate::common::ALL_BANKS;

/// An entry of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) column: u16,
    /// Its index within the row.
    pub(super) number: u16,
}

/// Assigns the entries of rows that are read side by side, one row per lane, to `width` places per
/// row, such that the columns of one place lie in different banks as far as possible. Rows that
/// take the fewest turns already keep their order. The result depends on the rows alone.
pub(super) fn spread(
    rows: &[Vec<Entry>],
    width: usize,
    value_bytes: usize,
) -> Vec<Vec<Option<Entry>>> {
    let banks = ALL_BANKS / value_bytes;
    let mut placed = Vec::with_capacity(rows.len());
    for together in rows.chunks(banks) {
        let as_they_are: Vec<Vec<_>> =
            together.iter().map(|row| (0..width).map(|k| row.get(k).copied()).collect()).collect();
        let least = together.iter().map(Vec::len).max().unwrap_or(0);
        let before = turns(&as_they_are, width, banks);
        if before <= least {
            placed.extend(as_they_are);
            continue;
        }
        let matched = place(together, width, banks);
        let others = [matched, as_they_are.clone()].map(|other| exchanged(other, width, banks));
        let best = others.into_iter().min_by_key(|other| turns(other, width, banks));
        let best = best.filter(|best| turns(best, width, banks) < before);
        placed.extend(best.unwrap_or(as_they_are));
    }
    placed
}

/// Sum of the turns of all places; a place takes as many as the largest number of its columns in
/// one bank.
fn turns(rows: &[Vec<Option<Entry>>], width: usize, banks: usize) -> usize {
    let of_place = |k: usize| {
        let mut columns: Vec<u16> =
            rows.iter().filter_map(|row| row[k]).map(|e| e.column).collect();
        columns.sort_unstable();
        columns.dedup();
        let mut loads = vec![0; banks];
        columns.iter().for_each(|&column| loads[usize::from(column) % banks] += 1);
        loads.into_iter().max().unwrap_or(0)
    };
    (0..width).map(of_place).sum()
}

/// Fills place after place: the banks that most remaining entries want come first, and each gets a
/// lane of its own if possible (augmenting paths of bipartite matching). A lane with as many
/// entries left as places takes one in any case.
fn place(rows: &[Vec<Entry>], width: usize, banks: usize) -> Vec<Vec<Option<Entry>>> {
    let mut left: Vec<Vec<Entry>> = rows.to_vec();
    let mut placed = vec![Vec::with_capacity(width); rows.len()];
    let bank_of = |entry: &Entry| usize::from(entry.column) % banks;
    for k in 0..width {
        let mut wanted = vec![0; banks];
        left.iter().flatten().for_each(|entry| wanted[bank_of(entry)] += 1);
        let mut by_want: Vec<usize> = (0..banks).filter(|&bank| wanted[bank] > 0).collect();
        by_want.sort_by_key(|&bank| std::cmp::Reverse(wanted[bank]));
        let mut taken: Vec<Option<usize>> = vec![None; rows.len()];
        for &bank in &by_want {
            assign(bank, &left, &bank_of, &mut taken, &mut vec![false; rows.len()]);
        }
        let mut loads = vec![0; banks];
        taken.iter().flatten().for_each(|&bank| loads[bank] += 1);
        for (lane, entries) in left.iter_mut().enumerate() {
            let must = entries.len() == width - k;
            let chosen = match taken[lane] {
                Some(bank) => entries.iter().position(|entry| bank_of(entry) == bank),
                None if must => (0..entries.len()).min_by_key(|&e| loads[bank_of(&entries[e])]),
                None => None,
            };
            let entry = chosen.map(|e| entries.remove(e));
            if let (None, Some(entry)) = (taken[lane], &entry) {
                loads[bank_of(entry)] += 1;
            }
            placed[lane].push(entry);
        }
    }
    placed
}

/// Finds a lane for a bank, moving other lanes to other banks if necessary.
fn assign(
    bank: usize,
    left: &[Vec<Entry>],
    bank_of: &impl Fn(&Entry) -> usize,
    taken: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for lane in 0..left.len() {
        if seen[lane] || !left[lane].iter().any(|entry| bank_of(entry) == bank) {
            continue;
        }
        seen[lane] = true;
        if taken[lane].is_none_or(|other| assign(other, left, bank_of, taken, seen)) {
            taken[lane] = Some(bank);
            return true;
        }
    }
    false
}

/// The most passes of exchanges over all rows.
const ROUNDS: usize = 4;

/// Rows of more places keep their matching: they have too many pairs.
const MOST_EXCHANGED: usize = 32;

/// Exchanges entries of a row between two places while that reduces the sum of `4^load` over places
/// and banks, which the largest loads dominate.
fn exchanged(
    mut placed: Vec<Vec<Option<Entry>>>,
    width: usize,
    banks: usize,
) -> Vec<Vec<Option<Entry>>> {
    if width > MOST_EXCHANGED {
        return placed;
    }
    let mut loads = Loads::new(&placed, width, banks);
    for _ in 0..ROUNDS {
        let mut helped = false;
        for row in &mut placed {
            for first in 0..width {
                for second in first + 1..width {
                    let before = loads.costs[first] + loads.costs[second];
                    loads.exchange(row, first, second);
                    if loads.costs[first] + loads.costs[second] < before {
                        helped = true;
                    } else {
                        loads.exchange(row, first, second);
                    }
                }
            }
        }
        if !helped {
            break;
        }
    }
    placed
}

/// The number of columns of each bank that are read in each place.
struct Loads {
    banks: usize,
    /// Number of columns; `readers` counts, for each place, the lanes that read each column.
    columns: usize,
    readers: Vec<u8>,
    loads: Vec<u8>,
    /// The sum of `4^load` over the banks of each place.
    costs: Vec<u64>,
}

impl Loads {
    fn new(placed: &[Vec<Option<Entry>>], width: usize, banks: usize) -> Self {
        let entries = placed.iter().flatten().flatten();
        let columns = entries.map(|entry| usize::from(entry.column) + 1).max().unwrap_or(0);
        let mut loads = Self {
            banks,
            columns,
            readers: vec![0; width * columns],
            loads: vec![0; width * banks],
            costs: vec![banks as u64; width],
        };
        for row in placed {
            for (place, entry) in row.iter().enumerate() {
                loads.add(*entry, place);
            }
        }
        loads
    }

    fn exchange(&mut self, row: &mut [Option<Entry>], first: usize, second: usize) {
        for (from, to) in [(first, second), (second, first)] {
            self.remove(row[from], from);
            self.add(row[from], to);
        }
        row.swap(first, second);
    }

    fn add(&mut self, entry: Option<Entry>, place: usize) {
        let Some(column) = entry.map(|entry| usize::from(entry.column)) else { return };
        let readers = &mut self.readers[place * self.columns + column];
        *readers += 1;
        if *readers == 1 {
            let load = &mut self.loads[place * self.banks + column % self.banks];
            self.costs[place] += step(*load);
            *load += 1;
        }
    }

    fn remove(&mut self, entry: Option<Entry>, place: usize) {
        let Some(column) = entry.map(|entry| usize::from(entry.column)) else { return };
        let readers = &mut self.readers[place * self.columns + column];
        *readers -= 1;
        if *readers == 0 {
            let load = &mut self.loads[place * self.banks + column % self.banks];
            *load -= 1;
            self.costs[place] -= step(*load);
        }
    }
}

/// `4^(load + 1) - 4^load`, with `load` capped to prevent overflow.
fn step(load: u8) -> u64 {
    3 << (2 * load.min(24))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::generate::{Family, Problem};
    use sparsebatch_testing::random_vector;

    fn rows(columns: &[Vec<u16>]) -> Vec<Vec<Entry>> {
        let row = |columns: &Vec<u16>| -> Vec<Entry> {
            columns.iter().zip(0..).map(|(&column, number)| Entry { column, number }).collect()
        };
        columns.iter().map(row).collect()
    }

    /// Checks that all entries occur once and every row has `width` places.
    fn check(rows: &[Vec<Entry>], placed: &[Vec<Option<Entry>>], width: usize) {
        assert_eq!(rows.len(), placed.len());
        for (row, places) in rows.iter().zip(placed) {
            let mut found: Vec<Entry> = places.iter().copied().flatten().collect();
            found.sort_by_key(|entry| entry.number);
            assert_eq!((&found, places.len()), (row, width));
        }
    }

    #[test]
    fn lanes_of_one_bank_are_told_apart() {
        // Each lane wants bank 0 and a bank of its own.
        let columns: Vec<Vec<u16>> = (0..2).map(|lane| vec![16 * lane, 16 * lane + 1]).collect();
        let rows = rows(&columns);

        let placed = spread(&rows, 2, 8);

        check(&rows, &placed, 2);
        assert_eq!(turns(&placed, 2, 16), 2);
    }

    #[test]
    fn what_needs_no_turns_beyond_its_length_stays() {
        // Rows of a tridiagonal matrix.
        let columns: Vec<Vec<u16>> = (1..17).map(|row| vec![row - 1, row, row + 1]).collect();
        let rows = rows(&columns);

        let placed = spread(&rows, 3, 8);

        assert!(placed.iter().flatten().zip(0..).all(|(entry, k)| entry.unwrap().number == k % 3));
    }

    #[test]
    fn random_columns_take_about_half_the_turns() {
        for (lanes, value_bytes) in [(16, 8), (32, 4), (128, 8), (5, 8)] {
            let draws = random_vector::<f64>(lanes * 9, 7);
            let columns: Vec<Vec<u16>> = draws
                .chunks(9)
                .map(|row| row.iter().map(|v| ((v + 1.0) * 256.0) as u16).collect())
                .collect();
            let rows = rows(&columns);
            let banks = ALL_BANKS / value_bytes;
            let sum = |placed: &[Vec<Option<Entry>>]| -> usize {
                placed.chunks(banks).map(|lanes| turns(lanes, 9, banks)).sum()
            };
            let before: Vec<Vec<_>> =
                rows.iter().map(|row| row.iter().copied().map(Some).collect()).collect();

            let placed = spread(&rows, 9, value_bytes);

            check(&rows, &placed, 9);
            let (before, after) = (sum(&before), sum(&placed));
            let most = if lanes == 5 { before } else { before * 65 / 100 };
            assert!(after <= most, "{lanes} lanes: {before} before, {after} after");
        }
    }

    /// Matching lane after lane leaves some lanes with banks that others want.
    #[test]
    fn exchanges_come_near_to_the_least() {
        let batch = Problem::new(Family::Rand9, 144).unwrap().batch(1).unwrap().batch;
        let pattern = batch.pattern(0);
        let columns: Vec<Vec<u16>> = (0..144)
            .map(|row| pattern.col_idx()[pattern.row(row)].iter().map(|&col| col as u16).collect())
            .collect();
        let all: usize =
            rows(&columns).chunks(16).map(|rows| turns(&spread(rows, 9, 8), 9, 16)).sum();
        let matched: usize =
            rows(&columns).chunks(16).map(|rows| turns(&place(rows, 9, 16), 9, 16)).sum();

        // The optimum is 9 turns in each of 9 groups of lanes.
        assert!((81..=105).contains(&all) && all < matched, "{all}, {matched}");
    }

    #[test]
    fn many_columns_of_one_bank_do_not_overflow() {
        let columns: Vec<Vec<u16>> =
            (0..32).map(|lane| vec![32 * lane, 32 * lane + 1024]).collect();
        let rows = rows(&columns);

        let placed = spread(&rows, 2, 4);

        check(&rows, &placed, 2);
        assert_eq!(turns(&placed, 2, 32), 64);
    }

    #[test]
    fn rows_shorter_than_the_places_are_padded() {
        let rows = rows(&[vec![], vec![0, 16], vec![32], vec![1, 2, 48]]);

        let placed = spread(&rows, 5, 8);

        check(&rows, &placed, 5);
        // Four entries of bank 0, each in its own place.
        assert_eq!(turns(&placed, 5, 16), 4);
    }
}
