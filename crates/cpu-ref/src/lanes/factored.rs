//! Preconditioners that are factorised for a whole group: block-Jacobi, ILU(0), IC(0), and the
//! complete LU of the direct solver, which differs from ILU(0) in its pattern alone.
//!
//! Factors stored in f32 are computed in the same way from the scaled matrix, then rounded.

use super::equilibrate::{Rounded, Scales, by_column, by_row};
use super::precond::LanePrecond;
use crate::simd::{Columns, CpuScalar, Single, Stored, Vector};
use sparsebatch_formats::Scalar;
use sparsebatch_solve_core::symbolic::{DiagonalBlocks, FactorPattern, LowerPattern, NO_SOURCE};

/// The lanes in which `value` is zero or NaN.
#[inline(always)]
fn not_a_pivot<V: Vector>(value: V) -> u32 {
    !(V::zero().lt(value) | value.lt(V::zero()))
}

/// An entry of A, or 0 for fill.
#[inline(always)]
fn source_value<V: Vector>(a: &[V], source: u32) -> V {
    if source == NO_SOURCE { V::zero() } else { a[source as usize] }
}

/// LU factors on a given pattern: ILU(0) on the pattern of A, the complete LU on the filled
/// pattern.
#[derive(Clone, Debug)]
pub(crate) struct LuOnPattern {
    pattern: FactorPattern,
    cols: Columns,
    single: bool,
}

/// The factors of a group.
pub(crate) struct LuState<V: Vector> {
    /// L without its unit diagonal, U with its diagonal.
    lu: Vec<V>,
    inverse_diagonal: Vec<V>,
    work: Vec<V>,
    rounded: Option<Rounded<V>>,
}

/// Rows that a factorisation eliminates between two looks at the watch.
const LOOK_ROWS: usize = 128;

impl LuOnPattern {
    /// `single`: factors are stored in f32.
    pub(crate) fn new(pattern: FactorPattern, single: bool) -> Self {
        let cols = Columns::new(pattern.cols().to_vec());
        Self { pattern, cols, single }
    }

    pub(crate) fn pattern(&self) -> &FactorPattern {
        &self.pattern
    }

    pub(crate) fn start<V: Vector>(&self) -> LuState<V> {
        let (n, nnz) = (self.pattern.nrows(), self.pattern.nnz());
        LuState {
            lu: vec![V::zero(); nnz],
            inverse_diagonal: vec![V::zero(); n],
            work: vec![V::zero(); n],
            rounded: self.single.then(|| Rounded::new(n, nnz, n)),
        }
    }

    /// Factorises row by row with a dense accumulator ("IKJ", Saad 2003, algorithm 10.4); entries
    /// outside the pattern of the row are dropped. Returns the lanes with a zero or NaN pivot, or
    /// with a factor beyond the range of f32 where factors are rounded.
    #[inline(always)]
    pub(crate) fn factor<V: Vector>(&self, state: &mut LuState<V>, a: &[V]) -> u32 {
        self.factor_until(state, a, || false)
    }

    /// As [`LuOnPattern::factor`]; ends early, with all lanes bad, when `is_stopped`.
    #[inline(always)]
    pub(crate) fn factor_until<V: Vector>(
        &self,
        state: &mut LuState<V>,
        a: &[V],
        is_stopped: impl Fn() -> bool,
    ) -> u32 {
        let (pattern, cols, perm) = (&self.pattern, self.pattern.cols(), self.pattern.perm());
        let LuState { lu, inverse_diagonal, work, rounded } = state;
        if let Some(rounded) = rounded {
            let of_row = |row: usize| {
                let entries = pattern.lower(row).start..pattern.upper(row).end;
                entries.map(move |k| (perm[row], perm[cols[k] as usize], pattern.source()[k]))
            };
            rounded.scales.equilibrate(a, (0..pattern.nrows()).flat_map(of_row));
        }
        let one = V::splat(V::Scalar::ONE);
        let mut bad = 0;
        for row in 0..pattern.nrows() {
            if row % LOOK_ROWS == LOOK_ROWS - 1 && is_stopped() {
                return !0;
            }
            let (lower, upper) = (pattern.lower(row), pattern.upper(row));
            for k in lower.start..upper.end {
                work[cols[k] as usize] = source_value(a, pattern.source()[k]);
            }
            if let Some(rounded) = rounded {
                for &col in &cols[lower.start..upper.end] {
                    let value = &mut work[col as usize];
                    *value = rounded.scales.scale(*value, perm[row], perm[col as usize]);
                }
            }
            for k in lower {
                let pivot = cols[k] as usize;
                let factor = work[pivot].mul(inverse_diagonal[pivot]);
                lu[k] = factor;
                self.cols.scatter_sub(pattern.upper(pivot), lu, factor, work);
            }
            bad |= not_a_pivot(work[row]);
            inverse_diagonal[row] = one.div(work[row]);
            lu[upper.start - 1] = work[row];
            for k in upper {
                lu[k] = work[cols[k] as usize];
            }
        }
        match rounded {
            Some(rounded) => bad | rounded.round(lu, inverse_diagonal),
            None => bad,
        }
    }

