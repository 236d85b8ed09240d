// Whole solves of small systems by elimination with partial pivoting, the matrix dense in registers,
// all in one launch (dense_system.cuh).
//
// - A thread has whole rows: row(i) for each i below ROWS, N columns each in registers.
// - The thread of a pivot row writes it to shared memory, and all threads subtract multiples of it
//   from their rows, above and below, so that no substitution remains. A column that is eliminated
//   leaves the registers: the others move down by one, and every eighth column the code continues
//   with eight columns fewer. This loop is short enough for the cache of instructions.
#include "dense_system.cuh"

// One thread's part in the solves of its group.
template <typename V, u32 N, u32 GROUP>
struct DenseGroup : DenseSystem<DenseGroup<V, N, GROUP>, V, N, GROUP> {
    using System = DenseSystem<DenseGroup<V, N, GROUP>, V, N, GROUP>;
    using typename System::Threads;
    using System::has;
    using System::largest_key;
    using System::matrix;
    using System::nrows;
    using System::row;
    using System::ROWS;
    using System::scratch;
    using System::thread;
    using System::WARPS;
    using System::x;
    // Elements from one row of the matrix to the next in shared memory: odd, so that equal columns of
    // neighbouring rows are in different banks.
    static constexpr u32 STRIDE = N + 1;
    // A pivot row: its columns, its element of the right-hand side, the reciprocal of the pivot.
    static constexpr u32 WIDTH = N + 2;
    // Columns after which the code continues with fewer.
    static constexpr u32 STAGE = 8;
    // Pivot rows and keys of two steps, one for each warp.
    static constexpr u32 BUFFERS = 2 * WARPS;
    static_assert(WARPS <= 2, "the keys of two warps are compared");

    // Bytes of shared memory of a group, as `DenseShape::group_bytes` (shape.rs) counts them.
    __device__ __forceinline__ static u32 bytes(u32 nrows) {
        const u32 values = maximum(nrows, 1u) * STRIDE + BUFFERS * WIDTH + 2 * N;
        return (values * u32(sizeof(V)) + Threads::SCRATCH * 8 + BUFFERS * 4 + 15) / 16 * 16;
    }

    V* const pivots;         // BUFFERS rows of WIDTH
    V* const column_inverses; // of the pivots, column by column
    u32* const keys;         // BUFFERS

    __device__ __forceinline__ static V* elements(u8* shared) { return reinterpret_cast<V*>(shared); }

    // Shared memory: pivot rows, x, inverses, scratch, keys, the matrix.
    __device__ __forceinline__ DenseGroup(u32 all_rows, const SystemLimits& all_limits, u8* shared)
        : System(all_rows, all_limits, elements(shared) + BUFFERS * WIDTH,
                 reinterpret_cast<V*>(keys_in(shared) + BUFFERS), scratch_in(shared)),
          pivots(elements(shared)), column_inverses(x + N), keys(keys_in(shared)) {}

    __device__ __forceinline__ static double* scratch_in(u8* shared) {
        return reinterpret_cast<double*>(elements(shared) + BUFFERS * WIDTH + 2 * N);
    }

    __device__ __forceinline__ static u32* keys_in(u8* shared) {
        return reinterpret_cast<u32*>(scratch_in(shared) + Threads::SCRATCH);
    }

    // The row i of the matrix in shared memory; another one's beyond the last row.
    __device__ __forceinline__ const V* own_row(u32 i) const {
        return matrix + (has(i) ? row(i) : 0) * STRIDE;
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
                const V first = own_row(i)[c] * operand.first, second = own_row(i)[c + 1] * operand.second;
                sums[i][0] += MAGNITUDES ? V(magnitude(double(first))) : first;
                sums[i][1] += MAGNITUDES ? V(magnitude(double(second))) : second;
            }
        }
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            product[i] = has(i) ? sums[i][0] + sums[i][1] : V(0);
        }
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
                a[i][c] = has(i) ? own_row(i)[c] : V(0);
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
            column_inverses[k] = last.second;
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

    // As DenseSystem says.
    __device__ __forceinline__ bool solve(const V (&r)[ROWS], V down, V (&y)[ROWS],
                                          V (&inverses)[ROWS], u32 (&column)[ROWS]) const {
        V a[ROWS][N];
        take_rows(a, y, r, down);
        const bool has_pivots = eliminate(a, y, column);
        // All inverses are there.
        Threads::sync();
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            inverses[i] = has(i) && has_pivots ? column_inverses[column[i]] : V(0);
        }
        return has_pivots;
    }
};

// Threads of a block, and blocks that a multiprocessor shall have registers for: each of its four
// parts has 512 for each lane of a warp. A thread needs what its rows do, and some more.
template <typename V, u32 N, u32 GROUP>
struct DenseBlock {
    static constexpr u32 THREADS = DENSE_THREADS<GROUP>;
    static constexpr u32 OF_ROWS = DenseGroup<V, N, GROUP>::ROWS * N * sizeof(V) / 4;
    static constexpr u32 REGISTERS = OF_ROWS + 56 - OF_ROWS / 8;
    static constexpr u32 BLOCKS = 512 / REGISTERS * 4 * WARP_THREADS / THREADS;
    static_assert(BLOCKS >= 1, "rows that registers have room for");
};

template <typename V, u32 N, u32 GROUP>
__global__ void __launch_bounds__(DenseBlock<V, N, GROUP>::THREADS, DenseBlock<V, N, GROUP>::BLOCKS)
    dense(u32 nitems, u32 nrows, u32 nrhs, u32 nnz, const uint4* __restrict__ places,
          const V* __restrict__ values, u64 value_stride, const V* __restrict__ b,
          V* __restrict__ x, u32 flags, SystemLimits limits, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    solve_items<DenseGroup<V, N, GROUP>>(dynamic_shared, nitems, nrows, nrhs, nnz, places, values,
                                         value_stride, b, x, flags, limits, outcomes);
}
