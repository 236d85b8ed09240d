//! Factorisation and application of a preconditioner, or of complete factors, as sums of products
//! in levels.

use std::ops::Range;

use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::symbolic::{
    DiagonalBlocks, FactorPattern, LowerPattern, SymbolicError, elimination_order, min_degree,
};

use super::tasks as narrow;
use crate::GpuSolveError;
use sparsebatch_solve_core::{Preconditioner, Scheme};

/// Marks a task without a factor: its sum is not multiplied.
pub(super) const NONE: u32 = u32::MAX;

/// The most products of a factorisation: their positions take 256 MiB on the device.
const MOST_PRODUCTS: u64 = 1 << 25;

/// `value[place] -= sum of left * right`, then multiplied by `value[factor]`. In a factorisation,
/// `factor == place` marks a pivot, which is inverted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WideTask {
    pub(super) place: u32,
    pub(super) factor: u32,
    /// Range of its pairs in [`FactoredProgram::pairs`].
    pub(super) pairs: Range<usize>,
    /// Level, from 0; a task needs results of lower levels only.
    pub(super) level: u32,
}

/// Tasks, each after those whose results it reads, and the operands of their products.
#[derive(Clone, Debug, Default)]
pub(super) struct FactoredProgram {
    pub(super) tasks: Vec<WideTask>,
    /// Positions of left and right operands.
    pub(super) pairs: Vec<(u32, u32)>,
}

impl FactoredProgram {
    pub(super) fn nlevels(&self) -> usize {
        self.tasks.iter().map(|task| task.level as usize + 1).max().unwrap_or(0)
    }

    /// The same tasks with 16-bit positions; the caller ensures that all fit.
    pub(super) fn to_narrow(&self) -> narrow::Tasks {
        let task = |task: &WideTask| narrow::Task {
            place: task.place,
            factor: if task.factor == NONE { narrow::NONE } else { task.factor },
            pairs: task.pairs.clone(),
            level: task.level,
        };
        narrow::Tasks {
            tasks: self.tasks.iter().map(task).collect(),
            pairs: self.pairs.iter().map(|&(left, right)| left | right << 16).collect(),
        }
    }
}

/// Builds a program and computes the levels. Tasks write the values of one array; the operands
/// outside it (in an application, the factors) are known before.
struct ProgramBuilder {
    program: FactoredProgram,
    /// One more than the level of the task that last wrote a value; 0 where none did.
    ready: Vec<u32>,
    /// One more than the highest level of the tasks that read a value as right operand.
    read: Vec<u32>,
    /// Whether left operands and factors are values that tasks write.
    is_factorisation: bool,
}

impl ProgramBuilder {
    fn new(places: usize, is_factorisation: bool) -> Self {
        let (ready, read) = (vec![0; places], vec![0; places]);
        Self { program: FactoredProgram::default(), ready, read, is_factorisation }
    }

    fn push(&mut self, place: u32, factor: u32, pairs: impl Iterator<Item = (u32, u32)>) {
        let all = &mut self.program.pairs;
        let first = all.len();
        all.extend(pairs);
        let pairs = first..all.len();
        if pairs.is_empty() && factor == NONE {
            return;
        }
        // A value is overwritten only after all tasks that read it.
        let mut level = self.ready[place as usize].max(self.read[place as usize]);
        if self.is_factorisation && factor != NONE {
            level = level.max(self.ready[factor as usize]);
        }
        for &(left, right) in &all[pairs.clone()] {
            level = level.max(self.ready[right as usize]);
            if self.is_factorisation {
                level = level.max(self.ready[left as usize]);
            }
        }
        for &(_, right) in &all[pairs.clone()] {
            let read = &mut self.read[right as usize];
            *read = (*read).max(level + 1);
        }
        self.ready[place as usize] = level + 1;
        self.program.tasks.push(WideTask { place, factor, pairs, level });
    }
}

/// The factors of a pattern, found once.
#[derive(Clone, Debug)]
pub(super) enum Factors {
    /// Inverses of diagonal blocks.
    Blocks(DiagonalBlocks),
    /// Incomplete factors, or complete ones.
    Sums(Box<FactoredSums>),
}

