// CG with one vector that is divided among GPUs: what a GPU does with its elements between the
// products and the sums over all GPUs, which the host forms.
//
// - A block of STEP_THREADS threads takes the elements of one chunk of STEP_CHUNK elements, and the
//   grid has a block for each chunk.
// - Sums: each block writes those of its chunk to `partials`; the block that ends last adds them and
//   writes `sums`. They are in double, and their order is a function of n alone: bitwise repeatable.
// - `ticket` is 0 before and after each launch. `partials` holds 2 numbers for each chunk, `sums` 2.
// - JACOBI: M is diagonal and `m` its elements; else M = I, and `m` is null.
// - No vectors overlap. n is more than 0.

constexpr u32 STEP_THREADS = 256;
constexpr u32 STEP_CHUNK = 8192;
constexpr u32 STEP_WARPS = STEP_THREADS / WARP_THREADS;
constexpr u32 STEP_ROUNDS = STEP_CHUNK / STEP_THREADS;

// Sums over the block, valid in its first thread.
template <u32 COUNT>
__device__ __forceinline__ void block_sums(double (&sums)[COUNT], double* scratch) {
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        sums[i] = sum_of_lanes(sums[i]);
    }
    __syncthreads(); // the preceding sums have been read
    if (threadIdx.x % WARP_THREADS == 0) {
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            scratch[threadIdx.x / WARP_THREADS * COUNT + i] = sums[i];
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < STEP_WARPS; ++warp) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                sums[i] += scratch[warp * COUNT + i];
            }
        }
    }
}

// The sums over all chunks, given those of each thread.
template <u32 COUNT>
__device__ __forceinline__ void sums_of_chunks(double (&own)[COUNT], double* partials, u32* ticket,
                                               double* sums) {
    __shared__ double scratch[STEP_WARPS * COUNT];
    __shared__ u32 is_last;
    block_sums(own, scratch);
    if (threadIdx.x == 0) {
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            partials[u64(blockIdx.x) * COUNT + i] = own[i];
        }
        __threadfence();
        is_last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) {
        return;
    }
    __threadfence();
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        own[i] = 0;
    }
    const volatile double* const written = partials;
#pragma unroll 4
    for (u32 chunk = threadIdx.x; chunk < gridDim.x; chunk += STEP_THREADS) {
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            own[i] += written[u64(chunk) * COUNT + i];
        }
    }
    block_sums(own, scratch);
    if (threadIdx.x == 0) {
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            sums[i] = own[i];
        }
        *ticket = 0;
    }
}

// Calls `work` with each element of the chunk of this block.
template <typename Work>
__device__ __forceinline__ void over_chunk(u64 n, const Work& work) {
    const u64 first = u64(blockIdx.x) * STEP_CHUNK + threadIdx.x;
    if (u64(blockIdx.x + 1) * STEP_CHUNK <= n) {
#pragma unroll 4
        for (u32 round = 0; round < STEP_ROUNDS; ++round) {
            work(first + round * STEP_THREADS);
        }
    } else {
        for (u64 i = first; i < n; i += STEP_THREADS) {
            work(i);
        }
    }
}

template <u32 JACOBI, typename V>
__device__ __forceinline__ V preconditioned(const V* m, u64 i, V value) {
    if constexpr (JACOBI != 0) {
        return m[i] * value;
    } else {
        return value;
    }
}

// cg_curvature: sums[0] = p'w. Per element: reads 2 values.
template <typename V>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    cg_curvature(u64 n, const V* __restrict__ p, const V* __restrict__ w, double* partials,
                 u32* ticket, double* sums) {
    double own[1] = {};
    over_chunk(n, [&](u64 i) { own[0] += double(p[i]) * double(w[i]); });
    sums_of_chunks(own, partials, ticket, sums);
}

// cg_advance: x += alpha p, r -= alpha w; sums = r'r, r'M r. Per element: reads 4 values and that
// of M, writes 2.
template <typename V, u32 JACOBI>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    cg_advance(u64 n, V alpha, const V* __restrict__ p, const V* __restrict__ w,
               const V* __restrict__ m, V* __restrict__ x, V* __restrict__ r, double* partials,
               u32* ticket, double* sums) {
    double own[2] = {};
    over_chunk(n, [&](u64 i) {
        x[i] += alpha * p[i];
        const V residual = r[i] - alpha * w[i];
        r[i] = residual;
        own[0] += double(residual) * double(residual);
        own[1] += double(residual) * double(preconditioned<JACOBI>(m, i, residual));
    });
    sums_of_chunks(own, partials, ticket, sums);
}

// cg_squares: sums = r'r, r'M r. Per element: reads r and M.
template <typename V, u32 JACOBI>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    cg_squares(u64 n, const V* __restrict__ m, const V* __restrict__ r, double* partials,
               u32* ticket, double* sums) {
    double own[2] = {};
    over_chunk(n, [&](u64 i) {
        const V residual = r[i];
        own[0] += double(residual) * double(residual);
        own[1] += double(residual) * double(preconditioned<JACOBI>(m, i, residual));
    });
    sums_of_chunks(own, partials, ticket, sums);
}

// cg_direct: p = M r + beta p; p is not read where beta is 0. Per element: reads r, M and p, writes
// p.
template <typename V, u32 JACOBI>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    cg_direct(u64 n, V beta, const V* __restrict__ m, const V* __restrict__ r, V* __restrict__ p) {
    over_chunk(n, [&](u64 i) {
        const V z = preconditioned<JACOBI>(m, i, r[i]);
        p[i] = beta == V(0) ? z : z + beta * p[i];
    });
}
