//! Solves a uniform batch, one pattern and many value sets: 48 systems of a nuclear network.
//!
//! `cargo run --release --example 03_solve_uniform_batch`

use std::path::Path;

use sparsebatch::io::read_batch;
use sparsebatch::{BatchSolver, Method, Preconditioner, SolveOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data");
    let systems = read_batch(data.join("alpha13_small.batch"))?;

    let options =
        SolveOptions::new().method(Method::BiCgStab).preconditioner(Preconditioner::Jacobi);
    // The analysis depends on the pattern only and is done once, for any number of solves.
    let mut solver = BatchSolver::new(&systems.batch, &options)?;
    let mut x = vec![0.0; systems.rhs.len()];
    let report = solver.solve(&systems.batch, &systems.rhs, &mut x)?;

    let (least, mean, most) = report.iterations();
    println!(
        "{} systems with {} and {}",
        report.systems.len(),
        report.scheme.name(),
        report.scheme.preconditioner()
    );
    println!("iterations: {least} to {most}, {mean:.1} on average");
    for (status, count) in report.status_counts() {
        println!("{status}: {count}");
    }
    let worst = report.max_relative_residual().ok_or("no system converged")?;
    println!("largest relative residual, recomputed from b - A x: {worst:.2e}");

    // The largest residual again, computed by hand from the solutions.
    let mut by_hand = 0.0f64;
    for item in 0..systems.batch.nitems() {
        let a = systems.batch.to_csr(item);
        let rows = systems.batch.rows(item);
        let (x, b) = (&x[rows.clone()], &systems.rhs[rows]);
        let residual = a.row_iter().zip(b).map(|((columns, values), b)| {
            let ax: f64 = columns.iter().zip(values).map(|(&col, v)| v * x[col as usize]).sum();
            (b - ax).powi(2)
        });
        let norm = b.iter().map(|v| v * v).sum::<f64>().sqrt();
        by_hand = by_hand.max(residual.sum::<f64>().sqrt() / norm);
    }
    println!("the same by hand: {by_hand:.2e}");
    if report.all_converged() && by_hand < 2e-10 { Ok(()) } else { Err("not solved".into()) }
}
