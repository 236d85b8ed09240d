//! Vectors of a rank, and sums over all ranks.
//!
//! Sums and norms within a rank are those of chunks of a fixed length, added in their order: they do
//! not depend on the number of threads. Sums over ranks are added in the order of the ranks by every
//! rank alike, so that the bits are the same on all ranks, and in every run with as many.

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_cpu_ref::lanes;
use sparsebatch_formats::Scalar;
use sparsebatch_solve_core::norm2;

use crate::{Failure, MpiError, Ranks};

/// Elements or rows of a chunk.
pub(super) const CHUNK: usize = 1 << 14;

/// What `part` gives for each chunk of [`CHUNK`] elements or rows, in their order.
pub(super) fn by_chunks<R: Send>(
    len: usize,
    part: impl Fn(Range<usize>) -> R + Send + Sync,
) -> Vec<R> {
    let chunk = |k: usize| k * CHUNK..((k + 1) * CHUNK).min(len);
    match len {
        0 => Vec::new(),
        1..=CHUNK => vec![part(0..len)],
        _ => (0..len.div_ceil(CHUNK)).into_par_iter().map(|k| part(chunk(k))).collect(),
    }
}

/// As [`by_chunks`], with the chunk of a vector that `part` writes.
pub(super) fn fill_by_chunks<T: Send, R: Send>(
    to: &mut [T],
    part: impl Fn(Range<usize>, &mut [T]) -> R + Send + Sync,
) -> Vec<R> {
    let each = |(k, to): (usize, &mut [T])| part(k * CHUNK..k * CHUNK + to.len(), to);
    match to.len() {
        ..=CHUNK => to.chunks_mut(CHUNK).enumerate().map(each).collect(),
        _ => to.par_chunks_mut(CHUNK).enumerate().map(each).collect(),
    }
}

/// The norm of the elements of this rank.
pub(super) fn norm<T: Scalar>(v: &[T]) -> f64 {
    match v.len() {
        ..=CHUNK => norm2(v),
        _ => norm2(&by_chunks(v.len(), |part| norm2(&v[part]))),
    }
}

/// `a'b` of the elements of this rank.
pub(super) fn dot<T: Scalar>(a: &[T], b: &[T]) -> f64 {
    if a.len() <= CHUNK {
        return lanes::dot(a, b).to_f64();
    }
    let chunks = a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK));
    let sums: Vec<f64> = chunks.map(|(a, b)| lanes::dot(a, b).to_f64()).collect();
    sums.iter().sum()
}

/// `y = alpha x + beta y`.
pub(super) fn axpby<T: Scalar>(alpha: f64, x: &[T], beta: f64, y: &mut [T]) {
    let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
    let part = |(x, y): (&[T], &mut [T])| {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = alpha * x + beta * *y;
        }
    };
    match x.len() <= CHUNK {
        true => part((x, y)),
        false => x.par_chunks(CHUNK).zip(y.par_chunks_mut(CHUNK)).for_each(part),
    }
}

/// A vector of zeros.
///
/// # Errors
/// Where there is no memory for it.
pub(super) fn zeros<T: Scalar>(len: usize) -> Result<Vec<T>, Failure> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(len).map_err(|_| {
        let bytes = len.saturating_mul(size_of::<T>());
        Failure::internal(format!("{bytes} bytes for a vector could not be allocated"))
    })?;
    match len {
        ..=CHUNK => zeros.resize(len, T::ZERO),
        _ => zeros.par_extend((0..len).into_par_iter().with_min_len(CHUNK).map(|_| T::ZERO)),
    }
    Ok(zeros)
}

/// Two vectors as one; the first is long.
pub(super) fn joined<T: Scalar>(long: &[T], rest: &[T]) -> Vec<T> {
    let mut all = Vec::with_capacity(long.len() + rest.len());
    match long.len() {
        ..=CHUNK => all.extend_from_slice(long),
        _ => all.par_extend(long.par_iter().with_min_len(CHUNK).copied()),
    }
    all.extend_from_slice(rest);
    all
}

/// `to = from`.
pub(super) fn copy<T: Scalar>(from: &[T], to: &mut [T]) {
    fill_by_chunks(to, |part, to| to.copy_from_slice(&from[part]));
}

/// Numbers of all ranks, and the word of each whether it has failed.
pub(super) struct Sums<'a> {
    ranks: &'a Ranks,
    own: Vec<f64>,
    all: Vec<f64>,
    /// Why this rank has failed since the last sum.
    failure: Option<Failure>,
}

impl<'a> Sums<'a> {
    pub(super) fn new(ranks: &'a Ranks) -> Self {
        Self { ranks, own: Vec::new(), all: Vec::new(), failure: None }
    }

