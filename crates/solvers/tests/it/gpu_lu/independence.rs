//! A system's result does not depend on its neighbours, its position in the batch, the order of
//! threads, or the number of blocks.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_solvers::gpu::{LuOrder, LuTuning};
use sparsebatch_solvers::{SolveOptions, SolveScalar};
use sparsebatch_testing::random_vector;

use crate::common::{Systems, compare, on_cpu};
use crate::gpu_lu::support::{by_lu, matrix, mixed_tolerances, options, pattern};

/// How a matrix that has factors is damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flaw {
    None,
    Nan,
    Infinite,
    Zero,
    Scaled(f64),
}

pub(crate) fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        4 => Just(Flaw::None),
        1 => Just(Flaw::Nan),
        1 => Just(Flaw::Infinite),
        1 => Just(Flaw::Zero),
        1 => (-12.0..12.0).prop_map(|e: f64| Flaw::Scaled(10f64.powf(e))),
    ]
}

/// Some systems, some flawed, some with guesses.
pub(crate) fn batch<T: Scalar>(n: usize, most: usize, flaws: &[Flaw], seed: u64) -> Systems<T> {
    let pattern = pattern(n, most, seed);
    let one = |(&flaw, seed): (&Flaw, u64)| {
        let healthy = matrix::<f64>(&pattern, 1.1, seed);
        let spot = seed as usize % healthy.values().len();
        let values = healthy.values().iter().enumerate().map(|(k, &value)| match flaw {
            Flaw::Nan if k == spot => f64::NAN,
            Flaw::Infinite if k == spot => f64::INFINITY,
            Flaw::Zero => 0.0,
            Flaw::Scaled(factor) => factor * value,
            _ => value,
        });
        let view = healthy.view();
        let (row_ptr, col_idx) = (view.pattern().row_ptr(), view.pattern().col_idx());
        let values = values.map(T::from_f64).collect();
        Csr::try_new(n, n, row_ptr.to_vec(), col_idx.to_vec(), values).unwrap()
    };
    let matrices: Vec<Csr<T>> = flaws.iter().zip(seed..).map(one).collect();
    let mut systems = Systems::new(&matrices, random_vector(n * flaws.len(), seed ^ 77));
    if seed.is_multiple_of(2) {
        systems.x0 = random_vector(n * flaws.len(), seed ^ 99);
    }
    systems
}

pub(crate) fn sizes() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![(1usize..20, 0usize..8), (20usize..70, 0usize..6), (70usize..200, 0usize..3)]
}

fn tunings() -> impl Strategy<Value = LuTuning> {
    let threads =
        prop::sample::select(vec![None, Some(32), Some(64), Some(128), Some(256), Some(512)]);
    let systems = prop::sample::select(vec![None, Some(1), Some(2), Some(3), Some(7)]);
    (threads, systems)
        .prop_map(|(threads, systems)| LuTuning::default().threads(threads).systems(systems))
}

fn check<T: SolveScalar>(
    (n, most): (usize, usize),
    flaws: &[Flaw],
    seed: u64,
    tuning: LuTuning,
) -> Result<(), TestCaseError> {
    let systems = batch::<T>(n, most, flaws, seed);
    let mut options = options();
    options.rel_tol = mixed_tolerances(flaws.len(), seed);
    let all = by_lu(&Emulator::new(Order::Forward), &systems, &options, &tuning);
    let what = format!("{} n = {n} {tuning:?} {flaws:?} seed {seed}", T::CPP);
    if !options.has_own_limits() {
        let rel_tol = SolveOptions::default_rel_tol::<T>();
        compare(&what, &systems, &all, &on_cpu(&systems, &options), rel_tol);
    }
    // The same batch with another order of threads and fewer blocks.
    let tuning = tuning.max_blocks(Some(1));
    let again = by_lu(&Emulator::new(Order::Random(seed)), &systems, &options, &tuning);
    // Each system alone, and the batch in reverse.
    let order: Vec<usize> = (0..flaws.len()).rev().collect();
    let part = |items: &[usize]| (systems.select(items), options.for_systems(items));
    let (turned, turned_options) = part(&order);
    let turned = by_lu(&Emulator::new(Order::Reverse), &turned, &turned_options, &tuning);
    for item in 0..flaws.len() {
        let (alone, options) = part(&[item]);
        let alone = by_lu(&Emulator::new(Order::Forward), &alone, &options, &tuning);
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
        tuning in tunings(),
    ) {
        check::<f64>(size, &flaws, seed, tuning)?;
    }

    #[test]
    fn flawed_neighbours_change_no_bit_in_f32(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..6),
        seed in 0u64..1_000_000,
        tuning in tunings(),
    ) {
        check::<f32>(size, &flaws, seed, tuning)?;
    }
}

/// Rows with more and with fewer entries than a partial sum of the residual; two refinements each.
#[test]
fn threads_and_systems_side_by_side_change_no_bit() {
    let flaws = [Flaw::None, Flaw::Zero, Flaw::None, Flaw::Scaled(1e5), Flaw::None];
    for (n, most) in [(9, 3), (40, 38), (150, 2)] {
        let systems = batch::<f64>(n, most, &flaws, 6);
        let options = options().rel_tol(0.0).max_restarts(1);
        let solve = |threads, systems_of_block| {
            let tuning = LuTuning::default()
                .threads(Some(threads))
                .systems(Some(systems_of_block))
                .order(Some(LuOrder::MinDegree));
            by_lu(&Emulator::new(Order::Forward), &systems, &options, &tuning)
        };
        let first = solve(32, 1);

        for (threads, systems_of_block) in [(64, 1), (32, 2), (256, 2), (128, 3), (64, 5)] {
            let other = solve(threads, systems_of_block);

            for item in 0..flaws.len() {
                let what = format!("{n} rows, {threads} threads, {systems_of_block} systems");
                assert_eq!(first.bits(item), other.bits(item), "{what}, system {item}");
            }
        }
    }
}
