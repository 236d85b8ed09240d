// Whole solves by sparse LU without pivoting, a group of threads for COUNT systems at a time, all in
// one launch: factorisation on a filled pattern by levels of inner products (Crout), forward and
// backward substitution, and refinement from the true residual (Wilkinson 1963; Higham, Accuracy and
// Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12).
//
//   r = b - A x0;  P A P^T = L U;  repeat: x += P^T U^-1 L^-1 P r, r = b - A x
//
// A system ends by the rules of the CPU's solvers, on the residual recomputed from x; one that does
// not pass is refined again while restarts and iterations are left. A pivot of zero or NaN ends it.
//
// Common to all instances:
// - A group is a block of GROUP threads and takes COUNT systems at a time from a queue. Systems of a
//   group share the words of the schedule and the barriers, no value: one that has ended stands still
//   until the others have.
// - Factors, right-hand side and x are in shared memory, those of the COUNT systems side by side. The
//   schedule is in global memory: all groups read it, through the caches.
// - What is computed by which lane, in which order, is in the schedule: bitwise repeatable, whatever
//   the neighbours and the order of threads.
// - Traffic of a system: its values twice, or more where it is refined more often; b two times and
//   more, x once (twice with a guess), 25 B of outcome.
//
// Arguments: `nsystems` + groups of the launch * COUNT < 2^32, nrhs >= 1. `words` holds the streams of
// factor.cuh for each warp; that of warp w begins at starts[w] for factorisation and first solve, at
// starts[WARPS + w] for a further solve, at starts[2*WARPS + w] for the residual, whose tasks are
// (place | row << 16) and whose pairs (entry of A | place << 16), 65535 for no entry. A group has
// `nplaces` places: the `nrows` of the right-hand side in the order of elimination from place `y` on,
// then those of x, and last a 0; targets[e] is the place of entry e of A, targets[nnz..ntargets] are
// those of fill. perm[k] is the row that is eliminated k-th. System s has the nnz values from
// s/nrhs*value_stride on, in the order of CSR, and `nrows` values of b and of x from s*nrows on. Arrays
// of limits and tolerances are null or hold one a system. `queue` holds two zeros, and does so again at
// the end. Blocks of GROUP threads; any grid. Shared memory: nplaces * COUNT values.

#include "solver.cuh"
#include "factor.cuh"

constexpr u32 SINGULAR = 9;

// A bit of `flags`: x holds guesses.
constexpr u32 LU_GUESS = 1;

template <typename V>
struct LuTask {
    u32 nsystems, nrows, nrhs, nnz;
    const u32* words;
    const u32* starts;
    const u16* targets;
    u32 ntargets;
    const u16* perm;
    u32 nplaces, y;
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

template <typename V, u32 GROUP, u32 COUNT>
struct LuGroup {
    using Threads = Team<GROUP>;
    using Place = Values<V, COUNT>;
    static constexpr u32 WARPS = GROUP / WARP_THREADS;

    const LuTask<V>& task;
    Place* const places;
    Place* const y;
    Place* const x;
    double* const scratch;

    u32 first = 0;
    u32 state[COUNT]; // RUNNING, or IDLE: it has ended, or there is none
    u32 iteration[COUNT], limit[COUNT], restarts[COUNT];
    int scale[COUNT]; // it is solved for r * 2^-scale
    double threshold[COUNT], rhs_norm[COUNT], residual[COUNT];

    __device__ __forceinline__ LuGroup(const LuTask<V>& all, Place* shared, double* partials)
        : task(all), places(shared), y(shared + all.y), x(shared + all.y + all.nrows),
          scratch(partials) {}

    // The number of a system; that of the last one where there is none.
    __device__ __forceinline__ u32 system(u32 i) const {
        return minimum(first + i, task.nsystems - 1);
    }

    // The values of each system.
    struct OwnValues {
        const V* of[COUNT];

        __device__ __forceinline__ explicit OwnValues(const LuGroup& group) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                const u32 number = group.system(i), nrhs = group.task.nrhs;
                const u64 item = nrhs == 1 ? number : number / nrhs;
                of[i] = group.task.values + item * group.task.value_stride;
            }
        }

