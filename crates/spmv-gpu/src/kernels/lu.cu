// Whole solves by sparse LU without pivoting, a block for `count` systems at a time, all in one launch:
// factorisation on a filled pattern as sums of products (Crout), forward and backward substitution,
// and refinement from the true residual (Wilkinson 1963; Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd ed. 2002, chapter 12).
//
//   r = b - A x0;  P A P^T = L U;  repeat: x += P^T U^-1 L^-1 P r, r = b - A x
//
// A system ends by the rules of the CPU's solvers, on the residual recomputed from x; one that does
// not pass is refined again while restarts and iterations are left. A pivot of zero or NaN ends it.
//
// Common to all instances:
// - A lane has one system throughout: there are no sums over lanes. The systems of a block stand side
//   by side in shared memory, value by value, and all do the same: a warp works on 32 / count targets
//   (entries of L + U, of the solution) at a time, each for all systems. One that has ended goes along
//   until the others have, and changes no more.
// - Which warp computes what, and when, is in the program, which all blocks read through the caches.
//   The products of a target are subtracted one by one in an order that the pattern alone decides:
//   bitwise repeatable, whatever the warps, the systems side by side, the neighbours and the order of
//   threads.
// - The factors take the place of A's values, which are fetched again, mostly from L2, for the
//   residual: a refinement factors again.
// - Traffic of a system: its values twice and more, b once and more, x once (twice with a guess), 25 B
//   of outcome.
//
// Arguments: `nsystems` + blocks of the launch * count < 2^32, nrhs >= 1, 1 <= count <= 32. `words`
// holds the records of programs.cuh for each warp; those of warp w begin at starts[w] for the
// elimination, at starts[WARPS + w] for the residual. A block has `nplaces` places of `count` values,
// numbered in steps of `count`: from `y` on the `nrows` of the right-hand side in the order of
// elimination, which become those of x; then those of the residual in the order of the matrix; last a
// 0. targets[e] is the place of entry e of A, targets[nnz..ntargets] are those of fill. perm[k] is the
// row that is eliminated k-th. System s has the nnz values from s/nrhs*value_stride on, in the order of
// CSR, and `nrows` values of b and of x from s*nrows on. Arrays of limits and tolerances are null or
// hold one a system. `queue` holds two zeros, and does so again at the end. Blocks of GROUP threads;
// any grid. Shared memory: nplaces * count values, and after them, from the next multiple of 8 bytes
// on, (CHAINS + 1) * count doubles.

#include "solver.cuh"
#include "programs.cuh"

constexpr u32 SINGULAR = 9;

// A bit of `flags`: x holds guesses.
constexpr u32 LU_GUESS = 1;

// Norms are made of so many sums, whatever the threads.
constexpr u32 CHAINS = 16;

template <typename V>
struct LuTask {
    u32 nsystems, count, nrows, nrhs, nnz;
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

// One thread's part in the solves of its block.
template <typename V, u32 GROUP>
struct LuBlock {
    using Threads = Team<GROUP>;
    static constexpr u32 WARPS = GROUP / WARP_THREADS;

    const LuTask<V>& task;
    const u32 count;
    const u32 lane, slots, slot, member; // member: which of the systems side by side
    const u32 worker, workers;
    const bool works;
    V* const places;
    V* const y;
    V* const r;
    double* const scratch;

    u32 first = 0;
    u32 state; // RUNNING, or IDLE: it has ended, or there is none
    u32 iteration, limit, restarts;
    int scale; // it is solved for r * 2^-scale
    double threshold, rhs_norm, residual;

    __device__ __forceinline__ LuBlock(const LuTask<V>& all, V* shared)
        : task(all), count(all.count), lane(threadIdx.x % WARP_THREADS),
          slots(WARP_THREADS / count), slot(lane / count), member(lane % count),
          worker(threadIdx.x / WARP_THREADS * slots + slot), workers(WARPS * slots),
          works(slot < slots), places(shared), y(shared + all.y * count),
          r(y + all.nrows * count),
          scratch(reinterpret_cast<double*>(
              shared + (all.nplaces * count * sizeof(V) + 7) / 8 * 8 / sizeof(V))) {}

    // The number of a system; that of the last one where there is none.
    __device__ __forceinline__ u32 number(u32 i) const {
        return minimum(first + i, task.nsystems - 1);
    }

    __device__ __forceinline__ bool runs() const { return state == RUNNING; }

