// Elimination on a fixed pattern by the warps of a group: sums of products, which the host has
// arranged in levels and assigned to warps and lanes.
#pragma once

// Marks an absent place: the lane has no task, or the task no factor.
constexpr u32 NO_PLACE = 0xffff;

// The values of COUNT systems at one place.
template <typename V, u32 COUNT>
struct alignas(sizeof(V) * COUNT) Values {
    V of[COUNT];
};

// Runs the stream of a warp, a sequence of slices. A slice has for each lane a task
// (place | factor << 16) and a control word, then for each of `width` steps one pair per lane.
// Control word:
//
//   bits  0..15 width
//   bits 16..18 log2 of the number of lanes on the lane's task
//   bits 19..21 the largest such log2 in the warp
//   bits 22..25 width of the next slice, at most 15
//   bits 26..30 number of barriers of the group after the slice
//   bit  31     set in the last slice
//
// Calls add(sums, pair) for each pair of a lane, in order; adds up the sums of the lanes on a task,
// whose number is a power of two; calls finish(task, sums) in the first of these lanes. Other
// threads read results after the next barrier only. Words are loaded eight steps ahead, and the
// first words of a slice during the slice before: sums and barriers hide their latency.
template <typename Sum, u32 GROUP, u32 COUNT, typename Add, typename Finish>
__device__ __forceinline__ void run_stream(const u32* stream, Add add, Finish finish) {
    constexpr u32 STEPS = 4, AHEAD = 2 * STEPS;
    const u32 lane = threadIdx.x % WARP_THREADS;
    const auto ask = [&](u32(&into)[AHEAD], const u32* pairs, u32 width) {
#pragma unroll
        for (u32 u = 0; u < AHEAD; ++u) {
            if (u < width) {
                into[u] = load(pairs + u * WARP_THREADS);
            }
        }
    };
    u64 head = load(reinterpret_cast<const u64*>(stream) + lane);
    const u32* pairs = stream + 2 * WARP_THREADS + lane;
    u32 ahead[AHEAD] = {};
    ask(ahead, pairs, u32(head >> 32) & 0xffffu);
    for (;;) {
        const u32 task = u32(head), word = u32(head >> 32);
        const u32 width = word & 0xffffu;
        const bool is_last = word >> 31 != 0;
        const u32* const next = pairs + width * WARP_THREADS;
        u32 ahead_of_next[AHEAD] = {};
        if (!is_last) {
            head = load(reinterpret_cast<const u64*>(next - lane) + lane);
            ask(ahead_of_next, next + 2 * WARP_THREADS, word >> 22 & 15);
        }
        Sum sums[COUNT] = {};
#pragma unroll 1
        for (u32 k = 0; k < width; k += STEPS) {
            u32 now[STEPS];
#pragma unroll
            for (u32 u = 0; u < STEPS; ++u) {
                now[u] = ahead[u];
                ahead[u] = ahead[STEPS + u];
                if (k + AHEAD + u < width) {
                    ahead[STEPS + u] = load(pairs + (k + AHEAD + u) * WARP_THREADS);
                }
            }
#pragma unroll
            for (u32 u = 0; u < STEPS; ++u) {
                if (k + u < width) {
                    add(sums, now[u]);
                }
            }
        }
        const u32 own = 1u << (word >> 16 & 7), most = 1u << (word >> 19 & 7);
        for (u32 offset = 1; offset < most; offset *= 2) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                const Sum other = __shfl_xor_sync(ALL_LANES, sums[i], offset);
                sums[i] += offset < own ? other : Sum(0);
            }
        }
        if ((task & 0xffffu) != NO_PLACE) {
            finish(task, sums);
        }
        // Warps that wait several times meet the others at one and the same barrier instruction.
#pragma unroll 1
        for (u32 count = word >> 26 & 31; count > 0; --count) {
            Team<GROUP>::sync();
        }
        if (is_last) {
            return;
        }
        pairs = next + 2 * WARP_THREADS;
#pragma unroll
        for (u32 u = 0; u < AHEAD; ++u) {
            ahead[u] = ahead_of_next[u];
        }
    }
}

// Factorises and solves with the values of COUNT systems, whose places `stream` names: a task
// subtracts its sum from the value at its place, then multiplies that by the value at its factor,
// or inverts it if factor and place are the same. Sets `bad` for pivots that are zero or NaN.
template <typename V, u32 GROUP, u32 COUNT>
__device__ __forceinline__ void eliminate(const u32* stream, Values<V, COUNT>* places,
                                          bool (&bad)[COUNT]) {
    const auto add = [&](V(&sums)[COUNT], u32 pair) {
        const Values<V, COUNT> left = places[pair & 0xffffu], right = places[pair >> 16];
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            sums[i] += left.of[i] * right.of[i];
        }
    };
    const auto finish = [&](u32 task, const V(&sums)[COUNT]) {
        const u32 place = task & 0xffffu, factor = task >> 16;
        Values<V, COUNT> value = places[place];
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            value.of[i] -= sums[i];
        }
        if (factor == place) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                bad[i] = bad[i] || !(value.of[i] < V(0) || V(0) < value.of[i]);
                value.of[i] = V(1) / value.of[i];
            }
        } else if (factor != NO_PLACE) {
            const Values<V, COUNT> by = places[factor];
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                value.of[i] *= by.of[i];
            }
        }
        places[place] = value;
    };
    run_stream<V, GROUP, COUNT>(stream, add, finish);
}
