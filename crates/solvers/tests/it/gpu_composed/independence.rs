//! A system's result does not depend on its neighbours, its position in the batch or the order of
//! threads.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::Batch;
use sparsebatch_solvers::gpu::ProductKernel;
use sparsebatch_solvers::{Preconditioner, SolveOptions, Status};
use sparsebatch_spmv_gpu::FlexibleKernel;
use sparsebatch_testing::random_vector;

use crate::gpu_composed::support::{Bits, METHODS, kernels, matrix, on_gpu, options, ragged, rhs};

const SIZES: [usize; 8] = [9000, 5, 40, 700, 33, 0, 2, 8];

/// Sizes of systems for a kernel. Smaller for flexible kernels, since emulated blocks of 1,024
/// threads are slow.
fn sizes(kernel: &ProductKernel) -> [usize; 8] {
    let mut sizes = SIZES;
    if matches!(kernel, ProductKernel::Flexible(_)) {
        sizes[0] = 300;
    }
    sizes
}

/// Kernels whose sums are a function of the system alone.
fn of_the_system() -> [ProductKernel; 3] {
    [FlexibleKernel::CsrScalar, FlexibleKernel::CsrSmart, FlexibleKernel::Ell]
        .map(ProductKernel::flexible)
}

fn with_history(method: sparsebatch_solvers::Method) -> SolveOptions {
    options(method, Preconditioner::Jacobi).history(true)
}

#[test]
fn systems_end_alike_alone_and_in_any_place() {
    for method in METHODS {
        let options = with_history(method);
        let batch = ragged::<f64>(&SIZES, method);
        let b = rhs(&batch, 1);
        let x0 = random_vector::<f64>(b.len(), 3);
        for kernel in of_the_system() {
            let executor = Emulator::new(Order::Forward);
            let all = on_gpu(&executor, &batch, (&b, Some(&x0)), &kernel, &options).all_bits();
            let of = |order: &[usize]| -> Vec<Bits> {
                let part = |v: &[f64]| -> Vec<f64> {
                    let rows = |&k: &usize| batch.rows(k);
                    order.iter().flat_map(|k| v[rows(k)].to_vec()).collect()
                };
                let own: Batch<f64> =
                    order.iter().map(|&k| matrix(SIZES[k], method, k as u64 + 1)).collect();
                let executor = Emulator::new(Order::Reverse);
                let vectors = (part(&b), part(&x0));
                on_gpu(&executor, &own, (&vectors.0, Some(&vectors.1)), &kernel, &options)
                    .all_bits()
            };
            let reversed: Vec<usize> = (0..SIZES.len()).rev().collect();
            let expected: Vec<Bits> = reversed.iter().map(|&k| all[k].clone()).collect();
            assert_eq!(of(&reversed), expected, "{method} {kernel:?}");
            for (system, bits) in all.iter().enumerate() {
                assert_eq!(of(&[system]), std::slice::from_ref(bits), "{method} {kernel:?}");
            }
        }
    }
}

/// In one plan: a kernel may divide products depending on the rest of the batch.
#[test]
fn bad_neighbours_change_nothing() {
    for method in METHODS {
        let options = with_history(method).max_iters(60);
        for kernel in kernels().into_iter().filter(is_repeatable) {
            let batch = ragged::<f64>(&sizes(&kernel), method);
            let b = rhs(&batch, 1);
            let Batch::Ragged(mut worse) = batch.clone() else { unreachable!("collected") };
            let mut worse_b = b.clone();
            for (item, bad) in [(0, f64::NAN), (2, 0.0), (4, f64::INFINITY)] {
                let entries = worse.nnz_offsets()[item]..worse.nnz_offsets()[item + 1];
                worse.values_mut()[entries].fill(bad);
            }
            worse_b[batch.row_offset(1)..batch.row_offset(2)].fill(f64::NAN);
            let worse = Batch::Ragged(worse);
            let executor = Emulator::new(Order::Forward);

            let all = on_gpu(&executor, &batch, (&b, None), &kernel, &options);
            let among = on_gpu(&executor, &worse, (&worse_b, None), &kernel, &options);

            for system in [3, 5, 6, 7] {
                assert_eq!(all.outcomes[system].status, Status::Converged);
                assert_eq!(all.bits(system), among.bits(system), "{method} {kernel:?} {system}");
            }
            assert!(among.outcomes[..3].iter().all(|o| o.status != Status::Converged));
        }
    }
}

#[test]
fn the_order_of_threads_changes_nothing() {
    for method in METHODS {
        let options = with_history(method);
        for kernel in kernels().into_iter().filter(is_repeatable) {
            let batch = ragged::<f64>(&sizes(&kernel), method);
            let b = rhs(&batch, 1);
            let by = |order| {
                on_gpu(&Emulator::new(order), &batch, (&b, None), &kernel, &options).all_bits()
            };
            let first = by(Order::Forward);
            for order in [Order::Reverse, Order::Random(11)] {
                assert_eq!(by(order), first, "{method} {kernel:?}");
            }
        }
    }
}

fn is_repeatable(kernel: &ProductKernel) -> bool {
    match kernel {
        ProductKernel::Packed(_) => true,
        ProductKernel::Flexible(options) => options.kernel.is_repeatable(),
    }
}

/// Systems that have ended are not changed by further iterations of others.
#[test]
fn what_has_ended_is_frozen() {
    for method in METHODS {
        let batch = ragged::<f64>(&[30, 30, 9000], method);
        let b = rhs(&batch, 1);
        let of_limit = |limit| {
            options(method, Preconditioner::None).max_iters(vec![3, limit, limit]).rel_tol(1e-14)
        };
        let kernel = ProductKernel::default();
        let executor = Emulator::new(Order::Forward);

        let [few, many] =
            [4, 500].map(|limit| on_gpu(&executor, &batch, (&b, None), &kernel, &of_limit(limit)));

        assert_eq!(few.bits(0), many.bits(0));
        assert_eq!(few.outcomes[0].status, Status::MaxIterations);
        assert!(many.outcomes[2].iterations > 10, "{:?}", many.outcomes[2]);
    }
}
