//! What a plan accepts and refuses, and its report.

use kernel_emu::{Emulator, Order as Threads};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, CsrPattern, Pattern, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{
    FactoredPlace, FactoredSolver, FactoredTuning, Guess, LaunchReport,
};
use sparsebatch_solvers::{
    Engine, Method, Order, PrecondPrecision, Preconditioner, SolveOptions, SpmvOptions, Status,
};

use crate::common::{METHODS, options};
use crate::gpu_factored::support::{PRECONDITIONERS, SHAPES, matrix, pattern, tuning};

fn emulator() -> Emulator {
    Emulator::new(Threads::Forward)
}

fn ilu0() -> SolveOptions {
    options(Method::BiCgStab, Preconditioner::ILU0)
}

fn unsupported<T>(result: Result<T, GpuSolveError>) -> String {
    match result.map(drop) {
        Err(error @ GpuSolveError::Unsupported { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_there_is_refused_in_one_line() {
    let pattern = pattern(8, 2, false, 1);
    let make = |options: &SolveOptions| {
        FactoredSolver::<_, f64>::new(&emulator(), pattern.view(), 1, options)
    };
    let refused = [
        ilu0().preconditioner(Preconditioner::None),
        ilu0().preconditioner(Preconditioner::Jacobi),
        ilu0().preconditioner(Preconditioner::Auto),
        ilu0().history(true),
        ilu0().engine(Engine::Composed(SpmvOptions::default())),
    ];
    for options in refused {
        let text = unsupported(make(&options));
        assert!(text.contains("not supported on the GPU yet") && !text.contains('\n'), "{text}");
    }
    // Its factorisation has about 480^3 / 3 products.
    let dense = (0..=480).map(|row| row * 480).collect();
    let dense = CsrPattern::try_new(480, 480, dense, (0..480 * 480).map(|k| k % 480).collect());
    let text =
        unsupported(FactoredSolver::<_, f64>::new(&emulator(), dense.unwrap().view(), 1, &ilu0()));
    assert!(text.contains("33554432 products"), "{text}");
    let matrix = matrix::<f64>(&pattern, 1.2, false, 1);
    let ragged: Batch<f64> = [matrix.clone()].into_iter().collect();
    unsupported(FactoredSolver::for_batch(&emulator(), &ragged, &ilu0()));
    let values = BatchValues::ItemMajor([matrix.values(), matrix.values()].concat());
    let batch = UniformBatch::try_new(pattern.into(), 2, values).unwrap();
    FactoredSolver::for_batch(&emulator(), &Batch::Uniform(batch.clone()), &ilu0()).unwrap();
    let interleaved = Batch::Uniform(batch.to_interleaved());
    unsupported(FactoredSolver::for_batch(&emulator(), &interleaved, &ilu0()));
}

#[test]
fn options_and_lengths_are_checked() {
    let pattern = pattern(8, 2, false, 1);
    let make = |options: &SolveOptions| {
        FactoredSolver::<_, f64>::new(&emulator(), pattern.view(), 2, options)
    };
    let blocks = options(Method::Cg, Preconditioner::BLOCK_JACOBI);
    let bad = [
        ilu0().rel_tol(-1.0),
        ilu0().rel_tol(vec![0.1]),
        ilu0().nrhs(0),
        blocks.clone().block_size(0),
        blocks.block_size(129),
    ];
    for options in bad {
        let error = make(&options).map(|_| ()).unwrap_err();
        let blocks = options.preconditioner.name() == "block-jacobi";
        assert_eq!(matches!(error, GpuSolveError::Symbolic(_)), blocks, "{options:?}: {error}");
    }
    let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![0]).unwrap();
    let wide = FactoredSolver::<_, f64>::new(&emulator(), wide.view(), 1, &ilu0());
    assert!(matches!(wide, Err(GpuSolveError::Argument(ArgumentError::NotSquare { .. }))));
    let tunings = [
        ("threads", FactoredTuning::default().threads(Some(64))),
        ("max_blocks", FactoredTuning::default().max_blocks(Some(0))),
        ("tuning", tuning((32, FactoredPlace::AllGlobal))),
    ];
    for (expected, tuning) in tunings {
        let plan =
            FactoredSolver::<_, f64>::with_tuning(&emulator(), pattern.view(), 2, &ilu0(), &tuning);
        assert!(
            matches!(plan, Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name, .. })) if name == expected),
            "{tuning:?}"
        );
    }

    let executor = emulator();
    let mut plan = FactoredSolver::<_, f64>::new(&executor, pattern.view(), 2, &ilu0()).unwrap();
    let up = |v: &[f64]| executor.upload(v).unwrap();
    let (values, b) = (vec![1.0; 2 * pattern.view().nnz()], vec![1.0; 16]);
    let mut x = up(&[5.0; 16]);
    let short = plan.solve(&up(&values[1..]), &up(&b), Guess::Zero, &mut x);
    assert!(matches!(
        short,
        Err(GpuSolveError::Argument(ArgumentError::Length { what: "values", .. }))
    ));
    let short = plan.solve(&up(&values), &up(&b[1..]), Guess::Zero, &mut x);
    assert!(matches!(short, Err(GpuSolveError::Argument(ArgumentError::Length { what: "b", .. }))));
    let short = plan.solve(&up(&values), &up(&b), Guess::Zero, &mut up(&b[1..]));
    assert!(matches!(short, Err(GpuSolveError::Argument(ArgumentError::Length { what: "x", .. }))));
    assert_eq!(executor.download(&x).unwrap(), [5.0; 16]);

    let small = Emulator::with_memory(64);
    let plan = FactoredSolver::<_, f64>::new(&small, pattern.view(), 2, &ilu0());
    assert!(matches!(plan, Err(GpuSolveError::Gpu(GpuError::OutOfMemory { .. }))));
}

