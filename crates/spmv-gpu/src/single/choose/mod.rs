//! Automatic choice of the kernel for a matrix: a pure function of the matrix's [`MatrixShape`].
//!
//! The [model](cost) predicts a time for every [`Candidate`]; the candidate with the least time is
//! taken. Formats that would store far more than the matrix are not candidates.

mod blocks;
pub mod cost;
mod shape;

use std::fmt;

pub use blocks::Blocks;
pub use cost::{Chain, Cost, ModelledWork};
pub use shape::{LANES, MatrixShape, Slices, WINDOWS};

use super::adaptive::{BLOCK_ENTRIES, shape as block_shape};
use super::launch::DIA_ROUND;
use super::{SingleKernel, SingleOptions};

/// Most slots per entry with which DIA, ELL and SELL are candidates.
const MOST_FILL: usize = 3;
/// Mean row length above which `csr-scalar` is no candidate: its accesses do not coalesce.
const SCALAR_MEAN: f64 = 6.0;
/// The same for `csr-unrolled`, which has four entries in flight.
const UNROLLED_MEAN: f64 = 12.0;
/// `csr-balanced` is a candidate for large matrices of few long rows, which are worth its second
/// launch.
const BALANCED_ENTRIES: usize = 1_000_000;
const BALANCED_MEAN: f64 = 1024.0;
/// The parts into which `csr-balanced` cuts the entries of such a matrix.
const BALANCED_PARTS: usize = 48 * MULTIPROCESSORS;
/// `packed` is a candidate for large matrices whose rows have similar lengths.
const PACKED_ENTRIES: usize = 1_000_000;
const PACKED_DEVIATION: f64 = 0.25;
const PACKED_LONGEST: usize = 256;

/// Multiprocessors of an NVIDIA H200, and most blocks that each holds; the model's constants are
/// for the same card.
const MULTIPROCESSORS: usize = 132;
const MOST_BLOCKS: usize = 32;

/// Kernels that share a row of the model's constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `dia`.
    Dia,
    /// `ell`.
    Ell,
    /// `sell`, in order or sorted.
    Sell,
    /// `csr-scalar`.
    CsrScalar,
    /// `csr-unrolled`.
    CsrUnrolled,
    /// `csr-vector` with any number of lanes.
    CsrVector,
    /// `csr-balanced`.
    CsrBalanced,
    /// `csr-adaptive` with blocks of any size.
    CsrAdaptive,
    /// `packed`.
    Packed,
}

impl Family {
    /// All families.
    pub const ALL: &[Self] = &[
        Self::Dia,
        Self::Ell,
        Self::Sell,
        Self::CsrScalar,
        Self::CsrUnrolled,
        Self::CsrVector,
        Self::CsrBalanced,
        Self::CsrAdaptive,
        Self::Packed,
    ];
}

/// A kernel with its options, and the work of a product with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The family, which has the constants of the model.
    pub family: Family,
    /// Lanes of `csr-vector`, entries of a block of `csr-adaptive`, window of `sell`; else 0.
    pub parameter: u32,
    /// The work of a product.
    pub work: ModelledWork,
}

impl Candidate {
    /// The kernel.
    pub fn kernel(&self) -> SingleKernel {
        match self.family {
            Family::Dia => SingleKernel::Dia,
            Family::Ell => SingleKernel::Ell,
            Family::Sell => SingleKernel::Sell,
            Family::CsrScalar => SingleKernel::CsrScalar,
            Family::CsrUnrolled => SingleKernel::CsrUnrolled,
            Family::CsrVector => SingleKernel::CsrVector,
            Family::CsrBalanced => SingleKernel::CsrBalanced,
            Family::CsrAdaptive => SingleKernel::CsrAdaptive,
            Family::Packed => SingleKernel::Packed,
        }
    }

    /// The predicted time, in microseconds.
    pub fn time_us(&self) -> f64 {
        cost::cost(self.family).time_us(&self.work)
    }

