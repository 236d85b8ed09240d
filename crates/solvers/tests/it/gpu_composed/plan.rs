//! What plans accept and refuse, repeated solves, and reports.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::{Batch, BatchValues, Csr, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{ComposedSolver, Guess, ProductKernel};
use sparsebatch_solvers::{Method, Preconditioner, SolveOptions, Status};
use sparsebatch_spmv_gpu::FlexibleKernel;

use crate::gpu_composed::support::{
    METHODS, compare, kernels, matrix, on_cpu, on_gpu, options, ragged, rhs,
};

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

#[test]
fn uniform_batches_of_every_layout_and_several_right_hand_sides() {
    for method in METHODS {
        let shared = UniformBatch::shared(matrix::<f64>(45, method, 1), 7);
        let own = {
            let matrices: Vec<_> = (0..7).map(|seed| matrix::<f64>(45, method, seed)).collect();
            let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
            let pattern = matrices[0].pattern().clone();
            UniformBatch::try_new(pattern, 7, BatchValues::ItemMajor(values)).unwrap()
        };
        for uniform in [shared, own.to_interleaved(), own] {
            let batch = Batch::Uniform(uniform);
            let b = rhs(&batch, 3);
            let limit = |s: u32| if s % 4 == 1 { 5 } else { 200 };
            let options = options(method, Preconditioner::Jacobi)
                .nrhs(3)
                .rel_tol((0..21).map(|s| 10f64.powi(-2 - s % 9)).collect::<Vec<_>>())
                .abs_tol((0..21).map(|s| if s % 5 == 0 { 1e-3 } else { 0.0 }).collect::<Vec<_>>())
                .max_iters((0..21).map(limit).collect::<Vec<_>>());
            let cpu = on_cpu(&batch, (&b, None), &options);
            for kernel in kernels() {
                let gpu = on_gpu(&emulator(), &batch, (&b, None), &kernel, &options);
                compare(&format!("{method} {kernel:?}"), &batch, &b, &gpu, &cpu, &options);
            }
            let floor = options.rel_tol(0.0).abs_tol(0.0).floor(4.0);
            let gpu = on_gpu(&emulator(), &batch, (&b, None), &ProductKernel::default(), &floor);
            let cpu = on_cpu(&batch, (&b, None), &floor);
            assert_eq!(gpu.statuses(), cpu.statuses(), "{method}");
            assert!(gpu.outcomes.iter().any(|o| o.accepted_by_floor));
        }
    }
}

/// Rounding floors with systems of every size, large ones in parts included.
#[test]
fn floors_accept_what_they_accept_on_the_cpu() {
    for method in METHODS {
        let batch = ragged::<f64>(&[3, 60, 0, 9000, 600], method);
        let b = rhs(&batch, 1);
        let options =
            options(method, Preconditioner::Jacobi).rel_tol(0.0).floor(3.0).max_iters(300);

        let gpu = on_gpu(&emulator(), &batch, (&b, None), &ProductKernel::default(), &options);
        let cpu = on_cpu(&batch, (&b, None), &options);

        assert_eq!(gpu.statuses(), cpu.statuses(), "{method}");
        let accepted = |outcome: &sparsebatch_solvers::Outcome| outcome.accepted_by_floor;
        assert!(gpu.outcomes.iter().filter(|&o| accepted(o)).count() >= 3, "{:?}", gpu.outcomes);
    }
}

#[test]
fn empty_batches_and_systems() {
    for method in METHODS {
        let options = options(method, Preconditioner::Jacobi);
        let none = ragged::<f64>(&[], method);
        let shared = Batch::Uniform(UniformBatch::shared(matrix::<f64>(4, method, 1), 0));
        for batch in [none, shared] {
            for kernel in kernels() {
                let gpu = on_gpu(&emulator(), &batch, (&[], None), &kernel, &options);
                assert!(gpu.outcomes.is_empty() && gpu.x.is_empty());
            }
        }
        let empty = ragged::<f64>(&[0, 0], method);
        let gpu = on_gpu(&emulator(), &empty, (&[], None), &ProductKernel::default(), &options);
        assert_eq!(gpu.statuses(), [Status::Converged; 2]);
        assert!(gpu.outcomes.iter().all(|o| o.iterations == 0 && o.residual_norm == 0.0));
    }
}

