// Whole solves by sparse LU without pivoting, a warp for a system at a time, all in one launch: as in
// lu.cu, with another division of the work. Rows and columns that are eliminated together make a front
// (Duff and Reid 1983, doi 10.1145/356044.356047): up to four pivots, the columns of U beside them and the
// rows of L below.
//
// - A lane has a column of the front, a pivot's or another, and one has the right-hand side. First the rows of
//   the pivots are eliminated among themselves. Then each lane finds the factors of one of the rows below,
//   l = a u^-1, and leaves them where all lanes read them. Then each lane goes down its column and subtracts four
//   products from each entry, which is read and written once for them. No barriers but those of the warp.
// - Forward substitution goes along with the factorisation. Backward substitution goes column by column:
//   x_k is known, and its products are subtracted from the rows above, a lane a row.
// - The products of an entry are subtracted in the order of elimination: a function of the pattern alone.
//   Places that the filled pattern does not have are 0 and stay so.
// - The residual: entries in the order of CSR, a lane an entry; products take the place of the factors,
//   PIECE of them are added by a lane, and pieces to rows.
// - Traffic of a system: its values twice and more, the second time mostly from L2, b once and more, x once
//   (twice with a guess), 25 B of outcome. The tables are read through the caches.
//
// Arguments as for lu.cu, with count = 1. words[starts[s]] on are, of section s: 0 places in 16 bits, eight for each
// lane at a time: when a front begins those of its pivots' rows in the lane's column, and of the lane's row in the
// columns of the pivots; then those in the lane's column, eight rows after eight; 1 for each eight, whether a front
// begins; 2 for each step of the backward substitution and each lane the place of an entry and, << 16, that of its
// row in y; 3 for each step the place in y of its column and, << 16, that of its pivot; 4 the place of each pivot, 5
// the place in y of each entry's column, 6 the begin of each row of A, all in 16 bits; 7 the begin of each piece
// and, << 16, its length. starts[8..11] are the numbers of eights, of steps, a multiple of STEPS, and of pieces.
// Sections 0 to 2 begin at a multiple of 4 words. Two eights and STEPS steps follow the last ones. What is not there
// is the place of the 0, where nothing is written; behind the first four rows, and in y, the lane's `sink`, which
// anything is written to; for a pivot that of a 1. These places are numbered from that of the first value on, as
// those of `Workspace`.
//
// Shared memory: nplaces values, and from the next multiple of 8 bytes on what lu.cu has there; from the next multiple
// of 16 bytes on a Workspace.

#include "lu_block.cuh"
#include "programs.cuh"

constexpr u32 PIVOTS = 4;
constexpr u32 PIECE = 17; // odd: pieces begin in different banks

// One thread's part in the solves of its warp.
template <typename V>
struct LuFronts : LuInShared<LuFronts<V>, V, WARP_THREADS> {
    using Base = LuInShared<LuFronts<V>, V, WARP_THREADS>;
    using Base::lane, Base::task, Base::y, Base::r, Base::scratch;
    using Base::programs, Base::places, Base::number;

    // What the lanes of a front leave for each other.
    struct Workspace {
        V factors[WARP_THREADS][PIVOTS]; // of a row below
        V sink[WARP_THREADS], one;
    };

    Workspace& workspace;
    bool has_values = false; // of A, in their places

    __device__ __forceinline__ LuFronts(const LuTask<V>& all, const LuPrograms<V>& what, V* shared)
        : Base(all, what, 1, shared),
          workspace(*reinterpret_cast<Workspace*>(
              reinterpret_cast<u8*>(shared) +
              ((what.nplaces * sizeof(V) + 7) / 8 * 8 + (CHAINS + 1) * 8 + 15) / 16 * 16)) {
        if (lane == 0) {
            workspace.one = V(1);
        }
    }

    __device__ __forceinline__ u32 zero() const { return programs.nplaces - 1; }

    template <typename T>
    __device__ __forceinline__ const T* section(u32 s) const {
        return reinterpret_cast<const T*>(programs.words + load(programs.starts + s));
    }

