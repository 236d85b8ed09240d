//! Conversion of systems to f32 whose numbers may exceed its range: [`Narrow`].

use sparsebatch::{Batch, BatchReport, BatchValues, SolveOptions};

/// Numbers whose binary exponent exceeds this in magnitude are scaled; the squares of smaller ones
/// stay in the range of f32.
const SAFE_EXPONENT: i32 = 20;

/// A batch in f32 and its scaling exponents. The values and the right-hand side of each system are
/// scaled by powers of two to about 1 if they are far from it: `A 2^-a (x 2^(a - b)) = b 2^-b`.
/// Within a system, numbers below 1e-38 of the largest are lost, as they are in sums with it.
pub(crate) struct Narrow {
    pub(crate) batch: Batch<f32>,
    pub(crate) b: Vec<f32>,
    pub(crate) x0: Option<Vec<f32>>,
    /// First row of each system, and the total number of rows.
    offsets: Vec<usize>,
    /// Exponents `[a, b]` of the values and of the right-hand side of each system.
    exponents: Vec<[i32; 2]>,
}

impl Narrow {
    /// Converts a batch and adapts its options: an absolute tolerance is scaled like the right-hand
    /// sides.
    pub(crate) fn new(
        batch: &Batch<f64>,
        b: &[f64],
        x0: Option<&[f64]>,
        options: &SolveOptions,
    ) -> (Self, SolveOptions) {
        let offsets: Vec<usize> = (0..=batch.nitems()).map(|item| batch.row_offset(item)).collect();
        let mut copy = Vec::new();
        let exponents: Vec<[i32; 2]> = (0..batch.nitems())
            .map(|item| {
                let of_values = match batch {
                    Batch::Uniform(uniform) if uniform.is_shared() && item > 0 => None,
                    _ => Some(exponent(batch.values_in(item, &mut copy))),
                };
                [of_values.unwrap_or(i32::MIN), exponent(&b[offsets[item]..offsets[item + 1]])]
            })
            .collect();
        // Systems with shared values have one exponent.
        let shared = exponents.first().map_or(0, |first| first[0]);
        let exponents: Vec<[i32; 2]> = exponents
            .into_iter()
            .map(|[a, b]| [if a == i32::MIN { shared } else { a }, b])
            .collect();
        let mut scaled = batch.clone();
        scale_values(&mut scaled, &exponents);
        let by_item = |v: &[f64], exponent: &dyn Fn([i32; 2]) -> i32| {
            let mut narrow = Vec::with_capacity(v.len());
            for (item, &exponents) in exponents.iter().enumerate() {
                let exponent = exponent(exponents);
                let part = &v[offsets[item]..offsets[item + 1]];
                narrow.extend(part.iter().map(|&v| by_power(v, exponent) as f32));
            }
            narrow
        };
        let mut options = options.clone();
        if exponents.iter().any(|exponents| exponents[1] != 0) {
            let of = |(system, exponents): (usize, &[i32; 2])| {
                by_power(options.abs_tol.get(system), -exponents[1])
            };
            let scaled: Vec<f64> = exponents.iter().enumerate().map(of).collect();
            if scaled.iter().any(|&tolerance| tolerance > 0.0) {
                options.abs_tol = scaled.into();
            }
        }
        let narrow = Self {
            batch: scaled.cast(),
            b: by_item(b, &|[_, b]| -b),
            x0: x0.map(|x0| by_item(x0, &|[a, b]| a - b)),
            offsets,
            exponents,
        };
        (narrow, options)
    }

    /// Scales solutions, residuals and histories back to the original systems.
    pub(crate) fn scale_back(&self, x: &mut [f64], report: &mut BatchReport) {
        for (item, (&[a, b], system)) in self.exponents.iter().zip(&mut report.systems).enumerate()
        {
            for x in &mut x[self.offsets[item]..self.offsets[item + 1]] {
                *x = by_power(*x, b - a);
            }
            let outcome = &mut system.outcome;
            let norms = [&mut outcome.residual_norm, &mut outcome.rhs_norm];
            norms
                .into_iter()
                .chain(&mut outcome.history)
                .for_each(|norm| *norm = by_power(*norm, b));
        }
    }
}

