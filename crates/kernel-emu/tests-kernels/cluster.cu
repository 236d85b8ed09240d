// Blocks of a cluster that reach each other's shared memory, rightly and with one fault each.

// Each block adds its threads' values, each thread those sums of all blocks: one number a block in
// static, one a thread in dynamic shared memory, again and again in the same places.
template <u32 CLUSTER, u32 BLOCK>
__global__ void demo_cluster_sum(u32 rounds, const double* x, double* sums) {
    extern __shared__ double values[];
    __shared__ double of_block;
    const u32 at = blockIdx.x * BLOCK + threadIdx.x;
    double sum = 0;
    for (u32 round = 0; round < rounds; ++round) {
        values[threadIdx.x] = x[at] + round;
        __syncthreads();
        if (threadIdx.x == 0) {
            of_block = 0;
            for (u32 t = 0; t < BLOCK; ++t) of_block += values[t];
        }
        cluster_sync();
        sum = 0;
        for (u32 rank = 0; rank < CLUSTER; ++rank) sum += *in_block_of_cluster(&of_block, rank);
        // The same place of the next block, and that block's number.
        const u32 next = (cluster_rank() + 1) % CLUSTER;
        sum += in_block_of_cluster(values, next)[threadIdx.x];
        cluster_sync();
    }
    sums[at] = sum;
}

// Each block writes to the next one's shared memory, and adds to the first one's.
__global__ void demo_cluster_writes(u32 cluster, u32* received, u32* counted) {
    __shared__ u32 from[32];
    __shared__ u32 count;
    if (threadIdx.x == 0) count = 0;
    cluster_sync();
    in_block_of_cluster(from, (cluster_rank() + 1) % cluster)[threadIdx.x] =
        100 * cluster_rank() + threadIdx.x;
    atomicAdd(in_block_of_cluster(&count, 0), 1);
    cluster_sync();
    received[blockIdx.x * blockDim.x + threadIdx.x] = from[threadIdx.x];
    if (cluster_rank() == 0 && threadIdx.x == 0) counted[blockIdx.x / cluster] = count;
}

// The sum over the cluster without the barrier before others' values are read (1), before they are
// written again (2), before the block ends (3); or right (0).
__global__ void faulty_cluster_sync(u32 fault, u32 cluster, const double* x, double* y) {
    __shared__ double value;
    const u32 leader = threadIdx.x == 0;
    double sum = 0;
    for (u32 round = 0; round < 2; ++round) {
        if (leader) value = x[blockIdx.x] + round;
        if (fault != 1) cluster_sync();
        for (u32 rank = 0; leader && rank < cluster; ++rank) {
            sum += *in_block_of_cluster(&value, rank);
        }
        if (fault != 2 && round == 0) cluster_sync();
    }
    if (leader) y[blockIdx.x] = sum;
    if (fault != 3) cluster_sync();
}

// Writes to a block that may not have begun.
__global__ void faulty_early_write(double* y) {
    __shared__ double value;
    if (threadIdx.x == 0) *in_block_of_cluster(&value, cluster_rank() ^ 1) = cluster_rank();
    cluster_sync();
    if (threadIdx.x == 0) y[blockIdx.x] = value;
}

// Writes to a block that may have ended.
__global__ void faulty_late_write() {
    __shared__ double value;
    value = 0;
    cluster_sync();
    *in_block_of_cluster(&value, 0) = 1;
}

__global__ void faulty_partial_cluster() {
    if (cluster_rank() == 0) cluster_sync();
}

__global__ void faulty_partial_block_of_cluster() {
    if (threadIdx.x < 32) {
        cluster_sync();
    } else {
        __syncthreads();
    }
}

__global__ void faulty_two_cluster_barriers() {
    if (cluster_rank() == 0) {
        cluster_sync();
    } else {
        cluster_sync();
    }
}

__global__ void faulty_rank() {
    __shared__ double value;
    *in_block_of_cluster(&value, 2) = 1;
}

__global__ void faulty_not_shared(double* y) { *in_block_of_cluster(y, 1) = 1; }

__global__ void faulty_bounds_in_cluster(u32 index) {
    extern __shared__ double dynamic[];
    if (cluster_rank() == 1) dynamic[index] = 1;
}
