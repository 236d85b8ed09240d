#pragma once

#include "state.cuh"

// Where a reaction has no reverse: its rate stands there again.
constexpr u32 NO_REVERSE = 0x80000000u;

// What a span may have besides its count: it is of pieces, and not of terms; its sum is on the diagonal.
constexpr u32 LONG = 0x80000000u;
constexpr u32 ON_DIAGONAL = 0x40000000u;
constexpr u32 COUNT = ON_DIAGONAL - 1;

// A number of each of W zones side by side, from a multiple of W numbers on: read and written in one access.
template <u32 W>
struct alignas(W * sizeof(double)) Zones {
    double of[W];

    __device__ __forceinline__ static Zones get(const double* from) {
        return *reinterpret_cast<const Zones*>(from);
    }

    __device__ __forceinline__ void put(double* to) const { *reinterpret_cast<Zones*>(to) = *this; }

    // From memory to shared memory, asynchronously.
    __device__ __forceinline__ static void fetch(double* to, const double* from) {
        if constexpr (W == 2) {
            cp_async_16(to, from);
        } else {
            cp_async_8(to, from);
        }
    }
};

// A thread's part in a block of 2^shift zones, and which zones it has throughout: the threads of a block are a multiple
// of those that the zones take.
template <u32 W>
struct Part {
    u32 zone, worker, workers;
    u32 place; // of the first zone
    u32 own;   // the same, or of other zones that exist
    u32 last;  // place that exists

    __device__ __forceinline__ Part(u32 shift, u32 nplaces) {
        const u32 teams = (1u << shift) / W;
        zone = threadIdx.x % teams * W;
        worker = threadIdx.x / teams;
        workers = blockDim.x / teams;
        place = (blockIdx.x << shift) + zone;
        last = nplaces - 1;
        own = minimum(place, last - last % W);
    }

    // The k-th zone, or another one that exists.
    __device__ __forceinline__ u32 at(u32 k) const { return minimum(own + k, last); }
};

// Sums of many numbers with small integers as factors. Sum e has the terms from the lower half of spans[e] on, as
// many as COUNT of the upper half says; where LONG is set so many pieces, whose terms are piece_ptr[p] ..
// piece_ptr[p + 1]. A term is the number of what is added, times 256, and its factor as a signed byte.
struct Sums {
    u32 npieces;
    const u32* piece_ptr;
    const u64* spans;
    const u32* terms;

    // `values` and the result are of some zones among 2^shift.
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

    // Where all pieces are in place.
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

// lambda * Y * Y * Y * Y; `factors` has 16 bits for each Y, and stands for 1 where there are fewer.
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

// Whether no zone of a block is on its way.
__device__ __forceinline__ bool all_ended(u32 first, u32 nplaces, u32 shift, const u32* course) {
    for (u32 place = first; place < minimum(first + (1u << shift), nplaces); ++place) {
        if ((course[u64(place) * COURSE + FLAGS] & ENDED) == 0) {
            return false;
        }
    }
    return true;
}
