// y = alpha*A*x + beta*y for one matrix in ELL.

constexpr u32 BLOCK_THREADS = 256;
// Blocks that a multiprocessor shall hold: leaves 40 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 6;

// ell: a thread per row; slot s of row r is at s*nrows + r, so that accesses coalesce. Four slots
// at a time, with a sum for each of the four. A slot with a negative column is padding, is not
// multiplied, and ends the row. Bell & Garland 2009, ELL.
// Per slot up to the end of the row, rounded up to four: reads a column; per entry also a value,
// and gathers from x. Per row: reads y unless beta is 0, writes y.
// col_idx, values: width*nrows < 2^31 slots, columns in 0..ncols or -1, entries before padding in
// each row; x: ncols; y: nrows, overlaps nothing else. One-dimensional blocks of at most
// BLOCK_THREADS threads, a thread per row in the grid. No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    ell(u32 nrows, u32 width, const i32* __restrict__ col_idx, const V* __restrict__ values,
        V alpha, const V* __restrict__ x, V beta, V* __restrict__ y) {
    constexpr u32 UNROLL = 4;
    const u64 row = grid_thread();
    if (row >= nrows) {
        return;
    }
    V sums[UNROLL] = {};
    bool inside = true;
#pragma unroll 1
    for (u32 slot = 0; slot < width && inside; slot += UNROLL) {
        i32 columns[UNROLL];
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const u64 k = u64(slot + u) * nrows + row;
            columns[u] = slot + u < width ? load(col_idx + k) : -1;
        }
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            if (columns[u] >= 0) {
                const u64 k = u64(slot + u) * nrows + row;
                sums[u] += load(values + k) * load(x + columns[u]);
            }
        }
        inside = columns[UNROLL - 1] >= 0;
    }
    const V sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    y[row] = scaled_row(alpha, sum, beta, y + row);
}
