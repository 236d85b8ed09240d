//! One large matrix over ranks: CG on a 7-point Laplacian whose rows they share.
//!
//! `cargo run --release --example 08_distributed_cg` runs four ranks as threads of one process. Built
//! with `--features mpi`: `mpirun -n 4 target/release/examples/08_distributed_cg`.

use std::time::Duration;

use sparsebatch::generate::{Stencil, laplace};
use sparsebatch::{Csr, Method, Preconditioner, SolveOptions};
use sparsebatch_mpi::{
    DistributedMatrix, DistributedOptions, MatrixOptions, MpiError, Partition, Ranks,
};

/// Solves with several preconditioners; true where the solutions are right.
fn work(ranks: &Ranks, whole: &Csr<f64>) -> Result<bool, MpiError> {
    let entries = whole.row_iter().map(|(columns, _)| columns.len());
    let parts = Partition::by_entries(entries, ranks.size());
    let options = MatrixOptions::new();
    let mut matrix = DistributedMatrix::from_matrix(ranks, whole, &parts, &parts, &options)?;
    let all = ranks.all_gather(&matrix.parts().to_string())?;
    if ranks.rank() == 0 {
        all.iter().enumerate().for_each(|(rank, parts)| println!("rank {rank}: {parts}"));
    }

    // b = A x for x = 1, 2, 3, 1, 2, 3, ...
    let expected = |position: usize| (position % 3 + 1) as f64;
    let own: Vec<f64> = parts.range(ranks.rank()).map(expected).collect();
    let mut b = vec![0.0; own.len()];
    ranks.agree(matrix.apply(1.0, &own, 0.0, &mut b))?;

    let with = |preconditioner| {
        let solve = SolveOptions::new().method(Method::Cg).preconditioner(preconditioner);
        DistributedOptions::new().solve(solve)
    };
    let mut all_right = true;
    for (name, options) in [
        ("none", with(Preconditioner::None)),
        ("none, pipelined", with(Preconditioner::None).pipelined(true)),
        ("IC(0) of each rank's block", with(Preconditioner::IC0)),
        ("LU of each rank's block", with(Preconditioner::Auto).block_lu(true)),
    ] {
        let mut x = vec![0.0; b.len()];
        let report = matrix.solve(&b, &mut x, &options)?;
        let worst = x.iter().zip(&own).map(|(x, own)| (x - own).abs()).fold(0.0, f64::max);
        let worst = ranks.all_gather(&worst)?.into_iter().fold(0.0, f64::max);
        if ranks.rank() == 0 {
            let (status, count) = (report.outcome.status, report.outcome.iterations);
            println!("{name}: {status}, {count} iterations, largest error {worst:.1e}");
        }
        all_right &= report.converged() && worst < 1e-7;
    }
    Ok(all_right)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let whole = laplace(Stencil::Point7, &[24, 24, 24])?;
    let right = match Ranks::world(Duration::from_secs(60)) {
        Ok(ranks) => vec![work(&ranks, &whole)],
        Err(MpiError::Unsupported) => Ranks::on_threads(4, |ranks| work(ranks, &whole)),
        Err(error) => return Err(error.into()),
    };
    for right in right {
        if !right? {
            return Err("not solved".into());
        }
    }
    Ok(())
}
