// y = alpha*A*x + beta*y for one matrix in ELL.

constexpr u32 BLOCK_THREADS = 128;
// Resident blocks per multiprocessor; leaves 80 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 6;
// Slots that a thread has under way at once.
constexpr u32 UNROLL = 8;

// ell: a thread per row, in the order of SlotSum; slot s of row r is at s*nrows + r, so that
// accesses coalesce. A slot with a negative column is padding, is not multiplied, and, as the last
// of UNROLL, ends the row. Bell & Garland 2009, ELL.
//
// Reads columns and values of the slots of a row up to the first multiple of UNROLL beyond its last
// entry, or to width; per entry gathers from x. Per row: reads y unless beta is 0, writes y.
// - col_idx, values: width*nrows < 2^31 slots, columns in 0..ncols or -1, entries before padding in
//   each row.
// - x: ncols; y: nrows, overlaps nothing else.
// - One-dimensional blocks of at most BLOCK_THREADS threads, a thread per row in the grid.
// - No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    ell(u32 nrows, u32 width, const i32* __restrict__ col_idx, const V* __restrict__ values,
        V alpha, const V* x, V beta, V* __restrict__ y) {
    const u64 row = grid_thread();
    if (row >= nrows) {
        return;
    }
    SlotSum<V, UNROLL, 0> slots(col_idx + row, values + row, width, nrows);
    wait_for_launches_ahead();
    const V y_before = beta == V(0) ? V(0) : y[row];
#pragma unroll 1
    while (slots.goes_on()) {
        slots.step(x);
    }
    let_next_launch_begin();
    y[row] = scaled_row(alpha, slots.sum(), beta, &y_before);
}
