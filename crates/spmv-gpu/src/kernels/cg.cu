// Whole solves by conjugate gradients, a group of threads a system, all in one launch: Hestenes and
// Stiefel 1952 (doi 10.6028/jres.049.044), batched in one kernel as in Aggarwal, Kashi, Nayak, Anzt
// 2021 (doi 10.1109/ScalA54577.2021.00010).
//
//   r = b - A x, z = M r, p = z, rho = r'z
//   alpha = rho / p'Ap, x += alpha p, r -= alpha Ap, beta = r'z / rho, rho = r'z, p = z + beta p
//
// M is the identity or the inverse of the diagonal (JACOBI). A system ends by the rules of the CPU's
// solvers, on the residual recomputed from x; one that the recurrence let pass too early starts again.
//
// Common to all instances:
// - GROUP threads, a power of two, have a system at a time and take the next one from a queue. Those
//   of a warp share it where GROUP <= 32, and a block's warps know nothing of each other; else a
//   block is a group. What has ended or found no system stands still until its warp is through.
// - Thread `lane` of a group owns the rows j*GROUP + lane, j below ROWS. Their x, r, p (and M) are in
//   registers. p is also in shared memory, with a 0 behind it that the columns of padding point to.
// - PLACE says where the values are: in registers, WIDTH a row; copied to shared memory, where each
//   thread reads those of its own rows alone; or read from global memory in each iteration.
// - Sums have an order that depends on GROUP and ROWS alone: bitwise repeatable, whatever the
//   neighbours and the order of threads.
// - An iteration has three barriers where a group is a block, and else none but of the warp.
// - Traffic of a system: its values, b twice, x once (twice with a guess), 25 B of outcome.
//
// Arguments: nrows <= GROUP*ROWS, nsystems + groups of the launch < 2^32, nrhs >= 1. The pattern is in
// slices of GROUP rows: place starts[j] + k*GROUP + lane of `columns` is entry k of row j*GROUP + lane,
// or GROUP*ROWS where it has none, starts[ROWS] is the length, and firsts[row] its first entry in CSR,
// for all GROUP*ROWS rows. In registers each slice is WIDTH wide. System s has the values from
// s/nrhs*value_stride on, in the order of CSR, and `nrows` values of b and of x from s*nrows on.
// Arrays of limits and tolerances are null or hold one a system. `queue` holds two zeros, and does so
// again at the end. Blocks of GROUP threads, at least 32; any grid. Shared
// memory: for each group GROUP*ROWS + 1 values, and starts[ROWS] more where they are kept there.

#include "solver.cuh"

constexpr u32 CG_REGISTERS = 0;
constexpr u32 CG_SHARED = 1;
constexpr u32 CG_GLOBAL = 2;

// Bits of `flags`: x holds guesses; a zero in the diagonal counts as 1.
constexpr u32 CG_GUESS = 1;
constexpr u32 CG_LENIENT = 2;

template <typename V>
struct CgTask {
    u32 nsystems, nrows, nrhs;
    const u32* starts;
    const u32* firsts;
    const u16* columns;
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

template <typename V, u32 GROUP, u32 ROWS, u32 WIDTH, u32 PLACE, bool JACOBI>
struct CgGroup {
    using Threads = Team<GROUP>;
    static constexpr bool IN_REGISTERS = PLACE == CG_REGISTERS;
    static constexpr u32 NONE = GROUP * ROWS;
    static constexpr u32 KEPT = IN_REGISTERS ? ROWS * WIDTH : 1;

    const CgTask<V>& task;
    const u8* const shared_memory;
    V* const operand;
    V* const staged;
    double* const scratch;
    const u32 lane;

    V a[KEPT];
    u32 places[(KEPT + 1) / 2]; // where the columns are in shared memory, in bytes, two in a word
    u32 starts[IN_REGISTERS ? 1 : ROWS + 1];
    V x[ROWS], r[ROWS], p[ROWS], m[JACOBI ? ROWS : 1];
    u32 system = 0, stop = VACANT, iteration = 0, limit = 0, restarts = 0;
    int scale = 0; // the group works on b * 2^-scale
    V rho = 1, beta = 0, square = 0;
    double threshold = 0, rhs_norm = 0;

