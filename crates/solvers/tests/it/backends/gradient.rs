//! Gradients by the values of matrices on the device, against those of the host.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Batch, BatchValues, Csr, Pattern, RaggedCsr, UniformBatch};
use sparsebatch_solvers::gpu::{GpuSolveError, ValueGradient};
use sparsebatch_solvers::{SolveScalar, value_gradient};
use sparsebatch_testing::random_vector;

use crate::backends::common::{chain, dense};

fn batch<T: SolveScalar>(matrix: &Csr<T>, items: usize, shared: bool) -> Batch<T> {
    let values = match shared {
        true => BatchValues::Shared(matrix.values().to_vec()),
        false => BatchValues::ItemMajor(matrix.values().repeat(items)),
    };
    let batch = UniformBatch::try_new(matrix.pattern().clone(), items, values);
    Batch::Uniform(batch.unwrap())
}

fn agree<T: SolveScalar + Value>(matrix: &Csr<T>, items: usize, nrhs: usize, tolerance: f64) {
    let executor = Emulator::new(Order::Forward);
    let rows = matrix.pattern().nrows() * items * nrhs;
    let cast = |seed| random_vector::<f64>(rows, seed).into_iter().map(T::from_f64).collect();
    let (lambda, x): (Vec<T>, Vec<T>) = (cast(1), cast(2));
    let (on_lambda, on_x) = (executor.upload(&lambda).unwrap(), executor.upload(&x).unwrap());
    let pattern = matrix.pattern().view();
    let mut gradient: ValueGradient<_, T> =
        ValueGradient::new(&executor, pattern, items, nrhs).unwrap();
    for shared in [false, true] {
        let batch = batch(matrix, items, shared);
        let len = matrix.values().len() * if shared { 1 } else { items };
        let mut expected = vec![T::ZERO; len];
        value_gradient(&batch, nrhs, &lambda, &x, &mut expected).unwrap();
        let mut found = executor.upload(&vec![T::from_f64(f64::NAN); len]).unwrap();

        gradient.apply(&on_lambda, &on_x, &mut found).unwrap();

        for (found, expected) in executor.download(&found).unwrap().iter().zip(&expected) {
            let (found, expected) = (found.to_f64(), expected.to_f64());
            assert!((found - expected).abs() <= tolerance * (1.0 + expected.abs()));
        }
    }
}

#[test]
fn the_device_has_the_gradient_of_the_host() {
    for (items, nrhs) in [(1, 1), (1, 3), (7, 2), (300, 1), (600, 2)] {
        agree(&chain::<f64>(9, 3.0), items, nrhs, 1e-12);
        agree(&dense::<f64>(6, 3.0), items, nrhs, 1e-12);
        agree(&chain::<f32>(40, 3.0), items, nrhs, 1e-4);
    }
    // More entries than a warp has lanes, shared by several blocks.
    agree(&dense::<f64>(40, 3.0), 1, 1, 1e-12);
    // Vectors that fill a block's shared memory, and some that exceed it.
    for (rows, nrhs) in [(3072, 1), (1024, 3), (3073, 1), (1025, 3)] {
        agree(&chain::<f64>(rows, 3.0), 3, nrhs, 1e-12);
    }
}

