//! Round trips and products against nalgebra-sparse.
#![cfg(feature = "nalgebra-sparse")]

use nalgebra_sparse::{CooMatrix, CsrMatrix, na::DVector};
use proptest::prelude::*;
use sparsebatch_formats::accuracy::spmv_error;
use sparsebatch_formats::{Coo, Csr, FormatError};
use sparsebatch_testing::{csr_integers, csr_reals, random_vector};

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #[test]
    fn csr_round_trip_keeps_every_bit(csr in csr_reals(25, 25)) {
        let theirs = CsrMatrix::from(&csr);
        let back = Csr::try_from(&theirs).unwrap();

        prop_assert_eq!((theirs.nrows(), theirs.ncols()), (csr.nrows(), csr.ncols()));
        prop_assert_eq!(back.pattern(), csr.pattern());
        prop_assert_eq!(bits(back.values()), bits(csr.values()));
    }

    #[test]
    fn coo_round_trip_keeps_explicit_zeros(csr in csr_integers::<f32>(25, 25)) {
        let coo = Coo::from(csr);

        let theirs = CooMatrix::from(&coo);

        prop_assert_eq!(theirs.nnz(), coo.nnz());
        prop_assert_eq!(Coo::try_from(&theirs).unwrap(), coo);
    }

    #[test]
    fn their_product_is_ours(csr in csr_integers::<f64>(25, 25), seed in any::<u64>()) {
        let x: Vec<f64> = random_vector(csr.ncols(), seed);

        let y = CsrMatrix::from(&csr) * DVector::from_vec(x.clone());

        prop_assert_eq!(spmv_error(csr.view(), &x, y.as_slice()), None);
    }
}

#[test]
fn duplicates_of_their_coo_are_summed() {
    let mut theirs = CooMatrix::new(2, 2);
    theirs.push(1, 0, 2.0);
    theirs.push(0, 1, 5.0);
    theirs.push(1, 0, 3.0);

    let ours = Csr::try_from(&theirs).unwrap();

    assert_eq!(ours.row_ptr(), [0, 1, 2]);
    assert_eq!(ours.col_idx(), [1, 0]);
    assert_eq!(ours.values(), [5.0, 5.0]);
}

#[test]
fn dimensions_beyond_32_bits_are_refused() {
    let theirs = CooMatrix::<f64>::new(1, 1 << 31);

    assert!(matches!(Csr::try_from(&theirs), Err(FormatError::TooLarge { what: "ncols", .. })));
}
