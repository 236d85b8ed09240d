//! Our kernels on the processor, by name, and the measurement of them and of the crates beside
//! them.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use sparsebatch_cpu_ref::{CpuError, CpuScalar, Explain, PlanSource, SpmvPlan};
use sparsebatch_formats::convert::FromCsr;
use sparsebatch_formats::{Csr, Matrix, Pattern, RaggedCsr, Scalar};
use sparsebatch_peers::{Peer, PeerLoop, PeerMatrix, PeerProduct, SequentialProduct};
use sparsebatch_solve_core::{FormatChoice, KernelChoice, SpmvOptions};

use crate::BenchError;
use crate::cusparse::HostCsr;
use crate::host_clock::{HostMultiply, HostOperands};
use crate::session::{Costs, HostSession, Label, Problem, Turn};
use crate::solves::Real;

/// A format and kernel of products on the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKernel {
    /// The automatic choice of a plan.
    Auto,
    /// CSR, divided into whole rows.
    Csr,
    /// CSR, divided into equal parts of the entries.
    CsrI,
    /// Coordinates, divided into equal parts of the entries.
    Coo,
    /// ELLPACK, divided by rows.
    Ell,
    /// Hybrid of ELLPACK and coordinates.
    Hyb,
    /// Diagonals, divided by rows.
    Dia,
    /// Diagonals, in blocks of rows; for single matrices only.
    DiaBlocks,
    /// SELL-P: slices of rows.
    SellP,
    /// SELL-P with slices of 8 rows and runs of columns; for single matrices only.
    SellPRuns,
}

impl HostKernel {
    /// All kernels.
    pub const ALL: [Self; 10] = [
        Self::Auto,
        Self::Csr,
        Self::CsrI,
        Self::Coo,
        Self::Ell,
        Self::Hyb,
        Self::Dia,
        Self::DiaBlocks,
        Self::SellP,
        Self::SellPRuns,
    ];

    /// The kernels that batches support.
    pub fn of_batches() -> Vec<Self> {
        let is_single = |kernel: &Self| matches!(kernel, Self::DiaBlocks | Self::SellPRuns);
        Self::ALL.into_iter().filter(|kernel| !is_single(kernel)).collect()
    }

    /// The name in rows and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "cpu-auto",
            Self::Csr => "cpu-csr",
            Self::CsrI => "cpu-csr-i",
            Self::Coo => "cpu-coo",
            Self::Ell => "cpu-ell",
            Self::Hyb => "cpu-hyb",
            Self::Dia => "cpu-dia",
            Self::DiaBlocks => "cpu-dia-blocks",
            Self::SellP => "cpu-sellp",
            Self::SellPRuns => "cpu-sellp-runs",
        }
    }

    fn label(self) -> Label {
        Label::ours(self.name(), self == Self::Auto)
    }

    pub(super) fn options(self) -> SpmvOptions {
        let (format, kernel) = match self {
            Self::Auto => (FormatChoice::Auto, KernelChoice::Auto),
            Self::Csr => (FormatChoice::Csr, KernelChoice::Rows),
            Self::CsrI => (FormatChoice::Csr, KernelChoice::CsrI),
            Self::Coo => (FormatChoice::Coo, KernelChoice::Entries),
            Self::Ell => (FormatChoice::Ell, KernelChoice::Rows),
            Self::Hyb => (FormatChoice::Hyb, KernelChoice::Rows),
            Self::Dia => (FormatChoice::Dia, KernelChoice::Rows),
            Self::DiaBlocks => (FormatChoice::Dia, KernelChoice::Blocks),
            Self::SellP => (FormatChoice::SellP, KernelChoice::Rows),
            Self::SellPRuns => (FormatChoice::SellP, KernelChoice::Runs),
        };
        SpmvOptions::default().format(format).kernel(kernel)
    }
}

impl fmt::Display for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for HostKernel {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let found = Self::ALL.into_iter().find(|kernel| kernel.name() == text);
        found.ok_or_else(|| BenchError::Option {
            option: "--kernel",
            expected: format!("all or one of {}", Self::ALL.map(Self::name).join(", ")),
            found: text.to_owned(),
        })
    }
}

impl<T: Scalar> HostMultiply<T> for SpmvPlan<T> {
    fn multiply(&mut self, x: &[T], y: &mut [T]) -> Result<(), CpuError> {
        self.apply(T::ONE, x, T::ONE, y)
    }
}

/// A matrix with products by the plain sequential loops of its format.
struct Sequential<P, T>(Matrix<P, T>);

impl<P: Pattern, T: SequentialProduct<P>> HostMultiply<T> for Sequential<P, T> {
    fn multiply(&mut self, x: &[T], y: &mut [T]) -> Result<(), CpuError> {
        T::add_product(self.0.view(), x, y)
    }
}

impl<T: CpuScalar + PeerProduct> HostMultiply<T> for PeerMatrix<T> {
    fn multiply(&mut self, x: &[T], y: &mut [T]) -> Result<(), CpuError> {
        T::add_product(self, x, y);
        Ok(())
    }
}

impl<T: CpuScalar + PeerProduct> HostMultiply<T> for PeerLoop<T> {
    fn multiply(&mut self, x: &[T], y: &mut [T]) -> Result<(), CpuError> {
        self.add_products(x, y);
        Ok(())
    }
}

/// Measures our plans of a matrix or batch, on all threads.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn ours<'s, T: CpuScalar>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    source: impl Into<PlanSource<'s, T>>,
    operands: &mut HostOperands<T>,
    kernels: &[HostKernel],
) -> Result<(), BenchError> {
    let source = source.into();
    for &kernel in kernels {
        let turns = vec![Turn { label: kernel.label(), pool: None }];
        in_turns(session, problem, source, operands, turns, &kernel.options())?;
    }
    Ok(())
}

