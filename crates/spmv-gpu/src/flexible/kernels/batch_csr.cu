// Products of a whole batch of CSR matrices in one launch, problems of any sizes and patterns:
// Y_i = alpha*A_i*X_i + beta*Y_i. Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017, «Flexible
// batched SpMV on GPUs» (doi 10.1145/3148226.3148230).
//
// Common to all kernels here:
// - A block per problem; blocks stride over the problems.
// - `problems`: PROBLEM_WORDS words per problem, see Problem. x is read into shared memory first if
//   the problem's flag is set, else straight from global memory.
// - `scale`: null, or one factor per problem.
// - x, y: item-major, right-hand side after right-hand side within an item. They do not overlap. No
//   two problems share rows of y.
// - row_ptr begins at 0 for each problem; columns are below the problem's ncols; stored is its last
//   row pointer.
// - Blocks of at most 1024 threads, a multiple of 32; dynamic shared memory for the largest x whose
//   flag is set. Any grid.
// - Traffic, f64 (f32): per entry 8 (4) B value + sizeof(I) column; per row 4 B pointer + 8 (4) B y
//   written, and read unless beta is 0; per column 8 (4) B x; per problem 64 B. With several
//   right-hand sides a matrix is read again for each, mostly from cache.

// The product of one problem by a block, for batch_csr.
template <typename V, typename I, u32 WIDTH>
struct CsrRows {
    static_assert(WIDTH <= 32 && (WIDTH & (WIDTH - 1)) == 0, "0 or a power of two");
    const u32* row_ptr;
    const I* col_idx;
    const V* values;
    V beta;

    template <typename X>
    __device__ __forceinline__ void operator()(const Problem& a, X operand, V factor, V* out) const {
        const u32* const pointers = row_ptr + a.pointers;
        const I* const columns = col_idx + a.indices;
        const V* const entries = values + a.values;
        const u32 lanes = WIDTH == 0 ? a.width : WIDTH;
        const u32 lane = threadIdx.x % lanes;
        const u32 rows_at_once = blockDim.x / lanes;
        // The bound is the same for all threads: every lane takes part in the shuffles.
        for (u32 first = 0; first < a.nrows; first += rows_at_once) {
            const u32 row = first + threadIdx.x / lanes;
            V sum = 0;
            if (row < a.nrows) {
                const u32 end = load(pointers + row + 1);
                for (u32 k = load(pointers + row) + lane; k < end; k += lanes) {
                    sum += load(entries + k) * operand(load(columns + k));
                }
            }
            for (u32 offset = lanes / 2; offset > 0; offset /= 2) {
                sum += __shfl_down_sync(ALL_LANES, sum, offset, lanes);
            }
            if (row < a.nrows && lane == 0) {
                update(factor, sum, beta, out + row);
            }
        }
    }
};

// batch_csr: WIDTH lanes per row, or the problem's own width if WIDTH is 0 (CSR-scalar: 1,
// CSR-vector: 32, CSR-smart: 0, a power of two up to 32 for each problem). The lanes of a row
// stride over its entries. No atomics; the order of the sums depends on the number of lanes alone:
// bitwise repeatable.
template <typename V, typename I, u32 WIDTH>
__global__ void __launch_bounds__(1024, 1)
    batch_csr(u64 nproblems, const u64* __restrict__ problems, const V* __restrict__ scale,
              u32 nrhs, const u32* __restrict__ row_ptr, const I* __restrict__ col_idx,
              const V* __restrict__ values, V alpha, const V* __restrict__ x, V beta,
              V* __restrict__ y) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    const CsrRows<V, I, WIDTH> product{row_ptr, col_idx, values, beta};
    for_each_product(nproblems, problems, scale, nrhs, alpha, x, y,
                     reinterpret_cast<V*>(dynamic_shared), product);
}

// The product of one problem by a block, for batch_csr_i.
template <typename V, typename I>
struct CsrParts {
    static constexpr u32 NO_ROW = 0xffffffffu;
    const u32* row_ptr;
    const I* col_idx;
    const V* values;
    const u32* starts;
    V beta;
    // In shared memory, one for each warp. head: the sum of the row that an earlier part began and
    // the warp's part ends; tail: the sum of the last row of its part. The row is NO_ROW if there
    // is none.
    V* head;
    V* tail;
    u32* head_row;
    u32* tail_row;

