//! What is measured: plans, ours or a peer's, with the vectors they multiply.

use sparsebatch_spmv_gpu::flexible::FlexiblePlan;
use sparsebatch_spmv_gpu::{Device, DeviceBuffer, Executor, GpuError, PackedPlan, SinglePlan};

/// A vector on the device.
pub(crate) type Operand = DeviceBuffer<f64>;

/// A matrix or batch on the device.
///
/// What a product reads and writes besides x and y belongs to the value, so that recorded products
/// may run as long as it lives.
pub(crate) trait Multiply {
    /// Issues `y = A x + beta y` on the stream of the device and returns.
    fn multiply(&mut self, x: &Operand, beta: f64, y: &mut Operand) -> Result<(), GpuError>;
}

/// Our plans multiply alike.
macro_rules! multiply_by_plan {
    ($($plan:ident),*) => {$(
        impl Multiply for $plan<Device, f64> {
            fn multiply(
                &mut self,
                x: &Operand,
                beta: f64,
                y: &mut Operand,
            ) -> Result<(), GpuError> {
                self.apply(1.0, x, beta, y)
            }
        }
    )*};
}

multiply_by_plan!(PackedPlan, FlexiblePlan, SinglePlan);

/// Copies of x and y.
pub(crate) struct Operands {
    device: Device,
    pairs: Vec<(Operand, Operand)>,
}

impl Operands {
    /// Uploads `copies` copies of x, with y of `nrows` zeros.
    pub(crate) fn new(
        device: &Device,
        x: &[f64],
        nrows: usize,
        copies: usize,
    ) -> Result<Self, GpuError> {
        let pair = |_| Ok((device.upload(x)?, device.alloc_zeroed(nrows)?));
        let pairs = (0..copies.max(1)).map(pair).collect::<Result<_, GpuError>>()?;
        Ok(Self { device: device.clone(), pairs })
    }

    /// How many copies there are.
    pub(crate) fn copies(&self) -> usize {
        self.pairs.len()
    }
}

/// Copies of a plan, each with its own vectors.
pub(crate) struct Contender<'a, P> {
    plans: Vec<P>,
    operands: &'a mut Operands,
}

impl<'a, P: Multiply> Contender<'a, P> {
    /// Makes as many plans as there are vectors, counted from 0.
    pub(crate) fn new(
        operands: &'a mut Operands,
        plan: impl FnMut(usize) -> Result<P, GpuError>,
    ) -> Result<Self, GpuError> {
        let plans = (0..operands.copies()).map(plan).collect::<Result<_, GpuError>>()?;
        Ok(Self { plans, operands })
    }

    /// One plan, for the first vectors alone.
    pub(crate) fn alone(operands: &'a mut Operands, plan: P) -> Self {
        Self { plans: vec![plan], operands }
    }

    /// A plan.
    pub(crate) fn plan(&self) -> &P {
        &self.plans[0]
    }

    /// The plans.
    pub(crate) fn into_plans(self) -> Vec<P> {
        self.plans
    }
}

/// What the clock sees of a [`Contender`].
pub(crate) trait Timed {
    /// The device.
    fn device(&self) -> Device;
    /// Copies that products take turns in.
    fn copies(&self) -> usize;
    /// Issues `y = A x + y` of a copy, counted from 0 and around.
    fn product(&mut self, copy: usize) -> Result<(), GpuError>;
    /// `A x` of a copy.
    fn answer(&mut self, copy: usize) -> Result<Vec<f64>, GpuError>;
}

impl<P: Multiply> Timed for Contender<'_, P> {
    fn device(&self) -> Device {
        self.operands.device.clone()
    }

    fn copies(&self) -> usize {
        self.plans.len()
    }

    fn product(&mut self, copy: usize) -> Result<(), GpuError> {
        let copy = copy % self.plans.len();
        let (x, y) = &mut self.operands.pairs[copy];
        self.plans[copy].multiply(x, 1.0, y)
    }

    fn answer(&mut self, copy: usize) -> Result<Vec<f64>, GpuError> {
        let device = &self.operands.device;
        let (x, y) = &mut self.operands.pairs[copy];
        device.fill_zero(y)?;
        // The form that is timed: y is read.
        self.plans[copy].multiply(x, 1.0, y)?;
        device.download(y)
    }
}
