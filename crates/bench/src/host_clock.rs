//! Times products on the processor by the host's clock.
//!
//! A round is one or several products, which alternate between the copies of a contender. All
//! rounds count, outliers too.

use std::time::{Duration, Instant};

use sparsebatch_cpu_ref::CpuError;
use sparsebatch_formats::Scalar;

use crate::parallel;
use crate::timing::{Pace, RECORDED, Timing, rounds};

/// A matrix or batch on the processor.
pub(crate) trait HostMultiply<T = f64>: Send {
    /// `y += A x`.
    ///
    /// # Errors
    /// An error of the product.
    fn multiply(&mut self, x: &[T], y: &mut [T]) -> Result<(), CpuError>;
}

/// How much time and memory a contender gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Effort {
    /// Milliseconds for rounds; the fewest rounds run even if they take longer.
    pub(crate) budget_ms: f64,
    /// Most bytes of all copies that products alternate between.
    pub(crate) copy_bytes: f64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { budget_ms: 500.0, copy_bytes: 1e9 }
    }
}

/// Fewest rounds of a measurement.
const FEWEST: usize = 5;

impl Effort {
    /// Number of copies needed for the data of a product to be evicted from the cache before its
    /// next turn: twice the cache in total, as far as `copy_bytes` allows.
    pub(crate) fn copies(self, useful_bytes: f64, cache_bytes: u64) -> usize {
        let wanted = (2.0 * cache_bytes as f64).min(self.copy_bytes) / useful_bytes.max(1.0);
        (wanted.ceil() as usize).clamp(1, RECORDED)
    }

    /// Number of rounds and of products per round, from an estimate of one product's time.
    pub(crate) fn rounds(self, estimate_ms: f64) -> (usize, usize) {
        let (most, products) = rounds(Pace::Issued, estimate_ms, 1);
        let affordable = self.budget_ms / (estimate_ms * products as f64).max(1e-4);
        (most.min(affordable as usize).max(FEWEST), products)
    }
}

/// Copies of x and y on the host.
pub(crate) struct HostOperands<T = f64> {
    pairs: Vec<(Vec<T>, Vec<T>)>,
}

impl<T: Scalar> HostOperands<T> {
    /// Makes `copies` copies of x, each with a y of `nrows` zeros.
    pub(crate) fn new(x: &[T], nrows: usize, copies: usize) -> Self {
        let pair = |_| (x.to_vec(), vec![T::ZERO; nrows]);
        Self { pairs: parallel::map(copies.max(1), pair) }
    }

    /// Number of copies.
    pub(crate) fn copies(&self) -> usize {
        self.pairs.len()
    }
}

/// Copies of a plan, each with its own vectors.
pub(crate) struct HostContender<'a, P, T = f64> {
    plans: Vec<P>,
    operands: &'a mut HostOperands<T>,
}

impl<'a, P: HostMultiply<T>, T: Scalar> HostContender<'a, P, T> {
    /// Makes one plan per copy of the vectors; `plan` gets the copy's index. The first plan is made
    /// alone, so that its cost can be timed, the others in parallel.
    ///
    /// # Errors
    /// An error of `plan`.
    pub(crate) fn new(
        operands: &'a mut HostOperands<T>,
        plan: impl Fn(usize) -> Result<P, CpuError> + Sync,
    ) -> Result<Self, CpuError> {
        let mut plans = vec![plan(0)?];
        let others = parallel::map(operands.copies().saturating_sub(1), |other| plan(other + 1));
        plans.extend(others.into_iter().collect::<Result<Vec<_>, _>>()?);
        Ok(Self { plans, operands })
    }

    /// Number of copies.
    pub(crate) fn copies(&self) -> usize {
        self.plans.len()
    }

    /// The plans.
    pub(crate) fn plans(&self) -> &[P] {
        &self.plans
    }

    /// Computes `A x` on copy `copy` in the form that is timed, in which y is read, and returns it
    /// in f64.
    ///
    /// # Errors
    /// An error of the product.
    pub(crate) fn answer(&mut self, copy: usize) -> Result<Vec<f64>, CpuError> {
        self.operands.pairs[copy].1.fill(T::ZERO);
        self.product(copy)?;
        Ok(parallel::in_f64(&self.operands.pairs[copy].1))
    }

