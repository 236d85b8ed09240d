// Whole solves by a sparse LU that `lu_factor` or `lu_fronts_factor` has made before, a warp for a system at
// a time, all in one launch: forward and backward substitution, and refinement from the true residual, as in
// lu.cu.
//
// - Column by column: an element of the solution is known, and its products are subtracted from those that
//   wait for it, a lane each. A column is cut into chunks of at most 32 entries. The residual goes the same way,
//   its products subtracted from 0 before b is added.
// - An element's products are subtracted in the order of elimination, or against it: a function of the pattern
//   alone. A residual's are in that of the columns, where lu.cu has that of the rows: the last bits of residuals,
//   and of what is refined by them, differ.
// - What is done with which value is in tables, which a block copies to shared memory once. Values come from
//   global memory as they are used, AHEAD chunks ahead.
// - Traffic of a system: factors and A once for each solve with them, b once and more, x once (twice with a
//   guess), 25 B of outcome.
//
// Arguments: nitems >= 1, nrhs >= 1. Item i has its values from kept[i * stride] on: those of L column by column,
// of the pivots from `pivots` on, of U column by column, the last one first, of A column by column. `tables` are
// copied from global memory, `table_words` words, a multiple of 4: for each chunk the number of its first value;
// for each its column and, << 16, the number of its entries, at most 32; for each value the row of its target, in
// 16 bits. There are `nchunks` chunks, those of L end at `end_of_l`, those of U at `end_of_u`. Columns and rows of
// L and U, and columns of A, are numbered in the order of elimination, rows of A in that of the matrix. perm[k]
// is the row that is eliminated k-th. System s has `nrows` values of b and of x from s*nrows on. Blocks of whole
// warps, 8 at most; any grid. Shared memory: table_words words; for each warp CHAINS + 1 doubles, and
// 3 * nrows values, up to a multiple of 8 bytes.

#include "lu_system.cuh"
#include "programs.cuh"

constexpr u32 AHEAD = 8;
constexpr u32 KEPT_THREADS = 256;

template <typename V>
struct KeptTask {
    u32 nitems, nrhs;
    const V* kept;
    u64 stride;
    u32 pivots, nchunks, end_of_l, end_of_u;
};

// One thread's part in the solves of its warp.
template <typename V>
struct KeptWarp : LuSystems<KeptWarp<V>, V, WARP_THREADS> {
    using Base = LuSystems<KeptWarp<V>, V, WARP_THREADS>;
    using typename Base::Threads;
    using Base::lane, Base::task, Base::y, Base::r, Base::scratch;

    const KeptTask<V>& kept;
    const u32* const firsts;
    const u32* const heads;
    const u16* const targets;
    V* const t; // reciprocals of pivots, sums of the residual
    u32 item = 0, rhs = 0;

    // `own`: this warp's shared memory.
    __device__ __forceinline__ KeptWarp(const LuTask<V>& all, const KeptTask<V>& what,
                                        const u32* tables, double* own)
        : Base(all, 1, WARP_THREADS, vectors(own), vectors(own) + all.nrows, own), kept(what),
          firsts(tables), heads(tables + what.nchunks),
          targets(reinterpret_cast<const u16*>(tables + 2 * what.nchunks)),
          t(vectors(own) + 2 * all.nrows) {}

    __device__ __forceinline__ static V* vectors(double* own) {
        return reinterpret_cast<V*>(own + CHAINS + 1);
    }

    __device__ __forceinline__ u32 stride() const { return 1; }

    __device__ __forceinline__ u32 number(u32) const {
        return minimum(item, kept.nitems - 1) * kept.nrhs + rhs;
    }

    __device__ __forceinline__ bool exists(u32) const { return item < kept.nitems; }

    __device__ __forceinline__ bool take_up() {
        const u32 turn = Threads::take(true, task.queue, scratch);
        item = turn / kept.nrhs;
        rhs = turn % kept.nrhs;
        return item < kept.nitems;
    }

    __device__ __forceinline__ void fetch_values() {}

    __device__ __forceinline__ void fetch_for_product() {}

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

