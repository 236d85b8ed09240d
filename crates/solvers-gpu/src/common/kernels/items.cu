// Copies of what belongs to some items of a batch: to a packed array, and back.

// pack_items: packed[places[k] + i] = all[firsts[k] + i] for k < count, i < places[k+1] - places[k].
// unpack_items: all[firsts[k] + i] = packed[places[k] + i].
// - Launch: blocks of a multiple of 32 threads, any grid in x. `width` threads copy an item, a power
//   of two, at most 32; groups of them stride over the items.
// - firsts: `count` offsets in `all`, whose elements do not overlap; places: count + 1 offsets in
//   `packed`, ascending from 0. The two arrays do not overlap.
// - Traffic per element: reads it, writes it; 16 B of offsets per item.
template <typename Copy>
__device__ __forceinline__ void for_elements(u64 count, u32 width, const u64* firsts,
                                             const u64* places, Copy copy) {
    for (u64 item = grid_thread() / width; item < count; item += grid_threads() / width) {
        const u64 first = load(firsts + item), place = load(places + item);
        const u64 len = load(places + item + 1) - place;
        for (u64 i = threadIdx.x % width; i < len; i += width) {
            copy(first + i, place + i);
        }
    }
}

template <typename V>
__global__ void pack_items(u64 count, u32 width, const u64* __restrict__ firsts,
                           const u64* __restrict__ places, const V* __restrict__ all,
                           V* __restrict__ packed) {
    for_elements(count, width, firsts, places,
                 [&](u64 from, u64 to) { packed[to] = load(all + from); });
}

template <typename V>
__global__ void unpack_items(u64 count, u32 width, const u64* __restrict__ firsts,
                             const u64* __restrict__ places, const V* __restrict__ packed,
                             V* __restrict__ all) {
    for_elements(count, width, firsts, places,
                 [&](u64 to, u64 from) { all[to] = load(packed + from); });
}

// copy_spans: to[places[k] + i] = from[firsts[k] + i] for k < count, i < lens[k].
// - spans: three words each: firsts[k], places[k], lens[k]; what is written does not overlap. The
//   two arrays do not overlap.
// - Launch and traffic as above.
template <typename V>
__global__ void copy_spans(u64 count, u32 width, const u64* __restrict__ spans,
                           const V* __restrict__ from, V* __restrict__ to) {
    for (u64 span = grid_thread() / width; span < count; span += grid_threads() / width) {
        const u64 first = load(spans + 3 * span), place = load(spans + 3 * span + 1);
        const u64 len = load(spans + 3 * span + 2);
        for (u64 i = threadIdx.x % width; i < len; i += width) {
            to[place + i] = load(from + first + i);
        }
    }
}
