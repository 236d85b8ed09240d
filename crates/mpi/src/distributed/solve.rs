//! Solves over ranks, as users call them.

use std::time::{Duration, Instant};

use sparsebatch_cpu_ref::{CpuScalar, check_threads};
use sparsebatch_solve_core::{
    ArgumentError, Criteria, Krylov, Method, Outcome, Preconditioner, Scheme, SolveOptions, Status,
    check_len,
};
use sparsebatch_solvers::gpu::StepMethod;
use sparsebatch_solvers::{Backend, BatchReport, LinOp, Machine};

use super::DistributedMatrix;
use super::bicgstab::{self, bicgstab};
use super::cg::{self, cg};
use super::matrix::refused;
use super::pipelined::{self, pipelined};
use super::precond::{Analysed, Factored};
use super::run::{OnGpu, Precond, Run};
use super::system::{Operator, System};
use super::vectors::Sums;
use crate::{Failure, MpiError, Ranks, described};

/// How ranks solve one system together.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DistributedOptions {
    /// Method (CG or BiCGStab), preconditioner, tolerances and limits, for one right-hand side.
    /// Block-Jacobi, ILU(0) and IC(0) are those of the block of rows and columns of each rank. The
    /// ladder of further attempts is not there, and the engine and the inner precision have no
    /// effect: format and kernel are those of the matrix.
    pub solve: SolveOptions,
    /// Block-Jacobi with the block of each rank factorised by sparse LU in an order of little fill:
    /// exact within a rank, and cheap where blocks are banded.
    pub block_lu: bool,
    /// CG in the pipelined form: one sum over ranks for each iteration, which travels while the next
    /// product is computed.
    pub pipelined: bool,
}

impl DistributedOptions {
    /// The defaults of [`SolveOptions`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets method, preconditioner, tolerances and limits.
    #[must_use]
    pub fn solve(self, solve: SolveOptions) -> Self {
        Self { solve, ..self }
    }

    /// Sets whether the block of each rank is factorised by LU.
    #[must_use]
    pub fn block_lu(self, block_lu: bool) -> Self {
        Self { block_lu, ..self }
    }

    /// Sets whether CG is pipelined.
    #[must_use]
    pub fn pipelined(self, pipelined: bool) -> Self {
        Self { pipelined, ..self }
    }
}

/// What came out of a solve by all ranks; but for the times it is the same on all of them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DistributedReport {
    /// Status, iterations, true residual.
    pub outcome: Outcome,
    /// Method and preconditioner; [`Scheme::preconditioner`] is `None` beside `block_lu`.
    pub scheme: Scheme,
    /// Whether the block of each rank was factorised by LU.
    pub block_lu: bool,
    /// Why `auto` took the method; `asked for` otherwise.
    pub reason: String,
    /// The GPU of this rank; `None` where it solved on its CPU.
    pub device: Option<String>,
    /// Products of the iterations, each with an exchange.
    pub products: u64,
    /// Time of the analysis of the preconditioner on this rank.
    pub plan_time: Duration,
    /// Time of the solve on this rank.
    pub solve_time: Duration,
    /// Time of the iterations on this rank: that of the solve without the tests on entry and at the
    /// end.
    pub iteration_time: Duration,
}

impl DistributedReport {
    /// Whether the system converged.
    pub fn converged(&self) -> bool {
        self.outcome.status == Status::Converged
    }

    /// Whether the block of each rank preconditions.
    fn preconditions_by_blocks(&self) -> bool {
        let is_diagonal = matches!(
            self.scheme.preconditioner(),
            Preconditioner::None | Preconditioner::Auto | Preconditioner::Jacobi
        );
        self.block_lu || !is_diagonal
    }

