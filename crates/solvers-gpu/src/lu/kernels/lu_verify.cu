// True residuals of solutions that `lu_substitute` computed in several solves with the same
// factors, and how each solve ended. A warp handles one system in VECTORS solves.
//
// A residual is summed as in lu_kept.cu, its norm lane by lane. Traffic of a system and VECTORS
// solves: A and pivots once, b, x and 25 B of outcome for each solve; A and b twice if the rounding
// floor is in doubt.
//
// Arguments as in lu_kept.cu, except:
// - nitems >= 1, nrhs >= 1, and 1 to MOST_SOLVES `solves`.
// - b0 .., x0 ..: the vectors of each solve; system s has `nrows` values from s*nrows on.
// - `tables`: `table_words` words; of them only those of A are copied.
// - Limits and tolerances of system s hold in all solves.
// - The outcome of solve k for system s goes to index k * distance + s.
// - Launch: blocks of whole warps, 16 at most; any grid. Shared memory: 4 bytes for each of the
//   table's words, without those of end_of_u chunks and their 2 * end_of_u spans; nrows u16,
//   rounded up to a multiple of 8 bytes; for each warp VECTORS * (nrows + 1 + nparts) values,
//   rounded up to a multiple of 8 bytes.

#include "lu_system.cuh"
#include "lu_kept.cuh"

constexpr u32 MOST_SOLVES = 8;

// The norm of value(row) over the rows, without spurious overflow or underflow: NaN when a value is
// NaN, infinite when one is. `sum` is the sum of the squares. The same in all lanes.
template <typename Value>
__device__ __forceinline__ double norm_of_rows(double sum, u32 nrows, Value value) {
    if (sum >= 1e-280 && sum < 1e280) {
        return __dsqrt_rn(sum);
    }
    const u32 lane = threadIdx.x % WARP_THREADS;
    double most = 0;
    for (u32 row = lane; row < nrows; row += WARP_THREADS) {
        most = maximum(most, magnitude(value(row)));
    }
    most = most_of_lanes(most);
    if (sum != sum || most == 0 || !is_finite(most)) {
        return sum != sum ? sum : most;
    }
    const int exponent = exponent_of(most);
    const double down = power_of_two(-exponent);
    double scaled = 0;
    for (u32 row = lane; row < nrows; row += WARP_THREADS) {
        const double part = value(row) * down;
        scaled += part * part;
    }
    return __dsqrt_rn(sum_of_lanes(scaled)) * power_of_two(exponent);
}

// One lane's part in the verification of a system's solutions, one from each of `count` solves.
template <typename V, u32 AHEAD, u32 VECTORS>
struct Verifier {
    // With few vectors there is time to sum magnitudes as well, for a bound of the rounding floor.
    static constexpr Sum PRODUCTS = VECTORS > 2 ? Sum::PRODUCTS : Sum::PRODUCTS_AND_SIZES;

    const KeptTask<V>& kept;
    const LuTask<V>& task;
    KeptChunks<V, AHEAD> chunks;
    const u32* const parts_of_rows;
    const u16* const perm;
    V* const x; // per vector: its elements, a slot that is not written, the parts of its sums
    const u32 distance, lane;
    u32 count;       // solves
    u64 first;       // index of the system's first element in b and x
    const V* values; // of the item
    const V *b[VECTORS], *solutions[VECTORS];

    __device__ __forceinline__ Verifier(const KeptTask<V>& what, const LuTask<V>& all,
                                        const u32* tables, const u32* parts, const u16* rows, V* own)
        : kept(what), task(all),
          chunks(tables, tables + (what.end_of_a - what.end_of_u + 1) * WARP_THREADS, what.none),
          parts_of_rows(parts), perm(rows), x(own), distance(all.nrows + 1 + what.nparts),
          lane(threadIdx.x % WARP_THREADS) {}

    // Requests the first values of A.
    __device__ __forceinline__ void ask_first() { chunks.ask_first(values + kept.first_value, 0); }

