//! Round trips and products against faer.
#![cfg(feature = "faer")]

use faer::Col;
use faer::sparse::{SparseColMat, SparseRowMat, SymbolicSparseColMat, SymbolicSparseRowMat};
use proptest::prelude::*;
use sparsebatch_formats::accuracy::spmv_error;
use sparsebatch_formats::{Csr, FormatError};
use sparsebatch_testing::{csr_integers, csr_reals, random_vector};

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #[test]
    fn round_trip_keeps_every_bit(csr in csr_reals(25, 25)) {
        let rows: SparseRowMat<usize, f64> = (&csr).into();
        let columns: SparseColMat<u32, f64> = (&csr).into();

        for back in [
            Csr::try_from(&rows).unwrap(),
            Csr::try_from(rows.as_ref()).unwrap(),
            Csr::try_from(&columns).unwrap(),
            Csr::try_from(columns.as_ref()).unwrap(),
        ] {
            prop_assert_eq!(back.pattern(), csr.pattern());
            prop_assert_eq!(bits(back.values()), bits(csr.values()));
        }
    }

    #[test]
    fn their_product_is_ours(csr in csr_integers::<f64>(25, 25), seed in any::<u64>()) {
        let x: Vec<f64> = random_vector(csr.ncols(), seed);
        let theirs_x = Col::from_fn(x.len(), |i| x[i]);

        let rows = SparseRowMat::<usize, f64>::from(&csr) * &theirs_x;
        let columns = SparseColMat::<usize, f64>::from(&csr) * &theirs_x;

        for y in [rows, columns] {
            let y: Vec<f64> = (0..csr.nrows()).map(|row| y[row]).collect();
            prop_assert_eq!(spmv_error(csr.view(), &x, &y), None);
        }
    }
}

/// Room for three entries a row, of which two and one are used.
#[test]
fn unused_places_at_the_end_of_rows_are_left_out() {
    let symbolic = SymbolicSparseRowMat::new_checked(
        2,
        3,
        vec![0usize, 3, 6],
        Some(vec![2, 1]),
        vec![0, 2, 0, 1, 0, 0],
    );
    let theirs = SparseRowMat::new(symbolic, vec![1.0, 2.0, f64::NAN, 3.0, f64::NAN, f64::NAN]);

    let ours = Csr::try_from(&theirs).unwrap();

    assert_eq!(ours.row_ptr(), [0, 2, 3]);
    assert_eq!(ours.col_idx(), [0, 2, 1]);
    assert_eq!(ours.values(), [1.0, 2.0, 3.0]);
}

#[test]
fn unsorted_columns_with_duplicates_are_sorted_and_summed() {
    // Column 0 holds rows 2, 0, 2; column 1 holds row 1.
    let symbolic = SymbolicSparseColMat::new_unsorted_checked(
        3,
        2,
        vec![0usize, 3, 4],
        None,
        vec![2, 0, 2, 1],
    );
    let theirs = SparseColMat::new(symbolic, vec![1.0, 5.0, 2.0, 7.0]);

    let ours = Csr::try_from(&theirs).unwrap();

    assert_eq!(ours.row_ptr(), [0, 1, 2, 3]);
    assert_eq!(ours.col_idx(), [0, 1, 0]);
    assert_eq!(ours.values(), [5.0, 7.0, 3.0]);
}

#[test]
fn dimensions_beyond_32_bits_are_refused() {
    let symbolic = SymbolicSparseRowMat::new_checked(1, 1 << 31, vec![0usize, 0], None, vec![]);
    let theirs = SparseRowMat::<usize, f64>::new(symbolic, vec![]);

    assert!(matches!(Csr::try_from(&theirs), Err(FormatError::TooLarge { what: "ncols", .. })));
}
