// y = alpha*A*x + beta*y for one matrix in DIA.

constexpr u32 BLOCK_THREADS = 256;
// Blocks that a multiprocessor shall hold: leaves 40 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 6;

// dia: a thread per row; the slot of row r on diagonal d is at d*nrows + r and stands for column
// r + diag_offsets[d]. Slots outside the matrix are skipped, neither read nor multiplied; the fill
// inside is multiplied. Accesses to values and x coalesce. Bell & Garland 2009, DIA.
// Per slot inside: reads a value and x. Per row: reads y unless beta is 0, writes y; offsets come
// from cache.
// diag_offsets: ndiags, -(nrows - 1) to ncols - 1; values: ndiags*nrows < 2^31; x: ncols; y: nrows,
// overlaps nothing else. One-dimensional blocks of at most BLOCK_THREADS threads, a thread per row
// in the grid. No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    dia(u32 nrows, u32 ncols, u32 ndiags, const i32* __restrict__ diag_offsets,
        const V* __restrict__ values, V alpha, const V* __restrict__ x, V beta,
        V* __restrict__ y) {
    const u64 row = grid_thread();
    if (row >= nrows) {
        return;
    }
    V sum = V(0);
#pragma unroll 4
    for (u32 d = 0; d < ndiags; ++d) {
        const long long column = (long long)row + load(diag_offsets + d);
        if (column >= 0 && column < ncols) {
            sum += load(values + u64(d) * nrows + row) * load(x + column);
        }
    }
    y[row] = scaled_row(alpha, sum, beta, y + row);
}
