//! Our kernels on the processor, by name, and how they and the crates beside them are measured.

use std::fmt;
use std::str::FromStr;

use sparsebatch_cpu_ref::{
    CpuError, FormatChoice, KernelChoice, PlanSource, SpmvOptions, SpmvPlan,
};
use sparsebatch_formats::{Csr, RaggedCsr};

use crate::BenchError;
use crate::cusparse::HostCsr;
use crate::host_clock::{HostMultiply, HostOperands};
use crate::peers::{Peer, PeerLoop, PeerMatrix};
use crate::session::{Costs, HostSession, Label, Problem};
use crate::statistics::median;

/// A format with a kernel, of products on the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKernel {
    /// What a plan takes by itself.
    Auto,
    /// Whole rows of CSR.
    Csr,
    /// Equal parts of the entries of CSR.
    CsrI,
    /// Equal parts of the entries, with coordinates.
    Coo,
    /// ELLPACK by rows.
    Ell,
    /// ELLPACK and coordinates.
    Hyb,
    /// Diagonals by rows.
    Dia,
    /// Diagonals in blocks of rows; of single matrices.
    DiaBlocks,
    /// Slices of rows.
    SellP,
    /// Slices of 8 rows with runs of columns; of single matrices.
    SellPRuns,
}

impl HostKernel {
    /// All of them.
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

    /// Those that batches have.
    pub fn of_batches() -> Vec<Self> {
        let is_single = |kernel: &Self| matches!(kernel, Self::DiaBlocks | Self::SellPRuns);
        Self::ALL.into_iter().filter(|kernel| !is_single(kernel)).collect()
    }

    /// The name.
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
        SpmvOptions { format, kernel, ..SpmvOptions::default() }
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

impl HostMultiply for SpmvPlan<f64> {
    fn multiply(&mut self, x: &[f64], y: &mut [f64]) -> Result<(), CpuError> {
        self.apply(1.0, x, 1.0, y)
    }
}

/// Our plans of a matrix or batch.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn ours<'s>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    source: impl Into<PlanSource<'s, f64>>,
    operands: &mut HostOperands,
    kernels: &[HostKernel],
) -> Result<(), BenchError> {
    let source = source.into();
    for &kernel in kernels {
        let options = kernel.options();
        let label = Label::ours(kernel.name(), kernel == HostKernel::Auto);
        let plan = |_| SpmvPlan::new(source, &options);
        session.measure(problem, &label, operands, plan, |plans| costs(problem, plans))?;
    }
    Ok(())
}

/// What plans of ours cost; y is also read.
pub(super) fn costs(problem: &Problem<'_>, plans: &[SpmvPlan<f64>]) -> Costs {
    let plan_ms: Vec<f64> =
        plans.iter().map(|plan| plan.explain().cost.as_secs_f64() * 1e3).collect();
    let bytes_moved = (plans[0].explain().product_bytes + 8 * problem.nrows) as u64;
    Costs { bytes_moved, plan_ms: median(&plan_ms) }
}

/// Every crate on one matrix.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn crates(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    configuration: &str,
    matrix: &Csr<f64>,
    operands: &mut HostOperands,
) -> Result<(), BenchError> {
    for peer in Peer::ALL {
        let label = Label::of(peer.name(), configuration);
        let costs = |plans: &[PeerMatrix]| plans[0].bytes_moved().into();
        session.measure(problem, &label, operands, |_| Ok(peer.matrix(matrix)), costs)?;
    }
    Ok(())
}

/// Every crate on the systems of a batch, one call for each, on one thread and on all.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn loops(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    batch: &RaggedCsr<f64>,
    operands: &mut HostOperands,
) -> Result<(), BenchError> {
    for peer in Peer::ALL {
        for (name, threads) in [("loop csr", false), ("loop csr, all threads", true)] {
            let label = Label::of(peer.name(), name);
            let costs = |plans: &[PeerLoop]| plans[0].bytes_moved().into();
            let plan = |_| Ok(PeerLoop::new(peer, batch, threads));
            session.measure(problem, &label, operands, plan, costs)?;
        }
    }
    Ok(())
}

/// Every crate on a batch as one block-diagonal matrix.
///
/// # Errors
/// As [`HostSession::measure`].
pub(super) fn blocks(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    batch: &RaggedCsr<f64>,
    operands: &mut HostOperands,
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
