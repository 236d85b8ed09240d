// Gradients of a loss of the solutions of A x = b by the values of A, from the adjoint solutions.

constexpr u32 GRADIENT_ITEMS = 8;  // items of a block, a warp each
constexpr u32 GRADIENT_THREADS = WARP_THREADS * GRADIENT_ITEMS;

// -sum over right-hand sides of lambda[row] * x[col], of one item's vectors, `nrows` each.
template <typename V>
__device__ __forceinline__ V gradient_of(u64 place, u32 nrows, u32 nrhs, const V* lambda,
                                         const V* x) {
    const u32 row = u32(place), col = u32(place >> 32);
    V sum = V(0);
    for (u32 rhs = 0; rhs < nrhs; ++rhs) {
        sum -= load(lambda + u64(rhs) * nrows + row) * load(x + u64(rhs) * nrows + col);
    }
    return sum;
}

// Copies `count` values of lambda, then of x, to shared memory.
template <typename V>
__device__ __forceinline__ void stage_vectors(u32 count, const V* __restrict__ lambda,
                                              const V* __restrict__ x, V* staged) {
#pragma unroll 4
    for (u32 i = threadIdx.x; i < count; i += GRADIENT_THREADS) {
        staged[i] = load(lambda + i);
        staged[count + i] = load(x + i);
    }
    __syncthreads();
}

// gradient_tiles: out[item*nnz + k] = -sum of lambda[row k] * x[col k], for every item of a batch
// of one pattern, `tile` consecutive items by a block, whose outputs follow one another in memory.
// - Launch: as many blocks of GRADIENT_THREADS threads as there are tiles; shared memory for the
//   vectors of a tile, 2 * tile * nrows * nrhs values.
// - MANY: whether nrhs exceeds 1.
// - places: row | column << 16 of each of the nnz entries, at least one.
// - lambda, x: nrows * nrhs values per item.
// - out: nnz values per item. It overlaps no other argument.
// - Traffic per entry: reads its place, mostly from the cache, lambda and x, from shared memory;
//   writes out. Vectors are read once. No atomics: bitwise repeatable, the bits of `gradient`.
template <typename V, bool MANY>
__global__ void __launch_bounds__(GRADIENT_THREADS)
    gradient_tiles(u64 nitems, u32 tile, u32 nnz, u32 nrows, u32 nrhs,
                   const u32* __restrict__ places, const V* __restrict__ lambda,
                   const V* __restrict__ x, V* __restrict__ out) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    V* const staged = reinterpret_cast<V*>(dynamic_shared);
    const u64 first = u64(blockIdx.x) * tile;
    const u32 items = u32(minimum(u64(tile), nitems - first));
    const u32 rows = nrows * nrhs, count = items * rows;
    stage_vectors(count, lambda + first * rows, x + first * rows, staged);
    V* const own_out = out + first * nnz;
    // The vectors of the thread's entry begin at `at`; the entry of its pattern is k.
    const u32 step = GRADIENT_THREADS % nnz, step_at = GRADIENT_THREADS / nnz * rows;
    u32 k = threadIdx.x % nnz, at = threadIdx.x / nnz * rows;
#pragma unroll 4
    for (u32 entry = threadIdx.x; entry < items * nnz; entry += GRADIENT_THREADS) {
        const u32 place = load(places + k);
        const V* const own_lambda = staged + at + (place & 0xffff);
        const V* const own_x = staged + count + at + (place >> 16);
        V sum = V(0);
        for (u32 rhs = 0; rhs < (MANY ? nrhs : 1); ++rhs) {
            sum -= own_lambda[rhs * nrows] * own_x[rhs * nrows];
        }
        own_out[entry] = sum;
        k += step;
        at += step_at;
        if (k >= nnz) {
            k -= nnz;
            at += rows;
        }
    }
}

// gradient_ragged_tiles: out[k] = -lambda[row k] * x[col k], for every entry k of a ragged batch
// with one right-hand side, some consecutive items by a block.
// - Launch: a block of GRADIENT_THREADS threads for each tile; shared memory for the vectors of the
//   largest tile, twice its rows.
// - entries, rows: where the entries and the rows of each tile begin, and their numbers at the end.
// - places: row | column << 16 of each entry, both within its tile.
// - lambda, x: the vectors of item 0, of item 1, ...
// - out: one value for each entry. It overlaps no other argument.
template <typename V>
__global__ void __launch_bounds__(GRADIENT_THREADS)
    gradient_ragged_tiles(const u64* __restrict__ entries, const u64* __restrict__ rows,
                          const u32* __restrict__ places, const V* __restrict__ lambda,
                          const V* __restrict__ x, V* __restrict__ out) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    V* const staged = reinterpret_cast<V*>(dynamic_shared);
    const u64 row = load(rows + blockIdx.x), first = load(entries + blockIdx.x);
    const u32 count = u32(load(rows + blockIdx.x + 1) - row);
    const u32 end = u32(load(entries + blockIdx.x + 1) - first);
    stage_vectors(count, lambda + row, x + row, staged);
