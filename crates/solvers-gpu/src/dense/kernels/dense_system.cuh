// What solvers of small systems by elimination with partial pivoting have in common, the matrix dense
// (dense.cu, dense_tiles.cu): Gauss-Jordan elimination of scaled rows (Higham, Accuracy and Stability
// of Numerical Algorithms, 2nd ed. 2002, section 14.4), and refinement from the true residual
// (chapter 12).
//
//   r = b - A x0;  repeat: x += A^-1 r, r = b - A x
//
// A system ends by the rules of the CPU's solvers, applied to the residual recomputed from x. A
// system that does not pass is refined again while restarts and iterations are left. A column
// without a pivot ends it.
//
// - A group of GROUP threads solves a system. A thread holds the elements row(i) of each vector, for
//   each i below ROWS. Rows never move: the pivot of a column is the row of the largest entry among
//   those that were no pivot yet.
// - Each row is scaled by a power of two to entries below 2. Entries are compared by exponent and 14
//   bits of their fraction (17 in f32); the first of equal rows is the pivot.
// - The matrix stays in shared memory, for the residual. A refinement eliminates again, and so does
//   another right-hand side.
// - A system's result depends on the system alone: bitwise repeatable, whatever the neighbours, the
//   position in the batch, and the order of threads.
// - Traffic of a system: its values once for all right-hand sides, b up to twice, x once (twice with
//   an initial guess), 25 B of outcome.
//
// Arguments of the kernels:
// - `nitems` < 2^32, nrhs >= 1, nrows <= N, nnz <= nrows^2.
// - `places`: where each of the `nnz` entries lies in a dense matrix of rows of STRIDE elements, 8 for
//   each thread of a group (entries thread, thread + GROUP, ...), then the next 8 of each, padded.
// - `values`: `value_stride` elements from item to item, 0 if all items share them.
// - `b`, `x`: item-major, one right-hand side after the other. `flags`: DENSE_GUESS.
// - Dynamic shared memory: for each group what `bytes` of its type says for the rows.
#pragma once

#include "norm.cuh"
#include "solver.cuh"

// A bit of `flags`: x holds initial guesses.
constexpr u32 DENSE_GUESS = 1;

// Places that a thread loads together.
constexpr u32 PLACES = 8;

// The step of a row that was no pivot yet.
constexpr u32 NOT_YET = 0xffffffffu;

// Two neighbours in shared memory, read and written together.
template <typename V>
struct __align__(2 * sizeof(V)) Pair {
    V first, second;
};

// What the first 32 bits of a number tell of its magnitude. A larger number has no smaller bits; NaN
// has the largest.
__device__ __forceinline__ u32 magnitude_bits(double value) {
    return u32(u64(__double_as_longlong(value)) >> 32) & 0x7fffffff;
}

__device__ __forceinline__ u32 magnitude_bits(float value) {
    return __float_as_uint(value) & 0x7fffffff;
}

// FRACTION: bits of the fraction among magnitude_bits(); LEAST: those of the smallest pivot, whose
// reciprocal is a normal number.
template <typename V>
struct Magnitude;

template <>
struct Magnitude<double> {
    static constexpr u32 FRACTION = 20, BIAS = 1023, LEAST = 63u << 20;
};

template <>
struct Magnitude<float> {
    static constexpr u32 FRACTION = 23, BIAS = 127, LEAST = 7u << 23;
};

// One thread's part in the solves of its group. `Own`, which derives from it, holds the matrix:
// - multiply<MAGNITUDES>(product): product = A x, or |A||x|, 0 beyond the rows;
// - solve(r, down, y, inverses, column): eliminates A and the right-hand side r * down, so that
//   unknown number column[i] is y[i] * inverses[i]; returns whether each column has a pivot.
template <typename Own, typename V, u32 N, u32 GROUP>
struct DenseSystem {
    using Threads = Team<GROUP>;
    static constexpr u32 THREADS_EACH = GROUP;
    static constexpr u32 ROWS = (N + GROUP - 1) / GROUP;
    static constexpr u32 WARPS = Threads::WARPS;
    static_assert(N % 8 == 0 && N <= 64, "aligned arrays, and rows numbered in 6 bits");

    const u32 nrows;
    const SystemLimits& limits;
    const u32 thread;
    V* const x;      // N, 0 beyond the rows
    V* const matrix; // as it was given
    double* const scratch;

    const V* own_b;
    u32 state, iteration, restarts;
    double threshold, rhs_norm, residual;

    __device__ __forceinline__ DenseSystem(u32 all_rows, const SystemLimits& all_limits, V* own_x,
                                           V* own_matrix, double* own_scratch)
        : nrows(all_rows), limits(all_limits), thread(threadIdx.x % GROUP), x(own_x),
          matrix(own_matrix), scratch(own_scratch) {}

