// Whole solves of systems whose entries are near the diagonal, at most W away on each side, by LU
// without pivoting in parts, all in one launch, with refinement from the true residual (Higham,
// Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12):
//
//   r = b - A x0;  repeat: x += A^-1 r, r = b - A x
//
// A^-1 r (Wang, A parallel method for tridiagonal equations, 1981; the reduced system by parallel
// cyclic reduction, Hockney and Jesshope 1981):
// 1. A thread eliminates among its own K rows. The last W of them are its border; the K - W others
//    are expressed by its border and that of the thread before.
// 2. The borders of all threads form a block tridiagonal system with blocks of W x W. Each step of
//    cyclic reduction doubles the distance of what is coupled, until nothing is. In a cluster each
//    block does so with its own borders, up to those of the blocks beside it; then all blocks solve
//    for the first and last border of each.
// 3. With both borders known each thread substitutes in its rows.
//
// A system ends by the rules of the CPU's solvers, applied to the residual recomputed from x. A
// system that does not pass is refined again while restarts and iterations are left. A zero or NaN
// pivot ends it; pivots are those of the parts and of the reduced system.
//
// Common to all instances:
// - A group of GROUP threads solves a system, or a cluster of CLUSTER blocks of GROUP threads each.
//   A thread has rows thread * K to thread * K + K - 1 of the GROUP * CLUSTER * K; rows beyond the
//   last one of the system are those of the identity. A block has values and vectors of its own
//   rows in its shared memory; borders, and x where a product needs it, are read from others.
// - Values and right-hand side are staged in shared memory, K and 2 W + 1 being odd, so that equal
//   rows of neighbouring threads are in different banks. Reciprocals of pivots, the upper factor
//   and the solution are in registers.
// - A refinement eliminates again, and so does another right-hand side.
// - A system's result depends on the system alone: bitwise repeatable, whatever the neighbours, the
//   position in the batch, and the order of threads.
// - Traffic of a system: its values once for all right-hand sides, b and x once (b again in each
//   refinement, x twice with an initial guess), 25 B of outcome.
//
// Arguments:
// - `nitems` < 2^32, nrhs >= 1, nrows <= GROUP * CLUSTER * K.
// - `order`: position k of the band is row and column order[k] of A; null for the order of A.
// - `places`: where each of the `nnz` entries lies in the band, row by row, 2 W + 1 diagonals each;
//   null for a tridiagonal pattern with all entries in the order of A, where entry k lies at k + 1.
// - `entries`, for clusters with `places`: CLUSTER + 1 offsets, then the numbers of all entries,
//   those of the first block's rows first. Block c has positions offsets[c] to offsets[c + 1] - 1
//   of that list and of `places`; its places count from its first row.
// - `values`: `value_stride` elements from item to item, 0 if all items share them.
// - `b`, `x`: item-major, one right-hand side after the other. `flags`: BANDED_GUESS.
// - Dynamic shared memory: BandedBlock::BYTES.
#include "norm.cuh"
#include "solver.cuh"

// A bit of `flags`: x holds initial guesses.
constexpr u32 BANDED_GUESS = 1;

// The least pivot, whose reciprocal is a normal number.
template <typename V>
constexpr V LEAST_PIVOT = sizeof(V) == 8 ? V(1e-290) : V(1e-36);

// The reciprocal of a pivot. `bad` becomes true where that is zero, NaN or too small.
template <typename V>
__device__ __forceinline__ V invert_pivot(V pivot, bool& bad) {
    bad = bad || !(pivot >= LEAST_PIVOT<V> || pivot <= -LEAST_PIVOT<V>);
    bool is_sure;
    const V inverse = reciprocal(pivot, is_sure);
    return is_sure ? inverse : V(1) / pivot;
}

// A thread's equations of the reduced system: left * (border before) + border + right * (border
// behind) = known, once normalised.
template <typename V, u32 W>
struct Border {
    V left[W][W], right[W][W], known[W];

    // Multiplies the equations by the inverse of `middle`, the coefficients of the own border:
    // Gauss-Jordan elimination with partial pivoting. `bad`: whether a pivot was zero or NaN.
    __device__ __forceinline__ void normalise(V (&middle)[W][W], bool& bad) {
#pragma unroll
        for (u32 k = 0; k < W; ++k) {
#pragma unroll
            for (u32 s = k + 1; s < W; ++s) {
                const bool larger =
                    magnitude(double(middle[s][k])) > magnitude(double(middle[k][k]));
                swap_rows(middle, k, s, larger);
            }
            const V inverse = invert_pivot(middle[k][k], bad);
#pragma unroll
            for (u32 c = 0; c < W; ++c) {
                middle[k][c] *= inverse;
                left[k][c] *= inverse;
                right[k][c] *= inverse;
            }
            known[k] *= inverse;
#pragma unroll
            for (u32 s = 0; s < W; ++s) {
                if (s != k) {
                    const V factor = middle[s][k];
#pragma unroll
                    for (u32 c = 0; c < W; ++c) {
                        middle[s][c] -= factor * middle[k][c];
                        left[s][c] -= factor * left[k][c];
                        right[s][c] -= factor * right[k][c];
                    }
                    known[s] -= factor * known[k];
                }
            }
        }
    }

