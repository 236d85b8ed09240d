//! Real systems: nuclear networks, combustion chemistry, radiation diffusion. Skipped, with the
//! reason printed, where the data is not there.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Batch, io};
use sparsebatch_solvers::Status;
use sparsebatch_solvers::gpu::LuTuning;
use sparsebatch_testing::shared_dir;

use crate::common::{Systems, on_cpu};
use crate::gpu_lu::support::{by_lu, options};

/// Some systems of a set, evenly spaced.
fn some(name: &str, count: usize) -> Option<Systems<f64>> {
    let file = io::read_batch(shared_dir()?.join(name)).unwrap();
    let Batch::Uniform(batch) = file.batch else { panic!("{name} is not uniform") };
    let items = batch.nitems();
    let x0 = vec![0.0; file.rhs.len()];
    let all = Systems { batch, b: file.rhs, x0 };
    let chosen: Vec<usize> = (0..count).map(|k| k * (items - 1) / (count - 1)).collect();
    Some(all.select(&chosen))
}

/// Every system converges by the tolerance or the floor, as promised for these sets and as on the
/// CPU.
fn all_are_solved(names: &[&str], count: usize) {
    for name in names {
        let Some(systems) = some(name, count) else { return };
        let options = options().floor(4.0);

        let gpu = by_lu(&Emulator::new(Order::Forward), &systems, &options, &LuTuning::default());

        let cpu = on_cpu(&systems, &options);
        assert_eq!(gpu.statuses(), vec![Status::Converged; count], "{name}: {:?}", gpu.outcomes);
        assert_eq!(cpu.statuses(), gpu.statuses(), "{name}");
        crate::gpu_lu::agreement::residuals_are_small(name, &systems, &gpu);
    }
}

#[test]
fn nuclear_networks_are_solved() {
    let sets = ["astro/batch_alpha13.bin", "astro/batch_mid57.bin", "astro/batch_sn156.bin"];
    all_are_solved(&sets, 7);
}

#[test]
fn chemistry_is_solved() {
    let names = ["lidryer", "drm19", "gri12", "gri30", "dodecane_lu", "isooctane"];
    let files = names.map(|name| format!("matrices/batch/{name}.batch"));
    all_are_solved(&files.each_ref().map(String::as_str), 3);
}

#[test]
fn radiation_diffusion_is_solved() {
    all_are_solved(&["astro/batch_raddiff1d.bin", "astro/batch_raddiff2d.bin"], 2);
}
