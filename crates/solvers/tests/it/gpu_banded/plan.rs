//! What a plan accepts and refuses, and its report.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::{Batch, CsrPattern, Pattern};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solve_core::symbolic::SymbolicError;
use sparsebatch_solvers::gpu::{
    BandedSolver, BandedTuning, GpuSolveError, GpuSolver, Guess, SolverTuning, solver_for,
};
use sparsebatch_solvers::{Engine, Method, Scheme, SpmvOptions, Status};
use sparsebatch_testing::random_vector;

use crate::common::Systems;
use crate::gpu_banded::support::{Look, band, by_banded, options, pattern_of};
use crate::gpu_lu::support::matrix;

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

fn chain(n: usize) -> CsrPattern {
    band(n, 1, Look::Whole)
}

#[test]
fn what_it_does_not_take_is_refused_in_one_line() {
    let pattern = chain(8);
    let refused = [
        options().method(Method::BiCgStab),
        options().method(Method::Cg),
        options().method(Method::Lu),
        options().method(Method::PivotingLu),
        options().history(true),
        options().engine(Engine::Composed(SpmvOptions::default())),
    ];
    for options in refused {
        let plan = BandedSolver::<_, f64>::new(&emulator(), pattern.view(), 1, &options);
        let Err(error @ GpuSolveError::Unsupported { .. }) = plan.map(drop) else {
            panic!("{options:?}");
        };
        assert!(!error.to_string().contains('\n'));
    }
    for (pattern, expected) in [
        (band(40, 5, Look::Whole), "more than four diagonals"),
        (band(20, 3, Look::Whole), "the sparse LU is quicker"),
        (band(145, 4, Look::Whole), "the sparse LU is quicker"),
        (chain(34_817), "exceed a multiprocessor"),
    ] {
        let plan = BandedSolver::<_, f64>::new(&emulator(), pattern.view(), 1, &options());
        let error = plan.map(drop).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let ragged: Batch<f64> = [matrix::<f64>(&chain(4), 1.5, 2)].into_iter().collect();
    assert!(matches!(
        BandedSolver::for_batch(&emulator(), &ragged, &options()),
        Err(GpuSolveError::Unsupported { .. })
    ));
}

#[test]
fn a_pattern_that_is_no_band_is_an_error() {
    let arrow = pattern_of(40, |row, col| row == col || row == 0 || col == 0);

    let plan = BandedSolver::<_, f64>::new(&emulator(), arrow.view(), 1, &options());

    let Err(GpuSolveError::Symbolic(SymbolicError::NoBand { lower, upper, limit })) =
        plan.map(drop)
    else {
        panic!("an arrow");
    };
    assert_eq!((lower, upper, limit), (39, 39, 8));
}

/// What the banded kernels do not take on a GPU is solved by the sparse LU there.
#[test]
fn wide_bands_and_long_systems_go_to_the_sparse_lu() {
    for pattern in [band(20, 3, Look::Whole), band(40, 8, Look::WithHoles)] {
        let (n, executor) = (pattern.nrows(), emulator());
        let solver = solver_for::<_, f64>(
            &executor,
            Scheme::Banded,
            (pattern.view(), 2),
            &options(),
            &SolverTuning::default(),
        );

        let mut solver = solver.unwrap();

        assert_eq!(solver.explain().scheme, Scheme::Lu);
        let values = [4, 5].map(|seed| matrix::<f64>(&pattern, 1.5, seed).values().to_vec());
        let up = |v: &[f64]| executor.upload(v).unwrap();
        let mut x = up(&vec![0.0; 2 * n]);
        let b = up(&random_vector::<f64>(2 * n, 3));
        solver.solve(&up(&values.concat()), &b, Guess::Zero, &mut x).unwrap();
        let outcomes = solver.outcomes().unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.status == Status::Converged));
    }
}

