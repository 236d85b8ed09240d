//! Composed solves on a real GPU, compared with the CPU's: uniform and ragged batches over every
//! kernel of products, large systems, repeated solves.

use std::time::Instant;

use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr, Pattern};
use sparsebatch_solve_core::{FormatChoice, KernelChoice};
use sparsebatch_solvers::gpu::{ComposedSolver, DeviceLinOp, Guess, ProductKernel};
use sparsebatch_solvers::{
    Backend, DeviceSolver, Engine, Gpu, Method, Outcome, Preconditioner, SolveError, SolveOptions,
    SpmvOptions, Status, solve, solve_on,
};
use sparsebatch_spmv_gpu::{FlexibleKernel, PackedOptions, PackedPlan};
use sparsebatch_testing::random_vector;

fn options(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    SolveOptions::new().method(method).preconditioner(preconditioner).fallback(false)
}

/// Every bit of a solve's result.
fn bits(x: &[f64], outcomes: &[Outcome]) -> (Vec<u64>, Vec<(Status, u32, u64)>) {
    let of = |o: &Outcome| (o.status, o.iterations, o.residual_norm.to_bits());
    (x.iter().map(|v| v.to_bits()).collect(), outcomes.iter().map(of).collect())
}

/// Compares a solve with the CPU's: iteration counts within 10 % on average, and each within 25 %,
/// since rounding alone changes those of BiCGStab.
fn compare(what: &str, batch: &Batch<f64>, b: &[f64], options: &SolveOptions, found: &[Outcome]) {
    let cpu = solve(batch, b, None, options).unwrap();
    let (mut ours, mut theirs) = (0.0, 0.0);
    for (item, (gpu, cpu)) in found.iter().zip(&cpu.report.systems).enumerate() {
        let (g, c) = (f64::from(gpu.iterations), f64::from(cpu.outcome.iterations));
        let what = format!("{what} item {item}: {gpu:?}, {:?}", cpu.outcome);
        assert_eq!((gpu.status, cpu.outcome.status), (Status::Converged, gpu.status), "{what}");
        assert!((g - c).abs() <= (0.25 * c).max(2.0), "{what}");
        assert!(gpu.residual_norm <= 1e-10 * gpu.rhs_norm, "{what}");
        (ours, theirs) = (ours + g, theirs + c);
    }
    assert!((ours - theirs).abs() <= 0.1 * theirs, "{what}: {ours}, {theirs} iterations in all");
}

fn kernels() -> Vec<ProductKernel> {
    let flexible = FlexibleKernel::ALL.iter().copied().map(ProductKernel::flexible);
    std::iter::once(ProductKernel::default()).chain(flexible).collect()
}

fn is_repeatable(kernel: &ProductKernel) -> bool {
    match kernel {
        ProductKernel::Packed(_) => true,
        ProductKernel::Flexible(options) => options.kernel.is_repeatable(),
    }
}

/// Solves several times with one plan, and compares the runs with each other and with the CPU.
fn run(device: &Device, batch: &Batch<f64>, b: &[f64], kernel: &ProductKernel, o: &SolveOptions) {
    let mut plan = ComposedSolver::<Device, f64>::new(device, batch, kernel, o).unwrap();
    let b_there = device.upload(b).unwrap();
    let mut x = device.alloc_zeroed(b.len()).unwrap();
    let mut first = None;
    for _ in 0..3 {
        plan.solve(&b_there, Guess::Zero, &mut x).unwrap();
        let found = bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap());
        let expected = first.get_or_insert_with(|| found.clone());
        assert!(!is_repeatable(kernel) || *expected == found, "{}", plan.explain());
    }
    compare(&plan.explain().to_string(), batch, b, o, &plan.outcomes().unwrap());
    // From the solution no iteration is needed.
    plan.solve(&b_there, Guess::InX, &mut x).unwrap();
    assert!(plan.outcomes().unwrap().iter().all(|o| o.iterations == 0));
    let amortisation = plan.amortisation(batch).unwrap();
    println!("{}: {amortisation:?}", plan.explain());
    assert!(amortisation.product.as_nanos() > 0 && amortisation.products > 0);
}

