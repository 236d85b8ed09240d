//! Adversarial systems, about which solvers may be wrong.

use std::sync::Arc;

use sparsebatch::generate::rng;
use sparsebatch::{Csr, CsrPattern, Scalar};

/// A family of systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Strictly diagonally dominant.
    Dominant,
    /// Symmetric positive definite.
    Positive,
    /// Diagonally dominant with permuted rows.
    Permuted,
    /// Singular: small integers, one row a combination of others.
    Singular,
    /// Singular as above, with a right-hand side in the range of the matrix.
    Consistent,
    /// Laplacians of graphs, whose rows sum to 0.
    Laplacian,
    /// Equations and unknowns in very different units.
    Graded,
    /// Symmetric indefinite.
    Indefinite,
    /// With NaN and infinities.
    Poisoned,
    /// With all numbers very large or very small.
    Extreme,
    /// With rows and columns that have no nonzero entry.
    Empty,
    /// Nearly singular.
    Near,
}

/// Every family.
pub const FAMILIES: [Family; 12] = [
    Family::Dominant,
    Family::Positive,
    Family::Permuted,
    Family::Singular,
    Family::Consistent,
    Family::Laplacian,
    Family::Graded,
    Family::Indefinite,
    Family::Poisoned,
    Family::Extreme,
    Family::Empty,
    Family::Near,
];

impl Family {
    /// The name of the family.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dominant => "dominant",
            Self::Positive => "positive",
            Self::Permuted => "permuted",
            Self::Singular => "singular",
            Self::Consistent => "consistent",
            Self::Laplacian => "laplacian",
            Self::Graded => "graded",
            Self::Indefinite => "indefinite",
            Self::Poisoned => "poisoned",
            Self::Extreme => "extreme",
            Self::Empty => "empty",
            Self::Near => "near singular",
        }
    }
}

/// A system with its right-hand side and initial guess.
#[derive(Clone, Debug)]
pub struct System<T> {
    /// The family of the system.
    pub family: Family,
    /// The square matrix.
    pub matrix: Csr<T>,
    /// The right-hand side.
    pub b: Vec<T>,
    /// The initial guess.
    pub x0: Vec<T>,
}

/// A random number generator (its state).
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        rng::mix(self.0)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// A number in [-1, 1).
    fn number(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn integer(&mut self) -> f64 {
        self.below(9) as f64 - 4.0
    }
}

/// The system that a seed defines.
pub(super) fn system<T: Scalar>(seed: u64) -> System<T> {
    let mut draw = Draw(seed);
    let family = FAMILIES[draw.below(FAMILIES.len())];
    let n = match family {
        Family::Singular | Family::Consistent => 2 + draw.below(5),
        _ => 1 + draw.below(24),
    };
    let mut a = entries(family, n, &mut draw);
    let solution: Vec<f64> = (0..n).map(|_| draw.number()).collect();
    let times = |a: &[Vec<f64>], x: &[f64]| -> Vec<f64> {
        a.iter().map(|row| row.iter().zip(x).map(|(a, x)| a * x).sum()).collect()
    };
    let mut b: Vec<f64> = match family {
        Family::Singular => (0..n).map(|_| draw.integer()).collect(),
        Family::Consistent => {
            let x: Vec<f64> = (0..n).map(|_| draw.integer()).collect();
            times(&a, &x)
        }
        Family::Laplacian | Family::Empty if draw.below(2) == 0 => {
            (0..n).map(|_| draw.number()).collect()
        }
        _ => times(&a, &solution),
    };
    let mut x0 = vec![0.0; n];
    match draw.below(6) {
        0 => x0.iter_mut().for_each(|x| *x = draw.number()),
        1 => x0.iter_mut().for_each(|x| *x = 1e8 * draw.number()),
        _ => {}
    }
    match family {
        Family::Extreme => {
            let reach = if T::NAME == "f64" { 900.0 } else { 110.0 };
            let [of_a, of_b] = [reach * draw.number(), reach * draw.number()];
            a.iter_mut().flatten().for_each(|v| *v *= of_a.exp2());
            b.iter_mut().for_each(|v| *v *= of_b.exp2());
        }
        Family::Poisoned => {
            let poison = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][draw.below(3)];
            let (row, col) = (draw.below(n), draw.below(n));
            match draw.below(4) {
                0 => b[row] = poison,
                1 => x0[row] = poison,
                _ => a[row][col] = poison,
            }
        }
        _ => {}
    }
    let narrow = |v: &[f64]| v.iter().map(|&v| T::from_f64(v)).collect::<Vec<T>>();
    System { family, matrix: sparse(&a, &mut draw), b: narrow(&b), x0: narrow(&x0) }
}

