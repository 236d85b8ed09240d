//! The packed product: the default for batches.
//!
//! Once per pattern, rows are cut into segments and these sorted into slices, so that threads read
//! consecutive memory with next to no padding, with 16-bit columns (`layout.rs`). What a block
//! multiplies at a time is a piece: a system, or several small ones that follow each other
//! (`pieces.rs`). Blocks take runs of pieces, largest first (`work.rs`). A product has x of a piece in
//! shared memory, sums segments there and adds each row's sums in a fixed order.

mod layout;
mod options;
mod pieces;
mod work;

use std::time::{Duration, Instant};

use sparsebatch_formats::Batch;

use crate::error::check_len;
use crate::value::Value;
use crate::{Args, Executor, GpuError, KernelBuffer, LaunchConfig};
pub use options::{PackedKernel, PackedOptions};
use pieces::Pieces;
use work::{Classes, Launch, PIECE_WORDS};

/// What a plan chose and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedExplain {
    /// Launches of one product.
    pub launches: usize,
    /// Blocks of all launches.
    pub blocks: usize,
    /// Stored entries of all systems.
    pub nnz: u64,
    /// Slots of all systems, padding included.
    pub slots: u64,
    /// Pieces: systems, or groups of small ones, that a block multiplies at a time.
    pub pieces: usize,
    /// Pieces some of whose rows are cut.
    pub pieces_cut: usize,
    /// Bytes on the device.
    pub device_bytes: u64,
    /// Bytes that one product moves at least: matrix, indices, x and y once each.
    pub product_bytes: u64,
    /// Analysis, packing and upload.
    pub setup: Duration,
}

/// A batch prepared for products `y = alpha A x + beta y`, all systems in one call.
pub struct PackedPlan<E: Executor, T: Value> {
    executor: E,
    options: PackedOptions,
    kernel: PackedKernel,
    pieces: Pieces,
    launches: Vec<Launch>,
    x_len: usize,
    y_len: usize,
    chunks: E::Buffer<u32>,
    described: E::Buffer<u64>,
    values: E::Buffer<T>,
    columns: E::Buffer<u16>,
    index: E::Buffer<u16>,
    explain: PackedExplain,
}

impl<E: Executor, T: Value> PackedPlan<E, T> {
    /// Analyses, packs and uploads a batch. Index arrays of a uniform batch, and values that are
    /// shared, are stored once.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for options out of range, and for a system too large for the
    /// shared memory of a block; [`GpuError::OutOfMemory`].
    pub fn new(executor: E, batch: &Batch<T>, options: PackedOptions) -> Result<Self, GpuError> {
        let start = Instant::now();
        options.check(executor.info())?;
        let kernel = options.kernel.unwrap_or_else(|| PackedKernel::of(executor.info()));
        let classes = Classes {
            info: executor.info(),
            classes: kernel.classes(),
            value_bytes: size_of::<T>(),
            staging_bytes: &|warps| kernel.staging_bytes::<T>(warps),
            copies_ahead: kernel.copies_ahead(),
        };
        let pieces = Pieces::new(batch, &options, &classes, size_of::<T>())?;
        let work = classes.work(pieces.len(), |i| pieces.pattern(i), options.share);
        for launch in &work.launches {
            executor.prepare(&[kernel.key::<T>(launch.warps)])?;
        }
        let (columns, index) = pieces.indices();
        let places = pieces.places(batch, options.nrhs);
        let mut described = Vec::with_capacity(work.order.len() * PIECE_WORDS);
        for launch in &work.launches {
            let first = work.chunks[launch.blocks.start] as usize;
            let last = work.chunks[launch.blocks.end] as usize;
            for &piece in &work.order[first..last] {
                let pattern = pieces.pattern(piece as usize);
                described.extend(places[piece as usize].words(pattern, launch.warps));
            }
        }
        let packed = pieces.packed_values(batch);

        let nitems = batch.nitems();
        let x_len = batch.col_offset(nitems) * options.nrhs;
        let y_len = batch.row_offset(nitems) * options.nrhs;
        let mut explain = PackedExplain {
            launches: work.launches.len(),
            blocks: work.chunks.len() - 1,
            nnz: batch.total_nnz() as u64,
            slots: (0..pieces.len()).map(|i| pieces.pattern(i).nslots() as u64).sum(),
            pieces: pieces.len(),
            pieces_cut: (0..pieces.len()).filter(|&i| pieces.pattern(i).is_cut()).count(),
            device_bytes: (size_of_val(packed.as_slice())
                + size_of_val(columns.as_slice())
                + size_of_val(index.as_slice())
                + size_of_val(described.as_slice())
                + size_of_val(work.chunks.as_slice())) as u64,
            product_bytes: 0,
            setup: Duration::ZERO,
        };
        explain.product_bytes =
            explain.device_bytes + ((x_len + 2 * y_len) * size_of::<T>()) as u64;
        let mut plan = Self {
            options,
            kernel,
            launches: work.launches,
            x_len,
            y_len,
            chunks: executor.upload(&work.chunks)?,
            described: executor.upload(&described)?,
            values: executor.upload(&packed)?,
            columns: executor.upload(&columns)?,
            index: executor.upload(&index)?,
            pieces,
            executor,
            explain,
        };
        plan.explain.setup = start.elapsed();
        Ok(plan)
    }

