//! Elimination with partial pivoting on a real GPU, compared with the CPU's: every kernel, flawed
//! systems among healthy ones, and a graph.

use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, Executor};
use sparsebatch_formats::{Batch, BatchValues, CsrPattern, Pattern, UniformBatch};
use sparsebatch_solvers::gpu::{DenseForm, DenseSolver, DenseTuning, GpuSolver, Guess};
use sparsebatch_solvers::{Method, SolveOptions, SolveScalar, Status, solve};
use sparsebatch_testing::random_vector;

fn options() -> SolveOptions {
    SolveOptions::new().method(Method::PivotingLu).fallback(false)
}

/// Systems of a band and some further entries, with a zero diagonal; three of them are flawed.
fn batch<T: SolveScalar>(n: usize, items: usize) -> (Batch<T>, Vec<T>) {
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..n {
        let mut cols: Vec<usize> = (0..n.min(12)).map(|k| (row + k * k) % n).collect();
        cols.sort_unstable();
        cols.dedup();
        col_idx.extend(cols.iter().map(|&col| col as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    let pattern = CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap();
    let nnz = pattern.nnz();
    let mut values = random_vector::<f64>(nnz * items, n as u64);
    for item in 0..items {
        for row in 0..n {
            let at = |col: usize| pattern.view().position(row, col).map(|k| item * nnz + k);
            if let Some(k) = at(row) {
                values[k] = if n == 1 { 1.0 } else { 0.0 };
            }
            if let Some(k) = at((row + 1) % n) {
                values[k] += 3.0 * values[k].signum();
            }
        }
    }
    if items > 5 {
        values[nnz] = f64::NAN;
        values[3 * nnz..4 * nnz].fill(0.0);
        values[5 * nnz] = f64::INFINITY;
    }
    let values = values.into_iter().map(T::from_f64).collect();
    let batch = UniformBatch::try_new(pattern.into(), items, BatchValues::ItemMajor(values));
    (Batch::Uniform(batch.unwrap()), random_vector(n * items, 5))
}

fn check<T: SolveScalar>(device: &Device) {
    for n in [1, 3, 8, 13, 16, 17, 24, 31, 40, 47, 54, 56, 57, 64] {
        let items = systems(199).max(7);
        let (batch, b) = batch::<T>(n, items);
        let Batch::Uniform(uniform) = &batch else { unreachable!() };
        let BatchValues::ItemMajor(values) = uniform.values() else { unreachable!() };
        let (values, on_b) = (device.upload(values).unwrap(), device.upload(&b).unwrap());
        let solved = solve(&batch, &b, None, &options()).unwrap();
        let (cpu_x, cpu) = (solved.x, solved.report);
        let forms = [None, Some(DenseForm::Rows)];
        let threads = [None, Some(8), Some(16), Some(32), Some(64)];
        for (form, threads) in forms.into_iter().flat_map(|form| threads.map(|of| (form, of))) {
            let tuning = DenseTuning::default().threads(threads).form(form);
            let pattern = uniform.pattern().view();
            let plan = DenseSolver::with_tuning(device, pattern, items, &options(), &tuning);
            let Ok(mut plan) = plan else {
                assert!(threads.is_some(), "{n}");
                continue;
            };
            let mut x = device.alloc_zeroed(b.len()).unwrap();
            plan.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
            let found = plan.outcomes().unwrap();
            for (system, (gpu, cpu)) in found.iter().zip(&cpu.systems).enumerate() {
                let what = format!("{} n {n} {threads:?} {system}: {gpu:?}", T::CPP);
                assert_eq!(gpu.status, cpu.outcome.status, "{what} {:?}", cpu.outcome);
            }
            // One elimination is as accurate as the CPU's, so that no refinement is needed.
            let on_host = device.download(&x).unwrap();
            for (system, gpu) in found.iter().enumerate() {
                let is_solved = gpu.status == Status::Converged;
                let most = if size_of::<T>() == 8 { 1 } else { 2 };
                assert!(!is_solved || gpu.iterations <= most, "{} n {n} {system}: {gpu:?}", T::CPP);
                if is_solved {
                    let of = |x: &[T]| x[system * n..][..n].iter().map(|x| x.to_f64()).collect();
                    let (gpu, cpu): (Vec<f64>, Vec<f64>) = (of(&on_host), of(&cpu_x));
                    let size = cpu.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                    let apart = gpu.iter().zip(&cpu).map(|(a, b)| (a - b).abs());
                    let apart = apart.fold(0.0, f64::max) / size;
                    assert!(
                        apart < 1e6 * T::EPSILON.to_f64(),
                        "{} n {n} {system}: {apart:e}",
                        T::CPP
                    );
                }
            }
            assert!(found.iter().filter(|o| o.status == Status::Converged).count() >= items - 3);
            // The same bits from a graph.
            let bits = |x: Vec<T>| x.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<u64>>();
            let first = bits(device.download(&x).unwrap());
            let graph = device
                .capture(|_| {
                    plan.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
                    Ok(())
                })
                .unwrap();
            // SAFETY: buffers and plan are alive until the download has waited.
            #[expect(unsafe_code, reason = "the launch of a graph")]
            unsafe { graph.launch() }.unwrap();
            assert_eq!(bits(device.download(&x).unwrap()), first, "{n} {threads:?}");
        }
    }
}

#[test]
fn every_kernel_ends_as_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    check::<f64>(&device);
    check::<f32>(&device);
}
