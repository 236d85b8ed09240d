//! A matrix on the device together with the kernels that multiply it.

use std::sync::Arc;
use std::time::Duration;

use sparsebatch_formats::convert::{FromCsr, SlotMap, dia_pattern};
use sparsebatch_formats::{
    Batch, CooPattern, CsrPattern, DiaPattern, EllPattern, HybPattern, Pattern, RaggedCsr,
    SellPPattern, View,
};

use super::diagonals::by_diagonals;
use super::launch::{
    AdaptiveKernel, BalancedKernel, DeviceCoo, DeviceCsr, DeviceDia, DeviceEll, DeviceSell,
    Product, RowKernel,
};
use super::{AdaptiveRows, BalancedRows, SingleKernel, SingleOptions};
use crate::{PackedOptions, PackedPlan};
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, KernelKey, Value};

/// The format and kernel of a plan.
pub(super) enum Method<E: Executor, T: Value> {
    Rows(DeviceCsr<E, T>, RowKernel),
    Balanced(DeviceCsr<E, T>, BalancedKernel<E, T>),
    Adaptive(DeviceCsr<E, T>, AdaptiveKernel<E, T>),
    Coo(DeviceCoo<E, T>),
    Ell(DeviceEll<E, T>),
    Dia(DeviceDia<E, T>),
    Hyb(DeviceEll<E, T>, DeviceCoo<E, T>),
    Sell(DeviceSell<E, T>),
    Packed(Box<PackedPlan<E, T>>),
}

/// The preprocessing that a kernel needs, if any.
#[derive(Clone, Copy)]
pub(super) enum Prepared<'a> {
    Nothing,
    Balanced(&'a BalancedRows),
    Adaptive(&'a AdaptiveRows),
}

impl Prepared<'_> {
    /// How long the preprocessing took.
    pub(super) fn time(self) -> Option<Duration> {
        match self {
            Self::Nothing => None,
            Self::Balanced(rows) => Some(rows.time()),
            Self::Adaptive(rows) => Some(rows.time()),
        }
    }
}

/// A method and what its plan keeps and reports.
pub(super) struct Built<E: Executor, T: Value> {
    pub(super) method: Method<E, T>,
    /// The slot of each CSR entry; `stored_len` is the number of slots.
    pub(super) map: Arc<SlotMap>,
    pub(super) stored_len: usize,
    pub(super) index_bytes: usize,
    pub(super) parts: u32,
    pub(super) lanes: u32,
}

/// A matrix on the host in the format of its kernel, with the values in its slots.
pub(super) enum Converted<'a, T: Value> {
    Csr(View<'a, CsrPattern, T>),
    Coo(Slots<CooPattern, T>),
    Ell(Slots<EllPattern, T>),
    Dia(Slots<DiaPattern, T>),
    Hyb(Slots<HybPattern, T>),
    /// For `sell` and `sell-p`.
    Sell(Slots<SellPPattern, T>),
    /// A batch of one system.
    Packed(Batch<T>),
}

/// A pattern and values in its slots.
pub(super) struct Slots<P, T> {
    pattern: P,
    values: Vec<T>,
    map: Arc<SlotMap>,
}

impl<P: FromCsr, T: Value> Slots<P, T> {
    fn of(matrix: View<'_, CsrPattern, T>, options: &P::Options) -> Result<Self, GpuError> {
        let (pattern, map) = P::from_csr(matrix.pattern(), options)?;
        let values = in_slots(&map, pattern.stored_len(), matrix.values());
        Ok(Self { pattern, values, map: Arc::new(map) })
    }
}

impl<'a, T: Value> Converted<'a, T> {
    /// Brings a matrix into the format of the kernel in the options.
    ///
    /// # Errors
    /// Errors of the conversion.
    pub(super) fn new(
        matrix: View<'a, CsrPattern, T>,
        options: &SingleOptions,
    ) -> Result<Self, GpuError> {
        Ok(match options.kernel {
            SingleKernel::Coo => Self::Coo(Slots::of(matrix, &Default::default())?),
            SingleKernel::Ell => Self::Ell(Slots::of(matrix, &options.ell())?),
            SingleKernel::Dia => {
                let pattern = dia_pattern(matrix.pattern(), &options.dia())?;
                let (map, values) = by_diagonals(&pattern, matrix);
                Self::Dia(Slots { pattern, values, map: Arc::new(map) })
            }
            SingleKernel::Hyb => Self::Hyb(Slots::of(matrix, &options.hyb())?),
            SingleKernel::Sell => Self::Sell(Slots::of(matrix, &options.sell())?),
            SingleKernel::SellP => Self::Sell(Slots::of(matrix, &options.sellp()?)?),
            SingleKernel::Packed => {
                let mut batch = RaggedCsr::new();
                batch.push(matrix);
                Self::Packed(Batch::Ragged(batch))
            }
            _ => Self::Csr(matrix),
        })
    }
}

