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
//! | `csr-adaptive` | CSR | a block per run of rows, about equal nnz | Greathouse and Daga 2014 |
//! | `coo` | COO | a warp per equal part of the entries | Bell and Garland 2009 |
//! | `ell` | ELL | one per row | Bell and Garland 2009 |
//! | `dia` | DIA | one per row | Bell and Garland 2009 |
//! | `hyb` | ELL and COO | as both | Bell and Garland 2009 |
//! | `sell` | SELL, slices of 32 rows | one per row | Kreutzer et al. 2014 |
//! | `sell-p` | SELL-P | t per row | Anzt, Tomov and Dongarra 2014 |
//! | `packed` | segments of rows | one per segment | [`packed`](crate::packed) |
//!
//! Without a kernel in the options the plan [chooses](choose) one, and reports why.
//!
//! Two products of one plan are bitwise equal: the sums of the parts of a row are added in a fixed
//! order, by a small second kernel or, in `csr-adaptive`, by the block that finishes last. Counters
//! of the plan tell which block this is, so products of one plan must not run at the same time: a
//! graph that recorded them may run on one stream at a time only.

mod adaptive;
mod balanced;
pub mod choose;
mod diagonals;
mod explain;
mod kernel;
pub(crate) mod kernels;
mod launch;
mod method;
mod options;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sparsebatch_formats::convert::SlotMap;
use sparsebatch_formats::{CsrPattern, View};

pub use adaptive::AdaptiveRows;
pub use balanced::BalancedRows;
pub use explain::SingleExplain;
pub use kernel::SingleKernel;
pub use options::SingleOptions;

use crate::csr_arrays::check_csr;
use crate::{CsrArrays, CsrSize};
use choose::MatrixShape;
use diagonals::in_diagonals;
use launch::{DeviceCsr, Product};
use method::{Built, Converted, Method, Prepared, in_slots};
use sparsebatch_cuda::executor::check_apart;
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, Value, check_len};

/// A matrix on a device, ready to be multiplied.
///
/// Holds the matrix in the format of its kernel. The kernels are compiled when the plan is made.
/// Vectors are buffers of the plan's executor.
///
/// # Examples
/// ```no_run
/// use sparsebatch_formats::Csr;
/// use sparsebatch_spmv_gpu::{SingleOptions, SinglePlan};
/// use sparsebatch_cuda::{Device, Executor};
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
    map: Arc<SlotMap>,
    explain: SingleExplain,
    /// Whether only the plan writes to the matrix, so that launches may overlap.
    overlaps: bool,
}

