// Shared by kernels of whole solves: statuses, arithmetic that neither overflows nor underflows,
// and groups of threads that solve one system each.
#pragma once

// The status of a system, numbered as in `Status`, or the state of a group of threads.
constexpr u32 CONVERGED = 0;
constexpr u32 MAX_ITERATIONS = 1;
constexpr u32 BREAKDOWN_RHO = 2;
constexpr u32 BREAKDOWN_OMEGA = 3;
constexpr u32 BREAKDOWN_ALPHA = 4;
constexpr u32 NON_FINITE = 5;
constexpr u32 INDEFINITE = 6;
constexpr u32 ZERO_DIAGONAL = 7;
constexpr u32 SINGULAR = 9;
constexpr u32 STAGNATED = 10;
constexpr u32 ZERO_PIVOT = 11;
constexpr u32 PASSED = 252;  // the recurrence passed the test
constexpr u32 VACANT = 253;  // ready for the next system
constexpr u32 IDLE = 254;    // the queue is empty; from IDLE on, no group is examined
constexpr u32 RUNNING = 255;

template <typename V>
struct Precision;

template <>
struct Precision<double> {
    static constexpr double LARGEST = 1.7976931348623157e308;
    static constexpr double EPSILON = 2.220446049250313e-16;
    static constexpr double SMALLEST = 4.9406564584124654e-324; // positive number
    static constexpr int SAFE_EXPONENT = 200;
    static constexpr int LARGEST_EXPONENT = 1000;
};

template <>
struct Precision<float> {
    static constexpr float LARGEST = 3.402823466e38f;
    static constexpr double EPSILON = 1.1920928955078125e-7;
    static constexpr double SMALLEST = 0x1p-149;
    static constexpr int SAFE_EXPONENT = 20;
    static constexpr int LARGEST_EXPONENT = 120;
};

// Why CG stops if r'z is not positive: the preconditioner, and so the matrix, is not positive
// definite, or r'z has vanished.
template <typename V>
__device__ __forceinline__ u32 not_positive(V rho) {
    return rho < V(0) ? INDEFINITE : BREAKDOWN_RHO;
}

// Tolerances and limits of all systems: each array is null, or holds one entry per system, which then
// counts instead of the number before it. Passed by value, as `Limits::pass` (outcomes.rs) lays it
// out.
struct SystemLimits {
    double rel_tol;
    const double* rel_tols;
    double abs_tol;
    const double* abs_tols;
    const u32* max_iters_each;
    double floor; // in units of eps |A||x|, negative for none
    u32 max_iters;
    u32 max_restarts;

    // Largest accepted norm of the residual of a system.
    __device__ __forceinline__ double threshold(u64 system, double rhs_norm) const {
        const double rel = rel_tols == nullptr ? rel_tol : load(rel_tols + system);
        const double absolute = abs_tols == nullptr ? abs_tol : load(abs_tols + system);
        return maximum(absolute, rel * rhs_norm);
    }

    // Most iterations of a system.
    __device__ __forceinline__ u32 iterations(u64 system) const {
        return max_iters_each == nullptr ? max_iters : load(max_iters_each + system);
    }
};
static_assert(sizeof(SystemLimits) == 56, "as Limits::pass lays it out");

// One entry per system in each array. Passed by value, as `Outcomes::pass` (outcomes.rs) lays it out.
// `restarts` holds twice the restarts, plus 1 where the rounding floor accepted the system.
struct SystemOutcomes {
    u8* statuses;
    u32* iterations;
    u32* restarts;
    double* residual_norms;
    double* rhs_norms;

    // Records how a system ended.
    __device__ __forceinline__ void record(u64 system, u32 status, u32 iteration, u32 restart,
                                           bool by_floor, double residual, double rhs_norm) const {
        statuses[system] = u8(status);
        iterations[system] = iteration;
        restarts[system] = restart << 1 | by_floor;
        residual_norms[system] = residual;
        rhs_norms[system] = rhs_norm;
    }
};
static_assert(sizeof(SystemOutcomes) == 40, "as Outcomes::pass lays it out");

template <typename V>
__device__ __forceinline__ bool is_finite(V value) {
    return value - value == V(0);
}

__device__ __forceinline__ double magnitude(double value) {
    return value < 0 ? -value : value;
}

