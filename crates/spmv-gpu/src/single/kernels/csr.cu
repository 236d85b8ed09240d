// y = alpha*A*x + beta*y for one matrix in CSR: a thread, some lanes or a warp per row.
//
// All kernels of this file, for nrows rows, ncols columns and nnz entries:
// - row_ptr: nrows + 1 row starts from 0 to nnz, never decreasing; col_idx, values: nnz;
//   x: ncols; y: nrows. Columns in 0..ncols, ascending in each row. nnz, nrows < 2^31.
// - y overlaps nothing else. beta == 0 does not read y. No atomics: bitwise repeatable.
// - One-dimensional blocks of at most BLOCK_THREADS threads, and at least as many threads in the
//   grid as the kernel gives to all rows.
// - Per entry: reads a column and a value and gathers from x. Per row: reads one entry of row_ptr
//   and, unless beta is 0, y; writes y.

constexpr u32 BLOCK_THREADS = 256;
// Resident blocks per multiprocessor; leaves 40 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 6;
// The same for kernels in which each thread has several entries under way: 48 registers.
constexpr u32 WIDE_RESIDENT_BLOCKS = 5;

// csr_scalar: a thread per row, entry by entry. Threads of a warp read from 32 rows at once, so
// accesses coalesce for short rows only. Bell & Garland 2009, CSR scalar.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    csr_scalar(u32 nrows, const i32* __restrict__ row_ptr, const i32* __restrict__ col_idx,
               const V* __restrict__ values, V alpha, const V* x, V beta,
               V* __restrict__ y) {
    let_next_launch_begin();
    const u64 row = grid_thread();
    if (row >= nrows) {
        return;
    }
    const u32 start = row_ptr[row];
    const u32 end = row_ptr[row + 1];
    wait_for_launches_ahead();
    V sum = V(0);
#pragma unroll 1
    for (u32 k = start; k < end; ++k) {
        sum += values[k] * x[col_idx[k]];
    }
    y[row] = scaled_row(alpha, sum, beta, y + row);
}

// csr_scalar_unrolled: a thread per row through the read-only cache, four entries at a time, in the
// order of StridedSum. After Mazzucchi 2025.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, WIDE_RESIDENT_BLOCKS)
    csr_scalar_unrolled(u32 nrows, const i32* __restrict__ row_ptr,
                        const i32* __restrict__ col_idx, const V* __restrict__ values, V alpha,
                        const V* x, V beta, V* __restrict__ y) {
    let_next_launch_begin();
    const u64 row = grid_thread();
    if (row >= nrows) {
        return;
    }
    const u32 start = load(row_ptr + row);
    const u32 end = load(row_ptr + row + 1);
    StridedSum<V, 4> entries(start, end, 1, col_idx, values);
    wait_for_launches_ahead();
    const V y_before = beta == V(0) ? V(0) : y[row];
    const V sum = entries.sum(x);
    y[row] = scaled_row(alpha, sum, beta, &y_before);
}

// csr_vector: WIDTH lanes per row stride over its entries, each with a few entries under way, then
// add up by shuffles. WIDTH 32 is CSR vector of Bell & Garland 2009; the host's choice of the
// smallest power of two that is at least the mean row length is CSR smart of Anzt et al. 2017.
// Needs WIDTH threads per row in whole warps.
template <typename V, u32 WIDTH>
__global__ void __launch_bounds__(BLOCK_THREADS, WIDE_RESIDENT_BLOCKS)
    csr_vector(u32 nrows, const i32* __restrict__ row_ptr, const i32* __restrict__ col_idx,
               const V* __restrict__ values, V alpha, const V* x, V beta,
               V* __restrict__ y) {
    let_next_launch_begin();
    const u64 row = grid_thread() / WIDTH;
    const u32 lane = threadIdx.x % WIDTH;
    V sum = V(0);
    V y_before = V(0);
    if (row < nrows) {
        const u32 start = load(row_ptr + row);
        const u32 end = load(row_ptr + row + 1);
        StridedSum<V, 4> entries(start + lane, end, WIDTH, col_idx, values);
        wait_for_launches_ahead();
        if (lane == 0 && beta != V(0)) {
            y_before = y[row];
        }
        sum = entries.sum(x);
    }
    sum = warp_sum<WIDTH>(sum);
    if (row < nrows && lane == 0) {
        y[row] = scaled_row(alpha, sum, beta, &y_before);
    }
}

// csr_tile: a warp per row. If the columns of the row span at most TILE, the warp copies that span
// of x to shared memory, coalesced, and gathers from there; else it gathers from global memory. So
// elements of x without an entry in the row may be read, but only entries are multiplied. Mazzucchi
// 2025. Needs a warp per row, blocks of whole warps, at most TILE_WARPS of them.
constexpr u32 TILE = 1024;
constexpr u32 TILE_WARPS = 4;
// Resident blocks: about as many as a multiprocessor has room for tiles of doubles; leaves 64
// registers per thread.
constexpr u32 TILE_RESIDENT_BLOCKS = 8;

template <typename V>
__global__ void __launch_bounds__(TILE_WARPS* WARP_THREADS, TILE_RESIDENT_BLOCKS)
    csr_tile(u32 nrows, const i32* __restrict__ row_ptr, const i32* __restrict__ col_idx,
             const V* __restrict__ values, V alpha, const V* x, V beta,
             V* __restrict__ y) {
    __shared__ V tiles[TILE_WARPS][TILE];
    let_next_launch_begin();
    const u64 row = grid_thread() / WARP_THREADS;
    const u32 lane = threadIdx.x % WARP_THREADS;
    V* const tile = tiles[threadIdx.x / WARP_THREADS];
    if (row >= nrows) {
        return; // The whole warp: no lane is missing below.
    }
    const u32 start = load(row_ptr + row);
    const u32 end = load(row_ptr + row + 1);
    V sum = V(0);
    wait_for_launches_ahead();
    if (start < end) {
        const u32 first = load(col_idx + start);
        const u32 span = load(col_idx + end - 1) - first + 1;
        if (span <= TILE) {
            // Each lane has several copies under way at once.
            constexpr u32 COPIES = 4;
            for (u32 begin = lane; begin < span; begin += COPIES * WARP_THREADS) {
                V copied[COPIES];
#pragma unroll
                for (u32 c = 0; c < COPIES; ++c) {
                    const u32 i = begin + c * WARP_THREADS;
                    copied[c] = i < span ? x[first + i] : V(0);
                }
#pragma unroll
                for (u32 c = 0; c < COPIES; ++c) {
                    const u32 i = begin + c * WARP_THREADS;
                    if (i < span) {
                        tile[i] = copied[c];
                    }
                }
            }
            __syncwarp();
#pragma unroll 4
            for (u32 k = start + lane; k < end; k += WARP_THREADS) {
                sum += load(values + k) * tile[load(col_idx + k) - first];
            }
        } else {
#pragma unroll 4
            for (u32 k = start + lane; k < end; k += WARP_THREADS) {
                sum += load(values + k) * x[load(col_idx + k)];
            }
        }
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        y[row] = scaled_row(alpha, sum, beta, y + row);
    }
}
