// Products of a whole batch of SELL-P matrices in one launch, problems of any sizes and patterns:
// Y_i = alpha*A_i*X_i + beta*Y_i. SELL-P: Anzt, Tomov, Dongarra 2014 (UT-EECS-14-727); a block per
// problem: Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017 (doi 10.1145/3148226.3148230).

// The product of one problem by a block.
template <typename V, typename I, u32 THREADS>
struct SellPSlices {
    static_assert(THREADS >= 1 && THREADS <= 32 && (THREADS & (THREADS - 1)) == 0,
                  "a power of two");
    static constexpr u32 SLICE = WARP_THREADS / THREADS;
    static constexpr I PADDING = I(-1);
    const u32* slice_ptr;
    const I* col_idx;
    const V* values;
    V beta;

    template <typename X>
    __device__ __forceinline__ void operator()(const Problem& a, X operand, V factor, V* out) const {
        const u32 lane = threadIdx.x % WARP_THREADS;
        const u32 warp = threadIdx.x / WARP_THREADS;
        const u32 warps = blockDim.x / WARP_THREADS;
        const u32* const pointers = slice_ptr + a.pointers;
        const I* const columns = col_idx + a.indices;
        const V* const entries = values + a.values;
        const u32 nslices = (a.nrows + SLICE - 1) / SLICE;
        for (u32 slice = warp; slice < nslices; slice += warps) {
            const u32 end = load(pointers + slice + 1);
            V sum = 0;
            for (u32 slot = load(pointers + slice) + lane; slot < end; slot += WARP_THREADS) {
                const I column = load(columns + slot);
                if (column == PADDING) {
                    break;
                }
                sum += load(entries + slot) * operand(column);
            }
            __syncwarp();
#pragma unroll
            for (u32 offset = WARP_THREADS / 2; offset >= SLICE; offset /= 2) {
                sum += __shfl_down_sync(ALL_LANES, sum, offset);
            }
            const u32 row = slice * SLICE + lane;
            if (lane < SLICE && row < a.nrows) {
                update(factor, sum, beta, out + row);
            }
        }
    }
};

// batch_sellp: slices of SLICE = 32 / THREADS rows, a warp per slice, THREADS lanes per row. Slot j
// of row i of slice s is at slice_ptr[s] + j*SLICE + i: lane l starts at slot l / SLICE of row l %
// SLICE and moves on by THREADS slots, so that a warp reads 32 neighbouring slots at a time. The
// source joins the threads of a row in shared memory; with 32 threads per slice shuffles suffice.
//
// - A block per problem; blocks stride over the problems.
// - `problems`: PROBLEM_WORDS words per problem, see Problem. x is read into shared memory first if
//   the problem's flag is set, else straight from global memory.
// - slice_ptr: begins at 0 for each problem, has one entry more than there are slices; each slice's
//   slots are a multiple of 32. Rows are in their order.
// - col_idx: a column of all ones, I(-1), is padding, which follows the entries of a row; it never
//   multiplies.
// - `scale`: null, or one factor per problem.
// - x, y: item-major, right-hand side after right-hand side within an item. They do not overlap.
// - Blocks of at most 1024 threads, a multiple of 32; dynamic shared memory for the largest x whose
//   flag is set. Any grid.
// - Traffic, f64 (f32): per slot sizeof(I) column, and 8 (4) B value unless a whole memory sector
//   is padding; per slice 4 B pointer; per row 8 (4) B y written, and read unless beta is 0; per
//   column 8 (4) B x; per problem 64 B.
// - No atomics; the order of the sums depends on THREADS alone: bitwise repeatable.
template <typename V, typename I, u32 THREADS>
__global__ void __launch_bounds__(1024, 1)
    batch_sellp(u64 nproblems, const u64* __restrict__ problems, const V* __restrict__ scale,
                u32 nrhs, const u32* __restrict__ slice_ptr, const I* __restrict__ col_idx,
                const V* __restrict__ values, V alpha, const V* __restrict__ x, V beta,
                V* __restrict__ y) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    const SellPSlices<V, I, THREADS> product{slice_ptr, col_idx, values, beta};
    for_each_product(nproblems, problems, scale, nrhs, alpha, x, y,
                     reinterpret_cast<V*>(dynamic_shared), product);
}
