// Arguments and shapes of the kernels that solve whole systems with a factorised preconditioner.
//
// Common to all instances:
// - GROUP threads solve one system at a time and take the next one from a queue. Where GROUP is 32
//   a block has several independent groups; else a block is a group.
// - Thread `lane` of a group owns the rows lane, lane + GROUP, ...: it reads those rows only of all
//   vectors but `z`, the operand of products, which holds whatever other threads read (BLOCKS: and
//   but the vector that the preconditioner is applied to).
// - PLACE says what is in shared memory; the rest is in a workspace of each group, except for
//   values, which are read in place.
// - Factorisation and application are programs of sums, `place -= sum of left * right`, in levels
//   that end with a barrier, unless one warp does this level and the next: streams (factor.cuh)
//   with 16-bit places or, where everything is in global memory, lists with 32-bit places.
//   Block-Jacobi has dense inverses instead (BLOCKS).
// - The order of sums depends only on GROUP and the pattern: results are bitwise repeatable,
//   whatever the neighbours and the order of threads.
// - A system ends by the rules of the CPU's solvers, on the true residual; if the recurrence let it
//   pass too early, it restarts.
//
// Sizes: nsystems + groups of the launch < 2^32, nrhs >= 1. Memory of a group, shared or in
// `workspace`: see FactoredShape.
//
// The programs, in `words` at offsets in units of u32:
// - Streams: warp w of a group has its factorisation at starts[w], its application at
//   starts[WARPS + w]; 192 words of padding follow the last stream. Compact ones where RAGGED.
// - Lists: the factorisation is at starts[0], the application at starts[1]. Head: number of
//   segments, offset of the tasks, offset of the pairs, 0. Segment: end of its tasks, which begin
//   where those of the segment before end; log2 of the lanes that share a sum, at most 5, with bit
//   31 set where a level ends. Task: place, factor, first pair, number of pairs. Pair: two places.
// - BLOCKS: for each row the first row of its block, the number of rows of the block, the place of
//   the inverse (column by column), and 0. Then, from starts[0] on, the first rows of the starts[1]
//   blocks.
//
// The factors:
// - sources: factors are `nfactors` values and a 0; factor k is made of entry sources[k] of A, or
//   of 0.
// - MIXED, factors of less precision than V: A is scaled by powers of two, whose exponents follow
//   the factors, one word per row: low half for the row, high half for the column. Factor k is in
//   row sources[nfactors + k] of A and column sources[2 * nfactors + k].
// - kept, refused: item i has nfactors + 1 values of `kept` (MIXED: and nrows words behind them)
//   and one of `refused`, where the flags ask for them.
//
// The systems:
// - index: the nrows + 1 row pointers of A, then where the columns of each 32 rows begin.
// - columns: column k of row i is columns[index[nrows + 1 + i/32] + k*32 + i%32], or padding
//   where the row has fewer.
// - values, b, x: system s has the nnz values from s/nrhs*value_stride on, in the order of CSR, and
//   `nrows` values of b and of x from s*nrows on.
// - Arrays of limits and tolerances are null or hold one per system.
// - queue: two zeros, before and after the launch.
//
// RAGGED, systems of several patterns (`nsystems` and the queue count those of the launch):
// - items: FACTORED_ITEM_WORDS for each item of the launch: its pattern, where its values begin,
//   where its rows of b and x begin, its number in the batch, where its kept factors begin.
// - patterns: FACTORED_PATTERN_WORDS for each: nrows and nnz (high half), nfactors and the number
//   of its words (high half), then where its part of words, starts, index, columns and sources
//   begins. Offsets within a part are as above; the part of words begins at an even place.
// - shared_stride, workspace_stride: values of a group, which suffice for all systems of the launch.
#pragma once

#include "solver.cuh"
#include "factor.cuh"

// What is in shared memory: vectors, factors and values; all but values; vectors; nothing.
constexpr u32 ALL_SHARED = 0;
constexpr u32 VALUES_GLOBAL = 1;
constexpr u32 FACTORS_GLOBAL = 2;
constexpr u32 ALL_GLOBAL = 3;

// Bits of `flags`: x holds initial guesses; pivots must be positive, and their roots divide
// (Cholesky); factors are taken from `kept`; factors are computed and kept, and nothing is solved;
// the kept factors are of one item, for all.
constexpr u32 FACTORED_GUESS = 1;
constexpr u32 FACTORED_ROOT = 2;
constexpr u32 FACTORED_KEPT = 4;
constexpr u32 FACTORED_KEEP = 8;
constexpr u32 FACTORED_ONE_KEPT = 16;

constexpr u32 SINGULAR_PRECONDITIONER = 8;

// Marks a factor that is made of no entry of A.
constexpr u32 NO_SOURCE = 0xffffffffu;

constexpr u32 FACTORED_ITEM_WORDS = 5;
constexpr u32 FACTORED_PATTERN_WORDS = 7;

// A pattern, its factors, and their programs.
template <typename Index>
struct FactoredPattern {
    u32 nrows, nnz, nfactors;
    const u32* words;
    const u32* starts;
    const u32* index;
    const Index* columns;
    const u32* sources;
};

// RAGGED: `pattern` has the arrays of all patterns, and `value_stride` is not used.
template <typename V, typename Factor, typename Index>
struct FactoredTask {
    u32 nsystems, nrhs;
    FactoredPattern<Index> pattern;
    const u64* items;
    const u64* patterns;
    u64 shared_stride, workspace_stride;
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

// Constants that follow from the template parameters of a kernel.
template <typename Value, typename Factor_, u32 GROUP_, bool BLOCKS_, u32 PLACE_, bool RAGGED_,
          u32 VECTORS_>
struct FactoredShape {
    using V = Value;
    using Factor = Factor_;
    static constexpr u32 GROUP = GROUP_;
    static constexpr bool BLOCKS = BLOCKS_;
    static constexpr u32 PLACE = PLACE_;
    static constexpr bool RAGGED = RAGGED_;
    static constexpr bool IS_WIDE = PLACE == ALL_GLOBAL;
    using Index = typename Select<IS_WIDE, u32, u16>::Type;
    // Vectors of nrows values each; a 0 follows the last one.
    static constexpr u32 VECTORS = VECTORS_;
    static constexpr bool SHARES_VECTORS = PLACE != ALL_GLOBAL;
    static constexpr bool SHARES_FACTORS = PLACE < FACTORS_GLOBAL;
    static constexpr bool SHARES_VALUES = PLACE == ALL_SHARED;
    // Whether factors are computed in V and stored in a type of half its length.
    static constexpr bool MIXED = sizeof(Factor) < sizeof(V);
    // Vectors in use while factors are computed: x and r.
    static constexpr u32 VECTORS_AT_ONCE = 2;

    // Offset in V of the factors in shared memory, which holds vectors, values, factors. MIXED
    // factors are computed over what lies there from the third vector on; rounded, they must not
    // begin before the middle of those.
    __device__ __forceinline__ static u32 factors_at(u32 nrows, u32 nfactors, u32 nnz) {
        const u32 before = VECTORS * nrows + 1 + (SHARES_VALUES ? nnz : 0);
        return MIXED ? maximum(before, VECTORS_AT_ONCE * nrows + nfactors / 2 + 1) : before;
    }

    // Length of the factors, the 0 and the exponents behind them, in units of Factor.
    __device__ __forceinline__ static u64 kept_values(u32 nrows, u32 nfactors) {
        return u64(nfactors) + 1 + (MIXED ? nrows : 0);
    }

    // Values per group in shared memory, and in the workspace, where MIXED factors have room for V.
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
