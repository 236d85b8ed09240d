//! Solves with transposed matrices, and gradients of solutions: [`AdjointSolver`], [`value_gradient`].

mod transpose;

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_cpu_ref::check_threads;
use sparsebatch_formats::{Batch, BatchValues, CsrPatternRef, Pattern, RaggedCsr, Scalar};
use sparsebatch_solve_core::{Rhs, check_len};

pub(crate) use self::transpose::TransposedBatch;
use crate::solver::check_square;
use crate::{
    Backend, BatchReport, BatchSolver, GpuExecutor, SolveError, SolveOptions, SolveScalar,
};

/// Solves `A_i^T lambda_i = g_i` for every system of a batch, by any method and backend.
///
/// For a loss `L(x)` of the solutions of `A x = b`, with `g = dL/dx`, the solution `lambda` is the
/// gradient by `b`, and [`value_gradient`] gives that by the values of A.
///
/// The solver holds the transposed patterns and a copy of the values, which it moves to their
/// transposed positions at each solve. Items have the same statuses and reports as of any
/// [`BatchSolver`].
///
/// # Source
/// Giles and Pierce, An introduction to the adjoint approach to design, Flow, Turbulence and
/// Combustion 65, 2000 (doi 10.1023/A:1011430410075).
///
/// # Examples
/// ```
/// use sparsebatch_formats::{Batch, Csr};
/// use sparsebatch_solvers::{AdjointSolver, Backend, SolveOptions, solve, value_gradient};
///
/// // [2 1; 0 4] x = [4; 4], L = x_0
/// let a = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![2.0, 1.0, 4.0])?;
/// let batch = Batch::from(a);
/// let options = SolveOptions::new();
/// let x = solve(&batch, &[4.0, 4.0], None, &options)?.x;
/// let mut adjoint = AdjointSolver::on(&Backend::Cpu, &batch, &options)?;
/// let mut lambda = vec![0.0; 2];
/// assert!(adjoint.solve(&batch, &[1.0, 0.0], &mut lambda)?.all_converged());
/// // dL/db, and dL/dA on the pattern of A
/// assert_eq!(lambda, [0.5, -0.125]);
/// let mut gradient = vec![0.0; 3];
/// value_gradient(&batch, 1, &lambda, &x, &mut gradient)?;
/// assert_eq!(gradient, [-0.75, -0.5, 0.125]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AdjointSolver<T> {
    solver: BatchSolver<T>,
    transposed: TransposedBatch<T>,
}

impl<T: SolveScalar> AdjointSolver<T> {
    /// Analyses the transposed matrices of a batch, to solve on a backend.
    ///
    /// # Errors
    /// Those of [`BatchSolver::on`].
    pub fn on(
        backend: &Backend,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        check_threads()?;
        check_square(batch)?;
        let transposed = TransposedBatch::new(batch);
        let solver = BatchSolver::on(backend, transposed.batch(), options)?;
        Ok(Self { solver, transposed })
    }

    /// [`AdjointSolver::on`] any executor, such as an emulated GPU.
    ///
    /// # Errors
    /// Those of [`BatchSolver::on`].
    #[doc(hidden)]
    pub fn on_executor<E: GpuExecutor>(
        backend: &Backend<E>,
        batch: &Batch<T>,
        rhs: Option<Rhs<'_, T>>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        check_threads()?;
        check_square(batch)?;
        let transposed = TransposedBatch::new(batch);
        let solver = BatchSolver::on_executor(backend, transposed.batch(), rhs, options)?;
        Ok(Self { solver, transposed })
    }

    /// Solves `A_i^T lambda_i = g_i` for every system; `lambda` holds the initial guesses on entry and
    /// the solutions on return. `batch` holds the matrices A, with the patterns and the layout of the
    /// batch that was analysed.
    ///
    /// # Errors
    /// Those of [`BatchSolver::solve`]; [`SolveError::Argument`] for another layout. `lambda` is
    /// untouched by these.
    pub fn solve(
        &mut self,
        batch: &Batch<T>,
        g: &[T],
        lambda: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        check_threads()?;
        self.transposed.update_values(batch)?;
        self.solver.solve(self.transposed.batch(), g, lambda)
    }