    __device__ __forceinline__ CgGroup(const CgTask<V>& all, const u8* memory, V* own,
                                       double* partials)
        : task(all), shared_memory(memory), operand(own), staged(own + NONE + 1),
          scratch(partials), lane(threadIdx.x % GROUP) {
        if constexpr (IN_REGISTERS) {
            constexpr u32 GROUPS = GROUP < WARP_THREADS ? WARP_THREADS / GROUP : 1;
            static_assert(GROUPS * (NONE + 1) * sizeof(V) <= 0x10000, "places have 16 bits");
            const u32 first = u32(reinterpret_cast<const u8*>(own) - memory);
            const auto place_of = [&](u32 k) {
                return first + load(task.columns + k * GROUP + lane) * u32(sizeof(V));
            };
#pragma unroll
            for (u32 k = 0; k < KEPT; k += 2) {
                places[k / 2] = place_of(k) | (k + 1 < KEPT ? place_of(k + 1) << 16 : 0);
            }
        } else {
#pragma unroll
            for (u32 j = 0; j <= ROWS; ++j) {
                starts[j] = load(task.starts + j);
            }
        }
        stand_still();
        if (lane == 0) {
            operand[NONE] = 0;
        }
    }

    __device__ __forceinline__ static u32 row(u32 j, u32 lane) { return j * GROUP + lane; }

    // Zeros stay zeros through the iterations of the neighbours.
    __device__ __forceinline__ void stand_still() {
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            x[j] = r[j] = p[j] = 0;
            if constexpr (JACOBI) {
                m[j] = 1;
            }
        }
        rho = 1;
        beta = 0;
    }

    __device__ __forceinline__ const V* own_values() const {
        const u64 item = task.nrhs == 1 ? system : system / task.nrhs;
        return task.values + item * task.value_stride;
    }

    // Where the operand of entry k, in registers, is.
    __device__ __forceinline__ const V* place(u32 k) const {
        return reinterpret_cast<const V*>(shared_memory +
                                          (places[k / 2] >> k % 2 * 16 & 0xffffu));
    }

