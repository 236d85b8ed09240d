// Whole solves by a sparse LU that `lu_factor` has made before, a block for COUNT systems at a time,
// all in one launch: forward and backward substitution, and refinement from the true residual, as in
// lu.cu, whose results these are bit for bit.
//
// - A lane has one system throughout. A row of a substitution, or of the residual, is a warp's; which rows
//   a warp has, and between which it waits for the others, is in its program.
// - A factor is used once, and so is an entry of A. What a warp needs comes in chunks, in the order of
//   its use, into a ring of its own in shared memory: CHUNK values of each system, and the record that
//   says what is done with them. Each takes its turn in few instructions: a warp has little else to do
//   meanwhile.
// - Traffic of a system: factors and A once for each solve with them, padded to chunks, b once and more, x
//   once (twice with a guess), 25 B of outcome.
//
// Arguments: nitems >= 1, nrhs >= 1. `kept` holds for each group of COUNT items their values side by
// side, chunk after chunk; group_stride is the values of a group, or 0 where all items have those of one.
// Warp w has of each program p, 0 for substitution and 1 for the residual, parts[2 * (p * WARPS + w)]: its
// first chunk, and the number of chunks, 1 at least. records[12 * chunk] on: for each value of a system the
// place in y of the operand; the place of the target in y, or of the residual in r; CHUNK_ bits; 0, 0. A
// place is the number of a row times (COUNT + 1); y has a 0 behind the last row. A row that divides has the
// pivot ahead of its factors, and the place of that 0 for it. perm[k] is the row that is eliminated k-th; y
// is numbered in that order. System s has `nrows` values of b and of x from s*nrows on. Blocks of GROUP
// threads; any grid. Shared memory: GROUP / 32 rings of STAGES chunks; (2 * nrows + 1) * (COUNT + 1) values;
// from the next multiple of 8 bytes on, (CHAINS + 1) * COUNT doubles.

#include "lu_system.cuh"
#include "programs.cuh"

constexpr u32 CHUNK = 8;
constexpr u32 STAGES = 8;

constexpr u32 CHUNK_STARTS = 1; // a row
constexpr u32 CHUNK_ENDS = 2;
constexpr u32 CHUNK_DIVIDES = 4;  // the row's result; its first chunk has the pivot
constexpr u32 CHUNK_BARRIERS = 8; // from this bit on: barriers of the block after it

constexpr u32 CHUNK_WORDS = 12; // of a record

template <typename V>
struct KeptTask {
    u32 nitems, nrhs;
    const V* kept;
    u64 group_stride;
    const u32* parts;
    const u32* records;
};

// A chunk in shared memory.
template <typename V, u32 COUNT>
struct KeptChunk {
    V values[CHUNK * COUNT];
    u32 operands[CHUNK];
    u32 target, control, unused[2];
};

// One thread's part in the solves of its block.
template <typename V, u32 GROUP, u32 COUNT>
struct KeptBlock : LuSystems<KeptBlock<V, GROUP, COUNT>, V, GROUP> {
    using Base = LuSystems<KeptBlock<V, GROUP, COUNT>, V, GROUP>;
    using Chunk = KeptChunk<V, COUNT>;
    using typename Base::Threads;
    using Base::WARPS;
    using Base::lane, Base::member, Base::works;
    using Base::task, Base::y, Base::r, Base::scratch;

    static_assert((STAGES & (STAGES - 1)) == 0 && sizeof(Chunk) % 16 == 0, "a ring of whole copies");
    static constexpr u32 STRIDE = COUNT + 1; // odd: rows as well as systems are in different banks

    const KeptTask<V>& kept;
    Chunk* const ring;
    u32 group, rhs;

    // Shared memory: the rings, y with its 0, r, sums.
    __device__ __forceinline__ KeptBlock(const LuTask<V>& all, const KeptTask<V>& what, u8* shared)
        : Base(all, COUNT, 1, vectors(shared), vectors(shared) + (all.nrows + 1) * STRIDE,
               reinterpret_cast<double*>(
                   shared + WARPS * STAGES * sizeof(Chunk) +
                   ((2 * all.nrows + 1) * STRIDE * sizeof(V) + 7) / 8 * 8)),
          kept(what),
          ring(reinterpret_cast<Chunk*>(shared) + threadIdx.x / WARP_THREADS * STAGES) {
        for (u32 i = threadIdx.x; i < STRIDE; i += GROUP) {
            y[all.nrows * STRIDE + i] = V(0);
        }
    }

