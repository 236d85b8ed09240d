// Products and vector operations without shared memory.

template <typename V> __global__ void demo_axpy(u64 n, V alpha, const V* __restrict__ x, V* __restrict__ y) {
    const u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] += alpha * __ldg(x + i);
}

// One thread per row.
template <typename V>
__global__ void __launch_bounds__(256)
    demo_csr_scalar(int nrows, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
                    const V* __restrict__ values, const V* __restrict__ x, V* __restrict__ y) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= nrows) return;
    V sum = 0;
    for (int k = row_ptr[row]; k < row_ptr[row + 1]; k++) sum += values[k] * x[col_idx[k]];
    y[row] = sum;
}

// WIDTH lanes per row.
template <typename V, int WIDTH>
__global__ void demo_csr_vector(int nrows, const int* __restrict__ row_ptr,
                                const int* __restrict__ col_idx, const V* __restrict__ values,
                                const V* __restrict__ x, V* __restrict__ y) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / WIDTH;
    const int in_row = threadIdx.x % WIDTH;
    V sum = 0;
    if (row < nrows) {
        for (int k = row_ptr[row] + in_row; k < row_ptr[row + 1]; k += WIDTH) {
            sum += values[k] * x[col_idx[k]];
        }
    }
    sum = group_sum<WIDTH>(sum);
    if (row < nrows && in_row == 0) y[row] = sum;
}