    // Keeps the compiler from unpacking the places ahead of the iterations, into twice the registers.
    __device__ __forceinline__ void keep_packed() {
#if !defined(SPARSEBATCH_EMU)
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (u32 k = 0; k < (KEPT + 1) / 2; ++k) {
                asm volatile("" : "+r"(places[k]));
            }
        }
#endif
    }

    // Calls visit(value, place of the operand) for the entries of own row j, and for padding: value
    // 0, and the place that holds 0.
    template <typename Visit>
    __device__ __forceinline__ void entries(u32 j, Visit visit) const {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (u32 k = j * WIDTH; k < (j + 1) * WIDTH; ++k) {
                visit(a[k], place(k));
            }
        } else if constexpr (PLACE == CG_SHARED) {
#pragma unroll 4
            for (u32 place = starts[j] + lane; place < starts[j + 1]; place += GROUP) {
                visit(staged[place], operand + load(task.columns + place));
            }
        } else {
            const V* value = own_values() + load(task.firsts + row(j, lane));
#pragma unroll 4
            for (u32 place = starts[j] + lane; place < starts[j + 1]; place += GROUP, ++value) {
                const u32 column = load(task.columns + place);
                visit(column == NONE ? V(0) : load(value), operand + column);
            }
        }
    }

    __device__ __forceinline__ V product(u32 j) const {
        V sum = 0;
        entries(j, [&](V value, const V* at) { sum += value * *at; });
        return sum;
    }

    // Brings the values of the system to where they are kept.
    __device__ __forceinline__ void fetch() {
        const V* const values = own_values();
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            const V* const value = values + load(task.firsts + row(j, lane));
            if constexpr (IN_REGISTERS) {
#pragma unroll
                for (u32 k = 0; k < WIDTH; ++k) {
                    const bool is_entry = place(j * WIDTH + k) != operand + NONE;
                    a[j * WIDTH + k] = is_entry ? load(value + k) : V(0);
                }
            } else if constexpr (PLACE == CG_SHARED) {
                u32 k = 0;
                for (u32 place = starts[j] + lane; place < starts[j + 1]; place += GROUP, ++k) {
                    if (load(task.columns + place) == NONE) {
                        staged[place] = 0;
                    } else {
                        cp_async_value(staged + place, value + k);
                    }
                }
            }
        }
        if constexpr (PLACE == CG_SHARED) {
            cp_async_wait_all();
        }
    }

    // sqrt(sum value(j)^2) over the group without spurious overflow or underflow: NaN when a value
    // is NaN, infinite when one is.
    template <typename Value>
    __device__ __forceinline__ double norm(bool wanted, Value value) const {
        double sum = 0;
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            sum += value(j) * value(j);
        }
        sum = Threads::sum_apart(sum, scratch);
        const bool lossy = wanted && !(sum >= 1e-280 && sum < 1e280);
        if (!Threads::any(lossy)) {
            return __dsqrt_rn(sum);
        }
        double most = 0;
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            most = maximum(most, magnitude(value(j)));
        }
        most = Threads::largest(most, scratch);
        const int exponent = exponent_of(most);
        double scaled = 0;
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            const double part = value(j) * power_of_two(-exponent);
            scaled += part * part;
        }
        scaled = __dsqrt_rn(Threads::sum_apart(scaled, scratch)) * power_of_two(exponent);
        if (!lossy || sum != sum) {
            return __dsqrt_rn(sum);
        }
        return most == 0 || !is_finite(most) ? most : scaled;
    }

    __device__ __forceinline__ bool is_due() const { return stop != RUNNING && stop != IDLE; }

    // One iteration of all groups of the team; the systems that stop say why.
    __device__ __forceinline__ void iterate() {
        keep_packed();
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            p[j] = beta * p[j] + preconditioned(j);
            operand[row(j, lane)] = p[j];
        }
        Threads::sync();
        V ap[ROWS];
        V curvature[1] = {0};
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            ap[j] = product(j);
            curvature[0] += ap[j] * p[j];
        }
        Threads::template sum<0>(curvature, scratch);
        const bool bad = !(V(0) < curvature[0]);
        const V alpha = bad ? V(0) : rho / curvature[0];
        V sums[JACOBI ? 2 : 1] = {};
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            x[j] += alpha * p[j];
            r[j] -= alpha * ap[j];
            sums[0] += r[j] * r[j];
            if constexpr (JACOBI) {
                sums[1] += m[j] * r[j] * r[j];
            }
        }
        Threads::template sum<1>(sums, scratch);
        const V rr = sums[0], rz = sums[JACOBI ? 1 : 0];
        ++iteration;
        if (stop != RUNNING) {
            return;
        }
        const bool passed = rr <= square && !bad;
        const bool lost = !(rr <= Precision<V>::LARGEST);
        const bool broken = !(V(0) < rz);
        if (passed || lost || bad || broken || iteration >= limit) {
            stop = passed   ? PASSED
                   : lost   ? NON_FINITE
                   : bad    ? unless_lost(curvature[0], INDEFINITE)
                   : broken ? BREAKDOWN_RHO
                            : MAX_ITERATIONS;
        }
        beta = rz / rho;
        rho = rz;
    }

    __device__ __forceinline__ V preconditioned(u32 j) const {
        if constexpr (JACOBI) {
            return m[j] * r[j];
        } else {
            return r[j];
        }
    }

    __device__ __forceinline__ static u32 unless_lost(V value, u32 status) {
        return is_finite(value) ? status : NON_FINITE;
    }

    // Judges the systems that stopped, by their true residual, and those that groups take instead.
    __device__ __forceinline__ void examine() {
        const bool wanted = stop == VACANT;
        bool fresh = false;
        if (Threads::any(wanted)) {
            const u32 number = Threads::take(wanted, task.queue, scratch);
            fresh = wanted && number < task.nsystems;
            if (fresh) {
                system = number;
                fetch();
            } else if (wanted) {
                stop = IDLE;
                stand_still();
            }
        }
        const bool due = is_due();
        const V* const b = task.b + u64(system) * task.nrows;
        V* const x_out = task.x + u64(system) * task.nrows;
        const auto b_at = [&](u32 j) {
            return row(j, lane) < task.nrows ? load(b + row(j, lane)) : V(0);
        };
        if (Threads::any(fresh)) {
            const double norm_of_b = norm(fresh, [&](u32 j) { return double(b_at(j)); });
            rhs_norm = fresh ? norm_of_b : rhs_norm;
        }

        // The iterate as it is returned, for all to read.
        const V up = V(power_of_two(scale));
        bool moved = false;
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            if (due) {
                const bool guessed = fresh && (task.flags & CG_GUESS) != 0 && rhs_norm != 0 &&
                                     row(j, lane) < task.nrows;
                const V start = guessed ? x_out[row(j, lane)] : V(0);
                const V value = fresh ? start : x[j] * up;
                operand[row(j, lane)] = value;
                moved = moved || value != V(0);
            }
        }
        moved = Threads::any_thread(moved);
        if (fresh) {
            const double rel_tol =
                task.rel_tols == nullptr ? task.rel_tol : load(task.rel_tols + system);
            threshold = task.abs_tols == nullptr ? task.abs_tol : load(task.abs_tols + system);
            threshold = maximum(threshold, rel_tol * rhs_norm);
            limit = task.max_iters_each == nullptr ? task.max_iters
                                                   : load(task.max_iters_each + system);
            iteration = restarts = 0;
        }
        // From x = 0 the residual is b; A x is still computed where it alone decides, since A may
        // hold NaN.
        const bool is_b =
            fresh && !moved && !(rhs_norm <= threshold) && is_finite(rhs_norm);
        Threads::sync();
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            // The sum of the products first: products that cancel must not absorb b.
            const V sum = product(j);
            if (due) {
                r[j] = is_b ? b_at(j) : b_at(j) - sum;
            }
        }
        double residual = norm(due, [&](u32 j) { return double(r[j]); });
        residual = is_finite(residual) ? residual : residual - residual;
        bool accepted = residual <= threshold;
        bool by_floor = false;
        if (task.floor >= 0 && Threads::any(due && !fresh && !accepted)) {
            double sizes[ROWS];
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                sizes[j] = magnitude(double(b_at(j)));
                entries(j, [&](V value, const V* at) {
                    sizes[j] += magnitude(double(value)) * magnitude(double(*at));
                });
            }
            const double size = norm(due, [&](u32 j) { return sizes[j]; });
            by_floor = !fresh && !accepted &&
                       residual <= task.floor * Precision<V>::EPSILON * size;
            accepted = accepted || by_floor;
        }

        const bool may_restart = restarts < task.max_restarts && iteration < limit;
        u32 status = RUNNING;
        if (!due || (fresh && is_finite(rhs_norm) && residual > threshold && limit > 0)) {
            // Goes on.
        } else if (accepted && (!fresh || is_finite(rhs_norm))) {
            status = CONVERGED;
        } else if (residual != residual || !is_finite(rhs_norm)) {
            status = NON_FINITE;
            residual = fresh ? __longlong_as_double(0x7ff8000000000000ll) : residual;
        } else if (fresh) {
            status = MAX_ITERATIONS;
        } else if (stop == PASSED) {
            status = may_restart ? RUNNING : iteration < limit ? STAGNATED : MAX_ITERATIONS;
        } else {
            status = stop;
        }

        if (due && status != RUNNING) {
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                if (row(j, lane) < task.nrows) {
                    x_out[row(j, lane)] = operand[row(j, lane)];
                }
            }
            if (lane == 0) {
                task.statuses[system] = u8(status);
                task.iterations[system] = iteration;
                task.restarts[system] = restarts << 1 | by_floor;
                task.residual_norms[system] = residual;
                task.rhs_norms[system] = rhs_norm;
            }
            stop = VACANT;
        }
        begin(due && status == RUNNING, fresh);
    }

    // Starts, or starts again, from the residual that was just computed.
    __device__ __forceinline__ void begin(bool starting, bool fresh) {
        fresh = fresh && starting;
        if (fresh) {
            const int exponent = exponent_of(rhs_norm);
            constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
            const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
            scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
            square = V(threshold * power_of_two(-scale));
            square *= square;
        }
        const V down = V(power_of_two(-scale));
        bool missing = false;
        V weighted = 0;
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            if (fresh) {
                // Adding 0 leaves no -0.
                x[j] = operand[row(j, lane)] * down + V(0);
                if constexpr (JACOBI) {
                    V diagonal = 0;
                    entries(j, [&](V value, const V* at) {
                        diagonal = at == operand + row(j, lane) ? value : diagonal;
                    });
                    const bool none = diagonal == V(0) && row(j, lane) < task.nrows;
                    missing = missing || (none && (task.flags & CG_LENIENT) == 0);
                    m[j] = diagonal == V(0) ? V(1) : V(1) / diagonal;
                }
            }
            if (starting) {
                r[j] *= down;
                p[j] = 0;
            }
            weighted += preconditioned(j) * r[j];
        }
        if constexpr (JACOBI) {
            missing = Threads::any_thread(missing);
        }
        weighted = Threads::sum_apart(weighted, scratch);
        if (!starting) {
            return;
        }
        restarts += fresh ? 0 : 1;
        beta = 0;
        rho = weighted;
        stop = RUNNING;
        if (fresh && missing) {
            stop = ZERO_DIAGONAL;
        } else if (fresh && !(V(0) < rho)) {
            stop = unless_lost(rho, BREAKDOWN_RHO);
        }
    }

    __device__ __forceinline__ void run() {
        for (;;) {
            if (Threads::any(is_due())) {
                do {
                    examine();
                } while (Threads::any(is_due()));
                if (!Threads::any(stop == RUNNING)) {
                    return;
                }
            }
            iterate();
        }
    }
};

