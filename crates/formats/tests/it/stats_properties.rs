//! Statistics against their definitions on dense copies.

use proptest::prelude::*;
use sparsebatch_formats::convert::{
    DiaOptions, EllOptions, HybOptions, SellPOptions, occupied_diagonals,
};
use sparsebatch_formats::stats::{MatrixStats, row_length_histogram};
use sparsebatch_formats::{Coo, Csr, Dia, Ell, Hyb, SellP};
use sparsebatch_testing::{csr_integers, square_csr_integers};

/// One row of cells for each row; `None` where nothing is stored.
fn dense(csr: &Csr<f64>) -> Vec<Vec<Option<f64>>> {
    let mut cells = vec![vec![None; csr.ncols()]; csr.nrows()];
    let coo = Coo::from(csr.clone());
    for ((&row, &col), &value) in coo.row_idx().iter().zip(coo.col_idx()).zip(coo.values()) {
        cells[row as usize][col as usize] = Some(value);
    }
    cells
}

fn check(csr: &Csr<f64>) -> Result<(), TestCaseError> {
    let stats = MatrixStats::new(csr.view());
    let cells = dense(csr);
    let stored: Vec<(i64, i64, f64)> = (0..csr.nrows())
        .flat_map(|row| (0..csr.ncols()).map(move |col| (row, col)))
        .filter_map(|(row, col)| Some((row as i64, col as i64, cells[row][col]?)))
        .collect();

    let offsets: std::collections::BTreeSet<i32> =
        stored.iter().map(|&(row, col, _)| (col - row) as i32).collect();
    prop_assert_eq!(stats.ndiags, offsets.len());
    prop_assert_eq!(
        occupied_diagonals(csr.view().pattern()),
        offsets.iter().copied().collect::<Vec<_>>()
    );
    let farthest = |distance: fn(i64, i64) -> i64| {
        stored.iter().map(|&(row, col, _)| distance(row, col)).max().unwrap_or(0).max(0) as usize
    };
    prop_assert_eq!(stats.lower_bandwidth, farthest(|row, col| row - col));
    prop_assert_eq!(stats.upper_bandwidth, farthest(|row, col| col - row));
    let on_diagonal = stored.iter().filter(|&&(row, col, v)| row == col && v != 0.0);
    prop_assert_eq!(stats.nonzero_diagonal, on_diagonal.count());
    prop_assert_eq!(stats.explicit_zeros, stored.iter().filter(|&&(_, _, v)| v == 0.0).count());
    let lengths: Vec<usize> = cells.iter().map(|row| row.iter().flatten().count()).collect();
    prop_assert_eq!(stats.row_length.min, lengths.iter().copied().min().unwrap_or(0));
    prop_assert_eq!(stats.row_length.max, lengths.iter().copied().max().unwrap_or(0));
    prop_assert_eq!(stats.empty_rows, lengths.iter().filter(|&&len| len == 0).count());
    let histogram = row_length_histogram(csr.view().pattern());
    prop_assert_eq!(histogram.iter().sum::<usize>(), csr.nrows());
    for (len, &count) in histogram.iter().enumerate() {
        prop_assert_eq!(count, lengths.iter().filter(|&&found| found == len).count());
    }
    if csr.nrows() == csr.ncols() {
        let at = |row: i64, col: i64| cells[row as usize][col as usize];
        let symmetric = stored.iter().all(|&(row, col, v)| at(col, row).unwrap_or(0.0) == v);
        prop_assert_eq!(stats.is_symmetric, symmetric);
        let off: Vec<_> = stored.iter().filter(|&&(row, col, _)| row != col).collect();
        let mirrored = off.iter().filter(|&&&(row, col, _)| at(col, row).is_some()).count();
        let share = if off.is_empty() { 1.0 } else { mirrored as f64 / off.len() as f64 };
        prop_assert_eq!(stats.structural_symmetry, share);
    } else {
        prop_assert!(!stats.is_symmetric);
    }
    Ok(())
}

proptest! {
    #[test]
    fn figures_match_their_definitions(csr in csr_integers(25, 25)) {
        check(&csr)?;
    }

    #[test]
    fn figures_of_square_and_symmetric_matrices(csr in square_csr_integers::<f64>(12)) {
        check(&csr)?;
        let t = csr.transpose();
        let (coo, mirrored) = (Coo::from(csr.clone()), Coo::from(t));
        let sum = Csr::from_triplets(
            csr.nrows(),
            csr.ncols(),
            &[coo.row_idx(), mirrored.row_idx()].concat(),
            &[coo.col_idx(), mirrored.col_idx()].concat(),
            &[coo.values(), mirrored.values()].concat(),
        )
        .unwrap();
        check(&sum)?;
        prop_assert!(MatrixStats::new(sum.view()).is_symmetric);
    }

    #[test]
    fn bytes_are_those_of_the_converted_matrices(csr in csr_integers::<f32>(25, 25)) {
        let bytes = MatrixStats::new(csr.view()).bytes;

        prop_assert_eq!(bytes.csr, Some(csr.bytes()));
        prop_assert_eq!(bytes.coo, Some(Coo::from(csr.clone()).bytes()));
        let ell = Ell::from_csr(&csr, &EllOptions::default()).unwrap();
        let dia = Dia::from_csr(&csr, &DiaOptions::default()).unwrap();
        let hyb = Hyb::from_csr(&csr, &HybOptions::default()).unwrap();
        let sellp = SellP::from_csr(&csr, &SellPOptions::default()).unwrap();
        prop_assert_eq!(bytes.ell, Some(ell.bytes()));
        prop_assert_eq!(bytes.dia, Some(dia.bytes()));
        prop_assert_eq!(bytes.hyb, Some(hyb.bytes()));
        prop_assert_eq!(bytes.sellp, Some(sellp.bytes()));
    }
}
