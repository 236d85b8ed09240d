#pragma once

#include "state.cuh"

// Elements of `counts`: numbers of systems by status; systems accepted by the rounding floor;
// numbers by iterations, the last one for that many and more.
constexpr u32 STATUSES = 16, ITERATIONS = 64;
constexpr u32 FLOOR = STATUSES, FIRST_ITERATIONS = STATUSES + 1;

// How the systems of some stages ended, and the totals over all systems. Outcomes lie stage by
// stage, `distance` apart, and within a stage place by place, as the solvers of the library write
// them: status, iterations, twice the restarts plus 1 if the floor accepted, norms of residual and
// right-hand side. `worst` holds the bits of the largest relative residual of a converged system.
struct Ended {
    u32 stages, distance;
    const u8* statuses;
    const u32* iterations;
    const u32* restarts;
    const double* residual_norms;
    const double* rhs_norms;
    u64* counts;
    u64* worst;

    // Counts the system of each lane, for the whole warp. Returns whether the lane's system was not
    // solved.
    __device__ __forceinline__ bool count(u32 stage, u32 place, bool counts_here) const {
        constexpr u32 NONE = 0xffffffffu;
        const u32 lane = threadIdx.x % WARP_THREADS;
        u32 kind = NONE, status = 0;
        double residual = 0;
        const u32 system = stage * distance + place;
        if (counts_here && stage < stages) {
            status = minimum(u32(statuses[system]), STATUSES - 1);
            const u32 by_floor = status == 0 ? restarts[system] & 1 : 0;
            kind = minimum(iterations[system], ITERATIONS - 1) << 8 | by_floor << 7 | status;
            const double size = rhs_norms[system];
            residual = status == 0 && size > 0 ? residual_norms[system] / size : 0;
        }
        const u32 alike = __match_any_sync(ALL_LANES, kind);
        if (kind != NONE && u32(__ffs(i32(alike))) == lane + 1) {
            const u64 systems = __popc(alike);
            atomicAdd(counts + status, systems);
            atomicAdd(counts + FIRST_ITERATIONS + (kind >> 8), systems);
            if ((kind >> 7 & 1) != 0) {
                atomicAdd(counts + FLOOR, systems);
            }
        }
        residual = most_of_lanes(residual);
        if (lane == 0 && residual > 0) {
            atomicMax(worst, u64(__double_as_longlong(residual)));
        }
        return status != 0;
    }
};
