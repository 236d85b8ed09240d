//! The same call on either backend: the emulated GPU and the CPU.

mod again;
mod agreement;
mod auto;
mod certified;
mod chunks;
pub(crate) mod common;
mod device;
mod device_data;
mod device_patterns;
mod device_ragged;
mod factors;
mod failing;
mod fallback;
mod gradient;
mod large_lu;
mod limits;
mod listed;
mod memory;
mod pin;
mod range;
mod repeats;
mod several;
mod several_faults;
mod shift;
mod static_pivoting;
mod statuses;
mod watch;
