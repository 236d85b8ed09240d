// Compiled in front of every kernel source. No headers: a source without them compiles about
// 40 times faster, and an emulation on the CPU needs none.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

constexpr u32 WARP_THREADS = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

// A value that no thread writes while the kernel runs, through the read-only cache.
template <typename T>
__device__ __forceinline__ T load(const T* address) {
    return __ldg(address);
}

template <typename T>
__device__ __forceinline__ T minimum(T a, T b) {
    return b < a ? b : a;
}

template <typename T>
__device__ __forceinline__ T maximum(T a, T b) {
    return a < b ? b : a;
}

// The sum over each group of WIDTH lanes, right in the first lane of the group. The order of the
// additions depends on WIDTH alone. All 32 lanes of the warp must take part.
template <u32 WIDTH = WARP_THREADS, typename V>
__device__ __forceinline__ V warp_sum(V value) {
    static_assert(WIDTH >= 1 && WIDTH <= 32 && (WIDTH & (WIDTH - 1)) == 0, "a power of two");
#pragma unroll
    for (u32 offset = WIDTH / 2; offset > 0; offset /= 2) {
        value += __shfl_down_sync(ALL_LANES, value, offset, WIDTH);
    }
    return value;
}

// The number of this thread in a one-dimensional grid, and the number of threads of that grid.
__device__ __forceinline__ u64 grid_thread() {
    return u64(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ u64 grid_threads() {
    return u64(gridDim.x) * blockDim.x;
}

// alpha*sum + beta*y for one row. beta == 0 does not read y.
template <typename V>
__device__ __forceinline__ V scaled_row(V alpha, V sum, V beta, const V* y) {
    return beta == V(0) ? alpha * sum : alpha * sum + beta * *y;
}

// The inclusive sums over runs of equal keys; keys do not decrease over the lanes. A lane only adds
// values of its own key, in an order that depends on the keys alone. All 32 lanes must take part.
template <typename V>
__device__ __forceinline__ V segmented_scan(i32 key, V value) {
    const u32 lane = threadIdx.x % WARP_THREADS;
#pragma unroll
    for (u32 offset = 1; offset < WARP_THREADS; offset *= 2) {
        const V other = __shfl_up_sync(ALL_LANES, value, offset);
        const i32 other_key = __shfl_up_sync(ALL_LANES, key, offset);
        if (lane >= offset && other_key == key) {
            value += other;
        }
    }
    return value;
}

// Bulk copies into shared memory, and the barriers that tell of their arrival (sm_90 and newer).
// An emulation brings its own.
#if !defined(SPARSEBATCH_EMU) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return u32(__cvta_generic_to_shared(pointer));
}

// A barrier whose phases complete after `count` arrivals and all bytes expected.
__device__ __forceinline__ void mbarrier_init(u64* barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count)
                 : "memory");
}

// Makes initialised barriers known to copies.
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity is complete.
__device__ __forceinline__ void mbarrier_wait_parity(u64* barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Copies bytes, a multiple of 16, between addresses that are multiples of 16.
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, u32 bytes,
                                          u64* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

#endif
