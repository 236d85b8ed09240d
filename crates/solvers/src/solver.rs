//! The one entry: [`solve`] for a batch at once, [`BatchSolver`] for repeated solves.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use sparsebatch_cpu_ref::lanes::{LaneMethod, LaneOptions, LanePlan};
use sparsebatch_cpu_ref::{CpuError, CpuScalar, Criteria, Isa, Outcome, SpmvPlan};
use sparsebatch_formats::{Batch, BatchValues, Layout};

use crate::backend::{AnalysedSolve, CpuBackend, CpuPrimitives, SolveBackend};
use crate::choose::{Choice, Step, choose, step};
use crate::composed::Composed;
use crate::ladder::Ladder;
use crate::options::{Engine, Method, Preconditioner, check_len};
use crate::report::{BatchReport, ProductCost, Rung, SystemReport};
use crate::{SolveError, SolveOptions};

/// The solutions of a batch and how each system ended.
#[derive(Clone, Debug)]
pub struct Solution<T> {
    /// Item-major, like the right-hand sides.
    pub x: Vec<T>,
    /// How each system ended.
    pub report: BatchReport,
}

/// Solves `A_i x_i = b_i` for every system of a batch.
///
/// `b` and `x0` (0 when absent) are item-major: the rows of item 0, of item 1, ...; with
/// `options.nrhs` right-hand sides, those of an item follow each other. Work is spread over
/// rayon's current thread pool; no result depends on the number of threads.
///
/// # Errors
/// [`SolveError`] when nothing was solved: a matrix that is not square, a vector of the wrong
/// length, an option out of range. Systems that do not converge are no error.
///
/// # Examples
/// ```
/// use sparsebatch_formats::{Batch, Csr};
/// use sparsebatch_solvers::{SolveOptions, solve};
/// // [4 1; 1 3] x = [1; 2]
/// let a = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![4.0, 1.0, 1.0, 3.0])?;
/// let solution = solve(&Batch::from(a), &[1.0, 2.0], None, &SolveOptions::default())?;
/// assert!(solution.report.all_converged());
/// assert!((solution.x[0] - 1.0f64 / 11.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn solve<T: CpuScalar>(
    batch: &Batch<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Result<Solution<T>, SolveError> {
    let mut solver = BatchSolver::new(batch, options)?;
    let mut x = match x0 {
        Some(x0) => x0.to_vec(),
        None => vec![T::ZERO; b.len()],
    };
    let report = solver.solve(batch, b, &mut x)?;
    Ok(Solution { x, report })
}

/// The analysis of a batch, for repeated solves with other values, right-hand sides or guesses.
pub struct BatchSolver<T> {
    options: SolveOptions,
    choice: Choice,
    first: Step,
    nitems: usize,
    engine: Prepared<T>,
    plan_time: Duration,
}

enum Prepared<T> {
    Fused(Box<dyn AnalysedSolve<T>>),
    Composed { plan: Box<SpmvPlan<T>>, analysis: LanePlan, order: ValueOrder },
}

