// y = alpha*A*x + beta*y for one matrix in SELL-P.

constexpr u32 BLOCK_THREADS = 1024;

// sellp: a block of b x t threads per slice of b rows. Slot j of the slice's row i is at
// slice_ptr[slice] + j*b + i; thread (i, j) takes the slots j, j + t, ... of row i, two at a time,
// so that the block reads b*t consecutive slots at once. The t sums of a row meet in shared memory
// and are added in order. A slot with a negative column is padding, is not multiplied, and ends the
// row for its thread. Anzt, Tomov & Dongarra 2014, SELL-P.
//
// Per slot up to the end of the row, rounded up to 2*t: reads a column; per entry also a value, and
// gathers from x. Per row: reads its row_perm and, unless beta is 0, y; writes y.
// - slice_ptr: ceil(nrows/b) + 1 starts from 0, never decreasing; every slice is a whole multiple
//   of b*t slots, fewer than 2^31 in all.
// - row_perm: a permutation of 0..nrows.
// - col_idx: columns in 0..ncols or -1, entries before padding in each row, padding in rows that
//   the last slice lacks.
// - x: ncols; y: nrows, overlaps nothing else.
// - Launch: a block per slice, blocks of (b, t) threads, at most BLOCK_THREADS, and b*t values of
//   dynamic shared memory.
// - No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS)
    sellp(u32 nrows, const i32* __restrict__ slice_ptr, const i32* __restrict__ row_perm,
          const i32* __restrict__ col_idx, const V* __restrict__ values, V alpha,
          const V* x, V beta, V* __restrict__ y) {
    extern __shared__ u64 sellp_shared[];
    V* const sums = reinterpret_cast<V*>(sellp_shared);
    const u32 slots = blockDim.x * blockDim.y;
    const u32 thread = threadIdx.y * blockDim.x + threadIdx.x;
    let_next_launch_begin();
    const u32 start = load(slice_ptr + blockIdx.x);
    const u32 end = load(slice_ptr + blockIdx.x + 1);
    wait_for_launches_ahead();
    V sum = V(0);
    V second = V(0);
    for (u32 k = start + thread; k < end; k += 2 * slots) {
        const i32 column = load(col_idx + k);
        const i32 next = k + slots < end ? load(col_idx + k + slots) : -1;
        if (column >= 0) {
            sum += load(values + k) * x[column];
        }
        if (next < 0) {
            break;
        }
        second += load(values + k + slots) * x[next];
    }
    sum += second;
    sums[thread] = sum;
    __syncthreads();
    const u64 place = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (threadIdx.y == 0 && place < nrows) {
        for (u32 j = 1; j < blockDim.y; ++j) {
            sum += sums[j * blockDim.x + threadIdx.x];
        }
        const u32 row = load(row_perm + place);
        y[row] = scaled_row(alpha, sum, beta, y + row);
    }
}
