//! Products `y = alpha*A*x + beta*y` with one matrix.
//!
//! A [`SinglePlan`] brings a CSR matrix into the format of a [`SingleKernel`], uploads it once and
//! multiplies many times. It is generic over the [`Executor`]: a GPU, or an emulation in tests.
//!
//! | kernel | format | threads | source |
//! | --- | --- | --- | --- |
//! | `csr-scalar` | CSR | one per row | Bell and Garland 2009 |
//! | `csr-unrolled` | CSR | one per row, unrolled by 4 | Mazzucchi 2025 |
//! | `csr-vector` | CSR | a warp per row | Bell and Garland 2009 |
//! | `csr-smart` | CSR | 2 to 32 lanes per row, by the mean row | Anzt et al. 2017 |
//! | `csr-tile` | CSR | a warp per row, x in shared memory | Mazzucchi 2025 |
//! | `csr-balanced` | CSR | a warp per equal part of the entries | Flegar and Quintana-Orti 2017 |
//! | `coo` | COO | a warp per equal part of the entries | Bell and Garland 2009 |
//! | `ell` | ELL | one per row | Bell and Garland 2009 |
//! | `dia` | DIA | one per row | Bell and Garland 2009 |
//! | `hyb` | ELL and COO | as both | Bell and Garland 2009 |
//! | `sell-p` | SELL-P | t per row | Anzt, Tomov and Dongarra 2014 |
//!
//! No kernel uses atomics: two products of one plan are bitwise equal. A warp that adds up part of
//! a long row leaves its sum to a second, small kernel that adds such sums in a fixed order.

mod balanced;
mod explain;
mod kernel;
mod launch;
mod method;
mod options;

use std::time::Instant;

use sparsebatch_formats::convert::SlotMap;
use sparsebatch_formats::{CsrPattern, View};

pub use balanced::BalancedRows;
pub use explain::SingleExplain;
pub use kernel::SingleKernel;
pub use options::SingleOptions;

use crate::error::check_len;
use crate::{Executor, GpuError, KernelBuffer, Value};
use launch::Product;
use method::{Built, Method, in_slots};

/// The modules of [`kernels`](crate::kernels) that plans of this one launch.
pub const MODULES: [&str; 6] = ["csr", "csr_balanced", "coo", "ell", "dia", "sellp"];

/// A matrix on a device, ready to be multiplied.
///
/// Holds the matrix in the format of its kernel. The kernels are compiled when the plan is made.
/// Vectors are buffers of the plan's executor.
///
/// # Examples
/// ```no_run
/// use sparsebatch_formats::Csr;
/// use sparsebatch_spmv_gpu::{Device, Executor, SingleOptions, SinglePlan};
/// // [2 0; 1 3] * [1, 10]
/// let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0])?;
/// let device = Device::new(0)?;
/// let mut plan = SinglePlan::new(&device, a.view(), &SingleOptions::default())?;
/// let x = device.upload(&[1.0, 10.0])?;
/// let mut y = device.alloc(2)?;
/// plan.apply(1.0, &x, 0.0, &mut y)?;
/// assert_eq!(device.download(&y)?, [2.0, 31.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SinglePlan<E: Executor, T: Value> {
    executor: E,
    method: Method<E, T>,
    map: SlotMap,
    explain: SingleExplain,
}

impl<E: Executor + Clone, T: Value> SinglePlan<E, T> {
    /// Converts and uploads a matrix.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for an option outside its range, [`GpuError::Format`] when the
    /// format would hold far more slots than entries, [`GpuError::OutOfMemory`], and what compiling
    /// the kernels reports.
    pub fn new(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
    ) -> Result<Self, GpuError> {
        if options.kernel != SingleKernel::CsrBalanced {
            return Self::build(executor, matrix, options, None);
        }
        let parts = options.parts(matrix.pattern().nnz(), executor.info())?;
        let rows = BalancedRows::new(matrix.pattern(), parts);
        Self::build(executor, matrix, options, Some(&rows))
    }

    /// A plan of `csr-balanced` with preprocessing that was done before, for instance for another
    /// matrix of the same pattern. Of the options only the kernel is looked at.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when the kernel is another one or `rows` does not fit the
    /// matrix; else as [`SinglePlan::new`].
    pub fn with_balanced_rows(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        rows: &BalancedRows,
    ) -> Result<Self, GpuError> {
        if options.kernel != SingleKernel::CsrBalanced {
            return Err(GpuError::InvalidArgument {
                name: "kernel",
                expected: SingleKernel::CsrBalanced.to_string(),
                found: options.kernel.to_string(),
            });
        }
        rows.check(matrix.pattern())?;
        Self::build(executor, matrix, options, Some(rows))
    }

    fn build(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        rows: Option<&BalancedRows>,
    ) -> Result<Self, GpuError> {
        let clock = Instant::now();
        let pattern = matrix.pattern();
        let built = Built::new(executor, matrix, options, rows)?;
        let instances = built.method.keys();
        executor.prepare(&instances)?;
        let explain = SingleExplain {
            kernel: options.kernel,
            instances,
            lanes: built.lanes,
            parts: built.parts,
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            nnz: pattern.nnz(),
            stored_len: built.stored_len,
            value_bytes: size_of::<T>(),
            index_bytes: built.index_bytes,
            preprocessing: rows.map(BalancedRows::time),
            setup: clock.elapsed(),
        };
        let Built { method, map, .. } = built;
        Ok(Self { executor: executor.clone(), method, map, explain })
    }
}

impl<E: Executor, T: Value> SinglePlan<E, T> {
    /// `y = alpha*A*x + beta*y`.
    ///
    /// `x` has a value per column, `y` one per row; they do not overlap. `beta == 0` does not read
    /// `y`. Starts kernels and returns; allocates nothing and waits for nothing. Bitwise
    /// repeatable.
    ///
    /// # Errors
    /// [`GpuError::Length`] for a vector of another length, [`GpuError::InvalidArgument`] for
    /// vectors that overlap; else what launching reports.
    pub fn apply(
        &mut self,
        alpha: T,
        x: &E::Buffer<T>,
        beta: T,
        y: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        check_len("x", self.explain.ncols, x.len())?;
        check_len("y", self.explain.nrows, y.len())?;
        let bytes = |buffer: &E::Buffer<T>| {
            buffer.raw()..buffer.raw() + (buffer.len() * size_of::<T>()) as u64
        };
        let (of_x, of_y) = (bytes(x), bytes(y));
        if of_x.start < of_y.end && of_y.start < of_x.end {
            return Err(GpuError::InvalidArgument {
                name: "y",
                expected: "memory apart from x".to_owned(),
                found: "memory shared with x".to_owned(),
            });
        }
        self.method.multiply(Product { executor: &self.executor, alpha, x, beta, y })
    }

    /// Replaces the values: `values[k]` is that of entry `k` of the CSR matrix. The pattern, the
    /// format and the preprocessing stay. Waits for the copy.
    ///
    /// # Errors
    /// [`GpuError::Length`] unless there is one value per entry; else what copying reports.
    pub fn update_values(&mut self, values: &[T]) -> Result<(), GpuError> {
        check_len("values", self.explain.nnz, values.len())?;
        if self.map == SlotMap::Identity {
            return self.method.set_values(&self.executor, values);
        }
        let slots = in_slots(&self.map, self.explain.stored_len, values);
        self.method.set_values(&self.executor, &slots)
    }

    /// What the plan chose and what it costs.
    pub fn explain(&self) -> &SingleExplain {
        &self.explain
    }
}
