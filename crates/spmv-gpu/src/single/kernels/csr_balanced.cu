// y = alpha*A*x + beta*y for one matrix in CSR, the entries cut into equal parts: CSR-I.
//
// Flegar & Quintana-Orti 2017, as in Anzt et al. 2017, with one deviation: the source adds the sums
// of rows that straddle parts to y with atomics. Here each part stores them in the arrays head and
// tail, and a second kernel adds them in the order of the parts, so that results are bitwise
// repeatable for one number of parts.
//
// Part p of nparts holds the entries p*nnz/nparts .. (p + 1)*nnz/nparts. balanced_parts writes the
// rows that begin and end in it. The sum of a row that began in an earlier part goes to head[p],
// that of a row that begins here and continues goes to tail[p].
//
// Arguments of both kernels:
// - row_ptr, y as in csr.cu. 1 <= nparts <= nnz < 2^31.
// - start_rows: nparts + 1 rows. Entry p is the row of the entry before part p's first one, so that
//   entry nparts is the last row that is not empty; entry 0 is -1.
// - head, tail: nparts values, undefined before balanced_parts and where no row straddles.
// - One-dimensional blocks of at most BLOCK_THREADS threads, in whole warps; a warp per part in the
//   grid.

constexpr u32 BLOCK_THREADS = 256;
// Resident blocks per multiprocessor for balanced_parts; leaves 40 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 6;

__device__ __forceinline__ u32 part_start(u32 part, u32 nparts, u32 nnz) {
    return u32(u64(part) * nnz / nparts);
}

// The part that holds an entry.
__device__ __forceinline__ u32 part_of(u32 entry, u32 nparts, u32 nnz) {
    return u32(((u64(entry) + 1) * nparts - 1) / nnz);
}

// The destination of the sums of a part.
template <typename V>
struct PartRows {
    i32 start_row; // the row of the entry before the part
    u32 part;
    V alpha;
    V beta;
    V* head;
    V* y;

    // Stores the sum of a row whose last entry in this part was met. The row ends here or began
    // before.
    __device__ __forceinline__ void finish(i32 row, V sum) const {
        if (row == start_row) {
            head[part] = sum;
        } else {
            y[row] = scaled_row(alpha, sum, beta, y + row);
        }
    }

    // Writes the empty rows between two rows.
    __device__ __forceinline__ void finish_empty(i32 after, i32 before) const {
        for (i32 row = after + 1; row < before; ++row) {
            y[row] = scaled_row(alpha, V(0), beta, y + row);
        }
    }
};

