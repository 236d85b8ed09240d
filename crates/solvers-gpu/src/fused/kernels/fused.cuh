// Shared by CG and BiCGStab for whole systems: norms that neither overflow nor underflow, and how a
// system begins and ends. The queue is in fused_queue.cuh; storage and the product are in
// fused_system.cuh.
//
// Common to all instances:
// - GROUP threads (times PARTS), a power of two, solve one system at a time and take the next one
//   from a queue. Where GROUP <= 32 several groups may share a warp, and the warps of a block are
//   independent; else a block is a group. Groups without a system to iterate on stand still until
//   their warp is done.
// - Thread `lane` of a group owns the rows in the slots j*GROUP + lane, j < ROWS, and holds their
//   parts of the vectors in registers: row j*GROUP + lane, or with NEAR row lane*ROWS + j, so that
//   operands of neighbouring rows are mostly in the thread's own registers. The operand of a
//   product is in shared memory, slot by slot, followed by a 0 that the columns of padding point
//   to.
// - CLUSTER: each block of a group holds the operand and the values of its own threads' slots;
//   products read from the other blocks too. A block owns contiguous rows: one per thread for each
//   slice of the pattern that has rows.
// - PLACE says where the values are: in registers, WIDTH per row; in shared memory, where each
//   thread reads those of its own rows only; or in global memory, read in each iteration. Where
//   WIDTH is not 0 the columns are in registers, two in a word, except for the first places of each
//   row: the diagonal and, with NEAR, the rows before and after. Padding there multiplies 0 by an
//   operand of the system; if that is not finite the system ends in any case. True residuals leave
//   padding out, unless MIXED.
// - Values for registers, and b, are copied to shared memory while the group still solves the
//   previous system; where MIXED, which keeps them there, after that.
// - The order of sums depends only on GROUP, ROWS and the order of the pattern's entries: results
//   are bitwise repeatable, whatever the neighbours and the order of threads.
// - A system ends by the rules of the CPU's solvers, on the true residual; if the recurrence let it
//   pass too early, it restarts.
// - Where MIXED, iterations in W reduce the residual of V by INNER_REDUCTION. Then their correction
//   is added to the solution; the true residual is computed in V, scaled to about 1 and rounded to
//   W; and the method continues, with its previous direction if it is known to profit from that. b
//   and the values stay unrounded in shared memory. A residual that takes many iterations need not
//   be reduced as far, since CG loses its way in W. Systems that take too many iterations, whose
//   residual does not come down, or that do not converge for any other reason are left to the next
//   launch, which decides how they end.
// - Traffic of a system: its values, b twice (MIXED: once), x once (twice with a guess), 25 B of
//   outcome.
#pragma once

#include "fused_system.cuh"

// MIXED, as factors of the residual: the target of a round of iterations in W, after which the
// residual is recomputed; the smallest target of a last round; the largest result that another
// round may follow. The smaller the targets, the more iterations CG takes in f32, since it loses
// its way the further it goes: 68.7 instead of 62.3 on lap2d 256 with 1e-5 and 1e-5.
constexpr double INNER_REDUCTION = 2e-5;
constexpr double INNER_LAST = 4.5e-6;
constexpr double INNER_PROGRESS = 0.25;
// A round of INNER_PATIENCE iterations must reduce the residual by INNER_BEGINNING, else it is
// given up; after twice as many iterations INNER_LENIENCE times the target is enough.
constexpr u32 INNER_PATIENCE = 32;
constexpr double INNER_BEGINNING = 0.1;
constexpr double INNER_LENIENCE = 100;