/// A dense matrix of a family, before [`system`] scales or poisons it.
fn entries(family: Family, n: usize, draw: &mut Draw) -> Vec<Vec<f64>> {
    let share = 1 + draw.below(4);
    let mut a = vec![vec![0.0; n]; n];
    for entry in a.iter_mut().flatten() {
        if draw.below(4) < share {
            *entry = draw.number();
        }
    }
    match family {
        Family::Dominant | Family::Poisoned | Family::Extreme => dominate(&mut a, 1.1),
        Family::Positive => {
            mirror(&mut a);
            dominate(&mut a, 1.05);
        }
        Family::Permuted => {
            dominate(&mut a, 1.2);
            for k in (1..n).rev() {
                a.swap(k, draw.below(k + 1));
            }
        }
        Family::Singular | Family::Consistent => {
            a.iter_mut().flatten().for_each(|v| *v = draw.integer());
            combine_rows(&mut a, draw);
        }
        Family::Laplacian => {
            a.iter_mut().flatten().for_each(|v| *v = -v.abs());
            mirror(&mut a);
            balance(&mut a);
        }
        Family::Graded => {
            let exponents: Vec<[f64; 2]> =
                (0..n).map(|_| [30.0 * draw.number(), 30.0 * draw.number()]).collect();
            dominate(&mut a, 0.5);
            for row in 0..n {
                for col in 0..n {
                    a[row][col] *= (exponents[row][0] + exponents[col][1]).exp2();
                }
            }
        }
        Family::Indefinite => mirror(&mut a),
        Family::Empty => {
            dominate(&mut a, 1.1);
            let row = draw.below(n);
            a[row].fill(0.0);
            if draw.below(2) == 0 {
                a.iter_mut().for_each(|r| r[row] = 0.0);
            }
        }
        Family::Near => {
            let off = 10f64.powi(-(draw.below(18) as i32));
            let first: Vec<f64> = a[0].clone();
            for (v, first) in a[n - 1].iter_mut().zip(first) {
                *v = first + off * *v;
            }
        }
    }
    a
}

/// Makes each diagonal entry `by` times the sum of the magnitudes of its row's other entries, plus
/// 0.1.
fn dominate(a: &mut [Vec<f64>], by: f64) {
    for (i, row) in a.iter_mut().enumerate() {
        row[i] = 0.0;
        row[i] = by * row.iter().map(|v| v.abs()).sum::<f64>() + 0.1;
    }
}

/// Copies the upper triangle to the lower one, so that the matrix is symmetric.
fn mirror(a: &mut [Vec<f64>]) {
    for row in 0..a.len() {
        let (above, below) = a.split_at_mut(row);
        for (lower, upper) in below[0].iter_mut().zip(above) {
            *lower = upper[row];
        }
    }
}

/// Replaces the last row by a random combination of others, so that the matrix is singular.
fn combine_rows(a: &mut [Vec<f64>], draw: &mut Draw) {
    let n = a.len();
    let (first, second) = (draw.integer(), draw.integer());
    let combined: Vec<f64> = (0..n).map(|col| first * a[0][col] + second * a[n / 2][col]).collect();
    a[n - 1] = if n == 2 { a[0].iter().map(|v| first * v).collect() } else { combined };
}

/// Chooses the diagonal so that every row sums to 0.
fn balance(a: &mut [Vec<f64>]) {
    for (i, row) in a.iter_mut().enumerate() {
        row[i] = 0.0;
        row[i] = -row.iter().sum::<f64>();
    }
}

/// Converts a dense matrix to CSR. Zeros are not stored, except on the diagonal of a third of the
/// matrices.
fn sparse<T: Scalar>(a: &[Vec<f64>], draw: &mut Draw) -> Csr<T> {
    let stores_zeros = draw.below(3) == 0;
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for (i, row) in a.iter().enumerate() {
        for (j, &value) in row.iter().enumerate() {
            if value != 0.0 || (stores_zeros && i == j) {
                col_idx.push(j as i32);
                values.push(T::from_f64(value));
            }
        }
        row_ptr.push(col_idx.len() as i32);
    }
    let pattern = CsrPattern::try_new(a.len(), a.len(), row_ptr, col_idx).expect("rows in order");
    Csr::from_parts(Arc::new(pattern), values).expect("a value an entry")
}
