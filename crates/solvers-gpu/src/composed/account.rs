//! Reports of a plan: its choices, memory and times.

use std::time::{Duration, Instant};

use sparsebatch_cuda::{Executor, KernelBuffer, Value};
use sparsebatch_formats::Batch;
use sparsebatch_spmv_gpu::FlexibleKernel;

use super::diagonal::Diagonal;
use super::explain::{Amortisation, ComposedExplain};
use super::history::Histories;
use super::matrices::Matrices;
use super::product::{PlannedProduct, ProductKernel};
use super::sizes::SystemSizes;
use super::{ComposedSolver, MOST_SUMS, STATE_WORDS, Vectors};
use crate::GpuSolveError;
use crate::common::outcomes::Outcomes;
use sparsebatch_solve_core::ProductCost;

/// Number of products in one timing.
const TIMED_PRODUCTS: u32 = 8;

impl<E: Executor + Clone, T: Value> ComposedSolver<E, T> {
    /// The plan's choices and its memory.
    pub fn explain(&self) -> ComposedExplain {
        let each = Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system() + 8 * STATE_WORDS;
        let Vectors { r, p, w, v, shadow, hat, m, flawed } = &self.vectors;
        let values: usize = [r, p, w, v, shadow, hat, m].iter().map(|v| v.len()).sum();
        let parts = self.tickets.len() * (4 + 8 * MOST_SUMS);
        let own = self.systems * each + values * size_of::<T>() + flawed.len() + parts + 4;
        ComposedExplain {
            method: self.method.name(),
            format: self.product.format(),
            product: self.product.kernel(),
            reason: self.planned.reason.clone(),
            systems: self.work.systems,
            launches: (self.products_an_iteration(), self.launches_between()),
            product_bytes: self.product.bytes(),
            workspace_bytes: own as u64
                + self.work.bytes()
                + self.sizes.as_ref().map_or(0, SystemSizes::bytes)
                + self.diagonal.as_ref().map_or(0, Diagonal::bytes)
                + self.histories.as_ref().map_or(0, Histories::bytes),
        }
    }

    /// Launches of an iteration other than products.
    fn launches_between(&self) -> usize {
        let of_parts: usize = self.steps.iterate.iter().map(|phases| phases.parts.len()).sum();
        let there = |blocks: &E::Buffer<u64>| usize::from(!blocks.is_empty());
        there(&self.work.whole) * self.steps.iterate.len() + there(&self.work.parts) * of_parts
    }

    /// Measures the time of one product of all systems. Waits.
    fn time_product(&mut self) -> Result<Duration, GpuSolveError> {
        let Vectors { p, w, .. } = &mut self.vectors;
        time(&self.executor, &self.product, p, w)
    }

    /// The number of products of the last solve and their time, against the cost of the plan. The
    /// time is estimated from products that this call runs and times. Waits.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] with the device's error.
    pub fn product_cost(&mut self) -> Result<ProductCost, GpuSolveError> {
        let each = self.time_product()?;
        let products = self.last_products;
        Ok(ProductCost::new(products, each.mul_f64(products as f64), self.product.cost()))
    }

    /// Times products of the plan and of one without analysis, `batch-csr-scalar` of the same
    /// batch, which is on the device during this call. Waits.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] with the device's error,
    /// [`OutOfMemory`](sparsebatch_cuda::GpuError::OutOfMemory) where there is no room for both.
    pub fn amortisation(&mut self, batch: &Batch<T>) -> Result<Amortisation, GpuSolveError> {
        let scalar = ProductKernel::flexible(FlexibleKernel::CsrScalar);
        let baseline =
            PlannedProduct::new(&self.executor, &Matrices::Batch(batch), &scalar, self.nrhs)?;
        let product = self.time_product()?;
        let Vectors { p, w, .. } = &mut self.vectors;
        Ok(Amortisation {
            plan: self.product.cost(),
            product,
            products: self.products,
            solve: self.last_solve,
            baseline_plan: baseline.cost(),
            baseline_product: time(&self.executor, &baseline, p, w)?,
        })
    }
}

/// The mean time of `TIMED_PRODUCTS` products, after one warm-up product.
fn time<E: Executor + Clone, T: Value>(
    executor: &E,
    product: &PlannedProduct<E, T>,
    x: &E::Buffer<T>,
    y: &mut E::Buffer<T>,
) -> Result<Duration, GpuSolveError> {
    product.apply(x, y)?;
    executor.synchronize()?;
    let start = Instant::now();
    for _ in 0..TIMED_PRODUCTS {
        product.apply(x, y)?;
    }
    executor.synchronize()?;
    Ok(start.elapsed() / TIMED_PRODUCTS)
}
