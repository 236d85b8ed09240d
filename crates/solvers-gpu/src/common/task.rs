//! The arguments of a plan, and checks that refuse what it does not support.

use sparsebatch_cuda::{KernelBuffer, Pod};
use sparsebatch_formats::{
    Batch, BatchValues, CsrPattern, CsrPatternRef, Layout, Pattern, RaggedCsr, Scalar, UniformBatch,
};
use sparsebatch_solve_core::{
    ArgumentError, Engine, Krylov, Method, Preconditioner, SolveOptions, check_len,
};

use crate::GpuSolveError;

/// Largest number of systems of a launch: the kernel's 32-bit count of systems runs somewhat beyond
/// it.
const MAX_SYSTEMS: usize = 4_000_000_000;

/// What the solution vector holds before a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guess {
    /// Nothing: solves start from 0.
    Zero,
    /// Initial guesses.
    InX,
}

/// How the arrays of a uniform batch are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layouts {
    /// The values of the matrices, unless all items share them.
    pub values: Layout,
    /// Right-hand sides and solutions.
    pub vectors: Layout,
}

impl Layouts {
    /// The layout of the values of `batch`; vectors item-major.
    pub(crate) fn of<P: Pattern, T: Scalar>(batch: &UniformBatch<P, T>) -> Self {
        let values = match batch.values() {
            BatchValues::Interleaved(_) => Layout::Interleaved,
            BatchValues::ItemMajor(_) | BatchValues::Shared(_) => Layout::ItemMajor,
        };
        Self { values, vectors: Layout::ItemMajor }
    }
}

/// The lengths of the arrays of a solve.
#[derive(Clone, Copy)]
pub(crate) struct ArraySizes {
    pub(crate) nitems: usize,
    pub(crate) nrhs: usize,
    /// Number of values of all items.
    pub(crate) values: usize,
    /// Number of values of one item, if all items may share them.
    pub(crate) shared: Option<usize>,
    /// Number of values of `b` and of `x`.
    pub(crate) rows: usize,
}

/// Strides in the arrays of a solve: from item to item (1 where a bin holds the offsets of its
/// items), from value to value, from row to row.
#[derive(Clone, Copy)]
pub(crate) struct Strides {
    pub(crate) item: u64,
    pub(crate) value: u64,
    pub(crate) row: u64,
}

/// Offsets of the items of one pattern in their arrays.
pub(crate) struct UniformPlaces {
    pub(crate) sizes: ArraySizes,
    pub(crate) steps: Strides,
    /// Strides from the first value, and from the first row, of an item to that of the next.
    values: u64,
    rows: u64,
}

impl UniformPlaces {
    /// The offsets of `nitems` items in arrays of these layouts; refuses what no plan supports.
    pub(crate) fn new(
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        nrhs: usize,
        layouts: Layouts,
    ) -> Result<Self, GpuSolveError> {
        let nnz = pattern.nnz();
        check_square(0, pattern)?;
        count_systems(nitems, nrhs)?;
        let of_item = pattern.nrows() * nrhs;
        let (values, rows) = (nnz * nitems, of_item * nitems);
        let sizes = ArraySizes { nitems, nrhs, values, shared: Some(nnz), rows };
        let step = |layout| if layout == Layout::Interleaved { nitems as u64 } else { 1 };
        let (value, row) = (step(layouts.values), step(layouts.vectors));
        // An interleaved batch of one item is item-major.
        let item = if value == 1 && row == 1 { nnz as u64 } else { 1 };
        Ok(Self {
            sizes,
            steps: Strides { item, value, row },
            values: if value == 1 { nnz as u64 } else { 1 },
            rows: if row == 1 { of_item as u64 } else { 1 },
        })
    }

    /// Whether the data of each item is contiguous.
    pub(crate) fn is_item_major(&self) -> bool {
        self.steps.value == 1 && self.steps.row == 1
    }

    /// The offset of the first value of an item.
    pub(crate) fn value(&self, item: u32) -> u64 {
        u64::from(item) * self.values
    }

    /// The offset of the first row of an item.
    pub(crate) fn row(&self, item: u32) -> u64 {
        u64::from(item) * self.rows
    }
}

/// The sizes of the arrays of a ragged batch; refuses what no plan supports.
pub(crate) fn ragged_sizes<T: Scalar>(
    batch: &RaggedCsr<T>,
    nrhs: usize,
) -> Result<ArraySizes, GpuSolveError> {
    let nitems = batch.nitems();
    for item in 0..nitems {
        check_square(item, batch.item(item).pattern())?;
    }
    count_systems(nitems, nrhs)?;
    let rows = batch.row_offsets().last().copied().unwrap_or(0) * nrhs;
    Ok(ArraySizes { nitems, nrhs, values: batch.total_nnz(), shared: None, rows })
}

/// Words of an item in the lists of [`item_words`].
pub(crate) const ITEM_WORDS: usize = 5;

/// What kernels read of an item of a batch: its class, where its values and its rows begin, its
/// number, and where its kept factors begin.
pub(crate) fn item_words(
    class: usize,
    [value, row]: [usize; 2],
    item: u32,
    kept: usize,
) -> [u64; ITEM_WORDS] {
    [class as u64, value as u64, row as u64, u64::from(item), kept as u64]
}

