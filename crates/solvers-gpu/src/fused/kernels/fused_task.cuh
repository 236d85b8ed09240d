// Arguments and shapes of the kernels that solve whole systems.
//
// Sizes: nrows <= GROUP*ROWS, nsystems + groups of the launch < 2^32, nrhs >= 1. Blocks have
// GROUP/CLUSTER threads, at least 32; any grid of whole clusters. Each group or block has
// FusedShape::bytes(stored) bytes of dynamic shared memory.
//
// The pattern, in slices of GROUP slots, each slot with one row:
// - starts: slice j begins at starts[j]; starts[ROWS] is the length.
// - columns: columns[starts[j] + k*GROUP + lane] is the slot of the column at place k of slot
//   j*GROUP + lane; GROUP*ROWS marks padding. With columns in registers each slice is WIDTH wide.
// - firsts: number in CSR of the first entry of each slot's row.
// - order: number of each entry within its row in CSR. For values in registers, offset of the
//   staged value, as `waiting` gives it; padding has 0, where a 0 is stored. Unused for values in
//   global memory: place k has entry k of the row.
// - entries: entries of a system in CSR; SCATTERED: the most of any system.
// - stored: values staged in shared memory, in units of V. Values in shared memory: length of the
//   longest pattern (CLUSTER: of a block's share; PARTS: with room for the columns). Values in
//   registers: skewed(GROUP*ROWS) + waiting(entries) of the longest.
//
// The systems:
// - values, b, x: system s has the values from s/nrhs*value_stride on, in the order of CSR, and
//   `nrows` values of b and of x from s*nrows on.
// - Arrays of limits and tolerances are null or hold one per system, arrays of outcomes one per
//   system. The index of a system is item*nrhs + right-hand side, with the item's number in the
//   batch.
// - queue: two zeros, before and after the launch.
//
// SCATTERED, systems of several patterns; nrows is unused:
// - items: five words for item i of the queue: its number in the batch | its pattern << 32, offset
//   of its first value in units of value_stride, offset of its first row in b and x, and the two
//   words of its pattern.
// - patterns: two words for pattern p: nrows | entries << 32, and where its `columns` and `order`
//   begin. Its `starts` begin at p*(ROWS + 1), its `firsts` at p*GROUP*ROWS.
// - Strides: value_step between values, row_step between rows, nrows*row_step between right-hand
//   sides.
//
// PARTS: each slot has PARTS neighbouring threads. Each takes every PARTS-th entry of the row, and
// all hold the same parts of the vectors; a group has GROUP*PARTS threads.
// - columns: slots of the columns in the order of CSR; they are copied to shared memory, `entries`
//   values behind the beginning of the staged values.
// - firsts: first entry of each slot's row | number of its entries << 16.
// - starts and order are unused.
//
// CLUSTER: a cluster of CLUSTER blocks, which run at the same time, solves one system (compute
// capability 9.0). Slots are those of the GROUP threads of all its blocks. Each block holds the
// vectors and values of its own threads' OWN_SLOTS slots in its shared memory, and reads other
// slots in the shared memory of their blocks.
//
// W is the type of the iterations. Where it differs from V (MIXED, values in registers) the
// iterations work on the system rounded to W; the solution and the residual, from which they
// restart, are in V. Systems that do not converge this way are left for a launch without MIXED;
// their x is unchanged and their outcomes are not written.
// - left: the number of such systems, 0 before, then their numbers in the queue.
// - A launch with LEFT solves these systems only and resets the number to 0. It may begin before
//   the launch ahead of it has ended.
#pragma once

#include "solver.cuh"

constexpr u32 IN_REGISTERS = 0;
constexpr u32 IN_SHARED = 1;
constexpr u32 IN_GLOBAL = 2;

// Bits of `flags`: x holds initial guesses; a zero on the diagonal counts as 1.
constexpr u32 FUSED_GUESS = 1;
constexpr u32 FUSED_LENIENT = 2;

// Features that a launch may use, one bit each: guesses, and a floor of 0 or more. Their code is a
// fifth of the whole and costs time even if not run: it takes registers, and multiprocessors fetch
// it with the rest whenever they turn to another kernel. Without both, generated batches of 10,000
// and more took 0.97 of the time on an NVIDIA H200, mixes of all families 0.92 to 0.99.
#if !defined(FUSED_MAY)
#define FUSED_MAY 3
#endif
constexpr bool MAY_GUESS = (FUSED_MAY & 1) != 0;
constexpr bool MAY_HAVE_FLOOR = (FUSED_MAY & 2) != 0;

