//! What `auto` takes on a GPU, and what it says.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Csr, io};
use sparsebatch_solvers::gpu::{GpuChoice, choose_method};
use sparsebatch_solvers::{BatchSolver, Method, Rhs, SolveError, SolveOptions, solve_on_executor};
use sparsebatch_spmv_gpu::DeviceInfo;
use sparsebatch_testing::shared_dir;

use crate::backends::common::{agree, chain, dense, gpu, ragged, rhs};

#[test]
fn the_report_tells_the_method_and_why() {
    let executor = Emulator::new(Order::Forward);
    // Tridiagonal, slow to converge; dense and dominant by far.
    for (batch, solver, why) in [
        (ragged([chain::<f64>(12, 2.01)]), "lu", "ns a system by lu"),
        (ragged([dense::<f64>(40, 1e6)]), "cg", "iterations (a bound)"),
    ] {
        let b = rhs(&batch, 1);
        let auto = SolveOptions::default();
        let mut backend_options = auto.clone();
        backend_options.method = if solver == "lu" { Method::Lu } else { Method::Cg };
        let solution = agree(solver, &gpu(&executor), &batch, &b, None, &backend_options);
        assert!(solution.report.all_converged());

        let found = solve_on_executor(&gpu(&executor), &batch, &b, None, &auto);

        let report = found.unwrap().report;
        assert_eq!((report.solver, report.backend), (solver, "gpu"));
        assert!(report.reason.contains(why), "{}", report.reason);
        assert_eq!(report.systems, solution.report.systems);
    }
}

/// Known right-hand sides decide where the matrices alone say little.
#[test]
fn right_hand_sides_are_tried() {
    let executor = Emulator::new(Order::Forward);
    // Large beside the diagonal: nothing bounds BiCGStab. Its first residual is an eigenvector.
    let entry = |row: usize, col: usize| if row == col { 41.0 } else { 1.0 + (row % 2) as f64 };
    let values: Vec<f64> = (0..1600).map(|k| entry(k / 40, k % 40)).collect();
    let row_ptr = (0..=40).map(|row| row * 40).collect();
    let col_idx = (0..1600).map(|k| k % 40).collect();
    let batch = ragged([Csr::try_new(40, 40, row_ptr, col_idx, values.clone()).unwrap()]);
    let alternating: Vec<f64> = (0..40).map(|row| 1.0 + (row % 2) as f64).collect();
    let auto = SolveOptions::default();

    let solution = solve_on_executor(&gpu(&executor), &batch, &alternating, None, &auto).unwrap();
    assert_eq!(solution.report.solver, "bicgstab", "{}", solution.report.reason);
    assert_eq!(solution.report.preconditioner, "none");
    assert!(solution.report.reason.contains("(by trial)"), "{}", solution.report.reason);
    assert!(solution.report.all_converged());

    let rhs = Rhs { b: &alternating[1..], x0: None };
    let refused =
        BatchSolver::on_executor(&gpu(&executor), &batch, Some(rhs), &auto).err().unwrap();
    assert!(matches!(refused, SolveError::Length { what: "b", expected: 40, found: 39 }));
    let rhs = Rhs { b: &alternating, x0: Some(&[]) };
    let refused =
        BatchSolver::on_executor(&gpu(&executor), &batch, Some(rhs), &auto).err().unwrap();
    assert!(matches!(refused, SolveError::Length { what: "x0", expected: 40, found: 0 }));
}

/// Sets of chemistry, nuclear networks and radiation, where they are there, with their right-hand
/// sides: the method that was measured to be the quickest.
#[test]
fn sets_of_real_matrices() {
    let Some(shared) = shared_dir() else { return };
    let info = DeviceInfo { shared_bytes_per_block: 232_448, ..DeviceInfo::default() };
    let mut others = Vec::new();
    for (set, method) in [
        ("astro/batch_alpha13.bin", Method::Lu),
        ("astro/batch_mid57.bin", Method::Lu),
        ("astro/batch_sn156.bin", Method::Lu),
        ("astro/batch_raddiff1d.bin", Method::Lu),
        ("astro/batch_raddiff2d.bin", Method::Cg),
        ("matrices/batch/lidryer.batch", Method::Lu),
        ("matrices/batch/drm19.batch", Method::BiCgStab),
        ("matrices/batch/gri12.batch", Method::BiCgStab),
        ("matrices/batch/gri30.batch", Method::BiCgStab),
        ("matrices/batch/dodecane_lu.batch", Method::BiCgStab),
        ("matrices/batch/isooctane.batch", Method::Lu),
    ] {
        let systems = io::read_batch(shared.join(set)).unwrap();
        let b = systems.rhs;
        let rhs = Rhs { b: &b, x0: None };

        let choice = choose_method(&systems.batch, Some(rhs), &SolveOptions::default(), &info);

        let GpuChoice { method: found, preconditioner, reason } = choice;
        println!("{set}: {found} {preconditioner}, {reason}");
        if found != method {
            others.push(format!("{set}: {found}, {reason}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}
