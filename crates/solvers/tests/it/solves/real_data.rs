//! Real systems: combustion chemistry, nuclear networks, radiation diffusion, and small matrices of
//! the SuiteSparse collection. Skipped, with the reason printed, where the data is not there.

use sparsebatch_formats::io::{LoadOptions, Loaded, load};
use sparsebatch_formats::{Batch, io};
use sparsebatch_solvers::{Method, Preconditioner, Rung, Solution, Status, solve};
use sparsebatch_testing::{read_xref, shared_dir};

use crate::common::one_step;
use crate::solves::support::{options, residual_norm};

/// A batch file and its right-hand sides.
pub(crate) fn read(name: &str) -> Option<(Batch<f64>, Vec<f64>)> {
    let file = io::read_batch(shared_dir()?.join(name)).unwrap();
    Some((file.batch, file.rhs))
}

/// Recomputes every true residual; returns the largest relative one.
fn check_residuals(batch: &Batch<f64>, b: &[f64], solution: &Solution<f64>) -> f64 {
    let mut largest = 0.0f64;
    for (item, system) in solution.report.systems.iter().enumerate() {
        let rows = batch.rows(item);
        let mut values = Vec::new();
        batch.copy_values(item, &mut values);
        let pattern = std::sync::Arc::new(batch.pattern(item).to_pattern());
        let a = sparsebatch_formats::Matrix::from_parts(pattern, values).unwrap();
        let (b, x) = (&b[rows.clone()], &solution.x[rows]);
        let norm = residual_norm(&a, b, x);
        let rounding = 64.0 * f64::EPSILON * crate::solves::support::magnitude(&a, b, x);
        let outcome = &system.outcome;
        assert!((norm - outcome.residual_norm).abs() <= rounding, "{item}: {norm} {outcome:?}");
        largest = largest.max(outcome.relative_residual());
    }
    largest
}

#[test]
fn chemistry_converges_with_bicgstab_and_jacobi() {
    for name in ["lidryer", "drm19", "gri12", "gri30", "dodecane_lu", "isooctane"] {
        let Some((batch, b)) = read(&format!("matrices/batch/{name}.batch")) else {
            return;
        };

        let options = options(Method::BiCgStab, Preconditioner::Jacobi);
        let solution = solve(&batch, &b, None, &options).unwrap();

        let report = &solution.report;
        assert!(report.all_converged(), "{name}: {:?}", report.status_counts());
        assert!(check_residuals(&batch, &b, &solution) <= 1e-10, "{name}");
        assert_eq!(report.rung_counts(), [(Rung::First, batch.nitems())], "{name}");
    }
}

#[test]
fn nuclear_networks_converge_with_the_ladder_and_a_floor() {
    for name in ["alpha13", "mid57", "sn156"] {
        let Some((batch, b)) = read(&format!("astro/batch_{name}.bin")) else {
            return;
        };
        for (method, preconditioner) in
            [(Method::Auto, Preconditioner::Auto), (Method::BiCgStab, Preconditioner::Jacobi)]
        {
            let mut options = options(method, preconditioner);
            (options.fallback, options.floor) = (true, Some(4.0));

            let solution = solve(&batch, &b, None, &options).unwrap();

            let report = &solution.report;
            assert!(report.all_converged(), "{name} {method}: {:?}", report.status_counts());
            check_residuals(&batch, &b, &solution);
            for system in &report.systems {
                let outcome = &system.outcome;
                assert!(outcome.accepted_by_floor || outcome.relative_residual() <= 1e-10);
            }
            // The floor is relative to |A||x|: the worst system has a condition number of 4e13.
            let worst = report.max_relative_residual().unwrap();
            assert!(worst <= 1e-7, "{name} {method}: {worst}");
        }
    }
}

