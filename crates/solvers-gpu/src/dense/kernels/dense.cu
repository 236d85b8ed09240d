// Whole solves of small systems by elimination with partial pivoting, the matrix dense in registers,
// all in one launch: Gauss-Jordan elimination of scaled rows (Higham, Accuracy and Stability of
// Numerical Algorithms, 2nd ed. 2002, section 14.4), and refinement from the true residual (chapter
// 12).
//
//   r = b - A x0;  repeat: x += A^-1 r, r = b - A x
//
// A system ends by the rules of the CPU's solvers, applied to the residual recomputed from x. A
// system that does not pass is refined again while restarts and iterations are left. A column
// without a pivot ends it.
//
// Common to all instances:
// - A group of GROUP threads solves a system. A thread has whole rows: row(i) for each i below ROWS,
//   N columns each in registers. Rows never move: the pivot of a column is the row of the largest
//   entry among those that were no pivot yet.
// - Each row is scaled by a power of two to entries below 2. Entries are compared by exponent and 14
//   bits of their fraction (17 in f32); the first of equal rows is the pivot.
// - The thread of a pivot row writes it to shared memory, and all threads subtract multiples of it
//   from their rows, above and below, so that no substitution remains. A column that is eliminated
//   leaves the registers: the others move down by one, and every eighth column the code continues
//   with eight columns fewer. This loop is short enough for the cache of instructions.
// - The matrix stays in shared memory, for the residual. A refinement eliminates again, and so does
//   another right-hand side.
// - A system's result depends on the system alone: bitwise repeatable, whatever the neighbours, the
//   position in the batch, and the order of threads.
// - Traffic of a system: its values once for all right-hand sides, b up to twice, x once (twice with
//   an initial guess), 25 B of outcome.
//
// Arguments:
// - `nitems` < 2^32, nrhs >= 1, nrows <= N, nnz <= nrows^2.
// - `places`: where each of the `nnz` entries lies in a dense matrix of rows of N + 1 elements.
// - `values`: `value_stride` elements from item to item, 0 if all items share them.
// - `b`, `x`: item-major, one right-hand side after the other. `flags`: DENSE_GUESS.
// - Dynamic shared memory: for each group what DenseGroup::BYTES says for max(nrows, 1) rows.
#include "norm.cuh"
#include "solver.cuh"

// A bit of `flags`: x holds initial guesses.
constexpr u32 DENSE_GUESS = 1;

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

// One thread's part in the solves of its group.
template <typename V, u32 N, u32 GROUP>
struct DenseGroup {
    using Threads = Team<GROUP>;
    static constexpr u32 ROWS = (N + GROUP - 1) / GROUP;
    static constexpr u32 WARPS = Threads::WARPS;
    // Elements from one row of the matrix to the next in shared memory: odd, so that equal columns of
    // neighbouring rows are in different banks.
    static constexpr u32 STRIDE = N + 1;
    // A pivot row: its columns, its element of the right-hand side, the reciprocal of the pivot.
    static constexpr u32 WIDTH = N + 2;
    // Columns after which the code continues with fewer.
    static constexpr u32 STAGE = 8;
    // Pivot rows and keys of two steps, one for each warp.
    static constexpr u32 BUFFERS = 2 * WARPS;
    static_assert(N % STAGE == 0 && N <= 64, "aligned arrays, and rows numbered in 6 bits");
    static_assert(WARPS <= 2, "the keys of two warps are compared");

    // Bytes of shared memory of a group, as `DenseShape::group_bytes` (shape.rs) counts them.
    __device__ __forceinline__ static u32 bytes(u32 nrows) {
        const u32 values = maximum(nrows, 1u) * STRIDE + BUFFERS * WIDTH + 2 * N;
        return (values * u32(sizeof(V)) + Threads::SCRATCH * 8 + BUFFERS * 4 + 15) / 16 * 16;
    }

    const u32 nrows;
    const SystemLimits& limits;
    const u32 thread;
    V* const pivots;   // BUFFERS rows of WIDTH
    V* const x;        // N, 0 beyond the rows
    V* const inverses; // of the pivots, column by column
    double* const scratch;
    u32* const keys;   // BUFFERS
    V* const matrix;   // as it was given

    const V* own_b;
    u32 state, iteration, restarts;
    double threshold, rhs_norm, residual;

    __device__ __forceinline__ DenseGroup(u32 all_rows, const SystemLimits& all_limits, u8* shared)
        : nrows(all_rows), limits(all_limits), thread(threadIdx.x % GROUP),
          pivots(reinterpret_cast<V*>(shared)), x(pivots + BUFFERS * WIDTH), inverses(x + N),
          scratch(reinterpret_cast<double*>(inverses + N)),
          keys(reinterpret_cast<u32*>(scratch + Threads::SCRATCH)),
          matrix(reinterpret_cast<V*>(keys + BUFFERS)) {}

