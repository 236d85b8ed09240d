//! Products of single matrices: every format and kernel compared with the oracle.

use std::sync::Arc;

use crate::spmv_common::{
    Sequence, all_options, banded, bits, from_rows, integers, mixed, pool, reals, small_matrix,
};
use proptest::prelude::*;
use sparsebatch_cpu_ref::{CpuError, CpuScalar, SpmvPlan, par, seq};
use sparsebatch_formats::convert::{HybOptions, HybWidth, SellPOptions};
use sparsebatch_formats::{
    Coo, CooPattern, Csr, CsrPattern, Dia, DiaPattern, Ell, EllPattern, Hyb, HybPattern, Layout,
    Matrix, SellP, SellPPattern,
};
use sparsebatch_solve_core::{ArgumentError, FormatChoice, KernelChoice, SpmvOptions};

fn oracle<T: CpuScalar>(alpha: T, a: &Csr<T>, x: &[T], beta: T, y: &[T]) -> Vec<T> {
    let mut y = y.to_vec();
    seq::spmv(alpha, a.view(), x, beta, &mut y).unwrap();
    y
}

/// Checks that `y = 2*A*x - 3*y`, and `y = A*x` into NaN, by a plan with `options` equal the
/// oracle's. Values are small integers, so every order of sums is exact.
fn check_exact<T: CpuScalar>(a: &Csr<T>, options: &SpmvOptions) {
    let x = integers::<T>(a.ncols(), 1);
    let y = integers::<T>(a.nrows(), 2);
    let (two, three) = (T::from_f64(2.0), T::from_f64(-3.0));
    let plan = SpmvPlan::new(a, options).unwrap();

    let mut scaled = y.clone();
    plan.apply(two, &x, three, &mut scaled).unwrap();
    let mut fresh = vec![T::from_f64(f64::NAN); a.nrows()];
    plan.apply(T::ONE, &x, T::ZERO, &mut fresh).unwrap();
    let mut kept = y.clone();
    plan.apply(two, &x, T::ONE, &mut kept).unwrap();

    assert_eq!(scaled, oracle(two, a, &x, three, &y), "{options:?}");
    assert_eq!(fresh, oracle(T::ONE, a, &x, T::ZERO, &y), "{options:?}");
    assert_eq!(kept, oracle(two, a, &x, T::ONE, &y), "{options:?}");
}

#[test]
fn all_kernels_agree_around_the_seams() {
    for nrows in [0, 1, 2, 7, 8, 9, 31, 32, 33, 255, 256, 257, 511, 512, 513, 1025] {
        for (ncols, dense) in [(nrows, None), (nrows + 40, Some(nrows / 2)), (nrows / 2 + 1, None)]
        {
            for options in all_options() {
                check_exact(&mixed::<f64>(nrows, ncols, dense, 3), &options);
                check_exact(&banded::<f64>(nrows, ncols), &options);
                check_exact(&mixed::<f32>(nrows, ncols, dense, 4), &options);
            }
        }
    }
}

#[test]
fn matrices_without_rows_or_columns_are_products_too() {
    for (nrows, ncols) in [(0, 0), (0, 5), (5, 0)] {
        for options in all_options() {
            check_exact(&Csr::<f64>::zeros(nrows, ncols).unwrap(), &options);
        }
    }
}

/// A matrix with many chunks, and with a row that spans several of CSR-I's parts.
fn large<T: CpuScalar>() -> Csr<T> {
    mixed(60_000, 90_000, Some(31_000), 5)
}

