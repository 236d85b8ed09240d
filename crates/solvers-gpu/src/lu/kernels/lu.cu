// Whole solves by sparse LU without pivoting, a block for `count` systems at a time, all in one
// launch: factorisation on a filled pattern as sums of products (Crout) with forward substitution,
// backward substitution by a few lanes per system, and refinement from the true residual (Wilkinson
// 1963; Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12).
//
//   r = b - A x0;  P A P^T = L U;  repeat: x += P^T U^-1 L^-1 P r, r = b - A x
//
// A system ends by the rules of the CPU's solvers, applied to the residual recomputed from x. A
// system that does not pass is refined again while restarts and iterations are left. A zero or NaN
// pivot ends it.
//
// Common to all instances:
// - A lane works on one system throughout: there are no sums over lanes. The systems of a block lie
//   side by side in shared memory, value by value, and all do the same: a warp works on 32 / count
//   targets (entries of L + U, of the solution) at a time, each for all systems. A system that has
//   ended goes along until the others have, and changes no more.
// - The program, which all blocks read through the caches, says which warp computes what, and when.
//   The products of a target are subtracted one by one in an order that depends on the pattern
//   alone: bitwise repeatable, whatever the warps, the systems side by side, the neighbours and the
//   order of threads.
// - In backward substitution nearly every product depends on an earlier one. A few lanes of one
//   warp handle a system, without barriers of the block, in chunks of one product per lane.
// - The factors overwrite A's values, which are fetched again, mostly from L2, for the residual: a
//   refinement factorises again.
// - Traffic of a system: its values at least twice, b at least once, x once (twice with an initial
//   guess), 25 B of outcome.
//
// Arguments:
// - `nsystems`, nrhs >= 1, 1 <= count <= 32; `nsystems` + blocks of the launch * count < 2^32.
// - `words`: the records of programs.cuh for each warp. Those of warp w begin at starts[w] for the
//   elimination, at starts[WARPS + w] for the residual.
// - `first_chunk`: from this word on there are `ngroups` < 2^31 groups of CHUNKS chunks of backward
//   substitution, and one group that does nothing. `at_once` <= count systems share a warp, with 32
//   / `at_once` lanes each. A chunk has two words for each lane of a system: (source | target <<
//   16) and (factor | pivot << 16). Afterwards the target is divided by the pivot. Absent ones
//   refer to the place of the 0.
// - `nplaces`: places of `count` values each in a block, numbered in steps of `count` in `words`.
//   From place `y` on: the `nrows` elements of the right-hand side in the order of elimination,
//   which become those of x; those of the residual in the order of the matrix; parts of its sums;
//   last a -1 and a 0.
// - `targets`: targets[e] is the place of entry e of A, targets[nnz..ntargets] are those of fill;
//   for `lu` targets[ntargets + k] is that of the k-th pivot.
// - perm[k] is the row that is eliminated k-th.
// - System s has the nnz values from s/nrhs*value_stride on, in the order of CSR, and `nrows`
//   values of b and of x from s*nrows on.
// - Arrays of limits and tolerances are null or hold one element per system.
// - `queue`: two zeros before and after the launch.
// - Launch: blocks of GROUP threads; any grid. Shared memory: nplaces * count values, and after
//   them, from the next multiple of 8 bytes on, (CHAINS + 1) * count doubles.

#include "lu_sums.cuh"
#include "lu_system.cuh"

// The systems, their matrices, and the programs of a block.
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
    u32 first_chunk, ngroups, at_once;
};

// Stand-ins for a place: the constant -1, and no value.
constexpr u32 MINUS_ONE = 0xffff;
constexpr u32 NOTHING = 0xfffe;

// Where factors and matrices are kept, item by item, `stride` values each: see lu_kept.cuh. The
// k-th value of an item is the one at place order[k], read after the factorisation for k below
// `first_of_a`, before it from there on. MINUS_ONE stands for -1, NOTHING for no value.
template <typename V>
struct LuKept {
    V* values;
    u64 stride;
    u32 first_of_a;
    const u16* order;
    u32 nordered;
};

