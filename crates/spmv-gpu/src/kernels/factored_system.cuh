// A system's memory during a solve, products with its matrix, and its preconditioner: factorisation and
// application.
#pragma once

#include "factored_task.cuh"
#include "invert.cuh"

__device__ __forceinline__ double square_root(double value) { return __dsqrt_rn(value); }
__device__ __forceinline__ float square_root(float value) { return __fsqrt_rn(value); }

template <typename Shape>
struct Factored : Shape {
    using V = typename Shape::V;
    using Index = typename Shape::Index;
    using Shape::BLOCKS;
    using Shape::GROUP;
    using Shape::IS_WIDE;
    using Shape::NO_COLUMN;
    using Shape::SHARES_FACTORS;
    using Shape::SHARES_VALUES;
    using Shape::SHARES_VECTORS;
    using Shape::VECTORS;
    using Threads = Team<GROUP>;
    static constexpr u32 WARPS = GROUP / WARP_THREADS;

    const FactoredTask<V, Index>& task;
    double* const scratch;
    const u32 lane;
    V* vectors;
    V* factors;
    V* own_values;
    V* z; // the operand of products, and what the preconditioner is applied to
    u32 item = 0;

    __device__ __forceinline__ Factored(const FactoredTask<V, Index>& all, V* shared,
                                        double* partials)
        : task(all), scratch(partials), lane(threadIdx.x % GROUP) {
        const u32 number = threadIdx.x / GROUP;
        const u64 group = u64(blockIdx.x) * (blockDim.x / GROUP) + number;
        V* in_shared = shared + number * Shape::shared_values(all.nrows, all.nfactors, all.nnz);
        V* in_workspace =
            all.workspace + group * Shape::workspace_values(all.nrows, all.nfactors);
        if constexpr (SHARES_VECTORS) {
            vectors = in_shared;
            in_shared += VECTORS * all.nrows + 1;
        } else {
            vectors = in_workspace;
            in_workspace += u64(VECTORS) * all.nrows + 1;
        }
        if constexpr (SHARES_FACTORS) {
            factors = in_shared;
            in_shared += all.nfactors + 1;
        } else {
            factors = in_workspace;
        }
        own_values = in_shared;
        z = vector(VECTORS - 1);
    }

    __device__ __forceinline__ V* vector(u32 number) const {
        return vectors + (IS_WIDE ? u64(number) * task.nrows : number * task.nrows);
    }

    // Calls visit(row) for own rows.
    template <typename Visit>
    __device__ __forceinline__ void own_rows(Visit visit) const {
#pragma unroll 1
        for (u32 row = lane; row < task.nrows; row += GROUP) {
            visit(row);
        }
    }

    __device__ __forceinline__ const V* item_values() const {
        return task.values + u64(item) * task.value_stride;
    }

    // Calls visit(value, column) for the entries of a row, in their order.
    template <typename Visit>
    __device__ __forceinline__ void entries(u32 row, Visit visit) const {
        const u32* const chunk = task.index + task.nrows + 1 + row / WARP_THREADS;
        const u32 first = load(chunk), end = load(chunk + 1);
        const u32 own = load(task.index + row);
        const V* value = SHARES_VALUES ? own_values + own : item_values() + own;
#pragma unroll 4
        for (u32 at = first + row % WARP_THREADS; at < end; at += WARP_THREADS) {
            const u32 column = load(task.columns + at);
            if (column != NO_COLUMN) {
                visit(SHARES_VALUES ? *value : load(value), column);
            }
            ++value;
        }
    }

    // The product of a row with z, which all threads have written before a barrier.
    __device__ __forceinline__ V times_z(u32 row) const {
        V sum = 0;
        entries(row, [&](V value, u32 column) { sum += value * z[column]; });
        return sum;
    }

    // Works through a list: add(sum, left, right) for the pairs of a task, then finish(place, factor,
    // sum).
    template <typename Add, typename Finish>
    __device__ __forceinline__ void run_list(u32 number, Add add, Finish finish) const {
        const u32* const list = task.words + load(task.starts + number);
        const u32 nlevels = load(list);
        const u64* const tasks =
            reinterpret_cast<const u64*>(task.words + load(list + 1)) + 2 * u64(lane);
        const u64* const pairs = reinterpret_cast<const u64*>(task.words + load(list + 2));
        // The first own task of a level is asked for ahead of the barrier before it.
        u32 first = load(list + 3), end = nlevels > 0 ? load(list + 4) : first;
        u64 names = 0, range = 0;
        const auto ask = [&](u32 t) {
            if (t + lane < end) {
                names = load(tasks + 2 * u64(t));
                range = load(tasks + 2 * u64(t) + 1);
            }
        };
        ask(first);
        for (u32 level = 0; level < nlevels; ++level) {
            const u32 next = level + 1 < nlevels ? load(list + 5 + level) : end;
#pragma unroll 1
            while (first + lane < end) {
                const u64* const pair = pairs + u32(range);
                V sum = 0;
#pragma unroll 4
                for (u32 k = 0; k < u32(range >> 32); ++k) {
                    const u64 both = load(pair + k);
                    add(sum, u32(both), u32(both >> 32));
                }
                finish(u32(names), u32(names >> 32), sum);
                first += GROUP;
                ask(first);
            }
            first = end;
            end = next;
            ask(first);
            Threads::sync();
        }
    }

