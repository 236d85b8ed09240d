//! What `bench` compares our products with on the processor: other crates' products, plain sequential
//! loops, and what the memory gives.
//!
//! A crate of its own, so that all that is timed is compiled with full optimisation, for `f32` and
//! `f64`, whatever that of `bench` is.

mod loops;
mod products;

pub use loops::{PlainLoops, SequentialProduct, copy, sum};
pub use products::{Peer, PeerLoop, PeerMatrix};
