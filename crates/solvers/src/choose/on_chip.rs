//! The choice of `auto` on a GPU ([`choose_schemes`]): whether a factorisation is faster than
//! iterations.

use sparsebatch_cuda::DeviceInfo;
use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};
use sparsebatch_solve_core::symbolic::{LuCosts, is_structurally_symmetric, multicolor};

use sparsebatch_solvers_gpu::{BandedShape, MOST_LU_VALUES, banded_shape, values_beside_factors};

use super::{Diagonal, Dominance, Flags, PatternFeatures, Target, choose};
use crate::{Method, SolveOptions};
use sparsebatch_solve_core::Scheme;

/// The schemes that [`Method::Auto`](crate::Method::Auto) stands for on a GPU, each with the number
/// of items that take it first, most items first; another method stands for itself. Beside it a
/// preconditioner `auto` may be IC(0) or ILU(0) by colours. Plans for data on the device, which have
/// one scheme, may take the first.
pub fn choose_schemes<T: Scalar>(
    batch: &Batch<T>,
    options: &SolveOptions,
    info: &DeviceInfo,
) -> Vec<(Scheme, usize)> {
    let choices = choose(batch, options, Target::Gpu(OnChip::new(info, size_of::<T>())));
    choices.into_iter().map(|choice| (choice.scheme, choice.items.len())).collect()
}

/// Nanoseconds of a system in a batch of 10,000 on an NVIDIA H200, per unit of work. Fitted to
/// measured solves of generated families and chemistry; only their ratios matter.
mod nanoseconds {
    /// Banded elimination: constant, and per number that goes through device memory, of tridiagonal
    /// and of pentadiagonal systems. Within 3 % of the times of tridiagonal systems of 32 to 2,048
    /// rows in f64, where it is 1.8 times that of a copy, and within 17 % of those of pentadiagonal
    /// ones of up to 1,024 rows; up to a third more than those in f32. With three and four
    /// diagonals on a side, for the rows that the kernel has room for, 28 % below to 34 % above
    /// those of 32 to 2,048 rows.
    pub(super) const BANDED: [f64; 5] = [0.5, 0.0034, 0.007, 0.01, 0.014];
    /// How many times as long that takes where several blocks solve a system: 1.4 to 3 times with
    /// 2,048 to 10,000 rows.
    pub(super) const SEVERAL_BLOCKS: f64 = 2.0;
    /// A product and its subtraction in a factorisation.
    pub(super) const LU_PAIR: f64 = 0.0006;
    /// An entry of the factors.
    pub(super) const LU_ENTRY: f64 = 0.026;
    /// An entry of factors that are made front by front, which do not fit on chip, and a product:
    /// 26 % below to 5 % above the times of grids of 1,225 to 10,000 rows.
    pub(super) const FRONT_ENTRY: f64 = 0.04;
    pub(super) const FRONT_PAIR: f64 = 0.0005;
    /// An iteration of CG and of BiCGStab with Jacobi per entry, for systems whose factors do not
    /// fit on chip: CG of grids of 2,116 to 4,900 rows 0.0041 to 0.0059, BiCGStab of 4,900 rows
    /// 0.0128.
    pub(super) const LARGE_CG: f64 = 0.0045;
    pub(super) const LARGE_BICGSTAB: f64 = 0.0125;
    /// Start and end of a solve: constant, per entry.
    pub(super) const START: [f64; 2] = [3.5, 0.0028];
    /// An iteration of CG: constant, per entry, per row.
    pub(super) const CG: [f64; 3] = [0.1, 0.00025, 0.002];
    /// An iteration of BiCGStab: constant, per entry, per row.
    pub(super) const BICGSTAB: [f64; 3] = [0.15, 0.0018, 0.0003];
    /// BiCGStab with Jacobi for systems that dense elimination takes, too: start and end, and an
    /// iteration, each a constant and the time per entry. Within 12 % of the times of nearly full
    /// chemistry of 22 to 54 rows (`benches/results/dense/2026-11-27-h200.jsonl`), for which the
    /// figures above are 26 % too low.
    pub(super) const NEARLY_FULL: [[f64; 2]; 2] = [[3.2, 0.0018], [0.15, 0.0026]];
    /// Dense elimination: the most rows of a kernel, and its time at that number of rows, with which
    /// it falls in proportion. In f64 and in f32.
    pub(super) const DENSE: [[(usize, f64); 8]; 2] = [
        [
            (8, 0.94),
            (16, 2.9),
            (24, 5.1),
            (32, 7.5),
            (40, 14.0),
            (48, 18.7),
            (56, 32.8),
            (64, 72.0),
        ],
        [(8, 0.9), (16, 2.0), (24, 5.0), (32, 7.2), (40, 16.5), (48, 23.2), (56, 27.5), (64, 34.5)],
    ];
}

/// Bytes of shared memory that are reserved.
const RESERVED_BYTES: u64 = 2048;

/// Rows of the systems that iterate quicker with factors by two colours, entries of a row, and the
/// shared memory of a block, as far as that was measured.
const ROWS_OF_FACTORS: std::ops::RangeInclusive<usize> = 2049..=4096;
const ENTRIES_OF_FACTORS: usize = 5;
const SHARED_OF_FACTORS: u64 = 232_448;

