// Shared by composed solves: the state of each system, and the phases of a step. They work on
// vectors of all systems one after the other, between products of a plan.
//
// A phase is a pass over the rows of a system with up to four sums, and the conclusions from these.
// - Systems with at most as many rows as the plan says: all phases one after the other in one
//   launch (krylov), with 8 lanes, 32 lanes or a block per system.
// - Larger systems are cut into parts of `part_rows` rows, a block each: one launch per phase
//   (krylov_part), in which the last block to finish adds the sums of all parts, in their order.
// - The order of every sum is a function of the rows of the system and of the part length.
//
// Phases are a type with
// - V, Sum: the types of values and of sums;
// - count: the number of a phase's sums;
// - takes: whether a system in the given state goes through the phase;
// - row: the work on one row;
// - conclude: called by all threads of a system with the same sums; the thread with `leads` writes
//   what others read.
//
// Arguments:
// - `blocks`: for krylov one word per block: first place in `order` | systems << 32 | lanes per
//   system << 48; for krylov_part two words: system | part << 32, first place in `partials` | parts
//   << 32.
// - `firsts`: system s has the rows firsts[s] to firsts[s + 1] of all vectors. `states`: 16 words
//   per system.
// - `partials`: 4 numbers for each place. `tickets`: a zero for each place, before and after the
//   launch.
// - Arrays of limits are null or hold one element per system; arrays of outcomes hold one per
//   system.
// - `flawed`: null, or holds 1 for systems whose preconditioner does not exist.
// - `remaining`: the number of systems that have not ended.
// - `history`: null, or a number for each system: the norm of an iteration's residual with its sign
//   bit set.
// - `part_rows`: rows of a part, except the last of a system.
// - Vectors that a method does not have are null: v, shadow, hat, m. No vector overlaps another.
// - Blocks of 256 threads.
#pragma once

#include "evaluate.cuh"

constexpr u32 KRYLOV_THREADS = 256;
constexpr u32 KRYLOV_BLOCKS = 3; // resident per multiprocessor: fewer registers spill
constexpr u32 KRYLOV_WARPS = KRYLOV_THREADS / WARP_THREADS;
constexpr u32 STATE_WORDS = 16;

// In addition to the statuses of solver.cuh: the system is to start from the residual just
// computed.
constexpr u32 STARTING = 251;

// Bits of `flags`.
constexpr u32 FROM_GUESS = 1; // the initial guess is not 0
constexpr u32 FRESH = 2;      // no iterations yet
constexpr u32 HALF = 4;       // BiCGStab passed the test after half a step
constexpr u32 BAD_OMEGA = 8;

// State of a system between launches. During iterations x and r are scaled by 2^-scale.
template <typename V>
struct State {
    double threshold, rhs_norm;
    double size; // || |A||x| + |b| ||, if there is a rounding floor
    V square;    // of the scaled threshold
    V rho, alpha, beta, omega, shadow_square;
    V along; // p'Ap, or r^'v
    V turn;  // t't + t's
    u32 stop, iteration, restarts, limit, flags;
    int scale;
};

template <typename V>
struct KrylovTask {
    const u64* blocks;
    const u32* order;
    const u64* firsts;
    u64* states;
    u32* tickets;
    double* partials;
    V* x;
    const V* b;
    V *r, *p, *w, *v, *shadow, *hat;
    const V* m;
    double* history;
    SystemLimits limits;
    SystemOutcomes outcomes;
    u32* remaining;
    const u8* flawed;

    __device__ __forceinline__ State<V>* state(u32 system) const {
        static_assert(sizeof(State<V>) <= 8 * STATE_WORDS, "what the plan allocates");
        return reinterpret_cast<State<V>*>(states + u64(system) * STATE_WORDS);
    }
};

