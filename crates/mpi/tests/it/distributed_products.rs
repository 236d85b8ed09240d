//! Products of a distributed matrix against the sequential reference.

use std::sync::Arc;

use proptest::prelude::*;
use sparsebatch_cpu_ref::seq;
use sparsebatch_formats::generate::{Stencil, dense, laplace};
use sparsebatch_formats::io::MemoryLimit;
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_mpi::{DistributedMatrix, MatrixOptions, MpiError, Partition, Ranks};
use sparsebatch_solvers::{CpuScalar, FormatChoice, KernelChoice, LinOp, SpmvOptions};
use sparsebatch_testing::{csr_integers, random_integers, random_vector};

const RANKS: [usize; 4] = [1, 2, 3, 5];

/// `y = alpha A x + beta y` of all ranks, in the order of the rows.
fn product<T: CpuScalar>(
    matrix: &Csr<T>,
    (rows, columns): (&Partition, &Partition),
    (alpha, x, beta, y): (T, &[T], T, &[T]),
    options: &MatrixOptions,
) -> Vec<T> {
    let shares = Ranks::on_threads(rows.ranks(), |ranks| {
        let mut own =
            DistributedMatrix::from_matrix(ranks, matrix, rows, columns, options).unwrap();
        let x = columns.share(ranks.rank(), x);
        let mut y = rows.share(ranks.rank(), y);
        own.apply(alpha, &x, beta, &mut y).unwrap();
        y
    });
    rows.by_rows(shares.concat())
}

fn even<T: Scalar>(matrix: &Csr<T>, ranks: usize) -> (Partition, Partition) {
    (Partition::even(matrix.nrows(), ranks), Partition::even(matrix.ncols(), ranks))
}

fn reference<T: Scalar>(matrix: &Csr<T>, alpha: T, x: &[T], beta: T, y: &[T]) -> Vec<T> {
    let mut y = y.to_vec();
    seq::spmv(alpha, matrix.view(), x, beta, &mut y).unwrap();
    y
}

fn check<T: CpuScalar>(matrix: &Csr<T>, options: &MatrixOptions) {
    let x: Vec<T> = random_integers(matrix.ncols(), 1);
    let y: Vec<T> = random_integers(matrix.nrows(), 2);
    let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-1.0));
    let expected = reference(matrix, alpha, &x, beta, &y);
    for ranks in RANKS {
        let (rows, columns) = even(matrix, ranks);
        let found = product(matrix, (&rows, &columns), (alpha, &x, beta, &y), options);
        assert_eq!(found, expected, "{ranks} ranks");
        let by_entries =
            Partition::by_entries(matrix.row_iter().map(|(cols, _)| cols.len()), ranks);
        let found = product(matrix, (&by_entries, &columns), (alpha, &x, beta, &y), options);
        assert_eq!(found, expected, "{ranks} ranks, by entries");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Empty rows, empty columns, no rows at all, more ranks than rows: whole numbers as values, so
    /// that any order of sums gives the same bits.
    #[test]
    fn products_are_those_of_the_reference(matrix in csr_integers::<f64>(24, 24)) {
        check(&matrix, &MatrixOptions::new());
        check(&matrix.cast::<f32>(), &MatrixOptions::new());
    }
}

/// Rows of several chunks, in which a matrix is divided; the last part has neither rows nor columns of a
/// whole chunk.
#[test]
fn matrices_of_many_rows_multiply() {
    check(&laplace(Stencil::Point5, &[190, 180]).unwrap(), &MatrixOptions::new());
}

#[test]
fn every_format_and_kernel_multiplies() {
    let matrix = laplace(Stencil::Point7, &[7, 6, 5]).unwrap();
    for (format, kernel) in [
        (FormatChoice::Csr, KernelChoice::Rows),
        (FormatChoice::Csr, KernelChoice::CsrI),
        (FormatChoice::Coo, KernelChoice::Entries),
        (FormatChoice::Ell, KernelChoice::Rows),
        (FormatChoice::Hyb, KernelChoice::Rows),
        (FormatChoice::Dia, KernelChoice::Blocks),
        (FormatChoice::SellP, KernelChoice::Rows),
        (FormatChoice::SellP, KernelChoice::Runs),
    ] {
        // The remote parts are scattered, which DIA would refuse by default.
        let spmv = SpmvOptions::default().format(format).kernel(kernel).max_fill(1e3);
        check(&matrix, &MatrixOptions::new().spmv(spmv));
    }
}

