// Whole solves by a sparse LU that `lu_factor` has made before, a warp for a system at a time, all in one launch:
// forward and backward substitution, and refinement from the true residual, as in lu.cu.
//
// - Substitution is products that are subtracted from numbers of a vector, in chunks of a lane each: products of
//   different targets, whose sources are complete. A host has put them into chunks; what a number has
//   subtracted when is a function of the pattern alone.
// - For the residual a lane adds up some products with A on its own, row by row; long rows are sums of several
//   lanes. The last bits of residuals, and of what is refined by them, differ from those of lu.cu.
// - What is done with which value is in tables, which a block copies to shared memory once. Values come from
//   global memory, AHEAD chunks while as many are at hand. Lanes without a product have no value, and write nothing.
// - The first systems are those of the warps' numbers, the others are taken from the queue.
// - Traffic of a system: factors and A once for each solve with them, b once and more, x once (twice with a
//   guess), 25 B of outcome.
//
// Arguments: nitems >= 1, nrhs >= 1. Item i has its values from kept[i * stride] on: the pivots, from `first_value`
// on those of the chunks. `tables` are copied from global memory, `table_words` words, a multiple of 4: a word for each
// chunk and lane, and those of one chunk more; then, for each AHEAD chunks and for as many behind the last ones that
// have none, and for the first and the other 16 lanes, where the values of each chunk begin (FIRST), and from bit 24 on
// how many lanes have one; then for each row of A the first part of its sum, and from bit 16 on how many there are.
// Bits 0 to 13 of a word are the number of the source, 16 to 29 of the target; LAST after which the
// target is divided by its pivot, or the part of a sum with A goes there; IDLE_LANE where there is no product: a lane
// reads no number there that another one writes. Chunks up to `end_of_l` are of L, to `end_of_u` of U, to `end_of_a`
// of A, all multiples of AHEAD. The numbers of a vector are those of the solution, in the order of elimination;
// `nslots` of which the first remains 0 and the others are parts of sums; `nparts` >= nrows parts of sums with A.
// perm[k] is the row that is eliminated k-th. System s has `nrows` values of b and of x from s*nrows on. Blocks of
// whole warps, 16 at most; any grid. Shared memory: table_words words; for each warp CHAINS + 1 doubles, and 2 *
// nrows + nslots + nparts values, up to a multiple of 8 bytes.

#include "lu_system.cuh"
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

template <typename V>
struct KeptTask {
    u32 nitems, nrhs;
    const V* kept;
    u64 stride;
    u32 first_value, end_of_l, end_of_u, end_of_a, nslots, nparts;
    u32 none; // 0, which the compiler does not know
};

// One thread's part in the solves of its warp.
template <typename V, u32 AHEAD>
struct KeptWarp : LuSystems<KeptWarp<V, AHEAD>, V, WARP_THREADS> {
    using Base = LuSystems<KeptWarp<V, AHEAD>, V, WARP_THREADS>;
    using typename Base::Threads;
    using Base::lane, Base::task, Base::y, Base::r, Base::scratch;
    static constexpr bool HAS_LEAST_SIZE = true;

    const KeptTask<V>& kept;
    const u32* const words; // of this lane
    const u32* const spans;
    const u32* const parts_of_rows;
    V* const slots_of_sums;
    V* const t; // reciprocals of pivots, parts of sums with A
    // Warps of the grid. The first turns are theirs, those of all blocks' first warps ahead of the second ones; the
    // others are those of the queue.
    const u32 warps = gridDim.x * (blockDim.x / WARP_THREADS);
    u32 turn = threadIdx.x / WARP_THREADS * gridDim.x + blockIdx.x;
    u32 item = 0, rhs = 0;
    double squares = 0; // of this lane's parts of |A||x|
    V now[AHEAD], next[AHEAD]; // values of the chunks at hand, and of those that follow
    bool has_a = false;        // those at hand are the first ones of A

    // `own`: this warp's shared memory.
    __device__ __forceinline__ KeptWarp(const LuTask<V>& all, const KeptTask<V>& what,
                                        const u32* tables, double* own)
        : Base(all, 1, WARP_THREADS, vectors(own),
               vectors(own) + all.nrows + what.nslots + what.nparts, own),
          kept(what), words(tables + lane),
          spans(tables + (what.end_of_a + 1) * WARP_THREADS),
          parts_of_rows(spans + (what.end_of_a / AHEAD + 1) * HALVES * AHEAD),
          slots_of_sums(y + all.nrows),
          t(slots_of_sums + what.nslots) {}

    __device__ __forceinline__ static V* vectors(double* own) {
        return reinterpret_cast<V*>(own + CHAINS + 1);
    }

    __device__ __forceinline__ u32 stride() const { return 1; }

