//! Batches made of perturbed copies of given matrices.

use std::sync::Arc;

use super::rng::{self, key, keyed};
use crate::error::reserve;
use crate::{
    BatchCsr, BatchValues, Csr, FormatError, Pattern, RaggedCsr, Scalar, UniformBatch, View,
};

/// A ragged batch of `nitems` copies of `matrices`: item i is matrix `mix(key(98, i)) mod count`
/// with its values v_k * (1 + 2^-20 u(97, i, k)), k the position in CSR order. Nothing is shared
/// between items; with one matrix the batch is homogeneous.
///
/// # Errors
/// [`FormatError::Parameter`] when there is no matrix but `nitems` is positive,
/// [`FormatError::Memory`] when the batch does not fit.
pub fn hetero(matrices: &[Csr<f64>], nitems: usize) -> Result<RaggedCsr<f64>, FormatError> {
    let mut batch = RaggedCsr::new();
    if nitems == 0 {
        return Ok(batch);
    }
    if matrices.is_empty() {
        return Err(FormatError::Parameter {
            name: "matrices",
            expected: "at least one matrix",
            found: "none".to_owned(),
        });
    }
    let draws = |item: u64| (rng::mix(key(98, item)) % matrices.len() as u64) as usize;
    let smallest = matrices.iter().map(Csr::bytes).min().unwrap_or(0);
    drop(reserve::<u8>("values of the batch", smallest as u128 * nitems as u128)?);
    let mut values = Vec::new();
    for item in 0..nitems as u64 {
        let matrix = &matrices[draws(item)];
        let key = key(97, item);
        let scale = 1.0 / (1u64 << 20) as f64;
        values.clear();
        values.extend(
            (0u64..).zip(matrix.values()).map(|(k, value)| value * (1.0 + scale * keyed(key, k))),
        );
        batch.push(View::new(matrix.pattern().view(), &values));
    }
    Ok(batch)
}

/// The vectors for products with a [`hetero`] batch: x, item-major, with element c of item i equal
/// to 2 u(96, i, c) - 1, and y, item-major, 0.5 everywhere.
pub fn spmv_operands<T: Scalar>(batch: &RaggedCsr<T>) -> (Vec<T>, Vec<T>) {
    let cols = batch.col_offsets();
    let rows = batch.row_offsets()[batch.nitems()];
    let mut x = Vec::with_capacity(cols[batch.nitems()]);
    for (item, range) in cols.windows(2).enumerate() {
        let key = key(96, item as u64);
        let len = (range[1] - range[0]) as u64;
        x.extend((0..len).map(|c| T::from_f64(2.0 * keyed(key, c) - 1.0)));
    }
    (x, vec![T::from_f64(0.5); rows])
}

/// `nitems` copies of a matrix as a uniform batch. Without `perturbation` the values are stored
/// once; with `(epsilon, seed)` item i has the values v_k * (1 + epsilon u), u uniform in [0, 1)
/// and drawn from `seed`, i and k.
///
/// # Errors
/// [`FormatError::Parameter`] when epsilon is not finite, [`FormatError::Memory`] when the values
/// do not fit.
pub fn replicate<T: Scalar>(
    matrix: &Csr<T>,
    nitems: usize,
    perturbation: Option<(f64, u64)>,
) -> Result<BatchCsr<T>, FormatError> {
    let Some((epsilon, seed)) = perturbation else {
        return Ok(UniformBatch::shared(matrix.clone(), nitems));
    };
    if !epsilon.is_finite() {
        return Err(FormatError::Parameter {
            name: "epsilon",
            expected: "a finite number",
            found: epsilon.to_string(),
        });
    }
    let count = matrix.nnz() as u128 * nitems as u128;
    let mut values = reserve("values of the batch", count)?;
    for item in 0..nitems as u64 {
        let key = key(rng::mix(seed), item);
        values.extend(
            (0u64..)
                .zip(matrix.values())
                .map(|(k, value)| T::from_f64(value.to_f64() * (1.0 + epsilon * keyed(key, k)))),
        );
    }
    let pattern = Arc::clone(matrix.pattern());
    UniformBatch::try_new(pattern, nitems, BatchValues::ItemMajor(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrices() -> [Csr<f64>; 2] {
        [
            Csr::try_new(1, 1, vec![0, 1], vec![0], vec![3.0]).unwrap(),
            Csr::try_new(2, 2, vec![0, 1, 2], vec![1, 0], vec![5.0, -7.0]).unwrap(),
        ]
    }

    #[test]
    fn hetero_items_are_perturbed_copies() {
        let matrices = matrices();

        let batch = hetero(&matrices, 50).unwrap();

        let mut sizes = [0; 2];
        for item in 0..50 {
            let base = &matrices[(rng::mix(key(98, item)) % 2) as usize];
            let copy = batch.item(item as usize);
            assert_eq!(copy.pattern(), base.pattern().view());
            for (k, (&found, &value)) in copy.values().iter().zip(base.values()).enumerate() {
                let factor = 1.0 + rng::uniform(97, item, k as u64) / 1_048_576.0;
                assert_eq!(found, value * factor);
            }
            sizes[base.nrows() - 1] += 1;
        }
        assert!(sizes.iter().all(|&count| count > 10), "{sizes:?}");
        let (x, y) = spmv_operands(&batch);
        assert_eq!(x.len(), sizes[0] + 2 * sizes[1]);
        assert_eq!(x[0], 2.0 * rng::uniform(96, 0, 0) - 1.0);
        assert!(y.len() == x.len() && y.iter().all(|&v| v == 0.5));
    }

    #[test]
    fn hetero_without_matrices_is_refused() {
        assert!(hetero(&[], 1).is_err());
        assert_eq!(hetero(&[], 0).unwrap().nitems(), 0);
        assert!(matches!(hetero(&matrices(), usize::MAX), Err(FormatError::Memory { .. })));
    }

    #[test]
    fn replicate_shares_or_perturbs_the_values() {
        let [_, matrix] = matrices();

        let shared = replicate(&matrix, 3, None).unwrap();
        let perturbed = replicate(&matrix, 3, Some((1e-3, 7))).unwrap();

        assert!(shared.is_shared() && shared.nitems() == 3);
        let values: Vec<f64> = (0..3).map(|i| perturbed.to_matrix(i).values()[0]).collect();
        assert!(values.iter().all(|&v| (5.0..5.005).contains(&v)));
        assert!(values[0] != values[1] && values[1] != values[2]);
        assert!(replicate(&matrix, 3, Some((f64::NAN, 7))).is_err());
    }
}
