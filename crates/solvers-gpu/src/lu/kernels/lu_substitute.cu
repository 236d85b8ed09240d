// Forward and backward substitution with factors that `lu_factor` made, one warp per system at a
// time, without a check of the result: see lu_verify.cu. Each system's solution equals that of the
// first solve in lu_kept.cu bit for bit, except for the signs of zeros, unless right-hand sides
// there are scaled. It is 0 if a pivot is zero or NaN.
//
// Traffic of a system: factors, b and x once.
//
// Arguments as in lu_kept.cu, except:
// - nitems >= 1, nrhs >= 1; system s has `nrows` values of b and of x from s*nrows on.
// - `early`: if set, neither the preceding launch nor any other launch that may not have ended
//   writes the kept values; the first factors are then requested before it has ended.
// - Of the tables only those of L and U are copied.
// - Launch: blocks of whole warps, 16 at most; any grid. Shared memory: 4 bytes for each of
//   (end_of_u + 1) * 32 words and (end_of_u + AHEAD) * 2 spans; nrows u16, rounded up to a multiple
//   of 8 bytes; for each warp 2 * nrows + nslots values, rounded up to a multiple of 8 bytes.

#include "lu_kept.cuh"

template <typename V, u32 AHEAD>
__global__ void __launch_bounds__(KEPT_THREADS, AHEAD > 4 ? 1 : 2)
    lu_substitute(u32 nitems, u32 nrows, u32 nrhs, const V* __restrict__ kept, u64 stride,
                  u32 first_value, const u32* __restrict__ tables, u32 end_of_l, u32 end_of_u,
                  u32 end_of_a, u32 nslots, const u16* __restrict__ perm, u32 early,
                  const V* b, V* x) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    const u32 lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    const u32 nwords = (end_of_u + 1) * WARP_THREADS, nspans = end_of_u * HALVES;
    u32* const words = reinterpret_cast<u32*>(dynamic_shared);
    u32* const spans = words + nwords;
    u16* const rows = reinterpret_cast<u16*>(spans + nspans + AHEAD * HALVES);
    V* const y =
        reinterpret_cast<V*>(rows + (nrows + 3) / 4 * 4) + warp * whole_values<V>(2 * nrows + nslots);
    V* const inverses = y + nrows + nslots;
    for (u32 i = threadIdx.x * 4; i < nwords; i += blockDim.x * 4) {
        cp_async_16(words + i, tables + i);
    }
    const u32* const from = tables + (end_of_a + 1) * WARP_THREADS;
    for (u32 i = threadIdx.x * 4; i < nspans; i += blockDim.x * 4) {
        cp_async_16(spans + i, from + i);
    }
    // No values are requested past the last chunks of U.
    for (u32 i = threadIdx.x; i < AHEAD * HALVES; i += blockDim.x) {
        spans[nspans + i] = 0;
    }
    for (u32 k = threadIdx.x; k < nrows; k += blockDim.x) {
        rows[k] = load(perm + k);
    }
    cp_async_wait_all();
    __syncthreads();
    bool waits = true;
    const auto wait = [&waits] {
        if (waits) {
            wait_for_launches_ahead();
            let_next_launch_begin();
        }
        waits = false;
    };
    if (early == 0) {
        wait();
    }
    KeptChunks<V, AHEAD> chunks(words, spans, nitems >> 31);
    const u32 warps = gridDim.x * (blockDim.x / WARP_THREADS);
    // The first warps of all blocks take systems before the second warps do.
    for (u32 system = warp * gridDim.x + blockIdx.x; system < nitems * nrhs; system += warps) {
        const V* const pivots = kept + system / nrhs * stride;
        const auto found = begin_chunks(chunks, pivots, first_value, nrows, inverses);
        wait();
        const V* const own_b = b + u64(system) * nrows;
#pragma unroll 4
        for (u32 k = lane; k < nrows; k += WARP_THREADS) {
            y[k] = own_b[rows[k]];
        }
        solve_by_chunks(chunks, found, pivots, first_value, end_of_l, end_of_u, nrows, nslots, y,
                        inverses);
        const bool bad = __any_sync(ALL_LANES, found.is_bad) != 0;
        V* const own_x = x + u64(system) * nrows;
#pragma unroll 4
        for (u32 k = lane; k < nrows; k += WARP_THREADS) {
            own_x[rows[k]] = bad ? V(0) : y[k];
        }
        __syncwarp(); // y has been read
    }
}
