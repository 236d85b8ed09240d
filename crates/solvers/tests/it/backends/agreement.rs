//! The same call gives the same on either backend.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, Csr, UniformBatch};
use sparsebatch_solvers::{
    InnerPrecision, Method, Preconditioner, SolveScalar, Status, solve, solve_on_executor,
};
use sparsebatch_testing::random_vector;

use crate::backends::common::{CPU, agree, bits, cg, chain, dense, gpu, patterns, ragged, rhs};
use crate::common::one_step;

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

fn families<T: SolveScalar>() {
    let cases = [
        (Family::Tri, 13, 9),
        (Family::Tri, 128, 3),
        (Family::Lap2d, 16, 9),
        (Family::Lap2d, 100, 3),
    ];
    for (family, n, items) in cases {
        let generated = Problem::new(family, n).unwrap().batch(items).unwrap().cast::<T>();
        let preconditioners = [Preconditioner::None, Preconditioner::Jacobi, Preconditioner::Auto];
        let inner = [InnerPrecision::Working, InnerPrecision::Auto];
        for (preconditioner, inner_precision) in
            preconditioners.into_iter().flat_map(|p| inner.map(|inner| (p, inner)))
        {
            let options = cg().preconditioner(preconditioner).inner_precision(inner_precision);
            let what = format!("{} {n} {preconditioner} {inner_precision}", family.name());
            let (batch, b) = (&generated.batch, &generated.rhs);

            let solution = agree(&what, &gpu(&emulator()), batch, b, None, &options);

            let report = solution.report;
            assert!(report.all_converged(), "{what}");
            assert_eq!((report.backend.name(), report.runs.len()), ("gpu", 1));
            assert!(report.device.starts_with("emulation"), "{}", report.device);
            assert!(report.kernel.starts_with("cg("), "{}", report.kernel);
            assert_eq!((report.cpu_reason(), report.runs[0].systems), (None, items));
        }
    }
}

#[test]
fn families_in_f64() {
    families::<f64>();
}

#[test]
fn families_in_f32() {
    families::<f32>();
}

#[test]
fn batches_of_several_patterns() {
    let batch = ragged(patterns::<f64>(23));
    let b = rhs(&batch, 1);
    let x0: Vec<f64> = random_vector(b.len(), 5);
    let executor = emulator();

    for guess in [None, Some(x0.as_slice())] {
        let solution = agree("patterns", &gpu(&executor), &batch, &b, guess, &cg());
        assert!(solution.report.all_converged());
        let report = &solution.report;
        assert!(report.kernel.contains("systems), cg("), "{}", report.kernel);
        // A system's bits are those that it has by itself.
        for item in 0..batch.nitems() {
            let rows = batch.rows(item);
            let alone = ragged([patterns::<f64>(23).swap_remove(item)]);
            let guess = guess.map(|x0| &x0[rows.clone()]);
            let single =
                solve_on_executor(&gpu(&executor), &alone, &b[rows], guess, &cg()).unwrap();
            assert_eq!(bits(&batch, &solution, 1, item), bits(&alone, &single, 1, 0), "{item}");
        }
    }
}

#[test]
fn layouts_and_right_hand_sides() {
    let matrices: Vec<Csr<f64>> = (0..7).map(|i| chain(12, 2.5 + 0.1 * i as f64)).collect();
    let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
    let pattern = matrices[0].pattern().clone();
    let own = UniformBatch::try_new(pattern, 7, BatchValues::ItemMajor(values)).unwrap();
    let shared = UniformBatch::shared(matrices[3].clone(), 7);
    for nrhs in [1, 3] {
        let options = cg().nrhs(nrhs);
        let solve = |batch: &Batch<f64>| {
            let b = rhs(batch, nrhs);
            agree("layout", &gpu(&emulator()), batch, &b, None, &options)
        };
        let item_major = solve(&Batch::Uniform(own.clone()));
        let interleaved = solve(&Batch::Uniform(own.to_interleaved()));
        let repeated = solve(&ragged(matrices.clone()));
        assert_eq!(item_major.x, interleaved.x);
        assert_eq!(item_major.x, repeated.x);
        assert_eq!(
            solve(&Batch::Uniform(shared.clone())).x,
            solve(&Batch::Uniform(shared.to_item_major())).x
        );
    }
}

