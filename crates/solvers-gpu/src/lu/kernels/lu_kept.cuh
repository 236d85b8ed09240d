// Products with the values of factors that `lu_factor` has made before, and of A, a warp for an item at a time.
// What `lu_kept`, `lu_substitute` and `lu_verify` share.
//
// - Substitution is products that are subtracted from numbers of a vector, in chunks of a lane each: products of
//   different targets, whose sources are complete. A host has put them into chunks; what a number has
//   subtracted when is a function of the pattern alone.
// - For products with A a lane adds up some of them on its own, a part of a row after the other; a row is the sum of
//   its parts.
// - What is done with which value is in tables, which a block copies to shared memory once. Values come from
//   global memory, AHEAD chunks while as many are at hand. Lanes without a product have no value, and write nothing.
//
// Item i has its values from kept[i * stride] on: the pivots, from `first_value` on those of the chunks. Tables: a word
// for each chunk and lane, and those of one chunk more; then, for each AHEAD chunks and for as many behind the last ones
// that have none, and for the first and the other 16 lanes, where the values of each chunk begin (FIRST), and from bit
// 24 on how many lanes have one; then for each row of A the first part of its sum, and from bit 16 on how many there
// are. Bits 0 to 13 of a word are the number of the source, 16 to 29 of the target; LAST after which the
// target is divided by its pivot, or the part of a sum with A goes there; IDLE_LANE where there is no product: a lane
// reads no number there that another one writes. Chunks up to `end_of_l` are of L, to `end_of_u` of U, to `end_of_a`
// of A, all multiples of AHEAD. The numbers of a vector are those of the solution, in the order of elimination;
// `nslots` of which the first remains 0 and the others are parts of sums; `nparts` >= nrows parts of sums with A. Lanes
// without a product read the first slot, or what another one reads.
// perm[k] is the row that is eliminated k-th.
#pragma once

#include "solver.cuh"
#include "programs.cuh"

constexpr u32 HALVES = 2;
constexpr u32 HALF = WARP_THREADS / HALVES;
constexpr u32 FIRST = 0xffffff;
constexpr u32 COUNT_SHIFT = 24;
constexpr u32 KEPT_THREADS = 512;
constexpr u32 NUMBER = 0x3fff;
constexpr u32 LAST = 0x8000;
constexpr u32 IDLE_LANE = 0x80000000;

// Reads *from into `to` where `there`, past the cache of the multiprocessor, at this place among barriers: where
// the compiler reads ahead of the last use of `to` it takes another register, and the copy into this one waits
// for what was read.
#if defined(SPARSEBATCH_EMU)

template <typename V>
__device__ __forceinline__ void read_here(V& to, const V* from, u32 there) {
    to = there != 0 ? *from : to;
}

#else

__device__ __forceinline__ void read_here(double& to, const double* from, u32 there) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.L1::no_allocate.f64 %0, [%1]; }"
                 : "+d"(to)
                 : "l"(from), "r"(there));
}

__device__ __forceinline__ void read_here(float& to, const float* from, u32 there) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.L1::no_allocate.f32 %0, [%1]; }"
                 : "+f"(to)
                 : "l"(from), "r"(there));
}

#endif

// What is kept of all items.
template <typename V>
struct KeptTask {
    u32 nitems, nrhs;
    const V* kept;
    u64 stride;
    u32 first_value, end_of_l, end_of_u, end_of_a, nslots, nparts;
    u32 none; // 0, which the compiler does not know
};

// One lane's way through the chunks from one of them on.
template <typename V, u32 AHEAD>
struct KeptChunks {
    const u32* const words; // of this lane
    const u32* const spans;
    const u32 none; // 0, which the compiler does not know
    V now[AHEAD], next[AHEAD]; // values of the chunks at hand, and of those that follow

    // Chunks are numbered from the first word and the first span on. `from`, below, is the first value of an item's
    // chunks.
    __device__ __forceinline__ KeptChunks(const u32* first_word, const u32* first_span, u32 zero)
        : words(first_word + threadIdx.x % WARP_THREADS), spans(first_span), none(zero) {}

