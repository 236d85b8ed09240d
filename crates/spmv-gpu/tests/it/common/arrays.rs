//! CSR arrays in the memory of an executor, and parts of long buffers on a GPU.
#![allow(dead_code, reason = "each test file uses a part of this one")]

use sparsebatch_cuda::{Device, DeviceBuffer, Executor, Pod, Value};
use sparsebatch_spmv_gpu::CsrArrays;

pub(crate) fn upload<E: Executor, T: Value>(
    executor: &E,
    row_ptr: &[i32],
    col_idx: &[i32],
    values: &[T],
) -> CsrArrays<E, T> {
    CsrArrays {
        row_ptr: executor.upload(row_ptr).unwrap(),
        col_idx: executor.upload(col_idx).unwrap(),
        values: executor.upload(values).unwrap(),
    }
}

/// Overwrites part of a buffer.
pub(crate) fn set<T: Pod>(device: &Device, buffer: &DeviceBuffer<T>, first: usize, values: &[T]) {
    let mut part = buffer.range(first..first + values.len()).unwrap();
    device.copy_from_host(values, &mut part).unwrap();
}

pub(crate) fn get<T: Pod>(
    device: &Device,
    buffer: &DeviceBuffer<T>,
    first: usize,
    len: usize,
) -> Vec<T> {
    device.download(&buffer.range(first..first + len).unwrap()).unwrap()
}
