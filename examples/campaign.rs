//! Solves adversarial systems in an endless loop and checks every verdict against residuals in
//! twice the precision: `cargo run --release --example campaign -- --hours 1`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sparsebatch_drivers::campaign::main()
}
