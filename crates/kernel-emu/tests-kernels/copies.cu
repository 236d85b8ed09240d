// Asynchronous copies. WAIT = false leaves the wait out, which must be seen.

// Two stages of cp.async: tile k + 1 travels while tile k is summed.
template <bool WAIT> __global__ void demo_cp_async(u32 tiles, const double* __restrict__ x, double* __restrict__ y) {
    __shared__ double stage[2][64];
    const u32 t = threadIdx.x; // 32 threads, two values of each tile by each
    cp_async_16(&stage[0][2 * t], x + 2 * t);
    cp_async_commit();
    double sum = 0;
    for (u32 k = 0; k < tiles; k++) {
        if (k + 1 < tiles) cp_async_16(&stage[(k + 1) % 2][2 * t], x + 64 * (k + 1) + 2 * t);
        cp_async_commit();
        if (WAIT) cp_async_wait<1>();
        __syncthreads();
        // Values that another thread has fetched.
        sum += stage[k % 2][63 - 2 * t] - stage[k % 2][62 - 2 * t];
        __syncthreads();
    }
    y[t] = sum;
}

// Bulk copies with one mbarrier per stage.
template <bool WAIT> __global__ void demo_bulk(u32 tiles, const double* __restrict__ x, double* __restrict__ y) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ u64 arrived[2];
    double* stage = reinterpret_cast<double*>(raw);
    const u32 t = threadIdx.x;
    if (t == 0) {
        mbarrier_init(&arrived[0], 1);
        mbarrier_init(&arrived[1], 1);
    }
    __syncthreads();
    if (t == 0) {
        mbarrier_arrive_expect_tx(&arrived[0], 64 * sizeof(double));
        bulk_copy(stage, x, 64 * sizeof(double), &arrived[0]);
    }
    double sum = 0;
    for (u32 k = 0; k < tiles; k++) {
        if (t == 0 && k + 1 < tiles) {
            const u32 next = (k + 1) % 2;
            mbarrier_arrive_expect_tx(&arrived[next], 64 * sizeof(double));
            bulk_copy(stage + 64 * next, x + 64 * (k + 1), 64 * sizeof(double), &arrived[next]);
        }
        if (WAIT) mbarrier_wait_parity(&arrived[k % 2], k / 2 % 2);
        sum += stage[64 * (k % 2) + 63 - t] - stage[64 * (k % 2) + t];
        __syncthreads();
    }
    y[t] = sum;
}

// Waits for more bytes than are copied.
__global__ void faulty_expected_bytes(const double* x, double* y) {
    __shared__ __align__(16) double stage[4];
    __shared__ u64 arrived;
    if (threadIdx.x == 0) {
        mbarrier_init(&arrived, 1);
        mbarrier_arrive_expect_tx(&arrived, 32);
        bulk_copy(stage, x, 16, &arrived);
    }
    __syncthreads();
    mbarrier_wait_parity(&arrived, 0);
    y[threadIdx.x] = stage[threadIdx.x % 4];
}

__global__ void faulty_misaligned_copy(const double* x, double* y) {
    __shared__ double stage[4];
    cp_async_16(stage, x + 1);
    cp_async_wait_all();
    y[0] = stage[0];
}

__global__ void faulty_uninitialised_mbarrier() {
    __shared__ u64 arrived;
    mbarrier_wait_parity(&arrived, 0);
}
