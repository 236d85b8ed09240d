//! Out of memory: an error before anything is launched, and everything is released.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
use sparsebatch_spmv_gpu::{SingleKernel, SinglePlan};
use sparsebatch_testing::random_vector;

use super::{batch_of, single_options, systems};
use crate::common::matrices::{mixed, with_reals};

/// Makes a plan with more and more memory, up to what it takes on a device with enough.
fn check<P>(name: &str, make: impl Fn(&Emulator) -> Result<P, GpuError>) {
    let enough = Emulator::new(Order::Forward);
    let plan = make(&enough).unwrap_or_else(|error| panic!("{name}: {error}"));
    let needed = enough.bytes_in_use();
    assert!(needed > 0, "{name}");
    drop(plan);
    assert_eq!(enough.bytes_in_use(), 0, "{name}");

    let steps = (0..needed).step_by((needed / 40).max(1) as usize);
    for bytes in steps.chain([needed - 1]) {
        let executor = Emulator::with_memory(bytes);
        match make(&executor) {
            Err(GpuError::OutOfMemory { needed, free }) => assert!(needed > free, "{name}"),
            Err(other) => panic!("{name} with {bytes} bytes: {other}"),
            Ok(_) => panic!("{name} takes {needed} bytes, but had {bytes}"),
        }
        assert_eq!(executor.bytes_in_use(), 0, "{name} with {bytes} bytes");
        assert!(executor.launched().is_empty(), "{name} with {bytes} bytes");
    }
    make(&Emulator::with_memory(needed)).unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn plans_that_do_not_fit_are_refused_and_leave_nothing_behind() {
    let a = with_reals(mixed::<f64>(70, 60, Some(9)));
    // Packed plans, whose needs are known step by step, are tested in `packed::memory`.
    for options in single_options().into_iter().filter(|o| o.kernel != SingleKernel::Packed) {
        check(options.kernel.name(), |executor| SinglePlan::new(executor, a.view(), &options));
    }
    let batch = batch_of(&systems::<f64>(40));
    for &kernel in FlexibleKernel::ALL {
        let options = FlexibleOptions::new(kernel);
        check(kernel.name(), |executor| FlexiblePlan::new(executor, &batch, options.clone()));
    }
}

#[test]
fn a_plan_goes_on_after_memory_ran_out() {
    let batch = batch_of(&systems::<f64>(40));
    let (columns, rows) = (batch.col_offset(batch.nitems()), batch.row_offset(batch.nitems()));
    let (x, zeros) = (random_vector::<f64>(columns, 1), vec![0.0; rows]);
    let executor = Emulator::with_memory(16 << 20);
    let x = executor.upload(&x).unwrap();
    let mut y = executor.upload(&zeros).unwrap();
    for &kernel in FlexibleKernel::ALL {
        let mut plan = FlexiblePlan::new(&executor, &batch, FlexibleOptions::new(kernel)).unwrap();
        plan.apply(1.0, &x, 0.0, &mut y).unwrap();
        let before = executor.download(&y).unwrap();
        let free = executor.free_memory().unwrap();
        let rest = executor.alloc::<u8>(free as usize).unwrap();

        let refused = plan.set_scale(Some(&vec![2.0; batch.nitems()]));
        let second = FlexiblePlan::new(&executor, &batch, FlexibleOptions::new(kernel)).err();
        executor.copy_from_host(&zeros, &mut y).unwrap();
        plan.apply(1.0, &x, 0.0, &mut y).unwrap();

        assert!(matches!(refused, Err(GpuError::OutOfMemory { .. })), "{refused:?}");
        assert!(matches!(second, Some(GpuError::OutOfMemory { .. })), "{second:?}");
        assert_eq!(executor.download(&y).unwrap(), before, "{kernel}");
        drop(rest);
    }
}