    /// `y = alpha A x + beta y` for all systems. `x` and `y` are item-major, the right-hand sides
    /// of an item one after the other. beta == 0 does not read `y`.
    ///
    /// Enqueues and returns: allocates nothing and does not wait.
    ///
    /// # Errors
    /// [`GpuError::Length`]; what launching reports.
    pub fn apply(
        &self,
        alpha: T,
        x: &E::Buffer<T>,
        beta: T,
        y: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        check_len("x", self.x_len, x.len())?;
        check_len("y", self.y_len, y.len())?;
        for launch in &self.launches {
            let config = LaunchConfig {
                grid: [launch.blocks.len() as u32, 1, 1],
                block: [(launch.warps * layout::SLICE) as u32, 1, 1],
                shared_bytes: (self.kernel.staging_bytes::<T>(launch.warps) + launch.room_bytes)
                    as u32,
            };
            let mut args = Args::new();
            args.input_from(&self.chunks, launch.blocks.start)?;
            args.input(&self.described)
                .input(&self.values)
                .input(&self.columns)
                .input(&self.index)
                .scalar(self.options.nrhs as u32)
                .scalar(launch.room_bytes as u32)
                .scalar(alpha)
                .input(x)
                .scalar(beta)
                .output(y);
            #[expect(unsafe_code, reason = "a launch; see its SAFETY comment")]
            // SAFETY: (1) these are the parameters of `packed_spmv` and `packed_stream`; (2) the
            // plan wrote chunks, descriptions and arrays for each other: every block of the launch
            // has its pieces, every description lies in the arrays, columns are at most `ncols`, and
            // the room covers each piece; x and y have the lengths that the descriptions were made
            // for, checked above; (3) all buffers are of this executor, by the types; (4) y is
            // borrowed exclusively.
            unsafe {
                self.executor.launch(&self.kernel.key::<T>(launch.warps), config, &mut args)?;
            }
        }
        Ok(())
    }

    /// Replaces the values of all systems, the patterns staying as they are.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the batch is not of the same sizes.
    pub fn update_values(&mut self, batch: &Batch<T>) -> Result<(), GpuError> {
        self.pieces.check(batch)?;
        let packed = self.pieces.packed_values(batch);
        self.executor.copy_from_host(&packed, &mut self.values)
    }

    /// What was chosen and what it costs.
    pub fn explain(&self) -> &PackedExplain {
        &self.explain
    }
}
