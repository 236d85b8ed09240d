//! Factors that stay on the device: the programs of `lu_factor` and `lu_kept`, and their launches.

use sparsebatch_cpu_ref::symbolic::{FactorPattern, NO_SOURCE};
use sparsebatch_spmv_gpu::{
    Args, DeviceInfo, Executor, KernelBuffer, KernelKey, LaunchConfig, Value,
};

use super::graph::{Graph, NONE, Places};
use super::program::{Program, Workers};
use super::shape::{CHAINS, LANES, RESERVED_BYTES, Schedule};
use crate::SolveError;

/// See `lu_kept.cu`: factors that arrive between two barriers, and products whose columns stand together.
const CHUNK: usize = 16;
const TOGETHER: usize = 8;

/// Threads of a multiprocessor at the registers that the kernel may use.
const RESIDENT_THREADS: u32 = 512;

/// Rows up to which a small block solves.
const FEW_ROWS: usize = 32;

/// What stays on the device between a factorisation and the solves with it.
pub(super) struct Kept<E: Executor, T: Value> {
    pub(super) factor: KernelKey,
    pub(super) solve: KernelKey,
    /// Of the factorisation.
    words: E::Buffer<u32>,
    starts: E::Buffer<u32>,
    /// Places of the factors in the order of their use.
    order: E::Buffer<u16>,
    /// Of the substitution.
    steps: E::Buffer<u32>,
    nsteps: u32,
    /// Of the residual.
    products: E::Buffer<u32>,
    product_starts: E::Buffer<u32>,
    product_rows: E::Buffer<u32>,
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
    stages: usize,
    shared_bytes: u32,
    resident: u32,
    /// Values kept of each item: factors, from `first_of_a` on A.
    entries: usize,
    first_of_a: usize,
}

/// Forward and backward substitution as one stream of factors.
struct Stream {
    order: Vec<u16>,
    steps: Vec<u32>,
    nsteps: u32,
}

impl Stream {
    /// In the order in which a whole solve makes the same sums.
    fn new(graph: &Graph, places: Places) -> Self {
        let (mut order, mut steps, mut nsteps) = (Vec::new(), Vec::new(), 0);
        for target in graph.targets.iter().filter(|target| target.place >= places.y) {
            let products = &graph.products[target.products.clone()];
            let divides = target.divisor != NONE;
            order.extend(divides.then_some(target.divisor as u16));
            order.extend(products.iter().map(|product| product.left as u16));
            head(&mut steps, target.place - places.y, products.len(), u32::from(divides));
            columns(&mut steps, products.iter().map(|product| product.right - places.y));
            nsteps += 1;
        }
        // Words are asked for ahead.
        steps.extend([0; 4]);
        Self { order, steps, nsteps }
    }
}

/// A row that is summed up: `detail` is what the kernel's comment says.
fn head(words: &mut Vec<u32>, row: u32, products: usize, detail: u32) {
    words.extend([row | (products as u32) << 16, detail, 0, 0]);
}

fn columns(words: &mut Vec<u32>, columns: impl Iterator<Item = u32>) {
    let begin = words.len();
    for (k, column) in columns.enumerate() {
        if k % 2 == 0 {
            words.push(column);
        } else if let Some(last) = words.last_mut() {
            *last |= column << 16;
        }
    }
    let len = words.len() - begin;
    words.resize(begin + len.next_multiple_of(TOGETHER / 2), 0);
}

/// The rows of A: for each the first entry, and columns in the order of elimination.
fn rows(pattern: &FactorPattern) -> Vec<(usize, Vec<u32>)> {
    let mut entries: Vec<Vec<(u32, u32)>> = vec![Vec::new(); pattern.nrows()];
    for (position, &row) in pattern.perm().iter().enumerate() {
        for k in pattern.lower(position).start..pattern.upper(position).end {
            if pattern.source()[k] != NO_SOURCE {
                entries[row as usize].push((pattern.source()[k], pattern.cols()[k]));
            }
        }
    }
    let row = |entries: &mut Vec<(u32, u32)>| {
        entries.sort_unstable();
        let first = entries.first().map_or(0, |entry| entry.0 as usize);
        (first, entries.iter().map(|entry| entry.1).collect())
    };
    entries.iter_mut().map(row).collect()
}

/// The rows of the residual of each warp: words, where those of a warp begin in fours, how many rows.
fn products(pattern: &FactorPattern, warps: usize) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let rows = rows(pattern);
    let mut longest_first: Vec<usize> = (0..rows.len()).collect();
    longest_first.sort_by_key(|&row| std::cmp::Reverse(rows[row].1.len()));
    let mut lists = vec![(0, Vec::new()); warps];
    for row in longest_first {
        let least = (0..warps).min_by_key(|&warp| lists[warp].0).unwrap_or(0);
        lists[least].0 += 4 + rows[row].1.len();
        lists[least].1.push(row);
    }
    let (mut words, mut starts, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (_, own) in &lists {
        starts.push(words.len() as u32 / 4);
        counts.push(own.len() as u32);
        for &row in own {
            let (first, cols) = &rows[row];
            head(&mut words, row as u32, cols.len(), *first as u32);
            columns(&mut words, cols.iter().copied());
        }
    }
    (words, starts, counts)
}

