//! The products of a composed solve: [`ProductKernel`], and a plan of either kind.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::{Batch, BatchValues, Layout, UniformBatch};
use sparsebatch_solve_core::{ArgumentError, FormatChoice, KernelChoice, SpmvOptions};
use sparsebatch_spmv_gpu::{
    FlexibleKernel, FlexibleOptions, FlexiblePlan, PackedOptions, PackedPlan,
};

use super::matrices::Matrices;
use super::operators::DeviceLinOp;
use crate::GpuSolveError;

/// The plan whose products a composed solve repeats. The number of right-hand sides is that of the
/// solve, whatever these options say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProductKernel {
    /// The packed product, the default.
    Packed(PackedOptions),
    /// One of the flexible kernels. Solves over [`FlexibleKernel::Coo`] are not repeatable.
    Flexible(FlexibleOptions),
}

impl Default for ProductKernel {
    fn default() -> Self {
        Self::Packed(PackedOptions::default())
    }
}

impl ProductKernel {
    /// A flexible kernel with its defaults.
    pub fn flexible(kernel: FlexibleKernel) -> Self {
        Self::Flexible(FlexibleOptions::new(kernel))
    }

    /// The GPU product that corresponds to options of a CPU product.
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] for formats and kernels that no plan for batches has;
    /// [`GpuSolveError::Argument`] for interleaved vectors.
    pub fn of(spmv: &SpmvOptions) -> Result<Self, GpuSolveError> {
        use FormatChoice::{Auto, Coo, Csr, Ell, SellP};
        if spmv.layout != Layout::ItemMajor {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "layout",
                expected: "item-major vectors",
                found: "interleaved".to_owned(),
            }));
        }
        let kernel = match (spmv.format, spmv.kernel) {
            (Auto, KernelChoice::Auto) => return Ok(Self::default()),
            (Csr, KernelChoice::Auto) => FlexibleKernel::CsrSmart,
            (Auto | Csr, KernelChoice::Rows) => FlexibleKernel::CsrScalar,
            (Auto | Csr, KernelChoice::CsrI) => FlexibleKernel::CsrI,
            (Coo, KernelChoice::Auto) | (Auto | Coo, KernelChoice::Entries) => FlexibleKernel::Coo,
            (Ell, KernelChoice::Auto | KernelChoice::Rows) => FlexibleKernel::Ell,
            (SellP, KernelChoice::Auto | KernelChoice::Rows) => FlexibleKernel::SellP,
            _ => {
                return Err(GpuSolveError::Unsupported {
                    what: "a composed engine over this format and kernel",
                    instead: "take csr, coo, ell or sell-p with a kernel of it",
                });
            }
        };
        Ok(Self::flexible(kernel))
    }
}

impl GpuSolveError {
    /// The refusal of new values for an operator.
    pub(super) const NO_VALUES: Self = Self::Unsupported {
        what: "values for an operator of the caller",
        instead: "change what the operator multiplies by",
    };
}

/// A plan of either kind, or an operator of the caller.
pub(super) enum PlannedProduct<E: Executor, T: Value> {
    Packed(Box<PackedPlan<E, T>>),
    Flexible(Box<FlexiblePlan<E, T>>),
    Given { executor: E, operator: Box<dyn DeviceLinOp<E, T>> },
}

impl<E: Executor + Clone, T: Value> PlannedProduct<E, T> {
    pub(super) fn new(
        executor: &E,
        matrices: &Matrices<'_, T>,
        kernel: &ProductKernel,
        nrhs: usize,
    ) -> Result<Self, GpuError> {
        match kernel {
            ProductKernel::Packed(options) => {
                let (executor, options) = (executor.clone(), options.nrhs(nrhs));
                let plan = match *matrices {
                    Matrices::Batch(batch) => PackedPlan::new(executor, batch, options)?,
                    Matrices::Pattern { pattern, nitems, shares_values } => {
                        let items = (nitems, shares_values);
                        PackedPlan::of_pattern(executor, pattern, items, options)?
                    }
                };
                Ok(Self::Packed(Box::new(plan)))
            }
            ProductKernel::Flexible(options) => {
                let options = options.clone().nrhs(nrhs);
                let batch = with_values(matrices)?;
                Ok(Self::Flexible(Box::new(FlexiblePlan::new(executor, &batch, options)?)))
            }
        }
    }

