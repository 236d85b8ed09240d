//! Banded elimination on a real GPU, compared with the CPU's: every kernel, flawed systems among
//! healthy ones, and a graph.

use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, Executor};
use sparsebatch_formats::{Batch, BatchValues, Pattern, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::{BandedSolver, BandedTuning, GpuSolveError, GpuSolver, Guess};
use sparsebatch_solvers::{Method, SolveOptions, SolveScalar, Status, solve};
use sparsebatch_testing::{band_pattern, random_vector};

fn options() -> SolveOptions {
    SolveOptions::new().method(Method::Banded).fallback(false)
}

/// Diagonally dominant bands; three of them are flawed. `step`: rows and columns lie `step` apart,
/// cyclically, so that only another order makes them a band.
fn batch<T: SolveScalar>(n: usize, half: usize, step: usize, items: usize) -> (Batch<T>, Vec<T>) {
    let pattern = band_pattern(n, half, step, |_, _| true);
    let nnz = pattern.nnz();
    let mut values = random_vector::<f64>(nnz * items, n as u64);
    for item in 0..items {
        for row in 0..n {
            let entries = pattern.view().row(row);
            let sum: f64 = entries.clone().map(|k| values[item * nnz + k].abs()).sum();
            let k = pattern.view().position(row, row).unwrap();
            values[item * nnz + k] = 1.1 * sum + 0.1;
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

fn check<T: SolveScalar>(device: &Device, n: usize, half: usize, step: usize) {
    let items = systems(if n > 5000 { 20 } else { 200 }).max(8);
    let (batch, b) = batch::<T>(n, half, step, items);
    let Batch::Uniform(uniform) = &batch else { unreachable!() };
    let BatchValues::ItemMajor(values) = uniform.values() else { unreachable!() };
    let (values, on_b) = (device.upload(values).unwrap(), device.upload(&b).unwrap());
    let cpu = solve(&batch, &b, None, &options()).unwrap().report;
    let all =
        [None, Some(4), Some(8), Some(16), Some(32), Some(64), Some(128), Some(256), Some(512)];
    let in_a_block = all.map(|threads| BandedTuning::default().threads(threads));
    let in_blocks = [2, 4, 8].map(|blocks| BandedTuning::default().cluster(Some(blocks)));
    let large = BandedTuning::default().threads(Some(256)).cluster(Some(8));
    for tuning in in_a_block.into_iter().chain(in_blocks).chain([large]) {
        let pattern = uniform.pattern().view();
        let plan = BandedSolver::with_tuning(device, pattern, items, &options(), &tuning);
        let mut plan = match plan {
            // There is no such kernel.
            Err(GpuSolveError::Argument(ArgumentError::OutOfRange { .. })) => continue,
            plan => plan.unwrap(),
        };
        let mut x = device.alloc_zeroed(b.len()).unwrap();
        plan.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
        let found = plan.outcomes().unwrap();
        for (system, (gpu, cpu)) in found.iter().zip(&cpu.systems).enumerate() {
            let what = format!("{} n {n} {half} {tuning:?} {system}: {gpu:?}", T::CPP);
            assert_eq!(gpu.status, cpu.outcome.status, "{what} {:?}", cpu.outcome);
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
        assert_eq!(bits(device.download(&x).unwrap()), first, "{n} {tuning:?}");
    }
}

#[test]
fn every_tridiagonal_kernel_ends_as_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for n in [1, 2, 3, 24, 31, 32, 33, 40, 72, 100, 144, 288, 544, 1000, 2176, 4352, 5000] {
        check::<f64>(&device, n, 1, 1);
        check::<f32>(&device, n, 1, 1);
    }
}

#[test]
fn every_pentadiagonal_kernel_ends_as_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for n in [3, 31, 33, 40, 72, 100, 144, 288, 576, 1000, 2304, 3584] {
        check::<f64>(&device, n, 2, 1);
        check::<f32>(&device, n, 2, 1);
    }
}

#[test]
fn systems_with_three_and_four_diagonals_on_a_side_end_as_on_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for n in [25, 52, 88, 145, 289, 577, 2304, 4609] {
        check::<f64>(&device, n, 3, 1);
        check::<f32>(&device, n, 3, if n == 145 { 7 } else { 1 });
    }
    for n in [118, 172, 325, 577, 2304, 4609] {
        check::<f64>(&device, n, 4, if n == 172 { 7 } else { 1 });
        check::<f32>(&device, n, 4, 1);
    }
}

#[test]
fn systems_of_several_blocks_end_as_on_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    if device.info().most_blocks_of_cluster() == 1 {
        println!("skipped: {} has no clusters of blocks", device.info().name);
        return;
    }
    for (n, half, step) in [
        (6657, 1, 1),
        (8705, 1, 7),
        (17_409, 1, 1),
        (32_768, 1, 1),
        (3585, 2, 1),
        (4609, 2, 7),
        (9217, 2, 1),
        (18_433, 2, 1),
    ] {
        check::<f64>(&device, n, half, step);
        check::<f32>(&device, n, half, step);
    }
}

#[test]
fn shuffled_bands_end_as_on_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for n in [20, 100, 1000] {
        check::<f64>(&device, n, 1, 7);
        check::<f32>(&device, n, 2, 7);
    }
}