    __device__ __forceinline__ static void exchange(V& a, V& b, bool wanted) {
        const V before = a;
        a = wanted ? b : a;
        b = wanted ? before : b;
    }

    __device__ __forceinline__ void swap_rows(V (&middle)[W][W], u32 k, u32 s, bool wanted) {
#pragma unroll
        for (u32 c = 0; c < W; ++c) {
            exchange(middle[k][c], middle[s][c], wanted);
            exchange(left[k][c], left[s][c], wanted);
            exchange(right[k][c], right[s][c], wanted);
        }
        exchange(known[k], known[s], wanted);
    }

    // Eliminates the borders of two other threads, `before` and `behind`, whose equations are
    // normalised. What is coupled is twice as far away then. A thread without such a neighbour
    // keeps what it has on that side.
    __device__ __forceinline__ void reduce(const Border& before, const Border& behind,
                                           bool has_before, bool has_behind, bool& bad) {
        V middle[W][W], new_left[W][W], new_right[W][W], new_known[W];
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
            new_known[s] = known[s];
            V of_before[W], of_behind[W];
#pragma unroll
            for (u32 t = 0; t < W; ++t) {
                of_before[t] = has_before ? left[s][t] : V(0);
                of_behind[t] = has_behind ? right[s][t] : V(0);
                new_known[s] -= of_before[t] * before.known[t] + of_behind[t] * behind.known[t];
            }
#pragma unroll
            for (u32 c = 0; c < W; ++c) {
                V of_middle = V(s == c);
                V of_left = has_before ? V(0) : left[s][c];
                V of_right = has_behind ? V(0) : right[s][c];
#pragma unroll
                for (u32 t = 0; t < W; ++t) {
                    of_middle -= of_before[t] * before.right[t][c] + of_behind[t] * behind.left[t][c];
                    of_left -= of_before[t] * before.left[t][c];
                    of_right -= of_behind[t] * behind.right[t][c];
                }
                middle[s][c] = of_middle;
                new_left[s][c] = of_left;
                new_right[s][c] = of_right;
            }
        }
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
            known[s] = new_known[s];
#pragma unroll
            for (u32 c = 0; c < W; ++c) {
                left[s][c] = new_left[s][c];
                right[s][c] = new_right[s][c];
            }
        }
        normalise(middle, bad);
    }
};

// The first W rows of a thread, expressed by borders: known + before * (border before) + own *
// (own border).
template <typename V, u32 W>
struct FirstRows {
    V before[W][W], own[W][W], known[W];
};

// The threads that solve a system: CLUSTER times GROUP. The barriers of a solve lie between its
// sums, so that none of those of sum_apart is needed.
template <u32 GROUP, u32 CLUSTER>
struct BandedThreads : ClusterTeam<GROUP * CLUSTER, CLUSTER> {
    __device__ __forceinline__ static void sync() {}

    __device__ __forceinline__ static bool any_thread(bool of_thread, double* scratch) {
        return sum_apart<BandedThreads>(of_thread ? 1.0f : 0.0f, scratch) != 0.0f;
    }

    // For the threads of a block, and for all of them.
    __device__ __forceinline__ static void sync_block() { __syncthreads(); }

    __device__ __forceinline__ static void sync_all() { cluster_sync(); }
};

template <u32 GROUP>
struct BandedThreads<GROUP, 1> : Team<GROUP> {
    __device__ __forceinline__ static void sync_block() { Team<GROUP>::sync(); }

    __device__ __forceinline__ static void sync_all() { Team<GROUP>::sync(); }
};

// What threads of a group tell each other: COUNT numbers each, through shuffles, or through shared
// memory where a group is a block; in a cluster, those of one block.
template <typename V, u32 GROUP>
struct Exchange {
    static constexpr bool IS_BLOCK = GROUP > WARP_THREADS;
    V* const told; // for blocks: room for COUNT values of each thread

    // The numbers of the thread `distance` before (or behind) this one. Threads without such a one
    // get those of another thread of the group.
    template <u32 COUNT>
    __device__ __forceinline__ void ask(const V (&own)[COUNT], u32 distance, V (&before)[COUNT],
                                        V (&behind)[COUNT]) const {
        if constexpr (IS_BLOCK) {
            const u32 thread = threadIdx.x;
            __syncthreads(); // the last numbers have been read
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                told[i * GROUP + thread] = own[i];
            }
            __syncthreads();
            const u32 first = thread >= distance ? thread - distance : thread;
            const u32 second = thread + distance < GROUP ? thread + distance : thread;
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                before[i] = told[i * GROUP + first];
                behind[i] = told[i * GROUP + second];
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                before[i] = __shfl_up_sync(ALL_LANES, own[i], distance, GROUP);
                behind[i] = __shfl_down_sync(ALL_LANES, own[i], distance, GROUP);
            }
        }
    }

    // The same for structs of numbers.
    template <typename Parts>
    __device__ __forceinline__ void ask(const Parts& own, u32 distance, Parts& before,
                                        Parts& behind) const {
        constexpr u32 COUNT = sizeof(Parts) / sizeof(V);
        ask(reinterpret_cast<const V(&)[COUNT]>(own), distance,
            reinterpret_cast<V(&)[COUNT]>(before), reinterpret_cast<V(&)[COUNT]>(behind));
    }
};

