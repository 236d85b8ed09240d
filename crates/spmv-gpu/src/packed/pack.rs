//! Cutting, measuring and packing on the device.

use rayon::prelude::*;

use super::kernels::PACK;
use super::pieces::{PART_WORDS, Part, Pattern, Pieces};
use super::work::{Measured, SHARES};
use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};

/// 64-bit words of a job, as `PackJob` in `pack.cu` reads it.
pub(super) const JOB_WORDS: usize = 9;

/// 64-bit words of what a job packs, in the layout of `PackSource`.
const SOURCE_WORDS: usize = 2;

/// Numbers that `pack_measure` writes for each pattern.
const MEASURES: usize = 4 + SHARES / 2;

const CUT_WARPS: usize = 4;
const FILL_THREADS: u32 = 256;

/// How a pattern is packed, and where the result goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Job {
    /// Offset of the first value, and values from one repetition to the next.
    pub(super) values: usize,
    pub(super) set_values: usize,
    /// Byte offsets of the values and the columns, entry offset of the index.
    pub(super) to_values: u64,
    pub(super) to_columns: u64,
    pub(super) to_index: u64,
    pub(super) nsegments: u32,
    pub(super) first_column: u32,
    pub(super) padding: u32,
    pub(super) flags: u32,
    pub(super) what: u32,
}

pub(super) const WRITE_VALUES: u32 = 1;
pub(super) const WRITE_INDICES: u32 = 2;
pub(super) const WIDE_COLUMNS: u32 = 4;
pub(super) const JOINT_STEPS: u32 = 8;

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// What a job packs of `pattern`, in the layout of `PackSource`.
fn source_words(pattern: &Pattern) -> [u64; SOURCE_WORDS] {
    let nparts = if pattern.repeated > 0 { pattern.repeated } else { pattern.parts.len() };
    [pattern.parts.start as u64, pair(nparts as u32, u32::from(pattern.repeated > 0))]
}

impl Job {
    /// The words of the job for `pattern`, in the layout of `PackJob`.
    pub(super) fn words(&self, pattern: &Pattern) -> [u64; JOB_WORDS] {
        let [first_part, nparts] = source_words(pattern);
        [
            first_part,
            nparts,
            self.values as u64,
            self.to_values,
            self.to_columns,
            self.to_index,
            pair(self.set_values as u32, self.nsegments),
            pair(self.first_column, self.padding),
            pair(self.flags, self.what),
        ]
    }
}

/// Arrays on the device that the packing kernels of a plan read, without columns and values.
pub(super) struct Rows<E: Executor> {
    parts: E::Buffer<u64>,
    nparts: usize,
    cuts: E::Buffer<u32>,
    row_ptr: E::Buffer<i32>,
}

/// The kernels that packing launches.
pub(super) fn keys<T: Value>() -> [KernelKey; 6] {
    [
        key(format!("pack_cut<{CUT_WARPS}>")),
        key("pack_measure".to_owned()),
        key("pack_window".to_owned()),
        key("pack_copy".to_owned()),
        key("pack_nothing".to_owned()),
        fill_key::<T>(),
    ]
}

fn key(expression: String) -> KernelKey {
    KernelKey::new(&PACK, expression)
}

fn fill_key<T: Value>() -> KernelKey {
    key(format!("pack_fill<{}>", T::CPP))
}

impl<E: Executor> Rows<E> {
    /// Copies the row pointers and decides where rows are cut.
    pub(super) fn new<T: Value>(
        executor: &E,
        pieces: &Pieces,
        row_ptr: &E::Buffer<i32>,
    ) -> Result<Self, GpuError> {
        let words: Vec<[u64; PART_WORDS]> = pieces.parts.par_iter().map(Part::words).collect();
        let mut rows = Self {
            parts: executor.upload(words.as_flattened())?,
            nparts: pieces.parts.len(),
            cuts: executor.alloc(pieces.parts.len())?,
            row_ptr: executor.alloc(row_ptr.len())?,
        };
        if rows.nparts == 0 {
            return Ok(rows);
        }
        let blocks = row_ptr.len().div_ceil(256).clamp(1, 4096) as u32;
        let mut args = Args::new();
        args.scalar(row_ptr.len() as u64).input(row_ptr).output(&mut rows.row_ptr);
        run(executor, key("pack_copy".to_owned()), LaunchConfig::linear(blocks, 256), &mut args)?;
        let blocks = rows.nparts.div_ceil(CUT_WARPS).min(65_536) as u32;
        let threads = CUT_WARPS as u32 * 32;
        let mut args = Args::new();
        args.scalar(rows.nparts as u64)
            .input(&rows.parts)
            .input(&rows.row_ptr)
            .scalar(size_of::<T>() as u32)
            .output(&mut rows.cuts);
        let config = LaunchConfig::linear(blocks, threads);
        run(executor, key(format!("pack_cut<{CUT_WARPS}>")), config, &mut args)?;
        Ok(rows)
    }

