//! The one error type of this crate.

use sparsebatch_formats::FormatError;
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solve_core::symbolic::SymbolicError;

/// Why a product, a plan or a batched solve was refused. Nothing is written to an output then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// A vector or value array has another length than the matrix and the options ask for.
    #[error("{what} has {found} entries, expected {expected}")]
    Length {
        /// The array, by its name in the call.
        what: &'static str,
        /// The length asked for.
        expected: usize,
        /// The length given.
        found: usize,
    },
    /// An option is outside its range, or two options exclude each other.
    #[error("{name} is {found}, expected {expected}")]
    Parameter {
        /// The option.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        found: String,
    },
    /// A list of items or systems names one that there is not.
    #[error("only[{position}] is {found}, expected a number below {limit}")]
    Number {
        /// The place in the list.
        position: usize,
        /// The number there.
        found: usize,
        /// How many there are.
        limit: usize,
    },
    /// A list of items or systems does not ascend, or names one twice.
    #[error(
        "only[{position}] is {found}, expected more than the number before: ascending, each once"
    )]
    NotAscending {
        /// The place in the list.
        position: usize,
        /// The number there.
        found: usize,
    },
    /// A plan is used with another matrix than it was made for: rows and columns of what it keeps
    /// would not be those of the matrix.
    #[error("item {item} has another pattern than the one that the plan was made for")]
    OtherPattern {
        /// The first such item.
        item: usize,
    },
    /// A solve was asked for of an item that the plan leaves out.
    #[error("item {item} is not among those that the plan was made for")]
    NotPlanned {
        /// The first such item.
        item: usize,
    },
    /// The process was forked after its threads had started: a fork takes one thread along, and
    /// waiting for the others would never end. A child process that has to compute builds a pool of
    /// its own and calls from within it (`rayon::ThreadPool::install`), or is started anew.
    #[error(
        "the threads of process {parent} are not in process {child}, which was forked from it: \
         expected a call from within a thread pool of its own, or a new process"
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
    /// A matrix or batch could not be brought into the format asked for.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl From<ArgumentError> for CpuError {
    fn from(error: ArgumentError) -> Self {
        match error {
            ArgumentError::Length { what, expected, found } => {
                Self::Length { what, expected, found }
            }
            ArgumentError::OutOfRange { name, expected, found } => {
                Self::Parameter { name, expected, found }
            }
        }
    }
}

/// Checks the length of an array.
pub(crate) fn check_len(what: &'static str, expected: usize, found: usize) -> Result<(), CpuError> {
    if expected == found { Ok(()) } else { Err(CpuError::Length { what, expected, found }) }
}

/// Checks numbers of items or systems: ascending, each once, below `limit`.
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
