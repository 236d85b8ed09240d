// Matrices of implicit steps, formed on the device from the Jacobians there.

constexpr u32 SHIFT_ITEMS = 8;  // items of a block, a warp each
constexpr u32 SHIFT_THREADS = WARP_THREADS * SHIFT_ITEMS;

// shift: out = 1/dt - jacobian on the diagonal and -jacobian elsewhere, for every item of a batch
// of one pattern: the values of I/dt - J.
// - Launch: blocks of SHIFT_THREADS threads, any grid. In x, blocks stride over the items, one warp
//   per item; in y, over the entries of an item.
// - is_diagonal: nnz flags, 1 for entries on the diagonal, else 0.
// - jacobian: the values of item i begin at i * stride; stride 0 means one Jacobian for all items.
// - dt: dt[i] is the step of item i.
// - out: the results of item i begin at i * nnz. out overlaps no other argument.
// - Traffic per entry: reads a flag, mostly from the cache, and jacobian; writes out. Every result
//   is one rounding of 1/dt rounded: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(SHIFT_THREADS, 6)
    shift(u64 nitems, u32 nnz, const u8* __restrict__ is_diagonal, u64 stride,
          const V* __restrict__ jacobian, const V* __restrict__ dt, V* __restrict__ out) {
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u64 first = u64(blockIdx.x) * SHIFT_ITEMS + threadIdx.x / WARP_THREADS;
    for (u64 item = first; item < nitems; item += u64(gridDim.x) * SHIFT_ITEMS) {
        const V inverse = V(1) / load(dt + item);
        const V* const values = jacobian + item * stride;
        V* const shifted = out + item * nnz;
        for (u64 k = u64(blockIdx.y) * WARP_THREADS + lane; k < nnz;
             k += u64(gridDim.y) * WARP_THREADS) {
            const V value = load(values + k);
            shifted[k] = load(is_diagonal + k) != 0 ? inverse - value : -value;
        }
    }
}
