use super::*;
use crate::simd::Plain;
use sparsebatch_formats::generate::{Family, Problem, Stencil, laplace};
use sparsebatch_formats::{Csr, CsrPattern, Pattern};
use std::sync::Arc;

type Lane = Plain<f64, 1>;

fn pattern_of(family: Family, nrows: usize) -> Arc<CsrPattern> {
    Problem::new(family, nrows).unwrap().pattern().clone()
}

/// A fixed sequence of distinct numbers.
fn numbers(len: usize, seed: u64) -> Vec<f64> {
    (0..len as u64)
        .map(|i| ((i + 1).wrapping_mul(seed * 2 + 0x9e37_79b9_7f4a_7c15) >> 11) as f64 / 1e15 - 4.0)
        .collect()
}

/// Symmetric values: entries `(i, j)` and `(j, i)` are equal.
fn symmetric_values(pattern: CsrPatternRef<'_>) -> Vec<f64> {
    let mut values = numbers(pattern.nnz(), 7);
    for row in 0..pattern.nrows() {
        for k in pattern.row(row) {
            let mirror = pattern.position(pattern.col_idx()[k] as usize, row).unwrap();
            values[k.max(mirror)] = values[k.min(mirror)];
        }
    }
    values
}

/// `A x` by a plain loop over CSR.
fn expected(pattern: CsrPatternRef<'_>, values: &[f64], x: &[f64]) -> Vec<f64> {
    let row = |row| {
        pattern.row(row).fold(0.0, |sum, k| values[k] * x[pattern.col_idx()[k] as usize] + sum)
    };
    (0..pattern.nrows()).map(row).collect()
}

/// `A x` computed in one lane.
fn product(matrix: &LaneMatrix, values: &[f64], x: &[f64]) -> Vec<f64> {
    let mut a = vec![Lane::zero(); matrix.nvalues()];
    assert!(matrix.store(values, 0, &mut a));
    let mut y = vec![Lane::zero(); x.len()];
    matrix.product(&a, crate::simd::plain(x), &mut y);
    crate::simd::scalars(&y).to_vec()
}

#[test]
fn products_are_those_of_csr_bit_for_bit() {
    let stencil = |stencil, grid: &[usize]| Arc::clone(laplace(stencil, grid).unwrap().pattern());
    let stencils = [
        stencil(Stencil::Point5, &[6, 9]),
        stencil(Stencil::Point7, &[7, 5, 9]),
        stencil(Stencil::Point9, &[12, 8]),
    ];
    let families = [
        pattern_of(Family::Tri, 1),
        pattern_of(Family::Tri, 2),
        pattern_of(Family::Tri, 3),
        pattern_of(Family::Tri, 131),
        pattern_of(Family::Lap2d, 49),
        pattern_of(Family::Rand9, 61),
    ];
    let mut stored_once = 0;
    for pattern in stencils.iter().chain(&families) {
        let pattern = pattern.view();
        let x = numbers(pattern.nrows(), 3);

        let values = numbers(pattern.nnz(), 5);
        let rows = product(&LaneMatrix::new(pattern), &values, &x);
        assert_eq!(rows, expected(pattern, &values, &x), "{} rows", pattern.nrows());

        if let Some(matrix) = LaneMatrix::symmetric(pattern) {
            let values = symmetric_values(pattern);
            assert!(matrix.nvalues() < pattern.nnz() || pattern.nrows() == 1);
            assert_eq!(product(&matrix, &values, &x), expected(pattern, &values, &x));
            stored_once += 1;
        }
    }
    assert!(stored_once >= 5, "only {stored_once}");
}

#[test]
fn values_that_are_not_symmetric_are_not_stored_once() {
    let pattern = pattern_of(Family::Tri, 20);
    let matrix = LaneMatrix::symmetric(pattern.view()).unwrap();
    let mut a = vec![Lane::zero(); matrix.nvalues()];
    let symmetric = symmetric_values(pattern.view());
    let changed = |k: usize, value: f64| {
        let mut values = symmetric.clone();
        values[k] = value;
        values
    };

    assert!(matrix.store(&symmetric, 0, &mut a));
    assert!(matrix.store(&changed(0, 1e9), 0, &mut a), "the diagonal has no mirror image");
    assert!(!matrix.store(&changed(1, 1e9), 0, &mut a));
    assert!(!matrix.store(&changed(pattern.nnz() - 2, 1e9), 0, &mut a));
    assert!(!matrix.store(&changed(1, f64::NAN), 0, &mut a));
}

#[test]
fn patterns_without_a_mirror_image_or_order_have_no_symmetric_form() {
    let lower = Csr::try_new(3, 3, vec![0, 1, 3, 5], vec![0, 0, 1, 1, 2], vec![1.0; 5]).unwrap();

    assert!(LaneMatrix::symmetric(lower.view().pattern()).is_none());
    assert!(LaneMatrix::symmetric(pattern_of(Family::Rand9, 61).view()).is_none());
}

#[test]
fn the_diagonal_is_found_in_both_forms() {
    let pattern = pattern_of(Family::Lap2d, 49);
    let values = symmetric_values(pattern.view());
    for matrix in [LaneMatrix::new(pattern.view()), LaneMatrix::symmetric(pattern.view()).unwrap()]
    {
        let mut a = vec![Lane::zero(); matrix.nvalues()];
        matrix.store(&values, 0, &mut a);
        for row in 0..49 {
            let k = pattern.view().position(row, row).unwrap();
            assert_eq!(a[matrix.diag(row).unwrap()].get(0), values[k]);
        }
    }
}