// Threads of a block, and blocks that a multiprocessor shall hold: what an iteration keeps in
// registers, and 48 more. What is done once a system makes do with that.
template <typename V, u32 GROUP, u32 ROWS, u32 WIDTH, bool JACOBI>
struct CgBounds {
    static constexpr u32 THREADS = GROUP > WARP_THREADS ? GROUP : WARP_THREADS;
    static constexpr u32 WORDS = sizeof(V) / 4 * ROWS * (WIDTH + 4 + JACOBI);
    static constexpr u32 KEPT = WORDS + (ROWS * WIDTH + 1) / 2 + 48;
    static constexpr u32 FIT = 65536 / (THREADS * (KEPT < 255 ? KEPT : 255));
    static constexpr u32 BLOCKS = FIT < 1 ? 1 : FIT;
};

template <typename V, u32 GROUP, u32 ROWS, u32 WIDTH, u32 PLACE, bool JACOBI>
__global__ void __launch_bounds__(CgBounds<V, GROUP, ROWS, WIDTH, JACOBI>::THREADS,
                                  CgBounds<V, GROUP, ROWS, WIDTH, JACOBI>::BLOCKS)
    cg(u32 nsystems, u32 nrows, u32 nrhs, const u32* __restrict__ starts,
       const u32* __restrict__ firsts, const u16* __restrict__ columns,
       const V* __restrict__ values, u64 value_stride, const V* __restrict__ b,
       V* __restrict__ x, u32 flags, double rel_tol, const double* __restrict__ rel_tols,
       double abs_tol, const double* __restrict__ abs_tols, u32 max_iters,
       const u32* __restrict__ max_iters_each, u32 max_restarts, double floor, u32* queue,
       u8* __restrict__ statuses, u32* __restrict__ iterations, u32* __restrict__ restarts,
       double* __restrict__ residual_norms, double* __restrict__ rhs_norms) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    __shared__ double scratch[Team<GROUP>::SCRATCH];

    const CgTask<V> task{nsystems,  nrows,   nrhs,     starts,         firsts,       columns,
                         values,    value_stride,      b,              x,            flags,
                         rel_tol,   rel_tols, abs_tol, abs_tols,       max_iters,    max_iters_each,
                         max_restarts, floor, queue,   statuses,       iterations,   restarts,
                         residual_norms, rhs_norms};
    const u32 stored = PLACE == CG_SHARED ? load(starts + ROWS) : 0;
    V* const shared = reinterpret_cast<V*>(dynamic_shared);
    const u32 group = threadIdx.x / GROUP;
    CgGroup<V, GROUP, ROWS, WIDTH, PLACE, JACOBI> own(
        task, dynamic_shared, shared + group * (GROUP * ROWS + 1 + stored), scratch);
    own.run();

    // The last block to find the queue empty leaves it as it was.
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(queue + 1, 1u) == gridDim.x - 1) {
            queue[0] = 0;
            queue[1] = 0;
        }
    }
}
