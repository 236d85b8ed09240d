#pragma once

#include "state.cuh"

// The functions of T9 that multiply the coefficients a0 to a6 of a fit.
struct Terms {
    double of[7];

    __device__ __forceinline__ double dot(const double* coefficients) const {
        double sum = 0;
#pragma unroll
        for (u32 k = 0; k < 7; ++k) {
            sum += load(coefficients + k) * of[k];
        }
        return sum;
    }
};

// The terms at a temperature in GK within the range of the fits.
__device__ __forceinline__ Terms terms_at(double t9) {
    const double root = cbrt(t9);
    return {{1.0, 1.0 / t9, 1.0 / root, root, t9, t9 * root * root, log(t9)}};
}

// The derivatives of the terms with respect to T9.
__device__ __forceinline__ Terms slopes_at(double t9) {
    const double root = cbrt(t9);
    return {{0.0, -1.0 / (t9 * t9), -1.0 / (3.0 * t9 * root), 1.0 / (3.0 * root * root), 1.0,
             5.0 / 3.0 * root * root, 1.0 / t9}};
}

// The fits of all rates,
//
//   lambda = prefactor * rho^exponent * sum over sets of
//            exp(a0 + a1/T9 + a2 T9^(-1/3) + a3 T9^(1/3) + a4 T9 + a5 T9^(5/3) + a6 ln T9)
//
// REACLIB, Cyburt et al. 2010, ApJS 189, 240, equation (1). The sets of rate r are set_ptr[r] ..
// set_ptr[r + 1], with seven coefficients each.
struct Fits {
    const u32* set_ptr;
    const double* sets;
    const double* prefactors;
    const u32* exponents;

    // A rate, and with SLOPES its derivative with respect to the temperature.
    template <bool SLOPES>
    __device__ __forceinline__ double at(u32 rate, const Terms& terms, const Terms& slopes,
                                         double rho, double& derivative) const {
        double fit = 0, slope = 0;
        for (u32 set = load(set_ptr + rate); set < load(set_ptr + rate + 1); ++set) {
            const double* const coefficients = sets + 7 * u64(set);
            const double part = exp(terms.dot(coefficients));
            fit += part;
            if (SLOPES) {
                slope += part * slopes.dot(coefficients);
            }
        }
        double scale = load(prefactors + rate);
        for (u32 k = load(exponents + rate); k > 0; --k) {
            scale *= rho;
        }
        derivative = scale * slope;
        return scale * fit;
    }
};

// The rates of zones at constant temperature, clamped to the range of the fits.
//
// - A thread per rate of a zone; neighbouring threads compute the same rate. Any launch.
// - t9, rho: one element per zone.
// - `lambda`: lambda[r * stride + zone], stride >= nzones, nzones * nrates < 2^32.
// - `bad`: holds 2^32 - 1 before the launch; receives the smallest zone * nrates + r whose rate is
//   not finite.
__global__ void rates(u32 nzones, u32 nrates, u32 stride, double t9_min, double t9_max,
                      const double* __restrict__ t9, const double* __restrict__ rho,
                      const u32* __restrict__ set_ptr, const double* __restrict__ sets,
                      const double* __restrict__ prefactors, const u32* __restrict__ exponents,
                      double* __restrict__ lambda, u32* __restrict__ bad) {
    const Fits fits{set_ptr, sets, prefactors, exponents};
    const u64 all = u64(nzones) * nrates;
    for (u64 work = grid_thread(); work < all; work += grid_threads()) {
        const u32 rate = u32(work / nzones), zone = u32(work % nzones);
        const Terms terms = terms_at(clamped(load(t9 + zone), t9_min, t9_max));
        double slope;
        const double value = fits.at<false>(rate, terms, terms, load(rho + zone), slope);
        lambda[u64(rate) * stride + zone] = value;
        if (!finite(value)) {
            atomicMin(bad, zone * nrates + rate);
        }
    }
}
