//! Batches that stay on the GPU: bits, verdicts and reports as from the host, also from a graph.

use std::cell::RefCell;
use std::time::Instant;

use sparsebatch_cuda::device::{DevicePool, Event, measure_bandwidth};
use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, Executor};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, Csr, Layout, RaggedCsr, UniformBatch};
use sparsebatch_solvers::gpu::{
    GpuSolver, Guess, RaggedLu, SolverTuning, ValueGradient, solver_for,
};
use sparsebatch_solvers::{
    AdjointSolver, Backend, BatchPatterns, BatchReport, BatchSolver, DeviceData, DeviceSolver, Gpu,
    LuForm, Method, Preconditioner, SolveError, SolveOptions, Status, solve, value_gradient,
};
use sparsebatch_testing::random_vector;

/// A batch of one pattern in which some systems fail: not finite, singular, and with a zero for a
/// pivot.
fn batch(family: Family, nrows: usize, items: usize) -> (Batch<f64>, Vec<f64>, Vec<f64>) {
    let problem = Problem::new(family, nrows).unwrap().batch(items).unwrap();
    let mut copy = Vec::new();
    let mut values: Vec<f64> =
        (0..items).flat_map(|item| problem.batch.values_in(item, &mut copy).to_vec()).collect();
    let nnz = values.len() / items;
    values[nnz + 1] = f64::NAN;
    values[3 * nnz..4 * nnz].fill(0.0);
    values[5 * nnz] = 0.0;
    let Batch::Uniform(uniform) = &problem.batch else { unreachable!("one pattern") };
    let pattern = uniform.pattern().clone();
    let all = BatchValues::ItemMajor(values.clone());
    let batch = UniformBatch::try_new(pattern, items, all).unwrap();
    (Batch::Uniform(batch), problem.rhs, values)
}

fn methods() -> Vec<SolveOptions> {
    let of =
        |method, preconditioner| SolveOptions::new().method(method).preconditioner(preconditioner);
    vec![
        SolveOptions::new(),
        of(Method::Cg, Preconditioner::Jacobi),
        of(Method::BiCgStab, Preconditioner::None),
        of(Method::BiCgStab, Preconditioner::ILU0),
        of(Method::Lu, Preconditioner::Auto),
        of(Method::PivotingLu, Preconditioner::Auto),
        of(Method::Cg, Preconditioner::Jacobi).max_iters(5).fallback(false),
    ]
}

fn compare(what: &str, found: (&BatchReport, &[f64]), expected: (&BatchReport, &[f64])) {
    let ((report, x), (host, host_x)) = (found, expected);
    for (system, (found, expected)) in report.systems.iter().zip(&host.systems).enumerate() {
        let same = (found.outcome.status, found.rung, found.outcome.iterations)
            == (expected.outcome.status, expected.rung, expected.outcome.iterations);
        assert!(same, "{what} {system}: {found:?}, {expected:?}");
    }
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
    assert_eq!(bits(x), bits(host_x), "{what}");
}

#[test]
fn the_device_says_what_the_host_says() {
    let Some(device) = device_or_skip() else { return };
    for (family, nrows) in [(Family::Tri, 32), (Family::Lap2d, 64), (Family::Rand9, 54)] {
        let (batch, b, values) = batch(family, nrows, systems(300).max(8));
        let on_values = device.upload(&values).unwrap();
        let on_b = device.upload(&b).unwrap();
        for options in methods() {
            let what = format!("{family:?} {nrows} {}", options.method);
            let backend = Backend::Gpu(Gpu::new(device.clone()).or_cpu(true));
            let mut host = BatchSolver::on(&backend, &batch, &options).unwrap();
            let mut host_x = vec![0.0; b.len()];
            let expected = host.solve(&batch, &b, &mut host_x).unwrap();
            let mut solver: DeviceSolver<Device, f64> =
                DeviceSolver::new(&device, &batch, &options).unwrap();
            let mut x = device.alloc_zeroed(b.len()).unwrap();

            let report = solver.solve(&on_values, &on_b, Guess::Zero, &mut x).unwrap();
            let found = device.download(&x).unwrap();
            compare(&what, (&report, &found), (&expected, &host_x));
            let statuses = device.download(solver.device_outcomes().statuses).unwrap();
            assert!(
                report.systems.iter().zip(&statuses).all(|(s, &k)| s.outcome.status as u8 == k)
            );
            assert_eq!(report.systems[1].outcome.status, Status::NonFinite);

            // From guesses, and recorded: the same again.
            let start: Vec<f64> = b.iter().map(|b| 0.5 - b).collect();
            host_x.copy_from_slice(&start);
            let expected = host.solve(&batch, &b, &mut host_x).unwrap();
            solver.prepare_guesses().unwrap();
            let graph = device
                .capture(|_| {
                    solver.enqueue(&on_values, &on_b, Guess::InX, &mut x).unwrap();
                    Ok(())
                })
                .unwrap();
            for _ in 0..2 {
                device.copy_from_host(&start, &mut x).unwrap();
                // SAFETY: buffers and solver are alive until `finish` has waited.
                #[expect(unsafe_code, reason = "the launch of a graph")]
                unsafe { graph.launch() }.unwrap();
                let report = solver.finish(&on_values, &on_b, &mut x).unwrap();
                let found = device.download(&x).unwrap();
                compare(&what, (&report, &found), (&expected, &host_x));
            }
        }
    }
}

