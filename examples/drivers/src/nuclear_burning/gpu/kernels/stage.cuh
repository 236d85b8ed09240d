#pragma once

#include "ended.cuh"
#include "sums.cuh"

// Adds a_j u_j of stage j to `value` and c_j u_j to `more`, for W zones.
template <u32 W>
__device__ __forceinline__ void add_stage(Zones<W>& value, Zones<W>& more, const double* weights,
                                          u32 j, const double* u, u32 nvars,
                                          const Part<W>& part) {
#pragma unroll
    for (u32 k = 0; k < W; ++k) {
        const double stage = u[u64(part.at(k)) * nvars];
        value.of[k] += load(weights + j) * stage;
        more.of[k] += load(weights + BEFORE + 1 + j) * stage;
    }
}

// The right-hand side of a stage, for every place:
//
//   b = f(y + sum_j a_j u_j) + sum_j c_j / h u_j,  j < before
//
// b is 0 if the zone has ended or a system of the step is known not to be solved. A block handles
// 2^shift places. Two blocks per multiprocessor, since a block waits long for what it reads.
//
// - `weights`: a_0 .. a_6, 0, c_0 .. c_6, 0.
// - `flow_rates`: the lower half of flow_rates[r] is the rate of reaction r, the upper half that of
//   its reverse. `flow_factors`: their factors are at 2 r and 2 r + 1. A rate and its reverse are
//   subtracted before anything is summed.
// - y, u_j, b: place after place, nvars values each, the first n of which are those of nuclides.
//   u_j from `before` on are not read.
// - `ydot`: receives f alone, unless it is null.
// - `stages` to `worst`: systems solved before this launch, see `Ended`. Zones whose system was not
//   solved are marked.
// - `terms`: a term refers to the rate of a reaction.
// - `stride` is even.
// - Shared memory: (n + nrates + max(n + 1, npieces)) * 2^shift doubles.
template <u32 W>
__global__ void __launch_bounds__(W > 1 ? 640 : 1024, 2)
    stage(u32 nplaces, u32 stride, u32 n, u32 nvars, u32 nrates, u32 nreactions, u32 npieces, u32 shift,
          const u64* __restrict__ flow_rates, const u64* __restrict__ flow_factors,
          const u32* __restrict__ piece_ptr, const u64* __restrict__ spans,
          const u32* __restrict__ terms, const double* __restrict__ y,
          const double* __restrict__ lambda, const double* __restrict__ pace, u32* course,
          u32 stages, u32 distance, const u8* statuses, const u32* iterations, const u32* restarts,
          const double* residual_norms, const double* rhs_norms, u64* counts, u64* worst,
          u32 before, const double* __restrict__ weights, const double* u0, const double* u1,
          const double* u2, const double* u3, const double* u4, const double* u5,
          const double* u6, double* __restrict__ b, double* __restrict__ ydot) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    const u32 first = blockIdx.x << shift, zones = 1u << shift;
    double* const net = reinterpret_cast<double*>(dynamic_shared); // rates at first
    double* const carried = net + (nrates << shift);
    double* const y_now = carried + (n << shift);
    double* const pieces = y_now; // once the abundances are no longer needed
    const double* const u[BEFORE] = {u0, u1, u2, u3, u4, u5, u6};
    const Sums sums{npieces, piece_ptr, spans, terms};
    const Part<W> part(shift, nplaces);
    const u32 zone = part.zone;
    // The preceding launch changes no rates, ends no zones, and writes no stage except the last.
    const bool idles = all_ended(first, nplaces, shift, course);
    const u32 last = before > 0 ? before - 1 : 0;
    if (!idles) {
        for (u32 rate = part.worker; rate < nrates; rate += part.workers) {
            Zones<W>::fetch(net + (rate << shift) + zone, lambda + u64(rate) * stride + part.own);
        }
        for (u32 i = part.worker; i <= n; i += part.workers) {
            Zones<W> value, more = {};
#pragma unroll
            for (u32 k = 0; k < W; ++k) {
                value.of[k] = i < n ? y[u64(part.at(k)) * nvars + i] : 1;
            }
#pragma unroll
            for (u32 j = 0; j < BEFORE - 1; ++j) {
                if (j < last && i < n) {
                    add_stage(value, more, weights, j, u[j] + i, nvars, part);
                }
            }
            value.put(y_now + (i << shift) + zone);
            if (i < n) {
                more.put(carried + (i << shift) + zone);
            }
        }
    }
    wait_for_launches_ahead();
    let_next_launch_begin();
    if (idles) {
        for (u32 work = threadIdx.x; work < n << shift; work += blockDim.x) {
            const u32 place = first + (work & (zones - 1));
            if (place < nplaces) {
                b[u64(place) * nvars + (work >> shift)] = 0;
            }
        }
        return;
    }

    // Done by the last warp, which has the least other work; its first lanes have a zone each.
    if (stages != 0 && threadIdx.x + WARP_THREADS >= blockDim.x) {
        const Ended ended{stages,         distance,  statuses, iterations, restarts,
                          residual_norms, rhs_norms, counts,   worst};
        const u32 place = first + threadIdx.x % WARP_THREADS;
        const bool exists = threadIdx.x % WARP_THREADS < zones && place < nplaces;
        u32* const flags = course + u64(minimum(place, nplaces - 1)) * COURSE + FLAGS;
        if (ended.count(0, place, exists && (*flags & ENDED) == 0)) {
            *flags |= LOST;
        }
    }
    const double* of_last = u0;
