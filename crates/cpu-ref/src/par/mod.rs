//! Multicore products, `y = alpha*A*x + beta*y`, for every format, single and batched.
//!
//! **Repeatable.** The chunks that threads share are a function of the matrix (and of choices
//! pinned in a plan), never of the number of threads; each row is summed in an order that depends
//! on the row alone, or, where a row straddles the parts of a [`BalancedSplit`], on the matrix and
//! the number of parts. Results are therefore bitwise equal whatever the thread count, and an
//! item of a batch gives the same result as the item alone. Between processors with and without
//! FMA results differ by rounding.
//!
//! **Threads.** Products use the rayon pool in which the call is made. A chunk is about 32,768
//! entries, so small matrices run on the calling thread.
//!
//! The rules on `alpha`, `beta` and padding are those of [`seq`]. The functions here
//! analyse the pattern in each call; a [`SpmvPlan`](crate::SpmvPlan) does so once.

mod batch;
mod chunks;
mod coo;
mod csr;
mod dia;
mod ell;
mod hyb;
mod interleaved;
mod items;
mod multi;
mod runs;
mod sellp;
mod split;

use std::fmt::Debug;

use sparsebatch_formats::{Scalar, View};

pub use batch::batch_spmv;
pub use csr::CsrAnalysis;
pub use dia::DiaAnalysis;
pub use ell::EllAnalysis;
pub use hyb::HybAnalysis;
pub use sellp::SellPAnalysis;
pub use split::BalancedSplit;

pub(crate) use batch::{BatchShape, apply_batch};
pub(crate) use chunks::GRAIN as WHOLE;
pub(crate) use dia::DiaBlocks;
pub(crate) use interleaved::{Interleaved, InterleavedAnalysis, InterleavedValues, RowEntries};
pub(crate) use items::{RaggedRows, apply_alike};
pub(crate) use multi::{Analysed, Product};
pub(crate) use runs::{RunStats, SellRuns};

use crate::{CpuError, check_threads, seq};
use sparsebatch_solve_core::check_len;

/// How the rows of a product are shared between threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// Split by rows; COO and the COO part of HYB are split by entries.
    #[default]
    Rows,
    /// CSR-I: `parts` equal parts of the entries, by default one per 32,768 entries and rows.
    /// Only CSR offers both schedules; other formats use `Rows`, with `parts` parts in COO.
    CsrI {
        /// Number of parts T, at most 256.
        parts: Option<usize>,
    },
}

/// A format with a multicore product. Implemented by all six patterns.
pub trait ParSpmv: seq::Spmv {
    /// Data computed once per pattern: chunk limits, start rows, inverse permutations.
    type Analysis: Clone + Debug + Send + Sync;

    /// Analyses a pattern.
    ///
    /// # Errors
    /// [`CpuError::Argument`] for a number of parts outside `1..=256`.
    fn analyse(pattern: Self::Ref<'_>, schedule: Schedule) -> Result<Self::Analysis, CpuError>;

    /// Bytes that the analysis holds.
    fn analysis_bytes(analysis: &Self::Analysis) -> usize;

    /// `ys[j] = alpha*A*xs[j] + beta*ys[j]` for each of `R` right-hand sides, whose lengths the
    /// caller has checked. The analysis must be that of `a`'s pattern.
    ///
    /// # Panics
    /// When a vector or the analysis does not fit `a`.
    fn apply<T: Scalar, const R: usize>(
        analysis: &Self::Analysis,
        alpha: T,
        a: View<'_, Self, T>,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    );
}

/// `y = alpha*A*x + beta*y` on all cores of the current rayon pool.
///
/// `x` has one entry per column of `a`, `y` one per row. The pattern is analysed in the call; use
/// a [`SpmvPlan`](crate::SpmvPlan) for repeated products.
///
/// # Errors
/// [`CpuError::Argument`] when `x` or `y` does not fit the matrix; [`CpuError::Forked`] in a forked
/// process whose threads are in its parent. On an error `y` is untouched.
///
/// # Examples
/// ```
/// use sparsebatch_cpu_ref::par;
/// use sparsebatch_formats::Csr;
/// let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0])?;
/// let mut y = [0.0; 2];
/// par::spmv(1.0, a.view(), &[1.0, 10.0], 0.0, &mut y)?;
/// assert_eq!(y, [2.0, 31.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spmv<P: ParSpmv, T: Scalar>(
    alpha: T,
    a: View<'_, P, T>,
    x: &[T],
    beta: T,
    y: &mut [T],
) -> Result<(), CpuError> {
    spmv_with(Schedule::Rows, alpha, a, x, beta, y)
}

/// [`spmv`] with a given schedule.
///
/// # Errors
/// Those of [`spmv`], and [`CpuError::Argument`] for a number of parts outside `1..=256`.
pub fn spmv_with<P: ParSpmv, T: Scalar>(
    schedule: Schedule,
    alpha: T,
    a: View<'_, P, T>,
    x: &[T],
    beta: T,
    y: &mut [T],
) -> Result<(), CpuError> {
    let (nrows, ncols) = P::shape(a.pattern());
    check_len("x", ncols, x.len())?;
    check_len("y", nrows, y.len())?;
    check_threads()?;
    let analysis = P::analyse(a.pattern(), schedule)?;
    P::apply(&analysis, alpha, a, [x], beta, [y]);
    Ok(())
}
