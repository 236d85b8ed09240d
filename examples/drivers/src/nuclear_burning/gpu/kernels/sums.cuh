#pragma once

#include "state.cuh"

// Flag of a reaction without a reverse, whose own rate is listed again in place of the reverse.
constexpr u32 NO_REVERSE = 0x80000000u;

// Flags of a span in addition to its count. LONG: it consists of pieces, not of terms. ON_DIAGONAL:
// its sum is on the diagonal.
constexpr u32 LONG = 0x80000000u;
constexpr u32 ON_DIAGONAL = 0x40000000u;
constexpr u32 COUNT = ON_DIAGONAL - 1;

// One number for each of W neighbouring zones, from a multiple of W on: read and written in one
// access.
template <u32 W>
struct alignas(W * sizeof(double)) Zones {
    double of[W];

    __device__ __forceinline__ static Zones get(const double* from) {
        return *reinterpret_cast<const Zones*>(from);
    }

    __device__ __forceinline__ void put(double* to) const { *reinterpret_cast<Zones*>(to) = *this; }

    // Copies from global to shared memory, asynchronously.
    __device__ __forceinline__ static void fetch(double* to, const double* from) {
        if constexpr (W == 2) {
            cp_async_16(to, from);
        } else {
            cp_async_8(to, from);
        }
    }
};

// A thread's share of the work of a block of 2^shift zones. A thread handles the same W zones
// throughout: the number of threads of a block is a multiple of 2^shift / W.
template <u32 W>
struct Part {
    u32 zone, worker, workers;
    u32 place; // of the first zone
    u32 own;   // `place`, or that of other zones that exist
    u32 last;  // the last place that exists

    __device__ __forceinline__ Part(u32 shift, u32 nplaces) {
        const u32 teams = (1u << shift) / W;
        zone = threadIdx.x % teams * W;
        worker = threadIdx.x / teams;
        workers = blockDim.x / teams;
        place = (blockIdx.x << shift) + zone;
        last = nplaces - 1;
        own = minimum(place, last - last % W);
    }

    // The place of the k-th zone, or of another one that exists.
    __device__ __forceinline__ u32 at(u32 k) const { return minimum(own + k, last); }
};

// Sums of many numbers with small integer factors. The lower half of spans[e] is the index of the
// first term of sum e, the COUNT bits of the upper half are the number of its terms; if LONG is
// set, these are pieces instead. Piece p has the terms piece_ptr[p] .. piece_ptr[p + 1]. A term is
// the index of a summand times 256, and its factor as a signed byte.
struct Sums {
    u32 npieces;
    const u32* piece_ptr;
    const u64* spans;
    const u32* terms;

    // `values` and the result belong to W of the 2^shift zones.
    template <u32 W>
    __device__ __forceinline__ Zones<W> of(u32 first, u32 count, const double* values,
                                           u32 shift) const {
        Zones<W> sum = {};
#pragma unroll 4
        for (u32 k = first; k < first + count; ++k) {
            const u32 term = load(terms + k);
            const double factor = double(i32(term << 24) >> 24);
            const auto value = Zones<W>::get(values + ((term >> 8) << shift));
#pragma unroll
            for (u32 z = 0; z < W; ++z) {
                sum.of[z] += factor * value.of[z];
            }
        }
        return sum;
    }

    template <u32 W>
    __device__ __forceinline__ Zones<W> piece(u32 number, const double* values, u32 shift) const {
        const u32 first = load(piece_ptr + number);
        return of<W>(first, load(piece_ptr + number + 1) - first, values, shift);
    }

    // The sum of a span, after all pieces have been summed.
    template <u32 W>
    __device__ __forceinline__ Zones<W> whole(u64 span, const double* values, const double* pieces,
                                              u32 shift) const {
        const u32 first = u32(span), count = u32(span >> 32) & COUNT;
        if ((span >> 32 & LONG) == 0) {
            return of<W>(first, count, values, shift);
        }
        Zones<W> sum = {};
        for (u32 p = first; p < first + count; ++p) {
            const auto piece = Zones<W>::get(pieces + (p << shift));
#pragma unroll
            for (u32 z = 0; z < W; ++z) {
                sum.of[z] += piece.of[z];
            }
        }
        return sum;
    }
};

// lambda * Y * Y * Y * Y; `factors` has 16 bits for the index of each Y, that of a 1 if there are
// fewer.
template <u32 W>
__device__ __forceinline__ Zones<W> product(Zones<W> lambda, u64 factors, const double* y,
                                            u32 shift) {
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
        const auto factor = Zones<W>::get(y + (u32(factors >> (16 * k) & 0xffff) << shift));
#pragma unroll
        for (u32 z = 0; z < W; ++z) {
            lambda.of[z] *= factor.of[z];
        }
    }
    return lambda;
}

// Whether all zones of a block have ended.
__device__ __forceinline__ bool all_ended(u32 first, u32 nplaces, u32 shift, const u32* course) {
    for (u32 place = first; place < minimum(first + (1u << shift), nplaces); ++place) {
        if ((course[u64(place) * COURSE + FLAGS] & ENDED) == 0) {
            return false;
        }
    }
    return true;
}