/// The most rows of systems, and the most entries and products of factors, for which an LU beyond
/// the chip is considered: the analysis takes a few tens of milliseconds then, and where fronts do
/// not fit there is another solver for that many products.
const MOST_ROWS_OF_FRONTS: usize = 20_000;
const MOST_ENTRIES_OF_FRONTS: usize = 1_500_000;
const MOST_PRODUCTS_OF_FRONTS: u64 = 33_554_432;

/// Iterations of BiCGStab relative to CG's bound. It has two products in each iteration, and for
/// unsymmetric dominant matrices the bound is far from sharp (for `rand9` 9 iterations, where the
/// bound, with two products, gives 38).
const BICGSTAB_SHARE: f64 = 0.125;

/// The most iterations of BiCGStab with Jacobi that nearly full systems of chemistry were seen to
/// take.
const FEW_ITERATIONS: f64 = 2.6;

/// What a factorisation must be able to do to be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Residuals are to be recorded, which neither banded nor dense elimination does.
    pub(crate) history: bool,
    /// An LU beyond the chip may be chosen.
    pub(crate) fronts: bool,
}

/// The on-chip memory of a GPU for factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnChip {
    /// Shared memory of a block.
    pub(crate) shared_bytes: u64,
    /// The most blocks of a cluster.
    pub(crate) cluster: u32,
    /// Bytes of a value.
    pub(crate) value_bytes: u64,
}

impl OnChip {
    /// The on-chip memory of a device for values of `value_bytes` bytes.
    pub(crate) fn new(info: &DeviceInfo, value_bytes: usize) -> Self {
        Self {
            shared_bytes: u64::from(info.shared_bytes_per_block),
            cluster: info.most_blocks_of_cluster(),
            value_bytes: value_bytes as u64,
        }
    }

    /// The largest number of factor entries of a pattern that fit in a block.
    pub(crate) fn most_entries(self, pattern: CsrPatternRef<'_>) -> usize {
        let bytes = self.shared_bytes.saturating_sub(RESERVED_BYTES);
        let most = (bytes / self.value_bytes).min(MOST_LU_VALUES) as usize;
        most.saturating_sub(values_beside_factors(pattern))
    }

    /// The largest number of factor entries of a pattern for which an LU beyond the chip is
    /// considered: 0 unless it is structurally symmetric, since fronts are those of `A + A^T`.
    pub(crate) fn most_of_fronts(pattern: CsrPatternRef<'_>) -> usize {
        let is_considered =
            pattern.nrows() <= MOST_ROWS_OF_FRONTS && is_structurally_symmetric(pattern);
        if is_considered { MOST_ENTRIES_OF_FRONTS } else { 0 }
    }

    /// The shape of banded elimination for a pattern; `None` where that does not take it.
    pub(crate) fn band(self, pattern: CsrPatternRef<'_>) -> Option<BandedShape> {
        let shared_bytes = u32::try_from(self.shared_bytes).unwrap_or(u32::MAX);
        banded_shape(pattern, self.value_bytes as usize, (shared_bytes, self.cluster))
    }

    /// Whether incomplete factors by colours are quicker than Jacobi in CG and BiCGStab: in f64,
    /// where the fused kernel has 512 threads for a system, for patterns of two colours and at most
    /// five entries a row. Measured on an NVIDIA H200 on grids with five-point stencils of 2,500 to
    /// 4,096 rows, 2,000 systems: CG 1.02 to 1.32 times as quick, BiCGStab 0.97 to 1.82 times. Cards with
    /// less shared memory for a block are left to Jacobi.
    pub(crate) fn prefers_factors(self, pattern: CsrPatternRef<'_>) -> bool {
        self.value_bytes == 8
            && self.shared_bytes >= SHARED_OF_FACTORS
            && ROWS_OF_FACTORS.contains(&pattern.nrows())
            && (0..pattern.nrows()).all(|row| pattern.row(row).len() <= ENTRIES_OF_FACTORS)
            && has_two_colours(pattern)
    }

