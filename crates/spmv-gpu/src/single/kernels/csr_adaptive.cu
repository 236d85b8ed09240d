// y = alpha*A*x + beta*y for one matrix in CSR in one launch, whatever the lengths of the rows.
//
// Greathouse & Daga 2014, CSR-Adaptive, with deviations:
// - Sums of rows that several blocks share are added in a fixed order, not with atomics.
// - A block knows its rows and entries from its descriptor, so that columns, values, row_ptr and y
//   are requested at once and there are only three dependent memory accesses.
// - Rows much longer than their neighbours get more lanes.
//
// A block is of one of three kinds, by its descriptor of eight words of 32 bits:
//   0, 1 its entries: first, and one past the last
//   2, 3 its rows: first, and one past the last
//   4    its pieces: 0, or the number of blocks that share its row
//   5    the first of these blocks
//   6    lanes per row, a power of two up to 32; 0 for rows that whole blocks add up
//   7    not used
//
// - Rows (word 6 is not 0): at most STEPS*blockDim.x entries, and no more rows than there are
//   groups of `lanes` threads. Products go to shared memory, coalesced and with STEPS of each
//   thread under way; then `lanes` lanes add up each row. A row of more than LONG_STEPS*lanes
//   entries waits until LONG_LANES lanes of its warp add it up, LONG_ROWS such rows at a time.
// - One row (word 4 is 0): the block adds it up, of any length.
// - A piece of a row: as before, but the sum goes to partials[blockIdx.x]. The last block of the
//   row to finish adds all of them, in the order of the pieces. An atomic counter, the one with the
//   index of the first block, finds that block; it is 0 before and after each launch.
//
// The order of additions depends on the descriptors alone: bitwise repeatable.
//
// Per entry: reads a column and a value and gathers from x. Per row: reads two entries of row_ptr,
// mostly from cache, and, unless beta is 0, y; writes y. Per block: 32 bytes; per piece: writes and
// reads a sum.
//
// - row_ptr, col_idx, values, x, y as in csr.cu; beta == 0 does not read y.
// - blocks: a descriptor per block. Every row is in one block, or in consecutive pieces, which
//   share words 2 to 5 and whose entries follow one another and make up the row. The rows of a
//   block hold exactly its entries; the row of a piece holds more.
// - partials, counters: an element per block; counters are 0. Not shared by launches that can run
//   at the same time.
// - Launch: a block per descriptor, blocks of whole warps, at most BLOCK_THREADS threads, and
//   padded(STEPS*threads) values of dynamic shared memory.

constexpr u32 BLOCK_THREADS = 256;
constexpr u32 DESCRIPTOR_WORDS = 8;
// Most entries that a lane adds up; longer rows wait for more lanes.
constexpr u32 LONG_STEPS = 16;
// Lanes for such a row, and the number of such rows that a warp adds up at a time.
constexpr u32 LONG_LANES = 8;
constexpr u32 LONG_ROWS = WARP_THREADS / LONG_LANES;

// The index of product i in shared memory: a gap after every 128 bytes spreads rows of similar
// length over the banks.
template <typename V>
__device__ __forceinline__ u32 padded(u32 i) {
    return i + i / (128 / u32(sizeof(V)));
}

// The sum over a block, valid in thread 0: over warps, then over their sums in order. `sums` has an
// element per warp.
template <typename V>
__device__ __forceinline__ V block_sum(V value, V* sums) {
    value = warp_sum(value);
    if (threadIdx.x % WARP_THREADS == 0) {
        sums[threadIdx.x / WARP_THREADS] = value;
    }
    __syncthreads();
    V total = V(0);
    if (threadIdx.x == 0) {
        for (u32 warp = 0; warp < blockDim.x / WARP_THREADS; ++warp) {
            total += sums[warp];
        }
    }
    return total;
}

// The descriptor of a block.
struct RowBlock {
    u32 first, end, first_row, end_row, pieces, first_piece, lanes;
};

__device__ __forceinline__ RowBlock read_row_block(const u64* blocks) {
    const u64* word = blocks + u64(blockIdx.x) * (DESCRIPTOR_WORDS / 2);
    const u64 entries = load(word);
    const u64 rows = load(word + 1);
    const u64 pieces = load(word + 2);
    const u64 lanes = load(word + 3);
    return {u32(entries), u32(entries >> 32), u32(rows),  u32(rows >> 32),
            u32(pieces),  u32(pieces >> 32),  u32(lanes)};
}

// Adds 1 to a counter and returns its previous value. A thread sees the writes of all threads that
// counted before it. One memory access, where a fence on either side would make three.
__device__ __forceinline__ u32 count_arrival(u32* counter) {
#if defined(SPARSEBATCH_EMU)
    __threadfence();
    const u32 before = atomicAdd(counter, 1u);
    __threadfence();
#else
    u32 before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
#endif
    return before;
}

