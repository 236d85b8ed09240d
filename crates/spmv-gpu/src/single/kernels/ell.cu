// y = alpha*A*x + beta*y for one matrix in ELL.

constexpr u32 BLOCK_THREADS = 128;
// Resident blocks per multiprocessor; leaves 80 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 6;

// ell: a thread per row; slot s of row r is at s*nrows + r, so that accesses coalesce. UNROLL
// columns and their values are requested at once, then their elements of x and the next UNROLL
// columns, then the elements of x for these with their values. A slot with a negative column is
// padding, is not multiplied, and, as the last of UNROLL, ends the row. Bell & Garland 2009, ELL.
//
// Per slot up to the end of the row, rounded up to UNROLL: reads a column; per entry, and per slot
// of the first UNROLL, also a value; per entry gathers from x. Per row: reads y unless beta is 0,
// writes y.
// - col_idx, values: width*nrows < 2^31 slots, columns in 0..ncols or -1, entries before padding in
//   each row.
// - x: ncols; y: nrows, overlaps nothing else.
// - One-dimensional blocks of at most BLOCK_THREADS threads, a thread per row in the grid.
// - No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    ell(u32 nrows, u32 width, const i32* __restrict__ col_idx, const V* __restrict__ values,
        V alpha, const V* x, V beta, V* __restrict__ y) {
    constexpr u32 UNROLL = 8;
    let_next_launch_begin();
    const u64 row = grid_thread();
    if (row >= nrows) {
        return;
    }
    const i32* own_columns = col_idx + row;
    const V* own_values = values + row;
    i32 columns[UNROLL];
    V factors[UNROLL];
#pragma unroll
    for (u32 u = 0; u < UNROLL; ++u) {
        columns[u] = u < width ? load(own_columns + u64(u) * nrows) : -1;
        factors[u] = u < width ? load(own_values + u64(u) * nrows) : V(0);
    }
    wait_for_launches_ahead();
    const V y_before = beta == V(0) ? V(0) : y[row];
    V sums[2] = {};
#pragma unroll 1
    for (u32 slot = 0; slot < width && columns[0] >= 0; slot += UNROLL) {
        V operands[UNROLL];
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            operands[u] = columns[u] >= 0 ? x[columns[u]] : V(0);
            factors[u] = columns[u] >= 0 ? factors[u] : V(0);
        }
        own_columns += u64(UNROLL) * nrows;
        own_values += u64(UNROLL) * nrows;
        const bool goes_on = columns[UNROLL - 1] >= 0;
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const bool inside = goes_on && slot + UNROLL + u < width;
            columns[u] = inside ? load(own_columns + u64(u) * nrows) : -1;
        }
        // Padding adds 0 times 0.
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            sums[u % 2] += factors[u] * operands[u];
        }
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            factors[u] = columns[u] >= 0 ? load(own_values + u64(u) * nrows) : V(0);
        }
    }
    y[row] = scaled_row(alpha, sums[0] + sums[1], beta, &y_before);
}