    __device__ __forceinline__ Own& own() { return *static_cast<Own*>(this); }

    __device__ __forceinline__ const Own& own() const { return *static_cast<const Own*>(this); }

    __device__ __forceinline__ u32 row(u32 i) const { return i * GROUP + thread; }

    __device__ __forceinline__ bool has(u32 i) const { return row(i) < nrows; }

    // The right-hand side, 0 beyond the rows.
    __device__ __forceinline__ V b(u32 i) const { return has(i) ? load(own_b + row(i)) : V(0); }

    __device__ __forceinline__ double norm(const V (&vector)[ROWS]) const {
        return norm_of_group<Threads>(vector, scratch);
    }

    // r = b - A x, and its norm; NaN where it is not finite. Products are summed first: large ones
    // that cancel must not absorb b.
    __device__ __forceinline__ double find_residual(V (&r)[ROWS]) const {
        own().template multiply<false>(r);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            r[i] = b(i) - r[i];
        }
        const double found = norm(r);
        return is_finite(found) ? found : found - found;
    }

    // || |A||x| + |b| ||, the size of what cancels in the residual.
    __device__ __forceinline__ double size() const {
        V sum[ROWS];
        own().template multiply<true>(sum);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            sum[i] += V(magnitude(double(b(i))));
        }
        return norm(sum);
    }

    // The largest key of each group, in the lanes of a warp.
    __device__ __forceinline__ static u32 largest_key(u32 key) {
        if constexpr (GROUP >= WARP_THREADS) {
            return __reduce_max_sync(ALL_LANES, key);
        } else {
#pragma unroll
            for (u32 offset = GROUP / 2; offset > 0; offset /= 2) {
                key = maximum(key, __shfl_xor_sync(ALL_LANES, key, offset));
            }
            return key;
        }
    }

    // Starts a system: its guess, its criteria, the residual in r.
    __device__ __forceinline__ void enter(u64 system, const V* guess, bool exists, V (&r)[ROWS]) {
        // The last system's x has been stored.
        Threads::sync();
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            r[i] = b(i);
        }
        state = exists ? RUNNING : IDLE;
        iteration = restarts = 0;
        rhs_norm = norm(r);
        threshold = limits.threshold(system, rhs_norm);
        bool moved = false;
        for (u32 k = thread; k < N; k += GROUP) {
            const V start = guess != nullptr && k < nrows && rhs_norm != 0 ? guess[k] : V(0);
            x[k] = start;
            moved = moved || start != V(0);
        }
        moved = Threads::any_thread(moved, scratch);
        Threads::sync();
        // From x = 0 the residual is b. A x is still computed where the system would end at once,
        // since A may hold NaN.
        const bool is_b = !moved && !(rhs_norm <= threshold) && is_finite(rhs_norm);
        residual = rhs_norm;
        if (Threads::any(exists && !is_b)) {
            const double found = find_residual(r);
            residual = is_b ? rhs_norm : found;
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                r[i] = is_b ? b(i) : r[i];
            }
        }
    }

    // Ends the system if it is finished. `fresh`: no step was made yet; otherwise `stop` says how the
    // last one ended.
    __device__ __forceinline__ void judge(u64 system, const SystemOutcomes& outcomes, bool fresh,
                                          u32 stop) {
        bool accepted = residual <= threshold, by_floor = false;
        const bool in_doubt = state == RUNNING && !fresh && !accepted;
        if (limits.floor >= 0 && Threads::any(in_doubt)) {
            by_floor = residual <= limits.floor * Precision<V>::EPSILON * size() && in_doubt;
            accepted = accepted || by_floor;
        }
        if (state != RUNNING) {
            return;
        }
        u32 status = RUNNING;
        if (residual != residual || !is_finite(rhs_norm)) {
            status = NON_FINITE;
            residual = __longlong_as_double(0x7ff8000000000000ll);
        } else if (accepted) {
            status = CONVERGED;
        } else if (fresh) {
            status = limits.iterations(system) == 0 ? MAX_ITERATIONS : RUNNING;
        } else if (stop != PASSED) {
            status = stop;
        } else if (restarts < limits.max_restarts) {
            ++restarts;
        } else {
            status = STAGNATED;
        }
        if (status != RUNNING) {
            if (thread == 0) {
                outcomes.record(system, status, iteration, restarts, by_floor, residual, rhs_norm);
            }
            state = IDLE;
        }
    }

    // x += A^-1 r, if there are pivots. Returns how that ended.
    __device__ __forceinline__ u32 refine(u64 system, const V (&r)[ROWS]) {
        const int exponent = exponent_of(rhs_norm);
        constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
        const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
        const int scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
        V y[ROWS], inverses[ROWS]; // of the right-hand side, of the row's pivot
        u32 column[ROWS];          // the column whose pivot a row is
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            column[i] = has(i) ? NOT_YET : N;
        }
        const bool has_pivots = own().solve(r, V(power_of_two(-scale)), y, inverses, column);
        iteration += has_pivots ? 1 : 0;
        // The last residual has been read.
        Threads::sync();
        if (state == RUNNING && has_pivots) {
            const V up = V(power_of_two(scale));
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                if (has(i)) {
                    x[column[i]] += y[i] * inverses[i] * up;
                }
            }
        }
        Threads::sync();
        return !has_pivots                              ? SINGULAR
               : iteration >= limits.iterations(system) ? MAX_ITERATIONS
                                                        : PASSED;
    }

    // Starts to copy an item's values to the matrix. The loads of places overlap.
    __device__ __forceinline__ void fetch(const V* values, const uint4* places, u32 nnz) const {
        constexpr u32 EACH = PLACES * GROUP, MOST = (N * N + EACH - 1) / EACH;
        constexpr u32 LOADS = MOST < 4 ? MOST : 4;
        for (u32 first = 0; first < nnz; first += LOADS * EACH) {
            uint4 loaded[LOADS];
#pragma unroll
            for (u32 l = 0; l < LOADS; ++l) {
                loaded[l] = first + l * EACH < nnz ? load(places + l * GROUP + thread) : uint4{};
            }
#pragma unroll
            for (u32 k = 0; k < LOADS * PLACES; ++k) {
                const uint4 four = loaded[k / PLACES];
                const u32 words[] = {four.x, four.y, four.z, four.w};
                const u32 place = words[k % PLACES / 2] >> k % 2 * 16 & 0xffffu;
                const u32 entry = first + k * GROUP + thread;
                if (entry < nnz) {
                    cp_async_value(matrix + place, values + entry);
                }
            }
            places += LOADS * GROUP;
        }
    }

    // Brings data of an item closer, for loads to come.
    __device__ __forceinline__ void announce(const V* first, u32 count) const {
        constexpr u32 LINE = 128 / sizeof(V);
        for (u32 k = thread * LINE; k < count; k += GROUP * LINE) {
            prefetch(first + k);
        }
    }
};