#[test]
fn options_and_lengths_are_checked() {
    let pattern = chain(20);
    for options in [options().rel_tol(-1.0), options().rel_tol(vec![0.1]), options().nrhs(0)] {
        let plan = BandedSolver::<_, f64>::new(&emulator(), pattern.view(), 2, &options);
        assert!(matches!(plan, Err(GpuSolveError::Argument(_))), "{options:?}");
    }
    let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![0]).unwrap();
    let wide = BandedSolver::<_, f64>::new(&emulator(), wide.view(), 1, &options());
    assert!(matches!(wide, Err(GpuSolveError::Argument(ArgumentError::NotSquare { .. }))));
    for (expected, tuning) in [
        ("threads", BandedTuning::default().threads(Some(48))),
        ("threads", BandedTuning::default().threads(Some(1024))),
        ("cluster", BandedTuning::default().cluster(Some(3))),
        ("max_blocks", BandedTuning::default().max_blocks(Some(0))),
    ] {
        let plan = BandedSolver::<_, f64>::with_tuning(
            &emulator(),
            pattern.view(),
            2,
            &options(),
            &tuning,
        );
        assert!(
            matches!(plan, Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name, .. })) if name == expected)
        );
    }

    let executor = emulator();
    let mut plan = BandedSolver::<_, f64>::new(&executor, pattern.view(), 2, &options()).unwrap();
    let up = |v: &[f64]| executor.upload(v).unwrap();
    let (values, b) = (vec![1.0; 116], vec![1.0; 40]);
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

    let small = Emulator::with_memory(16);
    let plan = BandedSolver::<_, f64>::new(&small, pattern.view(), 2, &options());
    assert!(matches!(plan, Err(GpuSolveError::Gpu(GpuError::OutOfMemory { .. }))));
}

#[test]
fn right_hand_sides_and_shared_values_are_those_of_single_solves() {
    let usual = BandedTuning::default();
    let in_blocks = usual.cluster(Some(4));
    for (n, half, tuning) in [
        (13, 1, usual),
        (100, 2, usual),
        (600, 1, usual),
        (120, 4, usual),
        (2300, 1, in_blocks.max_blocks(Some(4))),
        (1300, 3, in_blocks),
    ] {
        let nrhs = 3;
        let pattern = band(n, half, Look::Whole);
        let matrices: Vec<_> = (0..3).map(|item| matrix::<f64>(&pattern, 1.2, item)).collect();
        let b: Vec<f64> = random_vector(3 * nrhs * n, 7);
        let executor = emulator();
        let values: Vec<f64> = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
        let of_item = |item: usize, rhs: usize| {
            let rows = (item * nrhs + rhs) * n..(item * nrhs + rhs + 1) * n;
            Systems::new(&matrices[item..=item], b[rows].to_vec())
        };
        let alone = |item: usize, rhs: usize| {
            by_banded(&executor, &of_item(item, rhs), &options(), &tuning)
        };
        let options = options().nrhs(nrhs);
        let plan =
            BandedSolver::<_, f64>::with_tuning(&executor, pattern.view(), 3, &options, &tuning);
        let mut plan = plan.unwrap();
        let up = |v: &[f64]| executor.upload(v).unwrap();
        let mut x = up(&vec![0.0; b.len()]);

        plan.solve(&up(&values), &up(&b), Guess::Zero, &mut x).unwrap();

        let found = executor.download(&x).unwrap();
        for (item, rhs) in (0..3).flat_map(|item| (0..nrhs).map(move |rhs| (item, rhs))) {
            let at = (item * nrhs + rhs) * n;
            assert_eq!(found[at..at + n], alone(item, rhs).x, "{item} {rhs}");
        }
        // One matrix for all items; two items take part. What x held is not read.
        plan.set_active(2).unwrap();
        let mut x = up(&vec![9.0; b.len()]);
        plan.solve(&up(matrices[1].values()), &up(&b), Guess::Zero, &mut x).unwrap();
        let found = executor.download(&x).unwrap();
        assert_eq!(found[nrhs * n..(nrhs + 1) * n], alone(1, 0).x);
        assert!(found[2 * nrhs * n..].iter().all(|&x| x == 9.0));
    }
}