    __device__ __forceinline__ u32 count_of(u32 s) const { return load(programs.starts + s); }

    __device__ __forceinline__ const V* values() const {
        return programs.values + number(0) / programs.nrhs * programs.value_stride;
    }

    // Asks for the values, and clears the places of fill.
    __device__ __forceinline__ void fetch_values() {
        constexpr u32 AT_ONCE = 8;
        const V* const from = values();
        for (u32 k = lane; k < programs.nnz; k += AT_ONCE * WARP_THREADS) {
            u32 place[AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                const u32 own = k + i * WARP_THREADS;
                place[i] = own < programs.nnz ? load(programs.targets + own) : zero();
            }
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                if (place[i] != zero()) {
                    cp_async_value(places + place[i], from + k + i * WARP_THREADS);
                }
            }
        }
#pragma unroll 8
        for (u32 k = programs.nnz + lane; k < programs.ntargets; k += WARP_THREADS) {
            places[load(programs.targets + k)] = V(0);
        }
        has_values = true;
    }

    // Products are made of the values where they come from.
    __device__ __forceinline__ void fetch_for_product() {}

    // The pivots of a front.
    struct Pivots {
        V u[PIVOTS];          // this lane's entries of the rows; 0 up to the pivot
        V of[PIVOTS][PIVOTS]; // of[c][d] the entry of row c in the column of pivot d > c
        V inverse[PIVOTS];
        V by[PIVOTS];
        bool is_plain; // the inverses are all there is to divide by

        __device__ __forceinline__ V divided(V value, u32 c) const {
            return is_plain ? value * inverse[c] : Divisor<V>(by[c]).of(value);
        }
    };

    // Eliminates the rows of pivots among themselves; whether one is zero or NaN.
    __device__ __forceinline__ bool begin(Pivots& pivots, V (&a)[PIVOTS]) {
        bool bad = false;
        pivots.is_plain = true;
#pragma unroll
        for (u32 c = 0; c < PIVOTS; ++c) {
            const V by = __shfl_sync(ALL_LANES, a[c], c);
            pivots.by[c] = by;
            bool ignored;
            pivots.inverse[c] = reciprocal(by, ignored);
            pivots.is_plain = pivots.is_plain && has_plain_reciprocal(by);
            pivots.u[c] = lane > c ? a[c] : V(0);
#pragma unroll
            for (u32 d = c + 1; d < PIVOTS; ++d) {
                pivots.of[c][d] = __shfl_sync(ALL_LANES, a[c], d);
            }
#pragma unroll
            for (u32 row = c + 1; row < PIVOTS; ++row) {
                const V top = __shfl_sync(ALL_LANES, a[row], c);
                const V l = has_plain_reciprocal(by) ? top * pivots.inverse[c] : Divisor<V>(by).of(top);
                const V less = minus_product(a[row], l, pivots.u[c]);
                a[row] = lane == c ? l : less;
            }
        }
        if (!pivots.is_plain) {
#pragma unroll
            for (u32 c = 0; c < PIVOTS; ++c) {
                bad = bad || !(pivots.by[c] < V(0) || V(0) < pivots.by[c]);
            }
        }
        return bad;
    }

    // Factors, with y as one more column. Whether a pivot is zero or NaN.
    __device__ __forceinline__ bool factor() {
        constexpr u32 ROWS = 8;
        if (!has_values) {
            fetch_values();
            cp_async_wait_all();
        }
        has_values = false;
        const SharedValues<V> own(places);
        const uint4* rows = section<uint4>(0) + lane;
        const u32* controls = section<u32>(1);
        const u32 neights = count_of(8);
        bool bad = false;
        Pivots pivots{};
        const V* factors = workspace.factors[0];
        // Tables are asked for two turns ahead.
        uint4 next = load(rows), second = load(rows + WARP_THREADS);
        u32 next_begins = load(controls), second_begins = load(controls + 1);
#pragma unroll 1
        for (u32 eight = 0; eight < neights; ++eight) {
            const uint4 now = next;
            const bool begins = next_begins != 0;
            next = second;
            next_begins = second_begins;
            rows += WARP_THREADS;
            ++controls;
            second = load(rows + WARP_THREADS);
            second_begins = load(controls + 1);
            const u32 place[ROWS] = {low_half(now.x), high_half(now.x), low_half(now.y),
                                     high_half(now.y), low_half(now.z), high_half(now.z),
                                     low_half(now.w), high_half(now.w)};
            if (begins) {
                __syncwarp(); // the front before is done
            }
            V a[ROWS];
#pragma unroll
            for (u32 row = 0; row < ROWS; ++row) {
                a[row] = own.get(place[row]);
            }
            if (begins) {
                V top[PIVOTS] = {a[0], a[1], a[2], a[3]};
                bad = begin(pivots, top) || bad;
                V l[PIVOTS] = {a[4], a[5], a[6], a[7]};
#pragma unroll
                for (u32 c = 0; c < PIVOTS; ++c) {
#pragma unroll
                    for (u32 d = 0; d < c; ++d) {
                        l[c] = minus_product(l[c], l[d], pivots.of[d][c]);
                    }
                    l[c] = pivots.divided(l[c], c);
                }
#pragma unroll
                for (u32 k = 0; k < PIVOTS; ++k) {
                    if (place[k] < zero()) {
                        own.set(place[k], top[k]);
                    }
                    if (place[PIVOTS + k] < zero()) {
                        own.set(place[PIVOTS + k], l[k]);
                    }
                    workspace.factors[lane][k] = l[k];
                }
                factors = workspace.factors[0];
                __syncwarp();
            } else {
#pragma unroll
                for (u32 row = 0; row < ROWS; ++row) {
#pragma unroll
                    for (u32 c = 0; c < PIVOTS; ++c) {
                        a[row] = minus_product(a[row], factors[row * PIVOTS + c], pivots.u[c]);
                    }
                }
#pragma unroll
                for (u32 row = 0; row < ROWS; ++row) {
                    own.set(place[row], a[row]);
                }
                factors += ROWS * PIVOTS;
            }
        }
        __syncwarp();
        return bad;
    }

    // y = U^-1 y. The reciprocals of the pivots take their place.
    __device__ __forceinline__ void substitute() {
        constexpr u32 STEPS = 4;
        const SharedValues<V> own(places);
        const u16* const pivots = section<u16>(4);
        bool is_plain = true;
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            is_plain = is_plain && has_plain_reciprocal(own.get(load(pivots + k)));
        }
        is_plain = __all_sync(ALL_LANES, is_plain) != 0;
        for (u32 k = lane; k < task.nrows && is_plain; k += WARP_THREADS) {
            const u32 place = load(pivots + k);
            own.set(place, Divisor<V>(own.get(place)).inverse);
        }
        __syncwarp();
        const u32* entries = section<u32>(2) + lane;
        const u32* controls = section<u32>(3);
        const u32 nsteps = count_of(9);
        u32 entry[STEPS], control[STEPS];
