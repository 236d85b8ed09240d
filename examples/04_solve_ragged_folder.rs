//! Solves a folder of Matrix Market files of different sizes as one ragged batch.
//!
//! `cargo run --release --example 04_solve_ragged_folder [FOLDER]`

use std::path::{Path, PathBuf};

use sparsebatch::io::{LoadOptions, load};
use sparsebatch::{SolveOptions, solve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/ragged");
    let folder = std::env::args_os().nth(1).map_or(default, PathBuf::from);
    let loaded = load(&[folder], LoadOptions::default())?;
    let batch = loaded.batch;

    // b = A * ones, so that every solution is a vector of ones.
    let mut values = Vec::new();
    let mut b = Vec::new();
    for item in 0..batch.nitems() {
        batch.copy_values(item, &mut values);
        let a = batch.pattern(item);
        b.extend((0..a.nrows()).map(|row| values[a.row(row)].iter().sum::<f64>()));
    }

    // Systems that do not converge at first climb a ladder of stronger schemes that ends with
    // sparse LU.
    let options = SolveOptions::new().fallback(true);
    let solution = solve(&batch, &b, None, &options)?;

    for (item, system) in solution.report.systems.iter().enumerate() {
        let rows = batch.rows(item);
        let error = solution.x[rows.clone()].iter().map(|x| (x - 1.0).abs()).fold(0.0, f64::max);
        let name = Path::new(&loaded.names[item]).file_name().unwrap_or_default();
        println!(
            "{:<18} {:>3} rows  {}  {:>3} iterations  by {}  error {error:.1e}",
            name.display(),
            rows.len(),
            system.outcome.status,
            system.outcome.iterations,
            system.rung,
        );
    }
    println!("{} of {} converged", solution.report.converged(), batch.nitems());
    if solution.report.all_converged() { Ok(()) } else { Err("not all converged".into()) }
}
