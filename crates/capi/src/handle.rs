//! Living objects by their handles.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::batch::Batch;
use crate::context::Context;
use crate::conversion::Conversion;
use crate::distributed::Distributed;
use crate::ranks::Ranks;
use crate::report::Report;
use crate::solver::Solver;
use crate::spmv::Spmv;
use crate::status::{Failure, SB_ERROR_BAD_HANDLE};

/// An object that has a handle.
#[derive(Clone)]
pub(crate) enum Object {
    Context(Arc<Context>),
    Batch(Arc<Batch>),
    Solver(Arc<Solver>),
    Spmv(Arc<Spmv>),
    Report(Arc<Report>),
    Conversion(Arc<Conversion>),
    Ranks(Arc<Ranks>),
    Distributed(Arc<Distributed>),
}

/// The objects by number. Numbers are not used twice.
static OBJECTS: LazyLock<RwLock<HashMap<usize, Object>>> = LazyLock::new(RwLock::default);
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The opaque type of C for a kind of objects.
pub(crate) trait Handle: Sized {
    type Object;
    /// The name of an argument of this type.
    const NAME: &'static str;

    fn wrap(object: Arc<Self::Object>) -> Object;
    fn unwrap(object: &Object) -> Option<&Arc<Self::Object>>;
    /// The context that keeps messages of errors.
    fn context(object: &Self::Object) -> &Context;
}

/// Gives an object a handle.
pub(crate) fn insert<H: Handle>(object: H::Object) -> *mut H {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut objects = OBJECTS.write().unwrap_or_else(PoisonError::into_inner);
    objects.insert(number, H::wrap(Arc::new(object)));
    ptr::without_provenance_mut(number)
}

/// The object of a handle.
pub(crate) fn find<H: Handle>(handle: *const H) -> Result<Arc<H::Object>, Failure> {
    if handle.is_null() {
        return Err(Failure::new(SB_ERROR_BAD_HANDLE, format!("{} is NULL", H::NAME)));
    }
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    let object = objects.get(&handle.addr()).and_then(H::unwrap);
    object.cloned().ok_or_else(|| unknown::<H>())
}

/// Takes a handle away; its object ends with the last call that uses it.
pub(crate) fn remove<H: Handle>(handle: *mut H) -> Result<Arc<H::Object>, Failure> {
    let found = find(handle.cast_const())?;
    let mut objects = OBJECTS.write().unwrap_or_else(PoisonError::into_inner);
    let removed = objects.remove(&handle.addr());
    drop(objects);
    // Another thread may have taken it meanwhile.
    removed.map(|_| found).ok_or_else(|| unknown::<H>())
}

/// The error of a handle whose object does not live.
pub(crate) fn unknown<H: Handle>() -> Failure {
    let name = H::NAME;
    Failure::new(
        SB_ERROR_BAD_HANDLE,
        format!("{name} is no living {name}: it was destroyed, or is another pointer"),
    )
}