    /// `options` with this kernel.
    pub(super) fn apply(&self, options: &SingleOptions) -> SingleOptions {
        let mut options = SingleOptions { kernel: self.kernel(), ..options.clone() };
        match self.family {
            Family::CsrVector => options.lanes = Some(self.parameter),
            Family::CsrAdaptive => options.block_entries = Some(self.parameter),
            Family::Sell => {
                options.sort_window = (self.parameter > 0).then_some(self.parameter as usize);
            }
            _ => {}
        }
        // The fill of candidates is limited already.
        options.max_fill = f64::from(i32::MAX);
        options
    }
}

/// The name in the bench suite.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = self.kernel();
        match (self.family, self.parameter) {
            (_, 0) | (Family::CsrVector, 32) => f.pad(kernel.name()),
            (_, parameter) => f.pad(&format!("{kernel}({parameter})")),
        }
    }
}

/// The kernel for a matrix: the candidate with the least predicted time, and the reason.
///
/// `value_bytes` is 4 or 8. With `only_csr` the matrix stays in CSR.
pub fn choose(shape: &MatrixShape, value_bytes: usize, only_csr: bool) -> (Candidate, String) {
    let mut all = candidates(shape, value_bytes);
    all.retain(|candidate| !only_csr || candidate.kernel().reads_csr());
    all.sort_by(|a, b| a.time_us().total_cmp(&b.time_us()));
    let best = all[0];
    let mut why = format!("{best} is expected to take {:.2} us", best.time_us());
    let next = all.iter().find(|candidate| candidate.family != best.family);
    if let Some(next) = next {
        why.push_str(&format!(", {next} {:.2} us", next.time_us()));
    }
    let padding = |slots: usize| slots as f64 / shape.nnz.max(1) as f64;
    why.push_str(&format!(
        "; rows of {:.1} entries, deviation {:.1}, longest {}",
        shape.mean(),
        shape.deviation,
        shape.longest
    ));
    if let Some(ndiags) = shape.ndiags {
        let slots = padding(ndiags * shape.nrows);
        why.push_str(&format!("; {ndiags} diagonals of {slots:.2} slots an entry"));
    }
    if let Some(slices) = shape.slices[0] {
        why.push_str(&format!("; slices of {:.2} slots an entry", padding(slices.slots)));
    }
    (best, why)
}

/// The kernels that come into question, in no particular order. Never empty.
pub fn candidates(shape: &MatrixShape, value_bytes: usize) -> Vec<Candidate> {
    let mut list = CandidateList::new(shape, value_bytes);
    list.add_dia();
    list.add_ell();
    list.add_sell();
    list.add_csr_by_rows();
    list.add_csr_by_blocks();
    list.add_csr_balanced();
    list.add_packed();
    list.all
}

/// The candidates for a matrix, and what their work has in common.
struct CandidateList<'a> {
    shape: &'a MatrixShape,
    value_bytes: usize,
    /// Bytes of x and of y, which is read and written.
    vectors: f64,
    /// Bytes of x that are read again, in whole sectors.
    gathers: f64,
    /// Bytes of the values.
    entries: f64,
    /// Bytes of a product with the matrix in CSR.
    csr: f64,
    all: Vec<Candidate>,
}

impl<'a> CandidateList<'a> {
    fn new(shape: &'a MatrixShape, value_bytes: usize) -> Self {
        let (nrows, nnz) = (shape.nrows, shape.nnz);
        let vectors = (value_bytes * (shape.ncols + 2 * nrows)) as f64;
        let gathers = (32.0 * shape.sectors - (value_bytes * shape.ncols) as f64).max(0.0);
        let entries = (value_bytes * nnz) as f64;
        let csr = vectors + entries + (4 * (nnz + nrows + 1)) as f64;
        Self { shape, value_bytes, vectors, gathers, entries, csr, all: Vec::new() }
    }