/// alpha13 is well enough conditioned (condition numbers up to 6e8) for its solutions to be
/// compared.
#[test]
fn the_lu_agrees_with_the_reference_solutions_of_alpha13() {
    let Some((batch, b)) = read("astro/batch_alpha13.bin") else {
        return;
    };
    let reference = read_xref(shared_dir().unwrap().join("astro/xref_alpha13.bin")).unwrap();

    let solution = solve(&batch, &b, None, &options(Method::Lu, Preconditioner::Auto)).unwrap();

    for (x, expected) in solution.x.chunks(reference.nrows).zip(reference.x.chunks(reference.nrows))
    {
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let difference: Vec<f64> = x.iter().zip(expected).map(|(a, b)| a - b).collect();
        assert!(norm(&difference) <= 1e-6 * norm(expected));
    }
}

#[test]
fn radiation_diffusion_converges_with_cg() {
    for (name, preconditioner) in
        [("raddiff1d", Preconditioner::IC0), ("raddiff2d", Preconditioner::Jacobi)]
    {
        let Some((batch, b)) = read(&format!("astro/batch_{name}.bin")) else {
            return;
        };

        let solution = solve(&batch, &b, None, &options(Method::Cg, preconditioner)).unwrap();

        let report = &solution.report;
        assert!(report.all_converged(), "{name}: {:?}", report.status_counts());
        assert!(check_residuals(&batch, &b, &solution) <= 1e-10, "{name}");
        let (_, _, most) = report.iterations();
        // As the data's own study counts them.
        assert!(most <= if name == "raddiff1d" { 3 } else { 250 }, "{name}: {most}");
    }
}

const SINGULAR: [&str; 7] =
    ["GD02_a", "USAir97", "dwt_607", "dwt_918", "dwt_992", "jgl011", "mbeacxc"];

fn small() -> Option<Loaded> {
    Some(load(&[shared_dir()?.join("matrices/small")], LoadOptions::default()).unwrap())
}

#[test]
fn of_the_small_matrices_all_but_the_singular_ones_are_solved() {
    let Some(loaded) = small() else { return };
    let b = vec![1.0; loaded.batch.row_offset(loaded.batch.nitems())];
    let first_options = one_step().rel_tol(1e-8);
    let first = solve(&loaded.batch, &b, None, &first_options).unwrap();
    let options = first_options.fallback(true);

    let solution = solve(&loaded.batch, &b, None, &options).unwrap();

    assert_eq!(loaded.batch.nitems(), 24);
    check_residuals(&loaded.batch, &b, &solution);
    let mut singular = 0;
    for (i, name) in loaded.names.iter().enumerate() {
        let outcome = &solution.report.systems[i].outcome;
        let solved = outcome.status == Status::Converged && outcome.relative_residual() <= 1e-8;
        if SINGULAR.iter().any(|singular| name.contains(singular)) {
            singular += 1;
            assert!(solved || outcome.status == Status::Singular, "{name}: {outcome:?}");
        } else {
            assert!(solved, "{name}: {outcome:?}");
        }
        // The ladder adds iterations to those of the first rung, and makes no residual worse.
        let before = &first.report.systems[i].outcome;
        assert!(outcome.iterations >= before.iterations, "{name}");
        let no_worse = outcome.residual_norm <= before.residual_norm
            || outcome.status == Status::Converged
            || before.residual_norm.is_nan();
        assert!(no_worse, "{name}: {before:?}, {outcome:?}");
        if before.status == Status::Converged {
            assert_eq!(outcome, before, "{name}");
        }
    }
    assert_eq!(singular, 7);
}

#[test]
fn without_the_ladder_the_small_matrices_are_told_apart_honestly() {
    let Some(loaded) = small() else { return };
    let b = vec![1.0; loaded.batch.row_offset(loaded.batch.nitems())];
    for method in [Method::Auto, Method::BiCgStab, Method::Cg, Method::Lu] {
        let mut options = options(method, Preconditioner::Auto);
        options.max_iters = 300.into();

        let solution = solve(&loaded.batch, &b, None, &options).unwrap();

        check_residuals(&loaded.batch, &b, &solution);
        for system in &solution.report.systems {
            let outcome = &system.outcome;
            let passed = outcome.residual_norm <= 1e-10 * outcome.rhs_norm;
            assert_eq!(outcome.status == Status::Converged, passed, "{method}: {outcome:?}");
        }
    }
}
