#pragma once

#include "ended.cuh"
#include "state.cuh"

// Shortens a step that would reach the next output time to end there, and one that would end
// shortly before it to half of the remaining time.
__device__ __forceinline__ u32 aim(double* pace, u32 flags, double target) {
    const double left = target - pace[TIME], wanted = pace[WANTED];
    const bool arrives = wanted >= left * (1.0 - 1e-10);
    pace[TARGET] = target;
    pace[STEP] = arrives ? left : wanted > 0.5 * left ? 0.5 * left : wanted;
    return arrives ? flags | ARRIVES : flags & ~ARRIVES;
}

// Puts every zone at the place of the same number, with a first step in which explicit Euler
// changes an unknown by ten times the tolerance. A warp per zone; y and `slopes`, which is f(y),
// have n unknowns each. Zone z has the output times time_ptr[z] .. time_ptr[z + 1].
__global__ void begin(u32 nzones, u32 n, const double* __restrict__ settings,
                      const double* __restrict__ y, const double* __restrict__ slopes,
                      const u32* __restrict__ time_ptr, const double* __restrict__ times,
                      double* __restrict__ pace, u32* __restrict__ course,
                      u32* __restrict__ counts, double* __restrict__ figures) {
    const u32 zone = u32(grid_thread() / WARP_THREADS), lane = threadIdx.x % WARP_THREADS;
    if (zone >= nzones) {
        return;
    }
    // The inverse of the smallest step: a maximum over the unknowns.
    double most = 0;
    for (u32 i = lane; i < n; i += WARP_THREADS) {
        const double value = y[u64(zone) * n + i], slope = slopes[u64(zone) * n + i];
        const double weight = load(settings + ATOL) + load(settings + RTOL) * absolute(value);
        most = maximum(most, absolute(slope) / weight);
    }
    most = most_of_lanes(most);
    if (lane != 0) {
        return;
    }
    const u32 first = load(time_ptr + zone), last = load(time_ptr + zone + 1) - 1;
    const double end = load(times + last), fixed = load(settings + FIXED_STEP);
    // If nothing changes, any step will do.
    const double step = most > 0 ? 10.0 / most : infinity();
    double own[PACE] = {};
    own[WANTED] = fixed > 0 ? fixed : clamped(step, load(settings + LEAST_FIRST_STEP) * end, end);
    const u32 flags = aim(own, 0, load(times + first));
    for (u32 k = 0; k < PACE; ++k) {
        pace[u64(zone) * PACE + k] = own[k];
    }
    course[u64(zone) * COURSE + ZONE] = zone;
    course[u64(zone) * COURSE + NEXT] = 0;
    course[u64(zone) * COURSE + FLAGS] = flags;
    for (u32 k = 0; k < COUNTS; ++k) {
        counts[u64(zone) * COUNTS + k] = 0;
    }
    for (u32 k = 0; k < FIGURES; ++k) {
        figures[u64(zone) * FIGURES + k] = 0;
    }
}

// Advances by the step, and chooses the next one from its error: the predictive controller of
// Gustafsson, Hairer and Wanner 1996, Solving Ordinary Differential Equations II, equation (8.25).
__device__ __forceinline__ u32 accept(double* pace, u32 flags, double error,
                                      const double* settings) {
    pace[TIME] = (flags & ARRIVES) != 0 ? pace[TARGET] : pace[TIME] + pace[STEP];
    if (load(settings + FIXED_STEP) > 0) {
        return flags;
    }
    const double exponent = 1.0 / load(settings + ORDER), safety = load(settings + SAFETY);
    const double step = pace[STEP];
    error = maximum(error, 1e-6);
    double factor = safety * pow(error, -exponent);
    if ((flags & HAS_LAST) != 0) {
        const double predicted =
            step / pace[LAST_STEP] * pow(pace[LAST_ERROR] / (error * error), exponent);
        factor = minimum(factor, safety * predicted);
    }
    const double most = (flags & REJECTED) != 0 ? 1.0 : load(settings + GROW);
    const double next = step * clamped(factor, load(settings + SHRINK), most);
    // A step that an output time cut short says little about the step size that is possible.
    const bool was_cut = step < 0.99 * pace[WANTED];
    pace[WANTED] = was_cut ? maximum(next, pace[WANTED]) : next;
    pace[LAST_STEP] = step;
    pace[LAST_ERROR] = maximum(error, 1e-2);
    return (flags | HAS_LAST) & ~REJECTED;
}

