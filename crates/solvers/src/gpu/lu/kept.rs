//! Factors that stay on the device: the programs of `lu_factor` and `lu_kept`, and their launches.

use sparsebatch_spmv_gpu::{
    Args, DeviceInfo, Executor, KernelBuffer, KernelKey, LaunchConfig, Value,
};

use super::graph::Graph;
use super::program::{Program, Workers};
use super::rows::{CHUNK, RECORD_WORDS, RowPrograms};
use super::shape::{CHAINS, LANES, RESERVED_BYTES, Schedule};
use crate::SolveError;

/// Threads of a multiprocessor at the registers that the kernel may use.
const RESIDENT_THREADS: u32 = 512;

/// Chunks of a warp's ring.
const STAGES: usize = 8;

/// The fewest items side by side.
const LEAST_GROUP: usize = 4;

/// Rows up to which a small block solves.
const FEW_ROWS: usize = 32;

/// What stays on the device between a factorisation and the solves with it.
pub(super) struct Kept<E: Executor, T: Value> {
    pub(super) factor: KernelKey,
    pub(super) solve: KernelKey,
    /// Of the factorisation.
    words: E::Buffer<u32>,
    starts: E::Buffer<u32>,
    /// Places of what is kept, in the order of its use.
    order: E::Buffer<u16>,
    first_of_a: u32,
    /// Of the solve.
    parts: E::Buffer<u32>,
    records: E::Buffer<u32>,
    values: E::Buffer<T>,
    shape: Shape,
    factored: Factored,
}

/// Whose factors there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factored {
    /// Nobody's.
    None,
    /// One matrix that all items have.
    Shared,
    /// The matrices of the first items.
    Items(usize),
}

/// How items stand side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Items side by side.
    group: usize,
    threads: u32,
    shared_bytes: u32,
    resident: u32,
}

impl Shape {
    fn choose(
        nrows: usize,
        value_bytes: usize,
        (nitems, nrhs): (usize, usize),
        info: &DeviceInfo,
    ) -> Result<Self, SolveError> {
        let threads = if nrows <= FEW_ROWS { 64 } else { 256 };
        let warps = (threads / LANES) as usize;
        let multiprocessors = info.multiprocessors.max(1) as usize;
        let shape = |group: usize| {
            let chunk = CHUNK * group * value_bytes + RECORD_WORDS * 4;
            let vectors = (2 * nrows + 1) * (group + 1) * value_bytes;
            let sums = (CHAINS as usize + 1) * 8 * group;
            let bytes = warps * STAGES * chunk + vectors.next_multiple_of(8) + sums;
            let of_all = u64::from(info.shared_bytes_per_multiprocessor);
            let most = of_all / (bytes as u64 + RESERVED_BYTES);
            let resident = (most as u32).min(RESIDENT_THREADS / threads);
            let fits = bytes <= info.shared_bytes_per_block as usize && resident > 0;
            fits.then_some(Self { group, threads, shared_bytes: bytes as u32, resident })
        };
        // As many groups as there are multiprocessors, and more before they get larger.
        let mut group = LANES as usize;
        while group > LEAST_GROUP && nitems.div_ceil(group).saturating_mul(nrhs) < multiprocessors {
            group /= 2;
        }
        // The fewest rounds of all multiprocessors, of the largest groups.
        let groups = std::iter::successors(Some(group), |&g| (g > LEAST_GROUP).then_some(g / 2));
        let shapes = groups.map(shape);
        let rounds = |shape: &Self| {
            let blocks = nitems.div_ceil(shape.group).saturating_mul(nrhs);
            blocks.div_ceil(multiprocessors * shape.resident as usize)
        };
        shapes.flatten().min_by_key(rounds).ok_or(SolveError::Unsupported {
            what: "kept factors of a system whose vectors exceed the shared memory of a block",
            instead: "solve with factorisation",
        })
    }
}