// A row that the whole block, or several blocks, add up.
template <typename V, u32 STEPS>
__device__ __forceinline__ void long_row(const RowBlock& block, const i32* __restrict__ col_idx,
                                         const V* __restrict__ values, V alpha,
                                         const V* x, V beta, V* __restrict__ y,
                                         V* partials, u32* counters, V* sums) {
    __shared__ u32 arrived;
    V y_before = V(0);
    StridedSum<V, STEPS> entries(block.first + threadIdx.x, block.end, blockDim.x, col_idx, values);
    wait_for_launches_ahead();
    if (threadIdx.x == 0 && beta != V(0)) {
        y_before = y[block.first_row];
    }
    V sum = block_sum(entries.sum(x), sums);
    if (block.pieces > 1) {
        if (threadIdx.x == 0) {
            partials[blockIdx.x] = sum;
            arrived = count_arrival(counters + block.first_piece);
        }
        __syncthreads();
        if (arrived != block.pieces - 1) {
            return; // The whole block.
        }
        sum = V(0);
        for (u32 piece = threadIdx.x; piece < block.pieces; piece += blockDim.x) {
            sum += __ldcg(partials + block.first_piece + piece);
        }
        sum = block_sum(sum, sums);
        if (threadIdx.x == 0) {
            counters[block.first_piece] = 0;
        }
    }
    if (threadIdx.x == 0) {
        y[block.first_row] = scaled_row(alpha, sum, beta, &y_before);
    }
}

// csr_adaptive: all kinds of blocks. See above.
template <typename V, u32 STEPS>
__global__ void __launch_bounds__(BLOCK_THREADS, STEPS <= 4 ? 6 : 4)
    csr_adaptive(const u64* __restrict__ blocks, const i32* __restrict__ row_ptr,
                 const i32* __restrict__ col_idx, const V* __restrict__ values, V alpha,
                 const V* x, V beta, V* __restrict__ y, V* partials, u32* counters) {
    extern __shared__ u64 adaptive_shared[];
    V* const products = reinterpret_cast<V*>(adaptive_shared);
    let_next_launch_begin();
    const RowBlock block = read_row_block(blocks);
    const u32 lanes = block.lanes;
    if (lanes == 0) {
        long_row<V, STEPS>(block, col_idx, values, alpha, x, beta, y, partials, counters,
                           products);
        return;
    }

    // Everything that does not depend on columns is requested at once.
    const u32 nrows = block.end_row - block.first_row;
    const u32 lane = threadIdx.x & (lanes - 1);
    const u32 row = threadIdx.x / lanes;
    u32 columns[STEPS];
    V factors[STEPS];
#pragma unroll
    for (u32 s = 0; s < STEPS; ++s) {
        const u32 k = block.first + s * blockDim.x + threadIdx.x;
        columns[s] = k < block.end ? load(col_idx + k) : 0;
    }
#pragma unroll
    for (u32 s = 0; s < STEPS; ++s) {
        const u32 k = block.first + s * blockDim.x + threadIdx.x;
        factors[s] = k < block.end ? load(values + k) : V(0);
    }
    u32 start = 0;
    u32 stop = 0;
    V y_before = V(0);
    if (row < nrows) {
        start = load(row_ptr + block.first_row + row) - block.first;
        stop = load(row_ptr + block.first_row + row + 1) - block.first;
    }
    wait_for_launches_ahead();
    if (row < nrows && beta != V(0) && lane == 0) {
        y_before = y[block.first_row + row];
    }
#pragma unroll
    for (u32 s = 0; s < STEPS; ++s) {
        const u32 i = s * blockDim.x + threadIdx.x;
        if (block.first + i < block.end) {
            factors[s] *= x[columns[s]];
        }
    }
#pragma unroll
    for (u32 s = 0; s < STEPS; ++s) {
        const u32 i = s * blockDim.x + threadIdx.x;
        if (block.first + i < block.end) {
            products[padded<V>(i)] = factors[s];
        }
    }
    __syncthreads();

    const bool is_long = stop - start > LONG_STEPS * lanes;
    V sum = V(0);
    if (!is_long) {
#pragma unroll 4
        for (u32 i = start + lane; i < stop; i += lanes) {
            sum += products[padded<V>(i)];
        }
    }
    for (u32 offset = lanes / 2; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, offset);
    }
    const u32 warp_lane = threadIdx.x % WARP_THREADS;
    u32 waiting = __ballot_sync(ALL_LANES, is_long && lane == 0);
    while (waiting != 0) {
        // The first of the waiting rows, LONG_LANES lanes for each; WARP_THREADS if there are
        // fewer.
        u32 leaders[LONG_ROWS];
        u32 own = WARP_THREADS;
#pragma unroll
        for (u32 r = 0; r < LONG_ROWS; ++r) {
            leaders[r] = waiting == 0 ? WARP_THREADS : __ffs(waiting) - 1;
            waiting &= waiting - 1;
            own = warp_lane / LONG_LANES == r ? leaders[r] : own;
        }
        const u32 from = __shfl_sync(ALL_LANES, start, own % WARP_THREADS);
        const u32 last = __shfl_sync(ALL_LANES, stop, own % WARP_THREADS);
        const u32 to = own < WARP_THREADS ? last : from;
        V part = V(0);
#pragma unroll 4
        for (u32 i = from + warp_lane % LONG_LANES; i < to; i += LONG_LANES) {
            part += products[padded<V>(i)];
        }
#pragma unroll
        for (u32 offset = LONG_LANES / 2; offset > 0; offset /= 2) {
            part += __shfl_xor_sync(ALL_LANES, part, offset);
        }
#pragma unroll
        for (u32 r = 0; r < LONG_ROWS; ++r) {
            const V total = __shfl_sync(ALL_LANES, part, r * LONG_LANES);
            sum = warp_lane == leaders[r] ? total : sum;
        }
    }
    if (lane == 0 && row < nrows) {
        y[block.first_row + row] = scaled_row(alpha, sum, beta, &y_before);
    }
}
