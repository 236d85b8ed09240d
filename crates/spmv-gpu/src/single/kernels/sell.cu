// y = alpha*A*x + beta*y for one matrix in SELL: slices of as many rows as a warp has lanes.

constexpr u32 BLOCK_THREADS = 128;
// Resident blocks per multiprocessor; leaves 80 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 6;

// sell: a warp per slice of 32 rows, a thread per row, in the order of StridedSum. Slot j of the
// slice's row i is at slice_ptr[slice] + 32*j + i, so that accesses coalesce. A slot with a
// negative column is padding and is not multiplied. No shared memory and no barriers. Kreutzer et
// al. 2014, SELL-C-sigma with C = 32, doi 10.1137/130930352.
//
// Per slot: reads a column; per entry, and per slot of the first 8, also a value; per entry gathers
// from x. Per row: reads its row_perm if rows were sorted and, unless beta is 0, y; writes y.
// - slice_ptr: ceil(nrows/32) + 1 starts from 0, never decreasing multiples of 32, below 2^31.
// - row_perm: a permutation of 0..nrows, or null for the identity.
// - col_idx: columns in 0..ncols or -1, padding in rows that the last slice lacks.
// - x: ncols; y: nrows, overlaps nothing else.
// - One-dimensional blocks of whole warps, at most BLOCK_THREADS threads, a thread per row in the
//   grid.
// - No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    sell(u32 nrows, const i32* __restrict__ slice_ptr, const i32* __restrict__ row_perm,
         const i32* __restrict__ col_idx, const V* __restrict__ values, V alpha,
         const V* x, V beta, V* __restrict__ y) {
    let_next_launch_begin();
    const u64 place = grid_thread();
    if (place >= nrows) {
        return;
    }
    const u32 slice = u32(place / WARP_THREADS);
    const u32 start = load(slice_ptr + slice);
    const u32 end = load(slice_ptr + slice + 1);
    const u32 row = row_perm == nullptr ? u32(place) : load(row_perm + place);
    // Slots of this row, relative to the slice, so that no index overflows past its end.
    StridedSum<V, 8, true> slots(threadIdx.x % WARP_THREADS, end - start, WARP_THREADS,
                                 col_idx + start, values + start);
    wait_for_launches_ahead();
    const V y_before = beta == V(0) ? V(0) : y[row];
    y[row] = scaled_row(alpha, slots.sum(x), beta, &y_before);
}
