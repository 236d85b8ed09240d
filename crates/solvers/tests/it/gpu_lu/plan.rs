//! What a plan accepts and refuses, and its report.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::{Batch, BatchValues, Csr, CsrPattern, Pattern, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{GpuLu, Guess, LuOrder, LuTuning};
use sparsebatch_solvers::{
    Engine, Method, Preconditioner, SolveOptions, SpmvOptions, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::common::{Systems, on_cpu};
use crate::gpu_lu::support::{by_lu, matrix, options, pattern};

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

fn unsupported<T>(result: Result<T, GpuSolveError>) -> String {
    match result.map(drop) {
        Err(error @ GpuSolveError::Unsupported { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_there_yet_is_refused_in_one_line() {
    let pattern = pattern(8, 2, 1);
    let make =
        |options: &SolveOptions| GpuLu::<_, f64>::new(&emulator(), pattern.view(), 1, options);
    let lu = options();
    let refused = [
        lu.clone().method(Method::BiCgStab),
        lu.clone().method(Method::Cg),
        lu.clone().history(true),
        lu.clone().engine(Engine::Composed(SpmvOptions::default())),
    ];

    for options in refused {
        let text = unsupported(make(&options));
        assert!(text.contains("not supported on the GPU yet") && !text.contains('\n'), "{text}");
    }
    let taken = lu.clone().preconditioner(Preconditioner::ILU0);
    make(&taken).unwrap();
    let matrix = matrix::<f64>(&pattern, 1.2, 1);
    let ragged: Batch<f64> = [matrix.clone()].into_iter().collect();
    unsupported(GpuLu::for_batch(&emulator(), &ragged, &lu));
    let values = BatchValues::ItemMajor(matrix.values().to_vec());
    let batch = UniformBatch::try_new(pattern.clone().into(), 1, values).unwrap();
    GpuLu::for_batch(&emulator(), &Batch::Uniform(batch), &lu).unwrap();
    let values = BatchValues::ItemMajor([matrix.values(), matrix.values()].concat());
    let batch = UniformBatch::try_new(pattern.into(), 2, values).unwrap();
    unsupported(GpuLu::for_batch(&emulator(), &Batch::Uniform(batch.to_interleaved()), &lu));
}

/// A dense pattern: it is also that of its factors.
fn dense(n: usize) -> CsrPattern {
    let row_ptr = (0..=n).map(|row| (row * n) as i32).collect();
    CsrPattern::try_new(n, n, row_ptr, (0..n * n).map(|k| (k % n) as i32).collect()).unwrap()
}

/// Number of entries of L + U.
fn entries(plan: &GpuLu<Emulator, f64>) -> usize {
    plan.explain().launches[0].lu().unwrap().factor_entries
}

#[test]
fn systems_beyond_shared_memory_or_16_bits_are_refused() {
    // 232,448 bytes less 1,168 hold 28,910 values in f64; a dense system needs n * n + 2 * n + n *
    // ceil(n / 24) + 2.
    let make = |n| GpuLu::<_, f64>::new(&emulator(), dense(n).view(), 1, &options());
    assert_eq!(entries(&make(165).unwrap()), 165 * 165);
    let text = unsupported(make(166));
    assert!(text.contains("shared memory of a block") && text.contains("65534"), "{text}");
    // Fill counts: an arrow matrix eliminated from its head becomes dense.
    let (mut row_ptr, mut col_idx) = (vec![0], (0..400).collect::<Vec<i32>>());
    row_ptr.push(400);
    for row in 1..400 {
        col_idx.extend([0, row]);
        row_ptr.push(col_idx.len() as i32);
    }
    let arrow = CsrPattern::try_new(400, 400, row_ptr, col_idx).unwrap();
    let make = |order| {
        let tuning = LuTuning::default().order(Some(order));
        GpuLu::<_, f64>::with_tuning(&emulator(), arrow.view(), 1, &options(), &tuning)
    };
    unsupported(make(LuOrder::Natural));
    assert_eq!(entries(&make(LuOrder::MinDegree).unwrap()), 1198);
    // More rows than 16-bit positions.
    let diagonal =
        CsrPattern::try_new(40_000, 40_000, (0..=40_000).collect(), (0..40_000).collect());
    let plan = GpuLu::<_, f32>::new(&emulator(), diagonal.unwrap().view(), 1, &options());
    unsupported(plan);
}

#[test]
fn options_and_lengths_are_checked() {
    let pattern = pattern(8, 2, 1);
    let lu = options();
    let make =
        |options: &SolveOptions| GpuLu::<_, f64>::new(&emulator(), pattern.view(), 2, options);
    let bad = [lu.clone().rel_tol(-1.0), lu.clone().rel_tol(vec![0.1]), lu.clone().nrhs(0)];
    for options in bad {
        assert!(make(&options).is_err(), "{options:?}");
    }
    let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![0]).unwrap();
    let wide = GpuLu::<_, f64>::new(&emulator(), wide.view(), 1, &lu);
    assert!(matches!(wide, Err(GpuSolveError::Argument(ArgumentError::NotSquare { .. }))));
    let tunings = [
        ("threads", LuTuning::default().threads(Some(48))),
        ("threads", LuTuning::default().threads(Some(1024))),
        ("systems", LuTuning::default().systems(Some(33))),
        ("resident", LuTuning::default().resident(Some(7))),
        ("max_blocks", LuTuning::default().max_blocks(Some(0))),
    ];
    for (expected, tuning) in tunings {
        let plan = GpuLu::<_, f64>::with_tuning(&emulator(), pattern.view(), 2, &lu, &tuning);
        assert!(
            matches!(plan, Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name, .. })) if name == expected),
            "{tuning:?}"
        );
    }
    let tuning = LuTuning::default().systems(Some(2));
    let plan = GpuLu::<_, f64>::with_tuning(&emulator(), dense(150).view(), 2, &lu, &tuning);
    assert!(matches!(
        plan,
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "tuning", .. }))
    ));

    let executor = emulator();
    let mut plan = GpuLu::<_, f64>::new(&executor, pattern.view(), 2, &lu).unwrap();
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
    let plan = GpuLu::<_, f64>::new(&small, pattern.view(), 2, &lu);
    assert!(matches!(plan, Err(GpuSolveError::Gpu(GpuError::OutOfMemory { .. }))));
}

