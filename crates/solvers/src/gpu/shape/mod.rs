//! How many threads solve a system, and where its values are kept meanwhile.

use sparsebatch_formats::CsrPatternRef;
use sparsebatch_spmv_gpu::{DeviceInfo, Executor, GpuError, KernelKey, LaunchConfig};

use super::pattern::{
    has_empty_column, places_a_row, share_of_neighbours, skewed, waiting, widths,
};
use super::task::FusedMethod;
use crate::SolveError;

/// Where the values of a system are during its solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValuePlace {
    /// In registers, up to nine entries a row: read from device memory once.
    Registers,
    /// In shared memory: read from device memory once.
    Shared,
    /// In device memory, through the caches, in every iteration.
    Global,
}

impl ValuePlace {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::Shared => "shared memory",
            Self::Global => "device memory",
        }
    }

    /// As the kernels number it.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Registers => 0,
            Self::Shared => 1,
            Self::Global => 2,
        }
    }
}

/// Choices that a plan makes by itself where they are left open. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTuning {
    /// Threads per system, a power of two from 2 to 1,024 (of each block of a cluster, from 32), and rows per
    /// thread; their product is at least the number of rows.
    pub group: Option<(u32, u32)>,
    /// Blocks that have a system together: 1, or 2, 4 or 8 from compute capability 9.0 on. Default: more than
    /// 1 for systems that are too large for a block.
    pub cluster: Option<u32>,
    /// Threads that share the entries of each row, which multiplies those of a system: 1, 2, 4 or 8,
    /// more than 1 where values are in shared memory and their columns not in registers.
    pub parts: Option<u32>,
    /// Where values are kept.
    pub values: Option<ValuePlace>,
    /// Vectors of BiCGStab in shared memory: 1, or 3 where registers are short.
    pub vectors: Option<u32>,
    /// Whether systems are few, or many: threads and rows of each go by it where that is quicker. Default: by how
    /// many of them a multiprocessor gets, few, some or many.
    pub few: Option<bool>,
    /// Whether iterations of f64 solves are in f32, where they may be. Default: where that is quicker.
    pub mixed: Option<bool>,
    /// Whether a thread owns rows side by side where it can, whose operands it then mostly has in
    /// registers. Default: where most rows have both neighbours.
    pub near: Option<bool>,
    /// Blocks that a multiprocessor is to hold: the compiler gives a thread as many registers as that
    /// leaves.
    pub resident: Option<u32>,
    /// The most blocks of the launch. Default: what the device can hold at once.
    pub max_blocks: Option<u32>,
}

/// The group of threads that solves a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shape {
    /// Threads per system that have rows of their own.
    pub(super) threads: u32,
    /// How many share the entries of each row; all have its parts of the vectors.
    pub(super) parts: u32,
    /// Rows per thread.
    pub(super) rows: u32,
    /// Entries a row whose columns are in registers; 0 where they are not.
    pub(super) width: u32,
    /// Where values are.
    pub(super) place: ValuePlace,
    /// Whether a thread owns rows side by side.
    pub(super) near: bool,
    /// Vectors in shared memory.
    pub(super) vectors: u32,
    /// Whether iterations are in f32, values in f64.
    pub(super) mixed: bool,
    /// Blocks per system that reach each other's shared memory; each has as many of the threads.
    pub(super) cluster: u32,
}

impl Shape {
    /// The shape for what iterations in f32 leave.
    pub(super) fn unmixed(self) -> Self {
        Self { mixed: false, ..self }
    }

    /// The bytes of a number in registers and in vectors.
    pub(super) fn work_bytes(&self, value_bytes: usize) -> usize {
        if self.mixed { size_of::<f32>() } else { value_bytes }
    }

    /// Threads per system.
    pub(super) fn team(&self) -> u32 {
        self.threads * self.parts
    }

    /// Those of them in one block.
    pub(super) fn team_of_block(&self) -> u32 {
        self.team() / self.cluster
    }

    /// Whether values are copied to shared memory.
    pub(super) fn keeps_in_shared(&self) -> bool {
        self.place == ValuePlace::Shared
    }

    /// The row in a slot, of `nrows`; no less where there is none.
    pub(super) fn row_in(&self, slot: usize, nrows: usize) -> usize {
        let (threads, rows) = (self.threads as usize, self.rows as usize);
        let (slices, of_block) = self.slices_and_threads_of_block(nrows);
        let (slice, thread) = (slot / threads, slot % threads);
        if self.near {
            thread * rows + slice
        } else if self.cluster > 1 && slice < slices {
            (thread / of_block * slices + slice) * of_block + thread % of_block
        } else {
            slot
        }
    }

