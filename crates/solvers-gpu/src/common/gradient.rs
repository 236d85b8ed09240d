//! [`ValueGradient`]: gradients by the values of matrices, on the device.

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{CsrPatternRef, RaggedCsr, Scalar};
use sparsebatch_solve_core::{ArgumentError, check_len};

use super::item_grid::{THREADS, item_grid};
use super::kernels::GRADIENT;
use super::task::{check_square, count_systems};
use crate::GpuSolveError;

/// Items whose gradients are added up by one thread where all items share their values.
const CHUNK: usize = 256;

/// Bytes of the vectors that a block holds in shared memory: of some items, and the most of one
/// item.
const TILE_BYTES: usize = 8 << 10;
const MOST_TILE_BYTES: usize = 48 << 10;

/// Largest number of blocks in y of a launch.
const MAX_BLOCKS_Y: usize = 65_535;

/// Writes the gradient, by the values of the matrices of a batch, of a loss of the solutions of
/// `A x = b`: `-lambda[row k] x[col k]` for each stored entry k, summed over right-hand sides, and
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
    /// Rows of all items.
    rows: usize,
    nrhs: usize,
    /// Entries of a uniform batch's pattern, or of a ragged batch.
    entries: usize,
    /// Row and column of each entry; none where tiles have them alone.
    places: E::Buffer<u64>,
    items: Items<E, T>,
    config: LaunchConfig,
}

/// What belongs to the items of a uniform or ragged batch alone.
enum Items<E: Executor, T: Value> {
    Uniform {
        nrows: usize,
        /// One sum for each chunk of items and entry, for values that all items share.
        partial: E::Buffer<T>,
        /// That of each item, where there are no tiles, and those of the sum over items.
        keys: [KernelKey; 3],
        tiles: Option<Tiles<E>>,
    },
    /// Where the entries and rows of each item begin, or of each tile.
    Ragged { starts: E::Buffer<u64>, rows: E::Buffer<u64>, key: KernelKey, tiles: Option<Tiles<E>> },
}

/// Consecutive items whose vectors a block holds in shared memory.
struct Tiles<E: Executor> {
    key: KernelKey,
    /// Items of a tile, where all have one pattern.
    items: usize,
    /// `row | column << 16` of each entry: of the pattern, or within its tile.
    places: E::Buffer<u32>,
    config: LaunchConfig,
}

impl<E: Executor> Tiles<E> {
    /// The launch of `blocks` tiles of at most `values` values of each vector; `None` where these
    /// do not fit.
    fn config<T: Value>(executor: &E, blocks: usize, values: usize) -> Option<LaunchConfig> {
        let bytes = 2 * values * size_of::<T>();
        let most = MOST_TILE_BYTES.min(executor.info().shared_bytes_per_block as usize);
        let linear = LaunchConfig::linear(u32::try_from(blocks).ok()?, THREADS);
        (bytes <= most).then_some(LaunchConfig { shared_bytes: bytes as u32, ..linear })
    }

    /// Tiles of `nitems` items of a pattern; `None` where they are few, or large.
    fn uniform<T: Value>(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        nrhs: usize,
    ) -> Result<Option<Self>, GpuError> {
        let rows = pattern.nrows().saturating_mul(nrhs);
        let items = (TILE_BYTES / (2 * rows * size_of::<T>()).max(1)).clamp(1, nitems.max(1));
        let config = Self::config::<T>(executor, nitems.div_ceil(items), items * rows);
        let is_small = items.saturating_mul(pattern.nnz()) <= i32::MAX as usize;
        let Some(config) = config.filter(|_| is_small && fills(executor, nitems)) else {
            return Ok(None);
        };
        let places: Vec<u32> = places_of(pattern).map(|place| narrow(place, 0)).collect();
        let many = nrhs > 1;
        let key = KernelKey::new(&GRADIENT, format!("gradient_tiles<{}, {many}>", T::CPP));
        executor.prepare(std::slice::from_ref(&key))?;
        Ok(Some(Self { key, items, places: executor.upload(&places)?, config }))
    }