#[test]
fn nothing_and_next_to_nothing_are_solved() {
    let none = CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap();
    let executor = emulator();
    let empty = executor.upload(&[] as &[f64]).unwrap();
    let mut x = executor.upload(&[] as &[f64]).unwrap();
    for (pattern, items, expected) in
        [(&none, 3, vec![Status::Converged; 3]), (&none, 0, vec![]), (&dense(2), 0, vec![])]
    {
        let mut plan = GpuLu::<_, f64>::new(&executor, pattern.view(), items, &options()).unwrap();
        plan.solve(&empty, &empty, Guess::Zero, &mut x).unwrap();
        let statuses: Vec<Status> = plan.outcomes().unwrap().iter().map(|o| o.status).collect();
        assert_eq!(statuses, expected);
    }
    // One row, with and without a stored entry.
    let missing = CsrPattern::try_new(1, 1, vec![0, 0], vec![]).unwrap();
    for (pattern, values, expected) in
        [(dense(1), vec![-4.0, 0.0], Status::ZeroPivot), (missing, vec![], Status::ZeroPivot)]
    {
        let mut plan = GpuLu::<_, f64>::new(&executor, pattern.view(), 2, &options()).unwrap();
        let values = executor.upload(&values).unwrap();
        let b = executor.upload(&[2.0, 3.0]).unwrap();
        let mut x = executor.upload(&[9.0; 2]).unwrap();
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        let outcomes = plan.outcomes().unwrap();
        assert_eq!(outcomes[1].status, expected);
        let x = executor.download(&x).unwrap();
        if pattern.view().nnz() == 1 {
            assert_eq!((outcomes[0].status, x), (Status::Converged, vec![-0.5, 0.0]));
        } else {
            assert_eq!((outcomes[0].status, x), (Status::ZeroPivot, vec![0.0, 0.0]));
        }
    }
}