    /// `y = A x` for all systems.
    pub(super) fn apply(&self, x: &E::Buffer<T>, y: &mut E::Buffer<T>) -> Result<(), GpuError> {
        match self {
            Self::Packed(plan) => plan.apply(T::ONE, x, T::ZERO, y),
            Self::Flexible(plan) => plan.apply(T::ONE, x, T::ZERO, y),
            Self::Given { executor, operator } => operator.apply(executor, x, y),
        }
    }

    /// Replaces the values by those on the device.
    pub(super) fn update_from(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        match self {
            Self::Packed(plan) => Ok(plan.update_from(values)?),
            Self::Flexible(plan) => Ok(plan.update_from(values)?),
            Self::Given { .. } => Err(GpuSolveError::NO_VALUES),
        }
    }

    /// Replaces the values by those of a batch of the same patterns, shared as before.
    pub(super) fn update_values(&mut self, batch: &Batch<T>) -> Result<(), GpuSolveError> {
        match self {
            Self::Packed(plan) => Ok(plan.update_values(batch)?),
            Self::Flexible(plan) => Ok(plan.update_values(&values_of(batch))?),
            Self::Given { .. } => Err(GpuSolveError::NO_VALUES),
        }
    }

    /// The name of the kernel.
    pub(super) fn kernel(&self) -> &'static str {
        match self {
            Self::Packed(_) => "packed",
            Self::Flexible(plan) => plan.explain().kernel.name(),
            Self::Given { .. } => "operator",
        }
    }

    /// The storage format of the matrices.
    pub(super) fn format(&self) -> &'static str {
        match self {
            Self::Packed(_) => "packed",
            Self::Given { .. } => "operator",
            Self::Flexible(plan) => match plan.explain().kernel {
                FlexibleKernel::Coo => "coo",
                FlexibleKernel::Ell => "ell",
                FlexibleKernel::SellP => "sell-p",
                FlexibleKernel::CsrScalar
                | FlexibleKernel::CsrVector
                | FlexibleKernel::CsrSmart
                | FlexibleKernel::CsrI => "csr",
            },
        }
    }

    /// Time of making the plan: analysis, conversion and upload, without compiling kernels.
    pub(super) fn cost(&self) -> Duration {
        match self {
            Self::Packed(plan) => plan.explain().packing,
            Self::Flexible(plan) => plan.explain().preprocessing,
            Self::Given { .. } => Duration::ZERO,
        }
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Packed(plan) => plan.explain().device_bytes,
            Self::Flexible(plan) => plan.explain().matrix_bytes,
            Self::Given { .. } => 0,
        }
    }
}

/// The batch, with values of 0 where they are not known yet.
fn with_values<'a, T: Value>(matrices: &Matrices<'a, T>) -> Result<Cow<'a, Batch<T>>, GpuError> {
    match *matrices {
        Matrices::Batch(batch) => Ok(Cow::Borrowed(batch)),
        Matrices::Pattern { pattern, nitems, shares_values } => {
            let values = match shares_values {
                true => BatchValues::Shared(vec![T::ZERO; pattern.nnz()]),
                false => BatchValues::ItemMajor(vec![T::ZERO; matrices.nvalues()]),
            };
            let pattern = Arc::new(pattern.to_pattern());
            let batch = UniformBatch::try_new(pattern, nitems, values)?;
            Ok(Cow::Owned(Batch::Uniform(batch)))
        }
    }
}

/// The values of a batch in CSR order, item after item; one set where they are shared.
pub(super) fn values_of<T: Value>(batch: &Batch<T>) -> Cow<'_, [T]> {
    match batch {
        Batch::Ragged(ragged) => Cow::Borrowed(ragged.values()),
        Batch::Uniform(uniform) if uniform.nitems() == 0 => Cow::Borrowed(&[]),
        Batch::Uniform(uniform) => match uniform.values() {
            BatchValues::ItemMajor(values) | BatchValues::Shared(values) => Cow::Borrowed(values),
            BatchValues::Interleaved(values) => {
                let mut item_major = Vec::with_capacity(values.len());
                (0..uniform.nitems()).for_each(|item| uniform.append_values(item, &mut item_major));
                Cow::Owned(item_major)
            }
        },
    }
}