#[test]
fn nothing_and_next_to_nothing_are_solved() {
    let none = CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap();
    let one = CsrPattern::try_new(1, 1, vec![0, 1], vec![0]).unwrap();
    // The entry of a pattern of one row is not stored.
    let missing = CsrPattern::try_new(1, 1, vec![0, 0], vec![]).unwrap();
    let executor = emulator();
    let up = |v: &[f64]| executor.upload(v).unwrap();
    for (method, preconditioner) in
        METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
    {
        let options = options(method, preconditioner);
        for shape in SHAPES {
            let make = |pattern: &CsrPattern, items| {
                let tuning = tuning(shape);
                FactoredSolver::<_, f64>::with_tuning(
                    &executor,
                    pattern.view(),
                    items,
                    &options,
                    &tuning,
                )
                .unwrap()
            };
            let what = format!("{method} {preconditioner} {shape:?}");
            let empty = up(&[]);
            for (pattern, items, expected) in
                [(&none, 3, vec![Status::Converged; 3]), (&none, 0, vec![]), (&one, 0, vec![])]
            {
                let mut plan = make(pattern, items);
                for _ in 0..2 {
                    plan.solve(&empty, &empty, Guess::Zero, &mut up(&[])).unwrap();
                    let outcomes = plan.outcomes().unwrap();
                    let statuses: Vec<Status> = outcomes.iter().map(|o| o.status).collect();
                    assert_eq!(statuses, expected, "{what}");
                    plan.factorise(&empty).unwrap();
                }
            }
            for (pattern, values, expected) in [
                (&one, vec![4.0, 0.0], [Status::Converged, Status::SingularPreconditioner]),
                (&missing, vec![], [Status::SingularPreconditioner; 2]),
            ] {
                let mut plan = make(pattern, 2);
                let mut x = up(&[9.0; 2]);
                plan.solve(&up(&values), &up(&[2.0, 3.0]), Guess::Zero, &mut x).unwrap();
                let outcomes = plan.outcomes().unwrap();
                let statuses: Vec<Status> = outcomes.iter().map(|o| o.status).collect();
                assert_eq!(statuses, expected, "{what}");
                let solution = if values.is_empty() { 0.0 } else { 0.5 };
                assert_eq!(executor.download(&x).unwrap(), [solution, 0.0], "{what}");
            }
        }
    }
}

