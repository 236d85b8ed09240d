//! A system's result does not depend on its neighbours, its position in the batch, the order of
//! threads, or the number of blocks.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_solvers::SolveScalar;
use sparsebatch_solvers::gpu::BandedTuning;
use sparsebatch_testing::random_vector;

use crate::common::Systems;
use crate::gpu_banded::support::{Look, band, by_banded, options};
use crate::gpu_lu::independence::{Flaw, flaw};
use crate::gpu_lu::support::{matrix, mixed_tolerances};

/// Number of rows, diagonals on each side, threads per system in a block, and blocks per system.
fn sizes() -> impl Strategy<Value = (usize, usize, BandedTuning)> {
    let threads = |threads: &'static [Option<u32>]| {
        prop::sample::select(threads).prop_map(|some| BandedTuning::default().threads(some))
    };
    let usual = BandedTuning::default();
    let blocks = usual.cluster(Some(4));
    prop_oneof![
        (1usize..40, 1usize..3, Just(usual)),
        (1usize..145, Just(1), threads(&[None, Some(16), Some(32)])),
        (1usize..145, Just(2), threads(&[None, Some(16), Some(64)])),
        (145usize..600, 1usize..3, threads(&[None, Some(128)])),
        (1usize..4600, 1usize..3, Just(blocks)),
        (1usize..144, 3usize..5, threads(&[Some(16), Some(64)])),
        (1usize..4600, 3usize..5, Just(blocks)),
    ]
}

fn batch<T: Scalar>(n: usize, half: usize, flaws: &[Flaw], seed: u64) -> Systems<T> {
    let look = if seed.is_multiple_of(3) { Look::WithHoles } else { Look::Whole };
    let pattern = band(n, half, look);
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

fn check<T: SolveScalar>(
    (n, half, tuning): (usize, usize, BandedTuning),
    flaws: &[Flaw],
    seed: u64,
) -> Result<(), TestCaseError> {
    let systems = batch::<T>(n, half, flaws, seed);
    let mut options = options();
    options.rel_tol = mixed_tolerances(flaws.len(), seed);
    let all = by_banded(&Emulator::new(Order::Forward), &systems, &options, &tuning);
    let what = format!("{} n = {n} {half} {tuning:?} {flaws:?} seed {seed}", T::CPP);
    // The same batch with another order of threads and one block.
    let tuning = tuning.max_blocks(Some(1));
    let again = by_banded(&Emulator::new(Order::Random(seed)), &systems, &options, &tuning);
    // The batch in reverse, and each system alone.
    let order: Vec<usize> = (0..flaws.len()).rev().collect();
    let (turned, turned_options) = (systems.select(&order), options.for_systems(&order));
    let turned = by_banded(&Emulator::new(Order::Reverse), &turned, &turned_options, &tuning);
    for item in 0..flaws.len() {
        let (alone, options) = (systems.select(&[item]), options.for_systems(&[item]));
        let alone = by_banded(&Emulator::new(Order::Forward), &alone, &options, &tuning);
        prop_assert_eq!(all.bits(item), again.bits(item), "{} order", &what);
        prop_assert_eq!(all.bits(item), turned.bits(flaws.len() - 1 - item), "{} place", &what);
        prop_assert_eq!(all.bits(item), alone.bits(0), "{} alone", &what);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn flawed_neighbours_change_no_bit_in_f64(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..20),
        seed in 0u64..1_000_000,
    ) {
        check::<f64>(size, &flaws, seed)?;
    }

    #[test]
    fn flawed_neighbours_change_no_bit_in_f32(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..20),
        seed in 0u64..1_000_000,
    ) {
        check::<f32>(size, &flaws, seed)?;
    }
}
