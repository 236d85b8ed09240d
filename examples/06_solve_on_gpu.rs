//! Solves on the first GPU, or on all cores if there is none, by the same call with the same
//! report.
//!
//! `cargo run --release --example 06_solve_on_gpu`

use sparsebatch::generate::{Family, Problem};
use sparsebatch::{Backend, BatchSolver, SolveOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 2,000 five-point Laplacians on grids of 16 x 16 points.
    let systems = Problem::new(Family::Lap2d, 256)?.batch(2000)?;
    let backend = Backend::auto();

    // The analysis is reused: solve as often as values or right-hand sides change.
    let mut solver = BatchSolver::on(&backend, &systems.batch, &SolveOptions::new())?;
    let mut x = vec![0.0; systems.rhs.len()];
    let report = solver.solve(&systems.batch, &systems.rhs, &mut x)?;

    println!("{} systems on {} ({})", report.systems.len(), report.backend, report.device);
    println!("{}: {}", report.scheme, report.reason);
    println!("{:.1} ms", report.solve_time.as_secs_f64() * 1e3);
    let worst = report.max_relative_residual().ok_or("no system converged")?;
    println!("largest relative residual, recomputed from b - A x: {worst:.2e}");
    if report.all_converged() { Ok(()) } else { Err("not solved".into()) }
}
