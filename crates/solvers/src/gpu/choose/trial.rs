//! Solves of some systems of a batch by BiCGStab, to see how many iterations they take.

use sparsebatch_cpu_ref::Status;
use sparsebatch_formats::generate::rng;
use sparsebatch_formats::{Batch, Csr, Scalar};

use crate::options::{Method, Preconditioner, Rhs, SolveOptions};

/// Systems that are solved to see how many iterations they take, at most, and entries of them.
const TRIALS: usize = 256;
const TRIAL_ENTRIES: usize = 1 << 20;
/// The most iterations that say anything: where some systems take more, others take a hundred times as
/// many, and the slowest one ends a solve (of the 72 of `isooctane` with Jacobi, 67 take 7 at most; 10,000
/// take 30 ms for 4.3 on average, and LU 3.3 ms).
const TRIAL_ITERATIONS: u32 = 10;
/// What an iteration with Jacobi costs, in iterations without.
const JACOBI_COSTS: f64 = 1.1;

/// What trials found.
pub(super) struct Trial {
    pub(super) preconditioner: Preconditioner,
    /// On average.
    pub(super) iterations: f64,
}

/// One item of each of equally long stretches of a batch, at places drawn at random, always the same:
/// what comes in regular turns, such as the cells of a grid, is met as often as it is there.
fn drawn<T: Scalar>(batch: &Batch<T>) -> Vec<usize> {
    let nitems = batch.nitems();
    let entries = batch.total_nnz() / nitems.max(1);
    let count = TRIALS.min(TRIAL_ENTRIES / entries.max(1)).clamp(1, nitems.max(1));
    let first = |stretch: usize| stretch * nitems / count;
    let draw = |stretch: usize| {
        let random = rng::mix(stretch as u64) as usize;
        first(stretch) + random % (first(stretch + 1) - first(stretch)).max(1)
    };
    (0..count.min(nitems)).map(draw).collect()
}

/// How some systems of a batch fare by BiCGStab; `None` where one does not converge in few iterations.
/// Systems that are not finite have no say.
pub(super) fn trial<T: Scalar>(
    batch: &Batch<T>,
    rhs: Option<Rhs<'_, T>>,
    options: &SolveOptions,
    rel_tol: f64,
) -> Option<Trial> {
    let mut copy = Vec::new();
    let (mut matrices, mut b, mut x0) = (Vec::<Csr<f64>>::new(), Vec::new(), Vec::new());
    for item in drawn(batch) {
        let pattern = batch.pattern(item);
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        let widened = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<_>>();
        let values = widened(batch.values_in(item, &mut copy));
        let first = batch.row_offset(item) * options.nrhs;
        let part = |v: &[T]| widened(&v[first..first + nrows]);
        let (own, guess) = match rhs {
            Some(rhs) => (part(rhs.b), rhs.x0.map_or_else(|| vec![0.0; nrows], part)),
            // Of x = 1: as smooth as solutions mostly are.
            None => {
                let sum = |row| values[pattern.row(row)].iter().sum();
                ((0..nrows).map(sum).collect(), vec![0.0; nrows])
            }
        };
        if values.iter().chain(&own).chain(&guess).all(|value| value.is_finite()) {
            let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
            matrices.push(Csr::try_new(nrows, ncols, row_ptr, col_idx, values).ok()?);
            b.extend(own);
            x0.extend(guess);
        }
    }
    let matrices: Batch<f64> = matrices.into_iter().collect();
    let by = |preconditioner| {
        let options = SolveOptions {
            method: Method::BiCgStab,
            preconditioner,
            rel_tol: Some(rel_tol),
            abs_tol: options.abs_tol,
            floor: options.floor,
            order: options.order,
            block_size: options.block_size,
            max_iters: TRIAL_ITERATIONS,
            ..SolveOptions::default()
        };
        let systems = crate::solve(&matrices, &b, Some(&x0), &options).ok()?.report.systems;
        let converged = systems.iter().all(|system| system.outcome.status == Status::Converged);
        let iterations: f64 = systems.iter().map(|s| f64::from(s.outcome.iterations)).sum();
        let iterations = iterations / systems.len() as f64;
        (converged && !systems.is_empty()).then_some(Trial { preconditioner, iterations })
    };
    match options.preconditioner {
        Preconditioner::Auto => {
            let (none, jacobi) = (by(Preconditioner::None), by(Preconditioner::Auto));
            let Some(jacobi) = jacobi else { return none };
            let is_as_good = |none: &Trial| none.iterations <= JACOBI_COSTS * jacobi.iterations;
            Some(none.filter(is_as_good).unwrap_or(jacobi))
        }
        asked => by(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::UniformBatch;

    /// Batches whose items differ in turns, however long these are.
    #[test]
    fn turns_are_met_as_often_as_they_are_there() {
        let matrix = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![1.0]).unwrap();
        let items = drawn(&Batch::Uniform(UniformBatch::shared(matrix.clone(), 10_000)));

        assert_eq!(items.len(), TRIALS);
        assert!(items.is_sorted() && items.iter().all(|&item| item < 10_000));
        for turns in [2, 8, 39, 40, 72, 120] {
            let mut met: Vec<usize> = items.iter().map(|item| item % turns).collect();
            met.sort_unstable();
            met.dedup();
            assert!(met.len() * 4 >= turns * 3, "{} of {turns}", met.len());
        }
        for few in [0, 1, 7, TRIALS] {
            let batch = Batch::Uniform(UniformBatch::shared(matrix.clone(), few));
            assert_eq!(drawn(&batch), (0..few).collect::<Vec<_>>());
        }
    }
}
