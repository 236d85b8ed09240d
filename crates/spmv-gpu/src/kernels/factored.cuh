// What solves with factorised preconditioners share: a system's memory, factorisation and application of
// the preconditioner, products, true residuals, and how a system begins and ends.
//
// Common to all instances:
// - GROUP threads have a system at a time and take the next one from a queue. Where GROUP is 32 a block
//   has several groups, which know nothing of each other; else a block is a group.
// - Thread `lane` of a group owns the rows lane, lane + GROUP, ...: of vectors it reads those rows alone,
//   but for the operand `z` of products, where everything lands that others read.
// - PLACE says what is in shared memory; the rest is in a workspace that each group has for itself, but
//   for values, which are read where they lie.
// - Factorisation and application are programs of sums, `place -= sum of left * right`, in levels that end
//   with a barrier: streams of factor.cuh with positions of 16 bits, or, where everything is in global
//   memory, lists with positions of 32 bits. Block-Jacobi has dense inverses instead (BLOCKS).
// - Sums have an order that depends on GROUP and the pattern alone: bitwise repeatable, whatever the
//   neighbours and the order of threads.
// - A system ends by the rules of the CPU's solvers, on the residual recomputed from x; one that the
//   recurrence let pass too early starts again.
//
// Arguments: nsystems + groups of the launch < 2^32, nrhs >= 1. `words` holds the programs. Streams: that
// of warp w of a group begins at the u32 number starts[w] for the factorisation, at starts[WARPS + w] for
// the application. Lists: the two begin at starts[0] and starts[1], each with the number of levels, the
// place of its tasks and that of its pairs, then for each level the number of its first task and, behind
// the last, how many there are; a task is place, factor, its first pair and the number of pairs, a pair
// two places. BLOCKS: for each row the first row of its block, the rows of the block, the place of its
// inverse, column by column, and 0; then from starts[0] on the first rows of the starts[1] blocks.
// Factors are `nfactors` values and a 0; factor k is made of entry sources[k] of A, or of 0.
// `index` holds the nrows + 1 row pointers of A, then where the columns of each 32 rows begin: column k of
// row i is at index[nrows + 1 + i/32] + k*32 + i%32 of `columns`, or NO_COLUMN where the row has fewer.
// System s has the nnz values from s/nrhs*value_stride on, in the order of CSR, and `nrows` values of b
// and of x from s*nrows on. Item i has nfactors + 1 values of `kept`, and one of `refused`, where the
// flags ask for them. Arrays of limits and tolerances are null or hold one a system. `queue` holds two
// zeros, and does so again at the end. Memory of a group, shared or in `workspace`: see FactoredShape.
#pragma once

#include "solver.cuh"
#include "factor.cuh"

// What is in shared memory beside nothing at all: vectors, factors, values.
constexpr u32 ALL_SHARED = 0;
constexpr u32 VALUES_GLOBAL = 1;
constexpr u32 FACTORS_GLOBAL = 2;
constexpr u32 ALL_GLOBAL = 3;

// Bits of `flags`: x holds guesses; a pivot is positive and its root divides (Cholesky); factors are
// those of `kept`; factors are made and kept, and nothing is solved; what is kept is of one item, for all.
constexpr u32 FACTORED_GUESS = 1;
constexpr u32 FACTORED_ROOT = 2;
constexpr u32 FACTORED_KEPT = 4;
constexpr u32 FACTORED_KEEP = 8;
constexpr u32 FACTORED_ONE_KEPT = 16;

constexpr u32 SINGULAR_PRECONDITIONER = 8;

// No entry of A.
constexpr u32 NO_SOURCE = 0xffffffffu;

template <typename V, typename Index>
struct FactoredTask {
    u32 nsystems, nrows, nrhs, nnz, nfactors;
    const u32* words;
    const u32* starts;
    const u32* index;
    const Index* columns;
    const u32* sources;
    V* workspace;
    V* kept;
    u8* refused;
    const V* values;
    u64 value_stride;
    const V* b;
    V* x;
    u32 flags;
    double rel_tol;
    const double* rel_tols;
    double abs_tol;
    const double* abs_tols;
    u32 max_iters;
    const u32* max_iters_each;
    u32 max_restarts;
    double floor;
    u32* queue;
    u8* statuses;
    u32* iterations;
    u32* restarts;
    double* residual_norms;
    double* rhs_norms;
};

