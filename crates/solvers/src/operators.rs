//! CG and BiCGStab over operators and preconditioners of the caller: [`LinOp`].

use std::time::Instant;

use sparsebatch_cpu_ref::{CpuScalar, SpmvPlan, check_threads};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::{ArgumentError, Engine, Krylov, Outcome, Scheme, check_len};

use crate::backend::{CpuBackend, CpuPrimitives};
use crate::composed::{Composed, Judge};
use crate::error::stopped;
use crate::report::{BatchReport, Rung, RungRun, SchemeRun, SystemReport};
use crate::solver::{check_nrhs, check_square};
use crate::{Method, Preconditioner, Solution, SolveError, SolveOptions};

/// What an operator of the caller may fail with.
pub type OperatorError = Box<dyn std::error::Error + Send + Sync>;

/// A linear operator on the vectors of all systems of a batch: their matrices, where these are not
/// stored, or a preconditioner. Closures of the same signature are operators.
///
/// On a GPU see [`DeviceLinOp`](crate::gpu::DeviceLinOp).
pub trait LinOp<T> {
    /// `y_s = A_s x_s` for every system s. `x` and `y` are item-major as right-hand sides are, and
    /// apart; `y` holds anything before.
    ///
    /// Vectors of systems that have ended come along. What they hold does not matter, nor what the
    /// operator makes of them.
    ///
    /// # Errors
    /// What it fails with ends the solve as [`SolveError::Operator`].
    fn apply(&mut self, x: &[T], y: &mut [T]) -> Result<(), OperatorError>;
}

impl<T, F> LinOp<T> for F
where
    F: FnMut(&[T], &mut [T]) -> Result<(), OperatorError>,
{
    fn apply(&mut self, x: &[T], y: &mut [T]) -> Result<(), OperatorError> {
        self(x, y)
    }
}

/// Solves every system of a batch by CG or BiCGStab with a preconditioner of the caller, on the
/// CPU, without the ladder.
///
/// `preconditioner` computes `z = M r`, where M approximates the inverse of A and is the same for
/// the whole solve; symmetric positive definite for CG. [`Method::Auto`] is BiCGStab. The products
/// are those of the plan that [`Engine::Composed`] asks for. Verdicts are those of
/// [`solve`](crate::solve): residuals are evaluated with A, their rounding errors bounded.
///
/// # Errors
/// [`SolveError::Argument`] for matrices that are not square, vectors that do not fit, a
/// factorisation, and a preconditioner in the options; [`SolveError::Operator`];
/// [`SolveError::Stopped`].
///
/// # Examples
/// ```
/// use sparsebatch_formats::generate::{Family, Problem};
/// use sparsebatch_solvers::{OperatorError, SolveOptions, solve_preconditioned};
///
/// let systems = Problem::new(Family::Tri, 32)?.batch(10)?;
/// // The inverse of a constant diagonal.
/// let mut scale = |r: &[f64], z: &mut [f64]| -> Result<(), OperatorError> {
///     z.iter_mut().zip(r).for_each(|(z, r)| *z = 0.25 * r);
///     Ok(())
/// };
/// let options = SolveOptions::new();
/// let solution =
///     solve_preconditioned(&systems.batch, &mut scale, &systems.rhs, None, &options)?;
/// assert!(solution.report.all_converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn solve_preconditioned<T: CpuScalar>(
    batch: &Batch<T>,
    preconditioner: &mut dyn LinOp<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Result<Solution<T>, SolveError> {
    let start = Instant::now();
    check_threads()?;
    check_square(batch)?;
    let method = method_of(options)?;
    let rows: Vec<usize> = (0..batch.nitems()).map(|item| batch.pattern(item).nrows()).collect();
    let x = first_iterate(&rows, b, x0, options)?;
    let spmv = match &options.engine {
        Engine::Composed(spmv) => spmv.clone(),
        _ => Default::default(),
    };
    let plan = SpmvPlan::new(batch, &spmv.nrhs(options.nrhs))?;
    let explained = plan.explain();
    let names = Names { format: explained.format, kernel: explained.kernel.to_owned() };
    let on = CpuPrimitives::preconditioned(&plan, preconditioner, &rows, options.nrhs);
    run(Judge::Matrices(batch), on, (b, x), method, options, (start, names))
}

