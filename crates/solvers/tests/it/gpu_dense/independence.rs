//! A system's result does not depend on its neighbours, its position in the batch, the order of
//! threads, or the number of blocks.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_solvers::SolveScalar;
use sparsebatch_solvers::gpu::{DenseForm, DenseTuning};

use crate::gpu_dense::support::{by_dense, options};
use crate::gpu_lu::independence::{Flaw, batch, flaw};
use crate::gpu_lu::support::mixed_tolerances;

/// Number of rows, most entries of a row besides the diagonal, and threads per system, which ask for
/// the form by rows.
fn sizes() -> impl Strategy<Value = (usize, usize, Option<u32>)> {
    prop_oneof![
        (1usize..9, 0usize..8, Just(None)),
        (9usize..17, 0usize..12, prop::sample::select(vec![None, Some(16)])),
        (17usize..25, 0usize..12, prop::sample::select(vec![None, Some(8), Some(16), Some(32)])),
        (25usize..33, 0usize..12, prop::sample::select(vec![None, Some(16), Some(32)])),
        (33usize..57, 0usize..12, prop::sample::select(vec![None, Some(32), Some(64)])),
        (57usize..65, 0usize..12, Just(None)),
    ]
}

fn check<T: SolveScalar>(
    (n, most, threads): (usize, usize, Option<u32>),
    flaws: &[Flaw],
    seed: u64,
) -> Result<(), TestCaseError> {
    let systems = batch::<T>(n, most, flaws, seed);
    let mut options = options();
    options.rel_tol = mixed_tolerances(flaws.len(), seed);
    let tuning = DenseTuning::default().threads(threads).form(threads.map(|_| DenseForm::Rows));
    let all = by_dense(&Emulator::new(Order::Forward), &systems, &options, &tuning);
    let what = format!("{} n = {n} {tuning:?} {flaws:?} seed {seed}", T::CPP);
    // The same batch with another order of threads and one block.
    let tuning = tuning.max_blocks(Some(1));
    let again = by_dense(&Emulator::new(Order::Random(seed)), &systems, &options, &tuning);
    // The batch in reverse, and each system alone.
    let order: Vec<usize> = (0..flaws.len()).rev().collect();
    let (turned, turned_options) = (systems.select(&order), options.for_systems(&order));
    let turned = by_dense(&Emulator::new(Order::Reverse), &turned, &turned_options, &tuning);
    for item in 0..flaws.len() {
        let (alone, options) = (systems.select(&[item]), options.for_systems(&[item]));
        let alone = by_dense(&Emulator::new(Order::Forward), &alone, &options, &tuning);
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