        // The left operand of a pair; padding is multiplied with 0.
        __device__ __forceinline__ V entry(u32 i, u32 pair) const {
            const u32 k = pair & 0xffffu;
            return k == NO_PLACE ? V(0) : load(of[i] + k);
        }
    };

    __device__ __forceinline__ const V* own_b(u32 i) const {
        return task.b + u64(system(i)) * task.nrows;
    }

    __device__ __forceinline__ V* own_x(u32 i) const {
        return task.x + u64(system(i)) * task.nrows;
    }

    __device__ __forceinline__ const u32* stream(u32 program) const {
        return task.words + load(task.starts + program * WARPS + threadIdx.x / WARP_THREADS);
    }

    __device__ __forceinline__ bool runs(u32 i) const { return state[i] == RUNNING; }

    __device__ __forceinline__ bool any_runs() const {
        bool any = false;
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            any = any || runs(i);
        }
        return any;
    }

    // sqrt(sum value(row)^2) over the rows without spurious overflow or underflow: NaN when a value
    // is NaN, infinite when one is.
    template <typename Value>
    __device__ __forceinline__ double norm(Value value) const {
        double sum = 0;
        for (u32 row = threadIdx.x; row < task.nrows; row += GROUP) {
            sum += value(row) * value(row);
        }
        sum = Threads::sum_apart(sum, scratch);
        if (sum >= 1e-280 && sum < 1e280) {
            return __dsqrt_rn(sum);
        }
        double most = 0;
        for (u32 row = threadIdx.x; row < task.nrows; row += GROUP) {
            most = maximum(most, magnitude(value(row)));
        }
        most = Threads::largest(most, scratch);
        if (sum != sum || most == 0 || !is_finite(most)) {
            return sum != sum ? sum : most;
        }
        const int exponent = exponent_of(most);
        double scaled = 0;
        for (u32 row = threadIdx.x; row < task.nrows; row += GROUP) {
            const double part = value(row) * power_of_two(-exponent);
            scaled += part * part;
        }
        return __dsqrt_rn(Threads::sum_apart(scaled, scratch)) * power_of_two(exponent);
    }

    // Asks for the values, and clears the places of fill.
    __device__ __forceinline__ void fetch() {
        const OwnValues values(*this);
#pragma unroll 4
        for (u32 k = threadIdx.x; k < task.nnz; k += GROUP) {
            Place* const place = places + load(task.targets + k);
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                cp_async_value(place->of + i, values.of[i] + k);
            }
        }