// 2^exponent, for exponents from -1022 to 1023.
__device__ __forceinline__ double power_of_two(int exponent) {
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}

// The exponent of a positive number, limited to what power_of_two can undo.
__device__ __forceinline__ int exponent_of(double value) {
    const int exponent = int(__double_as_longlong(value) >> 52 & 0x7ff) - 1023;
    return maximum(-1000, minimum(1000, exponent));
}

// About 1 / value, to 2 units in the last place, without the branches of a division, so that it
// overlaps with other work. `is_sure` is false where that may not be so.
__device__ __forceinline__ double reciprocal(double value, bool& is_sure) {
    is_sure = magnitude(value) > 1e-290 && magnitude(value) < 1e290;
#if defined(SPARSEBATCH_EMU)
    return 1.0 / value;
#else
    double inverse;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(value));
    inverse += inverse * (1.0 - value * inverse);
    inverse += inverse * (1.0 - value * inverse);
    return inverse;
#endif
}

__device__ __forceinline__ float reciprocal(float value, bool& is_sure) {
    is_sure = true;
    return 1.0f / value;
}

// a / b, with the reciprocal of b if that is sure.
template <typename V>
__device__ __forceinline__ V quotient(V a, V b, V inverse_of_b, bool is_sure) {
    return is_sure ? a * inverse_of_b : a / b;
}

template <typename V>
__device__ __forceinline__ V quotient(V a, V b) {
    bool is_sure;
    const V inverse = reciprocal(b, is_sure);
    return quotient(a, b, inverse, is_sure);
}

// A sum over the group of a thread outside the iterations: barriers guard the scratch memory.
template <typename Threads, typename T>
__device__ __forceinline__ T sum_apart(T value, double* scratch) {
    Threads::sync();
    T values[1] = {value};
    Threads::template sum<0>(values, scratch);
    Threads::sync();
    return values[0];
}

// Threads that run in step, and sums over groups of them. PARTS neighbouring threads, at most 8,
// hold the same term, which counts once.
template <u32 GROUP, u32 PARTS = 1>
struct Team {
    static constexpr bool IS_BLOCK = GROUP > WARP_THREADS;
    static constexpr u32 WARPS = IS_BLOCK ? GROUP / WARP_THREADS : 1;
    // Scratch in shared memory if a group is a block: per warp up to two values for TURN 0, and up
    // to three for TURN 1.
    static constexpr u32 SCRATCH = IS_BLOCK ? 5 * WARPS : 1;

    __device__ __forceinline__ static void sync() {
        if constexpr (IS_BLOCK) {
            __syncthreads();
        } else {
            __syncwarp();
        }
    }

    // Whether `of_group`, the same in all threads of a group, holds in any group of the team.
    __device__ __forceinline__ static bool any(bool of_group) {
        if constexpr (GROUP < WARP_THREADS) {
            return __any_sync(ALL_LANES, of_group) != 0;
        } else {
            return of_group;
        }
    }

    // Whether `of_thread` holds in any thread of this group.
    __device__ __forceinline__ static bool any_thread(bool of_thread, double* = nullptr) {
        if constexpr (IS_BLOCK) {
            return __syncthreads_or(of_thread) != 0;
        } else if constexpr (GROUP == WARP_THREADS) {
            return __any_sync(ALL_LANES, of_thread) != 0;
        } else {
            const u32 first = threadIdx.x % WARP_THREADS / GROUP * GROUP;
            return (__ballot_sync(ALL_LANES, of_thread) >> first & ((1u << GROUP) - 1)) != 0;
        }
    }

