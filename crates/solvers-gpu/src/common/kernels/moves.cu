// Copies that change the order of values.

constexpr u32 TILE = WARP_THREADS;        // rows and columns of a tile
constexpr u32 MOVE_THREADS = TILE * 8;
constexpr u32 MOVED = 4 * MOVE_THREADS;    // values of a run

// permute: to[item*len + k] = from[item*len + source[k]] for item < nitems, k < len.
// - Launch: blocks of MOVE_THREADS threads, any grid in x. Blocks stride over runs of MOVED values,
//   which they write in the order of memory.
// - source: indices below len >= 1. `from` and `to` do not overlap.
// - Traffic per value: reads its index, mostly from the cache, and the value; writes it.
template <typename V>
__global__ void __launch_bounds__(MOVE_THREADS)
    permute(u64 nitems, u64 len, const u32* __restrict__ source, const V* __restrict__ from,
            V* __restrict__ to) {
    const u64 total = nitems * len;
    // From a value of a thread to its next one, in whole items and within an item.
    const u64 step = MOVE_THREADS % len, step_items = MOVE_THREADS / len * len;
    for (u64 run = u64(blockIdx.x) * MOVED; run < total; run += u64(gridDim.x) * MOVED) {
        u64 item = (run + threadIdx.x) / len * len, k = run + threadIdx.x - item;
        V values[MOVED / MOVE_THREADS];
#pragma unroll
        for (u32 i = 0; i < MOVED / MOVE_THREADS; ++i) {
            if (run + i * MOVE_THREADS + threadIdx.x < total) {
                values[i] = load(from + item + load(source + k));
            }
            k += step;
            item += step_items;
            if (k >= len) {
                k -= len;
                item += len;
            }
        }
#pragma unroll
        for (u32 i = 0; i < MOVED / MOVE_THREADS; ++i) {
            const u64 at = run + i * MOVE_THREADS + threadIdx.x;
            if (at < total) {
                to[at] = values[i];
            }
        }
    }
}

// turn: to[c*rows + r] = from[source[r]*columns + c] for r < rows, c < columns, by tiles in shared
// memory, so that reads and writes are of neighbouring values.
// - Launch: blocks of MOVE_THREADS threads, any grid in x. Blocks stride over the tiles, first in
//   the direction that has fewer: parts of a cache line that belong to two tiles are read and
//   written within a short time.
// - source: null (then source[r] is r), or indices below `rows`. `from` and `to` do not overlap.
// - Traffic per value: reads it, writes it.
template <typename V>
__global__ void __launch_bounds__(MOVE_THREADS)
    turn(u64 rows, u64 columns, const u32* __restrict__ source, const V* __restrict__ from,
         V* __restrict__ to) {
    // A column more than there are: threads that read a column are in different banks.
    __shared__ V tile[TILE][TILE + 1];
    const u32 lane = threadIdx.x % TILE, first = threadIdx.x / TILE;
    const u64 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    for (u64 number = blockIdx.x; number < across * down; number += gridDim.x) {
        const u64 row = (down < across ? number % down : number / across) * TILE;
        const u64 column = (down < across ? number / down : number % across) * TILE;
        for (u32 i = first; i < TILE; i += MOVE_THREADS / TILE) {
            if (row + i < rows && column + lane < columns) {
                const u64 own = source == nullptr ? row + i : load(source + row + i);
                tile[i][lane] = load(from + own * columns + column + lane);
            }
        }
        __syncthreads();
        for (u32 i = first; i < TILE; i += MOVE_THREADS / TILE) {
            if (column + i < columns && row + lane < rows) {
                to[(column + i) * rows + row + lane] = tile[lane][i];
            }
        }
        __syncthreads();
    }
}
