// Programs of sums of products on values of several systems side by side, which a host has put into
// steps and given to the warps of a block.
#pragma once

// No place: a slot without work, or a target without a divisor.
constexpr u32 NO_PLACE = 0xffff;

// What a record does to its target.
constexpr u32 RECORD_PAIRS = 6;
constexpr u32 RECORD_WORDS = 8;
constexpr u32 RECORD_COUNT = 7;       // how many pairs
constexpr u32 RECORD_STARTS = 1 << 3; // the target's sum begins
constexpr u32 RECORD_ENDS = 1 << 4;   // it is complete, or set down until later
constexpr u32 RECORD_DIVIDES = 1 << 5;
constexpr u32 RECORD_IS_LAST = 1 << 6;
constexpr u32 RECORD_BARRIERS = 8; // from this bit on: barriers of the block after it

struct Record {
    uint4 head, tail;

    __device__ __forceinline__ explicit Record(const u32* words)
        : head(load(reinterpret_cast<const uint4*>(words))),
          tail(load(reinterpret_cast<const uint4*>(words) + 1)) {}

    __device__ __forceinline__ u32 target() const { return head.x; }
    __device__ __forceinline__ u32 control() const { return head.y; }

    __device__ __forceinline__ u32 pair(u32 k) const {
        return k == 0 ? head.z : k == 1 ? head.w : k == 2 ? tail.x : k == 3 ? tail.y
                                               : k == 4   ? tail.z
                                                          : tail.w;
    }
};

__device__ __forceinline__ double minus_product(double sum, double left, double right) {
    return __fma_rn(-left, right, sum);
}

__device__ __forceinline__ float minus_product(float sum, float left, float right) {
    return __fmaf_rn(-left, right, sum);
}

// Works through the records of a warp for one slot: those of its slots stand side by side, `stride`
// words apart in time. A record holds (target | divisor << 16), what to do, and pairs of places; all
// records at a time do the same number of pairs, barriers and divisions. `own` is where a system's
// value at place 0 is; places are multiples of the systems side by side.
//
// Calls start(target) for the sum to begin with, add(sum, left, right) for each pair in its order and
// finish(target, divides, sum). What others read they read after the next barrier. Records are asked
// for two ahead: two more follow the last one.
template <u32 GROUP, typename Sum, typename V, typename Start, typename Add, typename Finish>
__device__ __forceinline__ void run_program(const u32* words, u32 stride, const V* own, Start start,
                                            Add add, Finish finish) {
    Record now(words), next(words + stride);
    Sum sum = 0;
    for (words += 2 * stride;; words += stride) {
        const Record ahead(words);
        const u32 control = now.control(), count = control & RECORD_COUNT;
        if ((control & RECORD_STARTS) != 0) {
            sum = start(now.target());
        }
        V left[RECORD_PAIRS], right[RECORD_PAIRS];
#pragma unroll
        for (u32 k = 0; k < RECORD_PAIRS; ++k) {
            if (k < count) {
                left[k] = own[now.pair(k) & 0xffffu];
                right[k] = own[now.pair(k) >> 16];
            }
        }
#pragma unroll
        for (u32 k = 0; k < RECORD_PAIRS; ++k) {
            if (k < count) {
                sum = add(sum, left[k], right[k]);
            }
        }
        if ((control & RECORD_ENDS) != 0) {
            finish(now.target(), (control & RECORD_DIVIDES) != 0, sum);
        }
        for (u32 left_over = control >> RECORD_BARRIERS; left_over > 0; --left_over) {
            Team<GROUP>::sync();
        }
        if ((control & RECORD_IS_LAST) != 0) {
            return;
        }
        now = next;
        next = ahead;
    }
}
