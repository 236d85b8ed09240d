//! The C library `libsparsebatch`: the functions of `include/sparsebatch.h`.
//!
//! | module | holds |
//! | --- | --- |
//! | `ffi/` | the exported functions, option structs, memory of the caller: the only unsafe code |
//! | `handle.rs` | living objects by their handles |
//! | `status.rs` | error codes and messages |
//! | `context.rs`, `batch.rs`, `solver.rs`, `spmv.rs`, `report.rs`, `conversion.rs` | the objects |
//! | `limits.rs` | tolerances and active systems of solves |
//! | `ranks.rs` | ranks of MPI, whose reports become one |
//! | `host.rs`, `device.rs` | solvers of data in host memory, and of data on a GPU |
//!
//! A handle is the number of an object, not its address. The library never follows a pointer that
//! it was given as a handle, so that any wrong one is an error.
#![deny(unsafe_code)]
#![allow(non_camel_case_types, reason = "names of C")]

mod batch;
mod context;
mod conversion;
mod device;
mod distributed;
#[allow(unsafe_code)]
mod ffi;
mod handle;
mod host;
mod limits;
mod ranks;
mod report;
mod solver;
mod spmv;
mod status;

pub use ffi::*;
pub use status::*;