#[test]
fn all_kernels_agree_on_many_chunks() {
    for mut options in all_options() {
        if matches!(options.format, FormatChoice::Csr | FormatChoice::Coo | FormatChoice::Auto) {
            check_exact(&large::<f64>(), &options);
        }
        options.hyb.width = HybWidth::Fixed(4);
        if options.format == FormatChoice::Hyb {
            check_exact(&large::<f64>(), &options);
        }
        check_exact(&banded::<f64>(100_000, 99_990), &options);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mut skewed = large::<f64>();
    let mut stencil = banded::<f64>(100_000, 100_000);
    for a in [&mut skewed, &mut stencil] {
        let values = reals(a.nnz(), 6);
        a.values_mut().copy_from_slice(&values);
    }
    for mut options in all_options() {
        options.hyb.width = HybWidth::Fixed(4);
        options.nrhs = 3;
        let wide = matches!(
            options.format,
            FormatChoice::Csr | FormatChoice::Coo | FormatChoice::Hyb | FormatChoice::Auto
        );
        for a in [Some(&stencil), wide.then_some(&skewed)].into_iter().flatten() {
            let x = reals::<f64>(3 * a.ncols(), 7);
            let plan = SpmvPlan::new(a, &options).unwrap();
            let product = |threads| {
                let mut y = reals::<f64>(3 * a.nrows(), 8);
                let apply = || plan.apply(0.3, &x, 0.7, &mut y).unwrap();
                pool(threads).install(apply);
                bits(&y)
            };

            let one = product(1);

            for threads in [2, 3, 7] {
                assert!(product(threads) == one, "{options:?}, {threads} threads");
            }
        }
    }
}

/// |y - y'| <= (entries + 3) * 2 eps * (|alpha| |A||x| + |beta y|), row by row.
fn check_bound<T: CpuScalar>(a: &Csr<T>, options: &SpmvOptions) {
    let (alpha, beta) = (T::from_f64(1.25), T::from_f64(-0.6));
    let x = reals::<T>(a.ncols(), 9);
    let y = reals::<T>(a.nrows(), 10);
    let expected = oracle(alpha, a, &x, beta, &y);
    let mut found = y.clone();
    SpmvPlan::new(a, options).unwrap().apply(alpha, &x, beta, &mut found).unwrap();
    for row in 0..a.nrows() {
        let entries = a.view().pattern().row(row);
        let size: f64 = entries
            .clone()
            .map(|k| a.values()[k].to_f64().abs() * x[a.col_idx()[k] as usize].to_f64().abs())
            .sum();
        let size = 1.25 * size + 0.6 * y[row].to_f64().abs();
        let bound = (entries.len() + 3) as f64 * 2.0 * T::EPSILON.to_f64() * size;
        let error = (found[row].to_f64() - expected[row].to_f64()).abs();
        assert!(error <= bound, "{options:?}: row {row}, {error:e} > {bound:e}");
    }
}

#[test]
fn real_values_stay_within_the_row_bound() {
    for options in all_options() {
        let mut double = mixed::<f64>(700, 800, Some(5), 11);
        let values = reals(double.nnz(), 12);
        double.values_mut().copy_from_slice(&values);

        check_bound(&double, &options);
        check_bound(&double.cast::<f32>(), &options);
    }
}

#[test]
fn nan_and_inf_in_x_reach_exactly_the_rows_that_store_the_column() {
    for a in [mixed::<f64>(300, 310, Some(9), 13), banded(520, 520), with_holes(1100, 1030)] {
        let mut random = Sequence(14);
        for options in all_options() {
            let plan = SpmvPlan::new(&a, &options).unwrap();
            for poison in [f64::NAN, f64::INFINITY] {
                let mut x = integers::<f64>(a.ncols(), 15);
                let col = random.below(a.ncols());
                x[col] = poison;
                let mut y = vec![0.0; a.nrows()];

                plan.apply(1.0, &x, 0.0, &mut y).unwrap();

                for (row, y) in y.iter().enumerate() {
                    let stores = a.view().pattern().position(row, col).is_some();
                    assert_eq!(!y.is_finite(), stores, "{options:?}, row {row}, column {col}");
                }
            }
        }
    }
}

/// Three diagonals that lack runs of rows, single rows and whole words of 64 rows.
fn with_holes(nrows: usize, ncols: usize) -> Csr<f64> {
    let row = |row: usize| {
        let entry = |col: usize| (col < ncols).then_some((col, 1.0 + (row % 5) as f64));
        let below = row.checked_sub(3).filter(|_| !(64..192).contains(&row)).and_then(entry);
        let main = entry(row).filter(|_| row % 7 != 3);
        let above = entry(row + 500).filter(|_| row % 64 != 63);
        [below, main, above].into_iter().flatten().collect()
    };
    from_rows(ncols, &(0..nrows).map(row).collect::<Vec<_>>())
}

#[test]
fn fill_of_diagonals_multiplies_nothing_in_any_product() {
    // [2 1 .; . . 3; . . 4]: row 1 has no entry on the main diagonal, which DIA stores.
    let a = from_rows(3, &[vec![(0, 2.0), (1, 1.0)], vec![(2, 3.0)], vec![(2, 4.0)]]);
    let x = [1.0, f64::NAN, 10.0];
    let is_right = |y: &[f64]| y[0].is_nan() && y[1..] == [30.0, 40.0];
    let mut dia = Dia::from_csr(&a, &Default::default()).unwrap();
    // The value in a slot of the fill does not matter.
    dia.values_mut()[1] = f64::INFINITY;
    let mut y = [7.0; 3];

    seq::spmv(1.0, dia.view(), &x, 0.0, &mut y).unwrap();
    assert!(is_right(&y), "{y:?}");
    par::spmv(1.0, dia.view(), &x, 0.0, &mut y).unwrap();
    assert!(is_right(&y), "{y:?}");
    for kernel in [KernelChoice::Rows, KernelChoice::Blocks] {
        let options = SpmvOptions::default().format(FormatChoice::Dia).kernel(kernel);
        SpmvPlan::new(&a, &options).unwrap().apply(1.0, &x, 0.0, &mut y).unwrap();
        assert!(is_right(&y), "{options:?}: {y:?}");
    }
}

#[test]
fn diagonals_with_holes_give_the_oracles_product() {
    let a = with_holes(1100, 1030);
    let values = reals::<f64>(a.nnz(), 23);
    let a = Csr::from_parts(Arc::clone(a.pattern()), values).unwrap();
    for kernel in [KernelChoice::Rows, KernelChoice::Blocks] {
        check_bound(&a, &SpmvOptions::default().format(FormatChoice::Dia).kernel(kernel));
    }
}

#[test]
fn right_hand_sides_do_not_influence_each_other() {
    let mut a = mixed::<f64>(300, 280, Some(20), 16);
    let values = reals(a.nnz(), 17);
    a.values_mut().copy_from_slice(&values);
    for options in all_options() {
        for nrhs in [1, 2, 3, 4, 5, 7, 8] {
            let x = reals::<f64>(nrhs * a.ncols(), 18);
            let start = reals::<f64>(nrhs * a.nrows(), 19);
            let several = options.clone().nrhs(nrhs);
            let mut y = start.clone();
            SpmvPlan::new(&a, &several).unwrap().apply(1.5, &x, 0.5, &mut y).unwrap();

            let alone = SpmvPlan::new(&a, &options).unwrap();
            for rhs in 0..nrhs {
                let rows = rhs * a.nrows()..(rhs + 1) * a.nrows();
                let mut one = start[rows.clone()].to_vec();
                let x = &x[rhs * a.ncols()..(rhs + 1) * a.ncols()];
                alone.apply(1.5, x, 0.5, &mut one).unwrap();
                assert_eq!(bits(&y[rows]), bits(&one), "{options:?}, {rhs} of {nrhs}");
            }
        }
    }
}

#[test]
fn new_values_give_what_a_new_plan_gives() {
    let a = banded::<f64>(3000, 3100);
    let mut b = a.clone();
    let values = reals(b.nnz(), 20);
    b.values_mut().copy_from_slice(&values);
    let x = reals::<f64>(a.ncols(), 21);
    for options in all_options() {
        let mut plan = SpmvPlan::new(&a, &options).unwrap();
        let (mut updated, mut fresh) = (vec![0.0; a.nrows()], vec![0.0; a.nrows()]);

        plan.update_values(b.values()).unwrap();

        plan.apply(1.0, &x, 0.0, &mut updated).unwrap();
        let new = SpmvPlan::new(&b, &options).unwrap();
        new.apply(1.0, &x, 0.0, &mut fresh).unwrap();
        assert_eq!(bits(&updated), bits(&fresh), "{options:?}");
    }
}

#[test]
fn a_zero_that_becomes_an_entry_counts_in_every_format() {
    let mut a = from_rows(3, &[vec![(0, 1.0), (2, 0.0)], vec![(1, 2.0)], vec![(0, 0.0)]]);
    let mut plans: Vec<SpmvPlan<f64>> =
        all_options().iter().map(|options| SpmvPlan::new(&a, options).unwrap()).collect();
    a.values_mut().copy_from_slice(&[1.0, 5.0, 2.0, 7.0]);
    for plan in &mut plans {
        let mut y = [0.0; 3];

        plan.update_values(a.values()).unwrap();

        plan.apply(1.0, &[1.0, 10.0, 100.0], 0.0, &mut y).unwrap();
        assert_eq!(y, [501.0, 20.0, 7.0]);
    }
}

#[test]
fn wrong_lengths_and_options_are_refused_with_y_untouched() {
    let a = mixed::<f64>(20, 30, None, 22);
    let mut plan = SpmvPlan::new(&a, &SpmvOptions::default()).unwrap();
    let mut y = vec![5.0; 20];

    let messages = [
        plan.apply(1.0, &[0.0; 29], 0.0, &mut y).unwrap_err().to_string(),
        plan.apply(1.0, &[0.0; 30], 0.0, &mut y[..19]).unwrap_err().to_string(),
        plan.update_values(&[1.0]).unwrap_err().to_string(),
        par::spmv(1.0, a.view(), &[0.0; 31], 0.0, &mut y).unwrap_err().to_string(),
    ];

    assert_eq!(messages[0], "x has 29 entries, expected 30");
    assert_eq!(messages[1], "y has 19 entries, expected 20");
    assert_eq!(messages[2], format!("values has 1 entries, expected {}", a.nnz()));
    assert_eq!(messages[3], "x has 31 entries, expected 30");
    assert!(y.iter().all(|&v| v == 5.0));

    let default = SpmvOptions::default;
    let refused = [
        ("nrhs", default().nrhs(0)),
        ("layout", default().layout(Layout::Interleaved)),
        ("kernel", default().format(FormatChoice::Coo).kernel(KernelChoice::CsrI)),
        ("parts", default().kernel(KernelChoice::CsrI).parts(Some(0))),
    ];
    for (option, options) in refused {
        match SpmvPlan::new(&a, &options).unwrap_err() {
            CpuError::Argument(ArgumentError::OutOfRange { name, .. }) => assert_eq!(name, option),
            other => panic!("{option}: {other}"),
        }
    }
}

#[test]
fn a_format_that_would_blow_up_is_refused() {
    let one_dense_row = mixed::<f64>(60_000, 60_000, Some(0), 23);
    for format in [FormatChoice::Ell, FormatChoice::Dia] {
        let options = SpmvOptions::default().format(format);

        let error = SpmvPlan::new(&one_dense_row, &options).unwrap_err();

        assert!(matches!(error, CpuError::Format(_)), "{error}");
    }
}

#[test]
fn explain_counts_bytes_and_padding() {
    // Rows of 3, 1 and 2 entries: ELL has 3 slots of padding.
    let a = from_rows(
        4,
        &[vec![(0, 1.0), (1, 1.0), (3, 1.0)], vec![(2, 1.0)], vec![(0, 1.0), (3, 1.0)]],
    );
    let options = SpmvOptions::default().format(FormatChoice::Ell);

    let plan = SpmvPlan::new(&a, &options).unwrap();

    let explain = plan.explain();
    assert_eq!((explain.format, explain.kernel), ("ell", "rows"));
    assert_eq!((explain.nnz, explain.stored_len, explain.padding), (6, 9, 3));
    assert_eq!(explain.matrix_bytes, 9 * 12);
    assert_eq!(explain.product_bytes, 9 * 12 + 8 * 3 + 8 * 4);
    assert!(explain.plan_bytes >= explain.matrix_bytes);
    assert!(explain.cost.as_nanos() > 0);
}

#[test]
fn the_automatic_choice_takes_runs_diagonals_and_parts() {
    let auto = |a: &Csr<f64>| {
        let plan = SpmvPlan::new(a, &SpmvOptions::default()).unwrap();
        (plan.explain().format, plan.explain().kernel)
    };
    let tridiagonal: Vec<Vec<(usize, f64)>> = (0..50_000usize)
        .map(|row| {
            let cols = row.saturating_sub(1)..(row + 2).min(50_000);
            cols.map(|col| (col, 1.0)).collect()
        })
        .collect();

    assert_eq!(auto(&from_rows(50_000, &tridiagonal)), ("dia", "blocks"));
    assert_eq!(auto(&banded(100_000, 100_000)), ("sellp", "runs"));
    assert_eq!(auto(&large()), ("csr", "csr-i"));
    assert_eq!(auto(&mixed(60_000, 60_000, None, 24)), ("csr", "rows"));
    assert_eq!(auto(&mixed(600, 600, None, 25)), ("csr", "rows"));
}

/// A plan with CSR-I gives the same bits as the CSR-I schedule with as many parts.
#[test]
fn parts_are_pinned_by_the_plan() {
    let mut a = large::<f64>();
    let values = reals(a.nnz(), 26);
    a.values_mut().copy_from_slice(&values);
    let x = reals::<f64>(a.ncols(), 27);
    for parts in [1, 2, 5, 256] {
        let options = SpmvOptions::default().kernel(KernelChoice::CsrI).parts(Some(parts));
        let (mut by_plan, mut by_name) = (vec![0.0; a.nrows()], vec![0.0; a.nrows()]);

        let plan = SpmvPlan::new(&a, &options).unwrap();
        plan.apply(1.0, &x, 0.0, &mut by_plan).unwrap();

        let schedule = par::Schedule::CsrI { parts: Some(parts) };
        par::spmv_with(schedule, 1.0, a.view(), &x, 0.0, &mut by_name).unwrap();
        assert_eq!(bits(&by_plan), bits(&by_name));
    }
}

/// Compares the oracle's and the multicore product of a view in every format with CSR's oracle.
fn check_views(a: &Csr<f64>) -> Result<(), TestCaseError> {
    fn both<P: par::ParSpmv>(
        a: &Matrix<P, f64>,
        x: &[f64],
        expected: &[f64],
    ) -> Result<(), TestCaseError> {
        let (mut by_seq, mut by_par) = (vec![1.0; a.nrows()], vec![1.0; a.nrows()]);
        seq::spmv(3.0, a.view(), x, -2.0, &mut by_seq).unwrap();
        par::spmv(3.0, a.view(), x, -2.0, &mut by_par).unwrap();
        prop_assert_eq!(&by_seq[..], expected);
        prop_assert_eq!(&by_par[..], expected);
        Ok(())
    }
    let x = integers::<f64>(a.ncols(), 28);
    let y = vec![1.0; a.nrows()];
    let expected = oracle(3.0, a, &x, -2.0, &y);
    let hyb = HybOptions::default().width(HybWidth::Fixed(2));
    let sellp = SellPOptions::default().slice_size(4).threads_per_row(2).sort_window(Some(16));
    both::<CsrPattern>(a, &x, &expected)?;
    both::<CooPattern>(&Coo::from_csr(a, &()).unwrap(), &x, &expected)?;
    both::<EllPattern>(&Ell::from_csr(a, &Default::default()).unwrap(), &x, &expected)?;
    both::<DiaPattern>(&Dia::from_csr(a, &Default::default()).unwrap(), &x, &expected)?;
    both::<HybPattern>(&Hyb::from_csr(a, &hyb).unwrap(), &x, &expected)?;
    both::<SellPPattern>(&SellP::from_csr(a, &sellp).unwrap(), &x, &expected)
}

proptest! {
    #[test]
    fn every_format_multiplies_as_csr_does(a in small_matrix()) {
        check_views(&a)?;
    }

    #[test]
    fn products_are_linear(a in small_matrix(), scale in -4i32..=4) {
        let (u, v) = (integers::<f64>(a.ncols(), 29), integers::<f64>(a.ncols(), 30));
        let scale = f64::from(scale);
        let combined: Vec<f64> = u.iter().zip(&v).map(|(u, v)| u + scale * v).collect();
        for options in all_options() {
            let plan = SpmvPlan::new(&a, &options).unwrap();
            let (mut direct, mut summed) = (vec![0.0; a.nrows()], vec![0.0; a.nrows()]);

            plan.apply(1.0, &combined, 0.0, &mut direct).unwrap();
            plan.apply(1.0, &u, 0.0, &mut summed).unwrap();
            plan.apply(scale, &v, 1.0, &mut summed).unwrap();

            prop_assert_eq!(direct, summed);
        }
    }

    #[test]
    fn every_number_of_parts_gives_the_same_integers(a in small_matrix(), parts in 1usize..=256) {
        let options = SpmvOptions::default().kernel(KernelChoice::CsrI).parts(Some(parts));
        check_exact(&a, &options);
    }
}