/// Interleaved arrays and transposed systems, from kept factors too: solutions of item-major solves
/// on the host.
#[test]
fn arrays_in_any_layout_and_kept_factors() {
    let Some(device) = device_or_skip() else { return };
    let items = systems(1000);
    let problem = Problem::new(Family::Rand9, 54).unwrap().batch(items).unwrap();
    let mut copy = Vec::new();
    let values: Vec<f64> =
        (0..items).flat_map(|item| problem.batch.values_in(item, &mut copy).to_vec()).collect();
    let interleaved = |array: &[f64]| -> Vec<f64> {
        let len = array.len() / items;
        (0..array.len()).map(|at| array[at % items * len + at / items]).collect()
    };
    let b = &problem.rhs;
    for method in [Method::Lu, Method::BiCgStab, Method::PivotingLu] {
        let options = SolveOptions::new().method(method);
        let mut expected = vec![0.0; b.len()];
        let mut adjoint = AdjointSolver::on(&Backend::Cpu, &problem.batch, &options).unwrap();
        adjoint.solve(&problem.batch, b, &mut expected).unwrap();
        let layout = Layout::Interleaved;
        let data = DeviceData::new().values(layout).vectors(layout).transposed(true);
        let mut solver: DeviceSolver<Device, f64> =
            DeviceSolver::with_data(&device, &problem.batch, &options, data).unwrap();
        let on_values = device.upload(&interleaved(&values)).unwrap();
        let on_b = device.upload(&interleaved(b)).unwrap();
        let mut x = device.alloc_zeroed(b.len()).unwrap();
        let close = |x: &[f64]| {
            let expected = interleaved(&expected);
            let apart = x.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-7, "{method}: {apart:e}");
        };

        assert!(solver.solve(&on_values, &on_b, Guess::Zero, &mut x).unwrap().all_converged());
        close(&device.download(&x).unwrap());
        solver.factor(&on_values).unwrap();
        for _ in 0..2 {
            device.copy_from_host(&vec![f64::NAN; b.len()], &mut x).unwrap();
            assert!(solver.solve_again(&on_b, Guess::Zero, &mut x).unwrap().all_converged());
            close(&device.download(&x).unwrap());
        }
    }
}

