//! A matrix on the device together with the kernels that multiply it.

use std::time::Duration;

use sparsebatch_formats::convert::{FromCsr, SlotMap};
use sparsebatch_formats::{
    Batch, CooPattern, CsrPattern, DiaPattern, EllPattern, HybPattern, Pattern, RaggedCsr,
    SellPPattern, View,
};

use super::launch::{
    AdaptiveKernel, BalancedKernel, DeviceCoo, DeviceCsr, DeviceDia, DeviceEll, DeviceSell,
    Product, RowKernel,
};
use super::{AdaptiveRows, BalancedRows, SingleKernel, SingleOptions};
use crate::{Executor, GpuError, KernelBuffer, KernelKey, PackedOptions, PackedPlan, Value};

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

/// What was found out about a pattern before: nothing, or that which the kernel needs.
#[derive(Clone, Copy)]
pub(super) enum Prepared<'a> {
    Nothing,
    Balanced(&'a BalancedRows),
    Adaptive(&'a AdaptiveRows),
}

impl Prepared<'_> {
    /// How long it took.
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
    /// The slot of each CSR entry, and the number of slots.
    pub(super) map: SlotMap,
    pub(super) stored_len: usize,
    pub(super) index_bytes: usize,
    pub(super) parts: u32,
    pub(super) lanes: u32,
}

/// A pattern in another format and the matrix's values in its slots.
fn convert<P: FromCsr, T: Value>(
    matrix: View<'_, CsrPattern, T>,
    options: &P::Options,
) -> Result<(P, Vec<T>, SlotMap), GpuError> {
    let (pattern, map) = P::from_csr(matrix.pattern(), options)?;
    let values = in_slots(&map, pattern.stored_len(), matrix.values());
    Ok((pattern, values, map))
}

/// Values in CSR order brought to their slots; other slots hold 0.
pub(super) fn in_slots<T: Value>(map: &SlotMap, stored_len: usize, values: &[T]) -> Vec<T> {
    let mut slots = vec![T::ZERO; stored_len];
    map.scatter(values, 1, &mut slots);
    slots
}

/// As [`in_slots`], but the fill of diagonals is told from entries.
pub(super) fn in_diagonals<T: Value>(map: &SlotMap, stored_len: usize, values: &[T]) -> Vec<T> {
    let entries: Vec<T> = values.iter().map(|value| value.dia_entry()).collect();
    let mut slots = vec![T::DIA_FILL; stored_len];
    map.scatter(&entries, 1, &mut slots);
    slots
}

impl<E: Executor + Clone, T: Value> Built<E, T> {
    /// Converts and uploads. `prepared` is what the kernel needs, and has been checked.
    pub(super) fn new(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        prepared: Prepared<'_>,
    ) -> Result<Self, GpuError> {
        match options.kernel {
            SingleKernel::Coo => Self::coo(executor, matrix, options),
            SingleKernel::Ell => {
                let (pattern, values, map) = convert::<EllPattern, T>(matrix, &options.ell())?;
                let method = Method::Ell(DeviceEll::upload(executor, &pattern, &values)?);
                Ok(Self::of(&pattern, method, map))
            }
            SingleKernel::Dia => {
                let (pattern, map) = DiaPattern::from_csr(matrix.pattern(), &options.dia())?;
                let values = in_diagonals(&map, pattern.stored_len(), matrix.values());
                let method = Method::Dia(DeviceDia::upload(executor, &pattern, &values)?);
                Ok(Self::of(&pattern, method, map))
            }
            SingleKernel::Hyb => Self::hyb(executor, matrix, options),
            SingleKernel::Sell => {
                let (pattern, values, map) = convert::<SellPPattern, T>(matrix, &options.sell())?;
                let method = Method::Sell(DeviceSell::sell(executor, &pattern, &values)?);
                Ok(Self::of(&pattern, method, map))
            }
            SingleKernel::SellP => {
                let sellp = options.sellp()?;
                let (pattern, values, map) = convert::<SellPPattern, T>(matrix, &sellp)?;
                let method = Method::Sell(DeviceSell::sellp(executor, &pattern, &values)?);
                Ok(Self::of(&pattern, method, map))
            }
            SingleKernel::Packed => Self::packed(executor, matrix),
            _ => {
                let pattern = matrix.pattern();
                let csr = DeviceCsr::upload(executor, pattern, matrix.values())?;
                Self::csr(executor, csr, (pattern.nrows(), pattern.nnz()), options, prepared)
            }
        }
    }

    fn of<P: Pattern>(pattern: &P, method: Method<E, T>, map: SlotMap) -> Self {
        Self {
            method,
            map,
            stored_len: pattern.stored_len(),
            index_bytes: pattern.index_bytes(),
            parts: 0,
            lanes: 0,
        }
    }

    /// CSR arrays that have been checked, of so many rows and entries.
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
                let lanes = options.lanes(nrows, nnz)?;
                (Method::Rows(csr, RowKernel::vector::<T>(lanes)), lanes, 0)
            }
        };
        let (map, stored_len) = (SlotMap::Identity, nnz);
        Ok(Self { method, map, stored_len, index_bytes, parts, lanes })
    }

    /// A batch of one.
    fn packed(executor: &E, matrix: View<'_, CsrPattern, T>) -> Result<Self, GpuError> {
        let mut batch = RaggedCsr::new();
        batch.push(matrix);
        let options = PackedOptions::default();
        let plan = PackedPlan::new(executor.clone(), &Batch::Ragged(batch), options)?;
        let explain = plan.explain();
        let stored_len = explain.slots as usize;
        let index_bytes = explain.matrix_bytes as usize - stored_len * size_of::<T>();
        let method = Method::Packed(Box::new(plan));
        Ok(Self { method, map: SlotMap::Identity, stored_len, index_bytes, parts: 0, lanes: 0 })
    }

    fn coo(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
    ) -> Result<Self, GpuError> {
        let (pattern, map) = CooPattern::from_csr(matrix.pattern(), &Default::default())?;
        let values = in_slots(&map, pattern.stored_len(), matrix.values());
        let parts = options.parts(pattern.nnz(), executor.info())?;
        let coo = DeviceCoo::upload(executor, &pattern, &values, parts)?;
        Ok(Self { parts, ..Self::of(&pattern, Method::Coo(coo), map) })
    }

    fn hyb(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
    ) -> Result<Self, GpuError> {
        let (pattern, values, map) = convert::<HybPattern, T>(matrix, &options.hyb())?;
        let (ell, coo) = (pattern.ell(), pattern.coo());
        let (ell_values, coo_values) = values.split_at(ell.stored_len());
        let parts = options.parts(coo.nnz(), executor.info())?;
        let method = Method::Hyb(
            DeviceEll::upload(executor, ell, ell_values)?,
            DeviceCoo::upload(executor, coo, coo_values, parts)?,
        );
        Ok(Self { parts, ..Self::of(&pattern, method, map) })
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
            // The ELL part has scaled y.
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

    /// Replaces the values; `slots` has one for each slot.
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