#[test]
fn the_halo_may_be_everything() {
    let matrix = dense(13, 13, 3).unwrap();
    let x: Vec<f64> = random_vector(13, 4);
    let expected = reference(&matrix, 1.0, &x, 0.0, &[0.0; 13]);
    for ranks in RANKS {
        let (rows, columns) = even(&matrix, ranks);
        let y = [f64::NAN; 13];
        let found = product(&matrix, (&rows, &columns), (1.0, &x, 0.0, &y), &MatrixOptions::new());
        for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let size: f64 = matrix.row(row).1.iter().zip(&x).map(|(a, x)| (a * x).abs()).sum();
            assert!((found - expected).abs() <= 13.0 * f64::EPSILON * size, "row {row}");
        }
    }
}

#[test]
fn three_products_have_equal_bits() {
    let matrix = laplace(Stencil::Point9, &[40, 30]).unwrap();
    let x: Vec<f64> = random_vector(matrix.ncols(), 5);
    let y = vec![0.0; matrix.nrows()];
    for ranks in RANKS {
        let parts = even(&matrix, ranks);
        let of = || {
            let y =
                product(&matrix, (&parts.0, &parts.1), (1.0, &x, 0.0, &y), &MatrixOptions::new());
            y.into_iter().map(f64::to_bits).collect::<Vec<_>>()
        };
        let first = of();
        assert!(first == of() && first == of(), "{ranks} ranks");
    }
}

#[test]
fn an_order_changes_who_has_a_row_but_no_product() {
    let matrix = laplace(Stencil::Point5, &[6, 7]).unwrap();
    let x: Vec<f64> = random_integers(42, 6);
    let expected = reference(&matrix, 1.0, &x, 0.0, &[0.0; 42]);
    // Every fifth row, then every fifth but one, and so on.
    let row_at: Vec<i32> = (0..5).flat_map(|first| (first..42).step_by(5)).collect();
    for ranks in RANKS {
        let parts = Partition::even(42, ranks).ordered(row_at.clone()).unwrap();
        let found =
            product(&matrix, (&parts, &parts), (1.0, &x, 0.0, &[0.0; 42]), &MatrixOptions::new());
        assert_eq!(found, expected, "{ranks} ranks");
    }
}

#[test]
fn nan_reaches_the_rows_that_store_its_column_and_no_others() {
    // Row i stores the columns i - 1, i, i + 1.
    let matrix = laplace(Stencil::Point3, &[12]).unwrap();
    let mut x = vec![1.0; 12];
    x[5] = f64::NAN;
    for ranks in RANKS {
        let (rows, columns) = even(&matrix, ranks);
        let y = [f64::NAN; 12];
        let found = product(&matrix, (&rows, &columns), (1.0, &x, 0.0, &y), &MatrixOptions::new());
        let poisoned: Vec<usize> = (0..12).filter(|&row| found[row].is_nan()).collect();
        assert_eq!(poisoned, [4, 5, 6], "{ranks} ranks");
    }
}

#[test]
fn parts_tell_what_travels() {
    let matrix = laplace(Stencil::Point5, &[4, 6]).unwrap();
    let parts = Ranks::on_threads(3, |ranks| {
        let even = Partition::even(24, 3);
        let options = MatrixOptions::new();
        let own = DistributedMatrix::from_matrix(ranks, &matrix, &even, &even, &options).unwrap();
        assert_eq!(own.nnz(), matrix.nnz() as u64);
        own.parts()
    });
    // Two lines of the grid each: the middle rank has two neighbours.
    let line = parts[0].received;
    assert_eq!((parts[0].sent, parts[0].neighbours), (line, 1));
    assert_eq!((parts[1].received, parts[1].sent, parts[1].neighbours), (2 * line, 2 * line, 2));
    assert_eq!(parts.iter().map(|part| part.entries).sum::<usize>(), matrix.nnz());
    let text = parts[1].to_string();
    assert!(text.contains("to 2 ranks; local csr by rows, remote csr by rows"), "{text}");
}

/// The errors of all ranks.
fn errors_of<R>(
    size: usize,
    make: impl Fn(&Ranks) -> Result<R, MpiError> + Sync,
) -> Vec<(u8, String)> {
    Ranks::on_threads(size, |ranks| {
        let error = make(ranks).err().expect("an error");
        (error.exit_code(), error.to_string())
    })
}

