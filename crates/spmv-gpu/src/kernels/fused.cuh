// What CG and BiCGStab of whole systems share: where a system's numbers are, its product, norms that
// neither overflow nor underflow, and how it begins and ends.
//
// Common to all instances:
// - GROUP threads, a power of two, have a system at a time and take the next one from a queue. Those
//   of a warp share it where GROUP <= 32, and a block's warps know nothing of each other; else a
//   block is a group. What has ended or found no system stands still until its warp is through.
// - Thread `lane` of a group owns the rows j*GROUP + lane, j below ROWS, whose parts of the vectors
//   it has in registers. The operand of a product is in shared memory, with a 0 behind it that the
//   columns of padding point to.
// - PLACE says where the values are: in registers, WIDTH a row; copied to shared memory, where each
//   thread reads those of its own rows alone; or read from global memory in each iteration. Where
//   WIDTH is not 0 the columns are in registers, two in a word.
// - Sums have an order that depends on GROUP and ROWS and the order of the pattern's entries alone:
//   bitwise repeatable, whatever the neighbours and the order of threads.
// - A system ends by the rules of the CPU's solvers, on the residual recomputed from x; one that the
//   recurrence let pass too early starts again.
// - Traffic of a system: its values, b twice, x once (twice with a guess), 25 B of outcome.
#pragma once

#include "fused_task.cuh"

// `Method` is the class that inherits: it has iterate(), begin_at_rest() and weight(j), whose sum over
// the rows it gets as begin_from(). RETRIES: a breakdown is got over by starting again.
template <typename Method, typename Shape, bool RETRIES>
struct FusedGroup : Shape {
    using V = typename Shape::V;
    using Shape::GROUP;
    using Shape::JACOBI;
    using Shape::KEEPS_COLUMNS;
    using Shape::KEEPS_VALUES;
    using Shape::NONE;
    using Shape::PLACE;
    using Shape::ROWS;
    using Shape::SCATTERED;
    using Shape::VECTORS;
    using Shape::WIDTH;
    using Threads = Team<GROUP>;
    static constexpr u32 KEPT = KEEPS_COLUMNS ? ROWS * WIDTH : 1;

    const FusedTask<V>& task;
    const u8* const shared_memory;
    V* const operand;
    V* const staged;
    double* const scratch;
    const u32 lane;

    V a[KEEPS_VALUES ? KEPT : 1];
    u32 places[(KEPT + 1) / 2]; // where the columns are in shared memory, in bytes, two in a word
    u32 starts[KEEPS_COLUMNS ? 1 : ROWS + 1];
    V x[ROWS], r[ROWS], m[JACOBI ? ROWS : 1];
    u32 system = 0, stop = VACANT, iteration = 0, limit = 0, restarts = 0;
    int scale = 0; // the group works on b * 2^-scale
    V rho = 1, beta = 0, square = 0;
    double threshold = 0, rhs_norm = 0;
    // Of the system at hand where they are SCATTERED; of the first pattern before there is one.
    u32 own_rows = 0, pattern = 0;
    u64 first_value = 0, first_row = 0, first_place = 0;

