//! Solves by clusters against the CPU's.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Scalar};
use sparsebatch_solvers::gpu::{FusedSolver, GpuTuning, Guess, ValuePlace};
use sparsebatch_solvers::{Method, Preconditioner, SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{
    METHODS, PRECONDITIONERS, ROUNDED, Systems, compare, compare_within, on_cpu, on_gpu, options,
};
use crate::gpu_clusters::{SMALL, forced};

/// The first systems of a family.
pub(crate) fn family<T: Scalar>(family: Family, nrows: usize, items: usize) -> Systems<T> {
    let generated = Problem::new(family, nrows).unwrap().batch(items).unwrap().cast::<T>();
    let Batch::Uniform(batch) = generated.batch else { unreachable!("the families are uniform") };
    let x0 = vec![T::ZERO; generated.rhs.len()];
    Systems { batch, b: generated.rhs, x0 }
}

fn families_agree<T: SolveScalar>(shapes: &[(u32, u32, u32)]) {
    use Family::{Lap2d, Rand9, Tri};
    for &shape in shapes {
        let sizes = match shape.2 {
            2 => [(Tri, 1), (Tri, 128), (Lap2d, 100), (Rand9, 60)],
            _ => [(Tri, 300), (Lap2d, 400), (Rand9, 200), (Rand9, 512)],
        };
        for (kind, nrows) in sizes {
            let mut systems = family::<T>(kind, nrows, 3);
            // The last system starts from a guess.
            systems.x0[2 * nrows..].copy_from_slice(&random_vector(nrows, 4));
            for (method, preconditioner) in
                METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
            {
                if method == Method::Cg && kind == Rand9 {
                    continue;
                }
                let options = options(method, preconditioner);
                let cpu = on_cpu(&systems, &options);
                let by = |values| {
                    let executor = Emulator::new(Order::Forward);
                    on_gpu(&executor, &systems, &options, &forced(shape, values))
                };
                let (gpu, global) = (by(ValuePlace::Shared), by(ValuePlace::Global));
                let what = format!("{} {} {nrows} {method}", T::CPP, kind.name());
                assert_eq!(gpu.statuses(), [Status::Converged; 3], "{what}");
                let close =
                    if method == Method::Cg && T::CPP == "double" { (0.1, 2.0) } else { ROUNDED };
                for found in [&gpu, &global] {
                    let rel_tol = SolveOptions::default_rel_tol::<T>();
                    compare_within(&what, &systems, found, &cpu, rel_tol, close);
                }
            }
        }
    }
}

#[test]
fn families_agree_in_f64() {
    families_agree::<f64>(&SMALL);
}

#[test]
fn families_agree_in_f32() {
    families_agree::<f32>(&SMALL[1..]);
}

/// Tridiagonal systems of `n` rows, from x = 0.
fn chains(n: usize, items: usize) -> Systems<f64> {
    let mut systems = family::<f64>(Family::Tri, n, items);
    systems.x0.fill(0.0);
    systems
}

#[test]
fn systems_beyond_a_block_are_those_of_clusters() {
    for (n, values) in [(5000, None), (4097, Some(ValuePlace::Global))] {
        let systems = chains(n, 2);
        for method in METHODS {
            let options = options(method, Preconditioner::Jacobi).rel_tol(1e-6);
            let tuning = GpuTuning::default().values(values);
            let gpu = on_gpu(&Emulator::new(Order::Forward), &systems, &options, &tuning);

            assert!(gpu.kernel.contains("<double, 1024, 8, 0, "), "{}", gpu.kernel);
            assert!(gpu.kernel.ends_with(", 2>"), "{}", gpu.kernel);
            assert_eq!(gpu.statuses(), [Status::Converged; 2]);
            compare(&gpu.kernel, &systems, &gpu, &on_cpu(&systems, &options), 1e-6);
        }
    }
}

/// The most blocks of a cluster and the most rows of a system.
#[test]
fn the_largest_systems_are_solved() {
    let systems = chains(32_768, 1);
    let executor = Emulator::new(Order::Forward);
    let options = options(Method::Cg, Preconditioner::None).max_iters(3);
    let tuning = GpuTuning::default().values(Some(ValuePlace::Global));
    let pattern = systems.pattern();
    let mut plan =
        FusedSolver::<_, f64>::with_tuning(&executor, pattern, 1, &options, &tuning).unwrap();
    let launch = plan.explain().launches[0].clone();
    assert_eq!(launch.fused().unwrap().blocks_per_system, 8);
    assert_eq!((launch.blocks, launch.threads_per_block), (8, 512));
    let (values, b) = (executor.upload(systems.values()), executor.upload(&systems.b));
    let mut x = executor.upload(&systems.x0).unwrap();
    plan.solve(&values.unwrap(), &b.unwrap(), Guess::Zero, &mut x).unwrap();

    let (found, cpu) = (executor.download(&x).unwrap(), on_cpu(&systems, &options));
    assert_eq!(plan.outcomes().unwrap()[0].iterations, 3);
    let close = |(f, c): (&f64, &f64)| (f - c).abs() <= 1e-12 * (1.0 + c.abs());
    assert!(found.iter().zip(&cpu.x).all(close));
}
