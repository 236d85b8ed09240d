//! Products on a GPU.

use std::time::{Duration, Instant};

use sparsebatch::gpu::device::{Event, measure_bandwidth};
use sparsebatch::gpu::flexible::Explanation;
use sparsebatch::gpu::{Device, DeviceBuffer, Executor, GpuError, Value};
use sparsebatch::gpu::{
    FlexibleKernel, FlexibleOptions, FlexiblePlan, PackedExplain, PackedOptions, PackedPlan,
    SingleExplain, SingleKernel, SingleOptions, SinglePlan,
};
use sparsebatch::{Batch, Csr};

use super::super::error::CliError;
use super::super::input::only_matrix;
use super::choice::GpuChoice;
use super::run::{Backend, Copy, Facts, Figures, Label, MEASURE_FOR, REPETITIONS, Unplanned};

/// The GPU backend: a batch on the host, and its operand on the GPU.
pub(super) struct Gpu<'a, T: Value> {
    device: Device,
    batch: &'a Batch<T>,
    /// The only matrix of a batch of one, for the kernels of single matrices.
    single: Option<Csr<T>>,
    x: DeviceBuffer<T>,
    y: DeviceBuffer<T>,
}

/// A plan of any kind.
pub(super) enum Plan<T: Value> {
    Single(Box<SinglePlan<Device, T>>),
    Packed(Box<PackedPlan<Device, T>>),
    Flexible(Box<FlexiblePlan<Device, T>>),
}

/// The plan for a batch with `--kernel auto`, and the reason for it.
fn automatic_batch<T: Value>(
    device: &Device,
    batch: &Batch<T>,
) -> Result<(Plan<T>, String), GpuError> {
    match PackedPlan::new(device.clone(), batch, PackedOptions::default()) {
        Ok(plan) => {
            let why = "the packed product is the default for batches".to_owned();
            Ok((Plan::Packed(Box::new(plan)), why))
        }
        // The packed product refuses a batch with too large a system.
        Err(refused @ GpuError::InvalidArgument { .. }) => {
            let options = FlexibleOptions::new(FlexibleKernel::CsrI);
            let plan = FlexiblePlan::new(device, batch, options)?;
            Ok((Plan::Flexible(Box::new(plan)), format!("the packed product refused: {refused}")))
        }
        Err(error) => Err(error),
    }
}

impl<'a, T: Value> Gpu<'a, T> {
    /// Prepares for products of `batch` and `x`.
    ///
    /// # Errors
    /// When the vectors do not fit the GPU's memory.
    pub(super) fn new(device: Device, batch: &'a Batch<T>, x: &[T]) -> Result<Self, CliError> {
        let nitems = batch.nitems();
        Ok(Self {
            single: (nitems == 1).then(|| only_matrix(batch)),
            x: device.upload(x)?,
            y: device.alloc(batch.row_offset(nitems))?,
            device,
            batch,
        })
    }

    /// Makes a plan, and gives the reason for its choice.
    fn make(&self, choice: GpuChoice) -> Result<(Plan<T>, String), GpuError> {
        let (device, batch) = (&self.device, self.batch);
        let plan = match (choice, &self.single) {
            (GpuChoice::Auto, Some(matrix)) => {
                let plan = SinglePlan::new(device, matrix.view(), &SingleOptions::default())?;
                let why = plan.explain().why.clone().expect("the options name no kernel");
                return Ok((Plan::Single(Box::new(plan)), why));
            }
            (GpuChoice::Auto, None) => return automatic_batch(device, batch),
            (GpuChoice::Single(kernel), matrix) => {
                let matrix = matrix.as_ref().expect("the choice was made for one matrix");
                let options = SingleOptions::with_kernel(kernel);
                Plan::Single(Box::new(SinglePlan::new(device, matrix.view(), &options)?))
            }
            (GpuChoice::Packed, _) => {
                let plan = PackedPlan::new(device.clone(), batch, PackedOptions::default())?;
                Plan::Packed(Box::new(plan))
            }
            (GpuChoice::Flexible(kernel), _) => {
                let options = FlexibleOptions::new(kernel);
                Plan::Flexible(Box::new(FlexiblePlan::new(device, batch, options)?))
            }
        };
        Ok((plan, "asked for by name".to_owned()))
    }

    /// Issues `y = A x` on the device without waiting.
    fn apply(&mut self, plan: &mut Plan<T>) -> Result<(), GpuError> {
        match plan {
            Plan::Single(plan) => plan.apply(T::ONE, &self.x, T::ZERO, &mut self.y),
            Plan::Packed(plan) => plan.apply(T::ONE, &self.x, T::ZERO, &mut self.y),
            Plan::Flexible(plan) => plan.apply(T::ONE, &self.x, T::ZERO, &mut self.y),
        }
    }

