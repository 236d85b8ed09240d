//! Sparse LU with partial pivoting: the last resort, for single systems that nothing else solves.
//!
//! The factorisation is faer's (column order by COLAMD, rows by partial pivoting, supernodes where
//! they pay), run sequentially and in f64 for both precisions. Around it:
//! 1. Equilibrate: `S = R A C` with powers of two, so that the largest entry of every row, then of
//!    every column, lies in `[1, 2)`. Exact, short of overflow.
//! 2. Factor `S`, estimate `rcond = 1 / (||S||_1 ||S^-1||_1)` from a few solves.
//! 3. Solve `x = C S^-1 R b`.
//! 4. Refine, at most [`MAX_REFINEMENTS`] times, as long as `||b - A x||_2` falls:
//!    `x += C S^-1 R (b - A x)`, the residual accumulated in twice the working precision.
//!
//! A matrix is reported as singular only when two conditions hold: no accurate solution was found,
//! and the matrix is singular to working precision. See [`PivotingLuReport::is_singular`].
//!
//! # Source
//! N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, chapters 12
//! (refinement) and 15 (condition estimation), doi:10.1137/1.9780898718027.

mod numerics;
mod report;

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::sparse::linalg::LuError;
use faer::sparse::linalg::lu::{
    LuRef, LuSymbolicParams, NumericLu, SymbolicLu, factorize_symbolic_lu,
};
use faer::sparse::{FaerError, SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par};
use sparsebatch_formats::{CsrPattern, CsrPatternRef, Pattern, Scalar, View};

pub use report::{PivotingLuError, PivotingLuReport, Singularity};

use numerics::{Inverse, equilibrate, inverse_norm1, norm1, norm2, residual};

/// Maximum number of iterative refinement steps.
pub const MAX_REFINEMENTS: u32 = 5;

/// A symbolic analysis and the memory for factors, reused for every system with the same pattern.
///
/// Results do not depend on the systems solved before.
pub struct PivotingLu {
    pattern: CsrPattern,
    symbolic: SymbolicLu<usize>,
    numeric: NumericLu<usize, f64>,
    memory: MemBuffer,
    /// The pattern by columns; `source` gives the index of each entry in the CSR values.
    col_ptr: Vec<usize>,
    row_idx: Vec<usize>,
    source: Vec<u32>,
    values: Vec<f64>,
    scaled: Vec<f64>,
    row_scale: Vec<f64>,
    col_scale: Vec<f64>,
    b: Vec<f64>,
    x: Vec<f64>,
    residual: Vec<f64>,
    trial: Vec<f64>,
    trial_residual: Vec<f64>,
}

impl std::fmt::Debug for PivotingLu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PivotingLu")
            .field("nrows", &self.pattern.nrows())
            .field("nnz", &self.pattern.nnz())
            .finish_non_exhaustive()
    }
}

impl PivotingLu {
    /// Analyses a pattern: the column order and the shape of the factors.
    ///
    /// # Errors
    /// [`PivotingLuError::NotSquare`], [`PivotingLuError::OutOfMemory`].
    pub fn try_new(pattern: CsrPatternRef<'_>) -> Result<Self, PivotingLuError> {
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        if nrows != ncols {
            return Err(PivotingLuError::NotSquare { nrows, ncols });
        }
        let (col_ptr, row_idx, source) = by_columns(pattern);
        let columns = SymbolicSparseColMatRef::new_checked(nrows, ncols, &col_ptr, None, &row_idx);
        let symbolic =
            factorize_symbolic_lu(columns, LuSymbolicParams::default()).map_err(from_faer)?;
        let scratch = symbolic
            .factorize_numeric_lu_scratch::<f64>(Par::Seq, Default::default())
            .or(symbolic.solve_in_place_scratch::<f64>(1, Par::Seq))
            .or(symbolic.solve_transpose_in_place_scratch::<f64>(1, Par::Seq));
        let memory = MemBuffer::try_new(scratch).map_err(|_| PivotingLuError::OutOfMemory)?;
        Ok(Self {
            pattern: pattern.to_pattern(),
            symbolic,
            numeric: NumericLu::new(),
            memory,
            col_ptr,
            row_idx,
            source,
            values: Vec::new(),
            scaled: Vec::new(),
            row_scale: Vec::new(),
            col_scale: Vec::new(),
            b: Vec::new(),
            x: Vec::new(),
            residual: Vec::new(),
            trial: Vec::new(),
            trial_residual: Vec::new(),
        })
    }

    /// The pattern analysed.
    pub fn pattern(&self) -> &CsrPattern {
        &self.pattern
    }

