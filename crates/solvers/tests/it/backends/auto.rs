//! The choice of `auto` on a GPU, and its report.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::DeviceInfo;
use sparsebatch_formats::{Csr, io};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::{
    Backend, BatchSolver, Method, Rhs, SolveError, SolveOptions, Status, SystemReport,
    choose_schemes, solve_on_executor,
};
use sparsebatch_testing::shared_dir;

use crate::backends::common::{agree, chain, dense, gpu, ragged, rhs};
use crate::common::one_step;

#[test]
fn the_report_tells_the_method_and_why() {
    let executor = Emulator::new(Order::Forward);
    // A tridiagonal matrix that converges slowly; a dense one that is strongly dominant.
    for (batch, solver, method, why) in [
        (ragged([chain::<f64>(12, 2.01)]), "banded", Method::Banded, "quicker than iterations"),
        (ragged([dense::<f64>(40, 1e6)]), "cg", Method::Cg, "symmetric with a positive diagonal"),
    ] {
        let b = rhs(&batch, 1);
        let auto = one_step();
        let mut backend_options = auto.clone();
        backend_options.method = method;
        let solution = agree(solver, &gpu(&executor), &batch, &b, None, &backend_options);
        assert!(solution.report.all_converged());

        let found = solve_on_executor(&gpu(&executor), &batch, &b, None, &auto);

        let report = found.unwrap().report;
        assert_eq!((report.scheme.name(), report.backend.name()), (solver, "gpu"));
        assert!(report.reason.contains(why), "{}", report.reason);
        assert_eq!(report.systems, solution.report.systems);
    }
}

/// Lengths are checked before anything is analysed.
#[test]
fn right_hand_sides_must_fit() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged([chain::<f64>(40, 2.5)]);
    let alternating = [1.0; 40];
    let auto = one_step();
    let rhs = Rhs { b: &alternating[1..], x0: None };
    let refused =
        BatchSolver::on_executor(&gpu(&executor), &batch, Some(rhs), &auto).err().unwrap();
    assert!(matches!(
        refused,
        SolveError::Argument(ArgumentError::Length { what: "b", expected: 40, found: 39 })
    ));
    let rhs = Rhs { b: &alternating, x0: Some(&[]) };
    let refused =
        BatchSolver::on_executor(&gpu(&executor), &batch, Some(rhs), &auto).err().unwrap();
    assert!(matches!(
        refused,
        SolveError::Argument(ArgumentError::Length { what: "x0", expected: 40, found: 0 })
    ));
}

/// Status and bits of a system are its own: for a given number of systems, neighbours, poisoned or
/// not, and their order do not matter.
#[test]
fn neighbours_do_not_matter() {
    let executor = Emulator::new(Order::Forward);
    let spd = chain::<f64>(30, 2.01);
    let mut off = spd.clone();
    off.values_mut()[1] = -0.999;
    let nan = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![f64::NAN]).unwrap();
    let (wide, zero) = (dense::<f64>(40, 1e6), chain::<f64>(5, 0.0));
    let others = [spd.clone(), off, nan, wide, zero];
    for backend in [Backend::Cpu, gpu(&executor)] {
        let mut seen: Vec<(SystemReport, Vec<u64>)> = Vec::new();
        for first in 0..others.len() {
            let matrices = [others[first].clone(), spd.clone(), others[(first + 1) % 5].clone()];
            let batch = ragged(matrices);
            let b = vec![1.0; batch.row_offset(3)];
            let options = SolveOptions::default();

            let solution = solve_on_executor(&backend, &batch, &b, None, &options).unwrap();

            let x = &solution.x[batch.row_offset(1)..batch.row_offset(2)];
            let bits = x.iter().map(|v| v.to_bits()).collect();
            seen.push((solution.report.systems[1].clone(), bits));
        }
        assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
        assert_eq!(seen[0].0.outcome.status, Status::Converged);
    }
}

/// Sets of chemistry, nuclear networks and radiation, where the data is there: `auto` takes the
/// method that was measured to be fastest.
#[test]
fn sets_of_real_matrices() {
    let Some(shared) = shared_dir() else { return };
    let info = DeviceInfo { shared_bytes_per_block: 232_448, ..DeviceInfo::default() };
    let mut others = Vec::new();
    for (set, method) in [
        ("astro/batch_alpha13.bin", Method::Lu),
        ("astro/batch_mid57.bin", Method::Lu),
        ("astro/batch_sn156.bin", Method::Lu),
        ("astro/batch_raddiff1d.bin", Method::Banded),
        ("astro/batch_raddiff2d.bin", Method::Cg),
        ("matrices/batch/lidryer.batch", Method::PivotingLu),
        ("matrices/batch/drm19.batch", Method::PivotingLu),
        ("matrices/batch/gri12.batch", Method::PivotingLu),
        ("matrices/batch/gri30.batch", Method::BiCgStab),
        ("matrices/batch/dodecane_lu.batch", Method::BiCgStab),
        ("matrices/batch/isooctane.batch", Method::Lu),
    ] {
        let systems = io::read_batch(shared.join(set)).unwrap();

        let chosen = choose_schemes(&systems.batch, &one_step(), &info);

        println!("{set}: {chosen:?}");
        if chosen[0].0.name() != method.name() {
            others.push(format!("{set}: {chosen:?}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}
