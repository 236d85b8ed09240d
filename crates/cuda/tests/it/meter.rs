//! The executor that counts memory.

use sparsebatch_cuda::kernels::VECTOR;
use sparsebatch_cuda::{
    Args, DeviceInfo, Executor, GpuError, KernelKey, LaunchConfig, MemoryMeter, PinnedValues,
    check_apart,
};

fn meter(memory_bytes: u64) -> MemoryMeter {
    MemoryMeter::new(DeviceInfo {
        memory_bytes,
        max_threads_per_block: 1024,
        max_threads_per_multiprocessor: 2048,
        multiprocessors: 1,
        ..DeviceInfo::default()
    })
}

#[test]
fn bytes_are_counted_while_buffers_live() {
    let meter = meter(1000);
    let first = meter.upload(&[1.0_f64; 100]).unwrap();
    assert_eq!(meter.bytes_in_use(), 800);

    let refused = meter.alloc::<f32>(51).map(drop);
    drop(first);
    let branch = meter.branches(1).unwrap().remove(0);
    let second = branch.alloc_zeroed::<u16>(10).unwrap();
    let third = meter.alloc::<u16>(10).unwrap();

    assert_eq!(refused, Err(GpuError::OutOfMemory { needed: 204, free: 200 }));
    assert_eq!((meter.bytes_in_use(), meter.most_bytes()), (40, 800));
    assert_eq!(meter.free_memory().unwrap(), 960);
    check_apart(&second, &third).unwrap();
}

#[test]
fn what_is_read_back_is_zero_and_lengths_are_checked() {
    let meter = meter(1 << 20);
    let mut buffer = meter.upload(&[1_u32, 2, 3]).unwrap();
    let mut pinned = meter.alloc_pinned::<u32>(3).unwrap();
    pinned.as_mut_slice().unwrap().fill(7);

    meter.copy_from_pinned(&pinned, &mut buffer).unwrap();
    meter.copy_to_pinned(&buffer, &mut pinned).unwrap();

    assert_eq!(pinned.as_slice().unwrap(), [0; 3]);
    assert_eq!(meter.download(&buffer).unwrap(), [0; 3]);
    assert!(meter.copy_from_host(&[1, 2], &mut buffer).is_err());
    assert!(meter.copy_to_host(&buffer, &mut [0; 4]).is_err());
    meter.fill_zero(&mut buffer).unwrap();
    meter.synchronize().unwrap();
}

#[test]
fn launches_are_refused() {
    let meter = meter(1 << 20);
    let key = KernelKey::new(&VECTOR, "axpby<double>");
    meter.prepare(std::slice::from_ref(&key)).unwrap();

    // SAFETY: nothing is launched.
    let refused = unsafe { meter.launch(&key, LaunchConfig::linear(1, 32), &mut Args::new()) };

    let message = refused.unwrap_err().to_string();
    assert!(message.contains("memory meter") && message.contains("axpby"), "{message}");
}

#[test]
fn a_rehearsal_notes_each_kernel_once() {
    let rehearsal = MemoryMeter::rehearsal(meter(1 << 20).info().clone());
    let [prepared, launched] =
        ["axpby<double>", "axpby<float>"].map(|name| KernelKey::new(&VECTOR, name));
    let branch = rehearsal.branches(1).unwrap().remove(0);

    rehearsal.prepare(std::slice::from_ref(&prepared)).unwrap();
    for key in [&launched, &prepared, &launched] {
        // SAFETY: nothing is launched.
        unsafe { branch.launch(key, LaunchConfig::linear(1, 32), &mut Args::new()) }.unwrap();
    }

    assert_eq!(rehearsal.kernels(), [prepared, launched]);
    // Launches that no device of this kind takes are refused all the same.
    let too_wide = LaunchConfig::linear(1, 4096);
    // SAFETY: nothing is launched.
    let refused = unsafe { branch.launch(&rehearsal.kernels()[0], too_wide, &mut Args::new()) };
    assert!(refused.is_err());
}
