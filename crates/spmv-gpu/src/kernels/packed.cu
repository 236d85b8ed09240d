// The product of a ragged batch whose systems are packed: rows cut into segments, segments of
// falling length in slices of 32, one thread a segment.

// What the kernel knows of a system; 64 bytes, as `System` in packed/work.rs writes it.
struct PackedSystem {
    u64 values;   // first value
    u64 columns;  // first column
    u64 x;        // first element of the operand of right-hand side 0
    u64 y;        // first element of the result of right-hand side 0
    u64 index;    // first entry in `index`: [place of each segment's sum][first sum of each row, one more]
    u64 slices;   // first entry in `slices`: where each slice starts, counted from `values`, one more
    u32 nrows;
    u32 ncols;
    u32 nslots;
    u16 nsegments;
    u16 flags;    // 1: sums have places of their own; 2: rows have any number of segments
};

constexpr u32 SUMS_ARE_PLACED = 1;
constexpr u32 ROWS_ARE_CUT = 2;

// How many of the first n entries of an ascending array are below a bound. Called by whole warps.
__device__ __forceinline__ u32 count_below(const u32* __restrict__ ascending, u32 n, u32 bound,
                                           u32 lane) {
    u32 count = 0;
    for (u32 at = 0; at < n; at += WARP_THREADS) {
        const bool below = at + lane < n && __ldg(ascending + at + lane) < bound;
        count += __popc(__ballot_sync(ALL_LANES, below));
    }
    return count;
}

// The first slice of part `part` of `parts` of a system: the first that starts at or after its share
// of the slots. Called by whole warps.
__device__ __forceinline__ u32 slice_of_part(const u32* __restrict__ slices, u32 nslices,
                                             u32 nslots, u32 part, u32 parts, u32 lane) {
    if (part == 0) {
        return 0;
    }
    return part == parts ? nslices
                         : count_below(slices, nslices, u32(u64(nslots) * part / parts), lane);
}

// The slot at which a slice starts, or all end; the first and the last are known without a load.
__device__ __forceinline__ u32 slice_start(const u32* __restrict__ slices, u32 nslices, u32 nslots,
                                           u32 slice) {
    return slice == 0 ? 0 : slice == nslices ? nslots : __ldg(slices + slice);
}