    /// Measures each pattern. Waits for the results.
    pub(super) fn measure(
        &self,
        executor: &E,
        pieces: &Pieces,
        col_idx: &E::Buffer<i32>,
    ) -> Result<Vec<Measured>, GpuError> {
        let patterns = &pieces.patterns;
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let sources: Vec<[u64; SOURCE_WORDS]> = patterns.iter().map(source_words).collect();
        let sources = executor.upload(sources.as_flattened())?;
        let mut measures = executor.alloc(patterns.len() * MEASURES)?;
        let config = LaunchConfig::linear(patterns.len() as u32, 128);
        let mut args = Args::new();
        args.input(&sources).input(&self.parts).input(&self.cuts).input(&self.row_ptr);
        args.output(&mut measures);
        run(executor, key("pack_measure".to_owned()), config, &mut args)?;

        let windowed: Vec<usize> = (0..patterns.len()).filter(|&p| patterns[p].windowed).collect();
        let mut windows = Vec::new();
        if !windowed.is_empty() {
            let sources: Vec<[u64; SOURCE_WORDS]> =
                windowed.iter().map(|&p| source_words(&patterns[p])).collect();
            let sources = executor.upload(sources.as_flattened())?;
            let mut found = executor.alloc::<u32>(2 * windowed.len())?;
            let config = LaunchConfig::linear(windowed.len() as u32, 128);
            let mut args = Args::new();
            args.input(&sources).input(&self.parts).input(&self.row_ptr).input(col_idx);
            args.output(&mut found);
            run(executor, key("pack_window".to_owned()), config, &mut args)?;
            windows = executor.download(&found)?;
        }
        let measures: Vec<u32> = executor.download(&measures)?;
        let mut measured: Vec<Measured> = (measures.par_chunks(MEASURES).zip(patterns))
            .map(|(measure, pattern)| Measured::new(measure, pattern.ncols))
            .collect();
        for (&pattern, window) in windowed.iter().zip(windows.chunks(2)) {
            let (first, last) = (window[0], window[1]);
            measured[pattern].columns = if first > last { 0..0 } else { first..last + 1 };
        }
        Ok(measured)
    }

    /// Writes values, columns and indices to their places.
    pub(super) fn fill<T: Value>(
        &self,
        executor: &E,
        jobs: &Jobs<E>,
        arrays: Filled<'_, E, T>,
    ) -> Result<(), GpuError> {
        if jobs.count == 0 {
            return Ok(());
        }
        let config = LaunchConfig {
            shared_bytes: jobs.shared_bytes as u32,
            ..LaunchConfig::linear(jobs.count as u32, FILL_THREADS)
        };
        let mut args = Args::new();
        // Without columns, only values are written.
        let mask = if arrays.col_idx.is_some() { u32::MAX } else { !WRITE_INDICES };
        args.input(&jobs.words)
            .scalar(mask)
            .input(&self.parts)
            .input(&self.cuts)
            .input(&self.row_ptr);
        match arrays.col_idx {
            Some(col_idx) => args.input(col_idx),
            None => args.raw(0),
        };
        args.input(arrays.values).output(arrays.to_values);
        match arrays.to_columns {
            Some(to_columns) => args.output(to_columns),
            // The columns lie with the values.
            None => args.raw(arrays.joint_columns),
        };
        args.output(arrays.to_index);
        run(executor, fill_key::<T>(), config, &mut args)
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        (8 * self.parts.len() + 4 * self.cuts.len() + 4 * self.row_ptr.len()) as u64
    }
}

/// Arrays that `pack_fill` reads and writes.
pub(super) struct Filled<'a, E: Executor, T: Value> {
    /// `None` if only values are written.
    pub(super) col_idx: Option<&'a E::Buffer<i32>>,
    pub(super) values: &'a E::Buffer<T>,
    pub(super) to_values: &'a mut E::Buffer<u64>,
    pub(super) to_columns: Option<&'a mut E::Buffer<u64>>,
    /// The address of the columns if they lie with the values.
    pub(super) joint_columns: u64,
    pub(super) to_index: &'a mut E::Buffer<u16>,
}

/// Jobs on the device.
pub(super) struct Jobs<E: Executor> {
    words: E::Buffer<u64>,
    count: usize,
    shared_bytes: usize,
}

impl<E: Executor> Jobs<E> {
    /// `shared_entries` is the largest shared memory that a job needs, in entries of 16 bits.
    pub(super) fn new(
        executor: &E,
        jobs: &[[u64; JOB_WORDS]],
        shared_entries: usize,
    ) -> Result<Self, GpuError> {
        let words = executor.upload(jobs.as_flattened())?;
        Ok(Self { words, count: jobs.len(), shared_bytes: 2 * shared_entries })
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        Self::bytes_of(self.count)
    }

    /// Bytes of `count` jobs.
    pub(super) fn bytes_of(count: usize) -> u64 {
        (8 * JOB_WORDS * count) as u64
    }
}

/// An empty launch: launches behind it begin only when those ahead of it have ended.
pub(super) fn separate<E: Executor>(executor: &E) -> Result<(), GpuError> {
    run(executor, key("pack_nothing".to_owned()), LaunchConfig::linear(1, 32), &mut Args::new())
}

fn run<E: Executor>(
    executor: &E,
    key: KernelKey,
    config: LaunchConfig,
    args: &mut Args<'_>,
) -> Result<(), GpuError> {
    #[expect(unsafe_code, reason = "a launch; see its SAFETY comment")]
    // SAFETY: (1) the callers list the parameters of their kernels; (2) parts and jobs lie in the
    // arrays of a batch whose sizes were compared with these arrays, whose row pointers and columns
    // were checked, on the host or by a kernel; the places that `pack_fill` writes to were laid out
    // from what `pack_measure` found for the same jobs; shared memory is for the largest job;
    // (3) all buffers are of this executor, by the types; (4) outputs are borrowed exclusively; the
    // columns that lie with the values are the same buffer, in places of their own.
    unsafe {
        executor.launch(&key, config, args)
    }
}
