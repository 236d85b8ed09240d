//! Memory of Python objects and of GPUs, as slices and buffers of Rust: the only unsafe code of
//! this crate.

mod address;
mod allocator;
mod array;
mod dlpack;
mod lent;

pub(crate) use address::{device_on, view};
pub(crate) use allocator::PythonAllocator;
pub(crate) use array::{Input, Output};
pub(crate) use dlpack::ManagedArray;
pub(crate) use lent::{Carried, LentBytes};