#[test]
fn repeated_solves_with_other_values_and_guesses() {
    for method in METHODS {
        let options = options(method, Preconditioner::Jacobi);
        let executor = emulator();
        let flexible = [FlexibleKernel::CsrI, FlexibleKernel::SellP, FlexibleKernel::Ell];
        let flexible = flexible.map(ProductKernel::flexible).map(|kernel| (kernel, 300));
        let packed = (ProductKernel::default(), 9000);
        for (kernel, largest) in std::iter::once(packed).chain(flexible) {
            let sizes = [50, 9, largest];
            let batch = ragged::<f64>(&sizes, method);
            let other: Batch<f64> =
                (7..).zip(sizes).map(|(seed, n)| matrix(n, method, seed)).collect();
            let b = rhs(&batch, 1);
            let mut plan = ComposedSolver::new(&executor, &batch, &kernel, &options).unwrap();
            let b_there = executor.upload(&b).unwrap();
            let mut x = executor.alloc_zeroed(b.len()).unwrap();
            for batch in [&batch, &other, &batch] {
                plan.update_values(batch).unwrap();
                plan.solve(&b_there, Guess::Zero, &mut x).unwrap();

                let fresh = on_gpu(&executor, batch, (&b, None), &kernel, &options);
                let what = format!("{method} {kernel:?}");
                assert_eq!(executor.download(&x).unwrap(), fresh.x, "{what}");
                assert_eq!(plan.outcomes().unwrap(), fresh.outcomes, "{what}");
            }
            // Started from the solution, no iteration is left.
            plan.solve(&b_there, Guess::InX, &mut x).unwrap();
            assert!(plan.outcomes().unwrap().iter().all(|o| o.iterations == 0));
        }
    }
}

/// Interleaved values are converted item by item: each item gets its own values.
#[test]
fn interleaved_values_replace_others_in_every_product() {
    for method in METHODS {
        let uniform = |first: u64| {
            let matrices: Vec<_> =
                (first..first + 4).map(|k| matrix::<f64>(30, method, k)).collect();
            let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
            let pattern = matrices[0].pattern().clone();
            UniformBatch::try_new(pattern, 4, BatchValues::ItemMajor(values)).unwrap()
        };
        let (batch, other) = (uniform(1), uniform(9));
        let (batch, other) = (batch.to_interleaved(), other.to_interleaved());
        let (batch, other) = (Batch::Uniform(batch), Batch::Uniform(other));
        let (executor, b) = (emulator(), rhs(&batch, 1));
        let b_there = executor.upload(&b).unwrap();
        let mut x = executor.alloc_zeroed(b.len()).unwrap();
        for floor in [None, Some(4.0)] {
            let options = options(method, Preconditioner::Jacobi).floor(floor);
            for kernel in kernels() {
                let mut plan = ComposedSolver::new(&executor, &batch, &kernel, &options).unwrap();

                plan.update_values(&other).unwrap();
                plan.solve(&b_there, Guess::Zero, &mut x).unwrap();

                let fresh = on_gpu(&executor, &other, (&b, None), &kernel, &options);
                let what = format!("{method} {kernel:?}");
                assert_eq!(executor.download(&x).unwrap(), fresh.x, "{what}");
                assert_eq!(plan.outcomes().unwrap(), fresh.outcomes, "{what}");
                let cpu = on_cpu(&other, (&b, None), &options);
                compare(&what, &other, &b, &fresh, &cpu, &options);
            }
        }
    }
}