#[test]
fn what_does_not_fit_is_one_line_on_all_ranks() {
    let matrix = laplace(Stencil::Point3, &[9]).unwrap();
    let (usual, parts) = (MatrixOptions::new(), Partition::even(9, 3));
    let errors = errors_of(3, |ranks| {
        let other = Partition::even(9, 2);
        DistributedMatrix::from_matrix(ranks, &matrix, &other, &other, &usual).map(drop)
    });
    assert_eq!(errors[0].1, "partition is for 2 ranks of 3, expected a part for each rank");
    let errors = errors_of(3, |ranks| {
        let other = Partition::even(8, 3);
        DistributedMatrix::from_matrix(ranks, &matrix, &other, &parts, &usual).map(drop)
    });
    assert_eq!(errors[0].1, "rows has 9 entries, expected 8");
    // One rank believes in another partition.
    let errors = errors_of(3, |ranks| {
        let starts = if ranks.rank() == 1 { vec![0, 1, 2, 9] } else { vec![0, 3, 6, 9] };
        let own = Partition::at(starts).unwrap();
        DistributedMatrix::from_matrix(ranks, &matrix, &own, &own, &usual).map(drop)
    });
    assert!(errors[0].1.starts_with("rank 1 on this host: the partition of rows is"), "{errors:?}");
    // One rank has other rows than the partition says.
    let errors = errors_of(3, |ranks| {
        let rows = if ranks.rank() == 2 { 4 } else { 3 };
        let own = Csr::<f64>::zeros(rows, 9).unwrap();
        DistributedMatrix::from_rows(ranks, own, &parts, &parts, &usual).map(drop)
    });
    assert_eq!(errors[0].1, "rank 2 on this host: own rows has 4 entries, expected 3");
    // Memory of one rank.
    let errors = errors_of(3, |ranks| {
        let bytes = if ranks.rank() == 1 { 100 } else { 1 << 30 };
        let options = MatrixOptions::new().memory(MemoryLimit::bytes(bytes));
        DistributedMatrix::from_matrix(ranks, &matrix, &parts, &parts, &options).map(drop)
    });
    assert!(errors[0].1.starts_with("rank 1 on this host: 3 rows of 9 entries would take"));
    // A format that does not suit a part.
    let spmv = SpmvOptions::default().format(FormatChoice::Ell).kernel(KernelChoice::CsrI);
    let errors = errors_of(3, |ranks| {
        let options = MatrixOptions::new().spmv(spmv.clone());
        DistributedMatrix::from_matrix(ranks, &matrix, &parts, &parts, &options).map(drop)
    });
    assert_eq!(errors[0].1, "kernel is csr-i, expected rows with the format ell");
    assert!(errors.iter().all(|error| *error == errors[0] && error.0 == 2));
}

#[test]
fn a_vector_of_another_length_is_an_error_of_one_rank_and_no_hang() {
    let matrix = laplace(Stencil::Point3, &[9]).unwrap();
    let parts = Partition::even(9, 3);
    let results = Ranks::on_threads(3, |ranks| {
        let options = MatrixOptions::new();
        let mut own =
            DistributedMatrix::from_matrix(ranks, &matrix, &parts, &parts, &options).unwrap();
        let x = vec![1.0; if ranks.rank() == 1 { 2 } else { 3 }];
        let mut y = [0.0; 3];
        let failed = LinOp::apply(&mut own, &x, &mut y).err().map(|error| error.to_string());
        let agreed = ranks.agree(
            failed
                .clone()
                .map_or(Ok(()), |line| Err(sparsebatch_mpi::Failure { code: 2, message: line })),
        );
        (failed, agreed.is_err())
    });
    let line = "x has 2 entries, expected 3".to_owned();
    assert_eq!(results, [(None, true), (Some(line), true), (None, true)]);
}

/// Ranks whose values have other types would send messages of other lengths.
#[test]
fn ranks_with_other_types_of_values_are_refused() {
    let whole: Csr<f64> = laplace(Stencil::Point3, &[6]).unwrap();
    let parts = Partition::even(6, 2);
    let lines = Ranks::on_threads(2, |ranks| {
        let options = MatrixOptions::new();
        let refused = match ranks.rank() {
            0 => DistributedMatrix::from_matrix(ranks, &whole, &parts, &parts, &options).map(drop),
            _ => {
                let single = whole.cast::<f32>();
                DistributedMatrix::from_matrix(ranks, &single, &parts, &parts, &options).map(drop)
            }
        };
        refused.unwrap_err().to_string()
    });
    let expected = "rank 1 on this host: the type of the values is f32, on rank 0 it is f64";
    assert!(lines.iter().all(|line| line == expected), "{lines:?}");
}

/// A matrix may keep its ranks, and two of them the same ones.
#[test]
fn matrices_hold_their_ranks() {
    let whole = laplace(Stencil::Point3, &[7]).unwrap();
    let parts = Partition::even(7, 1);
    let made = || {
        let ranks = Ranks::alone().shared();
        let one = |ranks| {
            DistributedMatrix::from_matrix(ranks, &whole, &parts, &parts, &MatrixOptions::new())
        };
        (one(Arc::clone(&ranks)).unwrap(), one(ranks).unwrap())
    };
    let (first, mut second): (DistributedMatrix<'static, f64>, _) = made();
    drop(first);
    let mut y = [0.0; 7];
    second.apply(1.0, &[1.0; 7], 0.0, &mut y).unwrap();
    assert_eq!(y, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(second.ranks().size(), 1);
}
