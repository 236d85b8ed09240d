//! Out of memory: an error before anything is packed, and everything is released.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::{Batch, UniformBatch};
use sparsebatch_spmv_gpu::PackedPlan;
use sparsebatch_testing::random_vector;

use super::{columns, multiply, options, rows, shapes, spread, uniform, with_arrays};
use crate::common::matrices::mixed;

fn batches() -> Vec<(&'static str, Batch<f64>)> {
    let own = uniform(&mixed(50, 60, Some(9)), 30);
    vec![
        ("ragged", shapes()),
        ("shared", Batch::Uniform(UniformBatch::shared(own.to_matrix(0), 30))),
        ("own values", Batch::Uniform(own)),
        ("divided", Batch::Uniform(uniform(&spread(2100, 70_000, true), 3))),
    ]
}

/// Bytes of a batch's arrays in CSR, and of row pointers, 16-bit columns and values.
fn least_bytes(batch: &Batch<f64>) -> (u64, u64) {
    let executor = Emulator::new(Order::Forward);
    with_arrays(&executor, batch, |_, arrays| {
        let csr = executor.bytes_in_use();
        let before = csr;
        drop(arrays.col_idx);
        (csr, csr - (before - executor.bytes_in_use()) / 2)
    })
}

/// Whether `make` succeeded with `bytes` of memory, and the kernels that were launched.
fn attempt<P>(
    name: &str,
    bytes: u64,
    make: impl Fn(&Emulator) -> Result<P, GpuError>,
) -> (bool, String) {
    let executor = Emulator::with_memory(bytes);
    let made = match make(&executor) {
        Ok(_) => true,
        Err(GpuError::OutOfMemory { needed, free }) => {
            assert!(needed > free, "{name} with {bytes} bytes: {needed} of {free}");
            false
        }
        Err(other) => panic!("{name} with {bytes} bytes: {other}"),
    };
    assert_eq!(executor.bytes_in_use(), 0, "{name} with {bytes} bytes: all is released");
    (made, executor.launched().join(", "))
}

/// Makes plans with more and more memory. Below `known` bytes no kernel of packing is launched.
fn check<P>(name: &str, known: u64, make: impl Fn(&Emulator) -> Result<P, GpuError>) {
    for bytes in (0..known).step_by((known / 20) as usize).chain([known - 1]) {
        let (made, launched) = attempt(name, bytes, &make);
        assert!(!made && !launched.contains("pack"), "{name}, {bytes} of {known}: {launched}");
    }
    let (mut bytes, mut refused) = (known, 0);
    while let (false, launched) = attempt(name, bytes, &make) {
        assert!(!launched.contains("pack_fill"), "{name} with {bytes} bytes: {launched}");
        bytes += 1 + known / 30;
        refused += 1;
    }
    assert!(refused > 0, "{name}: descriptions of the work are not known before");
}

#[test]
fn plans_that_do_not_fit_are_refused_before_anything_is_packed() {
    for (name, batch) in batches() {
        let (csr, packed) = least_bytes(&batch);
        check(name, csr + packed, |executor| PackedPlan::new(executor.clone(), &batch, options(1)));
    }
}

/// The arrays are in other memory; the kernel that checks them runs first.
#[test]
fn plans_over_arrays_that_do_not_fit_are_refused_before_anything_is_packed() {
    for (name, batch) in batches() {
        let (_, packed) = least_bytes(&batch);
        with_arrays(&Emulator::new(Order::Forward), &batch, |sizes, arrays| {
            check(name, packed, |executor| {
                PackedPlan::from_arrays(executor.clone(), sizes, &arrays, options(1))
            });
        });
    }
}

/// The error states the memory of the whole plan, not of the allocation that failed.
#[test]
fn what_is_needed_is_all_of_it() {
    for (name, batch) in batches() {
        let (csr, packed) = least_bytes(&batch);
        let executor = Emulator::with_memory(1000);
        let error = PackedPlan::new(executor.clone(), &batch, options(1)).err().unwrap();
        assert_eq!(error, GpuError::OutOfMemory { needed: csr + packed, free: 1000 }, "{name}");
        assert!(executor.launched().is_empty());
        // A plan takes at least as much.
        let enough = Emulator::new(Order::Forward);
        let plan = PackedPlan::new(enough.clone(), &batch, options(1)).unwrap();
        assert!(packed <= plan.explain().device_bytes, "{name}");
        assert_eq!(enough.bytes_in_use(), plan.explain().device_bytes, "{name}");
        // Packing requests all the memory that it writes at once.
        let bytes = csr + plan.explain().device_bytes - 1;
        let launched = Emulator::with_memory(bytes);
        let error = PackedPlan::new(launched.clone(), &batch, options(1)).err();
        let Some(GpuError::OutOfMemory { needed, free }) = error else { panic!("{name}") };
        assert!(free < needed && free > packed / 2, "{name}: {needed} of {free}");
        let launched = launched.launched().join(", ");
        assert!(launched.contains("pack_measure") && !launched.contains("pack_fill"), "{launched}");
    }
}

#[test]
fn a_plan_goes_on_after_memory_ran_out() {
    for (name, batch) in batches() {
        let executor = Emulator::with_memory(64 << 20);
        let x: Vec<f64> = random_vector(columns(&batch), 1);
        let y = vec![0.0; rows(&batch)];
        let mut plan = PackedPlan::new(executor.clone(), &batch, options(1)).unwrap();
        let before = multiply(&executor, &plan, (1.0, &x), (0.0, &y));
        let (x, mut y) = (executor.upload(&x).unwrap(), executor.upload(&y).unwrap());
        let rest = executor.alloc::<u8>(executor.free_memory().unwrap() as usize).unwrap();

        let second = PackedPlan::new(executor.clone(), &batch, options(1)).err();
        let update = plan.update_values(&batch);
        plan.apply(1.0, &x, 0.0, &mut y).unwrap();

        assert!(matches!(second, Some(GpuError::OutOfMemory { .. })), "{name}: {second:?}");
        assert!(matches!(update, Err(GpuError::OutOfMemory { .. })), "{name}: {update:?}");
        assert_eq!(executor.download(&y).unwrap(), before, "{name}");
        drop(rest);
        plan.update_values(&batch).unwrap();
    }
}
