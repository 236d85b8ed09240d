//! Batches that go through the GPU in chunks, with some of the chunks there at a time.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{DeviceInfo, Executor};
use sparsebatch_formats::{Batch, BatchValues, UniformBatch};
use sparsebatch_solvers::{
    Backend, BatchSolver, Chunks, Gpu, Method, Preconditioner, SolveOptions, Status,
    solve_on_executor,
};

use crate::backends::common::{agree, bits, cg, chain, dense, patterns, ragged, rhs};
use crate::common::{cases, one_step};

/// `len` different tridiagonal items of `nrows` rows.
pub(super) fn uniform(len: usize, nrows: usize) -> Batch<f64> {
    let of = |item: usize| chain::<f64>(nrows, 2.5 + 0.01 * item as f64);
    let first = of(0);
    let values = (0..len).flat_map(|item| of(item).values().to_vec()).collect();
    let pattern = first.pattern().clone();
    let values = BatchValues::ItemMajor(values);
    Batch::Uniform(UniformBatch::try_new(pattern, len, values).unwrap())
}

/// A backend with chunks of `bytes`, `at_once` of them on the GPU.
pub(super) fn in_chunks(executor: &Emulator, bytes: u64, at_once: usize) -> Backend<Emulator> {
    let chunks = Chunks::default().bytes(bytes).at_once(at_once);
    Backend::Gpu(Gpu::new(executor.clone()).chunks(chunks))
}

pub(super) fn lu() -> SolveOptions {
    one_step().method(Method::Lu)
}

fn bicgstab() -> SolveOptions {
    let preconditioner = Preconditioner::None;
    one_step().method(Method::BiCgStab).preconditioner(preconditioner)
}

#[test]
fn any_chunks_give_the_same_bits() {
    let executor = Emulator::new(Order::Forward);
    let batch = uniform(31, 12);
    let b = rhs(&batch, 2);
    let x0: Vec<f64> = rhs(&batch, 2).iter().map(|v| 0.5 - v).collect();
    // Only some of the chunks have guesses.
    let mut some = x0.clone();
    some[..10 * 24].fill(0.0);
    for options in [cg(), bicgstab(), lu()] {
        let options = options.nrhs(2);
        for guess in [None, Some(&*x0), Some(&*some)] {
            let whole =
                solve_on_executor(&in_chunks(&executor, 1 << 20, 3), &batch, &b, guess, &options);
            let whole = whole.unwrap();
            assert_eq!(whole.report.runs[0].chunks, 1);
            for (bytes, at_once, chunks) in [(1, 1, 31), (1, 3, 31), (5000, 2, 5), (8000, 9, 3)] {
                let backend = in_chunks(&executor, bytes, at_once);
                let what = format!("{} {bytes} {at_once}", options.method);
                let found = agree(&what, &backend, &batch, &b, guess, &options);
                assert_eq!(found.report.runs[0].chunks, chunks, "{what}");
                for system in 0..62 {
                    let expected = bits(&batch, &whole, 2, system);
                    assert_eq!(bits(&batch, &found, 2, system), expected, "{what}");
                }
            }
        }
    }
    assert_eq!(executor.bytes_in_use(), 0);
}

#[test]
fn limits_of_the_systems_go_with_their_chunks() {
    let executor = Emulator::new(Order::Forward);
    let batch = uniform(23, 12);
    let b = rhs(&batch, 2);
    let options = cg()
        .nrhs(2)
        .rel_tol((0..46).map(|s| 10f64.powi(-(s % 11) - 1)).collect::<Vec<_>>())
        .abs_tol((0..46).map(|s| if s % 7 == 3 { 1e3 } else { 0.0 }).collect::<Vec<_>>())
        .max_iters((0..46).map(|s| if s % 5 == 2 { 3 } else { 50 }).collect::<Vec<_>>());
    let whole =
        solve_on_executor(&in_chunks(&executor, 1 << 20, 3), &batch, &b, None, &options).unwrap();
    let backend = in_chunks(&executor, 3000, 3);
    let found = agree("limits", &backend, &batch, &b, None, &options);
    let statuses = found.report.status_counts();
    assert!(statuses.len() == 2 && statuses[1].0 == Status::MaxIterations, "{statuses:?}");
    for system in 0..46 {
        assert_eq!(bits(&batch, &found, 2, system), bits(&batch, &whole, 2, system));
    }
    // Limits of the last chunk must not remain for the first chunk of the next solve.
    let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
    let allocations = executor.allocations();
    for _ in 0..2 {
        let mut x = vec![0.0; b.len()];
        let report = solver.solve(&batch, &b, &mut x).unwrap();
        assert_eq!((report.systems, x), (whole.report.systems.clone(), whole.x.clone()));
    }
    assert_eq!(executor.allocations(), allocations);
}

