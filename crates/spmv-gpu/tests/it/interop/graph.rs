//! Products recorded in graphs: by this crate, and by a caller that records its own stream.
#![expect(unsafe_code, reason = "launches graphs, calls the driver as a caller would")]

use std::ptr;

use cudarc::driver::sys;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{DeviceBuffer, Executor};
use sparsebatch_formats::{Batch, Csr, RaggedCsr};
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
use sparsebatch_spmv_gpu::{SingleKernel, SingleOptions, SinglePlan};

use crate::common::matrices::{integers, mixed, oracle};
use crate::common::replays::check_replays;

#[test]
fn products_of_one_matrix_are_recorded_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let a = mixed::<f64>(900, 1000, Some(33));
    for &kernel in SingleKernel::ALL {
        println!("{kernel}");
        let options = SingleOptions::with_kernel(kernel).max_fill(1e9);
        let mut plan = SinglePlan::new(&device, a.view(), &options).unwrap();
        check_replays(&device, (a.ncols(), a.nrows()), |x, beta, y| plan.apply(2.0, x, beta, y));
    }
}

/// Systems of which the largest need more shared memory than a launch has by default.
fn systems() -> Batch<f64> {
    let mut batch = RaggedCsr::new();
    for rows in [10, 300, 0, 2000, 77] {
        batch.push(mixed::<f64>(rows, 10 * rows, Some(rows / 2)).view());
    }
    Batch::Ragged(batch)
}

#[test]
fn products_of_batches_are_recorded_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let batch = systems();
    let sizes = (batch.col_offset(batch.nitems()), batch.row_offset(batch.nitems()));
    // batch-coo adds in an arbitrary order.
    for kernel in FlexibleKernel::ALL.iter().copied().filter(|kernel| kernel.is_repeatable()) {
        println!("{kernel}");
        let options = FlexibleOptions::new(kernel).shared_bytes(Some(200 << 10));
        let plan = FlexiblePlan::new(&device, &batch, options).unwrap();
        assert!(plan.explain().shared_bytes > 100 << 10);
        check_replays(&device, sizes, |x, beta, y| plan.apply(2.0, x, beta, y));
    }
}

fn driver(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

/// As another library or a C program would: the caller makes a stream, records it, and lets plans
/// use it.
#[test]
fn products_are_part_of_a_graph_that_the_caller_records_on_a_gpu() {
    let Some(owner) = device_or_skip() else { return };
    let a = mixed::<f64>(400, 300, Some(33));
    let batch = Batch::from(a.clone());
    let mut stream = ptr::null_mut();
    // SAFETY: making `owner` left its context current in this thread.
    driver(unsafe { sys::cuStreamCreate(&mut stream, 1) });
    // SAFETY: the stream is of the primary context and is destroyed after all that uses it.
    let guest = unsafe { owner.with_raw_stream(stream.cast()) };
    let mut x = guest.alloc::<f64>(300).unwrap();
    let mut ys: Vec<DeviceBuffer<f64>> = (0..2).map(|_| guest.alloc(400).unwrap()).collect();
    let mut single = SinglePlan::new(&guest, a.view(), &SingleOptions::default()).unwrap();
    let options = FlexibleOptions::new(FlexibleKernel::CsrI);
    let flexible = FlexiblePlan::new(&guest, &batch, options).unwrap();
    guest.synchronize().unwrap();

    let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
    // Calls of this thread that must wait are forbidden during the recording; other tests may wait.
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is alive, and so is what the graph is made of while it is used.
    unsafe {
        driver(sys::cuStreamBeginCapture_v2(stream, mode));
        single.apply(2.0, &x, 0.0, &mut ys[0]).unwrap();
        flexible.apply(-1.0, &x, 0.0, &mut ys[1]).unwrap();
        driver(sys::cuStreamEndCapture(stream, &mut graph));
        driver(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
    }
    for seed in [1, 2, 3] {
        let host = integers::<f64>(300, seed);
        guest.copy_from_host(&host, &mut x).unwrap();
        // SAFETY: graph, stream, plans and vectors are alive.
        driver(unsafe { sys::cuGraphLaunch(executable, stream) });
        for (y, alpha) in ys.iter().zip([2.0, -1.0]) {
            let expected = oracle(alpha, &a, &host, 0.0, &[0.0; 400]);
            assert_eq!(guest.download(y).unwrap(), expected, "seed {seed}");
        }
    }

    drop((single, flexible, x, ys, guest));
    // SAFETY: nothing uses them any more.
    unsafe {
        driver(sys::cuGraphExecDestroy(executable));
        driver(sys::cuGraphDestroy(graph));
        driver(sys::cuStreamDestroy_v2(stream));
    }
}

#[test]
fn a_matrix_without_work_is_an_empty_graph_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let a = Csr::<f64>::zeros(0, 3).unwrap();
    let mut plan = SinglePlan::new(&device, a.view(), &SingleOptions::default()).unwrap();
    check_replays(&device, (3, 0), |x, beta, y| plan.apply(1.0, x, beta, y));
}
