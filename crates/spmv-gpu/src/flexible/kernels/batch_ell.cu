// Products of a whole batch of ELL matrices in one launch, problems of any sizes and patterns:
// Y_i = alpha*A_i*X_i + beta*Y_i. Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017, «Flexible
// batched SpMV on GPUs» (doi 10.1145/3148226.3148230).

// The product of one problem by a block.
template <typename V, typename I>
struct EllRows {
    static constexpr I PADDING = I(-1);
    const I* col_idx;
    const V* values;
    V beta;

    template <typename X>
    __device__ __forceinline__ void operator()(const Problem& a, X operand, V factor, V* out) const {
        const I* const columns = col_idx + a.indices;
        const V* const entries = values + a.values;
        for (u32 row = threadIdx.x; row < a.nrows; row += blockDim.x) {
            V sum = 0;
            for (u32 slot = row; slot < a.stored; slot += a.nrows) {
                const I column = load(columns + slot);
                if (column == PADDING) {
                    break;
                }
                sum += load(entries + slot) * operand(column);
            }
            update(factor, sum, beta, out + row);
        }
    }
};

// batch_ell: a thread per row, rows stride by the block. Slot s of row r of a problem is at s*nrows
// + r, so that neighbouring threads read neighbouring slots.
//
// - A block per problem; blocks stride over the problems.
// - `problems`: PROBLEM_WORDS words per problem, see Problem: width is the number of slots per row,
//   stored the number of all slots. x is read into shared memory first if the problem's flag is
//   set, else straight from global memory.
// - col_idx: a column of all ones, I(-1), is padding, which follows the entries of a row; it never
//   multiplies.
// - `scale`: null, or one factor per problem.
// - x, y: item-major, right-hand side after right-hand side within an item. They do not overlap.
// - Blocks of at most 1024 threads; dynamic shared memory for the largest x whose flag is set.
// - Traffic, f64 (f32): per slot 8 (4) B value + sizeof(I) column, where of padding at least one
//   slot per row counts, and slots that share memory sectors with other rows' entries; per row 8
//   (4) B y written, and read unless beta is 0; per column 8 (4) B x; per problem 64 B.
// - No atomics, entries in order: bitwise repeatable.
template <typename V, typename I>
__global__ void __launch_bounds__(1024, 1)
    batch_ell(u64 nproblems, const u64* __restrict__ problems, const V* __restrict__ scale,
              u32 nrhs, const I* __restrict__ col_idx, const V* __restrict__ values, V alpha,
              const V* __restrict__ x, V beta, V* __restrict__ y) {
    extern __shared__ __align__(16) u8 dynamic_shared[];

    const EllRows<V, I> product{col_idx, values, beta};
    for_each_product(nproblems, problems, scale, nrhs, alpha, x, y,
                     reinterpret_cast<V*>(dynamic_shared), product);
}