fn families(method: Method) -> Vec<(Family, usize)> {
    use Family::{Lap2d, Rand9, Tri};
    let mut families = vec![(Tri, 1), (Tri, 13), (Tri, 64), (Tri, 512), (Lap2d, 16), (Lap2d, 900)];
    match method {
        Method::BiCgStab => families.extend([(Rand9, 54), (Rand9, 992)]),
        _ => families.extend([(Lap2d, 10_000), (Lap2d, 40_000)]),
    }
    families
}

#[test]
fn uniform_batches_agree_with_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for method in [Method::Cg, Method::BiCgStab] {
        for (family, nrows) in families(method) {
            let items = systems((200_000 / nrows).clamp(2, 300));
            let problem = Problem::new(family, nrows).unwrap().batch(items).unwrap();
            for preconditioner in [Preconditioner::None, Preconditioner::Jacobi] {
                for kernel in kernels() {
                    let options = options(method, preconditioner);
                    run(&device, &problem.batch, &problem.rhs, &kernel, &options);
                }
            }
        }
    }
}

/// Systems of all families in alternation.
fn mix(method: Method) -> (Batch<f64>, Vec<f64>) {
    let families = families(method);
    let (mut matrices, mut b) = (Vec::new(), Vec::new());
    for item in 0..systems(200) {
        let (family, nrows) = families[item * 5 % families.len()];
        let problem = Problem::new(family, nrows).unwrap();
        let (pattern, mut values) = (problem.pattern(), Vec::new());
        problem.push_values(item as u64, &mut values);
        problem.push_rhs(item as u64, &mut b);
        let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
        matrices.push(Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap());
    }
    (matrices.into_iter().collect(), b)
}

#[test]
fn ragged_batches_agree_with_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for method in [Method::Cg, Method::BiCgStab] {
        let (batch, b) = mix(method);
        for kernel in kernels() {
            run(&device, &batch, &b, &kernel, &options(method, Preconditioner::Jacobi));
        }
    }
}

/// A system of three million rows: more parts than the threads that add their sums.
#[test]
fn one_very_large_system_among_small_ones() {
    let Some(device) = device_or_skip() else { return };
    let chain = |n: usize| {
        let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in 0..n {
            for col in row.saturating_sub(1)..(row + 2).min(n) {
                col_idx.push(col as i32);
                values.push(if row == col { 3.0 } else { -1.0 });
            }
            row_ptr.push(col_idx.len() as i32);
        }
        Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
    };
    let batch: Batch<f64> = [7, 3_000_000, 300, 0, 1].map(chain).into_iter().collect();
    let b: Vec<f64> = (0..3_000_308).map(|k| 1.0 + f64::from(k % 17)).collect();
    for method in [Method::Cg, Method::BiCgStab] {
        let options = options(method, Preconditioner::Jacobi);
        for kernel in [ProductKernel::default(), ProductKernel::flexible(FlexibleKernel::CsrI)] {
            run(&device, &batch, &b, &kernel, &options);
        }
        let backend = Backend::Gpu(Gpu::new(device.clone()));
        let solution = solve_on(&backend, &batch, &b, None, &options).unwrap();
        assert!(solution.report.all_converged());
        assert!(solution.report.runs[0].composed_reason.is_some(), "{:?}", solution.report.runs);
    }
}