    // Asks for the values of AHEAD chunks.
    __device__ __forceinline__ void ask(V* into, const V* from, u32 chunk) const {
        const u32 lane = threadIdx.x % WARP_THREADS, own = lane % HALF;
        const uint4* const span = reinterpret_cast<const uint4*>(
            spans + (chunk / AHEAD * HALVES + lane / HALF) * AHEAD);
        const u32 least = own << COUNT_SHIFT | FIRST; // of a lane that has one
        from += own;
#pragma unroll
        for (u32 four = 0; four < AHEAD; four += 4) {
            const uint4 some = span[four / 4];
            const u32 all[4] = {some.x, some.y, some.z, some.w};
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                read_here(into[four + i], from + (all[i] & FIRST), all[i] > least);
            }
        }
    }

    // The same for the first ones of a run.
    __device__ __forceinline__ void ask_first(const V* from, u32 chunk) {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            now[i] = next[i] = V(0);
        }
        ask(now, from, chunk);
    }

    // Asks for those after the chunks at hand. A wait for one value is a wait for all that were asked for: those at
    // hand have to be there first, and the address says so.
    __device__ __forceinline__ void ask_next(const V* from, u32 chunk) {
        ask(next, from, chunk + AHEAD + (upper_bits(now[0]) & none));
    }

    // Waits for them.
    __device__ __forceinline__ void go_on() {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            now[i] = next[i];
        }
    }

    // Subtracts the products of some chunks, one chunk after the other: add(number, value, source), and for what is
    // complete divide(number, target). The first values were asked for, and those that follow the last are.
    template <bool DIVIDES, typename Add, typename Divide>
    __device__ __forceinline__ void run(V* y, const V* from, u32 first, u32 end, Add add,
                                        Divide divide) {
        const SharedValues<V> own(y);
#pragma unroll 1
        for (; first < end; first += AHEAD) {
            const u32* const word = words + first * WARP_THREADS;
            ask_next(from, first);
            u32 following = *word;
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                const u32 what = following, target = high_half(what) & NUMBER;
                const V x = own.get(what & NUMBER), sum = own.get(target);
                following = word[(i + 1) * WARP_THREADS];
                V result = add(sum, now[i], x);
                if constexpr (DIVIDES) {
                    if ((what & LAST) != 0) {
                        result = divide(result, target);
                    }
                }
                if ((what & IDLE_LANE) == 0) {
                    own.set(target, result);
                }
                __syncwarp();
            }
            go_on();
        }
    }
};

// Sets some numbers of a warp to 0.
template <typename V>
__device__ __forceinline__ void clear(V* first, u32 count) {
    for (u32 k = threadIdx.x % WARP_THREADS; k < count; k += WARP_THREADS) {
        first[k] = V(0);
    }
    __syncwarp();
}

// Whether a pivot of this lane is zero or NaN, and whether the reciprocals of all pivots are what divides by them.
struct Pivots {
    bool is_bad, are_plain;
};

// Asks for the first values of a solve with these pivots. `inverses` has room for `nrows`.
template <typename V, u32 AHEAD>
__device__ __forceinline__ Pivots begin_chunks(KeptChunks<V, AHEAD>& chunks, const V* pivots,
                                               u32 first_value, u32 nrows, V* inverses) {
    const u32 lane = threadIdx.x % WARP_THREADS;
    chunks.ask_first(pivots + first_value, 0);
    bool bad = false, is_plain = true;
    for (u32 first = lane; first < nrows; first += AHEAD * WARP_THREADS) {
        V by[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            by[i] = V(1);
            read_here(by[i], pivots + first + i * WARP_THREADS, first + i * WARP_THREADS < nrows);
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            const u32 k = first + i * WARP_THREADS;
            if (k < nrows) {
                const Divisor<V> divisor(by[i]);
                bad = bad || !(by[i] < V(0) || V(0) < by[i]);
                is_plain = is_plain && divisor.is_plain;
                inverses[k] = divisor.inverse;
            }
        }
    }
    return {bad, __all_sync(ALL_LANES, is_plain) != 0};
}

// Solves with the nrows first numbers of y, behind which are the slots. The values of AHEAD chunks behind those of U are
// asked for.
template <typename V, u32 AHEAD>
__device__ __forceinline__ void solve_by_chunks(KeptChunks<V, AHEAD>& chunks, const Pivots& known,
                                                const V* pivots, u32 first_value, u32 end_of_l,
                                                u32 end_of_u, u32 nrows, u32 nslots, V* y,
                                                V* inverses) {
    const V* const from = pivots + first_value;
    const auto subtract = [](V sum, V factor, V x) { return minus_product(sum, factor, x); };
    clear(y + nrows, nslots);
    chunks.template run<false>(y, from, 0, end_of_l, subtract, [](V sum, u32) { return sum; });
    clear(y + nrows, nslots);
    const SharedValues<V> by_pivots(inverses);
    if (known.are_plain) {
        chunks.template run<true>(y, from, end_of_l, end_of_u, subtract,
                                  [&](V sum, u32 k) { return sum * by_pivots.get(k); });
    } else {
        chunks.template run<true>(y, from, end_of_l, end_of_u, subtract, [&](V sum, u32 k) {
            V by;
            read_here(by, pivots + k, 1);
            return Divisor<V>(by).of(sum);
        });
    }
}

