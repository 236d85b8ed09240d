//! The system that ranks solve together, and how it is judged: by its matrix, or by products alone.
//!
//! The rules are those of [`sparsebatch_solve_core::verdict`], applied to norms of all ranks. Every
//! rank decides alike, since all decide by the same numbers.

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_formats::Csr;
use sparsebatch_solve_core::Criteria;
use sparsebatch_solve_core::evaluate::{
    Evaluated, Sizes, frobenius_norm, norm2, residual_from, residual_magnitude_from,
    residual_twofold_from,
};
use sparsebatch_solve_core::verdict::{
    Check, Entry, Limits, by_magnitude, by_twofold, plainly, scale_of_matrix, threshold,
};
use sparsebatch_solvers::LinOp;

use super::DistributedMatrix;
use super::vectors::{CHUNK, Sums, by_chunks, copy, fill_by_chunks, norm};
use crate::{Failure, MpiError};

/// What multiplies.
pub(super) enum Operator<'a, 'r, T> {
    /// A matrix, by whose entries rounding errors of residuals are bounded.
    Matrix(&'a mut DistributedMatrix<'r, T>),
    /// Products of the caller. Nothing else is known, so that residuals count as they are computed.
    Given(&'a mut dyn LinOp<T>),
}

/// `A x = b` on the rows of this rank.
pub(super) struct System<'a, 'r, T> {
    pub(super) operator: Operator<'a, 'r, T>,
    pub(super) b: &'a [T],
    pub(super) criteria: &'a Criteria,
    facts: Facts,
}

/// What is known of the matrix of all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    sizes: Sizes,
    /// `||A||_F`.
    norm: f64,
    /// The iterations work on `A * 2^-scale`.
    scale: i32,
}

impl<'a, 'r, T: CpuScalar> System<'a, 'r, T> {
    /// # Errors
    /// Where a rank has failed before.
    pub(super) fn new(
        mut operator: Operator<'a, 'r, T>,
        b: &'a [T],
        criteria: &'a Criteria,
        sums: &mut Sums<'_>,
        ranks: usize,
    ) -> Result<Self, MpiError> {
        let facts = match &mut operator {
            Operator::Given(_) => Facts { sizes: Sizes::new(0, 0), norm: 0.0, scale: 0 },
            // All ranks know them or none does.
            Operator::Matrix(matrix) => match matrix.facts {
                Some(facts) => facts,
                None => *matrix.facts.insert(Facts::of(matrix, sums, ranks)?),
            },
        };
        Ok(Self { operator, b, criteria, facts })
    }

    /// The exponent e such that the iterations work on `A * 2^-e`.
    pub(super) fn matrix_scale(&self) -> i32 {
        self.facts.scale
    }