impl Shape {
    fn choose(
        pattern: &FactorPattern,
        nnz: usize,
        nfactors: usize,
        value_bytes: usize,
        (nitems, nrhs): (usize, usize),
        info: &DeviceInfo,
    ) -> Result<Self, SolveError> {
        let nrows = pattern.nrows();
        let first_of_a = (nfactors + TOGETHER).next_multiple_of(CHUNK);
        let entries = (first_of_a + nnz).next_multiple_of(TOGETHER);
        let threads = if nrows <= FEW_ROWS { 64 } else { 256 };
        let multiprocessors = info.multiprocessors.max(1) as usize;
        let shape = |group: usize, stages: usize| {
            let values = stages * CHUNK * group + 2 * nrows * (group + 1);
            let bytes =
                (values * value_bytes).next_multiple_of(8) + (CHAINS as usize + 1) * 8 * group;
            let of_all = u64::from(info.shared_bytes_per_multiprocessor);
            let most = of_all / (bytes as u64 + RESERVED_BYTES);
            let resident = (most as u32).min(RESIDENT_THREADS / threads);
            let fits = bytes <= info.shared_bytes_per_block as usize && resident > 0;
            let shared_bytes = bytes as u32;
            fits.then_some(Self {
                group,
                threads,
                stages,
                shared_bytes,
                resident,
                entries,
                first_of_a,
            })
        };
        // As many groups as there are multiprocessors, and more before they get larger.
        let mut group = LANES as usize;
        while group > 2 && nitems.div_ceil(group).saturating_mul(nrhs) < multiprocessors {
            group /= 2;
        }
        let groups =
            |group: usize| std::iter::successors(Some(group), |&g| (g > 2).then_some(g / 2));
        let found = groups(group).find_map(|group| {
            let (deep, shallow) = (shape(group, 8), shape(group, 4));
            let blocks = nitems.div_ceil(group).saturating_mul(nrhs);
            let waves = |shape: &Self| blocks.div_ceil(multiprocessors * shape.resident as usize);
            match (deep, shallow) {
                (Some(deep), Some(shallow)) if waves(&shallow) >= waves(&deep) => Some(deep),
                (_, shallow) => shallow,
            }
        });
        found.ok_or(SolveError::Unsupported {
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
        nnz: usize,
        (nitems, nrhs): (usize, usize),
    ) -> Result<Self, SolveError> {
        let (pattern, places, grid) = (&schedule.pattern, schedule.places, schedule.grid);
        let stream = Stream::new(&Graph::new(pattern), places);
        let info = executor.info();
        let nfactors = stream.order.len();
        let shape = Shape::choose(pattern, nnz, nfactors, size_of::<T>(), (nitems, nrhs), info)?;

        let workers = Workers {
            warps: (grid.threads / LANES) as usize,
            slots: (LANES / grid.systems) as usize,
        };
        let (mut words, mut starts) = (Vec::new(), Vec::new());
        let program = Program::elimination(&Graph::factorisation(pattern), workers);
        program.append(grid.systems, places, &mut words, &mut starts);
        let (products, product_starts, product_rows) =
            products(pattern, (shape.threads / LANES) as usize);

        let factor = KernelKey::new("lu", format!("lu_factor<{}, {}>", T::CPP, grid.threads));
        let solve = format!("lu_kept<{}, {}, {}>", T::CPP, shape.threads, shape.stages);
        let solve = KernelKey::new("lu_kept", solve);
        executor.prepare(&[factor.clone(), solve.clone()])?;
        let groups = nitems.div_ceil(shape.group);
        Ok(Self {
            factor,
            solve,
            words: executor.upload(&words)?,
            starts: executor.upload(&starts)?,
            order: executor.upload(&stream.order)?,
            steps: executor.upload(&stream.steps)?,
            nsteps: stream.nsteps,
            products: executor.upload(&products)?,
            product_starts: executor.upload(&product_starts)?,
            product_rows: executor.upload(&product_rows)?,
            // What pads the factors is read, though not used.
            values: executor.alloc_zeroed(groups * shape.group * shape.entries)?,
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
        let words = self.words.len() + self.starts.len() + self.steps.len() + self.products.len();
        (words * 4 + self.order.len() * 2 + self.values.len() * size_of::<T>()) as u64
    }

    /// Appends what `lu_factor` wants after its queue.
    pub(super) fn pass_to_factor<'a>(&'a mut self, args: &mut Args<'a>) {
        args.input(&self.words)
            .input(&self.starts)
            .output(&mut self.values)
            .scalar(self.shape.group as u32)
            .scalar(self.shape.entries as u32)
            .scalar(self.shape.first_of_a as u32)
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

    /// The first arguments of `lu_kept`, up to the rows of the residual.
    pub(super) fn pass_to_solve<'a>(
        &'a self,
        args: &mut Args<'a>,
        nitems: usize,
        nrows: usize,
        nrhs: usize,
    ) {
        let stride = (self.shape.entries * self.shape.group) as u64;
        args.scalar(nitems as u32)
            .scalar(self.shape.group as u32)
            .scalar(nrows as u32)
            .scalar(nrhs as u32)
            .input(&self.values)
            .scalar(if self.factored == Factored::Shared { 0 } else { stride })
            .scalar(self.shape.first_of_a as u32)
            .input(&self.steps)
            .scalar(self.nsteps)
            .input(&self.products)
            .input(&self.product_starts)
            .input(&self.product_rows);
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