    /// Times by events on the device. All products are issued before the first time is read, after
    /// untimed ones, so that the device need not wait for the host.
    fn times(&mut self, plan: &mut Plan<T>) -> Result<Vec<Duration>, GpuError> {
        const WARM_UP: u32 = 3;
        let device = self.device.clone();
        let (start, end) = (Event::new(&device)?, Event::new(&device)?);
        start.record(&device)?;
        for _ in 0..WARM_UP {
            self.apply(plan)?;
        }
        end.record(&device)?;
        let one = duration(start.elapsed_ms(&end)?) / WARM_UP;
        let events: Vec<Event> =
            (0..=repetitions(one)).map(|_| Event::new(&device)).collect::<Result<_, _>>()?;
        self.apply(plan)?;
        events[0].record(&device)?;
        for event in &events[1..] {
            self.apply(plan)?;
            event.record(&device)?;
        }
        events.windows(2).map(|pair| Ok(duration(pair[0].elapsed_ms(&pair[1])?))).collect()
    }

    fn sharing(&self) -> Sharing {
        match self.batch {
            Batch::Ragged(_) => Sharing { pattern: 1, values: 1 },
            Batch::Uniform(batch) => {
                let nitems = batch.nitems().max(1);
                Sharing { pattern: nitems, values: if batch.is_shared() { nitems } else { 1 } }
            }
        }
    }

    fn facts(&self, plan: &Plan<T>, why: String, cost: Duration, compile: Duration) -> Facts {
        let vectors = (self.x.len() + self.y.len()) * size_of::<T>();
        let layout = |index| Layout { vectors, index, sharing: self.sharing() };
        let (choice, explain, figures) = match plan {
            Plan::Single(plan) => {
                let explain = plan.explain();
                let choice = GpuChoice::Single(explain.kernel);
                (choice, explain.to_string(), of_single::<T>(explain))
            }
            Plan::Packed(plan) => {
                let explain = plan.explain();
                (GpuChoice::Packed, packed_text(explain), of_packed::<T>(explain, layout(2)))
            }
            Plan::Flexible(plan) => {
                let explain = plan.explain();
                let layout = layout(if plan.batch().is_compact() { 2 } else { 4 });
                let choice = GpuChoice::Flexible(explain.kernel);
                (choice, explain.to_string(), of_flexible::<T>(&explain, layout))
            }
        };
        let label @ Label { format, kernel } = Self::label(choice);
        let account: Vec<&str> = explain.lines().collect();
        Facts {
            label,
            explain: format!("{format} by {kernel}: {why}; {}", account.join("; ")),
            why,
            repeatable: choice.is_repeatable(),
            figures,
            cost,
            compile: Some(compile),
        }
    }
}

impl<T: Value> Backend<T> for Gpu<'_, T> {
    type Choice = GpuChoice;
    type Plan = Plan<T>;

    fn copy_bandwidth(&self) -> Result<Copy, CliError> {
        let measured = measure_bandwidth(&self.device)?;
        Ok(Copy { gb_s: measured.copy_gb_per_s, bytes: measured.vector_bytes as usize })
    }

    fn label(choice: GpuChoice) -> Label {
        let (format, kernel) = choice.names();
        Label { format, kernel }
    }

    fn plan(&self, choice: GpuChoice) -> Result<(Plan<T>, Facts), Unplanned> {
        // The first plan compiles or loads its kernels; the second gives the cost of a plan.
        let timed = || {
            let start = Instant::now();
            let made = self.make(choice).map_err(unplanned)?;
            Ok::<_, Unplanned>((made, start.elapsed()))
        };
        let first = timed()?.1;
        let ((plan, why), cost) = timed()?;
        let facts = self.facts(&plan, why, cost, first.saturating_sub(cost));
        Ok((plan, facts))
    }

    fn multiply(&mut self, plan: &mut Plan<T>, y: &mut [T]) -> Result<(), CliError> {
        self.device.copy_from_host(y, &mut self.y)?;
        self.apply(plan)?;
        Ok(self.device.copy_to_host(&self.y, y)?)
    }

    fn time(&mut self, plan: &mut Plan<T>, _: &mut [T]) -> Result<Vec<Duration>, CliError> {
        Ok(self.times(plan)?)
    }
}