// Calls visit(k, list[k]) for k = first, first + step, ... below end. List elements are prefetched.
template <typename Visit>
__device__ __forceinline__ void for_listed(const u16* list, u32 first, u32 end, u32 step, Visit visit) {
    constexpr u32 AT_ONCE = 8;
    u32 next[AT_ONCE];
    const auto ask = [&](u32 k) {
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; ++i) {
            next[i] = k + i * step < end ? load(list + k + i * step) : 0;
        }
    };
    ask(first);
    for (u32 k = first; k < end; k += AT_ONCE * step) {
        u32 now[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; ++i) {
            now[i] = next[i];
        }
        ask(k + AT_ONCE * step);
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; ++i) {
            if (k + i * step < end) {
                visit(k + i * step, now[i]);
            }
        }
    }
}

// One thread's part in the solves of its block.
template <typename V, u32 GROUP>
struct LuBlock : LuSystems<LuBlock<V, GROUP>, V, GROUP> {
    using Base = LuSystems<LuBlock<V, GROUP>, V, GROUP>;
    using typename Base::Threads;
    using Base::WARPS;
    using Base::count, Base::lane, Base::slots, Base::slot, Base::member, Base::works;
    using Base::worker, Base::workers, Base::task, Base::y, Base::r, Base::scratch;
    static constexpr bool HAS_LEAST_SIZE = false;

    const LuPrograms<V>& programs;
    V* const places;
    u32* const found; // whether a pivot of each system is zero or NaN
    u32 first = 0;

    __device__ __forceinline__ LuBlock(const LuTask<V>& all, const LuPrograms<V>& what,
                                       u32 side_by_side, V* shared)
        : Base(all, side_by_side, WARP_THREADS, shared + what.y * side_by_side,
               shared + (what.y + all.nrows) * side_by_side,
               reinterpret_cast<double*>(
                   shared +
                   (what.nplaces * side_by_side * sizeof(V) + 7) / 8 * 8 / sizeof(V))),
          programs(what), places(shared),
          found(reinterpret_cast<u32*>(this->scratch + CHAINS * side_by_side)) {
        for (u32 i = threadIdx.x; i < count; i += GROUP) {
            places[(programs.nplaces - 2) * count + i] = V(-1);
            places[zero() + i] = V(0);
        }
    }

    __device__ __forceinline__ u32 stride() const { return count; }

    // The number of the i-th system of the block, or of the last system if there is none.
    __device__ __forceinline__ u32 number(u32 i) const {
        return minimum(first + i, programs.nsystems - 1);
    }

    __device__ __forceinline__ bool exists(u32 i) const { return first + i < programs.nsystems; }

    __device__ __forceinline__ bool take_up() {
        first = Threads::take(true, task.queue, scratch) * count;
        return first < programs.nsystems;
    }

    __device__ __forceinline__ void take_next() {}

    // Starts to copy the values, and clears the places of fill.
    __device__ __forceinline__ void fetch_values() {
        const u32 there = minimum(count, programs.nsystems - first);
        for_listed(programs.targets, threadIdx.x, programs.ntargets, GROUP, [&](u32 k, u32 target) {
            V* const place = places + target * count;
            const bool is_fill = k >= programs.nnz;
            if (is_fill || programs.nrhs == 1) {
                const V* from = programs.values + first * programs.value_stride + k;
#pragma unroll 2
                for (u32 i = 0; i < count; ++i, from += programs.value_stride) {
                    if (is_fill || i >= there) {
                        place[i] = V(0);
                    } else {
                        cp_async_value(place + i, from);
                    }
                }
            } else {
#pragma unroll 1
                for (u32 i = 0; i < count; ++i) {
                    cp_async_value(place + i, programs.values +
                                                  number(i) / programs.nrhs * programs.value_stride + k);
                }
            }
        });
    }