    template <typename X>
    __device__ __forceinline__ void operator()(const Problem& a, X operand, V factor, V* out) const {
        const u32* const pointers = row_ptr + a.pointers;
        const I* const columns = col_idx + a.indices;
        const V* const entries = values + a.values;
        const u32 lane = threadIdx.x % WARP_THREADS;
        const u32 warp = threadIdx.x / WARP_THREADS;
        const u32 warps = blockDim.x / WARP_THREADS;
        const u32 begin = u32(u64(a.stored) * warp / warps);
        const u32 end = u32(u64(a.stored) * (warp + 1) / warps);

        // Rows without entries are in no part.
        for (u32 row = threadIdx.x; row < a.nrows; row += blockDim.x) {
            if (load(pointers + row) == load(pointers + row + 1)) {
                update(factor, V(0), beta, out + row);
            }
        }

        if (lane == 0) {
            head_row[warp] = NO_ROW;
            tail_row[warp] = NO_ROW;
        }
        __syncwarp();
        if (begin < end) {
            const u32 first = load(starts + a.starts + warp);
            const bool continues = load(pointers + first) < begin;
            u32 open = first; // the row whose sum the lanes hold, the same in all lanes
            u32 row = first;  // the row of this lane's entry
            V sum = 0;
            for (u32 base = begin; base < end; base += WARP_THREADS) {
                const u32 k = minimum(base + lane, end - 1);
                while (k >= load(pointers + row + 1)) {
                    ++row;
                }
                const V term = base + lane < end ? load(entries + k) * operand(load(columns + k))
                                                 : V(0);
                if (__all_sync(ALL_LANES, row == open)) {
                    sum += term;
                    continue;
                }
                // The open row ends here, as do all rows of these lanes except the last one.
                const V total = warp_sum(row == open ? sum + term : sum);
                const V scanned = segmented_scan(row, term);
                const u32 last = __shfl_sync(ALL_LANES, row, WARP_THREADS - 1);
                if (ends_segment(row) && row != open && row != last) {
                    update(factor, scanned, beta, out + row);
                }
                if (lane == 0) {
                    if (open == first && continues) {
                        head_row[warp] = open;
                        head[warp] = total;
                    } else {
                        update(factor, total, beta, out + open);
                    }
                }
                sum = row == last ? term : V(0);
                open = last;
            }
            sum = warp_sum(sum);
            if (lane == 0) {
                tail_row[warp] = open;
                tail[warp] = sum;
            }
        }
        __syncthreads();

        // A last row that begins in a part is completed by the part's warp from the parts after it.
        if (threadIdx.x < warps) {
            const u32 row = tail_row[threadIdx.x];
            const u32 part = u32(u64(a.stored) * threadIdx.x / warps);
            if (row != NO_ROW && load(pointers + row) >= part) {
                V sum = tail[threadIdx.x];
                for (u32 next = threadIdx.x + 1; next < warps; ++next) {
                    if (head_row[next] == row) {
                        sum += head[next];
                        break;
                    }
                    if (tail_row[next] == row) {
                        sum += tail[next];
                    } else if (tail_row[next] != NO_ROW) {
                        break;
                    }
                }
                update(factor, sum, beta, out + row);
            }
        }
        __syncthreads(); // before the next product writes its partial sums
    }
};

// batch_csr_i: the entries 0..stored of a problem are cut into equal parts [w*stored/warps, (w +
// 1)*stored/warps), one per warp of the block; `starts` holds, from the problem's start on, the row
// in which each warp's part begins. A warp walks its part 32 entries at a time, each lane advancing
// its row while the entry's index has passed the row's end. Balanced for any row lengths. CSR-I:
// Flegar and Quintana-Orti 2017.
//
// The source adds the partial sums of rows to y atomically. Here a row is written once: a row that
// begins and ends in a part by that part's warp, a row that spans parts after a barrier, from
// partial sums added in the order of the parts. No atomics; the order of the sums depends on the
// positions of the entries and the number of warps: bitwise repeatable.
//
// In addition to the above, needs a start row for each warp of the block, for each distinct
// pattern.
template <typename V, typename I>
__global__ void __launch_bounds__(1024, 1)
    batch_csr_i(u64 nproblems, const u64* __restrict__ problems, const V* __restrict__ scale,
                u32 nrhs, const u32* __restrict__ row_ptr, const I* __restrict__ col_idx,
                const V* __restrict__ values, const u32* __restrict__ starts, V alpha,
                const V* __restrict__ x, V beta, V* __restrict__ y) {
    constexpr u32 MAX_WARPS = 32;
    extern __shared__ __align__(16) u8 dynamic_shared[];
    __shared__ V head[MAX_WARPS];
    __shared__ V tail[MAX_WARPS];
    __shared__ u32 head_row[MAX_WARPS];
    __shared__ u32 tail_row[MAX_WARPS];

    const CsrParts<V, I> product{row_ptr, col_idx, values, starts, beta,
                                 head,    tail,    head_row, tail_row};
    for_each_product(nproblems, problems, scale, nrhs, alpha, x, y,
                     reinterpret_cast<V*>(dynamic_shared), product);
}