    // COUNT sums, the same in all threads of the group. If a group is a block, TURN must differ
    // from that of the previous sum.
    template <u32 TURN, u32 COUNT, typename T>
    __device__ __forceinline__ static void sum(T (&value)[COUNT], double* scratch) {
        static_assert(COUNT <= 2 + TURN && TURN <= 1, "what the scratch memory holds");
#pragma unroll
        for (u32 offset = minimum(GROUP, WARP_THREADS) / 2; offset >= PARTS; offset /= 2) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                value[i] += __shfl_xor_sync(ALL_LANES, value[i], offset);
            }
        }
        if constexpr (IS_BLOCK) {
            T* const parts = reinterpret_cast<T*>(scratch + TURN * 2 * WARPS);
            if (threadIdx.x % WARP_THREADS == 0) {
#pragma unroll
                for (u32 i = 0; i < COUNT; ++i) {
                    parts[threadIdx.x / WARP_THREADS * COUNT + i] = value[i];
                }
            }
            __syncthreads();
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                value[i] = parts[i];
#pragma unroll
                for (u32 warp = 1; warp < WARPS; ++warp) {
                    value[i] += parts[warp * COUNT + i];
                }
            }
        }
    }

    // As sum(), for two or three sums, with fewer shuffles: half of the lanes continue with one
    // sum, half with another.
    template <u32 TURN, u32 COUNT, typename T>
    __device__ __forceinline__ static void sum_side_by_side(T (&value)[COUNT], double* scratch) {
        static_assert(COUNT >= 2 && COUNT <= 2 + TURN && TURN <= 1, "what the scratch memory holds");
        constexpr u32 LANES = IS_BLOCK ? WARP_THREADS : GROUP;
        if constexpr (LANES < 4 * PARTS) {
            return sum<TURN>(value, scratch);
        }
        const bool second = (threadIdx.x & LANES / 2) != 0;
        const bool third = COUNT > 2 && (threadIdx.x & LANES / 4) != 0;
        T own = second ? value[1] : value[0];
        own += __shfl_xor_sync(ALL_LANES, second ? value[0] : value[1], LANES / 2);
        if constexpr (COUNT > 2) {
            const T last = value[2] + __shfl_xor_sync(ALL_LANES, value[2], LANES / 2);
            const T other = third ? own : last;
            own = third ? last : own;
            own += __shfl_xor_sync(ALL_LANES, other, LANES / 4);
        }
#pragma unroll
        for (u32 offset = COUNT > 2 ? LANES / 8 : LANES / 4; offset >= PARTS; offset /= 2) {
            own += __shfl_xor_sync(ALL_LANES, own, offset);
        }
        if constexpr (IS_BLOCK) {
            T* const parts = reinterpret_cast<T*>(scratch + TURN * 2 * WARPS);
            // Lane 0 has the first sum, 16 the second, 8 the third.
            if (threadIdx.x % (COUNT > 2 ? 8 : 16) == 0 && !(second && third)) {
                const u32 i = third ? 2 : second ? 1 : 0;
                parts[threadIdx.x / WARP_THREADS * COUNT + i] = own;
            }
            __syncthreads();
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                value[i] = parts[i];
#pragma unroll
                for (u32 warp = 1; warp < WARPS; ++warp) {
                    value[i] += parts[warp * COUNT + i];
                }
            }
        } else {
            if constexpr (COUNT > 2) {
                const T other = __shfl_xor_sync(ALL_LANES, own, LANES / 4);
                value[2] = third ? own : other;
                own = third ? other : own;
            }
            const T other = __shfl_xor_sync(ALL_LANES, own, LANES / 2);
            value[0] = second ? other : own;
            value[1] = second ? own : other;
        }
    }

    __device__ __forceinline__ static double largest(double value, double* scratch) {
#pragma unroll
        for (u32 offset = minimum(GROUP, WARP_THREADS) / 2; offset > 0; offset /= 2) {
            value = maximum(value, __shfl_xor_sync(ALL_LANES, value, offset));
        }
        if constexpr (IS_BLOCK) {
            __syncthreads();
            if (threadIdx.x % WARP_THREADS == 0) {
                scratch[threadIdx.x / WARP_THREADS] = value;
            }
            __syncthreads();
            for (u32 warp = 0; warp < WARPS; ++warp) {
                value = maximum(value, scratch[warp]);
            }
            __syncthreads();
        }
        return value;
    }

    // The next number of the queue for each group that wants one.
    __device__ __forceinline__ static u32 take(bool wanted, u32* queue, double* scratch) {
        u32 number = 0;
        if (wanted && threadIdx.x % GROUP == 0) {
            number = atomicAdd(queue, 1u);
        }
        return of_first(number, scratch);
    }

    // The `number` of the first thread of each group, through scratch memory if a group is a block.
    // All threads have arrived here when it returns.
    __device__ __forceinline__ static u32 of_first(u32 number, double* scratch) {
        if constexpr (IS_BLOCK) {
            u32* const shared = reinterpret_cast<u32*>(scratch);
            __syncthreads();
            if (threadIdx.x == 0) {
                *shared = number;
            }
            __syncthreads();
            number = *shared;
            __syncthreads();
            return number;
        } else {
            __syncwarp();
            return __shfl_sync(ALL_LANES, number, 0, GROUP);
        }
    }
};

