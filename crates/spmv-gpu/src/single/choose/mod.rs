//! Which kernel multiplies a matrix when nobody says: a pure function of its [`Shape`].
//!
//! Every [`Candidate`] has a time by the [model](cost); the least one is taken. What would store
//! far more than the matrix is no candidate.

pub mod cost;
mod shape;

use std::fmt;

pub use cost::{Cost, Work};
pub use shape::{LANES, Shape, Slices, WINDOWS};

use super::adaptive::{BLOCK_ENTRIES, shape as block_shape};
use super::{SingleKernel, SingleOptions};

/// Slots for each entry that ELL and SELL may have as candidates.
const MOST_FILL: usize = 3;
/// Entries of the usual row above which `csr-scalar` is no candidate: its accesses do not coalesce.
const SCALAR_MEAN: f64 = 6.0;
/// `packed` is for large matrices of rows of like length.
const PACKED_ENTRIES: usize = 1_000_000;
const PACKED_DEVIATION: f64 = 0.25;
const PACKED_LONGEST: usize = 256;

/// How much faster x comes from the cache of the device than from its memory.
const CACHE: f64 = 1.6;

/// Kernels that share a row of constants.
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
    /// `csr-vector` with any number of lanes.
    CsrVector,
    /// `csr-adaptive` with blocks of any size.
    CsrAdaptive,
    /// `packed`.
    Packed,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Dia,
        Self::Ell,
        Self::Sell,
        Self::CsrScalar,
        Self::CsrVector,
        Self::CsrAdaptive,
        Self::Packed,
    ];
}

/// A kernel with its options, and what a product by it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Where its constants are.
    pub family: Family,
    /// Lanes of `csr-vector`, entries of a block of `csr-adaptive`, window of `sell`; else 0.
    pub parameter: u32,
    /// What a product does.
    pub work: Work,
}

impl Candidate {
    /// The kernel.
    pub fn kernel(&self) -> SingleKernel {
        match self.family {
            Family::Dia => SingleKernel::Dia,
            Family::Ell => SingleKernel::Ell,
            Family::Sell => SingleKernel::Sell,
            Family::CsrScalar => SingleKernel::CsrScalar,
            Family::CsrVector => SingleKernel::CsrVector,
            Family::CsrAdaptive => SingleKernel::CsrAdaptive,
            Family::Packed => SingleKernel::Packed,
        }
    }

    /// The time that the model expects, in microseconds.
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
        // What a candidate may fill was looked at.
        options.max_fill = f64::from(i32::MAX);
        options
    }
}

/// As the bench suite calls it.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = self.kernel();
        match (self.family, self.parameter) {
            (_, 0) | (Family::CsrVector, 32) => f.pad(kernel.name()),
            (_, parameter) => f.pad(&format!("{kernel}({parameter})")),
        }
    }
}

