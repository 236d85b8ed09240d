//! Plans at their limits: offsets beyond 32 bits, no memory left, NaN and infinities, and bitwise
//! repeatability. In the emulation and, if present, on a GPU.

mod huge;
mod huge_single;
mod memory;
mod property;
mod repeat;

use crate::common::matrices::{banded, from_columns, mixed, with_reals};
use sparsebatch_formats::{Batch, Csr, RaggedCsr, Scalar};
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions};
use sparsebatch_spmv_gpu::{SingleKernel, SingleOptions};

/// A ragged batch.
fn ragged<T: Scalar>(matrices: &[Csr<T>]) -> RaggedCsr<T> {
    let mut batch = RaggedCsr::new();
    for matrix in matrices {
        batch.push(matrix.view());
    }
    batch
}

/// Systems with real values: without rows, columns or entries, with one row, with empty rows and a
/// dense one, square and rectangular, of up to `largest` rows.
fn systems<T: Scalar>(largest: usize) -> Vec<Csr<T>> {
    let small = [0, 1, 2, 31, 33, 64, largest / 2, largest];
    let mut all: Vec<Csr<T>> = vec![
        Csr::zeros(0, 0).unwrap(),
        Csr::zeros(0, 3).unwrap(),
        Csr::zeros(3, 0).unwrap(),
        Csr::zeros(5, 5).unwrap(),
        from_columns(1, 90, |_, _| (0..90).step_by(3).collect()),
    ];
    for rows in small {
        all.push(mixed(rows, rows + 20, Some(rows / 2)));
        all.push(mixed(rows, rows / 3 + 1, None));
        all.push(banded(rows, rows));
    }
    all.into_iter().map(with_reals).collect()
}

/// Options of single products whose results do not depend on the device.
fn single_options() -> Vec<SingleOptions> {
    let of = |kernel| {
        SingleOptions::with_kernel(kernel).max_fill(1e9).parts(Some(7)).block_entries(Some(256))
    };
    SingleKernel::ALL.iter().copied().map(of).collect()
}

/// Options of repeatable flexible products, with a fixed number of threads.
fn flexible_options() -> Vec<FlexibleOptions> {
    let kernels = FlexibleKernel::ALL.iter().copied().filter(|kernel| kernel.is_repeatable());
    kernels.map(|kernel| FlexibleOptions::new(kernel).threads(Some(128))).collect()
}

fn batch_of<T: Scalar>(matrices: &[Csr<T>]) -> Batch<T> {
    Batch::Ragged(ragged(matrices))
}
