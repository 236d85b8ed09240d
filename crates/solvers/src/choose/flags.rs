//! What the choice reads of the values of a system: [`Flags`].

use sparsebatch_formats::{CsrPatternRef, Scalar};

/// Features of the values of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Whether there are neither NaN nor infinities; otherwise the other flags are unknown.
    pub(crate) finite: bool,
    /// Equal to its transpose, value by value.
    pub(crate) symmetric: bool,
    pub(crate) diagonal: Diagonal,
    pub(crate) dominance: Dominance,
}

impl Flags {
    /// The flags of values that were not examined.
    pub(super) const UNKNOWN: Self = Self {
        finite: false,
        symmetric: false,
        diagonal: Diagonal::Mixed,
        dominance: Dominance::None,
    };

    /// Flags such that a factorisation is chosen for every matrix of a pattern if it is for these:
    /// estimates depend on the dominance, and on whether CG applies.
    pub(super) fn of_estimates() -> impl Iterator<Item = Self> {
        Dominance::LEVELS.into_iter().flat_map(|dominance| {
            let of = |symmetric| Self {
                finite: true,
                symmetric,
                diagonal: Diagonal::Positive,
                dominance,
            };
            [true, false].map(of)
        })
    }
}

/// Signs of the diagonal entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Diagonal {
    /// All are positive.
    Positive,
    /// All are negative.
    Negative,
    /// Some are zero, or not stored.
    WithZeros,
    /// Both signs.
    Mixed,
}

/// Diagonal dominance after scaling of rows and columns: a bound on the spectral radius of Jacobi's
/// iteration, `D^-1 |A - D|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dominance {
    /// At most half.
    Half,
    /// At most nine tenths.
    NineTenths,
    /// At most 0.98.
    Slight,
    /// At most 1, but for rounding: an H-matrix, unless it is singular.
    Weak,
    /// Above 1, or unknown.
    None,
}

impl Dominance {
    pub(super) const LEVELS: [Self; 5] =
        [Self::Half, Self::NineTenths, Self::Slight, Self::Weak, Self::None];

    /// The level of a bound.
    fn of(ratio: f64) -> Self {
        let [bounded @ .., _] = Self::LEVELS;
        let limit = |level: Self| level.radius() + if level == Self::Weak { 1e-12 } else { 0.0 };
        bounded.into_iter().find(|&level| ratio <= limit(level)).unwrap_or(Self::None)
    }

    /// The bound of the spectral radius.
    pub(crate) fn radius(self) -> f64 {
        match self {
            Self::Half => 0.5,
            Self::NineTenths => 0.9,
            Self::Slight => 0.98,
            Self::Weak | Self::None => 1.0,
        }
    }
}

/// Buffers of [`flags_of`]: a copy of values, and two arrays.
pub(super) type Room<T> = (Vec<T>, Vec<f64>, Vec<usize>);

/// The flags of one matrix; `sums` and `next` are buffers. Cost: one pass over its entries.
pub(super) fn flags_of<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    sums: &mut Vec<f64>,
    next: &mut Vec<usize>,
) -> Flags {
    if values.iter().any(|value| !value.to_f64().is_finite()) {
        return Flags::UNKNOWN;
    }
    let nrows = pattern.nrows();
    sums.clear();
    sums.resize(3 * nrows, 0.0);
    let (beside, rest) = sums.split_at_mut(nrows);
    let (diagonals, room) = rest.split_at_mut(nrows);
    // For each row, the next entry that has not been matched with its mirror image. Rows are
    // visited in order, so that they meet the columns of each row in order.
    next.clear();
    next.extend(pattern.row_ptr()[..nrows].iter().map(|&first| first as usize));
    let (mut symmetric, mut by_rows) = (true, 0.0f64);
    for (row, own) in diagonals.iter_mut().enumerate() {
        let mut sum = 0.0;
        for k in pattern.row(row) {
            let (col, value) = (pattern.col_idx()[k] as usize, values[k].to_f64());
            if symmetric {
                let mirror = next[col];
                symmetric = mirror < pattern.row_ptr()[col + 1] as usize
                    && pattern.col_idx()[mirror] as usize == row
                    && values[mirror] == values[k];
                next[col] += 1;
            }
            if col == row {
                *own = value;
            } else {
                sum += value.abs();
                beside[col] += value.abs();
            }
        }
        by_rows = by_rows.max(ratio(sum, *own));
    }
    let columns = beside.iter().zip(&*diagonals).map(|(&sum, &diagonal)| ratio(sum, diagonal));
    let mut radius = by_rows.min(columns.fold(0.0, f64::max));
    if Dominance::of(radius) > Dominance::Slight && radius.is_finite() {
        radius = radius.min(scaled_radius(pattern, values, (beside, room), diagonals));
    }
    let all = |is: fn(&f64) -> bool| diagonals.iter().all(is);
    let diagonal = if all(|&d| d > 0.0) {
        Diagonal::Positive
    } else if all(|&d| d < 0.0) {
        Diagonal::Negative
    } else if !all(|&d| d != 0.0) {
        Diagonal::WithZeros
    } else {
        Diagonal::Mixed
    };
    Flags { finite: true, symmetric, diagonal, dominance: Dominance::of(radius) }
}