/// Values of all items in CSR order; one set where items share them.
fn flat(batch: &Batch<f64>) -> Vec<f64> {
    let mut copy = Vec::new();
    let shared = matches!(batch, Batch::Uniform(uniform) if uniform.is_shared());
    let items = if shared { 1 } else { batch.nitems() };
    (0..items).flat_map(|item| batch.values_in(item, &mut copy).to_vec()).collect()
}

/// A copy of a batch in which a diagonal entry of item 1 is 0.
fn with_a_zero(batch: &Batch<f64>) -> Batch<f64> {
    let of_item = |item: usize| {
        let pattern = batch.pattern(item);
        let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
        let mut values = batch.values_in(item, &mut Vec::new()).to_vec();
        if item == 1 {
            values[pattern.position(2, 2).unwrap()] = 0.0;
        }
        Csr::try_new(pattern.nrows(), pattern.ncols(), row_ptr, col_idx, values).unwrap()
    };
    (0..batch.nitems()).map(of_item).collect()
}

fn device_values_are_as_good(
    kernel: &ProductKernel,
    before: &Batch<f64>,
    after: &Batch<f64>,
    options: &SolveOptions,
) {
    let executor = emulator();
    let b = rhs(before, 2);
    let there = executor.upload(&b).unwrap();
    let mut plan = ComposedSolver::new(&executor, before, kernel, options).unwrap();
    let mut x = executor.alloc_zeroed(b.len()).unwrap();
    let values = executor.upload(&flat(after)).unwrap();
    let bytes = executor.bytes_in_use();
    plan.update_from(&values).unwrap();
    plan.solve(&there, Guess::Zero, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), bytes);

    let fresh = on_gpu(&executor, after, (&b, None), kernel, options);
    assert_eq!(executor.download(&x).unwrap(), fresh.x, "{kernel:?} {options:?}");
    assert_eq!(plan.outcomes().unwrap(), fresh.outcomes, "{kernel:?} {options:?}");
}

/// Values on the device give the same bits as values from the host, in Jacobi and rounding floors,
/// too.
#[test]
fn values_on_the_device_are_as_good_as_values_on_the_host() {
    for method in METHODS {
        let uniform = |seed: u64| -> UniformBatch<_, f64> {
            let matrices: Vec<_> = (seed..seed + 6).map(|s| matrix(45, method, s)).collect();
            let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
            let pattern = matrices[0].pattern().clone();
            UniformBatch::try_new(pattern, 6, BatchValues::ItemMajor(values)).unwrap()
        };
        let shared =
            |seed| Batch::Uniform(UniformBatch::shared(matrix::<f64>(33, method, seed), 5));
        let mixed = |seed: u64| -> Batch<f64> {
            (seed..).zip([50, 9, 0, 9000, 9]).map(|(s, n)| matrix(n, method, s)).collect()
        };
        for (before, after) in [
            (Batch::Uniform(uniform(1)), Batch::Uniform(uniform(20))),
            (shared(1), shared(2)),
            (mixed(1), mixed(30)),
            (mixed(1), with_a_zero(&mixed(30))),
        ] {
            for (preconditioner, floor) in [
                (Preconditioner::None, None),
                (Preconditioner::Jacobi, None),
                (Preconditioner::Auto, Some(2.0)),
            ] {
                let options = options(method, preconditioner).nrhs(2).floor(floor);
                let kernel = ProductKernel::default();
                device_values_are_as_good(&kernel, &before, &after, &options);
            }
        }
    }
}

#[test]
fn values_on_the_device_serve_flexible_kernels_too() {
    let shared = |seed| {
        let matrix = matrix::<f64>(33, Method::BiCgStab, seed);
        Batch::Uniform(UniformBatch::shared(matrix, 5))
    };
    let mixed = |seed: u64| -> Batch<f64> {
        (seed..).zip([50, 9, 0, 9]).map(|(s, n)| matrix(n, Method::BiCgStab, s)).collect()
    };
    let options = options(Method::BiCgStab, Preconditioner::Jacobi).nrhs(2).floor(2.0);
    for kernel in [FlexibleKernel::CsrI, FlexibleKernel::Ell, FlexibleKernel::SellP] {
        for (before, after) in [(shared(1), shared(2)), (mixed(1), with_a_zero(&mixed(30)))] {
            let kernel = ProductKernel::flexible(kernel);
            device_values_are_as_good(&kernel, &before, &after, &options);
        }
    }
}

