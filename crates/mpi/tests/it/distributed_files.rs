//! Matrices that every rank reads its rows of.

use std::path::Path;

use sparsebatch_cpu_ref::seq;
use sparsebatch_formats::Csr;
use sparsebatch_formats::generate::{Stencil, laplace, random};
use sparsebatch_formats::io::{MemoryLimit, read_matrix_market, write_matrix_market, write_npz};
use sparsebatch_mpi::{DistributedOptions, MatrixFile, MatrixOptions, Partition, Ranks};
use sparsebatch_solvers::CpuScalar;
use sparsebatch_testing::random_integers;

const RANKS: [usize; 4] = [1, 2, 3, 5];

fn multiplied<T: CpuScalar>(size: usize, path: &Path, x: &[T]) -> Vec<T> {
    let shares = Ranks::on_threads(size, |ranks| {
        let options = MatrixOptions::new();
        let file = MatrixFile::open(ranks, path, &options).unwrap();
        let mut own = file.read::<T>(ranks, &options).unwrap();
        let x = own.columns().share(ranks.rank(), x);
        let mut y = vec![T::ZERO; own.own_rows()];
        own.apply(T::ONE, &x, T::ZERO, &mut y).unwrap();
        y
    });
    shares.concat()
}

fn check(path: &Path, matrix: &Csr<f64>) {
    let x: Vec<f64> = random_integers(matrix.ncols(), 3);
    let mut expected = vec![0.0; matrix.nrows()];
    seq::spmv(1.0, matrix.view(), &x, 0.0, &mut expected).unwrap();
    for ranks in RANKS {
        assert_eq!(multiplied::<f64>(ranks, path, &x), expected, "{ranks} ranks");
    }
    let single: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let expected: Vec<f32> = expected.iter().map(|&y| y as f32).collect();
    assert_eq!(multiplied::<f32>(2, path, &single), expected);
}

#[test]
fn ranks_read_their_rows_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let grid = laplace(Stencil::Point9, &[11, 7]).unwrap();
    let wide = random(23, 40, 5, 9).unwrap();
    // Whole numbers, so that sums are exact.
    let whole = wide.values().iter().map(|value| (value * 8.0).round()).collect();
    let wide = Csr::from_parts(wide.pattern().clone(), whole).unwrap();
    for matrix in [&grid, &wide, &Csr::zeros(3, 2).unwrap()] {
        let (market, npz) = (folder.path().join("a.mtx"), folder.path().join("a.npz"));
        write_matrix_market(&market, matrix).unwrap();
        write_npz(&npz, matrix).unwrap();
        check(&market, matrix);
        check(&npz, matrix);
    }
    let text =
        "%%MatrixMarket matrix coordinate real symmetric\n4 4 4\n1 1 2\n3 1 4\n4 2 8\n4 2 1\n";
    let symmetric = folder.path().join("s.mtx");
    std::fs::write(&symmetric, text).unwrap();
    check(&symmetric, &read_matrix_market(&symmetric).unwrap());
}

#[test]
fn a_file_solves_as_the_matrix_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mtx");
    write_matrix_market(&path, &laplace(Stencil::Point5, &[12, 12]).unwrap()).unwrap();
    for ranks in RANKS {
        let iterations = Ranks::on_threads(ranks, |ranks| {
            let options = MatrixOptions::new();
            let file = MatrixFile::open(ranks, &path, &options).unwrap();
            let mut own = file.read::<f64>(ranks, &options).unwrap();
            let (b, mut x) = (vec![1.0; own.own_rows()], vec![0.0; own.own_rows()]);
            let report = own.solve(&b, &mut x, &DistributedOptions::new()).unwrap();
            assert!(report.converged());
            report.outcome.iterations
        });
        assert!(iterations.iter().all(|count| *count == iterations[0] && *count < 40));
    }
}

#[test]
fn a_bad_file_is_one_line_on_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mtx");
    let usual = MatrixOptions::new();
    let opened = |options: &(dyn Fn(&Ranks) -> MatrixOptions + Sync)| -> (u8, String) {
        let errors = Ranks::on_threads(3, |ranks| {
            let options = options(ranks);
            let read = MatrixFile::open(ranks, &path, &options);
            let error = read.and_then(|file| file.read::<f64>(ranks, &options)).unwrap_err();
            (error.exit_code(), error.to_string())
        });
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        errors[0].clone()
    };
    let (code, line) = opened(&|_| usual.clone());
    assert!(code == 2 && line.contains("a.mtx"), "{line}");
    // What contradicts itself within rows is found by who reads them.
    let head = "%%MatrixMarket matrix coordinate real symmetric\n";
    std::fs::write(&path, format!("{head}6 6 2\n6 5 1\n5 6 1\n")).unwrap();
    let (code, line) = opened(&|_| usual.clone());
    assert!(code == 2 && line.contains("both (6, 5) and (5, 6)"), "{line}");
    assert!(line.starts_with("rank "), "{line}");
    // One rank has too little memory for its rows.
    write_matrix_market(&path, &laplace(Stencil::Point5, &[30, 30]).unwrap()).unwrap();
    let (code, line) = opened(&|ranks| {
        let bytes = if ranks.rank() == 1 { 30_000 } else { 1 << 30 };
        MatrixOptions::new().memory(MemoryLimit::bytes(bytes))
    });
    assert!(code == 2 && line.starts_with("rank 1 on this host: "), "{line}");
    assert!(line.contains("expected at most 30000"), "{line}");
}

#[test]
fn a_file_may_be_divided_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mtx");
    write_matrix_market(&path, &laplace(Stencil::Point3, &[8]).unwrap()).unwrap();
    let rows = Ranks::on_threads(2, |ranks| {
        let options = MatrixOptions::new();
        let open = || MatrixFile::open(ranks, &path, &options).unwrap();
        let uneven = Partition::at(vec![0, 7, 8]).unwrap();
        let file = open().divided(uneven.clone(), uneven.clone()).unwrap();
        let own = file.read::<f64>(ranks, &options).unwrap();
        let short = open().divided(Partition::even(7, 2), uneven.clone()).unwrap_err();
        assert!(short.message.contains("7 rows and 8 columns, expected 8 and 8"), "{short:?}");
        let order = uneven.clone().ordered((0..8).rev().collect()).unwrap();
        let ordered = open().divided(order, uneven).unwrap_err();
        assert!(ordered.message.contains("in another order"), "{ordered:?}");
        own.own_rows()
    });
    assert_eq!(rows, [7, 1]);
}