/// A bound on the spectral radius of `M = |D^-1 (A - D)|`, the smallest of a few steps of the power
/// method: for any x > 0 the radius lies between the minimum and the maximum of `(M x)_i / x_i`.
/// Stops where more steps cannot reach another level of [`Dominance`]. `x` and `next` are
/// overwritten.
///
/// # Source
/// L. Collatz, Einschliessungssatz fuer die charakteristischen Zahlen von Matrizen, 1942,
/// doi:10.1007/BF01180013.
fn scaled_radius<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    (x, next): (&mut [f64], &mut [f64]),
    diagonals: &[f64],
) -> f64 {
    const STEPS: usize = 6;
    // This fraction of x is added in each step, so that x stays positive.
    const KEPT: f64 = 0.05;
    let mut bound = f64::INFINITY;
    x.fill(1.0);
    for _ in 0..STEPS {
        let (mut least, mut largest, mut most) = (f64::INFINITY, 0.0f64, 0.0f64);
        for (row, next) in next.iter_mut().enumerate() {
            let entries = pattern.row(row);
            let columns = &pattern.col_idx()[entries.clone()];
            let sum: f64 = columns.iter().zip(&values[entries]).fold(0.0, |sum, (&col, value)| {
                let term = value.to_f64().abs() * x[col as usize];
                sum + if col as usize == row { 0.0 } else { term }
            });
            let product = sum / diagonals[row].abs();
            let ratio = product / x[row];
            (least, largest) = (least.min(ratio), largest.max(ratio));
            *next = product + KEPT * x[row];
            most = most.max(*next);
        }
        bound = bound.min(largest);
        let is_settled = Dominance::of(least) == Dominance::of(bound);
        if is_settled || !largest.is_finite() {
            break;
        }
        x.iter_mut().zip(&*next).for_each(|(x, &next)| *x = (next / most).max(1e-200));
    }
    bound
}

fn ratio(sum: f64, diagonal: f64) -> f64 {
    if diagonal == 0.0 { f64::INFINITY } else { sum / diagonal.abs() }
}

/// Whether a matrix is symmetric without negative diagonal entries. The ladder tries CG on such
/// matrices after LU failed.
pub(crate) fn looks_semidefinite<T: Scalar>(pattern: CsrPatternRef<'_>, values: &[T]) -> bool {
    let flags = flags_of(pattern, values, &mut Vec::new(), &mut Vec::new());
    let at = |row: usize| pattern.position(row, row).map_or(T::ZERO, |k| values[k]);
    flags.symmetric && (0..pattern.nrows()).all(|row| at(row) >= T::ZERO)
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Csr;

    use super::*;

    fn flags(values: [f64; 4]) -> Flags {
        let (row_ptr, col_idx) = (vec![0, 2, 4], vec![0, 1, 0, 1]);
        let matrix = Csr::try_new(2, 2, row_ptr, col_idx, values.to_vec()).unwrap();
        flags_of(matrix.view().pattern(), matrix.values(), &mut Vec::new(), &mut Vec::new())
    }

    #[test]
    fn flags_are_seen_value_by_value() {
        let spd = flags([4.0, 1.0, 1.0, 2.0]);
        assert!(spd.finite && spd.symmetric);
        assert_eq!((spd.diagonal, spd.dominance), (Diagonal::Positive, Dominance::Half));
        assert!(!flags([2.0, 1.0, 1.5, 2.0]).symmetric);
        assert!(!flags([2.0, f64::NAN, 1.0, 2.0]).finite);
        assert_eq!(flags([-2.0, 1.0, 1.0, -2.0]).diagonal, Diagonal::Negative);
        assert_eq!(flags([2.0, 1.0, 1.0, 0.0]).diagonal, Diagonal::WithZeros);
        assert_eq!(flags([2.0, 1.0, 1.0, -2.0]).diagonal, Diagonal::Mixed);
        assert_eq!(flags([1.0, 1.0, 1.0, 1.0]).dominance, Dominance::Weak);
        assert_eq!(flags([1.0, 1.0, 1.5, 1.0]).dominance, Dominance::None);
        // By columns, where rows do not dominate.
        assert_eq!(flags([1.0, 25.0, 0.0, 100.0]).dominance, Dominance::Half);
    }
}