/// Solves with kept matrices eliminate again, with these values or near ones.
#[test]
fn solves_again_are_solves() {
    let (n, executor) = (30, emulator());
    let pattern = chain(n);
    let up = |v: &[f64]| executor.upload(v).unwrap();
    let values = |seed| {
        let each =
            [seed, seed + 1].map(|seed| matrix::<f64>(&pattern, 1.5, seed).values().to_vec());
        up(&each.concat())
    };
    let b = up(&random_vector::<f64>(2 * n, 3));
    let mut plan = BandedSolver::<_, f64>::new(&executor, pattern.view(), 2, &options()).unwrap();
    let solver: &mut dyn GpuSolver<_, f64> = &mut plan;
    assert!(solver.keeps_factors() && solver.solves_near());
    let mut x = up(&vec![7.0; 2 * n]);
    let early = solver.solve_again(&values(1), &b, Guess::Zero, &mut x);
    assert!(matches!(
        early,
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "factors", .. }))
    ));
    assert!(matches!(solver.factor(&b), Err(GpuSolveError::Argument(_))));

    solver.factor(&values(1)).unwrap();

    for seed in [1, 4] {
        let (mut again, mut whole) = (up(&vec![7.0; 2 * n]), up(&vec![7.0; 2 * n]));
        solver.solve_again(&values(seed), &b, Guess::Zero, &mut again).unwrap();
        solver.solve(&values(seed), &b, Guess::Zero, &mut whole).unwrap();
        assert_eq!(executor.download(&again).unwrap(), executor.download(&whole).unwrap());
    }
    let transposed = solver.solve_transposed_again(&b, Guess::Zero, &mut x);
    assert!(matches!(transposed, Err(GpuSolveError::Unsupported { .. })));
    solver.forget_factors();
    assert!(solver.solve_again(&values(1), &b, Guess::Zero, &mut x).is_err());
}

#[test]
fn the_report_names_kernel_and_shape() {
    let plan = BandedSolver::<_, f64>::new(&emulator(), chain(54).view(), 1000, &options());

    let report = plan.unwrap().explain();

    assert_eq!(report.scheme, Scheme::Banded);
    assert_eq!(report.name(), "banded(8 threads x 9 rows)");
    let launch = &report.launches[0];
    assert_eq!(launch.kernel, "banded<double, 1, 9, 8>");
    assert_eq!((launch.systems_per_block, launch.threads_per_block), (8, 64));
    assert_eq!((launch.blocks, report.pattern_bytes, report.kept_bytes), (125, 0, 0));
    assert_eq!(launch.banded().unwrap().rows_per_thread, 9);
    assert!(report.to_string().contains("9 rows a thread, 1 diagonals"), "{report}");
}

#[test]
fn the_report_of_a_cluster_names_its_blocks() {
    let pattern = band(7000, 1, Look::WithHoles);
    let plan = BandedSolver::<_, f64>::new(&emulator(), pattern.view(), 3, &options());

    let report = plan.unwrap().explain();

    assert_eq!(report.name(), "banded(512 threads x 17 rows, 4 blocks)");
    let launch = &report.launches[0];
    assert_eq!(launch.kernel, "banded<double, 1, 17, 128, 4>");
    // The emulated GPU holds one cluster at a time.
    assert_eq!((launch.threads_per_system, launch.threads_per_block, launch.blocks), (512, 128, 4));
    // The place of each entry, its number, and five offsets.
    assert_eq!(report.pattern_bytes, 6 * pattern.nnz() as u64 + 20);
    assert!(report.to_string().contains("4 blocks a system"), "{report}");
}

#[test]
fn no_items_and_no_rows_are_solved() {
    let executor = emulator();
    for (n, items) in [(0, 3), (4, 0)] {
        let pattern = chain(n);
        let mut plan =
            BandedSolver::<_, f64>::new(&executor, pattern.view(), items, &options()).unwrap();
        let up = |len: usize| executor.upload(&vec![1.0; len]).unwrap();
        let (values, b, mut x) = (up(pattern.nnz() * items), up(n * items), up(n * items));
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        let outcomes = plan.outcomes().unwrap();
        assert_eq!(outcomes.len(), items);
        assert!(outcomes.iter().all(|o| o.status == Status::Converged && o.iterations == 0));
    }
}