// What the blocks of a cluster tell each other, in the shared memory of each. The borders of a
// block's first and last thread are expressed by those of the blocks' beside it: left * (last
// border of the block before) + border + right * (first border of the block behind) = known.
template <typename V, u32 W, u32 CLUSTER>
struct Ends {
    FirstRows<V, W> behind; // of the first thread of the block behind
    struct {
        Border<V, W> first, last;
    } of[CLUSTER];
    V before_own[W], behind_own[W]; // the last border of the block before, the first of that behind

    // Solves the equations of all blocks, which have arrived: eliminates from the first block to
    // the last, and substitutes. For one thread of each block.
    __device__ __forceinline__ void solve(u32 rank, bool& bad) {
        // The last border of the block before is known - coupling * (first border of this block).
        V known[W], coupling[W][W];
        set_zero(known, coupling);
#pragma unroll 1
        for (u32 block = 0; block < CLUSTER; ++block) {
            Border<V, W> first = of[block].first;
            const Border<V, W> last = of[block].last;
            V middle[W][W], share[W][W], sum[W];
#pragma unroll
            for (u32 s = 0; s < W; ++s) {
                sum[s] = last.known[s];
#pragma unroll
                for (u32 t = 0; t < W; ++t) {
                    first.known[s] -= first.left[s][t] * known[t];
                    sum[s] -= last.left[s][t] * known[t];
                }
#pragma unroll
                for (u32 c = 0; c < W; ++c) {
                    middle[s][c] = V(s == c);
                    share[s][c] = V(0);
#pragma unroll
                    for (u32 t = 0; t < W; ++t) {
                        middle[s][c] -= first.left[s][t] * coupling[t][c];
                        share[s][c] += last.left[s][t] * coupling[t][c];
                    }
                }
            }
            first.normalise(middle, bad);
#pragma unroll
            for (u32 s = 0; s < W; ++s) {
                known[s] = sum[s];
#pragma unroll
                for (u32 c = 0; c < W; ++c) {
                    coupling[s][c] = last.right[s][c];
                }
#pragma unroll
                for (u32 t = 0; t < W; ++t) {
                    known[s] += share[s][t] * first.known[t];
#pragma unroll
                    for (u32 c = 0; c < W; ++c) {
                        coupling[s][c] += share[s][t] * first.right[t][c];
                    }
                }
            }
            of[block].first = first;
            set(of[block].last, known, coupling);
        }
        V next[W], ignored[W][W];
        set_zero(next, ignored);
#pragma unroll 1
        for (u32 block = CLUSTER; block-- > 0;) {
            if (block == rank) {
                copy(next, behind_own);
            }
            V last[W];
            substitute(of[block].last, next, last);
            if (block + 1 == rank) {
                copy(last, before_own);
            }
            V first[W];
            substitute(of[block].first, next, first);
            copy(first, next);
        }
        if (rank == 0) {
            set_zero(before_own, ignored);
        }
    }

  private:
    __device__ __forceinline__ static void copy(const V (&from)[W], V (&to)[W]) {
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
            to[s] = from[s];
        }
    }

    __device__ __forceinline__ static void set_zero(V (&vector)[W], V (&matrix)[W][W]) {
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
            vector[s] = V(0);
#pragma unroll
            for (u32 c = 0; c < W; ++c) {
                matrix[s][c] = V(0);
            }
        }
    }

    __device__ __forceinline__ static void set(Border<V, W>& border, const V (&known)[W],
                                               const V (&right)[W][W]) {
        copy(known, border.known);
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
            copy(right[s], border.right[s]);
        }
    }

    // known - right * next
    __device__ __forceinline__ static void substitute(const Border<V, W>& border, const V (&next)[W],
                                                      V (&found)[W]) {
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
            found[s] = border.known[s];
#pragma unroll
            for (u32 t = 0; t < W; ++t) {
                found[s] -= border.right[s][t] * next[t];
            }
        }
    }
};

