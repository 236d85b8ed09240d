//! Real systems: nuclear networks, combustion chemistry, radiation diffusion. Skipped, with the reason
//! printed, where the data is not there.

use kernel_emu::Order as Threads;
use sparsebatch_formats::testing::shared_dir;
use sparsebatch_formats::{Batch, io};
use sparsebatch_solvers::gpu::FactoredTuning;
use sparsebatch_solvers::{Method, Preconditioner, SolveOptions, Status};

use crate::common::emulator::Emulator;
use crate::common::{Systems, on_cpu, options};
use crate::support::{ORDERS, by_factors};

/// Some systems of a set, spread over it.
fn some(name: &str, count: usize) -> Option<Systems<f64>> {
    let file = io::read_batch(shared_dir()?.join(name)).unwrap();
    let Batch::Uniform(batch) = file.batch else { panic!("{name} is not uniform") };
    let items = batch.nitems();
    let x0 = vec![0.0; file.rhs.len()];
    let all = Systems { batch, b: file.rhs, x0 };
    let chosen: Vec<usize> = (0..count).map(|k| k * (items - 1) / (count - 1)).collect();
    Some(all.select(&chosen))
}

/// Every system converges by BiCGStab, as on the CPU, in as many iterations to 10 % (or 2).
fn all_are_solved(names: &[&str], count: usize, preconditioner: Preconditioner) {
    for name in names {
        let Some(systems) = some(name, count) else { return };
        for order in ORDERS {
            let options = SolveOptions {
                order,
                floor: Some(4.0),
                ..options(Method::BiCgStab, preconditioner)
            };
            let executor = Emulator::new(Threads::Forward);

            let gpu = by_factors(&executor, &systems, &options, &FactoredTuning::default());

            let cpu = on_cpu(&systems, &options);
            assert_eq!(cpu.statuses(), vec![Status::Converged; count], "{name}");
            for (g, c) in gpu.outcomes.iter().zip(&cpu.outcomes) {
                let what = format!("{name} {preconditioner} {order}: {g:?} {c:?}");
                assert_eq!(g.status, Status::Converged, "{what}");
                let close = (0.1 * f64::from(c.iterations)).max(2.0);
                assert!(
                    (f64::from(g.iterations) - f64::from(c.iterations)).abs() <= close,
                    "{what}"
                );
                assert!(g.accepted_by_floor || g.residual_norm <= 1e-10 * g.rhs_norm, "{what}");
            }
        }
    }
}

#[test]
fn nuclear_networks_are_solved() {
    for preconditioner in [Preconditioner::Ilu0, Preconditioner::BlockJacobi] {
        all_are_solved(&["astro/batch_alpha13.bin"], 7, preconditioner);
    }
}

#[test]
fn chemistry_is_solved() {
    let names = ["lidryer", "drm19", "gri12", "gri30", "dodecane_lu", "isooctane"];
    let files = names.map(|name| format!("matrices/batch/{name}.batch"));
    let files = files.each_ref().map(String::as_str);
    for preconditioner in [Preconditioner::Ilu0, Preconditioner::BlockJacobi] {
        all_are_solved(&files, 3, preconditioner);
    }
}

#[test]
fn radiation_diffusion_is_solved() {
    let sets = ["astro/batch_raddiff1d.bin", "astro/batch_raddiff2d.bin"];
    all_are_solved(&sets, 2, Preconditioner::Ilu0);
}
