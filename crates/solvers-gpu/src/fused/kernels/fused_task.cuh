// The arguments and shapes of kernels that solve whole systems.
//
// Arguments: nrows <= GROUP*ROWS, nsystems + groups of the launch < 2^32, nrhs >= 1. The pattern is in
// slices of GROUP slots: starts[j] + k*GROUP + lane of `columns` is the slot of the column in place k of
// slot j*GROUP + lane, or GROUP*ROWS where it has none, and starts[ROWS] is the length; firsts is the
// first entry in CSR of each slot's row, and `order` the number of the entry within its row in CSR (k
// itself in global memory); for values in registers where it waits, as `waiting` counts, or 0, where a 0
// is. With columns in registers each slice is WIDTH wide. A system has `entries` of them.
// System s has the values from s/nrhs*value_stride on, in the order of CSR, and `nrows` values of b
// and of x from s*nrows on.
// SCATTERED: nrows counts for nothing. Item i of the queue has five words in `items`: its number in
// the batch | its pattern << 32, the place of its first value in units of value_stride, and of its
// first row in b and x, and the two of its pattern. Values are value_step apart, rows row_step, right-hand sides nrows*row_step.
// Pattern p has two words in `patterns`: nrows | entries << 32, and where its `columns` and `order`
// begin; its `starts` begin at p*(ROWS + 1), its `firsts` at p*GROUP*ROWS.
// With PARTS each slot has so many threads, side by side, which share the entries of its row, each every
// PARTS-th, and have the same parts of the vectors: groups have GROUP*PARTS threads then. `columns` has
// the slots of the columns in the order of CSR, and firsts the first entry of each slot's row | their
// number << 16; `starts` and `order` count for nothing. They are copied to shared memory behind the
// values, of which `entries` is the most that a system has.
// Arrays of limits and tolerances are null or hold one a system, as do those of outcomes, by number in
// the batch times nrhs. `queue` holds two zeros, and does so again at the end. `stored` is the length
// of the longest pattern where values are in shared memory, and where they are in registers
// skewed(GROUP*ROWS) and waiting(entries) of the longest. Blocks of GROUP/CLUSTER threads, at least 32; any
// grid of whole clusters. Shared memory: FusedShape::bytes(stored) for each group or block.
// CLUSTER: so many blocks, which run at the same time, have a system. Slots are those of the GROUP threads of all
// blocks; each block has the vectors and values of its own threads' slots in its shared memory, OWN_SLOTS of
// them, and reads the others' there (compute capability 9.0). `stored` is of a block then.
// W is the type of the iterations. Where it is another than V (MIXED, values in registers) they have the
// system rounded to W, and V has what it is told by: the solution, and the residual to go on from. What
// does not converge so is left for a launch without: `left` gets the number of such systems, 0 before, and
// their numbers in the queue behind it; their x is as it was, and their outcomes are not written. A launch
// of what is LEFT solves these alone, and sets the number to 0. It may begin before the launch ahead has ended.
#pragma once

#include "solver.cuh"

constexpr u32 IN_REGISTERS = 0;
constexpr u32 IN_SHARED = 1;
constexpr u32 IN_GLOBAL = 2;

// Bits of `flags`: x holds guesses; a zero in the diagonal counts as 1.
constexpr u32 FUSED_GUESS = 1;
constexpr u32 FUSED_LENIENT = 2;

// What launches may ask for, each a bit: guesses, and a floor of 0 or more. Code for it is a fifth of all, and costs
// where it is not run, too: it takes registers, and multiprocessors fetch it with the rest, whenever they turn to
// another kernel. Without both, generated batches of 10,000 and more took 0.97 of the time on an NVIDIA H200, mixes of
// all families 0.92 to 0.99.
#if !defined(FUSED_MAY)
#define FUSED_MAY 3
#endif
constexpr bool MAY_GUESS = (FUSED_MAY & 1) != 0;
constexpr bool MAY_HAVE_FLOOR = (FUSED_MAY & 2) != 0;

// Where a value is while it waits: lanes that read values some 8, 12, 24 apart find them in different
// banks.
__device__ __forceinline__ constexpr u32 skewed(u32 number) {
    return number + number / 16;
}

