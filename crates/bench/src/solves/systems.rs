//! Batches of systems to solve, and the test of their solutions.

use std::sync::Arc;

use rayon::prelude::*;
use sparsebatch_formats::batch::Values;
use sparsebatch_formats::stats::MatrixStats;
use sparsebatch_formats::{
    Batch, BatchCsr, BatchValues, Csr, CsrPattern, FormatError, Pattern, RaggedCsr, Scalar,
    UniformBatch,
};
use sparsebatch_solvers::{Outcome, SolveOptions, Status};

use crate::BenchError;

/// A batch and one right-hand side per item, both item-major.
#[derive(Clone, Debug)]
pub(crate) struct Systems<T> {
    pub(crate) batch: Batch<T>,
    pub(crate) b: Values<T>,
}

impl<T: Scalar> Systems<T> {
    /// Makes systems of one pattern; values and right-hand sides are item-major.
    ///
    /// # Errors
    /// When the values do not fit the pattern.
    pub(crate) fn uniform(
        pattern: Arc<CsrPattern>,
        nitems: usize,
        values: Vec<T>,
        b: Vec<T>,
    ) -> Result<Self, FormatError> {
        let batch = UniformBatch::try_new(pattern, nitems, BatchValues::ItemMajor(values))?;
        Ok(Self { batch: Batch::Uniform(batch), b: b.into() })
    }

    /// Makes `nitems` systems of one pattern whose entries are all 1, stored once, without
    /// right-hand sides: enough for making plans.
    ///
    /// # Errors
    /// When memory is short.
    pub(crate) fn like(pattern: Arc<CsrPattern>, nitems: usize) -> Result<Self, FormatError> {
        let values = vec![T::ONE; pattern.nnz()];
        let batch = UniformBatch::shared(Csr::from_parts(pattern, values)?, nitems);
        Ok(Self { batch: Batch::Uniform(batch), b: Vec::new().into() })
    }

    /// Makes `nitems` systems by repeating those of a uniform batch in order.
    ///
    /// # Errors
    /// When sizes overflow.
    pub(crate) fn in_turn(
        source: &BatchCsr<T>,
        b: &[T],
        nitems: usize,
    ) -> Result<Self, FormatError> {
        let pattern = Arc::clone(source.pattern());
        let (nrows, most) = (pattern.nrows(), source.nitems().max(1));
        let (mut values, mut repeated) = (Vec::new(), Vec::new());
        for item in 0..nitems {
            source.append_values(item % most, &mut values);
            repeated.extend_from_slice(&b[item % most * nrows..][..nrows]);
        }
        Self::uniform(pattern, nitems, values, repeated)
    }

    /// As [`in_turn`](Self::in_turn), for these systems, on all cores.
    ///
    /// # Errors
    /// When there is no system, or there are several patterns; when sizes overflow.
    pub(crate) fn repeated(&self, nitems: usize) -> Result<Self, BenchError> {
        let Batch::Uniform(batch) = &self.batch else {
            return Err(BenchError::Option {
                option: "--case",
                expected: "a batch of one pattern".to_owned(),
                found: "one of several".to_owned(),
            });
        };
        let pattern = Arc::clone(batch.pattern());
        let repeat = |from: &[T], each: usize| {
            let each = each.max(1);
            let mut to = vec![T::ZERO; from.len() / batch.nitems().max(1) * nitems];
            to.par_chunks_mut(each).enumerate().for_each(|(item, to)| {
                to.copy_from_slice(&from[item % batch.nitems() * each..][..each]);
            });
            to
        };
        let (values, b) = (repeat(self.values(), pattern.nnz()), repeat(&self.b, pattern.nrows()));
        Ok(Self::uniform(pattern, nitems, values, b)?)
    }

    /// The first `nitems` systems.
    ///
    /// # Errors
    /// When sizes overflow.
    pub(crate) fn first(&self, nitems: usize) -> Result<Self, FormatError> {
        match &self.batch {
            Batch::Uniform(batch) => {
                let (pattern, values) = (Arc::clone(batch.pattern()), batch.values());
                match values {
                    BatchValues::ItemMajor(values) if nitems <= batch.nitems() => {
                        let values = values[..nitems * pattern.nnz()].to_vec();
                        let b = self.b[..nitems * pattern.nrows()].to_vec();
                        Self::uniform(pattern, nitems, values, b)
                    }
                    _ => Self::in_turn(batch, &self.b, nitems),
                }
            }
            Batch::Ragged(batch) => {
                let items = (0..nitems.min(batch.nitems())).map(|item| batch.item(item));
                let mut first = RaggedCsr::new();
                items.for_each(|item| first.push(item));
                let rows = first.row_offsets()[first.nitems()];
                Ok(Self { batch: Batch::Ragged(first), b: self.b[..rows].to_vec().into() })
            }
        }
    }