    // Starts to copy b, which becomes r, and clears the parts of its sums.
    __device__ __forceinline__ void fetch_b() {
        for (u32 row = threadIdx.x; row < task.nrows; row += GROUP) {
#pragma unroll 2
            for (u32 i = 0; i < count; ++i) {
                cp_async_value(r + row * count + i, task.b + u64(number(i)) * task.nrows + row);
            }
        }
        const u32 end = (programs.nplaces - 2) * count;
        for (u32 i = (programs.y + 2 * task.nrows) * count + threadIdx.x; i < end; i += GROUP) {
            places[i] = V(0);
        }
    }

    // y = the initial guesses, or 0. `enter` discards the guess for a right-hand side of 0.
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

    // The records of program `which` for this warp and slot. Lanes without a slot read those of
    // slot 0.
    __device__ __forceinline__ const u32* program(u32 which) const {
        const u32 warp = threadIdx.x / WARP_THREADS;
        return programs.words + load(programs.starts + which * WARPS + warp) +
               (works ? slot : 0) * RECORD_WORDS;
    }

    // Turns r, on entry b, into b - A x or |b| + |A||x|, for the lanes where `wanted` is set.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        multiply_by_program<V, GROUP, MAGNITUDES>(program(1), slots * RECORD_WORDS,
                                                  SharedValues<V>(places + member), zero(),
                                                  works && wanted);
        Threads::sync();
    }

    // The place of the 0.
    __device__ __forceinline__ u32 zero() const { return (programs.nplaces - 1) * count; }

    // Factorises; y becomes the result of forward substitution if the program includes it.
    __device__ __forceinline__ void factor() {
        Threads::sync();
        factor_by_program<V, GROUP>(program(0), slots * RECORD_WORDS,
                                    SharedValues<V>(places + member), zero(), works);
        Threads::sync();
    }

    // Backward substitution: y becomes the solution. A warp handles `at_once` systems, `lanes`
    // lanes each.
    __device__ __forceinline__ void substitute() {
        const u32 at_once = programs.at_once, lanes = WARP_THREADS / at_once;
        const uint2* const words = reinterpret_cast<const uint2*>(programs.words + programs.first_chunk);
        const u32 warp = threadIdx.x / WARP_THREADS;
        for (u32 first_of_warp = warp * at_once; first_of_warp < count; first_of_warp += WARPS * at_once) {
            // Lanes without a system repeat a chunk that does nothing.
            const u32 wanted = first_of_warp + lane % at_once, own_lane = lane / at_once;
            const bool has_one = wanted < count && own_lane < lanes;
            const u32 system = wanted < count ? wanted : first_of_warp;
            const SharedValues<V> own(places + system);
            const uint2* const from = words + (has_one ? own_lane : programs.ngroups * CHUNKS * lanes);
            const u32 step = has_one ? lanes : 0;
            const u32 end = has_one ? task.nrows : 0;
            if (check_pivots(own, own_lane, end, lanes, found + system)) {
                for_pivots(own, own_lane, end, lanes, [&](u32 place, V by) {
                    bool ignored;
                    own.set(place, reciprocal(by, ignored));
                });
                __syncwarp();
                substitute_by_chunks(from, step, programs.ngroups, own, zero());
            } else {
                substitute_by_division(from, step, programs.ngroups, own, zero());
            }
        }
        Threads::sync();
    }

    // Calls visit(place, pivot) for the pivots first, first + step, ... below end.
    template <typename Visit>
    __device__ __forceinline__ void for_pivots(const SharedValues<V>& own, u32 first, u32 end, u32 step,
                                               Visit visit) {
        const u16* const pivots = programs.targets + programs.ntargets;
#pragma unroll 4
        for (u32 k = first; k < end; k += step) {
            const u32 place = load(pivots + k) * count;
            visit(place, own.get(place));
        }
    }

    // Whether all pivots of the systems of a warp have plain reciprocals. Sets `is_bad` if one is
    // zero or NaN.
    __device__ __forceinline__ bool check_pivots(const SharedValues<V>& own, u32 first, u32 end, u32 step,
                                                 u32* is_bad) {
        bool bad = false, is_plain = true;
        for_pivots(own, first, end, step, [&](u32, V by) {
            bad = bad || !(by < V(0) || V(0) < by);
            is_plain = is_plain && has_plain_reciprocal(by);
        });
        if (bad) {
            atomicOr(is_bad, 1u);
        }
        return __all_sync(ALL_LANES, is_plain) != 0;
    }

    // Factorises, and solves for y in place. Returns whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        for (u32 i = threadIdx.x; i < count; i += GROUP) {
            found[i] = 0;
        }
        factor();
        substitute();
        return found[member] != 0;
    }

    // Factorises the systems of the queue, and writes matrices and factors to the kept values.
    __device__ __forceinline__ void keep(const LuKept<V>& kept) {
        for (;;) {
            Threads::sync();
            if (!take_up()) {
                return;
            }
            fetch_values();
            cp_async_wait_all();
            Threads::sync();
            V* const to = kept.values + (first + member) * kept.stride;
            const bool writes = works && exists(member);
            const auto write = [&](u32 begin, u32 end) {
                for_listed(kept.order, begin + worker, writes ? end : 0, workers, [&](u32 k, u32 place) {
                    if (place != NOTHING) {
                        to[k] = place == MINUS_ONE ? V(-1) : places[place * count + member];
                    }
                });
            };
            write(kept.first_of_a, kept.nordered);
            factor();
            write(0, kept.first_of_a);
        }
    }
};