    __device__ __forceinline__ u32 row(u32 i) const { return i * GROUP + thread; }

    __device__ __forceinline__ bool has(u32 i) const { return row(i) < nrows; }

    // The row i of the matrix in shared memory; another one's beyond the last row.
    __device__ __forceinline__ const V* own(u32 i) const {
        return matrix + (has(i) ? row(i) : 0) * STRIDE;
    }

    // The right-hand side, 0 beyond the rows.
    __device__ __forceinline__ V b(u32 i) const { return has(i) ? load(own_b + row(i)) : V(0); }

    __device__ __forceinline__ double norm(const V (&vector)[ROWS]) const {
        return norm_of_group<Threads>(vector, scratch);
    }

    // product = A x, or |A||x|, 0 beyond the rows.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(V (&product)[ROWS]) const {
        const Pair<V>* const operands = reinterpret_cast<const Pair<V>*>(x);
        V sums[ROWS][2] = {};
#pragma unroll 4
        for (u32 c = 0; c < N; c += 2) {
            const Pair<V> operand = operands[c / 2];
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                const V first = own(i)[c] * operand.first, second = own(i)[c + 1] * operand.second;
                sums[i][0] += MAGNITUDES ? V(magnitude(double(first))) : first;
                sums[i][1] += MAGNITUDES ? V(magnitude(double(second))) : second;
            }
        }
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            product[i] = has(i) ? sums[i][0] + sums[i][1] : V(0);
        }
    }

    // r = b - A x, and its norm; NaN where it is not finite. Products are summed first: large ones
    // that cancel must not absorb b.
    __device__ __forceinline__ double find_residual(V (&r)[ROWS]) const {
        multiply<false>(r);
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
        multiply<true>(sum);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            sum[i] += V(magnitude(double(b(i))));
        }
        return norm(sum);
    }

    // Takes the rows of the matrix into registers, each with its element of r * down, scaled.
    __device__ __forceinline__ void take_rows(V (&a)[ROWS][N], V (&y)[ROWS], const V (&r)[ROWS],
                                              V down) const {
        using Bits = Magnitude<V>;
        constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            u32 most = 0;
#pragma unroll
            for (u32 c = 0; c < N; ++c) {
                a[i][c] = has(i) ? own(i)[c] : V(0);
                most = maximum(most, magnitude_bits(a[i][c]));
            }
            const int found = int(most >> Bits::FRACTION);
            const bool plain = found > 0 && found < int(2 * Bits::BIAS + 1);
            const int exponent = plain ? found - int(Bits::BIAS) : 0;
            const V scale = V(power_of_two(-maximum(-MOST, minimum(MOST, exponent))));
#pragma unroll
            for (u32 c = 0; c < N; ++c) {
                a[i][c] *= scale;
            }
            y[i] = r[i] * down * scale;
        }
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

    // Eliminates column k, the first of `LEFT` columns in a, from all rows but the pivot's and from the
    // right-hand side y. The other columns move down by one. Returns whether there is a pivot.
    template <u32 LEFT>
    __device__ __forceinline__ bool eliminate_column(u32 k, V (&a)[ROWS][N], V (&y)[ROWS],
                                                     u32 (&column)[ROWS]) const {
        const u32 turn = k % 2 * WARPS, warp = thread / WARP_THREADS;
        u32 key = 0;
        V pivot = V(0);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            const u32 own_key = (magnitude_bits(a[i][0]) & ~63u) | (63u - row(i) % 64);
            const bool better = column[i] == NOT_YET && own_key > key;
            key = better ? own_key : key;
            pivot = better ? a[i][0] : pivot;
        }
        // Each thread prepares its candidate while the largest is found.
        bool ignored;
        const V own_inverse = reciprocal(pivot, ignored);
        u32 best = largest_key(key);
        const V* buffer = pivots + (turn + warp) * WIDTH;
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            if (key == best && column[i] == NOT_YET && 63u - best % 64 == row(i)) {
                Pair<V>* const to = reinterpret_cast<Pair<V>*>(pivots + (turn + warp) * WIDTH);
#pragma unroll
                for (u32 c = 0; c < LEFT; c += 2) {
                    to[c / 2] = Pair<V>{a[i][c], a[i][c + 1]};
                }
                to[N / 2] = Pair<V>{y[i], own_inverse};
            }
        }
        if constexpr (WARPS > 1) {
            if (thread % WARP_THREADS == 0) {
                keys[turn + warp] = best;
            }
            Threads::sync();
            const u32 other = keys[turn + 1 - warp];
            buffer = other > best ? pivots + (turn + 1 - warp) * WIDTH : buffer;
            best = maximum(best, other);
        } else {
            Threads::sync();
        }
        const Pair<V>* const from = reinterpret_cast<const Pair<V>*>(buffer);
        const Pair<V> last = from[N / 2];
        V multiplier[ROWS];
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            const bool is_pivot = row(i) == 63u - best % 64;
            multiplier[i] = is_pivot ? V(0) : a[i][0] * last.second;
            y[i] -= multiplier[i] * last.first;
            column[i] = is_pivot ? k : column[i];
        }
        if (thread == 0) {
            inverses[k] = last.second;
        }