// Threads of a block whose groups have GROUP each.
template <u32 GROUP>
constexpr u32 DENSE_THREADS = GROUP > WARP_THREADS ? GROUP : 2 * WARP_THREADS;

// The solves of a block, each group one item after another.
template <typename Group, typename V>
__device__ __forceinline__ void solve_items(u8* shared, u32 nitems, u32 nrows, u32 nrhs, u32 nnz,
                                            const uint4* places, const V* values, u64 value_stride,
                                            const V* b, V* x, u32 flags,
                                            const SystemLimits& limits,
                                            const SystemOutcomes& outcomes) {
    using Threads = typename Group::Threads;
    constexpr u32 GROUP = Group::THREADS_EACH, GROUPS = DENSE_THREADS<GROUP> / GROUP;

    const u32 number = threadIdx.x / GROUP;
    Group group(nrows, limits, shared + number * Group::bytes(nrows));
    for (u32 k = group.thread; k < maximum(nrows, 1u) * Group::STRIDE; k += GROUP) {
        group.matrix[k] = V(0);
    }
    const u64 step = u64(gridDim.x) * GROUPS;
    for (u64 first = u64(blockIdx.x) * GROUPS; first < nitems; first += step) {
        // Groups without an item of their own go along with another's.
        const bool exists = first + number < nitems;
        const u64 item = exists ? first + number : first;
        // The matrix is zero, or no thread reads the last one any more.
        Threads::sync();
        group.fetch(values + item * value_stride, places, nnz);
        cp_async_wait_all();
        if (item + step < nitems) {
            group.announce(values + (item + step) * value_stride, nnz);
            group.announce(b + (item + step) * nrhs * nrows, nrows);
        }
        for (u32 rhs = 0; rhs < nrhs; ++rhs) {
            const u64 system = item * nrhs + rhs;
            V* const own_x = x + system * nrows;
            V r[Group::ROWS];
            group.own_b = b + system * nrows;
            group.enter(system, (flags & DENSE_GUESS) != 0 ? own_x : nullptr, exists, r);
            group.judge(system, outcomes, true, PASSED);
            while (Threads::any(group.state == RUNNING)) {
                const u32 stop = group.refine(system, r);
                const double found = group.find_residual(r);
                group.residual = group.state == RUNNING ? found : group.residual;
                group.judge(system, outcomes, false, stop);
            }
            for (u32 row = group.thread; row < (exists ? nrows : 0); row += GROUP) {
                own_x[row] = group.x[row];
            }
        }
    }
}
