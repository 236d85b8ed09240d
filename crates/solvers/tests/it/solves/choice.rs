//! The choice of `auto`, and its report.

use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::{
    BatchReport, Engine, Method, Preconditioner, SolveOptions, SpmvOptions, solve,
};

use crate::common::one_step;
use crate::solves::support::{Kind, dense, matrix, options, pattern, ragged, tridiagonal};

fn report(batch: &Batch<f64>, options: &SolveOptions) -> BatchReport {
    let b = vec![1.0; batch.row_offset(batch.nitems())];
    solve(batch, &b, None, options).unwrap().report
}

fn family(family: Family, nrows: usize) -> Batch<f64> {
    Problem::new(family, nrows).unwrap().batch(3).unwrap().batch
}

#[test]
fn auto_follows_its_rule() {
    let positive = family(Family::Lap2d, 400);
    let one = |n| match family(Family::Lap2d, n) {
        Batch::Uniform(batch) => batch.to_matrix(0),
        Batch::Ragged(_) => unreachable!("the family has one pattern"),
    };
    let mut negative: Csr<f64> = one(400);
    let last = negative.values().len() - 1;
    negative.values_mut()[last] *= -1.0;
    let mut nonsymmetric = one(400);
    nonsymmetric.values_mut()[1] = -0.999;
    let mut nan = one(400);
    nan.values_mut()[1] = f64::NAN;
    let table = [
        ("tridiagonal", family(Family::Tri, 64), "lu"),
        ("nonsymmetric, tridiagonal", tridiagonal(9, 1.0, 3.0, 0.5).into(), "lu"),
        ("grid", positive, "cg"),
        ("grid with a negative diagonal entry", negative.into(), "bicgstab"),
        ("one value off symmetry", ragged(&[one(400), nonsymmetric]), "bicgstab"),
        ("NaN", nan.into(), "bicgstab"),
        ("nonsymmetric, much fill", family(Family::Rand9, 144), "bicgstab"),
        ("no diagonal", dense(&[&[0.0, 1.0], &[1.0, 0.0]]).into(), "bicgstab"),
        ("dense, positive", matrix(&pattern(9, 1), Kind::Spd, 2).into(), "lu"),
    ];
    for (name, batch, expected) in table {
        let report = report(&batch, &one_step());

        assert_eq!(report.scheme.name(), expected, "{name}: {}", report.reason);
        let preconditioner = if expected == "lu" { "none" } else { "auto" };
        assert_eq!(report.scheme.preconditioner().name(), preconditioner, "{name}");
        assert!(!report.reason.is_empty() && report.reason != "asked for", "{name}");
        if name != "NaN" {
            assert!(report.all_converged(), "{name}: {:?}", report.systems);
        }
    }
}

#[test]
fn what_is_asked_for_is_done() {
    let batch = family(Family::Tri, 32);
    for method in [Method::Cg, Method::BiCgStab, Method::Lu] {
        let report = report(&batch, &options(method, Preconditioner::Jacobi));

        assert_eq!(report.scheme.name(), method.name());
        assert_eq!(report.reason, "asked for");
        assert_eq!((report.backend.name(), report.format), ("cpu", "csr"));
        let preconditioner = if method == Method::Lu { "none" } else { "jacobi" };
        assert_eq!(report.scheme.preconditioner().name(), preconditioner);
        assert!(report.kernel.starts_with("lanes"), "{}", report.kernel);
        assert!(report.product_cost.is_none());
    }
}

#[test]
fn the_composed_engine_tells_its_format_and_what_the_products_cost() {
    let options = one_step().engine(Engine::Composed(
        SpmvOptions::default().format(sparsebatch_solve_core::FormatChoice::Ell),
    ));

    let report = report(&family(Family::Tri, 32), &options);

    assert_eq!((report.scheme.name(), report.format), ("bicgstab", "ell"));
    assert!(report.reason.contains("no products"), "{}", report.reason);
    let cost = report.product_cost.unwrap();
    assert!(cost.products > 0 && cost.product_time > std::time::Duration::ZERO);
    assert!((0.0..=1.0).contains(&cost.share_of_solve), "{cost:?}");
}
