// Whole solves by a sparse LU that `lu_factor` has made before, a block for `count` systems at a time,
// all in one launch: forward and backward substitution, and refinement from the true residual, as in
// lu.cu, whose results these are bit for bit.
//
// - A lane has one system throughout. A row of a substitution, or of the residual, is a warp's; which rows
//   a warp has, and between which it waits for the others, is in its program.
// - A factor is used once, and so is an entry of A. What a warp needs of the systems side by side follows
//   each other in the order of its use, and is copied ahead into a ring of its own in shared memory.
// - Traffic of a system: factors and A once for each solve with them, b once and more, x once (twice with
//   a guess), 25 B of outcome.
//
// Arguments: nitems >= 1, nrhs >= 1, `count` = 2, 4, ..., 32 items side by side, as they are kept.
// `kept` holds for each group of items `entries` * count values, k-th values of all items side by side;
// group_stride is entries * count, or 0 where all items have the values of one group. Warp w has of each
// program p, 0 for substitution and 1 for the residual, what begins at parts[4 * (p * WARPS + w)]: its first
// value in `kept`, a multiple of CHUNK, and the number of chunks, with 8 values at least behind the last that
// is used; its first row in `rows`; its first columns in `columns`. rows holds two words a row: target |
// products << 16, and ROW_ bits; columns four words for each eight columns of a row. A row that divides has
// the pivot ahead of its factors. perm[k] is the row that is eliminated k-th; columns and targets of
// substitutions are numbered in that order. System s has `nrows` values of b and of x from s*nrows on.
// Blocks of GROUP threads; any grid. Shared memory, values: GROUP / 32 * STAGES * CHUNK * count,
// 2 * nrows * (count + 1); and after them, from the next multiple of 8 bytes on, (CHAINS + 1) * count doubles.

#include "lu_system.cuh"
#include "programs.cuh"

constexpr u32 CHUNK = 8;

constexpr u32 ROW_DIVIDES = 1;
constexpr u32 ROW_IS_LAST = 2;
constexpr u32 ROW_IS_NOTHING = 4;
constexpr u32 ROW_BARRIERS = 8; // from this bit on: barriers of the block after it

template <typename V>
struct KeptTask {
    u32 nitems, nrhs;
    const V* kept;
    u64 group_stride;
    const u32* parts;
    const u32* rows;
    const u32* columns;
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
    using Base::count, Base::lane, Base::member, Base::works;
    using Base::task, Base::y, Base::r, Base::scratch;

    const KeptTask<V>& kept;
    V* const ring;
    u32 group, rhs;

    static_assert(STAGES >= 4 && (STAGES & (STAGES - 1)) == 0, "a ring");
    static constexpr u32 RING = STAGES * CHUNK;
    static constexpr u32 RINGS = WARPS * RING;

    __device__ __forceinline__ KeptBlock(const LuTask<V>& all, const KeptTask<V>& what,
                                         u32 side_by_side, V* shared)
        : Base(all, side_by_side, 1, shared + RINGS * side_by_side,
               shared + RINGS * side_by_side + all.nrows * (side_by_side + 1),
               reinterpret_cast<double*>(
                   shared + ((RINGS * side_by_side + 2 * all.nrows * (side_by_side + 1)) *
                                 sizeof(V) +
                             7) / 8 * 8 / sizeof(V))),
          kept(what), ring(shared + threadIdx.x / WARP_THREADS * RING * side_by_side) {}

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

    // Copies of this warp's values into its ring.
    struct Stream {
        V* const ring;
        const V* from;
        const u32 values; // of a chunk
        const u32 nchunks;
        u32 asked = 0, arrived = 0;

        __device__ __forceinline__ Stream(V* own, const V* first, u32 side_by_side, u32 chunks)
            : ring(own), from(first), values(CHUNK * side_by_side), nchunks(chunks) {
#pragma unroll
            for (u32 k = 0; k < STAGES - 2; ++k) {
                ask();
            }
        }

        __device__ __forceinline__ void ask() {
            constexpr u32 SIXTEEN = 16 / sizeof(V);
            if (asked < nchunks) {
                V* const to = ring + asked % STAGES * values;
                for (u32 i = threadIdx.x % WARP_THREADS * SIXTEEN; i < values;
                     i += WARP_THREADS * SIXTEEN) {
                    cp_async_16(to + i, from + i);
                }
                from += values;
            }
            cp_async_commit();
            ++asked;
        }

        // The next chunk is there; the one before the last may be overwritten from now on.
        __device__ __forceinline__ void advance() {
            cp_async_wait<int(STAGES) - 3>();
            __syncwarp();
            ++arrived;
            ask();
        }
    };

    // What this warp reads of a program, a row at a time.
    struct Reader {
        const KeptBlock& block;
        Stream stream;
        const uint2* head;
        const uint4* column;
        uint2 now, next;
        uint4 words;
        u32 at = 0;

