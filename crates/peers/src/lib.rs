//! CPU references that `bench` compares ours with: products of other crates, Thomas' algorithm, plain
//! sequential loops, and memory bandwidth.
//!
//! This is a separate crate, so that all timed code is compiled with full optimisation, for `f32`
//! and `f64`, whatever the optimisation level of `bench`.

mod loops;
mod products;
mod thomas;

pub use loops::{PlainLoops, SequentialProduct, copy, sum};
pub use products::{Peer, PeerLoop, PeerMatrix, PeerProduct};
pub use thomas::Thomas;
