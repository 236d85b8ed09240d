// y = alpha*A*x + beta*y for one matrix in SELL: slices of as many rows as a warp has lanes.
//
// All kernels of this file: a warp per slice of 32 rows, a thread per row, in the order of SlotSum.
// Slot j of the slice's row i is at slice_ptr[slice] + 32*j + i, so that accesses coalesce. A slot
// with a negative column is padding, is not multiplied, and, as the last of UNROLL, ends the row.
// Kreutzer et al. 2014, SELL-C-sigma with C = 32, doi 10.1137/130930352.
//
// Reads columns and values of the slots of a row up to the first multiple of UNROLL beyond its last
// entry, or to the end of the slice; per entry gathers from x. Per row: reads its row_perm if rows
// were sorted and, unless beta is 0, y; writes y.
// - slice_ptr: ceil(nrows/32) + 1 starts from 0, never decreasing multiples of 32, below 2^31.
// - row_perm: a permutation of 0..nrows, or null for the identity.
// - col_idx: columns in 0..ncols or -1, entries before padding in each row, padding in rows that
//   the last slice lacks.
// - x: ncols; y: nrows, overlaps nothing else.
// - One-dimensional blocks of whole warps, a thread per row in the grid.
// - No atomics: bitwise repeatable.
//
// The launch behind begins when a warp of every block of this one has done its rows. Where it
// begins earlier its blocks take the places that are free first, so that some multiprocessors get
// more blocks than others.

constexpr u32 BLOCK_THREADS = 128;
// The same for sell_in_step.
constexpr u32 STEP_BLOCK_THREADS = 1024;

// The slots of a row, whose place among all rows is `place`.
template <typename V, u32 UNROLL>
__device__ __forceinline__ SlotSum<V, UNROLL, WARP_THREADS> slots_of(
    u64 place, const i32* __restrict__ slice_ptr, const i32* __restrict__ col_idx,
    const V* __restrict__ values) {
    const u32 slice = u32(place / WARP_THREADS);
    const u32 start = load(slice_ptr + slice);
    const u32 width = (load(slice_ptr + slice + 1) - start) / WARP_THREADS;
    const u32 first = start + threadIdx.x % WARP_THREADS;
    return SlotSum<V, UNROLL, WARP_THREADS>(col_idx + first, values + first, width);
}

// sell: UNROLL slots of a thread are under way at once. The more there are, the fewer blocks are
// resident on a multiprocessor: 6, which leaves 80 registers per thread, or 12, which leaves 40.
// At most BLOCK_THREADS threads of a block. No shared memory and no barriers.
template <typename V, u32 UNROLL>
__global__ void __launch_bounds__(BLOCK_THREADS, UNROLL > 4 ? 6 : 12)
    sell(u32 nrows, const i32* __restrict__ slice_ptr, const i32* __restrict__ row_perm,
         const i32* __restrict__ col_idx, const V* __restrict__ values, V alpha,
         const V* x, V beta, V* __restrict__ y) {
    const u64 place = grid_thread();
    if (place >= nrows) {
        return;
    }
    auto slots = slots_of<V, UNROLL>(place, slice_ptr, col_idx, values);
    const u32 row = row_perm == nullptr ? u32(place) : load(row_perm + place);
    wait_for_launches_ahead();
    const V y_before = beta == V(0) ? V(0) : y[row];
#pragma unroll 1
    while (slots.goes_on()) {
        slots.step(x);
    }
    let_next_launch_begin();
    y[row] = scaled_row(alpha, slots.sum(), beta, &y_before);
}

// sell_in_step: as sell, for large matrices of long rows whose columns lie anywhere. The warps of a
// block, which fills a multiprocessor, meet after every few steps: rows that advance together along
// x gather from the same part of it, which the cache holds. STEP_BLOCK_THREADS threads of a block;
// at least one row.
constexpr u32 STEP_SLOTS = 4;
constexpr u32 STEPS_APART = 4;

template <typename V>
__global__ void __launch_bounds__(STEP_BLOCK_THREADS, 1)
    sell_in_step(u32 nrows, const i32* __restrict__ slice_ptr, const i32* __restrict__ row_perm,
                 const i32* __restrict__ col_idx, const V* __restrict__ values, V alpha,
                 const V* x, V beta, V* __restrict__ y) {
    const u64 place = grid_thread();
    const bool is_row = place < nrows;
    // Threads without a row request slots of the last slice and do not use them.
    const u64 own = is_row ? place : u64(nrows) - 1;
    auto slots = slots_of<V, STEP_SLOTS>(own, slice_ptr, col_idx, values);
    const u32 row = row_perm == nullptr ? u32(own) : load(row_perm + own);
    wait_for_launches_ahead();
    const V y_before = beta == V(0) || !is_row ? V(0) : y[row];
    while (__syncthreads_or(is_row && slots.goes_on())) {
#pragma unroll 1
        for (u32 step = 0; step < STEPS_APART && is_row && slots.goes_on(); ++step) {
            slots.step(x);
        }
    }
    let_next_launch_begin();
    if (is_row) {
        y[row] = scaled_row(alpha, slots.sum(), beta, &y_before);
    }
}