// Offset of a staged value in shared memory: lanes that read at strides of about 8, 12 or 24 find
// their values in different banks.
__device__ __forceinline__ constexpr u32 skewed(u32 number) {
    return number + number / 16;
}

// Offset of a staged matrix value; offset 0 holds the 0 that padding reads.
__device__ __forceinline__ constexpr u32 waiting(u32 number) {
    return 1 + skewed(number);
}

// Words per item, and per pattern.
constexpr u32 ITEM_WORDS = 5;
constexpr u32 PATTERN_WORDS = 2;

template <typename V>
struct FusedTask {
    u32 nsystems, nrows, entries, nrhs;
    const u32* starts;
    const u32* firsts;
    const u16* columns;
    const u16* order;
    u32 stored;
    const u64* items;
    const u64* patterns;
    const V* values;
    u64 value_stride, value_step, row_step;
    const V* b;
    V* x;
    u32 flags;
    SystemLimits limits;
    u32* queue;
    SystemOutcomes outcomes;
    u32* left;
};

// The parameters of a kernel, and the task made of them.
#define FUSED_PARAMETERS(V)                                                                        \
    u32 nsystems, u32 nrows, u32 entries, u32 nrhs, const u32 *__restrict__ starts,                \
        const u32 *__restrict__ firsts, const u16 *__restrict__ columns,                           \
        const u16 *__restrict__ order, u32 stored, const u64 *__restrict__ items,                  \
        const u64 *__restrict__ patterns, const V *__restrict__ values, u64 value_stride,          \
        u64 value_step, u64 row_step, const V *__restrict__ b, V *__restrict__ x, u32 flags,       \
        SystemLimits limits, u32 *queue, SystemOutcomes outcomes, u32 *left
#define FUSED_TASK                                                                                 \
    {                                                                                              \
        nsystems, nrows, entries, nrhs, starts, firsts, columns, order, stored, items, patterns, values, \
            value_stride, value_step, row_step, b, x, flags, limits, queue, outcomes, left         \
    }

// Constants that follow from the template parameters of a kernel.
template <typename Value, u32 GROUP_, u32 ROWS_, u32 WIDTH_, u32 PLACE_, bool JACOBI_, bool NEAR_,
          u32 VECTORS_, bool SCATTERED_, u32 PARTS_, typename Work = Value, bool LEFT_ = false,
          u32 CLUSTER_ = 1>
struct FusedShape {
    using V = Value; // in the arrays
    using W = Work;  // in the iterations
    static constexpr bool MIXED = sizeof(W) != sizeof(V);
    static constexpr bool LEFT = LEFT_; // solves what a MIXED launch has left
    static constexpr u32 GROUP = GROUP_;
    static constexpr u32 ROWS = ROWS_;
    static constexpr u32 WIDTH = WIDTH_;
    static constexpr u32 PLACE = PLACE_;
    static constexpr bool JACOBI = JACOBI_;
    static constexpr bool NEAR = NEAR_;
    static constexpr u32 VECTORS = VECTORS_; // vectors in shared memory
    static constexpr bool SCATTERED = SCATTERED_;
    static constexpr u32 PARTS = PARTS_; // threads that share the entries of their rows
    static constexpr u32 TEAM = GROUP * PARTS;
    static constexpr u32 CLUSTER = CLUSTER_; // blocks per group
    static constexpr bool IS_CLUSTER = CLUSTER > 1;
    static constexpr u32 OWN_THREADS = GROUP / CLUSTER; // threads with rows, per block
    static constexpr u32 NONE = GROUP * ROWS;
    static constexpr u32 OWN_SLOTS = NONE / CLUSTER; // slots in shared memory, per block
    using Threads =
        typename Select<IS_CLUSTER, ClusterTeam<TEAM, CLUSTER>, Team<TEAM, PARTS>>::Type;
    static constexpr bool KEEPS_VALUES = PLACE == IN_REGISTERS;
    static constexpr bool KEEPS_COLUMNS = WIDTH > 0;
    // Entries per row whose operands are mostly in the thread's registers, and other entries.
    static constexpr u32 OWN = NEAR ? 3 : 1;
    static constexpr u32 FAR = KEEPS_COLUMNS ? WIDTH - OWN : 0;
    static constexpr bool IS_BLOCK = TEAM > WARP_THREADS;
    // Whether products read operands of all rows from shared memory (GATHERS), or of each thread's
    // first and last row (EXCHANGES).
    static constexpr bool GATHERS = !KEEPS_COLUMNS || FAR > 0;
    static constexpr bool EXCHANGES = NEAR && IS_BLOCK;
    // Stride between vectors in shared memory. Where MIXED, what follows the vectors is at a
    // multiple of 8 bytes.
    static constexpr u32 VECTOR = OWN_SLOTS + (MIXED ? 2 : 1);

