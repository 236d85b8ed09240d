//! The GPU's solves against the CPU's, for every kernel that plans choose.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Scalar};
use sparsebatch_solvers::gpu::GpuTuning;
use sparsebatch_solvers::{Method, SolveOptions, SolveScalar, Status};

use crate::common::{METHODS, PRECONDITIONERS, Systems, compare, on_cpu, on_gpu, options};

/// The first systems of a family.
pub(crate) fn family<T: Scalar>(family: Family, nrows: usize, items: usize) -> Systems<T> {
    let generated = Problem::new(family, nrows).unwrap().batch(items).unwrap().cast::<T>();
    match generated.batch {
        Batch::Uniform(batch) => {
            let x0 = vec![T::ZERO; generated.rhs.len()];
            Systems { batch, b: generated.rhs, x0 }
        }
        Batch::Ragged(_) => unreachable!("the families are uniform"),
    }
}

fn families_agree<T: SolveScalar>() {
    let few = [(Family::Tri, 3, 9), (Family::Tri, 32, 9), (Family::Tri, 100, 3)];
    let many = [
        (Family::Tri, 1, 9),
        (Family::Tri, 13, 9),
        (Family::Tri, 32, 9),
        (Family::Tri, 50, 5),
        (Family::Tri, 128, 3),
        (Family::Tri, 200, 2),
        (Family::Tri, 512, 2),
        (Family::Tri, 1000, 1),
        (Family::Lap2d, 16, 9),
        (Family::Lap2d, 64, 5),
        (Family::Lap2d, 100, 3),
        (Family::Lap2d, 256, 3),
        (Family::Lap2d, 400, 2),
        (Family::Lap2d, 900, 1),
        (Family::Rand9, 12, 5),
        (Family::Rand9, 30, 5),
        (Family::Rand9, 54, 5),
        (Family::Rand9, 100, 3),
        (Family::Rand9, 144, 3),
        (Family::Rand9, 200, 2),
        (Family::Rand9, 512, 1),
        (Family::Rand9, 992, 1),
        (Family::Rand9, 1100, 1),
    ];
    let cases = many.map(|case| (false, case)).into_iter().chain(few.map(|case| (true, case)));
    for (few, (kind, nrows, items)) in cases {
        let tuning = GpuTuning::default().few(Some(few));
        let systems = family::<T>(kind, nrows, items);
        for (method, preconditioner) in
            METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
        {
            if method == Method::Cg && kind == Family::Rand9 {
                continue;
            }
            let options = options(method, preconditioner);
            let executor = Emulator::new(Order::Forward);
            let gpu = on_gpu(&executor, &systems, &options, &tuning);
            let cpu = on_cpu(&systems, &options);
            let what = format!("{} {} {nrows} {method} {preconditioner}", T::CPP, kind.name());
            assert!(gpu.statuses().iter().all(|&status| status == Status::Converged), "{what}");
            compare(&what, &systems, &gpu, &cpu, SolveOptions::default_rel_tol::<T>());
        }
    }
}

#[test]
fn families_agree_in_f64() {
    families_agree::<f64>();
}

#[test]
fn families_agree_in_f32() {
    families_agree::<f32>();
}
