// One fault each. tests/faults.rs says how each must show.

// No barrier between the writes and the reads of other threads' elements.
__global__ void faulty_missing_barrier(const double* x, double* y) {
    __shared__ double tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[63 - threadIdx.x];
}

// The same within a warp: __syncwarp is missing.
__global__ void faulty_missing_syncwarp(const double* x, double* y) {
    __shared__ double tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[(threadIdx.x + 1) % 32];
}

// Half of the mask's lanes never arrive.
__global__ void faulty_divergent_shuffle(double* y) {
    double v = threadIdx.x;
    if (threadIdx.x < 16) v += __shfl_xor_sync(full_warp, v, 1);
    __syncthreads();
    y[threadIdx.x] = v;
}

__global__ void faulty_partial_barrier(double* y) {
    if (threadIdx.x < 40) __syncthreads();
    y[threadIdx.x] = 1;
}

// All threads reach a barrier, but not the same one.
__global__ void faulty_two_barriers(double* y) {
    if (threadIdx.x < 32) {
        y[threadIdx.x] = 1;
        __syncthreads();
    } else {
        y[threadIdx.x] = 2;
        __syncthreads();
    }
}

__global__ void faulty_exited_lane(double* y) {
    if (threadIdx.x == 5) return;
    y[threadIdx.x] = __shfl_down_sync(full_warp, 1.0, 1);
}

__global__ void faulty_outside_mask(double* y) {
    y[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0, 0);
}

__global__ void faulty_unequal_masks(double* y) {
    const u32 mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff8000u;
    y[threadIdx.x] = __shfl_sync(mask, 1.0, 31);
}

__global__ void faulty_different_intrinsics(double* y) {
    if (threadIdx.x % 2 == 0) {
        y[threadIdx.x] = __ballot_sync(full_warp, 1);
    } else {
        y[threadIdx.x] = __any_sync(full_warp, 1);
    }
}

__global__ void faulty_shuffle_from_outside(double* y) {
    if (threadIdx.x < 8) y[threadIdx.x] = __shfl_sync(0x000000ffu, 1.0, 8);
}

__global__ void faulty_dynamic_bounds(u32 index) {
    extern __shared__ double dynamic[];
    dynamic[index] = 1;
}

// The index is hidden from the compiler's own check of fixed-size arrays.
__global__ void faulty_static_bounds(u32 index) {
    __shared__ double values[6];
    double* all = values;
    all[index] = 1;
}

__global__ void faulty_array_bounds(u32 index, double* y) {
    __shared__ double values[6];
    values[index] = 1;
    y[0] = values[0];
}

__global__ void faulty_misaligned(const double* x, double* y) {
    const double2* pair = reinterpret_cast<const double2*>(x + threadIdx.x);
    y[threadIdx.x] = pair->x + pair->y;
}

__global__ void faulty_division(u32 n, u32* y) { y[0] = 7 / n; }

__global__ void faulty_endless_wait(u32* flag) {
    while (atomicAdd(flag, 0) == 0) __nanosleep(100);
}

__global__ void faulty_endless_atomic(u32* flag) {
    while (atomicAdd(flag, 0) == 0) {
    }
}

__global__ void faulty_uninitialised_shared(double* y) {
    __shared__ double values[32];
    if (threadIdx.x > 0) values[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = values[threadIdx.x];
}

__global__ void faulty_global_bounds(u32 index, double* y) { y[index] = 1; }

__global__ void faulty_assertion(u32 n) { assert(n < 4); }

// Updates that other threads' updates overwrite.
__global__ void faulty_no_atomic(u32* counter) {
    const u32 now = *counter;
    __threadfence();
    *counter = now + 1;
}

// The barrier at the end of the loop is missing: a fast thread overwrites what a slow one reads.
__global__ void faulty_reused_tile(u32 rounds, const double* x, double* y) {
    __shared__ double tile[64];
    const u32 t = threadIdx.x;
    double sum = 0;
    for (u32 k = 0; k < rounds; k++) {
        tile[t] = x[t] + k;
        __syncthreads();
        sum += tile[63 - t];
    }
    y[t] = sum;
}

__global__ void faulty_shift(u32 n, u32* y) { y[0] = 1u << n; }

__global__ void faulty_copy_to_global(const double* x, double* y) {
    cp_async_16(y, x);
    cp_async_wait_all();
}

// Static and dynamic shared memory fit alone, not together.
__global__ void faulty_too_much_shared(double* y) {
    __shared__ double values[20000];
    values[threadIdx.x] = 1;
    y[threadIdx.x] = values[threadIdx.x];
}