    /// The matrix, where it is on a GPU.
    pub(super) fn on_gpu(&mut self) -> Option<&mut DistributedMatrix<'r, T>> {
        match &mut self.operator {
            Operator::Matrix(matrix) if matrix.is_on_gpu() => Some(matrix),
            _ => None,
        }
    }

    /// `y = A x`.
    pub(super) fn apply(&mut self, x: &[T], y: &mut [T]) -> Result<(), Failure> {
        match &mut self.operator {
            Operator::Matrix(matrix) => matrix.apply(T::ONE, x, T::ZERO, y),
            Operator::Given(operator) => operator.apply(x, y).map_err(|error| {
                Failure::internal(format!("an operator of the caller failed: {error}"))
            }),
        }
    }

    /// Computes `r = b - A x0` (setting `x` to 0 when `b` is 0) and decides whether the system needs
    /// iterations at all: the rules of `verdict::System::enter`.
    pub(super) fn enter(
        &mut self,
        x: &mut [T],
        r: &mut [T],
        sums: &mut Sums<'_>,
    ) -> Result<(Entry, bool), MpiError> {
        let [rhs_norm] = sums.norms([norm(self.b)])?;
        if rhs_norm == 0.0 {
            x.fill(T::ZERO);
        }
        let nonzeros = by_chunks(x.len(), |part| x[part].iter().filter(|&&x| x != T::ZERO).count());
        let [nonzeros] = sums.sum([nonzeros.iter().sum::<usize>() as f64])?;
        let (from_zero, criteria) = (nonzeros == 0.0, self.criteria);
        let threshold = threshold(0, criteria, rhs_norm);
        copy(self.b, r);
        if !from_zero && rhs_norm.is_finite() {
            let limits = Limits { threshold, rhs_norm, floor: None };
            let check = self.judge(limits, x, r, sums)?;
            let entry = Entry::new(0, criteria, rhs_norm, check.residual_norm, check.passed);
            return Ok((entry, from_zero));
        }
        // For x = 0 the residual is exactly b. It is computed nonetheless where it ends the solve at
        // once, since the matrix may hold NaN.
        let mut norm = rhs_norm;
        if norm <= threshold || !norm.is_finite() {
            norm = self.residual(x, r, sums)?.norm;
        }
        Ok((Entry::new(0, criteria, rhs_norm, norm, norm <= threshold), from_zero))
    }

    /// Recomputes `r = b - A x` and compares it with the threshold and the floor.
    pub(super) fn check(
        &mut self,
        entry: &Entry,
        x: &[T],
        r: &mut [T],
        sums: &mut Sums<'_>,
    ) -> Result<Check, MpiError> {
        let Entry { threshold, rhs_norm, .. } = *entry;
        self.judge(Limits { threshold, rhs_norm, floor: self.criteria.floor }, x, r, sums)
    }

    /// The rules of `verdict::System::keep_better`.
    pub(super) fn keep_better(
        &mut self,
        entry: &Entry,
        guess: Option<&[T]>,
        check: &mut Check,
        x: &mut [T],
        r: &mut [T],
        sums: &mut Sums<'_>,
    ) -> Result<(), MpiError> {
        if check.is_clearly_better_than(entry) {
            return Ok(());
        }
        match guess {
            Some(guess) => copy(guess, x),
            None => x.fill(T::ZERO),
        }
        *check = self.check(entry, x, r, sums)?;
        (check.passed, check.floor_passed) = (false, false);
        Ok(())
    }

    /// `r = b - A x` and its norms over all ranks.
    fn residual(
        &mut self,
        x: &[T],
        r: &mut [T],
        sums: &mut Sums<'_>,
    ) -> Result<Residual<T>, MpiError> {
        let (b, of_x) = (self.b, norm(x));
        let (own, with_halo) = match &mut self.operator {
            Operator::Matrix(matrix) => {
                let x = matrix.with_halo(x);
                let matrix: &Csr<T> = matrix.matrix();
                let (pattern, values) = (matrix.view().pattern(), matrix.values());
                let norms = fill_by_chunks(r, |rows, r| {
                    residual_from(rows.start, pattern, values, &x, &b[rows], r)
                });
                (joined(&norms), x)
            }
            Operator::Given(_) => {
                let applied = self.apply(x, r);
                sums.attend(applied);
                fill_by_chunks(r, |rows, r| {
                    r.iter_mut().zip(&b[rows]).for_each(|(r, &b)| *r = b - *r);
                });
                (norm(r), Vec::new())
            }
        };
        let [norm, of_x] = sums.norms([own, of_x])?;
        let norm = if norm.is_finite() { norm } else { f64::NAN };
        Ok(Residual { norm, of_x, with_halo })
    }

    /// Judges x by its residual, which is evaluated more accurately where its rounding errors might
    /// decide.
    fn judge(
        &mut self,
        limits: Limits,
        x: &[T],
        r: &mut [T],
        sums: &mut Sums<'_>,
    ) -> Result<Check, MpiError> {
        let Residual { norm, of_x, with_halo } = self.residual(x, r, sums)?;
        // An infinite element of x does not reach the residual if its column of A is empty.
        if !norm.is_finite() || !of_x.is_finite() {
            return Ok(Check::plain(f64::NAN, false));
        }
        let Operator::Matrix(matrix) = &self.operator else {
            return Ok(Check::plain(norm, norm <= limits.threshold));
        };
        let Facts { sizes, norm: of_values, .. } = self.facts;
        let plain = plainly::<T>(sizes, [of_values, of_x, limits.rhs_norm], norm, limits.threshold);
        if let Some(passed) = plain.filter(|&passed| passed || limits.floor.is_none()) {
            return Ok(Check::plain(norm, passed));
        }
        let (pattern, values) = (matrix.matrix().view().pattern(), matrix.matrix().values());
        let b = self.b;
        let own = by_chunks(b.len(), |rows| {
            residual_magnitude_from(rows.start, pattern, values, &with_halo, &b[rows])
        });
        let [magnitude] = sums.norms([joined(&own)])?;
        if let Some(check) = by_magnitude::<T>(sizes, norm, magnitude, limits) {
            return Ok(check);
        }
        let own = fill_by_chunks(r, |rows, r| {
            residual_twofold_from(rows.start, pattern, values, &with_halo, &b[rows], r)
        });
        let norms: Vec<f64> = own.iter().map(|own| own.norm).collect();
        let errors: Vec<f64> = own.iter().map(|own| own.error).collect();
        let [norm, error] = sums.norms([joined(&norms), joined(&errors)])?;
        // Norms over chunks and over ranks are rounded once more than those of a chunk are.
        let further = (rounding_of_norm(own.len()) + 16.0) * f64::EPSILON;
        let Evaluated { error, .. } =
            Evaluated { norm, error: error * (1.0 + further) + further * norm };
        Ok(by_twofold::<T>(Evaluated { norm, error }, magnitude, limits))
    }
}

