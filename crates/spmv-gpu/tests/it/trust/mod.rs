//! What plans do at the edges: offsets beyond 32 bits, memory that runs out, NaN and infinities, and
//! the same bits again and again. In the emulation and, where there is one, on a GPU.

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

/// Systems without rows, columns or entries, of one row, with empty rows and a dense one, square
/// and not, of any size up to `largest` rows; real values.
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

/// The options of single products whose results do not depend on the device.
fn single_options() -> Vec<SingleOptions> {
    let of = |kernel| SingleOptions {
        max_fill: 1e9,
        parts: Some(7),
        block_entries: Some(256),
        ..SingleOptions::with_kernel(kernel)
    };
    SingleKernel::ALL.iter().copied().map(of).collect()
}

/// The options of flexible products that are repeatable, with the threads pinned.
fn flexible_options() -> Vec<FlexibleOptions> {
    let kernels = FlexibleKernel::ALL.iter().copied().filter(|kernel| kernel.is_repeatable());
    kernels
        .map(|kernel| FlexibleOptions { threads: Some(128), ..FlexibleOptions::new(kernel) })
        .collect()
}

fn batch_of<T: Scalar>(matrices: &[Csr<T>]) -> Batch<T> {
    Batch::Ragged(ragged(matrices))
}
