//! What `auto` takes on a GPU, and what it says.

use kernel_emu::Order;
use sparsebatch_formats::io;
use sparsebatch_formats::testing::shared_dir;
use sparsebatch_solvers::gpu::choose_method;
use sparsebatch_solvers::{Method, SolveOptions};
use sparsebatch_spmv_gpu::DeviceInfo;

use crate::common::emulator::Emulator;
use crate::common::{agree, chain, dense, gpu, ragged, rhs};

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

        let found = sparsebatch_solvers::solve_on(&gpu(&executor), &batch, &b, None, &auto);

        let report = found.unwrap().report;
        assert_eq!((report.solver, report.backend), (solver, "gpu"));
        assert!(report.reason.contains(why), "{}", report.reason);
        assert_eq!(report.systems, solution.report.systems);
    }
}

/// Sets of chemistry, nuclear networks and radiation, where they are there: the method that was
/// measured to be the quickest, or LU where BiCGStab may be quicker but does not converge in trials.
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
        ("matrices/batch/gri12.batch", Method::Lu),
        ("matrices/batch/gri30.batch", Method::BiCgStab),
        ("matrices/batch/dodecane_lu.batch", Method::Lu),
        ("matrices/batch/isooctane.batch", Method::Lu),
    ] {
        let batch = io::read_batch(shared.join(set)).unwrap().batch;

        let choice = choose_method(&batch, &SolveOptions::default(), &info);

        if choice.method != method {
            others.push(format!("{set}: {}, {}", choice.method, choice.reason));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}