#[test]
fn layouts_patterns_and_rungs() {
    let executor = Emulator::new(Order::Forward);
    let shared = UniformBatch::shared(chain::<f64>(12, 3.0), 40);
    let own = shared.to_item_major();
    for uniform in [own.to_interleaved(), own, shared] {
        let batch = Batch::Uniform(uniform);
        let b = rhs(&batch, 1);
        let solution = agree("layout", &in_chunks(&executor, 2000, 3), &batch, &b, None, &cg());
        assert!(solution.report.runs[0].chunks > 1);
    }
    // Values that differ between items reveal where each went.
    let Batch::Uniform(different) = uniform(37, 5) else { unreachable!() };
    let (different, interleaved) =
        (Batch::Uniform(different.clone()), Batch::Uniform(different.to_interleaved()));
    let b = rhs(&different, 1);
    let x = [&different, &interleaved].map(|batch| {
        solve_on_executor(&in_chunks(&executor, 2000, 2), batch, &b, None, &cg()).unwrap().x
    });
    assert_eq!(x[0], x[1]);
    // Some patterns are solved in chunks and some whole; some systems go on to other rungs.
    let several = ragged(patterns::<f64>(60));
    let b = rhs(&several, 2);
    let options = cg()
        .nrhs(2)
        .max_iters((0..120).map(|s| if s % 10 == 4 { 3 } else { 50 }).collect::<Vec<_>>())
        .fallback(true);
    let solution = agree("several", &in_chunks(&executor, 1000, 3), &several, &b, None, &options);
    assert!(solution.report.runs[0].chunks > 1 && solution.report.runs.len() > 1);
}

#[test]
fn a_solve_allocates_nothing() {
    let executor = Emulator::new(Order::Forward);
    let several = ragged(patterns::<f64>(60));
    let large = uniform(40, 12);
    let limited = Gpu::new(executor.clone()).memory_limit(6000).in_chunks(true);
    for (what, backend, batch, options) in [
        ("whole", in_chunks(&executor, 1 << 20, 3), &large, cg()),
        ("chunks", in_chunks(&executor, 2000, 3), &large, bicgstab()),
        ("lu", in_chunks(&executor, 2000, 2), &large, lu()),
        ("ragged", in_chunks(&executor, 1 << 20, 3), &several, cg()),
        ("ragged chunks", in_chunks(&executor, 1000, 3), &several, cg()),
        ("within a limit", Backend::Gpu(limited), &large, cg()),
    ] {
        let b = rhs(batch, 1);
        let mut solver = BatchSolver::on_executor(&backend, batch, None, &options).unwrap();
        let allocations = executor.allocations();
        for factor in [1.0, -2.0, 0.0] {
            let b: Vec<f64> = b.iter().map(|v| factor * v).collect();
            let mut x = vec![0.25; b.len()];
            assert!(solver.solve(batch, &b, &mut x).unwrap().all_converged(), "{what}");
            assert_eq!(executor.allocations(), allocations, "{what}");
        }
    }
}

