//! Nuclear burning in many zones, checked against reference runs: the library's main use case.
//!
//! `cargo run --release --example nuclear_burning -- --help`; equations and measurements are in
//! `docs/nuclear-burning.md`. The program is in `examples/drivers/src/nuclear_burning/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sparsebatch_drivers::nuclear_burning::main()
}
