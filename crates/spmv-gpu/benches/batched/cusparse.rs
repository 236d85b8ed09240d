//! The peer: cuSPARSE on the whole batch as one block-diagonal matrix.

use std::ffi::c_void;
use std::ptr;

use cudarc::cusparse::sys::{self, cusparseSpMVAlg_t as Algorithm};
use sparsebatch_formats::RaggedCsr;
use sparsebatch_spmv_gpu::{Device, DeviceBuffer, Executor, GpuError};

/// A block-diagonal matrix with one algorithm of cuSPARSE, preprocessed.
pub(crate) struct BlockDiagonal {
    handle: sys::cusparseHandle_t,
    matrix: sys::cusparseSpMatDescr_t,
    x: sys::cusparseDnVecDescr_t,
    y: sys::cusparseDnVecDescr_t,
    algorithm: Algorithm,
    workspace: DeviceBuffer<u8>,
    _arrays: (DeviceBuffer<i32>, DeviceBuffer<i32>, DeviceBuffer<f64>),
}

const REAL: sys::cudaDataType = sys::cudaDataType::CUDA_R_64F;
const INDEX: sys::cusparseIndexType_t = sys::cusparseIndexType_t::CUSPARSE_INDEX_32I;
const BASE: sys::cusparseIndexBase_t = sys::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO;
const PLAIN: sys::cusparseOperation_t = sys::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

/// The algorithms compared, with the names of the report.
pub(crate) const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("block-diagonal csr alg1", Algorithm::CUSPARSE_SPMV_CSR_ALG1),
    ("block-diagonal csr alg2", Algorithm::CUSPARSE_SPMV_CSR_ALG2),
    ("block-diagonal coo alg1", Algorithm::CUSPARSE_SPMV_COO_ALG1),
    ("block-diagonal coo alg2", Algorithm::CUSPARSE_SPMV_COO_ALG2),
];

/// Whether the library is here.
pub(crate) fn is_present() -> bool {
    // SAFETY: looks for the library and loads it, nothing else.
    unsafe { sys::is_culib_present() }
}

fn checked(status: sys::cusparseStatus_t, call: &str) {
    assert_eq!(status, sys::cusparseStatus_t::CUSPARSE_STATUS_SUCCESS, "{call}");
}

fn address<T: sparsebatch_spmv_gpu::Pod>(buffer: &DeviceBuffer<T>) -> *mut c_void {
    buffer.raw() as *mut c_void
}

impl BlockDiagonal {
    /// Uploads the batch; `x` and `y` must outlive the value.
    pub(crate) fn new(
        device: &Device,
        batch: &RaggedCsr<f64>,
        algorithm: Algorithm,
        x: &DeviceBuffer<f64>,
        y: &DeviceBuffer<f64>,
    ) -> Result<Self, GpuError> {
        let rows = batch.row_offsets()[batch.nitems()];
        let is_coo = matches!(
            algorithm,
            Algorithm::CUSPARSE_SPMV_COO_ALG1 | Algorithm::CUSPARSE_SPMV_COO_ALG2
        );
        let mut row_index: Vec<i32> = Vec::new();
        let mut cols: Vec<i32> = Vec::with_capacity(batch.total_nnz());
        for item in 0..batch.nitems() {
            let pattern = batch.item(item).pattern();
            let (row0, col0) = (batch.row_offsets()[item], batch.col_offsets()[item]);
            let start = cols.len();
            for row in 0..pattern.nrows() {
                let entries = pattern.row(row);
                if is_coo {
                    row_index.extend(entries.map(|_| (row0 + row) as i32));
                } else {
                    row_index.push((start + entries.start) as i32);
                }
            }
            cols.extend(pattern.col_idx().iter().map(|&c| c + col0 as i32));
        }
        if !is_coo {
            row_index.push(cols.len() as i32);
        }
        let arrays =
            (device.upload(&row_index)?, device.upload(&cols)?, device.upload(batch.values())?);
        let (nrows, ncols) = (rows as i64, batch.col_offsets()[batch.nitems()] as i64);
        let nnz = cols.len() as i64;
        let (mut handle, mut matrix) = (ptr::null_mut(), ptr::null_mut());
        let (mut x_vector, mut y_vector) = (ptr::null_mut(), ptr::null_mut());
        let one = 1.0f64;
        let scalar = ptr::from_ref(&one).cast();
        // SAFETY: the arrays have the lengths that are given with them and outlive the
        // descriptors; the handle is made first; scalars are on the host, as by default.
        unsafe {
            checked(sys::cusparseCreate(&mut handle), "cusparseCreate");
            checked(sys::cusparseSetStream(handle, device.raw_stream().cast()), "SetStream");
            let (rows, cols, values) = (address(&arrays.0), address(&arrays.1), address(&arrays.2));
            let status = if is_coo {
                sys::cusparseCreateCoo(
                    &mut matrix,
                    nrows,
                    ncols,
                    nnz,
                    rows,
                    cols,
                    values,
                    INDEX,
                    BASE,
                    REAL,
                )
            } else {
                sys::cusparseCreateCsr(
                    &mut matrix,
                    nrows,
                    ncols,
                    nnz,
                    rows,
                    cols,
                    values,
                    INDEX,
                    INDEX,
                    BASE,
                    REAL,
                )
            };
            checked(status, "cusparseCreate matrix");
            checked(sys::cusparseCreateDnVec(&mut x_vector, ncols, address(x), REAL), "x");
            checked(sys::cusparseCreateDnVec(&mut y_vector, nrows, address(y), REAL), "y");
            let mut bytes = 0;
            checked(
                sys::cusparseSpMV_bufferSize(
                    handle,
                    PLAIN,
                    scalar,
                    matrix.cast_const(),
                    x_vector.cast_const(),
                    scalar,
                    y_vector,
                    REAL,
                    algorithm,
                    &mut bytes,
                ),
                "cusparseSpMV_bufferSize",
            );
            let workspace = device.alloc::<u8>(bytes.max(1))?;
            checked(
                sys::cusparseSpMV_preprocess(
                    handle,
                    PLAIN,
                    scalar,
                    matrix.cast_const(),
                    x_vector.cast_const(),
                    scalar,
                    y_vector,
                    REAL,
                    algorithm,
                    address(&workspace),
                ),
                "cusparseSpMV_preprocess",
            );
            Ok(Self {
                handle,
                matrix,
                x: x_vector,
                y: y_vector,
                algorithm,
                workspace,
                _arrays: arrays,
            })
        }
    }

    /// `y = A x + y`.
    pub(crate) fn apply(&self) {
        let one = 1.0f64;
        let scalar = ptr::from_ref(&one).cast();
        // SAFETY: the descriptors are alive, and the workspace has the size asked for.
        let status = unsafe {
            sys::cusparseSpMV(
                self.handle,
                PLAIN,
                scalar,
                self.matrix.cast_const(),
                self.x.cast_const(),
                scalar,
                self.y,
                REAL,
                self.algorithm,
                address(&self.workspace),
            )
        };
        checked(status, "cusparseSpMV");
    }
}

impl Drop for BlockDiagonal {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe {
            sys::cusparseDestroyDnVec(self.y.cast_const());
            sys::cusparseDestroyDnVec(self.x.cast_const());
            sys::cusparseDestroySpMat(self.matrix.cast_const());
            sys::cusparseDestroy(self.handle);
        }
    }
}