// What the template parameters of a kernel say.
template <typename Value, u32 GROUP_, bool BLOCKS_, u32 PLACE_, u32 VECTORS_>
struct FactoredShape {
    using V = Value;
    static constexpr u32 GROUP = GROUP_;
    static constexpr bool BLOCKS = BLOCKS_;
    static constexpr u32 PLACE = PLACE_;
    static constexpr bool IS_WIDE = PLACE == ALL_GLOBAL;
    using Index = typename Select<IS_WIDE, u32, u16>::Type;
    static constexpr u32 NO_COLUMN = IS_WIDE ? 0xffffffffu : 0xffffu;
    // Of nrows values each, the last one with a 0 behind it.
    static constexpr u32 VECTORS = VECTORS_;
    static constexpr bool SHARES_VECTORS = PLACE != ALL_GLOBAL;
    static constexpr bool SHARES_FACTORS = PLACE < FACTORS_GLOBAL;
    static constexpr bool SHARES_VALUES = PLACE == ALL_SHARED;

    // Values of a group in shared memory, and in the workspace.
    __device__ __forceinline__ static u64 shared_values(u32 nrows, u32 nfactors, u32 nnz) {
        return (SHARES_VECTORS ? VECTORS * nrows + 1 : 0) + (SHARES_FACTORS ? nfactors + 1 : 0) +
               (SHARES_VALUES ? nnz : 0);
    }

    __device__ __forceinline__ static u64 workspace_values(u32 nrows, u32 nfactors) {
        return (SHARES_VECTORS ? 0 : u64(VECTORS) * nrows + 1) +
               (SHARES_FACTORS ? 0 : u64(nfactors) + 1);
    }
};

__device__ __forceinline__ double square_root(double value) { return __dsqrt_rn(value); }
__device__ __forceinline__ float square_root(float value) { return __fsqrt_rn(value); }

// `Method` is the class that inherits: it has begin() and iterate(), which say whether the system goes
// on or why it stops. RETRIES: a breakdown is got over by starting again.
template <typename Method, typename Shape, bool RETRIES>
struct FactoredGroup : Shape {
    using V = typename Shape::V;
    using Index = typename Shape::Index;
    using Shape::BLOCKS;
    using Shape::GROUP;
    using Shape::IS_WIDE;
    using Shape::NO_COLUMN;
    using Shape::SHARES_FACTORS;
    using Shape::SHARES_VALUES;
    using Shape::SHARES_VECTORS;
    using Shape::VECTORS;
    using Threads = Team<GROUP>;
    static constexpr u32 WARPS = GROUP / WARP_THREADS;

    const FactoredTask<V, Index>& task;
    double* const scratch;
    const u32 lane;
    V* vectors;
    V* factors;
    V* own_values;
    V* z; // the operand of products, and what the preconditioner is applied to

    u32 system = 0, item = 0;
    u32 iteration = 0, limit = 0, restarts = 0;
    int scale = 0; // the recurrence works on b * 2^-scale
    V square = 0;  // of the threshold
    double threshold = 0, rhs_norm = 0, residual = 0;

    __device__ __forceinline__ FactoredGroup(const FactoredTask<V, Index>& all, V* shared,
                                             double* partials)
        : task(all), scratch(partials), lane(threadIdx.x % GROUP) {
        const u32 number = threadIdx.x / GROUP;
        const u64 group = u64(blockIdx.x) * (blockDim.x / GROUP) + number;
        V* in_shared = shared + number * Shape::shared_values(all.nrows, all.nfactors, all.nnz);
        V* in_workspace =
            all.workspace + group * Shape::workspace_values(all.nrows, all.nfactors);
        if constexpr (SHARES_VECTORS) {
            vectors = in_shared;
            in_shared += VECTORS * all.nrows + 1;
        } else {
            vectors = in_workspace;
            in_workspace += u64(VECTORS) * all.nrows + 1;
        }
        if constexpr (SHARES_FACTORS) {
            factors = in_shared;
            in_shared += all.nfactors + 1;
        } else {
            factors = in_workspace;
        }
        own_values = in_shared;
        z = vector(VECTORS - 1);
    }

    __device__ __forceinline__ Method& self() { return static_cast<Method&>(*this); }

    __device__ __forceinline__ V* vector(u32 number) const {
        return vectors + (IS_WIDE ? u64(number) * task.nrows : number * task.nrows);
    }

    // Calls visit(row) for own rows.
    template <typename Visit>
    __device__ __forceinline__ void own_rows(Visit visit) const {
#pragma unroll 1
        for (u32 row = lane; row < task.nrows; row += GROUP) {
            visit(row);
        }
    }

