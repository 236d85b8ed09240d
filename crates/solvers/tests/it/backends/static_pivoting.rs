//! Systems with a zero pivot in the usual row order, on both backends.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::Csr;
use sparsebatch_solvers::{Method, Rung, Status};

use crate::backends::common::{agree, chain, gpu, patterns, ragged, rhs};
use crate::common::one_step;

/// The matrix with its rows rotated by three: row `k` is row `k + 3` of `a`.
fn rotated(a: &Csr<f64>) -> Csr<f64> {
    let n = a.nrows();
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in (0..n).map(|row| (row + 3) % n) {
        let entries = a.view().pattern().row(row);
        col_idx.extend_from_slice(&a.col_idx()[entries.clone()]);
        values.extend_from_slice(&a.values()[entries]);
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

#[test]
fn rows_are_permuted_for_the_lu_of_the_gpu() {
    let flawed = (0..8).map(|i| rotated(&chain(9 + 7 * (i % 2), 3.0 + 0.1 * i as f64)));
    let batch = ragged(patterns(4).into_iter().chain(flawed));
    let nrhs = 2;
    let b = rhs(&batch, nrhs);
    let of_system = |s: usize| if s == 11 { 0.5 } else { 1e-10 };
    let options = one_step()
        .method(Method::Lu)
        .nrhs(nrhs)
        .rel_tol((0..24).map(of_system).collect::<Vec<_>>())
        .max_iters((0..24).map(|s| if s == 13 { 0 } else { 5 }).collect::<Vec<_>>());

    let solution =
        agree("permuted", &gpu(&Emulator::new(Order::Forward)), &batch, &b, None, &options);

    let report = &solution.report;
    for (s, system) in report.systems.iter().enumerate() {
        let expected = match s {
            13 => (Status::MaxIterations, Rung::First),
            0..8 => (Status::Converged, Rung::First),
            _ => (Status::Converged, Rung::StaticPivotingLu),
        };
        assert_eq!((system.outcome.status, system.rung), expected, "system {s}");
    }
    let [first, later] = &report.runs[..] else { panic!("{:?}", report.runs) };
    assert_eq!((first.backend.name(), first.systems), ("gpu", 24));
    assert_eq!(
        (later.rung, later.backend.name(), later.systems),
        (Rung::StaticPivotingLu, "gpu", 15)
    );
    assert!(later.cpu_reason.is_none() && later.kernel.contains("lu("), "{}", later.kernel);
}
