//! Contenders of a measurement: plans, ours or a peer's, with the vectors they multiply.

use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError, Value};
use sparsebatch_spmv_gpu::flexible::FlexiblePlan;
use sparsebatch_spmv_gpu::{PackedPlan, SinglePlan};

use crate::parallel;

/// A vector on the device.
pub(crate) type Operand<T = f64> = DeviceBuffer<T>;

/// A matrix or batch on the device.
///
/// The value owns all memory that a product reads and writes besides x and y, so recorded products
/// may run as long as it lives.
pub(crate) trait Multiply<T: Value = f64> {
    /// Issues `y = A x + beta y` on the stream of the device and returns.
    fn multiply(&mut self, x: &Operand<T>, beta: T, y: &mut Operand<T>) -> Result<(), GpuError>;
}

/// All our plans implement `Multiply` in the same way.
macro_rules! multiply_by_plan {
    ($($plan:ident),*) => {$(
        impl<T: Value> Multiply<T> for $plan<Device, T> {
            fn multiply(
                &mut self,
                x: &Operand<T>,
                beta: T,
                y: &mut Operand<T>,
            ) -> Result<(), GpuError> {
                self.apply(T::ONE, x, beta, y)
            }
        }
    )*};
}

multiply_by_plan!(PackedPlan, FlexiblePlan, SinglePlan);

/// Copies of x and y on the device.
pub(crate) struct Operands<T: Value = f64> {
    device: Device,
    pairs: Vec<(Operand<T>, Operand<T>)>,
}

impl<T: Value> Operands<T> {
    /// Uploads `copies` copies of x, with y of `nrows` zeros.
    pub(crate) fn new(
        device: &Device,
        x: &[T],
        nrows: usize,
        copies: usize,
    ) -> Result<Self, GpuError> {
        let pair = |_| Ok((device.upload(x)?, device.alloc_zeroed(nrows)?));
        let pairs = (0..copies.max(1)).map(pair).collect::<Result<_, GpuError>>()?;
        Ok(Self { device: device.clone(), pairs })
    }

    /// Number of copies.
    pub(crate) fn copies(&self) -> usize {
        self.pairs.len()
    }
}

/// Copies of a plan, each with its own vectors.
pub(crate) struct Contender<'a, P, T: Value = f64> {
    plans: Vec<P>,
    operands: &'a mut Operands<T>,
}

impl<'a, P: Multiply<T>, T: Value> Contender<'a, P, T> {
    /// Makes one plan per copy of the vectors; `plan` gets the copy's index.
    pub(crate) fn new(
        operands: &'a mut Operands<T>,
        plan: impl FnMut(usize) -> Result<P, GpuError>,
    ) -> Result<Self, GpuError> {
        let plans = (0..operands.copies()).map(plan).collect::<Result<_, GpuError>>()?;
        Ok(Self { plans, operands })
    }

    /// Takes plans made before, one per copy of the vectors.
    ///
    /// # Panics
    /// When the number of plans is not the number of copies.
    pub(crate) fn of(operands: &'a mut Operands<T>, plans: Vec<P>) -> Self {
        assert_eq!(plans.len(), operands.copies());
        Self { plans, operands }
    }

    /// Takes one plan, which multiplies the first copy of the vectors only.
    pub(crate) fn alone(operands: &'a mut Operands<T>, plan: P) -> Self {
        Self { plans: vec![plan], operands }
    }

    /// The plan of the first copy.
    pub(crate) fn plan(&self) -> &P {
        &self.plans[0]
    }

    /// The plans.
    pub(crate) fn into_plans(self) -> Vec<P> {
        self.plans
    }
}

/// The view of a [`Contender`] that the clock has.
pub(crate) trait Timed {
    /// The device.
    fn device(&self) -> Device;
    /// Number of copies that products alternate between.
    fn copies(&self) -> usize;
    /// Issues `y = A x + y` on copy `copy` modulo the number of copies.
    fn product(&mut self, copy: usize) -> Result<(), GpuError>;
    /// Computes `A x` on copy `copy` and returns it in f64.
    fn answer(&mut self, copy: usize) -> Result<Vec<f64>, GpuError>;
}

impl<P: Multiply<T>, T: Value> Timed for Contender<'_, P, T> {
    fn device(&self) -> Device {
        self.operands.device.clone()
    }

    fn copies(&self) -> usize {
        self.plans.len()
    }

    fn product(&mut self, copy: usize) -> Result<(), GpuError> {
        let copy = copy % self.plans.len();
        let (x, y) = &mut self.operands.pairs[copy];
        self.plans[copy].multiply(x, T::ONE, y)
    }

    fn answer(&mut self, copy: usize) -> Result<Vec<f64>, GpuError> {
        let device = &self.operands.device;
        let (x, y) = &mut self.operands.pairs[copy];
        device.fill_zero(y)?;
        // Checks the form that is timed, in which y is read.
        self.plans[copy].multiply(x, T::ONE, y)?;
        let mut host: Vec<T> = parallel::zeros(y.len());
        device.copy_to_host(y, &mut host)?;
        Ok(parallel::in_f64(&host))
    }
}
