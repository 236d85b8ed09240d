#pragma once

// Numbers of a place in `pace`: the time, the step, the step that the error allows, the next output
// time, step and error of the last accepted step.
constexpr u32 PACE = 6;
constexpr u32 TIME = 0, STEP = 1, WANTED = 2, TARGET = 3, LAST_STEP = 4, LAST_ERROR = 5;

// Numbers of a place in `course`: its zone, the index of the next output time, flags.
constexpr u32 COURSE = 3;
constexpr u32 ZONE = 0, NEXT = 1, FLAGS = 2;
constexpr u32 ARRIVES = 1;   // the step ends at the next output time
constexpr u32 REJECTED = 2;  // the last step was rejected
constexpr u32 HAS_LAST = 4;  // a step was accepted
constexpr u32 LOST = 8;      // a linear system of this step was not solved
constexpr u32 ENDED = 16;

// Results of a zone. COUNTS: numbers of steps, how the zone ended, whether its temperature was
// outside the range of the fits. FIGURES: largest changes of the two conserved sums, lowest
// abundance, the time reached and the step size there.
constexpr u32 COUNTS = 5;
constexpr u32 STEPS = 0, REJECTIONS = 1, UNSOLVED = 2, OUTCOME = 3, CLAMPED = 4;
constexpr u32 FINISHED = 0, STEP_UNDERFLOW = 1, TOO_MANY_STEPS = 2;
constexpr u32 FIGURES = 5;

// What `settings` holds.
constexpr u32 RTOL = 0, ATOL = 1, ORDER = 2, FIXED_STEP = 3, SAFETY = 4, SHRINK = 5, GROW = 6;
constexpr u32 LEAST_STEP = 7, LEAST_FIRST_STEP = 8, LOST_FACTOR = 9;
constexpr u32 T9_LOW = 10, T9_HIGH = 11;

// The largest number of stages before the last one.
constexpr u32 BEFORE = 7;

__device__ __forceinline__ double infinity() {
    return __longlong_as_double(0x7ff0000000000000ll);
}

__device__ __forceinline__ double absolute(double value) {
    return value < 0 ? -value : value;
}

__device__ __forceinline__ bool finite(double value) {
    return value - value == 0;
}

__device__ __forceinline__ double clamped(double value, double low, double high) {
    return minimum(maximum(value, low), high);
}

// An unknown at a stage: y + sum_j a_j u_j, j < before.
__device__ __forceinline__ double at_stage(u64 at, const double* y, u32 before,
                                           const double* weights, const double* const (&u)[BEFORE]) {
    double value = y[at];
#pragma unroll
    for (u32 j = 0; j < BEFORE; ++j) {
        if (j < before) {
            value += load(weights + j) * u[j][at];
        }
    }
    return value;
}