// Threads of a block and its shared memory: the bands of all groups, the right-hand sides of all,
// what is exchanged among threads and among blocks, scratch.
template <typename V, u32 W, u32 K, u32 GROUP, u32 CLUSTER>
struct BandedBlock {
    static constexpr u32 THREADS = GROUP > 2 * WARP_THREADS ? GROUP : 2 * WARP_THREADS;
    static constexpr u32 GROUPS = THREADS / GROUP;
    static constexpr u32 ROWS = GROUP * K;
    static constexpr u32 DIAGONALS = 2 * W + 1;
    static constexpr u32 TOLD = GROUP > WARP_THREADS ? (2 * W * W + W) * GROUP : 0;
    static constexpr u32 ENDS_AT = GROUPS * ROWS * (DIAGONALS + 1) + TOLD;
    static constexpr u32 VALUES = ENDS_AT + (CLUSTER > 1 ? sizeof(Ends<V, W, CLUSTER>) / sizeof(V) : 0);
    static constexpr u32 SCRATCH_AT = (VALUES * u32(sizeof(V)) + 7) / 8 * 8;
    // Blocks that a multiprocessor shall have registers for, about as many as it has shared memory
    // for: each of its four parts has 512 for each lane of a warp. Groups of several warps with
    // blocks of 2 x 2 in f64 spill 60 to 100 bytes in 128, none in 168.
    static constexpr bool HAS_LARGE_BORDERS = sizeof(V) == 8 && GROUP > WARP_THREADS;
    static constexpr u32 OF_TRIDIAGONAL = K > 9 ? 168 : K > 5 ? 96 : 80;
    static constexpr u32 OF_PENTADIAGONAL = K > 9 ? 240 : HAS_LARGE_BORDERS ? 168 : 128;
    static constexpr u32 OF_WIDE = sizeof(V) == 8 || W > 3 ? 240 : 168;
    static constexpr u32 REGISTERS = W > 2   ? OF_WIDE
                                     : W > 1 ? OF_PENTADIAGONAL
                                             : OF_TRIDIAGONAL;
    static constexpr u32 MOST = 512 / REGISTERS * 4 * WARP_THREADS / THREADS;
    static constexpr u32 BLOCKS = MOST > 1 ? MOST : 1;
    // As `BandedShape::shared_bytes` (shape.rs) counts them.
    static constexpr u32 BYTES = SCRATCH_AT + GROUPS * BandedThreads<GROUP, CLUSTER>::SCRATCH * 8;
};

// One thread's part in the solves of its group.
template <typename V, u32 W, u32 K, u32 GROUP, u32 CLUSTER>
struct BandedGroup {
    using Threads = BandedThreads<GROUP, CLUSTER>;
    using Block = BandedBlock<V, W, K, GROUP, CLUSTER>;
    static constexpr u32 D = 2 * W + 1;
    static constexpr u32 ROWS = Block::ROWS;          // of a block
    static constexpr u32 THREADS = GROUP * CLUSTER;   // that solve a system
    static constexpr u32 INNER = K - W; // rows before the border
    static_assert(K % 2 == 1 && K >= 2 * W, "rows in different banks; inner rows beside a border");
    static_assert(CLUSTER == 1 || Block::GROUPS == 1, "a cluster of whole blocks");

    const u32 nrows;
    const u16* const order;
    const SystemLimits& limits;
    const u32 local;     // the number of this thread in the part of the group that its block has
    const u32 first_row; // of the block
    const u32 thread;    // the number of this thread in the group
    V* const band;       // of the block's rows of the group
    V* const rhs;        // of these rows: the right-hand side of A^-1 r, or x
    double* const scratch;
    const Exchange<V, GROUP> exchange;
    Ends<V, W, CLUSTER>* const ends; // in clusters

    const V* own_b;
    V* own_x;
    // x_is_set: x holds an iterate that is not 0, which a solution is added to.
    // rhs_is_b: `rhs` holds b. stored: x holds what the solve returns.
    bool x_is_set, rhs_is_b, stored;
    u32 state, iteration, restarts;
    double threshold, rhs_norm, residual;

    __device__ __forceinline__ BandedGroup(u32 all_rows, const u16* all_order,
                                           const SystemLimits& all_limits, u8* shared)
        : nrows(all_rows), order(all_order), limits(all_limits), local(threadIdx.x % GROUP),
          first_row(CLUSTER > 1 ? cluster_rank() * ROWS : 0),
          thread((CLUSTER > 1 ? cluster_rank() * GROUP : 0) + local),
          band(reinterpret_cast<V*>(shared) + threadIdx.x / GROUP * ROWS * D),
          rhs(reinterpret_cast<V*>(shared) + Block::GROUPS * ROWS * D + threadIdx.x / GROUP * ROWS),
          scratch(reinterpret_cast<double*>(shared + Block::SCRATCH_AT) +
                  threadIdx.x / GROUP * Threads::SCRATCH),
          exchange{reinterpret_cast<V*>(shared) + Block::GROUPS * ROWS * (D + 1)},
          ends(reinterpret_cast<Ends<V, W, CLUSTER>*>(reinterpret_cast<V*>(shared) +
                                                      Block::ENDS_AT)) {
        for (u32 k = local; k < ROWS * D; k += GROUP) {
            band[k] = V(first_row + k / D >= nrows && k % D == W ? 1 : 0);
        }
    }

    // The row and column of A that are the k-th of the band.
    __device__ __forceinline__ u32 number(u32 k) const {
        return order == nullptr ? k : u32(load(order + k));
    }

    __device__ __forceinline__ const V* own_band() const { return band + local * K * D; }

    __device__ __forceinline__ V* own_rhs() const { return rhs + local * K; }

    // Elements of a vector in device memory of the own rows, 0 beyond the last row.
    __device__ __forceinline__ V element(const V* vector, u32 i) const {
        const u32 k = thread * K + i;
        return k < nrows ? vector[number(k)] : V(0);
    }

