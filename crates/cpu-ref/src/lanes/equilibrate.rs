//! Factors in f32 within f64 solves: the scaling that keeps them in range, and their storage.

use crate::simd::{Single, Stored, Vector, scalars, scalars_mut};
use sparsebatch_formats::Scalar;
use sparsebatch_solve_core::symbolic::NO_SOURCE;

/// Bound on the magnitude of exponents, so that the powers of two can be inverted.
const MOST: i32 = 1000;

/// Marks a value without exponent: zero, NaN or infinite.
const NONE: i32 = -10_000;

/// An entry of the matrix to factorise: its row, its column and the index of its value in A.
pub(super) type Entry = (u32, u32, u32);

/// Powers of two that scale the rows and columns of a matrix to entries of about 1, lane by lane.
///
/// The scaling changes no digit of the factors. It keeps factors within the range of f32 when only
/// the units of the unknowns or of the system would take them out of it.
pub(super) struct Scales<V> {
    pub(super) rows: Vec<V>,
    pub(super) columns: Vec<V>,
    row_exponents: Vec<i32>,
    column_exponents: Vec<i32>,
}

impl<V: Vector> Scales<V> {
    fn new(nrows: usize) -> Self {
        let (one, none) = (vec![V::zero(); nrows], vec![NONE; nrows * V::LANES]);
        let (rows, columns) = (one.clone(), one);
        Self { rows, columns, row_exponents: none.clone(), column_exponents: none }
    }

    /// Scales by the largest entry of each column, then of each row: the units of equations affect
    /// residuals, those of unknowns affect nothing.
    pub(super) fn equilibrate(&mut self, a: &[V], entries: impl Iterator<Item = Entry> + Clone) {
        let (rows, columns) = (&mut self.row_exponents, &mut self.column_exponents);
        rows.fill(NONE);
        columns.fill(NONE);
        let entries = entries.filter(|entry| entry.2 != NO_SOURCE);
        for (_, column, source) in entries.clone() {
            let most = &mut columns[column as usize * V::LANES..][..V::LANES];
            for (most, &value) in most.iter_mut().zip(lanes_of(a, source)) {
                *most = exponent(value).max(*most);
            }
        }
        for (row, column, source) in entries {
            let column = &columns[column as usize * V::LANES..][..V::LANES];
            let most = &mut rows[row as usize * V::LANES..][..V::LANES];
            for ((most, &column), &value) in most.iter_mut().zip(column).zip(lanes_of(a, source)) {
                let own = exponent(value);
                *most = if own == NONE { *most } else { (own - column).max(*most) };
            }
        }
        self.set_powers();
    }

    /// Scales rows and columns alike, by the square roots of the diagonal entries.
    pub(super) fn equilibrate_symmetric(&mut self, a: &[V], diagonal: impl Iterator<Item = Entry>) {
        let (rows, columns) = (&mut self.row_exponents, &mut self.column_exponents);
        rows.fill(NONE);
        for (row, _, source) in diagonal.filter(|entry| entry.2 != NO_SOURCE) {
            let own = &mut rows[row as usize * V::LANES..][..V::LANES];
            for (own, &value) in own.iter_mut().zip(lanes_of(a, source)) {
                let exponent = exponent(value);
                *own = if exponent == NONE { NONE } else { exponent >> 1 };
            }
        }
        columns.copy_from_slice(rows);
        self.set_powers();
    }

    fn set_powers(&mut self) {
        let power = |exponent: i32| {
            let exponent = if exponent == NONE { 0 } else { exponent.max(-MOST) };
            V::Scalar::from_f64(f64::from_bits(((1023 - exponent) as u64) << 52))
        };
        for (powers, exponents) in
            [(&mut self.rows, &self.row_exponents), (&mut self.columns, &self.column_exponents)]
        {
            for (to, &exponent) in scalars_mut(powers).iter_mut().zip(exponents) {
                *to = power(exponent);
            }
        }
    }

    /// An entry of the scaled matrix. The row's power is applied first: it is at least 1, so an
    /// entry that is small only within its column is kept.
    #[inline(always)]
    pub(super) fn scale(&self, value: V, row: u32, column: u32) -> V {
        value.mul(self.rows[row as usize]).mul(self.columns[column as usize])
    }
}

