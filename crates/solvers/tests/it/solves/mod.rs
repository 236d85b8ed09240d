//! Solves of whole batches through the public interface: statuses, errors, independence of
//! neighbours, agreement of the engines, the contract's details, preconditioners, the ladder,
//! factors that are kept, adjoints, operators of the caller.
//!
//! One binary, since the modules share their systems and linking takes longer than running.

mod adjoint;
mod again;
mod agreement;
mod banded;
mod choice;
mod details;
mod errors;
mod exact;
mod extremes;
mod independence;
mod ladder;
mod lanes;
mod operators;
mod preconditioners;
mod real_data;
mod static_pivoting;
mod statuses;
mod support;
