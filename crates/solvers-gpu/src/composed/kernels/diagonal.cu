// Inverts the diagonals of all systems, on the device.

constexpr u32 DIAGONAL_THREADS = 256;
constexpr u64 NO_DIAGONAL_ENTRY = ~u64(0);

// invert_diagonal: inverse[i] = 1 / a_ii for the rows i of all systems one after the other, or 1 if
// the entry is 0 or absent. flawed[s] = 1 for the systems s that have such a row, unless `flawed`
// is null.
// - Blocks of DIAGONAL_THREADS threads, a thread per row, striding over all rows. Any grid.
// - System s has the rows firsts[s] to firsts[s + 1], and belongs to item s / nrhs.
// - entries[k]: index of the diagonal entry in row k of the batch (of the pattern, if is_uniform),
//   or NO_DIAGONAL_ENTRY.
// - Values of item i begin at values + i * stride. With stride 0 the indices in `entries` count
//   from the first item.
// - Traffic: per row a search in firsts, mostly in the cache, an entry and a value; writes inverse.
// - Every result is one rounding: bitwise repeatable. inverse and flawed overlap nothing else.
template <typename V>
__global__ void __launch_bounds__(DIAGONAL_THREADS)
    invert_diagonal(u64 rows, u64 nsystems, u32 nrhs, u32 is_uniform,
                    const u64* __restrict__ firsts, const u64* __restrict__ entries, u64 stride,
                    const V* __restrict__ values, V* __restrict__ inverse, u8* flawed) {
    const u64 step = u64(gridDim.x) * DIAGONAL_THREADS;
    for (u64 i = u64(blockIdx.x) * DIAGONAL_THREADS + threadIdx.x; i < rows; i += step) {
        // The last system that begins at row i or before. Earlier systems that begin at i are
        // empty.
        u64 system = 0, end = nsystems;
        while (end - system > 1) {
            const u64 middle = system + (end - system) / 2;
            if (load(firsts + middle) <= i) {
                system = middle;
            } else {
                end = middle;
            }
        }
        const u64 item = system / nrhs;
        const u64 before = is_uniform ? 0 : load(firsts + item * nrhs) / nrhs;
        const u64 entry = load(entries + before + (i - load(firsts + system)));
        const V value = entry == NO_DIAGONAL_ENTRY ? V(0) : load(values + item * stride + entry);
        const bool is_zero = value == V(0);
        inverse[i] = is_zero ? V(1) : V(1) / value;
        if (is_zero && flawed != nullptr) {
            flawed[system] = 1;
        }
    }
}