    /// The same systems, each number rounded to the nearest one of another precision. On all cores.
    pub(crate) fn cast<U: Scalar>(&self) -> Systems<U> {
        let cast = |values: &[T]| -> Vec<U> {
            values.par_iter().map(|value| U::from_f64(value.to_f64())).collect()
        };
        let batch = match &self.batch {
            Batch::Uniform(batch) => match batch.values() {
                BatchValues::ItemMajor(values) => {
                    let values = BatchValues::ItemMajor(cast(values));
                    let pattern = Arc::clone(batch.pattern());
                    UniformBatch::try_new(pattern, batch.nitems(), values)
                        .map_or_else(|_| self.batch.cast(), Batch::Uniform)
                }
                _ => self.batch.cast(),
            },
            Batch::Ragged(_) => self.batch.cast(),
        };
        Systems { batch, b: cast(&self.b).into() }
    }

    /// The values of all items, item-major.
    pub(crate) fn values(&self) -> &[T] {
        match &self.batch {
            Batch::Ragged(batch) => batch.values(),
            Batch::Uniform(batch) => batch.values().into_array(),
        }
    }

    /// Bytes of values, right-hand sides and solutions, which a solve reads or writes at least
    /// once.
    pub(crate) fn bytes(&self) -> u64 {
        ((self.values().len() + 2 * self.b.len()) * size_of::<T>()) as u64
    }

    /// Whether every matrix is symmetric, value by value.
    pub(crate) fn is_symmetric(&self) -> bool {
        (0..self.batch.nitems()).into_par_iter().all(|item| match &self.batch {
            Batch::Uniform(batch) => MatrixStats::new(batch.to_matrix(item).view()).is_symmetric,
            Batch::Ragged(batch) => MatrixStats::new(batch.item(item)).is_symmetric,
        })
    }
}

/// The verdict of the test of all solutions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// Number of solved systems: by status if the solver reports one, else by the test.
    pub(crate) solved: usize,
    /// The largest `||b - A x|| / ||b||` of the solved systems.
    pub(crate) max_relative_residual: f64,
    /// Describes the first system that is reported as solved and fails the test.
    pub(crate) wrong: Option<String>,
}

/// `||b - A x||`, `||b||`, `|| |A||x| + |b| ||` and the number of entries of the longest row of one
/// system, in f64.
fn norms<T: Scalar>(systems: &Systems<T>, item: usize, x: &[T]) -> [f64; 4] {
    let (pattern, mut copy) = (systems.batch.pattern(item), Vec::new());
    let values = systems.batch.values_in(item, &mut copy);
    let [mut residual, mut rhs, mut magnitude, mut longest] = [0.0f64; 4];
    let first = systems.batch.row_offset(item);
    for row in 0..pattern.nrows() {
        let b = systems.b[first + row].to_f64();
        let (mut difference, mut sum) = (b, b.abs());
        for k in pattern.row(row) {
            let x = x[first + pattern.col_idx()[k] as usize].to_f64();
            let product = values[k].to_f64() * x;
            difference -= product;
            sum += product.abs();
        }
        residual += difference * difference;
        rhs += b * b;
        magnitude += sum * sum;
        longest = longest.max(pattern.row(row).len() as f64);
    }
    [residual.sqrt(), rhs.sqrt(), magnitude.sqrt(), longest]
}

