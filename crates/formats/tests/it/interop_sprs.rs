//! Round trips and products against sprs.
#![cfg(feature = "sprs")]

use proptest::prelude::*;
use sparsebatch_formats::accuracy::spmv_error;
use sparsebatch_formats::{Csr, FormatError};
use sparsebatch_testing::{csr_integers, csr_reals, random_vector};
use sprs::{CsMat, CsMatI};

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #[test]
    fn round_trip_keeps_every_bit(csr in csr_reals(25, 25)) {
        let wide: CsMat<f64> = (&csr).into();
        let narrow: CsMatI<f64, i32> = (&csr).into();

        for back in [Csr::try_from(&wide).unwrap(), Csr::try_from(&narrow).unwrap()] {
            prop_assert_eq!(back.pattern(), csr.pattern());
            prop_assert_eq!(bits(back.values()), bits(csr.values()));
        }
    }

    #[test]
    fn column_storage_and_other_index_types_are_read(csr in csr_integers::<f32>(25, 25)) {
        let theirs: CsMat<f32> = (&csr).into();
        let columns = theirs.to_csc();
        let other: CsMatI<f32, u16, u64> = theirs.to_other_types();

        prop_assert!(!columns.is_csr());
        prop_assert_eq!(&Csr::try_from(&columns).unwrap(), &csr);
        prop_assert_eq!(&Csr::try_from(&columns.view()).unwrap(), &csr);
        prop_assert_eq!(&Csr::try_from(&other).unwrap(), &csr);
        // Their transposed view has the other storage and no new arrays.
        prop_assert_eq!(Csr::try_from(&theirs.transpose_view()).unwrap(), csr.transpose());
    }

    #[test]
    fn their_product_is_ours(csr in csr_integers::<f64>(25, 25), seed in any::<u64>()) {
        let x: Vec<f64> = random_vector(csr.ncols(), seed);
        let mut y = vec![0.0; csr.nrows()];
        let theirs: CsMat<f64> = (&csr).into();

        sprs::prod::mul_acc_mat_vec_csr(theirs.view(), x.as_slice(), y.as_mut_slice());

        prop_assert_eq!(spmv_error(csr.view(), &x, &y), None);
    }
}

#[test]
fn row_slices_start_at_zero_again() {
    // [1 2; 0 3; 4 0]
    let values = vec![1.0, 2.0, 3.0, 4.0];
    let theirs = CsMat::new((3, 2), vec![0, 2, 3, 4], vec![0, 1, 1, 0], values);

    let ours = Csr::try_from(&theirs.slice_outer(1..3)).unwrap();

    assert_eq!(ours.row_ptr(), [0, 1, 2]);
    assert_eq!(ours.col_idx(), [1, 0]);
    assert_eq!(ours.values(), [3.0, 4.0]);
}

#[test]
fn dimensions_beyond_32_bits_are_refused() {
    let theirs: CsMat<f64> = CsMat::zero((1, 1 << 31));

    assert!(matches!(Csr::try_from(&theirs), Err(FormatError::TooLarge { what: "ncols", .. })));
}
