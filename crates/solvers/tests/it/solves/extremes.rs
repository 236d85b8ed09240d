//! Right-hand sides far from 1: scaling a system by a power of two scales its solution and changes
//! nothing else.

use sparsebatch_formats::Batch;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_solvers::{Engine, Method, Preconditioner, Status, solve};
use sparsebatch_testing::random_vector;

use crate::solves::support::{engines, iterative, options, residual_norm, tridiagonal};

#[test]
fn scaling_b_by_a_power_of_two_scales_x_alone() {
    let problem = Problem::new(Family::Tri, 32).unwrap().batch(9).unwrap();
    for (method, preconditioner) in iterative() {
        for engine in engines() {
            let mut options = options(method, preconditioner);
            (options.engine, options.history) = (engine, true);
            let plain = solve(&problem.batch, &problem.rhs, None, &options).unwrap();
            assert!(plain.report.all_converged());
            for exponent in [-700, -664, -300, 300, 664, 900] {
                let factor = 2f64.powi(exponent);
                let b: Vec<f64> = problem.rhs.iter().map(|v| v * factor).collect();

                let scaled = solve(&problem.batch, &b, None, &options).unwrap();

                let what = format!("2^{exponent} {method} {preconditioner} {:?}", options.engine);
                for (s, p) in scaled.report.systems.iter().zip(&plain.report.systems) {
                    let (s, p) = (&s.outcome, &p.outcome);
                    assert_eq!(s.status, Status::Converged, "{what}");
                    assert_eq!(s.iterations, p.iterations, "{what}");
                    assert_eq!(s.residual_norm, p.residual_norm * factor, "{what}");
                    let scaled_back: Vec<f64> = p.history.iter().map(|v| v * factor).collect();
                    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-14 * b.abs();
                    assert!(s.history.iter().zip(&scaled_back).all(close), "{what}");
                }
                let expected: Vec<f64> = plain.x.iter().map(|v| v * factor).collect();
                assert_eq!(scaled.x, expected, "{what}");
            }
        }
    }
}

#[test]
fn tiny_and_huge_right_hand_sides_converge_in_single_precision() {
    let a = tridiagonal(20, -1.0, 2.5, -1.0).cast::<f32>();
    let one: Vec<f32> = random_vector(20, 5);
    for (method, preconditioner) in iterative() {
        for engine in engines() {
            let mut options = options(method, preconditioner);
            options.engine = engine;
            let plain = solve(&Batch::from(a.clone()), &one, None, &options).unwrap();
            for exponent in [-90, -40, 40, 90] {
                let factor = 2f32.powi(exponent);
                let b: Vec<f32> = one.iter().map(|v| v * factor).collect();

                let scaled = solve(&Batch::from(a.clone()), &b, None, &options).unwrap();

                let outcome = &scaled.report.systems[0].outcome;
                let what = format!("2^{exponent} {method} {preconditioner} {:?}", options.engine);
                assert_eq!(outcome.status, Status::Converged, "{what}");
                let iterations = plain.report.systems[0].outcome.iterations;
                assert_eq!(outcome.iterations, iterations, "{what}");
                let expected: Vec<f32> = plain.x.iter().map(|v| v * factor).collect();
                assert_eq!(scaled.x, expected, "{what}");
            }
        }
    }
}

#[test]
fn right_hand_sides_near_the_ends_of_the_range_stay_honest() {
    let a = tridiagonal(12, -1.0, 2.5, -1.0);
    for size in [5e-324, 1e-310, 1e-290, 1e290, 1e307] {
        let b: Vec<f64> = random_vector::<f64>(12, 2).iter().map(|v| v * size).collect();
        for (method, preconditioner) in iterative() {
            for engine in [Engine::Fused, engines()[1].clone()] {
                let mut options = options(method, preconditioner);
                options.engine = engine;

                let solution = solve(&Batch::from(a.clone()), &b, None, &options).unwrap();

                let outcome = &solution.report.systems[0].outcome;
                let what = format!("{size} {method} {preconditioner} {outcome:?}");
                if (1e-290..=1e290).contains(&size) {
                    assert_eq!(outcome.status, Status::Converged, "{what}");
                    // Scaled so that squares neither overflow nor underflow.
                    let scaled = |v: &[f64]| v.iter().map(|v| v / size).collect::<Vec<_>>();
                    let norm = residual_norm(&a, &scaled(&b), &scaled(&solution.x));
                    assert!(norm <= 1.001e-10 * outcome.rhs_norm / size, "{what}: {norm}");
                } else if outcome.status == Status::Converged {
                    assert!(outcome.residual_norm <= 1e-10 * outcome.rhs_norm, "{what}");
                }
            }
        }
    }
}

#[test]
fn matrices_of_any_scale_are_solved() {
    for size in [1e-150, 1e-30, 1e30, 1e150] {
        let mut a = tridiagonal(12, -1.0, 2.5, -1.0);
        a.values_mut().iter_mut().for_each(|v| *v *= size);
        let b: Vec<f64> = random_vector(12, 2);
        for method in [Method::Cg, Method::BiCgStab, Method::Lu] {
            let options = options(method, Preconditioner::Jacobi);

            let report = solve(&Batch::from(a.clone()), &b, None, &options).unwrap().report;

            assert!(report.all_converged(), "{size} {method} {:?}", report.systems);
        }
    }
}
