//! Test problems, made from a seed and reproducible bit for bit.
//!
//! | function | matrices |
//! | --- | --- |
//! | [`Problem`] | the batched families of [`Family`], with right-hand sides |
//! | [`mix`], [`mix_spd`] | ragged batches of `tri`, `lap2d` and `rand9` |
//! | [`hetero`], [`replicate`] | batches of perturbed copies of given matrices |
//! | [`laplace`] | 3-, 5-, 7-, 9- and 27-point Laplacians on grids |
//! | [`trefethen`] | primes on the diagonal, ones at distances that are powers of two |
//! | [`banded`], [`dense`], [`random`] | synthetic families of the SpMV literature |
//! | [`pareto`], [`spd`] | further synthetic families of that literature |
//!
//! Random numbers are those of [`rng`]: every value depends on its own indices alone, so a smaller
//! batch is the prefix of a larger one. Sizes are checked before anything is allocated.

mod copies;
mod laplace;
mod problems;
pub mod rng;
mod synthetic;
mod trefethen;

pub use copies::{hetero, replicate, spmv_operands};
pub use laplace::{Stencil, laplace};
pub use problems::{Family, GeneratedBatch, MIX, Problem, checksum, mix, mix_spd};
pub use synthetic::{banded, dense, pareto, random, spd};
pub use trefethen::trefethen;
