// Vector operations, and the kernels that measure memory bandwidth.

// axpby: y = alpha*x + beta*y over n values. Threads stride over the vector; any launch shape. Per
// value: reads x and, unless beta is 0, y; writes y. x may be y. No atomics: bitwise repeatable.
template <typename V>
__global__ void axpby(u64 n, V alpha, const V* x, V beta, V* y) {
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        V sum = alpha * x[i];
        if (beta != V(0)) {
            sum += beta * y[i];
        }
        y[i] = sum;
    }
}

// copy: y = x over n values of any type that loads as one. Threads stride over the vector; any
// launch shape. Per value: reads x, writes y. x and y do not overlap.
template <typename V>
__global__ void copy(u64 n, const V* __restrict__ x, V* __restrict__ y) {
    // A thread has four loads under way at once.
    constexpr u32 STREAMS = 4;
    const u64 stride = grid_threads();
    u64 i = grid_thread();
    for (; i + (STREAMS - 1) * stride < n; i += STREAMS * stride) {
        V loaded[STREAMS];
#pragma unroll
        for (u32 s = 0; s < STREAMS; ++s) {
            loaded[s] = load(x + i + s * stride);
        }
#pragma unroll
        for (u32 s = 0; s < STREAMS; ++s) {
            y[i + s * stride] = loaded[s];
        }
    }
    for (; i < n; i += stride) {
        y[i] = x[i];
    }
}

// read_sum: partial[b] = the sum of the values of x that block b reads; x has n values.
// Threads stride over the vector. Per value: reads x. Needs blocks of at most 1024 threads, a
// multiple of 32, and one entry of partial per block. No atomics: bitwise repeatable for one launch
// shape.
template <typename V>
__global__ void read_sum(u64 n, const V* __restrict__ x, V* __restrict__ partial) {
    __shared__ V sums[WARP_THREADS];
    // Eight sums, so that a thread has eight loads under way at once.
    constexpr u32 STREAMS = 8;
    V sum[STREAMS] = {};
    const u64 stride = grid_threads();
    u64 i = grid_thread();
    for (; i + (STREAMS - 1) * stride < n; i += STREAMS * stride) {
#pragma unroll
        for (u32 s = 0; s < STREAMS; ++s) {
            sum[s] += load(x + i + s * stride);
        }
    }
    for (; i < n; i += stride) {
        sum[0] += load(x + i);
    }

    const u32 lane = threadIdx.x % WARP_THREADS;
    const u32 warp = threadIdx.x / WARP_THREADS;
    const V warp_total = warp_sum(((sum[0] + sum[1]) + (sum[2] + sum[3])) +
                                  ((sum[4] + sum[5]) + (sum[6] + sum[7])));
    if (lane == 0) {
        sums[warp] = warp_total;
    }
    __syncthreads();
    if (warp == 0) {
        const V total = warp_sum(lane < blockDim.x / WARP_THREADS ? sums[lane] : V(0));
        if (lane == 0) {
            partial[blockIdx.x] = total;
        }
    }
}