    /// The slot of one of `nrows` rows.
    pub(super) fn slot_of(&self, row: usize, nrows: usize) -> usize {
        let (threads, rows) = (self.threads as usize, self.rows as usize);
        if self.near {
            row % rows * threads + row / rows
        } else if self.cluster > 1 {
            let (slices, of_block) = self.slices_and_threads_of_block(nrows);
            let (slice, block) = (row / of_block % slices, row / of_block / slices);
            slice * threads + block * of_block + row % of_block
        } else {
            row
        }
    }

    /// Slices that have rows, where the blocks of a cluster have them side by side, and threads of each.
    fn slices_and_threads_of_block(&self, nrows: usize) -> (usize, usize) {
        let threads = self.threads as usize;
        (nrows.div_ceil(threads).max(1), threads / self.cluster as usize)
    }

    /// The places of a row that are kept for the diagonal and neighbours.
    pub(super) fn own_places(&self) -> usize {
        match (self.width, self.near) {
            (0, _) => 0,
            (_, false) => 1,
            (_, true) => 3,
        }
    }
}

/// Groups in the order of their sizes: threads and rows of each.
type Table = &'static [(u32, u32)];

/// Few threads with many rows each beat many with few: their loads and sums overlap, and barriers
/// are cheaper.
const CHAINS: Table = &[(4, 4), (8, 4), (16, 4), (16, 8), (32, 8), (64, 8), (128, 8)];
/// With Jacobi 10,000 and 65,536 systems of 128 rows took 0.84 of the time of 16 threads each by BiCGStab, 0.94 and
/// 0.97 by CG.
const CHAINS_BY_JACOBI: Table = &[(4, 4), (8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
/// Where systems are few there is nothing to overlap with. 1,000 systems of 32 rows by CG took 0.79 of the
/// time of 8 threads each, 0.88 by BiCGStab, of 128 rows 0.79 by BiCGStab, on an NVIDIA H200; 4,000 of 32
/// rows 1.6 times as long.
const FEW_CHAINS: Table = &[(32, 1), (16, 4), (32, 4)];
/// Where all systems have room at once. 10,000 of 32 rows by CG took 0.70 of the time of 8 threads each, 0.80 with
/// Jacobi, 0.85 by BiCGStab, of 128 rows 0.93 by BiCGStab; 65,536 longer.
const SOME_CHAINS_BY_CG: Table = &[(4, 4), (4, 8)];
const SOME_CHAINS_BY_BICGSTAB: Table = &[(4, 4), (4, 8), (16, 4), (32, 4)];
/// Systems of a multiprocessor, up to which they are few, and up to which there are some.
const FEW_SYSTEMS: u64 = 8;
const SOME_SYSTEMS: u64 = 96;
const FIVE_A_ROW: Table = &[(8, 2), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
/// Random columns keep shared memory busy: values stay out of it as long as registers hold them.
const NINE_A_ROW: Table =
    &[(8, 2), (16, 2), (32, 2), (32, 4), (32, 5), (64, 4), (128, 4), (256, 4)];
const NINE_IN_SHARED: Table = &[(256, 8)];
const IN_SHARED: Table =
    &[(8, 2), (32, 2), (32, 4), (64, 4), (128, 4), (128, 8), (256, 8), (512, 8)];
/// Of iterations in f32, which take half of the registers: more rows a thread.
const CHAINS_IN_F32: Table = &[(8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (64, 16)];
/// BiCGStab with Jacobi has no registers for 16 rows: 10,000 systems of 1,024 took 0.74 of the time so, on an NVIDIA H200.
const CHAINS_IN_F32_BY_BICGSTAB_WITH_JACOBI: Table =
    &[(8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
const NINE_A_ROW_IN_F32: Table = &[(32, 2), (32, 4), (32, 5), (64, 4), (64, 8), (128, 8)];
/// Entries from which iterations in f32 are quicker, where systems are few and where they are not: below, what is
/// told in f64 of every system takes longer. 1,000 systems of 1,534 entries took 1.16 of the time by CG, of 3,070
/// 0.74; 10,000 of 94 entries 1.4, of 190 0.94, of 766 0.86, on an NVIDIA H200.
const MIXED_OF_FEW: usize = 2500;
const MIXED_OF_MANY: usize = 128;
const IN_GLOBAL: Table = &[(128, 8), (512, 8)];
/// Of all blocks of a cluster, which have [`THREADS_IN_CLUSTER`] each.
const CLUSTERS: Table = &[(1024, 8), (2048, 8), (4096, 8)];
const THREADS_IN_CLUSTER: u32 = 512;
/// For little systems whose rows have many entries, each shared by two threads: four systems of 22 to 54
/// rows took 0.55 to 0.75 of the time that four threads a row take, on an NVIDIA H200.
const LONG_ROWS: Table = &[(16, 1), (32, 1), (32, 2)];
const SHARERS: u32 = 2;
const LONG: usize = 12;

/// Where values may be, which entries a row the kernel has columns of in registers (0: those in
/// memory), whether threads own rows side by side, the groups for it, and how many threads share a row;
/// the first that fits is taken.
const PLACES: [(ValuePlace, u32, bool, Table, u32); 8] = [
    (ValuePlace::Registers, 3, true, CHAINS, 1),
    (ValuePlace::Registers, 5, true, FIVE_A_ROW, 1),
    (ValuePlace::Registers, 5, false, FIVE_A_ROW, 1),
    (ValuePlace::Registers, 9, false, NINE_A_ROW, 1),
    (ValuePlace::Shared, 9, false, NINE_IN_SHARED, 1),
    (ValuePlace::Shared, 0, false, LONG_ROWS, SHARERS),
    (ValuePlace::Shared, 0, false, IN_SHARED, 1),
    (ValuePlace::Global, 0, false, IN_GLOBAL, 1),
];

/// Threads own rows side by side where so many of them have both neighbours.
const MANY_NEIGHBOURS: f64 = 0.75;

/// The most rows of a system that a block has, and a cluster.
const MAX_ROWS: usize = 4096;
const MAX_ROWS_OF_CLUSTER: usize = 32_768;
/// The most blocks of a cluster on any device that has them.
const MAX_CLUSTER: u32 = 8;

/// The most rows of a system that [`FusedSolver`](super::FusedSolver) takes on a device: a block has 4,096, the
/// blocks of a cluster together 32,768, from compute capability 9.0 on.
pub fn most_rows(info: &DeviceInfo) -> usize {
    if has_clusters(info) { MAX_ROWS_OF_CLUSTER } else { MAX_ROWS }
}

fn has_clusters(info: &DeviceInfo) -> bool {
    info.compute_capability >= (9, 0)
}

/// Shared memory beside the groups' own: sums of the warps, in a cluster of those of all blocks.
fn reserved_bytes(shape: &Shape) -> u64 {
    if shape.cluster > 1 { 256 + 5 * 8 * u64::from(shape.team() / 32) } else { 1536 }
}

/// Values of a group, or of a block of it, in shared memory beside its vectors: the system's, or those of the
/// next one and its right-hand side.
pub(super) fn stored(shape: &Shape, places: usize, nnz: usize, value_bytes: usize) -> usize {
    match shape.place {
        // Values, and columns behind them.
        ValuePlace::Shared if shape.parts > 1 => nnz + (2 * nnz).div_ceil(value_bytes),
        ValuePlace::Registers => {
            skewed(shape.threads as usize * shape.rows as usize) + waiting(nnz)
        }
        ValuePlace::Shared => places / shape.cluster as usize,
        ValuePlace::Global => 0,
    }
}

/// Shared memory of one group, or of a block of it, in bytes: vectors, a 0 behind each, the solution where iterations are in
/// another precision, and what is stored beside them.
pub(super) fn group_bytes(shape: &Shape, stored: usize, value_bytes: usize) -> u64 {
    let vector = (shape.threads / shape.cluster * shape.rows) as usize + 1;
    let (vectors, work_bytes) = (shape.vectors as usize, shape.work_bytes(value_bytes));
    let beside = if shape.mixed { vectors * work_bytes + vector * value_bytes } else { 0 };
    (vectors * vector * work_bytes + beside + stored * value_bytes) as u64
}

/// Vectors that a method has in shared memory: in BiCGStab those used least too, where rows are many
/// or long.
fn vectors(
    method: FusedMethod,
    (threads, rows): (u32, u32),
    width: u32,
    mixed: bool,
    load: Load,
    tuning: &GpuTuning,
) -> u32 {
    match method {
        FusedMethod::Cg => 1,
        FusedMethod::BiCgStab => {
            let fit = match width {
                3 if mixed => true,
                9 if mixed => false,
                3 => load == Load::Few && rows <= 4,
                5 => rows <= 2,
                9 => threads >= 32 && rows == 4,
                _ => false,
            };
            tuning.vectors.unwrap_or(if fit { 1 } else { 3 })
        }
    }
}

/// How many systems a multiprocessor gets, which have something to overlap with or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Few,
    Some,
    Many,
}

impl Load {
    /// Of so many systems.
    pub(super) fn of(systems: usize, info: &DeviceInfo, tuning: &GpuTuning) -> Self {
        let each = (systems as u64).div_ceil(u64::from(info.multiprocessors.max(1)));
        match tuning.few {
            Some(true) => Self::Few,
            None if each <= FEW_SYSTEMS => Self::Few,
            None if each <= SOME_SYSTEMS => Self::Some,
            Some(false) | None => Self::Many,
        }
    }

    /// The groups for chains that it has beside those of [`CHAINS`].
    fn chains(self, method: FusedMethod, jacobi: bool) -> Table {
        match (self, method, jacobi) {
            (Self::Few, ..) => FEW_CHAINS,
            (Self::Some, FusedMethod::Cg, _) => SOME_CHAINS_BY_CG,
            (Self::Some, FusedMethod::BiCgStab, false) => SOME_CHAINS_BY_BICGSTAB,
            (Self::Some | Self::Many, ..) => &[],
        }
    }
}

/// Chooses the shape for the systems of a pattern, given how many there are of all patterns.
pub(super) fn choose(
    pattern: CsrPatternRef<'_>,
    (method, jacobi, wants_mixed): (FusedMethod, bool, bool),
    value_bytes: usize,
    load: Load,
    info: &DeviceInfo,
    tuning: &GpuTuning,
) -> Result<Shape, SolveError> {
    let nrows = pattern.nrows();
    if nrows > most_rows(info) {
        let what = match has_clusters(info) {
            false => "systems of more than 4096 rows",
            true => "systems of more than 32768 rows",
        };
        return Err(SolveError::Unsupported { what, instead: "solve them on the CPU" });
    }
    let usual = if nrows > MAX_ROWS { 2 } else { 1 };
    if tuning.cluster.unwrap_or(usual) > 1 {
        return choose_cluster(pattern, method, value_bytes, info, tuning);
    }
    let (longest, _) = widths(pattern, 1);
    let (plain, beside) = (places_a_row(pattern, 1), places_a_row(pattern, 3));
    let is_chain = share_of_neighbours(pattern) >= MANY_NEIGHBOURS;
    let is_whole = !has_empty_column(pattern);
    check_tuning(nrows, info, tuning)?;
    let from = |table: Table, mixed: bool| {
        let fits = |&&(threads, rows): &&(u32, u32)| (threads * rows) as usize >= nrows;
        let is_chain = table == CHAINS;
        let of_load = if is_chain && !mixed { load.chains(method, jacobi) } else { &[] };
        let table = match table {
            CHAINS if mixed && jacobi && method == FusedMethod::BiCgStab => {
                CHAINS_IN_F32_BY_BICGSTAB_WITH_JACOBI
            }
            CHAINS if mixed => CHAINS_IN_F32,
            CHAINS if jacobi => CHAINS_BY_JACOBI,
            NINE_A_ROW if mixed => NINE_A_ROW_IN_F32,
            table => table,
        };
        tuning.group.or_else(|| of_load.iter().chain(table).find(fits).copied())
    };
    let mean = pattern.nnz() / nrows.max(1);
    let quicker = pattern.nnz() >= if load == Load::Few { MIXED_OF_FEW } else { MIXED_OF_MANY };
    type Entry = (ValuePlace, u32, bool, Table, u32);
    let shape = |&(place, width, near, table, usual): &Entry, mixed: bool| {
        // Columns in registers leave the values in shared memory to rows that are about as long.
        let suits = match place {
            ValuePlace::Registers if near => {
                beside <= width as usize && tuning.near.unwrap_or(is_chain)
            }
            ValuePlace::Registers => plain <= width as usize,
            _ if usual > 1 => tuning.parts.map_or(mean >= LONG, |parts| parts > 1),
            _ => width == 0 || (longest >= 6 && plain <= width as usize),
        };
        // Padding multiplies there: what is not finite in a column that no row stores must not matter.
        if !suits || (width > 0 && !is_whole) || tuning.values.is_some_and(|only| only != place) {
            return None;
        }
        let (threads, rows) = from(table, mixed)?;
        let parts = if usual > 1 { tuning.parts.unwrap_or(usual) } else { 1 };
        // What threads share they have in registers.
        let vectors = if parts > 1 {
            1
        } else {
            vectors(method, (threads, rows), width, mixed, load, tuning)
        };
        let shape = Shape { threads, parts, rows, width, place, near, vectors, mixed, cluster: 1 };
        if shape.team() > info.max_threads_per_block
            || (parts == 1 && tuning.parts.is_some_and(|n| n > 1))
        {
            return None;
        }
        let stored = stored(&shape, places(pattern, &shape), pattern.nnz(), value_bytes);
        // A warp has at least so many groups.
        let groups = u64::from(32 / shape.team().min(32));
        // What iterations in f32 leave is solved in the same shape, with vectors in f64.
        let bytes = group_bytes(&shape, stored, value_bytes);
        let bytes = bytes.max(group_bytes(&shape.unmixed(), stored, value_bytes));
        let bytes = groups * bytes + reserved_bytes(&shape);
        // Places of columns in registers have 16 bits.
        let reached = width == 0 || groups == 1 || bytes <= 1 << 16;
        (reached && bytes <= u64::from(info.shared_bytes_per_block)).then_some(shape)
    };
    let wants_mixed = wants_mixed && tuning.mixed.unwrap_or(quicker);
    let either = |entry: &Entry| {
        let mixed = wants_mixed && entry.0 == ValuePlace::Registers;
        mixed.then(|| shape(entry, true)).flatten().or_else(|| shape(entry, false))
    };
    PLACES.iter().find_map(either).ok_or_else(|| no_place(pattern, tuning))
}

fn no_place(pattern: CsrPatternRef<'_>, tuning: &GpuTuning) -> SolveError {
    let (nrows, (longest, _)) = (pattern.nrows(), widths(pattern, 1));
    SolveError::Option {
        name: "tuning",
        expected: "a place that holds the values of a system",
        found: format!("{tuning:?} for {nrows} rows of up to {longest} entries"),
    }
}

/// Chooses the shape for systems that the blocks of a cluster have together: the fewest blocks whose shared
/// memory holds the values, or, where none does, the vectors.
fn choose_cluster(
    pattern: CsrPatternRef<'_>,
    method: FusedMethod,
    value_bytes: usize,
    info: &DeviceInfo,
    tuning: &GpuTuning,
) -> Result<Shape, SolveError> {
    check_tuning(pattern.nrows(), info, tuning)?;
    let only = tuning.group.map(|group| [group]);
    let groups = only.as_ref().map_or(CLUSTERS, |only| &only[..]);
    let fits = |&(place, (threads, rows)): &(ValuePlace, (u32, u32))| {
        let cluster = threads / THREADS_IN_CLUSTER.min(threads / 2);
        let cluster = tuning.cluster.unwrap_or(cluster);
        let (parts, width, near, mixed) = (1, 0, false, false);
        let vectors = vectors(method, (threads, rows), width, mixed, Load::Many, tuning);
        let shape = Shape { threads, parts, rows, width, place, near, vectors, mixed, cluster };
        let stored = stored(&shape, places(pattern, &shape), pattern.nnz(), value_bytes);
        let bytes = group_bytes(&shape, stored, value_bytes) + reserved_bytes(&shape);
        let is_right = tuning.values.is_none_or(|only| only == place)
            && tuning.parts.is_none_or(|parts| parts == 1)
            && (threads * rows) as usize >= pattern.nrows()
            && (tuning.group.is_some() || threads == cluster * THREADS_IN_CLUSTER)
            && shape.team_of_block() <= info.max_threads_per_block
            && bytes <= u64::from(info.shared_bytes_per_block);
        is_right.then_some(shape)
    };
    [ValuePlace::Shared, ValuePlace::Global]
        .into_iter()
        .flat_map(|place| groups.iter().map(move |&group| (place, group)))
        .find_map(|choice| fits(&choice))
        .ok_or_else(|| no_place(pattern, tuning))
}

/// The places that slices of a pattern take.
fn places(pattern: CsrPatternRef<'_>, shape: &Shape) -> usize {
    let threads = shape.threads as usize;
    let nrows = pattern.nrows();
    match shape.width {
        0 if shape.cluster > 1 => {
            let len = |slot: usize| match shape.row_in(slot, nrows) {
                row if row < nrows => pattern.row(row).len(),
                _ => 0,
            };
            let width = |slice: usize| (slice * threads..(slice + 1) * threads).map(len).max();
            (0..shape.rows as usize).filter_map(width).sum::<usize>() * threads
        }
        0 => widths(pattern, threads).1,
        width => (shape.threads * shape.rows * width) as usize,
    }
}

fn check_tuning(nrows: usize, info: &DeviceInfo, tuning: &GpuTuning) -> Result<(), SolveError> {
    let cluster = tuning.cluster.unwrap_or(1);
    let most = if has_clusters(info) { MAX_CLUSTER } else { 1 };
    let is_too_large = nrows > MAX_ROWS && tuning.cluster == Some(1);
    if !cluster.is_power_of_two() || cluster > most || is_too_large {
        return Err(SolveError::Option {
            name: "cluster",
            expected: "blocks that have a system together: 1 for up to 4096 rows, or 2, 4 or 8 from compute \
                       capability 9.0",
            found: format!("{cluster} for {nrows} rows"),
        });
    }
    if let Some((threads, rows)) = tuning.group {
        // Where the blocks are left open they are as large as usual.
        let blocks = match tuning.cluster {
            None if nrows > MAX_ROWS => (threads / THREADS_IN_CLUSTER).clamp(2, MAX_CLUSTER),
            _ => cluster,
        };
        let (least, rows_of_group) = match blocks {
            1 => (2, MAX_ROWS),
            _ => (32 * blocks, MAX_ROWS_OF_CLUSTER),
        };
        let most = info.max_threads_per_block.min(1024) * blocks;
        let is_group = threads.is_power_of_two() && (least..=most).contains(&threads);
        let holds = u64::from(threads) * u64::from(rows);
        if !is_group || holds < nrows as u64 || holds > rows_of_group as u64 {
            return Err(SolveError::Option {
                name: "group",
                expected: "a power of two of threads, with rows enough for the system",
                found: format!("{threads} threads of {rows} rows for {nrows}"),
            });
        }
    }
    if tuning.parts.is_some_and(|parts| !parts.is_power_of_two() || parts > 8) {
        return Err(SolveError::Option {
            name: "parts",
            expected: "1, 2, 4 or 8",
            found: format!("{:?}", tuning.parts),
        });
    }
    if tuning.vectors.is_some_and(|vectors| vectors != 1 && vectors != 3) {
        return Err(SolveError::Option {
            name: "vectors",
            expected: "1 or 3",
            found: format!("{:?}", tuning.vectors),
        });
    }
    if tuning.resident.is_some_and(|resident| resident == 0 || resident > 32) {
        return Err(SolveError::Option {
            name: "resident",
            expected: "1 to 32",
            found: format!("{:?}", tuning.resident),
        });
    }
    if tuning.max_blocks.is_some_and(|blocks| blocks == 0 || blocks > 1 << 20) {
        return Err(SolveError::Option {
            name: "max_blocks",
            expected: "1 to 1048576",
            found: format!("{:?}", tuning.max_blocks),
        });
    }
    Ok(())
}

/// A launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
}

/// As many blocks, in whole clusters, as the device holds at once, or as there is work for: they begin with a
/// system for each group, and take the others from a queue.
pub(super) fn grid<E: Executor>(
    executor: &E,
    key: &KernelKey,
    shape: &Shape,
    bytes_of_group: u64,
    systems: u64,
    tuning: &GpuTuning,
) -> Result<Grid, GpuError> {
    let (threads, cluster) = (shape.team_of_block().max(32), shape.cluster);
    let groups = u64::from(threads / shape.team_of_block());
    let shared_bytes = (bytes_of_group * groups) as u32;
    let config = LaunchConfig { shared_bytes, cluster, ..LaunchConfig::linear(cluster, threads) };
    let resident = if cluster > 1 {
        u64::from(executor.resident_clusters(key, config)?)
    } else {
        u64::from(executor.resident_blocks(key, config)?)
            * u64::from(executor.info().multiprocessors.max(1))
    };
    let most = u64::from(tuning.max_blocks.unwrap_or(u32::MAX) / cluster);
    let clusters = resident.min(systems.div_ceil(groups)).min(most).max(1) as u32;
    Ok(Grid { blocks: clusters * cluster, threads, shared_bytes })
}
