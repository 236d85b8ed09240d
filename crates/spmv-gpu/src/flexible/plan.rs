//! The plan: preparation, done once, and the launch.

use std::time::{Duration, Instant};

use sparsebatch_formats::Batch;
use sparsebatch_formats::batch::checked_len;

use super::batch::DeviceBatch;
use super::explain::Explanation;
use super::kernel::FlexibleKernel;
use super::launch::{FlexibleLaunch, describe, start_rows};
use super::tuning::RESERVED_SHARED_BYTES;
use sparsebatch_cuda::executor::check_apart;
use sparsebatch_cuda::{
    Args, DeviceInfo, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value, check_len,
};

/// Options of a plan. All but the kernel have defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlexibleOptions {
    /// The kernel.
    pub kernel: FlexibleKernel,
    /// Right-hand sides per system. Default 1.
    pub nrhs: usize,
    /// Threads per problem, a multiple of 32; `None`: by the occupancy rule.
    pub threads: Option<u32>,
    /// Largest x, in bytes, that is read into shared memory (COO: x and one sum per row); a larger
    /// x is read from global memory. `None`: chosen from the sizes and the device.
    pub shared_bytes: Option<u32>,
    /// The most blocks of the launch; each takes several problems when there are more problems.
    /// `None`: 2^31 - 1, the most that a launch can have.
    pub max_blocks: Option<u32>,
    /// Lanes that share a row in SELL-P, 1, 2, 4 or 8; a slice has `32 / threads_per_row` rows.
    /// Default 4.
    pub threads_per_row: u32,
}

sparsebatch_formats::option_setters! {
    FlexibleOptions {
        kernel: FlexibleKernel,
        nrhs: usize,
        threads: Option<u32>,
        shared_bytes: Option<u32>,
        max_blocks: Option<u32>,
        threads_per_row: u32,
    }
}

impl FlexibleOptions {
    /// This kernel and the defaults.
    pub fn new(kernel: FlexibleKernel) -> Self {
        Self {
            kernel,
            nrhs: 1,
            threads: None,
            shared_bytes: None,
            max_blocks: None,
            threads_per_row: 4,
        }
    }
}

/// `Y_i = alpha*A_i*X_i + beta*Y_i` for every system of a batch in one launch, systems of any sizes
/// and patterns.
///
/// Holds the batch on the device. [`apply`](Self::apply) allocates nothing and does not wait.
///
/// # Source
/// Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017, «Flexible batched sparse matrix-vector
/// product on GPUs» (doi 10.1145/3148226.3148230).
pub struct FlexiblePlan<E: Executor, T: Value> {
    executor: E,
    batch: DeviceBatch<E, T>,
    options: FlexibleOptions,
    key: KernelKey,
    config: LaunchConfig,
    /// Items in the order of the descriptors: systems with rows, the largest first.
    order: Vec<usize>,
    problems: E::Buffer<u64>,
    starts: Option<E::Buffer<u32>>,
    scale: Option<E::Buffer<T>>,
    operands_in_shared: usize,
    preprocessing: Duration,
    compilation: Duration,
}

impl<E: Executor + Clone, T: Value> FlexiblePlan<E, T> {
    /// Uploads a batch in the storage of the kernel, prepares everything and compiles the kernel.
    ///
    /// # Errors
    /// The errors of [`DeviceBatch::upload`] and [`FlexiblePlan::with_batch`].
    pub fn new(executor: &E, batch: &Batch<T>, options: FlexibleOptions) -> Result<Self, GpuError> {
        let begin = Instant::now();
        let storage = options.kernel.storage(options.threads_per_row);
        let batch = DeviceBatch::upload(executor, batch, storage)?;
        let upload = begin.elapsed();
        let mut plan = Self::with_batch(executor, batch, options)?;
        plan.preprocessing += upload;
        Ok(plan)
    }

