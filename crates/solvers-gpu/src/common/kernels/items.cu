// Copies of what belongs to some items of a batch: to a packed array, and back.

// pack_items: packed[places[k] + i] = all[firsts[k] + i] for k < count, i < places[k+1] - places[k].
// unpack_items: all[firsts[k] + i] = packed[places[k] + i].
// - Launch: blocks of a multiple of 32 threads, any grid in x. `width` threads copy an item, a power
//   of two, at most 32; groups of them stride over the items.
// - firsts: `count` offsets in `all`, whose elements do not overlap; places: count + 1 offsets in
//   `packed`, ascending from 0. The two arrays do not overlap.
// - Traffic per element: reads it, writes it; 16 B of offsets per item.
// - A thread reads four elements before it writes them, as long as it has four.
template <typename V>
__device__ __forceinline__ void copy_elements(u64 len, u32 width, const V* __restrict__ from,
                                              V* __restrict__ to) {
    constexpr u32 AT_ONCE = 4;
    u64 i = threadIdx.x % width;
    for (; i + (AT_ONCE - 1) * width < len; i += AT_ONCE * width) {
        V values[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            values[k] = load(from + i + k * width);
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            to[i + k * width] = values[k];
        }
    }
    for (; i < len; i += width) {
        to[i] = load(from + i);
    }
}

template <typename V>
__global__ void pack_items(u64 count, u32 width, const u64* __restrict__ firsts,
                           const u64* __restrict__ places, const V* __restrict__ all,
                           V* __restrict__ packed) {
    for (u64 item = grid_thread() / width; item < count; item += grid_threads() / width) {
        const u64 place = load(places + item);
        copy_elements(load(places + item + 1) - place, width, all + load(firsts + item),
                      packed + place);
    }
}

template <typename V>
__global__ void unpack_items(u64 count, u32 width, const u64* __restrict__ firsts,
                             const u64* __restrict__ places, const V* __restrict__ packed,
                             V* __restrict__ all) {
    for (u64 item = grid_thread() / width; item < count; item += grid_threads() / width) {
        const u64 place = load(places + item);
        copy_elements(load(places + item + 1) - place, width, packed + place,
                      all + load(firsts + item));
    }
}

// copy_spans: to[places[k] + i] = from[firsts[k] + i] for k < count, i < lens[k].
// - spans: three words each: firsts[k], places[k], lens[k]; what is written does not overlap. The
//   two arrays do not overlap.
// - Launch and traffic as above.
template <typename V>
__global__ void copy_spans(u64 count, u32 width, const u64* __restrict__ spans,
                           const V* __restrict__ from, V* __restrict__ to) {
    for (u64 span = grid_thread() / width; span < count; span += grid_threads() / width) {
        copy_elements(load(spans + 3 * span + 2), width, from + load(spans + 3 * span),
                      to + load(spans + 3 * span + 1));
    }
}
