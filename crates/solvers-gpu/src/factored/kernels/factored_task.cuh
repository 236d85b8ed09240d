// The arguments and shapes of kernels that solve whole systems with a factorised preconditioner.
//
// Common to all instances:
// - GROUP threads have a system at a time and take the next one from a queue. Where GROUP is 32 a block
//   has several groups, which know nothing of each other; else a block is a group.
// - Thread `lane` of a group owns the rows lane, lane + GROUP, ...: of vectors it reads those rows alone,
//   but for the operand `z` of products, where everything lands that others read.
// - PLACE says what is in shared memory; the rest is in a workspace that each group has for itself, but
//   for values, which are read where they lie.
// - Factorisation and application are programs of sums, `place -= sum of left * right`, in levels that end
//   with a barrier: streams of factor.cuh with positions of 16 bits, or, where everything is in global
//   memory, lists with positions of 32 bits. Block-Jacobi has dense inverses instead (BLOCKS).
// - Sums have an order that depends on GROUP and the pattern alone: bitwise repeatable, whatever the
//   neighbours and the order of threads.
// - A system ends by the rules of the CPU's solvers, on the residual recomputed from x; one that the
//   recurrence let pass too early starts again.
//
// Arguments: nsystems + groups of the launch < 2^32, nrhs >= 1. `words` holds the programs. Streams: that
// of warp w of a group begins at the u32 number starts[w] for the factorisation, at starts[WARPS + w] for
// the application. Lists: the two begin at starts[0] and starts[1], each with the number of segments, the
// place of its tasks, that of its pairs, and 0; then for each segment the end of its tasks, which begin where
// those before it end, and the binary logarithm of the lanes that share a sum, at most 5, with bit 31 set where
// a level ends; a task is place, factor, its first pair and the number of pairs, a pair two places.
// BLOCKS: for each row the first row of its block, the rows of the block, the place of its
// inverse, column by column, and 0; then from starts[0] on the first rows of the starts[1] blocks.
// Factors are `nfactors` values and a 0; factor k is made of entry sources[k] of A, or of 0. Where they
// have less precision than V (MIXED) they are those of A scaled by powers of two, whose exponents stand
// behind them, a word a row: of its row below, of its column above; factor k is in row
// sources[nfactors + k] of A and column sources[2 * nfactors + k].
// `index` holds the nrows + 1 row pointers of A, then where the columns of each 32 rows begin: column k of
// row i is at index[nrows + 1 + i/32] + k*32 + i%32 of `columns`, or NO_COLUMN where the row has fewer.
// System s has the nnz values from s/nrhs*value_stride on, in the order of CSR, and `nrows` values of b
// and of x from s*nrows on. Item i has nfactors + 1 values of `kept` (MIXED: and nrows words behind
// them), and one of `refused`, where the flags ask for them. Arrays of limits and tolerances are null or hold one a system. `queue` holds two
// zeros, and does so again at the end. Memory of a group, shared or in `workspace`: see FactoredShape.
#pragma once

#include "solver.cuh"
#include "factor.cuh"

// What is in shared memory beside nothing at all: vectors, factors, values.
constexpr u32 ALL_SHARED = 0;
constexpr u32 VALUES_GLOBAL = 1;
constexpr u32 FACTORS_GLOBAL = 2;
constexpr u32 ALL_GLOBAL = 3;

// Bits of `flags`: x holds guesses; a pivot is positive and its root divides (Cholesky); factors are
// those of `kept`; factors are made and kept, and nothing is solved; what is kept is of one item, for all.
constexpr u32 FACTORED_GUESS = 1;
constexpr u32 FACTORED_ROOT = 2;
constexpr u32 FACTORED_KEPT = 4;
constexpr u32 FACTORED_KEEP = 8;
constexpr u32 FACTORED_ONE_KEPT = 16;

constexpr u32 SINGULAR_PRECONDITIONER = 8;

// No entry of A.
constexpr u32 NO_SOURCE = 0xffffffffu;

template <typename V, typename Factor, typename Index>
struct FactoredTask {
    u32 nsystems, nrows, nrhs, nnz, nfactors;
    const u32* words;
    const u32* starts;
    const u32* index;
    const Index* columns;
    const u32* sources;
    V* workspace;
    Factor* kept;
    u8* refused;
    const V* values;
    u64 value_stride;
    const V* b;
    V* x;
    u32 flags;
    SystemLimits limits;
    u32* queue;
    SystemOutcomes outcomes;
};

// What the template parameters of a kernel say.
template <typename Value, typename Factor_, u32 GROUP_, bool BLOCKS_, u32 PLACE_, u32 VECTORS_>
struct FactoredShape {
    using V = Value;
    using Factor = Factor_;
    static constexpr u32 GROUP = GROUP_;
    static constexpr bool BLOCKS = BLOCKS_;
    static constexpr u32 PLACE = PLACE_;
    static constexpr bool IS_WIDE = PLACE == ALL_GLOBAL;
    using Index = typename Select<IS_WIDE, u32, u16>::Type;
    static constexpr u32 NO_COLUMN = IS_WIDE ? 0xffffffffu : 0xffffu;
    // Of nrows values each, the last one with a 0 behind it.
    static constexpr u32 VECTORS = VECTORS_;
    static constexpr bool SHARES_VECTORS = PLACE != ALL_GLOBAL;
    static constexpr bool SHARES_FACTORS = PLACE < FACTORS_GLOBAL;
    static constexpr bool SHARES_VALUES = PLACE == ALL_SHARED;
    // Whether factors are made in V and stored in half of its length.
    static constexpr bool MIXED = sizeof(Factor) < sizeof(V);
    // Vectors that are in use while factors are made: x and r.
    static constexpr u32 VECTORS_AT_ONCE = 2;

    // Where factors begin in shared memory, which holds vectors, values, factors, in V. MIXED factors are
    // made over what is there from the third vector on, and must not begin before the middle of that.
    __device__ __forceinline__ static u32 factors_at(u32 nrows, u32 nfactors, u32 nnz) {
        const u32 before = VECTORS * nrows + 1 + (SHARES_VALUES ? nnz : 0);
        return MIXED ? maximum(before, VECTORS_AT_ONCE * nrows + nfactors / 2 + 1) : before;
    }

    // Factors, the 0 and the exponents behind them, in Factor.
    __device__ __forceinline__ static u64 kept_values(u32 nrows, u32 nfactors) {
        return u64(nfactors) + 1 + (MIXED ? nrows : 0);
    }

    // Values of a group in shared memory, and in the workspace, where MIXED factors have room for V.
    __device__ __forceinline__ static u64 shared_values(u32 nrows, u32 nfactors, u32 nnz) {
        if constexpr (!SHARES_FACTORS) {
            return SHARES_VECTORS ? VECTORS * nrows + 1 : 0;
        }
        const u64 factors = kept_values(nrows, nfactors);
        return factors_at(nrows, nfactors, nnz) + (MIXED ? (factors + 1) / 2 : factors);
    }

    __device__ __forceinline__ static u64 workspace_values(u32 nrows, u32 nfactors) {
        const u64 factors = u64(nfactors) + 1 + (MIXED ? (u64(nrows) + 1) / 2 : 0);
        return (SHARES_VECTORS ? 0 : u64(VECTORS) * nrows + 1) + (SHARES_FACTORS ? 0 : factors);
    }
};
