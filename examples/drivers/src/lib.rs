//! The two drivers among the examples, programs that do physics as a simulation code would, and the
//! campaign, which attacks the solvers. Each is a module with a function `main`, which
//! `examples/*.rs` of the root package calls. They are a library so that the examples, their tests
//! and the tests of `kernel-emu` compile them once.
#![allow(missing_docs, reason = "a driver, not an interface; public for its tests")]
#![deny(unsafe_code)]

use std::path::Path;

pub mod campaign;
pub mod nuclear_burning;
pub mod radiation_diffusion;

/// The root folder of the repository, with the example data and the plots.
fn repository() -> &'static Path {
    let drivers = Path::new(env!("CARGO_MANIFEST_DIR"));
    drivers.ancestors().nth(2).expect("this crate is in examples/drivers")
}
