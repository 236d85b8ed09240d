//! Bins: the systems that one launch solves, and where their values and rows are.

use std::collections::BTreeMap;

use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, KernelKey, Value};
use sparsebatch_formats::CsrPatternRef;

use super::explain::FusedShape;
use super::kernels;
use super::pattern::Slices;
use super::shape::{FusedGrid, GpuTuning, GroupShape, Load, choose, grid, group_bytes, stored};
use crate::GpuSolveError;
use crate::common::{LaunchReport, LaunchShape};
use sparsebatch_solve_core::{Krylov, Scheme};

/// The items that share one pattern.
pub(super) struct Class<'a> {
    pub(super) pattern: CsrPatternRef<'a>,
    pub(super) items: Vec<u32>,
}

/// Where the values and rows of items are in the arrays of a batch.
pub(super) enum Addresses<'a> {
    /// Items of one pattern, one after the other: the kernel computes their offsets.
    Uniform,
    /// Offsets given by functions: of the first value, in units of the solve's stride, and of the
    /// first row of `b` and `x`.
    Scattered { value: &'a dyn Fn(u32) -> u64, row: &'a dyn Fn(u32) -> u64 },
}

/// What all bins of a plan have in common.
pub(super) struct Common<'a> {
    pub(super) scheme: Scheme,
    pub(super) method: Krylov,
    pub(super) jacobi: bool,
    /// Whether iterations are to run in f32 on values in f64.
    pub(super) mixed: bool,
    /// The features that solves are expected to use.
    pub(super) asked: Asked,
    pub(super) nrhs: usize,
    pub(super) addresses: Addresses<'a>,
    pub(super) load: Load,
    pub(super) tuning: &'a GpuTuning,
}

impl Common<'_> {
    fn is_scattered(&self) -> bool {
        matches!(self.addresses, Addresses::Scattered { .. })
    }
}

/// Optional features of a kernel that a solve may use.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// Initial guesses in `x`.
    pub(super) guesses: bool,
    /// A rounding floor.
    pub(super) floor: bool,
}

/// The variants of a launch's kernel, each compiled for the features in use only, to keep its code
/// small.
pub(super) struct Keys([KernelKey; 4]);

impl Keys {
    fn new(key: &KernelKey) -> Self {
        // The order is that of `FUSED_MAY` in fused_task.cuh.
        let options: [&[&str]; 4] =
            [&["-DFUSED_MAY=0"], &["-DFUSED_MAY=1"], &["-DFUSED_MAY=2"], &["-DFUSED_MAY=3"]];
        Self(options.map(|options| key.clone().with_options(options)))
    }

    pub(super) fn of(&self, asked: Asked) -> &KernelKey {
        &self.0[usize::from(asked.guesses) + 2 * usize::from(asked.floor)]
    }
}

/// The systems that one launch solves.
pub(super) struct Bin<E: Executor> {
    pub(super) keys: Keys,
    pub(super) grid: FusedGrid,
    pub(super) systems: u32,
    /// Rows of each system, if all have one pattern.
    pub(super) nrows: u32,
    /// Entries of each system, if all have one pattern.
    pub(super) entries: u32,
    /// Number of values that each group keeps in shared memory beside its vectors.
    pub(super) stored: u32,
    pub(super) starts: E::Buffer<u32>,
    pub(super) firsts: E::Buffer<u32>,
    pub(super) columns: E::Buffer<u16>,
    pub(super) order: E::Buffer<u16>,
    /// The offsets of each item, and the sizes of each pattern; both empty where the kernel
    /// computes them.
    pub(super) items: E::Buffer<u64>,
    pub(super) patterns: E::Buffer<u64>,
    pub(super) queue: E::Buffer<u32>,
    pub(super) rest: Option<Rest<E>>,
    pub(super) explain: LaunchReport,
    /// Blocks that solve one system together.
    pub(super) cluster: u32,
}

/// The launch for the systems that iterations in f32 left unsolved.
pub(super) struct Rest<E: Executor> {
    pub(super) keys: Keys,
    pub(super) grid: FusedGrid,
    /// The number of these systems, 0 between solves, then their numbers in the queue.
    pub(super) left: E::Buffer<u32>,
}

impl<E: Executor> Bin<E> {
    /// The kernels of the bin's launches.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Keys> {
        std::iter::once(&self.keys).chain(self.rest.as_ref().map(|rest| &rest.keys))
    }

    /// Bytes of the queue and of the list of systems left.
    pub(super) fn workspace_bytes(&self) -> u64 {
        let left = self.rest.as_ref().map_or(0, |rest| rest.left.len());
        4 * (self.queue.len() + left) as u64
    }

    /// Bytes on the device of patterns and of the items' offsets.
    pub(super) fn pattern_bytes(&self) -> u64 {
        let words = 4 * (self.starts.len() + self.firsts.len());
        let halves = 2 * (self.columns.len() + self.order.len());
        (words + halves + 8 * (self.items.len() + self.patterns.len())) as u64
    }
}