    /// Factors the matrix with these values and solves `A x = b`.
    ///
    /// `values` holds one value per entry of the pattern, `b` and `x` one per row. The report's
    /// numbers are those of the `x` returned; whether they suffice is the caller's judgement
    /// ([`PivotingLuReport::is_solved`], [`PivotingLuReport::is_singular`]). Cost: one
    /// factorisation and up to some 20 solves. Bitwise repeatable.
    ///
    /// # Errors
    /// [`PivotingLuError::Length`]; [`PivotingLuError::NonFinite`] for NaN and Inf in the input and
    /// for an x that overflows `T`; [`PivotingLuError::Singular`] when there is no finite solution;
    /// [`PivotingLuError::OutOfMemory`]. On an error `x` is unchanged.
    pub fn factor_and_solve<T: Scalar>(
        &mut self,
        values: &[T],
        b: &[T],
        x: &mut [T],
    ) -> Result<PivotingLuReport, PivotingLuError> {
        let nrows = self.pattern.nrows();
        check_len("values", self.pattern.nnz(), values.len())?;
        check_len("b", nrows, b.len())?;
        check_len("x", nrows, x.len())?;
        check_finite("values", values)?;
        check_finite("b", b)?;
        overwrite(&mut self.values, values.iter().map(|v| v.to_f64()));
        overwrite(&mut self.b, b.iter().map(|v| v.to_f64()));
        if nrows == 0 {
            return Ok(PivotingLuReport {
                nrows,
                residual_norm: 0.0,
                rhs_norm: 0.0,
                rcond: 1.0,
                refinements: 0,
            });
        }
        let (rcond, refinements) = self.solve_in_f64()?;
        if let Some(position) = self.x.iter().position(|&v| !T::from_f64(v).is_finite()) {
            return Err(PivotingLuError::NonFinite { what: "x", position });
        }
        for (out, &v) in x.iter_mut().zip(&self.x) {
            *out = T::from_f64(v);
        }
        // In f32 the rounded `x` differs from the refined one: compute its residual.
        overwrite(&mut self.x, x.iter().map(|v| v.to_f64()));
        residual(self.pattern.view(), &self.values, &self.b, &self.x, &mut self.residual);
        Ok(PivotingLuReport {
            nrows,
            residual_norm: norm2(&self.residual),
            rhs_norm: norm2(&self.b),
            rcond,
            refinements,
        })
    }

    /// Runs steps 1 to 4 of the module documentation on `values` and `b` and writes `x`. Returns
    /// `rcond` and the number of refinements.
    fn solve_in_f64(&mut self) -> Result<(f64, u32), PivotingLuError> {
        let Self { pattern, symbolic, numeric, memory, .. } = self;
        let (nrows, pattern) = (pattern.nrows(), pattern.view());
        equilibrate(pattern, &self.values, &mut self.row_scale, &mut self.col_scale)
            .map_err(|reason| PivotingLuError::Singular { reason })?;
        self.scaled.clear();
        for (col, range) in self.col_ptr.windows(2).enumerate() {
            for k in range[0]..range[1] {
                let value = self.values[self.source[k] as usize] * self.row_scale[self.row_idx[k]];
                self.scaled.push(value * self.col_scale[col]);
            }
        }
        let columns =
            SymbolicSparseColMatRef::new_checked(nrows, nrows, &self.col_ptr, None, &self.row_idx);
        let factors = symbolic
            .factorize_numeric_lu(
                numeric,
                SparseColMatRef::new(columns, &self.scaled),
                Par::Seq,
                MemStack::new(memory),
                Default::default(),
            )
            .map_err(from_lu)?;
        let mut inverse = PivotedFactors { factors, memory };

        let (row_scale, col_scale) = (&self.row_scale, &self.col_scale);
        let mut correct = |x: &mut Vec<f64>, start: Option<&[f64]>, rhs: &[f64]| {
            overwrite(x, rhs.iter().zip(row_scale).map(|(v, scale)| v * scale));
            inverse.apply(x);
            for (i, v) in x.iter_mut().enumerate() {
                *v = *v * col_scale[i] + start.map_or(0.0, |start| start[i]);
            }
        };
        correct(&mut self.x, None, &self.b);
        if let Some(position) = self.x.iter().position(|v| !v.is_finite()) {
            // Either the factors hold infinities, or they are sound and x overflows.
            return Err(if inverse_norm1(nrows, &mut inverse).is_infinite() {
                PivotingLuError::Singular { reason: Singularity::ZeroPivot }
            } else {
                PivotingLuError::NonFinite { what: "x", position }
            });
        }
        residual(pattern, &self.values, &self.b, &self.x, &mut self.residual);
        let mut best = norm2(&self.residual);
        let mut refinements = 0;
        while refinements < MAX_REFINEMENTS && best != 0.0 {
            correct(&mut self.trial, Some(&self.x), &self.residual);
            residual(pattern, &self.values, &self.b, &self.trial, &mut self.trial_residual);
            let norm = norm2(&self.trial_residual);
            // False when `norm` is NaN or infinite.
            let falls = norm < best || (best.is_nan() && norm.is_finite());
            if !falls {
                break;
            }
            std::mem::swap(&mut self.x, &mut self.trial);
            std::mem::swap(&mut self.residual, &mut self.trial_residual);
            best = norm;
            refinements += 1;
        }
        let scaled_norm = norm1(&self.col_ptr, &self.scaled);
        let inverse_norm = inverse_norm1(nrows, &mut inverse);
        let rcond = 1.0 / (scaled_norm * inverse_norm);
        Ok((if rcond.is_nan() { 0.0 } else { rcond }, refinements))
    }
}

