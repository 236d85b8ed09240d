//! Substitution alone, and solves that are judged together.

use kernel_emu::Order;
use proptest::prelude::*;
use sparsebatch_formats::testing::random_vector;
use sparsebatch_formats::{Csr, Pattern};
use sparsebatch_solvers::gpu::{GpuLu, Guess};
use sparsebatch_solvers::{CpuScalar, Outcome, SolveError, SolveOptions, Status};
use sparsebatch_spmv_gpu::{Executor, Value};

use crate::common::Systems;
use crate::common::emulator::Emulator;
use crate::independence::{batch, flaw, sizes};
use crate::support::{matrix, options, pattern};

/// Solutions of several solves one after the other, and how they ended.
struct Together<T> {
    x: Vec<Vec<T>>,
    outcomes: Vec<Outcome>,
}

/// Solves with kept factors for all of `b`, and judges them together.
fn together<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    b: &[Vec<T>],
    options: &SolveOptions,
) -> Together<T> {
    let mut plan =
        GpuLu::<_, T>::new(executor, systems.pattern(), systems.batch.nitems(), options).unwrap();
    plan.factor(&executor.upload(systems.values()).unwrap()).unwrap();
    let b: Vec<_> = b.iter().map(|b| executor.upload(b).unwrap()).collect();
    let length = systems.b.len();
    let mut x: Vec<_> = b.iter().map(|_| executor.alloc(length).unwrap()).collect();
    for (b, x) in b.iter().zip(&mut x) {
        plan.substitute(b, x).unwrap();
    }
    let pairs: Vec<_> = b.iter().zip(&x).collect();
    plan.verify(&pairs).unwrap();
    let before = executor.bytes_in_use();
    plan.verify(&pairs).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "later calls allocate nothing");
    Together {
        x: x.iter().map(|x| executor.download(x).unwrap()).collect(),
        outcomes: plan.verified().unwrap(),
    }
}

/// The solution and the outcome of each solve by itself, from 0.
fn one_by_one<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    b: &[Vec<T>],
    options: &SolveOptions,
) -> Together<T> {
    let mut plan =
        GpuLu::<_, T>::new(executor, systems.pattern(), systems.batch.nitems(), options).unwrap();
    plan.factor(&executor.upload(systems.values()).unwrap()).unwrap();
    let (mut x, mut outcomes) = (Vec::new(), Vec::new());
    for b in b {
        let b = executor.upload(b).unwrap();
        let mut own = executor.alloc(systems.b.len()).unwrap();
        plan.solve_again(&b, Guess::Zero, &mut own).unwrap();
        x.push(executor.download(&own).unwrap());
        outcomes.extend(plan.outcomes().unwrap());
    }
    Together { x, outcomes }
}

fn bits<T: Value>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.to_f64().to_bits()).collect()
}

/// Held against solves one by one; alone and in another order of threads a system has the same bits.
fn check<T: Value + CpuScalar>(
    systems: &Systems<T>,
    solves: usize,
    options: &SolveOptions,
    seed: u64,
) {
    let length = systems.b.len();
    let mut b: Vec<Vec<T>> =
        (0..solves as u64).map(|solve| random_vector::<T>(length, seed + solve)).collect();
    b[0].copy_from_slice(&systems.b);
    let found = together(&Emulator::new(Order::Forward), systems, &b, options);
    let again = together(&Emulator::new(Order::Random(seed)), systems, &b, options);
    // No refinement: x of the first solve is all that substitution has.
    let once = SolveOptions { max_restarts: 0, ..options.clone() };
    let whole = one_by_one(&Emulator::new(Order::Reverse), systems, &b, &once);
    let count = systems.batch.nitems() * options.nrhs;
    let n = length / count;
    assert_eq!(found.outcomes.len(), solves * count);
    for solve in 0..solves {
        for system in 0..count {
            let (one, other) =
                (&found.outcomes[solve * count + system], &whole.outcomes[solve * count + system]);
            let what =
                format!("{} seed {seed} solve {solve} system {system}: {one:?} {other:?}", T::CPP);
            let own = |x: &[Vec<T>]| bits(&x[solve][system * n..(system + 1) * n]);
            assert_eq!(own(&found.x), own(&again.x), "{what}");
            assert_eq!(
                format!("{one:?}"),
                format!("{:?}", again.outcomes[solve * count + system]),
                "{what}"
            );
            assert_eq!(one.rhs_norm.is_nan(), other.rhs_norm.is_nan(), "{what}");
            if other.rhs_norm.is_finite() {
                let close = 1e-14 * other.rhs_norm;
                assert!((one.rhs_norm - other.rhs_norm).abs() <= close, "{what}");
            }
            if other.iterations == 1 && other.status != Status::NonFinite {
                assert_eq!(own(&found.x), own(&whole.x), "{what}");
                let close = 4.0 * T::EPSILON.to_f64() * other.rhs_norm + 1e-2 * other.residual_norm;
                assert!((one.residual_norm - other.residual_norm).abs() <= close, "{what}");
            }
            // Rounding decides how a system ends where tolerances are about as small.
            if options.rel_tols.is_none() && options.floor.is_none() {
                assert_eq!(one.status, other.status, "{what}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn systems_end_as_by_a_solve_of_their_own(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..9),
        solves in 1usize..9,
        seed in 0u64..1_000_000,
        floor in prop::option::of(0.0f64..8.0),
    ) {
        let (n, most) = size;
        let mut options = SolveOptions { floor, ..options() };
        if seed.is_multiple_of(3) {
            let tolerances = (0..flaws.len()).map(|item| if item % 2 == 0 { 0.0 } else { 1e-3 });
            options.rel_tols = Some(tolerances.collect());
        }
        check(&batch::<f64>(n, most, &flaws, seed), solves, &options, seed);
        check(&batch::<f32>(n, most, &flaws, seed), solves, &options, seed);
    }
}