    /// The quicker factorisation, where one is to be taken in place of CG or BiCGStab; `None` where
    /// iterations are estimated to be quicker.
    ///
    /// Banded elimination: by the numbers of a system, the residual included. It takes less time
    /// than the sparse LU wherever there is a kernel, and so takes its place. LU: by the operations
    /// of the factorisation, and beyond the chip by the entries of its factors, too. Dense
    /// elimination: by the number of rows, as far as it takes them. CG, with Jacobi: by the number
    /// of iterations `k = 1/2 sqrt((1 + r) / (1 - r)) ln(2 / rel_tol)`, where r bounds the spectral
    /// radius of Jacobi's iteration, and at most the number of rows n and 4 n over the bandwidth,
    /// as many as a wave takes to cross the grid four times. BiCGStab: an eighth of k. Nearly
    /// full chemistry takes 1.1 to 2.6 iterations whatever the bound, so dense elimination is
    /// compared with BiCGStab at no more than 2.6, the upper end. It is taken, too, where the sparse
    /// LU would be but takes longer, and where nothing bounds the iterations. In f32, for
    /// which `NEARLY_FULL` was not fitted, it is not compared with BiCGStab.
    ///
    /// # Source
    /// The bound of CG: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, section
    /// 6.11.3, with the condition number bounded by Gershgorin's circles.
    pub(crate) fn quicker_factorisation(
        self,
        pattern: &PatternFeatures,
        needs: Needs,
        flags: Flags,
        rel_tol: f64,
    ) -> Option<Method> {
        use nanoseconds::{BANDED, BICGSTAB, CG, DENSE, LU_ENTRY, LU_PAIR, SEVERAL_BLOCKS, START};
        use nanoseconds::{FRONT_ENTRY, FRONT_PAIR, LARGE_BICGSTAB, LARGE_CG, NEARLY_FULL};
        let (nrows, nnz) = (pattern.nrows as f64, pattern.nnz as f64);
        let band = pattern.band.filter(|_| !needs.history);
        // Entries of the band, b and x.
        let of_band = |shape: BandedShape| {
            let half_width = shape.half_width as usize;
            let times = if shape.cluster > 1 { SEVERAL_BLOCKS } else { 1.0 };
            let rows = if half_width > 2 { shape.rows() as f64 } else { nrows };
            BANDED[0] + times * BANDED[half_width] * (2 * half_width + 3) as f64 * rows
        };
        let banded = band.map_or(f64::INFINITY, of_band);
        let of_lu = |factors: &LuCosts| {
            LU_PAIR * factors.products as f64 + LU_ENTRY * factors.entries as f64
        };
        let lu = pattern.factors.as_ref().map_or(f64::INFINITY, of_lu);
        // The sparse LU of a band is not taken, but its time is compared with dense elimination.
        let sparse = lu.min(banded);
        let fits = |kernel: &&(usize, f64)| !needs.history && pattern.nrows <= kernel.0;
        let kernel = DENSE[usize::from(self.value_bytes == 4)].iter().find(fits);
        let dense = kernel.map_or(f64::INFINITY, |&(rows, time)| time * nrows / rows as f64);
        let bound = iterations(flags.dominance, rel_tol);
        let is_for_cg = flags.symmetric && flags.diagonal == Diagonal::Positive;
        let (iterations, costs, large) = match is_for_cg {
            true => (bound.min(nrows).min(4.0 * nrows / pattern.bandwidth as f64), CG, LARGE_CG),
            false => (BICGSTAB_SHARE * bound, BICGSTAB, LARGE_BICGSTAB),
        };
        let each = costs[0] + costs[1] * nnz + costs[2] * nrows;
        let limit = START[0] + START[1] * nnz + iterations * each;
        let fronts = pattern.fronts.as_ref().filter(|costs| {
            needs.fronts && band.is_none() && costs.products <= MOST_PRODUCTS_OF_FRONTS
        });
        if let Some(costs) = fronts {
            let lu = FRONT_ENTRY * costs.entries as f64 + FRONT_PAIR * costs.products as f64;
            return (lu < iterations * large * nnz).then_some(Method::Lu);
        }
        let [start, step] = NEARLY_FULL.map(|[constant, entry]| constant + entry * nnz);
        let few = if iterations.is_finite() { iterations.min(FEW_ITERATIONS) } else { iterations };
        let is_compared = self.value_bytes == 8 || iterations.is_infinite();
        let is_dense_quicker = is_compared && !is_for_cg && dense < start + few * step;
        let is_better = sparse < limit || is_dense_quicker;
        is_better.then_some(match band {
            _ if sparse > dense => Method::PivotingLu,
            Some(_) => Method::Banded,
            None => Method::Lu,
        })
    }
}

/// Whether the rows of a pattern have two colours in the order [`multicolor`]: every entry beside
/// the diagonal joins a row of the first to one of the second.
pub(super) fn has_two_colours(pattern: CsrPatternRef<'_>) -> bool {
    let Ok(order) = multicolor(pattern) else { return false };
    let mut position = vec![0; pattern.nrows()];
    (0..).zip(&order).for_each(|(k, &row)| position[row as usize] = k);
    let pairs = || {
        (0..pattern.nrows()).flat_map(|row| {
            let cols = pattern.col_idx()[pattern.row(row)].iter().map(|&col| col as usize);
            let position = &position;
            cols.filter(move |&col| col != row).map(move |col| [position[row], position[col]])
        })
    };
    // The first row that has a neighbour before it.
    let Some(second) = pairs().map(|[a, b]: [usize; 2]| a.max(b)).min() else { return false };
    pairs().all(|[a, b]| (a < second) != (b < second))
}

/// CG's bound of the number of iterations for a spectral radius of Jacobi's iteration; infinite
/// where there is no bound.
fn iterations(dominance: Dominance, rel_tol: f64) -> f64 {
    let radius = dominance.radius();
    if radius >= 1.0 || rel_tol <= 0.0 {
        return f64::INFINITY;
    }
    let condition = (1.0 + radius) / (1.0 - radius);
    (0.5 * condition.sqrt() * (2.0 / rel_tol).ln()).max(1.0)
}
