//! A system's result does not depend on its neighbours, its position in the batch, the order of
//! threads, or the number of blocks.

use kernel_emu::{Emulator, Order as Threads};
use proptest::prelude::*;
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_solvers::gpu::FactoredTuning;
use sparsebatch_solvers::{Method, SolveOptions, SolveScalar};
use sparsebatch_testing::random_vector;

use crate::common::Systems;
use crate::common::one_step;
use crate::gpu_factored::support::{
    ORDERS, PRECISIONS, PRECONDITIONERS, SHAPES, by_factors, matrix, pattern, tuning,
};

/// How a matrix that has factors is damaged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flaw {
    None,
    Nan,
    Infinite,
    Zero,
    Negative,
    Scaled(f64),
}

pub(super) fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        4 => Just(Flaw::None),
        1 => Just(Flaw::Nan),
        1 => Just(Flaw::Infinite),
        1 => Just(Flaw::Zero),
        1 => Just(Flaw::Negative),
        1 => (-12.0..12.0).prop_map(|e: f64| Flaw::Scaled(10f64.powf(e))),
        1 => (-300.0..300.0).prop_map(|e: f64| Flaw::Scaled(10f64.powf(e))),
    ]
}

/// Some systems, some flawed, some with guesses.
pub(super) fn batch<T: Scalar>(n: usize, most: usize, flaws: &[Flaw], seed: u64) -> Systems<T> {
    let pattern = pattern(n, most, true, seed);
    let one = |(&flaw, seed): (&Flaw, u64)| {
        let healthy = matrix::<f64>(&pattern, 1.1, !seed.is_multiple_of(3), seed);
        let spot = seed as usize % healthy.values().len();
        let values = healthy.values().iter().enumerate().map(|(k, &value)| match flaw {
            Flaw::Nan if k == spot => f64::NAN,
            Flaw::Infinite if k == spot => f64::INFINITY,
            Flaw::Zero => 0.0,
            Flaw::Negative => -value,
            Flaw::Scaled(factor) => factor * value,
            _ => value,
        });
        let values = values.map(T::from_f64).collect();
        Csr::from_parts(pattern.clone().into(), values).unwrap()
    };
    let matrices: Vec<Csr<T>> = flaws.iter().zip(seed..).map(one).collect();
    let mut systems = Systems::new(&matrices, random_vector(n * flaws.len(), seed ^ 77));
    if seed.is_multiple_of(2) {
        systems.x0 = random_vector(n * flaws.len(), seed ^ 99);
    }
    systems
}

fn sizes() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![(1usize..20, 0usize..6), (20usize..70, 0usize..5), (70usize..200, 0usize..3)]
}

fn choices() -> impl Strategy<Value = (SolveOptions, FactoredTuning)> {
    let methods = prop::sample::select(vec![Method::Cg, Method::BiCgStab]);
    let preconditioners = prop::sample::select(PRECONDITIONERS.to_vec());
    let orders = prop::sample::select(ORDERS.to_vec());
    let shapes = prop::sample::select(SHAPES.to_vec());
    let precisions = prop::sample::select(PRECISIONS.to_vec());
    (methods, preconditioners, orders, precisions, shapes).prop_map(
        |(method, preconditioner, order, precond_precision, shape)| {
            let options = one_step()
                .method(method)
                .preconditioner(preconditioner)
                .order(order)
                .precond_precision(precond_precision)
                .max_iters(60);
            (options, tuning(shape))
        },
    )
}

fn check<T: SolveScalar>(
    (n, most): (usize, usize),
    flaws: &[Flaw],
    seed: u64,
    (options, tuning): (SolveOptions, FactoredTuning),
) -> Result<(), TestCaseError> {
    let systems = batch::<T>(n, most, flaws, seed);
    let all = by_factors(&Emulator::new(Threads::Forward), &systems, &options, &tuning);
    let what = format!("{} n = {n} {tuning:?} {options:?} {flaws:?} seed {seed}", T::CPP);
    // The same batch with another order of threads and fewer blocks.
    let tuning = tuning.max_blocks(Some(1));
    let again = by_factors(&Emulator::new(Threads::Random(seed)), &systems, &options, &tuning);
    // Each system alone, and the batch in reverse.
    let order: Vec<usize> = (0..flaws.len()).rev().collect();
    let turned = systems.select(&order);
    let turned = by_factors(&Emulator::new(Threads::Reverse), &turned, &options, &tuning);
    for item in 0..flaws.len() {
        let alone = systems.select(&[item]);
        let alone = by_factors(&Emulator::new(Threads::Forward), &alone, &options, &tuning);
        prop_assert_eq!(all.bits(item), again.bits(item), "{} order", &what);
        prop_assert_eq!(all.bits(item), turned.bits(flaws.len() - 1 - item), "{} place", &what);
        prop_assert_eq!(all.bits(item), alone.bits(0), "{} alone", &what);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn flawed_neighbours_change_no_bit_in_f64(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..6),
        seed in 0u64..1_000_000,
        choice in choices(),
    ) {
        check::<f64>(size, &flaws, seed, choice)?;
    }

    #[test]
    fn flawed_neighbours_change_no_bit_in_f32(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..6),
        seed in 0u64..1_000_000,
        choice in choices(),
    ) {
        check::<f32>(size, &flaws, seed, choice)?;
    }
}
