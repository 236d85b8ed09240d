// The memory of a system during a solve, products with its matrix, and its preconditioner:
// factorisation and application.
#pragma once

#include "factored_task.cuh"
#include "invert.cuh"

__device__ __forceinline__ double square_root(double value) { return __dsqrt_rn(value); }
__device__ __forceinline__ float square_root(float value) { return __fsqrt_rn(value); }

template <typename Shape>
struct Factored : Shape {
    using V = typename Shape::V;
    using Factor = typename Shape::Factor;
    using Index = typename Shape::Index;
    using Shape::BLOCKS;
    using Shape::GROUP;
    using Shape::IS_WIDE;
    using Shape::MIXED;
    using Shape::RAGGED;
    using Shape::SHARES_FACTORS;
    using Shape::SHARES_VALUES;
    using Shape::SHARES_VECTORS;
    using Shape::VECTORS;
    using Threads = Team<GROUP>;
    static constexpr u32 WARPS = GROUP / WARP_THREADS;

    const FactoredTask<V, Factor, Index>& task;
    double* const scratch;
    const u32 lane;
    V* const in_shared;    // the memory of this group
    V* const in_workspace; // its part of the workspace
    FactoredPattern<Index> pattern;
    V* vectors;
    V* own_values;
    Factor* factors;
    V* made;     // where factors are computed
    u32* scales; // MIXED: exponents of rows and columns
    V* z; // the operand of products, and the result of the preconditioner
    u32 item = 0;                    // its number in the batch
    u64 first_value = 0;             // RAGGED: where its values begin,
    u64 first_row = 0, first_kept = 0; // its rows and its kept factors

    __device__ __forceinline__ Factored(const FactoredTask<V, Factor, Index>& all, V* shared,
                                        double* partials)
        : task(all), scratch(partials), lane(threadIdx.x % GROUP),
          in_shared(shared + threadIdx.x / GROUP * shared_stride(all)),
          in_workspace(all.workspace + group() * workspace_stride(all)), pattern(all.pattern) {
        if constexpr (!RAGGED) {
            arrange();
        }
    }

    __device__ __forceinline__ static u64 group() {
        return u64(blockIdx.x) * (blockDim.x / GROUP) + threadIdx.x / GROUP;
    }

    __device__ __forceinline__ static u64
    shared_stride(const FactoredTask<V, Factor, Index>& all) {
        const FactoredPattern<Index>& one = all.pattern;
        return RAGGED ? all.shared_stride
                      : Shape::shared_values(one.nrows, one.nfactors, one.nnz);
    }

    __device__ __forceinline__ static u64
    workspace_stride(const FactoredTask<V, Factor, Index>& all) {
        return RAGGED ? all.workspace_stride
                      : Shape::workspace_values(all.pattern.nrows, all.pattern.nfactors);
    }

    // Divides the memory of the group for a system of the pattern.
    __device__ __forceinline__ void arrange() {
        const u32 nrows = pattern.nrows, nfactors = pattern.nfactors;
        V* rest = in_workspace;
        if constexpr (SHARES_VECTORS) {
            vectors = in_shared;
        } else {
            vectors = rest;
            rest += u64(VECTORS) * nrows + 1;
        }
        own_values = in_shared + (VECTORS * nrows + 1);
        if constexpr (SHARES_FACTORS) {
            const u32 at = Shape::factors_at(nrows, nfactors, pattern.nnz);
            factors = reinterpret_cast<Factor*>(in_shared + at);
            made = MIXED ? vectors + Shape::VECTORS_AT_ONCE * nrows : in_shared + at;
            scales = reinterpret_cast<u32*>(factors + (nfactors + 1));
        } else {
            factors = reinterpret_cast<Factor*>(rest);
            made = rest;
            scales = reinterpret_cast<u32*>(rest + (u64(nfactors) + 1));
        }
        z = vector(VECTORS - 1);
    }

