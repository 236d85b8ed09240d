//! The packed product: the default for batches.
//!
//! A block multiplies one piece at a time: a system, several consecutive small systems, or some
//! rows of a large one (`pieces.rs`). Once per pattern, kernels cut the rows of a piece into
//! segments and sort the segments into slices, so that threads read consecutive memory with next to
//! no padding; column indices have 16 bits where these suffice (`pack.rs`). Blocks take runs of
//! pieces, largest pieces first (`work.rs`), and every piece has its places in the arrays of the
//! plan (`layout.rs`, `design.rs`). A product copies the x of a piece into shared memory
//! (or gathers it from global memory), keeps the sums of the segments there and adds the sums of
//! each row in a fixed order.
//!
//! Ragged batches store values and columns together, step by step; a uniform batch stores its
//! columns once.

mod design;
mod explain;
pub(crate) mod kernels;
mod layout;
mod options;
mod pack;
mod pieces;
mod source;
mod work;

use std::time::Instant;

use sparsebatch_formats::batch::PatternFingerprint;
use sparsebatch_formats::{Batch, CsrPatternRef};

use crate::csr_arrays::check_csr;
use crate::flexible::BatchSizes;
use crate::{CsrArrays, CsrSize};
use design::{CutBatch, Design};
pub use explain::PackedExplain;
pub use options::{PackedKernel, PackedOptions};
use pack::{Filled, Jobs, Rows};
use source::ItemSizes;
use sparsebatch_cuda::executor::check_apart;
use sparsebatch_cuda::{
    Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value, check_len,
};
use work::PackedLaunch;

/// A batch prepared for products `y = alpha A x + beta y`, all systems in one call.
pub struct PackedPlan<E: Executor, T: Value> {
    executor: E,
    options: PackedOptions,
    kernel: PackedKernel,
    shape: ItemSizes,
    /// `None` if the arrays came from the device, or no batch was given.
    patterns: Option<PatternFingerprint>,
    launches: Vec<PackedLaunch>,
    chunks: E::Buffer<u32>,
    described: E::Buffer<u64>,
    /// Values; in joint mode also the columns.
    values: E::Buffer<u64>,
    columns: E::Buffer<u64>,
    index: E::Buffer<u16>,
    rows: Rows<E>,
    /// Jobs that pack the batch, and pack its values again when they are replaced.
    jobs: Jobs<E>,
    explain: PackedExplain,
    values_type: std::marker::PhantomData<T>,
}

impl<E: Executor, T: Value> PackedPlan<E, T> {
    /// Uploads a batch and packs it on the device, which holds both copies for a while. The index
    /// arrays of a uniform batch, and shared values, are stored once.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for options out of range, and for a system that cannot be cut
    /// into pieces that fit the shared memory of a block; [`GpuError::OutOfMemory`], before any
    /// upload if even the densest packing would not fit.
    pub fn new(executor: E, batch: &Batch<T>, options: PackedOptions) -> Result<Self, GpuError> {
        let start = Instant::now();
        options.check(executor.info())?;
        let shape = ItemSizes::of(batch);
        shape.check(options.nrhs)?;
        let (csr_bytes, packed_bytes) = shape.bytes::<T>();
        source::check_room(&executor, csr_bytes + packed_bytes)?;
        let arrays = source::upload(&executor, batch)?;
        let mut plan = Self::build(executor, shape, &arrays, options)?;
        plan.patterns = Some(PatternFingerprint::of(batch));
        plan.explain.setup = start.elapsed();
        Ok(plan)
    }

