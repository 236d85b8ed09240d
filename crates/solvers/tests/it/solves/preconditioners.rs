//! Preconditioners and the sparse LU: exact where they should be, and never harmful.

use proptest::prelude::*;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::{
    BatchSolver, Engine, Method, Order, PrecondPrecision, Preconditioner, SolveOptions,
    SolveScalar, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::solves::support::{
    Kind, dense, dense_solve, engines, iterative, matrix, options, pattern, tridiagonal, uniform,
};

/// Number of iterations of a solve that must converge.
fn iterations<T: SolveScalar>(a: &Csr<T>, options: &SolveOptions) -> u32 {
    let b: Vec<T> = random_vector(a.nrows(), 11);
    let report = solve(&Batch::from(a.clone()), &b, None, options).unwrap().report;
    let outcome = &report.systems[0].outcome;
    assert_eq!(outcome.status, Status::Converged, "{} {}", options.method, options.preconditioner);
    outcome.iterations
}

/// An arrow matrix: a full first row and column and a diagonal. Eliminating row 0 first fills all
/// entries.
fn arrow(nrows: usize) -> Csr<f64> {
    let mut rows = vec![vec![0.0; nrows]; nrows];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = -0.5 / (i + 2) as f64;
        row[i] = 2.0 + i as f64;
    }
    for (i, entry) in rows[0].iter_mut().enumerate().skip(1) {
        *entry = 1.0 / (i + 1) as f64;
    }
    dense(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

#[test]
fn incomplete_factors_without_fill_are_exact() {
    let nonsymmetric = tridiagonal(50, -1.0, 2.1, -0.7);
    let spd = tridiagonal(50, -1.0, 2.0, -1.0);
    for engine in engines() {
        for order in [Order::Natural, Order::MinDegree] {
            let with = |method, preconditioner| {
                options(method, preconditioner).order(order).engine(engine.clone())
            };
            let ilu = with(Method::BiCgStab, Preconditioner::ILU0);
            assert_eq!(iterations(&nonsymmetric, &ilu), 1, "{order}");
            assert_eq!(iterations(&spd, &with(Method::Cg, Preconditioner::IC0)), 1, "{order}");
            assert_eq!(iterations(&spd, &with(Method::Cg, Preconditioner::ILU0)), 1, "{order}");
            assert_eq!(iterations(&spd.cast::<f32>(), &ilu), 1, "{order} f32");
        }
    }
}

#[test]
fn min_degree_order_makes_ilu_of_an_arrow_exact() {
    for engine in engines() {
        let with = |order| {
            options(Method::BiCgStab, Preconditioner::ILU0).order(order).engine(engine.clone())
        };
        assert_eq!(iterations(&arrow(40), &with(Order::MinDegree)), 1);
        assert!(iterations(&arrow(40), &with(Order::Natural)) > 1);
    }
}

#[test]
fn colours_cost_iterations_on_a_grid() {
    let systems = Problem::new(Family::Lap2d, 400).unwrap().batch(1).unwrap();
    for engine in engines() {
        for preconditioner in [Preconditioner::ILU0, Preconditioner::IC0] {
            let count = |preconditioner, order| {
                let options =
                    options(Method::Cg, preconditioner).order(order).engine(engine.clone());
                let solution = solve(&systems.batch, &systems.rhs, None, &options).unwrap();
                assert!(solution.report.all_converged());
                solution.report.systems[0].outcome.iterations
            };
            let by_rows = count(preconditioner, Order::Natural);
            let by_colours = count(preconditioner, Order::Multicolor);
            let jacobi = count(Preconditioner::Jacobi, Order::Natural);
            assert!(by_rows < by_colours && by_colours < jacobi, "{by_rows} {by_colours} {jacobi}");
        }
    }
}

#[test]
fn one_block_is_a_direct_solve() {
    let a = matrix(&pattern(14, 3), Kind::Dominant, 4);
    for engine in engines() {
        let mut options = options(Method::BiCgStab, Preconditioner::BLOCK_JACOBI);
        options.engine = engine;
        options = options.block_size(14);
        assert_eq!(iterations(&a, &options), 1);
        options = options.block_size(3);
        assert!(iterations(&a, &options) > 1);
    }
}

/// Factors in f32 precondition f64 systems as well; they change nothing in f32 systems.
#[test]
fn factors_in_f32_precondition_as_well_in_every_engine() {
    let a = matrix(&pattern(60, 3), Kind::Spd, 4);
    let narrow = a.cast::<f32>();
    for engine in engines() {
        for preconditioner in
            [Preconditioner::BLOCK_JACOBI, Preconditioner::ILU0, Preconditioner::IC0]
        {
            let working = options(Method::BiCgStab, preconditioner).engine(engine.clone());
            let precond_precision = PrecondPrecision::Single;
            let single = working.clone().precond_precision(precond_precision);

            let (all, few) = (iterations(&a, &working), iterations(&a, &single));
            assert!(all.abs_diff(few) <= 2, "{preconditioner}: {all}, {few}");
            let b = random_vector::<f64>(60, 2);
            let x = |options| solve(&Batch::from(a.clone()), &b, None, options).unwrap().x;
            assert_ne!(x(&working), x(&single), "{preconditioner}");
            let b = random_vector::<f32>(60, 2);
            let x = |options| solve(&Batch::from(narrow.clone()), &b, None, options).unwrap().x;
            assert_eq!(x(&working), x(&single), "{preconditioner}");
        }
    }
}

#[test]
fn block_jacobi_solves_block_diagonal_matrices_at_once() {
    // Zeros on the diagonal, with which Jacobi fails; the diagonal blocks are found.
    let rows: &[&[f64]] = &[
        &[0.0, 2.0, 0.0, 0.0, 0.0],
        &[3.0, 0.0, 0.0, 0.0, 0.0],
        &[0.0, 0.0, 0.0, 1.0, 2.0],
        &[0.0, 0.0, 4.0, 1.0, 0.0],
        &[0.0, 0.0, 1.0, 0.0, 5.0],
    ];
    let a = dense::<f64>(rows);
    for block_size in [None, Some(5)] {
        let options =
            options(Method::BiCgStab, Preconditioner::BLOCK_JACOBI).block_size(block_size);
        assert_eq!(iterations(&a, &options), 1, "{block_size:?}");
    }
}

#[test]
fn preconditioners_save_iterations() {
    // Rows of very different scales, which Jacobi removes.
    let mut a = tridiagonal(64, -1.0, 2.2, -1.0);
    let view = a.view().pattern().to_pattern();
    for row in 0..64 {
        for k in sparsebatch_formats::Pattern::view(&view).row(row) {
            a.values_mut()[k] *= 10f64.powi(row as i32 % 5);
        }
    }
    let b: Vec<f64> = random_vector(64, 11);
    // Iterations, or the limit where the solve does not converge, as may happen without a
    // preconditioner.
    let with = |preconditioner| {
        let options = options(Method::BiCgStab, preconditioner);
        let report = solve(&Batch::from(a.clone()), &b, None, &options).unwrap().report;
        let outcome = &report.systems[0].outcome;
        match outcome.status {
            Status::Converged => outcome.iterations,
            _ => options.max_iters.get(0),
        }
    };

    let (none, jacobi) = (with(Preconditioner::None), with(Preconditioner::Jacobi));
    let (block, ilu) = (with(Preconditioner::BLOCK_JACOBI), with(Preconditioner::ILU0));

    assert!(2 * jacobi < none, "{jacobi} against {none}");
    assert!(block <= jacobi && ilu < jacobi, "{block}, {ilu}, {jacobi}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Against Gaussian elimination. The matrices are diagonally dominant by 5 % and more, so that
    /// a residual of 1e-10 leaves an error of about 1e-8 at most.
    #[test]
    fn every_way_leads_to_the_solution(nrows in 1usize..16, seed in any::<u64>()) {
        let pattern = pattern(nrows, seed);
        let b: Vec<f64> = random_vector(nrows, seed ^ 8);
        let mut all: Vec<(Method, Preconditioner)> = iterative();
        all.push((Method::Lu, Preconditioner::Auto));
        all.push((Method::Auto, Preconditioner::Auto));
        for (method, preconditioner) in all {
            let symmetric = method == Method::Cg || preconditioner == Preconditioner::IC0;
            let kind = if symmetric { Kind::Spd } else { Kind::Dominant };
            let a = matrix(&pattern, kind, seed);
            let expected = dense_solve(&a, &b);
            for engine in engines() {
                for order in [Order::Natural, Order::MinDegree, Order::Multicolor] {
                    if method == Method::Lu && engine != Engine::Fused {
                        continue;
                    }
                    let options = options(method, preconditioner).order(order).engine(engine.clone());

                    let solution = solve(&Batch::from(a.clone()), &b, None, &options).unwrap();

                    prop_assert!(solution.report.all_converged(), "{method} {preconditioner}");
                    let scale = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
                    for (x, e) in solution.x.iter().zip(&expected) {
                        prop_assert!((x - e).abs() <= 1e-7 * scale, "{method} {preconditioner}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_sparse_lu_is_backward_stable_on_dominant_matrices(
        nrows in 1usize..40,
        seed in any::<u64>(),
    ) {
        let a = matrix(&pattern(nrows, seed), Kind::Dominant, seed);
        let b: Vec<f64> = random_vector(nrows, seed ^ 8);
        let mut options = options(Method::Lu, Preconditioner::Auto);
        options.rel_tol = Some((1e-14).into());

        let solution = solve(&Batch::from(a.clone()), &b, None, &options).unwrap();

        let outcome = &solution.report.systems[0].outcome;
        let bound = 4.0 * f64::EPSILON * crate::solves::support::magnitude(&a, &b, &solution.x);
        prop_assert!(outcome.residual_norm <= bound, "{outcome:?}, {bound}");
    }
}

#[test]
fn a_solver_is_used_again_with_other_values() {
    let pattern = pattern(12, 40);
    let mut all = iterative();
    all.push((Method::Lu, Preconditioner::Auto));
    for (method, preconditioner) in all {
        for engine in engines() {
            if method == Method::Lu && engine != Engine::Fused {
                continue;
            }
            let options = options(method, preconditioner).engine(engine);
            let batch = |seed| {
                let one = |k| matrix(&pattern, Kind::Spd, seed + k);
                uniform(&[one(0), one(1), one(2)])
            };
            let mut solver = BatchSolver::new(&batch(0).into(), &options).unwrap();
            for seed in [10, 20, 30] {
                let b: Vec<f64> = random_vector(36, seed);
                let fresh = solve(&batch(seed).into(), &b, None, &options).unwrap();
                let mut x = vec![0.0; 36];
                let report = solver.solve(&batch(seed).into(), &b, &mut x).unwrap();
                let mut in_lanes = vec![0.0; 36];
                let interleaved = Batch::from(batch(seed).to_interleaved());
                let other_layout = solver.solve(&interleaved, &b, &mut in_lanes).unwrap();

                let what = format!("{method} {preconditioner} {:?}", options.engine);
                assert!(report.all_converged() && other_layout.all_converged(), "{what}");
                assert_eq!(x, fresh.x, "{what}");
                assert_eq!(in_lanes, fresh.x, "{what}");
            }
        }
    }
}
