//! Loads a matrix, prepares its product once and multiplies: y = A x.
//!
//! `cargo run --release --example 01_load_and_multiply [FILE]`

use std::path::{Path, PathBuf};

use sparsebatch::SpmvOptions;
use sparsebatch::cpu::{SpmvPlan, seq};
use sparsebatch::io::read_matrix_market;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/ragged/lap2d_25.mtx");
    let file = std::env::args_os().nth(1).map_or(default, PathBuf::from);
    let a = read_matrix_market(&file)?;
    println!("{} x {}, {} entries", a.nrows(), a.ncols(), a.nnz());

    // A plan chooses format and kernel by documented rules, and says why.
    let plan = SpmvPlan::new(&a, &SpmvOptions::default())?;
    println!("{}", plan.explain());

    let x = vec![1.0; a.ncols()];
    let mut y = vec![0.0; a.nrows()];
    plan.apply(1.0, &x, 0.0, &mut y)?;
    println!("A * ones: sum {:.6}, first row {:.6}", y.iter().sum::<f64>(), y[0]);

    // The reference: one thread, one loop.
    let mut reference = vec![0.0; a.nrows()];
    seq::spmv(1.0, a.view(), &x, 0.0, &mut reference)?;
    let difference = y.iter().zip(&reference).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("largest difference from the reference: {difference:e}");
    if difference > 1e-12 {
        return Err("the product differs from the reference".into());
    }
    Ok(())
}