// The GROUP threads of a cluster of CLUSTER blocks, as a team that solves one system. Each warp
// sends its part of a sum to every block; after one barrier each warp adds all parts, always in the
// same order.
template <u32 GROUP, u32 CLUSTER>
struct ClusterTeam {
    using Lanes = Team<WARP_THREADS>;
    static constexpr u32 BLOCK = GROUP / CLUSTER;
    static constexpr u32 WARPS = GROUP / WARP_THREADS;
    // Scratch in shared memory of each block, for the warps of all blocks: per warp up to two
    // values for TURN 0, and up to three for TURN 1.
    static constexpr u32 SCRATCH = 5 * WARPS;
    static_assert(BLOCK >= WARP_THREADS && CLUSTER <= WARP_THREADS, "whole warps, a lane a block");

    __device__ __forceinline__ static void sync() { cluster_sync(); }

    __device__ __forceinline__ static bool any(bool of_group) { return of_group; }

    __device__ __forceinline__ static bool any_thread(bool of_thread, double* scratch) {
        return sum_apart<ClusterTeam>(of_thread ? 1.0f : 0.0f, scratch) != 0.0f;
    }

    // Writes the values of each warp to all blocks, and waits until all have done so.
    template <u32 COUNT, typename T>
    __device__ __forceinline__ static void tell(const T (&value)[COUNT], T* parts) {
        const u32 warp = (cluster_rank() * BLOCK + threadIdx.x) / WARP_THREADS;
        const u32 rank = threadIdx.x % WARP_THREADS;
        if (rank < CLUSTER) {
            T* const there = in_block_of_cluster(parts, rank);
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                there[i * WARPS + warp] = value[i];
            }
        }
        cluster_sync();
    }

    // Replaces the sums of each warp by a lane's share of the sums over all warps.
    template <u32 TURN, u32 COUNT, typename T>
    __device__ __forceinline__ static void exchange(T (&value)[COUNT], double* scratch) {
        static_assert(COUNT <= 2 + TURN && TURN <= 1, "what the scratch memory holds");
        T* const parts = reinterpret_cast<T*>(scratch + TURN * 2 * WARPS);
        tell(value, parts);
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            value[i] = 0;
#pragma unroll
            for (u32 first = 0; first < WARPS; first += WARP_THREADS) {
                const u32 warp = first + threadIdx.x % WARP_THREADS;
                value[i] += warp < WARPS ? parts[i * WARPS + warp] : T(0);
            }
        }
    }

    // COUNT sums, the same in all threads of the cluster. TURN must differ from that of the
    // previous sum.
    template <u32 TURN, u32 COUNT, typename T>
    __device__ __forceinline__ static void sum(T (&value)[COUNT], double* scratch) {
        Lanes::template sum<TURN>(value, scratch);
        exchange<TURN>(value, scratch);
        Lanes::template sum<TURN>(value, scratch);
    }

    template <u32 TURN, u32 COUNT, typename T>
    __device__ __forceinline__ static void sum_side_by_side(T (&value)[COUNT], double* scratch) {
        Lanes::template sum_side_by_side<TURN>(value, scratch);
        exchange<TURN>(value, scratch);
        Lanes::template sum_side_by_side<TURN>(value, scratch);
    }

    __device__ __forceinline__ static double largest(double value, double* scratch) {
        double values[1] = {Lanes::largest(value, scratch)};
        sync();
        tell(values, scratch);
        for (u32 warp = 0; warp < WARPS; ++warp) {
            value = maximum(value, scratch[warp]);
        }
        sync();
        return value;
    }

    // The `number` of the first thread of the cluster. All threads have arrived here when it
    // returns.
    __device__ __forceinline__ static u32 of_first(u32 number, double* scratch) {
        u32* const own = reinterpret_cast<u32*>(scratch);
        sync();
        if (cluster_rank() == 0 && threadIdx.x < WARP_THREADS) {
            number = __shfl_sync(ALL_LANES, number, 0);
            if (threadIdx.x < CLUSTER) {
                *in_block_of_cluster(own, threadIdx.x) = number;
            }
        }
        sync();
        number = *own;
        sync();
        return number;
    }
};