    // RAGGED: takes the item at a place of the launch.
    __device__ __forceinline__ void take_item(u32 at) {
        const u64* const own = task.items + u64(at) * FACTORED_ITEM_WORDS;
        const u64* const of_pattern = task.patterns + load(own) * FACTORED_PATTERN_WORDS;
        first_value = load(own + 1);
        first_row = load(own + 2);
        item = u32(load(own + 3));
        first_kept = load(own + 4);
        const u64 sizes = load(of_pattern), lengths = load(of_pattern + 1);
        const FactoredPattern<Index>& all = task.pattern;
        pattern = {u32(sizes),
                   u32(sizes >> 32),
                   u32(lengths),
                   all.words + load(of_pattern + 2),
                   all.starts + load(of_pattern + 3),
                   all.index + load(of_pattern + 4),
                   all.columns + load(of_pattern + 5),
                   all.sources + load(of_pattern + 6)};
        // Where each system has a pattern of its own, every slice would wait for device memory.
        ahead(pattern.words, u64(lengths >> 32) * sizeof(u32));
        ahead(pattern.sources, u64(pattern.nfactors) * sizeof(u32));
        ahead(pattern.index, u64(pattern.nrows) * sizeof(u32));
        ahead(pattern.columns, u64(pattern.nnz) * sizeof(Index));
        arrange();
    }

    // Brings an array of the pattern to L2.
    template <typename T>
    __device__ __forceinline__ void ahead(const T* array, u64 bytes) const {
        const u8* const first = reinterpret_cast<const u8*>(array);
#pragma unroll 1
        for (u64 at = lane * CACHE_LINE; at < bytes; at += GROUP * CACHE_LINE) {
            prefetch(first + at);
        }
    }

    __device__ __forceinline__ V* vector(u32 number) const {
        return vectors + (IS_WIDE ? u64(number) * pattern.nrows : number * pattern.nrows);
    }

    // Calls visit(row) for each row of this thread.
    template <typename Visit>
    __device__ __forceinline__ void own_rows(Visit visit) const {
#pragma unroll 1
        for (u32 row = lane; row < pattern.nrows; row += GROUP) {
            visit(row);
        }
    }

    __device__ __forceinline__ const V* item_values() const {
        return task.values + (RAGGED ? first_value : u64(item) * task.value_stride);
    }

    // Calls visit(value, column) for each entry of a row, in order. Entries are loaded several at a
    // time.
    template <typename Visit>
    __device__ __forceinline__ void entries(u32 row, Visit visit) const {
        const u32 own = load(pattern.index + row), count = load(pattern.index + row + 1) - own;
        const u32 chunk = load(pattern.index + pattern.nrows + 1 + row / WARP_THREADS);
        const Index* const columns = pattern.columns + chunk + row % WARP_THREADS;
        const V* const values = SHARES_VALUES ? own_values + own : item_values() + own;
#pragma unroll 4
        for (u32 k = 0; k < count; ++k) {
            visit(SHARES_VALUES ? values[k] : load(values + k), load(columns + k * WARP_THREADS));
        }
    }

    // The product of a row with z. A barrier must follow the writes of z before this is called.
    __device__ __forceinline__ V times_z(u32 row) const {
        V sum = 0;
        entries(row, [&](V value, u32 column) { sum += value * z[column]; });
        return sum;
    }

    // Runs a list: add(sum, left, right) for each pair of a task, then
    // finish(place, factor, sum, begin(place, factor)). The segment says how many lanes share a sum.
    template <typename Begin, typename Add, typename Finish>
    __device__ __forceinline__ void run_list(u32 number, Begin begin, Add add,
                                             Finish finish) const {
        const u32* const list = pattern.words + load(pattern.starts + number);
        const u32 nsegments = load(list);
        const u64* const tasks = reinterpret_cast<const u64*>(pattern.words + load(list + 1));
        const u64* const pairs = reinterpret_cast<const u64*>(pattern.words + load(list + 2));
        const u64* const segments = reinterpret_cast<const u64*>(list + 4);
        const auto shift_of = [](u64 segment) { return u32(segment >> 32) & 7; };
        // A lane's first task of a segment is loaded before the barrier that precedes the segment.
        u32 first = 0;
        u64 segment = nsegments > 0 ? load(segments) : 0;
        u64 names = 0, range = 0;
        const auto ask = [&](u32 own) {
            range = 0;
            if (own < u32(segment)) {
                names = load(tasks + 2 * u64(own));
                range = load(tasks + 2 * u64(own) + 1);
            }
        };
        ask(lane >> shift_of(segment));
        for (u32 k = 0; k < nsegments; ++k) {
            const u32 end = u32(segment), shift = shift_of(segment);
            const bool ends_level = segment >> 63 != 0;
            const u64 next = k + 1 < nsegments ? load(segments + (k + 1)) : segment;
            const u32 lanes = 1u << shift, part = lane & (lanes - 1);
            // Whole warps take part in each turn.
#pragma unroll 1
            for (; first < end; first += GROUP >> shift) {
                const u32 own = first + (lane >> shift);
                const u64* const pair = pairs + u32(range);
                V sum = 0;
#pragma unroll 4
                for (u32 i = part; i < u32(range >> 32); i += lanes) {
                    const u64 both = load(pair + i);
                    add(sum, u32(both), u32(both >> 32));
                }
                for (u32 offset = lanes / 2; offset > 0; offset /= 2) {
                    sum += __shfl_xor_sync(ALL_LANES, sum, offset);
                }
                if (own < end && part == 0) {
                    const u32 place = u32(names), factor = u32(names >> 32);
                    finish(place, factor, sum, begin(place, factor));
                }
                ask(own + (GROUP >> shift));
            }
            first = end;
            segment = next;
            ask(first + (lane >> shift_of(next)));
            if (ends_level) {
                Threads::sync();
            }
        }
    }