#pragma unroll
        for (u32 i = 0; i < STEPS; ++i) {
            entry[i] = load(entries + i * WARP_THREADS);
            control[i] = load(controls + i);
        }
#pragma unroll 1
        for (u32 step = 0; step < nsteps; step += STEPS) {
            entries += STEPS * WARP_THREADS;
            controls += STEPS;
#pragma unroll
            for (u32 i = 0; i < STEPS; ++i) {
                const u32 target = high_half(entry[i]);
                const V factor = own.get(low_half(entry[i]));
                const V pivot = own.get(high_half(control[i]));
                const V before = own.get(target);
                V x = own.get(low_half(control[i]));
                entry[i] = load(entries + i * WARP_THREADS);
                control[i] = load(controls + i);
                x = is_plain ? x * pivot : Divisor<V>(pivot).of(x);
                own.set(target, minus_product(before, factor, x));
                __syncwarp();
            }
        }
        for (u32 k = lane; k < task.nrows; k += WARP_THREADS) {
            const V pivot = own.get(load(pivots + k));
            y[k] = is_plain ? y[k] * pivot : Divisor<V>(pivot).of(y[k]);
        }
        __syncwarp();
    }

    // Solves with y. Whether a pivot is zero or NaN.
    __device__ __forceinline__ bool eliminate() {
        const bool bad = factor();
        substitute();
        return bad;
    }

    // Where r holds b: b - A x, or |b| + |A||x|, for the lanes that want it, which are all or none.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(bool wanted) {
        constexpr u32 AT_ONCE = 8;
        const u16* const columns = section<u16>(5);
        const V* const from = values();
        for (u32 k = lane; k < programs.nnz; k += AT_ONCE * WARP_THREADS) {
            V value[AT_ONCE];
            u32 column[AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                const u32 own = minimum(k + i * WARP_THREADS, programs.nnz - 1);
                value[i] = load(from + own);
                column[i] = load(columns + own);
            }
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                const V product = value[i] * places[column[i]];
                if (k + i * WARP_THREADS < programs.nnz) {
                    places[k + i * WARP_THREADS] = MAGNITUDES ? V(magnitude(product)) : product;
                }
            }
        }
        has_values = false;
        __syncwarp();
        const u32* const pieces = section<u32>(7);
        const u32 npieces = count_of(10);
        for (u32 number = lane; number < npieces; number += WARP_THREADS) {
            const u32 piece = load(pieces + number);
            const u32 length = high_half(piece);
            V* const first = places + low_half(piece);
            V sum = 0;
#pragma unroll
            for (u32 i = 0; i < PIECE; ++i) {
                sum += i < length ? first[i] : V(0);
            }
            if (length > 0) {
                *first = sum;
            }
        }
        __syncwarp();
        const u16* const begins = section<u16>(6);
        for (u32 row = lane; row < task.nrows; row += WARP_THREADS) {
            const u32 end = load(begins + row + 1);
            V sum = 0;
            for (u32 first = load(begins + row); first < end; first += PIECE) {
                sum += places[first];
            }
            if (wanted) {
                r[row] = MAGNITUDES ? V(magnitude(r[row])) + sum : r[row] - sum;
            }
        }
        __syncwarp();
    }
};

