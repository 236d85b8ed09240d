//! Solves of the same batch on the emulated GPU and on the CPU, and tests shared by several solvers
//! of the GPU.

pub(crate) mod honesty;
pub(crate) mod statuses;

pub(crate) use honesty::honesty_tests;
pub(crate) use statuses::statuses_tests;

use kernel_emu::Emulator;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{
    Batch, BatchValues, Csr, CsrPattern, CsrPatternRef, Pattern, Scalar, UniformBatch,
};
use sparsebatch_solvers::gpu::{FusedSolver, GpuTuning, Guess};
use sparsebatch_solvers::{
    InnerPrecision, Method, Outcome, Preconditioner, SolveOptions, SolveScalar, Status, solve,
};

/// The preconditioners that the GPU's solvers without factors support.
pub(crate) const PRECONDITIONERS: [Preconditioner; 3] =
    [Preconditioner::None, Preconditioner::Jacobi, Preconditioner::Auto];

/// The cases of a test that runs many alike: all, or the last one alone where a sanitizer watches
/// the kernels, which makes them slow and sees the same accesses in each case.
pub(crate) fn cases<T>(all: &[T]) -> &[T] {
    match kernel_emu::sanitizer() {
        Ok(Some(_)) => &all[all.len().saturating_sub(1)..],
        _ => all,
    }
}

/// The iterative methods that the GPU supports.
pub(crate) const METHODS: [Method; 2] = [Method::Cg, Method::BiCgStab];

/// The default options without the ladder: each system keeps the result of its first method.
pub(crate) fn one_step() -> SolveOptions {
    SolveOptions::new().fallback(false)
}

/// Default options with a method and a preconditioner.
pub(crate) fn options(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    let inner_precision = InnerPrecision::Working;
    one_step().method(method).preconditioner(preconditioner).inner_precision(inner_precision)
}

/// A uniform batch with its right-hand sides and guesses.
#[derive(Clone)]
pub(crate) struct Systems<T> {
    pub(crate) batch: UniformBatch<CsrPattern, T>,
    pub(crate) b: Vec<T>,
    pub(crate) x0: Vec<T>,
}

impl<T: Scalar> Systems<T> {
    /// Matrices of equal patterns, item-major, starting from x = 0.
    pub(crate) fn new(matrices: &[Csr<T>], b: Vec<T>) -> Self {
        let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
        let pattern = matrices[0].pattern().clone();
        let values = BatchValues::ItemMajor(values);
        let batch = UniformBatch::try_new(pattern, matrices.len(), values).unwrap();
        let x0 = vec![T::ZERO; b.len()];
        Self { batch, b, x0 }
    }

    pub(crate) fn pattern(&self) -> CsrPatternRef<'_> {
        self.batch.pattern().view()
    }

    pub(crate) fn nrows(&self) -> usize {
        self.pattern().nrows()
    }

    /// The items with these numbers, in this order.
    pub(crate) fn select(&self, items: &[usize]) -> Self {
        let n = self.nrows();
        let matrices: Vec<Csr<T>> = items.iter().map(|&item| self.batch.to_matrix(item)).collect();
        let part = |v: &[T]| -> Vec<T> {
            items.iter().flat_map(|&item| v[item * n..(item + 1) * n].to_vec()).collect()
        };
        let mut systems = Self::new(&matrices, part(&self.b));
        systems.x0 = part(&self.x0);
        systems
    }

    pub(crate) fn values(&self) -> &[T] {
        match self.batch.values() {
            BatchValues::ItemMajor(v) | BatchValues::Shared(v) | BatchValues::Interleaved(v) => v,
        }
    }
}

/// The solutions, and how each system ended.
#[derive(Clone, Debug)]
pub(crate) struct Solved<T> {
    pub(crate) x: Vec<T>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) kernel: String,
}

impl<T: Scalar> Solved<T> {
    /// Every bit of a system's result; all NaN are equal.
    pub(crate) fn bits(&self, system: usize) -> (Status, u32, u32, bool, Vec<u64>) {
        let bits = |v: f64| if v.is_nan() { f64::NAN } else { v }.to_bits();
        let o = &self.outcomes[system];
        let n = self.x.len() / self.outcomes.len();
        let mut numbers = vec![bits(o.residual_norm), bits(o.rhs_norm)];
        numbers.extend(self.x[system * n..(system + 1) * n].iter().map(|v| bits(v.to_f64())));
        (o.status, o.iterations, o.restarts, o.accepted_by_floor, numbers)
    }

    pub(crate) fn statuses(&self) -> Vec<Status> {
        self.outcomes.iter().map(|o| o.status).collect()
    }
}

/// A buffer of the emulated GPU.
pub(crate) type Memory<T> = <Emulator as Executor>::Buffer<T>;

