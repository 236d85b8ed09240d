//! The same work for each of several systems: [`map_each`].

use rayon::prelude::*;

/// Systems that a thread takes in one go, at least. Fewer than [`FEW`] stay in the calling thread:
/// to wake others takes longer.
const OF_A_TASK: usize = 64;
const FEW: usize = 256;

/// What `work` makes of each value, in their order; on several threads where there are many.
pub(crate) fn map_each<V: Send, R: Send>(
    values: Vec<V>,
    work: impl Fn(V) -> R + Send + Sync,
) -> Vec<R> {
    match values.len() {
        ..FEW => values.into_iter().map(work).collect(),
        _ => values.into_par_iter().with_min_len(OF_A_TASK).map(work).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_mapped_in_order() {
        for count in [0, 1, FEW - 1, FEW, 10 * FEW] {
            let doubled = map_each((0..count).collect(), |value| 2 * value);

            assert_eq!(doubled, (0..count).map(|value| 2 * value).collect::<Vec<_>>());
        }
    }
}
