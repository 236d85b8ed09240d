// Products of a whole batch of COO matrices in one launch, problems of any sizes and patterns:
// Y_i = alpha*A_i*X_i + beta*Y_i. Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017, «Flexible
// batched SpMV on GPUs» (doi 10.1145/3148226.3148230).

// The product of one problem by a block.
template <typename V, typename I>
struct CooEntries {
    static constexpr u32 NO_ROW = 0xffffffffu;
    const I* row_idx;
    const I* col_idx;
    const V* values;
    V beta;
    V* staged; // shared memory: x, then one sum per row

    template <typename X>
    __device__ __forceinline__ void operator()(const Problem& a, X operand, V factor, V* out) const {
        const I* const rows = row_idx + a.indices;
        const I* const columns = col_idx + a.indices;
        const V* const entries = values + a.values;
        V* const sums = staged + a.ncols;
        for (u32 row = threadIdx.x; row < a.nrows; row += blockDim.x) {
            if (a.x_in_shared) {
                sums[row] = 0;
            } else {
                update(factor, V(0), beta, out + row);
            }
        }
        __syncthreads();

        auto add = [&](u32 row, V sum) {
            const V total = segmented_scan(row, sum);
            if (ends_segment(row)) {
                if (a.x_in_shared) {
                    atomicAdd(sums + row, total);
                } else {
                    atomicAdd(out + row, factor * total);
                }
            }
        };
        const u32 lane = threadIdx.x % WARP_THREADS;
        const u32 warp = threadIdx.x / WARP_THREADS;
        const u32 warps = blockDim.x / WARP_THREADS;
        const u32 begin = u32(u64(a.stored) * warp / warps);
        const u32 end = u32(u64(a.stored) * (warp + 1) / warps);
        u32 current = NO_ROW;
        V sum = 0;
        for (u32 base = begin; base < end; base += WARP_THREADS) {
            // Lanes past the end join the row of the last entry and add 0.
            const u32 k = minimum(base + lane, end - 1);
            const u32 row = load(rows + k);
            const V term = base + lane < end ? load(entries + k) * operand(load(columns + k))
                                             : V(0);
            if (__all_sync(ALL_LANES, row == current)) {
                sum += term;
                continue;
            }
            if (base != begin) {
                add(current, sum);
            }
            current = row;
            sum = term;
        }
        if (begin < end) {
            add(current, sum);
        }

        if (a.x_in_shared) {
            __syncthreads();
            for (u32 row = threadIdx.x; row < a.nrows; row += blockDim.x) {
                update(factor, sums[row], beta, out + row);
            }
        }
    }
};

// batch_coo: threads over entries. The entries of a problem are cut into equal parts, one per warp
// of the problem's block; neighbouring lanes take neighbouring entries. Each lane sums its entries
// as long as all lanes stay in the same row. Then a segmented scan sums the lanes of each row, and
// the last lane adds the sum to the row.
//
// ATOMIC: warps add to a row with atomics, in shared memory if the problem's flag is set (x and one
// sum per row are there then), else in global memory. The order of the additions is that in which
// warps arrive: results vary by rounding from run to run. For comparison; use only where requested
// by name.
//
// - A block per problem; blocks stride over the problems.
// - `problems`: PROBLEM_WORDS words per problem, see Problem. row_idx and col_idx begin at the same
//   offset; entries are sorted by row.
// - `scale`: null, or one factor per problem.
// - x, y: item-major, right-hand side after right-hand side within an item. They do not overlap.
// - Blocks of at most 1024 threads, a multiple of 32; dynamic shared memory for the ncols + nrows
//   values of the largest problem whose flag is set. Any grid.
// - Traffic, f64 (f32): per entry 8 (4) B value + 2*sizeof(I) row and column; per row 8 (4) B y
//   written, and read unless beta is 0 (read and written again by each atomic if the flag is not
//   set); per column 8 (4) B x; per problem 64 B.
template <typename V, typename I>
__global__ void __launch_bounds__(1024, 1)
    batch_coo(u64 nproblems, const u64* __restrict__ problems, const V* __restrict__ scale,
              u32 nrhs, const I* __restrict__ row_idx, const I* __restrict__ col_idx,
              const V* __restrict__ values, V alpha, const V* __restrict__ x, V beta,
              V* __restrict__ y) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    V* const staged = reinterpret_cast<V*>(dynamic_shared);
    const CooEntries<V, I> product{row_idx, col_idx, values, beta, staged};
    for_each_product(nproblems, problems, scale, nrhs, alpha, x, y, staged, product);
}