    __device__ __forceinline__ u32 number(u32) const {
        return minimum(item, kept.nitems - 1) * kept.nrhs + rhs;
    }

    __device__ __forceinline__ bool exists(u32) const { return item < kept.nitems; }

    __device__ __forceinline__ u32 systems() const { return kept.nitems * kept.nrhs; }

    // Where no system is left for a second turn the queue is not looked at.
    __device__ __forceinline__ bool has_queue() const { return systems() > warps; }

    __device__ __forceinline__ bool take_up() {
        item = turn / kept.nrhs;
        rhs = turn % kept.nrhs;
        return item < kept.nitems;
    }

    __device__ __forceinline__ void take_next() {
        turn = has_queue() ? warps + Threads::take(true, task.queue, scratch) : systems();
    }

    __device__ __forceinline__ void fetch_values() {}

    // Asks for b, which becomes r.
    __device__ __forceinline__ void fetch_b() {
        const V* const from = task.b + u64(number(0)) * task.nrows;
        for (u32 row = lane; row < task.nrows; row += WARP_THREADS) {
            cp_async_value(r + row, from + row);
        }
    }

    // y = the guesses, or 0. Guesses for a right-hand side of 0 are not looked at.
    __device__ __forceinline__ void fetch_x() {
        const V* const from = task.x + u64(number(0)) * task.nrows;
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            y[k] = (task.flags & LU_GUESS) != 0 ? from[load(task.perm + k)] : V(0);
        }
    }

    __device__ __forceinline__ void store_x() {
        V* const to = task.x + u64(number(0)) * task.nrows;
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            to[load(task.perm + k)] = y[k];
        }
    }

    // The values of the item.
    __device__ __forceinline__ const V* values() const { return kept.kept + item * kept.stride; }

    // Asks for the values of AHEAD chunks.
    __device__ __forceinline__ void ask(V* into, u32 chunk) const {
        const u32 own = lane % HALF;
        const V* const from = values() + kept.first_value + own;
        const uint4* const span = reinterpret_cast<const uint4*>(
            spans + (chunk / AHEAD * HALVES + lane / HALF) * AHEAD);
        const u32 least = own << COUNT_SHIFT | FIRST; // of a lane that has one
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
    __device__ __forceinline__ void ask_first(u32 chunk) {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            now[i] = next[i] = V(0);
        }
        ask(now, chunk);
    }

    // Asks for those after the chunks at hand. A wait for one value is a wait for all that were asked for: those at
    // hand have to be there first, and the address says so.
    __device__ __forceinline__ void ask_next(u32 chunk) {
        ask(next, chunk + AHEAD + (upper_bits(now[0]) & kept.none));
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
    __device__ __forceinline__ void run_chunks(u32 first, u32 end, Add add, Divide divide) {
        const SharedValues<V> own(y);
#pragma unroll 1
        for (; first < end; first += AHEAD) {
            const u32* const word = words + first * WARP_THREADS;
            ask_next(first);
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

    __device__ __forceinline__ void clear(V* first, u32 count) {
        for (u32 k = lane; k < count; k += WARP_THREADS) {
            first[k] = V(0);
        }
        __syncwarp();
    }

    // Solves with y. Whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        const V* const pivots = values();
        ask_first(0);
        bool bad = false, is_plain = true;
        for (u32 first = lane; first < task.nrows; first += AHEAD * WARP_THREADS) {
            V by[AHEAD];
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                by[i] = V(1);
                read_here(by[i], pivots + first + i * WARP_THREADS,
                          first + i * WARP_THREADS < task.nrows);
            }
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                const u32 k = first + i * WARP_THREADS;
                if (k < task.nrows) {
                    const Divisor<V> divisor(by[i]);
                    bad = bad || !(by[i] < V(0) || V(0) < by[i]);
                    is_plain = is_plain && divisor.is_plain;
                    t[k] = divisor.inverse;
                }
            }
        }
        is_plain = __all_sync(ALL_LANES, is_plain) != 0;
        const auto subtract = [](V sum, V factor, V x) { return minus_product(sum, factor, x); };
        clear(slots_of_sums, kept.nslots);
        run_chunks<false>(0, kept.end_of_l, subtract, [](V sum, u32) { return sum; });
        clear(slots_of_sums, kept.nslots);
        const SharedValues<V> inverses(t);
        if (is_plain) {
            run_chunks<true>(kept.end_of_l, kept.end_of_u, subtract,
                             [&](V sum, u32 k) { return sum * inverses.get(k); });
        } else {
            run_chunks<true>(kept.end_of_l, kept.end_of_u, subtract, [&](V sum, u32 k) {
                V by;
                read_here(by, pivots + k, 1);
                return Divisor<V>(by).of(sum);
            });
        }
        has_a = true;
        return __any_sync(ALL_LANES, bad) != 0;
    }

    // Adds up this lane's products with A, or their magnitudes. A part that is complete goes to its number, and
    // `squares` to know its magnitude.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void sum_parts() {
        const SharedValues<V> own(y);
        V sum = 0, size = 0;
        squares = 0;
