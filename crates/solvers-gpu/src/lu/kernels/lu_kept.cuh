// Products with the values of A and of factors that `lu_factor` made, one warp per item at a time.
// Shared by `lu_kept`, `lu_substitute` and `lu_verify`.
//
// - Substitution subtracts products from the elements of a vector, in chunks of one product per
//   lane. The products of a chunk have different targets and complete sources. The host packs them
//   into chunks; the order in which products are subtracted from an element depends on the pattern
//   alone.
// - For products with A each lane adds up some of them, one part of a row after the other; a row is
//   the sum of its parts.
// - Tables say what is done with which value; a block copies them to shared memory once. Values
//   come from global memory, AHEAD chunks prefetched while as many are processed. Lanes without a
//   product have no value and write nothing.
//
// The values of item i begin at kept[i * stride]: the pivots, then from `first_value` on those of
// the chunks.
//
// The tables, one after the other:
// - A word for each chunk and lane, and those of one more chunk. Bits 0 to 13: index of the source;
//   bits 16 to 29: index of the target. LAST: afterwards the target is divided by its pivot, or a
//   part of a sum with A is complete and goes to the target. IDLE_LANE: the lane has no product; it
//   reads no element that another lane writes.
// - Spans: for each group of AHEAD chunks, and for one group without values at the end, first for
//   lanes 0 to 15, then for lanes 16 to 31: where the values of each chunk begin (FIRST), and from
//   bit 24 on the number of lanes that have one.
// - For each row of A: the first part of its sum, and from bit 16 on the number of parts.
//
// Chunks up to `end_of_l` belong to L, up to `end_of_u` to U, up to `end_of_a` to A; all three are
// multiples of AHEAD.
//
// The elements of a vector: the solution in the order of elimination; `nslots` slots, the first of
// which remains 0 and the others hold parts of sums; `nparts` >= nrows parts of sums with A. Lanes
// without a product read the first slot, or an element that another lane reads.
//
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

// Reads *from into `to` if `there` is nonzero, without allocating in the L1 cache, at this position
// among barriers. If the compiler moved the read ahead of the last use of `to`, it would load into
// another register, and the copy into `to` would wait for the load.
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

// The kept values of all items, and the sizes of the tables.
template <typename V>
struct KeptTask {
    u32 nitems, nrhs;
    const V* kept;
    u64 stride;
    u32 first_value, end_of_l, end_of_u, end_of_a, nslots, nparts;
    u32 none; // 0, which the compiler does not know
};

// One lane's pass over consecutive chunks.
template <typename V, u32 AHEAD>
struct KeptChunks {
    const u32* const words; // of this lane
    const u32* const spans;
    const u32 none; // 0, which the compiler does not know
    V now[AHEAD], next[AHEAD]; // values of the current chunks, and of the next ones

    // Chunks are numbered from `first_word` and `first_span` on. `from`, below, is the first value
    // of an item's chunks.
    __device__ __forceinline__ KeptChunks(const u32* first_word, const u32* first_span, u32 zero)
        : words(first_word + threadIdx.x % WARP_THREADS), spans(first_span), none(zero) {}

    // Requests the values of AHEAD chunks.
    __device__ __forceinline__ void ask(V* into, const V* from, u32 chunk) const {
        const u32 lane = threadIdx.x % WARP_THREADS, own = lane % HALF;
        const uint4* const span = reinterpret_cast<const uint4*>(
            spans + (chunk / AHEAD * HALVES + lane / HALF) * AHEAD);
        const u32 least = own << COUNT_SHIFT | FIRST; // larger spans have a value for this lane
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

    // Requests the values of the first AHEAD chunks of a run.
    __device__ __forceinline__ void ask_first(const V* from, u32 chunk) {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            now[i] = next[i] = V(0);
        }
        ask(now, from, chunk);
    }

    // Requests the values of the next chunks. A wait for one value waits for all loads under way,
    // so the current values must have arrived first: the address depends on them.
    __device__ __forceinline__ void ask_next(const V* from, u32 chunk) {
        ask(next, from, chunk + AHEAD + (upper_bits(now[0]) & none));
    }

    // Makes the next values the current ones, which waits for their loads.
    __device__ __forceinline__ void go_on() {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            now[i] = next[i];
        }
    }

    // Subtracts the products of the chunks `first` to `end`, one chunk after the other: add(sum,
    // value, source), and divide(sum, target) for complete targets. The values of the first chunks
    // must have been requested; on return those after the last chunk have been.
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

// Sets `count` elements of a warp's vector to 0.
template <typename V>
__device__ __forceinline__ void clear(V* first, u32 count) {
    for (u32 k = threadIdx.x % WARP_THREADS; k < count; k += WARP_THREADS) {
        first[k] = V(0);
    }
    __syncwarp();
}

// `is_bad`: a pivot of this lane is zero or NaN. `are_plain`: multiplication by the reciprocal can
// replace division for all pivots.
struct Pivots {
    bool is_bad, are_plain;
};

// Requests the first values of a solve, and inverts the pivots. `inverses` has room for `nrows`
// values.
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

// Solves for the first `nrows` elements of `y`, in place; the slots follow them. On return the
// values of the AHEAD chunks after those of U have been requested.
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

// What is summed in products with A: the products and, beside them, their magnitudes; the products
// alone; the magnitudes alone.
enum class Sum { PRODUCTS_AND_SIZES, PRODUCTS, MAGNITUDES };

// Subtracts the products of A with COUNT vectors, which begin at `y` and are `distance` elements
// apart, or adds the magnitudes of the products. A complete part goes to its target less `shift`.
// `squares` receives the sum of the squares of this lane's parts of |A||x|, or 0 if magnitudes are
// not summed. The values of the first chunks must have been requested.
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
                // A lane that has no more products has no more parts to end either.
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

// Turns `value`, on entry b, into a row of b - A x or of |b| + |A||x|, for COUNT vectors whose
// parts of sums are `distance` elements apart. `which` is the row's word of the table.
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
    // Sums the products before adding b: products that cancel must not absorb b.
#pragma unroll
    for (u32 k = 0; k < COUNT; ++k) {
        value[k] = (MAGNITUDES ? V(magnitude(value[k])) : value[k]) + all[k];
    }
}

// `count` values, rounded up to a multiple of 8 bytes.
template <typename V>
__device__ __forceinline__ u32 whole_values(u32 count) {
    constexpr u32 EVEN = 8 / sizeof(V);
    return (count + EVEN - 1) / EVEN * EVEN;
}

// A lower bound of the norm of |A||x|, from the sum of the squares of its parts; 0 if the sum is
// not finite.
__device__ __forceinline__ double least_norm(double squares) {
    constexpr double BUT_FOR_ROUNDING = 1 - 1e-6;
    return is_finite(squares) ? BUT_FOR_ROUNDING * __dsqrt_rn(squares) : 0;
}
