// Copies of some items of a batch: to the beginning of an array, and back.

// gather_items: packed[k*len + i] = all[items[k]*len + i] for k < count, i < len.
// scatter_items: all[items[k]*len + i] = packed[k*len + i].
// - Launch: any grid and block in x. Threads stride over the count*len values.
// - items: indices of the items, all different; all has len values for each item.
// - packed: count*len values. The arrays do not overlap.
// - Traffic per value: reads the item's index, mostly from the cache, and the value; writes it.
template <typename V>
__global__ void gather_items(u64 count, u64 len, const u32* __restrict__ items,
                             const V* __restrict__ all, V* __restrict__ packed) {
    for (u64 at = grid_thread(); at < count * len; at += grid_threads()) {
        packed[at] = load(all + load(items + at / len) * len + at % len);
    }
}

template <typename V>
__global__ void scatter_items(u64 count, u64 len, const u32* __restrict__ items,
                              const V* __restrict__ packed, V* __restrict__ all) {
    for (u64 at = grid_thread(); at < count * len; at += grid_threads()) {
        all[load(items + at / len) * len + at % len] = load(packed + at);
    }
}