#[test]
fn values_on_the_device_that_do_not_fit_are_refused() {
    let executor = emulator();
    let batch = ragged::<f64>(&[5, 6], Method::Cg);
    let cg = options(Method::Cg, Preconditioner::Jacobi);
    let few = executor.upload(&[1.0; 3]).unwrap();
    let mut plan = ComposedSolver::new(&executor, &batch, &ProductKernel::default(), &cg).unwrap();
    let refused = plan.update_from(&few).unwrap_err();
    assert!(matches!(refused, GpuSolveError::Gpu(GpuError::Length { found: 3, .. })), "{refused}");
    let kernel = ProductKernel::flexible(FlexibleKernel::CsrI);
    let mut plan = ComposedSolver::new(&executor, &batch, &kernel, &cg).unwrap();
    let refused = plan.update_from(&few).unwrap_err();
    assert!(matches!(refused, GpuSolveError::Gpu(GpuError::Length { found: 3, .. })), "{refused}");
}

/// The batch with one entry of item 1 moved to another column.
fn with_moved_entry(batch: &Batch<f64>) -> Batch<f64> {
    let Batch::Ragged(ragged) = batch else { panic!("made ragged") };
    let mut items: Vec<Csr<f64>> =
        (0..ragged.nitems()).map(|item| ragged.item(item).to_csr()).collect();
    let (a, mut columns) = (&items[1], items[1].col_idx().to_vec());
    let moved = (0..a.nrows()).find_map(|row| {
        let entries = a.view().pattern().row(row);
        let last = entries.clone().last()?;
        let first_free = if entries.len() > 1 { columns[last - 1] + 1 } else { 0 };
        let free = (first_free..a.ncols() as i32).find(|&col| col != columns[last])?;
        Some((last, free))
    });
    let (place, column) = moved.expect("a row with room for its last entry elsewhere");
    columns[place] = column;
    let (row_ptr, values) = (a.row_ptr().to_vec(), a.values().to_vec());
    items[1] = Csr::try_new(a.nrows(), a.ncols(), row_ptr, columns, values).unwrap();
    items.into_iter().collect()
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    let executor = emulator();
    let batch = ragged::<f64>(&[5, 6], Method::Cg);
    let cg = options(Method::Cg, Preconditioner::Jacobi);
    let kernel = ProductKernel::default();
    let refused = |options: SolveOptions| {
        let error =
            ComposedSolver::new(&executor, &batch, &kernel, &options).map(drop).unwrap_err();
        assert!(!error.to_string().contains('\n'));
        error
    };
    for preconditioner in [Preconditioner::BLOCK_JACOBI, Preconditioner::ILU0, Preconditioner::IC0]
    {
        let error = refused(cg.clone().preconditioner(preconditioner));
        assert!(matches!(error, GpuSolveError::Unsupported { .. }), "{error}");
    }
    let lu = cg.clone().method(Method::Lu);
    assert!(matches!(refused(lu), GpuSolveError::Unsupported { .. }));
    assert!(matches!(
        refused(cg.clone().nrhs(0)),
        GpuSolveError::Argument(ArgumentError::OutOfRange { .. })
    ));
    let few = cg.clone().rel_tol(vec![0.1]);
    assert!(matches!(refused(few), GpuSolveError::Argument(ArgumentError::Length { .. })));

    let mut plan = ComposedSolver::new(&executor, &batch, &kernel, &cg).unwrap();
    let short = executor.upload(&[1.0; 10]).unwrap();
    let b = executor.upload(&[1.0; 11]).unwrap();
    let mut x = executor.upload(&[7.0; 11]).unwrap();
    let error = plan.solve(&short, Guess::Zero, &mut x).unwrap_err();
    assert_eq!(error.to_string(), "b has 10 entries, expected 11");
    let other = ragged::<f64>(&[6, 5], Method::Cg);
    assert!(matches!(plan.update_values(&other), Err(GpuSolveError::Gpu(_))));
    // As many rows and entries, one entry in another column.
    for kernel in [ProductKernel::default(), ProductKernel::flexible(FlexibleKernel::CsrVector)] {
        let mut plan = ComposedSolver::new(&executor, &batch, &kernel, &cg).unwrap();
        let error = plan.update_values(&with_moved_entry(&batch)).unwrap_err();
        assert!(matches!(error, GpuSolveError::Gpu(GpuError::OtherPattern { item: 1 })), "{error}");
        plan.update_values(&batch).unwrap();
    }
    let shorter = ragged::<f64>(&[5], Method::Cg);
    assert!(matches!(
        plan.update_values(&shorter),
        Err(GpuSolveError::Argument(ArgumentError::Length { .. }))
    ));
    assert_eq!(executor.download(&x).unwrap(), [7.0; 11]);
    plan.solve(&b, Guess::Zero, &mut x).unwrap();
    assert!(plan.outcomes().unwrap().iter().all(|o| o.status == Status::Converged));
}