/// Factorisation and application of factors; positions are those of entries in the factors'
/// pattern.
#[derive(Clone, Debug)]
pub(super) struct FactoredSums {
    /// Index in A's values of each entry, or `NO_SOURCE`.
    pub(super) sources: Vec<u32>,
    /// Row and column of A of each entry.
    pub(super) positions: Vec<(u32, u32)>,
    pub(super) factorisation: FactoredProgram,
    /// Values are rows of A; left operands and factors are entries of the factors.
    pub(super) application: FactoredProgram,
    /// Whether pivots must be positive and the inverse of their square root is kept: Cholesky.
    pub(super) root: bool,
}

impl Factors {
    /// The factors of a scheme: those of its preconditioner, which must have some, or of the sparse
    /// LU.
    pub(super) fn new(a: CsrPatternRef<'_>, scheme: Scheme) -> Result<Self, GpuSolveError> {
        let preconditioner = scheme.preconditioner();
        let permutation = elimination_order(a, preconditioner.order())?;
        let order = permutation.as_deref();
        let factors = match (scheme, preconditioner) {
            (Scheme::Lu, _) => return Self::complete(a),
            (_, Preconditioner::BlockJacobi { size, .. }) => {
                Self::Blocks(DiagonalBlocks::of_size(a, size)?)
            }
            (_, Preconditioner::Ic0 { .. }) => {
                let pattern = LowerPattern::ic0(a, order)?;
                check_products(pattern.flops())?;
                Self::Sums(Box::new(cholesky(&pattern)))
            }
            (_, Preconditioner::Ilu0 { .. }) => {
                let pattern = FactorPattern::ilu0(a, order)?;
                check_products(pattern.flops())?;
                Self::Sums(Box::new(lu(&pattern)))
            }
            (_, Preconditioner::None | Preconditioner::Auto | Preconditioner::Jacobi) => {
                return Err(GpuSolveError::Unsupported {
                    what: "a factored solve with a preconditioner without factors",
                    instead: "take block-jacobi, ilu0 or ic0",
                });
            }
        };
        if factors.len() >= NONE as usize {
            return Err(GpuSolveError::Unsupported {
                what: "a preconditioner of more than 4294967294 values",
                instead: "take smaller blocks",
            });
        }
        Ok(factors)
    }

    /// The factors of the sparse LU without pivoting, all fill included, in minimum-degree order.
    fn complete(a: CsrPatternRef<'_>) -> Result<Self, GpuSolveError> {
        let order = min_degree(a)?;
        // Each entry of fill has at least one product.
        let most = (a.nnz() + a.nrows()).saturating_add(MOST_PRODUCTS as usize);
        let pattern = match FactorPattern::lu(a, Some(&order), most) {
            Err(SymbolicError::TooManyEntries { .. }) => return Err(TOO_MUCH_FILL),
            pattern => pattern?,
        };
        if complete_products(&pattern) > MOST_PRODUCTS {
            return Err(TOO_MUCH_FILL);
        }
        Ok(Self::Sums(Box::new(lu(&pattern))))
    }

    /// Number of values of a system's factors.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Blocks(blocks) => blocks.source().len(),
            Self::Sums(sums) => sums.sources.len(),
        }
    }

    /// The index in A's values from which each factor value starts, or `NO_SOURCE`.
    pub(super) fn sources(&self) -> Vec<u32> {
        match self {
            Self::Sums(sums) => sums.sources.clone(),
            // Column by column: the rows of a block are adjacent.
            Self::Blocks(blocks) => (0..blocks.nblocks())
                .flat_map(|block| {
                    let (size, source) = (blocks.rows(block).len(), blocks.block_source(block));
                    (0..size * size).map(move |k| source[k % size * size + k / size])
                })
                .collect(),
        }
    }

    /// The rows and the columns of A of all values.
    pub(super) fn positions(&self) -> [Vec<u32>; 2] {
        let (rows, columns) = match self {
            Self::Sums(sums) => sums.positions.iter().copied().unzip(),
            Self::Blocks(blocks) => (0..blocks.nblocks())
                .flat_map(|block| {
                    let rows = blocks.rows(block);
                    let (first, size) = (rows.start, rows.len());
                    (0..size * size).map(move |k| (first + k % size, first + k / size))
                })
                .map(|(row, column)| (row as u32, column as u32))
                .unzip(),
        };
        [rows, columns]
    }
}

