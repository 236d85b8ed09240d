//! Takes matrices of nalgebra-sparse, sprs and faer as input, and gives one back.
//!
//! `cargo run --release --example 05_other_crates`

use faer::sparse::{SparseColMat, Triplet};
use nalgebra_sparse::{CooMatrix, CsrMatrix};
use sparsebatch::{Batch, Csr, SolveOptions, solve};
use sprs::TriMat;

/// The entries of [4 -1 0; -1 4 -1; 0 -1 4].
const ENTRIES: [(usize, usize, f64); 7] =
    [(0, 0, 4.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 4.0), (1, 2, -1.0), (2, 1, -1.0), (2, 2, 4.0)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut coo = CooMatrix::new(3, 3);
    let mut triplets = TriMat::new((3, 3));
    for (row, col, value) in ENTRIES {
        coo.push(row, col, value);
        triplets.add_triplet(row, col, value);
    }
    let columns = SparseColMat::<usize, f64>::try_new_from_triplets(
        3,
        3,
        &ENTRIES.map(|(row, col, value)| Triplet::new(row, col, value)),
    )
    .map_err(|error| format!("{error:?}"))?;

    let from_nalgebra = Csr::try_from(&coo)?;
    let from_sprs = Csr::try_from(&triplets.to_csr::<usize>())?;
    let from_faer = Csr::try_from(&columns)?;
    if from_nalgebra != from_sprs || from_sprs != from_faer {
        return Err("the three inputs differ".into());
    }
    println!("nalgebra-sparse, sprs and faer gave the same matrix");

    let batch: Batch<f64> = [from_nalgebra, from_sprs, from_faer].into_iter().collect();
    let b = [3.0, 2.0, 3.0].repeat(3);
    let solution = solve(&batch, &b, None, &SolveOptions::default())?;
    for (name, x) in ["nalgebra-sparse", "sprs", "faer"].iter().zip(solution.x.chunks(3)) {
        println!("{name:<16} x = [{:.6}, {:.6}, {:.6}]", x[0], x[1], x[2]);
        if x.iter().any(|x| (x - 1.0).abs() > 1e-9) {
            return Err("the solution is not ones".into());
        }
    }

    let back = CsrMatrix::from(&Csr::try_from(&columns)?);
    println!("back in nalgebra-sparse: {} entries", back.nnz());
    Ok(())
}
