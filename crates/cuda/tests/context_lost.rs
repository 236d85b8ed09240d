//! A fault on the device. In a process of its own, since it ends the context for all tests in it.

use sparsebatch_cuda::kernels::VECTOR;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Args, Executor, GpuError, KernelKey, LaunchConfig};

#[test]
fn after_a_fault_every_call_says_that_the_context_is_lost() {
    let Some(device) = device_or_skip() else { return };
    let x = device.upload(&[1.0_f64]).unwrap();
    let mut args = Args::new();
    // No device memory is at this address.
    args.scalar(1_u64).scalar(1.0_f64).input(&x).scalar(0.0_f64).raw(8);

    // SAFETY: the fault is what is tested: it ends the context, which holds nothing else.
    let launched = unsafe {
        let key = KernelKey::new(&VECTOR, "axpby<double>");
        device.launch(&key, LaunchConfig::linear(1, 32), &mut args)
    };
    let waited = device.synchronize();
    // SAFETY: as above; nothing is launched any more.
    let again = unsafe {
        let key = KernelKey::new(&VECTOR, "axpby<double>");
        device.launch(&key, LaunchConfig::linear(1, 32), &mut args)
    };
    let uploaded = device.upload(&[1.0_f64]).map(|_| ());
    let allocated = device.alloc::<f64>(1).map(|_| ());
    let downloaded = device.download(&x).map(|_| ());

    assert_eq!(launched, Ok(()));
    for outcome in [waited, again, uploaded, allocated, downloaded] {
        assert!(matches!(outcome, Err(GpuError::ContextLost { .. })), "{outcome:?}");
    }
}
