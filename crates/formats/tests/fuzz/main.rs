//! Fuzzes the readers, in a process of their own: its memory is watched.

mod batch;
mod matrix_market;
mod npz;