    // Starts to copy an item's values to the band: those of the block's rows.
    __device__ __forceinline__ void fetch_values(const V* values, const u16* places,
                                                 const u32* entries, u32 nnz) const {
        if (places == nullptr) {
            // Entry k of a whole tridiagonal pattern lies at k + 1 of the band of all rows.
            const u32 begin = first_row * D;
            const u32 end = CLUSTER > 1 ? minimum(nnz, begin + ROWS * D - 1) : nnz;
#pragma unroll 4
            for (u32 k = (begin == 0 ? 0 : begin - 1) + local; k < end; k += GROUP) {
                cp_async_value(band + (k + 1 - begin), values + k);
            }
        } else if constexpr (CLUSTER > 1) {
            const u32 end = load(entries + cluster_rank() + 1);
            entries += CLUSTER + 1;
#pragma unroll 4
            for (u32 k = load(entries - CLUSTER - 1 + cluster_rank()) + local; k < end;
                 k += GROUP) {
                cp_async_value(band + load(places + k), values + load(entries + k));
            }
        } else {
#pragma unroll 4
            for (u32 k = local; k < nnz; k += GROUP) {
                cp_async_value(band + load(places + k), values + k);
            }
        }
    }

    // Starts to copy b: the elements of the block's rows.
    __device__ __forceinline__ void fetch_b() const {
#pragma unroll 4
        for (u32 k = local; k < ROWS; k += GROUP) {
            if (first_row + k < nrows) {
                cp_async_value(rhs + k, own_b + number(first_row + k));
            } else {
                rhs[k] = V(0);
            }
        }
    }

    // Element k - W of what the block's rows have in `rhs`, of its neighbours beyond these; 0
    // before the first row of the group and behind its last one.
    __device__ __forceinline__ V told_x(u32 k) const {
        const bool is_own = k >= W && k < ROWS + W;
        if (CLUSTER == 1 || is_own) {
            return is_own ? rhs[k - W] : V(0);
        }
        const u32 row = first_row + k;
        if (row < W || row >= ROWS * CLUSTER + W) {
            return V(0);
        }
        return *in_block_of_cluster(rhs + (row - W) % ROWS, (row - W) / ROWS);
    }

    __device__ __forceinline__ double norm(const V (&vector)[K]) const {
        return norm_of_group<Threads>(vector, scratch);
    }

    // product = A x, or |A||x|, of the own rows, x being in `rhs`.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(V (&product)[K]) const {
        const V* const a = own_band();
        V window[K + 2 * W];
#pragma unroll
        for (u32 i = 0; i < K + 2 * W; ++i) {
            window[i] = told_x(local * K + i);
        }
#pragma unroll
        for (u32 i = 0; i < K; ++i) {
            V sum = V(0);
#pragma unroll
            for (u32 d = 0; d < D; ++d) {
                // Diagonals leave the matrix in its first and last rows, where x may be infinite.
                const V term = a[i * D + d] * window[i + d];
                sum += MAGNITUDES ? V(magnitude(double(term))) : term;
            }
            product[i] = sum;
        }
    }

    // r, on entry b, becomes b - A x; returns its norm, NaN where that is not finite. Products are
    // summed first: large ones that cancel must not absorb b.
    __device__ __forceinline__ double find_residual(V (&r)[K]) const {
        V product[K];
        multiply<false>(product);
#pragma unroll
        for (u32 i = 0; i < K; ++i) {
            r[i] -= product[i];
        }
        const double found = norm(r);
        return is_finite(found) ? found : found - found;
    }

    // || |A||x| + |b| ||, the size of what cancels in the residual.
    __device__ __forceinline__ double size() const {
        V sum[K];
        multiply<true>(sum);
        if constexpr (CLUSTER > 1) {
            cluster_sync(); // the last sum has been read
        }
#pragma unroll
        for (u32 i = 0; i < K; ++i) {
            sum[i] += V(magnitude(double(element(own_b, i))));
        }
        return norm(sum);
    }

    // Subtracts from `row` multiples of the inner rows of the columns left of its diagonal. `each`
    // gets the multiplier and the row. ONLY_LOWER: only columns that serve further multipliers
    // matter.
    template <bool ONLY_LOWER, typename Upper, typename Each>
    __device__ __forceinline__ static void eliminate_row(u32 i, V (&row)[D], const V (&inverse)[K],
                                                         Upper upper, Each each) {
#pragma unroll
        for (u32 d = 0; d < W; ++d) {
            if (i + d < W || i + d - W >= INNER) {
                continue; // a column of the border before, or of the own one
            }
            const u32 column = i + d - W;
            const V multiplier = row[d] * inverse[column];
#pragma unroll
            for (u32 q = 1; q <= W; ++q) {
                if (!ONLY_LOWER || d + q < W) {
                    row[d + q] -= multiplier * upper(column, q);
                }
            }
            each(multiplier, column);
        }
    }

    // x = A^-1 (rhs * down) of the own rows; returns whether a pivot of this thread was bad.
    __device__ __forceinline__ bool solve(V down, V (&x)[K]) const {
        const V* const a = own_band();
        const V* const right_side = own_rhs();
        V inverse[K];
        // The upper factor but for its last diagonal, which is that of A.
        V factor[K][W > 1 ? W - 1 : 1];
        const auto upper = [&](u32 i, u32 q) { return q < W ? factor[i][q - 1] : a[i * D + 2 * W]; };
        bool bad = false;
        Border<V, W> border;
        {
            V middle[W][W];
            reduce_rows(down, inverse, factor, border, middle, bad);
            border.normalise(middle, bad);
        }
#pragma unroll 1
        for (u32 distance = 1; distance < GROUP; distance *= 2) {
            Border<V, W> before, behind;
            exchange.ask(border, distance, before, behind);
            if constexpr (CLUSTER > 1) {
                const bool has_before = local >= distance, has_behind = local + distance < GROUP;
                border.reduce(before, behind, has_before, has_behind, bad);
            } else {
                border.reduce(before, behind, true, true, bad);
            }
        }
        if constexpr (CLUSTER > 1) {
            join_blocks(border, bad);
        }
        V before[W], ignored[W];
        exchange.ask(border.known, 1u, before, ignored);
        if constexpr (CLUSTER > 1) {
#pragma unroll
            for (u32 s = 0; s < W; ++s) {
                before[s] = local == 0 ? ends->before_own[s] : before[s];
            }
        }
        V y[K];
#pragma unroll
        for (u32 i = 0; i < INNER; ++i) {
            V row[D], sum = right_side[i] * down;
#pragma unroll
            for (u32 d = 0; d < W; ++d) {
                row[d] = a[i * D + d];
                if (i + d < W) {
                    sum -= thread == 0 ? V(0) : row[d] * before[i + d];
                }
            }
            eliminate_row<true>(i, row, inverse, upper,
                                [&](V multiplier, u32 column) { sum -= multiplier * y[column]; });
            y[i] = sum;
        }
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
            x[INNER + s] = border.known[s];
        }