impl<T: CpuScalar> BatchSolver<T> {
    /// Chooses a method where the options say `auto`, and analyses the patterns of the batch.
    ///
    /// # Errors
    /// [`SolveError::NotSquare`], [`SolveError::Option`] for options that are out of range or
    /// exclude each other, [`SolveError::Cpu`] when a pattern cannot be analysed as asked.
    pub fn new(batch: &Batch<T>, options: &SolveOptions) -> Result<Self, SolveError> {
        check_square(batch)?;
        if options.nrhs == 0 {
            return Err(SolveError::Option {
                name: "nrhs",
                expected: "at least 1",
                found: "0".to_owned(),
            });
        }
        options.criteria::<T>(batch.nitems() * options.nrhs)?;
        let start = Instant::now();
        let mut choice = choose(batch, options);
        let engine = match &options.engine {
            Engine::Fused => {
                Prepared::Fused(CpuBackend.analyse(batch, step(&choice, options), None)?)
            }
            Engine::Composed(spmv) => {
                if options.method == Method::Lu {
                    return Err(SolveError::Option {
                        name: "solver",
                        expected: "cg or bicgstab with a composed engine (a format or a kernel)",
                        found: "lu".to_owned(),
                    });
                }
                if choice.method == Method::Lu {
                    choice.method = Method::BiCgStab;
                    choice.reason = "the sparse LU has no products to compose".to_owned();
                }
                let Step::Lanes(method) = step(&choice, options) else {
                    unreachable!("the first step runs in lanes")
                };
                let spmv = sparsebatch_cpu_ref::SpmvOptions { nrhs: options.nrhs, ..spmv.clone() };
                if spmv.layout != Layout::ItemMajor {
                    return Err(SolveError::Option {
                        name: "layout",
                        expected: "item-major vectors",
                        found: "interleaved".to_owned(),
                    });
                }
                Prepared::Composed {
                    plan: Box::new(SpmvPlan::new(batch, &spmv)?),
                    analysis: LanePlan::new(batch, method, LaneOptions::default(), None)?,
                    order: ValueOrder::of(batch),
                }
            }
        };
        let first = step(&choice, options);
        let plan_time = start.elapsed();
        let nitems = batch.nitems();
        Ok(Self { options: options.clone(), choice, first, nitems, engine, plan_time })
    }

    /// Solves every system; `x` holds the initial guesses on entry and the solutions on return.
    ///
    /// `batch` is the one that was analysed, or one with the same patterns and other values.
    ///
    /// # Errors
    /// [`SolveError::Length`] when `b` or `x` does not fit, [`SolveError::Cpu`] when the batch has
    /// other patterns than the one analysed.
    pub fn solve(
        &mut self,
        batch: &Batch<T>,
        b: &[T],
        x: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        let nrhs = self.options.nrhs;
        check_len("items of the batch", self.nitems, batch.nitems())?;
        check_len("b", batch.row_offset(self.nitems) * nrhs, b.len())?;
        check_len("x0", b.len(), x.len())?;
        let criteria = self.options.criteria::<T>(self.nitems * nrhs)?;
        let start = Instant::now();
        let mut product_cost = None;
        let outcomes = match &mut self.engine {
            Prepared::Fused(analysed) => analysed.solve(batch, nrhs, b, x, &criteria, None)?,
            Prepared::Composed { plan, analysis, order } => {
                analysis.check_patterns(batch)?;
                plan.update_values(&values_in(*order, batch)?)?;
                let cg = matches!(self.first, Step::Lanes(LaneMethod::Cg(_)));
                let (outcomes, cost) = composed(batch, nrhs, b, x, &criteria, plan, analysis, cg)?;
                product_cost = Some(cost);
                outcomes
            }
        };
        let mut systems: Vec<SystemReport> = outcomes
            .into_iter()
            .map(|outcome| SystemReport { outcome, rung: Rung::First })
            .collect();
        if self.options.fallback {
            let ladder = Ladder {
                backend: &CpuBackend,
                batch,
                options: &self.options,
                criteria: &criteria,
                b,
                first: self.first,
            };
            ladder.climb(x, &mut systems)?;
        }
        let solve_time = start.elapsed();
        Ok(self.report(systems, solve_time, product_cost))
    }

    fn report(
        &self,
        systems: Vec<SystemReport>,
        solve_time: Duration,
        mut product_cost: Option<ProductCost>,
    ) -> BatchReport {
        if let Some(cost) = &mut product_cost {
            cost.share_of_solve = cost.product_time.as_secs_f64() / solve_time.as_secs_f64();
        }
        let (format, kernel) = match &self.engine {
            Prepared::Fused(analysed) => ("csr", analysed.kernel()),
            Prepared::Composed { plan, .. } => {
                (plan.explain().format, plan.explain().kernel.to_owned())
            }
        };
        let preconditioner = match (self.choice.method, self.choice.preconditioner) {
            (Method::Lu, _) => Preconditioner::None,
            (_, preconditioner) => preconditioner,
        };
        BatchReport {
            systems,
            solver: self.choice.method.name(),
            preconditioner: preconditioner.name(),
            reason: self.choice.reason.clone(),
            backend: SolveBackend::<T>::name(&CpuBackend),
            device: SolveBackend::<T>::device(&CpuBackend),
            format,
            kernel,
            plan_time: self.plan_time,
            solve_time,
            product_cost,
        }
    }
}