#pragma unroll
    for (u32 j = 1; j < BEFORE; ++j) {
        of_last = j == last ? u[j] : of_last;
    }
    for (u32 i = part.worker; i < n && before > 0; i += part.workers) {
        auto value = Zones<W>::get(y_now + (i << shift) + zone);
        auto more = Zones<W>::get(carried + (i << shift) + zone);
        add_stage(value, more, weights, last, of_last + i, nvars, part);
        value.put(y_now + (i << shift) + zone);
        more.put(carried + (i << shift) + zone);
    }
    cp_async_wait_all();
    __syncthreads();
    // The net flow replaces the rate.
#pragma unroll 2
    for (u32 r = part.worker; r < nreactions; r += part.workers) {
        const u64 both = load(flow_rates + r);
        const u32 forth = u32(both), back = u32(both >> 32);
        double* const place = net + (forth << shift) + zone;
        const double* const reverse = net + ((back & ~NO_REVERSE) << shift) + zone;
        auto value = product(Zones<W>::get(place), load(flow_factors + 2 * r), y_now + zone, shift);
        const auto less =
            product(Zones<W>::get(reverse), load(flow_factors + 2 * r + 1), y_now + zone, shift);
#pragma unroll
        for (u32 k = 0; k < W; ++k) {
            value.of[k] = (back & NO_REVERSE) != 0 ? value.of[k] : value.of[k] - less.of[k];
        }
        value.put(place);
    }
    __syncthreads();
    for (u32 p = part.worker; p < npieces; p += part.workers) {
        sums.piece<W>(p, net + zone, shift).put(pieces + (p << shift) + zone);
    }
    __syncthreads();
    bool idle[W];
    double by_step[W];
#pragma unroll
    for (u32 k = 0; k < W; ++k) {
        idle[k] = (course[u64(part.at(k)) * COURSE + FLAGS] & (ENDED | LOST)) != 0;
        // Without preceding stages there may be no step yet.
        by_step[k] = before == 0 ? 0.0 : 1.0 / pace[u64(part.at(k)) * PACE + STEP];
    }
    for (u32 i = part.worker; i < n; i += part.workers) {
        const auto sum = sums.whole<W>(load(spans + i), net + zone, pieces + zone, shift);
        const auto more = Zones<W>::get(carried + (i << shift) + zone);
#pragma unroll
        for (u32 k = 0; k < W; ++k) {
            if (part.place + k < nplaces) {
                const u64 at = u64(part.place + k) * nvars + i;
                b[at] = idle[k] ? 0 : sum.of[k] + more.of[k] * by_step[k];
                if (ydot != nullptr) {
                    ydot[at] = sum.of[k];
                }
            }
        }
    }
}
