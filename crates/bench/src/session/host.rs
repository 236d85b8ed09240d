//! A run of products on the processor.

use sparsebatch_cpu_ref::CpuError;
use sparsebatch_formats::Scalar;

use super::{Costs, Label, Measured, Problem};
use crate::BenchError;
use crate::energy::EnergyMeter;
pub(crate) use crate::host_clock::Effort;
use crate::host_clock::{HostContender, HostMultiply, HostOperands, time};
use crate::phases::Phase::{Ceilings, Checking, Making, Measuring, Planning};
use crate::phases::timed;
use crate::processor::{self, available_memory, measure_bandwidth};
use crate::recorder::Recorder;
use sparsebatch_rows::summary::OURS;
use sparsebatch_rows::{Gap, Machine};
use sparsebatch_solve_core::ArgumentError;

/// Bytes per entry while a matrix is measured: our matrix or a peer's, its source, and the
/// temporaries of conversions.
const BYTES_PER_ENTRY: usize = 48;

/// A processor, and the effort spent on each contender.
pub(crate) struct Host {
    machine: Machine,
    effort: Effort,
    /// A pool of one thread, if one could be started.
    one_thread: Option<rayon::ThreadPool>,
    /// The energy meter, if energy is measured.
    pub(crate) meter: Option<EnergyMeter>,
}

/// The label of a contender, and the thread pool that it runs in (`None`: the current one).
pub(crate) struct Turn<'p> {
    pub(crate) label: Label,
    pub(crate) pool: Option<&'p rayon::ThreadPool>,
}

/// A processor, and the recorder of rows.
pub(crate) struct HostSession<'b, 'a> {
    pub(super) host: &'b Host,
    pub(super) recorder: &'b mut Recorder<'a>,
}

impl Host {
    /// The processor with the threads of the current pool; measures its bandwidth.
    pub(crate) fn new(effort: Effort) -> Self {
        let found = timed(Ceilings, measure_bandwidth);
        let machine = Machine {
            copy_gb_per_s: found.map_or(0.0, |found| found.copy_gb_per_s),
            read_gb_per_s: found.map(|found| found.read_gb_per_s),
            ..processor::machine()
        };
        let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().ok();
        Self { machine, effort, one_thread, meter: None }
    }

    /// The processor as rows describe it.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The processor in words, with its bandwidths.
    pub(crate) fn described(&self) -> String {
        let Machine { device, copy_gb_per_s, read_gb_per_s, .. } = &self.machine;
        let read = read_gb_per_s.unwrap_or(f64::NAN);
        let name = device.as_deref().unwrap_or("?");
        format!("{name}: copy {copy_gb_per_s:.0} GB/s, read {read:.0} GB/s")
    }

    /// Measures the bandwidth at the end of a run.
    pub(crate) fn measure_again(&self, recorder: &mut Recorder<'_>) {
        if let Some(found) = timed(Ceilings, measure_bandwidth) {
            recorder.copy_at_end(self.machine.device.as_deref(), found.copy_gb_per_s);
        }
    }
}