/// Brings values from CSR order to their slots; other slots hold 0.
pub(super) fn in_slots<T: Value>(map: &SlotMap, stored_len: usize, values: &[T]) -> Vec<T> {
    let mut slots = vec![T::ZERO; stored_len];
    map.scatter(values, 1, &mut slots);
    slots
}

impl<E: Executor + Clone, T: Value> Built<E, T> {
    /// Uploads the matrix. `prepared` is the preprocessing that the kernel needs, already checked.
    pub(super) fn new(
        executor: &E,
        converted: &Converted<'_, T>,
        options: &SingleOptions,
        prepared: Prepared<'_>,
    ) -> Result<Self, GpuError> {
        match converted {
            Converted::Coo(coo) => Self::coo(executor, coo, options),
            Converted::Ell(ell) => {
                let method = DeviceEll::upload(executor, &ell.pattern, &ell.values)?;
                Ok(Self::of(ell, Method::Ell(method)))
            }
            Converted::Dia(dia) => {
                let method = DeviceDia::upload(executor, &dia.pattern, &dia.values)?;
                // On the device the value of a slot marks it as fill; there are no masks.
                let index_bytes = size_of_val(dia.pattern.diag_offsets());
                Ok(Self { index_bytes, ..Self::of(dia, Method::Dia(method)) })
            }
            Converted::Hyb(hyb) => Self::hyb(executor, hyb, options),
            Converted::Sell(sell) => {
                let upload = match options.kernel {
                    SingleKernel::Sell => DeviceSell::sell,
                    _ => DeviceSell::sellp,
                };
                let method = upload(executor, &sell.pattern, &sell.values)?;
                Ok(Self::of(sell, Method::Sell(method)))
            }
            Converted::Packed(batch) => Self::packed(executor, batch),
            Converted::Csr(matrix) => {
                let pattern = matrix.pattern();
                let csr = DeviceCsr::upload(executor, pattern, matrix.values())?;
                Self::csr(executor, csr, (pattern.nrows(), pattern.nnz()), options, prepared)
            }
        }
    }

    fn of<P: Pattern>(slots: &Slots<P, T>, method: Method<E, T>) -> Self {
        Self {
            method,
            map: Arc::clone(&slots.map),
            stored_len: slots.pattern.stored_len(),
            index_bytes: slots.pattern.index_bytes(),
            parts: 0,
            lanes: 0,
        }
    }

    /// Takes CSR arrays that have been checked, with `nrows` rows and `nnz` entries.
    pub(super) fn csr(
        executor: &E,
        csr: DeviceCsr<E, T>,
        (nrows, nnz): (usize, usize),
        options: &SingleOptions,
        prepared: Prepared<'_>,
    ) -> Result<Self, GpuError> {
        let mut index_bytes = 4 * (nrows + 1 + nnz);
        let (method, lanes, parts) = match (prepared, options.kernel) {
            (Prepared::Balanced(rows), _) => {
                index_bytes += 4 * rows.start_rows().len();
                let kernel = BalancedKernel::upload(executor, rows)?;
                (Method::Balanced(csr, kernel), 32, rows.nparts() as u32)
            }
            (Prepared::Adaptive(rows), _) => {
                index_bytes += rows.bytes();
                let kernel = AdaptiveKernel::upload(executor, rows)?;
                (Method::Adaptive(csr, kernel), 0, rows.nblocks() as u32)
            }
            (Prepared::Nothing, SingleKernel::CsrScalar) => {
                (Method::Rows(csr, RowKernel::scalar::<T>()), 1, 0)
            }
            (Prepared::Nothing, SingleKernel::CsrUnrolled) => {
                (Method::Rows(csr, RowKernel::unrolled::<T>()), 1, 0)
            }
            (Prepared::Nothing, SingleKernel::CsrTile) => {
                (Method::Rows(csr, RowKernel::tile::<T>()), 32, 0)
            }
            (Prepared::Nothing, _) => {
                let lanes = options.chosen_lanes(nrows, nnz)?;
                (Method::Rows(csr, RowKernel::vector::<T>(lanes)), lanes, 0)
            }
        };
        let (map, stored_len) = (Arc::new(SlotMap::Identity), nnz);
        Ok(Self { method, map, stored_len, index_bytes, parts, lanes })
    }

