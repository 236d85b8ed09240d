//! Sums of squares of the values of items, formed on the device with the bits of the host.

use kernel_emu::{Emulator, Order, emulators};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::Scalar;
use sparsebatch_solve_core::verdict::sum_of_squares;
use sparsebatch_solvers::gpu::ValueSquares;
use sparsebatch_testing::random_vector;

fn check<T: Value>(executor: &Emulator, nitems: usize, nnz: usize) {
    let mut values: Vec<T> = random_vector(nitems * nnz, 7);
    let specials = [f64::NAN, f64::INFINITY, 1e200, 1e-200, -0.0];
    for (item, special) in specials.into_iter().enumerate() {
        if let Some(value) = values.get_mut((3 * item + 1) * nnz + nnz / 2) {
            *value = T::from_f64(special);
        }
    }
    let squares = ValueSquares::new(executor, nitems, nnz).unwrap();
    assert_eq!(squares.nitems(), nitems);
    let on_device = executor.upload(&values).unwrap();
    let mut sums = executor.alloc::<f64>(nitems).unwrap();

    squares.apply(&on_device, &mut sums).unwrap();

    let bits = |sum: f64| if sum.is_nan() { f64::NAN.to_bits() } else { sum.to_bits() };
    let found: Vec<u64> = executor.download(&sums).unwrap().into_iter().map(bits).collect();
    let of = |item: usize| sum_of_squares(&values[item * nnz..(item + 1) * nnz]);
    let expected: Vec<u64> = (0..nitems).map(|item| bits(of(item))).collect();
    assert_eq!(found, expected, "{nitems} x {nnz} {}", <T as Scalar>::NAME);
}

#[test]
fn sums_of_squares_have_the_bits_of_the_host() {
    for executor in emulators() {
        for nnz in [0, 1, 31, 32, 33, 127, 128, 129, 382] {
            check::<f64>(&executor, 21, nnz);
            check::<f32>(&executor, 21, nnz);
        }
        check::<f64>(&executor, 0, 5);
    }
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let squares = ValueSquares::<Emulator, f64>::new(&executor, 3, 4).unwrap();
    let (values, mut sums) = (executor.alloc(12).unwrap(), executor.alloc(3).unwrap());

    let mut short = executor.alloc(2).unwrap();
    let refused = squares.apply(&values, &mut short).unwrap_err().to_string();
    assert!(refused.contains("sums") && refused.contains('3'), "{refused}");
    let short = executor.alloc(11).unwrap();
    let refused = squares.apply(&short, &mut sums).unwrap_err().to_string();
    assert!(refused.contains("values") && refused.contains("12"), "{refused}");
    squares.apply(&values, &mut sums).unwrap();
}
