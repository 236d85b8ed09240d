// The kept values of transposed matrices, from those of the matrices, for lu_kept.
//
// With P A P' = L U and D the pivots, P A' P' = (U' D^-1) (D L'): the factors of the transposed
// matrix are those of the matrix at other places, divided or multiplied by a pivot. The entries of
// A are copied.

constexpr u32 TRANSPOSE_ITEMS = 8;  // items of a block, a warp each
constexpr u32 TRANSPOSE_THREADS = WARP_THREADS * TRANSPOSE_ITEMS;
constexpr u32 TRANSPOSE_SOURCE = 0xffffff;
constexpr u32 TRANSPOSE_KIND = 24;

// lu_transpose: out[i*out_stride + k] for the `count` values of every item, by words[k]: from bit
// 24 on 0: the kept value; 1: times a pivot; 2: divided by a pivot; 3: -1; 4: 0. Bits 0 to 23:
// where the kept value is in its item.
// - Launch: blocks of TRANSPOSE_THREADS threads, any grid. In x, blocks stride over the items, one
//   warp per item; in y, over the values of an item.
// - pivots[k]: the number of the pivot; the pivots are the first kept values.
// - kept: the values of item i begin at i * stride. out overlaps no other argument.
// - Traffic per value: reads a word and a number, mostly from the cache, the kept value, and a
//   pivot from the first-level cache; writes out. No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(TRANSPOSE_THREADS, 5)
    lu_transpose(u64 nitems, u32 count, const u32* __restrict__ words,
                 const u16* __restrict__ pivots, u64 stride, const V* __restrict__ kept,
                 u64 out_stride, V* __restrict__ out) {
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u64 first = u64(blockIdx.x) * TRANSPOSE_ITEMS + threadIdx.x / WARP_THREADS;
    for (u64 item = first; item < nitems; item += u64(gridDim.x) * TRANSPOSE_ITEMS) {
        const V* const values = kept + item * stride;
        V* const own_out = out + item * out_stride;
        for (u64 k = u64(blockIdx.y) * WARP_THREADS + lane; k < count;
             k += u64(gridDim.y) * WARP_THREADS) {
            const u32 word = load(words + k), kind = word >> TRANSPOSE_KIND;
            V value = kind == 3 ? V(-1) : V(0);
            if (kind < 3) {
                value = load(values + (word & TRANSPOSE_SOURCE));
            }
            if (kind == 1 || kind == 2) {
                const V pivot = load(values + load(pivots + k));
                value = kind == 1 ? value * pivot : value / pivot;
            }
            own_out[k] = value;
        }
    }
}
