//! Matrices, checks and timing shared by the benches.
#![allow(dead_code, reason = "each bench uses its part")]

use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch_cpu_ref::seq;
use sparsebatch_formats::Csr;
use sparsebatch_formats::generate::{Stencil, laplace, pareto};
use sparsebatch_solve_core::{FormatChoice, KernelChoice};

/// The 7-point Laplacian on a `side`^3 grid.
pub(crate) fn laplace7(side: usize) -> Csr<f64> {
    laplace(Stencil::Point7, &[side; 3]).expect("the grid fits 32-bit indices")
}

/// The 5-point Laplacian on a `side` x `side` grid.
pub(crate) fn laplace5(side: usize) -> Csr<f64> {
    laplace(Stencil::Point5, &[side; 2]).expect("the grid fits 32-bit indices")
}

/// Our formats and kernels.
pub(crate) const KERNELS: [(&str, FormatChoice, KernelChoice); 10] = [
    ("auto", FormatChoice::Auto, KernelChoice::Auto),
    ("csr rows", FormatChoice::Csr, KernelChoice::Rows),
    ("csr-i", FormatChoice::Csr, KernelChoice::CsrI),
    ("coo entries", FormatChoice::Coo, KernelChoice::Entries),
    ("ell rows", FormatChoice::Ell, KernelChoice::Rows),
    ("hyb rows", FormatChoice::Hyb, KernelChoice::Rows),
    ("dia rows", FormatChoice::Dia, KernelChoice::Rows),
    ("dia blocks", FormatChoice::Dia, KernelChoice::Blocks),
    ("sellp rows", FormatChoice::SellP, KernelChoice::Rows),
    ("sellp runs", FormatChoice::SellP, KernelChoice::Runs),
];

/// `rows` rows with 8 random columns each and a Pareto-distributed number of further ones: no
/// structure, some long rows.
pub(crate) fn scattered(rows: usize) -> Csr<f64> {
    pareto(rows, rows, 8, 1.2, 1).expect("the entries fit 32-bit indices")
}

/// A dense vector with entries in -0.5..0.5, the same in every run.
pub(crate) fn vector(len: usize) -> Vec<f64> {
    let mut random = Random(42);
    (0..len).map(|_| random.uniform() - 0.5).collect()
}

/// SplitMix64, Steele, Lea and Flood 2014 (doi 10.1145/2660193.2660195).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number in 0..1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// `A*x` by the sequential reference product.
pub(crate) fn reference(a: &Csr<f64>, x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; a.nrows()];
    seq::spmv(1.0, a.view(), x, 0.0, &mut y).expect("x fits the matrix");
    y
}

/// Stops the bench unless `|y - reference| <= 4 * entries * eps * (|A||x|)` in every row.
pub(crate) fn check(what: &str, a: &Csr<f64>, x: &[f64], reference: &[f64], y: &[f64]) {
    let pattern = a.view().pattern();
    for row in 0..a.nrows() {
        let entries = pattern.row(row);
        let size: f64 =
            entries.clone().map(|k| (a.values()[k] * x[a.col_idx()[k] as usize]).abs()).sum();
        let bound = 4.0 * (entries.len() + 1) as f64 * f64::EPSILON * size;
        let error = (y[row] - reference[row]).abs();
        assert!(error <= bound, "{what}: row {row} is off by {error:e}, bound {bound:e}");
    }
}

/// Times `repeats` calls after one warm-up; returns sorted times.
pub(crate) fn time(repeats: usize, mut call: impl FnMut()) -> Vec<Duration> {
    call();
    let mut times: Vec<Duration> = (0..repeats)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

/// The plain triad `a = b + s*c` on all threads, 24 bytes per element: the unit of every share of
/// bandwidth.
pub(crate) struct Triad([Vec<f64>; 3]);

impl Triad {
    pub(crate) fn new(len: usize) -> Self {
        Self([vec![0.0; len], vec![1.0; len], vec![2.0; len]])
    }

    pub(crate) fn bytes(&self) -> usize {
        24 * self.0[0].len()
    }

    pub(crate) fn run(&mut self) {
        let [a, b, c] = &mut self.0;
        let chunk = 1 << 15;
        let operands = b.par_chunks(chunk).zip(c.par_chunks(chunk));
        a.par_chunks_mut(chunk).zip(operands).for_each(|(a, (b, c))| {
            for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                *a = b + 0.5 * c;
            }
        });
    }
}

/// The plain loop over CSR that a user would write first, sequential.
pub(crate) fn plain_loop(a: &Csr<f64>, x: &[f64], y: &mut [f64]) {
    let (ptr, cols, values) = (a.row_ptr(), a.col_idx(), a.values());
    for (row, y) in y.iter_mut().enumerate() {
        let mut sum = 0.0;
        for k in ptr[row] as usize..ptr[row + 1] as usize {
            sum += values[k] * x[cols[k] as usize];
        }
        *y = sum;
    }
}

/// The same loop with rows distributed by rayon, one iterator step per row.
pub(crate) fn plain_rayon(a: &Csr<f64>, x: &[f64], y: &mut [f64]) {
    let (ptr, cols, values) = (a.row_ptr(), a.col_idx(), a.values());
    y.par_iter_mut().with_min_len(1024).enumerate().for_each(|(row, y)| {
        let entries = ptr[row] as usize..ptr[row + 1] as usize;
        let products = values[entries.clone()].iter().zip(&cols[entries]);
        *y = products.map(|(value, &col)| value * x[col as usize]).sum();
    });
}

/// `v[item * len + i]` from the interleaved `v[i * nitems + item]`.
pub(crate) fn deinterleave(v: &[f64], nitems: usize) -> Vec<f64> {
    let len = v.len() / nitems.max(1);
    let items = 0..nitems;
    items.flat_map(|item| (0..len).map(move |i| v[i * nitems + item])).collect()
}

/// Stops the bench unless two results agree to the rounding of short sums.
pub(crate) fn check_close(what: &str, expected: &[f64], found: &[f64]) {
    let largest = expected.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
        let error = (expected - found).abs();
        assert!(error <= 1e-12 * largest, "{what}: y[{i}] is off by {error:e}");
    }
}