/// Sorts classes into bins of one kernel each; where values are in shared memory, the systems of a
/// bin also have about one size. Within a bin, classes are in descending order of size: the largest
/// systems begin first, and a group seldom meets another pattern. The bin with the most entries
/// comes first and keeps the device busy while the others are launched. Then come those with the
/// fewest entries. They have few systems per group, and share the device better with the large bins
/// after them than with one another at the end. BiCGStab on the mix of twelve families took 1.49 ms
/// in this order and 1.58 ms in the order of sizes, on an NVIDIA H200.
pub(super) fn bins<E: Executor, T: Value>(
    executor: &E,
    classes: Vec<Class<'_>>,
    common: &Common<'_>,
) -> Result<Vec<Bin<E>>, GpuSolveError> {
    let mut by_shape: BTreeMap<(GroupShape, u32), Vec<(Class<'_>, Slices)>> = BTreeMap::new();
    for class in classes {
        let info = executor.info();
        let Common { method, jacobi, mixed, load, tuning, .. } = *common;
        let how = (method, jacobi, mixed);
        let shape = choose(class.pattern, how, size_of::<T>(), load, info, tuning)?;
        let slices = Slices::new(class.pattern, &shape, shape.work_bytes(size_of::<T>()));
        let about = if shape.keeps_in_shared() { slices.len().max(1).ilog2() } else { 0 };
        by_shape.entry((shape, about)).or_default().push((class, slices));
    }
    let entries = |(class, _): &(Class<'_>, Slices)| class.pattern.nnz() * class.items.len();
    let mut together: Vec<_> = by_shape.into_iter().map(|((shape, _), bin)| (shape, bin)).collect();
    together.sort_by_key(|(_, bin)| bin.iter().map(entries).sum::<usize>());
    if let Some(most) = together.pop() {
        together.insert(0, most);
    }
    let kernels = |(shape, _): &(GroupShape, Vec<_>)| {
        let rest = shape.mixed.then(|| keys::<T>(&shape.unmixed(), true, common));
        (keys::<T>(shape, false, common), rest)
    };
    let kernels: Vec<(Keys, Option<Keys>)> = together.iter().map(kernels).collect();
    let all = kernels.iter().flat_map(|(keys, rest)| std::iter::once(keys).chain(rest));
    prepare(executor, all, common.asked)?;
    together
        .into_iter()
        .zip(kernels)
        .map(|((shape, bin), kernels)| upload::<E, T>(executor, shape, kernels, bin, common))
        .collect()
}

/// Compiles the kernels for the features in `asked`.
pub(super) fn prepare<'a, E: Executor>(
    executor: &E,
    keys: impl Iterator<Item = &'a Keys>,
    asked: Asked,
) -> Result<(), GpuError> {
    let mut all: Vec<KernelKey> = Vec::new();
    for key in keys.map(|keys| keys.of(asked)) {
        if !all.contains(key) {
            all.push(key.clone());
        }
    }
    executor.prepare(&all)
}

/// The arrays of a bin on the host.
#[derive(Default)]
struct BinArrays {
    /// The slices of all classes, class after class.
    slices: Slices,
    /// The offsets of each item, and the sizes of each pattern; both empty where the kernel
    /// computes them.
    items: Vec<u64>,
    patterns: Vec<u64>,
}

impl BinArrays {
    /// Concatenates the arrays of some classes.
    fn of(classes: &[(Class<'_>, Slices)], addresses: &Addresses<'_>) -> Self {
        let mut all = Self::default();
        for (number, (class, slices)) in (0u64..).zip(classes) {
            if let Addresses::Scattered { value, row } = addresses {
                let (nrows, nnz) = (class.pattern.nrows() as u64, class.pattern.nnz() as u64);
                let of_pattern = [nrows | nnz << 32, all.slices.columns.len() as u64];
                all.patterns.extend(of_pattern);
                let words = |&item: &u32| {
                    let [sizes, place] = of_pattern;
                    [u64::from(item) | number << 32, value(item), row(item), sizes, place]
                };
                all.items.extend(class.items.iter().flat_map(words));
            }
            all.slices.starts.extend_from_slice(&slices.starts);
            all.slices.firsts.extend_from_slice(&slices.firsts);
            all.slices.columns.extend_from_slice(&slices.columns);
            all.slices.order.extend_from_slice(&slices.order);
        }
        all
    }
}

/// How much work a bin has.
struct BinSizes {
    systems: usize,
    patterns: usize,
    /// The most rows, entries and places that a pattern has.
    nrows: usize,
    nnz: usize,
    places: usize,
    /// Places of all patterns that are not entries.
    padding: usize,
}

impl BinSizes {
    fn of(classes: &[(Class<'_>, Slices)], nrhs: usize) -> Self {
        let nitems: usize = classes.iter().map(|(class, _)| class.items.len()).sum();
        let entries: usize = classes.iter().map(|(class, _)| class.pattern.nnz()).sum();
        let places: usize = classes.iter().map(|(_, slices)| slices.len()).sum();
        let largest =
            |size: fn(&(Class<'_>, Slices)) -> usize| classes.iter().map(size).max().unwrap_or(0);
        Self {
            systems: nitems * nrhs,
            patterns: classes.len(),
            nrows: largest(|(class, _)| class.pattern.nrows()),
            nnz: largest(|(class, _)| class.pattern.nnz()),
            places: largest(|(_, slices)| slices.len()),
            padding: places - entries,
        }
    }
}

/// Uploads a bin, with its kernels and those for the systems that iterations in f32 leave.
fn upload<E: Executor, T: Value>(
    executor: &E,
    shape: GroupShape,
    (keys, rest_keys): (Keys, Option<Keys>),
    mut classes: Vec<(Class<'_>, Slices)>,
    common: &Common<'_>,
) -> Result<Bin<E>, GpuSolveError> {
    classes.sort_by_key(|(class, _)| std::cmp::Reverse(class.pattern.nnz()));
    let BinArrays { slices, items, patterns } = BinArrays::of(&classes, &common.addresses);
    let sizes = BinSizes::of(&classes, common.nrhs);
    let systems = sizes.systems;
    let bytes = size_of::<T>();
    let stored = stored(&shape, sizes.places, sizes.nnz, bytes);
    let grid = |keys: &Keys, shape: &GroupShape| {
        let bytes = group_bytes(shape, stored, bytes);
        grid(executor, keys.of(common.asked), shape, bytes, systems as u64, common.tuning)
    };
    let rest = |keys| {
        let grid = grid(&keys, &shape.unmixed())?;
        Ok::<_, GpuSolveError>(Rest { keys, grid, left: executor.alloc_zeroed(1 + systems)? })
    };
    let rest = rest_keys.map(rest).transpose()?;
    let grid = grid(&keys, &shape)?;
    Ok(Bin {
        explain: report(&shape, grid, &sizes, &keys, common),
        keys,
        grid,
        systems: systems as u32,
        nrows: sizes.nrows as u32,
        entries: sizes.nnz as u32,
        stored: stored as u32,
        starts: executor.upload(&slices.starts)?,
        firsts: executor.upload(&slices.firsts)?,
        columns: executor.upload(&slices.columns)?,
        order: executor.upload(&slices.order)?,
        items: executor.upload(&items)?,
        patterns: executor.upload(&patterns)?,
        queue: executor.alloc_zeroed(2)?,
        rest,
        cluster: shape.cluster,
    })
}

/// What a solver reports about the launch of a bin.
fn report(
    shape: &GroupShape,
    grid: FusedGrid,
    sizes: &BinSizes,
    keys: &Keys,
    common: &Common<'_>,
) -> LaunchReport {
    LaunchReport {
        scheme: common.scheme,
        kernel: keys.of(common.asked).expression.clone(),
        systems: sizes.systems,
        patterns: sizes.patterns,
        nrows: sizes.nrows,
        nnz: sizes.nnz,
        threads_per_system: shape.team(),
        systems_per_block: (grid.threads / shape.team()).max(1),
        threads_per_block: grid.threads,
        blocks: grid.blocks,
        shared_bytes: grid.shared_bytes,
        shape: LaunchShape::Fused(FusedShape {
            threads_per_row: shape.parts,
            rows_per_thread: shape.rows,
            values: shape.place,
            vectors: shape.vectors,
            is_mixed: shape.mixed,
            padding: sizes.padding,
            blocks_per_system: shape.cluster,
        }),
    }
}

/// The kernels of a shape, for all systems or (`of_rest`) for those that iterations in f32 left.
fn keys<T: Value>(shape: &GroupShape, of_rest: bool, common: &Common<'_>) -> Keys {
    let &GroupShape { threads, parts, rows, width, place, near, vectors, mixed, cluster } = shape;
    let (place, jacobi, near) = (place.code(), u32::from(common.jacobi), u32::from(near));
    let mut parameters =
        format!("{}, {threads}, {rows}, {width}, {place}, {jacobi}, {near}", T::CPP);
    if common.method == Krylov::BiCgStab {
        parameters += &format!(", {vectors}");
    }
    // Trailing parameters that equal their defaults are left out.
    let resident = common.tuning.resident.filter(|_| !of_rest).unwrap_or(0);
    let work = if mixed { <f32 as Value>::CPP } else { T::CPP };
    let number = |value: u32, usual: u32| (value.to_string(), value == usual);
    let more = [
        number(u32::from(common.is_scattered()), 0),
        number(resident, 0),
        number(parts, 1),
        (work.to_owned(), !mixed),
        number(u32::from(of_rest), 0),
        number(cluster, 1),
    ];
    let count = more.iter().rposition(|(_, is_usual)| !is_usual).map_or(0, |last| last + 1);
    for (value, _) in &more[..count] {
        parameters += &format!(", {value}");
    }
    let module = match common.method {
        Krylov::Cg => &kernels::CG,
        Krylov::BiCgStab => &kernels::BICGSTAB,
    };
    Keys::new(&KernelKey::new(module, format!("{}<{parameters}>", module.name())))
}
