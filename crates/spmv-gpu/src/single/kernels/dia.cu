// y = alpha*A*x + beta*y for one matrix in DIA.

constexpr u32 BLOCK_THREADS = 256;
// Resident blocks per multiprocessor; leaves 64 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 4;

// Whether a slot holds fill, a NaN reserved for it. The host replaces matrix entries that are this
// NaN.
__device__ __forceinline__ bool is_fill(double value) {
    return u32(u64(__double_as_longlong(value)) >> 32) == 0x7ffd1a61u;
}

__device__ __forceinline__ bool is_fill(float value) {
    return __float_as_uint(value) == 0x7fed1a61u;
}

// dia: a thread per row; the slot of row r on diagonal d is at d*nrows + r and stands for column r
// + diag_offsets[d]. Slots without an entry hold a reserved NaN and are not multiplied, whether
// inside the matrix or outside. Accesses to values and x coalesce. Offsets and values of UNROLL
// diagonals are requested at once, then their elements of x. Bell & Garland 2009, DIA, which
// multiplies the fill.
//
// Per slot: reads a value; inside the matrix also x. Per row: reads y unless beta is 0, writes y;
// offsets come from cache.
// - diag_offsets: ndiags, -(nrows - 1) to ncols - 1.
// - values: ndiags*nrows < 2^31, fill outside the matrix.
// - x: ncols; y: nrows, overlaps nothing else.
// - UNROLL: any, best if few of the last UNROLL diagonals are missing.
// - One-dimensional blocks of at most BLOCK_THREADS threads, a thread per row in the grid.
// - No atomics: bitwise repeatable.
template <typename V, u32 UNROLL>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    dia(u32 nrows, u32 ncols, u32 ndiags, const i32* __restrict__ diag_offsets,
        const V* __restrict__ values, V alpha, const V* x, V beta,
        V* __restrict__ y) {
    let_next_launch_begin();
    const u64 row = grid_thread();
    if (row >= nrows) {
        return;
    }
    V y_before = V(0);
    if (ndiags == 0) {
        wait_for_launches_ahead();
        y_before = beta == V(0) ? V(0) : y[row];
    }
    V sums[2] = {};
#pragma unroll 1
    for (u32 first = 0; first < ndiags; first += UNROLL) {
        i32 offsets[UNROLL];
        V factors[UNROLL];
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const u32 d = first + u;
            offsets[u] = d < ndiags ? load(diag_offsets + d) : 0;
            factors[u] = d < ndiags ? load(values + u64(d) * nrows + row) : V(0);
        }
        if (first == 0) {
            wait_for_launches_ahead();
            y_before = beta == V(0) ? V(0) : y[row];
        }
        V operands[UNROLL];
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const long long column = (long long)row + offsets[u];
            const bool inside = first + u < ndiags && column >= 0 && column < ncols;
            operands[u] = inside ? x[column] : V(0);
        }
        // Missing diagonals add 0 times 0.
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            if (!is_fill(factors[u])) {
                sums[u % 2] += factors[u] * operands[u];
            }
        }
    }
    y[row] = scaled_row(alpha, sums[0] + sums[1], beta, &y_before);
}
