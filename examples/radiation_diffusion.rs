//! Radiation diffusion by batched solves: grey and multigroup Marshak waves on many rays at once,
//! compared with references, and flux-limited multigroup diffusion in a plane.
//!
//! `cargo run --release --example radiation_diffusion`; `-- --help` for options.
//! `docs/radiation-diffusion.md` has the equations, `examples/drivers/src/radiation_diffusion/` the
//! program.

use std::process::ExitCode;

fn main() -> ExitCode {
    sparsebatch_drivers::radiation_diffusion::main()
}
