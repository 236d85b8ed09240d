//! [`ItemList`]: what belongs to some items of a batch, packed into small arrays and back.

use std::ops::Range;

use sparsebatch_cuda::{
    Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Pod, Value,
};
use sparsebatch_formats::{Batch, Pattern, Scalar};
use sparsebatch_solve_core::{ArgumentError, check_len};

use super::kernels::ITEMS;
use crate::GpuSolveError;

const THREADS: u32 = 256;

/// Where the items of a batch have their values and rows, in item-major arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemExtents {
    /// Items of one pattern: the values and rows of each.
    Equal {
        /// Number of items.
        nitems: usize,
        /// Values of an item.
        nnz: usize,
        /// Rows of an item.
        nrows: usize,
    },
    /// Items of any patterns: offsets of their values and rows, with the totals at the end.
    Ragged {
        /// Offsets of values.
        values: Vec<usize>,
        /// Offsets of rows.
        rows: Vec<usize>,
    },
}

impl ItemExtents {
    /// The extents of the items of a batch, whatever the layout of its values.
    pub fn of<T: Scalar>(batch: &Batch<T>) -> Self {
        match batch {
            Batch::Uniform(uniform) => {
                let pattern = uniform.pattern();
                let (nnz, nrows) = (pattern.nnz(), pattern.nrows());
                Self::Equal { nitems: uniform.nitems(), nnz, nrows }
            }
            Batch::Ragged(ragged) => Self::Ragged {
                values: ragged.nnz_offsets().to_vec(),
                rows: ragged.row_offsets().to_vec(),
            },
        }
    }

    /// The number of items.
    pub fn nitems(&self) -> usize {
        match self {
            Self::Equal { nitems, .. } => *nitems,
            Self::Ragged { rows, .. } => rows.len().saturating_sub(1),
        }
    }

    /// The number of values of all items together.
    pub fn total_values(&self) -> usize {
        self.start_of(ItemArray::Values, self.nitems(), 1)
    }

    /// The number of rows of all items together.
    pub fn total_rows(&self) -> usize {
        self.start_of(ItemArray::Rows, self.nitems(), 1)
    }

    /// The number of rows of an item.
    pub fn rows_of(&self, item: usize) -> usize {
        let start = |item| self.start_of(ItemArray::Rows, item, 1);
        start(item + 1) - start(item)
    }

    /// The rows of a system, the `system % nrhs`-th of an item, in an array of all rows.
    pub fn rows_of_system(&self, system: usize, nrhs: usize) -> Range<usize> {
        let item = system / nrhs;
        let nrows = self.rows_of(item);
        let first = self.start_of(ItemArray::Rows, item, nrhs) + system % nrhs * nrows;
        first..first + nrows
    }

    /// The elements of an item in an array of those of all, with `nrhs` right-hand sides.
    pub fn span_of(&self, array: ItemArray, item: usize, nrhs: usize) -> Range<usize> {
        self.start_of(array, item, nrhs)..self.start_of(array, item + 1, nrhs)
    }

    /// Where the elements of an item begin in an array, or at the end of all where they would.
    fn start_of(&self, array: ItemArray, item: usize, nrhs: usize) -> usize {
        match (self, array) {
            (_, ItemArray::Systems) => item * nrhs,
            (Self::Equal { nnz, .. }, ItemArray::Values) => item * nnz,
            (Self::Equal { nrows, .. }, ItemArray::Rows) => item * nrows * nrhs,
            (Self::Ragged { values, .. }, ItemArray::Values) => {
                values.get(item).copied().unwrap_or(0)
            }
            (Self::Ragged { rows, .. }, ItemArray::Rows) => {
                rows.get(item).copied().unwrap_or(0) * nrhs
            }
        }
    }
}

/// What an array of a batch holds for each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemArray {
    /// The values of its matrix.
    Values,
    /// Its rows, for each right-hand side.
    Rows,
    /// One element for each right-hand side.
    Systems,
}

/// Some items of a batch on the device, to copy what belongs to them.
pub struct ItemList<E: Executor> {
    executor: E,
    nitems: usize,
    values: Spans<E>,
    rows: Spans<E>,
    systems: Spans<E>,
}

/// The elements of the items in an array of the batch and in a packed one.
struct Spans<E: Executor> {
    /// Where each item begins in the array of the batch, and the length of that.
    firsts: E::Buffer<u64>,
    all: usize,
    /// Where each item begins in the packed array, with its length at the end.
    packed: E::Buffer<u64>,
    len: usize,
}

impl<E: Executor> Spans<E> {
    fn new(
        executor: &E,
        array: ItemArray,
        items: &[usize],
        extents: &ItemExtents,
        nrhs: usize,
    ) -> Result<Self, GpuError> {
        let start = |item: usize| extents.start_of(array, item, nrhs);
        let firsts: Vec<u64> = items.iter().map(|&item| start(item) as u64).collect();
        let mut packed = vec![0; items.len() + 1];
        for (place, &item) in items.iter().enumerate() {
            packed[place + 1] = packed[place] + (start(item + 1) - start(item)) as u64;
        }
        Ok(Self {
            firsts: executor.upload(&firsts)?,
            all: start(extents.nitems()),
            len: packed[items.len()] as usize,
            packed: executor.upload(&packed)?,
        })
    }