// Accepts or rejects the steps, and marks zones that have ended. A warp per place; nvars unknowns:
// the first n are abundances, another one is T9, see CLAMPED.
//
// - `weights` are those of the last stage. Its solution is `last`, the error estimate.
// - u_j from `before` on are not read.
// - `projects`: abundances are brought back to the sums of a_i Y and z_i Y of `start`, by changes
//   proportional to them.
// - `out`: unknowns at output time k of a zone go to out[(time_ptr[zone] + k) * nvars ..].
// - `left`: the number of zones that have not ended; `tried`: the largest number of steps tried in
//   a zone.
// - `stages` to `worst`: systems that were not counted before, see `Ended`.
// - Shared memory: nvars doubles per warp.
__global__ void __launch_bounds__(128, 8) judge(u32 nplaces, u32 n, u32 nvars, u32 before, u32 max_steps, u32 projects,
                      const double* __restrict__ settings, const double* __restrict__ weights,
                      const double* __restrict__ a, const double* __restrict__ z,
                      const double* __restrict__ start, const u32* __restrict__ time_ptr,
                      const double* __restrict__ times, const double* u0, const double* u1,
                      const double* u2, const double* u3, const double* u4, const double* u5,
                      const double* u6, const double* last, double* __restrict__ y,
                      double* __restrict__ pace, u32* course, u32 stages, u32 distance, const u8* statuses,
                      const u32* iterations, const u32* restarts, const double* residual_norms,
                      const double* rhs_norms, u64* all_counts, u64* worst,
                      u32* __restrict__ counts, double* __restrict__ figures,
                      double* __restrict__ out, u32* __restrict__ left, u32* __restrict__ tried) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    const u32 place = u32(grid_thread() / WARP_THREADS), lane = threadIdx.x % WARP_THREADS;
    // The preceding launch computes the last stage or its residuals, and ends no zone.
    const bool idles = place >= nplaces || (course[u64(place) * COURSE + FLAGS] & ENDED) != 0;
    const double* const u[BEFORE] = {u0, u1, u2, u3, u4, u5, u6};
    // A lane has every 32nd unknown throughout, so that lanes need not wait for each other.
    double* const y_new =
        reinterpret_cast<double*>(dynamic_shared) + threadIdx.x / WARP_THREADS * nvars;
    double* const y_old = y + u64(place) * nvars;
    for (u32 i = lane; i < nvars && !idles; i += WARP_THREADS) {
        y_new[i] = at_stage(u64(place) * nvars + i, y, before, weights, u);
    }
    // Data that the preceding launch does not write are read before it has ended, for a place that
    // exists. Flags are not, since a launch before that one may still write them.
    const u32 asked = minimum(place, nplaces - 1);
    double own[PACE];
    for (u32 k = 0; k < PACE; ++k) {
        own[k] = pace[u64(asked) * PACE + k];
    }
    const u32 zone = course[u64(asked) * COURSE + ZONE];
    u32 next = course[u64(asked) * COURSE + NEXT];
    u32 count[COUNTS];
    for (u32 k = 0; k < COUNTS; ++k) {
        count[k] = counts[u64(zone) * COUNTS + k];
    }
    double figure[FIGURES];
    for (u32 k = 0; k < FIGURES; ++k) {
        figure[k] = figures[u64(zone) * FIGURES + k];
    }
    const u32 first_time = load(time_ptr + zone), ntimes = load(time_ptr + zone + 1) - first_time;
    wait_for_launches_ahead();
    if (idles) {
        return;
    }
    const Ended ended{stages,         distance,  statuses,   iterations, restarts,
                      residual_norms, rhs_norms, all_counts, worst};
    const bool unsolved = __any_sync(ALL_LANES, ended.count(lane, place, true)) != 0;
    double error = 0;
    for (u32 i = lane; i < nvars; i += WARP_THREADS) {
        const double estimate = last[u64(place) * nvars + i], value = y_new[i] + estimate;
        const double size = maximum(absolute(y_old[i]), absolute(value));
        const double part =
            absolute(estimate) / (load(settings + ATOL) + load(settings + RTOL) * size);
        // A step with NaN or infinities has an infinite error.
        error = finite(part) && finite(value) ? maximum(error, part) : infinity();
        y_new[i] = value;
    }
    error = most_of_lanes(error);

    u32 flags = course[u64(place) * COURSE + FLAGS];
    const bool lost = unsolved || (flags & LOST) != 0;
    if (lost) {
        ++count[UNSOLVED];
        own[WANTED] = load(settings + LOST_FACTOR) * own[STEP];
        flags = (flags & ~LOST) | REJECTED;
    } else if (load(settings + FIXED_STEP) > 0 || error <= 1.0) {
        ++count[STEPS];
        const double* const y_start = start + u64(zone) * n;
        if (projects != 0) {
            double aa = 0, az = 0, zz = 0, lack_a = 0, lack_z = 0;
            for (u32 i = lane; i < n; i += WARP_THREADS) {
                const double size = absolute(y_new[i]), lack = y_start[i] - y_new[i];
                const double a_i = load(a + i), z_i = load(z + i);
                aa += a_i * a_i * size;
                az += a_i * z_i * size;
                zz += z_i * z_i * size;
                lack_a += a_i * lack;
                lack_z += z_i * lack;
            }
            aa = sum_of_lanes(aa);
            az = sum_of_lanes(az);
            zz = sum_of_lanes(zz);
            lack_a = sum_of_lanes(lack_a);
            lack_z = sum_of_lanes(lack_z);
            const double determinant = aa * zz - az * az;
            double alpha = 0, zeta = 0;
            // If Z is proportional to A, as in an alpha chain, conserved nucleons imply conserved
            // charge.
            if (determinant > 1e-10 * aa * zz) {
                alpha = (zz * lack_a - az * lack_z) / determinant;
                zeta = (aa * lack_z - az * lack_a) / determinant;
            } else if (aa > 0) {
                alpha = lack_a / aa;
            }
            for (u32 i = lane; i < n; i += WARP_THREADS) {
                y_new[i] += absolute(y_new[i]) * (alpha * load(a + i) + zeta * load(z + i));
            }
        }
        double first_a = 0, first_z = 0, now_a = 0, now_z = 0, lowest = 0;
        for (u32 i = lane; i < n; i += WARP_THREADS) {
            const double value = y_new[i], a_i = load(a + i), z_i = load(z + i);
            first_a += a_i * y_start[i];
            first_z += z_i * y_start[i];
            now_a += a_i * value;
            now_z += z_i * value;
            lowest = minimum(lowest, value);
        }
        bool outside = false;
        for (u32 i = lane; i < nvars; i += WARP_THREADS) {
            const double value = y_new[i];
            const bool fits = value >= load(settings + T9_LOW) && value <= load(settings + T9_HIGH);
            outside = outside || (i >= n && !fits);
            y_old[i] = value;
        }
        count[CLAMPED] |= u32(__any_sync(ALL_LANES, outside) != 0);
        first_a = sum_of_lanes(first_a);
        first_z = sum_of_lanes(first_z);
        now_a = absolute(sum_of_lanes(now_a) - first_a);
        now_z = absolute(sum_of_lanes(now_z) - first_z);
        lowest = -most_of_lanes(-lowest);
        // Sums that are 0 at the start, as the charge of neutrons alone, count by their absolute
        // change.
        figure[0] = maximum(figure[0], first_a == 0 ? now_a : now_a / absolute(first_a));
        figure[1] = maximum(figure[1], first_z == 0 ? now_z : now_z / absolute(first_z));
        figure[2] = minimum(figure[2], lowest);
        const bool arrives = (flags & ARRIVES) != 0;
        flags = accept(own, flags, error, settings);
        if (arrives) {
            double* const state = out + (u64(first_time) + next) * nvars;
            for (u32 i = lane; i < nvars; i += WARP_THREADS) {
                state[i] = y_new[i];
            }
            ++next;
        }
    } else {
        ++count[REJECTIONS];
        const double factor =
            load(settings + SAFETY) * pow(error, -1.0 / load(settings + ORDER));
        own[WANTED] = clamped(factor, load(settings + SHRINK), 1.0) * own[STEP];
        flags |= REJECTED;
    }
    const u32 tries = count[STEPS] + count[REJECTIONS] + count[UNSOLVED];
    if (next == ntimes) {
        count[OUTCOME] = FINISHED;
        flags |= ENDED;
    } else if (tries >= max_steps) {
        count[OUTCOME] = TOO_MANY_STEPS;
        flags |= ENDED;
    } else {
        flags = aim(own, flags, load(times + first_time + next));
        const double end = load(times + first_time + ntimes - 1);
        const bool moves = own[TIME] + own[STEP] > own[TIME] &&
                           own[STEP] > load(settings + LEAST_STEP) * end;
        if (!moves) {
            count[OUTCOME] = STEP_UNDERFLOW;
            flags |= ENDED;
        }
    }
    figure[3] = own[TIME];
    figure[4] = own[STEP];
    __syncwarp(); // all lanes have read what the first one writes
    if (lane == 0) {
        for (u32 k = 0; k < PACE; ++k) {
            pace[u64(place) * PACE + k] = own[k];
        }
        course[u64(place) * COURSE + NEXT] = next;
        course[u64(place) * COURSE + FLAGS] = flags;
        for (u32 k = 0; k < COUNTS; ++k) {
            counts[u64(zone) * COUNTS + k] = count[k];
        }
        for (u32 k = 0; k < FIGURES; ++k) {
            figures[u64(zone) * FIGURES + k] = figure[k];
        }
        atomicMax(tried, tries);
        if ((flags & ENDED) != 0) {
            atomicSub(left, 1u);
        }
    }
}