    __device__ __forceinline__ FusedGroup(const FusedTask<V>& all, const u8* memory, V* own,
                                          double* partials)
        : task(all), shared_memory(memory), operand(own), staged(own + VECTORS * (NONE + 1)),
          scratch(partials), lane(threadIdx.x % GROUP) {
        if constexpr (KEEPS_COLUMNS) {
            constexpr u32 GROUPS = GROUP < WARP_THREADS ? WARP_THREADS / GROUP : 1;
            constexpr u32 VALUES = VECTORS * (NONE + 1) + (PLACE == IN_SHARED ? KEPT * GROUP : 0);
            static_assert(((GROUPS - 1) * VALUES + NONE + 1) * sizeof(V) <= 0x10000,
                          "places have 16 bits");
        }
        if constexpr (SCATTERED) {
            size_up();
        }
        take_pattern();
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
            if (lane == 0) {
                operand[v * (NONE + 1) + NONE] = 0;
            }
        }
    }

    __device__ __forceinline__ Method& self() { return static_cast<Method&>(*this); }

    __device__ __forceinline__ static u32 row(u32 j, u32 lane) { return j * GROUP + lane; }

    __device__ __forceinline__ u32 nrows() const {
        if constexpr (SCATTERED) {
            return own_rows;
        } else {
            return task.nrows;
        }
    }

    // Brings the columns, or where the slices are, to registers.
    __device__ __forceinline__ void take_pattern() {
        if constexpr (KEEPS_COLUMNS) {
            const u32 first = u32(reinterpret_cast<const u8*>(operand) - shared_memory);
            const u16* const columns = own_columns();
            const auto place_of = [&](u32 k) {
                return first + load(columns + k * GROUP + lane) * u32(sizeof(V));
            };
#pragma unroll
            for (u32 k = 0; k < KEPT; k += 2) {
                places[k / 2] = place_of(k) | (k + 1 < KEPT ? place_of(k + 1) << 16 : 0);
            }
        } else {
            const u32* const own = SCATTERED ? task.starts + pattern * (ROWS + 1) : task.starts;
#pragma unroll
            for (u32 j = 0; j <= ROWS; ++j) {
                starts[j] = load(own + j);
            }
        }
    }

    __device__ __forceinline__ const u16* own_columns() const {
        return SCATTERED ? task.columns + first_place : task.columns;
    }

    __device__ __forceinline__ u32 first_entry(u32 j) const {
        const u32* const firsts = SCATTERED ? task.firsts + u64(pattern) * NONE : task.firsts;
        return load(firsts + row(j, lane));
    }

    __device__ __forceinline__ void size_up() {
        const u64* const words = task.patterns + u64(pattern) * PATTERN_WORDS;
        own_rows = u32(load(words));
        first_place = load(words + 1);
    }

    // Where the group finds system `number` of the queue.
    __device__ __forceinline__ void locate(u32 number) {
        if constexpr (SCATTERED) {
            const u32 index = task.nrhs == 1 ? number : number / task.nrhs;
            const u32 rhs = number - index * task.nrhs;
            const u64* const item = task.items + u64(index) * ITEM_WORDS;
            const u64 word = load(item);
            const u32 next = u32(word >> 32);
            if (next != pattern) {
                pattern = next;
                size_up();
                take_pattern();
            }
            system = u32(word) * task.nrhs + rhs;
            first_value = load(item + 1) * task.value_stride;
            first_row = load(item + 2) + u64(rhs) * own_rows * task.row_step;
        } else {
            system = number;
        }
    }

    // Zeros stay zeros through the iterations of the neighbours.
    __device__ __forceinline__ void stand_still() {
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            x[j] = r[j] = 0;
            if constexpr (JACOBI) {
                m[j] = 1;
            }
        }
        rho = 1;
        beta = 0;
        self().begin_at_rest();
    }

    __device__ __forceinline__ const V* own_values() const {
        if constexpr (SCATTERED) {
            return task.values + first_value;
        } else {
            const u64 item = task.nrhs == 1 ? system : system / task.nrhs;
            return task.values + item * task.value_stride;
        }
    }

    // Entries on from the first, in values.
    __device__ __forceinline__ u64 value_step() const { return SCATTERED ? task.value_step : 1; }

    // Where own row j is in b and x.
    __device__ __forceinline__ u64 place_in_vectors(u32 j) const {
        if constexpr (SCATTERED) {
            return first_row + row(j, lane) * task.row_step;
        } else {
            return u64(system) * task.nrows + row(j, lane);
        }
    }

    __device__ __forceinline__ V b_at(u32 j) const {
        return row(j, lane) < nrows() ? load(task.b + place_in_vectors(j)) : V(0);
    }

    // Where the operand of entry k is, columns being in registers.
    __device__ __forceinline__ const V* place(u32 k) const {
        return reinterpret_cast<const V*>(shared_memory +
                                          (places[k / 2] >> k % 2 * 16 & 0xffffu));
    }

    // Keeps the compiler from unpacking the places ahead of the iterations, into twice the registers.
    __device__ __forceinline__ void keep_packed() {
#if !defined(SPARSEBATCH_EMU)
        if constexpr (KEEPS_COLUMNS) {
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
        if constexpr (KEEPS_COLUMNS) {
#pragma unroll
            for (u32 k = j * WIDTH; k < (j + 1) * WIDTH; ++k) {
                visit(KEEPS_VALUES ? a[KEEPS_VALUES ? k : 0] : staged[k * GROUP + lane], place(k));
            }
        } else if constexpr (PLACE == IN_SHARED) {
            const u16* const columns = own_columns();
#pragma unroll 4
            for (u32 place = starts[j] + lane; place < starts[j + 1]; place += GROUP) {
                visit(staged[place], operand + load(columns + place));
            }
        } else {
            const u16* const columns = own_columns();
            const V* value = own_values() + first_entry(j) * value_step();
#pragma unroll 4
            for (u32 place = starts[j] + lane; place < starts[j + 1]; place += GROUP) {
                const u32 column = load(columns + place);
                visit(column == NONE ? V(0) : load(value), operand + column);
                value += value_step();
            }
        }
    }

    // Own row j of A times the vector number OPERAND in shared memory.
    template <u32 OPERAND = 0>
    __device__ __forceinline__ V product(u32 j) const {
        V sum = 0;
        entries(j, [&](V value, const V* at) { sum += value * at[OPERAND * (NONE + 1)]; });
        return sum;
    }

    // Brings the values of the system to where they are kept.
    __device__ __forceinline__ void fetch() {
        if constexpr (PLACE != IN_GLOBAL) {
            const V* const values = own_values();
            const u16* const order = SCATTERED ? task.order + first_place : task.order;
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                const u32 first = first_entry(j);
                const auto value = [&](u32 place) {
                    return values + (first + load(order + place)) * value_step();
                };
                if constexpr (KEEPS_COLUMNS) {
#pragma unroll
                    for (u32 k = j * WIDTH; k < (j + 1) * WIDTH; ++k) {
                        const bool is_entry = place(k) != operand + NONE;
                        if constexpr (KEEPS_VALUES) {
                            a[k] = is_entry ? load(value(k * GROUP + lane)) : V(0);
                        } else if (is_entry) {
                            cp_async_value(staged + k * GROUP + lane, value(k * GROUP + lane));
                        } else {
                            staged[k * GROUP + lane] = 0;
                        }
                    }
                } else {
                    const u16* const columns = own_columns();
                    for (u32 place = starts[j] + lane; place < starts[j + 1]; place += GROUP) {
                        if (load(columns + place) == NONE) {
                            staged[place] = 0;
                        } else {
                            cp_async_value(staged + place, value(place));
                        }
                    }
                }
            }
        }
        if constexpr (PLACE == IN_SHARED) {
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

    __device__ __forceinline__ V preconditioned(u32 j, V value) const {
        if constexpr (JACOBI) {
            return m[j] * value;
        } else {
            return value;
        }
    }

    __device__ __forceinline__ static u32 unless_lost(V value, u32 status) {
        return is_finite(value) ? status : NON_FINITE;
    }

    // Whether a system that stopped may begin again, restarts and iterations being left.
    __device__ __forceinline__ bool can_begin_again() const {
        return stop == PASSED ||
               (RETRIES && stop >= BREAKDOWN_RHO && stop <= BREAKDOWN_ALPHA);
    }

    // Judges the systems that stopped, by their true residual, and those that groups take instead.
    __device__ __forceinline__ void examine() {
        const bool wanted = stop == VACANT;
        bool fresh = false;
        if (Threads::any(wanted)) {
            const u32 number = Threads::take(wanted, task.queue, scratch);
            fresh = wanted && number < task.nsystems;
            if (fresh) {
                locate(number);
                fetch();
            } else if (wanted) {
                stop = IDLE;
                stand_still();
            }
        }
        const bool due = is_due();
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
                const bool guessed = fresh && (task.flags & FUSED_GUESS) != 0 && rhs_norm != 0 &&
                                     row(j, lane) < nrows();
                const V start = guessed ? task.x[place_in_vectors(j)] : V(0);
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
        } else if (may_restart && can_begin_again()) {
            // Goes on from here.
        } else if (stop == PASSED) {
            status = iteration < limit ? STAGNATED : MAX_ITERATIONS;
        } else {
            status = stop;
        }

        if (due && status != RUNNING) {
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                if (row(j, lane) < nrows()) {
                    task.x[place_in_vectors(j)] = operand[row(j, lane)];
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
                    const bool none = diagonal == V(0) && row(j, lane) < nrows();
                    missing = missing || (none && (task.flags & FUSED_LENIENT) == 0);
                    m[j] = diagonal == V(0) ? V(1) : V(1) / diagonal;
                }
            }
            if (starting) {
                r[j] *= down;
            }
            weighted += self().weight(j);
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
        self().begin_at_rest();
        stop = fresh && missing ? ZERO_DIAGONAL : self().begin_from(fresh);
    }

    __device__ __forceinline__ void run() {
        stand_still();
        for (;;) {
            if (Threads::any(is_due())) {
                do {
                    examine();
                } while (Threads::any(is_due()));
                if (!Threads::any(stop == RUNNING)) {
                    return;
                }
            }
            self().iterate();
        }
    }

    // The last block to find the queue empty leaves it as it was.
    __device__ __forceinline__ static void leave(u32* queue) {
        if (threadIdx.x == 0) {
            __threadfence();
            if (atomicAdd(queue + 1, 1u) == gridDim.x - 1) {
                queue[0] = 0;
                queue[1] = 0;
            }
        }
    }
};