    // The sum over the rows of part(row), the same in all threads that have the system.
    template <typename Part>
    __device__ __forceinline__ double sum_over_rows(Part part) {
        if (works) {
            for (u32 chain = worker; chain < CHAINS; chain += workers) {
                double sum = 0;
                for (u32 row = chain; row < task.nrows; row += CHAINS) {
                    sum += part(double(r[row * count + member]));
                }
                scratch[chain * count + member] = sum;
            }
        }
        Threads::sync();
        double sum = 0;
#pragma unroll
        for (u32 chain = 0; chain < CHAINS; ++chain) {
            sum += scratch[chain * count + member];
        }
        Threads::sync();
        return sum;
    }

    // The norm of r without spurious overflow or underflow: NaN when a value is NaN, infinite when
    // one is.
    __device__ __forceinline__ double norm() {
        const double sum = sum_over_rows([](double value) { return value * value; });
        const bool lossy = !(sum >= 1e-280 && sum < 1e280);
        if (!Threads::any_thread(lossy)) {
            return __dsqrt_rn(sum);
        }
        double most = 0;
        for (u32 row = 0; row < task.nrows; ++row) {
            most = maximum(most, magnitude(double(r[row * count + member])));
        }
        const int exponent = most > 0 && is_finite(most) ? exponent_of(most) : 0;
        const double down = power_of_two(-exponent);
        const double scaled = sum_over_rows([&](double value) {
            const double part = value * down;
            return part * part;
        });
        if (!lossy) {
            return __dsqrt_rn(sum);
        }
        if (sum != sum || most == 0 || !is_finite(most)) {
            return sum != sum ? sum : most;
        }
        return __dsqrt_rn(scaled) * power_of_two(exponent);
    }

    // Asks for the values, and clears the places of fill.
    __device__ __forceinline__ void fetch_values() {
        for (u32 k = threadIdx.x; k < task.ntargets; k += GROUP) {
            V* const place = places + load(task.targets + k) * count;
            if (k >= task.nnz) {
                for (u32 i = 0; i < count; ++i) {
                    place[i] = V(0);
                }
            } else if (task.nrhs == 1) {
                const V* from = task.values + first * task.value_stride + k;
                const u32 there = minimum(count, task.nsystems - first);
#pragma unroll 2
                for (u32 i = 0; i < there; ++i, from += task.value_stride) {
                    cp_async_value(place + i, from);
                }
                for (u32 i = there; i < count; ++i) {
                    place[i] = V(0);
                }
            } else {
                for (u32 i = 0; i < count; ++i) {
                    cp_async_value(place + i, task.values +
                                                  number(i) / task.nrhs * task.value_stride + k);
                }
            }
        }
    }

    // Asks for b, which becomes r.
    __device__ __forceinline__ void fetch_b() {
        for (u32 row = threadIdx.x; row < task.nrows; row += GROUP) {
#pragma unroll 2
            for (u32 i = 0; i < count; ++i) {
                cp_async_value(r + row * count + i, task.b + u64(number(i)) * task.nrows + row);
            }
        }
    }

    // y = the guesses, or 0. Guesses for a right-hand side of 0 are not looked at.
    __device__ __forceinline__ void fetch_x() {
        for (u32 k = threadIdx.x; k < task.nrows; k += GROUP) {
            const u32 row = load(task.perm + k);
            for (u32 i = 0; i < count; ++i) {
                y[k * count + i] = (task.flags & LU_GUESS) != 0
                                       ? task.x[u64(number(i)) * task.nrows + row]
                                       : V(0);
            }
        }
    }

    __device__ __forceinline__ void store_x() {
        for (u32 k = threadIdx.x; k < task.nrows; k += GROUP) {
            const u32 row = load(task.perm + k);
            for (u32 i = 0; i < minimum(count, task.nsystems - first); ++i) {
                task.x[u64(first + i) * task.nrows + row] = y[k * count + i];
            }
        }
    }

    // The records of this warp and slot. Lanes that have no slot read those of slot 0.
    __device__ __forceinline__ const u32* program(u32 which) const {
        const u32 warp = threadIdx.x / WARP_THREADS;
        return task.words + load(task.starts + which * WARPS + warp) +
               (works ? slot : 0) * RECORD_WORDS;
    }

    // Where r holds b: b - A x, or |b| + |A||x|, for the lanes that want it.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        const SharedValues<V> own(places + member);
        const u32 zero = (task.nplaces - 1) * count;
        const auto add = [](V sum, V left, V right) {
            if constexpr (MAGNITUDES) {
                return sum + V(magnitude(left)) * V(magnitude(right));
            } else {
                return minus_product(sum, left, right);
            }
        };
        // The sum of the products first: products that cancel must not absorb b.
        V sum = 0;
        run_program<GROUP>(program(1), slots * RECORD_WORDS, [&](const Record& record) {
            if ((record.control() & RECORD_STARTS) != 0) {
                sum = 0;
            }
            sum = add_record(record, own, sum, add, [] {});
            __syncwarp(); // lanes without a slot have read what slot 0 writes
            if ((record.control() & RECORD_ENDS) != 0 && record.target() != zero && works &&
                wanted) {
                const V b = own.get(record.target());
                own.set(record.target(), (MAGNITUDES ? V(magnitude(b)) : b) + sum);
            }
        });
        Threads::sync();
    }