#pragma unroll 1
        for (u32 first = kept.end_of_u; first < kept.end_of_a; first += AHEAD) {
            const u32* const word = words + first * WARP_THREADS;
            ask_next(first);
            u32 what[AHEAD];
            V x[AHEAD];
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                what[i] = word[i * WARP_THREADS];
            }
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                x[i] = own.get(what[i] & NUMBER);
            }
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                size += V(magnitude(now[i])) * V(magnitude(x[i]));
                if constexpr (!MAGNITUDES) {
                    sum = minus_product(sum, now[i], x[i]);
                }
                if ((what[i] & LAST) != 0) {
                    own.set(high_half(what[i]) & NUMBER, MAGNITUDES ? size : sum);
                    squares += double(size) * double(size);
                    sum = size = V(0);
                }
            }
            go_on();
        }
    }

    // Where r holds b: b - A x, or |b| + |A||x|, for the lanes that want it, which are all or none.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        __syncwarp();
        if (!has_a) {
            ask_first(kept.end_of_u);
        }
        has_a = false;
        sum_parts<MAGNITUDES>();
        __syncwarp();
        // The sums of the products first: products that cancel must not absorb b.
        for (u32 row = lane; row < task.nrows && wanted; row += WARP_THREADS) {
            const u32 parts = parts_of_rows[row], end = high_half(parts);
            V all = 0;
            for (u32 part = 0; part < end; ++part) {
                all += t[(parts & 0xffff) + part];
            }
            r[row] = (MAGNITUDES ? V(magnitude(r[row])) : r[row]) + all;
        }
        __syncwarp();
    }

    // No more than the norm of |A||x|, of the last product: that of its parts. 0 where it is not known.
    __device__ __forceinline__ double least_size() const {
        double sum = squares;
#pragma unroll
        for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, offset);
        }
        constexpr double BUT_FOR_ROUNDING = 1 - 1e-6;
        return is_finite(sum) ? BUT_FOR_ROUNDING * __dsqrt_rn(sum) : 0;
    }
};

// Few systems have registers to spare, with which more chunks are on their way.
template <typename V, u32 AHEAD>
__global__ void __launch_bounds__(KEPT_THREADS, AHEAD > 4 ? 1 : 2)
    lu_kept(u32 nitems, u32 nrows, u32 nrhs, const V* __restrict__ kept, u64 stride,
            u32 first_value, const u32* __restrict__ tables, u32 table_words, u32 end_of_l,
            u32 end_of_u, u32 end_of_a, u32 nslots, u32 nparts, const u16* __restrict__ perm,
            const V* __restrict__ b, V* __restrict__ x, u32 flags,
            double rel_tol, const double* __restrict__ rel_tols, double abs_tol,
            const double* __restrict__ abs_tols, u32 max_iters,
            const u32* __restrict__ max_iters_each, u32 max_restarts, double floor, u32* queue,
            u8* __restrict__ statuses, u32* __restrict__ iterations, u32* __restrict__ restarts,
            double* __restrict__ residual_norms, double* __restrict__ rhs_norms) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    u32* const own_tables = reinterpret_cast<u32*>(dynamic_shared);
    for (u32 i = threadIdx.x * 4; i < table_words; i += blockDim.x * 4) {
        cp_async_16(own_tables + i, tables + i);
    }
    const LuTask<V> task{nrows,          perm,         b,     x,     flags,    rel_tol,
                         rel_tols,       abs_tol,      abs_tols,     max_iters, max_iters_each,
                         max_restarts,   floor,        queue, statuses, iterations,
                         restarts,       residual_norms,     rhs_norms};
    const KeptTask<V> what{nitems,   nrhs,     kept,     stride, first_value,
                           end_of_l, end_of_u, end_of_a, nslots, nparts, nitems >> 31};
    const u32 doubles = CHAINS + 1 + ((2 * nrows + nslots + nparts) * u32(sizeof(V)) + 7) / 8;
    KeptWarp<V, AHEAD> warp(task, what, own_tables,
                            reinterpret_cast<double*>(own_tables + table_words) +
                                threadIdx.x / WARP_THREADS * doubles);
    cp_async_wait_all();
    __syncthreads();
    wait_for_launches_ahead();
    let_next_launch_begin();
    warp.run();
    if (warp.has_queue()) {
        __syncthreads(); // all warps have found the queue empty
        warp.leave(queue);
    }
}
