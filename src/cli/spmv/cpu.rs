//! Products on the CPU.

use std::time::{Duration, Instant};

use sparsebatch::cpu::{CpuError, Explain, SpmvPlan};
use sparsebatch::{Batch, CpuScalar, Csr, FormatChoice, KernelChoice, Scalar, SpmvOptions};

use super::super::error::CliError;
use super::super::input::only_matrix;
use super::copy;
use super::run::{
    Backend, Copy, Facts, Figures, Label, MEASURE_FOR, REPETITIONS, Times, Unplanned,
};

/// A format and a kernel.
pub(super) type Choice = (FormatChoice, KernelChoice);

/// The product that the cost of plans is compared with: it needs no analysis.
pub(super) const BASELINE: Choice = (FormatChoice::Csr, KernelChoice::Rows);

/// The CPU backend, on the threads of the current pool.
pub(super) struct Cpu<'a, T> {
    batch: &'a Batch<T>,
    /// The only matrix of a batch of one, for the kernels of single matrices.
    single: Option<Csr<T>>,
    x: &'a [T],
}

impl<'a, T: CpuScalar> Cpu<'a, T> {
    /// Prepares for products of `batch` and `x`.
    pub(super) fn new(batch: &'a Batch<T>, x: &'a [T]) -> Self {
        Self { batch, single: (batch.nitems() == 1).then(|| only_matrix(batch)), x }
    }

    /// The median time of the [`BASELINE`].
    ///
    /// # Errors
    /// When the operands do not fit.
    pub(super) fn baseline(&mut self) -> Result<Duration, CliError> {
        let mut plan = self.make(BASELINE)?;
        let mut y = vec![T::ZERO; self.batch.row_offset(self.batch.nitems())];
        self.multiply(&mut plan, &mut y)?;
        Ok(Times::of(self.time(&mut plan, &mut y)?).median)
    }

    fn make(&self, (format, kernel): Choice) -> Result<SpmvPlan<T>, CpuError> {
        let options = SpmvOptions::default().format(format).kernel(kernel);
        match &self.single {
            Some(matrix) => SpmvPlan::new(matrix, &options),
            None => SpmvPlan::new(self.batch, &options),
        }
    }
}

impl<T: CpuScalar> Backend<T> for Cpu<'_, T> {
    type Choice = Choice;
    type Plan = SpmvPlan<T>;

    fn copy_bandwidth(&self) -> Result<Copy, CliError> {
        copy::copy_bandwidth()
    }

    fn label((format, kernel): Choice) -> Label {
        Label { format: format.name(), kernel: kernel.name() }
    }

    fn plan(&self, choice: Choice) -> Result<(SpmvPlan<T>, Facts), Unplanned> {
        let plan = self.make(choice).map_err(|error| Unplanned::Refused(error.to_string()))?;
        let explain = plan.explain();
        let facts = Facts {
            label: Label { format: explain.format, kernel: explain.kernel },
            why: explain.why.clone(),
            explain: explain.to_string(),
            repeatable: true,
            figures: Figures {
                padding: explain.padding,
                plan_bytes: explain.plan_bytes,
                product_bytes: explain.product_bytes,
                useful_bytes: useful_bytes::<T>(explain),
            },
            cost: explain.cost,
            compile: None,
        };
        Ok((plan, facts))
    }

    fn multiply(&mut self, plan: &mut SpmvPlan<T>, y: &mut [T]) -> Result<(), CliError> {
        Ok(plan.apply(T::ONE, self.x, T::ZERO, y)?)
    }

    fn time(&mut self, plan: &mut SpmvPlan<T>, y: &mut [T]) -> Result<Vec<Duration>, CliError> {
        let mut times = Vec::new();
        let start = Instant::now();
        while times.len() < REPETITIONS.0
            || (times.len() < REPETITIONS.1 && start.elapsed() < MEASURE_FOR)
        {
            let start = Instant::now();
            self.multiply(plan, y)?;
            times.push(start.elapsed());
        }
        Ok(times)
    }
}

/// The bytes of a product without those of padding. A padding slot has a value and, in formats that
/// store one per slot, a column index.
fn useful_bytes<T: Scalar>(explain: &Explain) -> usize {
    let index = match (explain.format, explain.kernel) {
        ("ell" | "hyb", _) | ("sellp", "rows") if explain.nitems == 1 => 4,
        _ => 0,
    };
    explain.product_bytes.saturating_sub(explain.padding * (size_of::<T>() + index))
}