    /// As [`new`](Self::new), for `nitems` items of one pattern whose values are not known yet:
    /// they are 0 until [`update_from`](Self::update_from). With `shared_values` all items will
    /// have those of one.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn of_pattern(
        executor: E,
        pattern: CsrPatternRef<'_>,
        (nitems, shared_values): (usize, bool),
        options: PackedOptions,
    ) -> Result<Self, GpuError> {
        let start = Instant::now();
        options.check(executor.info())?;
        let (nrows, ncols, nnz) = (pattern.nrows(), pattern.ncols(), pattern.nnz());
        let item = CsrSize { nrows, ncols, nnz };
        let shape = ItemSizes::new(BatchSizes::Uniform { item, nitems, shared_values });
        shape.check(options.nrhs)?;
        let (csr_bytes, packed_bytes) = shape.bytes::<T>();
        source::check_room(&executor, csr_bytes + packed_bytes)?;
        let has_items = nitems > 0;
        let arrays = CsrArrays {
            row_ptr: executor.upload(if has_items { pattern.row_ptr() } else { &[] })?,
            col_idx: executor.upload(if has_items { pattern.col_idx() } else { &[] })?,
            values: executor.alloc_zeroed(shape.nvalues())?,
        };
        let mut plan = Self::build(executor, shape, &arrays, options)?;
        plan.explain.setup = start.elapsed();
        Ok(plan)
    }

    /// Packs a batch whose arrays are already on the device. A kernel checks them first. The plan
    /// copies all it needs, so the arrays may be changed when the call returns. Waits for the
    /// packing.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the lengths of the arrays do not match the sizes;
    /// [`GpuError::InvalidArgument`] for arrays that are no CSR matrices, naming the first item and
    /// row that is wrong; otherwise as [`new`](Self::new).
    pub fn from_arrays(
        executor: E,
        sizes: BatchSizes<'_>,
        arrays: &CsrArrays<E, T>,
        options: PackedOptions,
    ) -> Result<Self, GpuError> {
        let start = Instant::now();
        options.check(executor.info())?;
        check_csr(&executor, source::patterns(&sizes), &arrays.row_ptr, &arrays.col_idx)?;
        let shape = ItemSizes::new(sizes);
        shape.check(options.nrhs)?;
        check_len("values", shape.nvalues(), arrays.values.len())?;
        source::check_room(&executor, shape.bytes::<T>().1)?;
        let mut plan = Self::build(executor, shape, arrays, options)?;
        plan.explain.setup = start.elapsed();
        Ok(plan)
    }

    /// Builds the plan from options and arrays that were checked.
    fn build(
        executor: E,
        shape: ItemSizes,
        arrays: &CsrArrays<E, T>,
        options: PackedOptions,
    ) -> Result<Self, GpuError> {
        executor.prepare(&pack::keys::<T>())?;
        executor.synchronize()?;
        let clock = Instant::now();
        let cut = CutBatch::new::<T>(&executor, shape, arrays, &options)?;
        let design = Design::new::<T>(executor.info(), &cut, &options)?;
        let compiling = Instant::now();
        executor.prepare(&design.keys::<T>())?;
        let compiling = compiling.elapsed();
        source::check_room(
            &executor,
            design.bytes() + Jobs::<E>::bytes_of(design.layout.jobs.len()),
        )?;
        let Design { kernel, work, layout, described } = design;
        let mut plan = Self {
            options,
            kernel,
            chunks: executor.upload(&work.chunks)?,
            described: executor.upload(described.as_flattened())?,
            values: executor.alloc((layout.value_bytes / 8) as usize)?,
            columns: executor.alloc((layout.column_bytes / 8) as usize)?,
            index: executor.alloc(layout.index_len as usize)?,
            jobs: Jobs::new(&executor, &layout.jobs, layout.shared_entries)?,
            explain: cut.explain(&work),
            launches: work.launches,
            rows: cut.rows,
            shape: cut.shape,
            patterns: None,
            executor,
            values_type: std::marker::PhantomData,
        };
        plan.fill(Some(&arrays.col_idx), &arrays.values)?;
        plan.executor.synchronize()?;
        plan.explain_bytes();
        plan.explain.packing = clock.elapsed().saturating_sub(compiling);
        Ok(plan)
    }

    /// Completes the report with the bytes of the plan and of a product.
    fn explain_bytes(&mut self) {
        let read = (8 * (self.values.len() + self.columns.len() + self.described.len())
            + 2 * self.index.len()
            + 4 * self.chunks.len()) as u64;
        let vectors = (self.x_len() + 2 * self.y_len()) * size_of::<T>();
        self.explain.device_bytes = read + self.rows.bytes() + self.jobs.bytes();
        self.explain.matrix_bytes = read;
        self.explain.product_bytes = read + vectors as u64;
    }

    fn fill(
        &mut self,
        col_idx: Option<&E::Buffer<i32>>,
        values: &E::Buffer<T>,
    ) -> Result<(), GpuError> {
        let joint_columns = self.values.raw() + (work::WARP * size_of::<T>()) as u64;
        let split = !self.columns.is_empty();
        let arrays = Filled {
            col_idx,
            values,
            to_values: &mut self.values,
            to_columns: split.then_some(&mut self.columns),
            joint_columns,
            to_index: &mut self.index,
        };
        self.rows.fill(&self.executor, &self.jobs, arrays)
    }

    fn x_len(&self) -> usize {
        self.shape.before(self.shape.nitems())[1] * self.options.nrhs
    }

    fn y_len(&self) -> usize {
        self.shape.before(self.shape.nitems())[0] * self.options.nrhs
    }

    /// `y = alpha A x + beta y` for all systems. `x` and `y` are item-major, the right-hand sides
    /// of an item one after the other, and do not overlap. With `beta == 0`, `y` is not read.
    ///
    /// Enqueues the launches and returns: allocates nothing and does not wait.
    ///
    /// # Errors
    /// [`GpuError::Length`] for a vector of another length; [`GpuError::InvalidArgument`] for
    /// vectors that overlap; errors of the launches.
    pub fn apply(
        &self,
        alpha: T,
        x: &E::Buffer<T>,
        beta: T,
        y: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        check_len("x", self.x_len(), x.len())?;
        check_len("y", self.y_len(), y.len())?;
        check_apart(x, y)?;
        for launch in &self.launches {
            let PackedLaunch { mode, warps, room_bytes, .. } = *launch;
            let staging_bytes = self.kernel.staging_bytes(warps, mode, size_of::<T>());
            let threads = (warps * work::WARP) as u32;
            let config = LaunchConfig {
                shared_bytes: (staging_bytes + room_bytes) as u32,
                overlaps: self.kernel.waits(),
                ..LaunchConfig::linear(launch.blocks.len() as u32, threads)
            };
            let mut args = Args::new();
            if launch.one_each {
                args.raw(0);
            } else {
                args.input_from(&self.chunks, launch.blocks.start)?;
            }
            args.scalar(launch.first_piece as u32).input(&self.described).input(&self.values);
            if mode.joint {
                args.raw(self.values.raw() + (work::WARP * size_of::<T>()) as u64);
            } else {
                args.input(&self.columns);
            }
            args.input(&self.index)
                .scalar(self.options.nrhs as u32)
                .scalar(room_bytes as u32)
                .scalar(alpha)
                .input(x)
                .scalar(beta)
                .output(y);
            #[expect(unsafe_code, reason = "a launch; see its SAFETY comment")]
            // SAFETY: (1) these are the parameters of `packed_spmv` and `packed_stream`; (2) the
            // plan laid out chunks, descriptions and arrays for each other: every block of the
            // launch has its pieces, every description points into the arrays, columns are at most
            // `ncols`, and `room_bytes` covers each piece; x and y have the lengths that the
            // descriptions were made for, checked above; (3) all buffers belong to this executor,
            // by the types; (4) y is borrowed exclusively, and apart from x; (5) kernels that
            // overlap wait for the launch ahead; the kernels that pack the arrays have ended before
            // any launch that may be ahead of this one.
            unsafe {
                self.executor.launch(&self.kernel.key::<T>(warps, mode), config, &mut args)?;
            }
        }
        Ok(())
    }

    /// Replaces the values of all systems and keeps the patterns. Uploads the values.
    ///
    /// Patterns are compared by [hashes](PatternFingerprint); for a plan made
    /// [from arrays on the device](Self::from_arrays) or [of a pattern](Self::of_pattern), only
    /// their sizes are compared.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the batch has another number of items or values,
    /// [`GpuError::InvalidArgument`] when its systems have other sizes or share differently,
    /// [`GpuError::OtherPattern`] when its patterns differ; [`GpuError::OutOfMemory`].
    pub fn update_values(&mut self, batch: &Batch<T>) -> Result<(), GpuError> {
        let shape = ItemSizes::of(batch);
        check_len("batch", self.shape.nitems(), shape.nitems())?;
        check_len("values", self.shape.nvalues(), shape.nvalues())?;
        if shape != self.shape {
            return Err(GpuError::InvalidArgument {
                name: "batch",
                expected: "the system sizes and the sharing of arrays that the plan was made for"
                    .to_owned(),
                found: "one with other sizes or sharing".to_owned(),
            });
        }
        let patterns = self.patterns.as_ref();
        if let Some(item) = patterns.and_then(|patterns| patterns.first_difference(batch)) {
            return Err(GpuError::OtherPattern { item });
        }
        let values = source::upload_values(&self.executor, batch)?;
        self.update_from(&values)?;
        self.executor.synchronize()
    }

    /// The number of values of all items, or of one where all share them.
    pub fn nvalues(&self) -> usize {
        self.shape.nvalues()
    }

    /// Replaces the values of all systems by `values` on the device: item after item in CSR order,
    /// or one set if they are shared. Enqueues the work and returns.
    ///
    /// # Errors
    /// [`GpuError::Length`] for another number of values; errors of the launches.
    pub fn update_from(&mut self, values: &E::Buffer<T>) -> Result<(), GpuError> {
        check_len("values", self.shape.nvalues(), values.len())?;
        self.fill(None, values)?;
        // A product may begin before the launch ahead of it has ended. An empty launch in between
        // keeps the product from overlapping with the packing.
        pack::separate(&self.executor)
    }

    /// The kernels that a product launches.
    pub fn keys(&self) -> Vec<KernelKey> {
        let key = |launch: &PackedLaunch| self.kernel.key::<T>(launch.warps, launch.mode);
        self.launches.iter().map(key).collect()
    }

    /// The packed values, columns and index, for tests of the packing.
    #[doc(hidden)]
    #[expect(clippy::type_complexity, reason = "three arrays")]
    pub fn arrays(&self) -> Result<(Vec<u64>, Vec<u64>, Vec<u16>), GpuError> {
        let columns = self.executor.download(&self.columns)?;
        Ok((self.executor.download(&self.values)?, columns, self.executor.download(&self.index)?))
    }

    /// What the plan chose and what it costs.
    pub fn explain(&self) -> &PackedExplain {
        &self.explain
    }
}