#[test]
fn items_of_several_patterns_have_their_gradients() {
    let executor = Emulator::new(Order::Forward);
    let items =
        [chain::<f64>(9, 3.0), dense(6, 3.0), chain(1, 2.0), dense(40, 3.0), chain(33, 2.5)];
    let matrices: Vec<Csr<f64>> = items.iter().cycle().take(60).cloned().collect();
    let of = |matrices: &[Csr<f64>]| {
        let mut ragged = RaggedCsr::<f64>::new();
        matrices.iter().for_each(|matrix| ragged.push(matrix.view()));
        ragged
    };
    let with = |rows| [matrices.clone(), vec![chain(rows, 3.0), chain(5, 3.0)]].concat();
    for (ragged, nrhs) in [
        (of(&matrices), 1),
        (of(&matrices), 3),
        // A block's shared memory is filled by one item, or exceeded.
        (of(&with(3072)), 1),
        (of(&with(3073)), 1),
    ] {
        let rows = ragged.row_offsets()[ragged.nitems()] * nrhs;
        let (lambda, x) = (random_vector::<f64>(rows, 1), random_vector::<f64>(rows, 2));
        let mut expected = vec![0.0; ragged.total_nnz()];
        let batch = Batch::Ragged(ragged.clone());
        value_gradient(&batch, nrhs, &lambda, &x, &mut expected).unwrap();
        let (lambda, x) = (executor.upload(&lambda).unwrap(), executor.upload(&x).unwrap());
        let mut gradient = ValueGradient::ragged(&executor, &ragged, nrhs).unwrap();
        let mut found = executor.upload(&vec![f64::NAN; expected.len()]).unwrap();

        gradient.apply(&lambda, &x, &mut found).unwrap();

        for (found, expected) in executor.download(&found).unwrap().iter().zip(&expected) {
            assert!((found - expected).abs() <= 1e-12 * (1.0 + expected.abs()));
        }
        let mut short = executor.upload(&[7.0]).unwrap();
        let refused = gradient.apply(&lambda, &x, &mut short).unwrap_err().to_string();
        assert!(refused.contains("gradient has 1 entries"), "{refused}");
    }
    let mut none: ValueGradient<_, f64> =
        ValueGradient::ragged(&executor, &RaggedCsr::<f64>::new(), 1).unwrap();
    let empty = executor.upload::<f64>(&[]).unwrap();
    none.apply(&empty, &empty, &mut executor.upload(&[]).unwrap()).unwrap();
}

#[test]
fn nothing_in_is_nothing_out_and_what_does_not_fit_is_refused() {
    let executor = Emulator::new(Order::Forward);
    let matrix = chain::<f64>(4, 3.0);
    let pattern = matrix.pattern().view();
    let mut none: ValueGradient<_, f64> = ValueGradient::new(&executor, pattern, 0, 1).unwrap();
    let empty = executor.upload::<f64>(&[]).unwrap();
    let mut out = executor.upload::<f64>(&[]).unwrap();
    none.apply(&empty, &empty, &mut out).unwrap();
    // Shared by no items: the sum of nothing.
    let mut sum = executor.upload(&[7.0; 10]).unwrap();
    none.apply(&empty, &empty, &mut sum).unwrap();
    assert_eq!(executor.download(&sum).unwrap(), [0.0; 10]);

    let mut gradient: ValueGradient<_, f64> = ValueGradient::new(&executor, pattern, 2, 1).unwrap();
    let (lambda, x) = (executor.upload(&[1.0; 8]).unwrap(), executor.upload(&[1.0; 8]).unwrap());
    let short = executor.upload(&[1.0; 7]).unwrap();
    let mut out = executor.upload(&[7.0; 20]).unwrap();
    let mut small = executor.upload(&[7.0; 19]).unwrap();
    let refused = |result: Result<(), GpuSolveError>, words: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(gradient.apply(&short, &x, &mut out), "lambda has 7 entries, expected 8");
    refused(gradient.apply(&lambda, &short, &mut out), "x has 7 entries, expected 8");
    refused(gradient.apply(&lambda, &x, &mut small), "gradient has 19 entries, expected 20");
    assert_eq!(executor.download(&out).unwrap(), [7.0; 20]);
    let tall = Csr::try_new(2, 1, vec![0, 1, 2], vec![0, 0], vec![1.0, 1.0]).unwrap();
    let made: Result<ValueGradient<_, f64>, _> =
        ValueGradient::new(&executor, tall.pattern().view(), 2, 1);
    assert!(made.is_err_and(|error| error.to_string().contains("square")));
    let made: Result<ValueGradient<_, f64>, _> = ValueGradient::new(&executor, pattern, 2, 0);
    assert!(made.is_err_and(|error| error.to_string().contains("nrhs")));
}
