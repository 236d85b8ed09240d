// Zones that heat themselves: T9 is the last unknown, after n abundances, and everything that
// depends on it is recomputed for every stage. The equation of state is that of `eos.rs`.
#pragma once

#include "rates.cuh"
#include "state.cuh"

// Kelvin per GK.
constexpr double GIGA = 1e9;

// Rates at the temperature of a stage, and with SLOPES their derivatives with respect to it, which
// are 0 outside the range of the fits. `rho` has one element per zone. Places whose zone has ended
// keep their rates. A warp handles 32 neighbouring places throughout, those of blockIdx.x, and some
// of the rates: the warps of the blocks of all blockIdx.y share them.
template <bool SLOPES>
__global__ void heat_rates(u32 nplaces, u32 n, u32 nrates, u32 stride, double t9_min, double t9_max,
                           const double* __restrict__ rho, const u32* __restrict__ set_ptr,
                           const double* __restrict__ sets, const double* __restrict__ prefactors,
                           const u32* __restrict__ exponents, const double* __restrict__ y,
                           const u32* __restrict__ course, u32 before,
                           const double* __restrict__ weights, const double* __restrict__ u0,
                           const double* __restrict__ u1, const double* __restrict__ u2,
                           const double* __restrict__ u3, const double* __restrict__ u4,
                           const double* __restrict__ u5, const double* __restrict__ u6,
                           double* __restrict__ lambda, double* __restrict__ dlambda) {
    const u32 place = blockIdx.x * WARP_THREADS + threadIdx.x % WARP_THREADS;
    if (place >= nplaces || (course[u64(place) * COURSE + FLAGS] & ENDED) != 0) {
        return;
    }
    const double* const u[BEFORE] = {u0, u1, u2, u3, u4, u5, u6};
    const double t9 = at_stage(u64(place) * (n + 1) + n, y, before, weights, u);
    const double inside = clamped(t9, t9_min, t9_max);
    const double density = load(rho + course[u64(place) * COURSE + ZONE]);
    const Fits fits{set_ptr, sets, prefactors, exponents};
    const Terms terms = terms_at(inside);
    const Terms slopes = SLOPES && inside == t9 ? slopes_at(inside) : Terms{};
    const u32 warps = blockDim.x / WARP_THREADS;
    const u32 first = blockIdx.y * warps + threadIdx.x / WARP_THREADS;
    for (u32 rate = first; rate < nrates; rate += gridDim.y * warps) {
        double derivative;
        const double value = fits.at<SLOPES>(rate, terms, slopes, density, derivative);
        lambda[u64(rate) * stride + place] = value;
        if (SLOPES) {
            dlambda[u64(rate) * stride + place] = derivative;
        }
    }
}

// Thermal quantities of a zone, from sums over the lanes of a warp: the same in all lanes.
struct Gas {
    double t9;
    double radiation; // 4 a / rho, erg/(g K^4)
    double capacity;  // erg/(g K)
    double heating;   // dT9/dt, GK/s
    double particles; // heat of the particles that appear, erg/(g K s)

    // The change of T9 when a mole of a nuclide appears per gram: (binding - heat T) / (1e9 c_v).
    __device__ __forceinline__ double weight(double heat, double binding) const {
        return (binding - heat * GIGA * t9) / (GIGA * capacity);
    }
};

// `y` and `ydot` are functions of the index of a nuclide. radiation: 4 a, erg/(cm^3 K^4); heat: 3/2
// N_A k (1 + Z_i), erg/(mole K); binding: N_A B_i, erg/mole.
template <typename Y, typename Ydot>
__device__ __forceinline__ Gas gas_of(u32 n, double radiation, const double* heat,
                                      const double* binding, double t9, double rho, Y y,
                                      Ydot ydot) {
    double capacity = 0, released = 0, particles = 0;
    for (u32 i = threadIdx.x % WARP_THREADS; i < n; i += WARP_THREADS) {
        const double own = load(heat + i), change = ydot(i);
        capacity += own * y(i);
        released += (load(binding + i) - own * GIGA * t9) * change;
        particles += own * change;
    }
    Gas gas;
    const double temperature = GIGA * t9;
    gas.t9 = t9;
    gas.radiation = radiation / rho;
    gas.capacity =
        sum_of_lanes(capacity) + gas.radiation * (temperature * temperature * temperature);
    gas.heating = sum_of_lanes(released) / (GIGA * gas.capacity);
    gas.particles = sum_of_lanes(particles);
    return gas;
}