    /// As [`FlexiblePlan::new`], for a batch that is on the device.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when the storage of the batch is not the kernel's, or an
    /// option is outside its range; [`GpuError::OutOfMemory`]; [`GpuError::Compile`].
    pub fn with_batch(
        executor: &E,
        mut batch: DeviceBatch<E, T>,
        options: FlexibleOptions,
    ) -> Result<Self, GpuError> {
        let begin = Instant::now();
        let storage = options.kernel.storage(options.threads_per_row);
        if storage != batch.storage() {
            return Err(GpuError::InvalidArgument {
                name: "storage of the batch",
                expected: format!("{storage:?}"),
                found: format!("{:?}", batch.storage()),
            });
        }
        check_options(&options, executor.info())?;
        let vectors = batch.total_rows() as u128 + batch.total_cols() as u128;
        checked_len("number of values of x and y", vectors, options.nrhs)?;

        let mut order: Vec<usize> =
            (0..batch.nitems()).filter(|&item| batch.shape(item).nrows > 0).collect();
        if batch.shapes().len() > 1 {
            // Largest systems first, so that no block starts a large one when the others are done.
            order.sort_by_key(|&item| std::cmp::Reverse(batch.shape(item).stored));
        }
        let launch = FlexibleLaunch::choose(executor.info(), &batch, &options, order.len());
        let starts = match options.kernel {
            FlexibleKernel::CsrI => {
                batch.fetch_row_ptr(executor)?;
                Some(executor.upload(&start_rows(&batch, launch.warps()))?)
            }
            _ => None,
        };
        let (words, operands_in_shared) = describe(&batch, &options, &launch, &order);
        let problems = executor.upload(&words)?;
        let preprocessing = begin.elapsed();

        let begin = Instant::now();
        let key = options.kernel.key::<T>(batch.is_compact(), storage);
        executor.prepare(std::slice::from_ref(&key))?;
        Ok(Self {
            executor: executor.clone(),
            batch,
            options,
            key,
            config: launch.config(),
            order,
            problems,
            starts,
            scale: None,
            operands_in_shared,
            preprocessing,
            compilation: begin.elapsed(),
        })
    }

    /// `Y_i = alpha*scale_i*A_i*X_i + beta*Y_i` for every item, where `scale_i` is 1 unless
    /// [set](Self::set_scale).
    ///
    /// `x` and `y` are item-major: item after item, right-hand side after right-hand side within
    /// the item. With `beta == 0`, `y` is not read. Returns before the work is done. Bitwise
    /// repeatable, except for [`FlexibleKernel::Coo`]; the order of the sums of a system is a
    /// function of the system and, for [`FlexibleKernel::CsrI`], of the threads per problem.
    ///
    /// # Errors
    /// [`GpuError::Length`] when `x` or `y` does not fit, [`GpuError::InvalidArgument`] for vectors
    /// that overlap, and errors of the launch; then `y` is unchanged.
    #[expect(unsafe_code, reason = "the one launch")]
    pub fn apply(
        &self,
        alpha: T,
        x: &E::Buffer<T>,
        beta: T,
        y: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        check_len("x", self.batch.total_cols() * self.options.nrhs, x.len())?;
        check_len("y", self.batch.total_rows() * self.options.nrhs, y.len())?;
        check_apart(x, y)?;
        if self.order.is_empty() {
            return Ok(());
        }
        let batch = &self.batch;
        let mut args = Args::new();
        args.scalar(self.order.len() as u64).input(&self.problems);
        match &self.scale {
            Some(scale) => args.input(scale),
            None => args.raw(0),
        };
        args.scalar(self.options.nrhs as u32);
        for indices in batch.pointers.iter().chain(&batch.row_idx).chain([&batch.col_idx]) {
            indices.add_to(&mut args);
        }
        args.input(&batch.values);
        if let Some(starts) = &self.starts {
            args.input(starts);
        }
        args.scalar(alpha).input(x).scalar(beta).output(y);
        // SAFETY: (1) the arguments are those of all flexible kernels, in order: problems, factors,
        // right-hand sides; then the arrays that the kernel's storage has, with_batch having
        // checked that it is the batch's, indices of the width that the key names, start rows for
        // CSR-I alone; then alpha, x, beta, y in the value type that the key names. (2) Descriptors
        // were made from validated matrices, or arrays that a kernel has checked and nobody
        // changes: offsets and counts end at the arrays' lengths, indices are below rows and
        // columns of their system; x and y have the lengths checked above; the launch has the
        // threads that the start rows were made for, a multiple of 32, and shared memory for the
        // largest operand that is flagged. (3) All buffers are of the executor's types; the plan
        // keeps its own alive, the executor orders the work before their release. (4) y is borrowed
        // exclusively: no other argument is it.
        unsafe { self.executor.launch(&self.key, self.config, &mut args) }
    }

