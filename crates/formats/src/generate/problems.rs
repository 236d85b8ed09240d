//! The benchmark families of the batched solvers: `tri`, `penta`, `lap2d`, `rand9`, mixes of them,
//! and the ill-conditioned `aniso2d` and `jump2d`.
//!
//! All arithmetic is IEEE binary64 in the written order, without fused multiply-add, so that any
//! implementation makes the same bits; [`checksum`] proves it.

use std::sync::Arc;

use super::rng::{self, key, keyed};
use crate::error::{check_i32, check_len, reserve};
use crate::{
    Batch, BatchCsr, BatchValues, CsrPattern, FormatError, Pattern, RaggedCsr, Scalar,
    UniformBatch, View,
};

/// A family of systems; all systems of one size share their pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// 3-point stencil, symmetric positive definite, 3n - 2 entries.
    Tri,
    /// Two neighbours on each side, symmetric positive definite, strictly diagonally dominant,
    /// 5n - 6 entries (n at least 2). No mix has it.
    Penta,
    /// 5-point stencil on an m x m grid, n = m * m, symmetric positive definite, 5n - 4m entries.
    Lap2d,
    /// Nonsymmetric, 9 entries per row at random columns, strictly diagonally dominant by 5 % with
    /// rows scaled by 1 to 10. n is at least 9.
    Rand9,
    /// Anisotropic diffusion: 5-point stencil on an m x m grid with coupling 1 to the cells before
    /// and behind and coupling epsilon to those of the grid's next rows, and Dirichlet boundaries.
    /// epsilon is a power of two from 2^-10 to 2^-4 that is drawn for each item. Symmetric positive
    /// definite, ill-conditioned. No mix has it.
    Aniso2d,
    /// Diffusion with jumping coefficients: finite volumes on an m x m grid with harmonic means at
    /// faces and Dirichlet boundaries. Each block of 4 x 4 cells has a coefficient of its own, a
    /// power of two from 2^-10 to 2^10. Symmetric positive definite, ill-conditioned. No mix has it.
    Jump2d,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 6] =
        [Self::Tri, Self::Penta, Self::Lap2d, Self::Rand9, Self::Aniso2d, Self::Jump2d];

    /// The family's name: `"tri"`, `"penta"`, `"lap2d"`, `"rand9"`, `"aniso2d"`, `"jump2d"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tri => "tri",
            Self::Penta => "penta",
            Self::Lap2d => "lap2d",
            Self::Rand9 => "rand9",
            Self::Aniso2d => "aniso2d",
            Self::Jump2d => "jump2d",
        }
    }
}

/// The members of [`mix`]: families and rows. The first eight are those of [`mix_spd`].
pub const MIX: [(Family, usize); 12] = [
    (Family::Tri, 32),
    (Family::Tri, 64),
    (Family::Tri, 128),
    (Family::Tri, 256),
    (Family::Tri, 512),
    (Family::Tri, 1024),
    (Family::Lap2d, 256),
    (Family::Lap2d, 900),
    (Family::Rand9, 54),
    (Family::Rand9, 144),
    (Family::Rand9, 512),
    (Family::Rand9, 992),
];

/// A batch and its right-hand sides, item-major, one per item.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedBatch<T> {
    /// The matrices.
    pub batch: Batch<T>,
    /// The right-hand sides, item after item.
    pub rhs: Vec<T>,
}

impl<T: Scalar> GeneratedBatch<T> {
    /// The same systems in another precision, each number rounded to nearest.
    pub fn cast<U: Scalar>(&self) -> GeneratedBatch<U> {
        GeneratedBatch {
            batch: self.batch.cast(),
            rhs: self.rhs.iter().map(|v| U::from_f64(v.to_f64())).collect(),
        }
    }
}

/// One family at one size: its pattern, and the values and right-hand side of any item.
///
/// # Examples
/// ```
/// use sparsebatch_formats::generate::{Family, Problem};
/// let problem = Problem::new(Family::Tri, 4)?;
/// assert_eq!(problem.pattern().col_idx(), [0, 1, 0, 1, 2, 1, 2, 3, 2, 3]);
/// let generated = problem.batch(3)?;
/// assert_eq!(generated.rhs.len(), 12);
/// # Ok::<(), sparsebatch_formats::FormatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Problem {
    family: Family,
    pattern: Arc<CsrPattern>,
}