    /// [`BatchSolver::replace_limits`].
    ///
    /// # Errors
    /// Those of [`BatchSolver::replace_limits`].
    pub fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        self.solver.replace_limits(options)
    }

    /// Keeps the matrices of a batch, and their factors as [`BatchSolver::keeps_factors`] says, for
    /// [`AdjointSolver::solve_again`].
    ///
    /// # Errors
    /// Those of [`BatchSolver::factor`]; [`SolveError::Argument`] for another layout.
    pub fn factor(&mut self, batch: &Batch<T>) -> Result<(), SolveError> {
        check_threads()?;
        self.transposed.update_values(batch)?;
        self.solver.factor(self.transposed.batch())
    }

    /// Solves with the transposed matrices of the last [`AdjointSolver::factor`].
    ///
    /// # Errors
    /// Those of [`BatchSolver::solve_again`].
    pub fn solve_again(&mut self, g: &[T], lambda: &mut [T]) -> Result<BatchReport, SolveError> {
        self.solver.solve_again(g, lambda)
    }
}

/// Items whose products are added up by one task where all items share their values.
const ITEMS: usize = 256;

/// Writes the gradient by the values of the matrices of a loss of the solutions of `A x = b`:
/// `-lambda[row k] x[col k]` for each stored entry k, summed over right-hand sides, and over items
/// where they share their values. `lambda` is the solution of the [adjoint](AdjointSolver) systems;
/// vectors are item-major, `gradient` has the layout of the batch's values.
///
/// Sums are added up in an order that depends on the sizes alone: bitwise repeatable, whatever the
/// threads. Where a system was not solved, give NaN in `lambda`, and the gradient says so.
///
/// # Errors
/// [`SolveError::Argument`] when an array has another length.
pub fn value_gradient<T: SolveScalar>(
    batch: &Batch<T>,
    nrhs: usize,
    lambda: &[T],
    x: &[T],
    gradient: &mut [T],
) -> Result<(), SolveError> {
    check_threads()?;
    let rows = batch.vector_len(nrhs).map_err(sparsebatch_cpu_ref::CpuError::from)?;
    check_len("lambda", rows, lambda.len())?;
    check_len("x", batch.col_offset(batch.nitems()) * nrhs, x.len())?;
    let solutions = Solutions { batch, nrhs, lambda, x };
    match batch {
        Batch::Ragged(ragged) => {
            check_len("gradient", ragged.total_nnz(), gradient.len())?;
            solutions.ragged_gradient(ragged, gradient);
        }
        Batch::Uniform(uniform) => {
            let nnz = uniform.pattern().nnz();
            let len = match uniform.is_shared() {
                true => nnz,
                false => uniform.nitems().saturating_mul(nnz),
            };
            check_len("gradient", len, gradient.len())?;
            match uniform.values() {
                BatchValues::ItemMajor(_) => solutions.item_major_gradient(nnz, gradient),
                BatchValues::Interleaved(_) => {
                    solutions.interleaved_gradient(uniform.pattern().view(), gradient)
                }
                BatchValues::Shared(_) => solutions.shared_gradient(nnz, gradient),
            }
        }
    }
    Ok(())
}

/// The solutions of a batch and of its adjoint systems, from which gradients are computed.
struct Solutions<'a, T> {
    batch: &'a Batch<T>,
    nrhs: usize,
    lambda: &'a [T],
    x: &'a [T],
}

