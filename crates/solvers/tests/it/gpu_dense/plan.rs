//! What a plan accepts and refuses, and its report.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::{Batch, CsrPattern, Pattern};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::{
    DenseForm, DenseSolver, DenseTuning, GpuSolveError, GpuSolver, Guess, MOST_DENSE_ROWS,
};
use sparsebatch_solvers::{Engine, Method, Preconditioner, Scheme, SpmvOptions, Status};
use sparsebatch_testing::random_vector;

use crate::common::Systems;
use crate::gpu_dense::support::{by_dense, options, pattern_with_shift, shifted};

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

fn full(n: usize) -> CsrPattern {
    let row_ptr = (0..=n).map(|row| (row * n) as i32).collect();
    CsrPattern::try_new(n, n, row_ptr, (0..n * n).map(|k| (k % n) as i32).collect()).unwrap()
}

#[test]
fn what_it_does_not_take_is_refused_in_one_line() {
    let pattern = full(8);
    let refused = [
        options().method(Method::BiCgStab),
        options().method(Method::Cg),
        options().method(Method::Lu),
        options().history(true),
        options().engine(Engine::Composed(SpmvOptions::default())),
    ];
    for options in refused {
        let plan = DenseSolver::<_, f64>::new(&emulator(), pattern.view(), 1, &options);
        let Err(error @ GpuSolveError::Unsupported { .. }) = plan.map(drop) else {
            panic!("{options:?}");
        };
        assert!(!error.to_string().contains('\n'));
    }
    DenseSolver::<_, f64>::new(
        &emulator(),
        pattern.view(),
        1,
        &options().preconditioner(Preconditioner::ILU0),
    )
    .unwrap();
    for (n, fits) in [(0, true), (1, true), (MOST_DENSE_ROWS, true), (MOST_DENSE_ROWS + 1, false)] {
        let plan = DenseSolver::<_, f64>::new(&emulator(), full(n).view(), 1, &options());
        match plan.map(drop) {
            Ok(()) => assert!(fits),
            Err(error) => {
                assert!(!fits && error.to_string().contains("more than 64 rows"), "{error}");
            }
        }
    }
    let ragged: Batch<f64> = [shifted::<f64>(&full(4), 1, 2)].into_iter().collect();
    assert!(matches!(
        DenseSolver::for_batch(&emulator(), &ragged, &options()),
        Err(GpuSolveError::Unsupported { .. })
    ));
}

#[test]
fn options_and_lengths_are_checked() {
    let pattern = full(20);
    for options in [options().rel_tol(-1.0), options().rel_tol(vec![0.1]), options().nrhs(0)] {
        let plan = DenseSolver::<_, f64>::new(&emulator(), pattern.view(), 2, &options);
        assert!(matches!(plan, Err(GpuSolveError::Argument(_))), "{options:?}");
    }
    let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![0]).unwrap();
    let wide = DenseSolver::<_, f64>::new(&emulator(), wide.view(), 1, &options());
    assert!(matches!(wide, Err(GpuSolveError::Argument(ArgumentError::NotSquare { .. }))));
    for (expected, tuning) in [
        ("threads", DenseTuning::default().threads(Some(48))),
        ("max_blocks", DenseTuning::default().max_blocks(Some(0))),
        ("threads", DenseTuning::default().form(Some(DenseForm::Tiles)).threads(Some(16))),
    ] {
        let plan =
            DenseSolver::<_, f64>::with_tuning(&emulator(), pattern.view(), 2, &options(), &tuning);
        assert!(
            matches!(plan, Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name, .. })) if name == expected)
        );
    }

    let executor = emulator();
    let mut plan = DenseSolver::<_, f64>::new(&executor, pattern.view(), 2, &options()).unwrap();
    let up = |v: &[f64]| executor.upload(v).unwrap();
    let (values, b) = (vec![1.0; 800], vec![1.0; 40]);
    let mut x = up(&[5.0; 40]);
    let length = |result: Result<(), GpuSolveError>| match result {
        Err(GpuSolveError::Argument(ArgumentError::Length { what, .. })) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(length(plan.solve(&up(&values[1..]), &up(&b), Guess::Zero, &mut x)), "values");
    assert_eq!(length(plan.solve(&up(&values), &up(&b[1..]), Guess::Zero, &mut x)), "b");
    assert_eq!(length(plan.solve(&up(&values), &up(&b), Guess::Zero, &mut up(&b[1..]))), "x");
    assert_eq!(executor.download(&x).unwrap(), [5.0; 40]);
    assert!(plan.set_active(3).is_err());

    let small = Emulator::with_memory(64);
    let plan = DenseSolver::<_, f64>::new(&small, pattern.view(), 2, &options());
    assert!(matches!(plan, Err(GpuSolveError::Gpu(GpuError::OutOfMemory { .. }))));
}

#[test]
fn right_hand_sides_and_shared_values_are_those_of_single_solves() {
    for n in [13, 30, 50] {
        check_right_hand_sides(n);
    }
}

