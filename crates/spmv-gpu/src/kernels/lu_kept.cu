// Whole solves by a sparse LU that `lu_factor` has made before, a warp for a system at a time, all in one launch: forward and backward substitution, and refinement from the true residual, as in
// lu.cu.
//
// - Substitution goes column by column: an element of the solution is known, and its products are subtracted
//   from those that wait for it, a lane each. A column is cut into chunks of at most 32 entries. Of the residual a
//   chunk has any 32 entries of different rows; long rows have several sums.
// - An element's products are subtracted in the order of elimination, or against it: a function of the pattern
//   alone. A residual's are in another order than in lu.cu: the last bits of residuals, and of what is refined by
//   them, differ.
// - What is done with which value is in tables, which a block copies to shared memory once. Values come from
//   global memory as they are used, AHEAD chunks ahead. Lanes without an entry do as the last one, but for what
//   it writes: a chunk is twenty instructions or so, of which there are hundreds.
// - Traffic of a system: factors and A once for each solve with them, b once and more, x once (twice with a
//   guess), 25 B of outcome.
//
// Arguments: nitems >= 1, nrhs >= 1. Item i has its values from kept[i * stride] on: those of L column by column,
// of the pivots from `pivots` on, of U column by column, the last one first; of A from `first_of_a` on, chunk by
// chunk, and 64 * AHEAD more may be read. `tables` are copied from global memory, `table_words` words, a multiple of
// 4. They hold for each chunk of L and U two words, the number of its first value, the number of its entries less 1
// and, << 16, its column; AHEAD empty chunks; for each, without these, 32 rows of targets, in 16 bits; for each chunk
// of A and lane the column and, << 16, the sum, and those of one chunk more; for each row, and behind the last one,
// the first of its sums among those that follow, the numbers of the sums of each row, all in 16 bits. There are nsums
// >= nrows sums. Targets and sums of lanes without an entry are those of another lane and IDLE_LANE. There are `end_of_u`
// chunks of L and U, those of L end at
// `end_of_l`, and `nproducts` of A, all multiples of AHEAD. Columns and rows of L and U, and columns of A, are
// numbered in the order of elimination, rows of A in that of the matrix. perm[k] is the row that is eliminated k-th.
// System s has `nrows` values of b and of x from s*nrows on. Blocks of whole warps, 16 at most; any grid. Shared
// memory: table_words words; for each warp CHAINS + 1 doubles, and 2 * nrows + nsums values, up to a multiple of
// 8 bytes.

#include "lu_system.cuh"
#include "programs.cuh"

constexpr u32 AHEAD = 8;
constexpr u32 KEPT_THREADS = 512;
constexpr u32 IDLE_LANE = 0x8000; // of a row or a sum: nothing is written

template <typename V>
struct KeptTask {
    u32 nitems, nrhs;
    const V* kept;
    u64 stride;
    u32 pivots, first_of_a, end_of_l, end_of_u, nproducts, nsums;
};

// One thread's part in the solves of its warp.
template <typename V>
struct KeptWarp : LuSystems<KeptWarp<V>, V, WARP_THREADS> {
    using Base = LuSystems<KeptWarp<V>, V, WARP_THREADS>;
    using typename Base::Threads;
    using Base::lane, Base::task, Base::y, Base::r, Base::scratch;

    const KeptTask<V>& kept;
    const uint2* const chunks;
    const u16* const targets;  // of this lane
    const u32* const products; // of this lane
    const u16* const sums_of;
    V* const t; // reciprocals of pivots, sums of the residual
    u32 item = 0, rhs = 0;

    // `own`: this warp's shared memory.
    __device__ __forceinline__ KeptWarp(const LuTask<V>& all, const KeptTask<V>& what,
                                        const u32* tables, double* own)
        : Base(all, 1, WARP_THREADS, vectors(own), vectors(own) + all.nrows, own), kept(what),
           chunks(reinterpret_cast<const uint2*>(tables)),
          targets(reinterpret_cast<const u16*>(chunks + what.end_of_u + AHEAD) + lane),
          products(reinterpret_cast<const u32*>(targets - lane + what.end_of_u * WARP_THREADS) +
                   lane),
          sums_of(reinterpret_cast<const u16*>(products - lane +
                                               (what.nproducts + 1) * WARP_THREADS)),
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