    /// Remembers a failure until the ranks meet next, where all of them end.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// The failure that is remembered, which is then forgotten.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Remembers the failure of a result.
    pub(super) fn attend(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.fail(failure);
        }
    }

    /// A result, or what stands in its place until the ranks meet next, where all of them end.
    pub(super) fn expect<R>(&mut self, result: Result<R, Failure>, otherwise: R) -> R {
        result.unwrap_or_else(|failure| {
            self.fail(failure);
            otherwise
        })
    }

    /// The numbers of each rank.
    ///
    /// # Errors
    /// On all ranks where one has failed.
    pub(super) fn gather<const K: usize>(
        &mut self,
        own: [f64; K],
    ) -> Result<impl Iterator<Item = [f64; K]> + '_, MpiError> {
        self.gather_during(own, |_| ())
    }

    /// As [`Sums::gather`], with work to do until the numbers have come; what the work fails with
    /// counts for the next sum.
    pub(super) fn gather_during<const K: usize>(
        &mut self,
        own: [f64; K],
        meanwhile: impl FnOnce(&mut Self),
    ) -> Result<impl Iterator<Item = [f64; K]> + '_, MpiError> {
        let failure = self.failure.take();
        let (mut mine, mut all) = (std::mem::take(&mut self.own), std::mem::take(&mut self.all));
        mine.clear();
        mine.extend(own);
        mine.push(f64::from(u8::from(failure.is_some())));
        all.resize(self.ranks.size() * (K + 1), 0.0);
        let ranks = self.ranks;
        let mut meanwhile = Some(meanwhile);
        ranks.transport().all_gather_f64s(&mine, &mut all, &mut || {
            if let Some(work) = meanwhile.take() {
                work(self);
            }
        });
        (self.own, self.all) = (mine, all);
        if self.all.chunks(K + 1).any(|numbers| numbers[K] != 0.0) {
            ranks.agree(failure.map_or(Ok(()), Err))?;
        }
        let of_rank = |numbers: &[f64]| std::array::from_fn(|k| numbers[k]);
        Ok(self.all.chunks(K + 1).map(of_rank))
    }

    /// The sums over all ranks, in their order.
    ///
    /// # Errors
    /// As [`Sums::gather`].
    pub(super) fn sum<const K: usize>(&mut self, own: [f64; K]) -> Result<[f64; K], MpiError> {
        self.sum_during(own, |_| ())
    }

    /// As [`Sums::sum`], with work as in [`Sums::gather_during`].
    ///
    /// # Errors
    /// As [`Sums::gather`].
    pub(super) fn sum_during<const K: usize>(
        &mut self,
        own: [f64; K],
        meanwhile: impl FnOnce(&mut Self),
    ) -> Result<[f64; K], MpiError> {
        let all = self.gather_during(own, meanwhile)?;
        Ok(all.fold([0.0; K], |sums, numbers| std::array::from_fn(|k| sums[k] + numbers[k])))
    }

    /// The norms of vectors by the norms of the parts of all ranks.
    ///
    /// # Errors
    /// As [`Sums::gather`].
    pub(super) fn norms<const K: usize>(&mut self, own: [f64; K]) -> Result<[f64; K], MpiError> {
        let all: Vec<[f64; K]> = self.gather(own)?.collect();
        Ok(std::array::from_fn(|k| {
            let parts: Vec<f64> = all.iter().map(|numbers| numbers[k]).collect();
            norm2(&parts)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_do_not_depend_on_threads() {
        let a: Vec<f64> = (0..3 * CHUNK + 7).map(|i| 1.0 / (i + 1) as f64).collect();
        let of = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| dot(&a, &a).to_bits())
        };

        assert_eq!(of(1), of(3));
        let whole: f64 = a.iter().map(|a| a * a).sum();
        assert!((dot(&a, &a) - whole).abs() < 1e-12);
        assert_eq!(dot::<f64>(&[], &[]), 0.0);
    }

    #[test]
    fn axpby_of_long_vectors_is_that_of_elements() {
        let x: Vec<f32> = (0..CHUNK + 3).map(|i| i as f32).collect();
        let mut y = vec![1.0; x.len()];

        axpby(2.0, &x, -1.0, &mut y);

        assert!(y.iter().enumerate().all(|(i, &y)| y == 2.0 * i as f32 - 1.0));
    }

    #[test]
    fn sums_are_in_the_order_of_ranks() {
        // In this order the sum is 1; summed from the other end it is 0.
        let parts = [1e20, -1e20, 1.0];

        let sums = Ranks::on_threads(3, |ranks| {
            let mut sums = Sums::new(ranks);
            let mut seen = 0;
            let of_all = sums.sum_during([parts[ranks.rank()], 1.0], |_| seen += 1).unwrap();
            let norms = sums.norms([[3e300, 4e300, 0.0][ranks.rank()]]).unwrap();
            (of_all, norms, seen)
        });

        assert!(sums.iter().all(|found| *found == ([1.0, 3.0], [5e300], 1)));
    }

    #[test]
    fn a_failure_ends_all_ranks_at_the_next_sum() {
        let ends = Ranks::on_threads(3, |ranks| {
            let mut sums = Sums::new(ranks);
            if ranks.rank() == 1 {
                sums.attend(Ok(()));
                sums.attend(Err(Failure::internal("first")));
                sums.fail(Failure::internal("second"));
            }
            let error = sums.sum([1.0]).err().map(|error| error.to_string());
            (error, sums.sum([1.0]).unwrap())
        });

        let line = "rank 1 on this host: first".to_owned();
        assert!(ends.iter().all(|end| *end == (Some(line.clone()), [3.0])), "{ends:?}");
    }

    #[test]
    fn more_than_there_is_memory_for_is_a_failure() {
        let refused = zeros::<f64>(usize::MAX / 16).unwrap_err();

        assert!(refused.message.ends_with("bytes for a vector could not be allocated"));
    }
}
