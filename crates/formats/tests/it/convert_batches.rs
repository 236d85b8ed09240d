//! Converting a batch gives what converting its items one by one gives.

use proptest::collection::vec;
use proptest::prelude::*;
use sparsebatch_formats::convert::{FromCsr, HybOptions, HybWidth, SellPOptions, ToCsr};
use sparsebatch_formats::{
    BatchCsr, BatchOf, BatchValues, CooPattern, Csr, CsrPattern, DiaPattern, EllPattern,
    HybPattern, Matrix, RaggedBatch, RaggedCsr, SellPPattern, UniformBatch,
};
use sparsebatch_testing::csr_integers;

/// A batch of multiples of the matrix: -1, 0, 1, 2, ... times it.
fn batch_of(csr: &Csr<f64>, nitems: usize) -> BatchCsr<f64> {
    let values = (0..nitems)
        .flat_map(|item| csr.values().iter().map(move |v| v * (item as f64 - 1.0)))
        .collect();
    UniformBatch::try_new(csr.pattern().clone(), nitems, BatchValues::ItemMajor(values)).unwrap()
}

fn without_zeros(csr: &Csr<f64>) -> Vec<(i32, i32, f64)> {
    let (rows, cols) = {
        let (coo, _) = CooPattern::from_csr(csr.view().pattern(), &()).unwrap();
        (coo.row_idx().to_vec(), coo.col_idx().to_vec())
    };
    rows.into_iter()
        .zip(cols)
        .zip(csr.values())
        .filter(|&(_, &value)| value != 0.0)
        .map(|((row, col), &value)| (row, col, value))
        .collect()
}

fn check_uniform<P: FromCsr + ToCsr>(
    batch: &BatchCsr<f64>,
    options: &P::Options,
) -> Result<(), TestCaseError> {
    let converted = UniformBatch::<P, f64>::from_csr(batch, options).unwrap();
    prop_assert_eq!(converted.nitems(), batch.nitems());
    prop_assert_eq!(converted.layout(), batch.layout());
    prop_assert_eq!(converted.is_shared(), batch.is_shared());
    let back = converted.to_csr();
    for item in 0..batch.nitems() {
        let alone = Matrix::<P, f64>::from_csr(&batch.to_matrix(item), options).unwrap();
        prop_assert_eq!(converted.to_matrix(item), alone, "{}", P::NAME);
        if P::NAME == "dia" {
            let (found, expected) = (back.to_matrix(item), batch.to_matrix(item));
            prop_assert_eq!(without_zeros(&found), without_zeros(&expected));
        } else {
            prop_assert_eq!(back.to_matrix(item), batch.to_matrix(item));
        }
    }
    Ok(())
}

fn check_all(batch: &BatchCsr<f64>) -> Result<(), TestCaseError> {
    let hyb = HybOptions::default().width(HybWidth::Fixed(1));
    check_uniform::<CsrPattern>(batch, &())?;
    check_uniform::<CooPattern>(batch, &())?;
    check_uniform::<EllPattern>(batch, &Default::default())?;
    check_uniform::<DiaPattern>(batch, &Default::default())?;
    check_uniform::<HybPattern>(batch, &hyb)?;
    check_uniform::<SellPPattern>(batch, &SellPOptions::default())
}

fn check_ragged<P: FromCsr + ToCsr>(
    batch: &RaggedCsr<f64>,
    options: &P::Options,
) -> Result<(), TestCaseError> {
    let converted = RaggedBatch::<P, f64>::from_csr(batch, options).unwrap();
    prop_assert_eq!(converted.items().len(), batch.nitems());
    for (item, matrix) in converted.items().iter().enumerate() {
        let alone = Matrix::<P, f64>::from_csr(&batch.item(item).to_csr(), options).unwrap();
        prop_assert_eq!(matrix, &alone);
    }
    if P::NAME != "dia" {
        prop_assert_eq!(&converted.to_csr(), batch);
    }
    Ok(())
}

proptest! {
    #[test]
    fn uniform_batches_convert_item_by_item(csr in csr_integers(12, 12), nitems in 0usize..5) {
        let batch = batch_of(&csr, nitems);

        check_all(&batch)?;
        check_all(&batch.to_interleaved())?;
        check_all(&UniformBatch::shared(csr, nitems))?;
    }

    #[test]
    fn ragged_batches_convert_item_by_item(items in vec(csr_integers(9, 9), 0..5)) {
        let mut batch = RaggedCsr::new();
        items.iter().for_each(|csr: &Csr<f64>| batch.push(csr.view()));

        check_ragged::<CsrPattern>(&batch, &())?;
        check_ragged::<CooPattern>(&batch, &())?;
        check_ragged::<EllPattern>(&batch, &Default::default())?;
        check_ragged::<DiaPattern>(&batch, &Default::default())?;
        check_ragged::<HybPattern>(&batch, &Default::default())?;
        check_ragged::<SellPPattern>(&batch, &Default::default())?;
    }
}

/// Entry (0, 1) is zero in the first item only: a uniform batch has one pattern, so it stays.
#[test]
fn dia_batches_keep_a_slot_that_is_nonzero_in_any_item() {
    let pattern = CsrPattern::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1]).unwrap();
    let values = BatchValues::ItemMajor(vec![1.0, 0.0, 0.0, 2.0, 3.0, 0.0]);
    let batch = UniformBatch::try_new(pattern.into(), 2, values).unwrap();
    let dia = UniformBatch::<DiaPattern, f64>::from_csr(&batch, &Default::default()).unwrap();

    let back = dia.to_csr();

    assert_eq!(back.pattern().row_ptr(), [0, 2, 2]);
    assert_eq!(back.item(0).values(), [1.0, 0.0]);
    assert_eq!(back.item(1).values(), [2.0, 3.0]);
}
