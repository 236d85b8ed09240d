//! One matrix in all six formats: bytes, the same product in each, and the matrices that each
//! format refuses.
//!
//! `cargo run --release --example 02_formats`

use sparsebatch::convert::{DiaOptions, EllOptions, FromCsr, HybOptions, SellPOptions, ToCsr};
use sparsebatch::cpu::seq::{self, Spmv};
use sparsebatch::generate::{Stencil, laplace, pareto};
use sparsebatch::{Coo, Csr, Dia, Ell, Hyb, Matrix, SellP};

fn show<P: Spmv>(matrix: &Matrix<P, f64>, expected: &[f64]) -> Result<(), String> {
    let x = vec![1.0; matrix.ncols()];
    let mut y = vec![0.0; matrix.nrows()];
    seq::spmv(1.0, matrix.view(), &x, 0.0, &mut y).map_err(|e| e.to_string())?;
    let padding = matrix.stored_len() - matrix.nnz();
    println!("{:<6} {:>8} bytes  {padding:>5} slots of padding", P::NAME, matrix.bytes());
    // The entries are integers, so every order of summation gives the same bits.
    if y == expected { Ok(()) } else { Err(format!("{} differs", P::NAME)) }
}

fn round_trip<P: FromCsr + ToCsr>(csr: &Csr<f64>, other: &Matrix<P, f64>) -> Result<(), String> {
    if other.to_csr() == *csr { Ok(()) } else { Err(format!("{} lost entries", P::NAME)) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let csr = laplace(Stencil::Point5, &[30, 20])?;
    let x = vec![1.0; csr.ncols()];
    let mut y = vec![0.0; csr.nrows()];
    seq::spmv(1.0, csr.view(), &x, 0.0, &mut y)?;

    let coo = Coo::from(csr.clone());
    let ell = Ell::from_csr(&csr, &EllOptions::default())?;
    let dia = Dia::from_csr(&csr, &DiaOptions::default())?;
    let hyb = Hyb::from_csr(&csr, &HybOptions::default())?;
    let sellp = SellP::from_csr(&csr, &SellPOptions::default())?;

    println!("5-point Laplacian, {} rows, {} entries", csr.nrows(), csr.nnz());
    show(&csr, &y)?;
    show(&coo, &y)?;
    show(&ell, &y)?;
    show(&dia, &y)?;
    show(&hyb, &y)?;
    show(&sellp, &y)?;
    round_trip(&csr, &ell)?;
    round_trip(&csr, &dia)?;
    round_trip(&csr, &hyb)?;
    round_trip(&csr, &sellp)?;
    println!("all products agree, all conversions give the CSR matrix back");

    // A conversion that would take too much memory is an error that states how much.
    let scattered = pareto(20_000, 20_000, 4, 1.0, 1)?;
    match Dia::from_csr(&scattered, &DiaOptions::default()) {
        Ok(_) => Err("DIA of a scattered matrix was not refused".into()),
        Err(refused) => {
            println!("DIA of a scattered matrix: {refused}");
            Ok(())
        }
    }
}
