//! One call on either backend: the emulated GPU beside the CPU.

mod agreement;
mod common;
mod factors;
mod fallback;
mod memory;
mod repeats;
mod shift;