#[test]
fn a_plan_says_what_it_chose() {
    let chain = |n: usize| {
        let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
        for row in 0..n as i32 {
            col_idx.extend((row - 1).max(0)..(row + 2).min(n as i32));
            row_ptr.push(col_idx.len() as i32);
        }
        CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
    };
    let make = |n, options: &SolveOptions| {
        FactoredSolver::<_, f64>::new(&emulator(), chain(n).view(), 1000, options).unwrap()
    };
    let plan = make(40, &ilu0());
    let chosen = plan.explain();
    let (launch, shape) = (&chosen.launches[0], chosen.launches[0].factored().unwrap());
    assert_eq!((chosen.scheme.name(), shape.factors), ("bicgstab", "ilu0"));
    assert_eq!((launch.nrows, launch.nnz, shape.factor_entries), (40, 118, 118));
    assert_eq!(shape.place, FactoredPlace::AllShared, "{chosen}");
    assert!(launch.systems_per_block > 1 && shape.systems_per_multiprocessor >= 8, "{chosen}");
    // Levels of a tridiagonal matrix: one row after the other, forward and backward.
    assert_eq!((shape.factorisation_levels, shape.application_levels), (79, 79), "{chosen}");
    let threads = launch.threads_per_system;
    assert_eq!(launch.kernel, format!("factored<double, {threads}, 1, 0, 0>"));
    assert_eq!(chosen.name(), format!("bicgstab({threads} threads, shared)"));
    let text = chosen.to_string();
    assert!(
        text.starts_with("bicgstab + ilu0:") && text.contains("ilu0 (natural order)"),
        "{text}"
    );
    assert!(text.contains("values, factors and vectors in shared memory"), "{text}");

    // Odd rows after even ones: two levels forward and two backward, of which the
    // middle ones are one.
    let colours = make(40, &ilu0().order(Order::Multicolor)).explain();
    let shape = colours.launches[0].factored().unwrap();
    assert_eq!((shape.factorisation_levels, shape.application_levels), (3, 3), "{colours}");
    assert!(colours.name().ends_with("threads, shared, multicolor order)"), "{}", colours.name());

    // Everything in device memory; the workspace is only as large as the groups of the launch need.
    let large = make(30_000, &options(Method::Cg, Preconditioner::IC0)).explain();
    let (launch, shape) = (&large.launches[0], large.launches[0].factored().unwrap());
    assert_eq!(shape.place, FactoredPlace::AllGlobal, "{large}");
    assert_eq!((launch.shared_bytes, shape.factor_entries), (0, 59_999));
    let group = 8 * (5 * 30_000 + 1 + 60_000);
    assert!(large.workspace_bytes >= u64::from(launch.blocks) * group, "{large}");
    assert!(large.workspace_bytes < u64::from(launch.blocks) * group + 40_000, "{large}");

    let options =
        options(Method::Auto, Preconditioner::BLOCK_JACOBI).order(Order::MinDegree).block_size(10);
    let blocks = make(45, &options).explain();
    let shape = blocks.launches[0].factored().unwrap();
    let found = (blocks.scheme.name(), shape.order, shape.factor_entries);
    assert_eq!(found, ("cg", Order::Natural, 425));
    assert_eq!((shape.factorisation_levels, shape.application_levels), (1, 1));

    // Several warps invert many blocks sooner than one does.
    let blocks = make(128, &options.block_size(None)).explain();
    assert_eq!(blocks.launches[0].threads_per_system, 128, "{blocks}");
}

#[test]
fn values_leave_shared_memory_for_more_systems_at_once() {
    let options = options(Method::Cg, Preconditioner::IC0);
    let systems = |n, place| {
        let problem = Problem::new(Family::Lap2d, n).unwrap();
        let (a, tuning) = (problem.pattern().view(), FactoredTuning::default().place(place));
        let plan = FactoredSolver::<_, f64>::with_tuning(&emulator(), a, 5000, &options, &tuning);
        let chosen = plan.unwrap().explain();
        let shape = chosen.launches[0].factored().unwrap();
        (shape.place, shape.systems_per_multiprocessor)
    };

    assert_eq!(systems(900, Some(FactoredPlace::AllShared)), (FactoredPlace::AllShared, 2));
    // Four times 57,136 bytes, and what the device and the sums of a block take beside them.
    assert_eq!(systems(900, None), (FactoredPlace::ValuesGlobal, 4));
    assert_eq!(systems(100, None).0, FactoredPlace::AllShared);
}

#[test]
fn factors_in_f32_take_half_of_the_memory() {
    let pattern = pattern(60, 12, false, 3);
    let make = |precond_precision, options: SolveOptions| {
        let options = options.precond_precision(precond_precision);
        let plan = FactoredSolver::<_, f64>::new(&emulator(), pattern.view(), 5000, &options);
        let launch = plan.unwrap().explain().launches[0].clone();
        (launch.factored().unwrap().clone(), launch)
    };
    let blocks = options(Method::BiCgStab, Preconditioner::BLOCK_JACOBI).block_size(30);
    for options in [ilu0(), blocks] {
        let [(working, working_launch), (single, single_launch)] =
            [PrecondPrecision::Working, PrecondPrecision::Single].map(|p| make(p, options.clone()));

        assert_eq!((working.factor_precision, single.factor_precision), ("f64", "f32"));
        assert_eq!(working.factor_bytes, 8 * (working.factor_entries as u64 + 1));
        // Two exponents per row are added.
        let expected = 4 * (single.factor_entries as u64 + 1 + 60);
        assert_eq!(single.factor_bytes, expected.next_multiple_of(8));
        let saved = working.factor_bytes - single.factor_bytes;
        assert_eq!(single.system_bytes, working.system_bytes - saved);
        assert!(single_launch.kernel.ends_with(", float>"), "{single_launch}");
        let text = single.to_string();
        let said = format!("values of factors in f32, {} bytes", single.factor_bytes);
        assert!(text.contains(&said), "{text}");
        let by_system = |launch: &LaunchReport| launch.shared_bytes / launch.systems_per_block;
        assert!(by_system(&single_launch) < by_system(&working_launch), "{working}\n{single}");
        assert!(
            single.systems_per_multiprocessor >= working.systems_per_multiprocessor,
            "{working}\n{single}"
        );
    }
    let f32 = |precond_precision| {
        let options = ilu0().precond_precision(precond_precision);
        let plan = FactoredSolver::<_, f32>::new(&emulator(), pattern.view(), 5000, &options);
        plan.unwrap().explain()
    };
    assert_eq!(f32(PrecondPrecision::Single), f32(PrecondPrecision::Working));
}