    /// As the report of a batch of one system; `products` names format and kernel.
    pub fn into_batch(self, (format, kernel): (&'static str, &str)) -> BatchReport {
        let mut kernel = match self.block_lu {
            true => format!("{kernel}, LU of the block of each rank"),
            false => kernel.to_owned(),
        };
        if self.device.is_some() && self.preconditions_by_blocks() {
            kernel += ", blocks of ranks on the CPU";
        }
        let times = [self.plan_time, self.solve_time];
        let products = (format, &*kernel);
        let mut report =
            BatchReport::of_ranks(self.outcome, self.scheme, &self.reason, products, times);
        if let Some(device) = self.device {
            report.runs.iter_mut().for_each(|run| run.backend = Machine::Gpu);
            (report.backend, report.device) = (Machine::Gpu, device);
        }
        report
    }
}

impl<T: CpuScalar> DistributedMatrix<'_, T> {
    /// Solves `A x = b` on all ranks together. `b` and `x` have an element for each own row; `x`
    /// holds the initial guess on entry and the solution on return.
    ///
    /// Rules and statuses are those of [`sparsebatch_solvers::solve`]: the residual of a converged
    /// system is recomputed, with its rounding errors bounded, and the x of one that did not converge
    /// is no worse than its guess. Sums over ranks are added in their order, so that the bits are the
    /// same in every run with as many ranks and the same partition. [`Method::Auto`] is CG for a
    /// symmetric matrix with a positive diagonal, else BiCGStab.
    ///
    /// A matrix on GPUs is solved there: vectors stay on the GPUs, which send their sums to the host,
    /// and the residual is recomputed by the CPU. The diagonal preconditions on the GPUs; blocks of
    /// ranks do so on the CPU, to which vectors are copied and from which they come back.
    ///
    /// # Errors
    /// [`MpiError::All`] or [`MpiError::Rank`] with the exit code 2 for what does not fit and for
    /// methods that ranks cannot use; [`MpiError::Unequal`] where ranks were asked for different
    /// things; [`MpiError::Rank`] for a rank without memory. Not converging is no error.
    pub fn solve(
        &mut self,
        b: &[T],
        x: &mut [T],
        options: &DistributedOptions,
    ) -> Result<DistributedReport, MpiError> {
        let start = Instant::now();
        let held = self.held_ranks();
        let ranks = &*held;
        ranks.same(&asked::<T>(options))?;
        ranks.agree(self.check_square())?;
        let (method, reason) = self.method(options)?;
        let (scheme, of_block) = schemes::<T>(method, options);
        let analysed = ranks.run(|| Analysed::new(self, of_block))?;
        let factored = analysed.as_ref().map(|analysed| analysed.factor_all(ranks)).transpose()?;
        let plan_time = start.elapsed();
        let (mut preconditioner, failed) = match factored {
            Some(Ok(factored)) => (Some(factored), None),
            Some(Err(status)) => (None, Some(status)),
            None => (None, None),
        };
        let preconditioner = match &mut preconditioner {
            Some(Factored::Diagonal(inverse)) => Precond::Diagonal(inverse),
            Some(factored) => Precond::Operator(factored),
            None => Precond::Nothing,
        };
        let mut report = self.iterate(preconditioner, failed, (b, x), scheme, options)?;
        (report.reason, report.plan_time) = (reason, plan_time);
        Ok(report)
    }

    /// As [`DistributedMatrix::solve`], with a preconditioner of the caller for the vectors of this
    /// rank: `z = M r`. [`Method::Auto`] is BiCGStab.
    ///
    /// A preconditioner that exchanges data between ranks must do so on all of them, whatever fails;
    /// one that fails on a rank ends the solve of all.
    ///
    /// # Errors
    /// As [`DistributedMatrix::solve`], and for a preconditioner in the options.
    pub fn solve_preconditioned(
        &mut self,
        preconditioner: &mut dyn LinOp<T>,
        b: &[T],
        x: &mut [T],
        options: &DistributedOptions,
    ) -> Result<DistributedReport, MpiError> {
        let held = self.held_ranks();
        let ranks = &*held;
        ranks.same(&asked::<T>(options))?;
        ranks.agree(self.check_square().and_then(|()| check_given(options)))?;
        let scheme = scheme_of_given::<T>(options);
        self.iterate(Precond::Operator(preconditioner), None, (b, x), scheme, options)
    }

    fn iterate(
        &mut self,
        mut preconditioner: Precond<'_, T>,
        failed: Option<Status>,
        (b, x): (&[T], &mut [T]),
        scheme: Scheme,
        options: &DistributedOptions,
    ) -> Result<DistributedReport, MpiError> {
        let (held, rows) = (self.held_ranks(), self.own_rows());
        let ranks = &*held;
        let criteria = ranks.agree(check::<T>(options, scheme, rows, (b, &*x)))?;
        let device = self.device();
        let system = (Operator::Matrix(self), b, &criteria);
        let report = iterate(ranks, system, preconditioner.shorter(), failed, x, scheme, options)?;
        Ok(DistributedReport { device, ..report })
    }

