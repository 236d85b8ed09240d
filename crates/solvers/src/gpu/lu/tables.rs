//! The tables of substitution and residual with factors that are kept: see `lu_kept.cu`.

use sparsebatch_cpu_ref::symbolic::{FactorPattern, NO_SOURCE};

use super::chunks::{
    AHEAD, CHUNK, Chunks, HALVES, IDLE, MINUS_ONE, MOST_NUMBERS, NOTHING, Product, split,
};

/// What the solves with kept factors go by.
#[derive(Debug)]
pub(super) struct KeptTables {
    /// Places of what is kept, in the order of its use: pivots, factors, from `first_of_a` on A.
    pub(super) order: Vec<u16>,
    pub(super) first_of_a: u32,
    /// The first value of the first chunk.
    pub(super) first_value: u32,
    /// Chunks up to the last one of L, of U, and of A.
    pub(super) end_of_l: u32,
    pub(super) end_of_u: u32,
    pub(super) end_of_a: u32,
    /// Numbers of the vectors between the solution and the sums of the residual, and those of the sums.
    pub(super) slots: u32,
    pub(super) sums: u32,
    /// A word for each chunk and lane, and those of one chunk more; where the values of each chunk are.
    pub(super) words: Vec<u32>,
}

impl KeptTables {
    /// Of a filled pattern. `None` when it has more rows than the words can number.
    pub(super) fn new(pattern: &FactorPattern) -> Option<Self> {
        let n = pattern.nrows() as u32;
        let product =
            |target: u32, source: u32, k: usize| Product { target, source, place: k as u16 };
        let entry = |row: u32, k: usize| product(row, pattern.cols()[k], k);
        // Behind the solution there is a zero.
        let (zero, first_slot) = (n, n + 1);
        let lower = (0..n).map(|row| pattern.lower(row as usize).map(|k| entry(row, k)).collect());
        let (l, end_of_slots_l) = split(lower, first_slot);
        let upper = (0..n).rev().map(|row| {
            let own: Vec<Product> =
                pattern.upper(row as usize).rev().map(|k| entry(row, k)).collect();
            let nothing = Product { target: row, source: zero, place: MINUS_ONE };
            if own.is_empty() { vec![nothing] } else { own }
        });
        let (u, end_of_slots_u) = split(upper, first_slot);
        let first_sum = end_of_slots_l.max(end_of_slots_u);
        let residual = (0..n).map(|row| {
            let own = pattern.perm()[row as usize];
            let all = pattern.lower(row as usize).start..pattern.upper(row as usize).end;
            let of_a = all.filter(|&k| pattern.source()[k] != NO_SOURCE);
            of_a.map(|k| product(first_sum + own, pattern.cols()[k], k)).collect()
        });
        let (a, end) = split(residual, first_sum + n);
        if end as usize > MOST_NUMBERS {
            return None;
        }

        let mut order: Vec<u16> = pattern.diag().iter().map(|&place| place as u16).collect();
        order.resize(order.len().next_multiple_of(CHUNK), NOTHING);
        let first_value = order.len();
        let mut chunks = Chunks::new(zero);
        let mut end_of = |products: &[Product], divided: u32| {
            chunks.append(products, divided);
            (chunks.len(), chunks.order.len())
        };
        let ((end_of_l, _), (end_of_u, values), (end_of_a, _)) =
            (end_of(&l, 0), end_of(&u, n), end_of(&a, 0));
        order.append(&mut chunks.order);
        let spans: Vec<u32> = chunks.spans().collect();
        let mut words = chunks.words;
        words.resize(words.len() + CHUNK, IDLE);
        words.extend(spans);
        words.resize(words.len() + HALVES * AHEAD, 0);
        Some(Self {
            order,
            first_of_a: (first_value + values) as u32,
            first_value: first_value as u32,
            end_of_l: end_of_l as u32,
            end_of_u: end_of_u as u32,
            end_of_a: end_of_a as u32,
            slots: first_sum - n,
            sums: end - first_sum,
            words,
        })
    }
}
