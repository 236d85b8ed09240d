//! Memory of Python objects and of GPUs, as slices and buffers of Rust: the only unsafe code of
//! this crate.

mod address;
mod array;

pub(crate) use address::{device_on, view};
pub(crate) use array::{Input, Output};