#pragma unroll 4
        for (u32 k = task.nnz + threadIdx.x; k < task.ntargets; k += GROUP) {
            places[load(task.targets + k)] = Place{};
        }
    }

    // Takes up the systems from `first` on, and what they start from; whether their residual is b.
    __device__ __forceinline__ void enter(bool (&is_b)[COUNT]) {
        bool moved[COUNT] = {};
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            const V* const b = own_b(i);
            state[i] = first + i < task.nsystems ? RUNNING : IDLE;
            rhs_norm[i] = norm([&](u32 row) { return double(load(b + row)); });
            const double rel_tol =
                task.rel_tols == nullptr ? task.rel_tol : load(task.rel_tols + system(i));
            threshold[i] = task.abs_tols == nullptr ? task.abs_tol : load(task.abs_tols + system(i));
            threshold[i] = maximum(threshold[i], rel_tol * rhs_norm[i]);
            limit[i] = task.max_iters_each == nullptr ? task.max_iters
                                                      : load(task.max_iters_each + system(i));
            iteration[i] = restarts[i] = 0;
            const int exponent = exponent_of(rhs_norm[i]);
            constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
            const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
            scale[i] = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
        }
        for (u32 row = threadIdx.x; row < task.nrows; row += GROUP) {
            Place start{};
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                if (runs(i) && (task.flags & LU_GUESS) != 0 && rhs_norm[i] != 0) {
                    start.of[i] = own_x(i)[row];
                }
                moved[i] = moved[i] || start.of[i] != V(0);
            }
            x[row] = start;
        }
        // From x = 0 the residual is b; A x is still computed where it alone decides, since A may
        // hold NaN.
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            is_b[i] = !Threads::any_thread(moved[i]) && !(rhs_norm[i] <= threshold[i]) &&
                      is_finite(rhs_norm[i]);
        }
        Threads::sync();
    }

    // Right-hand side and norm: r = b - A x, or b.
    __device__ __forceinline__ void find_residual(const bool (&is_b)[COUNT]) {
        bool all_are_b = true;
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            all_are_b = all_are_b && (is_b[i] || !runs(i));
        }
        if (all_are_b) {
            for (u32 k = threadIdx.x; k < task.nrows; k += GROUP) {
                const u32 row = load(task.perm + k);
#pragma unroll
                for (u32 i = 0; i < COUNT; ++i) {
                    y[k].of[i] = load(own_b(i) + row);
                }
            }
            Threads::sync();
        } else {
            const OwnValues values(*this);
            const auto add = [&](V(&sums)[COUNT], u32 pair) {
                const Place at = places[pair >> 16];
#pragma unroll
                for (u32 i = 0; i < COUNT; ++i) {
                    sums[i] += values.entry(i, pair) * at.of[i];
                }
            };
            const auto finish = [&](u32 word, const V(&sums)[COUNT]) {
                // The sum of the products first: products that cancel must not absorb b.
#pragma unroll
                for (u32 i = 0; i < COUNT; ++i) {
                    const V right = load(own_b(i) + (word >> 16));
                    places[word & 0xffffu].of[i] = is_b[i] ? right : right - sums[i];
                }
            };
            run_stream<V, GROUP, COUNT>(stream(2), add, finish);
        }
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            if (is_b[i]) {
                residual[i] = rhs_norm[i];
            } else if (runs(i)) {
                const double found = norm([&](u32 k) { return double(y[k].of[i]); });
                residual[i] = is_finite(found) ? found : found - found;
            }
        }
    }

    // || |A||x| + |b| ||, the size of what cancels in a residual.
    __device__ __forceinline__ void find_sizes(double (&sizes)[COUNT]) {
        const OwnValues values(*this);
        int exponent[COUNT] = {};
        for (u32 pass = 0; pass < 2; ++pass) {
            double squares[COUNT] = {}, most[COUNT] = {};
            const auto add = [&](double(&sums)[COUNT], u32 pair) {
                const Place at = places[pair >> 16];
#pragma unroll
                for (u32 i = 0; i < COUNT; ++i) {
                    sums[i] += magnitude(double(values.entry(i, pair))) * magnitude(double(at.of[i]));
                }
            };
            const auto finish = [&](u32 word, const double(&sums)[COUNT]) {
#pragma unroll
                for (u32 i = 0; i < COUNT; ++i) {
                    const double size = magnitude(double(load(own_b(i) + (word >> 16)))) + sums[i];
                    const double part = size * power_of_two(-exponent[i]);
                    squares[i] += part * part;
                    most[i] = maximum(most[i], size);
                }
            };
            run_stream<double, GROUP, COUNT>(stream(2), add, finish);
            bool again = false;
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                const double sum = Threads::sum_apart(squares[i], scratch);
                const double largest = Threads::largest(most[i], scratch);
                const bool lossy = !(sum >= 1e-280 && sum < 1e280) && sum == sum &&
                                   largest > 0 && is_finite(largest);
                if (pass == 0) {
                    sizes[i] = __dsqrt_rn(sum);
                    exponent[i] = lossy ? exponent_of(largest) : 0;
                    again = again || lossy;
                } else if (exponent[i] != 0) {
                    sizes[i] = __dsqrt_rn(sum) * power_of_two(exponent[i]);
                }
            }
            if (!again) {
                return;
            }
        }
    }

    // Ends the systems that are through: `fresh` before the first step, else after the one that
    // `stop` tells of.
    __device__ __forceinline__ void judge(bool fresh, const u32 (&stop)[COUNT]) {
        bool accepted[COUNT], by_floor[COUNT] = {};
        bool in_doubt = false;
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            accepted[i] = residual[i] <= threshold[i];
            in_doubt = in_doubt || (runs(i) && !fresh && !accepted[i]);
        }
        if (in_doubt && task.floor >= 0) {
            double sizes[COUNT];
            find_sizes(sizes);
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                by_floor[i] = !accepted[i] &&
                              residual[i] <= task.floor * Precision<V>::EPSILON * sizes[i];
                accepted[i] = accepted[i] || by_floor[i];
            }
        }
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            if (!runs(i)) {
                continue;
            }
            u32 status = RUNNING;
            if (residual[i] != residual[i] || !is_finite(rhs_norm[i])) {
                status = NON_FINITE;
                residual[i] = __longlong_as_double(0x7ff8000000000000ll);
            } else if (accepted[i]) {
                status = CONVERGED;
            } else if (fresh) {
                status = limit[i] == 0 ? MAX_ITERATIONS : RUNNING;
            } else if (stop[i] != PASSED) {
                status = stop[i];
            } else if (restarts[i] < task.max_restarts) {
                ++restarts[i];
            } else {
                status = STAGNATED;
            }
            if (status != RUNNING) {
                end(i, status, by_floor[i]);
            }
        }
    }

    __device__ __forceinline__ void end(u32 i, u32 status, bool by_floor) {
        for (u32 row = threadIdx.x; row < task.nrows; row += GROUP) {
            own_x(i)[row] = x[row].of[i];
        }
        if (threadIdx.x == 0) {
            task.statuses[system(i)] = u8(status);
            task.iterations[system(i)] = iteration[i];
            task.restarts[system(i)] = restarts[i] << 1 | by_floor;
            task.residual_norms[system(i)] = residual[i];
            task.rhs_norms[system(i)] = rhs_norm[i];
        }
        state[i] = IDLE;
    }

    // One solve with the residual of all systems of the group; the first one factors before it.
    __device__ __forceinline__ void step(bool fresh, u32 (&stop)[COUNT]) {
        V down[COUNT], up[COUNT];
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            down[i] = V(power_of_two(-scale[i]));
            up[i] = V(power_of_two(scale[i]));
        }
        for (u32 k = threadIdx.x; k < task.nrows; k += GROUP) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                y[k].of[i] *= down[i];
            }
        }
        if (fresh) {
            cp_async_wait_all();
        }
        Threads::sync();
        bool bad[COUNT] = {};
        eliminate<V, GROUP, COUNT>(stream(fresh ? 0 : 1), places, bad);
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            bad[i] = Threads::any_thread(bad[i]);
            iteration[i] += bad[i] ? 0 : 1;
            stop[i] = bad[i] ? SINGULAR : iteration[i] >= limit[i] ? MAX_ITERATIONS : PASSED;
        }
        for (u32 k = threadIdx.x; k < task.nrows; k += GROUP) {
            const u32 row = load(task.perm + k);
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                if (runs(i) && !bad[i]) {
                    x[row].of[i] += y[k].of[i] * up[i];
                }
            }
        }
        Threads::sync();
    }

    __device__ __forceinline__ void run() {
        if (threadIdx.x == 0) {
            places[task.nplaces - 1] = Place{};
        }
        for (;;) {
            // Nobody reads the values of the systems before any more.
            Threads::sync();
            first = Threads::take(true, task.queue, scratch) * COUNT;
            if (first >= task.nsystems) {
                return;
            }
            fetch();
            bool is_b[COUNT];
            enter(is_b);
            u32 stop[COUNT] = {};
            for (bool fresh = true;; fresh = false) {
                find_residual(is_b);
                judge(fresh, stop);
                if (!any_runs()) {
                    break;
                }
                step(fresh, stop);
#pragma unroll
                for (u32 i = 0; i < COUNT; ++i) {
                    is_b[i] = false;
                }
            }
            cp_async_wait_all();
        }
    }
};

