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
    u32 nsegments;
    u32 flags;    // 1: sums have places of their own; 2: rows have any number of segments
};

constexpr u32 SUMS_ARE_PLACED = 1;
constexpr u32 ROWS_ARE_CUT = 2;

// The sum of one segment: slots begin + lane, begin + lane + 32, ... before end. UNROLL loads of
// values and columns are under way at once. Added in the order of the slots.
template <typename V, u32 UNROLL>
__device__ __forceinline__ V segment_sum(const V* __restrict__ values,
                                         const u16* __restrict__ columns, const V* x, u32 begin,
                                         u32 end, u32 lane) {
    V sum = V(0);
    for (u32 at = begin; at < end; at += UNROLL * WARP_THREADS) {
        V value[UNROLL];
        u32 column[UNROLL];
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const u32 slot = at + u * WARP_THREADS;
            if (slot < end) {
                value[u] = __ldcs(values + slot + lane);
                column[u] = __ldg(columns + slot + lane);
            }
        }
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            if (at + u * WARP_THREADS < end) {
                sum += value[u] * x[column[u]];
            }
        }
    }
    return sum;
}

// packed_spmv: y = alpha*A*x + beta*y for every system and right-hand side. A block takes work[2b]
// and work[2b + 1]: with a count of 0 its warps share the system work[2b], else each of its first
// `count` warps takes a system, from work[2b] on.
//
// Traffic per system and right-hand side: 8 + 2 bytes per slot (f64), 2 per segment or row where
// flags ask for them, x and y once; x is read into shared memory first. beta == 0 does not read y.
// No atomics, sums in a fixed order: bitwise repeatable, whatever the neighbours.
//
// Needs: blocks of 32*k threads; dynamic shared memory of (ncols + 1 + nsegments) values for the
// system of a shared block, of blockDim.x/32 times warp_share values for one whose warps work
// alone, each system within warp_share. Columns of padding are ncols (a zero lies there).
template <typename V, u32 UNROLL>
__global__ void packed_spmv(const u32* __restrict__ work, const PackedSystem* __restrict__ systems,
                            const V* __restrict__ values, const u16* __restrict__ columns,
                            const u16* __restrict__ index, const u32* __restrict__ slices,
                            u32 nrhs, u32 warp_share, V alpha, const V* __restrict__ x, V beta,
                            V* y) {
    extern __shared__ u64 packed_shared[];
    V* shared = reinterpret_cast<V*>(packed_shared);
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u32 first = __ldg(work + 2 * u64(blockIdx.x));
    const u32 count = __ldg(work + 2 * u64(blockIdx.x) + 1);
    // Of the threads that share a system: how many, which one is this, and its warp.
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
    const PackedSystem system = systems[number];
    const u32 nrows = system.nrows, ncols = system.ncols, nsegments = system.nsegments;
    const u32 nslices = (nsegments + WARP_THREADS - 1) / WARP_THREADS;
    V* sums = shared + ncols + 1;
    for (u32 rhs = 0; rhs < nrhs; ++rhs) {
        const V* x_here = x + system.x + u64(rhs) * ncols;
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
        for (u32 slice = member / WARP_THREADS; slice < nslices; slice += threads / WARP_THREADS) {
            const u32 begin = __ldg(slices + system.slices + slice);
            const u32 end = __ldg(slices + system.slices + slice + 1);
            const V sum = segment_sum<V, UNROLL>(values + system.values, columns + system.columns,
                                                 shared, begin, end, lane);
            const u32 segment = slice * WARP_THREADS + lane;
            if (segment < nsegments) {
                u32 place = segment;
                if (system.flags & SUMS_ARE_PLACED) {
                    place = __ldg(index + system.index + segment);
                }
                sums[place] = sum;
            }
        }
        if (count == 0) {
            __syncthreads();
        } else {
            __syncwarp();
        }
        const u16* row_starts = index + system.index;
        if (system.flags & SUMS_ARE_PLACED) {
            row_starts += nsegments;
        }
        V* y_here = y + system.y + u64(rhs) * nrows;
        for (u32 row = member; row < nrows; row += threads) {
            V sum;
            if (system.flags & ROWS_ARE_CUT) {
                const u32 end = __ldg(row_starts + row + 1);
                sum = V(0);
                for (u32 s = __ldg(row_starts + row); s < end; ++s) {
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