    /// Whether a format may store this number of slots for this matrix.
    fn fits(&self, slots: usize) -> bool {
        slots <= MOST_FILL * self.shape.nnz + 1024 && i32::try_from(slots).is_ok()
    }

    /// Adds a candidate, given the bytes that it moves and its number of steps.
    fn push(&mut self, candidate: Candidate, bytes: f64, steps: usize) {
        let work = ModelledWork { bytes, steps: steps as f64, ..candidate.work };
        self.all.push(Candidate { work, ..candidate });
    }

    /// A kernel with `lanes` threads per row, which reads `at_once` entries of a row at a time.
    fn rows(&self, family: Family, parameter: u32, lanes: usize, at_once: usize) -> Candidate {
        let warps = self.shape.nrows.div_ceil(32 / lanes);
        let rounds = (self.shape.longest.div_ceil(at_once).max(1) - 1) as f64;
        let waves = warps.div_ceil(8 * resident_blocks(family) * MULTIPROCESSORS) as f64;
        let gathers = self.gathers;
        let work =
            ModelledWork { rounds, gathers, warps: warps as f64, waves, ..ModelledWork::default() };
        Candidate { family, parameter, work }
    }

    /// Adds `dia`, unless the matrix has too many diagonals.
    fn add_dia(&mut self) {
        let nrows = self.shape.nrows;
        let Some(ndiags) = self.shape.ndiags.filter(|&ndiags| self.fits(ndiags * nrows)) else {
            return;
        };
        let rounds = (ndiags.div_ceil(DIA_ROUND).max(1) - 1) as f64;
        let mut dia = self.rows(Family::Dia, 0, 1, 8);
        dia.work = ModelledWork { rounds, gathers: 0.0, ..dia.work };
        let bytes = self.vectors + (self.value_bytes * ndiags * nrows) as f64;
        self.push(dia, bytes, nrows.div_ceil(32) * ndiags.div_ceil(DIA_ROUND));
    }

    /// Adds `ell`, unless its longest row is much longer than the mean.
    fn add_ell(&mut self) {
        let (nrows, longest) = (self.shape.nrows, self.shape.longest);
        if self.fits(longest.saturating_mul(nrows)) {
            let bytes = self.vectors + self.entries + (4 * longest * nrows) as f64;
            let ell = self.rows(Family::Ell, 0, 1, 8);
            self.push(ell, bytes, nrows.div_ceil(32) * longest.div_ceil(8));
        }
    }

    /// Adds `sell` with rows in order, and sorted within each window.
    fn add_sell(&mut self) {
        let (nrows, value_bytes) = (self.shape.nrows, self.value_bytes);
        for (window, slices) in WINDOWS.into_iter().zip(self.shape.slices) {
            let Some(slices) = slices.filter(|slices| self.fits(slices.slots)) else {
                continue;
            };
            // Sorted rows: the permutation is read, and y is written in parts of sectors.
            let places = window.map_or(0, |_| 4 * nrows + value_bytes * nrows);
            let bytes =
                self.vectors + self.entries + (4 * slices.slots + nrows / 8 + places) as f64;
            let sell = self.rows(Family::Sell, window.unwrap_or(0) as u32, 1, 8);
            self.push(sell, bytes, slices.steps);
        }
    }

    /// Adds the kernels of CSR in which a thread, or several lanes, take a row each.
    fn add_csr_by_rows(&mut self) {
        let mean = self.shape.mean();
        for (lanes, steps) in LANES.into_iter().zip(self.shape.steps) {
            if lanes > 1 {
                let at_once = 4 * lanes as usize;
                let vector = self.rows(Family::CsrVector, lanes, lanes as usize, at_once);
                self.push(vector, self.csr, steps);
                continue;
            }
            if mean <= SCALAR_MEAN {
                self.push(self.rows(Family::CsrScalar, 0, 1, 1), self.csr, steps);
            }
            if mean <= UNROLLED_MEAN {
                self.push(self.rows(Family::CsrUnrolled, 0, 1, 4), self.csr, steps);
            }
        }
    }

