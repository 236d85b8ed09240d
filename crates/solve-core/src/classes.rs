//! Which items of a batch have equal patterns.

use std::collections::HashMap;

use rayon::prelude::*;
use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};

/// Items (all, or those in `only`, ascending) with equal patterns, as [`by_pattern`] groups them. A
/// batch has at most [`MAX_SYSTEMS`](sparsebatch_formats::batch::MAX_SYSTEMS) items here.
///
/// # Panics
/// When `only` names an item that a ragged batch does not have.
pub fn classes<T: Scalar>(batch: &Batch<T>, only: Option<&[usize]>) -> Vec<Vec<u32>> {
    let item = |k: usize| only.map_or(k, |only| only[k]);
    let len = only.map_or(batch.nitems(), <[usize]>::len);
    if let Batch::Uniform(_) = batch {
        let all: Vec<u32> = (0..len).map(|k| item(k) as u32).collect();
        return if all.is_empty() { Vec::new() } else { vec![all] };
    }
    let mut classes = by_pattern(len, |k| batch.pattern(item(k)));
    classes.iter_mut().flatten().for_each(|k| *k = item(*k as usize) as u32);
    classes
}

/// Numbers below `len` with equal patterns, each class in ascending order, classes in the order of
/// their first numbers. Patterns are hashed in parallel, then compared entry by entry: equal hashes
/// prove nothing.
pub fn by_pattern<'a>(
    len: usize,
    pattern: impl Fn(usize) -> CsrPatternRef<'a> + Sync,
) -> Vec<Vec<u32>> {
    let hashes: Vec<u64> = (0..len).into_par_iter().map(|item| hash(pattern(item))).collect();
    let mut classes: Vec<Vec<u32>> = Vec::new();
    let mut by_hash: HashMap<u64, Vec<usize>> = HashMap::new();
    for (item, hash) in hashes.into_iter().enumerate() {
        let candidates = by_hash.entry(hash).or_default();
        let equal = |&&class: &&usize| pattern(classes[class][0] as usize) == pattern(item);
        match candidates.iter().find(equal) {
            Some(&class) => classes[class].push(item as u32),
            None => {
                candidates.push(classes.len());
                classes.push(vec![item as u32]);
            }
        }
    }
    classes
}

/// A hash of the sizes and index arrays: multiply and rotate, word by word, in four chains that the
/// processor runs side by side.
fn hash(pattern: CsrPatternRef<'_>) -> u64 {
    let step =
        |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut chains = [pattern.ncols() as u64, 1, 2, 3];
    for words in [pattern.row_ptr(), pattern.col_idx()] {
        let (fours, rest) = words.as_chunks::<4>();
        for four in fours {
            for (chain, &word) in chains.iter_mut().zip(four) {
                *chain = step(*chain, u64::from(word as u32));
            }
        }
        chains[0] = rest.iter().fold(chains[0], |hash, &word| step(hash, u64::from(word as u32)));
    }
    chains.into_iter().reduce(step).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Csr;

    use super::*;

    #[test]
    fn items_are_grouped_by_pattern_not_by_value() {
        let diagonal = |v: f64| Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![v, v]);
        let other = Csr::try_new(2, 2, vec![0, 1, 2], vec![1, 0], vec![1.0, 1.0]).expect("valid");
        let one = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![1.0]).expect("valid");
        let items = [diagonal(1.0).expect("valid"), other, diagonal(3.0).expect("valid"), one];

        let classes = classes(&Batch::from_iter(items), None);

        assert_eq!(classes, [vec![0, 2], vec![1], vec![3]]);
    }
}