    fn check_square(&self) -> Result<(), Failure> {
        if self.rows() == self.columns() {
            return Ok(());
        }
        let (nrows, ncols) = (self.rows().len(), self.columns().len());
        if nrows != ncols {
            return Err(refused(ArgumentError::NotSquare { item: 0, nrows, ncols }));
        }
        Err(refused(ArgumentError::OutOfRange {
            name: "the partition of columns",
            expected: "that of the rows, to solve",
            found: "another".to_owned(),
        }))
    }

    /// The method, and why.
    fn method(&mut self, options: &DistributedOptions) -> Result<(Method, String), MpiError> {
        if options.solve.method != Method::Auto {
            return Ok((options.solve.method, "asked for".to_owned()));
        }
        let (method, reason) = match self.is_positive_and_symmetric()? {
            [false, _] => (Method::BiCgStab, "its diagonal is not positive"),
            [true, false] => (Method::BiCgStab, "it is not symmetric"),
            [true, true] => (Method::Cg, "it is symmetric with a positive diagonal"),
        };
        Ok((method, reason.to_owned()))
    }

    /// Whether the diagonal is positive, and if so whether the matrix is symmetric.
    fn is_positive_and_symmetric(&mut self) -> Result<[bool; 2], MpiError> {
        if let Some(known) = self.is_positive_and_symmetric {
            return Ok(known);
        }
        let own = self.diagonal().iter().all(|&d| d > T::ZERO);
        let is_positive = self.ranks().all_gather(&own)?.into_iter().all(|positive| positive);
        let is_symmetric = is_positive && self.is_symmetric()?;
        Ok(*self.is_positive_and_symmetric.insert([is_positive, is_symmetric]))
    }
}

/// Solves a system whose matrix is known by its products alone, by CG or BiCGStab on all ranks
/// together, with `rows` rows on this one. `operator` computes the own rows of `A x` from the own
/// elements of x, and may exchange data with the other ranks, on all of them, whatever fails.
///
/// As [`sparsebatch_solvers::solve_operator`] a system is converged when the residual from a product
/// of the operator passes. Otherwise as [`DistributedMatrix::solve_preconditioned`].
///
/// # Errors
/// As [`DistributedMatrix::solve_preconditioned`], and for a rounding floor, which needs the entries
/// of A.
pub fn solve_distributed_operator<T: CpuScalar>(
    ranks: &Ranks,
    operator: &mut dyn LinOp<T>,
    preconditioner: Option<&mut dyn LinOp<T>>,
    b: &[T],
    x: &mut [T],
    options: &DistributedOptions,
) -> Result<DistributedReport, MpiError> {
    ranks.same(&asked::<T>(options))?;
    ranks.agree(check_given(options).and_then(|()| match options.solve.floor {
        Some(_) => Err(unsupported("floor", "none where A is an operator", "a rounding floor")),
        None => Ok(()),
    }))?;
    let scheme = scheme_of_given::<T>(options);
    let criteria = ranks.agree(check::<T>(options, scheme, b.len(), (b, &*x)))?;
    let system = (Operator::Given(operator), b, &criteria);
    let preconditioner = preconditioner.map_or(Precond::Nothing, |p| Precond::Operator(p));
    iterate(ranks, system, preconditioner, None, x, scheme, options)
}

fn iterate<'a, T: CpuScalar>(
    ranks: &'a Ranks,
    (operator, b, criteria): (Operator<'a, '_, T>, &'a [T], &'a Criteria),
    preconditioner: Precond<'a, T>,
    failed: Option<Status>,
    x: &mut [T],
    scheme: Scheme,
    options: &DistributedOptions,
) -> Result<DistributedReport, MpiError> {
    let start = Instant::now();
    if let Some(watch) = &criteria.watch {
        watch.begin(1);
    }
    let mut sums = Sums::new(ranks);
    let system = System::new(operator, b, criteria, &mut sums, ranks.size())?;
    let mut run = Run::new(ranks, system, sums, preconditioner, failed, x)?;
    let entered = Instant::now();
    if !run.has_ended() {
        let is_cg = scheme.krylov() == Some(Krylov::Cg);
        let method = match (is_cg, options.pipelined) {
            (true, false) => StepMethod::Cg,
            (true, true) => StepMethod::PipelinedCg,
            (false, _) => StepMethod::BiCgStab,
        };
        solve_by(ranks, method, &mut run, x)?;
    }
    let iteration_time = entered.elapsed().saturating_sub(run.settling);
    let (outcome, products) = run.finish();
    if let Some(watch) = &criteria.watch {
        watch.add(1);
    }
    Ok(DistributedReport {
        outcome,
        scheme,
        block_lu: options.block_lu,
        reason: "asked for".to_owned(),
        device: None,
        products,
        plan_time: Duration::ZERO,
        solve_time: start.elapsed(),
        iteration_time,
    })
}