    __device__ __forceinline__ const V* item_values() const {
        return task.values + u64(item) * task.value_stride;
    }

    __device__ __forceinline__ const V* own_b() const {
        return task.b + u64(system) * task.nrows;
    }

    __device__ __forceinline__ V* own_x() const { return task.x + u64(system) * task.nrows; }

    // Calls visit(value, column) for the entries of a row, in their order.
    template <typename Visit>
    __device__ __forceinline__ void entries(u32 row, Visit visit) const {
        const u32* const chunk = task.index + task.nrows + 1 + row / WARP_THREADS;
        const u32 first = load(chunk), end = load(chunk + 1);
        const u32 own = load(task.index + row);
        const V* value = SHARES_VALUES ? own_values + own : item_values() + own;
#pragma unroll 4
        for (u32 at = first + row % WARP_THREADS; at < end; at += WARP_THREADS) {
            const u32 column = load(task.columns + at);
            if (column != NO_COLUMN) {
                visit(SHARES_VALUES ? *value : load(value), column);
            }
            ++value;
        }
    }

    // The product of a row with z, which all threads have written before a barrier.
    __device__ __forceinline__ V times_z(u32 row) const {
        V sum = 0;
        entries(row, [&](V value, u32 column) { sum += value * z[column]; });
        return sum;
    }

    // sqrt(sum value(row)^2) over the rows without spurious overflow or underflow: NaN when a value
    // is NaN, infinite when one is.
    template <typename Value>
    __device__ __forceinline__ double norm(Value value) const {
        double sum = 0;
        own_rows([&](u32 row) {
            const double part = value(row);
            sum += part * part;
        });
        sum = Threads::sum_apart(sum, scratch);
        if (sum >= 1e-280 && sum < 1e280) {
            return __dsqrt_rn(sum);
        }
        double most = 0;
        own_rows([&](u32 row) { most = maximum(most, magnitude(value(row))); });
        most = Threads::largest(most, scratch);
        if (sum != sum || most == 0 || !is_finite(most)) {
            return sum != sum ? sum : most;
        }
        const int exponent = exponent_of(most);
        double scaled = 0;
        own_rows([&](u32 row) {
            const double part = value(row) * power_of_two(-exponent);
            scaled += part * part;
        });
        return __dsqrt_rn(Threads::sum_apart(scaled, scratch)) * power_of_two(exponent);
    }

    // Works through a list: add(sum, left, right) for the pairs of a task, then finish(place, factor,
    // sum).
    template <typename Add, typename Finish>
    __device__ __forceinline__ void run_list(u32 number, Add add, Finish finish) const {
        const u32* const list = task.words + load(task.starts + number);
        const u32 nlevels = load(list);
        const u64* const tasks =
            reinterpret_cast<const u64*>(task.words + load(list + 1)) + 2 * u64(lane);
        const u64* const pairs = reinterpret_cast<const u64*>(task.words + load(list + 2));
        // The first own task of a level is asked for ahead of the barrier before it.
        u32 first = load(list + 3), end = nlevels > 0 ? load(list + 4) : first;
        u64 names = 0, range = 0;
        const auto ask = [&](u32 t) {
            if (t + lane < end) {
                names = load(tasks + 2 * u64(t));
                range = load(tasks + 2 * u64(t) + 1);
            }
        };
        ask(first);
        for (u32 level = 0; level < nlevels; ++level) {
            const u32 next = level + 1 < nlevels ? load(list + 5 + level) : end;
#pragma unroll 1
            while (first + lane < end) {
                const u64* const pair = pairs + u32(range);
                V sum = 0;
#pragma unroll 4
                for (u32 k = 0; k < u32(range >> 32); ++k) {
                    const u64 both = load(pair + k);
                    add(sum, u32(both), u32(both >> 32));
                }
                finish(u32(names), u32(names >> 32), sum);
                first += GROUP;
                ask(first);
            }
            first = end;
            end = next;
            ask(first);
            Threads::sync();
        }
    }

    // Runs program 0, the factorisation, or 1, the application.
    template <u32 PROGRAM, typename Add, typename Finish>
    __device__ __forceinline__ void run_program(Add add, Finish finish) const {
        if constexpr (IS_WIDE) {
            run_list(PROGRAM, add, finish);
        } else {
            const u32 warp = lane / WARP_THREADS;
            const u32* const stream = task.words + load(task.starts + PROGRAM * WARPS + warp);
            run_stream<V, GROUP, 1>(
                stream,
                [&](V(&sums)[1], u32 pair) { add(sums[0], pair & 0xffffu, pair >> 16); },
                [&](u32 word, const V(&sums)[1]) {
                    const u32 factor = word >> 16;
                    finish(word & 0xffffu, factor == NO_PLACE ? NO_SOURCE : factor, sums[0]);
                });
        }
    }