/// Where the values and the rows of an item of a ragged batch begin.
pub(crate) fn ragged_start<T: Scalar>(batch: &RaggedCsr<T>, nrhs: usize, item: u32) -> [usize; 2] {
    let place = item as usize;
    [batch.nnz_offsets()[place], batch.row_offsets()[place] * nrhs]
}

impl ArraySizes {
    /// Checks the lengths of the arrays of a solve; returns whether all items share their values.
    pub(crate) fn check<T: Pod>(
        &self,
        values: &impl KernelBuffer<T>,
        b: &impl KernelBuffer<T>,
        x: &impl KernelBuffer<T>,
    ) -> Result<bool, GpuSolveError> {
        let shared = self.shared == Some(values.len());
        if !shared {
            check_len("values", self.values, values.len())?;
        }
        check_len("b", self.rows, b.len())?;
        check_len("x", self.rows, x.len())?;
        Ok(shared && self.nitems > 1)
    }
}

/// Returns a batch of one pattern with item-major values; refuses others.
pub(crate) fn item_major<T: Scalar>(
    batch: &Batch<T>,
) -> Result<&UniformBatch<CsrPattern, T>, GpuSolveError> {
    match batch {
        Batch::Ragged(_) => Err(GpuSolveError::Unsupported {
            what: "a ragged batch",
            instead: "give systems of one pattern as a uniform batch",
        }),
        Batch::Uniform(uniform) if matches!(uniform.values(), BatchValues::Interleaved(_)) => {
            Err(GpuSolveError::Unsupported {
                what: "a batch of interleaved values",
                instead: "give them item-major",
            })
        }
        Batch::Uniform(uniform) => Ok(uniform),
    }
}

/// Whether `len` values are those of one item, shared by all. Refuses a `len` that is neither the
/// number of values of one item nor that of all.
pub(crate) fn shares_values(len: usize, nnz: usize, nitems: usize) -> Result<bool, GpuSolveError> {
    if len == nnz {
        return Ok(true);
    }
    check_len("values", nnz * nitems, len)?;
    Ok(false)
}

/// Refuses a pattern that is not square.
pub(crate) fn check_square(item: usize, pattern: CsrPatternRef<'_>) -> Result<(), GpuSolveError> {
    let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
    if nrows == ncols {
        Ok(())
    } else {
        Err(GpuSolveError::Argument(ArgumentError::NotSquare { item, nrows, ncols }))
    }
}

/// The number of systems of `nitems` items with `nrhs` right-hand sides each; refuses more than a
/// launch can count.
pub(crate) fn count_systems(nitems: usize, nrhs: usize) -> Result<usize, GpuSolveError> {
    let systems = nitems.saturating_mul(nrhs);
    if nrhs == 0 || systems > MAX_SYSTEMS {
        return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "nrhs",
            expected: "at least 1, and at most 4000000000 systems in all",
            found: nrhs.to_string(),
        }));
    }
    Ok(systems)
}

/// Refuses options that no plan supports.
pub(crate) fn check_common(options: &SolveOptions) -> Result<(), GpuSolveError> {
    let refuse = |what, instead| Err(GpuSolveError::Unsupported { what, instead });
    if options.engine != Engine::Fused {
        return refuse("a composed engine", "take the fused one");
    }
    if options.history {
        return refuse("the residual history", "take the composed solver, or solve on the CPU");
    }
    Ok(())
}

/// The method, and whether the preconditioner is Jacobi; refuses unsupported options.
pub(crate) fn check_supported(options: &SolveOptions) -> Result<(Krylov, bool), GpuSolveError> {
    let refuse = |what, instead| Err(GpuSolveError::Unsupported { what, instead });
    let method = match options.method {
        Method::Auto | Method::Cg => Krylov::Cg,
        Method::BiCgStab => Krylov::BiCgStab,
        Method::Lu | Method::PivotingLu | Method::Banded => {
            return refuse("a solver other than cg and bicgstab", "take one of these");
        }
    };
    check_common(options)?;
    match options.preconditioner {
        Preconditioner::None => Ok((method, false)),
        Preconditioner::Auto | Preconditioner::Jacobi => Ok((method, true)),
        Preconditioner::BlockJacobi { .. }
        | Preconditioner::Ilu0 { .. }
        | Preconditioner::Ic0 { .. } => {
            refuse("a preconditioner with factors by this plan", "take FactoredSolver")
        }
    }
}

/// Refuses more active items than there are items.
pub(crate) fn check_active(items: usize, nitems: usize) -> Result<(), GpuSolveError> {
    if items > nitems {
        check_len("active items", nitems, items)?;
    }
    Ok(())
}

/// Refuses a solution whose memory overlaps an input.
///
/// # Errors
/// [`GpuSolveError::Argument`].
pub fn check_apart<T: Pod>(
    input: &impl KernelBuffer<T>,
    x: &impl KernelBuffer<T>,
) -> Result<(), GpuSolveError> {
    if input.shares_memory_with(x) {
        return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "x",
            expected: "memory apart from values and b",
            found: "memory shared with them".to_owned(),
        }));
    }
    Ok(())
}