/// Later solves allocate nothing, also where systems climb the ladder, if the same ones do.
#[test]
fn rungs_keep_their_memory() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged((0..15).map(|i| chain::<f64>(12, 20.0 + i as f64)));
    let b = rhs(&batch, 1);
    let options = cg()
        .max_iters((0..15).map(|s| if s % 4 == 1 { 5 } else { 40 }).collect::<Vec<_>>())
        .fallback(true);
    let mut solver =
        BatchSolver::on_executor(&in_chunks(&executor, 1 << 20, 3), &batch, None, &options)
            .unwrap();
    let mut solve = |batch: &Batch<f64>, b: &[f64]| {
        let mut x = vec![0.0; b.len()];
        let report = solver.solve(batch, b, &mut x).unwrap();
        assert!(report.all_converged() && report.runs.len() > 1, "{:?}", report.runs);
        (x, report.systems)
    };
    let first = solve(&batch, &b);
    let (allocations, in_use) = (executor.allocations(), executor.bytes_in_use());
    let negative: Vec<f64> = b.iter().map(|v| -v).collect();
    let second = solve(&batch, &negative);
    assert_eq!(first.0, second.0.iter().map(|v| -v).collect::<Vec<_>>());
    let other = ragged((0..15).map(|i| chain::<f64>(12, 21.0 + i as f64)));
    let values = solve(&other, &b);
    assert_eq!((executor.allocations(), executor.bytes_in_use()), (allocations, in_use));
    let backend = in_chunks(&executor, 1 << 20, 3);
    let fresh = solve_on_executor(&backend, &other, &b, None, &options).unwrap();
    assert_eq!(values, (fresh.x, fresh.report.systems));
    // Other systems fail: their rungs are set up again in place of the old ones.
    let mut zero = b.clone();
    zero[12..24].fill(0.0);
    assert_eq!(solve(&batch, &zero).0[..12], first.0[..12]);
    assert!(executor.allocations() > allocations && executor.bytes_in_use() <= in_use);
}

/// One plan serves many patterns, and gives the bits that each pattern has alone.
#[test]
fn ragged_batches_are_solved_together() {
    let executor = Emulator::new(Order::Forward);
    let of = |item: usize| match item % 2 {
        0 => chain::<f64>(1 + item / 2 % 12, 2.5 + 0.01 * item as f64),
        _ => dense(2 + item / 2 % 6, 9.0 + 0.01 * item as f64),
    };
    let batch = ragged((0..60).map(of));
    let b = rhs(&batch, 2);
    let x0: Vec<f64> = b.iter().map(|v| 0.5 - v).collect();
    let limits =
        cg().max_iters((0..120).map(|s| if s % 9 == 4 { 2 } else { 50 }).collect::<Vec<_>>());
    for options in [cg(), bicgstab(), limits] {
        let options = options.nrhs(2);
        for (bytes, chunks) in [(1 << 20, 1), (6000, 4)] {
            let backend = in_chunks(&executor, bytes, 2);
            let before = executor.allocations();
            let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
            // 24 patterns; a plan has some 10 arrays, plus more for each of its few bins.
            let allocations = executor.allocations() - before;
            assert!(allocations < 60 * chunks as u64, "{allocations} in {chunks}");
            let mut x = x0.clone();
            let report = solver.solve(&batch, &b, &mut x).unwrap();
            assert_eq!(report.runs[0].chunks, chunks);
            let found = sparsebatch_solvers::Solution { x, report };
            for item in 0..60 {
                let alone = Batch::from(of(item));
                let rows = 2 * batch.row_offset(item)..2 * batch.row_offset(item + 1);
                let options = options.for_systems(&[2 * item, 2 * item + 1]);
                let (b, x0) = (&b[rows.clone()], &x0[rows]);
                let apart = in_chunks(&executor, 1 << 20, 2);
                let apart = solve_on_executor(&apart, &alone, b, Some(x0), &options).unwrap();
                for rhs in 0..2 {
                    let expected = bits(&alone, &apart, 2, rhs);
                    assert_eq!(bits(&batch, &found, 2, 2 * item + rhs), expected, "{item}");
                }
            }
        }
    }
    // A system that is too large for a kernel is solved over products, the others pattern by
    // pattern; where the device has clusters, a cluster of blocks takes it.
    let large = ragged([chain::<f64>(5, 2.5), chain(5000, 2.5), chain(12, 2.5)]);
    let older = DeviceInfo { compute_capability: (8, 0), ..executor.info().clone() };
    let older = Emulator::with_info(older, Order::Forward);
    let b = rhs(&large, 1);
    for (executor, has_clusters) in [(older, false), (executor, true)] {
        let or_cpu = Gpu::new(executor).or_cpu(true);
        let solution = agree("large", &Backend::Gpu(or_cpu), &large, &b, None, &cg());
        assert_eq!(solution.report.backend.name(), "gpu");
        let reason = solution.report.runs[0].composed_reason.as_deref().unwrap_or_default();
        let composed = reason.contains("1 of 3 systems") && reason.contains("4096 rows");
        assert!(composed != has_clusters && reason.is_empty() == has_clusters, "{reason}");
    }
}

