// The norm of a vector without spurious overflow or underflow, for solvers whose threads hold its
// elements in registers.
#pragma once

#include "solver.cuh"

// The norm of the vector of a group of threads: NaN when an element is NaN, infinite when one is.
// Each thread has COUNT elements of it in `own`, 0 beyond its end. All groups of the team call it.
// `scratch`: that of Threads::sum.
template <typename Threads, typename V, u32 COUNT>
__device__ __forceinline__ double norm_of_group(const V (&own)[COUNT], double* scratch) {
    double sum = 0;
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        sum += double(own[i]) * double(own[i]);
    }
    sum = sum_apart<Threads>(sum, scratch);
    const bool lossy = !(sum >= 1e-280 && sum < 1e280);
    if (!Threads::any(lossy)) {
        return __dsqrt_rn(sum);
    }
    double most = 0;
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        most = maximum(most, magnitude(double(own[i])));
    }
    most = Threads::largest(most, scratch);
    const int exponent = most > 0 && is_finite(most) ? exponent_of(most) : 0;
    const double down = power_of_two(-exponent);
    double scaled = 0;
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        const double part = double(own[i]) * down;
        scaled += part * part;
    }
    scaled = sum_apart<Threads>(scaled, scratch);
    if (!lossy) {
        return __dsqrt_rn(sum);
    }
    if (sum != sum || most == 0 || !is_finite(most)) {
        return sum != sum ? sum : most;
    }
    return __dsqrt_rn(scaled) * power_of_two(exponent);
}