// The parameters of a kernel, and the task made of them. No vector is read through the read-only
// cache: a launch may begin before the preceding launch has written it.
#define KRYLOV_PARAMETERS(V)                                                                       \
    const u64 *blocks, const u32 *order, const u64 *firsts, u64 *states, u32 *tickets,             \
        double *partials, V *x, const V *b, V *r, V *p, V *w, V *v, V *shadow, V *hat, const V *m, \
        double *history, SystemLimits limits, SystemOutcomes outcomes, u32 *remaining,             \
        const u8 *flawed
#define KRYLOV_TASK                                                                                \
    {                                                                                              \
        blocks, order, firsts, states, tickets, partials, x, b, r, p, w, v, shadow, hat, m,        \
            history, limits, outcomes, remaining, flawed                                           \
    }

// COUNT sums over a group of lanes or the block, the same in all its threads. All threads of the
// block take part.
template <u32 GROUP, u32 COUNT, typename T>
__device__ __forceinline__ void group_sums(T (&sums)[MOST_SUMS], double* scratch) {
#pragma unroll
    for (u32 offset = minimum(GROUP, WARP_THREADS) / 2; offset > 0; offset /= 2) {
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            sums[i] += __shfl_xor_sync(ALL_LANES, sums[i], offset);
        }
    }
    if constexpr (GROUP > WARP_THREADS) {
        T* const parts = reinterpret_cast<T*>(scratch);
        __syncthreads(); // the preceding sums have been read
        if (threadIdx.x % WARP_THREADS == 0) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                parts[threadIdx.x / WARP_THREADS * MOST_SUMS + i] = sums[i];
            }
        }
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            sums[i] = parts[i];
#pragma unroll
            for (u32 warp = 1; warp < KRYLOV_WARPS; ++warp) {
                sums[i] += parts[warp * MOST_SUMS + i];
            }
        }
    }
}

template <typename V>
__device__ __forceinline__ u32 unless_lost(V value, u32 status) {
    return is_finite(value) ? status : NON_FINITE;
}

// Records the norm of an iteration's residual, given its square.
template <typename V>
__device__ __forceinline__ void record(const KrylovTask<V>& task, u32 system, const State<V>& s,
                                       V square) {
    if (task.history != nullptr) {
        const double norm = __dsqrt_rn(double(square)) * power_of_two(s.scale);
        task.history[system] =
            __longlong_as_double(__double_as_longlong(norm) | (long long)(1ull << 63));
    }
}

// Runs the phases FIRST to LAST of the systems of a block, one after the other. A lane has the same
// rows in all of them.
template <typename Phases, u32 GROUP, u32 FIRST, u32 LAST>
__device__ __forceinline__ void phases_of(const Phases& phases, bool is_awake, u32 system, u64 first,
                                          u64 end, State<typename Phases::V>& s, double* scratch) {
    const u32 lane = threadIdx.x % GROUP;
    typename Phases::Sum sums[MOST_SUMS] = {};
    const bool takes = is_awake && Phases::template takes<FIRST>(s);
    if (takes) {
        for (u64 i = first + lane; i < end; i += GROUP) {
            phases.template row<FIRST>(s, system, i, sums);
        }
    }
    constexpr u32 COUNT = Phases::count(FIRST);
    if constexpr (COUNT > 0) {
        group_sums<GROUP, COUNT>(sums, scratch);
        if (takes) {
            phases.template conclude<FIRST>(s, system, sums, lane == 0);
        }
    }
    if constexpr (FIRST < LAST) {
        phases_of<Phases, GROUP, FIRST + 1, LAST>(phases, is_awake, system, first, end, s, scratch);
    }
}