// balanced_parts: the first kernel. A warp per part walks its entries, 32 at a time, and each lane
// advances its row while its entry is past the row's end. As long as all 32 entries belong to the
// current row, the lanes keep sums of their own; where the row changes, a segmented scan joins
// them. Single lanes walk long runs of empty rows. Per entry: reads a column and a value and
// gathers from x. Per row: reads row_ptr, several times from cache, and, unless beta is 0, y;
// writes y. Per part: a start row and at most two sums.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    balanced_parts(u32 nrows, u32 nnz, const i32* __restrict__ row_ptr,
                   const i32* __restrict__ col_idx, const V* __restrict__ values, u32 nparts,
                   const i32* __restrict__ start_rows, V alpha, const V* __restrict__ x, V beta,
                   V* __restrict__ y, V* __restrict__ head, V* __restrict__ tail) {
    // Products of several steps at once, so that their loads overlap.
    constexpr u32 STEPS = 4;
    const u64 warp = grid_thread() / WARP_THREADS;
    const u32 lane = threadIdx.x % WARP_THREADS;
    if (warp >= nparts) {
        return; // The whole warp: no lane is missing below.
    }
    const u32 part = u32(warp);
    const u32 end = part_start(part + 1, nparts, nnz);
    const PartRows<V> rows = {load(start_rows + part), part, alpha, beta, head, y};

    // The current row and where it ends, the same in all lanes, and each lane's sum for it.
    i32 row = rows.start_row;
    u32 row_end = row < 0 ? 0 : load(row_ptr + row + 1);
    V sum = V(0);
    for (u32 first = part_start(part, nparts, nnz); first < end; first += STEPS * WARP_THREADS) {
        V products[STEPS];
#pragma unroll
        for (u32 s = 0; s < STEPS; ++s) {
            const u32 k = first + s * WARP_THREADS + lane;
            products[s] = k < end ? load(values + k) * load(x + load(col_idx + k)) : V(0);
        }
#pragma unroll
        for (u32 s = 0; s < STEPS; ++s) {
            const u32 begin = first + s * WARP_THREADS;
            if (begin >= end) {
                break;
            }
            const u32 last = minimum(begin + WARP_THREADS, end) - 1;
            if (last < row_end) {
                sum += products[s];
                continue;
            }
            // Lanes past the end of the part stay in the row of the last entry and add 0 to it.
            const u32 k = minimum(begin + lane, last);
            i32 own_row = maximum(row, 0);
            while (k >= u32(load(row_ptr + own_row + 1))) {
                ++own_row;
            }
            const V carried = warp_sum(sum);
            if (lane == 0) {
                if (own_row == row) {
                    products[s] += carried;
                } else {
                    rows.finish(row, carried);
                }
            }
            const V scanned = segmented_scan(own_row, products[s]);
            // With the rows of the neighbouring lanes: every row except the last one ends here.
            const i32 before = __shfl_up_sync(ALL_LANES, own_row, 1);
            const i32 after = __shfl_down_sync(ALL_LANES, own_row, 1);
            rows.finish_empty(lane == 0 ? row : before, own_row);
            if (lane < WARP_THREADS - 1 && after != own_row) {
                rows.finish(own_row, scanned);
            }
            row = __shfl_sync(ALL_LANES, own_row, WARP_THREADS - 1);
            row_end = load(row_ptr + row + 1);
            sum = lane == WARP_THREADS - 1 ? scanned : V(0);
        }
    }

    const V total = warp_sum(sum);
    if (lane == 0) {
        if (row_end > end && row != rows.start_row) {
            tail[part] = total;
        } else {
            rows.finish(row, total);
        }
    }
    if (part == nparts - 1) {
        for (u32 empty = row + 1 + lane; empty < nrows; empty += WARP_THREADS) {
            y[empty] = scaled_row(alpha, V(0), beta, y + empty);
        }
    }
}

// balanced_carries: the second kernel. The warp of the part in which a straddling row begins adds
// that part's tail and the heads of all later parts that the row reaches, and writes y. Per part:
// reads two start rows; per straddling row: one entry of row_ptr, a tail, a head for each further
// part and, unless beta is 0, y; writes y.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS)
    balanced_carries(u32 nnz, const i32* __restrict__ row_ptr, u32 nparts,
                     const i32* __restrict__ start_rows, V alpha, V beta, V* __restrict__ y,
                     const V* __restrict__ head, const V* __restrict__ tail) {
    const u64 warp = grid_thread() / WARP_THREADS;
    const u32 lane = threadIdx.x % WARP_THREADS;
    if (warp >= nparts) {
        return;
    }
    const u32 part = u32(warp);
    const i32 row = load(start_rows + part + 1);
    const u32 row_end = load(row_ptr + row + 1);
    if (row == load(start_rows + part) || row_end <= part_start(part + 1, nparts, nnz)) {
        return; // The part's last row began earlier or ends in it; the same in all lanes.
    }
    const u32 last_part = part_of(row_end - 1, nparts, nnz);
    V sum = V(0);
    for (u32 p = part + 1 + lane; p <= last_part; p += WARP_THREADS) {
        sum += load(head + p);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        y[row] = scaled_row(alpha, load(tail + part) + sum, beta, y + row);
    }
}