    __device__ __forceinline__ void fetch_solutions() {
#pragma unroll 2
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            const u64 at = first + perm[k];
#pragma unroll
            for (u32 v = 0; v < VECTORS; ++v) {
                x[v * distance + k] = solutions[v][at];
            }
        }
        __syncwarp();
    }

    // Sums of A with all solutions, part by part.
    template <Sum WHAT>
    __device__ __forceinline__ void multiply(double (&squares)[VECTORS]) {
        sum_products<VECTORS, WHAT>(chunks, values + kept.first_value, 0,
                                    kept.end_of_a - kept.end_of_u, x, distance, kept.nslots - 1,
                                    squares);
        __syncwarp();
    }

    // A row, for vector `v`: of b - A x, or of |b| + |A||x| after a product with magnitudes.
    template <bool MAGNITUDES>
    __device__ __forceinline__ double finished(u32 row, u32 v) const {
        V value[1] = {b[v][first + row]};
        finish_row<MAGNITUDES>(value, x + v * distance + task.nrows + 1, 0, parts_of_rows[row]);
        return double(value[0]);
    }

    // The norms of the vectors of these rows; without MAGNITUDES also the norms of b.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void find_norms(double (&norms)[VECTORS],
                                               double (&rhs_norms)[VECTORS]) const {
        double rhs[VECTORS] = {};
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
            norms[v] = 0;
        }
        for (u32 i = lane; i < task.nrows; i += WARP_THREADS) {
            V own[VECTORS];
#pragma unroll
            for (u32 v = 0; v < VECTORS; ++v) {
                own[v] = b[v][first + i];
                rhs[v] += double(own[v]) * double(own[v]);
            }
            finish_row<MAGNITUDES>(own, x + task.nrows + 1, distance, parts_of_rows[i]);
#pragma unroll
            for (u32 v = 0; v < VECTORS; ++v) {
                norms[v] += double(own[v]) * double(own[v]);
            }
        }
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
            norms[v] = norm_of_rows(sum_of_lanes(norms[v]), task.nrows,
                                    [&](u32 i) { return finished<MAGNITUDES>(i, v); });
            if constexpr (!MAGNITUDES) {
                rhs_norms[v] = norm_of_rows(sum_of_lanes(rhs[v]), task.nrows,
                                            [&](u32 i) { return double(b[v][first + i]); });
            }
        }
    }

    __device__ __forceinline__ bool has_bad_pivot() const {
        bool bad = false;
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            bad = bad || !(values[k] < V(0) || V(0) < values[k]);
        }
        return __any_sync(ALL_LANES, bad) != 0;
    }

    // Writes how the solves of system s ended to the outcomes `number`, `number` + `next`, ..
    __device__ __forceinline__ void judge(u32 s, u64 number, u64 next) {
        double squares[VECTORS], residuals[VECTORS], rhs_norms[VECTORS];
        ask_first();
        fetch_solutions();
        multiply<PRODUCTS>(squares);
        find_norms<false>(residuals, rhs_norms);
        const u32 limit = task.limits.iterations(s);
        const double floor = task.limits.floor * Precision<V>::EPSILON;
        bool accepted[VECTORS], by_floor[VECTORS], in_doubt = false;
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
            const double threshold = task.limits.threshold(s, rhs_norms[v]);
            accepted[v] = residuals[v] <= threshold;
            by_floor[v] = false;
            if (task.limits.floor >= 0 && !accepted[v]) {
                if constexpr (PRODUCTS == Sum::PRODUCTS_AND_SIZES) {
                    by_floor[v] = residuals[v] <= floor * least_norm(sum_of_lanes(squares[v]));
                    accepted[v] = by_floor[v];
                }
                in_doubt = in_doubt || !by_floor[v];
            }
            // With a limit of 0 solves the solution is 0, whose residual is b.
            accepted[v] = accepted[v] && (limit > 0 || rhs_norms[v] <= threshold);
        }
        if (in_doubt) {
            __syncwarp(); // all lanes have read the sums
            double sizes[VECTORS];
            ask_first();
            multiply<Sum::MAGNITUDES>(squares);
            find_norms<true>(sizes, rhs_norms);
#pragma unroll
            for (u32 v = 0; v < VECTORS; ++v) {
                if (!accepted[v] && limit > 0) {
                    by_floor[v] = residuals[v] <= floor * sizes[v];
                    accepted[v] = by_floor[v];
                }
            }
        }
        const bool bad = has_bad_pivot();
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
            if (lane == v && v < count) {
                const bool lost = !is_finite(residuals[v]) || !is_finite(rhs_norms[v]);
                const u32 status = lost          ? NON_FINITE
                                   : accepted[v] ? CONVERGED
                                   : limit == 0  ? MAX_ITERATIONS
                                   : bad         ? ZERO_PIVOT
                                   : limit == 1  ? MAX_ITERATIONS
                                                 : STAGNATED;
                task.outcomes.record(number + v * next, status, bad || limit == 0 ? 0 : 1, 0,
                          by_floor[v] && accepted[v] && !lost,
                          lost ? not_a_number() : residuals[v], rhs_norms[v]);
            }
        }
        __syncwarp();
    }
};