    /// Tiles of the items of a ragged batch with one right-hand side, and where the entries and
    /// rows of each begin; `None` where an item is large, or all are few.
    #[expect(clippy::type_complexity, reason = "tiles and two arrays")]
    fn ragged<T: Value, V: Scalar>(
        executor: &E,
        batch: &RaggedCsr<V>,
    ) -> Result<Option<(Self, [Vec<u64>; 2])>, GpuError> {
        let most = TILE_BYTES / (2 * size_of::<T>());
        let (entries, rows) = (batch.nnz_offsets(), batch.row_offsets());
        let (mut starts, mut places) = ([vec![0], vec![0]], Vec::new());
        let (mut first, mut largest) = (0, 0);
        for item in 0..batch.nitems() {
            let is_full = rows[item + 1] - rows[first] > most
                || entries[item + 1] - entries[first] > i32::MAX as usize;
            if is_full && item > first {
                starts[0].push(entries[item] as u64);
                starts[1].push(rows[item] as u64);
                first = item;
            }
            largest = largest.max(rows[item + 1] - rows[first]);
            if Self::config::<T>(executor, 1, largest).is_none() {
                return Ok(None);
            }
            let before = rows[item] - rows[first];
            places.extend(places_of(batch.item(item).pattern()).map(|of| narrow(of, before)));
        }
        starts[0].push(entries[batch.nitems()] as u64);
        starts[1].push(rows[batch.nitems()] as u64);
        let config = Self::config::<T>(executor, starts[0].len() - 1, largest);
        let Some(config) = config.filter(|_| fills(executor, batch.nitems())) else {
            return Ok(None);
        };
        let key = key::<T>("gradient_ragged_tiles");
        executor.prepare(std::slice::from_ref(&key))?;
        let tiles = Self { key, items: 0, places: executor.upload(&places)?, config };
        Ok(Some((tiles, starts)))
    }
}

/// Whether there is an item for each multiprocessor; blocks share the items otherwise.
fn fills(executor: &impl Executor, nitems: usize) -> bool {
    nitems >= executor.info().multiprocessors as usize
}

/// A place `row | column << 32` in 16 bits each, `before` rows further.
fn narrow(place: u64, before: usize) -> u32 {
    let (row, column) = (place as u32 + before as u32, (place >> 32) as u32 + before as u32);
    row | column << 16
}

fn key<T: Value>(name: &str) -> KernelKey {
    KernelKey::new(&GRADIENT, format!("{name}<{}>", T::CPP))
}