/// Bytes of values, right-hand sides and solutions.
fn data(batch: &Batch<f64>, nrhs: usize) -> u64 {
    let nnz: usize = (0..batch.nitems()).map(|item| batch.pattern(item).nnz()).sum();
    8 * (nnz + 2 * nrhs * batch.row_offset(batch.nitems())) as u64
}

/// Whole: matrices and vectors, and little more. In chunks: less than these.
#[test]
fn memory_is_at_most_a_fifth_above_that_of_the_data() {
    let chains = uniform(1000, 32);
    let classes = ragged((0..800).map(|item| match item % 4 {
        0 => dense(8, 9.0),
        n => chain::<f64>(20 + 4 * n, 2.5),
    }));
    for (what, batch, nrhs, chunks, most, options) in [
        ("cg", &chains, 1, None, 1.2, cg()),
        ("several right-hand sides", &chains, 3, None, 1.2, bicgstab()),
        ("lu", &chains, 1, None, 1.2, lu()),
        ("ragged", &classes, 1, None, 1.2, cg()),
        ("chunks", &chains, 1, Some(100 << 10), 0.4, cg()),
        ("chunks of lu", &chains, 1, Some(100 << 10), 0.5, lu()),
        // Each chunk has the patterns of its items, twice.
        ("ragged chunks", &classes, 1, Some(20 << 10), 1.3, cg()),
    ] {
        let executor = Emulator::new(Order::Forward);
        let options = options.nrhs(nrhs);
        let chunks = Chunks::default().bytes(chunks).at_once(3);
        let backend = Backend::Gpu(Gpu::new(executor.clone()).chunks(chunks));
        let solution =
            solve_on_executor(&backend, batch, &rhs(batch, nrhs), None, &options).unwrap();

        assert!(solution.report.all_converged(), "{what}");
        let (taken, said) = (executor.most_bytes_in_use(), solution.report.runs[0].device_bytes);
        assert_eq!(said, taken, "{what}: as reported");
        let factor = taken as f64 / data(batch, nrhs) as f64;
        assert!(factor <= most, "{what}: {factor}");
    }
}

/// The memory in use stays within a limit of half the batch, and is at least half of the limit.
#[test]
fn a_limit_holds() {
    let batch = uniform(2000, 32);
    let limit = data(&batch, 1) / 2;
    for &at_once in cases(&[1, 2, 3]) {
        let executor = Emulator::new(Order::Forward);
        let gpu = Gpu::new(executor.clone())
            .memory_limit(limit)
            .in_chunks(true)
            .chunks(Chunks::default().bytes(1 << 30).at_once(at_once));
        let b = rhs(&batch, 1);
        let solution = solve_on_executor(&Backend::Gpu(gpu), &batch, &b, None, &cg()).unwrap();
        assert!(solution.report.all_converged());
        let taken = executor.most_bytes_in_use();
        assert!(taken <= limit && taken >= limit / 2, "{taken} of {limit}");
        assert!(solution.report.runs[0].chunks >= 2);
    }
}
