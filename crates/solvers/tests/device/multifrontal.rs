//! The sparse LU by fronts on a real GPU, compared with the CPU's: every kernel, flawed systems
//! among healthy ones, kept factors, and a graph.

use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, Executor};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, Pattern, UniformBatch};
use sparsebatch_solvers::gpu::{FrontalLu, FrontalTuning, GpuSolver, Guess};
use sparsebatch_solvers::{Method, SolveOptions, SolveScalar, Status, solve};

fn options() -> SolveOptions {
    SolveOptions::new().method(Method::Lu).fallback(false)
}

/// Grids, or rows with random entries; three systems are flawed.
fn batch<T: SolveScalar>(family: Family, n: usize, items: usize) -> (Batch<T>, Vec<T>) {
    let problem = Problem::new(family, n).unwrap();
    let pattern = problem.pattern().clone();
    let nnz = pattern.nnz();
    let (mut values, mut b) = (Vec::new(), Vec::new());
    for item in 0..items as u64 {
        problem.push_values(item, &mut values);
        problem.push_rhs(item, &mut b);
    }
    values[nnz] = f64::NAN;
    values[3 * nnz..4 * nnz].fill(0.0);
    values[5 * nnz] = f64::INFINITY;
    let cast = |all: Vec<f64>| all.into_iter().map(T::from_f64).collect::<Vec<T>>();
    let batch = UniformBatch::try_new(pattern, items, BatchValues::ItemMajor(cast(values)));
    (Batch::Uniform(batch.unwrap()), cast(b))
}

fn check<T: SolveScalar>(device: &Device, family: Family, n: usize) {
    let items = systems(150).max(7);
    let (batch, b) = batch::<T>(family, n, items);
    let Batch::Uniform(uniform) = &batch else { unreachable!() };
    let BatchValues::ItemMajor(values) = uniform.values() else { unreachable!() };
    let (values, on_b) = (device.upload(values).unwrap(), device.upload(&b).unwrap());
    let cpu = solve(&batch, &b, None, &options()).unwrap().report;
    let bits = |x: Vec<T>| x.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<u64>>();
    let mut first = None;
    for threads in [None, Some(128), Some(256), Some(512)] {
        let tuning = FrontalTuning::default().threads(threads);
        let pattern = uniform.pattern().view();
        let plan = FrontalLu::with_tuning(device, pattern, items, &options(), &tuning);
        let mut plan = plan.unwrap();
        let mut x = device.alloc_zeroed(b.len()).unwrap();
        plan.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
        let what = format!("{} {} {n} {threads:?}", T::CPP, family.name());
        let found = plan.outcomes().unwrap();
        for (system, (gpu, cpu)) in found.iter().zip(&cpu.systems).enumerate() {
            assert_eq!(gpu.status, cpu.outcome.status, "{what} {system}: {gpu:?}");
        }
        assert!(found.iter().filter(|o| o.status == Status::Converged).count() >= items - 3);
        let own = bits(device.download(&x).unwrap());
        assert_eq!(first.get_or_insert_with(|| own.clone()), &own, "{what}");
        // The same bits by kept factors, and from a graph.
        plan.factor(&values).unwrap();
        plan.solve_again(&values, &on_b, Guess::Zero, &mut x).unwrap();
        assert_eq!(bits(device.download(&x).unwrap()), own, "{what} kept");
        let graph = device
            .capture(|_| {
                plan.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
                Ok(())
            })
            .unwrap();
        // SAFETY: buffers and plan are alive until the download has waited.
        #[expect(unsafe_code, reason = "the launch of a graph")]
        unsafe { graph.launch() }.unwrap();
        assert_eq!(bits(device.download(&x).unwrap()), own, "{what} from a graph");
        plan.forget_factors();
    }
}

#[test]
fn every_kernel_ends_as_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for (family, n) in [(Family::Lap2d, 400), (Family::Rand9, 300), (Family::Lap2d, 3600)] {
        check::<f64>(&device, family, n);
        check::<f32>(&device, family, n);
    }
}
