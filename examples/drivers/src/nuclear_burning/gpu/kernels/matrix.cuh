#pragma once

#include "sums.cuh"

// Number of derivatives whose rates a thread requests at once.
constexpr u32 AT_ONCE = 4;

// I / (gamma h) - J(y) for every place, `nnz` values in the order of CSR; I where the zone has
// ended. A block handles 2^shift places: the derivatives of all rates first, then for each entry
// the sum of its derivatives.
//
// - `partial_rates`, `partial_factors`: one derivative per element: a rate, and its other factors.
// - y: place after place, nvars values each, the first n of which are those of nuclides. Entries of
//   the other unknowns are 0 except on the diagonal.
// - `stride` is even.
// - Shared memory: (n + 1 + npartials + npieces) * 2^shift doubles.
template <u32 W>
__global__ void __launch_bounds__(1024 / W, 2)
    matrix(u32 nplaces, u32 stride, u32 n, u32 nvars, u32 nnz, u32 npartials, u32 npieces, u32 shift,
           double gamma, const u32* __restrict__ partial_rates,
           const u64* __restrict__ partial_factors, const u32* __restrict__ piece_ptr,
           const u64* __restrict__ spans, const u32* __restrict__ terms,
           const double* y, const double* lambda, const double* pace, const u32* course,
           double* __restrict__ values) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    wait_for_launches_ahead();
    let_next_launch_begin();
    const Part<W> part(shift, nplaces);
    const u32 zone = part.zone;
    double* const y_now = reinterpret_cast<double*>(dynamic_shared);
    double* const slopes = y_now + ((n + 1) << shift);
    double* const pieces = slopes + (npartials << shift);
    const Sums sums{npieces, piece_ptr, spans, terms};
    if (!all_ended(blockIdx.x << shift, nplaces, shift, course)) {
        for (u32 i = part.worker; i <= n; i += part.workers) {
            Zones<W> value;
#pragma unroll
            for (u32 k = 0; k < W; ++k) {
                value.of[k] = i < n ? y[u64(part.at(k)) * nvars + i] : 1.0;
            }
            value.put(y_now + (i << shift) + zone);
        }
        __syncthreads();
        const double* const rates_here = lambda + part.own;
        // The rates of several derivatives are requested at once.
        for (u32 p = part.worker; p < npartials; p += part.workers * AT_ONCE) {
            Zones<W> rate[AT_ONCE];
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; ++k) {
                const u32 own = minimum(p + k * part.workers, npartials - 1);
                rate[k] = Zones<W>::get(rates_here + u64(load(partial_rates + own)) * stride);
            }
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; ++k) {
                const u32 own = p + k * part.workers;
                if (own < npartials) {
                    product(rate[k], load(partial_factors + own), y_now + zone, shift)
                        .put(slopes + (own << shift) + zone);
                }
            }
        }
        __syncthreads();
        for (u32 p = part.worker; p < npieces; p += part.workers) {
            sums.piece<W>(p, slopes + zone, shift).put(pieces + (p << shift) + zone);
        }
        __syncthreads();
    }
    bool ended[W];
    double diagonal[W];
#pragma unroll
    for (u32 k = 0; k < W; ++k) {
        ended[k] = (course[u64(part.at(k)) * COURSE + FLAGS] & ENDED) != 0;
        diagonal[k] = ended[k] ? 1.0 : 1.0 / (gamma * pace[u64(part.at(k)) * PACE + STEP]);
    }
#pragma unroll 2
    for (u32 e = part.worker; e < nnz; e += part.workers) {
        const u64 span = load(spans + e);
        const auto sum = sums.whole<W>(span, slopes + zone, pieces + zone, shift);
#pragma unroll
        for (u32 k = 0; k < W; ++k) {
            if (part.place + k < nplaces) {
                const double value = ended[k] ? 0.0 : -sum.of[k];
                values[u64(part.place + k) * nnz + e] =
                    (span >> 32 & ON_DIAGONAL) != 0 ? value + diagonal[k] : value;
            }
        }
    }
}
