// Elimination on a fixed pattern by the warps of a group: sums of products, which the host has
// arranged in levels and assigned to warps and lanes.
#pragma once

// Marks an absent place: the lane has no task, or the task no factor.
constexpr u32 NO_PLACE = 0xffff;

// What a task needs beside its products: the value at its place, and by what the result is
// multiplied.
template <typename V>
struct Held {
    V value, by;
};

// Runs the stream of a warp, a sequence of slices. A slice has for each lane a task
// (place | factor << 16) and a control word, then for each step two pairs per lane. Control word:
//
//   bits  0..15 number of steps
//   bits 16..18 log2 of the number of lanes on the lane's task
//   bits 19..21 the largest such log2 in the warp
//   bits 22..26 COMPACT: the lanes of the next slice, less 1
//   bits 27..30 number of barriers of the group after the slice
//   bit  31     set in the last slice
//
// COMPACT: slices have words for their first lanes alone, of which there are a power of two, 32 in
// the first slice; the other lanes of the warp read those of the last one, and their sums are not
// used. Most levels have a few tasks. It takes some 15 cycles a slice and is for plans of several
// patterns, whose streams may each be read by one system: those of one pattern stay in caches.
//
// Calls begin(task) in the first lane of a task; add(sum, pair) for each pair of a lane, in order;
// adds up the sums of the lanes on a task, whose number is a power of two; calls finish(task, sum,
// held) in the first of these lanes. The lanes of the warp see the results after the slice, other
// threads after the next barrier. Words are loaded during the slice before, or AHEAD steps ahead:
// the 192 words behind the last stream are read, too.
template <typename V, u32 GROUP, bool COMPACT, typename Begin, typename Add, typename Finish>
__device__ __forceinline__ void run_stream(const u32* stream, Begin begin, Add add, Finish finish) {
    constexpr u32 EARLY = 2, AHEAD = 4;
    const u32 lane = threadIdx.x % WARP_THREADS;
    // Where the slice begins, and its lanes, less 1 (COMPACT); where this lane's words begin.
    const u64* slice = reinterpret_cast<const u64*>(stream);
    u32 last_lane = WARP_THREADS - 1;
    const u64* own = slice + lane;
    u64 head = load(own);
    u64 early[EARLY];
#pragma unroll
    for (u32 u = 0; u < EARLY; ++u) {
        early[u] = load(own + (1 + u) * WARP_THREADS);
    }
    for (;;) {
        const u32 task = u32(head), word = u32(head >> 32);
        const u32 steps = word & 0xffffu;
        const bool has_task = (!COMPACT || lane <= last_lane) && (task & 0xffffu) != NO_PLACE;
        const u32 apart = COMPACT ? last_lane + 1 : WARP_THREADS;
        const u64* const pairs = own + apart;
        if constexpr (COMPACT) {
            slice += (1 + steps) * apart;
            last_lane = word >> 22 & 31;
            own = slice + minimum(lane, last_lane);
        } else {
            own = pairs + steps * WARP_THREADS;
        }
        const u32 next_apart = COMPACT ? last_lane + 1 : WARP_THREADS;
        u64 now[EARLY];
        head = load(own);
#pragma unroll
        for (u32 u = 0; u < EARLY; ++u) {
            now[u] = early[u];
            early[u] = load(own + (1 + u) * next_apart);
        }
        Held<V> held = {};
        if (has_task) {
            held = begin(task);
        }
        V sum = 0;
        const auto add_both = [&](u64 both) {
            add(sum, u32(both));
            add(sum, u32(both >> 32));
        };
#pragma unroll
        for (u32 u = 0; u < EARLY; ++u) {
            if (u < steps) {
                add_both(now[u]);
            }
        }
        if (steps > EARLY) {
            u64 ahead[AHEAD] = {};
#pragma unroll
            for (u32 u = 0; u < AHEAD; ++u) {
                if (EARLY + u < steps) {
                    ahead[u] = load(pairs + (EARLY + u) * apart);
                }
            }
#pragma unroll 1
            for (u32 k = EARLY; k < steps; k += AHEAD) {
#pragma unroll
                for (u32 u = 0; u < AHEAD; ++u) {
                    const u64 both = ahead[u];
                    if (k + AHEAD + u < steps) {
                        ahead[u] = load(pairs + (k + AHEAD + u) * apart);
                    }
                    if (k + u < steps) {
                        add_both(both);
                    }
                }
            }
        }
        const u32 own = 1u << (word >> 16 & 7), most = 1u << (word >> 19 & 7);
        for (u32 offset = 1; offset < most; offset *= 2) {
            const V other = __shfl_xor_sync(ALL_LANES, sum, offset);
            sum += offset < own ? other : V(0);
        }
        if (has_task) {
            finish(task, sum, held);
        }
        __syncwarp();
        if constexpr (GROUP > WARP_THREADS) {
            // Warps that wait several times meet the others at one and the same barrier instruction.
#pragma unroll 1
            for (u32 count = word >> 27 & 15; count > 0; --count) {
                __syncthreads();
            }
        }
        if (word >> 31 != 0) {
            return;
        }
    }
}