fn check_right_hand_sides(n: usize) {
    let nrhs = 3;
    let pattern = pattern_with_shift(n, 5, 4, 2);
    let matrices: Vec<_> = (0..3).map(|item| shifted::<f64>(&pattern, 4, item)).collect();
    let b: Vec<f64> = random_vector(3 * nrhs * n, 7);
    let executor = emulator();
    let values: Vec<f64> = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
    let of_item = |item: usize, rhs: usize| {
        let rows = (item * nrhs + rhs) * n..(item * nrhs + rhs + 1) * n;
        Systems::new(&matrices[item..=item], b[rows].to_vec())
    };
    let alone = |item: usize, rhs: usize| {
        by_dense(&executor, &of_item(item, rhs), &options(), &DenseTuning::default())
    };
    let mut plan =
        DenseSolver::<_, f64>::new(&executor, pattern.view(), 3, &options().nrhs(nrhs)).unwrap();
    let up = |v: &[f64]| executor.upload(v).unwrap();
    let mut x = up(&vec![0.0; b.len()]);

    plan.solve(&up(&values), &up(&b), Guess::Zero, &mut x).unwrap();

    let found = executor.download(&x).unwrap();
    for (item, rhs) in (0..3).flat_map(|item| (0..nrhs).map(move |rhs| (item, rhs))) {
        let at = (item * nrhs + rhs) * n;
        assert_eq!(found[at..at + n], alone(item, rhs).x, "{item} {rhs}");
    }
    // One matrix for all items; two items take part.
    plan.set_active(2).unwrap();
    let mut x = up(&vec![9.0; b.len()]);
    plan.solve(&up(matrices[1].values()), &up(&b), Guess::Zero, &mut x).unwrap();
    let found = executor.download(&x).unwrap();
    assert_eq!(found[nrhs * n..(nrhs + 1) * n], alone(1, 0).x);
    assert!(found[2 * nrhs * n..].iter().all(|&x| x == 9.0));
}

#[test]
fn the_report_names_kernel_and_shape() {
    let plan = DenseSolver::<_, f64>::new(&emulator(), full(54).view(), 1000, &options()).unwrap();

    let report = plan.explain();

    assert_eq!(report.scheme, Scheme::PivotingLu);
    assert_eq!(report.name(), "pivoting-lu(32 threads, dense tiles)");
    let launch = &report.launches[0];
    assert_eq!(launch.kernel, "dense_tiles<56>");
    assert_eq!((launch.systems_per_block, launch.threads_per_block), (2, 64));
    let shape = launch.dense().unwrap();
    assert_eq!((shape.columns, shape.rows_per_thread, shape.form), (56, 2, DenseForm::Tiles));
    assert!(report.to_string().contains("56 columns in tiles of tensor cores"), "{report}");
    let tuning = DenseTuning::default().form(Some(DenseForm::Rows));
    let pattern = full(54);
    let plan =
        DenseSolver::<_, f64>::with_tuning(&emulator(), pattern.view(), 9, &options(), &tuning);
    let report = plan.unwrap().explain();
    assert_eq!(report.name(), "pivoting-lu(32 threads x 2 rows, dense)");
    assert_eq!(report.launches[0].kernel, "dense<double, 56, 32>");
    assert!(report.to_string().contains("56 columns in registers"), "{report}");
}

#[test]
fn no_items_and_no_rows_are_solved() {
    let executor = emulator();
    for (n, items) in [(0, 3), (4, 0)] {
        let mut plan =
            DenseSolver::<_, f64>::new(&executor, full(n).view(), items, &options()).unwrap();
        let up = |len: usize| executor.upload(&vec![1.0; len]).unwrap();
        let (values, b, mut x) = (up(n * n * items), up(n * items), up(n * items));
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        let outcomes = plan.outcomes().unwrap();
        assert_eq!(outcomes.len(), items);
        assert!(outcomes.iter().all(|o| o.status == Status::Converged && o.iterations == 0));
    }
}

/// Every kernel can be asked for.
#[test]
fn threads_are_those_asked_for() {
    // Tiles hold between 17 and 56 rows, in f64.
    let tuning = DenseTuning::default().form(Some(DenseForm::Tiles));
    for n in [16, 17, 56, 57] {
        let pattern = full(n);
        let tiles = |executor: &Emulator| {
            DenseSolver::<_, f64>::with_tuning(executor, pattern.view(), 1, &options(), &tuning)
        };
        let found = tiles(&emulator());
        match found {
            Ok(plan) => {
                let columns = plan.explain().launches[0].dense().unwrap().columns as usize;
                assert_eq!((17..=56).contains(&n).then_some(n.next_multiple_of(8)), Some(columns));
            }
            Err(error) => {
                assert!(!(17..=56).contains(&n), "{n}: {error}");
                assert!(error.to_string().contains("form"), "{error}");
            }
        }
        let single =
            DenseSolver::<_, f32>::with_tuning(&emulator(), pattern.view(), 1, &options(), &tuning);
        assert!(single.is_err());
    }
    for (n, threads, in_f64) in [(6, 8, true), (20, 8, true), (30, 16, true), (64, 32, false)] {
        let tuning = DenseTuning::default().threads(Some(threads));
        let pattern = full(n);
        let single =
            DenseSolver::<_, f32>::with_tuning(&emulator(), pattern.view(), 1, &options(), &tuning);
        assert_eq!(single.unwrap().explain().launches[0].threads_per_system, threads);
        let double =
            DenseSolver::<_, f64>::with_tuning(&emulator(), pattern.view(), 1, &options(), &tuning);
        assert_eq!(double.is_ok(), in_f64, "{n} {threads}");
    }
}
