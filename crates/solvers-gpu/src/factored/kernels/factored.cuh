// Shared by CG, BiCGStab and refinement with factors: true residuals, and how a system begins and
// ends.
#pragma once

#include "factored_system.cuh"

// `Method` is the derived class: its begin() and iterate() return RUNNING or why the system stops.
// RETRIES: a breakdown leads to a restart.
template <typename Method, typename Shape, bool RETRIES>
struct FactoredGroup : Factored<Shape> {
    using System = Factored<Shape>;
    using System::System;
    using System::entries;
    using System::GROUP;
    using System::item;
    using System::lane;
    using System::own_rows;
    using System::pattern;
    using System::RAGGED;
    using System::scratch;
    using System::task;
    using System::times_z;
    using System::z;
    using typename System::Threads;
    using typename System::V;

    // The status of a system without factors.
    static constexpr u32 NO_FACTORS = SINGULAR_PRECONDITIONER;

    u32 system = 0;
    u32 iteration = 0, limit = 0, restarts = 0;
    int scale = 0; // the recurrence works on b * 2^-scale
    V square = 0;  // squared threshold, scaled
    double threshold = 0, rhs_norm = 0, residual = 0;

    __device__ __forceinline__ Method& self() { return static_cast<Method&>(*this); }

    // Where the rows of the system begin in b and x.
    __device__ __forceinline__ u64 own_begin() const {
        if constexpr (RAGGED) {
            return this->first_row + u64(system - item * task.nrhs) * pattern.nrows;
        }
        return u64(system) * pattern.nrows;
    }

    __device__ __forceinline__ const V* own_b() const { return task.b + own_begin(); }

    __device__ __forceinline__ V* own_x() const { return task.x + own_begin(); }

    // sqrt(sum value(row)^2) over the rows without spurious overflow or underflow: NaN if a value
    // is NaN, infinite if one is.
    template <typename Value>
    __device__ __forceinline__ double norm(Value value) const {
        double sum = 0;
        own_rows([&](u32 row) {
            const double part = value(row);
            sum += part * part;
        });
        sum = sum_apart<Threads>(sum, scratch);
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
        return __dsqrt_rn(sum_apart<Threads>(scaled, scratch)) * power_of_two(exponent);
    }

    // Sets up a system: its criteria, the initial iterate in z, and the true residual of z in r.
    __device__ __forceinline__ void enter(V* r) {
        const V* const b = own_b();
        rhs_norm = norm([&](u32 row) { return double(load(b + row)); });
        threshold = task.limits.threshold(system, rhs_norm);
        limit = task.limits.iterations(system);
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
        System::wait_for_values();
        // From x = 0 the residual is b. A x is still computed where the system would end at once,
        // since A may hold NaN.
        if (!moved && !(rhs_norm <= threshold) && is_finite(rhs_norm)) {
            own_rows([&](u32 row) { r[row] = load(b + row); });
            residual = rhs_norm;
        } else {
            find_residual(r);
        }
    }

    // r = b - A z; its norm goes to `residual`, NaN where it is not finite.
    __device__ __forceinline__ void find_residual(V* r) {
        const V* const b = own_b();
        // Products are summed first: large ones that cancel must not absorb b.
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

    // Decides by the true residual: RUNNING, or the status of the system.
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
        if (!accepted && task.limits.floor >= 0) {
            by_floor = residual <= task.limits.floor * Precision<V>::EPSILON * size();
            accepted = by_floor;
        }
        if (accepted) {
            return CONVERGED;
        }
        if (residual != residual) {
            return NON_FINITE;
        }
        const bool may_restart = restarts < task.limits.max_restarts && iteration < limit;
        const bool retries = RETRIES && stop >= BREAKDOWN_RHO && stop <= BREAKDOWN_ALPHA;
        if (may_restart && (stop == PASSED || retries)) {
            ++restarts;
            return RUNNING;
        }
        return stop != PASSED ? stop : iteration < limit ? STAGNATED : MAX_ITERATIONS;
    }

    // The status of a system without factors.
    __device__ __forceinline__ u32 no_factors() { return Method::NO_FACTORS; }

    __device__ __forceinline__ static u32 unless_lost(V value, u32 status) {
        return is_finite(value) ? status : NON_FINITE;
    }

    // The whole solve of one system.
    __device__ __forceinline__ void solve() {
        V* const x = this->vector(0);
        V* const r = this->vector(1);
        if (lane == 0) {
            z[pattern.nrows] = 0;
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
                // Adding 0 turns -0 into 0.
                x[row] = fresh ? z[row] * down + V(0) : x[row];
                r[row] *= down;
            });
            stop = RUNNING;
            if (fresh) {
                const bool kept = (task.flags & FACTORED_KEPT) != 0;
                if (kept ? this->take_kept() : this->factorise()) {
                    stop = self().no_factors();
                }
            }
            if (stop == RUNNING) {
                stop = self().begin();
            }
            while (stop == RUNNING) {
                stop = self().iterate();
            }
            // The iterate as returned, for all threads to read.
            Threads::sync();
            own_rows([&](u32 row) { z[row] = x[row] * up; });
            Threads::sync();
            find_residual(r);
        }
        own_rows([&](u32 row) { own_x()[row] = z[row]; });
        if (lane == 0) {
            task.outcomes.record(system, status, iteration, restarts, by_floor, residual, rhs_norm);
        }
    }

    __device__ __forceinline__ void run() {
        for (;;) {
            // The previous system's values are no longer read after this barrier.
            Threads::sync();
            system = Threads::take(true, task.queue, scratch);
            if (system >= task.nsystems) {
                return;
            }
            const u32 at = task.nrhs == 1 ? system : system / task.nrhs;
            if constexpr (RAGGED) {
                const u32 rhs = system - at * task.nrhs;
                this->take_item(at);
                system = item * task.nrhs + rhs;
            } else {
                item = at;
            }
            this->fetch();
            if ((task.flags & FACTORED_KEEP) != 0) {
                this->keep();
            } else {
                solve();
            }
        }
    }

    // The last block to leave resets the queue to zeros.
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
