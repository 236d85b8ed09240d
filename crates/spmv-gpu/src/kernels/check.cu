// Whether index arrays that come from elsewhere are what products ask for.

constexpr u32 BLOCK_THREADS = 256;
constexpr u32 PATTERN_WORDS = 4;

// csr_check: whether CSR patterns hold what all CSR kernels ask of them: row pointers begin at 0,
// never decrease and end at the number of entries; columns are in 0..ncols and ascend strictly in
// each row. Nothing is read outside of the arrays, whatever they hold.
//
// - Blocks stride over the patterns in x, their warps over the rows in y; a warp a row. Any grid,
//   blocks of at most BLOCK_THREADS threads, a multiple of 32.
// - `patterns` holds PATTERN_WORDS words a pattern: its first row pointer, its first column, rows |
//   columns << 32, entries. There are at most 2^31 patterns; rows, columns and entries are below
//   2^31; from its firsts on, a pattern has rows + 1 row pointers and a column an entry.
// - `fault` becomes the least of its value and, for each row that is wrong, pattern << 33 | row << 1
//   | 0 for its pointers or 1 for its columns. Atomic, but the same whatever the order.
// - Traffic: per row two row pointers, per entry 4 B column.
__global__ void __launch_bounds__(BLOCK_THREADS)
    csr_check(u64 npatterns, const u64* __restrict__ patterns, const i32* __restrict__ row_ptr,
              const i32* __restrict__ col_idx, u64* __restrict__ fault) {
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u32 warps = blockDim.x / WARP_THREADS;
    const u32 first_row = blockIdx.y * warps + threadIdx.x / WARP_THREADS;
    for (u64 number = blockIdx.x; number < npatterns; number += gridDim.x) {
        const u64* const words = patterns + number * PATTERN_WORDS;
        const i32* const pointers = row_ptr + load(words);
        const i32* const columns = col_idx + load(words + 1);
        const u64 shape = load(words + 2);
        const u32 nrows = u32(shape);
        const i32 ncols = i32(shape >> 32);
        const u32 nnz = u32(load(words + 3));
        if (nrows == 0 && first_row == 0 && lane == 0 && (load(pointers) != 0 || nnz != 0)) {
            atomicMin(fault, number << 33);
        }
        for (u32 row = first_row; row < nrows; row += gridDim.y * warps) {
            const u64 place = number << 33 | u64(row) << 1;
            const i32 begin = load(pointers + row);
            const i32 end = load(pointers + row + 1);
            const bool first = row != 0 || begin == 0;
            const bool last = row + 1 != nrows || u32(end) == nnz;
            if (!first || !last || begin < 0 || end < begin || u32(end) > nnz) {
                if (lane == 0) {
                    atomicMin(fault, place);
                }
                continue;
            }
            bool ascending = true;
            for (u32 k = u32(begin) + lane; k < u32(end); k += WARP_THREADS) {
                const i32 column = load(columns + k);
                const i32 before = k == u32(begin) ? -1 : load(columns + k - 1);
                ascending = ascending && column > before && column < ncols;
            }
            if (!ascending) {
                atomicMin(fault, place | 1);
            }
        }
    }
}
