// Whole solves by a sparse LU that `lu_factor` has made before, a block for `count` systems at a time,
// all in one launch: forward and backward substitution, and refinement from the true residual, as in
// lu.cu, whose results these are bit for bit.
//
// - A lane has one system throughout. Substitution is a warp's alone: factors of the systems side by side
//   follow each other in the order of their use, each is used once, and the whole block copies them
//   ahead into a ring in shared memory. Between two barriers CHUNK of them arrive.
// - Rows of the residual are independent: each warp has its own, and reads A straight from memory.
// - Traffic of a system: factors and A once for each solve with them, b once and more, x once (twice with
//   a guess), 25 B of outcome.
//
// Arguments: nitems >= 1, nrhs >= 1, `count` = 2, 4, ..., 32 items side by side, as they are kept.
// `kept` holds for each group of items `entries` * count values, k-th values of all items side by side:
// the factors in the order of their use, from `first_of_a` on the nnz values of A. `first_of_a` is a
// multiple of CHUNK, and at least 8 more than there are factors; group_stride is entries * count, or 0
// where all items have the values of one group. `steps` holds the substitution in fours of words: for
// each row a head (target | products << 16, 1 where the sum is divided by the value ahead of the products,
// 0, 0), and its columns, eight to four words; four more words follow. The residual of warp w is the
// rows[w] rows from products[4 * starts[w]] on: (row | products << 16, the first entry, 0, 0) and columns
// likewise. perm[k] is the row that is eliminated k-th; columns and targets are numbered in that order.
// System s has `nrows` values of b and of x from s*nrows on. Blocks of GROUP threads; any grid. Shared
// memory, values: STAGES * CHUNK * count, 2 * nrows * (count + 1); and after them, from the next multiple
// of 8 bytes on, (CHAINS + 1) * count doubles.

#include "lu_system.cuh"
#include "programs.cuh"

constexpr u32 CHUNK = 16;

template <typename V>
struct KeptTask {
    u32 nitems, nrhs;
    const V* kept;
    u64 group_stride;
    u32 first_of_a;
    const u32* steps;
    u32 nsteps;
    const u32* products;
    const u32* starts;
    const u32* rows;
};

// The columns of eight products.
struct Columns {
    uint4 words;

    __device__ __forceinline__ u32 operator[](u32 k) const {
        const u32 word = k / 2 == 0   ? words.x
                         : k / 2 == 1 ? words.y
                         : k / 2 == 2 ? words.z
                                      : words.w;
        return k % 2 == 0 ? low_half(word) : high_half(word);
    }
};

// One thread's part in the solves of its block.
template <typename V, u32 GROUP, u32 STAGES>
struct KeptBlock : LuSystems<KeptBlock<V, GROUP, STAGES>, V, GROUP> {
    using Base = LuSystems<KeptBlock<V, GROUP, STAGES>, V, GROUP>;
    using typename Base::Threads;
    using Base::WARPS;
    using Base::count, Base::lane, Base::member, Base::works, Base::worker;
    using Base::task, Base::y, Base::r, Base::scratch;

    static_assert(GROUP > WARP_THREADS && STAGES >= 4 && (STAGES & (STAGES - 1)) == 0, "a ring");
    static constexpr u32 RING = STAGES * CHUNK;

    const KeptTask<V>& kept;
    V* const ring;
    u32 group, rhs;

    __device__ __forceinline__ KeptBlock(const LuTask<V>& all, const KeptTask<V>& what,
                                         u32 side_by_side, V* shared)
        : Base(all, side_by_side, 1, shared + RING * side_by_side,
               shared + RING * side_by_side + all.nrows * (side_by_side + 1),
               reinterpret_cast<double*>(
                   shared + ((RING * side_by_side + 2 * all.nrows * (side_by_side + 1)) * sizeof(V) +
                             7) / 8 * 8 / sizeof(V))),
          kept(what), ring(shared) {}

    // Odd, so that rows as well as systems side by side are in different banks.
    __device__ __forceinline__ u32 stride() const { return count + 1; }

    __device__ __forceinline__ u32 number(u32 i) const {
        return minimum(group * count + i, kept.nitems - 1) * kept.nrhs + rhs;
    }

    __device__ __forceinline__ bool exists(u32 i) const { return group * count + i < kept.nitems; }