impl<E: Executor + Clone, T: Value> SinglePlan<E, T> {
    /// Converts and uploads a matrix. Without a kernel in the options, one is chosen: a few passes
    /// over the row pointers and at most one over the columns.
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
        let mut plans = Self::several(executor, matrix, options, 1)?;
        Ok(plans.pop().expect("as many plans as were asked for"))
    }

    /// `count` plans of one matrix, each in its own memory. The kernel is chosen and the matrix
    /// converted only once; the time of the conversion is part of the [setup](SingleExplain::setup)
    /// of the first plan.
    ///
    /// # Errors
    /// As [`SinglePlan::new`].
    pub fn several(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        count: usize,
    ) -> Result<Vec<Self>, GpuError> {
        if options.kernel != SingleKernel::Auto {
            return Self::with_kernel(executor, matrix, options, count);
        }
        let clock = Instant::now();
        let shape = MatrixShape::new(matrix.pattern());
        let (candidate, mut why) = choose::choose(&shape, size_of::<T>(), false);
        let choosing = clock.elapsed();
        let chosen = candidate.apply(options);
        let plans = match Self::with_kernel(executor, matrix, &chosen, count) {
            // The format would be larger than expected; CSR stores no more than the matrix.
            Err(refused) if is_about_size(&refused) && !chosen.kernel.reads_csr() => {
                why = format!("csr-adaptive, since {} was refused: {refused}", chosen.kernel);
                let kernel = SingleKernel::CsrAdaptive;
                let options = SingleOptions { kernel, ..options.clone() };
                Self::with_kernel(executor, matrix, &options, count)
            }
            made => made,
        };
        Ok(plans?.into_iter().map(|plan| plan.chosen(why.clone(), choosing)).collect())
    }

    /// Plans with the kernel of the options.
    fn with_kernel(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        count: usize,
    ) -> Result<Vec<Self>, GpuError> {
        let (pattern, info) = (matrix.pattern(), executor.info());
        match options.kernel {
            SingleKernel::CsrBalanced => {
                let parts = options.chosen_parts(pattern.nnz(), info)?;
                let rows = BalancedRows::new(pattern, parts);
                Self::build(executor, matrix, options, Prepared::Balanced(&rows), count)
            }
            SingleKernel::CsrAdaptive => {
                let entries = options.chosen_block_entries(pattern.nnz(), info)?;
                let rows = AdaptiveRows::new(pattern, entries)?;
                Self::build(executor, matrix, options, Prepared::Adaptive(&rows), count)
            }
            _ => Self::build(executor, matrix, options, Prepared::Nothing, count),
        }
    }

    /// A plan of `csr-balanced` with preprocessing that was done before, for instance for another
    /// matrix of the same pattern. Only the kernel of the options is read.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when the kernel is another one or `rows` does not fit the
    /// matrix; otherwise as [`SinglePlan::new`].
    pub fn with_balanced_rows(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        rows: &BalancedRows,
    ) -> Result<Self, GpuError> {
        check_kernel(SingleKernel::CsrBalanced, options)?;
        rows.check(matrix.pattern())?;
        Self::one(executor, matrix, options, Prepared::Balanced(rows))
    }

    /// As [`SinglePlan::with_balanced_rows`], for `csr-adaptive`.
    ///
    /// # Errors
    /// As [`SinglePlan::with_balanced_rows`].
    pub fn with_adaptive_rows(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        rows: &AdaptiveRows,
    ) -> Result<Self, GpuError> {
        check_kernel(SingleKernel::CsrAdaptive, options)?;
        rows.check(matrix.pattern())?;
        Self::one(executor, matrix, options, Prepared::Adaptive(rows))
    }

    /// A plan over CSR arrays that already lie in the memory of the executor, for the kernels that
    /// [read CSR](SingleKernel::reads_csr). No value or column is copied. A kernel checks the
    /// arrays, and the call waits for it. `csr-balanced`, `csr-adaptive` and the automatic choice
    /// (here only among kernels that read CSR) copy the row pointers to the host once.
    ///
    /// The plan keeps the arrays. Values may be changed in place, in the order of the stream, and
    /// the next product uses them.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for a kernel of another format, an option outside its range,
    /// sizes above `i32::MAX` and arrays that are no CSR matrix, naming the first row that is
    /// wrong; [`GpuError::Length`]; [`GpuError::OutOfMemory`]; what compiling the kernels reports.
    ///
    /// # Safety
    /// 1. Nobody writes to `row_ptr` and `col_idx` between this call and the end of the work of the
    ///    last product: the kernels follow them without further checks.
    ///
    /// The requirements of a [buffer from an address](sparsebatch_cuda::DeviceBuffer::from_raw)
    /// apply as well.
    #[expect(unsafe_code, reason = "what others do to the arrays later cannot be checked")]
    pub unsafe fn from_arrays(
        executor: &E,
        nrows: usize,
        ncols: usize,
        arrays: CsrArrays<E, T>,
        options: &SingleOptions,
    ) -> Result<Self, GpuError> {
        let clock = Instant::now();
        let is_automatic = options.kernel == SingleKernel::Auto;
        if !is_automatic && !options.kernel.reads_csr() {
            return Err(GpuError::InvalidArgument {
                name: "kernel",
                expected: "one that reads CSR".to_owned(),
                found: options.kernel.to_string(),
            });
        }
        let size = CsrSize { nrows, ncols, nnz: arrays.col_idx.len() };
        check_len("values", size.nnz, arrays.values.len())?;
        check_csr(executor, &[size], &arrays.row_ptr, &arrays.col_idx)?;
        let row_ptr = match options.kernel {
            SingleKernel::Auto | SingleKernel::CsrBalanced | SingleKernel::CsrAdaptive => {
                executor.download(&arrays.row_ptr)?
            }
            _ => Vec::new(),
        };
        let mut chosen = None;
        let mut options = options.clone();
        if is_automatic {
            let shape = MatrixShape::of_row_ptr(&row_ptr, ncols);
            let (candidate, why) = choose::choose(&shape, size_of::<T>(), true);
            options = candidate.apply(&options);
            chosen = Some((why, clock.elapsed()));
        }
        let options = &options;
        let (balanced, adaptive);
        let prepared = match options.kernel {
            SingleKernel::CsrBalanced => {
                let parts = options.chosen_parts(size.nnz, executor.info())?;
                balanced = BalancedRows::of_row_ptr(&row_ptr, parts);
                Prepared::Balanced(&balanced)
            }
            SingleKernel::CsrAdaptive => {
                let entries = options.chosen_block_entries(size.nnz, executor.info())?;
                adaptive = AdaptiveRows::of_row_ptr(&row_ptr, entries);
                Prepared::Adaptive(&adaptive)
            }
            _ => Prepared::Nothing,
        };
        let csr = DeviceCsr::of(nrows, arrays);
        let built = Built::csr(executor, csr, (nrows, size.nnz), options, prepared)?;
        let mut plan = Self::finish(executor, built, size, options, prepared, clock)?;
        // A launch ahead may write to the values.
        plan.overlaps = false;
        Ok(match chosen {
            Some((why, choosing)) => plan.chosen(why, choosing),
            None => plan,
        })
    }

    /// Records why the kernel of this plan was chosen and how long choosing took.
    fn chosen(mut self, why: String, choosing: Duration) -> Self {
        self.explain.why = Some(why);
        let before = self.explain.preprocessing.unwrap_or_default();
        self.explain.preprocessing = Some(before + choosing);
        self
    }

    fn one(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        prepared: Prepared<'_>,
    ) -> Result<Self, GpuError> {
        let mut plans = Self::build(executor, matrix, options, prepared, 1)?;
        Ok(plans.pop().expect("as many plans as were asked for"))
    }

    fn build(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        options: &SingleOptions,
        prepared: Prepared<'_>,
        count: usize,
    ) -> Result<Vec<Self>, GpuError> {
        let mut clock = Instant::now();
        let pattern = matrix.pattern();
        let size = CsrSize { nrows: pattern.nrows(), ncols: pattern.ncols(), nnz: pattern.nnz() };
        let converted = Converted::new(matrix, options)?;
        let plan = |_| {
            let built = Built::new(executor, &converted, options, prepared)?;
            let plan = Self::finish(executor, built, size, options, prepared, clock);
            clock = Instant::now();
            plan
        };
        (0..count).map(plan).collect()
    }

    fn finish(
        executor: &E,
        built: Built<E, T>,
        size: CsrSize,
        options: &SingleOptions,
        prepared: Prepared<'_>,
        clock: Instant,
    ) -> Result<Self, GpuError> {
        let instances = built.method.keys();
        executor.prepare(&instances)?;
        let explain = SingleExplain {
            kernel: options.kernel,
            why: None,
            instances,
            lanes: built.lanes,
            parts: built.parts,
            nrows: size.nrows,
            ncols: size.ncols,
            nnz: size.nnz,
            stored_len: built.stored_len,
            value_bytes: size_of::<T>(),
            index_bytes: built.index_bytes,
            preprocessing: prepared.time(),
            setup: clock.elapsed(),
        };
        let Built { method, map, .. } = built;
        Ok(Self { executor: executor.clone(), method, map, explain, overlaps: true })
    }
}

