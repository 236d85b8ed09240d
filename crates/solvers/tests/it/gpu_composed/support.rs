//! Batches, and composed solves of them on the emulated GPU and on the CPU.

use sparsebatch_cuda::{Executor, KernelBuffer, Value};
use sparsebatch_formats::{Batch, Csr, Scalar};
use sparsebatch_solvers::gpu::{ComposedSolver, Guess, ProductKernel};
use sparsebatch_solvers::{
    Engine, Method, Outcome, Preconditioner, SolveOptions, SolveScalar, SpmvOptions, Status, solve,
};
use sparsebatch_spmv_gpu::FlexibleKernel;
use sparsebatch_testing::random_vector;

use crate::common::one_step;
use kernel_emu::Emulator;

pub(crate) const METHODS: [Method; 2] = [Method::Cg, Method::BiCgStab];

/// The preconditioners of the composed solver.
pub(crate) const PRECONDITIONERS: [Preconditioner; 3] =
    [Preconditioner::None, Preconditioner::Jacobi, Preconditioner::Auto];

/// The packed product, and all flexible ones.
pub(crate) fn kernels() -> Vec<ProductKernel> {
    let flexible = FlexibleKernel::ALL.iter().copied().map(ProductKernel::flexible);
    std::iter::once(ProductKernel::default()).chain(flexible).collect()
}

/// A method with a preconditioner, on the composed engine.
pub(crate) fn options(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    let engine = Engine::Composed(SpmvOptions::default());
    one_step().method(method).preconditioner(preconditioner).engine(engine)
}

