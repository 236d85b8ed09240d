#pragma once

#include "state.cuh"

// prefactor * rho^exponent * sum over sets of exp(a0 + a1/T9 + a2 T9^(-1/3) + a3 T9^(1/3) + a4 T9
// + a5 T9^(5/3) + a6 ln T9), the temperature held within the range of the fits: REACLIB, Cyburt et al.
// 2010, ApJS 189, 240, equation (1).
//
// A thread a rate of a zone; neighbours have the same rate. t9, rho: one a zone. Sets of rate r are
// set_ptr[r] .. set_ptr[r + 1], seven coefficients each. lambda[r * stride + zone], stride >= nzones,
// nzones * nrates < 2^32; `bad` holds 2^32 - 1 and gets the least zone * nrates + r whose rate is not
// finite. Any launch.
__global__ void rates(u32 nzones, u32 nrates, u32 stride, double t9_min, double t9_max,
                      const double* __restrict__ t9, const double* __restrict__ rho,
                      const u32* __restrict__ set_ptr, const double* __restrict__ sets,
                      const double* __restrict__ prefactors, const u32* __restrict__ exponents,
                      double* __restrict__ lambda, u32* __restrict__ bad) {
    const u64 all = u64(nzones) * nrates;
    for (u64 work = grid_thread(); work < all; work += grid_threads()) {
        const u32 rate = u32(work / nzones), zone = u32(work % nzones);
        const double t = clamped(load(t9 + zone), t9_min, t9_max);
        const double root = cbrt(t);
        const double powers[7] = {1.0, 1.0 / t, 1.0 / root, root, t, t * root * root, log(t)};
        double fit = 0;
        for (u32 set = load(set_ptr + rate); set < load(set_ptr + rate + 1); ++set) {
            double sum = 0;
#pragma unroll
            for (u32 k = 0; k < 7; ++k) {
                sum += load(sets + 7 * u64(set) + k) * powers[k];
            }
            fit += exp(sum);
        }
        double scale = load(prefactors + rate);
        for (u32 k = load(exponents + rate); k > 0; --k) {
            scale *= load(rho + zone);
        }
        const double value = scale * fit;
        lambda[u64(rate) * stride + zone] = value;
        if (!finite(value)) {
            atomicMin(bad, zone * nrates + rate);
        }
    }
}