impl<T: SolveScalar> Solutions<'_, T> {
    /// The adjoint solutions and the solutions of an item.
    fn part(&self, item: usize) -> (&[T], &[T]) {
        let (batch, nrhs) = (self.batch, self.nrhs);
        let rows = batch.row_offset(item) * nrhs..batch.row_offset(item + 1) * nrhs;
        let columns = batch.col_offset(item) * nrhs..batch.col_offset(item + 1) * nrhs;
        (&self.lambda[rows], &self.x[columns])
    }

    /// Adds the gradient by the values of an item.
    fn add_item(&self, item: usize, gradient: &mut [T]) {
        add_item(self.batch.pattern(item), self.nrhs, self.part(item), gradient);
    }

    /// The gradient by the values of a ragged batch, item after item.
    fn ragged_gradient(&self, ragged: &RaggedCsr<T>, gradient: &mut [T]) {
        let (mut items, mut rest) = (Vec::with_capacity(ragged.nitems()), gradient);
        for item in ragged.nnz_offsets().windows(2) {
            let (own, after) = rest.split_at_mut(item[1] - item[0]);
            items.push(own);
            rest = after;
        }
        items.into_par_iter().enumerate().with_min_len(16).for_each(|(item, gradient)| {
            gradient.fill(T::ZERO);
            self.add_item(item, gradient);
        });
    }

    /// The gradient by item-major values, `nnz` for each item.
    fn item_major_gradient(&self, nnz: usize, gradient: &mut [T]) {
        let items = gradient.par_chunks_mut(nnz.max(1)).enumerate().with_min_len(16);
        items.for_each(|(item, gradient)| {
            gradient.fill(T::ZERO);
            self.add_item(item, gradient);
        });
    }

    /// The gradient by interleaved values: that of one entry in all items, then that of the next.
    fn interleaved_gradient(&self, pattern: CsrPatternRef<'_>, gradient: &mut [T]) {
        let size = (pattern.nrows(), pattern.ncols());
        let rows = gradient.par_chunks_mut(self.batch.nitems().max(1)).zip(entries(pattern));
        rows.for_each(|(gradient, (row, col))| {
            for (item, gradient) in gradient.iter_mut().enumerate() {
                let (lambda, x) = self.part(item);
                *gradient = entry(size, self.nrhs, (row, col), lambda, x);
            }
        });
    }

    /// The gradient by the `nnz` values that all items share, summed over the items.
    fn shared_gradient(&self, nnz: usize, gradient: &mut [T]) {
        let nitems = self.batch.nitems();
        let tasks = (0..nitems.div_ceil(ITEMS)).into_par_iter();
        let sums: Vec<Vec<T>> = tasks
            .map(|task| {
                let mut sum = vec![T::ZERO; nnz];
                let items: Range<usize> = task * ITEMS..((task + 1) * ITEMS).min(nitems);
                for item in items {
                    self.add_item(item, &mut sum);
                }
                sum
            })
            .collect();
        gradient.fill(T::ZERO);
        for sum in sums {
            gradient.iter_mut().zip(sum).for_each(|(to, sum)| *to += sum);
        }
    }
}

/// Row and column of every entry, in CSR order.
fn entries(pattern: CsrPatternRef<'_>) -> Vec<(usize, usize)> {
    let of_row = |row: usize| pattern.row(row).map(move |k| (row, pattern.col_idx()[k] as usize));
    (0..pattern.nrows()).flat_map(of_row).collect()
}

/// The gradient by one entry of an item with `nrows` rows and `ncols` columns.
fn entry<T: Scalar>(
    (nrows, ncols): (usize, usize),
    nrhs: usize,
    (row, col): (usize, usize),
    lambda: &[T],
    x: &[T],
) -> T {
    let mut sum = T::ZERO;
    for rhs in 0..nrhs {
        sum -= lambda[rhs * nrows + row] * x[rhs * ncols + col];
    }
    sum
}

/// Adds the gradient by every entry of an item.
fn add_item<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    nrhs: usize,
    (lambda, x): (&[T], &[T]),
    gradient: &mut [T],
) {
    let size = (pattern.nrows(), pattern.ncols());
    for row in 0..pattern.nrows() {
        for k in pattern.row(row) {
            let col = pattern.col_idx()[k] as usize;
            gradient[k] += entry(size, nrhs, (row, col), lambda, x);
        }
    }
}