    /// Computes `y += A x` on copy `copy` modulo the number of copies.
    ///
    /// # Errors
    /// An error of the product.
    pub(crate) fn product(&mut self, copy: usize) -> Result<(), CpuError> {
        let copy = copy % self.plans.len();
        let (x, y) = &mut self.operands.pairs[copy];
        self.plans[copy].multiply(x, y)
    }
}

fn milliseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

/// Times a contender. `is_warm` means that every copy was multiplied before.
///
/// # Errors
/// An error of a product.
pub(crate) fn time<P: HostMultiply<T>, T: Scalar>(
    contender: &mut HostContender<'_, P, T>,
    effort: Effort,
    is_warm: bool,
) -> Result<Timing, CpuError> {
    let copies = if is_warm { 1 } else { contender.copies() };
    wall(effort, copies, |copy| contender.product(copy))
}

/// Times calls that alternate between `copies` copies: first a warm-up over every copy and for some
/// milliseconds, then in rounds.
///
/// # Errors
/// An error of a call.
pub(crate) fn wall<E>(
    effort: Effort,
    copies: usize,
    mut call: impl FnMut(usize) -> Result<(), E>,
) -> Result<Timing, E> {
    let copies = copies.max(2);
    let begin = Instant::now();
    let estimate = loop {
        let turn = Instant::now();
        (0..copies).try_for_each(&mut call)?;
        if begin.elapsed() >= Duration::from_millis(10) {
            break milliseconds(turn) / copies as f64;
        }
    };
    let (count, products) = effort.rounds(estimate);
    let mut times = Vec::with_capacity(count);
    for round in 0..count {
        let first = round * products;
        let begin = Instant::now();
        (first..first + products).try_for_each(&mut call)?;
        times.push(milliseconds(begin) / products as f64);
    }
    Ok(Timing::of(times, products))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort { budget_ms: 100.0, copy_bytes: 1e6 };

    /// Multiplies by 2, and counts the products.
    struct Twice(usize);

    impl HostMultiply for Twice {
        fn multiply(&mut self, x: &[f64], y: &mut [f64]) -> Result<(), CpuError> {
            self.0 += 1;
            y.iter_mut().zip(x).for_each(|(y, x)| *y += 2.0 * x);
            Ok(())
        }
    }

    #[test]
    fn copies_fill_two_caches_within_the_memory_allowed() {
        assert_eq!(EFFORT.copies(1e9, 32 << 20), 1);
        assert_eq!(EFFORT.copies(1e5, 300_000), 6);
        assert_eq!(EFFORT.copies(1e5, 32 << 20), 10);
        assert_eq!(EFFORT.copies(1.0, 32 << 20), RECORDED);
        assert_eq!(EFFORT.copies(1e5, 0), 1);
    }

    #[test]
    fn slow_products_have_fewer_rounds_and_short_ones_share_one() {
        assert_eq!(EFFORT.rounds(1.0), (21, 1));
        assert_eq!(EFFORT.rounds(10.0), (10, 1));
        assert_eq!(EFFORT.rounds(1000.0), (5, 1));
        assert_eq!(EFFORT.rounds(0.05), (21, 4));
    }

    #[test]
    fn all_copies_are_timed_alike() {
        let mut operands = HostOperands::new(&[1.0, 2.0], 2, 3);
        let mut contender = HostContender::new(&mut operands, |_| Ok(Twice(0))).unwrap();

        assert_eq!(contender.answer(2).unwrap(), [2.0, 4.0]);
        let timing = time(&mut contender, EFFORT, false).unwrap();

        assert_eq!(timing.round_ms.len(), 21);
        assert!(timing.min_ms <= timing.median_ms && timing.median_ms <= timing.max_ms);
        let counts: Vec<usize> = contender.plans().iter().map(|plan| plan.0).collect();
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 2, "{counts:?}");
    }
}
