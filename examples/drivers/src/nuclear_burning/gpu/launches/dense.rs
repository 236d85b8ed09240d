//! Launches for the dense LU.

use sparsebatch::gpu::{Args, Executor, GpuError};

use super::{a_warp_each, for_all, key};

/// Converts the matrices of `count` places to dense ones; `entry_of` has the pattern entry of each
/// dense position.
pub(in crate::nuclear_burning::gpu) fn densify<E: Executor>(
    executor: &E,
    (count, n, nnz): (usize, usize, usize),
    entry_of: &E::Buffer<i32>,
    values: &E::Buffer<f64>,
    dense: &mut E::Buffer<f64>,
) -> Result<(), GpuError> {
    let mut args = Args::new();
    args.scalar(count as u32).scalar(n as u32).scalar(nnz as u32);
    args.input(entry_of).input(values).output(dense);
    let config = for_all(count as u64 * (n * n) as u64);
    // SAFETY: the arguments are those of `densify`; `entry_of` has a number below nnz, or -1, for
    // each of n * n entries; values and dense matrices have room for `count` places.
    unsafe { executor.launch(&key("densify"), config, &mut args) }
}

/// Computes the outcomes of the dense systems of `count` places.
pub(in crate::nuclear_burning::gpu) fn judge_dense<E: Executor>(
    executor: &E,
    (count, n): (usize, usize),
    info: &E::Buffer<i32>,
    x: &E::Buffer<f64>,
    statuses: &mut E::Buffer<u8>,
) -> Result<(), GpuError> {
    let mut args = Args::new();
    args.scalar(count as u32).scalar(n as u32).input(info).input(x).output(statuses);
    let config = a_warp_each(count);
    // SAFETY: the arguments are those of `judge_dense`; x has n values for each of at least `count`
    // places, of which there are as many codes and statuses.
    unsafe { executor.launch(&key("judge_dense"), config, &mut args) }
}
