// Solves of several systems side by side, with an LU that exists or is made on the way: start, end,
// refinement, norms, outcomes. Shared by `lu` and `lu_kept`; `lu_verify` uses `LuTask`.
#pragma once

#include "solver.cuh"
#include "programs.cuh"

// A bit of `flags`: x holds initial guesses.
constexpr u32 LU_GUESS = 1;

// Number of partial sums of a norm, whatever the number of threads.
constexpr u32 CHAINS = 16;

// Inputs and outcomes of each system. Arrays of limits and tolerances are null or hold one element
// per system. `queue` holds two zeros before and after the launch.
template <typename V>
struct LuTask {
    u32 nrows;
    const u16* perm; // perm[k] is the row that is eliminated k-th
    const V* b;
    V* x;
    u32 flags;
    SystemLimits limits;
    u32* queue;
    SystemOutcomes outcomes;
};

__device__ __forceinline__ double not_a_number() {
    return __longlong_as_double(0x7ff8000000000000ll);
}

// One thread's part in the solves of its group, a block or a warp. `Self` derives from this and has
//   stride()                  elements from one row of y and r to the next, at least `count`
//   number(i), exists(i)      number of the i-th system side by side, another one's if there is
//                             none
//   take_up(), take_next()    takes up the systems of this turn, false if none; finds the next turn
//   fetch_values()            starts to copy the values that products with A need
//   multiply<MAGNITUDES>(w)   turns r from b into b - A x or |b| + |A||x|, in lanes where w is set
//   eliminate()               solves for y in place; returns whether a pivot is zero or NaN
//   HAS_LEAST_SIZE            whether it has least_size(), a lower bound of the norm of |A||x| +
//                             |b| for the last product
template <typename Self, typename V, u32 GROUP>
struct LuSystems {
    using Threads = Team<GROUP>;
    static constexpr u32 WARPS = GROUP / WARP_THREADS;

    const LuTask<V>& task;
    const u32 count;
    const u32 thread, lane, slots, slot, member; // member: which of the systems side by side
    const u32 worker, workers;
    const bool works;
    V* const y;
    V* const r;
    double* const scratch; // (CHAINS + 1) * count

    u32 state; // RUNNING, or IDLE: the system has ended, or there is none
    u32 iteration, limit, restarts;
    int scale; // a solve has the right-hand side r * 2^-scale
    double threshold, rhs_norm, residual;

    // `side_by_side` lanes have a system each; a warp works on at most `most_slots` targets at a
    // time.
    __device__ __forceinline__ LuSystems(const LuTask<V>& all, u32 side_by_side, u32 most_slots,
                                         V* first_y, V* first_r, double* shared)
        : task(all), count(side_by_side), thread(threadIdx.x % GROUP),
          lane(threadIdx.x % WARP_THREADS),
          slots(minimum(WARP_THREADS / count, most_slots)), slot(lane / count),
          member(lane % count), worker(thread / WARP_THREADS * slots + slot),
          workers(WARPS * slots), works(slot < slots), y(first_y), r(first_r), scratch(shared) {}

    __device__ __forceinline__ Self& self() { return static_cast<Self&>(*this); }

    __device__ __forceinline__ bool runs() const { return state == RUNNING; }

    // The sum of part(r_i) over the rows i, the same in all threads of the system. Uses
    // `SharedValues` because the compiler would keep the addresses of all sums in registers from
    // one norm to the next.
    template <typename Part>
    __device__ __forceinline__ double sum_over_rows(Part part) {
        const SharedValues<double> sums(scratch + member);
        const SharedValues<V> rows(r + member);
        const u32 stride = self().stride();
        if (works) {
            for (u32 chain = worker; chain < CHAINS; chain += workers) {
                double sum = 0;
                for (u32 row = chain; row < task.nrows; row += CHAINS) {
                    sum += part(double(rows.get(row * stride)));
                }
                sums.set(chain * count, sum);
            }
        }
        Threads::sync();
        double sum = 0;
#pragma unroll
        for (u32 chain = 0; chain < CHAINS; ++chain) {
            sum += sums.get(chain * count);
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
            most = maximum(most, magnitude(double(r[row * self().stride() + member])));
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

    // Starts the systems, whose r is b. Returns whether b is not the residual, that is, whether A x
    // is to be subtracted.
    __device__ __forceinline__ bool enter() {
        const u32 own = self().number(member), stride = self().stride();
        state = self().exists(member) ? RUNNING : IDLE;
        rhs_norm = norm();
        threshold = task.limits.threshold(own, rhs_norm);
        limit = task.limits.iterations(own);
        iteration = restarts = 0;
        const int exponent = exponent_of(rhs_norm);
        constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
        const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
        scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));

        bool moved = false;
        if ((task.flags & LU_GUESS) != 0) {
            for (u32 k = 0; k < task.nrows; ++k) {
                moved = moved || y[k * stride + member] != V(0);
            }
            Threads::sync();
            if (rhs_norm == 0 && works && slot == 0 && thread < WARP_THREADS) {
                for (u32 k = 0; k < task.nrows; ++k) {
                    y[k * stride + member] = V(0);
                }
            }
            moved = moved && rhs_norm != 0;
        }
        // For x = 0 the residual is b. If the system may end on it, A x is computed all the same,
        // since A may hold NaN.
        residual = rhs_norm;
        return moved || rhs_norm <= threshold || !is_finite(rhs_norm);
    }