    fn packed(executor: &E, batch: &Batch<T>) -> Result<Self, GpuError> {
        let plan = PackedPlan::new(executor.clone(), batch, PackedOptions::default())?;
        let explain = plan.explain();
        let stored_len = explain.slots as usize;
        let index_bytes = explain.matrix_bytes as usize - stored_len * size_of::<T>();
        let (method, map) = (Method::Packed(Box::new(plan)), Arc::new(SlotMap::Identity));
        Ok(Self { method, map, stored_len, index_bytes, parts: 0, lanes: 0 })
    }

    fn coo(
        executor: &E,
        coo: &Slots<CooPattern, T>,
        options: &SingleOptions,
    ) -> Result<Self, GpuError> {
        let parts = options.chosen_parts(coo.pattern.nnz(), executor.info())?;
        let method = Method::Coo(DeviceCoo::upload(executor, &coo.pattern, &coo.values, parts)?);
        Ok(Self { parts, ..Self::of(coo, method) })
    }

    fn hyb(
        executor: &E,
        hyb: &Slots<HybPattern, T>,
        options: &SingleOptions,
    ) -> Result<Self, GpuError> {
        let (ell, coo) = (hyb.pattern.ell(), hyb.pattern.coo());
        let (ell_values, coo_values) = hyb.values.split_at(ell.stored_len());
        let parts = options.chosen_parts(coo.nnz(), executor.info())?;
        let method = Method::Hyb(
            DeviceEll::upload(executor, ell, ell_values)?,
            DeviceCoo::upload(executor, coo, coo_values, parts)?,
        );
        Ok(Self { parts, ..Self::of(hyb, method) })
    }
}

impl<E: Executor, T: Value> Method<E, T> {
    /// The kernels that a product may launch.
    pub(super) fn keys(&self) -> Vec<KernelKey> {
        match self {
            Self::Rows(_, kernel) => kernel.keys(),
            Self::Balanced(_, kernel) => kernel.keys(),
            Self::Adaptive(_, kernel) => kernel.keys(),
            Self::Coo(coo) => coo.keys(),
            Self::Ell(ell) => ell.keys(),
            Self::Dia(dia) => dia.keys(),
            Self::Hyb(ell, coo) if coo.nparts() == 0 => ell.keys(),
            // The ELL part has already scaled y, so `coo_scale` is not needed.
            Self::Hyb(ell, coo) => [ell.keys(), coo.keys()[1..].to_vec()].concat(),
            Self::Sell(sell) => sell.keys(),
            Self::Packed(plan) => plan.keys(),
        }
    }

    pub(super) fn multiply(&mut self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        match self {
            Self::Rows(csr, kernel) => kernel.multiply(csr, product),
            Self::Balanced(csr, kernel) => kernel.multiply(csr, product),
            Self::Adaptive(csr, kernel) => kernel.multiply(csr, product),
            Self::Coo(coo) => coo.multiply(product),
            Self::Ell(ell) => ell.multiply(product),
            Self::Dia(dia) => dia.multiply(product),
            Self::Hyb(ell, coo) => {
                let Product { executor, alpha, x, beta, y, overlaps } = product;
                ell.multiply(Product { executor, alpha, x, beta, y: &mut *y, overlaps })?;
                coo.add(Product { executor, alpha, x, beta: T::ONE, y, overlaps: false })
            }
            Self::Sell(sell) => sell.multiply(product),
            Self::Packed(plan) => plan.apply(product.alpha, product.x, product.beta, product.y),
        }
    }

    /// Replaces the values; `slots` has one value per slot.
    pub(super) fn set_values(&mut self, executor: &E, slots: &[T]) -> Result<(), GpuError> {
        let values = match self {
            Self::Rows(csr, _) | Self::Balanced(csr, _) | Self::Adaptive(csr, _) => &mut csr.values,
            Self::Coo(coo) => &mut coo.values,
            Self::Ell(ell) => &mut ell.values,
            Self::Dia(dia) => &mut dia.values,
            Self::Sell(sell) => &mut sell.values,
            Self::Packed(plan) => {
                let values = executor.upload(slots)?;
                plan.update_from(&values)?;
                return executor.synchronize();
            }
            Self::Hyb(ell, coo) => {
                let (ell_slots, coo_slots) = slots.split_at(ell.values.len());
                executor.copy_from_host(ell_slots, &mut ell.values)?;
                return executor.copy_from_host(coo_slots, &mut coo.values);
            }
        };
        executor.copy_from_host(slots, values)
    }
}