/// The iterations of a method, over vectors of the GPU that has the matrix, or of the CPU.
fn solve_by<T: CpuScalar>(
    ranks: &Ranks,
    method: StepMethod,
    run: &mut Run<'_, '_, '_, T>,
    x: &mut [T],
) -> Result<(), MpiError> {
    if run.is_on_gpu() {
        let mut steps = ranks.agree(OnGpu::new(run, method, x))?;
        return match method {
            StepMethod::Cg => cg(run, &mut steps),
            StepMethod::PipelinedCg => pipelined(run, &mut steps),
            StepMethod::BiCgStab => bicgstab(run, &mut steps),
        };
    }
    match method {
        StepMethod::Cg => cg(run, &mut ranks.agree(cg::OnCpu::new(x))?),
        StepMethod::PipelinedCg => pipelined(run, &mut ranks.agree(pipelined::OnCpu::new(x))?),
        StepMethod::BiCgStab => bicgstab(run, &mut ranks.agree(bicgstab::OnCpu::new(x))?),
    }
}

/// What ranks must have been asked alike.
fn asked<T: CpuScalar>(options: &DistributedOptions) -> crate::Described {
    let mut all = described::<T>(&options.solve, &Backend::Cpu);
    all.push(("block_lu".to_owned(), options.block_lu.to_string()));
    all.push(("pipelined".to_owned(), options.pipelined.to_string()));
    all
}

/// The scheme of the solve, and that of the block of each rank.
fn schemes<T: CpuScalar>(method: Method, options: &DistributedOptions) -> (Scheme, Scheme) {
    match options.block_lu {
        true => (Scheme::new::<T>(method, Preconditioner::None), Scheme::Lu),
        false => {
            let scheme = Scheme::new::<T>(method, options.solve.preconditioner);
            (scheme, scheme)
        }
    }
}

/// The scheme where the caller preconditions.
fn scheme_of_given<T: CpuScalar>(options: &DistributedOptions) -> Scheme {
    let method = match options.solve.method {
        Method::Auto => Method::BiCgStab,
        method => method,
    };
    Scheme::new::<T>(method, Preconditioner::None)
}

fn unsupported(name: &'static str, expected: &'static str, found: &str) -> Failure {
    refused(ArgumentError::OutOfRange { name, expected, found: found.to_owned() })
}

/// Refuses a preconditioner beside that of the caller.
fn check_given(options: &DistributedOptions) -> Result<(), Failure> {
    let preconditioner = options.solve.preconditioner;
    let is_free = matches!(preconditioner, Preconditioner::Auto | Preconditioner::None);
    if is_free && !options.block_lu {
        return Ok(());
    }
    let found = if options.block_lu { "LU of the blocks" } else { preconditioner.name() };
    Err(unsupported("preconditioner", "none beside that of the caller", found))
}

fn check<T: CpuScalar>(
    options: &DistributedOptions,
    scheme: Scheme,
    rows: usize,
    (b, x): (&[T], &[T]),
) -> Result<Criteria, Failure> {
    check_threads().map_err(refused)?;
    let DistributedOptions { solve, block_lu, pipelined } = options;
    if scheme.is_direct() {
        return Err(unsupported(
            "method",
            "cg or bicgstab over ranks, or LU of the block of each rank as preconditioner",
            solve.method.name(),
        ));
    }
    if *pipelined && scheme.krylov() != Some(Krylov::Cg) {
        return Err(unsupported(
            "pipelined",
            "cg, of which alone there is such a form",
            "bicgstab",
        ));
    }
    let is_free = matches!(solve.preconditioner, Preconditioner::Auto | Preconditioner::None);
    if *block_lu && !is_free {
        let found = solve.preconditioner.name();
        return Err(unsupported("preconditioner", "none beside LU of the blocks", found));
    }
    if solve.nrhs != 1 {
        return Err(unsupported("nrhs", "one right-hand side over ranks", &solve.nrhs.to_string()));
    }
    check_len("b", rows, b.len()).map_err(refused)?;
    check_len("x", rows, x.len()).map_err(refused)?;
    solve.criteria::<T>(1).map_err(refused)
}
