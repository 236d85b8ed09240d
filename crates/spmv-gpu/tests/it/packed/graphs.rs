//! Products recorded in graphs: by this crate, and by a caller that records its own stream.
#![expect(unsafe_code, reason = "launches graphs, calls the driver as a caller would")]

use std::ptr;

use cudarc::driver::sys;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Device, Executor};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_spmv_gpu::{PackedOptions, PackedPlan};
use sparsebatch_testing::random_vector;

use super::{REGISTERS, columns, large, options, ragged, rows, shapes, uniform};
use crate::common::matrices::{banded, mixed};
use crate::common::replays::check_replays;

fn check(device: &Device, batch: &Batch<f64>, options: PackedOptions) {
    println!("{options:?}");
    let plan = PackedPlan::new(device.clone(), batch, options).unwrap();
    let sizes = (columns(batch) * options.nrhs, rows(batch) * options.nrhs);
    check_replays(device, sizes, |x, beta, y| plan.apply(2.0, x, beta, y));
}

#[test]
fn products_of_several_launches_are_recorded_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let plan = PackedPlan::new(device.clone(), &large(), options(1)).unwrap();
    assert!(plan.explain().launches > 2, "{:?}", plan.explain());
    let of_uniform = Batch::Uniform(uniform(&mixed(60, 50, Some(8)), 500));
    for batch in [large(), shapes(), of_uniform, ragged(&[Csr::zeros(0, 3).unwrap()])] {
        for nrhs in [1, 3] {
            for kernel in [None, REGISTERS] {
                check(&device, &batch, options(nrhs).kernel(kernel));
            }
        }
    }
}

fn driver(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

/// As another library would: the caller makes a stream, records it, and lets plans use it. Updates
/// of values are part of the graph.
#[test]
fn products_and_new_values_are_part_of_a_graph_that_the_caller_records_on_a_gpu() {
    let Some(owner) = device_or_skip() else { return };
    let batch = large();
    let mut stream = ptr::null_mut();
    // SAFETY: making `owner` left its context current in this thread.
    driver(unsafe { sys::cuStreamCreate(&mut stream, 1) });
    // SAFETY: the stream is of the primary context and is destroyed after all that uses it.
    let guest = unsafe { owner.with_raw_stream(stream.cast()) };
    let mut x = guest.alloc::<f64>(columns(&batch)).unwrap();
    let mut y = guest.alloc::<f64>(rows(&batch)).unwrap();
    let mut values = guest.alloc::<f64>(batch.total_nnz()).unwrap();
    let mut plan = PackedPlan::new(guest.clone(), &batch, options(1)).unwrap();
    let mut plain = PackedPlan::new(guest.clone(), &batch, options(1)).unwrap();
    guest.synchronize().unwrap();

    let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
    // Calls of this thread that must wait are forbidden during the recording; other tests may wait.
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is alive, and so is what the graph is made of while it is used.
    unsafe {
        driver(sys::cuStreamBeginCapture_v2(stream, mode));
        plan.update_from(&values).unwrap();
        plan.apply(2.0, &x, 0.0, &mut y).unwrap();
        driver(sys::cuStreamEndCapture(stream, &mut graph));
        driver(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
    }
    for seed in 1..4 {
        guest.copy_from_host(&random_vector(x.len(), seed), &mut x).unwrap();
        guest.copy_from_host(&random_vector(values.len(), 10 + seed), &mut values).unwrap();
        plain.update_from(&values).unwrap();
        plain.apply(2.0, &x, 0.0, &mut y).unwrap();
        let expected = guest.download(&y).unwrap();
        guest.copy_from_host(&vec![f64::NAN; y.len()], &mut y).unwrap();
        // SAFETY: graph, stream, plan and vectors are alive.
        driver(unsafe { sys::cuGraphLaunch(executable, stream) });
        assert!(guest.download(&y).unwrap() == expected, "seed {seed}");
    }

    drop((plan, plain, x, y, values, guest));
    // SAFETY: nothing uses them any more.
    unsafe {
        driver(sys::cuGraphExecDestroy(executable));
        driver(sys::cuGraphDestroy(graph));
        driver(sys::cuStreamDestroy_v2(stream));
    }
}

/// Other plans on the same stream do not disturb a recorded one.
#[test]
fn plans_made_after_recording_do_not_disturb_it_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let batch = shapes();
    let plan = PackedPlan::new(device.clone(), &batch, options(1)).unwrap();
    let x = device.upload(&random_vector::<f64>(columns(&batch), 1)).unwrap();
    let mut y = device.alloc::<f64>(rows(&batch)).unwrap();
    let graph = device.capture(|_| plan.apply(1.0, &x, 0.0, &mut y)).unwrap();
    plan.apply(1.0, &x, 0.0, &mut y).unwrap();
    let expected = device.download(&y).unwrap();

    for nrows in [10, 3000] {
        let other = ragged(&[banded::<f64>(nrows, nrows)]);
        let other_plan = PackedPlan::new(device.clone(), &other, options(1)).unwrap();
        device.fill_zero(&mut y).unwrap();
        // SAFETY: plan and vectors live to the end of this function.
        unsafe { graph.launch() }.unwrap();
        drop(other_plan);
        assert!(device.download(&y).unwrap() == expected);
    }
}
