// Programs: sums of products of values, for several systems side by side. The host has split them
// into records and assigned the records to the warps of a block.
#pragma once

// A record: (target | divisor << 16), a control word, and pairs of factors (left | right << 16).
// Target, divisor and factors are places of values; absent ones refer to the place of a 0.
constexpr u32 RECORD_PAIRS = 6;
constexpr u32 RECORD_WORDS = 8;
constexpr u32 RECORD_STARTS = 1 << 2; // the target's sum begins
constexpr u32 RECORD_ENDS = 1 << 3;   // the sum goes to the target, complete or partial
constexpr u32 RECORD_DIVIDES = 1 << 4;
constexpr u32 RECORD_IS_LAST = 1 << 5;
constexpr u32 RECORD_UNSET = 1 << 6; // set in no record
constexpr u32 RECORD_BARRIERS = 8; // from this bit on: number of block barriers after the record

// The halves of a word, in a form that the compiler does not take apart: a half and the address
// made from it take two instructions, otherwise three.
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

// Divides several values by one divisor: multiplication by its reciprocal, and by a power of two as
// well if the reciprocal alone would overflow or be subnormal.
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
    // Number of pairs / 2, rounded up.
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

// Values in shared memory, by index. Reads keep their order in the source, ahead of the work that
// uses them: a compiler that spares registers separates the reads, and their latencies add up.
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
        // Opaque to the compiler, which would otherwise recompute the address for each access.
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

// `sum` plus PAIRS products, added one after the other. `meanwhile` runs while the operands are
// read.
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

// The same for all pairs of a record.
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

// The same in little code.
template <typename V, typename Sum, typename Add>
__device__ __forceinline__ Sum add_record_by_twos(const Record& record, const SharedValues<V>& own,
                                                  Sum sum, Add add) {
    const u32 twos = maximum(record.pairs(), 1u);
#pragma unroll 1
    for (u32 two = 0; two < twos; ++two) {
#pragma unroll
        for (u32 k = 0; k < 2; ++k) {
            const u32 pair = record.pair(2 * two + k);
            sum = add(sum, own.get(low_half(pair)), own.get(high_half(pair)));
        }
    }
    return sum;
}

// Runs the records of a warp for one slot. The records of the warp's slots lie side by side;
// successive records of a slot are `stride` words apart. Records that run at the same time have
// equal numbers of pairs and equal control words. Places count from a system's value at place 0
// (`own` in add_record) and are multiples of the number of systems side by side.
//
// Calls work(record) for each record, then waits at the record's barriers. Values written by a
// record are read by other threads only after the next barrier. Records are prefetched two ahead:
// five more follow the last one. IN_LITTLE_CODE: one after the other, without prefetches.
//
// Warps may wait at the barriers of different records of the two below. `bar.sync` allows this as
// long as the threads of each warp stay together: it counts threads, whatever instruction they
// arrive from (PTX ISA, «barrier{.cta}»). synccheck of compute-sanitizer expects all warps at one
// instruction and reports these barriers. A single barrier instruction for both would keep more
// records alive than there are registers for; four records in turn, without the copies of two,
// gained nothing and took the compiler 0.4 s more.
template <u32 GROUP, bool IN_LITTLE_CODE, typename Work>
__device__ __forceinline__ void run_program(const u32* words, u32 stride, Work work) {
    const auto next = [&](const Record& record) {
        work(record);
#pragma unroll 1
        for (u32 barriers = record.control() >> RECORD_BARRIERS; barriers > 0; --barriers) {
            Team<GROUP>::sync();
        }
        return (record.control() & RECORD_IS_LAST) == 0;
    };
    if constexpr (IN_LITTLE_CODE) {
#pragma unroll 1
        while (next(Record(words))) {
            words += stride;
        }
    } else {
        // Records are loaded in twos. A wait for one load waits for all loads under way, so the
        // next two records must have arrived before more are requested: the address depends on
        // them.
        Record first(words), second(words + stride);
#pragma unroll 1
        for (;;) {
            words += 2 * stride + (first.control() & RECORD_UNSET);
            const Record third(words), fourth(words + stride);
            if (!next(first) || !next(second)) {
                return;
            }
            first = third;
            second = fourth;
        }
    }
}
