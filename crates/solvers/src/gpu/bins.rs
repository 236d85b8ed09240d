//! Bins: the systems that one launch solves, and where their numbers are.

use std::collections::BTreeMap;

use sparsebatch_formats::CsrPatternRef;
use sparsebatch_spmv_gpu::{Executor, KernelBuffer, KernelKey, Value};

use super::explain::GpuBin;
use super::pattern::Slices;
use super::shape::{GpuTuning, Grid, Shape, choose, grid};
use super::task::FusedMethod;
use crate::SolveError;

/// Items of one pattern.
pub(super) struct Class<'a> {
    pub(super) pattern: CsrPatternRef<'a>,
    pub(super) items: Vec<u32>,
}

/// Where the numbers of items are in the arrays of a batch.
pub(super) enum Addresses<'a> {
    /// Item after item, all of one pattern: the kernel computes it.
    Uniform,
    /// Wherever these functions say: the first value, in units of the solve's stride, and the first
    /// row of `b` and `x`.
    Scattered { value: &'a dyn Fn(u32) -> u64, row: &'a dyn Fn(u32) -> u64 },
}

/// What all bins of a plan have in common.
pub(super) struct Common<'a> {
    pub(super) method: FusedMethod,
    pub(super) jacobi: bool,
    pub(super) nrhs: usize,
    pub(super) addresses: Addresses<'a>,
    pub(super) tuning: &'a GpuTuning,
}

/// The systems that one launch solves.
pub(super) struct Bin<E: Executor> {
    pub(super) key: KernelKey,
    pub(super) grid: Grid,
    pub(super) systems: u32,
    /// Rows of each system, where all are of one pattern.
    pub(super) nrows: u32,
    /// Values of the longest pattern that are kept in shared memory.
    pub(super) stored: u32,
    pub(super) starts: E::Buffer<u32>,
    pub(super) firsts: E::Buffer<u32>,
    pub(super) columns: E::Buffer<u16>,
    pub(super) order: E::Buffer<u16>,
    /// Where each item is, and the sizes of each pattern; empty where the kernel computes them.
    pub(super) items: E::Buffer<u64>,
    pub(super) patterns: E::Buffer<u64>,
    pub(super) queue: E::Buffer<u32>,
    pub(super) explain: GpuBin,
}

impl<E: Executor> Bin<E> {
    /// Bytes of patterns, and of where items are, on the device.
    pub(super) fn pattern_bytes(&self) -> u64 {
        let words = 4 * (self.starts.len() + self.firsts.len());
        let halves = 2 * (self.columns.len() + self.order.len());
        (words + halves + 8 * (self.items.len() + self.patterns.len())) as u64
    }
}

/// Brings classes into bins of one kernel each, where values are in shared memory also of about one
/// size, those with the most entries first; within a bin, classes in the order of their sizes, so that
/// the largest systems begin first and a group seldom meets another pattern.
pub(super) fn bins<E: Executor, T: Value>(
    executor: &E,
    classes: Vec<Class<'_>>,
    common: &Common<'_>,
) -> Result<Vec<Bin<E>>, SolveError> {
    let mut by_shape: BTreeMap<(Shape, u32), Vec<(Class<'_>, Slices)>> = BTreeMap::new();
    for class in classes {
        let info = executor.info();
        let shape = choose(class.pattern, common.method, size_of::<T>(), info, common.tuning)?;
        let slices = Slices::new(class.pattern, &shape, size_of::<T>());
        let about = if shape.keeps_in_shared() { slices.len().max(1).ilog2() } else { 0 };
        by_shape.entry((shape, about)).or_default().push((class, slices));
    }
    let entries = |(class, _): &(Class<'_>, Slices)| class.pattern.nnz() * class.items.len();
    let mut together: Vec<_> = by_shape.into_iter().map(|((shape, _), bin)| (shape, bin)).collect();
    together.sort_by_key(|(_, bin)| std::cmp::Reverse(bin.iter().map(entries).sum::<usize>()));
    together.into_iter().map(|(shape, bin)| upload::<E, T>(executor, shape, bin, common)).collect()
}

/// A bin on the device.
fn upload<E: Executor, T: Value>(
    executor: &E,
    shape: Shape,
    mut classes: Vec<(Class<'_>, Slices)>,
    common: &Common<'_>,
) -> Result<Bin<E>, SolveError> {
    classes.sort_by_key(|(class, _)| std::cmp::Reverse(class.pattern.nnz()));
    let mut all = Slices::default();
    let (mut items, mut patterns) = (Vec::new(), Vec::new());
    for (number, (class, slices)) in (0u64..).zip(&classes) {
        if let Addresses::Scattered { value, row } = common.addresses {
            patterns.extend([class.pattern.nrows() as u64, all.columns.len() as u64]);
            let words = |&item: &u32| [u64::from(item) | number << 32, value(item), row(item)];
            items.extend(class.items.iter().flat_map(words));
        }
        all.starts.extend_from_slice(&slices.starts);
        all.firsts.extend_from_slice(&slices.firsts);
        all.columns.extend_from_slice(&slices.columns);
        all.order.extend_from_slice(&slices.order);
    }
    let largest =
        |size: &dyn Fn(&(Class<'_>, Slices)) -> usize| classes.iter().map(size).max().unwrap_or(0);
    let longest = largest(&|(_, slices)| slices.len());
    let nitems: usize = classes.iter().map(|(class, _)| class.items.len()).sum();
    let systems = nitems * common.nrhs;
    let bytes = size_of::<T>();
    let grid = grid(&shape, longest, bytes, systems as u64, executor.info(), common.tuning);
    let scattered = matches!(common.addresses, Addresses::Scattered { .. });
    let key = key::<T>(&shape, common, scattered);
    executor.prepare(std::slice::from_ref(&key))?;
    let entries: usize = classes.iter().map(|(class, _)| class.pattern.nnz()).sum();
    let explain = GpuBin {
        kernel: key.expression.clone(),
        systems,
        patterns: classes.len(),
        nrows: largest(&|(class, _)| class.pattern.nrows()),
        nnz: largest(&|(class, _)| class.pattern.nnz()),
        threads_per_system: shape.threads,
        rows_per_thread: shape.rows,
        values: shape.place,
        vectors: shape.vectors,
        padding: all.len() - entries,
        systems_per_block: grid.threads / shape.threads,
        threads_per_block: grid.threads,
        blocks: grid.blocks,
        shared_bytes: grid.shared_bytes,
    };
    Ok(Bin {
        key,
        grid,
        systems: systems as u32,
        nrows: explain.nrows as u32,
        stored: if shape.keeps_in_shared() { longest as u32 } else { 0 },
        starts: executor.upload(&all.starts)?,
        firsts: executor.upload(&all.firsts)?,
        columns: executor.upload(&all.columns)?,
        order: executor.upload(&all.order)?,
        items: executor.upload(&items)?,
        patterns: executor.upload(&patterns)?,
        queue: executor.alloc_zeroed(2)?,
        explain,
    })
}

/// The kernel of a shape.
fn key<T: Value>(shape: &Shape, common: &Common<'_>, scattered: bool) -> KernelKey {
    let &Shape { threads, rows, width, place, vectors } = shape;
    let (place, jacobi) = (place.code(), u32::from(common.jacobi));
    let mut parameters = format!("{}, {threads}, {rows}, {width}, {place}, {jacobi}", T::CPP);
    if common.method == FusedMethod::BiCgStab {
        parameters += &format!(", {vectors}");
    }
    if scattered {
        parameters += ", 1";
    }
    let module = common.method.name();
    KernelKey::new(module, format!("{module}<{parameters}>"))
}