    /// Adds `csr-adaptive` with blocks of each size.
    fn add_csr_by_blocks(&mut self) {
        for (entries, blocks) in BLOCK_ENTRIES.into_iter().zip(self.shape.blocks) {
            let work = ModelledWork { gathers: self.gathers, ..block_work(entries, &blocks) };
            let bytes = self.csr + 36.0 * blocks.count as f64;
            let adaptive = Candidate { family: Family::CsrAdaptive, parameter: entries, work };
            self.push(adaptive, bytes, blocks.all_group_steps as usize);
        }
    }

    /// Adds `csr-balanced` for a large matrix of few long rows.
    fn add_csr_balanced(&mut self) {
        let nnz = self.shape.nnz;
        if nnz >= BALANCED_ENTRIES && self.shape.mean() >= BALANCED_MEAN {
            // The second launch adds the sums of the parts of a row, a warp's worth at a time.
            let parts = BALANCED_PARTS * self.shape.longest / nnz;
            let rounds = (parts / 32) as f64;
            let work = ModelledWork { rounds, gathers: self.gathers, ..ModelledWork::default() };
            self.push(Candidate { family: Family::CsrBalanced, parameter: 0, work }, self.csr, 0);
        }
    }

    /// Adds `packed` for a large matrix whose rows have similar lengths.
    fn add_packed(&mut self) {
        let (nrows, nnz) = (self.shape.nrows, self.shape.nnz);
        let is_even = self.shape.deviation <= PACKED_DEVIATION * self.shape.mean();
        if nnz >= PACKED_ENTRIES && is_even && self.shape.longest <= PACKED_LONGEST {
            let bytes = self.vectors + self.entries + (2 * nnz + 8 * nrows) as f64;
            let work = ModelledWork { gathers: self.gathers, ..ModelledWork::default() };
            self.push(Candidate { family: Family::Packed, parameter: 0, work }, bytes, nnz / 256);
        }
    }
}

/// Blocks of 256 threads of a row kernel that a multiprocessor holds at once.
fn resident_blocks(family: Family) -> usize {
    match family {
        Family::Dia => 4,
        Family::CsrUnrolled | Family::CsrVector => 5,
        _ => 6,
    }
}