/// The kernel for a matrix: the candidate of the least expected time, and why.
///
/// `value_bytes` is 4 or 8. With `only_csr` the matrix stays as it is.
pub fn choose(shape: &Shape, value_bytes: usize, only_csr: bool) -> (Candidate, String) {
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

/// The kernels that are worth a look, in no order of merit. Never empty.
pub fn candidates(shape: &Shape, value_bytes: usize) -> Vec<Candidate> {
    let (nrows, nnz) = (shape.nrows, shape.nnz);
    let vectors = (value_bytes * (shape.ncols + 2 * nrows)) as f64;
    // Gathers beyond the first of each place come from the cache, which is this much faster.
    let gathers = (32.0 * shape.sectors - (value_bytes * shape.ncols) as f64).max(0.0) / CACHE;
    let entries = (value_bytes * nnz) as f64;
    let csr = vectors + gathers + entries + (4 * (nnz + nrows + 1)) as f64;
    let warps = nrows.div_ceil(32) as f64;
    let candidate = |family, parameter, work| Candidate { family, parameter, work };
    let fits = |slots: usize| slots <= MOST_FILL * nnz + 1024 && i32::try_from(slots).is_ok();
    // Rounds beyond the first, of so many entries at a time.
    let rounds = |length: usize, at_once: usize| (length.div_ceil(at_once).max(1) - 1) as f64;
    let mut all = Vec::new();

    if let Some(ndiags) = shape.ndiags.filter(|&ndiags| fits(ndiags * nrows)) {
        let bytes = vectors + (value_bytes * ndiags * nrows) as f64;
        let steps = warps * ndiags.div_ceil(8) as f64;
        let work = Work { rounds: rounds(ndiags, 8), bytes, warps, steps };
        all.push(candidate(Family::Dia, 0, work));
    }
    if fits(shape.longest.saturating_mul(nrows)) {
        let bytes = vectors + gathers + entries + (4 * shape.longest * nrows) as f64;
        let steps = warps * shape.longest.div_ceil(8) as f64;
        let work = Work { rounds: rounds(shape.longest, 8), bytes, warps, steps };
        all.push(candidate(Family::Ell, 0, work));
    }
    for (window, slices) in WINDOWS.into_iter().zip(shape.slices) {
        let Some(slices) = slices.filter(|slices| fits(slices.slots)) else {
            continue;
        };
        // Rows out of order: their places are read, and y is written in parts of a sector.
        let places = window.map_or(0, |_| 4 * nrows + value_bytes * nrows);
        let bytes = vectors + gathers + entries + (4 * slices.slots + nrows / 8 + places) as f64;
        let steps = slices.steps as f64;
        let work = Work { rounds: rounds(shape.longest, 8), bytes, warps, steps };
        all.push(candidate(Family::Sell, window.unwrap_or(0) as u32, work));
    }
    for (lanes, steps) in LANES.into_iter().zip(shape.steps) {
        let (family, at_once, parameter) = match lanes {
            1 => (Family::CsrScalar, 1, 0),
            _ => (Family::CsrVector, 4 * lanes as usize, lanes),
        };
        if lanes == 1 && shape.mean() > SCALAR_MEAN {
            continue;
        }
        let warps = nrows.div_ceil(32 / lanes as usize) as f64;
        let rounds = rounds(shape.longest, at_once);
        let work = Work { rounds, bytes: csr, warps, steps: steps as f64 };
        all.push(candidate(family, parameter, work));
    }
    all.extend(BLOCK_ENTRIES.into_iter().map(|entries| {
        let (threads, steps) = block_shape(entries);
        // Blocks are full, or have as many rows as threads.
        let blocks = (nnz / entries as usize).max(nrows / threads as usize) + 1;
        let work = Work {
            // A large block takes longer.
            rounds: f64::from(entries) / 2048.0 + long_row_rounds(shape.longest, entries as usize),
            bytes: csr + 36.0 * blocks as f64,
            warps: blocks as f64 * f64::from(threads / 32 * steps) / 4.0,
            steps: blocks as f64,
        };
        candidate(Family::CsrAdaptive, entries, work)
    }));
    let is_even = shape.deviation <= PACKED_DEVIATION * shape.mean();
    if nnz >= PACKED_ENTRIES && is_even && shape.longest <= PACKED_LONGEST {
        let bytes = vectors + gathers + entries + (2 * nnz + 8 * nrows) as f64;
        let steps = nnz as f64 / 256.0;
        all.push(candidate(Family::Packed, 0, Work { rounds: 0.0, bytes, warps, steps }));
    }
    all
}

/// What the longest row adds to a product of `csr-adaptive`: nothing if a warp adds it up, else the
/// sum over a block, then a second round of loads, then the meeting of the pieces.
fn long_row_rounds(longest: usize, entries: usize) -> f64 {
    match longest {
        _ if longest <= entries.min(512) => 0.0,
        _ if longest <= entries => 0.3,
        _ if longest <= 2 * entries => 1.0,
        _ => 2.0,
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::generate::{Stencil, laplace};
    use sparsebatch_formats::{Csr, CsrPattern, Pattern};

    use super::*;

    fn chosen(shape: &Shape, only_csr: bool) -> String {
        choose(shape, 8, only_csr).0.to_string()
    }

    /// Rows of these lengths with columns from the first on.
    fn shape(lengths: impl Iterator<Item = usize>) -> Shape {
        let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
        for length in lengths {
            col_idx.extend(0..length as i32);
            row_ptr.push(col_idx.len() as i32);
        }
        let ncols = col_idx.iter().max().map_or(1, |&last| last as usize + 1);
        let pattern = CsrPattern::try_new(row_ptr.len() - 1, ncols, row_ptr, col_idx).unwrap();
        Shape::new(pattern.view())
    }

    #[test]
    fn large_stencils_are_diagonals() {
        let a: Csr<f64> = laplace(Stencil::Point5, &[600, 600]).unwrap();
        let shape = Shape::new(a.view().pattern());

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
    fn equal_rows_without_diagonals_are_slices_or_lanes() {
        // As large as bodyy5: its entries are few to a row and scattered.
        let mesh = Shape { ndiags: None, ..shape((0..18_589).map(|row| 6 + row % 3)) };

        assert!(chosen(&mesh, false).starts_with("sell"), "{mesh:?}");
        assert!(chosen(&mesh, true).starts_with("csr"));
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
            candidates(&Shape { ndiags: Some(3), ..shape([3; 64].into_iter()) }, 8)
                .iter()
                .map(ToString::to_string)
                .collect();

        for name in ["dia", "ell", "sell", "csr-scalar", "csr-vector(8)", "csr-vector"] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
        assert!(names.contains(&"csr-adaptive(512)".to_owned()));
    }
}
