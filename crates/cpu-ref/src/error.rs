//! The one error type of this crate.

use sparsebatch_formats::FormatError;
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solve_core::symbolic::SymbolicError;

/// Why a product, a plan or a batched solve was refused. No output is written in that case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// An array, an option or a matrix does not fit.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// An index in a list of items or systems is out of range.
    #[error("only[{position}] is {found}, expected a number below {limit}")]
    Number {
        /// The place in the list.
        position: usize,
        /// The number there.
        found: usize,
        /// Number of items or systems.
        limit: usize,
    },
    /// A list of items or systems is not strictly ascending.
    #[error("only[{position}] is {found}, expected strictly ascending numbers")]
    NotAscending {
        /// The place in the list.
        position: usize,
        /// The number there.
        found: usize,
    },
    /// A plan is used with a matrix whose pattern differs from the one the plan was made for. The
    /// indices that the plan keeps would be wrong.
    #[error("item {item} has another pattern than the one that the plan was made for")]
    OtherPattern {
        /// The first such item.
        item: usize,
    },
    /// A solve was requested for an item that the plan leaves out.
    #[error("item {item} is not among the items that the plan was made for")]
    NotPlanned {
        /// The first such item.
        item: usize,
    },
    /// The process was forked after its threads had started: the child has only the thread that
    /// forked, and waiting for the others would never end. A child process that has to compute
    /// builds its own pool and calls from within it (`rayon::ThreadPool::install`), or is started
    /// anew.
    #[error(
        "process {child} was forked from process {parent} and lacks its threads: expected a call \
         from within a thread pool of its own, or a new process"
    )]
    Forked {
        /// The process in which the threads were first used.
        parent: u32,
        /// This process.
        child: u32,
    },
    /// A pattern could not be ordered or factorised.
    #[error(transparent)]
    Symbolic(#[from] SymbolicError),
    /// A matrix or batch could not be converted to the requested format.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Checks that item or system indices are strictly ascending and below `limit`.
pub(crate) fn check_numbers(numbers: &[usize], limit: usize) -> Result<(), CpuError> {
    let mut previous = None;
    for (position, &found) in numbers.iter().enumerate() {
        if found >= limit {
            return Err(CpuError::Number { position, found, limit });
        }
        if previous.is_some_and(|previous| found <= previous) {
            return Err(CpuError::NotAscending { position, found });
        }
        previous = Some(found);
    }
    Ok(())
}
