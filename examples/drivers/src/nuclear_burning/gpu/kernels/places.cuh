#pragma once

#include "state.cuh"

// Finds the moves that fill the places before `stay`. `from` lists the places from `stay` on whose
// zone has not ended, `to` the places before `stay` without such a zone, both in ascending order.
// `count` receives the number of zones to move; there are at least as many places for them. One
// block.
__global__ void vacancies(u32 nplaces, u32 stay, const u32* __restrict__ course,
                          u32* __restrict__ from, u32* __restrict__ to, u32* __restrict__ count) {
    constexpr u32 HALF = 16; // one word holds a warp's counts of both kinds
    __shared__ u32 of_warp[WARP_THREADS];
    const u32 warp = threadIdx.x / WARP_THREADS, lane = threadIdx.x % WARP_THREADS;
    u32 vacant = 0, moving = 0;
    for (u32 first = 0; first < nplaces; first += blockDim.x) {
        const u32 place = first + threadIdx.x;
        const bool ended =
            place >= nplaces || (course[u64(place) * COURSE + FLAGS] & ENDED) != 0;
        const bool is_vacant = place < stay && ended, moves = place >= stay && !ended;
        const u32 vacant_here = __ballot_sync(ALL_LANES, is_vacant);
        const u32 moving_here = __ballot_sync(ALL_LANES, moves);
        if (lane == 0) {
            of_warp[warp] = u32(__popc(vacant_here)) | u32(__popc(moving_here)) << HALF;
        }
        __syncthreads();
        u32 before = 0, all = 0;
        for (u32 k = 0; k < blockDim.x / WARP_THREADS; ++k) {
            before += k < warp ? of_warp[k] : 0;
            all += of_warp[k];
        }
        const u32 lower = (1u << lane) - 1, mask = (1u << HALF) - 1;
        if (is_vacant) {
            to[vacant + (before & mask) + __popc(vacant_here & lower)] = place;
        }
        if (moves) {
            from[moving + (before >> HALF) + __popc(moving_here & lower)] = place;
        }
        vacant += all & mask;
        moving += all >> HALF;
        __syncthreads(); // all threads have read the counts
    }
    if (threadIdx.x == 0) {
        *count = moving;
    }
}

// Moves the zone at place from[k] to place to[k], k < *count <= most; no place is in both lists. A
// thread per number of a zone; neighbouring threads move the same number of different zones.
__global__ void move(u32 most, u32 n, u32 nrates, u32 stride, const u32* __restrict__ count,
                     const u32* __restrict__ from, const u32* __restrict__ to, double* y,
                     double* lambda, double* pace, u32* course) {
    const u64 all = u64(most) * (nrates + n + 1);
    for (u64 work = grid_thread(); work < all; work += grid_threads()) {
        const u32 k = u32(work % most), number = u32(work / most);
        if (k >= *count) {
            continue;
        }
        const u64 old = from[k], now = to[k];
        if (number < nrates) {
            lambda[u64(number) * stride + now] = lambda[u64(number) * stride + old];
        } else if (number < nrates + n) {
            y[now * n + number - nrates] = y[old * n + number - nrates];
        } else {
            for (u32 i = 0; i < PACE; ++i) {
                pace[now * PACE + i] = pace[old * PACE + i];
            }
            for (u32 i = 0; i < COURSE; ++i) {
                course[now * COURSE + i] = course[old * COURSE + i];
            }
        }
    }
}