/// Measures our plans of a matrix on all threads and on one.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn ours_on_one_too<T: CpuScalar>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    matrix: &Csr<T>,
    operands: &mut HostOperands<T>,
    kernels: &[HostKernel],
) -> Result<(), BenchError> {
    for &kernel in kernels {
        let turns = session.on_all_and_one(kernel.label());
        in_turns(session, problem, matrix.into(), operands, turns, &kernel.options())?;
    }
    Ok(())
}

/// Measures our plans in turns. Returns the explanation of each plan that was measured.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn in_turns<T: CpuScalar>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    source: PlanSource<'_, T>,
    operands: &mut HostOperands<T>,
    mut turns: Vec<Turn<'_>>,
    options: &SpmvOptions,
) -> Result<Option<Explain>, BenchError> {
    let useful = problem.useful_bytes_in::<T>();
    for turn in &mut turns {
        turn.label = turn.label.clone().in_precision::<T>(useful);
    }
    let explained = RefCell::new(None);
    let plan = |_| SpmvPlan::new(source, options);
    let costs = |plans: &[SpmvPlan<T>]| {
        *explained.borrow_mut() = plans.first().map(|plan| plan.explain().clone());
        costs(problem, plans)
    };
    session.measure_in_turns(&turns, problem, operands, plan, costs)?;
    Ok(explained.into_inner())
}

/// Measures the sequential product of a format, under the name `cpu-seq-...`.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn sequential<P: FromCsr, T: SequentialProduct<P>>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    (name, options): (&str, &P::Options),
    matrix: &Csr<T>,
    operands: &mut HostOperands<T>,
) -> Result<(), BenchError> {
    let label = Label::ours(format!("cpu-seq-{name}"), false);
    let label = label.in_precision::<T>(problem.useful_bytes_in::<T>());
    let plan = |_| Ok(Sequential(Matrix::<P, T>::from_csr(matrix, options)?));
    let costs = |plans: &[Sequential<P, T>]| {
        let pattern = plans[0].0.pattern();
        let values = pattern.stored_len() + 2 * problem.nrows + problem.ncols;
        Costs::from((pattern.index_bytes() + size_of::<T>() * values) as u64)
    };
    session.measure(problem, &label, operands, plan, costs).map(|_| ())
}

/// The costs of our plans; y is also read.
pub(super) fn costs<T: Scalar>(problem: &Problem<'_>, plans: &[SpmvPlan<T>]) -> Costs {
    // Only the first plan is made alone; the others are made in parallel.
    let plan_ms = plans[0].explain().cost.as_secs_f64() * 1e3;
    let bytes = plans[0].explain().product_bytes + size_of::<T>() * problem.nrows;
    Costs { bytes_moved: bytes as u64, plan_ms: Some(plan_ms) }
}

/// Measures every crate on one matrix.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn crates<T: Real>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    configuration: &str,
    matrix: &Csr<T>,
    operands: &mut HostOperands<T>,
) -> Result<(), BenchError> {
    for peer in Peer::ALL {
        let label = Label::of(peer.name(), configuration);
        let label = label.in_precision::<T>(problem.useful_bytes_in::<T>());
        let costs = |plans: &[PeerMatrix<T>]| plans[0].bytes_moved().into();
        session.measure(problem, &label, operands, |_| Ok(peer.matrix(matrix)), costs)?;
    }
    Ok(())
}

/// Measures every crate on the systems of a batch with one call per system, on one thread and on
/// all.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn loops<T: Real>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    batch: &RaggedCsr<T>,
    operands: &mut HostOperands<T>,
) -> Result<(), BenchError> {
    for peer in Peer::ALL {
        for (name, threads) in [("loop csr", false), ("loop csr, all threads", true)] {
            let label = Label::of(peer.name(), name);
            let label = label.in_precision::<T>(problem.useful_bytes_in::<T>());
            let costs = |plans: &[PeerLoop<T>]| plans[0].bytes_moved().into();
            let plan = |_| Ok(PeerLoop::new(peer, batch, threads));
            session.measure(problem, &label, operands, plan, costs)?;
        }
    }
    Ok(())
}

/// Measures every crate on a batch as one block-diagonal matrix.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn blocks<T: Real>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    batch: &RaggedCsr<T>,
    operands: &mut HostOperands<T>,
) -> Result<(), BenchError> {
    const NAME: &str = "block-diagonal csr";
    let matrix = HostCsr::block_diagonal(batch).map_err(|error| error.to_string());
    match matrix.and_then(|matrix| matrix.into_csr().map_err(|error| error.to_string())) {
        Ok(matrix) => crates(session, problem, NAME, &matrix, operands),
        Err(reason) => Peer::ALL.into_iter().try_for_each(|peer| {
            session.gap(problem, &Label::of(peer.name(), NAME), reason.clone())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_their_names() {
        for kernel in HostKernel::ALL {
            assert_eq!(kernel.name().parse::<HostKernel>().unwrap(), kernel);
        }
        assert!("csr".parse::<HostKernel>().is_err());
        assert!(!HostKernel::of_batches().contains(&HostKernel::DiaBlocks));
    }

    #[test]
    fn the_kernels_of_batches_take_batches() {
        let mut batch = RaggedCsr::new();
        let eye = Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![1.0; 2]).unwrap();
        batch.push(eye.view());
        for kernel in HostKernel::of_batches() {
            let mut plan = SpmvPlan::new(&batch, &kernel.options()).unwrap();
            let mut y = [1.0; 2];

            plan.multiply(&[2.0, 3.0], &mut y).unwrap();

            assert_eq!(y, [3.0, 4.0], "{kernel}");
        }
    }
}
