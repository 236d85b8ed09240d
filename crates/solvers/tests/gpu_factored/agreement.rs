//! Solves of the GPU beside the CPU's.

use kernel_emu::Order as Threads;
use sparsebatch_formats::generate::Family;
use sparsebatch_solvers::gpu::FactoredPlace;
use sparsebatch_solvers::{Method, Preconditioner, SolveOptions};

use crate::common::emulator::Emulator;
use crate::common::{METHODS, Systems, compare, on_cpu, options};
use crate::support::{ORDERS, PRECONDITIONERS, by_factors, family, tuning};

/// The groups and places that are tried, each with a kernel of its own.
const SHAPES: [(u32, FactoredPlace); 3] = [
    (32, FactoredPlace::AllShared),
    (128, FactoredPlace::AllShared),
    (512, FactoredPlace::AllGlobal),
];

fn agree(what: &str, systems: &Systems<f64>, options: &SolveOptions) {
    let cpu = on_cpu(systems, options);
    let executor = Emulator::new(Threads::Forward);
    for (threads, place) in SHAPES {
        let gpu = by_factors(&executor, systems, options, &tuning(threads, place));
        compare(&format!("{what} {options:?}"), systems, &gpu, &cpu, 1e-10);
    }
}

#[test]
fn solves_agree_with_the_cpu() {
    for (kind, nrows) in [(Family::Tri, 33), (Family::Lap2d, 64), (Family::Rand9, 50)] {
        let systems = family::<f64>(kind, nrows, 5);
        for method in METHODS {
            for preconditioner in PRECONDITIONERS {
                // Rand9 is not symmetric.
                let unsymmetric = kind == Family::Rand9;
                if unsymmetric && (method == Method::Cg || preconditioner == Preconditioner::Ic0) {
                    continue;
                }
                for order in ORDERS {
                    let options = SolveOptions { order, ..options(method, preconditioner) };
                    agree(&format!("{kind:?} {nrows}"), &systems, &options);
                }
            }
        }
    }
}