#[test]
fn histories_and_the_cost_of_products_are_in_the_report() {
    let Some(device) = device_or_skip() else { return };
    let (batch, b) = mix(Method::Cg);
    let spmv = SpmvOptions::default().format(FormatChoice::Csr).kernel(KernelChoice::CsrI);
    let options =
        options(Method::Cg, Preconditioner::Jacobi).history(true).engine(Engine::Composed(spmv));
    let backend = Backend::Gpu(Gpu::new(device));

    let gpu = solve_on(&backend, &batch, &b, None, &options).unwrap().report;
    let cpu = solve(&batch, &b, None, &options).unwrap().report;

    assert_eq!((gpu.format, gpu.kernel.as_str()), ("csr", "composed cg over batch-csr-i"));
    let cost = gpu.product_cost.as_ref().unwrap();
    assert!(cost.products > 0 && !cost.product_time.is_zero(), "{cost:?}");
    for (system, (g, c)) in gpu.systems.iter().zip(&cpu.systems).enumerate() {
        let (g, c) = (&g.outcome, &c.outcome);
        assert_eq!(g.history.len(), g.iterations as usize + 1);
        // Residuals of systems of one row are rounding errors only.
        let least = 1e-12 * c.rhs_norm;
        for (i, (g, c)) in g.history.iter().zip(&c.history).take(10).enumerate() {
            let close = (g - c).abs() <= 1e-6 * c + least;
            assert!(close, "system {system}, iteration {i}: {g} {c}");
        }
    }
}

/// Data on the device: the bits and histories of the host's, and no graph.
#[test]
fn solves_of_data_on_the_device_are_those_of_the_host() {
    let Some(device) = device_or_skip() else { return };
    let (batch, b) = mix(Method::Cg);
    let large = Problem::new(Family::Lap2d, 40_000).unwrap().batch(systems(20)).unwrap();
    let engine = |kernel| Engine::Composed(SpmvOptions::default().kernel(kernel));
    let cg = || options(Method::Cg, Preconditioner::Jacobi);
    for (batch, b, options) in [
        (&batch, &b, cg()),
        (&batch, &b, cg().history(true)),
        (&batch, &b, cg().engine(engine(KernelChoice::CsrI))),
        (&large.batch, &large.rhs, cg()),
        (&large.batch, &large.rhs, cg().engine(engine(KernelChoice::Auto))),
    ] {
        let backend = Backend::Gpu(Gpu::new(device.clone()));
        let host = solve_on(&backend, batch, b, None, &options).unwrap();
        let mut solver: DeviceSolver<Device, f64> =
            DeviceSolver::new(&device, batch, &options).unwrap();
        let mut copy = Vec::new();
        let values = (0..batch.nitems()).flat_map(|k| batch.values_in(k, &mut copy).to_vec());
        let values = device.upload(&values.collect::<Vec<f64>>()).unwrap();
        let on_b = device.upload(b).unwrap();
        let mut x = device.alloc_zeroed(b.len()).unwrap();

        let start = Instant::now();
        let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();

        println!(
            "{}: {:?} on the device, {:?} from the host",
            report.kernel,
            start.elapsed(),
            host.report.solve_time
        );
        assert!(report.all_converged());
        let (_, outcomes): (Vec<_>, Vec<Outcome>) =
            report.systems.iter().map(|s| ((), s.outcome.clone())).unzip();
        let expected: Vec<Outcome> =
            host.report.systems.iter().map(|s| s.outcome.clone()).collect();
        assert_eq!(bits(&device.download(&x).unwrap(), &outcomes), bits(&host.x, &expected));
        let histories = |all: &[Outcome]| all.iter().map(|o| o.history.clone()).collect::<Vec<_>>();
        assert_eq!(histories(&outcomes), histories(&expected));
        let refused = device.capture(|_| {
            solver.enqueue(&values, &on_b, Guess::Zero, &mut x).map_err(|error| {
                assert!(matches!(error, SolveError::Unsupported { .. }), "{error}");
                GpuError::NoDevice { ordinal: 0, count: 0 }
            })
        });
        assert!(refused.is_err());
        // The device is usable afterwards.
        assert!(solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap().all_converged());
    }
}

