// Whole solves by a sparse LU that `lu_factor` made, one warp per system at a time, all in one
// launch: forward and backward substitution, and refinement from the true residual, as in lu.cu.
//
// - The last bits of residuals, and of solutions refined by them, differ from those of lu.cu: see
//   lu_kept.cuh.
// - The first systems go to the warps by number, the others are taken from the queue.
// - Traffic of a system: factors and A once for each solve with them, b at least once, x once
//   (twice with an initial guess), 25 B of outcome.
//
// Arguments:
// - nitems >= 1, nrhs >= 1.
// - Kept values, and the sizes of the tables and vectors: see lu_kept.cuh.
// - `tables`: `table_words` words, a multiple of 4, copied from global memory.
// - System s has `nrows` values of b and of x from s*nrows on.
// - Launch: blocks of whole warps, 16 at most; any grid. Shared memory: table_words words; for each
//   warp CHAINS + 1 doubles, and 2 * nrows + nslots + nparts values, rounded up to a multiple of 8
//   bytes.

#include "lu_system.cuh"
#include "lu_kept.cuh"

// One thread's part in the solves of its warp.
template <typename V, u32 AHEAD>
struct KeptWarp : LuSystems<KeptWarp<V, AHEAD>, V, WARP_THREADS> {
    using Base = LuSystems<KeptWarp<V, AHEAD>, V, WARP_THREADS>;
    using typename Base::Threads;
    using Base::lane, Base::task, Base::y, Base::r, Base::scratch;
    static constexpr bool HAS_LEAST_SIZE = true;

    const KeptTask<V>& kept;
    const u32* const parts_of_rows;
    V* const t; // reciprocals of pivots, parts of sums with A
    // Warps of the grid. As many systems go to them by number, to the first warps of all blocks
    // before the second ones; the other systems are taken from the queue.
    const u32 warps = gridDim.x * (blockDim.x / WARP_THREADS);
    u32 turn = threadIdx.x / WARP_THREADS * gridDim.x + blockIdx.x;
    u32 item = 0, rhs = 0;
    double squares[1] = {}; // sum of the squares of this lane's parts of |A||x|
    bool has_a = false;     // `chunks` holds the first values of A
    KeptChunks<V, AHEAD> chunks;

    // `own`: this warp's shared memory.
    __device__ __forceinline__ KeptWarp(const LuTask<V>& all, const KeptTask<V>& what,
                                        const u32* tables, double* own)
        : Base(all, 1, WARP_THREADS, vectors(own),
               vectors(own) + all.nrows + what.nslots + what.nparts, own),
          kept(what),
          parts_of_rows(tables + (what.end_of_a + 1) * WARP_THREADS +
                        (what.end_of_a / AHEAD + 1) * HALVES * AHEAD),
          t(y + all.nrows + what.nslots),
          chunks(tables, tables + (what.end_of_a + 1) * WARP_THREADS, what.none) {}

    __device__ __forceinline__ static V* vectors(double* own) {
        return reinterpret_cast<V*>(own + CHAINS + 1);
    }

    __device__ __forceinline__ u32 stride() const { return 1; }

    __device__ __forceinline__ u32 number(u32) const {
        return minimum(item, kept.nitems - 1) * kept.nrhs + rhs;
    }

    __device__ __forceinline__ bool exists(u32) const { return item < kept.nitems; }

    __device__ __forceinline__ u32 systems() const { return kept.nitems * kept.nrhs; }

    // Whether there are more systems than warps; otherwise the queue is not used.
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

    // Starts to copy b, which becomes r.
    __device__ __forceinline__ void fetch_b() {
        const V* const from = task.b + u64(number(0)) * task.nrows;
        for (u32 row = lane; row < task.nrows; row += WARP_THREADS) {
            cp_async_value(r + row, from + row);
        }
    }

    // y = the initial guess, or 0. `enter` discards the guess for a right-hand side of 0.
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

    // Solves for y in place. Returns whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        const Pivots found = begin_chunks(chunks, values(), kept.first_value, task.nrows, t);
        solve_by_chunks(chunks, found, values(), kept.first_value, kept.end_of_l, kept.end_of_u,
                        task.nrows, kept.nslots, y, t);
        has_a = true;
        return __any_sync(ALL_LANES, found.is_bad) != 0;
    }

    // Turns r, on entry b, into b - A x or |b| + |A||x|, if `wanted`, which is the same in all
    // lanes.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        __syncwarp();
        const V* const from = values() + kept.first_value;
        if (!has_a) {
            chunks.ask_first(from, kept.end_of_u);
        }
        has_a = false;
        constexpr Sum WHAT = MAGNITUDES ? Sum::MAGNITUDES : Sum::PRODUCTS_AND_SIZES;
        sum_products<1, WHAT>(chunks, from, kept.end_of_u, kept.end_of_a, y, 0, 0, squares);
        __syncwarp();
        for (u32 row = lane; row < task.nrows && wanted; row += WARP_THREADS) {
            V value[1] = {r[row]};
            finish_row<MAGNITUDES>(value, t, 0, parts_of_rows[row]);
            r[row] = value[0];
        }
        __syncwarp();
    }

    // A lower bound of the norm of |A||x|, of the last product.
    __device__ __forceinline__ double least_size() const {
        return least_norm(sum_of_lanes(squares[0]));
    }
};

// With few systems there are registers to spare, so that more chunks are prefetched.
template <typename V, u32 AHEAD>
__global__ void __launch_bounds__(KEPT_THREADS, AHEAD > 4 ? 1 : 2)
    lu_kept(u32 nitems, u32 nrows, u32 nrhs, const V* __restrict__ kept, u64 stride,
            u32 first_value, const u32* __restrict__ tables, u32 table_words, u32 end_of_l,
            u32 end_of_u, u32 end_of_a, u32 nslots, u32 nparts, const u16* __restrict__ perm,
            const V* __restrict__ b, V* __restrict__ x, u32 flags,
            SystemLimits limits, u32* queue, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    u32* const own_tables = reinterpret_cast<u32*>(dynamic_shared);
    for (u32 i = threadIdx.x * 4; i < table_words; i += blockDim.x * 4) {
        cp_async_16(own_tables + i, tables + i);
    }
    const LuTask<V> task{nrows, perm, b, x, flags, limits, queue, outcomes};
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