#pragma unroll 4
    for (u32 entry = threadIdx.x; entry < end; entry += GRADIENT_THREADS) {
        const u32 place = load(places + first + entry);
        V sum = V(0);
        sum -= staged[place & 0xffff] * staged[count + (place >> 16)];
        out[first + entry] = sum;
    }
}

// gradient: out[item*nnz + k] = -sum of lambda[row k] * x[col k], for every item of a batch of one
// pattern, whose vectors are too large for shared memory, or of few items.
// - Launch: blocks of GRADIENT_THREADS threads, any grid. In x, blocks stride over the items, one
//   warp per item; in y, over the entries of an item.
// - places: row | column << 32 of each of the nnz entries.
// - lambda, x: nrows * nrhs values per item.
// - out: nnz values per item. It overlaps no other argument.
// - Traffic per entry: reads its place, mostly from the cache, lambda and x, from the first-level
//   cache; writes out. No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(GRADIENT_THREADS, 5)
    gradient(u64 nitems, u32 nnz, u32 nrows, u32 nrhs, const u64* __restrict__ places,
             const V* __restrict__ lambda, const V* __restrict__ x, V* __restrict__ out) {
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u64 first = u64(blockIdx.x) * GRADIENT_ITEMS + threadIdx.x / WARP_THREADS;
    const u64 rows = u64(nrows) * nrhs;
    for (u64 item = first; item < nitems; item += u64(gridDim.x) * GRADIENT_ITEMS) {
        const V* const own_lambda = lambda + item * rows;
        const V* const own_x = x + item * rows;
        V* const own_out = out + item * nnz;
        for (u64 k = u64(blockIdx.y) * WARP_THREADS + lane; k < nnz;
             k += u64(gridDim.y) * WARP_THREADS) {
            own_out[k] = gradient_of(load(places + k), nrows, nrhs, own_lambda, own_x);
        }
    }
}

// gradient_ragged: out[k] = -sum of lambda[row k] * x[col k], for every entry k of a ragged batch.
// - Launch: as `gradient`.
// - starts: where the entries of each item begin, and their number at the end; rows: the same of its
//   rows.
// - places: row | column << 32 of each entry, both within its item.
// - lambda, x: the vectors of item 0, of item 1, ..., each of nrhs times the rows of the item.
// - out: one value for each entry. It overlaps no other argument.
template <typename V>
__global__ void __launch_bounds__(GRADIENT_THREADS, 4)
    gradient_ragged(u64 nitems, u32 nrhs, const u64* __restrict__ starts,
                    const u64* __restrict__ rows, const u64* __restrict__ places,
                    const V* __restrict__ lambda, const V* __restrict__ x, V* __restrict__ out) {
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u64 first = u64(blockIdx.x) * GRADIENT_ITEMS + threadIdx.x / WARP_THREADS;
    for (u64 item = first; item < nitems; item += u64(gridDim.x) * GRADIENT_ITEMS) {
        const u64 row = load(rows + item), end = load(starts + item + 1);
        const u32 nrows = u32(load(rows + item + 1) - row);
        for (u64 k = load(starts + item) + u64(blockIdx.y) * WARP_THREADS + lane; k < end;
             k += u64(gridDim.y) * WARP_THREADS) {
            out[k] = gradient_of(load(places + k), nrows, nrhs, lambda + row * nrhs,
                                 x + row * nrhs);
        }
    }
}

// gradient_sums: partial[c*nnz + k] = the gradients by entry k of the items of chunk c, in order:
// `chunk` items, fewer in the last chunk.
// - Launch: any block in x; threads in x stride over the entries, blocks in y over the chunks.
// - Other arguments as those of `gradient`.
template <typename V>
__global__ void gradient_sums(u64 nitems, u32 chunk, u32 nnz, u32 nrows, u32 nrhs,
                              const u64* __restrict__ places, const V* __restrict__ lambda,
                              const V* __restrict__ x, V* __restrict__ partial) {
    const u64 rows = u64(nrows) * nrhs, chunks = (nitems + chunk - 1) / chunk;
    for (u64 c = blockIdx.y; c < chunks; c += gridDim.y) {
        const u64 end = minimum((c + 1) * chunk, nitems);
        for (u64 k = u64(blockIdx.x) * blockDim.x + threadIdx.x; k < nnz;
             k += u64(gridDim.x) * blockDim.x) {
            const u64 place = load(places + k);
            V sum = V(0);
            for (u64 item = c * chunk; item < end; ++item) {
                sum += gradient_of(place, nrows, nrhs, lambda + item * rows, x + item * rows);
            }
            partial[c * nnz + k] = sum;
        }
    }
}

// gradient_total: out[k] = the sum of partial[c*nnz + k] over `chunks` chunks, in order.
// - Launch: any grid and block in x; threads stride over the entries.
template <typename V>
__global__ void gradient_total(u64 chunks, u32 nnz, const V* __restrict__ partial,
                               V* __restrict__ out) {
    for (u64 k = grid_thread(); k < nnz; k += grid_threads()) {
        V sum = V(0);
        for (u64 c = 0; c < chunks; ++c) {
            sum += load(partial + c * nnz + k);
        }
        out[k] = sum;
    }
}
