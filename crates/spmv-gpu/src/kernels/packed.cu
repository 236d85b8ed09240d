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

constexpr u32 NOWHERE = 0xffffffffu;

// Where the sum of a segment goes.
__device__ __forceinline__ u32 place_of(const u16* __restrict__ index, u32 flags, u32 segment,
                                        u32 nsegments) {
    if (segment >= nsegments) {
        return NOWHERE;
    }
    return (flags & SUMS_ARE_PLACED) ? __ldg(index + segment) : segment;
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
// Needs: blocks of 32*k threads, at most MAX_THREADS; dynamic shared memory of (ncols + 1 + nsegments) values for the
// system of a shared block, of blockDim.x/32 times warp_share values for one whose warps work
// alone, each system within warp_share. Columns of padding are ncols (a zero lies there); every
// slice has slots.
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
    const u32 first_slice =
        warp == 0 ? 0 : count_below(slices, nslices, u32(u64(nslots) * warp / warps), lane);
    const u32 last_slice =
        warp + 1 == warps
            ? nslices
            : count_below(slices, nslices, u32(u64(nslots) * (warp + 1) / warps), lane);
    const u32 begin = first_slice == 0 ? 0 : __ldg(slices + first_slice);
    const u32 end = last_slice == nslices ? nslots : __ldg(slices + last_slice);
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
        const V* x_here = x + system->x + u64(rhs) * ncols;
#pragma unroll 4
        for (u32 c = member; c < ncols; c += threads) {
            shared[c] = __ldg(x_here + c);
        }
        if (member == 0) {
            shared[ncols] = V(0);
        }
        if (count == 0) {
            __syncthreads();
        } else {
            __syncwarp();
        }

        // Ends of 32 slices from `base` on, one per lane; where this lane's sum goes, now and next.
        u32 slice = first_slice, base = first_slice;
        u32 ends = __ldg(slices + minimum(base + lane + 1, nslices));
        u32 place = place_of(index, flags, first_slice * WARP_THREADS + lane, nsegments);
        u32 next_place = place_of(index, flags, (first_slice + 1) * WARP_THREADS + lane, nsegments);
        u32 slice_end = __shfl_sync(ALL_LANES, ends, 0);
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
                    if (slot + WARP_THREADS == slice_end) {
                        if (place != NOWHERE) {
                            sums[place] = sum;
                        }
                        sum = V(0);
                        ++slice;
                        place = next_place;
                        next_place =
                            place_of(index, flags, (slice + 1) * WARP_THREADS + lane, nsegments);
                        if (slice - base == WARP_THREADS) {
                            base = slice;
                            ends = __ldg(slices + minimum(base + lane + 1, nslices));
                        }
                        slice_end = __shfl_sync(ALL_LANES, ends, slice - base);
                    }
                }
            }
        }
        if (count == 0) {
            __syncthreads();
        } else {
            __syncwarp();
        }

        const u16* row_starts = index + ((flags & SUMS_ARE_PLACED) ? nsegments : 0);
        V* y_here = y + system->y + u64(rhs) * nrows;
#pragma unroll 2
        for (u32 row = member; row < nrows; row += threads) {
            V sum;
            if (flags & ROWS_ARE_CUT) {
                const u32 stop = __ldg(row_starts + row + 1);
                sum = V(0);
                for (u32 s = __ldg(row_starts + row); s < stop; ++s) {
                    sum += sums[s];
                }
            } else {
                sum = sums[row];
            }
            V result = alpha * sum;
            if (beta != V(0)) {
                result += beta * y_here[row];
            }
            y_here[row] = result;
        }
        if (rhs + 1 < nrhs) {
            if (count == 0) {
                __syncthreads();
            } else {
                __syncwarp();
            }
        }
    }
}