/// The plan of a product as an operator.
fn operator(device: &Device, batch: &Batch<f64>, nrhs: usize) -> Box<dyn DeviceLinOp<Device, f64>> {
    let options = PackedOptions::default().nrhs(nrhs);
    let plan = PackedPlan::new(device.clone(), batch, options).unwrap();
    Box::new(move |_: &Device, x: &DeviceBuffer<f64>, y: &mut DeviceBuffer<f64>| {
        plan.apply(1.0, x, 0.0, y)
    })
}

/// The inverses of the diagonals of a batch, as matrices.
fn inverse_diagonals(batch: &Batch<f64>) -> Batch<f64> {
    let of_item = |item: usize| {
        let matrix = batch.to_csr(item);
        let pattern = matrix.pattern().view();
        let n = pattern.nrows();
        let entry = |row: usize| 1.0 / matrix.values()[pattern.position(row, row).unwrap()];
        let (row_ptr, col_idx) = ((0..=n as i32).collect(), (0..n as i32).collect());
        Csr::try_new(n, n, row_ptr, col_idx, (0..n).map(entry).collect()).unwrap()
    };
    (0..batch.nitems()).map(of_item).collect()
}

#[test]
fn operators_of_the_caller_are_solved_as_matrices_are() {
    let Some(device) = device_or_skip() else { return };
    let families = [(Family::Tri, 30), (Family::Lap2d, 1024), (Family::Tri, 9000)];
    let of = |(family, n): (Family, usize)| {
        let batch = Problem::new(family, n).unwrap().batch(systems(20)).unwrap().batch;
        (0..batch.nitems()).map(|item| batch.to_csr(item)).collect::<Vec<Csr<f64>>>()
    };
    let batch: Batch<f64> = families.into_iter().flat_map(of).collect();
    let rows: Vec<usize> = (0..batch.nitems()).map(|item| batch.pattern(item).nrows()).collect();
    let inverse = inverse_diagonals(&batch);
    for (method, nrhs) in [Method::Cg, Method::BiCgStab].into_iter().flat_map(|m| [(m, 1), (m, 2)])
    {
        let b_host: Vec<f64> = random_vector(batch.row_offset(batch.nitems()) * nrhs, 4);
        let b = device.upload(&b_host).unwrap();
        let none = options(method, Preconditioner::None).nrhs(nrhs);
        let jacobi = options(method, Preconditioner::Jacobi).nrhs(nrhs);
        let kernel = ProductKernel::default();
        let solved = |mut solver: ComposedSolver<Device, f64>| {
            let mut x = device.alloc_zeroed(b.len()).unwrap();
            solver.solve(&b, Guess::Zero, &mut x).unwrap();
            (device.download(&x).unwrap(), solver.outcomes().unwrap())
        };
        let a = || operator(&device, &batch, nrhs);
        let m = || operator(&device, &inverse, nrhs);

        let by_operator =
            solved(ComposedSolver::of_operator(&device, &rows, a(), None, &none).unwrap());
        let given = ComposedSolver::preconditioned(&device, (&batch, &kernel), m(), &none).unwrap();
        let preconditioned = solved(given);
        let both =
            solved(ComposedSolver::of_operator(&device, &rows, a(), Some(m()), &none).unwrap());

        let plain = solved(ComposedSolver::new(&device, &batch, &kernel, &none).unwrap());
        let built_in = solved(ComposedSolver::new(&device, &batch, &kernel, &jacobi).unwrap());
        let (found, expected) = (bits(&by_operator.0, &by_operator.1), bits(&plain.0, &plain.1));
        assert!(found == expected, "{method} {nrhs}");
        assert!(bits(&both.0, &both.1) == bits(&preconditioned.0, &preconditioned.1));
        for (system, (found, expected)) in preconditioned.1.iter().zip(&built_in.1).enumerate() {
            assert_eq!(found.status, Status::Converged, "{method} {nrhs} {system}");
            let difference = found.iterations.abs_diff(expected.iterations);
            assert!(difference <= 2 + expected.iterations / 10, "{method} {system}: {found:?}");
        }
    }
}