    // into[row] = add(into[row], value, operand(column)) for the entries of some chunks, one chunk after the
    // other.
    template <typename Operand, typename Add>
    __device__ __forceinline__ void run_chunks(u32 first, u32 end, V* into, Operand operand,
                                               Add add) {
        const SharedValues<V> sums(into);
        const V* const from = values();
        const uint2* chunk = chunks + first;
        const u16* target = targets + first * WARP_THREADS;
        const auto fetch = [&](u32 i) {
            const uint2 what = chunk[i];
            return load(from + (what.x + minimum(lane, what.y & 0xffffu)));
        };
        V ahead[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            ahead[i] = fetch(i);
        }
        u32 column = high_half(chunk->y), row = *target;
#pragma unroll 1
        for (; first < end; first += AHEAD) {
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                const u32 own = row & (IDLE_LANE - 1);
                const bool writes = row < IDLE_LANE;
                const V x = operand(column), sum = sums.get(own), value = ahead[i];
                column = high_half(chunk[i + 1].y);
                row = target[(i + 1) * WARP_THREADS];
                ahead[i] = fetch(i + AHEAD);
                if (writes) {
                    sums.set(own, add(sum, value, x));
                }
                __syncwarp();
            }
            chunk += AHEAD;
            target += AHEAD * WARP_THREADS;
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
        const SharedValues<V> solution(y), inverses(t);
        const auto subtract = [](V sum, V factor, V x) { return minus_product(sum, factor, x); };
        run_chunks(0, kept.end_of_l, y, [&](u32 column) { return solution.get(column); }, subtract);
        if (is_plain) {
            run_chunks(kept.end_of_l, kept.end_of_u, y,
                       [&](u32 column) { return solution.get(column) * inverses.get(column); },
                       subtract);
        } else {
            run_chunks(kept.end_of_l, kept.end_of_u, y, divided, subtract);
        }
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            y[k] = divided(k);
        }
        return __any_sync(ALL_LANES, bad) != 0;
    }

    // Where r holds b: b - A x, or |b| + |A||x|, for the lanes that want it, which are all or none.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        __syncwarp();
        for (u32 sum = lane; sum < kept.nsums; sum += WARP_THREADS) {
            t[sum] = V(0);
        }
        __syncwarp();
        const SharedValues<V> solution(y), sums(t);
        const V* from = values() + kept.first_of_a + lane;
        const u32* product = products;
        V ahead[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            ahead[i] = load(from + i * WARP_THREADS);
        }
        u32 next = *product;
#pragma unroll 1
        for (u32 chunk = 0; chunk < kept.nproducts; chunk += AHEAD) {
            from += AHEAD * WARP_THREADS;
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                const u32 own = high_half(next) & (IDLE_LANE - 1);
                const bool writes = next < IDLE_LANE << 16;
                const V a = ahead[i], x = solution.get(low_half(next)), sum = sums.get(own);
                next = product[(i + 1) * WARP_THREADS];
                ahead[i] = load(from + i * WARP_THREADS);
                if (writes) {
                    sums.set(own, MAGNITUDES ? sum + V(magnitude(a)) * V(magnitude(x))
                                             : minus_product(sum, a, x));
                }
                __syncwarp();
            }
            product += AHEAD * WARP_THREADS;
        }
        for (u32 row = lane; row < task.nrows && wanted; row += WARP_THREADS) {
            V sum = 0;
            for (u32 k = sums_of[row]; k < sums_of[row + 1]; ++k) {
                sum += t[sums_of[k]];
            }
            r[row] = (MAGNITUDES ? V(magnitude(r[row])) : r[row]) + sum;
        }
        __syncwarp();
    }
};

template <typename V>
__global__ void __launch_bounds__(KEPT_THREADS, 2)
    lu_kept(u32 nitems, u32 nrows, u32 nrhs, const V* __restrict__ kept, u64 stride, u32 pivots,
            u32 first_of_a, const u32* __restrict__ tables, u32 table_words, u32 end_of_l,
            u32 end_of_u, u32 nproducts, u32 nsums, const u16* __restrict__ perm, const V* __restrict__ b, V* __restrict__ x, u32 flags,
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
    const KeptTask<V> what{nitems,   nrhs,     kept,      stride, pivots, first_of_a,
                           end_of_l, end_of_u, nproducts, nsums};
    const u32 doubles = CHAINS + 1 + ((2 * nrows + nsums) * u32(sizeof(V)) + 7) / 8;
    KeptWarp<V> warp(task, what, own_tables,
                     reinterpret_cast<double*>(own_tables + table_words) +
                         threadIdx.x / WARP_THREADS * doubles);
    warp.run();
    __syncthreads(); // all warps have found the queue empty
    warp.leave(queue);
}