    /// `z = U^-1 L^-1 r`, in the pattern's order.
    #[inline(always)]
    pub(crate) fn solve<V: Vector>(&self, state: &mut LuState<V>, r: &[V], z: &mut [V]) {
        let LuState { lu, inverse_diagonal, work, rounded } = state;
        match rounded {
            None => self.substitute::<V, V>(lu, inverse_diagonal, None, work, r, z),
            Some(Rounded { scales, entries, inverse_diagonal }) => {
                self.substitute(entries, inverse_diagonal, Some(scales), work, r, z);
            }
        }
    }

    #[inline(always)]
    fn substitute<V: Vector, S: Stored<V>>(
        &self,
        lu: &[S],
        inverse_diagonal: &[S],
        scales: Option<&Scales<V>>,
        work: &mut [V],
        r: &[V],
        z: &mut [V],
    ) {
        let (pattern, perm) = (&self.pattern, self.pattern.perm());
        for row in 0..pattern.nrows() {
            let right = by_row(scales, perm[row], r[perm[row] as usize]);
            work[row] = self.cols.neg_dot(pattern.lower(row), lu, work, right);
        }
        for row in (0..pattern.nrows()).rev() {
            let sum = self.cols.neg_dot(pattern.upper(row), lu, work, work[row]);
            let value = sum.mul(inverse_diagonal[row].load());
            work[row] = value;
            z[perm[row] as usize] = by_column(scales, perm[row], value);
        }
    }

    /// `z = L^-T U^-T r`, in the pattern's order: the solve with the transposed matrix, column by
    /// column. For factors that are not rounded.
    #[inline(always)]
    pub(crate) fn solve_transposed<V: Vector>(&self, state: &mut LuState<V>, r: &[V], z: &mut [V]) {
        let LuState { lu, inverse_diagonal, work, rounded } = state;
        debug_assert!(rounded.is_none(), "factors of the sparse LU are not rounded");
        let (pattern, perm) = (&self.pattern, self.pattern.perm());
        for (work, &row) in work.iter_mut().zip(perm) {
            *work = r[row as usize];
        }
        for row in 0..pattern.nrows() {
            let value = work[row].mul(inverse_diagonal[row]);
            work[row] = value;
            self.cols.scatter_sub(pattern.upper(row), lu, value, work);
        }
        for row in (0..pattern.nrows()).rev() {
            let value = work[row];
            z[perm[row] as usize] = value;
            self.cols.scatter_sub(pattern.lower(row), lu, value, work);
        }
    }
}

/// ILU(0).
impl<T: CpuScalar> LanePrecond<T> for &LuOnPattern {
    const DIAGONAL: bool = false;
    const IDENTITY: bool = false;
    type State<V: Vector<Scalar = T>> = LuState<V>;

    fn start<V: Vector<Scalar = T>>(&self) -> LuState<V> {
        LuOnPattern::start(self)
    }

    #[inline(always)]
    fn factor<V: Vector<Scalar = T>>(&self, state: &mut LuState<V>, a: &[V]) -> u32 {
        LuOnPattern::factor(self, state, a)
    }

    #[inline(always)]
    fn apply<V: Vector<Scalar = T>>(&self, state: &mut LuState<V>, r: &[V], z: &mut [V]) {
        self.solve(state, r, z);
    }
}