// `Method` is the derived class. It has iterate(), begin_at_rest(), weight(j), and begin_from(),
// which finds the sum of weight(j) over the rows in `rho`. RETRIES: a breakdown leads to a restart.
template <typename Method, typename Shape, bool RETRIES>
struct FusedGroup : FusedSystem<Shape> {
    using System = FusedSystem<Shape>;
    using System::System;
    using System::ask;
    using System::ask_for_notes;
    using System::asked;
    using System::behind;
    using System::entries;
    using System::fetch;
    using System::in_queue;
    using System::IS_CLUSTER;
    using System::JACOBI;
    using System::KEEPS_COLUMNS;
    using System::KEEPS_VALUES;
    using System::kept;
    using System::lane;
    using System::LEFT;
    using System::member;
    using System::MIXED;
    using System::NEAR;
    using System::next;
    using System::NOTES;
    using System::nrows;
    using System::number;
    using System::of_row;
    using System::operand;
    using System::operand_of;
    using System::own_place;
    using System::part;
    using System::PARTS;
    using System::place_in_vectors;
    using System::place_in_vectors_of;
    using System::row;
    using System::ROWS;
    using System::scratch;
    using System::send_for_next;
    using System::slot;
    using System::slot_of;
    using System::solution;
    using System::system;
    using System::take_b;
    using System::task;
    using System::TEAM;
    using System::turn_to;
    using System::WIDTH;
    using typename System::Threads;
    using typename System::V;
    using typename System::W;

    W x[ROWS], r[ROWS], m[JACOBI ? ROWS : 1]; // MIXED: x since the last true residual
    u32 stop = VACANT, iteration = 0, restarts = 0;
    u32 until = 0; // iteration limit; MIXED: of this round
    int scale = 0; // the group works on b * 2^-scale; MIXED: on the residual * 2^-scale
    W rho = 1, beta = 0, square = 0;
    double threshold = 0, rhs_norm = 0, squares = 0;
    double last = 0; // MIXED: norm of the last true residual
    bool is_late = false;

    __device__ __forceinline__ Method& self() { return static_cast<Method&>(*this); }

    // Sets all vectors to 0, which iterations of the neighbours leave at 0.
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

    // sqrt(sum value(j)^2) over the group, UNROLL values at a time: NaN if a value is NaN, infinite
    // if one is. `sum` receives the unscaled sum. No spurious overflow or underflow; where MIXED
    // these set `lost` instead, and the iterations give the system up.
    template <u32 UNROLL = ROWS, typename Value>
    __device__ __forceinline__ double norm(bool wanted, Value value, double& sum, bool& lost) const {
        sum = 0;
#pragma unroll UNROLL
        for (u32 j = 0; j < ROWS; ++j) {
            sum += value(j) * value(j);
        }
        sum = sum_apart<Threads>(sum, scratch);
        const bool lossy = wanted && !(sum >= 1e-280 && sum < 1e280);
        if (!Threads::any(lossy)) {
            return __dsqrt_rn(sum);
        }
        if constexpr (MIXED) {
            bool some = false;
#pragma unroll UNROLL
            for (u32 j = 0; j < ROWS; ++j) {
                some = some || value(j) != 0;
            }
            lost = (Threads::any_thread(some, scratch) && lossy) || lost;
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
        scaled = __dsqrt_rn(sum_apart<Threads>(scaled, scratch)) * power_of_two(exponent);
        if (!lossy || sum != sum) {
            return __dsqrt_rn(sum);
        }
        return most == 0 || !is_finite(most) ? most : scaled;
    }

    __device__ __forceinline__ bool is_due() const { return stop < IDLE; }

    __device__ __forceinline__ bool are_guesses() const {
        return MAY_GUESS && (task.flags & FUSED_GUESS) != 0;
    }

    __device__ __forceinline__ bool has_floor() const { return MAY_HAVE_FLOOR && task.limits.floor >= 0; }

    __device__ __forceinline__ W preconditioned(u32 j, W value) const {
        if constexpr (JACOBI) {
            return m[j] * value;
        } else {
            return value;
        }
    }

    // The sum over own rows, as two alternating sums.
    template <typename Value>
    __device__ __forceinline__ static W sum_of(Value value) {
        W sums[2] = {};
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            sums[j % 2] += value(j);
        }
        return sums[0] + sums[1];
    }

    __device__ __forceinline__ static u32 unless_lost(W value, u32 status) {
        return is_finite(value) ? status : NON_FINITE;
    }

    // Whether a stopped system may restart, provided that restarts and iterations are left.
    __device__ __forceinline__ bool can_begin_again() const {
        return stop == PASSED ||
               (RETRIES && stop >= BREAKDOWN_RHO && stop <= BREAKDOWN_ALPHA);
    }

    // Iteration limit of the current system, as requested.
    __device__ __forceinline__ u32 asked_limit() const {
        return task.limits.iterations(system);
    }

