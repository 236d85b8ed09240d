//! Every solver on a real GPU.

mod banded;
mod composed;
mod confirmed;
mod dense;
mod factored;
mod fused;
mod gpus;
#[path = "../it/backends/listed.rs"]
mod listed;
mod lu;
mod multifrontal;
mod resident;
mod statuses;