    /// Overwrites the values of the batch, in CSR order, item after item (one set if they are
    /// shared). Nothing else is recomputed. Waits for the copy.
    ///
    /// # Errors
    /// [`GpuError::Length`] unless there are as many values as the batch has.
    pub fn update_values(&mut self, values: &[T]) -> Result<(), GpuError> {
        self.batch.update_values(&self.executor, values)
    }

    /// As [`update_values`](Self::update_values), for values on the device; see
    /// [`DeviceBatch::update_from`].
    ///
    /// # Errors
    /// Those of [`DeviceBatch::update_from`].
    pub fn update_from(&mut self, values: &E::Buffer<T>) -> Result<(), GpuError> {
        self.batch.update_from(&self.executor, values)
    }

    /// Sets a factor for each item; `None` removes the factors. With shared values, the batch then
    /// consists of multiples of one matrix.
    ///
    /// # Errors
    /// [`GpuError::Length`] unless there is one factor per item.
    pub fn set_scale(&mut self, scale: Option<&[T]>) -> Result<(), GpuError> {
        self.scale = match scale {
            None => None,
            Some(scale) => {
                check_len("scale", self.batch.nitems(), scale.len())?;
                let ordered: Vec<T> = self.order.iter().map(|&item| scale[item]).collect();
                Some(self.executor.upload(&ordered)?)
            }
        };
        Ok(())
    }

    /// The batch on the device.
    pub fn batch(&self) -> &DeviceBatch<E, T> {
        &self.batch
    }

    /// The batch on the device, for a plan with another kernel of the same storage.
    pub fn into_batch(self) -> DeviceBatch<E, T> {
        self.batch
    }

    /// What the plan runs, what one product moves, and what the plan has cost.
    pub fn explain(&self) -> Explanation {
        let batch = &self.batch;
        let nrhs = self.options.nrhs as u64;
        let value = size_of::<T>() as u64;
        let starts = self.starts.as_ref().map_or(0, |buffer| 4 * buffer.len() as u64);
        let scale = self.scale.as_ref().map_or(0, |buffer| value * buffer.len() as u64);
        Explanation {
            kernel: self.options.kernel,
            expression: self.key.expression.clone(),
            systems: batch.nitems(),
            nrhs: self.options.nrhs,
            threads: self.config.block[0],
            blocks: if self.order.is_empty() { 0 } else { self.config.grid[0] },
            shared_bytes: self.config.shared_bytes,
            operands_in_shared: self.operands_in_shared,
            nnz: batch.total_nnz() as u64,
            padding: (batch.total_stored() - batch.total_nnz()) as u64,
            matrix_bytes: batch.bytes(),
            bytes_read: batch.bytes()
                + 8 * self.problems.len() as u64
                + starts
                + scale
                + batch.total_cols() as u64 * nrhs * value,
            bytes_written: batch.total_rows() as u64 * nrhs * value,
            preprocessing: self.preprocessing,
            compilation: self.compilation,
        }
    }
}

fn check_options(options: &FlexibleOptions, info: &DeviceInfo) -> Result<(), GpuError> {
    let refuse = |name, expected: String, found: String| {
        Err(GpuError::InvalidArgument { name, expected, found })
    };
    if options.nrhs == 0 || u32::try_from(options.nrhs).is_err() {
        return refuse("nrhs", "1 to 4294967295".to_owned(), options.nrhs.to_string());
    }
    if let Some(threads) = options.threads
        && (threads == 0
            || !threads.is_multiple_of(32)
            || threads > info.max_threads_per_block.min(1024))
    {
        let expected = format!("a multiple of 32 up to {}", info.max_threads_per_block.min(1024));
        return refuse("threads", expected, threads.to_string());
    }
    let most = info.shared_bytes_per_block.saturating_sub(RESERVED_SHARED_BYTES);
    if let Some(bytes) = options.shared_bytes
        && bytes > most
    {
        return refuse("shared_bytes", format!("at most {most}"), bytes.to_string());
    }
    if options.max_blocks.is_some_and(|blocks| blocks == 0 || blocks > i32::MAX as u32) {
        let expected = format!("1 to {}", i32::MAX);
        return refuse("max_blocks", expected, format!("{:?}", options.max_blocks));
    }
    Ok(())
}