// Threads of a multiprocessor at one system a group: registers for more do not pay, since shared
// memory allows fewer.
constexpr u32 LU_THREADS = 768;

template <typename V, u32 GROUP, u32 COUNT>
__global__ void __launch_bounds__(GROUP, LU_THREADS / COUNT / GROUP)
    lu(u32 nsystems, u32 nrows, u32 nrhs, u32 nnz, const u32* __restrict__ words,
       const u32* __restrict__ starts, const u16* __restrict__ targets, u32 ntargets,
       const u16* __restrict__ perm, u32 nplaces, u32 y, const V* __restrict__ values,
       u64 value_stride, const V* __restrict__ b, V* __restrict__ x, u32 flags, double rel_tol,
       const double* __restrict__ rel_tols, double abs_tol, const double* __restrict__ abs_tols,
       u32 max_iters, const u32* __restrict__ max_iters_each, u32 max_restarts, double floor,
       u32* queue, u8* __restrict__ statuses, u32* __restrict__ iterations,
       u32* __restrict__ restarts, double* __restrict__ residual_norms,
       double* __restrict__ rhs_norms) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    __shared__ double scratch[Team<GROUP>::SCRATCH];

    const LuTask<V> task{nsystems, nrows,    nrhs,    nnz,      words,        starts,
                         targets,  ntargets, perm,    nplaces,  y,            values,
                         value_stride,       b,       x,        flags,        rel_tol,
                         rel_tols, abs_tol,  abs_tols, max_iters, max_iters_each, max_restarts,
                         floor,    queue,    statuses, iterations, restarts,  residual_norms,
                         rhs_norms};
    LuGroup<V, GROUP, COUNT> group(
        task, reinterpret_cast<Values<V, COUNT>*>(dynamic_shared), scratch);
    group.run();

    // The last block to find the queue empty leaves it as it was.
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(queue + 1, 1u) == gridDim.x - 1) {
            queue[0] = 0;
            queue[1] = 0;
        }
    }
}