const TOO_MUCH_FILL: GpuSolveError = GpuSolveError::Unsupported {
    what: "a sparse LU of more than 33554432 products",
    instead: "solve it on the CPU, or by an iterative method",
};

/// [`FactorPattern::flops`] of a pattern with all fill: each entry of a column of L times each
/// entry of the matching row of U.
fn complete_products(pattern: &FactorPattern) -> u64 {
    let row = |row: usize| pattern.cols()[pattern.lower(row)].iter();
    let of = |&pivot: &u32| pattern.upper(pivot as usize).len() as u64;
    (0..pattern.nrows()).flat_map(row).map(of).sum()
}

fn check_products(products: u64) -> Result<(), GpuSolveError> {
    if products <= MOST_PRODUCTS {
        return Ok(());
    }
    Err(GpuSolveError::Unsupported {
        what: "an incomplete factorisation of more than 33554432 products",
        instead: "take block-jacobi, or solve on the CPU",
    })
}

/// ILU on a pattern, by inner products (Crout): `a_ij - sum of l_ik u_kj over k < min(i, j)`, for L
/// times the inverse of the pivot, which is stored in place of the pivot. Products with an operand
/// outside the pattern are left out.
fn lu(pattern: &FactorPattern) -> FactoredSums {
    let (nrows, perm, cols) = (pattern.nrows(), pattern.perm(), pattern.cols());
    let mut factorisation = ProgramBuilder::new(pattern.nnz(), true);
    let mut in_row = vec![usize::MAX; nrows];
    let mut products: Vec<Vec<(u32, u32)>> = Vec::new();
    for row in 0..nrows {
        let entries = pattern.lower(row).start..pattern.upper(row).end;
        for (position, k) in entries.clone().enumerate() {
            in_row[cols[k] as usize] = position;
        }
        products.clear();
        products.resize(entries.len(), Vec::new());
        for k in pattern.lower(row) {
            for other in pattern.upper(cols[k] as usize) {
                if let Some(own) = products.get_mut(in_row[cols[other] as usize]) {
                    own.push((k as u32, other as u32));
                }
            }
        }
        for (own, k) in products.iter_mut().zip(entries.clone()) {
            let col = cols[k] as usize;
            let factor = if col <= row { pattern.diag()[col] } else { NONE };
            factorisation.push(k as u32, factor, own.drain(..));
        }
        for k in entries {
            in_row[cols[k] as usize] = usize::MAX;
        }
    }
    let mut application = ProgramBuilder::new(nrows, false);
    let known = |k: usize| (k as u32, perm[cols[k] as usize]);
    for (row, &place) in perm.iter().enumerate() {
        application.push(place, NONE, pattern.lower(row).map(known));
    }
    for row in (0..nrows).rev() {
        application.push(perm[row], pattern.diag()[row], pattern.upper(row).map(known));
    }
    let entries =
        |row: usize| (pattern.lower(row).start..pattern.upper(row).end).map(move |k| (row, k));
    FactoredSums {
        sources: pattern.source().to_vec(),
        positions: positions(perm, cols, (0..nrows).flat_map(entries)),
        factorisation: factorisation.program,
        application: application.program,
        root: false,
    }
}