/// The norm of a vector by those of its chunks.
fn joined(norms: &[f64]) -> f64 {
    match norms {
        [one] => *one,
        _ => norm2(norms),
    }
}

/// A bound of the rounding error of [`joined`], in units of `f64::EPSILON` of the norm.
fn rounding_of_norm(chunks: usize) -> f64 {
    if chunks > 1 { 0.125 * chunks as f64 + 16.0 } else { 0.0 }
}

/// A residual of all ranks.
struct Residual<T> {
    norm: f64,
    /// The norm of x.
    of_x: f64,
    /// The elements of x that the own rows need.
    with_halo: Vec<T>,
}

impl Facts {
    fn of<T: CpuScalar>(
        matrix: &DistributedMatrix<'_, T>,
        sums: &mut Sums<'_>,
        ranks: usize,
    ) -> Result<Self, MpiError> {
        let values = matrix.matrix().values();
        let sizes = |value: &T| value.to_f64().abs();
        let parts = by_chunks(values.len(), |part| {
            let values = &values[part];
            let largest = values.iter().map(sizes).fold(0.0, f64::max);
            let positive = values.iter().map(sizes).filter(|&size| size > 0.0);
            [frobenius_norm(values), largest, positive.fold(f64::INFINITY, f64::min)]
        });
        let norm = joined(&parts.iter().map(|part| part[0]).collect::<Vec<_>>());
        let largest = parts.iter().map(|part| part[1]).fold(0.0, f64::max);
        let smallest = parts.iter().map(|part| part[2]).fold(f64::INFINITY, f64::min);
        let all: Vec<[f64; 3]> = sums.gather([norm, largest, smallest])?.collect();
        let norms: Vec<f64> = all.iter().map(|[norm, ..]| *norm).collect();
        // The scale depends on the largest and the smallest entry alone; a rank without entries has
        // neither.
        let extremes = all.iter().flat_map(|[_, largest, smallest]| [*largest, *smallest]);
        let extremes: Vec<T> = extremes.filter(|size| size.is_finite()).map(T::from_f64).collect();
        // The bound of a norm's rounding errors, which counts an eighth for each row, counts those of
        // norms over chunks and ranks as further rows.
        let chunks = matrix.rows().len().div_ceil(CHUNK);
        let rows = matrix.rows().len() + 8 * rounding_of_norm(chunks) as usize + 16 * ranks;
        let sizes = Sizes::new(rows, matrix.longest_row());
        Ok(Self { sizes, norm: norm2(&norms), scale: scale_of_matrix(&extremes) })
    }
}