    // Ends the systems that are finished. `fresh`: no step was made yet; otherwise `stop` says how
    // the last step ended. Returns whether r is lost, for those that go on.
    __device__ __forceinline__ bool judge(bool fresh, u32 stop) {
        bool accepted = residual <= threshold, by_floor = false;
        bool in_doubt = runs() && !fresh && !accepted;
        bool lost = false;
        if constexpr (Self::HAS_LEAST_SIZE) {
            if (task.limits.floor >= 0 && Threads::any_thread(in_doubt)) {
                by_floor = in_doubt && residual <= task.limits.floor * Precision<V>::EPSILON *
                                                        self().least_size();
                accepted = accepted || by_floor;
                in_doubt = in_doubt && !by_floor;
            }
        }
        if (task.limits.floor >= 0 && Threads::any_thread(in_doubt)) {
            lost = true;
            self().fetch_b();
            cp_async_wait_all();
            Threads::sync();
            self().template multiply<true>(true);
            const double size = norm();
            by_floor = by_floor ||
                       (!accepted && residual <= task.limits.floor * Precision<V>::EPSILON * size);
            accepted = accepted || by_floor;
        }
        if (runs()) {
            u32 status = RUNNING;
            if (residual != residual || !is_finite(rhs_norm)) {
                status = NON_FINITE;
                residual = not_a_number();
            } else if (accepted) {
                status = CONVERGED;
            } else if (fresh) {
                status = limit == 0 ? MAX_ITERATIONS : RUNNING;
            } else if (stop != PASSED) {
                status = stop;
            } else if (restarts < task.limits.max_restarts) {
                ++restarts;
            } else {
                status = STAGNATED;
            }
            if (status != RUNNING) {
                end(status, by_floor && !fresh);
            }
        }
        return lost;
    }

    __device__ __forceinline__ void end(u32 status, bool by_floor) {
        const u32 own = self().number(member);
        if (thread < count) {
            task.outcomes.record(own, status, iteration, restarts, by_floor, residual, rhs_norm);
        }
        state = IDLE;
    }

    // One solve for the residual. Returns how it ended.
    __device__ __forceinline__ u32 step() {
        const V down = V(power_of_two(-scale)), up = V(power_of_two(scale));
        const u32 stride = self().stride();
        // The residual moves to y, and x from y to r.
        if (works) {
            for (u32 k = worker; k < task.nrows; k += workers) {
                V& before = r[load(task.perm + k) * stride + member];
                V& after = y[k * stride + member];
                const V x = after;
                after = before * down;
                before = x;
            }
        }
        const bool bad = self().eliminate();
        iteration += bad ? 0 : 1;
        if (works) {
            for (u32 k = worker; k < task.nrows; k += workers) {
                const V x = r[load(task.perm + k) * stride + member];
                V& after = y[k * stride + member];
                after = runs() && !bad ? x + after * up : x;
            }
        }
        Threads::sync();
        return bad ? ZERO_PIVOT : iteration >= limit ? MAX_ITERATIONS : PASSED;
    }

    // Solves the systems that were taken up. The code of a product and of what comes before it
    // stands here once, for the first residual, for those after a step and for those that are found
    // again: each copy would take the compiler 0.3 s.
    __device__ __forceinline__ void solve() {
        bool fresh = true, again = false;
        u32 stop = PASSED;
        for (;;) {
            self().fetch_values();
            self().fetch_b();
            if (fresh) {
                self().fetch_x();
            }
            cp_async_wait_all();
            Threads::sync();
            const bool wanted = fresh ? enter() : true;
            const bool multiplies = Threads::any_thread(runs() && wanted);
            if (multiplies) {
                self().template multiply<false>(wanted);
            }
            if (!again) {
                if (multiplies) {
                    const double found = norm();
                    if (runs() && wanted) {
                        residual = is_finite(found) ? found : found - found;
                    }
                }
                again = judge(fresh, stop);
                if (!Threads::any_thread(runs())) {
                    return;
                }
                if (again) {
                    continue;
                }
            }
            stop = step();
            fresh = again = false;
        }
    }

    __device__ __forceinline__ void run() {
        for (;;) {
            // No thread reads the values of the preceding systems any more.
            Threads::sync();
            if (!self().take_up()) {
                return;
            }
            solve();
            self().store_x();
            self().take_next();
        }
    }

    // The last block to find the queue empty resets it to zeros.
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