    __device__ __forceinline__ bool take_up() {
        const u32 turn = Threads::take(true, task.queue, scratch);
        group = turn / kept.nrhs;
        rhs = turn % kept.nrhs;
        return u64(group) * count < kept.nitems;
    }

    __device__ __forceinline__ const V* values() const {
        return kept.kept + group * kept.group_stride;
    }

    __device__ __forceinline__ void fetch_values() {}

    // Asks for b, which becomes r.
    __device__ __forceinline__ void fetch_b() {
        for (u32 i = threadIdx.x / WARP_THREADS; i < count; i += WARPS) {
            const V* const from = task.b + u64(number(i)) * task.nrows;
            for (u32 row = lane; row < task.nrows; row += WARP_THREADS) {
                cp_async_value(r + row * stride() + i, from + row);
            }
        }
    }

    // y = the guesses, or 0. Guesses for a right-hand side of 0 are not looked at.
    __device__ __forceinline__ void fetch_x() {
        for (u32 i = threadIdx.x / WARP_THREADS; i < count; i += WARPS) {
            const V* const from = task.x + u64(number(i)) * task.nrows;
            for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
                y[k * stride() + i] =
                    (task.flags & LU_GUESS) != 0 ? from[load(task.perm + k)] : V(0);
            }
        }
    }

    __device__ __forceinline__ void store_x() {
        for (u32 i = threadIdx.x / WARP_THREADS; i < count && exists(i); i += WARPS) {
            V* const to = task.x + u64(number(i)) * task.nrows;
            for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
                to[load(task.perm + k)] = y[k * stride() + i];
            }
        }
    }

    // Copies of factors into the ring, a chunk a barrier.
    struct Stream {
        KeptBlock& block;
        const V* const from;
        const u32 nchunks;
        u32 asked = 0, arrived = 0;

        __device__ __forceinline__ explicit Stream(KeptBlock& all)
            : block(all), from(all.values()), nchunks(all.kept.first_of_a / CHUNK) {
#pragma unroll 1
            while (asked < STAGES - 2) {
                ask();
            }
        }

        __device__ __forceinline__ void ask() {
            constexpr u32 SIXTEEN = 16 / sizeof(V);
            if (asked < nchunks) {
                const u32 values = CHUNK * block.count;
                const V* const chunk = from + u64(asked) * values;
                V* const to = block.ring + asked % STAGES * values;
                for (u32 i = threadIdx.x * SIXTEEN; i < values; i += GROUP * SIXTEEN) {
                    cp_async_16(to + i, chunk + i);
                }
            }
            cp_async_commit();
            ++asked;
        }

        // The next chunk is there; the one before the last may be overwritten from now on.
        __device__ __forceinline__ void advance() {
            cp_async_wait<int(STAGES) - 3>();
            Threads::sync();
            ++arrived;
            ask();
        }
    };

    // Solves with y. Whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        u32* const flags = reinterpret_cast<u32*>(scratch + CHAINS * count);
        Threads::sync();
        Stream stream(*this);
        if (threadIdx.x < WARP_THREADS) {
            const bool bad = substitute(stream);
            if (works) {
                flags[member] = bad;
            }
        }