/// Solves on the emulated GPU, from the guesses, by `solve(values, b, x)`, which returns the
/// outcomes and the names of the kernels.
pub(crate) fn from_guesses<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    solve: impl FnOnce(&Memory<T>, &Memory<T>, &mut Memory<T>) -> (Vec<Outcome>, String),
) -> Solved<T> {
    let values = executor.upload(systems.values()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&systems.x0).unwrap();
    let before = executor.bytes_in_use();
    let (outcomes, kernel) = solve(&values, &b, &mut x);
    assert_eq!(executor.bytes_in_use(), before, "a solve allocates nothing");
    Solved { x: executor.download(&x).unwrap(), outcomes, kernel }
}

/// A solver of the GPU on which the shared tests run.
pub(crate) trait Trial {
    /// Whether systems whose values underflow end as on the CPU, because the operations are the
    /// same.
    const LIKE_THE_CPU: bool;

    /// Solves on the emulated GPU, from the guesses.
    fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T>;
}

/// Solves on the emulated GPU, from the guesses; mixed precision is used even where f32 is not
/// faster.
pub(crate) fn on_gpu<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &GpuTuning,
) -> Solved<T> {
    let (pattern, items) = (systems.pattern(), systems.batch.nitems());
    let tuning = tuning.mixed(tuning.mixed.or(Some(true)));
    let plan = FusedSolver::<_, T>::with_tuning(executor, pattern, items, options, &tuning);
    let mut plan = plan.unwrap();
    from_guesses(executor, systems, |values, b, x| {
        plan.solve(values, b, Guess::InX, x).unwrap();
        let launches = plan.explain().launches;
        let kernels: Vec<_> = launches.into_iter().map(|launch| launch.kernel).collect();
        (plan.outcomes().unwrap(), kernels.join("; "))
    })
}

/// Solves on the CPU, from the guesses.
pub(crate) fn on_cpu<T: SolveScalar>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    let batch = Batch::Uniform(systems.batch.clone());
    let solution = solve(&batch, &systems.b, Some(&systems.x0), options).unwrap();
    let outcomes = solution.report.systems.into_iter().map(|s| s.outcome).collect();
    Solved { x: solution.x, outcomes, kernel: solution.report.kernel }
}

/// `||b - A x||_2` of a system, in f64.
pub(crate) fn residual_norm<T: Scalar>(systems: &Systems<T>, x: &[T], system: usize) -> f64 {
    let (n, items) = (systems.nrows(), systems.batch.nitems());
    let matrix = systems.batch.to_matrix(system / (systems.b.len() / (n * items).max(1)).max(1));
    let (pattern, first) = (systems.pattern(), system * n);
    let square = |row: usize| {
        let products = pattern.row(row).map(|k| {
            let col = pattern.col_idx()[k] as usize;
            matrix.values()[k].to_f64() * x[first + col].to_f64()
        });
        (systems.b[first + row].to_f64() - products.sum::<f64>()).powi(2)
    };
    (0..n).map(square).sum::<f64>().sqrt()
}

/// Tolerance of iteration counts against the CPU's: a share, or a few iterations.
pub(crate) type Close = (f64, f64);

/// Where rounding has much influence: in f32, and with random matrices, on which BiCGStab converges
/// erratically. Two orders of the same sums differed by 13 % in f64.
pub(crate) const ROUNDED: Close = (0.3, 4.0);

/// For iterations in f32, which do not end after as many iterations as there are rows.
pub(crate) const ENDLESS: Close = (0.3, 16.0);

/// Compares a GPU's solve of a known problem with the CPU's; see [`compare_within`].
pub(crate) fn compare<T: Scalar>(
    what: &str,
    systems: &Systems<T>,
    gpu: &Solved<T>,
    cpu: &Solved<T>,
    rel_tol: f64,
) {
    let close = if size_of::<T>() == 4 { ROUNDED } else { (0.1, 2.0) };
    compare_within(what, systems, gpu, cpu, rel_tol, close);
}

/// Compares a GPU's solve with the CPU's: equal statuses, iteration counts within `close`, true
/// residuals as reported and within the tolerance.
pub(crate) fn compare_within<T: Scalar>(
    what: &str,
    systems: &Systems<T>,
    gpu: &Solved<T>,
    cpu: &Solved<T>,
    rel_tol: f64,
    (share, few): Close,
) {
    assert_eq!(gpu.statuses(), cpu.statuses(), "{what}");
    for (system, (g, c)) in gpu.outcomes.iter().zip(&cpu.outcomes).enumerate() {
        let what = format!("{what}, system {system} by {}: {g:?} {c:?}", gpu.kernel);
        let close = (share * f64::from(c.iterations)).max(few);
        assert!((f64::from(g.iterations) - f64::from(c.iterations)).abs() <= close, "{what}");
        assert_eq!(g.residual_norm.is_nan(), c.residual_norm.is_nan(), "{what}");
        if g.residual_norm.is_finite() && g.status != Status::NonFinite {
            let found = residual_norm(systems, &gpu.x, system);
            let rounding = 1e3 * T::EPSILON.to_f64() * g.rhs_norm;
            assert!((found - g.residual_norm).abs() <= rounding + 1e-6 * found, "{what}: {found}");
        }
        if g.status == Status::Converged && !g.accepted_by_floor {
            assert!(g.residual_norm <= rel_tol * g.rhs_norm, "{what}");
        }
    }
}