/// IC(0): `l_ij = (a_ij - sum of l_ik l_jk over k < j) / l_jj`; the inverse of the square root of a
/// pivot is stored in place of the pivot.
fn cholesky(pattern: &LowerPattern) -> FactoredSums {
    let (nrows, perm, cols) = (pattern.nrows(), pattern.perm(), pattern.cols());
    let mut factorisation = ProgramBuilder::new(pattern.nnz(), true);
    let mut in_row = vec![NONE; nrows];
    for row in 0..nrows {
        for k in pattern.strict(row) {
            in_row[cols[k] as usize] = k as u32;
        }
        for k in pattern.strict(row) {
            let col = cols[k] as usize;
            let shared = pattern.strict(col).filter_map(|other| {
                let own = in_row[cols[other] as usize];
                (own != NONE).then_some((own, other as u32))
            });
            factorisation.push(k as u32, pattern.diagonal(col) as u32, shared);
        }
        let diagonal = pattern.diagonal(row) as u32;
        let squares = pattern.strict(row).map(|k| (k as u32, k as u32));
        factorisation.push(diagonal, diagonal, squares);
        for k in pattern.strict(row) {
            in_row[cols[k] as usize] = NONE;
        }
    }
    let mut application = ProgramBuilder::new(nrows, false);
    for row in 0..nrows {
        let known = pattern.strict(row).map(|k| (k as u32, perm[cols[k] as usize]));
        application.push(perm[row], pattern.diagonal(row) as u32, known);
    }
    for row in (0..nrows).rev() {
        let known =
            pattern.column(row).map(|k| (pattern.pos()[k], perm[pattern.rows()[k] as usize]));
        application.push(perm[row], pattern.diagonal(row) as u32, known);
    }
    let entries =
        |row: usize| (pattern.strict(row).start..=pattern.diagonal(row)).map(move |k| (row, k));
    FactoredSums {
        sources: pattern.source().to_vec(),
        positions: positions(perm, cols, (0..nrows).flat_map(entries)),
        factorisation: factorisation.program,
        application: application.program,
        root: true,
    }
}

