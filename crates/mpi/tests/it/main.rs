//! Tests of the crate on ranks that are threads of this process; those on ranks of MPI are in
//! `tests/ranks.rs`.

mod distributed_files;
mod distributed_gpus;
mod distributed_products;
mod distributed_solves;