#pragma unroll
        for (u32 c = 0; c < LEFT; c += 2) {
            const Pair<V> entries = from[c / 2];
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                if (c > 0) {
                    a[i][c - 1] = a[i][c] - multiplier[i] * entries.first;
                }
                a[i][c] = a[i][c + 1] - multiplier[i] * entries.second;
            }
        }
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            a[i][LEFT - 1] = V(0);
        }
        return best >= Magnitude<V>::LEAST;
    }

    // Eliminates all columns from N - LEFT on. Returns whether each has a pivot.
    template <u32 LEFT = N>
    __device__ __forceinline__ bool eliminate(V (&a)[ROWS][N], V (&y)[ROWS],
                                              u32 (&column)[ROWS]) const {
        if constexpr (LEFT > 0) {
            bool has_pivots = true;
            const u32 end = minimum(nrows, N - LEFT + STAGE);
#pragma unroll 1
            for (u32 k = N - LEFT; k < end; ++k) {
                has_pivots = eliminate_column<LEFT>(k, a, y, column) && has_pivots;
            }
            if (end < nrows) {
                has_pivots = eliminate<LEFT - STAGE>(a, y, column) && has_pivots;
            }
            return has_pivots;
        }
        return true;
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
        V a[ROWS][N], y[ROWS];
        u32 column[ROWS]; // the column whose pivot a row is
        take_rows(a, y, r, V(power_of_two(-scale)));
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            column[i] = has(i) ? NOT_YET : N;
        }
        const bool has_pivots = eliminate(a, y, column);
        iteration += has_pivots ? 1 : 0;
        // All inverses are there, and the last residual has been read.
        Threads::sync();
        if (state == RUNNING && has_pivots) {
            const V up = V(power_of_two(scale));
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                if (has(i)) {
                    x[column[i]] += y[i] * inverses[column[i]] * up;
                }
            }
        }
        Threads::sync();
        return !has_pivots                              ? SINGULAR
               : iteration >= limits.iterations(system) ? MAX_ITERATIONS
                                                        : PASSED;
    }

    // Starts to copy an item's values to the matrix.
    __device__ __forceinline__ void fetch(const V* values, const u16* places, u32 nnz) const {
#pragma unroll 4
        for (u32 k = thread; k < nnz; k += GROUP) {
            cp_async_value(matrix + load(places + k), values + k);
        }
    }
};

// Threads of a block, and blocks that a multiprocessor shall have registers for: each of its four
// parts has 512 for each lane of a warp. A thread needs what its rows do, and some more.
template <typename V, u32 N, u32 GROUP>
struct DenseBlock {
    static constexpr u32 THREADS = GROUP > WARP_THREADS ? GROUP : 2 * WARP_THREADS;
    static constexpr u32 GROUPS = THREADS / GROUP;
    static constexpr u32 OF_ROWS = DenseGroup<V, N, GROUP>::ROWS * N * sizeof(V) / 4;
    static constexpr u32 REGISTERS = OF_ROWS + 56 - OF_ROWS / 8;
    static constexpr u32 BLOCKS = 512 / REGISTERS * 4 * WARP_THREADS / THREADS;
    static_assert(BLOCKS >= 1, "rows that registers have room for");
};

template <typename V, u32 N, u32 GROUP>
__global__ void __launch_bounds__(DenseBlock<V, N, GROUP>::THREADS, DenseBlock<V, N, GROUP>::BLOCKS)
    dense(u32 nitems, u32 nrows, u32 nrhs, u32 nnz, const u16* __restrict__ places,
          const V* __restrict__ values, u64 value_stride, const V* __restrict__ b,
          V* __restrict__ x, u32 flags, SystemLimits limits, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    using Group = DenseGroup<V, N, GROUP>;
    using Threads = typename Group::Threads;
    constexpr u32 GROUPS = DenseBlock<V, N, GROUP>::GROUPS;

    const u32 number = threadIdx.x / GROUP;
    Group group(nrows, limits, dynamic_shared + number * Group::bytes(nrows));
    for (u32 k = group.thread; k < maximum(nrows, 1u) * Group::STRIDE; k += GROUP) {
        group.matrix[k] = V(0);
    }
    for (u64 first = u64(blockIdx.x) * GROUPS; first < nitems; first += u64(gridDim.x) * GROUPS) {
        // Groups without an item of their own go along with another's.
        const bool exists = first + number < nitems;
        const u64 item = exists ? first + number : first;
        // The matrix is zero, or no thread reads the last one any more.
        Threads::sync();
        group.fetch(values + item * value_stride, places, nnz);
        cp_async_wait_all();
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