    /// Threads that copy an item.
    fn width(&self) -> u32 {
        width_of(self.len, self.firsts.len())
    }
}

impl<E: Executor + Clone> ItemList<E> {
    /// Compiles the kernels for the values of `T`, so that later copies need not.
    ///
    /// # Errors
    /// [`GpuError::Compile`] and the like.
    pub fn prepare<T: Value>(executor: &E) -> Result<(), GpuError> {
        let types = [T::CPP_NAME, u8::CPP_NAME, u32::CPP_NAME, f64::CPP_NAME];
        let mut keys: Vec<KernelKey> = Vec::new();
        for of in types {
            for name in ["pack_items", "unpack_items"] {
                let key = KernelKey::new(&ITEMS, format!("{name}<{of}>"));
                // Only values and rows are packed.
                let is_used = name == "unpack_items" || of == T::CPP_NAME;
                if is_used && !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        executor.prepare(&keys)
    }

    /// The given items, in ascending order, of a batch with `nrhs` right-hand sides each.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for an item that the batch does not have or that does not follow
    /// the one before, [`GpuSolveError::Gpu`] when memory is short.
    pub fn new(
        executor: &E,
        items: &[usize],
        extents: &ItemExtents,
        nrhs: usize,
    ) -> Result<Self, GpuSolveError> {
        check_ascending("items", items.iter().copied(), extents.nitems())?;
        let spans = |array| Spans::new(executor, array, items, extents, nrhs);
        Ok(Self {
            values: spans(ItemArray::Values)?,
            rows: spans(ItemArray::Rows)?,
            systems: spans(ItemArray::Systems)?,
            nitems: items.len(),
            executor: executor.clone(),
        })
    }

    /// The number of elements of these items in an array.
    pub fn len(&self, array: ItemArray) -> usize {
        self.spans(array).len
    }

    /// Bytes of the list on the device.
    pub fn bytes(&self) -> u64 {
        (3 * 8 * (2 * self.nitems + 1)) as u64
    }

    fn spans(&self, array: ItemArray) -> &Spans<E> {
        match array {
            ItemArray::Values => &self.values,
            ItemArray::Rows => &self.rows,
            ItemArray::Systems => &self.systems,
        }
    }

    /// Copies the elements of these items, item by item, to `packed`. Returns before the launch is
    /// done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, [`GpuSolveError::Gpu`] when the launch
    /// is refused.
    pub fn pack<T: Pod>(
        &self,
        array: ItemArray,
        all: &E::Buffer<T>,
        packed: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.check(array, all, packed)?;
        let spans = self.spans(array);
        let mut args = Args::new();
        args.scalar(self.nitems as u64)
            .scalar(spans.width())
            .input(&spans.firsts)
            .input(&spans.packed)
            .input(all)
            .output(packed);
        self.launch(format!("pack_items<{}>", T::CPP_NAME), &mut args, spans)
    }

    /// Overwrites the elements of these items by those in `packed`. Returns before the launch is done.
    ///
    /// # Errors
    /// Those of [`ItemList::pack`].
    pub fn unpack<T: Pod>(
        &self,
        array: ItemArray,
        packed: &E::Buffer<T>,
        all: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.check(array, all, packed)?;
        let spans = self.spans(array);
        let mut args = Args::new();
        args.scalar(self.nitems as u64)
            .scalar(spans.width())
            .input(&spans.firsts)
            .input(&spans.packed)
            .input(packed)
            .output(all);
        self.launch(format!("unpack_items<{}>", T::CPP_NAME), &mut args, spans)
    }

    /// The elements of these items, item by item. Waits.
    ///
    /// # Errors
    /// Those of [`ItemList::pack`].
    pub fn gather<T: Value>(
        &self,
        array: ItemArray,
        all: &E::Buffer<T>,
    ) -> Result<Vec<T>, GpuSolveError> {
        let mut packed = self.executor.alloc(self.len(array))?;
        self.pack(array, all, &mut packed)?;
        Ok(self.executor.download(&packed)?)
    }

    /// Overwrites the elements of these items, given item by item. Waits.
    ///
    /// # Errors
    /// Those of [`ItemList::pack`].
    pub fn scatter<T: Pod>(
        &self,
        array: ItemArray,
        packed: &[T],
        all: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let packed = self.executor.upload(packed)?;
        self.unpack(array, &packed, all)?;
        // `packed` must outlive the launch.
        Ok(self.executor.synchronize()?)
    }

    fn check<T: Pod>(
        &self,
        array: ItemArray,
        all: &E::Buffer<T>,
        packed: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let (all_name, packed_name) = match array {
            ItemArray::Values => ("values", "values of the items"),
            ItemArray::Rows => ("rows", "rows of the items"),
            ItemArray::Systems => ("systems", "systems of the items"),
        };
        check_len(all_name, self.spans(array).all, all.len())?;
        Ok(check_len(packed_name, self.spans(array).len, packed.len())?)
    }

    #[expect(unsafe_code, reason = "a launch")]
    fn launch(
        &self,
        expression: String,
        args: &mut Args<'_>,
        spans: &Spans<E>,
    ) -> Result<(), GpuSolveError> {
        if spans.len == 0 {
            return Ok(());
        }
        let config = linear(&self.executor, self.nitems, spans.width());
        let key = KernelKey::new(&ITEMS, expression);
        // SAFETY: the arguments are those of `pack_items` or `unpack_items`; `check` compared the
        // lengths of both arrays with the ends of their spans, which do not overlap, since items are
        // in ascending order; the two arrays are different buffers.
        unsafe { self.executor.launch(&key, config, args) }?;
        Ok(())
    }
}

/// Refuses numbers that are not below `end` or that do not ascend.
pub(super) fn check_ascending(
    name: &'static str,
    numbers: impl Iterator<Item = usize>,
    end: usize,
) -> Result<(), GpuSolveError> {
    let mut before = None;
    for (place, number) in numbers.enumerate() {
        if number >= end || before.is_some_and(|before| number <= before) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name,
                expected: "numbers of the batch in ascending order",
                found: format!("{number} at place {place}, of {end}"),
            }));
        }
        before = Some(number);
    }
    Ok(())
}

