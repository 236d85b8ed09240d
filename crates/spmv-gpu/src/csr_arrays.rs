//! CSR arrays that already lie in the memory of an executor, written by another library or by
//! kernels of the caller.

use crate::kernels::CHECK;
use sparsebatch_cuda::{
    Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value, check_len,
};

/// The arrays of a CSR matrix, or of a batch of them, in the memory of an executor.
///
/// On a [`Device`](sparsebatch_cuda::Device) the buffers may wrap [memory owned by someone
/// else](sparsebatch_cuda::DeviceBuffer::from_raw).
pub struct CsrArrays<E: Executor, T: Value> {
    /// Row pointers, one more than rows: from 0 to the number of entries.
    pub row_ptr: E::Buffer<i32>,
    /// Column indices, strictly ascending in each row.
    pub col_idx: E::Buffer<i32>,
    /// Values of the entries, in the order of `col_idx`.
    pub values: E::Buffer<T>,
}

/// The size of a CSR matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsrSize {
    /// Rows.
    pub nrows: usize,
    /// Columns.
    pub ncols: usize,
    /// Stored entries.
    pub nnz: usize,
}

/// Threads per block: `BLOCK_THREADS` of the kernel.
const BLOCK_THREADS: u32 = 256;
const BLOCK_ROWS: usize = 8;
/// Number of blocks that keeps a device busy.
const MANY_BLOCKS: usize = 4096;

/// Checks that concatenated index arrays are CSR patterns of these sizes. Waits for the result.
pub(crate) fn check_csr<E: Executor>(
    executor: &E,
    sizes: &[CsrSize],
    row_ptr: &E::Buffer<i32>,
    col_idx: &E::Buffer<i32>,
) -> Result<(), GpuError> {
    let patterns = describe(sizes, row_ptr.len(), col_idx.len())?;
    if sizes.is_empty() {
        return Ok(());
    }
    let largest = sizes.iter().map(|size| size.nrows).max().unwrap_or(0);
    let at_once = sizes.len().min(i32::MAX as usize);
    let rows = largest.div_ceil(BLOCK_ROWS).clamp(1, MANY_BLOCKS.div_ceil(at_once));
    let config = LaunchConfig {
        grid: [at_once as u32, rows as u32, 1],
        ..LaunchConfig::linear(1, BLOCK_THREADS)
    };
    let patterns = executor.upload(&patterns)?;
    let mut fault = executor.upload(&[u64::MAX])?;
    let mut args = Args::new();
    args.scalar(sizes.len() as u64).input(&patterns).input(row_ptr).input(col_idx);
    args.output(&mut fault);
    #[expect(unsafe_code, reason = "a launch")]
    // SAFETY: 1. These are the parameters of csr_check. 2. `describe` has compared the sizes with
    // the lengths of the arrays and with the limits of the kernel, which reads nothing beyond them.
    // 3. The buffers belong to the executor, by their types, and are borrowed. 4. `fault` is a
    // separate buffer.
    unsafe {
        executor.launch(&KernelKey::new(&CHECK, "csr_check"), config, &mut args)?;
    }
    let fault = executor.download(&fault)?[0];
    if fault == u64::MAX { Ok(()) } else { Err(error_of(fault, sizes)) }
}

/// The descriptor words of each pattern, in the layout of `check.cu`.
fn describe(sizes: &[CsrSize], pointers: usize, columns: usize) -> Result<Vec<u64>, GpuError> {
    let limit = |name, found: usize| {
        if i32::try_from(found).is_ok() {
            return Ok(found as u64);
        }
        let expected = format!("at most {}", i32::MAX);
        Err(GpuError::InvalidArgument { name, expected, found: found.to_string() })
    };
    limit("patterns", sizes.len())?;
    let (mut row_ptr, mut col_idx) = (0, 0);
    let mut words = Vec::with_capacity(4 * sizes.len());
    for size in sizes {
        let (nrows, ncols) = (limit("nrows", size.nrows)?, limit("ncols", size.ncols)?);
        let nnz = limit("nnz", size.nnz)?;
        words.extend([row_ptr, col_idx, nrows | ncols << 32, nnz]);
        row_ptr += nrows + 1;
        col_idx += nnz;
    }
    check_len("row_ptr", row_ptr as usize, pointers)?;
    check_len("col_idx", col_idx as usize, columns)?;
    Ok(words)
}

fn error_of(fault: u64, sizes: &[CsrSize]) -> GpuError {
    let (item, row) = ((fault >> 33) as usize, fault >> 1 & u64::from(u32::MAX));
    let CsrSize { ncols, nnz, .. } = sizes[item];
    let place = match sizes.len() {
        1 => format!("wrong at row {row}"),
        _ => format!("wrong at row {row} of item {item}"),
    };
    let (name, expected) = match fault & 1 {
        0 => ("row_ptr", format!("row starts from 0 to {nnz} that never decrease")),
        _ => ("col_idx", format!("columns below {ncols} that ascend in each row")),
    };
    GpuError::InvalidArgument { name, expected, found: place }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: CsrSize = CsrSize { nrows: 2, ncols: 3, nnz: 4 };

    #[test]
    fn descriptions_follow_one_another() {
        let other = CsrSize { nrows: 0, ncols: 7, nnz: 0 };

        let words = describe(&[SIZE, other, SIZE], 7, 8).unwrap();

        assert_eq!(words, [0, 0, 2 | 3 << 32, 4, 3, 4, 7 << 32, 0, 4, 4, 2 | 3 << 32, 4]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_by_name() {
        let large = 1 << 31;
        let refused = |size| describe(&[size], 3, 4).unwrap_err().to_string();

        assert_eq!(
            describe(&[SIZE], 4, 4).unwrap_err().to_string(),
            "row_ptr has 4 entries, expected 3"
        );
        assert_eq!(
            describe(&[SIZE], 3, 5).unwrap_err().to_string(),
            "col_idx has 5 entries, expected 4"
        );
        assert!(refused(CsrSize { nrows: large, ..SIZE }).starts_with("nrows is 2147483648"));
        assert!(refused(CsrSize { ncols: large, ..SIZE }).starts_with("ncols is 2147483648"));
        assert!(refused(CsrSize { nnz: large, ..SIZE }).starts_with("nnz is 2147483648"));
    }

    #[test]
    fn faults_are_read_as_the_kernel_writes_them() {
        let row = (1 << 31) - 2;

        let pointers = error_of(row << 1, &[SIZE]).to_string();
        let columns = error_of(1 << 33 | 5 << 1 | 1, &[SIZE, SIZE]).to_string();

        assert!(pointers.starts_with("row_ptr is wrong at row 2147483646, expected row starts"));
        assert!(
            columns.starts_with("col_idx is wrong at row 5 of item 1, expected columns below 3")
        );
    }
}