impl Problem {
    /// Builds the pattern of `family` with `nrows` rows.
    ///
    /// # Errors
    /// [`FormatError::Parameter`] when `nrows` is not a square number (`lap2d`, `aniso2d`, `jump2d`)
    /// or below 9 (`rand9`), [`FormatError::TooLarge`] when rows or entries exceed `i32`.
    pub fn new(family: Family, nrows: usize) -> Result<Self, FormatError> {
        check_i32("nrows", nrows)?;
        let pattern = match family {
            Family::Tri => band_pattern(nrows, 1)?,
            Family::Penta => band_pattern(nrows, 2)?,
            Family::Lap2d | Family::Aniso2d | Family::Jump2d => square_grid_pattern(nrows)?,
            Family::Rand9 => rand9_pattern(nrows)?,
        };
        Ok(Self { family, pattern: Arc::new(pattern) })
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The pattern of every item.
    pub fn pattern(&self) -> &Arc<CsrPattern> {
        &self.pattern
    }

    /// Appends the values of item `item`, in CSR order.
    pub fn push_values(&self, item: u64, out: &mut Vec<f64>) {
        match self.family {
            Family::Tri => self.push_tri(item, out),
            Family::Penta => self.push_penta(item, out),
            Family::Lap2d => self.push_lap2d(item, out),
            Family::Rand9 => self.push_rand9(item, out),
            Family::Aniso2d => self.push_aniso2d(item, out),
            Family::Jump2d => self.push_jump2d(item, out),
        }
    }

    /// Appends the right-hand side of item `item`: uniform in [-1, 1).
    pub fn push_rhs(&self, item: u64, out: &mut Vec<f64>) {
        let stream = match self.family {
            Family::Tri => 4,
            Family::Penta => 45,
            Family::Lap2d => 12,
            Family::Rand9 => 23,
            Family::Aniso2d => 53,
            Family::Jump2d => 62,
        };
        let key = key(stream, item);
        out.extend((0..self.pattern.nrows() as u64).map(|row| 2.0 * keyed(key, row) - 1.0));
    }

    /// The first `nitems` systems as a uniform batch.
    ///
    /// # Errors
    /// [`FormatError::Memory`] when the values or right-hand sides do not fit.
    pub fn batch(&self, nitems: usize) -> Result<GeneratedBatch<f64>, FormatError> {
        let count = |len: usize| len as u128 * nitems as u128;
        let mut values = reserve("values of the batch", count(self.pattern.nnz()))?;
        let mut rhs = reserve("right-hand sides of the batch", count(self.pattern.nrows()))?;
        for item in 0..nitems as u64 {
            self.push_values(item, &mut values);
            self.push_rhs(item, &mut rhs);
        }
        let pattern = Arc::clone(&self.pattern);
        let batch = UniformBatch::try_new(pattern, nitems, BatchValues::ItemMajor(values))?;
        Ok(GeneratedBatch { batch: Batch::Uniform(batch), rhs })
    }

    fn push_tri(&self, item: u64, out: &mut Vec<f64>) {
        let (off_key, diagonal_key) = (key(2, item), key(3, item));
        let shift = 0.1 + 0.4 * rng::uniform(1, item, 0);
        let off = |k: usize| -(1.0 - 0.05 * keyed(off_key, k as u64));
        for row in 0..self.pattern.nrows() {
            if row > 0 {
                out.push(off(row - 1));
            }
            out.push((2.0 + shift) + 0.1 * keyed(diagonal_key, row as u64));
            if row + 1 < self.pattern.nrows() {
                out.push(off(row));
            }
        }
    }

    fn push_penta(&self, item: u64, out: &mut Vec<f64>) {
        let (near_key, far_key, diagonal_key) = (key(42, item), key(43, item), key(44, item));
        let shift = 0.1 + 0.4 * rng::uniform(41, item, 0);
        // Entry k couples row k with the row one or two behind it.
        let near = |k: usize| -(1.0 - 0.05 * keyed(near_key, k as u64));
        let far = |k: usize| -(0.5 - 0.025 * keyed(far_key, k as u64));
        let pattern = self.pattern.view();
        for row in 0..pattern.nrows() {
            out.extend(pattern.col_idx()[pattern.row(row)].iter().map(|&col| {
                let col = col as usize;
                match row.abs_diff(col) {
                    0 => (3.0 + shift) + 0.1 * keyed(diagonal_key, row as u64),
                    1 => near(row.min(col)),
                    _ => far(row.min(col)),
                }
            }));
        }
    }

    fn push_lap2d(&self, item: u64, out: &mut Vec<f64>) {
        let pattern = self.pattern.view();
        let key = key(11, item);
        for row in 0..pattern.nrows() {
            out.extend(pattern.col_idx()[pattern.row(row)].iter().map(|&col| {
                if col as usize == row { 4.0 + 0.1 * keyed(key, row as u64) } else { -1.0 }
            }));
        }
    }

    fn push_aniso2d(&self, item: u64, out: &mut Vec<f64>) {
        let pattern = self.pattern.view();
        let across = (0..4 + rng::below(key(51, item), 0, 7)).fold(1.0, |power, _| 0.5 * power);
        let key = key(52, item);
        for row in 0..pattern.nrows() {
            let entries = pattern.col_idx()[pattern.row(row)].iter();
            out.extend(entries.map(|&col| match row.abs_diff(col as usize) {
                0 => (2.0 + 2.0 * across) + (0.1 * across) * keyed(key, row as u64),
                // On a grid of one cell a side there are no others.
                1 => -1.0,
                _ => -across,
            }));
        }
    }

    fn push_jump2d(&self, item: u64, out: &mut Vec<f64>) {
        let m = self.pattern.nrows().isqrt();
        let key = key(61, item);
        let (blocks, side) = (m.div_ceil(JUMP_CELLS) as u64, m as i64);
        let coefficient = |x: i64, y: i64| {
            let block = y as u64 / JUMP_CELLS as u64 * blocks + x as u64 / JUMP_CELLS as u64;
            let exponent = rng::below(key, block, 21) as i32 - 10;
            f64::from_bits(((1023 + exponent) as u64) << 52)
        };
        for y in 0..side {
            for x in 0..side {
                let own = coefficient(x, y);
                let is_cell = |x: i64, y: i64| (0..side).contains(&x) && (0..side).contains(&y);
                // In the order of the columns: two before the diagonal, two behind it.
                let beside = [(x, y - 1), (x - 1, y), (x + 1, y), (x, y + 1)];
                let faces = beside.map(|(x, y)| match is_cell(x, y) {
                    true => {
                        let other = coefficient(x, y);
                        (2.0 * own * other) / (own + other)
                    }
                    false => own,
                });
                for (number, (x, y)) in beside.into_iter().enumerate() {
                    if number == 2 {
                        out.push(((faces[0] + faces[1]) + faces[2]) + faces[3]);
                    }
                    if is_cell(x, y) {
                        out.push(-faces[number]);
                    }
                }
            }
        }
    }

    fn push_rand9(&self, item: u64, out: &mut Vec<f64>) {
        let pattern = self.pattern.view();
        let (weight_key, scale_key) = (key(21, item), key(22, item));
        for row in 0..pattern.nrows() {
            let scale = 1.0 + 9.0 * keyed(scale_key, row as u64);
            let start = out.len();
            let (mut sum, mut diagonal) = (0.0, start);
            for k in pattern.row(row) {
                if pattern.col_idx()[k] as usize == row {
                    diagonal = out.len();
                    out.push(0.0);
                } else {
                    let weight = 2.0 * keyed(weight_key, k as u64) - 1.0;
                    sum += weight.abs();
                    out.push(scale * weight);
                }
            }
            out[diagonal] = scale * (1.05 * sum);
        }
    }
}

/// Cells along a side of a block of equal coefficients of `jump2d`.
const JUMP_CELLS: usize = 4;

/// All entries at most `half_width` away from the diagonal.
fn band_pattern(nrows: usize, half_width: usize) -> Result<CsrPattern, FormatError> {
    // The band leaves the matrix at two corners.
    let outside = half_width * (half_width + 1);
    let diagonals = 2 * half_width + 1;
    check_i32("nnz", (diagonals * nrows).saturating_sub(outside))?;
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::with_capacity(diagonals * nrows);
    let (nrows, half_width) = (nrows as i32, half_width as i32);
    for row in 0..nrows {
        col_idx.extend((row - half_width).max(0)..(row + half_width + 1).min(nrows));
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(nrows as usize, nrows as usize, row_ptr, col_idx)
}

fn square_grid_pattern(nrows: usize) -> Result<CsrPattern, FormatError> {
    let m = nrows.isqrt();
    if m * m != nrows {
        return Err(FormatError::Parameter {
            name: "nrows",
            expected: "a square number (the family lives on an m x m grid)",
            found: nrows.to_string(),
        });
    }
    check_i32("nnz", 5 * nrows - 4 * m)?;
    super::laplace::grid_pattern([m, m, 1], |[x, y, _]| x.abs() + y.abs() <= 1)
}

fn rand9_pattern(nrows: usize) -> Result<CsrPattern, FormatError> {
    const PER_ROW: usize = 9;
    if nrows < PER_ROW {
        return Err(FormatError::Parameter {
            name: "nrows",
            expected: "at least 9 (rand9 has 9 entries a row)",
            found: nrows.to_string(),
        });
    }
    check_i32("nnz", PER_ROW * nrows)?;
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::with_capacity(PER_ROW * nrows);
    for row in 0..nrows {
        let key = key(20, row as u64);
        let mut columns = vec![row as i32];
        for t in 0u64.. {
            let col = (rng::mix(key.wrapping_add(t)) % nrows as u64) as i32;
            if !columns.contains(&col) {
                columns.push(col);
            }
            if columns.len() == PER_ROW {
                break;
            }
        }
        columns.sort_unstable();
        col_idx.append(&mut columns);
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(nrows, nrows, row_ptr, col_idx)
}

/// The ragged batch of all families: item i is system i of family `mix(key(99, i)) mod 12` of
/// [`MIX`].
///
/// # Errors
/// [`FormatError::Memory`] when the batch does not fit.
pub fn mix(nitems: usize) -> Result<GeneratedBatch<f64>, FormatError> {
    ragged(nitems, &MIX)
}

/// The ragged batch of the symmetric positive definite families: as [`mix`], with mod 8 for mod 12.
///
/// # Errors
/// [`FormatError::Memory`] when the batch does not fit.
pub fn mix_spd(nitems: usize) -> Result<GeneratedBatch<f64>, FormatError> {
    ragged(nitems, &MIX[..8])
}

fn ragged(nitems: usize, members: &[(Family, usize)]) -> Result<GeneratedBatch<f64>, FormatError> {
    let problems = members
        .iter()
        .map(|&(family, nrows)| Problem::new(family, nrows))
        .collect::<Result<Vec<_>, _>>()?;
    let rows: usize = problems.iter().map(|p| p.pattern.nrows()).sum();
    // No item has more than 10 entries a row: a bound that the sum over the items cannot pass.
    let expected_rows = rows as u128 * nitems as u128 / problems.len() as u128;
    drop(reserve::<[f64; 10]>("values of the batch", expected_rows)?);
    let mut batch = RaggedCsr::new();
    let mut rhs = Vec::new();
    let mut values = Vec::new();
    for item in 0..nitems as u64 {
        let problem = &problems[(rng::mix(key(99, item)) % problems.len() as u64) as usize];
        values.clear();
        problem.push_values(item, &mut values);
        problem.push_rhs(item, &mut rhs);
        batch.push(View::new(problem.pattern.view(), &values));
    }
    Ok(GeneratedBatch { batch: Batch::Ragged(batch), rhs })
}

/// The fingerprint of a uniform batch: `acc = mix(acc ^ word)` from 0 over the row pointers, the
/// columns, and the bits of the values, then of the right-hand sides, of the first 100 systems.
///
/// # Errors
/// [`FormatError::Length`] when `rhs` does not hold one right-hand side per item.
pub fn checksum(batch: &BatchCsr<f64>, rhs: &[f64]) -> Result<u64, FormatError> {
    let pattern = batch.pattern();
    check_len("rhs", pattern.nrows() * batch.nitems(), rhs.len())?;
    let nitems = batch.nitems().min(100);
    let mut acc = 0;
    let mut add = |word: u64| acc = rng::mix(acc ^ word);
    for &index in pattern.row_ptr().iter().chain(pattern.col_idx()) {
        add(index as u64);
    }
    let mut values = Vec::with_capacity(pattern.nnz());
    for item in 0..nitems {
        values.clear();
        batch.append_values(item, &mut values);
        values.iter().for_each(|value| add(value.to_bits()));
    }
    rhs[..nitems * pattern.nrows()].iter().for_each(|value| add(value.to_bits()));
    Ok(acc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_the_published_ones() {
        let expected = [
            0xb1e4_4d90_23a8_3199,
            0x0df9_e70a_0b2d_c63b,
            0xa21e_823d_7b9b_c7e5,
            0xe9e2_4008_4d67_3d70,
            0xaf8b_0fac_211f_d309,
            0xad5b_cdd6_481b_d9fa,
            0x7ec1_c3db_677d_f2df,
            0x9a33_6918_7b38_8702,
            0x4ceb_7f59_6753_2c0c,
            0x5494_3fad_0ebc_b056,
            0xf078_cf40_d638_93ee,
            0x0af6_bb4a_dce4_4ab6,
        ];

        for ((family, nrows), expected) in MIX.into_iter().zip(expected) {
            let generated = Problem::new(family, nrows).unwrap().batch(100).unwrap();
            let Batch::Uniform(batch) = &generated.batch else {
                panic!("a family makes a uniform batch");
            };
            let found = checksum(batch, &generated.rhs).unwrap();
            assert_eq!(found, expected, "{} {nrows}", family.name());
        }
    }

    /// Fingerprints of another implementation of the same formulas.
    #[test]
    fn pentadiagonal_systems_are_those_of_their_formulas() {
        for (nrows, expected) in [(1, 0x34b6_1705_07b9_ab16), (32, 0x7ef4_93e0_e736_58ef)] {
            let generated = Problem::new(Family::Penta, nrows).unwrap().batch(100).unwrap();
            let Batch::Uniform(batch) = &generated.batch else {
                panic!("a family makes a uniform batch");
            };
            assert_eq!(checksum(batch, &generated.rhs).unwrap(), expected, "{nrows}");
        }
        let none = Problem::new(Family::Penta, 0).unwrap().batch(2).unwrap();
        assert_eq!(none.rhs.len(), 0);
    }

    /// Fingerprints of another implementation of the same formulas.
    #[test]
    fn ill_conditioned_systems_are_those_of_their_formulas() {
        for (family, nrows, expected) in [
            (Family::Aniso2d, 1, 0xa06e_38ca_12a6_9e1e),
            (Family::Aniso2d, 256, 0x9475_7ca1_5ebe_3bbf),
            (Family::Jump2d, 1, 0xaeea_292b_1c08_4bdb),
            (Family::Jump2d, 256, 0x981d_5cd9_a76e_6721),
            (Family::Jump2d, 900, 0x404c_45b3_34a1_3920),
        ] {
            let generated = Problem::new(family, nrows).unwrap().batch(100).unwrap();
            let Batch::Uniform(batch) = &generated.batch else {
                panic!("a family makes a uniform batch");
            };
            let found = checksum(batch, &generated.rhs).unwrap();
            assert_eq!(found, expected, "{} {nrows}: {found:#x}", family.name());
        }
    }

    #[test]
    fn sizes_outside_a_family_are_refused() {
        for (family, nrows) in [
            (Family::Lap2d, 255),
            (Family::Aniso2d, 255),
            (Family::Jump2d, 2),
            (Family::Rand9, 8),
            (Family::Tri, usize::MAX),
            (Family::Tri, 1 << 30),
            (Family::Penta, 1 << 29),
        ] {
            assert!(Problem::new(family, nrows).is_err(), "{family:?} {nrows}");
        }
        let huge = Problem::new(Family::Tri, 1024).unwrap().batch(usize::MAX);
        assert!(matches!(huge, Err(FormatError::Memory { .. })));
    }

    #[test]
    fn mix_items_are_the_systems_of_their_families() {
        let generated = mix(20).unwrap();
        let Batch::Ragged(batch) = &generated.batch else {
            panic!("a mix is ragged");
        };

        for item in 0..20 {
            let (family, nrows) = MIX[(rng::mix(key(99, item as u64)) % 12) as usize];
            let problem = Problem::new(family, nrows).unwrap();
            let mut values = Vec::new();
            problem.push_values(item as u64, &mut values);
            assert_eq!(batch.item(item).pattern(), problem.pattern().view());
            assert_eq!(batch.item(item).values(), values);
        }
        assert_eq!(generated.rhs.len(), generated.batch.row_offset(20));
    }
}