fn scale_values(batch: &mut Batch<f64>, exponents: &[[i32; 2]]) {
    let nitems = exponents.len();
    match batch {
        Batch::Ragged(ragged) => {
            let offsets = ragged.nnz_offsets().to_vec();
            let values = ragged.values_mut();
            for (item, &[exponent, _]) in exponents.iter().enumerate() {
                let of_item = &mut values[offsets[item]..offsets[item + 1]];
                of_item.iter_mut().for_each(|v| *v = by_power(*v, -exponent));
            }
        }
        Batch::Uniform(uniform) => {
            let is_interleaved = matches!(uniform.values(), BatchValues::Interleaved(_));
            let is_shared = uniform.is_shared();
            let values = uniform.values_mut();
            let nnz = if nitems == 0 || is_shared { values.len() } else { values.len() / nitems };
            for (k, value) in values.iter_mut().enumerate() {
                let item = match (is_shared, is_interleaved) {
                    (true, _) => 0,
                    (_, true) => k % nitems,
                    _ => k / nnz,
                };
                if let Some(&[exponent, _]) = exponents.get(item) {
                    *value = by_power(*value, -exponent);
                }
            }
        }
    }
}

/// The binary exponent of the largest magnitude; 0 if that is near 1, zero, or if a value is not
/// finite.
fn exponent(values: &[f64]) -> i32 {
    let largest = values.iter().fold(0.0f64, |largest, v| largest.max(v.abs()));
    if largest == 0.0 || !values.iter().all(|v| v.is_finite()) {
        return 0;
    }
    // A subnormal number has exponent -1023 by its exponent field, which is far from 1 too; scaled
    // by that it is about 1e-16.
    let exponent = ((largest.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    if exponent.abs() <= SAFE_EXPONENT { 0 } else { exponent }
}

/// `value * 2^exponent`, for any exponent, rounded where the result is subnormal.
fn by_power(value: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    let (third, rest) = (half / 2, half - half / 2);
    [third, rest, exponent - half].into_iter().fold(value, |value, e| {
        // Each factor's exponent is at most 1022 in magnitude for exponents up to 2046.
        value * 2f64.powi(e.clamp(-1022, 1022))
    })
}

#[cfg(test)]
mod tests {
    use sparsebatch::Csr;

    use super::*;

    fn diagonal(values: [f64; 2]) -> Csr<f64> {
        Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], values.to_vec()).unwrap()
    }

    #[test]
    fn systems_are_brought_into_range_and_back() {
        let batch: Batch<f64> =
            [diagonal([2.0, 2.0]), diagonal([2e200, 4e200]), diagonal([3e-310, 3e-310])]
                .into_iter()
                .collect();
        let b = [1e-50, 2e-50, 1.0, 1.0, 1e39, 0.0];
        let options = SolveOptions::new().abs_tol(1e-60);

        let (narrow, options) = Narrow::new(&batch, &b, Some(&[1.0; 6]), &options);

        assert!(narrow.b.iter().zip(&b).all(|(n, b)| (*n == 0.0) == (*b == 0.0) && n.is_finite()));
        let mut copy = Vec::new();
        let values: Vec<f32> =
            (0..3).flat_map(|item| narrow.batch.values_in(item, &mut copy).to_vec()).collect();
        assert!(values.iter().all(|v| v.is_finite() && *v != 0.0), "{values:?}");
        assert_eq!(narrow.exponents[0][0], 0);
        let tolerances = options.abs_tol.values();
        assert!((tolerances[0] / 1e-60).log2() > 150.0 && tolerances[1] == 1e-60);
    }

    #[test]
    fn powers_reach_as_far_as_numbers_do() {
        assert_eq!(by_power(by_power(3.0, 900), -900), 3.0);
        assert_eq!(by_power(2f64.powi(-1000), 2000), 2f64.powi(1000));
        assert_eq!(exponent(&[0.0, f64::NAN]), 0);
        assert_eq!(exponent(&[1e6, -1.0]), 0);
        assert_eq!(exponent(&[2f64.powi(-400)]), -400);
    }
}