#pragma unroll
        for (u32 back = 0; back < INNER; ++back) {
            const u32 i = INNER - 1 - back;
            V sum = y[i];
#pragma unroll
            for (u32 q = 1; q <= W; ++q) {
                sum -= upper(i, q) * x[i + q];
            }
            x[i] = sum * inverse[i];
        }
        return bad;
    }

    // Solves for the borders of all threads, which are expressed by those of the blocks beside
    // theirs.
    __device__ __forceinline__ void join_blocks(Border<V, W>& border, bool& bad) const {
        if (local == 0 || local == GROUP - 1) {
#pragma unroll 1
            for (u32 block = 0; block < CLUSTER; ++block) {
                auto& of = in_block_of_cluster(ends, block)->of[cluster_rank()];
                (local == 0 ? of.first : of.last) = border;
            }
        }
        cluster_sync();
        if (local == 0) {
            ends->solve(cluster_rank(), bad);
        }
        __syncthreads();
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
#pragma unroll
            for (u32 t = 0; t < W; ++t) {
                border.known[s] -= border.left[s][t] * ends->before_own[t] +
                                   border.right[s][t] * ends->behind_own[t];
            }
        }
    }

    // Eliminates among the own rows. On return `border` and `middle` are the equations of the own
    // border, `inverse` and `factor` the factors of the inner rows.
    template <u32 FACTORS>
    __device__ __forceinline__ void reduce_rows(V down, V (&inverse)[K], V (&factor)[K][FACTORS],
                                                Border<V, W>& border, V (&middle)[W][W],
                                                bool& bad) const {
        const V* const a = own_band();
        const V* const right_side = own_rhs();
        V y[K], left[K][W]; // right-hand sides, and coefficients of the border before
        V last[K];          // the last diagonal of the upper factor
        const auto upper = [&](u32 i, u32 q) { return q < W ? factor[i][q - 1] : last[i]; };
        // The first rows by the rows from i to i + W - 1, which are themselves for i = 0.
        FirstRows<V, W> first;
#pragma unroll
        for (u32 f = 0; f < W; ++f) {
            first.known[f] = V(0);
#pragma unroll
            for (u32 c = 0; c < W; ++c) {
                first.before[f][c] = V(0);
                first.own[f][c] = V(f == c);
            }
        }
        V next[W][W]; // coefficients of the first rows of the thread behind
#pragma unroll
        for (u32 i = 0; i < K; ++i) {
            V row[D];
#pragma unroll
            for (u32 d = 0; d < D; ++d) {
                row[d] = a[i * D + d];
            }
            y[i] = right_side[i] * down;
#pragma unroll
            for (u32 c = 0; c < W; ++c) {
                left[i][c] = i < W && c >= i ? row[c >= i ? c - i : 0] : V(0);
            }
            eliminate_row<false>(i, row, inverse, upper, [&](V multiplier, u32 column) {
                y[i] -= multiplier * y[column];
#pragma unroll
                for (u32 c = 0; c < W; ++c) {
                    left[i][c] -= multiplier * left[column][c];
                }
            });
            if (i < INNER) {
                inverse[i] = invert_pivot(row[W], bad);
                last[i] = row[2 * W];
#pragma unroll
                for (u32 q = 1; q < W; ++q) {
                    factor[i][q - 1] = row[W + q];
                }
                step_first_rows(first, inverse[i], y[i], left[i], row);
            } else {
                const u32 s = i - INNER;
                border.known[s] = y[i];
#pragma unroll
                for (u32 t = 0; t < W; ++t) {
                    border.left[s][t] = left[i][t];
                    middle[s][t] = row[t + W - s];
                    next[s][t] = t <= s ? row[t <= s ? 2 * W + t - s : 0] : V(0);
                }
            }
        }
        FirstRows<V, W> ignored, behind;
        if constexpr (CLUSTER > 1) {
            if (local == 0 && cluster_rank() > 0) {
                in_block_of_cluster(ends, cluster_rank() - 1)->behind = first;
            }
            cluster_sync();
        }
        exchange.ask(first, 1u, ignored, behind);
        const bool is_last = thread == THREADS - 1;
        if constexpr (CLUSTER > 1) {
            behind = local == GROUP - 1 && !is_last ? ends->behind : behind;
        }
#pragma unroll
        for (u32 s = 0; s < W; ++s) {
#pragma unroll
            for (u32 c = 0; c < W; ++c) {
                border.right[s][c] = V(0);
            }
#pragma unroll
            for (u32 t = 0; t <= s; ++t) {
                const V own = is_last ? V(0) : next[s][t];
                border.known[s] -= own * behind.known[t];
#pragma unroll
                for (u32 c = 0; c < W; ++c) {
                    middle[s][c] += own * behind.before[t][c];
                    border.right[s][c] += own * behind.own[t][c];
                }
            }
        }
    }

    // Replaces an inner row in the expressions of the first rows. `row` holds it from its diagonal
    // on at [W].
    __device__ __forceinline__ static void step_first_rows(FirstRows<V, W>& first, V inverse, V known,
                                                           const V (&left)[W], const V (&row)[D]) {
#pragma unroll
        for (u32 f = 0; f < W; ++f) {
            const V share = first.own[f][0] * inverse;
            first.known[f] += share * known;
#pragma unroll
            for (u32 c = 0; c < W; ++c) {
                first.before[f][c] -= share * left[c];
                const V shifted = c + 1 < W ? first.own[f][c + 1 < W ? c + 1 : 0] : V(0);
                first.own[f][c] = shifted - share * row[W + 1 + c];
            }
        }
    }

    // Starts a system, whose b is in `rhs`: its guess, its criteria, its residual.
    __device__ __forceinline__ void enter(u64 system, bool has_guess, bool exists) {
        V r[K];
#pragma unroll
        for (u32 i = 0; i < K; ++i) {
            r[i] = own_rhs()[i];
        }
        state = exists ? RUNNING : IDLE;
        iteration = restarts = 0;
        rhs_norm = norm(r);
        threshold = limits.threshold(system, rhs_norm);
        bool moved = false;
        if (has_guess) {
            for (u32 k = thread; k < nrows; k += THREADS) {
                moved = moved || own_x[k] != V(0);
            }
            if constexpr (CLUSTER > 1) {
                cluster_sync(); // the norm has been read
            }
            moved = Threads::any_thread(moved, scratch) && rhs_norm != 0;
        }
        x_is_set = stored = moved;
        rhs_is_b = !moved;
        // From x = 0 the residual is b. A x is still computed where the system would end at once,
        // since A may hold NaN.
        const bool is_b = !moved && !(rhs_norm <= threshold) && is_finite(rhs_norm);
        residual = rhs_norm;
        if (Threads::any(exists && !is_b)) {
            V x[K];
#pragma unroll
            for (u32 i = 0; i < K; ++i) {
                x[i] = moved ? element(own_x, i) : V(0);
            }
            tell_x(x);
            V from_x[K];
#pragma unroll
            for (u32 i = 0; i < K; ++i) {
                from_x[i] = r[i];
            }
            const double found = find_residual(from_x);
            residual = is_b ? rhs_norm : found;
            Threads::sync_block();
#pragma unroll
            for (u32 i = 0; i < K; ++i) {
                own_rhs()[i] = moved ? from_x[i] : r[i];
            }
        }
    }

    // Writes x to `rhs`, for all threads of the group.
    __device__ __forceinline__ void tell_x(const V (&x)[K]) const {
        Threads::sync_block();
#pragma unroll
        for (u32 i = 0; i < K; ++i) {
            own_rhs()[i] = x[i];
        }
        Threads::sync_all();
    }

    // Ends the system if it is finished. `fresh`: no step was made yet; otherwise `stop` says how the
    // last one ended, and x is in `rhs`.
    __device__ __forceinline__ void judge(u64 system, const SystemOutcomes& outcomes, bool fresh,
                                          u32 stop) {
        bool accepted = residual <= threshold, by_floor = false;
        const bool in_doubt = state == RUNNING && !fresh && !accepted;
        if (limits.floor >= 0 && Threads::any(in_doubt)) {
            by_floor = residual <= limits.floor * Precision<V>::EPSILON * size() && in_doubt;
            accepted = accepted || by_floor;
        }
        if (state != RUNNING) {
            return;
        }
        u32 status = RUNNING;
        if (residual != residual || !is_finite(rhs_norm)) {
            status = NON_FINITE;
            residual = __longlong_as_double(0x7ff8000000000000ll);
        } else if (accepted) {
            status = CONVERGED;
        } else if (fresh) {
            status = limits.iterations(system) == 0 ? MAX_ITERATIONS : RUNNING;
        } else if (stop != PASSED) {
            status = stop;
        } else if (restarts < limits.max_restarts) {
            ++restarts;
        } else {
            status = STAGNATED;
        }
        if (status != RUNNING) {
            if (thread == 0) {
                outcomes.record(system, status, iteration, restarts, by_floor, residual, rhs_norm);
            }
            state = IDLE;
        }
    }

    // x += A^-1 r where pivots are good, r = b - A x, and the verdict.
    __device__ __forceinline__ void refine(u64 system, const SystemOutcomes& outcomes) {
        const int exponent = exponent_of(rhs_norm);
        constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
        const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
        const int scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
        const V up = V(power_of_two(scale));
        V x[K], r[K];
        const bool bad = Threads::any_thread(solve(V(power_of_two(-scale)), x), scratch);
#pragma unroll
        for (u32 i = 0; i < K; ++i) {
            x[i] = bad ? V(0) : x[i] * up;
            r[i] = rhs_is_b ? own_rhs()[i] : element(own_b, i);
        }
        if (x_is_set) {
#pragma unroll
            for (u32 i = 0; i < K; ++i) {
                x[i] += element(own_x, i);
            }
        }
        tell_x(x);
        const double found = find_residual(r);
        if (state == RUNNING) {
            iteration += bad ? 0 : 1;
            residual = found;
            for (u32 k = local; k < ROWS && first_row + k < nrows; k += GROUP) {
                own_x[number(first_row + k)] = rhs[k];
            }
            stored = x_is_set = true;
        }
        const u32 stop = bad                                      ? ZERO_PIVOT
                         : iteration >= limits.iterations(system) ? MAX_ITERATIONS
                                                                  : PASSED;
        judge(system, outcomes, false, stop);
        rhs_is_b = false;
        Threads::sync_block();
        if (Threads::any(state == RUNNING)) {
#pragma unroll
            for (u32 i = 0; i < K; ++i) {
                own_rhs()[i] = r[i];
            }
            // What was written to x is read by other threads.
            Threads::sync_block();
        }
    }

    // Writes the solution of a system that ended before any step: 0, or the guess.
    __device__ __forceinline__ void leave(bool exists) const {
        if (exists && !stored) {
            for (u32 k = thread; k < nrows; k += THREADS) {
                own_x[k] = V(0);
            }
        }
    }
};