impl<E: Executor, T: Value> Kept<E, T> {
    /// Programs, and memory for factors and matrices.
    pub(super) fn new(
        executor: &E,
        schedule: &Schedule,
        (nitems, nrhs): (usize, usize),
    ) -> Result<Self, SolveError> {
        let (pattern, places, grid) = (&schedule.pattern, schedule.places, schedule.grid);
        let info = executor.info();
        let shape = Shape::choose(pattern.nrows(), size_of::<T>(), (nitems, nrhs), info)?;
        let rows = RowPrograms::new(
            pattern,
            places,
            (shape.threads / LANES) as usize,
            shape.group as u32 + 1,
        );
        let workers = Workers {
            warps: (grid.threads / LANES) as usize,
            slots: (LANES / grid.systems) as usize,
        };
        let (mut words, mut starts) = (Vec::new(), Vec::new());
        let program = Program::elimination(&Graph::factorisation(pattern), workers);
        program.append(grid.systems, places, &mut words, &mut starts);

        let factor = KernelKey::new("lu", format!("lu_factor<{}, {}>", T::CPP, grid.threads));
        let solve = format!("lu_kept<{}, {}, {}>", T::CPP, shape.threads, shape.group);
        let solve = KernelKey::new("lu_kept", solve);
        executor.prepare(&[factor.clone(), solve.clone()])?;
        let groups = nitems.div_ceil(shape.group);
        Ok(Self {
            factor,
            solve,
            words: executor.upload(&words)?,
            starts: executor.upload(&starts)?,
            order: executor.upload(&rows.order)?,
            first_of_a: rows.first_of_a,
            parts: executor.upload(&rows.parts)?,
            records: executor.upload(&rows.records)?,
            // Lanes without an item read too, and use nothing of it.
            values: executor.alloc_zeroed(groups * shape.group * rows.order.len())?,
            shape,
            factored: Factored::None,
        })
    }

    /// Items whose factors there are, at most `nitems`.
    pub(super) fn items(&self, nitems: usize) -> usize {
        match self.factored {
            Factored::None => 0,
            Factored::Shared => nitems,
            Factored::Items(items) => items,
        }
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        let words = self.words.len() + self.starts.len();
        let words = words + self.parts.len() + self.records.len();
        (words * 4 + self.order.len() * 2 + self.values.len() * size_of::<T>()) as u64
    }

    /// Appends what `lu_factor` wants after its queue.
    pub(super) fn pass_to_factor<'a>(&'a mut self, args: &mut Args<'a>) {
        args.input(&self.words)
            .input(&self.starts)
            .output(&mut self.values)
            .scalar(self.shape.group as u32)
            .scalar(self.first_of_a)
            .input(&self.order)
            .scalar(self.order.len() as u32);
    }

    /// Notes whose factors there are.
    pub(super) fn note(&mut self, factored: Factored) {
        self.factored = factored;
    }

    /// Items that are factored where all have the matrix of one: each of a group by itself.
    pub(super) fn group(&self) -> usize {
        self.shape.group
    }

    /// The first arguments of `lu_kept`, up to the programs.
    pub(super) fn pass_to_solve<'a>(
        &'a self,
        args: &mut Args<'a>,
        nitems: usize,
        nrows: usize,
        nrhs: usize,
    ) {
        let stride = (self.order.len() * self.shape.group) as u64;
        args.scalar(nitems as u32)
            .scalar(nrows as u32)
            .scalar(nrhs as u32)
            .input(&self.values)
            .scalar(if self.factored == Factored::Shared { 0 } else { stride })
            .input(&self.parts)
            .input(&self.records);
    }

    /// The launch for so many items.
    pub(super) fn config(&self, nitems: usize, nrhs: usize, info: &DeviceInfo) -> LaunchConfig {
        let turns = nitems.div_ceil(self.shape.group).saturating_mul(nrhs);
        let most = info.multiprocessors.max(1) * self.shape.resident;
        let blocks = (turns.min(most as usize) as u32).max(1);
        LaunchConfig {
            shared_bytes: self.shape.shared_bytes,
            ..LaunchConfig::linear(blocks, self.shape.threads)
        }
    }
}