// Waits for the threads that share a system: the block, or, where warps work alone, the warp.
__device__ __forceinline__ void wait_for_group(u32 count) {
    if (count == 0) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

constexpr u32 NOWHERE = 0xffffffffu;

// Where the sum of a segment goes.
__device__ __forceinline__ u32 place_of(const u16* __restrict__ index, u32 flags, u32 segment,
                                        u32 nsegments) {
    if (segment >= nsegments) {
        return NOWHERE;
    }
    return (flags & SUMS_ARE_PLACED) ? __ldg(index + segment) : segment;
}

// The slice that a warp is in: where it ends, and where this lane's sum goes. What the next one
// needs is loaded ahead.
struct SliceCursor {
    u32 end;
    u32 place;
    u32 slice, base;  // ends are those of 32 slices from base on, one per lane
    u32 ends;
    u32 next_place;

    __device__ __forceinline__ SliceCursor(const u32* __restrict__ slices, u32 nslices,
                                           const u16* __restrict__ index, u32 flags, u32 nsegments,
                                           u32 first, u32 lane)
        : slice(first), base(first) {
        ends = __ldg(slices + minimum(base + lane + 1, nslices));
        place = place_of(index, flags, first * WARP_THREADS + lane, nsegments);
        next_place = place_of(index, flags, (first + 1) * WARP_THREADS + lane, nsegments);
        end = __shfl_sync(ALL_LANES, ends, 0);
    }

    __device__ __forceinline__ void advance(const u32* __restrict__ slices, u32 nslices,
                                            const u16* __restrict__ index, u32 flags,
                                            u32 nsegments, u32 lane) {
        ++slice;
        place = next_place;
        next_place = place_of(index, flags, (slice + 1) * WARP_THREADS + lane, nsegments);
        if (slice - base == WARP_THREADS) {
            base = slice;
            ends = __ldg(slices + minimum(base + lane + 1, nslices));
        }
        end = __shfl_sync(ALL_LANES, ends, slice - base);
    }
};

// beta * y of all rows of a system, for the sums to be added to; 0, y unread, when beta is 0. Not
// where rows are cut: sums then take the place.
template <typename V>
__device__ __forceinline__ void start_rows(V* rows, u32 nrows, u32 member, u32 threads, V beta,
                                           const V* y) {
    if (beta != V(0)) {
#pragma unroll 4
        for (u32 row = member; row < nrows; row += threads) {
            rows[row] = beta * y[row];
        }
    } else {
        for (u32 row = member; row < nrows; row += threads) {
            rows[row] = V(0);
        }
    }
}

// x of a system with the zero that padding multiplies, and what the sums start from.
template <typename V>
__device__ __forceinline__ void start_system(V* shared_x, const V* __restrict__ x, u32 ncols,
                                             V* sums, u32 nrows, u32 flags, u32 member, u32 threads,
                                             V beta, const V* y) {
#pragma unroll 4
    for (u32 c = member; c < ncols; c += threads) {
        shared_x[c] = __ldg(x + c);
    }
    if (member == 0) {
        shared_x[ncols] = V(0);
    }
    if (!(flags & ROWS_ARE_CUT)) {
        start_rows(sums, nrows, member, threads, beta, y);
    }
}

// The sum of a segment: the row's, or, where rows are cut, one of several.
template <typename V>
__device__ __forceinline__ void finish_segment(V* sums, u32 flags, u32 place, V alpha, V sum) {
    if (place == NOWHERE) {
        return;
    }
    if (flags & ROWS_ARE_CUT) {
        sums[place] = sum;
    } else {
        sums[place] += alpha * sum;
    }
}

// Writes y, after adding the sums of its segments to each row where rows are cut.
template <typename V>
__device__ __forceinline__ void finish_rows(const V* sums, const u16* __restrict__ index,
                                            u32 nsegments, u32 flags, u32 nrows, u32 member,
                                            u32 threads, V alpha, V beta, V* y) {
    if (!(flags & ROWS_ARE_CUT)) {
        for (u32 row = member; row < nrows; row += threads) {
            y[row] = sums[row];
        }
        return;
    }
    const u16* row_starts = index + ((flags & SUMS_ARE_PLACED) ? nsegments : 0);
#pragma unroll 2
    for (u32 row = member; row < nrows; row += threads) {
        const u32 start = __ldg(row_starts + row), stop = __ldg(row_starts + row + 1);
        V result = beta != V(0) ? beta * y[row] : V(0);
        V sum = V(0);
        for (u32 s = start; s < stop; ++s) {
            sum += sums[s];
        }
        y[row] = result + alpha * sum;
    }
}

// packed_spmv: y = alpha*A*x + beta*y for every system and right-hand side. A block takes work[2b]
// and work[2b + 1]: with a count of 0 its warps share the system work[2b], else each of its first
// `count` warps takes a system, from work[2b] on.
//
// A warp walks consecutive slices, about the same number of slots as every other warp of the
// system; DEPTH loads of values and columns are under way at any time, across the ends of slices.
//
// Traffic per system and right-hand side: 8 + 2 bytes per slot (f64), 2 per segment or row where
// flags ask for them, x and y once; x is read into shared memory first. beta == 0 does not read y.
// No atomics, sums in a fixed order: bitwise repeatable, whatever the neighbours.
//
// RESIDENT_THREADS is for how many threads a multiprocessor shall have registers.
//
// Needs: blocks of 32*k threads, at most MAX_THREADS; dynamic shared memory of ncols + 1 +
// nsegments values for the system of a shared block, of blockDim.x/32 times warp_share values for
// one whose warps work alone, each system within warp_share. Columns of padding are ncols (a zero
// lies there); every slice has slots.
template <typename V, u32 DEPTH, u32 MAX_THREADS, u32 RESIDENT_THREADS>
__global__ void __launch_bounds__(MAX_THREADS, RESIDENT_THREADS / MAX_THREADS)
    packed_spmv(const u32* __restrict__ work, const PackedSystem* __restrict__ systems,
                            const V* __restrict__ all_values, const u16* __restrict__ all_columns,
                            const u16* __restrict__ all_index, const u32* __restrict__ all_slices,
                            u32 nrhs, u32 warp_share, V alpha, const V* __restrict__ x, V beta,
                            V* y) {
    extern __shared__ u64 packed_shared[];
    V* shared = reinterpret_cast<V*>(packed_shared);
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u32 first = __ldg(work + 2 * u64(blockIdx.x));
    const u32 count = __ldg(work + 2 * u64(blockIdx.x) + 1);
    // Of the threads that share a system: how many, and which one is this.
    u32 threads = blockDim.x, member = threadIdx.x;
    u64 number = first;
    if (count != 0) {
        const u32 warp = threadIdx.x / WARP_THREADS;
        if (warp >= count) {
            return;
        }
        threads = WARP_THREADS;
        member = lane;
        number += warp;
        shared += warp * warp_share;
    }
    const PackedSystem* system = systems + number;
    const u32 nrows = system->nrows, ncols = system->ncols, nsegments = system->nsegments;
    const u32 flags = system->flags;
    const u32 nslices = (nsegments + WARP_THREADS - 1) / WARP_THREADS;
    V* sums = shared + ncols + 1;

    // The slices of this warp: those that start in its part of the slots.
    const u32* slices = all_slices + system->slices;
    const u32 nslots = system->nslots;
    const u32 warps = threads / WARP_THREADS, warp = member / WARP_THREADS;
    const u32 first_slice = slice_of_part(slices, nslices, nslots, warp, warps, lane);
    const u32 last_slice = slice_of_part(slices, nslices, nslots, warp + 1, warps, lane);
    const u32 begin = slice_start(slices, nslices, nslots, first_slice);
    const u32 end = slice_start(slices, nslices, nslots, last_slice);
    const V* values = all_values + system->values + lane;
    const u16* columns = all_columns + system->columns + lane;
    const u16* index = all_index + system->index;

    for (u32 rhs = 0; rhs < nrhs; ++rhs) {
        // Values and columns on their way while x is.
        V value[DEPTH];
        u32 column[DEPTH];
#pragma unroll
        for (u32 d = 0; d < DEPTH; ++d) {
            const u32 slot = begin + d * WARP_THREADS;
            if (slot < end) {
                value[d] = __ldcs(values + slot);
                column[d] = __ldg(columns + slot);
            }
        }
        V* y_here = y + system->y + u64(rhs) * nrows;
        start_system(shared, x + system->x + u64(rhs) * ncols, ncols, sums, nrows, flags, member,
                     threads, beta, y_here);
        wait_for_group(count);

        SliceCursor cursor(slices, nslices, index, flags, nsegments, first_slice, lane);
        V sum = V(0);
        for (u32 at = begin; at < end; at += DEPTH * WARP_THREADS) {
#pragma unroll
            for (u32 d = 0; d < DEPTH; ++d) {
                const u32 slot = at + d * WARP_THREADS;
                if (slot < end) {
                    sum += value[d] * shared[column[d]];
                    const u32 ahead = slot + DEPTH * WARP_THREADS;
                    if (ahead < end) {
                        value[d] = __ldcs(values + ahead);
                        column[d] = __ldg(columns + ahead);
                    }
                    if (slot + WARP_THREADS == cursor.end) {
                        finish_segment(sums, flags, cursor.place, alpha, sum);
                        sum = V(0);
                        cursor.advance(slices, nslices, index, flags, nsegments, lane);
                    }
                }
            }
        }
        wait_for_group(count);

        finish_rows(sums, index, nsegments, flags, nrows, member, threads, alpha, beta, y_here);
        if (rhs + 1 < nrhs) {
            wait_for_group(count);
        }
    }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Where the bulk copies of a warp arrive: STAGES parts of STEPS*32 slots each.
template <typename V, u32 STEPS, u32 STAGES>
struct Staging {
    static constexpr u32 SLOTS = STEPS * WARP_THREADS;
    V values[STAGES][SLOTS];
    u16 columns[STAGES][SLOTS];

    // Starts the copy of the slots from `at` on into part s. One thread calls it.
    __device__ __forceinline__ void fetch(u32 s, const V* all_values, const u16* all_columns,
                                          u32 at, u32 end, u64* arrived) {
        const u32 n = minimum(end - at, SLOTS);
        mbarrier_arrive_expect_tx(arrived, n * u32(sizeof(V) + sizeof(u16)));
        bulk_copy(values[s], all_values + at, n * u32(sizeof(V)), arrived);
        bulk_copy(columns[s], all_columns + at, n * u32(sizeof(u16)), arrived);
    }
};

// packed_spmv_staged: as packed_spmv, with values and columns copied into shared memory in bulk,
// STAGES copies of STEPS*32 slots under way per warp, so that no register waits for memory.
//
// Needs sm_90; blocks of WARPS*32 threads; dynamic shared memory of WARPS times Staging, then as
// packed_spmv.
template <typename V, u32 STEPS, u32 STAGES, u32 WARPS>
__global__ void __launch_bounds__(WARPS* WARP_THREADS)
    packed_spmv_staged(const u32* __restrict__ work, const PackedSystem* __restrict__ systems,
                       const V* __restrict__ all_values, const u16* __restrict__ all_columns,
                       const u16* __restrict__ all_index, const u32* __restrict__ all_slices,
                       u32 nrhs, u32 warp_share, V alpha, const V* __restrict__ x, V beta, V* y) {
    using Stage = Staging<V, STEPS, STAGES>;
    extern __shared__ uint4 staged_shared[];
    __shared__ u64 arrived[WARPS][STAGES];
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u32 own_warp = threadIdx.x / WARP_THREADS;
    Stage* stages = reinterpret_cast<Stage*>(staged_shared);
    V* shared = reinterpret_cast<V*>(stages + WARPS);
    Stage& stage = stages[own_warp];

    const u32 first = __ldg(work + 2 * u64(blockIdx.x));
    const u32 count = __ldg(work + 2 * u64(blockIdx.x) + 1);
    u32 threads = blockDim.x, member = threadIdx.x;
    u64 number = first;
    if (count != 0) {
        if (own_warp >= count) {
            return;
        }
        threads = WARP_THREADS;
        member = lane;
        number += own_warp;
        shared += own_warp * warp_share;
    }
    const PackedSystem* system = systems + number;
    const u32 nrows = system->nrows, ncols = system->ncols, nsegments = system->nsegments;
    const u32 flags = system->flags;
    const u32 nslices = (nsegments + WARP_THREADS - 1) / WARP_THREADS;
    V* sums = shared + ncols + 1;
    const u32* slices = all_slices + system->slices;
    const u32 nslots = system->nslots;
    const u32 warps = threads / WARP_THREADS, warp = member / WARP_THREADS;
    const u32 first_slice = slice_of_part(slices, nslices, nslots, warp, warps, lane);
    const u32 last_slice = slice_of_part(slices, nslices, nslots, warp + 1, warps, lane);
    const u32 begin = slice_start(slices, nslices, nslots, first_slice);
    const u32 end = slice_start(slices, nslices, nslots, last_slice);
    const V* values = all_values + system->values;
    const u16* columns = all_columns + system->columns;
    const u16* index = all_index + system->index;

    if (lane == 0) {
#pragma unroll
        for (u32 s = 0; s < STAGES; ++s) {
            mbarrier_init(&arrived[own_warp][s], 1);
        }
        mbarrier_init_fence();
    }
    __syncwarp();
    u32 parities = 0;

    for (u32 rhs = 0; rhs < nrhs; ++rhs) {
        if (lane == 0) {
#pragma unroll
            for (u32 s = 0; s < STAGES; ++s) {
                const u32 at = begin + s * Stage::SLOTS;
                if (at < end) {
                    stage.fetch(s, values, columns, at, end, &arrived[own_warp][s]);
                }
            }
        }
        V* y_here = y + system->y + u64(rhs) * nrows;
        start_system(shared, x + system->x + u64(rhs) * ncols, ncols, sums, nrows, flags, member,
                     threads, beta, y_here);
        SliceCursor cursor(slices, nslices, index, flags, nsegments, first_slice, lane);
        wait_for_group(count);
        V sum = V(0);
        u32 s = 0;
        for (u32 at = begin; at < end; at += Stage::SLOTS) {
            mbarrier_wait_parity(&arrived[own_warp][s], (parities >> s) & 1);
            parities ^= 1u << s;
            const V* staged_values = stage.values[s] + lane;
            const u16* staged_columns = stage.columns[s] + lane;
#pragma unroll
            for (u32 d = 0; d < STEPS; ++d) {
                const u32 slot = at + d * WARP_THREADS;
                if (slot < end) {
                    sum += staged_values[d * WARP_THREADS] *
                           shared[staged_columns[d * WARP_THREADS]];
                    if (slot + WARP_THREADS == cursor.end) {
                        finish_segment(sums, flags, cursor.place, alpha, sum);
                        sum = V(0);
                        cursor.advance(slices, nslices, index, flags, nsegments, lane);
                    }
                }
            }
            // All lanes have read the stage: the next copy may overwrite it.
            __syncwarp();
            const u32 next = at + STAGES * Stage::SLOTS;
            if (lane == 0 && next < end) {
                stage.fetch(s, values, columns, next, end, &arrived[own_warp][s]);
            }
            s = s + 1 == STAGES ? 0 : s + 1;
        }
        wait_for_group(count);
        finish_rows(sums, index, nsegments, flags, nrows, member, threads, alpha, beta, y_here);
        if (rhs + 1 < nrhs) {
            wait_for_group(count);
        }
    }
}

#endif
