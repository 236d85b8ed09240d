//! Systems with known answers: nothing to solve, or nothing left to do.

use sparsebatch_formats::{Batch, BatchValues, Csr, CsrPattern, RaggedCsr, UniformBatch};
use sparsebatch_solvers::{
    BatchSolver, Engine, Method, Preconditioner, SolveOptions, SolveScalar, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::common::one_step;
use crate::solves::support::{dense, engines, iterative, options, ragged, tridiagonal};

/// Every method, preconditioner and engine; `auto` and the ladder among them.
fn all_options() -> Vec<SolveOptions> {
    let mut all = vec![one_step(), options(Method::Lu, Preconditioner::Auto)];
    for (method, preconditioner) in iterative() {
        for engine in engines() {
            all.push(options(method, preconditioner).engine(engine));
        }
    }
    let with_ladder = all.clone().into_iter().map(|o| o.fallback(true));
    all.extend(with_ladder.collect::<Vec<_>>());
    all
}

#[test]
fn an_empty_batch_gives_an_empty_report() {
    let pattern = std::sync::Arc::new(CsrPattern::try_new(1, 1, vec![0, 1], vec![0]).unwrap());
    let none = UniformBatch::try_new(pattern, 0, BatchValues::ItemMajor(Vec::new())).unwrap();
    for batch in [Batch::from(none), Batch::from(RaggedCsr::<f64>::new())] {
        for options in all_options() {
            let solution = solve(&batch, &[], None, &options).unwrap();

            assert!(solution.x.is_empty());
            assert!(solution.report.systems.is_empty());
            assert!(solution.report.all_converged());
            assert_eq!(solution.report.max_relative_residual(), None);
            assert_eq!(solution.report.iterations(), (0, 0.0, 0));
        }
    }
}

fn zero_right_hand_side<T: SolveScalar>() {
    // Singular, zero diagonal, indefinite: with b = 0 none of it matters.
    let matrices: Vec<Csr<T>> = vec![
        tridiagonal(5, -1.0, 3.0, -1.0).cast(),
        dense(&[&[0.0, 1.0], &[1.0, 0.0]]),
        dense(&[&[1.0, 1.0], &[1.0, 1.0]]),
        dense(&[&[0.0]]),
    ];
    let batch = ragged(&matrices);
    for options in all_options() {
        let what = format!("{} {} {:?}", options.method, options.preconditioner, options.engine);
        let x0: Vec<T> = random_vector(10, 3);

        let solution = solve(&batch, &[T::ZERO; 10], Some(&x0), &options).unwrap();

        assert_eq!(solution.x, [T::ZERO; 10], "{what}");
        for system in &solution.report.systems {
            let outcome = &system.outcome;
            assert_eq!(outcome.status, Status::Converged, "{what}");
            assert_eq!(outcome.iterations, 0, "{what}");
            assert_eq!((outcome.residual_norm, outcome.rhs_norm), (0.0, 0.0), "{what}");
            assert_eq!(outcome.relative_residual(), 0.0, "{what}");
        }
    }
}

#[test]
fn a_zero_right_hand_side_gives_zero_in_no_iterations() {
    zero_right_hand_side::<f64>();
    zero_right_hand_side::<f32>();
}

#[test]
fn a_zero_right_hand_side_does_not_hide_nan() {
    let batch = Batch::from(dense::<f64>(&[&[f64::NAN]]));
    for options in all_options() {
        let solution = solve(&batch, &[0.0], None, &options).unwrap();

        assert_eq!(solution.report.systems[0].outcome.status, Status::NonFinite);
    }
}

#[test]
fn systems_without_rows_are_solved() {
    let batch = ragged(&[dense(&[]), dense::<f64>(&[&[4.0]]), dense(&[])]);
    for options in all_options() {
        let solution = solve(&batch, &[2.0], None, &options).unwrap();

        assert!(solution.report.all_converged(), "{} {}", options.method, options.preconditioner);
        assert_eq!(solution.x, [0.5]);
        assert_eq!(solution.report.systems[0].outcome.iterations, 0);
        assert_eq!(solution.report.systems[2].outcome.residual_norm, 0.0);
    }
}

#[test]
fn one_row_takes_one_iteration() {
    for options in all_options() {
        let batch = Batch::from(dense::<f64>(&[&[-4.0]]));
        let positive = Batch::from(dense::<f64>(&[&[8.0]]));

        let solution = solve(&positive, &[2.0], None, &options).unwrap();

        let what = format!("{} {} {:?}", options.method, options.preconditioner, options.engine);
        assert_eq!(solution.x, [0.25], "{what}");
        assert_eq!(solution.report.systems[0].outcome.iterations, 1, "{what}");
        assert_eq!(solution.report.systems[0].outcome.status, Status::Converged, "{what}");
        if options.method == Method::BiCgStab && options.preconditioner == Preconditioner::None {
            let solution = solve(&batch, &[2.0], None, &options).unwrap();
            assert_eq!(solution.x, [-0.5], "{what}");
        }
    }
}

#[test]
fn a_zero_matrix_never_converges() {
    let stored = Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![0.0f64, 0.0]).unwrap();
    for matrix in [stored, dense(&[&[0.0, 0.0], &[0.0, 0.0]])] {
        for options in all_options() {
            let solution =
                solve(&Batch::from(matrix.clone()), &[1.0, 2.0], None, &options).unwrap();

            let outcome = &solution.report.systems[0].outcome;
            assert_ne!(outcome.status, Status::Converged);
            assert_ne!(outcome.status, Status::MaxIterations);
            assert_ne!(outcome.status, Status::NonFinite);
            assert_eq!(outcome.residual_norm, 5f64.sqrt());
            if options.fallback {
                assert_eq!(outcome.status, Status::Singular);
            } else if options.method == Method::Lu {
                assert_eq!(outcome.status, Status::ZeroPivot);
            }
        }
    }
}