    // Runs program 0, the factorisation, or 1, the application.
    template <u32 PROGRAM, typename Begin, typename Add, typename Finish>
    __device__ __forceinline__ void run_program(Begin begin, Add add, Finish finish) const {
        if constexpr (IS_WIDE) {
            run_list(PROGRAM, begin, add, finish);
        } else {
            const u32 warp = lane / WARP_THREADS;
            const u32* const stream = pattern.words + load(pattern.starts + PROGRAM * WARPS + warp);
            const auto factor_of = [](u32 task) {
                return task >> 16 == NO_PLACE ? NO_SOURCE : task >> 16;
            };
            run_stream<V, GROUP, RAGGED>(
                stream, [&](u32 task) { return begin(task & 0xffffu, factor_of(task)); },
                [&](V& sum, u32 pair) { add(sum, pair & 0xffffu, pair >> 16); },
                [&](u32 task, V sum, const Held<V>& held) {
                    finish(task & 0xffffu, factor_of(task), sum, held);
                });
        }
    }

    // The first row of the block of `row` (low half), and the number of rows of that block (high
    // half).
    __device__ __forceinline__ u64 block_of(u32 row) const {
        return load(reinterpret_cast<const u64*>(pattern.words) + u64(row) * 2);
    }

    __device__ __forceinline__ int row_exponent(u32 row) const { return short(scales[row]); }

    __device__ __forceinline__ int column_exponent(u32 row) const { return int(scales[row]) >> 16; }

    __device__ __forceinline__ bool is_cholesky() const {
        return (task.flags & FACTORED_ROOT) != 0;
    }

    // Calls visit(column, exponent) for the nonzero finite entries of a row that decide its
    // scaling: those of its block with BLOCKS, the diagonal for Cholesky, else all.
    template <typename Visit>
    __device__ __forceinline__ void exponents(u32 row, Visit visit) const {
        u32 first = is_cholesky() ? row : 0, count = is_cholesky() ? 1 : pattern.nrows;
        if constexpr (BLOCKS) {
            const u64 block = block_of(row);
            first = u32(block);
            count = u32(block >> 32);
        }
        entries(row, [&](V value, u32 column) {
            if (column - first < count && value != V(0) && is_finite(value)) {
                visit(column, exponent_of(magnitude(value)));
            }
        });
    }

    // Computes the scaling exponents of the matrix that is factorised. Those of columns bring the
    // largest entry of each column to about 1; then those of rows do so for each row. For Cholesky
    // both are half the exponent of the diagonal. Powers of two change no digit of the factors, and
    // keep factors that differ only by the units of unknowns or of the system within the range of
    // their precision. Columns first: the units of equations weigh in residuals, those of unknowns
    // weigh nowhere.
    __device__ __forceinline__ void equilibrate() const {
        constexpr int NONE = -10000;
        int* const largest = reinterpret_cast<int*>(made);
        own_rows([&](u32 row) { largest[row] = NONE; });
        Threads::sync();
        own_rows([&](u32 row) {
            exponents(row, [&](u32 column, int exponent) {
                atomicMax(largest + column, exponent);
            });
        });
        Threads::sync();
        own_rows([&](u32 row) {
            int of_column = largest[row] == NONE ? 0 : largest[row];
            int of_row = NONE;
            if (is_cholesky()) {
                of_row = of_column >>= 1;
            } else {
                exponents(row, [&](u32 column, int exponent) {
                    of_row = maximum(of_row, exponent - largest[column]);
                });
                of_row = of_row == NONE ? 0 : maximum(of_row, -1000);
            }
            scales[row] = (u32(of_row) & 0xffffu) | u32(of_column) << 16;
        });
        Threads::sync();
    }