    __device__ __forceinline__ static V* vectors(u8* shared) {
        return reinterpret_cast<V*>(shared + WARPS * STAGES * sizeof(Chunk));
    }

    __device__ __forceinline__ u32 stride() const { return STRIDE; }

    __device__ __forceinline__ u32 number(u32 i) const {
        return minimum(group * COUNT + i, kept.nitems - 1) * kept.nrhs + rhs;
    }

    __device__ __forceinline__ bool exists(u32 i) const { return group * COUNT + i < kept.nitems; }

    __device__ __forceinline__ bool take_up() {
        const u32 turn = Threads::take(true, task.queue, scratch);
        group = turn / kept.nrhs;
        rhs = turn % kept.nrhs;
        return u64(group) * COUNT < kept.nitems;
    }

    __device__ __forceinline__ void fetch_values() {}

    // Asks for b, which becomes r.
    __device__ __forceinline__ void fetch_b() {
        for (u32 i = threadIdx.x / WARP_THREADS; i < COUNT; i += WARPS) {
            const V* const from = task.b + u64(number(i)) * task.nrows;
            for (u32 row = lane; row < task.nrows; row += WARP_THREADS) {
                cp_async_value(r + row * STRIDE + i, from + row);
            }
        }
    }

    // y = the guesses, or 0. Guesses for a right-hand side of 0 are not looked at.
    __device__ __forceinline__ void fetch_x() {
        for (u32 i = threadIdx.x / WARP_THREADS; i < COUNT; i += WARPS) {
            const V* const from = task.x + u64(number(i)) * task.nrows;
            for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
                y[k * STRIDE + i] =
                    (task.flags & LU_GUESS) != 0 ? from[load(task.perm + k)] : V(0);
            }
        }
    }

    __device__ __forceinline__ void store_x() {
        for (u32 i = threadIdx.x / WARP_THREADS; i < COUNT && exists(i); i += WARPS) {
            V* const to = task.x + u64(number(i)) * task.nrows;
            for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
                to[load(task.perm + k)] = y[k * STRIDE + i];
            }
        }
    }

    // Copies of this warp's chunks into its ring: this lane's part of each.
    struct Copies {
        static constexpr u32 VALUES = CHUNK * COUNT, SIXTEEN = 16 / sizeof(V);

        u8* const to;
        const V* values;
        const u32* records;
        u32 left, stage = 0;
        const bool has_values, has_record;

        __device__ __forceinline__ Copies(const KeptBlock& block, u32 first, u32 nchunks)
            : to(reinterpret_cast<u8*>(block.ring) + block.lane * 16),
              values(block.kept.kept + block.group * block.kept.group_stride +
                     u64(first) * VALUES + block.lane * SIXTEEN),
              records(block.kept.records + u64(first) * CHUNK_WORDS + block.lane * 4),
              left(nchunks), has_values(block.lane * SIXTEEN < VALUES),
              has_record(block.lane < CHUNK_WORDS / 4) {}

        // Starts the next one, if there is one.
        __device__ __forceinline__ void ask() {
            if (left > 0) {
                u8* const chunk = to + stage * sizeof(Chunk);
                if (has_values) {
#pragma unroll
                    for (u32 i = 0; i < VALUES; i += WARP_THREADS * SIXTEEN) {
                        cp_async_16(chunk + i * sizeof(V), values + i);
                    }
                }
                if (has_record) {
                    cp_async_16(chunk + VALUES * sizeof(V), records);
                }
                values += VALUES;
                records += CHUNK_WORDS;
                stage = (stage + 1) % STAGES;
                --left;
            }
            cp_async_commit();
        }
    };

    // Works through a program of sums of products: begin(target) makes the first term, add(sum, factor,
    // operand) the sums, end(target, sum, pivot, divides) is done with them.
    template <typename Begin, typename Add, typename End>
    __device__ __forceinline__ void run_chunks(u32 program, Begin begin, Add add, End end) {
        const u32 warp = threadIdx.x / WARP_THREADS;
        const uint2 part =
            load(reinterpret_cast<const uint2*>(kept.parts) + program * WARPS + warp);
        Copies copies(*this, part.x, part.y);
        // One turn less than there are stages: the chunk of the turn before may still be read.
#pragma unroll 1
        for (u32 turn = 0; turn < STAGES - 1; ++turn) {
            copies.ask();
        }
        const SharedValues<V> own(y + member);
        V sum = 0, pivot = 1;
#pragma unroll 1
        for (u32 turn = 0; turn < part.y; ++turn) {
            cp_async_wait<int(STAGES) - 2>();
            __syncwarp(); // everyone's copies are there, and the turn before is over
            const Chunk& chunk = ring[turn % STAGES];
            const SharedValues<V> factors(const_cast<V*>(chunk.values) + member);
            const uint4 first = *reinterpret_cast<const uint4*>(chunk.operands);
            const uint4 second = *reinterpret_cast<const uint4*>(chunk.operands + 4);
            const uint2 what = *reinterpret_cast<const uint2*>(&chunk.target);
            const u32 places[CHUNK] = {first.x,  first.y,  first.z,  first.w,
                                       second.x, second.y, second.z, second.w};
            V left[CHUNK], right[CHUNK];
#pragma unroll
            for (u32 k = 0; k < CHUNK; ++k) {
                left[k] = factors.get(k * COUNT);
                right[k] = own.get(places[k]);
            }
            copies.ask();
            if ((what.y & CHUNK_STARTS) != 0) {
                sum = begin(what.x);
                if ((what.y & CHUNK_DIVIDES) != 0) {
                    pivot = left[0];
                    left[0] = V(0);
                }
            }
#pragma unroll
            for (u32 k = 0; k < CHUNK; ++k) {
                sum = add(sum, left[k], right[k]);
            }
            if ((what.y & CHUNK_ENDS) != 0) {
                __syncwarp(); // lanes without a system have read what is written
                end(what.x, sum, pivot, (what.y & CHUNK_DIVIDES) != 0);
            }
#pragma unroll 1
            for (u32 barriers = what.y >> CHUNK_BARRIERS; barriers > 0; --barriers) {
                Threads::sync();
            }
        }
        cp_async_wait_all();
    }

    // Solves with y. Whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        u32* const flags = reinterpret_cast<u32*>(scratch + CHAINS * COUNT);
        for (u32 i = threadIdx.x; i < COUNT; i += GROUP) {
            flags[i] = 0;
        }
        Threads::sync();
        bool bad = false;
        run_chunks(
            0, [&](u32 target) { return y[target + member]; },
            [](V sum, V left, V right) { return minus_product(sum, left, right); },
            [&](u32 target, V sum, V by, bool divides) {
                if (divides) {
                    if (is_moderate(by)) {
                        bool ignored;
                        sum *= reciprocal(by, ignored);
                    } else {
                        bad = bad || !(by < V(0) || V(0) < by);
                        sum /= by;
                    }
                }
                if (works) {
                    y[target + member] = sum;
                }
            });
        if (bad && works) {
            atomicOr(flags + member, 1u);
        }
        Threads::sync();
        return flags[member] != 0;
    }

    // Where r holds b: b - A x, or |b| + |A||x|, for the lanes that want it.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        // The sum of the products first: products that cancel must not absorb b.
        run_chunks(
            1, [](u32) { return V(0); },
            [](V sum, V left, V right) {
                return MAGNITUDES ? sum + V(magnitude(left)) * V(magnitude(right))
                                  : minus_product(sum, left, right);
            },
            [&](u32 target, V sum, V, bool) {
                if (works && wanted) {
                    V& result = r[target + member];
                    result = (MAGNITUDES ? V(magnitude(result)) : result) + sum;
                }
            });
        Threads::sync();
    }
};

