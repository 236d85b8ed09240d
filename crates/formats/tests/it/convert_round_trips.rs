//! Every ordered pair of formats: CSR -> P -> Q -> CSR keeps every entry bit for bit.

use proptest::prelude::*;
use sparsebatch_formats::convert::{
    DiaOptions, EllOptions, FromCsr, HybOptions, HybWidth, SellPOptions, ToCsr,
};
use sparsebatch_formats::{
    Coo, CooPattern, Csr, CsrPattern, DiaPattern, Ell, EllPattern, FormatError, HybPattern, Matrix,
    Pattern, Scalar, SellPPattern,
};
use sparsebatch_testing::{csr_integers, csr_reals};

/// The rows with the bits of the values, zeros left out if asked.
fn entries<T: Scalar>(csr: &Csr<T>, keep_zeros: bool) -> Vec<(usize, i32, u64)> {
    let pattern = csr.view().pattern();
    (0..csr.nrows())
        .flat_map(|row| pattern.row(row).map(move |k| (row, k)))
        .filter(|&(_, k)| keep_zeros || csr.values()[k] != T::ZERO)
        .map(|(row, k)| (row, csr.col_idx()[k], bits(csr.values()[k])))
        .collect()
}

fn bits<T: Scalar>(value: T) -> u64 {
    value.to_f64().to_bits()
}

fn revalidated<P: FromCsr + ToCsr>(pattern: &P) -> Result<P, FormatError> {
    let (csr, _) = pattern.to_csr(|_| true);
    CsrPattern::try_new(csr.nrows(), csr.ncols(), csr.row_ptr().to_vec(), csr.col_idx().to_vec())
        .map(|_| pattern.clone())
}

fn check<P: FromCsr + ToCsr, Q: FromCsr + ToCsr, T: Scalar>(
    csr: &Csr<T>,
    source: &P::Options,
    target: &Q::Options,
) -> Result<(), TestCaseError> {
    let keep_zeros = P::NAME != "dia" && Q::NAME != "dia";

    let first = Matrix::<P, T>::from_csr(csr, source).unwrap();
    let second: Matrix<Q, T> = first.convert(target).unwrap();
    let back = second.to_csr();

    prop_assert_eq!((back.nrows(), back.ncols()), (csr.nrows(), csr.ncols()));
    prop_assert_eq!(entries(&back, true), entries(csr, keep_zeros), "{} -> {}", P::NAME, Q::NAME);
    prop_assert!(revalidated(first.pattern().as_ref()).is_ok());
    let size = P::size_from_csr(csr.view().pattern(), source).unwrap();
    prop_assert_eq!(size.bytes::<T>(), first.bytes(), "{}", P::NAME);
    Ok(())
}

fn check_from<P: FromCsr + ToCsr, T: Scalar>(
    csr: &Csr<T>,
    source: &P::Options,
    hyb: &HybOptions,
    sellp: &SellPOptions,
) -> Result<(), TestCaseError> {
    check::<P, CsrPattern, T>(csr, source, &())?;
    check::<P, CooPattern, T>(csr, source, &())?;
    check::<P, EllPattern, T>(csr, source, &EllOptions::default())?;
    check::<P, DiaPattern, T>(csr, source, &DiaOptions::default())?;
    check::<P, HybPattern, T>(csr, source, hyb)?;
    check::<P, SellPPattern, T>(csr, source, sellp)
}

fn check_all_pairs<T: Scalar>(
    csr: &Csr<T>,
    hyb: &HybOptions,
    sellp: &SellPOptions,
) -> Result<(), TestCaseError> {
    check_from::<CsrPattern, T>(csr, &(), hyb, sellp)?;
    check_from::<CooPattern, T>(csr, &(), hyb, sellp)?;
    check_from::<EllPattern, T>(csr, &EllOptions::default(), hyb, sellp)?;
    check_from::<DiaPattern, T>(csr, &DiaOptions::default(), hyb, sellp)?;
    check_from::<HybPattern, T>(csr, hyb, hyb, sellp)?;
    check_from::<SellPPattern, T>(csr, sellp, hyb, sellp)
}

fn hyb_options() -> impl Strategy<Value = HybOptions> {
    let auto = (0usize..40, 0.0..=1.0)
        .prop_map(|(min_rows, fraction)| HybWidth::Auto { min_rows, fraction });
    let fixed = (0usize..6).prop_map(HybWidth::Fixed);
    prop_oneof![auto, fixed].prop_map(|width| HybOptions::default().width(width))
}

fn sellp_options() -> impl Strategy<Value = SellPOptions> {
    let window = proptest::option::of(1usize..50);
    (1usize..10, 1usize..5, window).prop_map(|(slice_size, threads_per_row, sort_window)| {
        SellPOptions::default()
            .slice_size(slice_size)
            .threads_per_row(threads_per_row)
            .sort_window(sort_window)
    })
}