// What is summed of products with A: these, and the squares of the sums' magnitudes beside them; these alone;
// magnitudes.
enum class Sum { PRODUCTS_AND_SIZES, PRODUCTS, MAGNITUDES };

// Subtracts the products with A of COUNT vectors, which lie `distance` numbers apart from y on, or adds their
// magnitudes. A part that is complete goes to its number less `shift`; `squares` get the sums of the squares of their
// magnitudes, this lane's, or 0. The values of the first chunks were asked for.
template <u32 COUNT, Sum WHAT, typename V, u32 AHEAD>
__device__ __forceinline__ void sum_products(KeptChunks<V, AHEAD>& chunks, const V* from, u32 first,
                                             u32 end, V* y, u32 distance, u32 shift,
                                             double (&squares)[COUNT]) {
    constexpr bool MAGNITUDES = WHAT == Sum::MAGNITUDES, SIZES = WHAT != Sum::PRODUCTS;
    // Chunks whose sources are read at once.
    constexpr u32 TOGETHER = COUNT > 1 ? 4 : AHEAD;
    const SharedValues<V> own(y);
    V sum[COUNT] = {}, size[COUNT] = {};
#pragma unroll
    for (u32 k = 0; k < COUNT; ++k) {
        squares[k] = 0;
    }
#pragma unroll 1
    for (; first < end; first += AHEAD) {
        const u32* const word = chunks.words + first * WARP_THREADS;
        chunks.ask_next(from, first);
#pragma unroll
        for (u32 some = 0; some < AHEAD; some += TOGETHER) {
            u32 what[TOGETHER];
            V x[TOGETHER][COUNT];
#pragma unroll
            for (u32 i = 0; i < TOGETHER; ++i) {
                what[i] = word[(some + i) * WARP_THREADS];
            }
#pragma unroll
            for (u32 i = 0; i < TOGETHER; ++i) {
#pragma unroll
                for (u32 k = 0; k < COUNT; ++k) {
                    x[i][k] = own.get((what[i] & NUMBER) + k * distance);
                }
            }
#pragma unroll
            for (u32 i = 0; i < TOGETHER; ++i) {
                const V value = chunks.now[some + i];
                // A lane that has no product any more has no part to end either.
#pragma unroll
                for (u32 k = 0; k < COUNT; ++k) {
                    if constexpr (SIZES) {
                        size[k] += V(magnitude(value)) * V(magnitude(x[i][k]));
                    }
                    if constexpr (!MAGNITUDES) {
                        sum[k] = minus_product(sum[k], value, x[i][k]);
                    }
                }
                if ((what[i] & LAST) != 0) {
                    const u32 part = (high_half(what[i]) & NUMBER) - shift;
#pragma unroll
                    for (u32 k = 0; k < COUNT; ++k) {
                        own.set(part + k * distance, MAGNITUDES ? size[k] : sum[k]);
                        squares[k] += double(size[k]) * double(size[k]);
                        sum[k] = size[k] = V(0);
                    }
                }
            }
        }
        chunks.go_on();
    }
}

// Where `value` is b: its row of b - A x, or |b| + |A||x|, of COUNT vectors whose parts of sums are `distance` numbers apart.
template <bool MAGNITUDES, u32 COUNT, typename V>
__device__ __forceinline__ void finish_row(V (&value)[COUNT], const V* parts, u32 distance, u32 which) {
    const u32 end = high_half(which);
    parts += which & 0xffff;
    V all[COUNT] = {};
#pragma unroll COUNT > 1 ? 1 : 4
    for (u32 part = 0; part < end; ++part) {
#pragma unroll
        for (u32 k = 0; k < COUNT; ++k) {
            all[k] += parts[part + k * distance];
        }
    }
    // The sums of the products first: products that cancel must not absorb b.
#pragma unroll
    for (u32 k = 0; k < COUNT; ++k) {
        value[k] = (MAGNITUDES ? V(magnitude(value[k])) : value[k]) + all[k];
    }
}

// Values that fill so many, up to whole 8 bytes.
template <typename V>
__device__ __forceinline__ u32 whole_values(u32 count) {
    constexpr u32 EVEN = 8 / sizeof(V);
    return (count + EVEN - 1) / EVEN * EVEN;
}

// No more than the norm of |A||x|, by the sum of the squares of its parts. 0 where it is not known.
__device__ __forceinline__ double least_norm(double squares) {
    constexpr double BUT_FOR_ROUNDING = 1 - 1e-6;
    return is_finite(squares) ? BUT_FOR_ROUNDING * __dsqrt_rn(squares) : 0;
}