/// The work of the blocks of `csr-adaptive`, without their memory traffic.
fn block_work(entries: u32, blocks: &Blocks) -> ModelledWork {
    let (threads, loads) = block_shape(entries);
    let threads_held = if loads <= 4 { 6 * 256 } else { 4 * 256 };
    let at_once = MULTIPROCESSORS * (threads_held / threads as usize).min(MOST_BLOCKS);
    ModelledWork {
        rounds: f64::from(blocks.rounds),
        warps: blocks.count as f64,
        waves: blocks.count.div_ceil(at_once) as f64,
        chain: Chain {
            threads: f64::from(threads) / 256.0,
            loads: f64::from(u8::from(loads > 4)),
            additions: f64::from(blocks.steps),
            groups: f64::from(blocks.groups),
            group_additions: f64::from(blocks.group_steps),
            meetings: f64::from(u8::from(blocks.meet)),
        },
        ..ModelledWork::default()
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::generate::{Stencil, laplace};
    use sparsebatch_formats::{Csr, CsrPattern, Pattern};

    use super::*;

    fn chosen(shape: &MatrixShape, only_csr: bool) -> String {
        choose(shape, 8, only_csr).0.to_string()
    }

    /// A matrix whose rows have these lengths; the columns of each row count from 0.
    fn shape(lengths: impl Iterator<Item = usize>) -> MatrixShape {
        let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
        for length in lengths {
            col_idx.extend(0..length as i32);
            row_ptr.push(col_idx.len() as i32);
        }
        let ncols = col_idx.iter().max().map_or(1, |&last| last as usize + 1);
        let pattern = CsrPattern::try_new(row_ptr.len() - 1, ncols, row_ptr, col_idx).unwrap();
        MatrixShape::new(pattern.view())
    }

    #[test]
    fn large_stencils_are_diagonals() {
        let a: Csr<f64> = laplace(Stencil::Point5, &[600, 600]).unwrap();
        let shape = MatrixShape::new(a.view().pattern());

        let (candidate, why) = choose(&shape, 8, false);

        assert_eq!(candidate.kernel(), SingleKernel::Dia);
        assert!(
            why.starts_with("dia is expected to take ") && why.contains("5 diagonals"),
            "{why}"
        );
        assert!(choose(&shape, 8, true).0.kernel().reads_csr());
    }

    #[test]
    fn a_few_long_rows_want_blocks_of_equal_size() {
        let circuit = shape((0..10_000).map(|row| if row % 3000 == 7 { 5000 } else { 5 }));

        assert!(chosen(&circuit, false).starts_with("csr-adaptive"), "{circuit:?}");
        assert!(chosen(&circuit, true).starts_with("csr-adaptive"));
    }

    #[test]
    fn equal_rows_without_diagonals_have_lanes() {
        // As large as bodyy5, with a few rows of nine entries as there.
        let length = |row: usize| if row % 221 == 7 { 9 } else { 6 + row % 3 };
        let mesh = MatrixShape { ndiags: None, ..shape((0..18_589).map(length)) };

        assert!(chosen(&mesh, false).starts_with("csr-vector("), "{mesh:?}");
        assert!(chosen(&mesh, true).starts_with("csr"));
    }

    #[test]
    fn many_short_rows_are_too_many_for_lanes() {
        // As luxembourg_osm and usroads.
        let roads = MatrixShape { ndiags: None, ..shape((0..120_000).map(|row| 1 + row % 4)) };

        let of = chosen(&roads, true);
        assert!(of == "csr-unrolled" || of.starts_with("csr-adaptive"), "{of}");
    }

    #[test]
    fn few_rows_of_very_many_entries_are_cut_into_equal_parts() {
        let names = |lengths: &[usize]| -> Vec<String> {
            let shape = shape(lengths.iter().copied());
            candidates(&shape, 8).iter().map(ToString::to_string).collect()
        };

        assert!(names(&[65_536; 16]).contains(&"csr-balanced".to_owned()));
        assert!(!names(&[65_536; 15]).contains(&"csr-balanced".to_owned()));
    }

    #[test]
    fn rows_that_wait_for_one_another_want_smaller_blocks() {
        // Runs of short rows and of long ones, which are many in a warp if blocks are large.
        let runs = shape((0..8000).map(|row| if row % 160 < 8 { 100 } else { 1 + row % 3 }));
        let time = |name: &str| {
            let all = candidates(&runs, 8);
            all.iter().find(|candidate| candidate.to_string() == name).unwrap().time_us()
        };

        assert!(time("csr-adaptive(256)") < time("csr-adaptive(2048)"), "{:?}", runs.blocks);
    }

    #[test]
    fn matrices_without_rows_or_entries_have_a_kernel() {
        for lengths in [vec![], vec![0; 5]] {
            for only_csr in [false, true] {
                let (candidate, _) = choose(&shape(lengths.clone().into_iter()), 4, only_csr);

                assert!(candidate.time_us().is_finite());
            }
        }
    }

    #[test]
    fn candidates_are_called_as_in_the_bench_suite() {
        let names: Vec<String> =
            candidates(&MatrixShape { ndiags: Some(3), ..shape([3; 64].into_iter()) }, 8)
                .iter()
                .map(ToString::to_string)
                .collect();

        let rows = ["csr-scalar", "csr-unrolled", "csr-vector(8)", "csr-vector"];
        for name in ["dia", "ell", "sell"].into_iter().chain(rows) {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
        assert!(names.contains(&"csr-adaptive(512)".to_owned()));
    }
}