    // Bytes of shared memory per group, or per block of a cluster: vectors, the solution where
    // MIXED, and staged values.
    __device__ __forceinline__ static constexpr u32 bytes(u32 stored) {
        return VECTORS * VECTOR * u32(sizeof(W)) + ((MIXED ? NONE + 1 : 0) + stored) * u32(sizeof(V));
    }

    static_assert(!MIXED || KEEPS_VALUES, "systems that are rounded are in registers");
    static_assert(!MIXED || !LEFT, "nothing is left twice");
    static_assert(!KEEPS_VALUES || KEEPS_COLUMNS, "registers hold rows of one width");
    static_assert(!NEAR || KEEPS_VALUES, "neighbours are in registers as values are");
    static_assert(!KEEPS_COLUMNS || WIDTH >= OWN, "the first places are there");
    static_assert(PARTS == 1 || (PLACE == IN_SHARED && !KEEPS_COLUMNS && VECTORS == 1),
                  "threads have what they share");
    static_assert(!IS_CLUSTER || (!KEEPS_COLUMNS && PARTS == 1 && !MIXED && !LEFT),
                  "a cluster has columns in memory");
};

// Threads per block, and blocks that a multiprocessor shall hold: RESIDENT or, where that is 0, as
// many as registers and shared memory allow. An iteration keeps in registers x, r, `OWN` more
// values per row, matrix values and columns that belong there, and SPARE more registers; code that
// runs once per system must make do with these. The registers of a multiprocessor are in four
// parts, each for whole warps.
template <typename Shape, u32 OWN, u32 SPARE, u32 RESIDENT>
struct FusedBounds {
    using W = typename Shape::W;
    static constexpr u32 OF_BLOCK = Shape::TEAM / Shape::CLUSTER;
    static constexpr u32 THREADS = OF_BLOCK > WARP_THREADS ? OF_BLOCK : WARP_THREADS;
    static constexpr u32 VALUES = Shape::KEEPS_VALUES ? Shape::WIDTH : 0;
    static constexpr u32 WORDS =
        sizeof(W) / 4 * Shape::ROWS * (VALUES + 2 + OWN + Shape::JACOBI);
    static constexpr u32 SHARING = Shape::PARTS > 1 ? 48 : 0;
    static constexpr u32 KEPT = WORDS + (Shape::ROWS * Shape::FAR + 1) / 2 + SPARE + SHARING;
    static constexpr u32 LARGEST = KEPT < 255 ? KEPT : 255;
    static constexpr u32 BY_REGISTERS =
        4 * (16384 / (WARP_THREADS * LARGEST)) / (THREADS / WARP_THREADS);
    // Shared memory of the H100 and its kin; other devices have less, and then registers to spare.
    static constexpr u32 PLACES = Shape::NONE * Shape::WIDTH;
    static constexpr u32 STAGED = Shape::PLACE == IN_SHARED ? PLACES
                                  : Shape::KEEPS_VALUES     ? skewed(Shape::NONE) + waiting(PLACES)
                                                            : 0;
    static constexpr u32 BYTES = THREADS / OF_BLOCK * Shape::bytes(STAGED) + 2048;
    static constexpr u32 BY_SHARED = 233472 / BYTES;
    static constexpr u32 FIT = BY_REGISTERS < BY_SHARED ? BY_REGISTERS : BY_SHARED;
    static constexpr u32 BLOCKS = RESIDENT > 0 ? RESIDENT : FIT < 1 ? 1 : FIT > 32 ? 32 : FIT;
};
