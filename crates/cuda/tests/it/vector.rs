//! Vector operations against plain loops.
#![expect(unsafe_code, reason = "launches kernels")]

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::kernels::VECTOR;
use sparsebatch_cuda::{Args, Executor, GpuError, KernelKey, LaunchConfig, Module, Value};
use sparsebatch_testing::random_integers as integers;

#[test]
fn axpby_adds_and_does_not_read_y_when_beta_is_zero() {
    let key = KernelKey::new(&VECTOR, "axpby<double>");
    for order in Order::ALL {
        let executor = Emulator::new(order);
        let x = executor.upload(&[1.0, 2.0, 3.0]).unwrap();
        let mut y = executor.alloc::<f64>(3).unwrap();
        assert!(executor.download(&y).unwrap().iter().all(|y| y.is_nan()));

        for beta in [0.0, -1.0] {
            let mut args = Args::new();
            args.scalar(3_u64).scalar(2.0_f64).input(&x).scalar(beta).output(&mut y);
            // SAFETY: the arguments are those of axpby; both vectors have 3 values.
            unsafe { executor.launch(&key, LaunchConfig::linear(1, 2), &mut args) }.unwrap();
            let expected = if beta == 0.0 { [2.0, 4.0, 6.0] } else { [0.0; 3] };
            assert_eq!(executor.download(&y).unwrap(), expected);
        }
    }
}

/// Lengths around the loads that a thread has under way at once, for 2 blocks of 64 threads.
const LENGTHS: [usize; 9] = [0, 1, 127, 128, 129, 512, 1023, 1024, 3001];

fn check_read_sum<T: Value>(executor: &Emulator) {
    let key = KernelKey::new(&VECTOR, format!("read_sum<{}>", T::CPP));
    for len in LENGTHS {
        let host = integers::<T>(len, 3);
        let x = executor.upload(&host).unwrap();
        let mut partial = executor.alloc::<T>(2).unwrap();
        let mut args = Args::new();
        args.scalar(len as u64).input(&x).output(&mut partial);

        // SAFETY: the arguments are those of read_sum; x has len values, partial one a block.
        unsafe { executor.launch(&key, LaunchConfig::linear(2, 64), &mut args) }.unwrap();

        let sum: f64 = executor.download(&partial).unwrap().iter().map(|s| s.to_f64()).sum();
        assert_eq!(sum, host.iter().map(|x| x.to_f64()).sum::<f64>(), "{len}");
    }
}

#[test]
fn read_sum_adds_every_value_once() {
    for order in Order::ALL {
        check_read_sum::<f64>(&Emulator::new(order));
        check_read_sum::<f32>(&Emulator::new(order));
    }
}

#[test]
fn copy_copies_every_value() {
    let key = KernelKey::new(&VECTOR, "copy<ulonglong2>");
    for order in Order::ALL {
        let executor = Emulator::new(order);
        for len in LENGTHS {
            let host: Vec<u64> = (1..=2 * len as u64).collect();
            let x = executor.upload(&host).unwrap();
            let mut y = executor.alloc::<u64>(2 * len).unwrap();
            let mut args = Args::new();
            args.scalar(len as u64).input(&x).output(&mut y);

            // SAFETY: the arguments are those of copy; both vectors have len pairs.
            unsafe { executor.launch(&key, LaunchConfig::linear(2, 64), &mut args) }.unwrap();

            assert_eq!(executor.download(&y).unwrap(), host, "{len}");
        }
    }
}

#[test]
fn unknown_kernels_and_other_arguments_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let unknown = KernelKey::new(&VECTOR, "axpby<int>");
    let key = KernelKey::new(&VECTOR, "axpby<double>");
    let mut args = Args::new();
    args.scalar(3_u32);

    // SAFETY: the launch is refused for the number of arguments.
    let few = unsafe { executor.launch(&key, LaunchConfig::linear(1, 32), &mut args) };

    assert!(matches!(few, Err(GpuError::InvalidArgument { name: "args", .. })));
    // What a plan prepares need not be compiled for the emulation, what it launches has to be.
    // SAFETY: the launch is refused for the kernel.
    let unknown = unsafe { executor.launch(&unknown, LaunchConfig::linear(1, 32), &mut args) };
    assert!(matches!(unknown, Err(GpuError::InvalidArgument { name: "key", .. })));
    static NOWHERE: Module = Module::new("nowhere", "", &[]);
    let elsewhere = executor.prepare(&[KernelKey::new(&NOWHERE, "axpby<double>")]);
    assert!(matches!(elsewhere, Err(GpuError::InvalidArgument { name: "key", .. })));
}