// The last row of a right-hand side, b[n] = dT9/dt + sum_j c_j / h u_j[n], from the dY/dt that
// `stage` wrote to `ydot`; 0 if the zone has ended or a system of the step was not solved. A warp
// per place; unknowns lie place after place, n + 1 each.
__global__ void heat(u32 nplaces, u32 n, double radiation, const double* __restrict__ rho,
                     const double* __restrict__ heats, const double* __restrict__ bindings,
                     const double* __restrict__ y, const double* __restrict__ pace,
                     const u32* __restrict__ course, const double* __restrict__ ydot, u32 before,
                     const double* __restrict__ weights, const double* __restrict__ u0,
                     const double* __restrict__ u1, const double* __restrict__ u2,
                     const double* __restrict__ u3, const double* __restrict__ u4,
                     const double* __restrict__ u5, const double* __restrict__ u6,
                     double* __restrict__ b) {
    const u32 place = u32(grid_thread() / WARP_THREADS), lane = threadIdx.x % WARP_THREADS;
    if (place >= nplaces) {
        return;
    }
    const u64 first = u64(place) * (n + 1);
    if ((course[u64(place) * COURSE + FLAGS] & (ENDED | LOST)) != 0) {
        if (lane == 0) {
            b[first + n] = 0;
        }
        return;
    }
    const double* const u[BEFORE] = {u0, u1, u2, u3, u4, u5, u6};
    const double t9 = at_stage(first + n, y, before, weights, u);
    const double density = load(rho + course[u64(place) * COURSE + ZONE]);
    const Gas gas = gas_of(
        n, radiation, heats, bindings, t9, density,
        [&](u32 i) { return at_stage(first + i, y, before, weights, u); },
        [&](u32 i) { return ydot[first + i]; });
    if (lane == 0) {
        double more = 0;
#pragma unroll
        for (u32 j = 0; j < BEFORE; ++j) {
            if (j < before) {
                more += load(weights + BEFORE + 1 + j) * u[j][first + n];
            }
        }
        // Without preceding stages there may be no step yet.
        b[first + n] = gas.heating + (before == 0 ? 0.0 : more / pace[u64(place) * PACE + STEP]);
    }
}

// Completes matrices whose nuclide entries are those of -J: last column, last row, and 1 / (gamma
// h) on the diagonal. A block per place.
//
// - ydot, slopes: dY/dt and its derivative with respect to T9, n + 1 elements per place.
// - Column j < n has the nuclides column_rows[column_ptr[j]] ..; `column_entries` holds their
//   entries in the same order. The diagonal entry comes last.
// - The last row has the entries last_row[0 .. n], the last column those of last_column[0 .. n -
//   1].
__global__ void heat_matrix(u32 n, u32 nnz, double gamma, double radiation,
                            const double* __restrict__ rho, const double* __restrict__ heats,
                            const double* __restrict__ bindings, const double* __restrict__ y,
                            const double* __restrict__ pace, const u32* __restrict__ course,
                            const double* __restrict__ ydot, const double* __restrict__ slopes,
                            const u32* __restrict__ column_ptr, const u32* __restrict__ column_rows,
                            const u32* __restrict__ column_entries, const u32* __restrict__ last_row,
                            const u32* __restrict__ last_column, double* values) {
    const u32 place = blockIdx.x, lane = threadIdx.x % WARP_THREADS;
    const u32 warp = threadIdx.x / WARP_THREADS, warps = blockDim.x / WARP_THREADS;
    if ((course[u64(place) * COURSE + FLAGS] & ENDED) != 0) {
        return;
    }
    const u64 first = u64(place) * (n + 1);
    double* const own = values + u64(place) * nnz;
    const double density = load(rho + course[u64(place) * COURSE + ZONE]);
    const double shift = 1.0 / (gamma * pace[u64(place) * PACE + STEP]);
    const Gas gas = gas_of(
        n, radiation, heats, bindings, y[first + n], density, [&](u32 i) { return y[first + i]; },
        [&](u32 i) { return ydot[first + i]; });
    // A warp handles a whole column. Column n, that of the temperature, is still empty.
    for (u32 j = warp; j <= n; j += warps) {
        double sum = 0;
        if (j < n) {
            for (u32 k = load(column_ptr + j) + lane; k < load(column_ptr + j + 1); k += WARP_THREADS) {
                const u32 row = load(column_rows + k);
                sum += gas.weight(load(heats + row), load(bindings + row)) *
                       own[load(column_entries + k)];
            }
        } else {
            for (u32 i = lane; i < n; i += WARP_THREADS) {
                const double value = -slopes[first + i];
                sum += gas.weight(load(heats + i), load(bindings + i)) * value;
                own[load(last_column + i)] = value;
            }
        }
        sum = sum_of_lanes(sum);
        if (lane == 0) {
            if (j < n) {
                // The derivative of 1 / c_v with respect to Y_j.
                own[load(last_row + j)] = sum + gas.heating * load(heats + j) / gas.capacity;
                own[load(column_entries + load(column_ptr + j + 1) - 1)] += shift;
            } else {
                // The derivatives of the particles' heat and of 1 / c_v with respect to T9.
                const double temperature = GIGA * gas.t9;
                const double stiffening = 3.0 * gas.radiation * (temperature * temperature) * GIGA;
                own[load(last_row + n)] =
                    sum + (gas.particles + gas.heating * stiffening) / gas.capacity + shift;
            }
        }
    }
}