// Blocks of a multiprocessor, by its registers.
constexpr u32 LU_WARPS = 16;

template <typename V>
__global__ void __launch_bounds__(WARP_THREADS, LU_WARPS)
    lu_fronts(u32 nsystems, u32, u32 nrows, u32 nrhs, u32 nnz, const u32* __restrict__ words,
              const u32* __restrict__ starts, const u16* __restrict__ targets, u32 ntargets,
              const u16* __restrict__ perm, u32 nplaces, u32 y, const V* __restrict__ values,
              u64 value_stride, const V* __restrict__ b, V* __restrict__ x, u32 flags,
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
    const LuPrograms<V> programs{nsystems, nrhs,    nnz, words,  starts,      targets,
                                 ntargets, nplaces, y,   values, value_stride};
    LuFronts<V> block(task, programs, reinterpret_cast<V*>(dynamic_shared));
    block.run();
    block.leave(queue);
}

// Factors alone: as lu_factor, see lu.cu.
template <typename V>
__global__ void __launch_bounds__(WARP_THREADS, LU_WARPS)
    lu_fronts_factor(u32 nsystems, u32, u32 nrows, u32 nnz, const u16* __restrict__ targets,
                     u32 ntargets, u32 nplaces, u32 y, const V* __restrict__ values,
                     u64 value_stride, u32* queue, const u32* __restrict__ words,
                     const u32* __restrict__ starts, V* __restrict__ kept, u64 stride,
                     u32 first_of_a, const u16* __restrict__ order, u32 nordered) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    LuTask<V> task{};
    task.nrows = nrows;
    task.queue = queue;
    const LuPrograms<V> programs{nsystems, 1,       nnz, words,  starts,      targets,
                                 ntargets, nplaces, y,   values, value_stride};
    LuFronts<V> block(task, programs, reinterpret_cast<V*>(dynamic_shared));
    for (u32 row = threadIdx.x; row < nrows; row += WARP_THREADS) {
        block.y[row] = V(0);
    }
    block.keep(LuKept<V>{kept, stride, first_of_a, order, nordered});
    block.leave(queue);
}