/// Analyses, factors and solves one system; see [`PivotingLu`].
///
/// `b` and `x` hold one value per row.
///
/// # Errors
/// Those of [`PivotingLu::try_new`] and [`PivotingLu::factor_and_solve`].
///
/// # Examples
/// ```
/// use sparsebatch_cpu_ref::pivoting_lu;
/// use sparsebatch_formats::Csr;
/// // [0 2; 4 0]: no pivot on the diagonal.
/// let a = Csr::try_new(2, 2, vec![0, 1, 2], vec![1, 0], vec![2.0, 4.0])?;
/// let mut x = [0.0; 2];
/// let report = pivoting_lu::solve(a.view(), &[2.0, 8.0], &mut x)?;
/// assert_eq!(x, [2.0, 1.0]);
/// assert_eq!(report.residual_norm, 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn solve<T: Scalar>(
    matrix: View<'_, CsrPattern, T>,
    b: &[T],
    x: &mut [T],
) -> Result<PivotingLuReport, PivotingLuError> {
    PivotingLu::try_new(matrix.pattern())?.factor_and_solve(matrix.values(), b, x)
}

/// The factors of S, applied in place.
struct PivotedFactors<'a> {
    factors: LuRef<'a, usize, f64>,
    memory: &'a mut MemBuffer,
}

impl Inverse for PivotedFactors<'_> {
    fn apply(&mut self, v: &mut [f64]) {
        let v = MatMut::from_column_major_slice_mut(v, self.factors.symbolic().nrows(), 1);
        let stack = MemStack::new(self.memory);
        self.factors.solve_in_place_with_conj(Conj::No, v, Par::Seq, stack);
    }

    fn apply_transposed(&mut self, v: &mut [f64]) {
        let v = MatMut::from_column_major_slice_mut(v, self.factors.symbolic().nrows(), 1);
        let stack = MemStack::new(self.memory);
        self.factors.solve_transpose_in_place_with_conj(Conj::No, v, Par::Seq, stack);
    }
}

/// Column starts, row indices by column, and the position of each entry in the CSR order.
fn by_columns(pattern: CsrPatternRef<'_>) -> (Vec<usize>, Vec<usize>, Vec<u32>) {
    let mut col_ptr = vec![0usize; pattern.ncols() + 1];
    for &col in pattern.col_idx() {
        col_ptr[col as usize + 1] += 1;
    }
    for col in 0..pattern.ncols() {
        col_ptr[col + 1] += col_ptr[col];
    }
    let mut next = col_ptr.clone();
    let mut row_idx = vec![0; pattern.nnz()];
    let mut source = vec![0; pattern.nnz()];
    for row in 0..pattern.nrows() {
        for k in pattern.row(row) {
            let slot = &mut next[pattern.col_idx()[k] as usize];
            row_idx[*slot] = row;
            source[*slot] = k as u32;
            *slot += 1;
        }
    }
    (col_ptr, row_idx, source)
}

fn overwrite(out: &mut Vec<f64>, values: impl Iterator<Item = f64>) {
    out.clear();
    out.extend(values);
}

fn check_len(what: &'static str, expected: usize, found: usize) -> Result<(), PivotingLuError> {
    if expected == found { Ok(()) } else { Err(PivotingLuError::Length { what, expected, found }) }
}

fn check_finite<T: Scalar>(what: &'static str, values: &[T]) -> Result<(), PivotingLuError> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(position) => Err(PivotingLuError::NonFinite { what, position }),
    }
}

fn from_faer(_: FaerError) -> PivotingLuError {
    // Both kinds of `FaerError`, allocation failure and index overflow, mean that the factors are
    // too large.
    PivotingLuError::OutOfMemory
}

fn from_lu(error: LuError) -> PivotingLuError {
    match error {
        LuError::SymbolicSingular { index } => {
            PivotingLuError::Singular { reason: Singularity::NoPivot(index) }
        }
        LuError::Generic(error) => from_faer(error),
    }
}
