//! A run of products on the processor.

use sparsebatch_cpu_ref::CpuError;

use super::{Costs, Label, Measured, Problem};
use crate::BenchError;
use crate::energy::EnergyMeter;
pub(crate) use crate::host_clock::Effort;
use crate::host_clock::{HostContender, HostMultiply, HostOperands, time};
use crate::processor::{available_memory, measure_bandwidth};
use crate::recorder::{Gap, Recorder};
use crate::row::Machine;
use crate::summary::OURS;

/// Bytes of a matrix for each entry while it is measured: ours or a peer's, its source, and what
/// conversions hold meanwhile.
const BYTES_PER_ENTRY: usize = 48;

/// A processor, and how long is spent on a contender.
pub(crate) struct Host {
    machine: Machine,
    effort: Effort,
    /// What joules are counted by.
    pub(crate) meter: Option<EnergyMeter>,
}

/// A processor, and where rows go.
pub(crate) struct HostSession<'b, 'a> {
    pub(super) host: &'b Host,
    pub(super) recorder: &'b mut Recorder<'a>,
}

impl Host {
    /// The processor, with the threads of the pool in use; measures its bandwidth.
    pub(crate) fn new(effort: Effort) -> Self {
        let found = measure_bandwidth();
        let machine = Machine {
            copy_gb_per_s: found.map_or(0.0, |found| found.copy_gb_per_s),
            read_gb_per_s: found.map(|found| found.read_gb_per_s),
            ..Machine::of_processor()
        };
        Self { machine, effort, meter: None }
    }

    /// As rows describe it.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// In words, with its bandwidths.
    pub(crate) fn described(&self) -> String {
        let Machine { device, copy_gb_per_s, read_gb_per_s, .. } = &self.machine;
        let read = read_gb_per_s.unwrap_or(f64::NAN);
        let name = device.as_deref().unwrap_or("?");
        format!("{name}: copy {copy_gb_per_s:.0} GB/s, read {read:.0} GB/s")
    }

    /// Measures the bandwidth at the end of a run.
    pub(crate) fn measure_again(&self, recorder: &mut Recorder<'_>) {
        if let Some(found) = measure_bandwidth() {
            recorder.copy_at_end(self.machine.device.as_deref(), found.copy_gb_per_s);
        }
    }
}

impl HostSession<'_, '_> {
    /// Vectors for a problem, in as many copies as its data need not to stay in the cache, so far as
    /// the effort allows.
    pub(crate) fn operands(&self, problem: &Problem<'_>, x: &[f64]) -> HostOperands {
        let cache = self.host.machine.l2_bytes.unwrap_or(0);
        let copies = self.host.effort.copies(problem.useful_bytes(), cache);
        HostOperands::new(x, problem.nrows, copies)
    }

    /// Takes what cannot be measured, for no fault.
    pub(crate) fn gap(
        &mut self,
        problem: &Problem<'_>,
        label: &Label,
        reason: impl Into<String>,
    ) -> Result<(), BenchError> {
        self.recorder.gap(Gap::new(problem.case, label.library, &label.configuration, reason))
    }

    /// Makes a contender of `plan`, once for each copy of the vectors, checks it, times it and takes
    /// the row; a refusal or a wrong answer becomes a gap. Returns whether it was measured.
    ///
    /// # Errors
    /// When the row cannot be printed or written.
    pub(crate) fn measure<P: HostMultiply>(
        &mut self,
        problem: &Problem<'_>,
        label: &Label,
        operands: &mut HostOperands,
        plan: impl FnMut(usize) -> Result<P, CpuError>,
        costs: impl FnOnce(&[P]) -> Costs,
    ) -> Result<bool, BenchError> {
        self.measure_in(None, problem, label, operands, plan, costs)
    }

    /// As [`HostSession::measure`], in a pool of threads.
    ///
    /// # Errors
    /// As [`HostSession::measure`].
    pub(crate) fn measure_in<P: HostMultiply>(
        &mut self,
        pool: Option<&rayon::ThreadPool>,
        problem: &Problem<'_>,
        label: &Label,
        operands: &mut HostOperands,
        plan: impl FnMut(usize) -> Result<P, CpuError>,
        costs: impl FnOnce(&[P]) -> Costs,
    ) -> Result<bool, BenchError> {
        let needed = problem.nnz.saturating_mul(BYTES_PER_ENTRY * operands.copies());
        if let Some(available) = available_memory().filter(|&available| needed > available) {
            let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
            let (needed, available) = (gib(needed), gib(available));
            let reason = format!("needs {needed:.1} GiB of memory, {available:.1} are available");
            return self.gap(problem, label, reason).map(|()| false);
        }
        let (effort, meter) = (self.host.effort, self.host.meter.as_ref());
        let measured = HostContender::new(operands, plan).and_then(|mut contender| {
            // The first and the last copy.
            for copy in (0..contender.copies()).step_by((contender.copies() - 1).max(1)) {
                if let Some(wrong) = (problem.oracle)(&contender.answer(copy)?) {
                    return Ok(Err(format!("wrong answer: {wrong}")));
                }
            }
            let timing = match pool {
                None => time(&mut contender, effort)?,
                Some(pool) => pool.install(|| time(&mut contender, effort))?,
            };
            let joules = EnergyMeter::measure(
                meter,
                timing.median_ms,
                &mut contender,
                |contender, turn| contender.product(turn),
                |_| Ok(()),
            )?;
            Ok(Ok((timing, contender.copies(), costs(contender.plans()), joules)))
        });
        let (reason, is_fault) = match measured {
            Ok(Ok((timing, copies, costs, joules))) => {
                let measured = Measured { timing: &timing, copies, costs, backend: Some("cpu") };
                let machine = &self.host.machine;
                let row = problem.row(self.recorder.run(), machine, label, &measured);
                return self.recorder.row_with_energy(row, joules).map(|()| true);
            }
            Ok(Err(wrong)) => (wrong, true),
            Err(error) => {
                let refusal = matches!(error, CpuError::Format(_) | CpuError::Parameter { .. });
                (error.to_string(), !refusal && label.library == OURS)
            }
        };
        let gap = Gap::new(problem.case, label.library, &label.configuration, reason);
        self.recorder.gap(Gap { is_fault, ..gap }).map(|()| false)
    }
}