/// Rows and columns of A of `entries`, given by row and index in the factors' pattern, in order.
fn positions(
    perm: &[u32],
    cols: &[u32],
    entries: impl Iterator<Item = (usize, usize)>,
) -> Vec<(u32, u32)> {
    entries.map(|(row, k)| (perm[row], perm[cols[k] as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};
    use sparsebatch_solve_core::Order;
    use sparsebatch_solve_core::symbolic::NO_SOURCE;

    /// [4 1 .; 1 5 2; . 2 6].
    const VALUES: [f64; 7] = [4.0, 1.0, 1.0, 5.0, 2.0, 2.0, 6.0];

    fn chain() -> CsrPattern {
        CsrPattern::try_new(3, 3, vec![0, 2, 5, 7], vec![0, 1, 0, 1, 2, 1, 2]).unwrap()
    }

    fn sums(preconditioner: Preconditioner, order: Order) -> FactoredSums {
        let scheme = Scheme::Cg(preconditioner.with_order(order));
        match Factors::new(chain().view(), scheme).unwrap() {
            Factors::Sums(sums) => *sums,
            Factors::Blocks(_) => unreachable!("incomplete factors"),
        }
    }

    /// Executes a program level by level, each level from its last task to its first: tasks of one
    /// level are independent. `left` holds the factors where tasks do not write them.
    fn work(program: &FactoredProgram, root: bool, values: &mut [f64], left: Option<&[f64]>) {
        for level in 0..program.nlevels() as u32 {
            for task in program.tasks.iter().rev().filter(|task| task.level == level) {
                let factor = |place: u32, values: &[f64]| match left {
                    Some(left) => left[place as usize],
                    None => values[place as usize],
                };
                let mut value = values[task.place as usize];
                for &(l, r) in &program.pairs[task.pairs.clone()] {
                    value -= factor(l, values) * values[r as usize];
                }
                if left.is_none() && task.factor == task.place {
                    value = 1.0 / if root { value.sqrt() } else { value };
                } else if task.factor != NONE {
                    value *= factor(task.factor, values);
                }
                values[task.place as usize] = value;
            }
        }
    }

    #[test]
    fn values_are_in_the_rows_and_columns_of_their_sources() {
        let a = chain();
        for (preconditioner, order) in [
            (Preconditioner::ILU0, Order::Natural),
            (Preconditioner::ILU0, Order::MinDegree),
            (Preconditioner::IC0, Order::MinDegree),
            (Preconditioner::IC0, Order::Multicolor),
            (Preconditioner::BLOCK_JACOBI, Order::Natural),
        ] {
            let preconditioner = preconditioner.with_order(order).with_block_size(Some(2));
            let factors = Factors::new(a.view(), Scheme::Cg(preconditioner)).unwrap();
            let [rows, columns] = factors.positions();

            assert_eq!((rows.len(), columns.len()), (factors.len(), factors.len()));
            for ((source, row), column) in factors.sources().into_iter().zip(rows).zip(columns) {
                let found = a.view().position(row as usize, column as usize);
                assert_eq!(found.map_or(NO_SOURCE, |k| k as u32), source, "{preconditioner}");
            }
        }
    }

    #[test]
    fn programs_factor_and_solve() {
        for preconditioner in [Preconditioner::ILU0, Preconditioner::IC0] {
            for order in [Order::Natural, Order::MinDegree, Order::Multicolor] {
                let sums = sums(preconditioner, order);
                let mut factors: Vec<f64> =
                    sums.sources.iter().map(|&source| VALUES[source as usize]).collect();
                work(&sums.factorisation, sums.root, &mut factors, None);
                // The right-hand side for x = (1, 2, 3); factors without fill are exact for this
                // matrix.
                let mut x = [6.0, 17.0, 22.0];
                work(&sums.application, sums.root, &mut x, Some(&factors));

                let close = x.iter().zip([1.0, 2.0, 3.0]).all(|(x, y)| (x - y).abs() < 1e-14);
                assert!(close, "{preconditioner} {order}: {x:?}");
            }
        }
    }

    /// A cyclic matrix, whose last rows fill in.
    #[test]
    fn complete_factors_solve_with_fill() {
        let cols: Vec<i32> = (0..6)
            .flat_map(|row: i32| {
                let mut cols = vec![row, (row + 1) % 6, (row + 5) % 6];
                cols.sort_unstable();
                cols
            })
            .collect();
        let row_ptr = (0..7).map(|row| 3 * row).collect();
        let a = CsrPattern::try_new(6, 6, row_ptr, cols).unwrap();
        let Factors::Sums(sums) = Factors::complete(a.view()).unwrap() else {
            unreachable!("sums")
        };
        let order = min_degree(a.view()).unwrap();
        let pattern = FactorPattern::lu(a.view(), Some(&order), usize::MAX).unwrap();
        assert!(pattern.fill() > 1);
        assert_eq!(complete_products(&pattern), pattern.flops());

        let values: Vec<f64> = (0..18).map(|k| 1.0 + 0.3 * f64::from(k * k % 7)).collect();
        let x: Vec<f64> = (1..7).map(f64::from).collect();
        let product = |row: usize| {
            let entries = a.view().row(row);
            entries.map(|k| values[k] * x[a.view().col_idx()[k] as usize]).sum::<f64>()
        };
        let mut found: Vec<f64> = (0..6).map(product).collect();
        let value = |&source: &u32| values.get(source as usize).copied().unwrap_or(0.0);
        let mut factors: Vec<f64> = sums.sources.iter().map(value).collect();
        work(&sums.factorisation, sums.root, &mut factors, None);
        work(&sums.application, sums.root, &mut found, Some(&factors));

        let close = found.iter().zip(&x).all(|(found, x)| (found - x).abs() < 1e-12);
        assert!(close, "{found:?}");
    }

    /// The solution overwrites no element of the right-hand side that another row still reads.
    #[test]
    fn unsymmetric_patterns_keep_what_is_read() {
        // Row 1 reads row 0, whose solution needs nothing from row 1.
        let a = CsrPattern::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1]).unwrap();
        let scheme = Scheme::Cg(Preconditioner::ILU0);
        let Factors::Sums(sums) = Factors::new(a.view(), scheme).unwrap() else {
            unreachable!("incomplete factors")
        };

        let level = |place: u32| {
            sums.application.tasks.iter().rfind(|task| task.place == place).unwrap().level
        };
        assert_eq!((level(0), level(1)), (1, 1));
        assert_eq!(sums.application.nlevels(), 2);
    }

    #[test]
    fn blocks_stand_column_by_column() {
        let scheme = Scheme::Cg(Preconditioner::BLOCK_JACOBI.with_block_size(Some(2)));
        let factors = Factors::new(chain().view(), scheme).unwrap();

        assert_eq!(factors.len(), 5);
        assert_eq!(factors.sources(), [0, 2, 1, 3, 6]);
        let diagonal = CsrPattern::try_new(2, 2, vec![0, 1, 2], vec![0, 1]).unwrap();
        let factors = Factors::new(diagonal.view(), scheme).unwrap();
        assert_eq!(factors.sources(), [0, NO_SOURCE, NO_SOURCE, 1]);
    }
}