/// Whether a format may have been refused for its size.
fn is_about_size(error: &GpuError) -> bool {
    matches!(
        error,
        GpuError::Format { .. } | GpuError::OutOfMemory { .. } | GpuError::InvalidArgument { .. }
    )
}

/// Refuses options whose kernel is not `expected`, the kernel of the preprocessing.
fn check_kernel(expected: SingleKernel, options: &SingleOptions) -> Result<(), GpuError> {
    if options.kernel == expected {
        return Ok(());
    }
    Err(GpuError::InvalidArgument {
        name: "kernel",
        expected: expected.to_string(),
        found: options.kernel.to_string(),
    })
}

impl<E: Executor, T: Value> SinglePlan<E, T> {
    /// `y = alpha*A*x + beta*y`.
    ///
    /// `x` has a value per column, `y` one per row; they do not overlap. With `beta == 0`, `y` is
    /// not read. Enqueues kernels and returns; allocates nothing and waits for nothing. Bitwise
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
        check_apart(x, y)?;
        let Self { executor, overlaps, .. } = self;
        self.method.multiply(Product { executor, alpha, x, beta, y, overlaps: *overlaps })
    }

    /// Replaces the values: `values[k]` is the value of entry `k` of the CSR matrix. The pattern,
    /// the format and the preprocessing stay. Waits for the copy.
    ///
    /// # Errors
    /// [`GpuError::Length`] unless there is one value per entry; else what copying reports.
    pub fn update_values(&mut self, values: &[T]) -> Result<(), GpuError> {
        check_len("values", self.explain.nnz, values.len())?;
        if let Method::Dia(_) = self.method {
            let slots = in_diagonals(&self.map, self.explain.stored_len, values);
            return self.method.set_values(&self.executor, &slots);
        }
        if *self.map == SlotMap::Identity {
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