/// Tridiagonal matrices of `n` rows with a long-range coupling, weakly or strongly dominant by
/// `seed`; symmetric for CG.
pub(crate) fn matrix<T: Scalar>(n: usize, method: Method, seed: u64) -> Csr<T> {
    let draws = random_vector::<f64>(n.max(1), seed);
    let upper = if method == Method::Cg { 1.0 } else { 0.6 };
    let far = (n / 3).max(2);
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n as isize {
        let far = far as isize;
        for (distance, value) in [(-far, 0.1), (-1, -1.0), (0, 0.0), (1, -1.0), (far, 0.1)] {
            let value = match distance {
                0 => 3.2 + 0.2 * draws[row as usize],
                1.. => upper * value,
                _ => value,
            };
            let col = row + distance;
            if !(0..n as isize).contains(&col) {
                continue;
            }
            col_idx.push(col as i32);
            values.push(T::from_f64(value));
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// A batch of matrices of these sizes.
pub(crate) fn ragged<T: Scalar>(sizes: &[usize], method: Method) -> Batch<T> {
    (1..).zip(sizes).map(|(seed, &n)| matrix(n, method, seed)).collect()
}

/// Right-hand sides for every row of a batch.
pub(crate) fn rhs<T: Scalar>(batch: &Batch<T>, nrhs: usize) -> Vec<T> {
    random_vector(batch.row_offset(batch.nitems()) * nrhs, 17)
}

/// The solutions, and how each system ended.
#[derive(Clone, Debug)]
pub(crate) struct Solved<T> {
    pub(crate) x: Vec<T>,
    pub(crate) outcomes: Vec<Outcome>,
    /// Offset of each system in `x`.
    firsts: Vec<usize>,
}

/// Every bit of a system's result.
pub(crate) type Bits = (Status, u32, u32, bool, Vec<u64>);

impl<T: Scalar> Solved<T> {
    fn new(batch: &Batch<T>, x: Vec<T>, outcomes: Vec<Outcome>) -> Self {
        let nrhs = outcomes.len() / batch.nitems().max(1);
        let mut firsts = vec![0];
        for system in 0..outcomes.len() {
            firsts.push(firsts[system] + batch.pattern(system / nrhs).nrows());
        }
        Self { x, outcomes, firsts }
    }

    pub(crate) fn of(&self, system: usize) -> &[T] {
        &self.x[self.firsts[system]..self.firsts[system + 1]]
    }

    /// The bits of a system; all NaN are equal.
    pub(crate) fn bits(&self, system: usize) -> Bits {
        let bits = |v: f64| if v.is_nan() { f64::NAN } else { v }.to_bits();
        let o = &self.outcomes[system];
        let mut numbers = vec![bits(o.residual_norm), bits(o.rhs_norm)];
        numbers.extend(o.history.iter().map(|&norm| bits(norm)));
        numbers.extend(self.of(system).iter().map(|v| bits(v.to_f64())));
        (o.status, o.iterations, o.restarts, o.accepted_by_floor, numbers)
    }

    pub(crate) fn all_bits(&self) -> Vec<Bits> {
        (0..self.outcomes.len()).map(|system| self.bits(system)).collect()
    }

    pub(crate) fn statuses(&self) -> Vec<Status> {
        self.outcomes.iter().map(|o| o.status).collect()
    }
}

/// Solves on the emulated GPU, from guesses or from 0.
pub(crate) fn on_gpu<T: Value>(
    executor: &Emulator,
    batch: &Batch<T>,
    (b, x0): (&[T], Option<&[T]>),
    kernel: &ProductKernel,
    options: &SolveOptions,
) -> Solved<T> {
    let mut plan = ComposedSolver::new(executor, batch, kernel, options).unwrap();
    let b = executor.upload(b).unwrap();
    let mut x = match x0 {
        Some(x0) => executor.upload(x0).unwrap(),
        None => executor.alloc(b.len()).unwrap(),
    };
    let guess = if x0.is_some() { Guess::InX } else { Guess::Zero };
    let before = executor.bytes_in_use();
    plan.solve(&b, guess, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "a solve allocates nothing");
    Solved::new(batch, executor.download(&x).unwrap(), plan.outcomes().unwrap())
}

/// Solves on the CPU.
pub(crate) fn on_cpu<T: SolveScalar>(
    batch: &Batch<T>,
    (b, x0): (&[T], Option<&[T]>),
    options: &SolveOptions,
) -> Solved<T> {
    let solution = solve(batch, b, x0, options).unwrap();
    let outcomes = solution.report.systems.into_iter().map(|s| s.outcome).collect();
    Solved::new(batch, solution.x, outcomes)
}

/// `||b - A x||_2` of a system, in f64.
fn residual_norm<T: Scalar>(batch: &Batch<T>, b: &[T], solved: &Solved<T>, system: usize) -> f64 {
    let item = system / (solved.outcomes.len() / batch.nitems());
    let (pattern, x) = (batch.pattern(item), solved.of(system));
    let b = &b[solved.firsts[system]..];
    let mut copy = Vec::new();
    let values = batch.values_in(item, &mut copy);
    let square = |row: usize| {
        let products = pattern
            .row(row)
            .map(|k| values[k].to_f64() * x[pattern.col_idx()[k] as usize].to_f64());
        (b[row].to_f64() - products.sum::<f64>()).powi(2)
    };
    (0..pattern.nrows()).map(square).sum::<f64>().sqrt()
}

/// Compares a GPU's solve with the CPU's: equal statuses, iteration counts within 10 % (or 2; in
/// f32, where rounding has more influence, within 30 % or 4), true residuals as reported and within
/// the tolerance.
pub(crate) fn compare<T: Scalar>(
    what: &str,
    batch: &Batch<T>,
    b: &[T],
    gpu: &Solved<T>,
    cpu: &Solved<T>,
    options: &SolveOptions,
) {
    assert_eq!(gpu.statuses(), cpu.statuses(), "{what}");
    let criteria = options.criteria::<T>(gpu.outcomes.len()).unwrap();
    for (system, (g, c)) in gpu.outcomes.iter().zip(&cpu.outcomes).enumerate() {
        let what = format!("{what}, system {system}: {g:?} {c:?}");
        let (share, few) = if size_of::<T>() == 4 { (0.3, 4.0) } else { (0.1, 2.0) };
        let close = (share * f64::from(c.iterations)).max(few);
        assert!((f64::from(g.iterations) - f64::from(c.iterations)).abs() <= close, "{what}");
        assert_eq!(g.residual_norm.is_nan(), c.residual_norm.is_nan(), "{what}");
        if g.residual_norm.is_finite() && g.status != Status::NonFinite {
            let found = residual_norm(batch, b, gpu, system);
            let rounding = 1e3 * T::EPSILON.to_f64() * g.rhs_norm;
            assert!((found - g.residual_norm).abs() <= rounding + 1e-6 * found, "{what}: {found}");
        }
        if g.status == Status::Converged && !g.accepted_by_floor {
            let threshold =
                criteria.abs_tol.get(system).max(criteria.rel_tol.get(system) * g.rhs_norm);
            assert!(g.residual_norm <= threshold, "{what}");
        }
    }
}
