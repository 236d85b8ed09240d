// y += alpha*A*x for one matrix in COO by segmented reduction, and the scaling of y before it.
//
// Bell & Garland 2009, COO: warps walk intervals of the entries and carry the sum of the last row
// from step to step. Sums of rows that straddle intervals are stored in the arrays head and tail,
// and a second kernel adds them in the order of the intervals: no atomics, bitwise repeatable for
// one number of intervals.
//
// Interval p of nparts holds the entries p*nnz/nparts .. (p + 1)*nnz/nparts. coo_parts adds rows
// that begin and end in it to y. The sum of a row that began in an earlier interval goes to
// head[p], that of a row that begins here and continues goes to tail[p].
//
// Arguments of coo_parts and coo_carries:
// - row_idx, col_idx, values: nnz each, ascending by row; rows in 0..nrows, columns in 0..ncols.
//   x: ncols; y: nrows, which already holds beta*y and overlaps nothing else.
// - 1 <= nparts <= nnz < 2^31; head, tail: nparts values, undefined before coo_parts and where no
//   row straddles.
// - One-dimensional blocks of at most BLOCK_THREADS threads, in whole warps; a warp per interval in
//   the grid.

constexpr u32 BLOCK_THREADS = 256;
// Resident blocks per multiprocessor for coo_parts; leaves 40 registers per thread.
constexpr u32 RESIDENT_BLOCKS = 6;

// coo_scale: y = alpha*0 + beta*y over nrows rows, the result of a row without entries. A thread
// per row. Reads y unless beta is 0, writes y. Needs blocks of at most BLOCK_THREADS threads and a
// thread per row in the grid.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS)
    coo_scale(u32 nrows, V alpha, V beta, V* __restrict__ y) {
    const u64 row = grid_thread();
    if (row < nrows) {
        y[row] = scaled_row(alpha, V(0), beta, y + row);
    }
}

__device__ __forceinline__ u32 part_start(u32 part, u32 nparts, u32 nnz) {
    return u32(u64(part) * nnz / nparts);
}

// The row of the entry before an interval, -1 before the first.
__device__ __forceinline__ i32 row_before(u32 part, u32 nparts, u32 nnz, const i32* row_idx) {
    return part == 0 ? -1 : load(row_idx + part_start(part, nparts, nnz) - 1);
}

// coo_parts: the first kernel. A warp per interval, 32 entries at a time. As long as all entries
// belong to the current row, the lanes keep sums of their own; where the row changes, a segmented
// scan joins them. Per entry: reads a row, a column and a value and gathers from x. Per row that
// has entries: reads and writes y. Per interval: at most two sums.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    coo_parts(u32 nnz, const i32* __restrict__ row_idx, const i32* __restrict__ col_idx,
              const V* __restrict__ values, u32 nparts, V alpha, const V* __restrict__ x,
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
    const i32 start_row = row_before(part, nparts, nnz, row_idx);

    // The current row, the same in all lanes, and each lane's sum for it.
    i32 row = start_row;
    V sum = V(0);
    for (u32 first = part_start(part, nparts, nnz); first < end; first += STEPS * WARP_THREADS) {
        V products[STEPS];
        i32 own_rows[STEPS];
#pragma unroll
        for (u32 s = 0; s < STEPS; ++s) {
            const u32 k = first + s * WARP_THREADS + lane;
            // Lanes past the end of the interval stay in the row of the last entry and add 0 to it.
            own_rows[s] = load(row_idx + minimum(k, end - 1));
            products[s] = k < end ? load(values + k) * load(x + load(col_idx + k)) : V(0);
        }
#pragma unroll
        for (u32 s = 0; s < STEPS; ++s) {
            const i32 last_row = __shfl_sync(ALL_LANES, own_rows[s], WARP_THREADS - 1);
            if (last_row == row) {
                sum += products[s];
                continue;
            }
            const V carried = warp_sum(sum);
            if (lane == 0) {
                if (own_rows[s] == row) {
                    products[s] += carried;
                } else if (row == start_row) {
                    head[part] = carried;
                } else {
                    y[row] += alpha * carried;
                }
            }
            const V scanned = segmented_scan(own_rows[s], products[s]);
            const i32 after = __shfl_down_sync(ALL_LANES, own_rows[s], 1);
            if (lane < WARP_THREADS - 1 && after != own_rows[s]) {
                if (own_rows[s] == start_row) {
                    head[part] = scanned;
                } else {
                    y[own_rows[s]] += alpha * scanned;
                }
            }
            row = last_row;
            sum = lane == WARP_THREADS - 1 ? scanned : V(0);
        }
    }

    const V total = warp_sum(sum);
    if (lane == 0) {
        if (row == start_row) {
            head[part] = total;
        } else if (end < nnz && load(row_idx + end) == row) {
            tail[part] = total;
        } else {
            y[row] += alpha * total;
        }
    }
}

// coo_carries: the second kernel. The warp of the interval in which a straddling row begins adds
// that interval's tail, and the heads of all later intervals that the row reaches, to y. Per
// interval: reads three rows; per straddling row: about log2(nparts) rows, a tail, a head for each
// further interval and y; writes y.
template <typename V>
__global__ void __launch_bounds__(BLOCK_THREADS)
    coo_carries(u32 nnz, const i32* __restrict__ row_idx, u32 nparts, V alpha, V* __restrict__ y,
                const V* __restrict__ head, const V* __restrict__ tail) {
    const u64 warp = grid_thread() / WARP_THREADS;
    const u32 lane = threadIdx.x % WARP_THREADS;
    if (warp >= nparts) {
        return;
    }
    const u32 part = u32(warp);
    const u32 end = part_start(part + 1, nparts, nnz);
    const i32 row = row_before(part + 1, nparts, nnz, row_idx);
    if (end == nnz || load(row_idx + end) != row ||
        row == row_before(part, nparts, nnz, row_idx)) {
        return; // The interval's last row ends in it or began earlier; the same in all lanes.
    }
    // Finds the last interval that begins in this row: the rows at interval starts do not decrease.
    u32 known = part + 1;
    u32 beyond = nparts;
    while (beyond - known > 1) {
        const u32 middle = known + (beyond - known) / 2;
        const bool reached = load(row_idx + part_start(middle, nparts, nnz)) == row;
        known = reached ? middle : known;
        beyond = reached ? beyond : middle;
    }
    V sum = V(0);
    for (u32 p = part + 1 + lane; p <= known; p += WARP_THREADS) {
        sum += load(head + p);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        y[row] += alpha * (load(tail + part) + sum);
    }
}
