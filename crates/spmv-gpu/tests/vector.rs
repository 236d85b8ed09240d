//! Vector operations against plain loops.
#![expect(unsafe_code, reason = "launches kernels")]

mod common;

use common::emulator::Emulator;
use kernel_emu::Order;
use sparsebatch_spmv_gpu::{Args, Executor, GpuError, KernelKey, LaunchConfig};

#[test]
fn axpby_adds_and_does_not_read_y_when_beta_is_zero() {
    let key = KernelKey::new("vector", "axpby<double>");
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

#[test]
fn unknown_kernels_and_other_arguments_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let unknown = KernelKey::new("vector", "axpby<int>");
    let key = KernelKey::new("vector", "axpby<double>");
    let mut args = Args::new();
    args.scalar(3_u32);

    // SAFETY: the launch is refused for the number of arguments.
    let few = unsafe { executor.launch(&key, LaunchConfig::linear(1, 32), &mut args) };

    assert!(matches!(few, Err(GpuError::InvalidArgument { name: "args", .. })));
    let unknown = executor.prepare(&[unknown]);
    assert!(matches!(unknown, Err(GpuError::InvalidArgument { name: "key", .. })));
}