#pragma unroll 1
        while (stream.arrived < stream.nchunks) {
            stream.advance();
        }
        cp_async_wait_all();
        Threads::sync();
        return flags[member] != 0;
    }

    __device__ __forceinline__ bool substitute(Stream& stream) {
        const uint4* step = reinterpret_cast<const uint4*>(kept.steps);
        uint4 next = load(step);
        u32 at = 0;
        bool bad = false;
        const auto factor = [&](u32 k) { return ring[(at + k) % RING * count + member]; };
        const auto have = [&](u32 more) {
            while (at + more > stream.arrived * CHUNK) {
                stream.advance();
            }
        };
#pragma unroll 1
        for (u32 row = 0; row < kept.nsteps; ++row) {
            const uint4 head = next;
            next = load(++step);
            V& target = y[low_half(head.x) * stride() + member];
            const bool divides = head.y != 0;
            V sum = target, by = V(1), inverse = V(1);
            if (divides) {
                have(1);
                by = factor(0);
                ++at;
                bool ignored;
                inverse = reciprocal(by, ignored);
            }
#pragma unroll 1
            for (u32 left = high_half(head.x); left > 0;) {
                const Columns columns{next};
                next = load(++step);
                have(8);
                V factors[8], operands[8];
#pragma unroll
                for (u32 k = 0; k < 8; ++k) {
                    factors[k] = factor(k);
                    operands[k] = y[columns[k] * stride() + member];
                }
                const u32 here = minimum(left, 8u);
#pragma unroll
                for (u32 k = 0; k < 8; ++k) {
                    if (k < here) {
                        sum = minus_product(sum, factors[k], operands[k]);
                    }
                }
                at += here;
                left -= here;
            }
            if (divides) {
                if (is_moderate(by)) {
                    sum *= inverse;
                } else {
                    bad = bad || !(by < V(0) || V(0) < by);
                    sum /= by;
                }
            }
            if (works) {
                target = sum;
            }
        }
        return bad;
    }

    // Where r holds b: b - A x, or |b| + |A||x|, for the lanes that want it.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        constexpr u32 AT_ONCE = 16;
        const u32 warp = threadIdx.x / WARP_THREADS;
        const uint4* word = reinterpret_cast<const uint4*>(kept.products) + load(kept.starts + warp);
        const V* const a = values() + u64(kept.first_of_a) * count + member;
        const u32 nrows = load(kept.rows + warp);
#pragma unroll 1
        for (u32 row = 0; row < nrows; ++row) {
            const uint4 head = load(word++);
            const V* entry = a + u64(head.y) * count;
            // The sum of the products first: products that cancel must not absorb b.
            V sum = 0;
#pragma unroll 1
            for (u32 left = high_half(head.x); left > 0;) {
                const u32 here = minimum(left, AT_ONCE);
                const Columns columns[2] = {{load(word)}, {load(word + (here > 8 ? 1 : 0))}};
                word += here > 8 ? 2 : 1;
                V factors[AT_ONCE], operands[AT_ONCE];
#pragma unroll
                for (u32 k = 0; k < AT_ONCE; ++k) {
                    factors[k] = k < here ? load(entry + k * count) : V(0);
                    operands[k] = y[columns[k / 8][k % 8] * stride() + member];
                }
#pragma unroll
                for (u32 k = 0; k < AT_ONCE; ++k) {
                    if (k < here) {
                        sum = MAGNITUDES ? sum + V(magnitude(factors[k])) * V(magnitude(operands[k]))
                                         : minus_product(sum, factors[k], operands[k]);
                    }
                }
                entry += here * count;
                left -= here;
            }
            if (works && wanted) {
                V& target = r[low_half(head.x) * stride() + member];
                target = (MAGNITUDES ? V(magnitude(target)) : target) + sum;
            }
        }
        Threads::sync();
    }
};

template <typename V, u32 GROUP, u32 STAGES>
__global__ void __launch_bounds__(GROUP, 512 / GROUP)
    lu_kept(u32 nitems, u32 count, u32 nrows, u32 nrhs, const V* __restrict__ kept,
            u64 group_stride, u32 first_of_a, const u32* __restrict__ steps, u32 nsteps,
            const u32* __restrict__ products, const u32* __restrict__ starts,
            const u32* __restrict__ rows, const u16* __restrict__ perm, const V* __restrict__ b,
            V* __restrict__ x, u32 flags, double rel_tol, const double* __restrict__ rel_tols,
            double abs_tol, const double* __restrict__ abs_tols, u32 max_iters,
            const u32* __restrict__ max_iters_each, u32 max_restarts, double floor, u32* queue,
            u8* __restrict__ statuses, u32* __restrict__ iterations, u32* __restrict__ restarts,
            double* __restrict__ residual_norms, double* __restrict__ rhs_norms) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    const LuTask<V> task{nrows,          perm,         b,     x,     flags,    rel_tol,
                         rel_tols,       abs_tol,      abs_tols,     max_iters, max_iters_each,
                         max_restarts,   floor,        queue, statuses, iterations,
                         restarts,       residual_norms,     rhs_norms};
    const KeptTask<V> what{nitems, nrhs,   kept,     group_stride, first_of_a,
                           steps,  nsteps, products, starts,       rows};
    KeptBlock<V, GROUP, STAGES> block(task, what, count, reinterpret_cast<V*>(dynamic_shared));
    block.run();
    block.leave(queue);
}