/// Ragged batches: three patterns in turn, some systems of which fail; also by kept matrices.
/// Transposed systems by the factors of the matrices: verdicts of the host's adjoint solver,
/// residuals within tolerance, and the same in a graph. Prints the time of both sides.
#[test]
fn kept_factors_solve_the_transposed_systems() {
    let Some(device) = device_or_skip() else { return };
    let cases = [(Family::Tri, 256), (Family::Lap2d, 256), (Family::Rand9, 54), (Family::Tri, 32)];
    for (family, nrows) in cases {
        let items = systems(10_000).max(8);
        let (batch, b, values) = batch(family, nrows, items);
        let options = SolveOptions::new().method(Method::Lu);
        let mut expected = vec![0.0; b.len()];
        let mut adjoint = AdjointSolver::on(&Backend::Cpu, &batch, &options).unwrap();
        let host = adjoint.solve(&batch, &b, &mut expected).unwrap();
        let mut solver: DeviceSolver<Device, f64> =
            DeviceSolver::new(&device, &batch, &options).unwrap();
        let on_b = device.upload(&b).unwrap();
        let mut x = device.alloc_zeroed(b.len()).unwrap();
        solver.factor(&device.upload(&values).unwrap()).unwrap();

        let report = solver.solve_transposed_again(&on_b, Guess::Zero, &mut x).unwrap();

        let what = format!("{family:?} {nrows}");
        let first = device.download(&x).unwrap();
        for (system, (found, expected)) in report.systems.iter().zip(&host.systems).enumerate() {
            let same = found.outcome.status == expected.outcome.status;
            assert!(same, "{what} {system}: {found:?}, {expected:?}");
        }
        let graph = device
            .capture(|_| {
                solver.enqueue_transposed_again(&on_b, Guess::Zero, &mut x).unwrap();
                Ok(())
            })
            .unwrap();
        device.fill_zero(&mut x).unwrap();
        // SAFETY: buffers and solver are alive until `finish` has waited.
        #[expect(unsafe_code, reason = "the launch of a graph")]
        unsafe { graph.launch() }.unwrap();
        solver.finish_transposed_again(&on_b, &mut x).unwrap();
        let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&device.download(&x).unwrap()), bits(&first), "{what}");

        let mut time = |is_transposed: bool| {
            let mut times: Vec<f64> = (0..21)
                .map(|_| {
                    device.synchronize().unwrap();
                    let start = Instant::now();
                    let enqueued = match is_transposed {
                        true => solver.enqueue_transposed_again(&on_b, Guess::Zero, &mut x),
                        false => solver.enqueue_again(&on_b, Guess::Zero, &mut x),
                    };
                    enqueued.unwrap();
                    device.synchronize().unwrap();
                    start.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            times[10]
        };
        let (plain, transposed) = (time(false), time(true));
        println!("{what}: {items} systems, again {plain:.4} ms, transposed {transposed:.4} ms");
    }
}

#[test]
fn ragged_batches_say_what_the_host_says() {
    let Some(device) = device_or_skip() else { return };
    let items = systems(100).max(8);
    let mut all = RaggedCsr::new();
    let uniform: Vec<Batch<f64>> = [(Family::Tri, 32), (Family::Lap2d, 64), (Family::Rand9, 54)]
        .map(|(family, nrows)| batch(family, nrows, items).0)
        .into();
    for item in 0..items {
        for batch in &uniform {
            let Batch::Uniform(batch) = batch else { unreachable!("one pattern") };
            all.push(batch.to_matrix(item).view());
        }
    }
    let (values, rows) = (all.values().to_vec(), all.row_offsets()[3 * items]);
    let (batch, b) = (Batch::Ragged(all), random_vector::<f64>(rows, 5));
    let (on_values, on_b) = (device.upload(&values).unwrap(), device.upload(&b).unwrap());
    for options in methods() {
        let what = format!("ragged {}", options.method);
        let backend = Backend::Gpu(Gpu::new(device.clone()).or_cpu(true));
        let mut host = BatchSolver::on(&backend, &batch, &options).unwrap();
        let mut host_x = vec![0.0; b.len()];
        let expected = host.solve(&batch, &b, &mut host_x).unwrap();
        let mut solver: DeviceSolver<Device, f64> =
            DeviceSolver::new(&device, &batch, &options).unwrap();
        let mut x = device.alloc_zeroed(b.len()).unwrap();

        let report = solver.solve(&on_values, &on_b, Guess::Zero, &mut x).unwrap();
        compare(&what, (&report, &device.download(&x).unwrap()), (&expected, &host_x));

        solver.factor(&on_values).unwrap();
        let again = solver.solve_again(&on_b, Guess::Zero, &mut x).unwrap();
        for (found, expected) in again.systems.iter().zip(&expected.systems) {
            assert_eq!(found.outcome.status, expected.outcome.status, "{what}");
        }
    }
}

/// A warp for each system: the ends that the CPU finds.
#[test]
fn systems_of_any_patterns_end_as_on_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    let mut all = RaggedCsr::new();
    for item in 0..systems(600).max(30) {
        let nrows = 4 + item * 7 % 150;
        let problem = Problem::new(Family::Tri, nrows).unwrap().batch(2).unwrap();
        let Batch::Uniform(uniform) = &problem.batch else { unreachable!("one pattern") };
        let mut matrix = uniform.to_matrix(item % 2);
        match item % 10 {
            3 => matrix.values_mut().fill(0.0),
            7 => matrix.values_mut()[nrows] = f64::NAN,
            _ => {}
        }
        all.push(matrix.view());
    }
    let options = SolveOptions::new().method(Method::Lu).fallback(false);
    let b = random_vector::<f64>(all.row_offsets()[all.nitems()], 5);
    let values = device.upload(all.values()).unwrap();
    let (on_b, mut x) = (device.upload(&b).unwrap(), device.alloc_zeroed(b.len()).unwrap());
    let mut plan = RaggedLu::<Device, f64>::new(&device, &all, &options).unwrap();
    let mut found = Vec::new();
    plan.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
    found.push((plan.outcomes().unwrap(), device.download(&x).unwrap()));
    plan.factor(&values).unwrap();
    plan.solve_again(&values, &on_b, Guess::Zero, &mut x).unwrap();
    found.push((plan.outcomes().unwrap(), device.download(&x).unwrap()));

    let expected = solve(&Batch::Ragged(all), &b, None, &options).unwrap();
    for (system, expected) in expected.report.systems.iter().enumerate() {
        assert_eq!(found[0].0[system].status, expected.outcome.status, "{system}");
        assert_eq!(found[1].0[system].status, expected.outcome.status, "{system}");
    }
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
    assert_eq!(bits(&found[0].1), bits(&found[1].1));
}