/// Row and column of each entry of a pattern.
fn places_of(pattern: CsrPatternRef<'_>) -> impl Iterator<Item = u64> + '_ {
    (0..pattern.nrows()).flat_map(move |row| {
        let columns = &pattern.col_idx()[pattern.row(row)];
        columns.iter().map(move |&column| row as u64 | (column as u64) << 32)
    })
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
        let keys = [key::<T>("gradient"), key::<T>("gradient_sums"), key::<T>("gradient_total")];
        let tiles = Tiles::uniform::<T>(executor, pattern, nitems, nrhs)?;
        executor.prepare(&keys[usize::from(tiles.is_some())..])?;
        let partial = executor.alloc(nitems.div_ceil(CHUNK) * nnz)?;
        Ok(Self {
            nitems,
            rows: nitems * nrows,
            nrhs,
            entries: nnz,
            places: executor.upload(&places_of(pattern).collect::<Vec<_>>())?,
            items: Items::Uniform { nrows, partial, keys, tiles },
            config: item_grid(executor.info(), nitems, nnz),
            executor: executor.clone(),
        })
    }

    /// As [`ValueGradient::new`], for the items of a ragged batch, whose values do not matter.
    ///
    /// # Errors
    /// Those of [`ValueGradient::new`].
    pub fn ragged<V: Scalar>(
        executor: &E,
        batch: &RaggedCsr<V>,
        nrhs: usize,
    ) -> Result<Self, GpuSolveError> {
        let nitems = batch.nitems();
        for item in 0..nitems {
            check_square(item, batch.item(item).pattern())?;
        }
        count_systems(nitems, nrhs)?;
        let key = key::<T>("gradient_ragged");
        let tiles = match nrhs {
            1 => Tiles::ragged::<T, V>(executor, batch)?,
            _ => None,
        };
        let wide = |offsets: &[usize]| offsets.iter().map(|&at| at as u64).collect::<Vec<_>>();
        let (tiles, starts, places) = match tiles {
            Some((tiles, starts)) => (Some(tiles), starts, Vec::new()),
            None => {
                executor.prepare(std::slice::from_ref(&key))?;
                let places = (0..nitems).flat_map(|item| places_of(batch.item(item).pattern()));
                let starts = [wide(batch.nnz_offsets()), wide(batch.row_offsets())];
                (None, starts, places.collect())
            }
        };
        let [starts, rows] = starts;
        Ok(Self {
            nitems,
            rows: batch.row_offsets()[nitems],
            nrhs,
            entries: batch.total_nnz(),
            places: executor.upload(&places)?,
            items: Items::Ragged {
                starts: executor.upload(&starts)?,
                rows: executor.upload(&rows)?,
                key,
                tiles,
            },
            config: item_grid(executor.info(), nitems, batch.total_nnz() / nitems.max(1)),
            executor: executor.clone(),
        })
    }

    /// Overwrites `gradient`, which holds the entries of item 0 in CSR order, of item 1, ...; or the
    /// entries of one item, if all items of a uniform batch share their values. Allocates nothing and
    /// returns before the launches are done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, or `gradient` overlaps another one;
    /// [`GpuSolveError::Gpu`] when a launch is refused. `gradient` is untouched then.
    pub fn apply(
        &mut self,
        lambda: &E::Buffer<T>,
        x: &E::Buffer<T>,
        gradient: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let (entries, rows) = (self.entries, self.rows * self.nrhs);
        check_len("lambda", rows, lambda.len())?;
        check_len("x", rows, x.len())?;
        let is_uniform = matches!(self.items, Items::Uniform { .. });
        let shared = is_uniform && gradient.len() == entries && self.nitems != 1;
        if !shared {
            let items = if is_uniform { self.nitems } else { 1 };
            check_len("gradient", entries * items, gradient.len())?;
        }
        if lambda.shares_memory_with(gradient) || x.shares_memory_with(gradient) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "gradient",
                expected: "memory apart from lambda and x",
                found: "memory shared with them".to_owned(),
            }));
        }
        match shared {
            _ if gradient.is_empty() => Ok(()),
            true => self.apply_shared(lambda, x, gradient),
            false => self.apply_each(lambda, x, gradient),
        }
    }

    /// Writes the gradient of each item. All arrays fit.
    #[expect(unsafe_code, reason = "the launch")]
    fn apply_each(
        &self,
        lambda: &E::Buffer<T>,
        x: &E::Buffer<T>,
        gradient: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let mut args = Args::new();
        let (key, config) = match &self.items {
            Items::Uniform { nrows, keys, tiles, .. } => {
                args.scalar(self.nitems as u64);
                tiles.iter().for_each(|tiles| {
                    args.scalar(tiles.items as u32);
                });
                args.scalar(self.entries as u32).scalar(*nrows as u32).scalar(self.nrhs as u32);
                match tiles {
                    Some(tiles) => {
                        args.input(&tiles.places);
                        (&tiles.key, tiles.config)
                    }
                    None => {
                        args.input(&self.places);
                        (&keys[0], self.config)
                    }
                }
            }
            Items::Ragged { starts, rows, tiles: Some(tiles), .. } => {
                args.input(starts).input(rows).input(&tiles.places);
                (&tiles.key, tiles.config)
            }
            Items::Ragged { starts, rows, key, tiles: None } => {
                args.scalar(self.nitems as u64).scalar(self.nrhs as u32);
                args.input(starts).input(rows).input(&self.places);
                (key, self.config)
            }
        };
        args.input(lambda).input(x).output(gradient);
        // SAFETY: the arguments are those of `gradient` or `gradient_ragged`, or of their forms in
        // tiles; the caller checked their lengths, the places are those of the entries of square
        // patterns, tiles have shared memory for the vectors of their items, whose places fit 16
        // bits, and `gradient` overlaps nothing that is read.
        Ok(unsafe { self.executor.launch(key, config, &mut args) }?)
    }

    /// Writes the sum of the gradients of all items of a uniform batch. All arrays fit.
    #[expect(unsafe_code, reason = "the launches")]
    fn apply_shared(
        &mut self,
        lambda: &E::Buffer<T>,
        x: &E::Buffer<T>,
        gradient: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let Items::Uniform { nrows, partial, keys, .. } = &mut self.items else { return Ok(()) };
        let nnz = self.entries;
        let chunks = self.nitems.div_ceil(CHUNK);
        let blocks = (nnz.div_ceil(THREADS as usize)).clamp(1, 1 << 16) as u32;
        let linear = LaunchConfig::linear(blocks, THREADS);
        let grid = [blocks, chunks.clamp(1, MAX_BLOCKS_Y) as u32, 1];
        let mut args = Args::new();
        args.scalar(self.nitems as u64).scalar(CHUNK as u32).scalar(nnz as u32);
        args.scalar(*nrows as u32).scalar(self.nrhs as u32);
        args.input(&self.places).input(lambda).input(x).output(partial);
        // SAFETY: the arguments are those of `gradient_sums`; the caller checked their lengths,
        // `partial` has nnz values for each chunk, and the places are those of a square pattern.
        unsafe { self.executor.launch(&keys[1], LaunchConfig { grid, ..linear }, &mut args) }?;
        let mut args = Args::new();
        args.scalar(chunks as u64).scalar(nnz as u32).input(&*partial).output(gradient);
        // SAFETY: the arguments are those of `gradient_total`; `partial` has nnz values for each chunk,
        // `gradient` has nnz values and overlaps nothing that is read.
        Ok(unsafe { self.executor.launch(&keys[2], linear, &mut args) }?)
    }
}