#[test]
fn a_batch_that_does_not_fit_is_refused_and_leaves_nothing_behind() {
    let batch = ragged::<f64>(&[500, 500], Method::Cg);
    let options = options(Method::Cg, Preconditioner::None);
    let small = Emulator::with_memory(40 << 10);

    for kernel in kernels() {
        let refused = ComposedSolver::<_, f64>::new(&small, &batch, &kernel, &options).map(drop);
        assert!(
            matches!(refused, Err(GpuSolveError::Gpu(GpuError::OutOfMemory { .. }))),
            "{kernel:?}: {refused:?}"
        );
        assert_eq!(small.bytes_in_use(), 0);
    }
}

#[test]
fn plans_tell_what_they_are_and_when_they_have_paid() {
    let executor = emulator();
    let batch = ragged::<f64>(&[4, 90, 600, 9000], Method::BiCgStab);
    let b = rhs(&batch, 1);
    for (options, launches) in [
        (options(Method::Cg, Preconditioner::Jacobi), (1, 4)),
        (options(Method::BiCgStab, Preconditioner::None), (2, 7)),
    ] {
        let options = options.max_iters(6);
        let kernel = ProductKernel::flexible(FlexibleKernel::CsrI);
        let before = executor.bytes_in_use();
        let mut plan = ComposedSolver::new(&executor, &batch, &kernel, &options).unwrap();
        let held = executor.bytes_in_use() - before;
        let mut x = executor.alloc(b.len()).unwrap();
        plan.solve(&executor.upload(&b).unwrap(), Guess::Zero, &mut x).unwrap();
        let explain = plan.explain();

        assert_eq!((explain.format, explain.product), ("csr", "batch-csr-i"));
        assert_eq!((explain.systems, explain.launches), ([1, 1, 1, 1], launches));
        let told = explain.product_bytes + explain.workspace_bytes;
        assert!(told <= held && held - told < 1000, "{explain}: {held}");
        let most = plan.outcomes().unwrap().iter().map(|o| o.iterations).max().unwrap();
        let amortisation = plan.amortisation(&batch).unwrap();
        let products = launches.0 as u64 * u64::from(most);
        // Products of verdicts: on entry, after 4 iterations, and after the last 2.
        assert_eq!((most, amortisation.products), (6, products + 3));
        assert_eq!(plan.product_cost().unwrap().products, amortisation.products);
        assert!(amortisation.plan.as_nanos() > 0 && amortisation.solve.as_nanos() > 0);
        assert!(
            amortisation.product.as_nanos() > 0 && amortisation.baseline_product.as_nanos() > 0
        );
        assert!((0.0..=1.0).contains(&amortisation.share_of_plan()));
    }
}
