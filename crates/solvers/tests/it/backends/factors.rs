//! Preconditioners with factors: block-Jacobi, ILU(0), IC(0).

use kernel_emu::{Emulator, Order as Threads};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, Csr, UniformBatch};
use sparsebatch_solvers::{
    Backend, Gpu, Method, Order, PrecondPrecision, Preconditioner, SolveOptions, SolveScalar,
    Status, solve_on_executor,
};

use crate::backends::common::{agree, bits, cg, chain, gpu, patterns, ragged, rhs};
use crate::common::one_step;

const PRECONDITIONERS: [Preconditioner; 3] =
    [Preconditioner::BLOCK_JACOBI, Preconditioner::ILU0, Preconditioner::IC0];

fn emulator() -> Emulator {
    Emulator::new(Threads::Forward)
}

/// Both methods with every preconditioner, in every order, and in both precisions of factors.
fn choices() -> Vec<SolveOptions> {
    let mut choices = Vec::new();
    for method in [Method::Cg, Method::BiCgStab] {
        for preconditioner in PRECONDITIONERS {
            for (order, precond_precision) in [
                (Order::Natural, PrecondPrecision::Working),
                (Order::MinDegree, PrecondPrecision::Working),
                (Order::Multicolor, PrecondPrecision::Single),
            ] {
                choices.push(
                    cg().method(method)
                        .preconditioner(preconditioner)
                        .order(order)
                        .precond_precision(precond_precision),
                );
            }
        }
    }
    choices
}

fn families<T: SolveScalar>() {
    for (family, n, items) in [(Family::Tri, 40, 9), (Family::Lap2d, 100, 3)] {
        let generated = Problem::new(family, n).unwrap().batch(items).unwrap().cast::<T>();
        for options in choices() {
            let what =
                format!("{} {n} {} {}", family.name(), options.method, options.preconditioner);
            let (batch, b) = (&generated.batch, &generated.rhs);

            let report = agree(&what, &gpu(&emulator()), batch, b, None, &options).report;

            assert!(report.all_converged(), "{what}");
            assert_eq!((report.backend.name(), report.cpu_reason()), ("gpu", None), "{what}");
            assert!(report.kernel.contains(" threads, shared"), "{}", report.kernel);
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
    let batch = ragged(patterns::<f64>(13));
    let b = rhs(&batch, 2);
    for options in choices() {
        let options = options.nrhs(2);
        let executor = emulator();
        let solution = agree("patterns", &gpu(&executor), &batch, &b, None, &options);
        assert!(solution.report.all_converged());
        // A few items at a time, within a memory limit: no bit differs.
        let (executor, limit) = (emulator(), 24_000);
        let little = Backend::Gpu(Gpu::new(executor.clone()).in_chunks(true).memory_limit(limit));
        let chunked = solve_on_executor(&little, &batch, &b, None, &options).unwrap();
        for system in 0..26 {
            assert_eq!(bits(&batch, &solution, 2, system), bits(&batch, &chunked, 2, system));
        }
        let most = executor.most_bytes_in_use();
        assert!(most <= limit, "{most} bytes of {limit}");
    }
}

#[test]
fn layouts_give_the_same_bits() {
    let matrices: Vec<Csr<f64>> = (0..7).map(|i| chain(12, 2.5 + 0.1 * i as f64)).collect();
    let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
    let pattern = matrices[0].pattern().clone();
    let own = UniformBatch::try_new(pattern, 7, BatchValues::ItemMajor(values)).unwrap();
    let shared = UniformBatch::shared(matrices[3].clone(), 7);
    for preconditioner in PRECONDITIONERS {
        let options = cg().preconditioner(preconditioner);
        let solve = |batch: &Batch<f64>| {
            let b = rhs(batch, 1);
            agree("layout", &gpu(&emulator()), batch, &b, None, &options).x
        };
        let item_major = solve(&Batch::Uniform(own.clone()));
        assert_eq!(item_major, solve(&Batch::Uniform(own.to_interleaved())));
        assert_eq!(item_major, solve(&ragged(matrices.clone())));
        assert_eq!(
            solve(&Batch::Uniform(shared.clone())),
            solve(&Batch::Uniform(shared.to_item_major()))
        );
    }
}

/// Systems that cannot be factorised, among healthy ones; the ladder solves them.
#[test]
fn singular_preconditioners_among_healthy_neighbours() {
    // Zeros on the diagonal, but solvable: rows form pairs.
    let singular = chain::<f64>(12, 0.0);
    let batch = ragged([chain(12, 2.5), singular, chain(12, 3.0)]);
    let b = rhs(&batch, 1);
    let options = one_step().method(Method::BiCgStab).preconditioner(Preconditioner::ILU0);

    let report = agree("singular", &gpu(&emulator()), &batch, &b, None, &options).report;
    let statuses: Vec<Status> = report.systems.iter().map(|s| s.outcome.status).collect();
    let expected = [Status::Converged, Status::SingularPreconditioner, Status::Converged];
    assert_eq!(statuses, expected);

    let options = options.fallback(true);
    let report = agree("ladder", &gpu(&emulator()), &batch, &b, None, &options).report;
    assert!(report.all_converged(), "{report:?}");
}