fn from_the_solution<T: SolveScalar>() {
    // Integer data: the residual of the solution is exactly 0.
    let a = tridiagonal(6, -1.0, 4.0, -2.0).cast::<T>();
    let x: Vec<T> = (1..=6).map(|v| T::from_f64(f64::from(v))).collect();
    let mut b = vec![T::ZERO; 6];
    sparsebatch_cpu_ref::seq::spmv(T::ONE, a.view(), &x, T::ZERO, &mut b).unwrap();
    for mut options in all_options() {
        options.history = true;
        let solution = solve(&Batch::from(a.clone()), &b, Some(&x), &options).unwrap();

        let outcome = &solution.report.systems[0].outcome;
        assert_eq!(outcome.status, Status::Converged);
        assert_eq!((outcome.iterations, outcome.residual_norm), (0, 0.0));
        assert_eq!(outcome.history, [0.0]);
        assert_eq!(solution.x, x);
    }
}

#[test]
fn starting_at_the_solution_takes_no_iterations() {
    from_the_solution::<f64>();
    from_the_solution::<f32>();
}

#[test]
fn nan_in_the_initial_guess_is_non_finite() {
    let a = tridiagonal(4, -1.0, 4.0, -1.0);
    for value in [f64::NAN, f64::INFINITY] {
        for mut options in all_options() {
            options.fallback = false;
            // `auto` chooses the sparse LU here, which needs no guess.
            if matches!(options.method, Method::Lu | Method::Auto) {
                continue;
            }
            let x0 = [0.0, value, 0.0, 0.0];

            let solution = solve(&Batch::from(a.clone()), &[1.0; 4], Some(&x0), &options).unwrap();

            let outcome = &solution.report.systems[0].outcome;
            assert_eq!(outcome.status, Status::NonFinite);
            assert_eq!(outcome.iterations, 0);
            assert!(outcome.residual_norm.is_nan());
        }
    }
}

#[test]
fn lu_does_not_fail_by_a_guess_that_it_does_not_need() {
    let a = tridiagonal(4, -1.0, 4.0, -1.0);
    let batch = Batch::from(a);
    let mut options = options(Method::Lu, Preconditioner::Auto);
    options.fallback = false;
    let from_zero = solve(&batch, &[1.0; 4], Some(&[0.0; 4]), &options).unwrap();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let x0 = [0.0, value, 0.0, value];

        let solution = solve(&batch, &[1.0; 4], Some(&x0), &options).unwrap();
        let mut solver = BatchSolver::new(&batch, &options).unwrap();
        solver.factor(&batch).unwrap();
        let mut again = x0;
        let report = solver.solve_again(&[1.0; 4], &mut again).unwrap();

        assert!(solution.report.all_converged() && report.all_converged(), "{value}");
        assert_eq!((&solution.x, &again[..]), (&from_zero.x, &from_zero.x[..]));
    }
}

#[test]
fn the_ladder_gets_over_nan_in_the_initial_guess() {
    let a = tridiagonal(4, -1.0, 4.0, -1.0);
    let mut options = options(Method::Cg, Preconditioner::None);
    options.fallback = true;

    let solution = solve(&Batch::from(a), &[1.0; 4], Some(&[f64::NAN; 4]), &options).unwrap();

    assert!(solution.report.all_converged());
}

#[test]
fn no_iterations_allowed_means_none_done() {
    let a = tridiagonal(4, -1.0, 4.0, -1.0);
    let x0 = [0.5, -0.5, 0.25, 1.0];
    for mut options in all_options() {
        (options.max_iters, options.fallback) = (0.into(), false);

        let solution = solve(&Batch::from(a.clone()), &[1.0; 4], Some(&x0), &options).unwrap();

        let outcome = &solution.report.systems[0].outcome;
        assert_eq!(outcome.status, Status::MaxIterations);
        assert_eq!(outcome.iterations, 0);
        assert_eq!(solution.x, x0);
        let expected = crate::solves::support::residual_norm(&a, &[1.0; 4], &x0);
        assert!((outcome.residual_norm - expected).abs() <= 1e-14);
    }
}

#[test]
fn convergence_in_the_half_step_leaves_no_nan() {
    // A multiple of the identity: s = 0, so that t = 0 and omega would be 0 / 0.
    for engine in engines() {
        for preconditioner in [Preconditioner::None, Preconditioner::Jacobi, Preconditioner::ILU0] {
            let a = tridiagonal(7, 0.0, 4.0, 0.0);
            let mut options = options(Method::BiCgStab, preconditioner);
            (options.engine, options.history) = (engine.clone(), true);
            let b = [1.0, -2.0, 3.0, -4.0, 5.0, 6.0, 0.5];

            let solution = solve(&Batch::from(a), &b, None, &options).unwrap();

            let outcome = &solution.report.systems[0].outcome;
            assert_eq!(outcome.status, Status::Converged, "{preconditioner}");
            assert_eq!((outcome.iterations, outcome.residual_norm), (1, 0.0));
            assert_eq!(solution.x, b.map(|v| v / 4.0));
            assert_eq!(outcome.history.len(), 2);
            assert_eq!(outcome.history[1], 0.0);
        }
    }
    assert_eq!(engines()[0], Engine::Fused);
}
