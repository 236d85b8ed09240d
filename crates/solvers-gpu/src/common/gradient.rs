//! [`ValueGradient`]: gradients by the values of matrices, on the device.

use std::marker::PhantomData;

use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::{ArgumentError, check_len};

use super::item_grid::{THREADS, item_grid};
use super::kernels::GRADIENT;
use super::task::{check_square, count_systems};
use crate::GpuSolveError;

/// Items whose gradients are added up by one thread where all items share their values.
const CHUNK: usize = 256;

/// Largest number of blocks in y of a launch.
const MAX_BLOCKS_Y: usize = 65_535;

/// Writes the gradient, by the values of the matrices of a uniform batch, of a loss of the solutions
/// of `A x = b`: `-lambda[row k] x[col k]` for each stored entry k, summed over right-hand sides, and
/// over items where they share their values. `lambda` solves the transposed systems,
/// `A^T lambda = dL/dx`. All arrays are on the device, item-major.
///
/// Sums are added up in one order: bitwise repeatable.
///
/// # Source
/// Giles and Pierce, An introduction to the adjoint approach to design, Flow, Turbulence and
/// Combustion 65, 2000 (doi 10.1023/A:1011430410075).
pub struct ValueGradient<E: Executor, T: Value> {
    executor: E,
    nitems: usize,
    nrows: usize,
    nrhs: usize,
    places: E::Buffer<u64>,
    /// One sum for each chunk of items and entry, for values that all items share.
    partial: E::Buffer<T>,
    keys: [KernelKey; 3],
    config: LaunchConfig,
    values: PhantomData<T>,
}

impl<E: Executor + Clone, T: Value> ValueGradient<E, T> {
    /// Prepares for `nitems` items of a pattern with `nrhs` right-hand sides each. Allocates the memory
    /// that it needs and compiles its kernels.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square, for no right-hand side or too many
    /// systems; [`GpuSolveError::Gpu`] when memory or compiler fail.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        nrhs: usize,
    ) -> Result<Self, GpuSolveError> {
        check_square(0, pattern)?;
        count_systems(nitems, nrhs)?;
        let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
        let of_row = |row: usize| {
            let columns = &pattern.col_idx()[pattern.row(row)];
            columns.iter().map(move |&column| row as u64 | (column as u64) << 32)
        };
        let places: Vec<u64> = (0..nrows).flat_map(of_row).collect();
        let key = |name: &str| KernelKey::new(&GRADIENT, format!("{name}<{}>", T::CPP));
        let keys = [key("gradient"), key("gradient_sums"), key("gradient_total")];
        executor.prepare(&keys)?;
        Ok(Self {
            nitems,
            nrows,
            nrhs,
            places: executor.upload(&places)?,
            partial: executor.alloc(nitems.div_ceil(CHUNK) * nnz)?,
            keys,
            config: item_grid(executor.info(), nitems, nnz),
            executor: executor.clone(),
            values: PhantomData,
        })
    }

    /// Overwrites `gradient`, which holds the entries of item 0 in CSR order, of item 1, ...; or the
    /// entries of one item, if all items share their values. Allocates nothing and returns before the
    /// launches are done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, or `gradient` overlaps another one;
    /// [`GpuSolveError::Gpu`] when a launch is refused. `gradient` is untouched then.
    #[expect(unsafe_code, reason = "the launches")]
    pub fn apply(
        &mut self,
        lambda: &E::Buffer<T>,
        x: &E::Buffer<T>,
        gradient: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let (nnz, rows) = (self.places.len(), self.nitems * self.nrhs * self.nrows);
        check_len("lambda", rows, lambda.len())?;
        check_len("x", rows, x.len())?;
        let shared = gradient.len() == nnz && self.nitems != 1;
        if !shared {
            check_len("gradient", nnz * self.nitems, gradient.len())?;
        }
        if lambda.shares_memory_with(gradient) || x.shares_memory_with(gradient) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "gradient",
                expected: "memory apart from lambda and x",
                found: "memory shared with them".to_owned(),
            }));
        }
        if gradient.is_empty() {
            return Ok(());
        }
        let mut args = Args::new();
        args.scalar(self.nitems as u64);
        if shared {
            args.scalar(CHUNK as u32);
        }
        args.scalar(nnz as u32)
            .scalar(self.nrows as u32)
            .scalar(self.nrhs as u32)
            .input(&self.places)
            .input(lambda)
            .input(x);
        if !shared {
            args.output(gradient);
            // SAFETY: the arguments are those of `gradient`; lengths were checked here, the places are
            // those of the square pattern's entries, and `gradient` overlaps nothing that is read.
            unsafe { self.executor.launch(&self.keys[0], self.config, &mut args) }?;
            return Ok(());
        }
        let chunks = self.nitems.div_ceil(CHUNK);
        let blocks = (nnz.div_ceil(THREADS as usize)).clamp(1, 1 << 16) as u32;
        let linear = LaunchConfig::linear(blocks, THREADS);
        let grid = [blocks, chunks.clamp(1, MAX_BLOCKS_Y) as u32, 1];
        args.output(&mut self.partial);
        // SAFETY: the arguments are those of `gradient_sums`; lengths were checked here, `partial` has
        // nnz values for each chunk, and the places are those of the square pattern's entries.
        unsafe { self.executor.launch(&self.keys[1], LaunchConfig { grid, ..linear }, &mut args) }?;
        let mut args = Args::new();
        args.scalar(chunks as u64).scalar(nnz as u32).input(&self.partial).output(gradient);
        // SAFETY: the arguments are those of `gradient_total`; `partial` has nnz values for each chunk,
        // `gradient` has nnz values and overlaps nothing that is read.
        unsafe { self.executor.launch(&self.keys[2], linear, &mut args) }?;
        Ok(())
    }
}
