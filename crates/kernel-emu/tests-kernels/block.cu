// Kernels around shared memory, barriers and atomics.

// One sum per block: warps first, then the first warp over the sums of the warps.
template <typename V, int BLOCK>
__global__ void demo_block_sum(u32 n, const V* __restrict__ x, V* __restrict__ sums) {
    __shared__ V warp_sums[BLOCK / 32];
    V sum = 0;
    for (u32 i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) sum += x[i];
    sum = group_sum<32>(sum);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < BLOCK / 32 ? warp_sums[threadIdx.x] : V(0);
        sum = group_sum<32>(sum);
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}

// Counts per block in dynamic shared memory, added to the counts of the grid.
__global__ void demo_histogram(u32 n, u32 nbins, const u32* __restrict__ keys, u32* __restrict__ counts) {
    extern __shared__ u32 block_counts[];
    for (u32 bin = threadIdx.x; bin < nbins; bin += blockDim.x) block_counts[bin] = 0;
    __syncthreads();
    const u32 per_block = ceil_div(n, gridDim.x);
    const u32 end = min((blockIdx.x + 1) * per_block, n);
    for (u32 i = blockIdx.x * per_block + threadIdx.x; i < end; i += blockDim.x) {
        atomicAdd(&block_counts[keys[i]], 1);
    }
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < nbins; bin += blockDim.x) {
        atomicAdd(counts + bin, block_counts[bin]);
    }
}

// Reverses tiles of BLOCK elements; static and dynamic shared memory of two element types.
template <typename V, int BLOCK> __global__ void demo_reverse_tiles(const V* __restrict__ x, V* __restrict__ y) {
    __shared__ V tile[2][BLOCK / 2], *where;
    extern __shared__ __align__(16) unsigned char raw[];
    u32* places = reinterpret_cast<u32*>(raw);
    const u32 t = threadIdx.x;
    if (t == 0) where = y + blockIdx.x * BLOCK;
    tile[t / (BLOCK / 2)][t % (BLOCK / 2)] = x[blockIdx.x * BLOCK + t];
    places[t] = BLOCK - 1 - t;
    __syncthreads();
    const u32 from = places[BLOCK - 1 - (BLOCK - 1 - t)];
    where[t] = tile[from / (BLOCK / 2)][from % (BLOCK / 2)];
}

struct Plan {
    unsigned char kind;
    double scale;
    u32 offset;
};

// A struct by value, and all three indices of a thread.
__global__ void demo_by_value(Plan plan, double* out) {
    const u32 thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    out[block * threads + thread] = plan.scale * (thread + 1000.0 * block) + plan.offset + plan.kind;
}

// Each thread takes a ticket; the last block to finish sums up what all have left.
__global__ void demo_last_block(const double* x, double* partial, u32* tickets, double* total) {
    __shared__ bool is_last;
    const double sum = group_sum<32>(x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        is_last = atomicAdd(tickets, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last) {
        double all = 0;
        for (u32 b = threadIdx.x; b < gridDim.x; b += 32) all += partial[b];
        all = group_sum<32>(all);
        if (threadIdx.x == 0) *total = all;
    }
}

// Results of every vote, match and reduction, one row of 16 words per thread.
__global__ void demo_votes(const int* values, u32* out) {
    const u32 t = threadIdx.x;
    const u32 lane = t % 32;
    const int v = values[t];
    u32* row = out + 24 * t;
    row[0] = __ballot_sync(full_warp, v > 0);
    row[1] = __any_sync(full_warp, v == 7);
    row[2] = __all_sync(full_warp, v > -100);
    row[3] = __match_any_sync(full_warp, v);
    int all_same = -1;
    row[4] = __match_all_sync(full_warp, v, &all_same);
    row[5] = all_same;
    row[6] = __reduce_add_sync(full_warp, v);
    row[7] = __reduce_min_sync(full_warp, v);
    row[8] = __reduce_max_sync(full_warp, static_cast<u32>(v));
    row[9] = __shfl_sync(full_warp, v, 5, 8);
    row[10] = __shfl_up_sync(full_warp, v, 3, 16);
    row[11] = __shfl_xor_sync(full_warp, v, 9);
    // Halves of a warp on different paths, with different numbers of operations.
    u32 sum = 0;
    if (lane < 16) {
        for (int k = 0; k < 3; k++) sum += __reduce_add_sync(0x0000ffffu, lane);
    } else {
        sum = __reduce_add_sync(0xffff0000u, lane);
    }
    row[12] = sum;
    __syncwarp();
    row[13] = __syncthreads_count(v > 0);
    row[14] = __syncthreads_or(v == 7);
    row[15] = __syncthreads_and(v > 0);
    row[16] = __reduce_max_sync(full_warp, v);
    row[17] = __reduce_min_sync(full_warp, static_cast<u32>(v));
    row[18] = __popc(__activemask());
    row[19] = __ffs(v);
    row[20] = __clz(v);
    const double wide = __shfl_xor_sync(full_warp, static_cast<double>(v), 9);
    row[21] = static_cast<int>(wide);
    row[22] = __reduce_and_sync(full_warp, static_cast<u32>(v)) ^ __reduce_or_sync(full_warp, static_cast<u32>(v));
    row[23] = __shfl_down_sync(full_warp, v, 3, 16);
}

// The atomic functions on one word each.
__global__ void demo_atomics(int* i, u32* u, u64* w, float* f, double* d) {
    const u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(i + 0, -2);
    atomicMax(i + 1, static_cast<int>(t));
    atomicMin(i + 2, -static_cast<int>(t));
    atomicAdd(u + 0, 3);
    atomicOr(u + 1, 1u << (t % 32));
    atomicAnd(u + 2, ~(1u << (t % 32)));
    atomicExch(u + 3, 9u);
    atomicAdd(w + 0, 1ull << 33);
    atomicMax(w + 1, t);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    // A lock-free maximum from compare-and-swap.
    u64 old = atomicAdd(w + 2, 0);
    while (old < t) {
        const u64 seen = atomicCAS(w + 2, old, t);
        if (seen == old) break;
        old = seen;
    }
}

// A lock that a thread holds while others spin.
__global__ void demo_lock(u32* lock, u32* counter) {
    while (atomicCAS(lock, 0u, 1u) != 0) __nanosleep(20);
    __threadfence();
    const u32 now = *counter;
    __threadfence();
    *counter = now + 1;
    __threadfence();
    atomicExch(lock, 0u);
}

// Vectors, and memory of the whole permitted size.
__global__ void demo_vectors(const double2* x, float4* y) {
    extern __shared__ __align__(16) unsigned char raw[];
    float4* last = reinterpret_cast<float4*>(raw + 232448 - 64);
    const double2 v = __ldcs(x + threadIdx.x);
    last[threadIdx.x] = make_float4(v.x, v.y, fma(v.x, v.y, 1.0), min(1, 2u));
    __syncthreads();
    __stcs(y + threadIdx.x, last[3 - threadIdx.x]);
}

// The order in which threads come to an atomic.
__global__ void demo_order(u32 rounds, u32* next, u32* threads) {
    for (u32 round = 0; round < rounds; round++) threads[atomicAdd(next, 1)] = threadIdx.x;
}
