// Residuals in twice the working precision, and the verdict on them, for systems where rounding
// errors of the plain evaluation may decide convergence. The rules are those of the CPU's solvers
// (cpu-ref, verdict.rs).
#pragma once

#include "solver.cuh"

constexpr u32 MOST_SUMS = 4;

// The largest residual, relative to ||b||, that a rounding floor accepts: in singular systems
// |A||x| grows without bound.
constexpr double LARGEST_FLOOR = 1e-3;

// A residual fails clearly only if its error bound, relative to its norm, is at most this.
constexpr double ROUGH = 1e-3;

// A norm in one pass without spurious overflow or underflow: squares of small, usual and large
// values, each scaled into range (Blue 1978, doi 10.1145/355769.355771; Anderson 2017,
// doi 10.1145/3061665).
struct Norm {
    static constexpr double SMALL = 0x1p-511, LARGE = 0x1p486;
    static constexpr double UP = 0x1p537, DOWN = 0x1p-538;

    __device__ __forceinline__ static void add(double value, double (&sums)[MOST_SUMS]) {
        const double size = magnitude(value);
        if (size > LARGE) {
            sums[2] += (value * DOWN) * (value * DOWN);
        } else if (size < SMALL) {
            sums[0] += (value * UP) * (value * UP);
        } else {
            sums[1] += value * value; // NaN too
        }
    }

    __device__ __forceinline__ static double of(const double (&sums)[MOST_SUMS]) {
        const double small = sums[0], usual = sums[1], large = sums[2];
        if (usual != usual) {
            return usual;
        }
        if (large > 0) {
            return __dsqrt_rn(large + (usual * DOWN) * DOWN) / DOWN;
        }
        const double root = __dsqrt_rn(usual);
        if (small > 0) {
            const double tiny = __dsqrt_rn(small) / UP;
            const double most = maximum(root, tiny), ratio = minimum(root, tiny) / most;
            return most * __dsqrt_rn(1.0 + ratio * ratio);
        }
        return root;
    }
};

// A row of b - A x in twofold precision: a fused multiply-add splits products into a rounded
// product and its error, sums are split likewise, and the errors are added up beside the sum
// (Ogita, Rump, Oishi, Accurate sum and dot product, 2005, doi 10.1137/030601818, algorithms 3.1 to
// 5.3; for the underflow of products Boldo and Muller, Some functions computable with a fused-mac,
// 2005). No operation may be contracted with another.
struct TwofoldRow {
    // Below this the error of a product may not be representable in f64.
    static constexpr double SAFE_PRODUCT = 1e-290;

    double sum, rest = 0, size = 0;
    u32 entries = 0, lost = 0;

    __device__ __forceinline__ explicit TwofoldRow(double b) : sum(b) {}

    // sum += term; returns the rounding error.
    __device__ __forceinline__ static double add_to(double& sum, double term) {
        const double before = sum;
        sum = __dadd_rn(before, term);
        const double of_term = __dadd_rn(sum, -before);
        const double of_sum = __dadd_rn(sum, -of_term);
        return __dadd_rn(__dadd_rn(before, -of_sum), __dadd_rn(term, -of_term));
    }

    // Subtracts the product of a matrix value and x.
    __device__ __forceinline__ void subtract(double value, double x) {
        const double product = __dmul_rn(-value, x);
        const double of_product = __fma_rn(-value, x, -product);
        const double of_sum = add_to(sum, product);
        rest += of_product + of_sum;
        size += magnitude(of_product) + magnitude(of_sum);
        lost += magnitude(product) < SAFE_PRODUCT && value != 0 && x != 0 ? 1 : 0;
        ++entries;
    }

    // Adds what the other threads of the row hold; LANES neighbouring lanes of a warp share a row.
    template <u32 LANES>
    __device__ __forceinline__ void join() {
#pragma unroll
        for (u32 offset = LANES / 2; offset > 0; offset /= 2) {
            const double of_sum = add_to(sum, __shfl_xor_sync(ALL_LANES, sum, offset));
            rest += __shfl_xor_sync(ALL_LANES, rest, offset) + of_sum;
            size += __shfl_xor_sync(ALL_LANES, size, offset) + magnitude(of_sum);
            lost += __shfl_xor_sync(ALL_LANES, lost, offset);
            entries += __shfl_xor_sync(ALL_LANES, entries, offset) + 1;
        }
    }

    // The residual of the row, and a bound of its error.
    __device__ __forceinline__ double finish(double& error) const {
        double value = sum;
        const double last = add_to(value, rest);
        error = (2.0 * entries + 2.0) * Precision<double>::EPSILON * size + magnitude(last) +
                lost * Precision<double>::SMALLEST;
        return value;
    }
};

// What was found of the x of a system.
struct Evaluated {
    u32 nrows, longest_row;
    double plain;     // || |b| + |A||x| ||
    double norm;      // of the residual in twofold precision
    double error;     // bound for `norm`, apart from errors of computing the norm
    double threshold, floor, rhs_norm; // floor: negative if there is none

    __device__ __forceinline__ double of_norm(double value) const {
        return (0.125 * nrows + 16.0) * Precision<double>::EPSILON * value;
    }

    // Norm of the residual in twofold precision; NaN if it is not finite.
    __device__ __forceinline__ double reported_norm() const {
        return is_finite(norm) ? norm : norm - norm;
    }

    // The largest residual that the floor accepts; negative if there is no floor.
    template <typename V>
    __device__ __forceinline__ double most_by_floor() const {
        return floor >= 0 && is_finite(plain)
                   ? minimum(floor * Precision<V>::EPSILON * plain, LARGEST_FLOOR * rhs_norm)
                   : -1;
    }

    // CONVERGED or STAGNATED, by the plain residual and a bound of its errors; RUNNING if these do
    // not decide.
    template <typename V>
    __device__ __forceinline__ u32 judge_plain(double residual) const {
        const double operations = longest_row + 3.0;
        const double of_plain = 1.001 * operations * (0.5 * Precision<V>::EPSILON) * plain +
                                operations * __dsqrt_rn(double(nrows)) * Precision<V>::SMALLEST +
                                of_norm(residual);
        if (residual + of_plain <= threshold) {
            return CONVERGED;
        }
        const double accepted = maximum(threshold, most_by_floor<V>());
        return residual - of_plain > accepted && of_plain <= ROUGH * residual ? STAGNATED : RUNNING;
    }

    // The same by the residual in twofold precision, which always decides.
    template <typename V>
    __device__ __forceinline__ u32 judge_twofold(bool& by_floor) const {
        const double found = norm + (error + of_norm(error) + of_norm(norm));
        by_floor = !(found <= threshold) && found <= most_by_floor<V>();
        return found <= threshold || by_floor ? CONVERGED : STAGNATED;
    }
};