/// One system of each end beside healthy ones of its pattern and of others.
#[test]
fn statuses_among_healthy_neighbours() {
    let edited = |edit: fn(&mut Vec<f64>)| {
        let matrix = chain(12, 2.5);
        let mut values = matrix.values().to_vec();
        edit(&mut values);
        Csr::from_parts(matrix.pattern().clone(), values).unwrap()
    };
    let flawed = [
        (edited(|v| v[0] = f64::NAN), Status::NonFinite),
        (edited(|v| v[5] = f64::INFINITY), Status::NonFinite),
        (edited(|v| v[0] = 0.0), Status::ZeroDiagonal),
        (edited(|v| v.fill(0.0)), Status::ZeroDiagonal),
        (edited(|v| v.iter_mut().for_each(|v| *v = -*v)), Status::Indefinite),
        (edited(|v| v.iter_mut().for_each(|v| *v *= 1e300)), Status::Converged),
        (edited(|v| v.iter_mut().for_each(|v| *v *= 1e-300)), Status::Converged),
        (Csr::zeros(0, 0).unwrap(), Status::Converged),
        (dense(6, 1.0), Status::Indefinite),
    ];
    let healthy = patterns::<f64>(flawed.len());
    let both = flawed.iter().zip(&healthy).flat_map(|((f, _), h)| [f.clone(), h.clone()]);
    let batch = ragged(both);
    let b = rhs(&batch, 1);

    let solution = agree("statuses", &gpu(&emulator()), &batch, &b, None, &cg());

    let alone = ragged(healthy);
    let healthy_b: Vec<f64> = (0..alone.nitems())
        .flat_map(|i| b[batch.row_offset(2 * i + 1)..batch.row_offset(2 * i + 2)].to_vec())
        .collect();
    let without = solve_on_executor(&gpu(&emulator()), &alone, &healthy_b, None, &cg()).unwrap();
    for (i, (_, expected)) in flawed.iter().enumerate() {
        assert_eq!(solution.report.systems[2 * i].outcome.status, *expected, "{i}");
        assert_eq!(bits(&batch, &solution, 1, 2 * i + 1), bits(&alone, &without, 1, i), "{i}");
    }
}

#[test]
fn right_hand_sides_of_zero_nan_and_infinity() {
    let batch = ragged((0..4).map(|_| chain::<f64>(5, 2.5)));
    let mut b = rhs(&batch, 1);
    b[5..10].fill(0.0);
    b[12] = f64::NAN;
    b[17] = f64::NEG_INFINITY;

    let solution = agree("b", &gpu(&emulator()), &batch, &b, Some(&[3.0; 20]), &cg());

    let found: Vec<Status> =
        solution.report.systems.iter().map(|system| system.outcome.status).collect();
    use Status::{Converged, NonFinite};
    assert_eq!(found, [Converged, Converged, NonFinite, NonFinite]);
    assert_eq!(solution.x[5..10], [0.0; 5]);
}

#[test]
fn limits_of_the_systems_one_by_one() {
    let batch = ragged(patterns::<f64>(12));
    let options = cg()
        .nrhs(2)
        .rel_tol((0..24).map(|s| 10f64.powi(-(s % 12) - 1)).collect::<Vec<_>>())
        .abs_tol((0..24).map(|s| if s % 7 == 0 { 0.1 } else { 0.0 }).collect::<Vec<_>>())
        .max_iters((0..24).map(|s| if s % 5 == 2 { s as u32 / 5 } else { 50 }).collect::<Vec<_>>());
    let b = rhs(&batch, 2);

    let solution = agree("limits", &gpu(&emulator()), &batch, &b, None, &options);

    let counts = solution.report.status_counts();
    assert!(counts.iter().any(|count| count.0 == Status::MaxIterations), "{counts:?}");
}

#[test]
fn empty_batches() {
    let none = ragged::<f64>([]);
    let solution = solve_on_executor(&gpu(&emulator()), &none, &[], None, &cg()).unwrap();
    assert!(solution.report.systems.is_empty() && solution.report.all_converged());
    assert_eq!((solution.report.backend.name(), solution.report.kernel.as_str()), ("gpu", "none"));
}

#[test]
fn the_cpu_as_a_backend_is_the_cpu() {
    let batch = ragged(patterns::<f64>(9));
    let b = rhs(&batch, 1);
    let options = one_step().method(Method::BiCgStab);

    let on = solve_on_executor(&CPU, &batch, &b, None, &options).unwrap();
    let plain = solve(&batch, &b, None, &options).unwrap();

    assert_eq!((on.x, on.report.backend.name(), on.report.cpu_reason()), (plain.x, "cpu", None));
}