    // Runs program 0, the factorisation, or 1, the application.
    template <u32 PROGRAM, typename Add, typename Finish>
    __device__ __forceinline__ void run_program(Add add, Finish finish) const {
        if constexpr (IS_WIDE) {
            run_list(PROGRAM, add, finish);
        } else {
            const u32 warp = lane / WARP_THREADS;
            const u32* const stream = task.words + load(task.starts + PROGRAM * WARPS + warp);
            run_stream<V, GROUP, 1>(
                stream,
                [&](V(&sums)[1], u32 pair) { add(sums[0], pair & 0xffffu, pair >> 16); },
                [&](u32 word, const V(&sums)[1]) {
                    const u32 factor = word >> 16;
                    finish(word & 0xffffu, factor == NO_PLACE ? NO_SOURCE : factor, sums[0]);
                });
        }
    }

    // Makes the factors of A; whether there are none, for want of a pivot.
    __device__ __forceinline__ bool factorise() {
        for (u32 k = lane; k < task.nfactors; k += GROUP) {
            const u32 source = load(task.sources + k);
            factors[k] = source == NO_SOURCE ? V(0)
                         : SHARES_VALUES     ? own_values[source]
                                             : load(item_values() + source);
        }
        if (lane == 0) {
            factors[task.nfactors] = 0;
        }
        Threads::sync();
        bool bad = false;
        if constexpr (BLOCKS) {
            bad = invert_blocks();
        } else {
            const bool root = (task.flags & FACTORED_ROOT) != 0;
            V* const f = factors;
            run_program<0>(
                [&](V& sum, u32 left, u32 right) { sum += f[left] * f[right]; },
                [&](u32 place, u32 factor, V sum) {
                    V value = f[place] - sum;
                    if (factor == place) {
                        bad = bad || !(V(0) < value || (!root && value < V(0)));
                        value = V(1) / (root ? square_root(value) : value);
                    } else if (factor != NO_SOURCE) {
                        value *= f[factor];
                    }
                    f[place] = value;
                });
        }
        return Threads::any_thread(bad);
    }

    // Inverts the diagonal blocks, a warp a block: Gauss-Jordan with row pivoting, in place.
    __device__ __forceinline__ bool invert_blocks() {
        bool bad = false;
        const u32* const firsts = task.words + load(task.starts);
        const u32 nblocks = load(task.starts + 1);
        for (u32 block = lane / WARP_THREADS; block < nblocks; block += WARPS) {
            const u32* const head = task.words + u64(load(firsts + block)) * 4;
            bad = invert(factors + load(head + 2), load(head + 1)) || bad;
        }
        return bad;
    }

    // z = M v, for all to read.
    __device__ __forceinline__ void apply(const V* v) {
        if constexpr (BLOCKS) {
            Threads::sync();
            own_rows([&](u32 row) {
                const u64* const head = reinterpret_cast<const u64*>(task.words) + u64(row) * 2;
                const u64 block = load(head);
                const u32 first = u32(block), size = u32(block >> 32);
                const V* entry = factors + u32(load(head + 1)) + (row - first);
                V sum = 0;
#pragma unroll 4
                for (u32 k = 0; k < size; ++k) {
                    sum += *entry * v[first + k];
                    entry += size;
                }
                z[row] = sum;
            });
            Threads::sync();
        } else {
            own_rows([&](u32 row) { z[row] = v[row]; });
            Threads::sync();
            const V* const f = factors;
            run_program<1>([&](V& sum, u32 left, u32 right) { sum += f[left] * z[right]; },
                           [&](u32 place, u32 factor, V sum) {
                               V value = z[place] - sum;
                               if (factor != NO_SOURCE) {
                                   value *= f[factor];
                               }
                               z[place] = value;
                           });
        }
    }

    // Sends for the values of the item.
    __device__ __forceinline__ void fetch() {
        if constexpr (SHARES_VALUES) {
            const V* const values = item_values();
            for (u32 k = lane; k < task.nnz; k += GROUP) {
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

    // Brings kept factors into place; whether there are none.
    __device__ __forceinline__ bool take_kept() {
        const u32 number = (task.flags & FACTORED_ONE_KEPT) != 0 ? 0 : item;
        V* const kept = task.kept + u64(number) * (u64(task.nfactors) + 1);
        if constexpr (SHARES_FACTORS) {
            for (u32 k = lane; k <= task.nfactors; k += GROUP) {
                factors[k] = load(kept + k);
            }
            Threads::sync();
        } else {
            factors = kept;
        }
        return load(task.refused + number) != 0;
    }

    // Makes the factors of the item and keeps them.
    __device__ __forceinline__ void keep() {
        V* const kept = task.kept + u64(item) * (u64(task.nfactors) + 1);
        if constexpr (!SHARES_FACTORS) {
            factors = kept;
        }
        wait_for_values();
        const bool bad = factorise();
        if constexpr (SHARES_FACTORS) {
            for (u32 k = lane; k <= task.nfactors; k += GROUP) {
                kept[k] = factors[k];
            }
        }
        if (lane == 0) {
            task.refused[item] = u8(bad);
        }
    }
};