// The same of a value, in front of all of which is a 0 for those that a row does not have.
__device__ __forceinline__ constexpr u32 waiting(u32 number) {
    return 1 + skewed(number);
}

// The number of words of an item, and of a pattern.
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

// The parameters of a kernel, and the task that they make.
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

// What the template parameters of a kernel say.
template <typename Value, u32 GROUP_, u32 ROWS_, u32 WIDTH_, u32 PLACE_, bool JACOBI_, bool NEAR_,
          u32 VECTORS_, bool SCATTERED_, u32 PARTS_, typename Work = Value, bool LEFT_ = false,
          u32 CLUSTER_ = 1>
struct FusedShape {
    using V = Value; // in the arrays
    using W = Work;  // in the iterations
    static constexpr bool MIXED = sizeof(W) != sizeof(V);
    static constexpr bool LEFT = LEFT_; // takes what a MIXED launch has left
    static constexpr u32 GROUP = GROUP_;
    static constexpr u32 ROWS = ROWS_;
    static constexpr u32 WIDTH = WIDTH_;
    static constexpr u32 PLACE = PLACE_;
    static constexpr bool JACOBI = JACOBI_;
    static constexpr bool NEAR = NEAR_;
    static constexpr u32 VECTORS = VECTORS_; // in shared memory
    static constexpr bool SCATTERED = SCATTERED_;
    static constexpr u32 PARTS = PARTS_; // threads that share the entries of their rows
    static constexpr u32 TEAM = GROUP * PARTS;
    static constexpr u32 CLUSTER = CLUSTER_; // blocks of a group
    static constexpr bool IS_CLUSTER = CLUSTER > 1;
    static constexpr u32 OWN_THREADS = GROUP / CLUSTER; // with rows, of each block
    static constexpr u32 NONE = GROUP * ROWS;
    static constexpr u32 OWN_SLOTS = NONE / CLUSTER; // in shared memory of each block
    using Threads =
        typename Select<IS_CLUSTER, ClusterTeam<TEAM, CLUSTER>, Team<TEAM, PARTS>>::Type;
    static constexpr bool KEEPS_VALUES = PLACE == IN_REGISTERS;
    static constexpr bool KEEPS_COLUMNS = WIDTH > 0;
    // Entries of a row whose operands the thread mostly has, and others.
    static constexpr u32 OWN = NEAR ? 3 : 1;
    static constexpr u32 FAR = KEEPS_COLUMNS ? WIDTH - OWN : 0;
    static constexpr bool IS_BLOCK = TEAM > WARP_THREADS;
    // Whether products find all operands in shared memory, or those of a thread's first and last row.
    static constexpr bool GATHERS = !KEEPS_COLUMNS || FAR > 0;
    static constexpr bool EXCHANGES = NEAR && IS_BLOCK;
    // From vector to vector in shared memory; what is behind them is at a multiple of 8 bytes.
    static constexpr u32 VECTOR = OWN_SLOTS + (MIXED ? 2 : 1);

    // Shared memory of a group, or of a block of it: vectors, where MIXED the solution, and what is stored.
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

// Threads of a block, and blocks that a multiprocessor shall hold: RESIDENT, or, where that is 0, what
// an iteration keeps in registers, `OWN` values a row beside x and r, and SPARE registers more, where
// shared memory does not hold fewer. What is done once a system makes do with that. The registers are
// in four parts, each of whole warps.
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
    // Of the H100 and its kin; others have less, and registers to spare then.
    static constexpr u32 PLACES = Shape::NONE * Shape::WIDTH;
    static constexpr u32 STAGED = Shape::PLACE == IN_SHARED ? PLACES
                                  : Shape::KEEPS_VALUES     ? skewed(Shape::NONE) + waiting(PLACES)
                                                            : 0;
    static constexpr u32 BYTES = THREADS / OF_BLOCK * Shape::bytes(STAGED) + 2048;
    static constexpr u32 BY_SHARED = 233472 / BYTES;
    static constexpr u32 FIT = BY_REGISTERS < BY_SHARED ? BY_REGISTERS : BY_SHARED;
    static constexpr u32 BLOCKS = RESIDENT > 0 ? RESIDENT : FIT < 1 ? 1 : FIT > 32 ? 32 : FIT;
};