    // Makes the factors of A; whether there are none, for want of a pivot.
    __device__ __forceinline__ bool factorise() {
        for (u32 k = lane; k < task.nfactors; k += GROUP) {
            const u32 source = load(task.sources + k);
            factors[k] = source == NO_SOURCE ? V(0)
                         : SHARES_VALUES     ? own_values[source]
                                             : load(item_values() + source);
        }
        if (lane == 0) {
            factors[task.nfactors] = 0;
        }
        Threads::sync();
        bool bad = false;
        if constexpr (BLOCKS) {
            bad = invert_blocks();
        } else {
            const bool root = (task.flags & FACTORED_ROOT) != 0;
            V* const f = factors;
            run_program<0>(
                [&](V& sum, u32 left, u32 right) { sum += f[left] * f[right]; },
                [&](u32 place, u32 factor, V sum) {
                    V value = f[place] - sum;
                    if (factor == place) {
                        bad = bad || !(V(0) < value || (!root && value < V(0)));
                        value = V(1) / (root ? square_root(value) : value);
                    } else if (factor != NO_SOURCE) {
                        value *= f[factor];
                    }
                    f[place] = value;
                });
        }
        return Threads::any_thread(bad);
    }

    // Inverts the diagonal blocks, a warp a block: Gauss-Jordan with row pivoting, in place.
    __device__ __forceinline__ bool invert_blocks() {
        bool bad = false;
        const u32* const firsts = task.words + load(task.starts);
        const u32 nblocks = load(task.starts + 1);
        for (u32 block = lane / WARP_THREADS; block < nblocks; block += WARPS) {
            const u32* const head = task.words + u64(load(firsts + block)) * 4;
            bad = invert(factors + load(head + 2), load(head + 1)) || bad;
        }
        return bad;
    }