/// IC(0).
#[derive(Clone, Debug)]
pub(crate) struct Ic0 {
    pattern: LowerPattern,
    cols: Columns,
    rows: Columns,
    single: bool,
}

/// The factor of a group.
pub(crate) struct Ic0State<V: Vector> {
    /// L by rows.
    l: Vec<V>,
    /// L strictly below the diagonal, by columns.
    by_column: Vec<V>,
    inverse_diagonal: Vec<V>,
    work: Vec<V>,
    rounded: Option<RoundedIc0<V>>,
}

/// The factor in f32.
struct RoundedIc0<V: Vector> {
    l: Rounded<V>,
    by_column: Vec<Single<V>>,
}

impl Ic0 {
    /// `single`: factors are stored in f32.
    pub(crate) fn new(pattern: LowerPattern, single: bool) -> Self {
        let cols = Columns::new(pattern.cols().to_vec());
        let rows = Columns::new(pattern.rows().to_vec());
        Self { pattern, cols, rows, single }
    }

    /// Entry `k`, which lies in `row`, of the matrix to factorise, scaled if `scales` are given.
    #[inline(always)]
    fn source_value<V: Vector>(
        &self,
        a: &[V],
        scales: Option<&Scales<V>>,
        row: usize,
        k: usize,
    ) -> V {
        let (pattern, perm) = (&self.pattern, self.pattern.perm());
        let value = source_value(a, pattern.source()[k]);
        match scales {
            Some(scales) => scales.scale(value, perm[row], perm[pattern.cols()[k] as usize]),
            None => value,
        }
    }

    #[inline(always)]
    fn substitute<V: Vector, S: Stored<V>>(
        &self,
        [l, columns, inverse_diagonal]: [&[S]; 3],
        scales: Option<&Scales<V>>,
        work: &mut [V],
        r: &[V],
        z: &mut [V],
    ) {
        let (pattern, perm) = (&self.pattern, self.pattern.perm());
        for row in 0..pattern.nrows() {
            let right = by_row(scales, perm[row], r[perm[row] as usize]);
            let sum = self.cols.neg_dot(pattern.strict(row), l, work, right);
            work[row] = sum.mul(inverse_diagonal[row].load());
        }
        for row in (0..pattern.nrows()).rev() {
            let sum = self.rows.neg_dot(pattern.column(row), columns, work, work[row]);
            let value = sum.mul(inverse_diagonal[row].load());
            work[row] = value;
            z[perm[row] as usize] = by_column(scales, perm[row], value);
        }
    }
}

impl<T: CpuScalar> LanePrecond<T> for &Ic0 {
    const DIAGONAL: bool = false;
    const IDENTITY: bool = false;
    type State<V: Vector<Scalar = T>> = Ic0State<V>;

    fn start<V: Vector<Scalar = T>>(&self) -> Ic0State<V> {
        let (n, nnz, below) = (self.pattern.nrows(), self.pattern.nnz(), self.pattern.rows().len());
        let rounded = || RoundedIc0 {
            l: Rounded::new(n, nnz, n),
            by_column: vec![Single::new(V::zero()); below],
        };
        Ic0State {
            l: vec![V::zero(); nnz],
            by_column: vec![V::zero(); if self.single { 0 } else { below }],
            inverse_diagonal: vec![V::zero(); n],
            work: vec![V::zero(); n],
            rounded: self.single.then(rounded),
        }
    }

