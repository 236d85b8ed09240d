//! Solves of arrays on a GPU, on the stream of the program.

use std::sync::Arc;

use sparsebatch::gpu::{
    self, Device, DeviceBuffer, DeviceData, DeviceSolver, Executor, Guess, Value,
};

use super::plans::{self, Plans};
use super::specs::{Call, Precision, Size, Spec};
use super::xla::{Array, Code, Element, Failure, Frame};
use crate::backend::device_of;
use crate::ffi::{device_on, view};

/// The analysis of one batch size on one stream.
struct Plan<T: Precision> {
    spec: Arc<Spec>,
    size: Size,
    is_transposed: bool,
    /// Number of the GPU, and address of the stream.
    place: (usize, u64),
    device: Device,
    solver: DeviceSolver<Device, T>,
}

/// Precisions of solves on a GPU.
trait DevicePrecision: Precision + Value {
    fn plans() -> &'static Plans<Plan<Self>>;
}

static PLANS_F64: Plans<Plan<f64>> = Plans::new();
static PLANS_F32: Plans<Plan<f32>> = Plans::new();

impl DevicePrecision for f64 {
    fn plans() -> &'static Plans<Plan<Self>> {
        &PLANS_F64
    }
}

impl DevicePrecision for f32 {
    fn plans() -> &'static Plans<Plan<Self>> {
        &PLANS_F32
    }
}

pub(super) fn plans_len() -> usize {
    PLANS_F64.len() + PLANS_F32.len()
}

pub(super) fn clear() {
    PLANS_F64.clear();
    PLANS_F32.clear();
}

/// Solves a call.
pub(super) fn run(frame: &mut Frame<'_>) -> Result<(), Failure> {
    match frame.argument(0)?.is_of::<f32>() {
        true => run_as::<f32>(frame),
        false => run_as::<f64>(frame),
    }
}

/// An array of the call on the device.
fn buffer<T: Element + gpu::Pod>(array: &Array<'_>) -> Result<DeviceBuffer<T>, Failure> {
    Ok(view(array.address::<T>()?, array.len()))
}

fn run_as<T: DevicePrecision>(frame: &mut Frame<'_>) -> Result<(), Failure> {
    let call = Call::of(frame)?;
    let (values, b) = (frame.argument(0)?, frame.argument(1)?);
    let size = call.spec.size(&values, &b)?;
    let (x, status) = frame.results()?;
    size.check("x", x.array())?;
    size.check("status", status.array())?;
    let place = (frame.ordinal()?, frame.stream()?);
    let (values, b) = (buffer::<T>(&values)?, buffer::<T>(&b)?);
    let mut x = buffer::<T>(x.array())?;
    let fits = |plan: &Plan<T>| {
        plan.size == size
            && plan.place == place
            && plan.is_transposed == call.is_transposed
            && plan.spec.key == call.spec.key
    };
    let mut plan = match T::plans().take(fits) {
        Some(plan) => plan,
        None => Plan::new(&call, size, place, &values)?,
    };
    let guess = match frame.narguments() > 2 {
        false => Guess::Zero,
        true => {
            let from = frame.argument(2)?;
            size.check("x0", &from)?;
            // The program says that they are one array: XLA copies where it needs both.
            if from.address::<T>()? != x.raw() {
                let guesses = plan.device.download(&buffer::<T>(&from)?)?;
                plan.device.copy_from_host(&guesses, &mut x)?;
            }
            Guess::InX
        }
    };
    let report = plan.solver.solve(&values, &b, guess, &mut x)?;
    let codes: Vec<i32> =
        (0..report.nsystems()).map(|system| report.status(system) as i32).collect();
    plan.device.copy_from_host(&codes, &mut buffer(status.array())?)?;
    T::plans().put(plan);
    Ok(())
}

impl<T: DevicePrecision> Plan<T> {
    fn new(
        call: &Call,
        size: Size,
        place: (usize, u64),
        values: &DeviceBuffer<T>,
    ) -> Result<Self, Failure> {
        plans::analysed();
        let lost =
            |error: pyo3::PyErr| Failure { code: Code::Internal, message: error.to_string() };
        let device = device_on(&device_of(place.0).map_err(lost)?, place.1);
        let options = call.spec.options(size);
        let data = DeviceData::new().transposed(call.is_transposed);
        let solver = call.spec.with_patterns(size, |patterns| {
            DeviceSolver::with_values(&device, patterns, values, &options, data)
        })??;
        let (spec, is_transposed) = (Arc::clone(&call.spec), call.is_transposed);
        Ok(Self { spec, size, is_transposed, place, device, solver })
    }
}
