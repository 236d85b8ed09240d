// The elements of x that GPUs exchange for a product with a matrix whose rows are divided among
// them, and the rows that have entries in columns of other GPUs.
//
// Threads stride over the elements, in any launch shape. No atomics: bitwise repeatable.

// halo_pack: packed[i] = x[places[i]] for n elements. Places are below the length of x. `packed` has
// the bytes of n values and is aligned for them. Per element: reads 4 B and a value, writes a value.
template <typename V>
__global__ void halo_pack(u64 n, const u32* __restrict__ places, const V* x, u8* packed) {
    V* const to = reinterpret_cast<V*>(packed);
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        to[i] = x[load(places + i)];
    }
}

// halo_unpack: halo[i] = received[i] for n elements. `received` has the bytes of n values and is
// aligned for them. Per element: reads and writes a value.
template <typename V>
__global__ void halo_unpack(u64 n, const u8* received, V* halo) {
    const V* const from = reinterpret_cast<const V*>(received);
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        halo[i] = from[i];
    }
}

// halo_add: y[rows[i]] += sums[i] for n rows, which differ and are below the length of y. Per row:
// reads 4 B and two values, writes one.
template <typename V>
__global__ void halo_add(u64 n, const u32* __restrict__ rows, const V* sums, V* y) {
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        y[load(rows + i)] += sums[i];
    }
}
