//! [`ArrayMove`]: arrays of a batch on the device, from one order to another.

use std::marker::PhantomData;

use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::Layout;
use sparsebatch_solve_core::{ArgumentError, check_len};

use super::item_grid::{THREADS, resident_blocks};
use super::kernels::MOVES;
use crate::GpuSolveError;

/// Values that a block of `permute` moves at a time, as in `moves.cu`, and its most blocks.
const MOVED: u64 = 4 * THREADS as u64;
const MOST_BLOCKS: u64 = i32::MAX as u64;

/// Elements of a tile, as in `moves.cu`, whose blocks have [`THREADS`] threads.
const TILE: u64 = 32;

/// Moves an array of `len` values for each of `nitems` items between the caller's order and the
/// item-major one that solvers take.
pub struct ArrayMove<E: Executor, T: Value> {
    executor: E,
    nitems: usize,
    len: usize,
    layout: Layout,
    /// For each value of an item in item-major order, its place in the caller's.
    source: Option<E::Buffer<u32>>,
    values: PhantomData<T>,
}

impl<E: Executor + Clone, T: Value> ArrayMove<E, T> {
    /// Prepares moves of arrays that the caller has in `layout`. `source` gives, for each value of an
    /// item, its place among the caller's; without it the order is the same. Compiles the kernels.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for another number of places than `len`, or one beyond it;
    /// [`GpuSolveError::Gpu`] when memory or compiler fail.
    pub fn new(
        executor: &E,
        (nitems, len): (usize, usize),
        layout: Layout,
        source: Option<&[u32]>,
    ) -> Result<Self, GpuSolveError> {
        if let Some(source) = source {
            check_len("places of values", len, source.len())?;
            if let Some(place) = source.iter().find(|&&place| place as usize >= len) {
                return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                    name: "places of values",
                    expected: "places below the number of values",
                    found: place.to_string(),
                }));
            }
        }
        executor.prepare(&[Self::key("permute"), Self::key("turn")])?;
        Ok(Self {
            executor: executor.clone(),
            nitems,
            len,
            layout,
            source: source.map(|source| executor.upload(source)).transpose()?,
            values: PhantomData,
        })
    }

    fn key(name: &str) -> KernelKey {
        KernelKey::new(&MOVES, format!("{name}<{}>", T::CPP))
    }

    /// The number of values of all items.
    pub fn total(&self) -> usize {
        self.nitems * self.len
    }

    /// Copies the caller's array `from` to an item-major one. Returns before the launch is done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit or they overlap,
    /// [`GpuSolveError::Gpu`] when the launch is refused.
    pub fn to_item_major(
        &self,
        what: &'static str,
        from: &E::Buffer<T>,
        to: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.check(what, from, to)?;
        let (nitems, len) = (self.nitems as u64, self.len as u64);
        let mut args = Args::new();
        match self.layout {
            Layout::Interleaved => args.scalar(len).scalar(nitems),
            Layout::ItemMajor => args.scalar(nitems).scalar(len),
        };
        match (&self.source, self.layout) {
            (Some(source), _) => args.input(source),
            (None, Layout::Interleaved) => args.raw(0),
            // Nothing changes its place.
            (None, Layout::ItemMajor) => {
                return Ok(sparsebatch_cuda::copy_values(&self.executor, from, to)?);
            }
        };
        args.input(from).output(to);
        let name = if self.layout == Layout::Interleaved { "turn" } else { "permute" };
        self.launch(name, &mut args)
    }

    /// Copies an item-major array to the caller's. Returns before the launch is done.
    ///
    /// # Errors
    /// As [`ArrayMove::to_item_major`]; [`GpuSolveError::Unsupported`] where values change their places
    /// within an item.
    pub fn from_item_major(
        &self,
        what: &'static str,
        from: &E::Buffer<T>,
        to: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.check(what, from, to)?;
        if self.source.is_some() {
            return Err(GpuSolveError::Unsupported {
                what: "moving permuted values back",
                instead: "move them to item-major order",
            });
        }
        if self.layout == Layout::ItemMajor {
            return Ok(sparsebatch_cuda::copy_values(&self.executor, from, to)?);
        }
        let mut args = Args::new();
        args.scalar(self.nitems as u64).scalar(self.len as u64).raw(0).input(from).output(to);
        self.launch("turn", &mut args)
    }

    fn check(
        &self,
        what: &'static str,
        from: &E::Buffer<T>,
        to: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        check_len(what, self.total(), from.len())?;
        check_len(what, self.total(), to.len())?;
        if from.shares_memory_with(to) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: what,
                expected: "memory apart from that of the copy",
                found: "memory shared with it".to_owned(),
            }));
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "a launch")]
    fn launch(&self, name: &str, args: &mut Args<'_>) -> Result<(), GpuSolveError> {
        if self.total() == 0 {
            return Ok(());
        }
        let (items, values) = (self.nitems as u64, self.len as u64);
        let blocks = match name {
            "turn" => {
                let resident = resident_blocks(self.executor.info());
                (items.div_ceil(TILE) * values.div_ceil(TILE)).min(4 * resident)
            }
            _ => (items * values).div_ceil(MOVED).min(MOST_BLOCKS),
        };
        let config = LaunchConfig::linear(blocks.max(1) as u32, THREADS);
        // SAFETY: the arguments are those of `permute` or `turn`; both arrays have `nitems * len`
        // values and do not overlap, and `source` has `len` places below `len`.
        unsafe { self.executor.launch(&Self::key(name), config, args) }?;
        Ok(())
    }
}