// Threads per multiprocessor, limited by registers; 768 would spill before sm_90.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr u32 LU_THREADS = 512;
#else
constexpr u32 LU_THREADS = 768;
#endif

template <typename V, u32 GROUP>
__global__ void __launch_bounds__(GROUP, LU_THREADS / GROUP)
    lu(u32 nsystems, u32 count, u32 nrows, u32 nrhs, u32 nnz, const u32* __restrict__ words,
       const u32* __restrict__ starts, const u16* __restrict__ targets, u32 ntargets,
       u32 first_chunk, u32 ngroups, u32 at_once, const u16* __restrict__ perm, u32 nplaces,
       u32 y, const V* __restrict__ values, u64 value_stride, const V* __restrict__ b,
       V* __restrict__ x, u32 flags, SystemLimits limits, u32* queue, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    const LuTask<V> task{nrows, perm, b, x, flags, limits, queue, outcomes};
    const LuPrograms<V> programs{nsystems, nrhs,        nnz,     words,  starts,
                                 targets,  ntargets,    nplaces, y,      values,
                                 value_stride, first_chunk, ngroups, at_once};
    LuBlock<V, GROUP> block(task, programs, count, reinterpret_cast<V*>(dynamic_shared));
    block.run();
    block.leave(queue);
}

// Factorisation alone: writes the matrix and the factors of each system to where `lu_kept` reads
// them. Arguments as above, except:
// - `words`, `starts`: the program of the factorisation.
// - `kept`: `nordered` values per system, `stride` from one system to the next, read from the
//   places in `order`: those of the factors up to `first_of_a`, then those of A. MINUS_ONE stands
//   for -1; values of NOTHING are left as they are.
template <typename V, u32 GROUP>
__global__ void __launch_bounds__(GROUP, LU_THREADS / GROUP)
    lu_factor(u32 nsystems, u32 count, u32 nrows, u32 nnz, u32 nplaces, u32 y,
              const V* __restrict__ values, u64 value_stride, u32* queue,
              const u32* __restrict__ words, const u32* __restrict__ starts,
              const u16* __restrict__ targets, u32 ntargets, V* __restrict__ kept, u64 stride,
              u32 first_of_a, const u16* __restrict__ order, u32 nordered) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    wait_for_launches_ahead();
    let_next_launch_begin();

    LuTask<V> task{};
    task.nrows = nrows;
    task.queue = queue;
    const LuPrograms<V> programs{nsystems, 1, nnz, words, starts, targets, ntargets,
                                 nplaces, y, values, value_stride, 0, 0, 1};
    LuBlock<V, GROUP> block(task, programs, count, reinterpret_cast<V*>(dynamic_shared));
    block.keep(LuKept<V>{kept, stride, first_of_a, order, nordered});
    block.leave(queue);
}
