//! The functions that programs in C call, and the only unsafe code of this crate.
//!
//! Each exported function turns its arguments into checked ones, and calls a method of an object.
//! No panic leaves it.
#![allow(clippy::missing_safety_doc, reason = "the header says it once for all functions")]

mod allocator;
mod batch;
mod context;
mod conversion;
mod distributed;
mod limits;
mod memory;
mod options;
mod pointer;
mod ranks;
mod report;
mod solver;
mod spmv;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use crate::handle::{self, Handle};
use crate::status::{Failure, SB_OK, sb_status};

pub(crate) use allocator::CallerMemory;
pub use allocator::{sb_allocate, sb_release};
pub use batch::*;
pub use context::*;
pub use conversion::*;
pub(crate) use distributed::Carried;
pub use distributed::*;
pub use limits::sb_limits;
use memory::Place;
pub(crate) use memory::{Input, Output};
pub(crate) use options::{
    BackendChoice, ContextSettings, DevicePlace, SolverSettings, SpmvSettings,
};
pub use options::{sb_context_options, sb_solver_options, sb_spmv_options};
pub(crate) use pointer::{Memory, memory_of};
pub(crate) use ranks::MpiRanks;
pub use ranks::*;
pub use report::*;
pub use solver::*;
pub use spmv::*;

/// The version of the binary interface. Programs that were compiled with a header of another number
/// do not work with this library.
pub const SB_ABI_VERSION: u32 = 0;

/// In options: the default.
pub const SB_DEFAULT: f64 = -1.0;

/// Values and vectors are `double`.
pub const SB_F64: i32 = 0;
/// Values and vectors are `float`.
pub const SB_F32: i32 = 1;

/// Arrays lie in host memory.
pub const SB_HOST: i32 = 0;
/// Arrays lie on a GPU.
pub const SB_DEVICE: i32 = 1;

/// Layout: all entries of item 0, of item 1, and so on: `values[item * nnz + k]`.
pub const SB_ITEM_MAJOR: i32 = 0;
/// Layout: entry 0 of all items, entry 1 of all items: `values[k * nitems + item]`.
pub const SB_INTERLEAVED: i32 = 1;
/// Layout: the values of one matrix, which all items have.
pub const SB_SHARED: i32 = 2;

/// Solve with the current values.
pub const SB_VALUES: i32 = 0;
/// Solve with the matrices of the last `sb_solver_factor`, by its factors where there are some.
pub const SB_KEPT: i32 = 1;
/// Solve with the current values, with the factors of the last `sb_solver_factor` as a
/// preconditioner or for refinement where there are some. For values that have changed little.
pub const SB_NEAR: i32 = 2;
/// Solve with the transposed matrices of the current values.
pub const SB_TRANSPOSED: i32 = 3;
/// Solve with the transposed matrices of the last `sb_solver_factor`.
pub const SB_KEPT_TRANSPOSED: i32 = 4;

/// The code of a system that was not active in its solve, in `sb_report_statuses`.
pub const SB_INACTIVE: u8 = 255;

/// The initial guess is 0; `x` need not be initialised.
pub const SB_GUESS_ZERO: i32 = 0;
/// `x` holds the initial guesses.
pub const SB_GUESS_IN_X: i32 = 1;

thread_local! {
    /// The message of the last error of this thread.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the body of an exported function.
fn call(body: impl FnOnce() -> Result<(), Failure>) -> sb_status {
    let ended = catch_unwind(AssertUnwindSafe(body));
    let failure = match ended {
        Ok(Ok(())) => return SB_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::of_panic(&*panic),
    };
    // Not there any more while the thread ends.
    let _ = MESSAGE.try_with(|message| message.replace(failure.message));
    failure.status
}

/// Runs the body of an exported function with the object of a handle, whose context keeps the
/// message of an error.
fn on<H: Handle>(
    handle: *const H,
    body: impl FnOnce(&Arc<H::Object>) -> Result<(), Failure>,
) -> sb_status {
    call(|| {
        let object = handle::find(handle)?;
        let ended = catch_unwind(AssertUnwindSafe(|| body(&object)));
        let ended = ended.unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)));
        ended.inspect_err(|failure| H::context(&object).note(failure))
    })
}

/// Runs the body of an exported function that makes an object from that of a handle. `place` gets
/// the new object's handle; it gets NULL where anything fails, a wrong `handle` included.
///
/// # Safety
/// `place` is NULL, or may be written to.
unsafe fn make<H: Handle, M: Handle>(
    handle: *const H,
    place: *mut *mut M,
    body: impl FnOnce(&Arc<H::Object>) -> Result<M::Object, Failure>,
) -> sb_status {
    let body = |object: &Arc<H::Object>, checked: Result<(), Failure>| {
        checked?;
        body(object)
    };
    // SAFETY: the contract of this function.
    unsafe { make_together(handle, place, body) }
}

/// As [`make`], of an object that all ranks make together: the body gets what is wrong with `place`,
/// and tells the others.
///
/// # Safety
/// As [`make`].
unsafe fn make_together<H: Handle, M: Handle>(
    handle: *const H,
    place: *mut *mut M,
    body: impl FnOnce(&Arc<H::Object>, Result<(), Failure>) -> Result<M::Object, Failure>,
) -> sb_status {
    // SAFETY: the contract of this function.
    let place = unsafe { Place::new(M::NAME, place) };
    if let Ok(place) = &place {
        place.write(ptr::null_mut());
    }
    on(handle, |object| {
        let (place, checked) = match place {
            Ok(place) => (Some(place), Ok(())),
            Err(failure) => (None, Err(failure)),
        };
        let made = body(object, checked)?;
        if let Some(place) = place {
            place.write(handle::insert(made));
        }
        Ok(())
    })
}

/// Runs the body of a function that destroys an object. NULL is nothing to destroy.
fn destroy<H: Handle>(handle: *mut H) -> sb_status {
    destroy_after(handle, |_| ())
}

/// As [`destroy`]; `last` runs when no further call finds the object.
fn destroy_after<H: Handle>(handle: *mut H, last: impl FnOnce(&H::Object)) -> sb_status {
    match handle.is_null() {
        true => SB_OK,
        false => call(|| handle::remove(handle).map(|object| last(&object))),
    }
}

/// Declares an opaque type of C and the object that its handles stand for.
macro_rules! handle_of {
    ($(#[$doc:meta])* $type:ident => $object:ident, $name:literal, |$own:ident| $context:expr) => {
        impl $crate::handle::Handle for $type {
            type Object = $object;
            const NAME: &'static str = $name;

            fn wrap(object: std::sync::Arc<$object>) -> $crate::handle::Object {
                $crate::handle::Object::$object(object)
            }

            fn unwrap(object: &$crate::handle::Object) -> Option<&std::sync::Arc<$object>> {
                match object {
                    $crate::handle::Object::$object(object) => Some(object),
                    _ => None,
                }
            }

            fn context($own: &$object) -> &$crate::context::Context {
                $context
            }
        }
    };
}
use handle_of;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{SB_ERROR_ARGUMENT, SB_ERROR_INTERNAL};

    #[test]
    fn no_panic_leaves_a_call_and_the_thread_keeps_its_message() {
        assert_eq!(call(|| panic!("a fault")), SB_ERROR_INTERNAL);

        MESSAGE.with_borrow(|message| assert!(message.ends_with(": a fault"), "{message}"));
        assert_eq!(call(|| Err(Failure::argument("x is 2"))), SB_ERROR_ARGUMENT);
        assert_eq!(call(|| Ok(())), SB_OK);
        MESSAGE.with_borrow(|message| assert_eq!(message, "x is 2"));
    }
}
