//! The emulator on kernels made for tests, the rewriting of their sources, and the kernels of the
//! driver `nuclear_burning`. One program, because each takes seconds to build; `faults` and
//! `sanitizer` are separate programs, because they start themselves again.

mod clusters;
#[path = "../common/mod.rs"]
mod common;
mod instances;
mod kernels;
mod nuclear_burning;
mod rewrite;
