#pragma once

#include "state.cuh"

// Writes the matrices of all places as dense ones, column by column: entry k of the pattern where
// entry_of[column * n + row] is k, 0 where it is negative. A thread per dense entry; any launch.
__global__ void densify(u32 nplaces, u32 n, u32 nnz, const i32* __restrict__ entry_of,
                        const double* __restrict__ values, double* __restrict__ dense) {
    const u32 each = n * n;
    const u64 all = u64(nplaces) * each;
    for (u64 work = grid_thread(); work < all; work += grid_threads()) {
        const i32 entry = load(entry_of + u32(work % each));
        dense[work] = entry < 0 ? 0.0 : values[work / each * nnz + entry];
    }
}

// The status of a dense solve: singular if `info` is not 0, non-finite if x is not finite. A warp
// per place.
__global__ void judge_dense(u32 nplaces, u32 n, const i32* __restrict__ info,
                            const double* __restrict__ x, u8* __restrict__ statuses) {
    constexpr u8 CONVERGED = 0, NON_FINITE = 5, SINGULAR = 9;
    const u32 place = u32(grid_thread() / WARP_THREADS), lane = threadIdx.x % WARP_THREADS;
    if (place >= nplaces) {
        return;
    }
    bool lost = false;
    for (u32 i = lane; i < n; i += WARP_THREADS) {
        lost = lost || !finite(x[u64(place) * n + i]);
    }
    lost = __any_sync(ALL_LANES, lost) != 0;
    if (lane == 0) {
        statuses[place] = info[place] != 0 ? SINGULAR : lost ? NON_FINITE : CONVERGED;
    }
}