    // The value that factor k is made of: an entry of A, scaled if MIXED, or 0.
    __device__ __forceinline__ V source_value(u32 k) const {
        const u32 source = load(pattern.sources + k);
        if (source == NO_SOURCE) {
            return 0;
        }
        if constexpr (MIXED) {
            // From device memory, since factors are computed over the values in shared memory. The
            // row's power comes first: it is at least 1 (but for Cholesky), and protects entries
            // that are small only within their column.
            const u32 row = load(pattern.sources + (u64(pattern.nfactors) + k));
            const u32 column = load(pattern.sources + (2 * u64(pattern.nfactors) + k));
            return load(item_values() + source) * V(power_of_two(-row_exponent(row))) *
                   V(power_of_two(-column_exponent(column)));
        } else {
            return SHARES_VALUES ? own_values[source] : load(item_values() + source);
        }
    }

    // Computes the factors of A. Returns whether there are none: for lack of a pivot or, where
    // MIXED, because they exceed the range of their precision.
    __device__ __forceinline__ bool factorise() {
        V* const f = made;
        if constexpr (MIXED) {
            equilibrate();
        }
        for (u32 k = lane; k < pattern.nfactors; k += GROUP) {
            f[k] = source_value(k);
        }
        if (lane == 0) {
            f[pattern.nfactors] = 0;
        }
        Threads::sync();
        bool bad = false;
        if constexpr (BLOCKS) {
            bad = invert_blocks();
        } else {
            const bool root = is_cholesky();
            run_program<0>(
                [&](u32 place, u32 factor) {
                    return Held<V>{f[place], factor == NO_SOURCE ? V(1) : f[factor]};
                },
                [&](V& sum, u32 left, u32 right) { sum += f[left] * f[right]; },
                [&](u32 place, u32 factor, V sum, const Held<V>& held) {
                    V value = held.value - sum;
                    if (factor == place) {
                        bad = bad || !(V(0) < value || (!root && value < V(0)));
                        value = V(1) / (root ? square_root(value) : value);
                    } else {
                        value *= held.by;
                    }
                    f[place] = value;
                });
        }
        if constexpr (MIXED) {
            bad = round_factors() || bad;
        }
        return Threads::any_thread(bad);
    }

    // Rounds the factors from `made` to `factors`; returns whether one of them is not finite there.
    // The two overlap in shared memory: the last factors are rounded first, so that none overwrites
    // one that is still to be rounded.
    __device__ __forceinline__ bool round_factors() {
        const u32 count = pattern.nfactors + 1;
        const u32 turns = (count + GROUP - 1) / GROUP;
        bool beyond = false;
        Threads::sync();
#pragma unroll 1
        for (u32 turn = 0; turn < turns; ++turn) {
            const u32 k = (SHARES_FACTORS ? turns - 1 - turn : turn) * GROUP + lane;
            const Factor rounded = k < count ? Factor(made[k]) : Factor(0);
            beyond = beyond || !is_finite(rounded);
            Threads::sync();
            if (k < count) {
                factors[k] = rounded;
            }
        }
        Threads::sync();
        if constexpr (SHARES_FACTORS) {
            if (lane == 0) {
                z[pattern.nrows] = 0;
            }
        }
        if constexpr (SHARES_VALUES) {
            // The factors were computed over the values: fetches these again.
            if (made + count > own_values) {
                fetch();
                wait_for_values();
            }
        }
        return beyond;
    }

    // Inverts the diagonal blocks, one warp per block: Gauss-Jordan with row pivoting, in place.
    __device__ __forceinline__ bool invert_blocks() {
        bool bad = false;
        const u32* const firsts = pattern.words + load(pattern.starts);
        const u32 nblocks = load(pattern.starts + 1);
        for (u32 block = lane / WARP_THREADS; block < nblocks; block += WARPS) {
            const u32* const head = pattern.words + u64(load(firsts + block)) * 4;
            bad = invert(made + load(head + 2), load(head + 1)) || bad;
        }
        return bad;
    }

