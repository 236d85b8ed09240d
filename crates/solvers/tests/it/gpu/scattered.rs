//! Ragged batches and interleaved arrays: every system has the bits of its solve in a uniform batch
//! of its own.

use std::sync::Arc;

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{
    Batch, BatchValues, Csr, CsrPattern, Layout, Pattern, RaggedCsr, UniformBatch,
};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{FusedSolver, GpuTuning, Guess, Layouts};
use sparsebatch_solvers::{
    InnerPrecision, Method, Outcome, Preconditioner, SolveOptions, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::common::one_step;
use crate::common::{METHODS, Solved, Systems, on_gpu, options};

/// Item `item` of a family; `flaw` replaces its first value.
fn matrix<T: Value>(family: Family, nrows: usize, item: u64, flaw: Option<f64>) -> Csr<T> {
    let problem = Problem::new(family, nrows).unwrap();
    let (pattern, mut values) = (problem.pattern(), Vec::new());
    problem.push_values(item, &mut values);
    values[0] = flaw.unwrap_or(values[0]);
    let values = values.into_iter().map(T::from_f64).collect();
    let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
    Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap()
}

/// One item of each family and size; CG has no nonsymmetric ones.
fn families<T: Value>(method: Method, sizes: &[Size]) -> Vec<Csr<T>> {
    (0..)
        .zip(sizes)
        .filter(|(_, (family, ..))| method == Method::BiCgStab || *family != Family::Rand9)
        .map(|(item, &(family, nrows, flaw))| matrix(family, nrows, item, flaw))
        .collect()
}

/// A family, its number of rows, and the flaw that replaces its first value.
type Size = (Family, usize, Option<f64>);

/// Systems for every place of values, some flawed, one without rows, some with equal patterns.
fn matrices<T: Value>(method: Method) -> Vec<Csr<T>> {
    use Family::{Lap2d, Rand9, Tri};
    let mut matrices = families(
        method,
        &[
            (Tri, 32, None),
            (Lap2d, 100, None),
            (Tri, 13, Some(f64::NAN)),
            (Tri, 32, Some(f64::INFINITY)),
            (Rand9, 54, None),
            (Tri, 200, None),
            (Tri, 29, None),
            (Rand9, 1030, None),
            (Tri, 32, None),
            (Rand9, 40, None),
            (Rand9, 54, None),
            (Lap2d, 100, None),
            (Tri, 1, None),
            (Rand9, 1040, None),
        ],
    );
    // Dense: values and columns in shared memory (two bins by size), and values in device memory.
    for n in [20, 40, 200] {
        let entry = |k: usize| if k / n == k % n { n as f64 } else { -0.5 };
        let values = (0..n * n).map(|k| T::from_f64(entry(k))).collect();
        let row_ptr = (0..=n).map(|row| (row * n) as i32).collect();
        let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
        matrices.push(Csr::try_new(n, n, row_ptr, col_idx, values).unwrap());
    }
    matrices.push(Csr::try_new(0, 0, vec![0], vec![], vec![]).unwrap());
    matrices
}

fn ragged_as_alone<T: Value>(
    method: Method,
    matrices: &[Csr<T>],
    nbins: usize,
    nrhs: usize,
    inner_precision: InnerPrecision,
) {
    let batch: Batch<T> = matrices.iter().cloned().collect();
    let Batch::Ragged(ragged) = &batch else { unreachable!("collected") };
    let rows = ragged.row_offsets()[matrices.len()] * nrhs;
    let (b, x0) = (random_vector::<T>(rows, 3), random_vector::<T>(rows, 4));
    let mut options = options(method, Preconditioner::Jacobi);
    (options.nrhs, options.inner_precision) = (nrhs, inner_precision);
    options.max_iters =
        ((0..matrices.len() * nrhs).map(|s| 40 + s as u32).collect::<Vec<_>>()).into();
    let executor = Emulator::new(Order::Random(7));
    // The same load class (`few`) as for a system alone.
    let tuning = GpuTuning::default().few(Some(nrhs > 1)).mixed(Some(true));

    let mut plan = FusedSolver::ragged(&executor, ragged, &options, &tuning).unwrap();
    let values = executor.upload(ragged.values()).unwrap();
    let b_buffer = executor.upload(&b).unwrap();
    let mut x_buffer = executor.upload(&x0).unwrap();
    let in_use = executor.bytes_in_use();
    // Twice: the queues must be reset after a solve.
    for _ in 0..2 {
        executor.copy_from_host(&x0, &mut x_buffer).unwrap();
        plan.solve(&values, &b_buffer, Guess::InX, &mut x_buffer).unwrap();
    }
    assert_eq!(executor.bytes_in_use(), in_use, "a solve allocates nothing");
    let (x, outcomes) = (executor.download(&x_buffer).unwrap(), plan.outcomes().unwrap());

    let explain = plan.explain();
    let systems: usize = explain.launches.iter().map(|bin| bin.systems).sum();
    assert_eq!(systems, matrices.len() * nrhs);
    assert!(explain.launches.len() >= nbins && explain.launches.iter().any(|bin| bin.patterns > 1));
    for (item, matrix) in matrices.iter().enumerate() {
        let first = ragged.row_offsets()[item] * nrhs;
        let n = matrix.nrows();
        for rhs in 0..nrhs {
            let (system, own) = (item * nrhs + rhs, first + rhs * n..first + (rhs + 1) * n);
            let mut alone = Systems::new(std::slice::from_ref(matrix), b[own.clone()].to_vec());
            alone.x0 = x0[own.clone()].to_vec();
            let mut options = options.clone();
            options.nrhs = 1;
            options.max_iters = (vec![40 + system as u32]).into();
            let executor = Emulator::new(Order::Forward);
            let alone = on_gpu(&executor, &alone, &options, &tuning);
            let found = Solved {
                x: x[own].to_vec(),
                outcomes: vec![outcomes[system].clone()],
                kernel: String::new(),
            };
            let what = format!("{} {method} item {item} of {n} rows by {}", T::CPP, alone.kernel);
            assert_eq!(found.bits(0), alone.bits(0), "{what}");
        }
    }
    let converged = outcomes.iter().filter(|o| o.status == Status::Converged).count();
    assert!(converged > systems / 2 && converged < systems, "{converged} of {systems}");
}

#[test]
fn ragged_systems_are_solved_as_alone_in_f64() {
    for method in METHODS {
        for nrhs in [1, 2] {
            ragged_as_alone::<f64>(method, &matrices(method), 7, nrhs, InnerPrecision::Working);
        }
    }
}

#[test]
fn ragged_systems_are_solved_as_alone_with_iterations_in_f32() {
    use Family::{Lap2d, Rand9, Tri};
    let sizes = [
        (Tri, 32, None),
        (Rand9, 54, None),
        (Tri, 13, Some(f64::NAN)),
        (Tri, 100, None),
        (Lap2d, 100, None),
        (Tri, 29, None),
        (Tri, 120, None),
        (Tri, 9, None),
        (Tri, 20, None),
        (Tri, 16, None),
        (Tri, 32, Some(f64::INFINITY)),
        (Rand9, 200, None),
        (Rand9, 60, Some(f64::NAN)),
    ];
    for method in METHODS {
        for nrhs in [1, 2] {
            let matrices = families(method, &sizes);
            ragged_as_alone::<f64>(method, &matrices, 3, nrhs, InnerPrecision::Auto);
        }
    }
}

#[test]
fn ragged_systems_are_solved_as_alone_in_f32() {
    use Family::{Lap2d, Rand9, Tri};
    let sizes = [
        (Tri, 32, None),
        (Rand9, 54, None),
        (Tri, 13, Some(f64::NAN)),
        (Lap2d, 100, None),
        (Tri, 29, None),
        (Rand9, 1030, None),
        (Tri, 32, Some(f64::INFINITY)),
    ];
    for method in METHODS {
        let matrices = families(method, &sizes);
        ragged_as_alone::<f32>(method, &matrices, 3, 1, InnerPrecision::Working);
    }
}

#[test]
fn ragged_batches_agree_with_the_cpu() {
    for method in METHODS {
        let batch: Batch<f64> = matrices::<f64>(method).into_iter().collect();
        let b = random_vector(batch.row_offset(batch.nitems()), 3);
        let options = options(method, Preconditioner::Jacobi);
        let executor = Emulator::new(Order::Reverse);
        let Batch::Ragged(ragged) = &batch else { unreachable!("collected") };
        let mut plan = FusedSolver::for_batch(&executor, &batch, &options).unwrap();
        let mut x = executor.upload(&vec![f64::NAN; b.len()]).unwrap();
        let (values, b_buffer) = (ragged.values(), executor.upload(&b).unwrap());
        plan.solve(&executor.upload(values).unwrap(), &b_buffer, Guess::Zero, &mut x).unwrap();

        let cpu = solve(&batch, &b, None, &options).unwrap();

        for (gpu, cpu) in plan.outcomes().unwrap().iter().zip(&cpu.report.systems) {
            assert_eq!(gpu.status, cpu.outcome.status, "{method} {gpu:?} {cpu:?}");
            let (g, c) = (f64::from(gpu.iterations), f64::from(cpu.outcome.iterations));
            assert!((g - c).abs() <= (0.1 * c).max(2.0), "{method} {gpu:?} {cpu:?}");
        }
    }
}

/// Converts a vector from item-major to interleaved.
fn interleave<T: Copy>(v: &[T], nitems: usize) -> Vec<T> {
    let each = v.len() / nitems;
    (0..v.len()).map(|k| v[k % nitems * each + k / nitems]).collect()
}

/// Systems of one pattern with two right-hand sides, item-major, which are solved in any layout.
struct Relaid {
    nitems: usize,
    matrices: Vec<Csr<f64>>,
    values: Vec<f64>,
    b: Vec<f64>,
    x0: Vec<f64>,
    options: SolveOptions,
    executor: Emulator,
}

/// Solutions, item-major, with their outcomes.
type Ended = (Vec<f64>, Vec<Outcome>);

impl Relaid {
    fn new(family: Family, n: usize) -> Self {
        let (nitems, nrhs) = (5, 2);
        let method = if family == Family::Rand9 { Method::BiCgStab } else { Method::Cg };
        let matrices: Vec<Csr<f64>> =
            (0..nitems as u64).map(|item| matrix(family, n, item, None)).collect();
        Self {
            nitems,
            values: matrices.iter().flat_map(|m| m.values().to_vec()).collect(),
            matrices,
            b: random_vector(n * nitems * nrhs, 3),
            x0: vec![0.5; n * nitems * nrhs],
            options: options(method, Preconditioner::Jacobi).nrhs(nrhs),
            executor: Emulator::new(Order::Forward),
        }
    }

    fn pattern(&self) -> &Arc<CsrPattern> {
        self.matrices[0].pattern()
    }

    /// An item-major array in another layout.
    fn lay(&self, v: &[f64], layout: Layout) -> Vec<f64> {
        match layout {
            Layout::ItemMajor => v.to_vec(),
            Layout::Interleaved => interleave(v, self.nitems),
        }
    }

    /// Solves with arrays in some layouts; all items have the values of the first if these are
    /// shared.
    fn solved(&self, layouts: Layouts, shared: bool) -> Ended {
        let mut plan = FusedSolver::<_, f64>::with_layouts(
            &self.executor,
            self.pattern().view(),
            self.nitems,
            layouts,
            &self.options,
            &GpuTuning::default(),
        )
        .unwrap();
        let own = self.lay(&self.values, layouts.values);
        let values = if shared { &self.values[..own.len() / self.nitems] } else { &own[..] };
        let values = self.executor.upload(values).unwrap();
        let b = self.executor.upload(&self.lay(&self.b, layouts.vectors)).unwrap();
        let mut x = self.executor.upload(&self.lay(&self.x0, layouts.vectors)).unwrap();
        plan.solve(&values, &b, Guess::InX, &mut x).unwrap();
        let x = self.executor.download(&x).unwrap();
        let x = match layouts.vectors {
            Layout::ItemMajor => x,
            Layout::Interleaved => interleave(&x, x.len() / self.nitems),
        };
        (x, plan.outcomes().unwrap())
    }

    /// Solves by the plan made for an interleaved batch, with its layout.
    fn solved_as_batch(&self) -> Ended {
        let values = BatchValues::ItemMajor(self.values.clone());
        let uniform = UniformBatch::try_new(self.pattern().clone(), self.nitems, values).unwrap();
        let batch = Batch::Uniform(uniform.to_interleaved());
        let Batch::Uniform(interleaved) = &batch else { unreachable!("just made") };
        let mut plan = FusedSolver::for_batch(&self.executor, &batch, &self.options).unwrap();
        let BatchValues::Interleaved(own) = interleaved.values() else { unreachable!("so made") };
        let mut x = self.executor.upload(&self.x0).unwrap();
        let (own, b) = (self.executor.upload(own).unwrap(), self.executor.upload(&self.b).unwrap());
        plan.solve(&own, &b, Guess::InX, &mut x).unwrap();
        (self.executor.download(&x).unwrap(), plan.outcomes().unwrap())
    }
}

#[test]
fn interleaved_arrays_change_no_bit() {
    for (family, n) in [(Family::Tri, 30), (Family::Lap2d, 400), (Family::Rand9, 1030)] {
        let systems = Relaid::new(family, n);
        for shared in [false, true] {
            let plain = systems.solved(Layouts::default(), shared);
            assert!(plain.1.iter().all(|o| o.status == Status::Converged && o.iterations > 0));
            for values in [Layout::ItemMajor, Layout::Interleaved] {
                for vectors in [Layout::ItemMajor, Layout::Interleaved] {
                    let found = systems.solved(Layouts { values, vectors }, shared);
                    assert_eq!(found, plain, "{n} {values:?} {vectors:?} {shared}");
                }
            }
        }
        assert_eq!(systems.solved_as_batch(), systems.solved(Layouts::default(), false));
    }
}

#[test]
fn ragged_batches_are_checked() {
    let executor = Emulator::new(Order::Forward);
    let options = options(Method::Cg, Preconditioner::None);
    let wide = Csr::try_new(1, 2, vec![0, 1], vec![0], vec![1.0]).unwrap();
    let square = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![1.0]).unwrap();
    let batch: Batch<f64> = [square, wide].into_iter().collect();
    let plan = FusedSolver::for_batch(&executor, &batch, &options);
    assert!(matches!(plan, Err(GpuSolveError::Argument(ArgumentError::NotSquare { item: 1, .. }))));

    let empty = Batch::Ragged(RaggedCsr::<f64>::new());
    let mut plan = FusedSolver::for_batch(&executor, &empty, &one_step()).unwrap();
    let none = executor.upload::<f64>(&[]).unwrap();
    let mut x = executor.upload::<f64>(&[]).unwrap();
    plan.solve(&none, &none, Guess::Zero, &mut x).unwrap();
    assert!(plan.outcomes().unwrap().is_empty());
}