    // Factors, and solves with y. Whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        const SharedValues<V> own(places + member);
        u32* const flags = reinterpret_cast<u32*>(scratch + CHAINS * count);
        for (u32 i = threadIdx.x; i < count; i += GROUP) {
            flags[i] = 0;
        }
        const u32 first_of_y = task.y * count, zero = (task.nplaces - 1) * count;
        bool bad = false;
        const auto add = [](V sum, V left, V right) { return minus_product(sum, left, right); };
        Threads::sync();
        run_program<GROUP>(program(0), slots * RECORD_WORDS, [&](const Record& record) {
            const u32 target = record.target();
            V sum = own.get(target);
            if ((record.control() & RECORD_DIVIDES) != 0) {
                const V by = own.get(record.divisor());
                V inverse;
                sum = add_record(record, own, sum, add, [&] {
                    bool ignored;
                    inverse = reciprocal(by, ignored);
                });
                if (is_moderate(by)) {
                    sum *= inverse;
                } else if (record.divisor() != zero) {
                    // Every pivot divides once in the solution.
                    bad = bad || (target >= first_of_y && !(by < V(0) || V(0) < by));
                    sum /= by;
                }
            } else {
                sum = add_record(record, own, sum, add, [] {});
            }
            __syncwarp(); // as above
            if (target != zero && works) {
                own.set(target, sum);
            }
        });
        if (bad && works) {
            atomicOr(flags + member, 1u);
        }
        Threads::sync();
        return flags[member] != 0;
    }

    // Takes up the systems from `first` on. Their r is b, or b - A x, and `residual` its norm.
    __device__ __forceinline__ void enter() {
        const u32 own = number(member);
        state = first + member < task.nsystems ? RUNNING : IDLE;
        rhs_norm = norm();
        const double rel_tol = task.rel_tols == nullptr ? task.rel_tol : load(task.rel_tols + own);
        threshold = task.abs_tols == nullptr ? task.abs_tol : load(task.abs_tols + own);
        threshold = maximum(threshold, rel_tol * rhs_norm);
        limit = task.max_iters_each == nullptr ? task.max_iters : load(task.max_iters_each + own);
        iteration = restarts = 0;
        const int exponent = exponent_of(rhs_norm);
        constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
        const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
        scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));

        bool moved = false;
        if ((task.flags & LU_GUESS) != 0) {
            for (u32 k = 0; k < task.nrows; ++k) {
                moved = moved || y[k * count + member] != V(0);
            }
            Threads::sync();
            if (rhs_norm == 0 && works && slot == 0 && threadIdx.x < WARP_THREADS) {
                for (u32 k = 0; k < task.nrows; ++k) {
                    y[k * count + member] = V(0);
                }
            }
            moved = moved && rhs_norm != 0;
        }
        // From x = 0 the residual is b; A x is still computed where it alone decides, since A may
        // hold NaN.
        const bool is_b = !moved && !(rhs_norm <= threshold) && is_finite(rhs_norm);
        residual = rhs_norm;
        if (Threads::any_thread(runs() && !is_b)) {
            multiply<false>(!is_b);
            const double found = norm();
            if (!is_b) {
                residual = is_finite(found) ? found : found - found;
            }
        }
    }

    // Ends the systems that are through: `fresh` before the first step, else after one that ended so.
    __device__ __forceinline__ void judge(bool fresh, u32 stop) {
        bool accepted = residual <= threshold, by_floor = false;
        const bool in_doubt = runs() && !fresh && !accepted;
        bool lost = false;
        if (task.floor >= 0 && Threads::any_thread(in_doubt)) {
            lost = true;
            fetch_b();
            cp_async_wait_all();
            Threads::sync();
            multiply<true>(true);
            const double size = norm();
            by_floor = !accepted && residual <= task.floor * Precision<V>::EPSILON * size;
            accepted = accepted || by_floor;
        }
        if (runs()) {
            u32 status = RUNNING;
            if (residual != residual || !is_finite(rhs_norm)) {
                status = NON_FINITE;
                residual = __longlong_as_double(0x7ff8000000000000ll);
            } else if (accepted) {
                status = CONVERGED;
            } else if (fresh) {
                status = limit == 0 ? MAX_ITERATIONS : RUNNING;
            } else if (stop != PASSED) {
                status = stop;
            } else if (restarts < task.max_restarts) {
                ++restarts;
            } else {
                status = STAGNATED;
            }
            if (status != RUNNING) {
                end(status, by_floor && !fresh);
            }
        }
        if (lost && Threads::any_thread(runs())) {
            fetch_b();
            cp_async_wait_all();
            Threads::sync();
            multiply<false>(true);
        }
    }

    __device__ __forceinline__ void end(u32 status, bool by_floor) {
        const u32 own = first + member;
        if (threadIdx.x < count) {
            task.statuses[own] = u8(status);
            task.iterations[own] = iteration;
            task.restarts[own] = restarts << 1 | by_floor;
            task.residual_norms[own] = residual;
            task.rhs_norms[own] = rhs_norm;
        }
        state = IDLE;
    }

    // One factorisation and solve with the residual; how it ended.
    __device__ __forceinline__ u32 step() {
        const V down = V(power_of_two(-scale)), up = V(power_of_two(scale));
        // The residual goes to y, and x from there to r.
        if (works) {
            for (u32 k = worker; k < task.nrows; k += workers) {
                V& before = r[load(task.perm + k) * count + member];
                V& after = y[k * count + member];
                const V x = after;
                after = before * down;
                before = x;
            }
        }
        const bool bad = eliminate();
        iteration += bad ? 0 : 1;
        if (works) {
            for (u32 k = worker; k < task.nrows; k += workers) {
                const V x = r[load(task.perm + k) * count + member];
                V& after = y[k * count + member];
                after = runs() && !bad ? x + after * up : x;
            }
        }
        Threads::sync();
        return bad ? SINGULAR : iteration >= limit ? MAX_ITERATIONS : PASSED;
    }

    __device__ __forceinline__ void run() {
        for (u32 i = threadIdx.x; i < count; i += GROUP) {
            places[(task.nplaces - 1) * count + i] = V(0);
        }
        for (;;) {
            // Nobody reads the values of the systems before any more.
            Threads::sync();
            first = Threads::take(true, task.queue, scratch) * count;
            if (first >= task.nsystems) {
                return;
            }
            fetch_values();
            fetch_b();
            fetch_x();
            cp_async_wait_all();
            Threads::sync();
            enter();
            judge(true, PASSED);
            while (Threads::any_thread(runs())) {
                const u32 stop = step();
                fetch_values();
                fetch_b();
                cp_async_wait_all();
                Threads::sync();
                multiply<false>(true);
                const double found = norm();
                if (runs()) {
                    residual = is_finite(found) ? found : found - found;
                }
                judge(false, stop);
            }
            store_x();
        }
    }
};

