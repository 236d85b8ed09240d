//! Error codes, and the messages that go with them.

use std::any::Any;
use std::ffi::CStr;

use sparsebatch::cpu::CpuError;
use sparsebatch::gpu::{GpuError, GpuSolveError};
use sparsebatch::{ArgumentError, FormatError, SolveError};

/// What a function returns: `SB_OK`, or why it did nothing. `sb_last_error` has a message of one
/// line. Systems that do not converge are no error.
pub type sb_status = i32;

/// Done.
pub const SB_OK: i32 = 0;
/// An argument or an option is out of range, or an array has another length than expected.
pub const SB_ERROR_ARGUMENT: i32 = 1;
/// Index arrays that are no CSR matrix, more systems or entries than can be counted, or a format
/// that would take far more memory than the matrix.
pub const SB_ERROR_FORMAT: i32 = 2;
/// The library does not do this; the message says what it does instead.
pub const SB_ERROR_UNSUPPORTED: i32 = 3;
/// Memory of the host or of the GPU did not suffice. Nothing was launched.
pub const SB_ERROR_OUT_OF_MEMORY: i32 = 4;
/// No usable GPU, or the GPU, its driver or the compiler of the kernels failed.
pub const SB_ERROR_GPU: i32 = 5;
/// A solve with kept matrices without a call of `sb_solver_factor` before it, or a report before
/// the first solve.
pub const SB_ERROR_NOT_FACTORED: i32 = 6;
/// The solve was stopped by `sb_solver_stop`.
pub const SB_ERROR_STOPPED: i32 = 7;
/// A fault of the library. The object cannot be used any more; destroy it.
pub const SB_ERROR_INTERNAL: i32 = 8;
/// A handle that is NULL, was destroyed, or is no handle of this kind.
pub const SB_ERROR_BAD_HANDLE: i32 = 9;
/// Another call uses the object at this moment.
pub const SB_ERROR_BUSY: i32 = 10;
/// The process was forked from one that has used the library, and lacks its threads.
pub const SB_ERROR_FORKED: i32 = 11;
/// Ranks of MPI did not come, differ, or one of them failed; the message names it and its host.
pub const SB_ERROR_RANKS: i32 = 12;

/// The codes with their names.
const NAMES: &[&CStr] = &[
    c"SB_OK",
    c"SB_ERROR_ARGUMENT",
    c"SB_ERROR_FORMAT",
    c"SB_ERROR_UNSUPPORTED",
    c"SB_ERROR_OUT_OF_MEMORY",
    c"SB_ERROR_GPU",
    c"SB_ERROR_NOT_FACTORED",
    c"SB_ERROR_STOPPED",
    c"SB_ERROR_INTERNAL",
    c"SB_ERROR_BAD_HANDLE",
    c"SB_ERROR_BUSY",
    c"SB_ERROR_FORKED",
    c"SB_ERROR_RANKS",
];

/// The name of a code, of constants of the header.
pub(crate) fn name_of(status: sb_status) -> Option<&'static CStr> {
    NAMES.get(usize::try_from(status).ok()?).copied()
}

/// Why a call did nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: sb_status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: sb_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(SB_ERROR_ARGUMENT, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(SB_ERROR_UNSUPPORTED, message)
    }

    /// Of a panic, which is a fault of the library.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "without a message".to_owned());
        Self::new(SB_ERROR_INTERNAL, format!("a fault of the library, please report it: {text}"))
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        let status = match error.innermost() {
            FormatError::Memory { .. } | FormatError::MemoryLimit { .. } => SB_ERROR_OUT_OF_MEMORY,
            FormatError::Length { .. } | FormatError::Parameter { .. } => SB_ERROR_ARGUMENT,
            _ => SB_ERROR_FORMAT,
        };
        Self::new(status, error.to_string())
    }
}

impl From<CpuError> for Failure {
    fn from(error: CpuError) -> Self {
        match error {
            CpuError::Format(error) => error.into(),
            CpuError::Argument(error) => error.into(),
            CpuError::Forked { .. } => Self::new(
                SB_ERROR_FORKED,
                format!("{error}; in C, create a context with a number of threads"),
            ),
            _ => Self::argument(error.to_string()),
        }
    }
}

