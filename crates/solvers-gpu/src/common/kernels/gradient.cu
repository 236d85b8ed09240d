// Gradients of a loss of the solutions of A x = b by the values of A, from the adjoint solutions.

constexpr u32 GRADIENT_WARPS = 8; // warps of a block
constexpr u32 GRADIENT_ITEMS = 4; // items of a warp at a time
constexpr u32 GRADIENT_THREADS = WARP_THREADS * GRADIENT_WARPS;

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

// gradient: out[item*nnz + k] = -sum of lambda[row k] * x[col k], for every item of a batch of one
// pattern.
// - Launch: blocks of GRADIENT_THREADS threads, any grid. In x, the warps of blocks stride over groups of
//   GRADIENT_ITEMS items; in y, blocks stride over the entries of an item.
// - places: row | column << 32 of each of the nnz entries.
// - lambda, x: nrows * nrhs values per item.
// - out: nnz values per item. It overlaps no other argument.
// - Traffic: reads lambda and x once, and the places, mostly from the cache, once for each group;
//   writes out. The reads of a group's items are under way together. No atomics: bitwise repeatable.
template <typename V>
__global__ void __launch_bounds__(GRADIENT_THREADS, 4)
    gradient(u64 nitems, u32 nnz, u32 nrows, u32 nrhs, const u64* __restrict__ places,
             const V* __restrict__ lambda, const V* __restrict__ x, V* __restrict__ out) {
    const u32 lane = threadIdx.x % WARP_THREADS;
    const u64 rows = u64(nrows) * nrhs, step = u64(gridDim.x) * GRADIENT_WARPS * GRADIENT_ITEMS;
    u64 first = (u64(blockIdx.x) * GRADIENT_WARPS + threadIdx.x / WARP_THREADS) * GRADIENT_ITEMS;
    for (; first < nitems; first += step) {
        const V *own_lambda[GRADIENT_ITEMS], *own_x[GRADIENT_ITEMS];
#pragma unroll
        for (u32 i = 0; i < GRADIENT_ITEMS; ++i) {
            const u64 item = minimum(first + i, nitems - 1);
            own_lambda[i] = lambda + item * rows;
            own_x[i] = x + item * rows;
        }
        for (u64 k = u64(blockIdx.y) * WARP_THREADS + lane; k < nnz;
             k += u64(gridDim.y) * WARP_THREADS) {
            const u64 place = load(places + k);
            V sum[GRADIENT_ITEMS];
#pragma unroll
            for (u32 i = 0; i < GRADIENT_ITEMS; ++i) {
                sum[i] = gradient_of(place, nrows, nrhs, own_lambda[i], own_x[i]);
            }
#pragma unroll
            for (u32 i = 0; i < GRADIENT_ITEMS; ++i) {
                if (first + i < nitems) {
                    out[(first + i) * nnz + k] = sum[i];
                }
            }
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
