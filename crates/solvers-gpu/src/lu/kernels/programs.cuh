// Programs of sums of products on values of several systems side by side, which a host has put into
// steps and given to the warps of a block.
#pragma once

// A record: (target | divisor << 16), what to do, and pairs of places (left | right << 16). What is not
// there is the place of a 0.
constexpr u32 RECORD_PAIRS = 6;
constexpr u32 RECORD_WORDS = 8;
constexpr u32 RECORD_STARTS = 1 << 2; // the target's sum begins
constexpr u32 RECORD_ENDS = 1 << 3;   // it is complete, or set down until later
constexpr u32 RECORD_DIVIDES = 1 << 4;
constexpr u32 RECORD_IS_LAST = 1 << 5;
constexpr u32 RECORD_UNSET = 1 << 6; // of no record
constexpr u32 RECORD_BARRIERS = 8; // from this bit on: barriers of the block after it

// The halves of a word, in a form that a compiler does not take apart: with the address it makes two
// instructions, else three.
__device__ __forceinline__ u32 low_half(u32 word) {
#if defined(SPARSEBATCH_EMU)
    return word & 0xffffu;
#else
    u32 half;
    asm("prmt.b32 %0, %1, 0, 0x4410;" : "=r"(half) : "r"(word));
    return half;
#endif
}

__device__ __forceinline__ u32 high_half(u32 word) {
#if defined(SPARSEBATCH_EMU)
    return word >> 16;
#else
    u32 half;
    asm("prmt.b32 %0, %1, 0, 0x4432;" : "=r"(half) : "r"(word));
    return half;
#endif
}

__device__ __forceinline__ u32 upper_bits(double value) {
    return u32(__double_as_longlong(value) >> 32);
}

__device__ __forceinline__ u32 upper_bits(float value) {
    return __float_as_uint(value);
}

// Whether a value is finite and its reciprocal far from overflow and underflow; by its exponent.
__device__ __forceinline__ bool is_moderate(double value) {
    return (u32(__double_as_longlong(value) >> 52) & 0x7ffu) - 64u < 1918u;
}

__device__ __forceinline__ bool is_moderate(float) {
    return false;
}

__device__ __forceinline__ bool has_plain_reciprocal(double value) {
    return is_moderate(value);
}

__device__ __forceinline__ bool has_plain_reciprocal(float value) {
    return magnitude(value) > 0x1p-100 && magnitude(value) < 0x1p100;
}

// What divides several values: a product with the reciprocal, and with a power of two beside it where the
// reciprocal alone would overflow or be subnormal.
template <typename V>
struct Divisor {
    V inverse, scale;
    bool is_plain; // the scale is 1

    __device__ __forceinline__ explicit Divisor(V by)
        : scale(1), is_plain(has_plain_reciprocal(by)) {
        bool ignored;
        if (is_plain) {
            inverse = reciprocal(by, ignored);
        } else {
            constexpr int EXPONENT = sizeof(V) == 8 ? 600 : 80;
            scale = V(power_of_two(magnitude(double(by)) < 1 ? EXPONENT : -EXPONENT));
            inverse = is_finite(by) || by != by ? V(1) / (by * scale) : V(0);
        }
    }

    __device__ __forceinline__ V of(V value) const { return value * inverse * scale; }
};

struct Record {
    uint4 head, tail;

    __device__ __forceinline__ explicit Record(const u32* words)
        : head(load(reinterpret_cast<const uint4*>(words))),
          tail(load(reinterpret_cast<const uint4*>(words) + 1)) {}

    __device__ __forceinline__ u32 target() const { return low_half(head.x); }
    __device__ __forceinline__ u32 divisor() const { return high_half(head.x); }
    __device__ __forceinline__ u32 control() const { return head.y; }
    // In twos.
    __device__ __forceinline__ u32 pairs() const { return control() & 3; }

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

// Values in shared memory, by numbers. Reads stay in the order in which they stand, all ahead of what
// is done with them: a compiler that spares registers puts them apart, and their latencies add up.
template <typename V>
struct SharedValues {
#if defined(SPARSEBATCH_EMU)
    V* values;