    // Inverts a matrix that stands column by column; whether it is singular. Its values count for
    // nothing then. The work of a warp.
    __device__ __forceinline__ static bool invert(V* a, u32 size) {
        constexpr u32 MOST = 4; // 128 rows
        const u32 own = threadIdx.x % WARP_THREADS;
        u32 pivots[MOST] = {};
        for (u32 k = 0; k < size; ++k) {
            // The largest of the column from the diagonal on, the first one of equals.
            V most = a[k * size + k];
            most = most < V(0) ? -most : most;
            u32 pivot = k;
            for (u32 row = k + 1 + own; row < size; row += WARP_THREADS) {
                V value = a[k * size + row];
                value = value < V(0) ? -value : value;
                if (value > most) {
                    most = value;
                    pivot = row;
                }
            }
#pragma unroll
            for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
                const V other = __shfl_xor_sync(ALL_LANES, most, offset);
                const u32 other_row = __shfl_xor_sync(ALL_LANES, pivot, offset);
                if (other > most || (other == most && other_row < pivot)) {
                    most = other;
                    pivot = other_row;
                }
            }
            if (most == V(0) || !is_finite(most)) {
                return true;
            }
            const V value = a[k * size + pivot];
            __syncwarp();
            for (u32 column = own; column < size; column += WARP_THREADS) {
                V* const entry = a + column * size;
                const V moved = entry[pivot];
                entry[pivot] = entry[k];
                entry[k] = (column == k ? V(1) : moved) / value;
            }
            __syncwarp();
            for (u32 row = own; row < size; row += WARP_THREADS) {
                const V factor = a[k * size + row];
                if (row == k || factor == V(0)) {
                    continue;
                }
                a[k * size + row] = 0;
                for (u32 column = 0; column < size; ++column) {
                    a[column * size + row] -= factor * a[column * size + k];
                }
            }
            __syncwarp();
#pragma unroll
            for (u32 i = 0; i < MOST; ++i) {
                pivots[i] = k == i * WARP_THREADS + own ? pivot : pivots[i];
            }
        }
        // Rows that were exchanged are columns of the inverse.
        for (u32 k = size; k-- > 0;) {
            u32 pivot = 0;
#pragma unroll
            for (u32 i = 0; i < MOST; ++i) {
                pivot = k / WARP_THREADS == i ? pivots[i] : pivot;
            }
            pivot = __shfl_sync(ALL_LANES, pivot, k % WARP_THREADS);
            for (u32 row = own; row < size && pivot != k; row += WARP_THREADS) {
                const V other = a[k * size + row];
                a[k * size + row] = a[pivot * size + row];
                a[pivot * size + row] = other;
            }
            __syncwarp();
        }
        return false;
    }

    // z = M v, for all to read.
    __device__ __forceinline__ void apply(const V* v) {
        if constexpr (BLOCKS) {
            Threads::sync();
            own_rows([&](u32 row) {
                const u64* const head = reinterpret_cast<const u64*>(task.words) + u64(row) * 2;
                const u64 block = load(head);
                const u32 first = u32(block), size = u32(block >> 32);
                const V* entry = factors + u32(load(head + 1)) + (row - first);
                V sum = 0;
#pragma unroll 4
                for (u32 k = 0; k < size; ++k) {
                    sum += *entry * v[first + k];
                    entry += size;
                }
                z[row] = sum;
            });
            Threads::sync();
        } else {
            own_rows([&](u32 row) { z[row] = v[row]; });
            Threads::sync();
            const V* const f = factors;
            run_program<1>([&](V& sum, u32 left, u32 right) { sum += f[left] * z[right]; },
                           [&](u32 place, u32 factor, V sum) {
                               V value = z[place] - sum;
                               if (factor != NO_SOURCE) {
                                   value *= f[factor];
                               }
                               z[place] = value;
                           });
        }
    }

    // Sends for the values of the item.
    __device__ __forceinline__ void fetch() {
        if constexpr (SHARES_VALUES) {
            const V* const values = item_values();
            for (u32 k = lane; k < task.nnz; k += GROUP) {
                cp_async_value(own_values + k, values + k);
            }
        }
    }

    __device__ __forceinline__ static void wait_for_values() {
        if constexpr (SHARES_VALUES) {
            cp_async_wait_all();
        }
        Threads::sync();
    }

    // Brings kept factors into place; whether there are none.
    __device__ __forceinline__ bool take_kept() {
        const u32 number = (task.flags & FACTORED_ONE_KEPT) != 0 ? 0 : item;
        V* const kept = task.kept + u64(number) * (u64(task.nfactors) + 1);
        if constexpr (SHARES_FACTORS) {
            for (u32 k = lane; k <= task.nfactors; k += GROUP) {
                factors[k] = load(kept + k);
            }
            Threads::sync();
        } else {
            factors = kept;
        }
        return load(task.refused + number) != 0;
    }

    // Makes the factors of the item and keeps them.
    __device__ __forceinline__ void keep() {
        V* const kept = task.kept + u64(item) * (u64(task.nfactors) + 1);
        if constexpr (!SHARES_FACTORS) {
            factors = kept;
        }
        wait_for_values();
        const bool bad = factorise();
        if constexpr (SHARES_FACTORS) {
            for (u32 k = lane; k <= task.nfactors; k += GROUP) {
                kept[k] = factors[k];
            }
        }
        if (lane == 0) {
            task.refused[item] = u8(bad);
        }
    }

    // What the system starts from: z and the true residual of it in r.
    __device__ __forceinline__ void enter(V* r) {
        const V* const b = own_b();
        rhs_norm = norm([&](u32 row) { return double(load(b + row)); });
        const double rel_tol =
            task.rel_tols == nullptr ? task.rel_tol : load(task.rel_tols + system);
        threshold = task.abs_tols == nullptr ? task.abs_tol : load(task.abs_tols + system);
        threshold = maximum(threshold, rel_tol * rhs_norm);
        limit =
            task.max_iters_each == nullptr ? task.max_iters : load(task.max_iters_each + system);
        iteration = restarts = 0;
        const int exponent = exponent_of(rhs_norm);
        constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
        const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
        scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
        square = V(threshold * power_of_two(-scale));
        square *= square;
        const bool guesses = (task.flags & FACTORED_GUESS) != 0 && rhs_norm != 0;
        bool moved = false;
        own_rows([&](u32 row) {
            const V start = guesses ? own_x()[row] : V(0);
            z[row] = start;
            moved = moved || start != V(0);
        });
        moved = Threads::any_thread(moved);
        wait_for_values();
        // From x = 0 the residual is b; A x is still computed where it alone decides, since A may
        // hold NaN.
        if (!moved && !(rhs_norm <= threshold) && is_finite(rhs_norm)) {
            own_rows([&](u32 row) { r[row] = load(b + row); });
            residual = rhs_norm;
        } else {
            find_residual(r);
        }
    }

    // r = b - A z and its norm, NaN where it is not finite.
    __device__ __forceinline__ void find_residual(V* r) {
        const V* const b = own_b();
        // The sum of the products first: products that cancel must not absorb b.
        own_rows([&](u32 row) { r[row] = load(b + row) - times_z(row); });
        const double found = norm([&](u32 row) { return double(r[row]); });
        residual = is_finite(found) ? found : found - found;
    }

    // || |A||z| + |b| ||, the size of what cancels in the residual.
    __device__ __forceinline__ double size() const {
        return norm([&](u32 row) {
            double sum = magnitude(double(load(own_b() + row)));
            entries(row, [&](V value, u32 column) {
                sum += magnitude(double(value)) * magnitude(double(z[column]));
            });
            return sum;
        });
    }

    // What becomes of a system by its true residual: RUNNING, or its status.
    __device__ __forceinline__ u32 judge(bool fresh, u32 stop, bool& by_floor) {
        by_floor = false;
        bool accepted = residual <= threshold;
        if (fresh) {
            if (residual != residual || !is_finite(rhs_norm)) {
                residual = __longlong_as_double(0x7ff8000000000000ll);
                return NON_FINITE;
            }
            return accepted ? CONVERGED : limit == 0 ? MAX_ITERATIONS : RUNNING;
        }
        if (!accepted && task.floor >= 0) {
            by_floor = residual <= task.floor * Precision<V>::EPSILON * size();
            accepted = by_floor;
        }
        if (accepted) {
            return CONVERGED;
        }
        if (residual != residual) {
            return NON_FINITE;
        }
        const bool may_restart = restarts < task.max_restarts && iteration < limit;
        const bool retries = RETRIES && stop >= BREAKDOWN_RHO && stop <= BREAKDOWN_ALPHA;
        if (may_restart && (stop == PASSED || retries)) {
            ++restarts;
            return RUNNING;
        }
        return stop != PASSED ? stop : iteration < limit ? STAGNATED : MAX_ITERATIONS;
    }

    __device__ __forceinline__ static u32 unless_lost(V value, u32 status) {
        return is_finite(value) ? status : NON_FINITE;
    }

    // The whole solve of a system.
    __device__ __forceinline__ void solve() {
        V* const x = vector(0);
        V* const r = vector(1);
        if (lane == 0) {
            z[task.nrows] = 0;
        }
        enter(r);
        u32 stop = RUNNING, status;
        bool by_floor;
        for (bool fresh = true;; fresh = false) {
            status = judge(fresh, stop, by_floor);
            if (status != RUNNING) {
                break;
            }
            const V down = V(power_of_two(-scale)), up = V(power_of_two(scale));
            own_rows([&](u32 row) {
                // Adding 0 leaves no -0.
                x[row] = fresh ? z[row] * down + V(0) : x[row];
                r[row] *= down;
            });
            stop = RUNNING;
            if (fresh) {
                const bool kept = (task.flags & FACTORED_KEPT) != 0;
                if (kept ? take_kept() : factorise()) {
                    stop = SINGULAR_PRECONDITIONER;
                }
            }
            if (stop == RUNNING) {
                stop = self().begin();
            }
            while (stop == RUNNING) {
                stop = self().iterate();
            }
            // The iterate as it is returned, for all to read.
            Threads::sync();
            own_rows([&](u32 row) { z[row] = x[row] * up; });
            Threads::sync();
            find_residual(r);
        }
        own_rows([&](u32 row) { own_x()[row] = z[row]; });
        if (lane == 0) {
            task.statuses[system] = u8(status);
            task.iterations[system] = iteration;
            task.restarts[system] = restarts << 1 | by_floor;
            task.residual_norms[system] = residual;
            task.rhs_norms[system] = rhs_norm;
        }
    }

    __device__ __forceinline__ void run() {
        for (;;) {
            // Nobody reads the values of the system before any more.
            Threads::sync();
            system = Threads::take(true, task.queue, scratch);
            if (system >= task.nsystems) {
                return;
            }
            item = task.nrhs == 1 ? system : system / task.nrhs;
            fetch();
            if ((task.flags & FACTORED_KEEP) != 0) {
                keep();
            } else {
                solve();
            }
        }
    }

    // The last block to find the queue empty leaves it as it was.
    __device__ __forceinline__ static void leave(u32* queue) {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            if (atomicAdd(queue + 1, 1u) == gridDim.x - 1) {
                queue[0] = 0;
                queue[1] = 0;
            }
        }
    }
};