    // The same limit, from a register if it is there.
    __device__ __forceinline__ u32 limit() const { return MIXED ? asked_limit() : until; }

    // What happens at iteration `until` with squared residual `rr`. Where MIXED: if the residual
    // has begun to fall, as many iterations again, after which a less reduced residual passes.
    __device__ __forceinline__ u32 after_many(W rr) {
        if constexpr (MIXED) {
            if (is_late) {
                return rr <= W(INNER_LENIENCE * INNER_LENIENCE) * square ? PASSED : MAX_ITERATIONS;
            }
            if (iteration < limit() && rr <= W(INNER_BEGINNING * INNER_BEGINNING)) {
                is_late = true;
                until = minimum(limit(), iteration + INNER_PATIENCE);
                return RUNNING;
            }
        }
        return MAX_ITERATIONS;
    }

    // Judges stopped systems by their true residual; groups without a system take the next, which
    // is judged too.
    __device__ __forceinline__ void examine() {
        const bool wanted = stop == VACANT;
        bool fresh = false, lost = false;
        V b[ROWS];
        // The true residual: where MIXED it replaces b, which is staged in shared memory.
        const auto exact = [&](u32 j) -> V& {
            if constexpr (MIXED) {
                return b[j];
            } else {
                return r[j];
            }
        };
        if constexpr (!MIXED) {
            if (is_due() && !wanted) {
                take_b(b);
            }
        }
        ask(is_due());
        if (Threads::any(wanted)) {
            fresh = wanted && next < task.nsystems;
            if constexpr (MIXED) {
                if constexpr (NOTES) {
                    cp_async_wait_all();
                    Threads::sync();
                }
                if (fresh) {
                    send_for_next();
                }
            }
            if constexpr (KEEPS_VALUES) {
                cp_async_wait_all();
                Threads::sync();
            }
            if (fresh) {
                turn_to(next);
                fetch(b);
            } else if (wanted) {
                stop = IDLE;
                stand_still();
            }
            const u32 then = Threads::of_first(behind, scratch);
            if (fresh) {
                next = in_queue(then);
                asked = false;
                ask_for_notes();
                if constexpr (KEEPS_VALUES && !MIXED) {
                    send_for_next();
                }
            }
        }
        const bool due = is_due();
        if (Threads::any(fresh)) {
            double sum;
            const double norm_of_b = norm(fresh, [&](u32 j) { return double(b[j]); }, sum, lost);
            rhs_norm = fresh ? norm_of_b : rhs_norm;
            squares = fresh ? sum : squares;
        }

        // The iterate as returned, for all threads to read.
        const bool guesses = are_guesses();
        const V up = V(power_of_two(scale));
        bool moved = false;
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            if (due) {
                V value = fresh ? V(0) : V(x[j]) * up;
                if constexpr (MIXED) {
                    value += fresh ? V(0) : solution[own_place(j)];
                }
                if (guesses && fresh && rhs_norm != 0 && row(j, lane) < nrows()) {
                    value = task.x[place_in_vectors(j)];
                }
                if (part == 0) {
                    solution[own_place(j)] = value;
                }
                moved = moved || value != V(0);
            }
        }
        if constexpr (PARTS > 1) {
            Threads::sync();
        }
        if (guesses) {
            moved = Threads::any_thread(moved, scratch);
        }
        if (fresh) {
            threshold = task.limits.threshold(system, rhs_norm);
            if constexpr (!MIXED) {
                until = asked_limit();
            }
            iteration = restarts = 0;
        }
        // From x = 0 the residual is b. A x is still computed where the system would end at once,
        // since A may hold NaN.
        const bool is_b =
            fresh && !moved && !(rhs_norm <= threshold) && is_finite(rhs_norm);
        double residual = rhs_norm;
        if (!MIXED && due && is_b) {
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                exact(j) = b[j];
            }
        }
        if (Threads::any(due && !is_b)) {
            Threads::sync();
            if constexpr (MIXED) {
                V product[ROWS];
                this->multiply_unrounded(product);
#pragma unroll
                for (u32 j = 0; j < ROWS; ++j) {
                    b[j] = due && !is_b ? this->waiting_b(j) - product[j] : b[j];
                }
            } else {
#pragma unroll
                for (u32 j = 0; j < ROWS; ++j) {
                    // Products are summed first: large ones that cancel must not absorb b.
                    V sum = 0;
                    entries(j, [&](V value, const V* at) { sum += value * *at; });
                    sum = of_row(sum);
                    if (due && !is_b) {
                        r[j] = b[j] - sum;
                    }
                }
            }
            double sum;
            const double computed =
                norm(due && !is_b, [&](u32 j) { return double(exact(j)); }, sum, lost);
            residual = is_b ? residual : computed;
            squares = due && !is_b ? sum : squares;
        }
        residual = is_finite(residual) ? residual : residual - residual;
        bool accepted = residual <= threshold;
        bool by_floor = false;
        // If less than 1 / INNER_PROGRESS is missing, any decrease counts as progress.
        const double progress = last * INNER_PROGRESS;
        const bool holds =
            MIXED && (residual <= progress || (residual < last && progress <= threshold));
        if (has_floor() && Threads::any(due && !fresh && !accepted && !holds)) {
            const auto size_of = [&](u32 j, double own) {
                entries(j, [&](V value, const V* at) {
                    own += magnitude(double(value)) * magnitude(double(*at));
                });
                return of_row(own);
            };
            double sum, size;
            if constexpr (MIXED) {
                const auto row_size = [&](u32 j) { return size_of(j, magnitude(this->waiting_b(j))); };
                size = norm<1>(due, row_size, sum, lost);
            } else {
                double sizes[ROWS];
#pragma unroll
                for (u32 j = 0; j < ROWS; ++j) {
                    sizes[j] = size_of(j, part == 0 ? magnitude(double(b[j])) : 0);
                }
                size = norm(due, [&](u32 j) { return sizes[j]; }, sum, lost);
            }
            by_floor = !fresh && !accepted && !holds &&
                       residual <= task.limits.floor * Precision<V>::EPSILON * size;
            accepted = accepted || by_floor;
        }

        const bool may_restart =
            (MIXED ? holds : restarts < task.limits.max_restarts) && iteration < limit();
        u32 status = RUNNING;
        if (MIXED && due && lost) {
            status = NON_FINITE;
        } else if (!due || (fresh && is_finite(rhs_norm) && residual > threshold && limit() > 0)) {
            // Continues.
        } else if (accepted && (!fresh || is_finite(rhs_norm))) {
            status = CONVERGED;
        } else if (residual != residual || !is_finite(rhs_norm)) {
            status = NON_FINITE;
            residual = fresh ? __longlong_as_double(0x7ff8000000000000ll) : residual;
        } else if (fresh) {
            status = MAX_ITERATIONS;
        } else if (may_restart && can_begin_again()) {
            // Restarts from the current iterate.
        } else if (stop == PASSED) {
            status = iteration < limit() ? STAGNATED : MAX_ITERATIONS;
        } else {
            status = stop;
        }

        const bool ends = due && status != RUNNING;
        if ((NEAR || PARTS > 1) && Threads::any(ends)) {
            Threads::sync();
        }
        if (MIXED && ends && status != CONVERGED) {
            if (member == 0) {
                task.left[1 + atomicAdd(task.left, 1u)] = number;
            }
            stop = VACANT;
        } else if (ends) {
            if constexpr (IS_CLUSTER) {
                // Each thread has the solution of its own rows in its block.
#pragma unroll
                for (u32 j = 0; j < ROWS; ++j) {
                    if (row(j, lane) < nrows()) {
                        task.x[place_in_vectors(j)] = solution[own_place(j)];
                    }
                }
            } else {
                for (u32 at = member; at < nrows(); at += TEAM) {
                    task.x[place_in_vectors_of(at)] = solution[slot_of(at)];
                }
            }
            if (member == 0) {
                task.outcomes.record(system, status, iteration, restarts, by_floor, residual,
                                     rhs_norm);
            }
            stop = VACANT;
        }
        if ((NEAR || PARTS > 1) && Threads::any(ends)) {
            Threads::sync();
        }
        begin(due && status == RUNNING, fresh, residual, exact);
    }

    // Starts, or restarts, from the true residual just computed.
    template <typename Exact>
    __device__ __forceinline__ void begin(bool starting, bool fresh, double residual, Exact exact) {
        fresh = fresh && starting;
        const int before = scale;
        if constexpr (MIXED) {
            if (starting) {
                scale = exponent_of(residual);
                last = residual;
                const bool is_last = residual * INNER_LAST <= threshold;
                const double aim = is_last ? threshold : residual * INNER_REDUCTION;
                square = W(aim * power_of_two(-scale));
                square *= square;
                until = minimum(limit(), iteration + INNER_PATIENCE);
                is_late = false;
            }
        } else if (fresh) {
            const int exponent = exponent_of(rhs_norm);
            constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
            const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
            scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
            square = W(threshold * power_of_two(-scale));
            square *= square;
        }
        const V down = V(power_of_two(-scale));
        bool missing = false;
        W weighted = 0;
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            if (fresh) {
                if constexpr (!MIXED) {
                    // Adding 0 turns -0 into 0.
                    x[j] = are_guesses() ? operand[own_place(j)] * down + V(0) : V(0);
                }
                if constexpr (JACOBI) {
                    W diagonal = 0;
                    if constexpr (KEEPS_COLUMNS) {
                        diagonal = kept(j * WIDTH);
                    } else {
                        entries(j, [&](V value, const V* at) {
                            diagonal = at == operand_of(slot(j, lane)) ? value : diagonal;
                        });
                        diagonal = of_row(diagonal);
                    }
                    const bool none = diagonal == W(0) && row(j, lane) < nrows();
                    missing = missing || (none && (task.flags & FUSED_LENIENT) == 0);
                    m[j] = diagonal == W(0) ? W(1) : W(1) / diagonal;
                }
            }
            if (starting) {
                r[j] = W(exact(j) * down);
                if constexpr (MIXED) {
                    x[j] = 0;
                }
            }
            weighted += self().weight(j);
        }
        if constexpr (JACOBI) {
            missing = Threads::any_thread(missing, scratch);
        }
        // r'r is known from the norm, unless it is weighted or scaled.
        const bool is_known = Method::WEIGHTS_ARE_SQUARES && !MIXED && scale == 0;
        if (Threads::any(starting && !is_known)) {
            weighted = sum_apart<Threads>(weighted, scratch);
        }
        if (!starting) {
            return;
        }
        weighted = is_known ? W(squares) : weighted;
        if constexpr (MIXED) {
            if constexpr (Method::GOES_ON) {
                if (!fresh) {
                    self().go_on(weighted, W(power_of_two(before - scale)));
                    stop = RUNNING;
                    return;
                }
            }
        } else {
            restarts += fresh ? 0 : 1;
        }
        beta = 0;
        rho = weighted;
        self().begin_at_rest();
        stop = fresh && missing ? ZERO_DIAGONAL : self().begin_from(fresh);
    }

    __device__ __forceinline__ void run() {
        stand_still();
        if constexpr (KEEPS_VALUES && !MIXED) {
            send_for_next();
        }
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

    // The last block to leave resets the queue to zeros.
    __device__ __forceinline__ void leave() const {
        if ((LEFT || System::are_more_than_groups(task.nsystems)) && threadIdx.x == 0) {
            __threadfence();
            if (atomicAdd(task.queue + 1, 1u) == gridDim.x - 1) {
                task.queue[0] = 0;
                task.queue[1] = 0;
                if constexpr (LEFT) {
                    task.left[0] = 0;
                }
            }
        }
    }
};

// Solves systems with the groups of one block.
template <typename Group, typename V>
__device__ __forceinline__ void solve_all(const FusedTask<V>& task, u8* shared, double* scratch) {
    if constexpr (Group::LEFT) {
        wait_for_launches_ahead();
        if (task.left[0] == 0) {
            return;
        }
    }
    Group own(task, shared, shared + threadIdx.x / Group::TEAM * Group::bytes(task.stored), scratch);
    if constexpr (Group::IS_CLUSTER) {
        cluster_sync(); // all blocks have begun
    }
    own.run();
    own.leave();
    if constexpr (Group::IS_CLUSTER) {
        cluster_sync(); // no block reads another's shared memory from here on
    }
}