    __device__ __forceinline__ explicit SharedValues(V* first) : values(first) {}
    __device__ __forceinline__ V get(u32 i) const { return values[i]; }
    __device__ __forceinline__ void set(u32 i, V value) const { values[i] = value; }
#else
    u32 address;

    __device__ __forceinline__ explicit SharedValues(V* first)
        : address(u32(__cvta_generic_to_shared(first))) {
        // Known in one piece, or it is put together again for each access.
        asm volatile("" : "+r"(address));
    }

    __device__ __forceinline__ V get(u32 i) const { return read(i, V()); }

    __device__ __forceinline__ void set(u32 i, double value) const {
        asm volatile("st.shared.f64 [%0], %1;" ::"r"(address + i * 8), "d"(value) : "memory");
    }

    __device__ __forceinline__ void set(u32 i, float value) const {
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(address + i * 4), "f"(value) : "memory");
    }

private:
    __device__ __forceinline__ double read(u32 i, double) const {
        double value;
        asm volatile("ld.shared.f64 %0, [%1];" : "=d"(value) : "r"(address + i * 8) : "memory");
        return value;
    }

    __device__ __forceinline__ float read(u32 i, float) const {
        float value;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address + i * 4) : "memory");
        return value;
    }
#endif
};

// sum, with PAIRS products added to it one after the other. `meanwhile` is done while they are read.
template <u32 PAIRS, typename V, typename Sum, typename Add, typename Meanwhile>
__device__ __forceinline__ Sum add_pairs(const Record& record, const SharedValues<V>& own, Sum sum,
                                         Add add, Meanwhile meanwhile) {
    V left[PAIRS], right[PAIRS];
#pragma unroll
    for (u32 k = 0; k < PAIRS; ++k) {
        left[k] = own.get(low_half(record.pair(k)));
        right[k] = own.get(high_half(record.pair(k)));
    }
    meanwhile();
#pragma unroll
    for (u32 k = 0; k < PAIRS; ++k) {
        sum = add(sum, left[k], right[k]);
    }
    return sum;
}

// With all pairs of a record.
template <typename V, typename Sum, typename Add, typename Meanwhile>
__device__ __forceinline__ Sum add_record(const Record& record, const SharedValues<V>& own, Sum sum,
                                          Add add, Meanwhile meanwhile) {
    const u32 pairs = record.pairs();
    if (pairs < 2) {
        return add_pairs<2>(record, own, sum, add, meanwhile);
    }
    if (pairs == 2) {
        return add_pairs<4>(record, own, sum, add, meanwhile);
    }
    return add_pairs<RECORD_PAIRS>(record, own, sum, add, meanwhile);
}

// Works through the records of a warp for one slot: those of its slots stand side by side, `stride`
// words apart in time. All records at a time have as many pairs, and the same to do. `own` is where a
// system's value at place 0 is; places are multiples of the systems side by side.
//
// Calls work(record) for each, and waits for barriers; what others read they read after the next one.
// Records are asked for two ahead: five more follow the last one.
//
// Warps wait at the barrier of whichever of four records they are at, which `bar.sync` allows, where it
// is the warp that has to be together: it counts threads, and does not look at where they come from
// (PTX ISA, «barrier{.cta}»). synccheck of compute-sanitizer wants all warps at one instruction and names
// these; at one for all four, more records would be alive than there are registers for.
template <u32 GROUP, typename Work>
__device__ __forceinline__ void run_program(const u32* words, u32 stride, Work work) {
    const auto next = [&](const Record& record) {
        work(record);
#pragma unroll 1
        for (u32 barriers = record.control() >> RECORD_BARRIERS; barriers > 0; --barriers) {
            Team<GROUP>::sync();
        }
        return (record.control() & RECORD_IS_LAST) == 0;
    };
    // Two by two: a wait for one of them is a wait for all that were asked for. So the two that come next
    // have to be there before more are asked for: the address says so.
    Record first(words), second(words + stride);
    for (;;) {
        const u32* const rest = words + 2 * stride + (first.control() & RECORD_UNSET);
        const Record third(rest), fourth(rest + stride);
        if (!next(first) || !next(second)) {
            return;
        }
        words += 4 * stride + (third.control() & RECORD_UNSET);
        first = Record(words);
        second = Record(words + stride);
        if (!next(third) || !next(fourth)) {
            return;
        }
    }
}
