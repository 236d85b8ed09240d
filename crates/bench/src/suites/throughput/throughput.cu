// What Bell and Garland 2009 (doi 10.1145/1654059.1654078) show that is no format: memory accesses at
// a distance, and x read with and without the cache of a multiprocessor.

// A value that no thread writes while the kernel runs, through the second-level cache alone.
__device__ __forceinline__ double load_far(const double* address) {
    double value;
    asm volatile("ld.global.cg.f64 %0, [%1];" : "=d"(value) : "l"(address));
    return value;
}

__device__ __forceinline__ float load_far(const float* address) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(address));
    return value;
}

// axpy_strided: y[first + i*stride] = x[first + i*stride] + beta*y[first + i*stride] for i < count, a
// thread an element; y elsewhere stays. x and y: first + (count - 1)*stride + 1 values at least, apart.
// Figure 1.
template <typename V>
__global__ void axpy_strided(u64 count, u64 stride, u64 first, const V* __restrict__ x, V beta,
                             V* __restrict__ y) {
    const u64 i = grid_thread();
    if (i < count) {
        const u64 place = first + i * stride;
        y[place] = x[place] + beta * y[place];
    }
}

// csr_gather: y = A*x + beta*y in CSR, LANES threads a row; CACHED: x through the read-only cache, else
// through the second-level cache alone. The arrays as in csr.cu. Blocks of whole warps; at least
// LANES * nrows threads in the grid. Per entry: reads a column and a value, gathers from x.
// Figures 11 to 14.
template <typename V, u32 LANES, bool CACHED>
__global__ void csr_gather(u32 nrows, const i32* __restrict__ row_ptr,
                           const i32* __restrict__ col_idx, const V* __restrict__ values,
                           const V* __restrict__ x, V beta, V* __restrict__ y) {
    const u64 row = grid_thread() / LANES;
    const u32 lane = threadIdx.x % LANES;
    V sum = V(0);
    if (row < nrows) {
        const u32 end = row_ptr[row + 1];
        for (u32 k = row_ptr[row] + lane; k < end; k += LANES) {
            const V* place = x + col_idx[k];
            sum += values[k] * (CACHED ? load(place) : load_far(place));
        }
    }
    if (LANES > 1) {
        sum = warp_sum<LANES>(sum);
    }
    if (row < nrows && lane == 0) {
        y[row] = sum + (beta == V(0) ? V(0) : beta * y[row]);
    }
}
