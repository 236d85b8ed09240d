//! Systems of all sizes, by every kernel of products, as on the CPU.

use kernel_emu::{Emulator, Order};
use sparsebatch_solvers::gpu::ProductKernel;
use sparsebatch_solvers::{Preconditioner, SolveScalar};
use sparsebatch_testing::random_vector;

use crate::gpu_composed::support::{
    METHODS, PRECONDITIONERS, compare, kernels, on_cpu, on_gpu, options, ragged, rhs,
};

/// One for each number of lanes, none, and some at the bounds.
const SIZES: [usize; 11] = [33, 0, 1, 2, 300, 8, 31, 32, 512, 513, 7];

fn every_kernel<T: SolveScalar>() {
    for method in METHODS {
        let batch = ragged::<T>(&SIZES, method);
        let b = rhs(&batch, 1);
        for preconditioner in PRECONDITIONERS {
            let options = options(method, preconditioner);
            let cpu = on_cpu(&batch, (&b, None), &options);
            for kernel in kernels() {
                let executor = Emulator::new(Order::Forward);
                let gpu = on_gpu(&executor, &batch, (&b, None), &kernel, &options);
                let what = format!("{method} {preconditioner} {kernel:?}");
                compare(&what, &batch, &b, &gpu, &cpu, &options);
            }
        }
    }
}

#[test]
fn every_kernel_solves_as_the_cpu_does() {
    every_kernel::<f64>();
}

#[test]
fn every_kernel_solves_as_the_cpu_does_in_f32() {
    every_kernel::<f32>();
}

/// Large systems among many tiny ones, from guesses.
fn any_mix<T: SolveScalar>() {
    for method in METHODS {
        let tiny = (0..150).map(|k| k % 7);
        let sizes: Vec<usize> =
            [0, 1, 2, 33, 1000, 5000, 8192, 8193].into_iter().chain(tiny).collect();
        let batch = ragged::<T>(&sizes, method);
        let b = rhs(&batch, 1);
        let x0 = random_vector::<T>(b.len(), 5);
        let options = options(method, Preconditioner::Jacobi);
        let cpu = on_cpu(&batch, (&b, Some(&x0)), &options);
        for order in [Order::Forward, Order::Reverse] {
            let executor = Emulator::new(order);
            let kernel = ProductKernel::default();
            let gpu = on_gpu(&executor, &batch, (&b, Some(&x0)), &kernel, &options);
            compare(&format!("{method} {order:?}"), &batch, &b, &gpu, &cpu, &options);
        }
    }
}

#[test]
fn any_mix_of_sizes_is_solved_as_on_the_cpu() {
    any_mix::<f64>();
    any_mix::<f32>();
}