    /// Computes L row by row, each entry from the dot product of two rows of L. The accumulator
    /// holds the current row and is zero elsewhere. A pivot that is not positive fails the lane.
    #[inline(always)]
    fn factor<V: Vector<Scalar = T>>(&self, state: &mut Ic0State<V>, a: &[V]) -> u32 {
        let (pattern, cols, perm) = (&self.pattern, self.pattern.cols(), self.pattern.perm());
        let Ic0State { l, by_column, inverse_diagonal, work, rounded } = state;
        if let Some(rounded) = rounded {
            let diagonals = (0..pattern.nrows())
                .map(|row| (perm[row], perm[row], pattern.source()[pattern.diagonal(row)]));
            rounded.l.scales.equilibrate_symmetric(a, diagonals);
        }
        let scales = rounded.as_ref().map(|rounded| &rounded.l.scales);
        work.fill(V::zero());
        let one = V::splat(T::ONE);
        let mut bad = 0;
        for row in 0..pattern.nrows() {
            let diagonal = pattern.diagonal(row);
            let mut pivot = self.source_value(a, scales, row, diagonal);
            for k in pattern.strict(row) {
                let col = cols[k] as usize;
                let entry = self.source_value(a, scales, row, k);
                let entry = self.cols.neg_dot(pattern.strict(col), l, work, entry);
                let entry = entry.mul(inverse_diagonal[col]);
                work[col] = entry;
                l[k] = entry;
                pivot = entry.neg_mul_add(entry, pivot);
            }
            for k in pattern.strict(row) {
                work[cols[k] as usize] = V::zero();
            }
            bad |= !V::zero().lt(pivot);
            let root = pivot.sqrt();
            l[diagonal] = root;
            inverse_diagonal[row] = one.div(root);
        }
        match rounded {
            Some(rounded) => {
                bad |= rounded.l.round(l, inverse_diagonal);
                for (value, &k) in rounded.by_column.iter_mut().zip(pattern.pos()) {
                    *value = rounded.l.entries[k as usize];
                }
            }
            None => {
                for (value, &k) in by_column.iter_mut().zip(pattern.pos()) {
                    *value = l[k as usize];
                }
            }
        }
        bad
    }

    #[inline(always)]
    fn apply<V: Vector<Scalar = T>>(&self, state: &mut Ic0State<V>, r: &[V], z: &mut [V]) {
        let Ic0State { l, by_column, inverse_diagonal, work, rounded } = state;
        match rounded {
            None => self.substitute::<V, V>([l, by_column, inverse_diagonal], None, work, r, z),
            Some(RoundedIc0 { l, by_column }) => {
                let factor: [&[Single<V>]; 3] = [&l.entries, by_column, &l.inverse_diagonal];
                self.substitute(factor, Some(&l.scales), work, r, z);
            }
        }
    }
}

/// Inverses of diagonal blocks.
#[derive(Clone, Debug)]
pub(crate) struct BlockJacobi {
    blocks: DiagonalBlocks,
    single: bool,
}

/// The inverses of a group, row-major.
pub(crate) struct BlockState<V: Vector> {
    inverses: Vec<V>,
    rounded: Option<Rounded<V>>,
    /// The row-scaled vector that the rounded inverses are applied to.
    scaled: Vec<V>,
}

impl BlockJacobi {
    /// `single`: inverses are stored in f32.
    pub(crate) fn new(blocks: DiagonalBlocks, single: bool) -> Self {
        Self { blocks, single }
    }

    fn nrows(&self) -> usize {
        (0..self.blocks.nblocks()).map(|block| self.blocks.rows(block).len()).sum()
    }

    #[inline(always)]
    fn multiply<V: Vector, S: Stored<V>>(
        &self,
        inverses: &[S],
        scales: Option<&Scales<V>>,
        r: &[V],
        z: &mut [V],
    ) {
        for block in 0..self.blocks.nblocks() {
            let rows = self.blocks.rows(block);
            let mut slot = self.blocks.dense_ptr()[block];
            for row in rows.clone() {
                let mut sum = V::zero();
                for (value, &r) in inverses[slot..].iter().zip(&r[rows.clone()]) {
                    sum = value.load().mul_add(r, sum);
                }
                z[row] = by_column(scales, row as u32, sum);
                slot += rows.len();
            }
        }
    }
}

impl<T: CpuScalar> LanePrecond<T> for &BlockJacobi {
    const DIAGONAL: bool = false;
    const IDENTITY: bool = false;
    type State<V: Vector<Scalar = T>> = BlockState<V>;

    fn start<V: Vector<Scalar = T>>(&self) -> BlockState<V> {
        let (n, entries) = (self.nrows(), self.blocks.source().len());
        BlockState {
            inverses: vec![V::zero(); entries],
            rounded: self.single.then(|| Rounded::new(n, entries, 0)),
            scaled: vec![V::zero(); if self.single { n } else { 0 }],
        }
    }

