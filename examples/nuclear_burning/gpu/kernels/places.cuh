#pragma once

#include "state.cuh"

// The places of the zones that are still on their way, in their order, and how many. One block.
__global__ void survivors(u32 nplaces, const u32* __restrict__ course, u32* __restrict__ moves,
                          u32* __restrict__ count) {
    __shared__ u32 of_warp[WARP_THREADS];
    const u32 warp = threadIdx.x / WARP_THREADS, lane = threadIdx.x % WARP_THREADS;
    u32 base = 0;
    for (u32 first = 0; first < nplaces; first += blockDim.x) {
        const u32 place = first + threadIdx.x;
        const bool stays = place < nplaces && (course[u64(place) * COURSE + FLAGS] & ENDED) == 0;
        const u32 ballot = __ballot_sync(ALL_LANES, stays);
        if (lane == 0) {
            of_warp[warp] = __popc(ballot);
        }
        __syncthreads();
        u32 before = 0, all = 0;
        for (u32 k = 0; k < blockDim.x / WARP_THREADS; ++k) {
            before += k < warp ? of_warp[k] : 0;
            all += of_warp[k];
        }
        if (stays) {
            moves[base + before + __popc(ballot & ((1u << lane) - 1))] = place;
        }
        base += all;
        __syncthreads(); // all have read the counts
    }
    if (threadIdx.x == 0) {
        *count = base;
    }
}

// Moves zones to the first places, from one set of arrays to another: the zone at moves[k] to k. Places
// from *count on hold none. A thread a number of a place; neighbours have the same number.
__global__ void move(u32 nplaces, u32 n, u32 nrates, u32 stride, u32 new_stride,
                     const u32* __restrict__ count, const u32* __restrict__ moves,
                     const double* __restrict__ y, const double* __restrict__ lambda,
                     const double* __restrict__ pace, const u32* __restrict__ course,
                     double* __restrict__ new_y, double* __restrict__ new_lambda,
                     double* __restrict__ new_pace, u32* __restrict__ new_course) {
    const u32 stay = *count;
    const u64 all = u64(nplaces) * (nrates + n + 1);
    for (u64 work = grid_thread(); work < all; work += grid_threads()) {
        if (work < u64(nplaces) * nrates) {
            const u32 to = u32(work % nplaces);
            const u64 rate = work / nplaces;
            const u32 from = to < stay ? moves[to] : 0;
            new_lambda[rate * new_stride + to] = to < stay ? lambda[rate * stride + from] : 0;
        } else if (work < u64(nplaces) * (nrates + n)) {
            const u64 k = work - u64(nplaces) * nrates;
            const u32 to = u32(k / n), i = u32(k % n);
            new_y[k] = to < stay ? y[u64(moves[to]) * n + i] : 0;
        } else {
            const u64 to = work - u64(nplaces) * (nrates + n);
            for (u32 k = 0; k < PACE; ++k) {
                new_pace[to * PACE + k] = to < stay ? pace[u64(moves[to]) * PACE + k] : 1;
            }
            for (u32 k = 0; k < COURSE; ++k) {
                new_course[to * COURSE + k] = to < stay ? course[u64(moves[to]) * COURSE + k] : ENDED;
            }
        }
    }
}