template <typename V, u32 W, u32 K, u32 GROUP, u32 CLUSTER = 1>
__global__ void __launch_bounds__(BandedBlock<V, W, K, GROUP, CLUSTER>::THREADS,
                                  BandedBlock<V, W, K, GROUP, CLUSTER>::BLOCKS)
    banded(u32 nitems, u32 nrows, u32 nrhs, u32 nnz, const u16* __restrict__ order,
           const u16* __restrict__ places, const u32* __restrict__ entries,
           const V* __restrict__ values, u64 value_stride, const V* __restrict__ b,
           V* __restrict__ x, u32 flags, SystemLimits limits, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    using Group = BandedGroup<V, W, K, GROUP, CLUSTER>;
    using Threads = typename Group::Threads;
    constexpr u32 GROUPS = BandedBlock<V, W, K, GROUP, CLUSTER>::GROUPS;

    const u32 number = threadIdx.x / GROUP;
    const u32 teams = gridDim.x / CLUSTER;
    Group group(nrows, order, limits, dynamic_shared);
    for (u64 first = u64(blockIdx.x / CLUSTER) * GROUPS; first < nitems;
         first += u64(teams) * GROUPS) {
        // Groups without an item of their own go along with another's.
        const bool exists = first + number < nitems;
        const u64 item = exists ? first + number : first;
        // The band is set, or no thread reads the last one any more.
        Threads::sync_block();
        group.fetch_values(values + item * value_stride, places, entries, nnz);
        for (u32 rhs = 0; rhs < nrhs; ++rhs) {
            const u64 system = item * nrhs + rhs;
            group.own_b = b + system * nrows;
            group.own_x = x + system * nrows;
            // In a cluster, also: sums of the last system have been read.
            Threads::sync_all();
            group.fetch_b();
            cp_async_wait_all();
            Threads::sync_block();
            group.enter(system, (flags & BANDED_GUESS) != 0, exists);
            group.judge(system, outcomes, true, PASSED);
            while (Threads::any(group.state == RUNNING)) {
                group.refine(system, outcomes);
            }
            group.leave(exists);
        }
    }
}