#[test]
fn shared_values_and_several_right_hand_sides_are_solved() {
    let (n, items, nrhs) = (25, 3, 2);
    let pattern = pattern(n, 3, 4);
    let matrices: Vec<Csr<f64>> = (0..items).map(|item| matrix(&pattern, 1.2, item)).collect();
    let items = items as usize;
    let b = random_vector(n * items * nrhs, 8);
    let options = options().nrhs(nrhs);
    let shared = BatchValues::Shared(matrices[0].values().to_vec());
    let own = BatchValues::ItemMajor(matrices.iter().flat_map(|m| m.values().to_vec()).collect());
    for values in [shared, own] {
        let (BatchValues::Shared(host) | BatchValues::ItemMajor(host)) = &values else {
            unreachable!()
        };
        let executor = emulator();
        let mut plan = GpuLu::<_, f64>::new(&executor, pattern.view(), items, &options).unwrap();
        let mut x = executor.upload(&vec![f64::NAN; b.len()]).unwrap();
        let (host, right) = (executor.upload(host).unwrap(), executor.upload(&b).unwrap());
        plan.solve(&host, &right, Guess::Zero, &mut x).unwrap();
        let batch = UniformBatch::try_new(pattern.clone().into(), items, values).unwrap();

        let expected = solve(&Batch::Uniform(batch), &b, None, &options).unwrap();

        let x = executor.download(&x).unwrap();
        for (found, expected) in x.iter().zip(&expected.x) {
            assert!((found - expected).abs() <= 1e-11 * expected.abs().max(1.0));
        }
        assert!(plan.outcomes().unwrap().iter().all(|o| o.status == Status::Converged));
        // The same plan again: its queue must be reset.
        let mut again = executor.upload(&x).unwrap();
        plan.solve(&host, &right, Guess::Zero, &mut again).unwrap();
        assert_eq!(executor.download(&again).unwrap(), x);
        plan.solve(&host, &right, Guess::InX, &mut again).unwrap();
        assert!(plan.outcomes().unwrap().iter().all(|o| o.iterations == 0));
    }
}

#[test]
fn a_tridiagonal_matrix_is_reduced_cyclically() {
    let n = 256;
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..n as i32 {
        col_idx.extend((row - 1).max(0)..(row + 2).min(n as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    let pattern = CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap();
    let plan = GpuLu::<_, f64>::new(&emulator(), pattern.view(), 10, &options()).unwrap();
    let chosen = plan.explain();
    let shape = chosen.launches[0].lu().unwrap();
    assert!(matches!(shape.order, LuOrder::IndependentSets { .. }), "{chosen}");
    assert!(shape.steps < 60, "{chosen}");
    assert!(chosen.to_string().contains("order of independent sets"), "{chosen}");

    let systems = Systems::new(
        &[matrix::<f64>(&pattern, 1.1, 3), matrix(&pattern, 1.1, 4)],
        random_vector(2 * n, 5),
    );
    let cpu = on_cpu(&systems, &options());
    let orders = [LuOrder::Natural, LuOrder::MinDegree, LuOrder::IndependentSets { tolerance: 1 }];
    for order in orders {
        let tuning = LuTuning::default().order(Some(order));
        let gpu = by_lu(&emulator(), &systems, &options(), &tuning);
        assert_eq!(gpu.statuses(), cpu.statuses(), "{order}");
        for (found, expected) in gpu.x.iter().zip(&cpu.x) {
            assert!((found - expected).abs() <= 1e-10 * expected.abs().max(1.0), "{order}");
        }
    }
}