/// Tests every solution by its residual, recomputed here in f64.
///
/// A system passes with `||b - A x|| <= max(rtol ||b||, floor eps g) + (w + 2) eps g`, where
/// `g = || |A||x| + |b| ||`, w is the length of the longest row, and eps that of the precision: the
/// last term bounds the rounding of a residual computed in that precision, by which the solver
/// itself judged.
pub(crate) fn check<T: Scalar>(
    systems: &Systems<T>,
    x: &[T],
    outcomes: Option<&[Outcome]>,
    options: &SolveOptions,
) -> Verdict {
    let (floor, eps) = (options.floor.unwrap_or(0.0), T::EPSILON.to_f64());
    let test = |item: usize| {
        let [residual, rhs, magnitude, longest] = norms(systems, item, x);
        let rounding = (longest + 2.0) * eps * magnitude;
        let limit = (options.rel_tol_of::<T>(item) * rhs).max(floor * eps * magnitude) + rounding;
        // NaN and infinite residuals fail.
        let passes = residual.is_finite() && residual <= limit;
        let said = outcomes.map_or(passes, |all| all[item].status == Status::Converged);
        let relative = if residual == 0.0 { 0.0 } else { residual / rhs };
        (said, passes, relative)
    };
    let found: Vec<_> = (0..systems.batch.nitems()).into_par_iter().map(test).collect();
    let solved = || found.iter().filter(|(said, ..)| *said);
    let wrong = found.iter().position(|&(said, passes, _)| said && !passes);
    Verdict {
        solved: solved().count(),
        max_relative_residual: solved().fold(0.0, |most: f64, &(.., found)| {
            if found.is_nan() { found } else { most.max(found) }
        }),
        wrong: wrong.map(|item| {
            let relative = found[item].2;
            format!("system {item} is said to be solved with a relative residual of {relative:.2e}")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::generate;

    /// Two copies of [2 1; 0 4] x = [4; 8], whose solution is [1; 2].
    fn systems() -> Systems<f64> {
        let matrix = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![2.0, 1.0, 4.0]).unwrap();
        let (pattern, values) = matrix.into_parts();
        let b = vec![4.0, 8.0, 4.0, 8.0];
        Systems::uniform(pattern, 2, [values.clone(), values].concat(), b).unwrap()
    }

    fn ended(statuses: [Status; 2]) -> Vec<Outcome> {
        let outcome = |status| Outcome {
            status,
            iterations: 1,
            restarts: 0,
            residual_norm: 0.0,
            rhs_norm: 1.0,
            accepted_by_floor: false,
            history: Vec::new(),
        };
        statuses.map(outcome).to_vec()
    }

    #[test]
    fn exact_solutions_pass() {
        let verdict = check(&systems(), &[1.0, 2.0, 1.0, 2.0], None, &SolveOptions::default());

        assert_eq!(verdict, Verdict { solved: 2, max_relative_residual: 0.0, wrong: None });
    }

    #[test]
    fn a_status_is_held_against_the_solution() {
        let options = SolveOptions::default();
        let converged = ended([Status::Converged; 2]);
        for wrong in [2.0 + 1e-8, f64::NAN, f64::INFINITY] {
            let x = [1.0, 2.0, 1.0, wrong];

            let verdict = check(&systems(), &x, Some(&converged), &options);
            assert!(verdict.wrong.unwrap().starts_with("system 1 is said to be solved"));
            let honest = ended([Status::Converged, Status::MaxIterations]);
            let verdict = check(&systems(), &x, Some(&honest), &options);
            assert_eq!((verdict.solved, verdict.wrong), (1, None));
            assert_eq!(check(&systems(), &x, None, &options).solved, 1);
        }
    }

    #[test]
    fn tolerance_and_floor_are_those_of_the_solve() {
        // The residual norm is 4e-8, and the norm of the right-hand side is about 9.
        let x = [1.0, 2.0, 1.0, 2.0 + 1e-8];
        let solved = |options: SolveOptions| check(&systems(), &x, None, &options).solved;
        let rel_tol = |rel_tol| SolveOptions::new().rel_tol(rel_tol);

        assert_eq!(solved(rel_tol(1e-8)), 2);
        assert_eq!(solved(rel_tol(1e-9)), 1);
        assert_eq!(solved(rel_tol(1e-9).floor(1e8)), 2);
        let single = systems().cast::<f32>();
        let verdict = check(&single, &[1.0, 2.0, 1.0, 2.00001], None, &SolveOptions::default());
        assert_eq!(verdict.solved, 2);
    }

    #[test]
    fn zero_right_hand_sides_ask_for_zero() {
        let mut systems = systems();
        systems.b.make_mut()[2..].fill(0.0);
        let options = SolveOptions::default();

        let verdict = check(&systems, &[1.0, 2.0, 0.0, 0.0], None, &options);
        assert_eq!((verdict.solved, verdict.max_relative_residual), (2, 0.0));
        assert_eq!(check(&systems, &[1.0, 2.0, 0.0, 1e-3], None, &options).solved, 1);
    }

    #[test]
    fn repeated_systems_are_those_in_turn() {
        let tri = generate::Problem::new(generate::Family::Tri, 5).unwrap().batch(3).unwrap();
        let tri = Systems { batch: tri.batch, b: tri.rhs.into() };
        let Batch::Uniform(batch) = &tri.batch else { panic!("of one pattern") };

        let repeated = tri.repeated(8).unwrap();

        let expected = Systems::in_turn(batch, &tri.b, 8).unwrap();
        assert_eq!((repeated.values(), &repeated.b), (expected.values(), &expected.b));
        let mix = generate::mix(3).unwrap();
        assert!(Systems { batch: mix.batch, b: mix.rhs.into() }.repeated(2).is_err());
    }

    #[test]
    fn first_systems_are_the_same_ones() {
        let first = systems().first(1).unwrap();
        assert_eq!((first.batch.nitems(), &*first.b), (1, &[4.0, 8.0][..]));
        assert!(!first.is_symmetric());
        let mix = generate::mix(5).unwrap();
        let mix = Systems { batch: mix.batch, b: mix.rhs.into() };

        let first = mix.first(2).unwrap();

        assert_eq!(first.batch.nitems(), 2);
        assert_eq!(first.b[..], mix.b[..mix.batch.row_offset(2)]);
        assert_eq!(first.values(), &mix.values()[..first.batch.total_nnz()]);
        assert_eq!(mix.bytes(), 8 * (mix.batch.total_nnz() + 2 * mix.b.len()) as u64);
    }
}
