//! A pin makes a larger GPU plan as a smaller one.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{DeviceInfo, Executor};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::{Backend, PlanPin, Solution, SolveOptions, solve_on_executor};

use super::common::gpu;

/// Shared memory for the factors of small systems only.
fn small() -> Emulator {
    let large = Emulator::new(Order::Forward).info().clone();
    let info = DeviceInfo { shared_bytes_per_block: 24_576, multiprocessors: 5, ..large };
    Emulator::with_info(info, Order::Forward)
}

fn bits(solution: &Solution<f64>) -> Vec<u64> {
    solution.x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_pinned_backend_makes_the_bits_of_the_gpu_of_the_pin() {
    let [small, large] = [small(), Emulator::new(Order::Forward)].map(|executor| gpu(&executor));
    let text = PlanPin::of(&small).to_string();
    let pinned = large.pinned(&text.parse().unwrap()).unwrap();
    let tri = Problem::new(Family::Tri, 200).unwrap().batch(3).unwrap().batch;
    let mut differ = 0;
    for batch in [tri, Batch::from(nearly_full(70))] {
        let b: Vec<f64> =
            (0..batch.row_offset(batch.nitems())).map(|row| 1.0 + (row % 7) as f64).collect();
        let solve = |backend: &Backend<Emulator>| {
            let options = SolveOptions::new().rel_tol(1e-6);
            solve_on_executor(backend, &batch, &b, None, &options).unwrap()
        };
        let (there, here, without) = (solve(&small), solve(&pinned), solve(&large));

        assert!(there.report.all_converged());
        assert_eq!(bits(&here), bits(&there));
        assert_eq!(here.report.runs[0].kernel, there.report.runs[0].kernel);
        differ += usize::from(bits(&without) != bits(&there));
    }
    assert_eq!(differ, 1, "the pin decides for the second batch");
}

/// A full matrix whose factors do not fit the smaller GPU, without dominance.
fn nearly_full(n: usize) -> Csr<f64> {
    let row_ptr = (0..=n).map(|row| (row * n) as i32).collect();
    let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
    let value = |k: usize| if k / n == k % n { 60.0 } else { 1.0 + 0.01 * (k % 13) as f64 };
    Csr::try_new(n, n, row_ptr, col_idx, (0..n * n).map(value).collect()).unwrap()
}