proptest! {
    #[test]
    fn all_pairs_keep_every_f64_bit_for_bit(
        csr in csr_reals(35, 35),
        hyb in hyb_options(),
        sellp in sellp_options(),
    ) {
        check_all_pairs(&csr, &hyb, &sellp)?;
    }

    #[test]
    fn all_pairs_keep_explicit_zeros_in_f32(
        csr in csr_integers::<f32>(35, 35),
        hyb in hyb_options(),
        sellp in sellp_options(),
    ) {
        check_all_pairs(&csr, &hyb, &sellp)?;
    }

    #[test]
    fn converted_patterns_pass_their_own_validation(
        csr in csr_integers::<f32>(35, 35),
        options in hyb_options(),
        sellp in sellp_options(),
    ) {
        let pattern = csr.view().pattern();

        let (ell, _) = EllPattern::from_csr(pattern, &EllOptions::default()).unwrap();
        let (hyb, _) = HybPattern::from_csr(pattern, &options).unwrap();
        let (sellp, _) = SellPPattern::from_csr(pattern, &sellp).unwrap();
        let (coo, _) = CooPattern::from_csr(pattern, &()).unwrap();

        let slots = ell.col_idx().to_vec();
        prop_assert_eq!(
            EllPattern::try_new(ell.nrows(), ell.ncols(), ell.width(), slots).unwrap(),
            ell
        );
        prop_assert_eq!(HybPattern::try_new(hyb.ell().clone(), hyb.coo().clone()).unwrap(), hyb);
        prop_assert_eq!(
            SellPPattern::try_new(
                sellp.ncols(),
                sellp.slice_size(),
                sellp.threads_per_row(),
                sellp.slice_ptr().to_vec(),
                sellp.row_perm().to_vec(),
                sellp.col_idx().to_vec(),
            )
            .unwrap(),
            sellp
        );
        let (rows, cols) = (coo.row_idx().to_vec(), coo.col_idx().to_vec());
        prop_assert_eq!(CooPattern::try_new(coo.nrows(), coo.ncols(), rows, cols).unwrap(), coo);
    }

    #[test]
    fn padding_holds_zero(csr in csr_reals(35, 35)) {
        let ell = Ell::from_csr(&csr, &EllOptions::default()).unwrap();

        for (&col, &value) in ell.pattern().col_idx().iter().zip(ell.values()) {
            prop_assert!(col >= 0 || value.to_bits() == 0);
        }
    }

    #[test]
    fn triplets_in_any_order_give_the_same_matrix(
        csr in csr_integers::<f64>(20, 20),
        seed in any::<u64>(),
    ) {
        let coo = Coo::from(csr.clone());
        let mut order: Vec<usize> = (0..csr.nnz()).collect();
        order.sort_by_key(|&k| sparsebatch_formats::generate::rng::mix(seed ^ k as u64));
        let pick = |indices: &[i32]| order.iter().map(|&k| indices[k]).collect::<Vec<_>>();
        let values: Vec<f64> = order.iter().map(|&k| csr.values()[k]).collect();
        let (rows, cols) = (pick(coo.row_idx()), pick(coo.col_idx()));

        let shuffled =
            Csr::from_triplets(csr.nrows(), csr.ncols(), &rows, &cols, &values).unwrap();
        // Each entry twice: the sums are exact in integers.
        let (rows, cols) = ([&rows[..], &rows[..]].concat(), [&cols[..], &cols[..]].concat());
        let values: Vec<f64> = values.iter().chain(&values).copied().collect();
        let doubled = Csr::from_triplets(csr.nrows(), csr.ncols(), &rows, &cols, &values).unwrap();

        prop_assert_eq!(&shuffled, &csr);
        prop_assert_eq!(doubled.pattern(), csr.pattern());
        let twice: Vec<f64> = csr.values().iter().map(|v| 2.0 * v).collect();
        prop_assert_eq!(doubled.values(), twice);
    }

    #[test]
    fn transposing_twice_gives_the_matrix(csr in csr_reals(30, 30)) {
        let twice = csr.transpose().transpose();

        prop_assert_eq!(twice.pattern(), csr.pattern());
        prop_assert_eq!(entries(&twice, true), entries(&csr, true));
    }
}

/// A signalling NaN would be quieted by any arithmetic on the way.
#[test]
fn payloads_of_nan_survive_all_formats() {
    let nan = f32::from_bits(0x7f80_1234);
    let csr = Csr::try_new(1, 3, vec![0, 2], vec![0, 2], vec![nan, -0.0f32]).unwrap();

    let ell = Ell::from_csr(&csr, &EllOptions::default()).unwrap();
    let sellp: Matrix<SellPPattern, f32> = ell.convert(&SellPOptions::default()).unwrap();
    let hyb: Matrix<HybPattern, f32> = sellp.convert(&HybOptions::default()).unwrap();
    let back = Csr::from(Coo::from(hyb.to_csr()));

    assert_eq!(back.values()[0].to_bits(), 0x7f80_1234);
    assert_eq!(back.values()[1].to_bits(), (-0.0f32).to_bits());
}