/// Solves systems whose matrices are known by their products alone, by CG or BiCGStab on the CPU,
/// without the ladder.
///
/// `rows` has the number of rows of each item; each has `options.nrhs` right-hand sides.
/// `preconditioner` is as in [`solve_preconditioned`]. [`Method::Auto`] is BiCGStab.
///
/// A system is converged when the residual `b - A x`, from a product of the operator, passes.
/// Errors of that product are the operator's, and are not bounded. Whenever systems stop, all that
/// stop are judged by one product more.
///
/// # Errors
/// Those of [`solve_preconditioned`]; [`SolveError::Argument`] for a rounding floor, which needs
/// the entries of A, and for a composed engine, which asks for products.
///
/// # Examples
/// ```
/// use sparsebatch_solvers::{Method, OperatorError, SolveOptions, solve_operator};
///
/// // Two systems of 3 rows: `2 x_i - x_(i-1) - x_(i+1)`.
/// let mut laplace = |x: &[f64], y: &mut [f64]| -> Result<(), OperatorError> {
///     for (x, y) in x.chunks(3).zip(y.chunks_mut(3)) {
///         y.copy_from_slice(&[2.0 * x[0] - x[1], 2.0 * x[1] - x[0] - x[2], 2.0 * x[2] - x[1]]);
///     }
///     Ok(())
/// };
/// let options = SolveOptions::new().method(Method::Cg);
/// let b = [1.0, 0.0, 1.0, 2.0, 0.0, 2.0];
/// let solution = solve_operator(&[3, 3], &mut laplace, None, &b, None, &options)?;
/// assert!(solution.report.all_converged());
/// assert!((solution.x[0] - 1.0).abs() < 1e-9 && (solution.x[5] - 2.0).abs() < 1e-9);
/// # Ok::<(), sparsebatch_solvers::SolveError>(())
/// ```
pub fn solve_operator<'a, T: CpuScalar>(
    rows: &[usize],
    operator: &'a mut dyn LinOp<T>,
    preconditioner: Option<&'a mut dyn LinOp<T>>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Result<Solution<T>, SolveError> {
    let start = Instant::now();
    check_threads()?;
    let method = method_of(options)?;
    if options.floor.is_some() {
        return Err(refused("floor", "none where A is an operator", "a rounding floor"));
    }
    if matches!(options.engine, Engine::Composed(_)) {
        return Err(refused("engine", "no products where A is an operator", "composed"));
    }
    let x = first_iterate(rows, b, x0, options)?;
    let mut product = vec![T::ZERO; b.len()];
    if x.iter().any(|&x| x != T::ZERO) {
        operator.apply(&x, &mut product).map_err(SolveError::Operator)?;
    }
    let names = Names { format: "operator", kernel: "operator of the caller".to_owned() };
    let on = CpuPrimitives::operators(operator, preconditioner, rows, options.nrhs);
    run(Judge::Products { rows, product }, on, (b, x), method, options, (start, names))
}

/// Names of the products in reports.
struct Names {
    format: &'static str,
    kernel: String,
}

fn refused(name: &'static str, expected: &'static str, found: &str) -> SolveError {
    SolveError::Argument(ArgumentError::OutOfRange { name, expected, found: found.to_owned() })
}

/// The iterations that the options ask for, which must leave preconditioning to the caller.
fn method_of(options: &SolveOptions) -> Result<Krylov, SolveError> {
    if !matches!(options.preconditioner, Preconditioner::Auto | Preconditioner::None) {
        let expected = "none beside that of the caller";
        return Err(refused("preconditioner", expected, options.preconditioner.name()));
    }
    match options.method {
        Method::Cg => Ok(Krylov::Cg),
        Method::Auto | Method::BiCgStab => Ok(Krylov::BiCgStab),
        Method::Lu | Method::PivotingLu | Method::Banded => {
            Err(refused("method", "cg or bicgstab", options.method.name()))
        }
    }
}

/// The guesses or 0, for vectors of the right lengths.
fn first_iterate<T: CpuScalar>(
    rows: &[usize],
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Result<Vec<T>, SolveError> {
    check_nrhs(options)?;
    let total = rows.iter().fold(0usize, |sum, &rows| sum.saturating_add(rows));
    check_len("b", total.saturating_mul(options.nrhs), b.len())?;
    match x0 {
        Some(x0) => {
            check_len("x0", b.len(), x0.len())?;
            Ok(x0.to_vec())
        }
        None => Ok(vec![T::ZERO; b.len()]),
    }
}

fn run<T: CpuScalar>(
    judge: Judge<'_, T>,
    mut on: CpuPrimitives<'_, T>,
    (b, mut x): (&[T], Vec<T>),
    method: Krylov,
    options: &SolveOptions,
    (start, names): (Instant, Names),
) -> Result<Solution<T>, SolveError> {
    let plan_time = start.elapsed();
    let systems = judge.systems(options.nrhs);
    let criteria = options.criteria::<T>(systems)?;
    if let Some(watch) = &criteria.watch {
        watch.begin(systems);
    }
    let solving = Instant::now();
    let mut composed = Composed::new(judge, options.nrhs, b, &mut x, &criteria, &[]);
    let solved = match method {
        Krylov::Cg => composed.cg(&mut x, &mut on),
        Krylov::BiCgStab => composed.bicgstab(&mut x, &mut on),
    };
    stopped(&options.watch, solved)?;
    let outcomes: Vec<Outcome> = composed.finish();
    let asked = match method {
        Krylov::Cg => Method::Cg,
        Krylov::BiCgStab => Method::BiCgStab,
    };
    let scheme = Scheme::new::<T>(asked, Preconditioner::None);
    let placement = CpuBackend::placement(names.kernel.clone());
    let reason = "operators of the caller".to_owned();
    let kernel = names.kernel;
    Ok(Solution {
        x,
        report: BatchReport {
            systems: outcomes.into_iter().map(SystemReport::first).collect(),
            scheme,
            reason: reason.clone(),
            schemes: vec![SchemeRun { scheme, systems, reason, kernel: kernel.clone() }],
            backend: placement.backend,
            device: placement.device.clone(),
            format: names.format,
            kernel,
            runs: vec![RungRun::new(Rung::First, systems, placement)],
            plan_time,
            solve_time: solving.elapsed(),
            product_cost: None,
        },
    })
}
