// Solves whose factors are made on the way: the systems of a block stand side by side in shared memory,
// value by value. What `lu` and `lu_fronts` share.
#pragma once

#include "lu_system.cuh"

// Which systems there are, their matrices, where their values are put, and what is done with them: `words`
// from starts[...] on.
template <typename V>
struct LuPrograms {
    u32 nsystems, nrhs, nnz;
    const u32* words;
    const u32* starts;
    const u16* targets;
    u32 ntargets;
    u32 nplaces, y;
    const V* values;
    u64 value_stride;
};

// Where factors and matrices are kept: see lu_kept.cu. The k-th value of an item is that of place order[k],
// from `first_of_a` on before the factorisation, else after it; item by item, `stride` values each.
template <typename V>
struct LuKept {
    V* values;
    u64 stride;
    u32 first_of_a;
    const u16* order;
    u32 nordered;
};

// One thread's part. `Self` has fetch_values(), multiply() and eliminate() beside what is here, and factor(),
// which leaves L + U in their places and may use y.
template <typename Self, typename V, u32 GROUP>
struct LuInShared : LuSystems<Self, V, GROUP> {
    using Base = LuSystems<Self, V, GROUP>;
    using typename Base::Threads;
    using Base::count, Base::member, Base::works;
    using Base::worker, Base::workers, Base::task, Base::y, Base::r, Base::scratch, Base::self;

    const LuPrograms<V>& programs;
    V* const places;
    u32 first = 0;

    __device__ __forceinline__ LuInShared(const LuTask<V>& all, const LuPrograms<V>& what,
                                          u32 side_by_side, V* shared)
        : Base(all, side_by_side, WARP_THREADS, shared + what.y * side_by_side,
               shared + (what.y + all.nrows) * side_by_side,
               reinterpret_cast<double*>(
                   shared +
                   (what.nplaces * side_by_side * sizeof(V) + 7) / 8 * 8 / sizeof(V))),
          programs(what), places(shared) {
        for (u32 i = threadIdx.x; i < count; i += GROUP) {
            places[(programs.nplaces - 1) * count + i] = V(0);
        }
    }

    __device__ __forceinline__ u32 stride() const { return count; }

    // The number of a system; that of the last one where there is none.
    __device__ __forceinline__ u32 number(u32 i) const {
        return minimum(first + i, programs.nsystems - 1);
    }

    __device__ __forceinline__ bool exists(u32 i) const { return first + i < programs.nsystems; }

    __device__ __forceinline__ bool take_up() {
        first = Threads::take(true, task.queue, scratch) * count;
        return first < programs.nsystems;
    }

    // Asks for b, which becomes r.
    __device__ __forceinline__ void fetch_b() {
        for (u32 row = threadIdx.x; row < task.nrows; row += GROUP) {
#pragma unroll 2
            for (u32 i = 0; i < count; ++i) {
                cp_async_value(r + row * count + i, task.b + u64(number(i)) * task.nrows + row);
            }
        }
    }

    // y = the guesses, or 0. Guesses for a right-hand side of 0 are not looked at.
    __device__ __forceinline__ void fetch_x() {
        for (u32 k = threadIdx.x; k < task.nrows; k += GROUP) {
            const u32 row = load(task.perm + k);
            for (u32 i = 0; i < count; ++i) {
                y[k * count + i] = (task.flags & LU_GUESS) != 0
                                       ? task.x[u64(number(i)) * task.nrows + row]
                                       : V(0);
            }
        }
    }

    __device__ __forceinline__ void store_x() {
        for (u32 k = threadIdx.x; k < task.nrows; k += GROUP) {
            const u32 row = load(task.perm + k);
            for (u32 i = 0; i < minimum(count, programs.nsystems - first); ++i) {
                task.x[u64(first + i) * task.nrows + row] = y[k * count + i];
            }
        }
    }

    // Factors the systems of the queue, and writes matrices and factors to where they are kept.
    __device__ __forceinline__ void keep(const LuKept<V>& kept) {
        for (;;) {
            Threads::sync();
            if (!take_up()) {
                return;
            }
            self().fetch_values();
            cp_async_wait_all();
            Threads::sync();
            V* const to = kept.values + (first + member) * kept.stride;
            const bool writes = works && exists(member);
            const auto write = [&](u32 begin, u32 end) {
                constexpr u32 AT_ONCE = 8;
                for (u32 k = begin + worker; k < end && writes; k += AT_ONCE * workers) {
                    u32 place[AT_ONCE];
#pragma unroll
                    for (u32 i = 0; i < AT_ONCE; ++i) {
                        place[i] = load(kept.order + minimum(k + i * workers, end - 1));
                    }
#pragma unroll
                    for (u32 i = 0; i < AT_ONCE; ++i) {
                        if (k + i * workers < end) {
                            to[k + i * workers] = places[place[i] * count + member];
                        }
                    }
                }
            };
            write(kept.first_of_a, kept.nordered);
            self().factor();
            write(0, kept.first_of_a);
        }
    }
};