    // Calls work(column, row, value) for the entries of some chunks, the lanes that have one; one chunk after
    // the other.
    template <typename Work>
    __device__ __forceinline__ void run_chunks(u32 chunk, u32 end, Work work) {
        const V* const from = values() + lane;
        const auto fetch = [&](u32 number) {
            return number < end && lane < heads[number] >> 16 ? load(from + firsts[number]) : V(0);
        };
        V ahead[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            ahead[i] = fetch(chunk + i);
        }
        while (chunk < end) {
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i, ++chunk) {
                const V value = ahead[i];
                ahead[i] = fetch(chunk + AHEAD);
                if (chunk < end) {
                    const u32 head = heads[chunk];
                    if (lane < head >> 16) {
                        work(low_half(head), u32(targets[firsts[chunk] + lane]), value);
                    }
                    __syncwarp();
                }
            }
        }
    }

    // Solves with y. Whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        const V* const pivots = values() + kept.pivots;
        bool bad = false, is_plain = true;
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            const V by = load(pivots + k);
            const Divisor<V> divisor(by);
            bad = bad || !(by < V(0) || V(0) < by);
            is_plain = is_plain && divisor.is_plain;
            t[k] = divisor.inverse;
        }
        is_plain = __all_sync(ALL_LANES, is_plain) != 0;
        __syncwarp();
        const auto divided = [&](u32 k) {
            return is_plain ? y[k] * t[k] : Divisor<V>(load(pivots + k)).of(y[k]);
        };
        run_chunks(0, kept.end_of_l, [&](u32 column, u32 row, V l) {
            y[row] = minus_product(y[row], l, y[column]);
        });
        run_chunks(kept.end_of_l, kept.end_of_u, [&](u32 column, u32 row, V u) {
            y[row] = minus_product(y[row], u, divided(column));
        });
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            y[k] = divided(k);
        }
        return __any_sync(ALL_LANES, bad) != 0;
    }

    // Where r holds b: b - A x, or |b| + |A||x|, for the lanes that want it, which are all or none.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        __syncwarp();
        for (u32 row = lane; row < task.nrows; row += WARP_THREADS) {
            t[row] = V(0);
        }
        __syncwarp();
        // The sum of the products first: products that cancel must not absorb b.
        run_chunks(kept.end_of_u, kept.nchunks, [&](u32 column, u32 row, V a) {
            t[row] = MAGNITUDES ? t[row] + V(magnitude(a)) * V(magnitude(y[column]))
                                : minus_product(t[row], a, y[column]);
        });
        for (u32 row = lane; row < task.nrows && wanted; row += WARP_THREADS) {
            r[row] = (MAGNITUDES ? V(magnitude(r[row])) : r[row]) + t[row];
        }
        __syncwarp();
    }
};

template <typename V>
__global__ void __launch_bounds__(KEPT_THREADS, 4)
    lu_kept(u32 nitems, u32 nrows, u32 nrhs, const V* __restrict__ kept, u64 stride, u32 pivots,
            const u32* __restrict__ tables, u32 table_words, u32 nchunks, u32 end_of_l, u32 end_of_u,
            const u16* __restrict__ perm, const V* __restrict__ b, V* __restrict__ x, u32 flags,
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
    cp_async_wait_all();
    __syncthreads();
    const LuTask<V> task{nrows,          perm,         b,     x,     flags,    rel_tol,
                         rel_tols,       abs_tol,      abs_tols,     max_iters, max_iters_each,
                         max_restarts,   floor,        queue, statuses, iterations,
                         restarts,       residual_norms,     rhs_norms};
    const KeptTask<V> what{nitems, nrhs, kept, stride, pivots, nchunks, end_of_l, end_of_u};
    const u32 doubles = CHAINS + 1 + (3 * nrows * u32(sizeof(V)) + 7) / 8;
    KeptWarp<V> warp(task, what, own_tables,
                     reinterpret_cast<double*>(own_tables + table_words) +
                         threadIdx.x / WARP_THREADS * doubles);
    warp.run();
    __syncthreads(); // all warps have found the queue empty
    warp.leave(queue);
}
