//! The pivoting LU on real matrices, on singular ones and on hostile input.

use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use sparsebatch_cpu_ref::pivoting_lu::{self, PivotingLu, PivotingLuError, Singularity};
use sparsebatch_formats::{Batch, BatchOf, Csr, CsrPattern, Pattern};

fn csr(nrows: usize, dense: &[f64]) -> Csr<f64> {
    let mut row_ptr = vec![0];
    let (mut col_idx, mut values) = (Vec::new(), Vec::new());
    for row in dense.chunks(nrows) {
        for (col, &value) in row.iter().enumerate() {
            if value != 0.0 {
                col_idx.push(col as i32);
                values.push(value);
            }
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap()
}

fn singular(reason: Singularity) -> Result<(), PivotingLuError> {
    Err(PivotingLuError::Singular { reason })
}

/// The right-hand side is all ones; seven matrices are singular.
#[test]
fn small_real_matrices_are_solved_or_called_singular() {
    const SINGULAR: [&str; 7] =
        ["GD02_a", "USAir97", "dwt_607", "dwt_918", "dwt_992", "jgl011", "mbeacxc"];
    let Some(shared) = sparsebatch_testing::shared_dir() else {
        return;
    };
    let mut paths: Vec<_> = std::fs::read_dir(shared.join("matrices/small"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "mtx"))
        .collect();
    paths.sort();
    assert_eq!(paths.len(), 24);
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let a = sparsebatch_formats::io::read_matrix_market(&path).unwrap();
        let b = vec![1.0; a.nrows()];
        let mut x = vec![0.0; a.nrows()];
        let threshold = 1e-8 * (a.nrows() as f64).sqrt();

        let start = Instant::now();
        let result = pivoting_lu::solve(a.view(), &b, &mut x);

        println!("{name}: n {}, nnz {}, {:?}, {result:?}", a.nrows(), a.nnz(), start.elapsed());
        match result {
            Ok(report) => {
                let expected = SINGULAR.contains(&name);
                assert_eq!(report.is_singular(threshold), expected, "{name}");
                assert_eq!(report.is_solved(threshold), !expected, "{name}");
            }
            Err(PivotingLuError::Singular { .. }) => assert!(SINGULAR.contains(&name), "{name}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// One analysis for all systems of a network; residuals reach a few rounding errors.
#[test]
fn network_systems_reach_the_rounding_floor() {
    let Some(shared) = sparsebatch_testing::shared_dir() else {
        return;
    };
    for network in ["alpha13", "mid57", "sn156"] {
        let path = shared.join(format!("astro/batch_{network}.bin"));
        let file = sparsebatch_formats::io::read_batch(path).unwrap();
        let Batch::Uniform(batch) = &file.batch else {
            panic!("{network} is uniform");
        };
        let nrows = batch.pattern().nrows();
        let mut lu = PivotingLu::try_new(batch.pattern().view()).unwrap();
        let (mut x, mut fresh) = (vec![0.0; nrows], vec![0.0; nrows]);
        let (mut worst, mut above, mut worst_floor) = (0.0f64, 0, 0.0f64);
        let start = Instant::now();
        for item in 0..batch.nitems() {
            let a = batch.item(item);
            let b = &file.rhs[item * nrows..(item + 1) * nrows];

            let report = lu.factor_and_solve(a.values(), b, &mut x).unwrap();

            let floor: f64 = (0..nrows)
                .map(|row| {
                    let products = a
                        .pattern()
                        .row(row)
                        .map(|k| (a.values()[k] * x[a.pattern().col_idx()[k] as usize]).abs());
                    (products.sum::<f64>() + b[row].abs()).powi(2)
                })
                .sum::<f64>()
                .sqrt();
            assert!(
                report.residual_norm <= 1e-10 * report.rhs_norm
                    || report.residual_norm <= f64::EPSILON * floor,
                "{network} {item}: {report:?}"
            );
            let relative = report.residual_norm / report.rhs_norm;
            above += usize::from(relative > 1e-10);
            worst = worst.max(relative);
            worst_floor = worst_floor.max(report.residual_norm / (f64::EPSILON * floor));
            if item == batch.nitems() - 1 {
                pivoting_lu::solve(a, b, &mut fresh).unwrap();
                assert_eq!(x, fresh, "{network}: results depend on the systems before");
            }
        }
        println!(
            "{network}: {} systems, {:?}, worst relative residual {worst:e} ({above} above 1e-10), \
             {worst_floor} roundings",
            batch.nitems(),
            start.elapsed()
        );
    }
}

#[test]
fn structurally_singular_matrices_are_called_singular() {
    let cases = [
        (csr(2, &[1.0, 2.0, 0.0, 0.0]), Singularity::ZeroRow(1)),
        (csr(2, &[1.0, 0.0, 2.0, 0.0]), Singularity::ZeroColumn(1)),
    ];
    for (a, reason) in cases {
        let mut x = [7.0; 2];

        let result = pivoting_lu::solve(a.view(), &[1.0; 2], &mut x);

        assert_eq!(result.map(|_| ()), singular(reason));
        assert_eq!(x, [7.0; 2]);
    }
    // Rows 1 and 2 have their only entry in the same column.
    let a = csr(3, &[1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]);

    let result = pivoting_lu::solve(a.view(), &[1.0; 3], &mut [0.0; 3]);

    assert!(matches!(result, Err(PivotingLuError::Singular { .. })), "{result:?}");
}

#[test]
fn an_exactly_singular_matrix_has_a_zero_pivot() {
    let a = csr(2, &[1.0, 2.0, 2.0, 4.0]);

    let result = pivoting_lu::solve(a.view(), &[1.0, 1.0], &mut [0.0; 2]);

    assert_eq!(result.map(|_| ()), singular(Singularity::ZeroPivot));
}

#[test]
fn a_matrix_singular_by_rounding_is_told_by_rcond_and_residual() {
    // The third row is the sum of the first two, up to rounding.
    let a = csr(3, &[0.1, 0.7, 0.3, 0.3, 0.2, 0.9, 0.4, 0.9, 1.2]);
    let mut x = [0.0; 3];

    match pivoting_lu::solve(a.view(), &[1.0, 1.0, 5.0], &mut x) {
        Ok(report) => assert!(report.is_singular(1e-8), "{report:?}"),
        Err(error) => assert!(matches!(error, PivotingLuError::Singular { .. }), "{error}"),
    }
}

#[test]
fn badly_scaled_systems_are_equilibrated() {
    // D B D with D = diag(1e-150, 1, 1e150) and a well-conditioned B.
    let d = [1e-150, 1.0, 1e150];
    let well = [2.0, 1.0, 0.5, 1.0, 3.0, -1.0, 0.5, 1.0, 4.0];
    let scaled: Vec<f64> = (0..9).map(|k| d[k / 3] * well[k] * d[k % 3]).collect();
    let b: Vec<f64> = (0..3).map(|i| d[i] * well[3 * i..3 * i + 3].iter().sum::<f64>()).collect();
    let a = csr(3, &scaled);
    let mut x = [0.0; 3];

    let report = pivoting_lu::solve(a.view(), &b, &mut x).unwrap();

    for (x, d) in x.iter().zip(d) {
        assert!((x * d - 1.0).abs() < 1e-14, "{x} {d}");
    }
    assert!(report.rcond > 0.05, "{report:?}");
}

#[test]
fn f32_systems_are_solved_in_f64_and_rounded_once() {
    let a = csr(2, &[3.0, 1.0, 1.0, 2.0]).cast::<f32>();
    let mut x = [0f32; 2];

    let report = pivoting_lu::solve(a.view(), &[1.0, 1.0], &mut x).unwrap();

    assert_eq!(x, [0.2, 0.4]);
    // The residual is that of x rounded to f32, not of the f64 solution.
    assert!(report.residual_norm > 1e-9 && report.residual_norm < 1e-7, "{report:?}");
}

#[test]
fn bad_input_gets_one_clear_error() {
    let a = csr(2, &[3.0, 1.0, 1.0, 2.0]);
    let mut lu = PivotingLu::try_new(a.pattern().view()).unwrap();
    let mut x = [0.0; 2];
    let mut error =
        |values: &[f64], b: &[f64]| lu.factor_and_solve(values, b, &mut x).unwrap_err().to_string();

    assert_eq!(error(&[1.0; 3], &[1.0; 2]), "values has 3 entries, expected 4");
    assert_eq!(error(&[1.0; 4], &[1.0; 1]), "b has 1 entries, expected 2");
    assert_eq!(error(&[1.0, 2.0, f64::NAN, 1.0], &[1.0; 2]), "values[2] is not finite");
    assert_eq!(error(a.values(), &[1.0, f64::INFINITY]), "b[1] is not finite");
    let result = lu.factor_and_solve(a.values(), &[1.0; 2], &mut [0.0; 3]);
    assert_eq!(result.unwrap_err().to_string(), "x has 3 entries, expected 2");
    // After all these errors the analysis still works.
    assert!(lu.factor_and_solve(a.values(), &[1.0; 2], &mut x).unwrap().is_solved(1e-15));

    let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![0]).unwrap();
    let result = PivotingLu::try_new(wide.view());
    assert_eq!(result.unwrap_err(), PivotingLuError::NotSquare { nrows: 1, ncols: 2 });
}

#[test]
fn a_solution_that_overflows_f32_is_not_finite() {
    let a = csr(1, &[1e-30]).cast::<f32>();

    let result = pivoting_lu::solve(a.view(), &[1e30], &mut [0f32]);

    assert_eq!(result.unwrap_err(), PivotingLuError::NonFinite { what: "x", position: 0 });
}

#[test]
fn a_solution_that_overflows_f64_is_not_finite_rather_than_singular() {
    let a = csr(2, &[1e-200, 0.0, 0.0, 1.0]);

    let result = pivoting_lu::solve(a.view(), &[1e200, 1.0], &mut [0.0; 2]);

    assert_eq!(result.unwrap_err(), PivotingLuError::NonFinite { what: "x", position: 0 });
}

#[test]
fn an_analysis_serves_after_a_singular_system() {
    let a = csr(3, &[4.0, 1.0, 2.0, 1.0, 5.0, 1.0, 2.0, 1.0, 6.0]);
    let b = [1.0, 2.0, 3.0];
    let (mut before, mut after) = ([0.0; 3], [0.0; 3]);
    let mut lu = PivotingLu::try_new(a.pattern().view()).unwrap();

    lu.factor_and_solve(a.values(), &b, &mut before).unwrap();
    let refused = lu.factor_and_solve(&[1.0; 9], &b, &mut after);
    lu.factor_and_solve(a.values(), &b, &mut after).unwrap();

    assert_eq!(refused.map(|_| ()), singular(Singularity::ZeroPivot));
    assert_eq!(before, after);
}

#[test]
fn a_system_without_rows_is_solved() {
    let a = Csr::<f64>::zeros(0, 0).unwrap();

    let report = pivoting_lu::solve(a.view(), &[], &mut []).unwrap();

    assert!(report.is_solved(0.0));
}

/// Up to 40 rows, values from a few integers, so that exact cancellation, zero pivots, empty rows
/// and structural singularity are common; dense ones take the supernodal path.
fn any_matrix() -> impl Strategy<Value = Csr<f64>> {
    (1usize..=40, prop_oneof![Just(0.05), Just(0.2), Just(0.9)]).prop_flat_map(
        |(nrows, density)| {
            let entry = (proptest::bool::weighted(density), -2i32..=2);
            proptest::collection::vec(entry, nrows * nrows).prop_map(move |entries| {
                let mut row_ptr = vec![0];
                let (mut col_idx, mut values) = (Vec::new(), Vec::new());
                for row in entries.chunks(nrows) {
                    for (col, &(stored, value)) in row.iter().enumerate() {
                        if stored {
                            col_idx.push(col as i32);
                            values.push(f64::from(value));
                        }
                    }
                    row_ptr.push(col_idx.len() as i32);
                }
                let pattern = CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).unwrap();
                Csr::from_parts(Arc::new(pattern), values).unwrap()
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// No panic; the answer is right or the report says that it is not.
    #[test]
    fn any_matrix_is_solved_or_called_singular(a in any_matrix()) {
        let b: Vec<f64> = (0..a.nrows()).map(|row| 1.0 + row as f64).collect();
        let mut x = vec![0.0; a.nrows()];

        match pivoting_lu::solve(a.view(), &b, &mut x) {
            Ok(report) => {
                let threshold = 1e-10 * report.rhs_norm;
                prop_assert!(
                    report.is_solved(threshold) || report.is_singular(threshold),
                    "{:?}", report
                );
            }
            Err(PivotingLuError::Singular { .. }) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