    // z = M v, visible to all threads. `spare` is a vector in no other use, which may stay
    // unchanged.
    __device__ __forceinline__ void apply(const V* v, V* spare) {
        if constexpr (BLOCKS) {
            if constexpr (MIXED) {
                own_rows([&](u32 row) {
                    spare[row] = v[row] * V(power_of_two(-row_exponent(row)));
                });
                v = spare;
            }
            Threads::sync();
            own_rows([&](u32 row) {
                const u64 block = block_of(row);
                const u32 first = u32(block), size = u32(block >> 32);
                const u64* const head = reinterpret_cast<const u64*>(pattern.words) + u64(row) * 2;
                const Factor* entry = factors + u32(load(head + 1)) + (row - first);
                V sum = 0;
#pragma unroll 4
                for (u32 k = 0; k < size; ++k) {
                    sum += V(*entry) * v[first + k];
                    entry += size;
                }
                z[row] = MIXED ? sum * V(power_of_two(-column_exponent(row))) : sum;
            });
            Threads::sync();
        } else {
            own_rows([&](u32 row) {
                z[row] = MIXED ? v[row] * V(power_of_two(-row_exponent(row))) : v[row];
            });
            Threads::sync();
            const Factor* const f = factors;
            run_program<1>(
                [&](u32 place, u32 factor) {
                    return Held<V>{z[place], factor == NO_SOURCE ? V(1) : V(f[factor])};
                },
                [&](V& sum, u32 left, u32 right) { sum += V(f[left]) * z[right]; },
                [&](u32 place, u32, V sum, const Held<V>& held) {
                    z[place] = (held.value - sum) * held.by;
                });
            if constexpr (MIXED) {
                own_rows([&](u32 row) { z[row] *= V(power_of_two(-column_exponent(row))); });
                Threads::sync();
            }
        }
    }

    // Starts copies of the item's values to shared memory, if they belong there.
    __device__ __forceinline__ void fetch() {
        if constexpr (SHARES_VALUES) {
            const V* const values = item_values();
            for (u32 k = lane; k < pattern.nnz; k += GROUP) {
                cp_async_value(own_values + k, values + k);
            }
        }
    }

    __device__ __forceinline__ static void wait_for_values() {
        if constexpr (SHARES_VALUES) {
            cp_async_wait_all();
        }
        Threads::sync();
    }

    __device__ __forceinline__ Factor* kept_of(u32 number) const {
        return task.kept + (RAGGED ? first_kept
                                   : number * Shape::kept_values(pattern.nrows, pattern.nfactors));
    }

    __device__ __forceinline__ void move_factors_to(Factor* kept) {
        factors = kept;
        if constexpr (MIXED) {
            scales = reinterpret_cast<u32*>(kept + (u64(pattern.nfactors) + 1));
        }
    }

    // Brings kept factors into place; returns whether the item has none.
    __device__ __forceinline__ bool take_kept() {
        const u32 number = (task.flags & FACTORED_ONE_KEPT) != 0 ? 0 : item;
        Factor* const kept = kept_of(number);
        if constexpr (SHARES_FACTORS) {
            // The exponents follow the factors in both places.
            const u32 count = u32(Shape::kept_values(pattern.nrows, pattern.nfactors));
            for (u32 k = lane; k < count; k += GROUP) {
                factors[k] = load(kept + k);
            }
            Threads::sync();
        } else {
            move_factors_to(kept);
        }
        return load(task.refused + number) != 0;
    }

    // Computes the factors of the item and keeps them.
    __device__ __forceinline__ void keep() {
        Factor* const kept = kept_of(item);
        if constexpr (!SHARES_FACTORS) {
            move_factors_to(kept);
            if constexpr (!MIXED) {
                made = kept;
            }
        }
        wait_for_values();
        const bool bad = factorise();
        if constexpr (SHARES_FACTORS) {
            const u32 count = u32(Shape::kept_values(pattern.nrows, pattern.nfactors));
            for (u32 k = lane; k < count; k += GROUP) {
                kept[k] = factors[k];
            }
        }
        if (lane == 0) {
            task.refused[item] = u8(bad);
        }
    }
};