template <typename V, u32 GROUP, u32 COUNT>
__global__ void __launch_bounds__(GROUP, 512 / GROUP)
    lu_kept(u32 nitems, u32 nrows, u32 nrhs, const V* __restrict__ kept, u64 group_stride,
            const u32* __restrict__ parts, const u32* __restrict__ records,
            const u16* __restrict__ perm, const V* __restrict__ b, V* __restrict__ x, u32 flags,
            double rel_tol, const double* __restrict__ rel_tols, double abs_tol,
            const double* __restrict__ abs_tols, u32 max_iters,
            const u32* __restrict__ max_iters_each, u32 max_restarts, double floor, u32* queue,
            u8* __restrict__ statuses, u32* __restrict__ iterations, u32* __restrict__ restarts,
            double* __restrict__ residual_norms, double* __restrict__ rhs_norms) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    const LuTask<V> task{nrows,          perm,         b,     x,     flags,    rel_tol,
                         rel_tols,       abs_tol,      abs_tols,     max_iters, max_iters_each,
                         max_restarts,   floor,        queue, statuses, iterations,
                         restarts,       residual_norms,     rhs_norms};
    const KeptTask<V> what{nitems, nrhs, kept, group_stride, parts, records};
    KeptBlock<V, GROUP, COUNT> block(task, what, dynamic_shared);
    block.run();
    block.leave(queue);
}