        __device__ __forceinline__ Reader(const KeptBlock& all, const uint4& part)
            : block(all), stream(all.ring,
                                 all.kept.kept + all.group * all.kept.group_stride +
                                     u64(part.x) * all.count,
                                 all.count, part.y),
              head(reinterpret_cast<const uint2*>(all.kept.rows) + part.z),
              column(reinterpret_cast<const uint4*>(all.kept.columns) + part.w), next(load(head)),
              words(load(column)) {}

        __device__ __forceinline__ void take_up() {
            now = next;
            next = load(++head);
        }

        __device__ __forceinline__ bool is(u32 flag) const { return (now.y & flag) != 0; }
        __device__ __forceinline__ u32 target() const { return low_half(now.x); }

        __device__ __forceinline__ V value(u32 k) const {
            return block.ring[(at + k) % RING * block.count + block.member];
        }

        __device__ __forceinline__ void have(u32 more) {
            while (at + more > stream.arrived * CHUNK) {
                stream.advance();
            }
        }

        __device__ __forceinline__ V pivot() {
            have(1);
            const V found = value(0);
            ++at;
            return found;
        }

        // sum, with the products of the row added to it one after the other.
        template <typename Add>
        __device__ __forceinline__ V add_products(V sum, Add add) {
#pragma unroll 1
            for (u32 left = high_half(now.x); left > 0;) {
                const Columns columns{words};
                words = load(++column);
                have(CHUNK);
                V factors[CHUNK], operands[CHUNK];
#pragma unroll
                for (u32 k = 0; k < CHUNK; ++k) {
                    factors[k] = value(k);
                    operands[k] = block.y[columns[k] * block.stride() + block.member];
                }
                const u32 here = minimum(left, CHUNK);
#pragma unroll
                for (u32 k = 0; k < CHUNK; ++k) {
                    if (k < here) {
                        sum = add(sum, factors[k], operands[k]);
                    }
                }
                at += here;
                left -= here;
            }
            return sum;
        }
    };

    // Calls row(reader) for each row of a program, and waits for barriers.
    template <typename Row>
    __device__ __forceinline__ void run_rows(u32 program, Row row) {
        const u32 warp = threadIdx.x / WARP_THREADS;
        Reader reader(*this, load(reinterpret_cast<const uint4*>(kept.parts) + program * WARPS +
                                  warp));
#pragma unroll 1
        do {
            reader.take_up();
            if (!reader.is(ROW_IS_NOTHING)) {
                row(reader);
            }
#pragma unroll 1
            for (u32 barriers = reader.now.y >> ROW_BARRIERS; barriers > 0; --barriers) {
                Threads::sync();
            }
        } while (!reader.is(ROW_IS_LAST));
        cp_async_wait_all();
    }

    // Solves with y. Whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        u32* const flags = reinterpret_cast<u32*>(scratch + CHAINS * count);
        for (u32 i = threadIdx.x; i < count; i += GROUP) {
            flags[i] = 0;
        }
        Threads::sync();
        bool bad = false;
        run_rows(0, [&](Reader& reader) {
            V& result = y[reader.target() * stride() + member];
            const bool divides = reader.is(ROW_DIVIDES);
            V sum = result, by = V(1), inverse = V(1);
            if (divides) {
                by = reader.pivot();
                bool ignored;
                inverse = reciprocal(by, ignored);
            }
            sum = reader.add_products(
                sum, [](V all, V left, V right) { return minus_product(all, left, right); });
            if (divides) {
                if (is_moderate(by)) {
                    sum *= inverse;
                } else {
                    bad = bad || !(by < V(0) || V(0) < by);
                    sum /= by;
                }
            }
            __syncwarp(); // lanes that have no system have read what is written
            if (works) {
                result = sum;
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
        run_rows(1, [&](Reader& reader) {
            // The sum of the products first: products that cancel must not absorb b.
            const V sum = reader.add_products(V(0), [](V all, V left, V right) {
                return MAGNITUDES ? all + V(magnitude(left)) * V(magnitude(right))
                                  : minus_product(all, left, right);
            });
            if (works && wanted) {
                V& result = r[reader.target() * stride() + member];
                result = (MAGNITUDES ? V(magnitude(result)) : result) + sum;
            }
        });
        Threads::sync();
    }
};

template <typename V, u32 GROUP, u32 STAGES>
__global__ void __launch_bounds__(GROUP, 512 / GROUP)
    lu_kept(u32 nitems, u32 count, u32 nrows, u32 nrhs, const V* __restrict__ kept,
            u64 group_stride, const u32* __restrict__ parts, const u32* __restrict__ rows,
            const u32* __restrict__ columns, const u16* __restrict__ perm, const V* __restrict__ b,
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
    const KeptTask<V> what{nitems, nrhs, kept, group_stride, parts, rows, columns};
    KeptBlock<V, GROUP, STAGES> block(task, what, count, reinterpret_cast<V*>(dynamic_shared));
    block.run();
    block.leave(queue);
}