impl<'b> HostSession<'b, '_> {
    /// The turns of a contender on all threads and then on one, which its label names.
    pub(crate) fn on_all_and_one(&self, label: Label) -> Vec<Turn<'b>> {
        let host: &'b Host = self.host;
        let configuration = format!("{}, 1 thread", label.configuration);
        let alone = Label { configuration, automatic: false, ..label.clone() };
        let alone = host.one_thread.as_ref().map(|pool| Turn { label: alone, pool: Some(pool) });
        [Turn { label, pool: None }].into_iter().chain(alone).collect()
    }

    /// Vectors for a problem, in enough copies to keep its data out of the cache, as far as the
    /// effort allows.
    pub(crate) fn operands<T: Scalar>(&self, problem: &Problem<'_>, x: &[T]) -> HostOperands<T> {
        self.operands_of(x, problem.nrows, problem.useful_bytes_in::<T>())
    }

    /// As [`HostSession::operands`], for a product that touches `useful_bytes`.
    pub(crate) fn operands_of<T: Scalar>(
        &self,
        x: &[T],
        nrows: usize,
        touched_bytes: f64,
    ) -> HostOperands<T> {
        let cache = self.host.machine.l2_bytes.unwrap_or(0);
        let copies = self.host.effort.copies(touched_bytes, cache);
        timed(Making, || HostOperands::new(x, nrows, copies))
    }

    /// Records a gap that is no fault.
    pub(crate) fn gap(
        &mut self,
        problem: &Problem<'_>,
        label: &Label,
        reason: impl Into<String>,
    ) -> Result<(), BenchError> {
        self.recorder.gap(Gap::new(problem.case, label.library, &label.configuration, reason))
    }

    /// Prints a line.
    pub(crate) fn note(&mut self, line: &str) -> Result<(), BenchError> {
        self.recorder.note(line)
    }

    /// Makes a contender of `plan`, once for each copy of the vectors, checks it, times it and
    /// records the row; a refusal or a wrong answer becomes a gap. Returns whether it was measured.
    ///
    /// # Errors
    /// When the row cannot be printed or written.
    pub(crate) fn measure<P: HostMultiply<T>, T: Scalar>(
        &mut self,
        problem: &Problem<'_>,
        label: &Label,
        operands: &mut HostOperands<T>,
        plan: impl Fn(usize) -> Result<P, CpuError> + Sync,
        costs: impl Fn(&[P]) -> Costs,
    ) -> Result<bool, BenchError> {
        let turns = [Turn { label: label.clone(), pool: None }];
        self.measure_in_turns(&turns, problem, operands, plan, costs)
    }

    /// As [`HostSession::measure`], with the same plans in each of `turns`, each in its thread
    /// pool. A refusal would repeat in every turn, so only the first becomes a gap.
    ///
    /// # Errors
    /// As [`HostSession::measure`].
    pub(crate) fn measure_in_turns<P: HostMultiply<T>, T: Scalar>(
        &mut self,
        turns: &[Turn<'_>],
        problem: &Problem<'_>,
        operands: &mut HostOperands<T>,
        plan: impl Fn(usize) -> Result<P, CpuError> + Sync,
        costs: impl Fn(&[P]) -> Costs,
    ) -> Result<bool, BenchError> {
        let Some(first) = turns.first() else { return Ok(false) };
        let needed = problem.nnz.saturating_mul(BYTES_PER_ENTRY * operands.copies());
        if let Some(available) = available_memory().filter(|&available| needed > available) {
            let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
            let (needed, available) = (gib(needed), gib(available));
            let reason = format!("needs {needed:.1} GiB of memory, {available:.1} are available");
            return self.gap(problem, &first.label, reason).map(|()| false);
        }
        let mut contender = match timed(Planning, || HostContender::new(operands, plan)) {
            Ok(contender) => contender,
            Err(error) => return self.refused(problem, &first.label, &error).map(|()| false),
        };
        for (number, turn) in turns.iter().enumerate() {
            self.turn(turn, number > 0, problem, &mut contender, &costs)?;
        }
        Ok(true)
    }

    /// Checks and times a contender in a thread pool, and records the row.
    fn turn<P: HostMultiply<T>, T: Scalar>(
        &mut self,
        &Turn { ref label, pool }: &Turn<'_>,
        is_warm: bool,
        problem: &Problem<'_>,
        contender: &mut HostContender<'_, P, T>,
        costs: &impl Fn(&[P]) -> Costs,
    ) -> Result<(), BenchError> {
        let (effort, meter) = (self.host.effort, self.host.meter.as_ref());
        let measured = (|| {
            // Checks the first and the last copy.
            for copy in (0..contender.copies()).step_by((contender.copies() - 1).max(1)) {
                let answer = timed(Checking, || within(pool, || contender.answer(copy)))?;
                if let Some(wrong) = timed(Checking, || (problem.oracle)(&answer)) {
                    return Ok(Err(format!("wrong answer: {wrong}")));
                }
            }
            let timing = timed(Measuring, || within(pool, || time(contender, effort, is_warm)))?;
            let joules = timed(Measuring, || {
                EnergyMeter::measure(
                    meter,
                    timing.median_ms,
                    contender,
                    |contender, turn| contender.product(turn),
                    |_| Ok(()),
                )
            })?;
            Ok(Ok((timing, joules)))
        })();
        match measured {
            Ok(Ok((timing, joules))) => {
                let (copies, costs) = (contender.copies(), costs(contender.plans()));
                let measured = Measured { timing: &timing, copies, costs, backend: Some("cpu") };
                let machine = &self.host.machine;
                let row = problem.row(self.recorder.run(), machine, label, &measured);
                self.recorder.row_with_energy(row, joules)
            }
            Ok(Err(wrong)) => {
                let gap = Gap::new(problem.case, label.library, &label.configuration, wrong);
                self.recorder.gap(Gap { is_fault: true, ..gap })
            }
            Err(error) => self.refused(problem, label, &error),
        }
    }

    /// Records the error of a contender as a gap; a refusal is no fault.
    fn refused(
        &mut self,
        problem: &Problem<'_>,
        label: &Label,
        error: &CpuError,
    ) -> Result<(), BenchError> {
        let refusal = matches!(
            error,
            CpuError::Format(_) | CpuError::Argument(ArgumentError::OutOfRange { .. })
        );
        let is_fault = !refusal && label.library == OURS;
        let gap = Gap::new(problem.case, label.library, &label.configuration, error.to_string());
        self.recorder.gap(Gap { is_fault, ..gap })
    }
}

/// Runs `work` in `pool`, or in the current pool.
fn within<R: Send>(pool: Option<&rayon::ThreadPool>, work: impl FnOnce() -> R + Send) -> R {
    match pool {
        None => work(),
        Some(pool) => pool.install(work),
    }
}
