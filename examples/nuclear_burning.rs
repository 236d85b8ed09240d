//! Nuclear burning in many zones, checked against reference runs: what the library is for.
//!
//! `cargo run --release --example nuclear_burning -- --help`; equations and measurements stand in
//! `docs/nuclear-burning.md`. The program is in `examples/drivers/src/nuclear_burning/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sparsebatch_drivers::nuclear_burning::main()
}