/// Scales `value`, an element of the right-hand side, by the power of its row; `None`: unscaled.
#[inline(always)]
pub(super) fn by_row<V: Vector>(scales: Option<&Scales<V>>, row: u32, value: V) -> V {
    match scales {
        Some(scales) => value.mul(scales.rows[row as usize]),
        None => value,
    }
}

/// Converts `value`, an unknown of the scaled system, to the original system; `None`: unscaled.
#[inline(always)]
pub(super) fn by_column<V: Vector>(scales: Option<&Scales<V>>, column: u32, value: V) -> V {
    match scales {
        Some(scales) => value.mul(scales.columns[column as usize]),
        None => value,
    }
}

#[inline(always)]
fn lanes_of<V: Vector>(a: &[V], source: u32) -> &[V::Scalar] {
    scalars(std::slice::from_ref(&a[source as usize]))
}

#[inline(always)]
fn exponent<T: Scalar>(value: T) -> i32 {
    let value = value.to_f64();
    if value == 0.0 || !value.is_finite() {
        return NONE;
    }
    ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).clamp(-MOST, MOST)
}

/// The factors of a group's scaled matrices, stored in f32.
pub(super) struct Rounded<V: Vector> {
    pub(super) scales: Scales<V>,
    pub(super) entries: Vec<Single<V>>,
    pub(super) inverse_diagonal: Vec<Single<V>>,
}

impl<V: Vector> Rounded<V> {
    pub(super) fn new(nrows: usize, entries: usize, inverse_diagonal: usize) -> Self {
        let zeros = |count| vec![Single::new(V::zero()); count];
        Self {
            scales: Scales::new(nrows),
            entries: zeros(entries),
            inverse_diagonal: zeros(inverse_diagonal),
        }
    }

    /// Rounds the factors. Returns the lanes in which a factor is not finite in f32, one bit each.
    #[inline(always)]
    pub(super) fn round(&mut self, entries: &[V], inverse_diagonal: &[V]) -> u32 {
        round_all(&mut self.entries, entries)
            | round_all(&mut self.inverse_diagonal, inverse_diagonal)
    }
}

#[inline(always)]
fn round_all<V: Vector>(rounded: &mut [Single<V>], values: &[V]) -> u32 {
    let mut beyond = 0;
    for (to, &from) in rounded.iter_mut().zip(values) {
        *to = Single::new(from);
        let back = to.load();
        beyond |= !back.sub(back).le(V::zero());
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Plain;

    /// [2^900 2^-700; 2^-100 0], then the same with NaN and infinity.
    #[test]
    fn rows_and_columns_are_scaled_to_one_whatever_their_units() {
        let two = |exponent| 2f64.powi(exponent);
        let a = [[two(900), 1.0], [two(-700), f64::NAN], [two(-100), f64::INFINITY], [0.0, -6.0]];
        let a = a.map(Plain::<f64, 2>::from_lanes);
        let entries = [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)];
        let mut scales = Scales::new(2);

        scales.equilibrate(&a, entries.into_iter());

        let scaled = entries.map(|(row, column, k)| scales.scale(a[k as usize], row, column));
        let lane = |lane| scaled.map(|v| v.get(lane));
        assert_eq!(lane(0), [1.0, 1.0, 1.0, 0.0]);
        let [one, nan, infinite, six] = lane(1);
        assert_eq!((one, infinite, six), (1.0, f64::INFINITY, -1.5));
        assert!(nan.is_nan());
    }

    #[test]
    fn what_f32_cannot_hold_is_told_lane_by_lane() {
        let values = [[1.0, 1e39], [1e-60, 1.0]].map(Plain::<f64, 2>::from_lanes);
        let mut rounded = Rounded::new(2, 2, 2);

        assert_eq!(rounded.round(&values, &[values[1]; 2]) & 3, 0b10);
        assert_eq!(rounded.entries[1].load().get(0), 0.0);
        assert_eq!(rounded.round(&[values[1]; 2], &[values[1], values[0]]) & 3, 0b10);
    }
}
