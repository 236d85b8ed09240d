// Sums of products in an LU solve, on values in shared memory: elimination and residual by
// programs, backward substitution in chunks.
#pragma once

#include "solver.cuh"
#include "programs.cuh"

// Chunks of a group: this many are prefetched while as many are processed.
constexpr u32 CHUNKS = 6;

// By a program, where `writes`: r -= A x, or r = |r| + |A||x|. `own`: the values of this lane's
// system.
template <typename V, u32 GROUP, bool MAGNITUDES>
__device__ __forceinline__ void multiply_by_program(const u32* words, u32 stride, SharedValues<V> own,
                                                 u32 zero, bool writes) {
    const auto add = [](V sum, V left, V right) {
        if constexpr (MAGNITUDES) {
            return sum + V(magnitude(left)) * V(magnitude(right));
        } else {
            return minus_product(sum, left, right);
        }
    };
    // Sums the products before adding b: products that cancel must not absorb b.
    V sum = 0;
    // Magnitudes are rare, and their code is to be short.
    run_program<GROUP, MAGNITUDES>(words, stride, [&](const Record& record) {
        if ((record.control() & RECORD_STARTS) != 0) {
            sum = 0;
        }
        sum = MAGNITUDES ? add_record_by_twos(record, own, sum, add)
                         : add_record(record, own, sum, add, [] {});
        __syncwarp(); // lanes without a slot have read what slot 0 writes
        if ((record.control() & RECORD_ENDS) != 0 && record.target() != zero && writes) {
            const V b = own.get(record.target());
            own.set(record.target(), (MAGNITUDES ? V(magnitude(b)) : b) + sum);
        }
    });
}

// Elimination by a program.
template <typename V, u32 GROUP>
__device__ __forceinline__ void factor_by_program(const u32* words, u32 stride, SharedValues<V> own,
                                               u32 zero, bool works) {
    const auto add = [](V sum, V left, V right) { return minus_product(sum, left, right); };
    run_program<GROUP, false>(words, stride, [&](const Record& record) {
        const u32 target = record.target();
        V sum = own.get(target);
        if ((record.control() & RECORD_DIVIDES) != 0) {
            const V by = own.get(record.divisor());
            V inverse;
            sum = add_record(record, own, sum, add, [&] {
                bool ignored;
                inverse = reciprocal(by, ignored);
            });
            if (is_moderate(by)) {
                sum *= inverse;
            } else if (record.divisor() != zero) {
                sum /= by;
            }
        } else {
            sum = add_record(record, own, sum, add, [] {});
        }
        __syncwarp(); // as in multiply_by_program
        if (target != zero && works) {
            own.set(target, sum);
        }
    });
}

// Loads two words at this position among barriers. The compiler moves a load through the read-only
// cache to the place of its use.
__device__ __forceinline__ uint2 read_here(const uint2* from) {
#if defined(SPARSEBATCH_EMU)
    return *from;
#else
    uint2 words;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(from) : "memory");
    return words;
#endif
}

// Backward substitution chunk by chunk, one product per lane. The places of pivots hold their
// reciprocals.
template <typename V>
__device__ __forceinline__ void substitute_by_chunks(const uint2* words, u32 step, u32 ngroups,
                                                  SharedValues<V> own, u32 zero) {
    uint2 even[CHUNKS], odd[CHUNKS];
    V result = 0;
    const u32 none = ngroups >> 31; // 0, which the compiler does not know
    const auto ask = [&](uint2* into) {
#pragma unroll
        for (u32 i = 0; i < CHUNKS; ++i) {
            into[i] = read_here(words + i * step);
        }
        words += CHUNKS * step;
    };
    const auto run = [&](const uint2* those, uint2* others) {
        // A wait for one word waits for all loads under way, so the current words must have arrived
        // before more are requested: the address depends on them. It depends on the last result
        // too, or the compiler would wait for the words earlier.
        words += those[CHUNKS - 1].x & none & upper_bits(result);
        ask(others);
        V factor = own.get(low_half(those[0].y)), by = own.get(high_half(those[0].y));
#pragma unroll
        for (u32 i = 0; i < CHUNKS; ++i) {
            const u32 target = high_half(those[i].x), pivot = high_half(those[i].y);
            const V x = own.get(low_half(those[i].x)), sum = own.get(target);
            result = minus_product(sum, factor, x);
            if (pivot != zero) {
                result = result * by;
            }
            if (i + 1 < CHUNKS) {
                // Factors and pivots do not change: they are read ahead of the barrier.
                factor = own.get(low_half(those[i + 1].y));
                by = own.get(high_half(those[i + 1].y));
            }
            if (target != zero) {
                own.set(target, result);
            }
            __syncwarp();
        }
    };
    ask(even);
#pragma unroll 1
    for (u32 groups = ngroups; groups != 0; --groups) {
        run(even, odd);
        if (--groups == 0) {
            return;
        }
        run(odd, even);
    }
}

// The same where the places of pivots hold the pivots, because one of them has no plain reciprocal.
// This is rare, and the code short.
template <typename V>
__device__ __forceinline__ void substitute_by_division(const uint2* words, u32 step, u32 ngroups,
                                                       SharedValues<V> own, u32 zero) {
#pragma unroll 1
    for (u32 chunks = ngroups * CHUNKS; chunks != 0; --chunks, words += step) {
        const uint2 chunk = read_here(words);
        const u32 target = high_half(chunk.x), pivot = high_half(chunk.y);
        const V factor = own.get(low_half(chunk.y)), by = own.get(pivot);
        V result = minus_product(own.get(target), factor, own.get(low_half(chunk.x)));
        if (pivot != zero) {
            result = Divisor<V>(by).of(result);
        }
        if (target != zero) {
            own.set(target, result);
        }
        __syncwarp();
    }
}