/// Runs the composed solver.
#[expect(clippy::too_many_arguments, reason = "called once, with the pieces of one solve")]
fn composed<T: CpuScalar>(
    batch: &Batch<T>,
    nrhs: usize,
    b: &[T],
    x: &mut [T],
    criteria: &Criteria,
    plan: &SpmvPlan<T>,
    analysis: &LanePlan,
    cg: bool,
) -> Result<(Vec<Outcome>, ProductCost), SolveError> {
    let (mut primitives, failed) = CpuPrimitives::new(batch, nrhs, plan, analysis);
    let mut run = Composed::new(batch, nrhs, b, x, criteria, &failed);
    if cg {
        run.cg(x, &mut primitives)?;
    } else {
        run.bicgstab(x, &mut primitives)?;
    }
    let (products, product_time) = (primitives.products, primitives.product_time);
    let plan_time = plan.explain().cost;
    let per_product = product_time.as_secs_f64() / products.max(1) as f64;
    let break_even = if per_product > 0.0 {
        (100.0 * plan_time.as_secs_f64() / per_product).ceil() as u64
    } else {
        0
    };
    let cost = ProductCost {
        products,
        product_time,
        plan_time,
        break_even_products: break_even,
        share_of_solve: 0.0,
    };
    Ok((run.finish(), cost))
}

/// How the values of all items stand one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueOrder {
    ItemMajor,
    Interleaved,
    Shared,
}

impl ValueOrder {
    fn of<T: CpuScalar>(batch: &Batch<T>) -> Self {
        match batch {
            Batch::Ragged(_) => Self::ItemMajor,
            Batch::Uniform(batch) => match batch.values() {
                BatchValues::ItemMajor(_) => Self::ItemMajor,
                BatchValues::Interleaved(_) => Self::Interleaved,
                BatchValues::Shared(_) => Self::Shared,
            },
        }
    }
}

/// The values of a batch in the order in which an SpMV plan was made of another one.
fn values_in<T: CpuScalar>(
    order: ValueOrder,
    batch: &Batch<T>,
) -> Result<Cow<'_, [T]>, SolveError> {
    if ValueOrder::of(batch) == order {
        return Ok(Cow::Borrowed(source_values(batch)));
    }
    let (mut values, mut one) = (Vec::with_capacity(batch.total_nnz()), Vec::new());
    for item in 0..batch.nitems() {
        batch.copy_values(item, &mut one);
        values.extend_from_slice(&one);
    }
    match order {
        ValueOrder::ItemMajor => Ok(Cow::Owned(values)),
        ValueOrder::Interleaved => {
            let entries = 0..one.len();
            let of_all = |k| values[k..].iter().step_by(one.len()).copied();
            Ok(Cow::Owned(entries.flat_map(of_all).collect()))
        }
        ValueOrder::Shared => Err(SolveError::Cpu(CpuError::Parameter {
            name: "batch",
            expected: "values shared by all items, as in the batch analysed",
            found: "values of each item's own".to_owned(),
        })),
    }
}

/// The values of a batch as they stand.
fn source_values<T: CpuScalar>(batch: &Batch<T>) -> &[T] {
    match batch {
        Batch::Uniform(batch) => match batch.values() {
            BatchValues::ItemMajor(v) | BatchValues::Interleaved(v) | BatchValues::Shared(v) => v,
        },
        Batch::Ragged(batch) => batch.values(),
    }
}

fn check_square<T: CpuScalar>(batch: &Batch<T>) -> Result<(), SolveError> {
    for item in 0..batch.nitems() {
        let pattern = batch.pattern(item);
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        if nrows != ncols {
            return Err(SolveError::NotSquare { item, nrows, ncols });
        }
    }
    Ok(())
}

/// The instruction sets that the CPU backend may use here, least first, by name.
pub fn cpu_instruction_sets() -> Vec<&'static str> {
    Isa::available().into_iter().map(Isa::name).collect()
}