/// Prints how long it takes to make solvers again and again, with memory of the driver and of a
/// pool.
#[test]
fn solvers_are_made_again_with_memory_of_a_pool() {
    let Some(device) = device_or_skip() else { return };
    let pool = DevicePool::new(&device, 4 << 30).unwrap();
    // SAFETY: all work is issued to the stream of the device.
    let pooled = unsafe { device.with_allocator(pool) };
    let options = SolveOptions::new().method(Method::Cg).preconditioner(Preconditioner::Jacobi);
    for (nrows, items) in [(32, systems(1000)), (128, systems(10_000)), (1024, systems(65_536))] {
        let problem = Problem::new(Family::Tri, nrows).unwrap().batch(2).unwrap();
        let Batch::Uniform(uniform) = &problem.batch else { unreachable!("one pattern") };
        let matrix = uniform.to_matrix(0);
        let batch = Batch::Uniform(UniformBatch::shared(matrix.clone(), items));
        let b = vec![1.0; nrows * items];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..9 {
            for (times, device) in times.iter_mut().zip([&device, &pooled]) {
                let begin = Instant::now();
                let mut solver = DeviceSolver::new(device, &batch, &options).unwrap();
                let values = device.alloc_zeroed::<f64>(matrix.values().len()).unwrap();
                let mut buffers: Vec<_> =
                    (0..2).map(|_| device.alloc::<f64>(b.len()).unwrap()).collect();
                device.synchronize().unwrap();
                let made = begin.elapsed().as_secs_f64();
                if times.is_empty() {
                    let values = device.upload(matrix.values()).unwrap();
                    device.copy_from_host(&b, &mut buffers[0]).unwrap();
                    let [b, x] = &mut buffers[..] else { unreachable!("two") };
                    assert!(solver.solve(&values, b, Guess::Zero, x).unwrap().all_converged());
                }
                let begin = Instant::now();
                drop((solver, values, buffers));
                device.synchronize().unwrap();
                times.push((made + begin.elapsed().as_secs_f64()) * 1e3);
            }
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let [driver, pool] = &mut times;
        println!(
            "{items} systems of {nrows} rows: solver and vectors made and dropped in {:.3} ms, from \
             a pool {:.3} ms",
            median(driver),
            median(pool)
        );
    }
}

/// A matrix of its own pattern: so many random entries beside the diagonal of each row, which it
/// dominates.
fn random(nrows: usize, beside: usize, seed: u64) -> Csr<f64> {
    let draws = random_vector::<f64>(beside * nrows, seed);
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for (row, draws) in draws.chunks(beside).enumerate() {
        let column = |draw: &f64| ((draw * 0.5 + 0.5) * nrows as f64) as usize % nrows;
        let mut columns: Vec<usize> = draws.iter().map(column).chain([row]).collect();
        columns.sort_unstable();
        columns.dedup();
        for &column in &columns {
            values.push(if column == row { beside as f64 + 1.0 } else { draws[0] });
            col_idx.push(column as i32);
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap()
}

/// Systems with a pattern each by the sparse LU of [`LuForm::BySystem`]. Prints times beside those
/// of one pattern with as many entries by the LU of patterns.
#[test]
fn sparse_lu_of_different_patterns() {
    let Some(device) = device_or_skip() else { return };
    let nitems = systems(10_000);
    let sizes = || (0..nitems).map(|item| 20 + item * 37 % 181);
    let repeats = if nitems < 10_000 { 1 } else { 10 };
    for beside in [2, 4] {
        let (mut different, mut alike) = (RaggedCsr::new(), RaggedCsr::new());
        sizes().zip(1..).for_each(|(n, seed)| different.push(random(n, beside, seed).view()));
        let one = random(sizes().sum::<usize>() / nitems, beside, 1);
        (0..nitems).for_each(|_| alike.push(one.view()));
        let lu = |form| SolveOptions::new().method(Method::Lu).fallback(false).lu_form(form);
        let mut times = Vec::new();
        for (batch, form) in [
            (&alike, LuForm::ByPattern),
            (&alike, LuForm::BySystem),
            (&different, LuForm::BySystem),
        ] {
            let batch = Batch::Ragged(batch.clone());
            let b = random_vector::<f64>(batch.row_offset(nitems), 3);
            let Batch::Ragged(ragged) = &batch else { unreachable!("as made") };
            let values = device.upload(ragged.values()).unwrap();
            let (b, mut x) = (device.upload(&b).unwrap(), device.alloc_zeroed(b.len()).unwrap());
            let begin = Instant::now();
            let mut solver = DeviceSolver::new(&device, &batch, &lu(form)).unwrap();
            let analysis = begin.elapsed().as_secs_f64();
            let report = solver.solve(&values, &b, Guess::Zero, &mut x).unwrap();
            assert!(report.all_converged());
            solver.factor(&values).unwrap();
            let mut each = Vec::new();
            for again in [false, true] {
                let mut rounds = Vec::new();
                for _ in 0..repeats {
                    let begin = Instant::now();
                    for _ in 0..repeats {
                        match again {
                            false => solver.enqueue(&values, &b, Guess::Zero, &mut x).unwrap(),
                            true => solver.enqueue_again(&b, Guess::Zero, &mut x).unwrap(),
                        }
                    }
                    device.synchronize().unwrap();
                    rounds.push(begin.elapsed().as_secs_f64() * 1e3 / repeats as f64);
                }
                rounds.sort_by(f64::total_cmp);
                each.push(rounds[repeats / 2]);
            }
            println!(
                "{beside} beside the diagonal, {form}: {:.4} ms, with kept factors {:.4} ms, analysis \
                 {:.1} us a system; {}",
                each[0],
                each[1],
                analysis * 1e6 / nitems as f64,
                report.kernel,
            );
            times.push(each[0]);
        }
        println!("different patterns {:.2} of one pattern", times[2] / times[0]);
    }
}

/// Prints the time of a call of `enqueue` beside that of the bare plan.
#[test]
fn a_call_takes_hardly_longer_than_that_of_the_plan() {
    let Some(device) = device_or_skip() else { return };
    let problem = Problem::new(Family::Tri, 32).unwrap().batch(100).unwrap();
    let mut copy = Vec::new();
    let values: Vec<f64> =
        (0..100).flat_map(|item| problem.batch.values_in(item, &mut copy).to_vec()).collect();
    let values = device.upload(&values).unwrap();
    let b = device.upload(&problem.rhs).unwrap();
    let mut x = device.alloc_zeroed(problem.rhs.len()).unwrap();
    let options = SolveOptions::new().method(Method::Cg).preconditioner(Preconditioner::Jacobi);
    let of = (problem.batch.pattern(0), 100);
    let scheme = options.scheme::<f64>();
    let mut plan =
        solver_for::<Device, f64>(&device, scheme, of, &options, &SolverTuning::default()).unwrap();
    let mut solver = DeviceSolver::new(&device, &problem.batch, &options).unwrap();
    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let start = Instant::now();
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        bare.push(start.elapsed().as_secs_f64() * 1e6);
        device.synchronize().unwrap();
        let start = Instant::now();
        solver.enqueue(&values, &b, Guess::Zero, &mut x).unwrap();
        whole.push(start.elapsed().as_secs_f64() * 1e6);
        device.synchronize().unwrap();
    }
    bare.sort_by(f64::total_cmp);
    whole.sort_by(f64::total_cmp);
    println!("call of the plan {:.2} us, enqueue {:.2} us (medians)", bare[100], whole[100]);
    assert!(solver.finish(&values, &b, &mut x).unwrap().all_converged());
}

/// Matrices of an analysed batch that are no longer positive definite climb the ladder. Prints what
/// that takes beside a solve in which none fails: where the same items fail at each solve, and
/// where others do.
#[test]
fn items_that_fail_take_so_much_longer() {
    let Some(device) = device_or_skip() else { return };
    let nitems = systems(10_000).max(40);
    for (family, nrows) in [(Family::Tri, 32), (Family::Tri, 128), (Family::Lap2d, 256)] {
        let problem = Problem::new(family, nrows).unwrap().batch(nitems).unwrap();
        let mut copy = Vec::new();
        let healthy: Vec<f64> =
            (0..nitems).flat_map(|i| problem.batch.values_in(i, &mut copy).to_vec()).collect();
        let nnz = healthy.len() / nitems;
        let options = SolveOptions::new().method(Method::Cg).preconditioner(Preconditioner::Jacobi);
        let mut solver: DeviceSolver<Device, f64> =
            DeviceSolver::new(&device, &problem.batch, &options).unwrap();
        let b = device.upload(&problem.rhs).unwrap();
        let mut x = device.alloc_zeroed(problem.rhs.len()).unwrap();
        let all_solved = {
            let values = device.upload(&healthy).unwrap();
            median_of_five(|_| {
                let begin = Instant::now();
                assert!(solver.solve(&values, &b, Guess::Zero, &mut x).unwrap().all_converged());
                begin.elapsed().as_secs_f64() * 1e3
            })
        };
        for apart in [1000, 100, 10, 1] {
            // Items `first`, `first + apart` and so on have the signs of all values changed.
            let flawed = |first: usize| {
                let mut values = healthy.clone();
                for item in (first % apart..nitems).step_by(apart) {
                    values[item * nnz..(item + 1) * nnz].iter_mut().for_each(|v| *v = -*v);
                }
                device.upload(&values).unwrap()
            };
            let mut first = 0;
            let mut times = [0.0; 2];
            for (time, step) in times.iter_mut().zip([0, 1]) {
                *time = median_of_five(|_| {
                    let values = flawed(first);
                    first += step;
                    let begin = Instant::now();
                    let report = solver.solve(&values, &b, Guess::Zero, &mut x).unwrap();
                    let time = begin.elapsed().as_secs_f64() * 1e3;
                    assert!(report.all_converged());
                    time
                });
            }
            println!(
                "{family:?} {nrows}, {nitems} items: {all_solved:.3} ms; one in {apart} fails: \
                 {:.3} ms, other ones at each solve {:.3} ms",
                times[0], times[1]
            );
        }
    }
}

/// The median of five calls, after one that is not counted.
fn median_of_five(mut call: impl FnMut(usize) -> f64) -> f64 {
    call(0);
    let mut times: Vec<f64> = (1..6).map(&mut call).collect();
    times.sort_by(f64::total_cmp);
    times[2]
}

/// The median microseconds of some launches by the device's clock, which is busy while they are
/// issued.
fn by_device(device: &Device, mut launch: impl FnMut()) -> f64 {
    let [begin, end] = [0, 1].map(|_| Event::new(device).unwrap());
    median_of_five(|_| {
        (0..4).for_each(|_| launch());
        begin.record(device).unwrap();
        (0..IN_A_ROW).for_each(|_| launch());
        end.record(device).unwrap();
        end.wait().unwrap();
        1e3 * f64::from(begin.elapsed_ms(&end).unwrap()) / IN_A_ROW as f64
    })
}

/// Gradients by values agree with the host's; prints their rate by the device's clock beside that
/// of copies, by bytes: values written once, lambda and x read once, and the pattern of ragged
/// batches.
#[test]
fn gradients_are_those_of_the_host() {
    let Some(device) = device_or_skip() else { return };
    let copies = measure_bandwidth(&device).unwrap();
    for (family, nrows) in [(Family::Tri, 32), (Family::Lap2d, 256), (Family::Rand9, 54)] {
        let items = systems(100_000);
        let problem = Problem::new(family, nrows).unwrap().batch(items).unwrap();
        let rows = problem.rhs.len();
        let (lambda, x) = (random_vector::<f64>(rows, 1), random_vector::<f64>(rows, 2));
        let (on_lambda, on_x) = (device.upload(&lambda).unwrap(), device.upload(&x).unwrap());
        let nnz = problem.batch.pattern(0).nnz();
        let mut gradient: ValueGradient<Device, f64> =
            ValueGradient::new(&device, problem.batch.pattern(0), items, 1).unwrap();
        let mut found = device.alloc::<f64>(nnz * items).unwrap();
        let mut ragged = RaggedCsr::new();
        let matrix = problem.batch.to_csr(0);
        (0..items).for_each(|_| ragged.push(matrix.view()));
        let mut of_ragged: ValueGradient<Device, f64> =
            ValueGradient::ragged(&device, &ragged, 1).unwrap();

        let of_ragged = by_device(&device, || {
            of_ragged.apply(&on_lambda, &on_x, &mut found).unwrap();
        });
        let as_ragged = device.download(&found).unwrap();
        let uniform = by_device(&device, || {
            gradient.apply(&on_lambda, &on_x, &mut found).unwrap();
        });

        let bytes = (8 * (nnz * items + 2 * rows)) as f64;
        let rate = |bytes: f64, us: f64| bytes / us / 1e3;
        println!(
            "{family:?} {nrows} x {items}: gradient {:.0} GB/s, ragged {:.0}, copies {copies:?}",
            rate(bytes, uniform),
            rate(bytes + (4 * nnz * items) as f64, of_ragged),
        );
        let first = device.download(&found).unwrap();
        gradient.apply(&on_lambda, &on_x, &mut found).unwrap();
        assert_eq!(device.download(&found).unwrap(), first);
        assert_eq!(as_ragged, first);
        let Batch::Uniform(uniform) = &problem.batch else { unreachable!("one pattern") };
        let values = BatchValues::ItemMajor(vec![0.0; nnz * items]);
        let batch = UniformBatch::try_new(uniform.pattern().clone(), items, values).unwrap();
        let mut expected = vec![0.0; nnz * items];
        value_gradient(&Batch::Uniform(batch), 1, &lambda, &x, &mut expected).unwrap();
        assert_eq!(first, expected);
        // Shared by all items: the same sum up to rounding.
        let mut sum = device.alloc::<f64>(nnz).unwrap();
        gradient.apply(&on_lambda, &on_x, &mut sum).unwrap();
        let sum = device.download(&sum).unwrap();
        for (k, sum) in sum.iter().enumerate() {
            let each = expected.iter().skip(k).step_by(nnz);
            let (exact, size) = each.fold((0.0, 0.0), |(s, a), g: &f64| (s + g, a + g.abs()));
            assert!((sum - exact).abs() <= 1e-12 * size, "{k}: {sum}, {exact}");
        }
    }
}

/// Index arrays, values and vectors on the device: the solver of patterns on the host.
#[test]
fn patterns_on_the_device_are_analysed() {
    let Some(device) = device_or_skip() else { return };
    let (batch, b, values) = batch(Family::Rand9, 54, systems(300).max(8));
    let items = batch.nitems();
    let ragged: RaggedCsr<f64> = {
        let mut all = RaggedCsr::new();
        for number in 0..items {
            all.push(batch.to_csr(number).view());
        }
        all
    };
    let offsets: Vec<u64> = ragged.row_offsets().iter().map(|&offset| offset as u64).collect();
    let on_values = device.upload(&values).unwrap();
    let on_b = device.upload(&b).unwrap();
    let one = {
        let row_ptr = device.upload(batch.pattern(0).row_ptr()).unwrap();
        let col_idx = device.upload(batch.pattern(0).col_idx()).unwrap();
        BatchPatterns::from_device(&device, &row_ptr, &col_idx, items).unwrap()
    };
    let several = {
        let row_offsets = device.upload(&offsets).unwrap();
        let row_ptr = device.upload(ragged.row_ptr()).unwrap();
        let col_idx = device.upload(ragged.col_idx()).unwrap();
        BatchPatterns::ragged_from_device(&device, &row_offsets, &row_ptr, &col_idx).unwrap()
    };
    let ragged = Batch::Ragged(ragged);
    for (patterns, batch) in [(one, &batch), (several, &ragged)] {
        for options in methods() {
            let solve = |mut solver: DeviceSolver<Device, f64>| {
                let mut x = device.alloc_zeroed(b.len()).unwrap();
                let report = solver.solve(&on_values, &on_b, Guess::Zero, &mut x).unwrap();
                (report, device.download(&x).unwrap())
            };
            let data = DeviceData::new();
            let of_device =
                DeviceSolver::with_values(&device, patterns.clone(), &on_values, &options, data);
            let (report, x) = solve(of_device.unwrap());
            let (host, expected) = solve(DeviceSolver::new(&device, batch, &options).unwrap());
            let what = format!("{} {items}", options.method);
            compare(&what, (&report, &x), (&host, &expected));
        }
    }
}

/// Solutions that lie over what is read are refused, also where arrays are rearranged.
#[test]
fn overlaps_are_refused() {
    let Some(device) = device_or_skip() else { return };
    let problem = Problem::new(Family::Tri, 32).unwrap().batch(10).unwrap();
    let options = SolveOptions::new().method(Method::Lu);
    let layout = Layout::Interleaved;
    for data in [
        DeviceData::new(),
        DeviceData::new().vectors(layout),
        DeviceData::new().values(layout).vectors(layout).transposed(true),
    ] {
        let mut solver: DeviceSolver<Device, f64> =
            DeviceSolver::with_data(&device, &problem.batch, &options, data).unwrap();
        let values = device.upload(&vec![1.0; problem.batch.total_nnz()]).unwrap();
        let b = device.upload(&problem.rhs).unwrap();
        let (mut over_values, mut over_b) =
            (values.range(0..320).unwrap(), b.range(0..320).unwrap());
        for x in [&mut over_values, &mut over_b] {
            for refused in [
                solver.enqueue(&values, &b, Guess::Zero, x).err(),
                solver.finish(&values, &b, x).map(drop).err(),
            ] {
                assert!(matches!(refused, Some(SolveError::Argument(_))), "{data:?} {refused:?}");
            }
        }
    }
}

/// Solves in a row.
const IN_A_ROW: usize = 20;

/// Microseconds of one enqueued solve by the device's clock; of each of twenty enqueued ones; of
/// each of twenty in a graph; the same by the host's clock.
fn times_in_a_row(solve: impl FnMut(), device: &Device) -> [f64; 4] {
    let solve = RefCell::new(solve);
    let solve = || (solve.borrow_mut())();
    let solves = || (0..IN_A_ROW).for_each(|_| solve());
    let graph = device.capture(|_| {
        solves();
        Ok(())
    });
    let graph = graph.unwrap();
    // SAFETY: the caller's buffers and solver are alive until the launches are waited for.
    #[expect(unsafe_code, reason = "the launch of a graph")]
    let launch = || unsafe { graph.launch() }.unwrap();
    let [begin, end] = [0, 1].map(|_| Event::new(device).unwrap());
    // The device is busy while all of it is launched, so that the host's share does not count.
    let by_device = |work: &dyn Fn()| {
        median_of_five(|_| {
            (0..4).for_each(|_| launch());
            begin.record(device).unwrap();
            work();
            end.record(device).unwrap();
            end.wait().unwrap();
            1e3 * f64::from(begin.elapsed_ms(&end).unwrap())
        })
    };
    let wall = median_of_five(|_| {
        let begin = Instant::now();
        launch();
        device.synchronize().unwrap();
        begin.elapsed().as_secs_f64() * 1e6
    });
    let each = |all: f64| all / IN_A_ROW as f64;
    [by_device(&solve), each(by_device(&solves)), each(by_device(&launch)), each(wall)]
}

/// A graph of twenty solves, by the device's clock and by the host's, beside solves that are
/// enqueued.
#[test]
fn twenty_solves_from_a_graph_take_so_long() {
    let Some(device) = device_or_skip() else { return };
    let nitems = systems(1000);
    for (family, nrows) in
        [(Family::Tri, 32), (Family::Tri, 128), (Family::Lap2d, 64), (Family::Rand9, 54)]
    {
        let problem = Problem::new(family, nrows).unwrap().batch(nitems).unwrap();
        let mut copy = Vec::new();
        let values: Vec<f64> =
            (0..nitems).flat_map(|i| problem.batch.values_in(i, &mut copy).to_vec()).collect();
        let (values, b) = (device.upload(&values).unwrap(), device.upload(&problem.rhs).unwrap());
        let is_symmetric = |of: &SolveOptions| of.method != Method::Cg || family != Family::Rand9;
        for options in methods().into_iter().take(5).skip(1).filter(is_symmetric) {
            let mut solver: DeviceSolver<Device, f64> =
                DeviceSolver::new(&device, &problem.batch, &options).unwrap();
            let mut x = device.alloc_zeroed(problem.rhs.len()).unwrap();
            assert!(solver.solve(&values, &b, Guess::Zero, &mut x).unwrap().all_converged());
            let expected = device.download(&x).unwrap();

            let [one, enqueued, graph, wall] = times_in_a_row(
                || {
                    solver
                        .enqueue(&values, &b, Guess::Zero, &mut x)
                        .unwrap_or_else(|e| panic!("{e}"))
                },
                &device,
            );

            assert_eq!(device.download(&x).unwrap(), expected);
            println!(
                "{family:?} {nrows} {} {}, {nitems} items, us a solve: one {one:.2}, enqueued \
                 {enqueued:.2}, graph {graph:.2}, by the host {wall:.2}",
                options.method, options.preconditioner
            );
        }
    }
}
