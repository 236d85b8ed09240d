// Sums of the squares of the values of items, for norms of matrices.

constexpr u32 SQUARES_ITEMS = 8;  // items of a block, a warp each
constexpr u32 SQUARES_THREADS = WARP_THREADS * SQUARES_ITEMS;

// Values that a lane reads at once.
constexpr u32 SQUARES_AHEAD = 4;

// squares: sums[i] = the sum of the squares of the nnz values of item i, from i * nnz on.
// - Launch: blocks of SQUARES_THREADS threads, any grid in x; a warp for each item.
// - The sums have the bits of `sum_of_squares` on the host: 32 partial sums, each rounded after the
//   product and after the addition, then pairs from the far ends on.
// - Traffic per item: reads nnz values, writes 8 B.
template <typename V>
__global__ void __launch_bounds__(SQUARES_THREADS, 6)
    squares(u64 nitems, u64 nnz, const V* __restrict__ values, double* __restrict__ sums) {
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u64 first = u64(blockIdx.x) * SQUARES_ITEMS + threadIdx.x / WARP_THREADS;
    for (u64 item = first; item < nitems; item += u64(gridDim.x) * SQUARES_ITEMS) {
        const V* const own = values + item * nnz;
        double sum = 0;
        for (u64 k = lane; k < nnz; k += SQUARES_AHEAD * WARP_THREADS) {
            V ahead[SQUARES_AHEAD];
#pragma unroll
            for (u32 i = 0; i < SQUARES_AHEAD; ++i) {
                const u64 place = k + i * WARP_THREADS;
                ahead[i] = place < nnz ? load(own + place) : V(0);
            }
#pragma unroll
            for (u32 i = 0; i < SQUARES_AHEAD; ++i) {
                const double value = double(ahead[i]);
                sum = __dadd_rn(sum, __dmul_rn(value, value));
            }
        }
        sum = sum_of_lanes(sum);
        if (lane == 0) {
            sums[item] = sum;
        }
    }
}