/// Elements that are copied from one array on the device to another.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where they are.
    pub from: Range<usize>,
    /// The place of the first of them in the other array.
    pub to: usize,
}

/// Spans on the device, to copy them between arrays.
#[doc(hidden)]
pub struct SpanList<E: Executor> {
    executor: E,
    words: E::Buffer<u64>,
    count: usize,
    /// Elements of all spans.
    len: usize,
    /// The ends of the spans in the array that is read, and in the one that is written.
    ends: [usize; 2],
}

impl<E: Executor + Clone> SpanList<E> {
    /// Spans, which ascend in the array that is written, and do not overlap there.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for spans that do not; [`GpuError::OutOfMemory`].
    pub fn new(executor: &E, spans: &[Span]) -> Result<Self, GpuSolveError> {
        let mut end = 0;
        for (place, span) in spans.iter().enumerate() {
            if span.to < end || span.from.end < span.from.start {
                return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                    name: "spans",
                    expected: "spans in ascending order that do not overlap",
                    found: format!("{span:?} at place {place}"),
                }));
            }
            end = span.to + span.from.len();
        }
        let words: Vec<u64> = spans
            .iter()
            .flat_map(|span| [span.from.start as u64, span.to as u64, span.from.len() as u64])
            .collect();
        Ok(Self {
            executor: executor.clone(),
            words: executor.upload(&words)?,
            count: spans.len(),
            len: spans.iter().map(|span| span.from.len()).sum(),
            ends: [spans.iter().map(|span| span.from.end).max().unwrap_or(0), end],
        })
    }

    /// Copies the spans. Returns before the launch is done, which the list must outlive.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array is shorter than the spans; [`GpuSolveError::Gpu`]
    /// when the compiler fails or the launch is refused.
    #[expect(unsafe_code, reason = "a launch")]
    pub fn copy<T: Pod>(
        &self,
        from: &E::Buffer<T>,
        to: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        for (name, end, len) in [("from", self.ends[0], from.len()), ("to", self.ends[1], to.len())]
        {
            if end > len {
                return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                    name,
                    expected: "an array with all spans",
                    found: format!("{len} elements, spans up to {end}"),
                }));
            }
        }
        if self.len == 0 {
            return Ok(());
        }
        let width = width_of(self.len, self.count);
        let config = linear(&self.executor, self.count, width);
        let mut args = Args::new();
        args.scalar(self.count as u64).scalar(width).input(&self.words).input(from).output(to);
        let key = KernelKey::new(&ITEMS, format!("copy_spans<{}>", T::CPP_NAME));
        // SAFETY: the arguments are those of `copy_spans`; spans end within both arrays, which are
        // different buffers, and `new` found that they do not overlap where they are written.
        unsafe { self.executor.launch(&key, config, &mut args) }?;
        Ok(())
    }
}

/// Threads that copy one of `count` parts of `len` elements together: a power of two, so that few
/// of a warp are idle.
fn width_of(len: usize, count: usize) -> u32 {
    (len / count.max(1)).clamp(1, 32).next_power_of_two() as u32
}

/// The launch for `count` parts of `width` threads each.
fn linear<E: Executor>(executor: &E, count: usize, width: u32) -> LaunchConfig {
    let most = u64::from(8 * executor.info().multiprocessors.max(1));
    let threads = count as u64 * u64::from(width);
    LaunchConfig::linear(threads.div_ceil(THREADS.into()).min(most) as u32, THREADS)
}