template <typename V, u32 AHEAD, u32 VECTORS>
__global__ void __launch_bounds__(KEPT_THREADS, 1)
    lu_verify(u32 nitems, u32 nrows, u32 nrhs, const V* kept, u64 stride,
              u32 first_value, const u32* __restrict__ tables, u32 table_words, u32 end_of_u,
              u32 end_of_a, u32 nslots, u32 nparts, const u16* __restrict__ perm, u32 solves,
              u64 distance, const V* b0, const V* b1, const V* b2, const V* b3, const V* b4,
              const V* b5, const V* b6, const V* b7, const V* x0, const V* x1, const V* x2,
              const V* x3, const V* x4, const V* x5, const V* x6, const V* x7,
              SystemLimits limits, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    const u32 nwords = (end_of_a - end_of_u + 1) * WARP_THREADS;
    const u32 nspans = (end_of_a - end_of_u + AHEAD) * HALVES;
    const u32 first_span = (end_of_a + 1) * WARP_THREADS + end_of_u * HALVES;
    const u32 others = table_words - first_span;
    u32* const words = reinterpret_cast<u32*>(dynamic_shared);
    u16* const rows = reinterpret_cast<u16*>(words + nwords + others);
    const u32 warp = threadIdx.x / WARP_THREADS;
    V* const own = reinterpret_cast<V*>(rows + (nrows + 3) / 4 * 4) +
                   warp * whole_values<V>(VECTORS * (nrows + 1 + nparts));
    for (u32 i = threadIdx.x * 4; i < nwords; i += blockDim.x * 4) {
        cp_async_16(words + i, tables + end_of_u * WARP_THREADS + i);
    }
    for (u32 i = threadIdx.x * 4; i < others; i += blockDim.x * 4) {
        cp_async_16(words + nwords + i, tables + first_span + i);
    }
    for (u32 k = threadIdx.x; k < nrows; k += blockDim.x) {
        rows[k] = load(perm + k);
    }
    const KeptTask<V> kept_task{nitems,   nrhs,     kept,   stride, first_value, 0,
                                end_of_u, end_of_a, nslots, nparts, nitems >> 31};
    const LuTask<V> task{nrows, perm, nullptr, nullptr, 0, limits, nullptr, outcomes};
    Verifier<V, AHEAD, VECTORS> verifier(kept_task, task, words, words + nwords + nspans, rows, own);
    cp_async_wait_all();
    __syncthreads();
    wait_for_launches_ahead();
    let_next_launch_begin();
    const V* const all_b[MOST_SOLVES] = {b0, b1, b2, b3, b4, b5, b6, b7};
    const V* const all_x[MOST_SOLVES] = {x0, x1, x2, x3, x4, x5, x6, x7};
    const u32 groups = (solves + VECTORS - 1) / VECTORS;
    const u32 all = nitems * nrhs * groups, warps = gridDim.x * (blockDim.x / WARP_THREADS);
    // Neighbouring warps handle solves of the same system.
    for (u32 work = blockIdx.x * (blockDim.x / WARP_THREADS) + warp; work < all; work += warps) {
        const u32 s = work / groups, solve = work % groups * VECTORS;
        verifier.count = minimum(solves - solve, VECTORS);
        verifier.first = u64(s) * nrows;
        verifier.values = kept + s / nrhs * stride;
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
            // If there are fewer than VECTORS solves, the first one is repeated.
            const u32 which = v < verifier.count ? solve + v : solve;
#pragma unroll
            for (u32 k = 0; k < MOST_SOLVES; ++k) {
                verifier.b[v] = k == which ? all_b[k] : verifier.b[v];
                verifier.solutions[v] = k == which ? all_x[k] : verifier.solutions[v];
            }
        }
        verifier.judge(s, solve * distance + s, distance);
    }
}
