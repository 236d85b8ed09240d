//! A device without free memory. In a process of its own, since other tests in it would find none.

use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Device, Executor, GpuError};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
use sparsebatch_spmv_gpu::{PackedOptions, PackedPlan, SingleKernel, SingleOptions, SinglePlan};
use sparsebatch_testing::random_vector;

/// Takes all memory except about `left` bytes.
fn take_all_but(device: &Device, left: u64) -> Vec<sparsebatch_cuda::DeviceBuffer<u8>> {
    let mut taken = Vec::new();
    let mut size = device.free_memory().unwrap();
    while size >= 1 << 20 {
        let free = device.free_memory().unwrap();
        match device.alloc::<u8>(size.min(free.saturating_sub(left)) as usize) {
            Ok(buffer) if buffer.is_empty() => break,
            Ok(buffer) => taken.push(buffer),
            Err(GpuError::OutOfMemory { .. }) => size /= 2,
            Err(other) => panic!("{other}"),
        }
    }
    taken
}

fn refused<P>(plan: Result<P, GpuError>) {
    match plan.map(|_| ()) {
        Err(GpuError::OutOfMemory { needed, free }) => assert!(needed > 0 && free < 1 << 30),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_memory_plans_are_refused_and_others_go_on() {
    let Some(device) = device_or_skip() else { return };
    // 80 MB of values.
    let problem = Problem::new(Family::Lap2d, 1024).unwrap();
    let batch = problem.batch(2000).unwrap().batch;
    let (columns, rows) = (batch.col_offset(batch.nitems()), batch.row_offset(batch.nitems()));
    let n = 3_000_000;
    let diagonal =
        Csr::try_new(n, n, (0..=n as i32).collect(), (0..n as i32).collect(), vec![2.0; n])
            .unwrap();
    let x = device.upload(&random_vector::<f64>(columns, 1)).unwrap();
    let mut y = device.alloc(rows).unwrap();
    let options = FlexibleOptions::new(FlexibleKernel::CsrSmart);
    let plan = FlexiblePlan::new(&device, &batch, options).unwrap();
    plan.apply(1.0, &x, 0.0, &mut y).unwrap();
    let before = device.download(&y).unwrap();
    let mut packed = PackedPlan::new(device.clone(), &batch, PackedOptions::default()).unwrap();
    packed.apply(1.0, &x, 0.0, &mut y).unwrap();
    let of_packed = device.download(&y).unwrap();

    let taken = take_all_but(&device, 16 << 20);
    for &kernel in FlexibleKernel::ALL {
        refused(FlexiblePlan::new(&device, &batch, FlexibleOptions::new(kernel)));
    }
    for &kernel in SingleKernel::ALL {
        let options = SingleOptions::with_kernel(kernel);
        refused(SinglePlan::new(&device, diagonal.view(), &options));
    }
    let free = device.free_memory().unwrap();
    refused(PackedPlan::new(device.clone(), &batch, PackedOptions::default()));
    refused(packed.update_values(&batch));
    assert_eq!(device.free_memory().unwrap(), free, "what was allocated is released");
    // Existing plans and copies still work.
    device.fill_zero(&mut y).unwrap();
    plan.apply(1.0, &x, 0.0, &mut y).unwrap();
    assert!(device.download(&y).unwrap() == before);
    packed.apply(1.0, &x, 0.0, &mut y).unwrap();
    assert!(device.download(&y).unwrap() == of_packed);
    drop(taken);

    for &kernel in FlexibleKernel::ALL {
        let plan = FlexiblePlan::new(&device, &batch, FlexibleOptions::new(kernel)).unwrap();
        plan.apply(1.0, &x, 0.0, &mut y).unwrap();
    }
    packed.update_values(&batch).unwrap();
    drop(PackedPlan::new(device.clone(), &batch, PackedOptions::default()).unwrap());
    packed.apply(1.0, &x, 0.0, &mut y).unwrap();
    assert!(device.download(&y).unwrap() == of_packed);
    device.synchronize().unwrap();
    let one = Batch::from(diagonal);
    assert!(FlexiblePlan::new(&device, &one, FlexibleOptions::new(FlexibleKernel::CsrI)).is_ok());
}
