//! Factors in f32 of matrices whose values are far beyond the range of f32.

use kernel_emu::{Emulator, Order as Threads};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::gpu::FactoredTuning;
use sparsebatch_solvers::{
    Method, Order, PrecondPrecision, Preconditioner, Rung, SolveOptions, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::common::{METHODS, Solved, Systems, on_cpu, options};
use crate::gpu_factored::support::{PRECONDITIONERS, SHAPES, by_factors, matrix, pattern, tuning};

fn single(options: SolveOptions) -> SolveOptions {
    options.precond_precision(PrecondPrecision::Single)
}

fn on_gpu(systems: &Systems<f64>, options: &SolveOptions, tuning: &FactoredTuning) -> Solved<f64> {
    by_factors(&Emulator::new(Threads::Random(2)), systems, options, tuning)
}

/// `diag(2^rows) A diag(2^columns)`.
fn scaled(a: &Csr<f64>, rows: impl Fn(usize) -> i32, columns: impl Fn(usize) -> i32) -> Csr<f64> {
    let (view, mut values) = (a.view().pattern(), a.values().to_vec());
    for row in 0..view.nrows() {
        for k in view.row(row) {
            let column = view.col_idx()[k] as usize;
            // Two multiplications, so that neither factor exceeds the range of f64.
            values[k] *= 2f64.powi(rows(row));
            values[k] *= 2f64.powi(columns(column));
        }
    }
    Csr::from_parts(a.pattern().clone(), values).unwrap()
}

/// A common power of two in all values changes no bit of factors or iterations.
#[test]
fn units_of_systems_change_nothing() {
    let n = 40;
    let pattern = pattern(n, 4, true, 6);
    let a = matrix::<f64>(&pattern, 1.1, true, 6);
    let b = random_vector::<f64>(n, 6);
    let exponents = [0, -900, -500, -130, 130, 500, 900];
    let scale = |v: &[f64], exponent| v.iter().map(|v| v * 2f64.powi(exponent)).collect::<Vec<_>>();
    let matrices = exponents.map(|exponent| scaled(&a, |_| exponent, |_| 0));
    // Right-hand sides of the same scale, so that solutions are those of A.
    let right = exponents.iter().flat_map(|&exponent| scale(&b, exponent)).collect();
    let systems = Systems::new(&matrices, right);
    for method in METHODS {
        for preconditioner in PRECONDITIONERS {
            let options = single(options(method, preconditioner));
            let cpu = on_cpu(&systems, &options);
            for shape in SHAPES {
                let gpu = on_gpu(&systems, &options, &tuning(shape));
                let what = format!("{method} {preconditioner} {shape:?}");
                let few = gpu.outcomes[0].iterations.abs_diff(cpu.outcomes[0].iterations);
                assert!(few <= 2, "{what}: {:?} {:?}", gpu.outcomes, cpu.outcomes);
                for solved in [&gpu, &cpu] {
                    assert_eq!(solved.statuses(), [Status::Converged; 7], "{what}");
                    let first = &solved.outcomes[0];
                    for (item, outcome) in solved.outcomes.iter().enumerate() {
                        assert_eq!(outcome.iterations, first.iterations, "{what} {item}");
                        assert_eq!(
                            solved.x[item * n..(item + 1) * n],
                            solved.x[..n],
                            "{what} {item}"
                        );
                    }
                }
            }
        }
    }
}

/// Columns scaled from 1e-280 to 1e280 in one matrix (units of unknowns). Residuals are those of A,
/// bit for bit.
#[test]
fn units_of_unknowns_change_nothing() {
    let n = 40;
    let pattern = pattern(n, 4, false, 7);
    let a = matrix::<f64>(&pattern, 1.1, false, 7);
    let b = random_vector::<f64>(n, 7);
    let unit = |column: usize| (column as i32 * 347) % 1860 - 930;
    let systems = Systems::new(&[a.clone(), scaled(&a, |_| 0, unit)], [b.clone(), b].concat());
    for (preconditioner, order) in [
        (Preconditioner::BLOCK_JACOBI, Order::Natural),
        (Preconditioner::ILU0, Order::Natural),
        (Preconditioner::ILU0, Order::MinDegree),
    ] {
        let options = single(options(Method::BiCgStab, preconditioner).order(order));
        let cpu = on_cpu(&systems, &options);
        for shape in SHAPES {
            let gpu = on_gpu(&systems, &options, &tuning(shape));
            for solved in [&gpu, &cpu] {
                let what = format!("{preconditioner} {order} {shape:?} {:?}", solved.outcomes);
                assert_eq!(solved.statuses(), [Status::Converged; 2], "{what}");
                let [plain, scaled] = [&solved.outcomes[0], &solved.outcomes[1]];
                assert_eq!(plain.iterations, scaled.iterations, "{what}");
                assert_eq!(plain.residual_norm, scaled.residual_norm, "{what}");
                for column in 0..n {
                    let back = solved.x[n + column] * 2f64.powi(unit(column));
                    assert_eq!(back, solved.x[column], "{what}");
                }
            }
        }
    }
}

/// Scaled rows (units of equations) weigh in residuals. Scales that f32 can hold together change
/// nothing; beyond that the factorisation may fail, and the ladder computes the factors in f64.
#[test]
fn units_of_equations_are_borne_or_refused() {
    let n = 30;
    let pattern = pattern(n, 3, false, 9);
    let a = matrix::<f64>(&pattern, 1.3, false, 9);
    for most in [40, 140] {
        let unit = |row: usize| if row % 3 == 1 { most } else { -most };
        // Only large rows have right-hand sides, so that no equation is lost beside others.
        let b = (0..n).map(|row| if unit(row) > 0 { 2f64.powi(most) } else { 0.0 }).collect();
        let systems = Systems::new(&[scaled(&a, unit, |_| 0)], b);
        for preconditioner in [Preconditioner::BLOCK_JACOBI, Preconditioner::ILU0] {
            let order = Order::MinDegree;
            let options = single(options(Method::BiCgStab, preconditioner).order(order));
            let cpu = on_cpu(&systems, &options);
            for shape in SHAPES {
                let gpu = on_gpu(&systems, &options, &tuning(shape));
                let what = format!("{preconditioner} {shape:?} {:?}", gpu.outcomes);
                assert_eq!(gpu.statuses(), cpu.statuses(), "{what}");
                let expected =
                    if most == 40 { Status::Converged } else { Status::SingularPreconditioner };
                assert_eq!(gpu.statuses(), [expected], "{what}");
            }
            let options = options.fallback(true);
            let batch = Batch::Uniform(systems.batch.clone());
            let report = solve(&batch, &systems.b, None, &options).unwrap().report;
            assert!(report.all_converged(), "{preconditioner} {:?}", report.systems);
            let rung = if most == 40 { Rung::First } else { Rung::StrongerPreconditioner };
            assert_eq!(report.systems[0].rung, rung, "{preconditioner}");
        }
    }
}

/// A pivot that is tiny compared with its row and column has no inverse in f32, but has one in f64.
#[test]
fn pivots_beyond_the_range_end_as_on_the_cpu_among_healthy_neighbours() {
    let dense = |values: [f64; 4]| {
        Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], values.to_vec()).unwrap()
    };
    let healthy = dense([4.0, 1.0, 1.0, 3.0]);
    let flat = dense([1.0, 0.0, 0.0, 1.0]);
    let small = dense([2f64.powi(-200), 1.0, 1.0, 2f64.powi(-200)]);
    let matrices = [healthy.clone(), small, healthy.clone(), flat];
    let systems = Systems::new(&matrices, vec![1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    use Status::{Converged, SingularPreconditioner};
    let options = single(options(Method::BiCgStab, Preconditioner::ILU0));
    let cpu = on_cpu(&systems, &options);
    for shape in SHAPES {
        let gpu = on_gpu(&systems, &options, &tuning(shape));
        let expected = [Converged, SingularPreconditioner, Converged, Converged];
        assert_eq!(gpu.statuses(), expected, "{shape:?}");
        assert_eq!(cpu.statuses(), expected);
        let alone = on_gpu(&systems.select(&[2]), &options, &tuning(shape));
        assert_eq!(gpu.bits(2), alone.bits(0), "{shape:?}");
    }
}