    /// Inverts each block by Gauss-Jordan with row pivoting. The pivots differ from lane to lane,
    /// so the lanes are inverted one by one.
    #[inline(always)]
    fn factor<V: Vector<Scalar = T>>(&self, state: &mut BlockState<V>, a: &[V]) -> u32 {
        let BlockState { inverses, rounded, .. } = state;
        let of_block = |block: usize| {
            let rows = self.blocks.rows(block);
            let (first, size) = (rows.start, rows.len());
            let source = self.blocks.block_source(block);
            (0..size * size)
                .map(move |k| ((first + k / size) as u32, (first + k % size) as u32, source[k]))
        };
        if let Some(rounded) = rounded {
            let entries = (0..self.blocks.nblocks()).flat_map(of_block);
            rounded.scales.equilibrate(a, entries);
        }
        let mut bad = 0;
        let (mut dense, mut inverse) = (Vec::new(), Vec::new());
        for block in 0..self.blocks.nblocks() {
            let slots = self.blocks.dense_ptr()[block]..self.blocks.dense_ptr()[block + 1];
            let size = self.blocks.rows(block).len();
            for lane in 0..V::LANES {
                dense.clear();
                dense.extend(of_block(block).map(|(row, col, source)| {
                    let value = source_value(a, source);
                    match rounded {
                        Some(rounded) => rounded.scales.scale(value, row, col).get(lane),
                        None => value.get(lane),
                    }
                }));
                if !invert(size, &mut dense, &mut inverse) {
                    bad |= 1 << lane;
                }
                for (slot, &value) in inverses[slots.clone()].iter_mut().zip(&inverse) {
                    slot.set(lane, value);
                }
            }
        }
        match rounded {
            Some(rounded) => bad | rounded.round(inverses, &[]),
            None => bad,
        }
    }

    #[inline(always)]
    fn apply<V: Vector<Scalar = T>>(&self, state: &mut BlockState<V>, r: &[V], z: &mut [V]) {
        let BlockState { inverses, rounded, scaled } = state;
        match rounded {
            None => self.multiply::<V, V>(inverses, None, r, z),
            Some(Rounded { scales, entries, .. }) => {
                for ((scaled, &r), &power) in scaled.iter_mut().zip(r).zip(&scales.rows) {
                    *scaled = r.mul(power);
                }
                self.multiply(entries, Some(scales), scaled, z);
            }
        }
    }
}

/// Inverts a dense row-major matrix by Gauss-Jordan elimination with row pivoting; false when it
/// is singular (the inverse is then zero).
fn invert<T: Scalar>(size: usize, dense: &mut [T], inverse: &mut Vec<T>) -> bool {
    inverse.clear();
    inverse.resize(size * size, T::ZERO);
    for i in 0..size {
        inverse[i * size + i] = T::ONE;
    }
    for col in 0..size {
        let mut pivot = col;
        for row in col + 1..size {
            if dense[row * size + col].abs() > dense[pivot * size + col].abs() {
                pivot = row;
            }
        }
        let value = dense[pivot * size + col];
        if value == T::ZERO || !value.is_finite() {
            inverse.fill(T::ZERO);
            return false;
        }
        for j in 0..size {
            dense.swap(col * size + j, pivot * size + j);
            inverse.swap(col * size + j, pivot * size + j);
        }
        for j in 0..size {
            dense[col * size + j] /= value;
            inverse[col * size + j] /= value;
        }
        for row in 0..size {
            let factor = dense[row * size + col];
            if row == col || factor == T::ZERO {
                continue;
            }
            for j in 0..size {
                let (d, v) = (dense[col * size + j], inverse[col * size + j]);
                dense[row * size + j] -= factor * d;
                inverse[row * size + j] -= factor * v;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_with_a_zero_diagonal_is_inverted() {
        let mut inverse = Vec::new();

        let regular = invert(2, &mut [0.0, 2.0, 4.0, 0.0], &mut inverse);

        assert!(regular);
        assert_eq!(inverse, [0.0, 0.25, 0.5, 0.0]);
    }

    #[test]
    fn a_singular_matrix_is_refused() {
        let mut inverse = Vec::new();

        let regular = invert(2, &mut [1.0, 2.0, 2.0, 4.0], &mut inverse);

        assert!(!regular);
    }
}