template <typename Phases, u32 GROUP, u32 FIRST, u32 LAST>
__device__ __forceinline__ void systems_of_block(const Phases& phases, u64 word, double* scratch) {
    using V = typename Phases::V;
    const KrylovTask<V>& task = phases.task;
    const u32 place = threadIdx.x / GROUP;
    const bool is_one = place < (u32(word >> 32) & 0xffff);
    const u32 system = is_one ? load(task.order + u32(word) + place) : 0;
    const u64 first = is_one ? load(task.firsts + system) : 0;
    const u64 end = is_one ? load(task.firsts + system + 1) : 0;
    wait_for_launches_ahead();
    let_next_launch_begin();
    State<V> s = *task.state(system);
    const bool is_awake = is_one && Phases::template takes<FIRST>(s);
    // The condition is the same in all lanes of a warp, or of the block.
    if (GROUP < WARP_THREADS ? !__any_sync(ALL_LANES, is_awake) : !is_awake) {
        return;
    }
    phases_of<Phases, GROUP, FIRST, LAST>(phases, is_awake, system, first, end, s, scratch);
    Team<GROUP>::sync();
    if (is_awake && threadIdx.x % GROUP == 0) {
        *task.state(system) = s;
    }
}

// krylov: the phases FIRST to LAST of whole systems.
template <typename Phases, u32 FIRST, u32 LAST>
__device__ __forceinline__ void whole_systems(const Phases& phases) {
    __shared__ double scratch[KRYLOV_WARPS * MOST_SUMS];
    const u64 word = load(phases.task.blocks + blockIdx.x);
    const u32 group = u32(word >> 48);
    if (group == 8) {
        systems_of_block<Phases, 8, FIRST, LAST>(phases, word, scratch);
    } else if (group == WARP_THREADS) {
        systems_of_block<Phases, WARP_THREADS, FIRST, LAST>(phases, word, scratch);
    } else {
        systems_of_block<Phases, KRYLOV_THREADS, FIRST, LAST>(phases, word, scratch);
    }
}

// krylov_part: one phase of parts of systems.
template <typename Phases, u32 PHASE>
__device__ __forceinline__ void part_of_system(const Phases& phases, u32 part_rows) {
    using V = typename Phases::V;
    using Sum = typename Phases::Sum;
    __shared__ double scratch[KRYLOV_WARPS * MOST_SUMS];
    __shared__ u32 is_last;
    const KrylovTask<V>& task = phases.task;
    const u64 word = load(task.blocks + 2 * u64(blockIdx.x));
    const u64 rest = load(task.blocks + 2 * u64(blockIdx.x) + 1);
    const u32 system = u32(word), part = u32(word >> 32);
    const u32 place = u32(rest), parts = u32(rest >> 32);
    const u64 first = load(task.firsts + system) + u64(part) * part_rows;
    const u64 end = minimum(first + part_rows, load(task.firsts + system + 1));
    wait_for_launches_ahead();
    let_next_launch_begin();
    State<V> s = *task.state(system);
    // The same in all blocks of the system: the state is written only after all blocks have
    // counted.
    if (!Phases::template takes<PHASE>(s)) {
        return;
    }
    Sum sums[MOST_SUMS] = {};
    for (u64 i = first + threadIdx.x; i < end; i += KRYLOV_THREADS) {
        phases.template row<PHASE>(s, system, i, sums);
    }
    constexpr u32 COUNT = Phases::count(PHASE);
    if constexpr (COUNT > 0) {
        group_sums<KRYLOV_THREADS, COUNT>(sums, scratch);
        Sum* const partials = reinterpret_cast<Sum*>(task.partials + u64(place) * MOST_SUMS);
        if (threadIdx.x == 0) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                partials[part * MOST_SUMS + i] = sums[i];
            }
            __threadfence();
            is_last = atomicAdd(task.tickets + place, 1u) == parts - 1;
        }
        __syncthreads();
        if (!is_last) {
            return;
        }
        __threadfence();
#pragma unroll
        for (u32 i = 0; i < MOST_SUMS; ++i) {
            sums[i] = 0;
        }
        const volatile Sum* const written = partials;
        for (u32 other = threadIdx.x; other < parts; other += KRYLOV_THREADS) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                sums[i] += written[other * MOST_SUMS + i];
            }
        }
        group_sums<KRYLOV_THREADS, COUNT>(sums, scratch);
        phases.template conclude<PHASE>(s, system, sums, threadIdx.x == 0);
        if (threadIdx.x == 0) {
            *task.state(system) = s;
            task.tickets[place] = 0;
        }
    }
}