/// Separates refusals of the matrix from failures of the machine.
fn unplanned(error: GpuError) -> Unplanned {
    match error {
        GpuError::InvalidArgument { .. }
        | GpuError::Format { .. }
        | GpuError::OutOfMemory { .. } => Unplanned::Refused(error.to_string()),
        _ => Unplanned::Failed(error.into()),
    }
}

fn duration(ms: f32) -> Duration {
    Duration::from_secs_f64(f64::from(ms.max(0.0)) * 1e-3)
}

/// The number of products of this duration to time.
fn repetitions(product: Duration) -> usize {
    let fit = MEASURE_FOR.as_secs_f64() / product.as_secs_f64().max(1e-6);
    (fit as usize).clamp(REPETITIONS.0, REPETITIONS.1)
}

/// The number of systems that share a stored pattern, and a stored value.
#[derive(Clone, Copy)]
struct Sharing {
    pattern: usize,
    values: usize,
}

/// The sizes that byte counts depend on besides the plan's own account.
#[derive(Clone, Copy)]
struct Layout {
    /// Bytes of x and y.
    vectors: usize,
    /// Bytes of the column index of a slot.
    index: usize,
    sharing: Sharing,
}

impl Layout {
    /// The stored padding slots, for `padding` counted over all systems, and their bytes.
    fn padding<T>(self, padding: u64) -> (usize, usize) {
        let padding = padding as usize;
        let held = padding / self.sharing.values;
        (held, held * size_of::<T>() + padding / self.sharing.pattern * self.index)
    }
}

fn of_single<T>(explain: &SingleExplain) -> Figures {
    let index = if explain.kernel == SingleKernel::Dia { 0 } else { size_of::<i32>() };
    let product_bytes = explain.bytes_moved(true);
    Figures {
        padding: explain.padding(),
        plan_bytes: explain.device_bytes(),
        product_bytes,
        useful_bytes: product_bytes.saturating_sub(explain.padding() * (size_of::<T>() + index)),
    }
}

fn of_packed<T>(explain: &PackedExplain, layout: Layout) -> Figures {
    let (padding, padding_bytes) = layout.padding::<T>(explain.slots.saturating_sub(explain.nnz));
    // The plan's own figure includes reading y.
    let product_bytes = explain.device_bytes as usize + layout.vectors;
    Figures {
        padding,
        plan_bytes: explain.device_bytes as usize,
        product_bytes,
        useful_bytes: product_bytes.saturating_sub(padding_bytes),
    }
}

fn of_flexible<T>(explain: &Explanation, layout: Layout) -> Figures {
    let (padding, padding_bytes) = layout.padding::<T>(explain.padding);
    let product_bytes = (explain.bytes_read + explain.bytes_written) as usize;
    Figures {
        padding,
        plan_bytes: product_bytes.saturating_sub(layout.vectors),
        product_bytes,
        useful_bytes: product_bytes.saturating_sub(padding_bytes),
    }
}

fn packed_text(explain: &PackedExplain) -> String {
    let PackedExplain { launches, blocks, nnz, slots, pieces, pieces_cut, device_bytes, .. } =
        explain;
    format!(
        "packed: {launches} launches, {blocks} blocks, {pieces} pieces, {pieces_cut} of them with \
         split or empty rows; {nnz} entries in {slots} slots; plan of {device_bytes} bytes, made \
         in {:.3} ms",
        explain.setup.as_secs_f64() * 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(pattern: usize, values: usize) -> Layout {
        Layout { vectors: 100, index: 2, sharing: Sharing { pattern, values } }
    }

    #[test]
    fn padding_that_is_shared_is_held_once() {
        assert_eq!(layout(1, 1).padding::<f64>(30), (30, 300));
        assert_eq!(layout(10, 1).padding::<f64>(30), (30, 246));
        assert_eq!(layout(10, 10).padding::<f32>(30), (3, 18));
    }

    #[test]
    fn what_does_not_suit_is_told_from_what_fails() {
        let refused = GpuError::Format { reason: "x".to_owned() };
        let fails = GpuError::Driver { call: "cuInit", code: 1, message: "x".to_owned() };

        assert!(matches!(unplanned(refused), Unplanned::Refused(text) if text == "x"));
        assert!(matches!(unplanned(fails), Unplanned::Failed(CliError::Internal(_))));
    }

    #[test]
    fn short_products_are_timed_more_often() {
        assert_eq!(repetitions(Duration::from_secs(1)), REPETITIONS.0);
        assert_eq!(repetitions(Duration::from_millis(3)), 100);
        assert_eq!(repetitions(Duration::ZERO), REPETITIONS.1);
    }
}
