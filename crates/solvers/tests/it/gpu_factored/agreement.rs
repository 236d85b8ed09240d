//! Solves of the GPU compared with the CPU's.

use kernel_emu::{Emulator, Order as Threads};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::generate::Family;
use sparsebatch_formats::{Batch, BatchValues, Csr, Pattern, UniformBatch};
use sparsebatch_solvers::gpu::{FactoredPlace, FactoredSolver, FactoredTuning, Guess};
use sparsebatch_solvers::{
    Method, Order, PrecondPrecision, Preconditioner, SolveOptions, SolveScalar, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::common::{METHODS, Systems, compare, on_cpu, options};
use crate::gpu_factored::support::{
    ORDERS, PRECISIONS, PRECONDITIONERS, SHAPES, by_factors, family, fits, matrix, pattern, tuning,
};

/// Compares in the shape that a plan chooses by itself.
fn agree<T: SolveScalar>(what: &str, systems: &Systems<T>, options: &SolveOptions) {
    agree_with(&[FactoredTuning::default()], what, systems, options);
}

/// Compares in every shape that has room.
fn agree_in_all<T: SolveScalar>(what: &str, systems: &Systems<T>, options: &SolveOptions) {
    agree_with(&SHAPES.map(tuning), what, systems, options);
}

fn agree_with<T: SolveScalar>(
    tunings: &[FactoredTuning],
    what: &str,
    systems: &Systems<T>,
    options: &SolveOptions,
) {
    let cpu = on_cpu(systems, options);
    let executor = Emulator::new(Threads::Forward);
    for &tuning in tunings.iter().filter(|tuning| fits(systems, options, tuning)) {
        let gpu = by_factors(&executor, systems, options, &tuning);
        let what = format!(
            "{} {what} {} {} {} factors: {} {tuning:?}",
            T::CPP,
            options.method,
            options.preconditioner,
            options.preconditioner.order(),
            options.preconditioner.precision()
        );
        compare(&what, systems, &gpu, &cpu, SolveOptions::default_rel_tol::<T>());
    }
}

/// Whether a method or a preconditioner requires symmetric matrices.
fn wants_symmetry(method: Method, preconditioner: Preconditioner) -> bool {
    method == Method::Cg || preconditioner == Preconditioner::IC0
}

fn families<T: SolveScalar>(precond_precision: PrecondPrecision) {
    for (kind, nrows) in [(Family::Tri, 33), (Family::Lap2d, 64), (Family::Rand9, 50)] {
        let mut systems = family::<T>(kind, nrows, 3);
        for method in METHODS {
            for preconditioner in PRECONDITIONERS {
                if kind == Family::Rand9 && wants_symmetry(method, preconditioner) {
                    continue;
                }
                let what = format!("{kind:?} {nrows}");
                let options = options(method, preconditioner).precond_precision(precond_precision);
                agree_in_all(&what, &systems, &options);
                for order in ORDERS {
                    agree(&what, &systems, &options.clone().order(order));
                }
                // From guesses.
                let n = systems.x0.len();
                systems.x0 = random_vector(n, 5);
                agree(&what, &systems, &options);
                systems.x0 = vec![T::ZERO; n];
            }
        }
    }
}

#[test]
fn families_agree_with_the_cpu_in_f64() {
    families::<f64>(PrecondPrecision::Working);
}

#[test]
fn families_agree_with_the_cpu_in_f32() {
    families::<f32>(PrecondPrecision::Working);
}

#[test]
fn families_agree_with_the_cpu_with_factors_in_f32() {
    families::<f64>(PrecondPrecision::Single);
}

/// Rows of any length, patterns that are not symmetric, blocks of any size.
#[test]
fn scattered_patterns_agree_with_the_cpu() {
    for (n, most, seed) in [(1, 0, 1), (7, 3, 2), (40, 6, 3), (150, 3, 4), (300, 2, 5)] {
        for symmetric in [false, true] {
            let pattern = pattern(n, most, symmetric, seed);
            let matrices: Vec<Csr<f64>> =
                (0..2).map(|item| matrix(&pattern, 1.05, symmetric, seed ^ item)).collect();
            let systems = Systems::new(&matrices, random_vector(2 * n, seed));
            for preconditioner in PRECONDITIONERS {
                let method = if symmetric { Method::Cg } else { Method::BiCgStab };
                if !symmetric && wants_symmetry(method, preconditioner) {
                    continue;
                }
                let options = options(method, preconditioner);
                let (order, precond_precision) = (Order::MinDegree, PrecondPrecision::Single);
                for options in [
                    options.clone().order(order),
                    options.clone().order(order).precond_precision(precond_precision),
                    options.clone().precond_precision(precond_precision),
                    options.clone(),
                ] {
                    agree(&format!("n = {n}"), &systems, &options);
                }
                if preconditioner == Preconditioner::BLOCK_JACOBI {
                    for size in [1, 3, 40, 128] {
                        for precond_precision in PRECISIONS {
                            let options = options
                                .clone()
                                .block_size(size)
                                .precond_precision(precond_precision);
                            agree(&format!("n = {n}, blocks of {size}"), &systems, &options);
                        }
                    }
                }
            }
        }
    }
}

/// Blocks whose first pivot is zero need exchanges of rows.
#[test]
fn blocks_are_inverted_with_row_pivoting() {
    let n = 66;
    let mut values = vec![0.0; n * n];
    for block in 0..2 {
        let draws = random_vector::<f64>(33 * 33, block as u64 + 3);
        for (k, draw) in draws.into_iter().enumerate() {
            let (row, col) = (k / 33, k % 33);
            let value = if row == col { 0.0 } else { draw };
            values[(block * 33 + row) * n + block * 33 + col] = value;
        }
    }
    values[40] = 1e-3;
    let row_ptr = (0..=n).map(|row| (row * n) as i32).collect();
    let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
    let dense = Csr::<f64>::try_new(n, n, row_ptr, col_idx, values).unwrap();
    let systems = Systems::new(&[dense.clone(), dense], random_vector(2 * n, 8));
    let options = options(Method::BiCgStab, Preconditioner::BLOCK_JACOBI).block_size(33);

    for precond_precision in PRECISIONS {
        let options = options.clone().precond_precision(precond_precision);

        agree_in_all("zero diagonal", &systems, &options);

        let cpu = on_cpu(&systems, &options);
        assert_eq!(cpu.statuses(), [Status::Converged; 2]);
        assert!(cpu.outcomes[0].iterations <= 3, "{:?}", cpu.outcomes);
    }
}

/// Without fill, the factors are those of A itself: one iteration, or two because of rounding.
#[test]
fn factors_of_tridiagonal_matrices_are_exact() {
    let systems = family::<f64>(Family::Tri, 100, 3);
    for (method, preconditioner) in [
        (Method::Cg, Preconditioner::IC0),
        (Method::Cg, Preconditioner::ILU0),
        (Method::BiCgStab, Preconditioner::IC0),
        (Method::BiCgStab, Preconditioner::ILU0),
    ] {
        for order in ORDERS {
            for shape in SHAPES {
                let options = options(method, preconditioner).order(order);
                let executor = Emulator::new(Threads::Reverse);
                let gpu = by_factors(&executor, &systems, &options, &tuning(shape));
                for outcome in &gpu.outcomes {
                    assert_eq!(outcome.status, Status::Converged, "{options:?} {shape:?}");
                    assert!(outcome.iterations <= 2, "{options:?} {shape:?} {outcome:?}");
                }
            }
        }
    }
}

/// Systems beyond shared memory and beyond 16-bit positions.
#[test]
fn large_systems_are_solved_in_device_memory() {
    for (n, place) in [
        (1600, FactoredPlace::AllShared),
        (2500, FactoredPlace::ValuesGlobal),
        (4096, FactoredPlace::FactorsGlobal),
        (22_500, FactoredPlace::AllGlobal),
    ] {
        let systems = family::<f64>(Family::Lap2d, n, 1);
        let options =
            options(Method::Cg, Preconditioner::IC0).order(Order::MinDegree).rel_tol(1e-6);
        let executor = Emulator::new(Threads::Forward);
        let plan = FactoredSolver::<_, f64>::new(&executor, systems.pattern(), 1, &options);
        let explain = plan.unwrap().explain();
        assert_eq!(explain.launches[0].factored().unwrap().place, place, "{explain}");
        let gpu = by_factors(&executor, &systems, &options, &FactoredTuning::default());
        compare(&format!("n = {n}"), &systems, &gpu, &on_cpu(&systems, &options), 1e-6);
    }
}

#[test]
fn shared_values_and_several_right_hand_sides_are_solved() {
    let (n, items, nrhs) = (25, 3, 2);
    let pattern = pattern(n, 3, false, 4);
    let matrices: Vec<Csr<f64>> = (0..3).map(|item| matrix(&pattern, 1.2, false, item)).collect();
    let b = random_vector(n * items * nrhs, 8);
    for preconditioner in [Preconditioner::ILU0, Preconditioner::BLOCK_JACOBI] {
        let options = options(Method::BiCgStab, preconditioner).nrhs(nrhs);
        let shared = BatchValues::Shared(matrices[0].values().to_vec());
        let own = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
        for values in [shared, BatchValues::ItemMajor(own)] {
            let (BatchValues::Shared(host) | BatchValues::ItemMajor(host)) = &values else {
                unreachable!()
            };
            let executor = Emulator::new(Threads::Forward);
            let mut plan =
                FactoredSolver::<_, f64>::new(&executor, pattern.view(), items, &options).unwrap();
            let mut x = executor.upload(&vec![f64::NAN; b.len()]).unwrap();
            let (host, right) = (executor.upload(host).unwrap(), executor.upload(&b).unwrap());
            plan.solve(&host, &right, Guess::Zero, &mut x).unwrap();
            let batch = UniformBatch::try_new(pattern.clone().into(), items, values).unwrap();

            let expected = solve(&Batch::Uniform(batch), &b, None, &options).unwrap();

            let x = executor.download(&x).unwrap();
            for (found, expected) in x.iter().zip(&expected.x) {
                assert!((found - expected).abs() <= 1e-8 * expected.abs().max(1.0));
            }
            assert!(plan.outcomes().unwrap().iter().all(|o| o.status == Status::Converged));
            // The same plan again: its queue must be reset. With kept factors no bit changes.
            for keeps in [false, true] {
                if keeps {
                    plan.factorise(&host).unwrap();
                }
                let mut again = executor.upload(&x).unwrap();
                plan.solve(&host, &right, Guess::Zero, &mut again).unwrap();
                assert_eq!(executor.download(&again).unwrap(), x);
                plan.solve(&host, &right, Guess::InX, &mut again).unwrap();
                assert!(plan.outcomes().unwrap().iter().all(|o| o.iterations == 0));
            }
        }
    }
}