// Threads of a multiprocessor, by its registers.
constexpr u32 LU_THREADS = 512;

template <typename V, u32 GROUP>
__global__ void __launch_bounds__(GROUP, LU_THREADS / GROUP)
    lu(u32 nsystems, u32 count, u32 nrows, u32 nrhs, u32 nnz, const u32* __restrict__ words,
       const u32* __restrict__ starts, const u16* __restrict__ targets, u32 ntargets,
       const u16* __restrict__ perm, u32 nplaces, u32 y, const V* __restrict__ values,
       u64 value_stride, const V* __restrict__ b, V* __restrict__ x, u32 flags, double rel_tol,
       const double* __restrict__ rel_tols, double abs_tol, const double* __restrict__ abs_tols,
       u32 max_iters, const u32* __restrict__ max_iters_each, u32 max_restarts, double floor,
       u32* queue, u8* __restrict__ statuses, u32* __restrict__ iterations,
       u32* __restrict__ restarts, double* __restrict__ residual_norms,
       double* __restrict__ rhs_norms) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    const LuTask<V> task{nsystems, count,    nrows,   nrhs,      nnz,        words,
                         starts,   targets,  ntargets, perm,     nplaces,    y,
                         values,   value_stride,      b,         x,          flags,
                         rel_tol,  rel_tols, abs_tol, abs_tols,  max_iters,  max_iters_each,
                         max_restarts,       floor,   queue,     statuses,   iterations,
                         restarts, residual_norms,    rhs_norms};
    LuBlock<V, GROUP> block(task, reinterpret_cast<V*>(dynamic_shared));
    block.run();

    // The last block to find the queue empty leaves it as it was.
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(queue + 1, 1u) == gridDim.x - 1) {
            queue[0] = 0;
            queue[1] = 0;
        }
    }
}