impl From<GpuError> for Failure {
    fn from(error: GpuError) -> Self {
        let status = match error {
            GpuError::OutOfMemory { .. } => SB_ERROR_OUT_OF_MEMORY,
            GpuError::Format { .. } => SB_ERROR_FORMAT,
            GpuError::Length { .. }
            | GpuError::InvalidArgument { .. }
            | GpuError::OtherPattern { .. } => SB_ERROR_ARGUMENT,
            _ => SB_ERROR_GPU,
        };
        Self::new(status, error.to_string())
    }
}

/// The names of options in C, where they differ from those of the library.
const OPTIONS: &[(&str, &str)] =
    &[("rel_tol", "rtol"), ("abs_tol", "atol"), ("max_iters", "maxiter"), ("solver", "method")];

/// The name of an option in C.
pub(crate) fn in_c(name: &str) -> &str {
    OPTIONS.iter().find(|(other, _)| *other == name).map_or(name, |(_, in_c)| in_c)
}

impl From<ArgumentError> for Failure {
    fn from(mut error: ArgumentError) -> Self {
        if let ArgumentError::OutOfRange { name, .. } | ArgumentError::Length { what: name, .. } =
            &mut error
        {
            *name = in_c(name);
        }
        Self::argument(error.to_string())
    }
}

impl From<SolveError> for Failure {
    fn from(error: SolveError) -> Self {
        let message = error.to_string();
        match error {
            SolveError::Cpu(error) => error.into(),
            SolveError::Argument(error) => error.into(),
            SolveError::Gpu(error) => error.into(),
            SolveError::NotFactored => Self::new(
                SB_ERROR_NOT_FACTORED,
                "no matrices are kept to solve with: expected a call of sb_solver_factor before",
            ),
            SolveError::Unsupported { .. } => Self::unsupported(message),
            SolveError::Stopped { .. } => Self::new(SB_ERROR_STOPPED, message),
            _ => Self::argument(message),
        }
    }
}

impl From<GpuSolveError> for Failure {
    fn from(error: GpuSolveError) -> Self {
        SolveError::from(error).into()
    }
}

/// Checks the length of an array.
pub(crate) fn check_len(name: &str, expected: usize, found: usize) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    Err(Failure::argument(format!("{name} has {found} entries, expected {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_name() {
        assert_eq!(name_of(SB_OK), Some(c"SB_OK"));
        assert_eq!(name_of(SB_ERROR_RANKS), Some(c"SB_ERROR_RANKS"));
        assert_eq!(NAMES.len(), SB_ERROR_RANKS as usize + 1);
        assert_eq!((name_of(-1), name_of(13)), (None, None));
    }

    #[test]
    fn errors_get_the_code_of_their_cause_and_the_names_of_options_in_c() {
        let memory = FormatError::Memory { what: "values", bytes: 1 };
        assert_eq!(Failure::from(memory).status, SB_ERROR_OUT_OF_MEMORY);
        let stopped = SolveError::Stopped { ended: 1, systems: 2 };
        assert_eq!(Failure::from(stopped).status, SB_ERROR_STOPPED);
        let memory = GpuError::OutOfMemory { needed: 2, free: 1 };
        assert_eq!(Failure::from(memory).status, SB_ERROR_OUT_OF_MEMORY);
        assert_eq!(Failure::from(GpuError::NoDriver).status, SB_ERROR_GPU);
        let length = ArgumentError::Length { what: "rel_tol", expected: 2, found: 1 };
        assert_eq!(Failure::from(length).message, "rtol has 1 entries, expected 2");
    }

    #[test]
    fn a_panic_is_an_internal_error_with_its_text() {
        let panic = std::panic::catch_unwind(|| panic!("line {}", 7)).unwrap_err();

        let failure = Failure::of_panic(&*panic);

        assert_eq!(failure.status, SB_ERROR_INTERNAL);
        assert!(failure.message.ends_with(": line 7"), "{}", failure.message);
    }
}
