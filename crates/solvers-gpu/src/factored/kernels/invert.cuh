// The inverse of a small dense matrix by a warp: Gauss-Jordan elimination with row pivoting, in
// place (Anzt, Dongarra, Flegar, Quintana-Orti 2019, doi 10.1016/j.parco.2017.12.006).
#pragma once

// Inverts a matrix stored column by column, by one warp. Returns whether the matrix is singular, in
// which case its values are meaningless.
template <typename V>
__device__ __forceinline__ bool invert(V* a, u32 size) {
    constexpr u32 MOST = 4; // for up to 128 rows
    const u32 own = threadIdx.x % WARP_THREADS;
    u32 pivots[MOST] = {};
    for (u32 k = 0; k < size; ++k) {
        // The largest entry of the column from the diagonal down; the first of equal ones.
        V most = a[k * size + k];
        most = most < V(0) ? -most : most;
        u32 pivot = k;
        for (u32 row = k + 1 + own; row < size; row += WARP_THREADS) {
            V value = a[k * size + row];
            value = value < V(0) ? -value : value;
            if (value > most) {
                most = value;
                pivot = row;
            }
        }
#pragma unroll
        for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
            const V other = __shfl_xor_sync(ALL_LANES, most, offset);
            const u32 other_row = __shfl_xor_sync(ALL_LANES, pivot, offset);
            if (other > most || (other == most && other_row < pivot)) {
                most = other;
                pivot = other_row;
            }
        }
        if (most == V(0) || !is_finite(most)) {
            return true;
        }
        const V value = a[k * size + pivot];
        __syncwarp();
        for (u32 column = own; column < size; column += WARP_THREADS) {
            V* const entry = a + column * size;
            const V moved = entry[pivot];
            entry[pivot] = entry[k];
            entry[k] = (column == k ? V(1) : moved) / value;
        }
        __syncwarp();
        for (u32 row = own; row < size; row += WARP_THREADS) {
            const V factor = a[k * size + row];
            if (row == k || factor == V(0)) {
                continue;
            }
            a[k * size + row] = 0;
            for (u32 column = 0; column < size; ++column) {
                a[column * size + row] -= factor * a[column * size + k];
            }
        }
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < MOST; ++i) {
            pivots[i] = k == i * WARP_THREADS + own ? pivot : pivots[i];
        }
    }
    // Row exchanges of the matrix are column exchanges of the inverse.
    for (u32 k = size; k-- > 0;) {
        u32 pivot = 0;
#pragma unroll
        for (u32 i = 0; i < MOST; ++i) {
            pivot = k / WARP_THREADS == i ? pivots[i] : pivot;
        }
        pivot = __shfl_sync(ALL_LANES, pivot, k % WARP_THREADS);
        for (u32 row = own; row < size && pivot != k; row += WARP_THREADS) {
            const V other = a[k * size + row];
            a[k * size + row] = a[pivot * size + row];
            a[pivot * size + row] = other;
        }
        __syncwarp();
    }
    return false;
}
