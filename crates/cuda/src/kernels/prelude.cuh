// Compiled in front of every kernel source. No headers: a source without them compiles about
// 40 times faster, and an emulation on the CPU needs none.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

constexpr u32 WARP_THREADS = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

// `Type` is A if FIRST, else B.
template <bool FIRST, typename A, typename B>
struct Select {
    using Type = A;
};

template <typename A, typename B>
struct Select<false, A, B> {
    using Type = B;
};

// Loads a value that no thread writes while the kernel runs, through the read-only cache.
template <typename T>
__device__ __forceinline__ T load(const T* address) {
    return __ldg(address);
}

// As load, with the hint to leave no copy in the L1 cache: for data that is read once, a whole line
// at a time, beside data that is gathered through that cache.
#if defined(SPARSEBATCH_EMU)
template <typename T>
__device__ __forceinline__ T load_once(const T* address) {
    return *address;
}
#else
__device__ __forceinline__ i32 load_once(const i32* address) {
    i32 value;
    asm volatile("ld.global.nc.L1::no_allocate.s32 %0, [%1];" : "=r"(value) : "l"(address));
    return value;
}
__device__ __forceinline__ float load_once(const float* address) {
    float value;
    asm volatile("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(value) : "l"(address));
    return value;
}
__device__ __forceinline__ double load_once(const double* address) {
    double value;
    asm volatile("ld.global.nc.L1::no_allocate.f64 %0, [%1];" : "=d"(value) : "l"(address));
    return value;
}
#endif

// Returns the pointer, opaque to the compiler: accesses at constant offsets from it use it as the
// base address, and not sums shared with accesses through other pointers.
template <typename T>
__device__ __forceinline__ T* apart(T* pointer) {
#if !defined(SPARSEBATCH_EMU)
    asm volatile("" : "+l"(pointer));
#endif
    return pointer;
}

template <typename T>
__device__ __forceinline__ T minimum(T a, T b) {
    return b < a ? b : a;
}

template <typename T>
__device__ __forceinline__ T maximum(T a, T b) {
    return a < b ? b : a;
}

// On sm_90 and newer a launch may begin before the preceding launch on the stream has ended. Its
// kernel waits before it touches memory that unfinished launches may write: vectors, and its own
// sums in memory. What a product reads before the wait belongs to a plan, and no kernel of the plan
// writes it right ahead of a product. At least one thread of each such launch must wait. x is then
// read without the read-only cache, whose loads could move ahead of the wait. An emulation runs one
// launch after the other.
#if !defined(SPARSEBATCH_EMU) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Waits until all preceding launches have ended and what they wrote can be read.
__device__ __forceinline__ void wait_for_launches_ahead() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next launch begin as soon as all blocks of this one have called this or ended.
__device__ __forceinline__ void let_next_launch_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

#else

__device__ __forceinline__ void wait_for_launches_ahead() {}
__device__ __forceinline__ void let_next_launch_begin() {}

#endif

// The sum over each group of WIDTH lanes, valid in the first lane of the group. The order of the
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

// The sum over a warp, the same in all lanes: partners add the same two values.
template <typename V>
__device__ __forceinline__ V sum_of_lanes(V value) {
#pragma unroll
    for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, offset);
    }
    return value;
}

// The largest value of a warp.
template <typename V>
__device__ __forceinline__ V most_of_lanes(V value) {
#pragma unroll
    for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
        value = maximum(value, __shfl_xor_sync(ALL_LANES, value, offset));
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

// The sum of the products of x with the entries k, k + stride, ... before end. The constructor
// requests columns and values of UNROLL entries. sum() requests their elements of x and the next
// UNROLL columns, then the elements of x for these with their values, so that each further UNROLL
// entries cost one more memory access in sequence.
template <typename V, u32 UNROLL>
struct StridedSum {
    u32 k, end, stride;
    const i32* col_idx;
    const V* values;
    i32 columns[UNROLL];
    V factors[UNROLL];

    __device__ __forceinline__ StridedSum(u32 first, u32 stop, u32 step,
                                          const i32* __restrict__ all_columns,
                                          const V* __restrict__ all_values)
        : k(first), end(stop), stride(step), col_idx(all_columns), values(all_values) {
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            const u32 own = k + u * stride;
            columns[u] = own < end ? load(col_idx + own) : -1;
            factors[u] = own < end ? load(values + own) : V(0);
        }
    }

    __device__ __forceinline__ V sum(const V* x) {
        V sums[2] = {};
#pragma unroll 1
        for (; k < end; k += UNROLL * stride) {
            V operands[UNROLL];
#pragma unroll
            for (u32 u = 0; u < UNROLL; ++u) {
                operands[u] = columns[u] >= 0 ? x[columns[u]] : V(0);
            }
#pragma unroll
            for (u32 u = 0; u < UNROLL; ++u) {
                const u32 next = k + (UNROLL + u) * stride;
                columns[u] = next < end ? load(col_idx + next) : -1;
            }
            // Entries past the end add 0 times 0.
#pragma unroll
            for (u32 u = 0; u < UNROLL; ++u) {
                sums[u % 2] += factors[u] * operands[u];
            }
#pragma unroll
            for (u32 u = 0; u < UNROLL; ++u) {
                const u32 next = k + (UNROLL + u) * stride;
                factors[u] = next < end ? load(values + next) : V(0);
            }
        }
        return sums[0] + sums[1];
    }
};

// The sum of the products of x with the slots of a row in a padded format, STRIDE apart, or any
// stride if STRIDE is 0; entries come before padding. The slots of the rows of a warp lie side by
// side. The constructor requests columns and values of UNROLL slots; a step requests their elements
// of x and the columns and values of the next UNROLL, none of which waits for another. A slot with
// a negative column is padding, is not multiplied, and ends the row where it is the last of UNROLL.
template <typename V, u32 UNROLL, u32 STRIDE>
struct SlotSum {
    const i32* col_idx;
    const V* values;
    u64 stride;
    u32 left;
    i32 columns[UNROLL];
    V factors[UNROLL];
    V sums[2] = {};

    __device__ __forceinline__ SlotSum(const i32* __restrict__ first_column,
                                       const V* __restrict__ first_value, u32 width,
                                       u64 any_stride = 0)
        : col_idx(first_column), values(first_value), stride(any_stride), left(width) {
        request_columns(true);
        request_values(true);
    }

    // Whether a step is left.
    __device__ __forceinline__ bool goes_on() const {
        return left > 0 && columns[0] >= 0;
    }

    __device__ __forceinline__ void step(const V* x) {
        V operands[UNROLL];
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            operands[u] = columns[u] >= 0 ? x[columns[u]] : V(0);
            factors[u] = columns[u] >= 0 ? factors[u] : V(0);
        }
        const bool is_wanted = columns[UNROLL - 1] >= 0;
        left = left > UNROLL ? left - UNROLL : 0;
        col_idx += UNROLL * apart();
        values += UNROLL * apart();
        request_columns(is_wanted);
        // Padding adds 0 times 0.
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            sums[u % 2] += factors[u] * operands[u];
        }
        request_values(is_wanted);
    }

    __device__ __forceinline__ V sum() const {
        return sums[0] + sums[1];
    }

  private:
    __device__ __forceinline__ u64 apart() const {
        return STRIDE != 0 ? STRIDE : stride;
    }

    __device__ __forceinline__ void request_columns(bool is_wanted) {
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            columns[u] = is_wanted && u < left ? load_once(col_idx + u * apart()) : -1;
        }
    }

    __device__ __forceinline__ void request_values(bool is_wanted) {
#pragma unroll
        for (u32 u = 0; u < UNROLL; ++u) {
            factors[u] = is_wanted && u < left ? load_once(values + u * apart()) : V(0);
        }
    }
};

// The inclusive sums over runs of equal keys; keys do not decrease over the lanes. A lane only adds
// values of its own key, in an order that depends on the keys alone. All 32 lanes must take part.
template <typename V, typename K>
__device__ __forceinline__ V segmented_scan(K key, V value) {
    const u32 lane = threadIdx.x % WARP_THREADS;
#pragma unroll
    for (u32 offset = 1; offset < WARP_THREADS; offset *= 2) {
        const V other = __shfl_up_sync(ALL_LANES, value, offset);
        const K other_key = __shfl_up_sync(ALL_LANES, key, offset);
        if (lane >= offset && other_key == key) {
            value += other;
        }
    }
    return value;
}

// Whether this lane is the last of its run of equal keys. All 32 lanes must take part.
__device__ __forceinline__ bool ends_segment(u32 key) {
    const u32 next = __shfl_down_sync(ALL_LANES, key, 1);
    return threadIdx.x % WARP_THREADS == WARP_THREADS - 1 || next != key;
}

// y = alpha*sum + beta*y, where beta == 0 does not read y.
template <typename V>
__device__ __forceinline__ void update(V alpha, V sum, V beta, V* y) {
    *y = scaled_row(alpha, sum, beta, y);
}

// One problem of a batch: offsets of its arrays, and its sizes. Eight words of 64 bits:
//   0 first row pointer (CSR) or slice pointer (SELL-P)
//   1 first index          2 first value
//   3 first column among all columns of the batch; times the right-hand sides, the offset of x
//   4 first row among all rows; likewise the offset of y
//   5 rows | columns << 32
//   6 stored entries | width << 32 (lanes per row in CSR-smart, slots per row in ELL)
//   7 bit 0: x is read into shared memory; above it: first start row (CSR-I)
// Problems with the same pattern have equal words 0 and 1, those with the same values an equal word
// 2.
struct Problem {
    u64 pointers, indices, values, x, y, starts;
    u32 nrows, ncols, stored, width;
    bool x_in_shared;
};

constexpr u32 PROBLEM_WORDS = 8;

__device__ __forceinline__ Problem read_problem(const u64* problems, u64 number) {
    const u64* word = problems + number * PROBLEM_WORDS;
    Problem a;
    a.pointers = load(word);
    a.indices = load(word + 1);
    a.values = load(word + 2);
    a.x = load(word + 3);
    a.y = load(word + 4);
    const u64 shape = load(word + 5);
    a.nrows = u32(shape);
    a.ncols = u32(shape >> 32);
    const u64 size = load(word + 6);
    a.stored = u32(size);
    a.width = u32(size >> 32);
    const u64 rest = load(word + 7);
    a.x_in_shared = (rest & 1) != 0;
    a.starts = rest >> 1;
    return a;
}

// An operand in shared memory, and one in global memory: two types, so that each uses its own kind
// of load.
template <typename V>
struct SharedX {
    const V* x;
    __device__ __forceinline__ V operator()(u32 column) const { return x[column]; }
};

template <typename V>
struct GlobalX {
    const V* x;
    __device__ __forceinline__ V operator()(u32 column) const { return load(x + column); }
};

// Calls product(problem, x, alpha, y) for every problem of the batch and each right-hand side. A
// block handles one problem at a time; blocks stride over the problems. alpha includes the
// problem's own factor if `scale` is not null. x is SharedX, copied to `staged` by the block, if
// the problem's flag is set, else GlobalX. Where x is staged, a barrier comes first.
template <typename V, typename Product>
__device__ __forceinline__ void for_each_product(u64 nproblems, const u64* problems,
                                                 const V* scale, u32 nrhs, V alpha, const V* x,
                                                 V* y, V* staged, Product product) {
    for (u64 number = blockIdx.x; number < nproblems; number += gridDim.x) {
        const Problem a = read_problem(problems, number);
        const V factor = scale == nullptr ? alpha : alpha * load(scale + number);
        const V* x_now = x + a.x * nrhs;
        V* y_now = y + a.y * nrhs;
        for (u32 rhs = 0; rhs < nrhs; ++rhs) {
            if (a.x_in_shared) {
                __syncthreads(); // the preceding product has read its operand
                for (u32 column = threadIdx.x; column < a.ncols; column += blockDim.x) {
                    staged[column] = load(x_now + column);
                }
                __syncthreads();
                product(a, SharedX<V>{staged}, factor, y_now);
            } else {
                product(a, GlobalX<V>{x_now}, factor, y_now);
            }
            x_now += a.ncols;
            y_now += a.nrows;
        }
    }
}

constexpr u32 CACHE_LINE = 128;

// Brings the cache line of an address in global memory to L2.
__device__ __forceinline__ void prefetch(const void* global) {
#if !defined(SPARSEBATCH_EMU)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
#else
    static_cast<void>(global);
#endif
}

// Asynchronous copies into shared memory (sm_80 and newer). An emulation brings its own.
#if !defined(SPARSEBATCH_EMU)

__device__ __forceinline__ void cp_async_4(void* shared, const void* global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                     u32(__cvta_generic_to_shared(shared))),
                 "l"(global)
                 : "memory");
}

__device__ __forceinline__ void cp_async_8(void* shared, const void* global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(
                     u32(__cvta_generic_to_shared(shared))),
                 "l"(global)
                 : "memory");
}

__device__ __forceinline__ void cp_async_16(void* shared, const void* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     u32(__cvta_generic_to_shared(shared))),
                 "l"(global)
                 : "memory");
}

// Ends a group of this thread's copies.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of this thread's groups are under way.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Waits for all copies of this thread.
__device__ __forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif

__device__ __forceinline__ void cp_async_value(double* shared, const double* global) {
    cp_async_8(shared, global);
}

__device__ __forceinline__ void cp_async_value(float* shared, const float* global) {
    cp_async_4(shared, global);
}

// Bulk copies into shared memory, and the barriers that signal their arrival (sm_90 and newer). An
// emulation brings its own.
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

// Makes initialised barriers visible to bulk copies.
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

// Orders this thread's accesses to shared memory before bulk copies that are started after a
// barrier between it and the copying thread. Without it a load may still be under way when a copy
// overwrites what it reads.
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies `bytes`, a multiple of 16, between addresses that are multiples of 16.
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, u32 bytes,
                                          u64* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

#endif

// Clusters: blocks that run at the same time and can access each other's shared memory (sm_90 and
// newer). An emulation brings its own. Elsewhere each block is a cluster.
#if !defined(SPARSEBATCH_EMU)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The number of this block in its cluster.
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier of all threads of all blocks of the cluster. All of them can read after it what any of
// them wrote before it, to shared or global memory. A barrier must precede the first access to
// another block's shared memory, since that block may not have begun, and must follow the last
// access before the accessed block ends.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;\n" ::
            : "memory");
}

// The same address in the shared memory of block `rank` of the cluster.
template <typename T>
__device__ __forceinline__ T* in_block_of_cluster(T* own_shared, u32 rank) {
    u64 address;
    asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(own_shared), "r"(rank));
    return reinterpret_cast<T*>(address);
}

#else

__device__ __forceinline__ u32 cluster_rank() {
    return 0;
}

__device__ __forceinline__ void cluster_sync() {
    __syncthreads();
}

template <typename T>
__device__ __forceinline__ T* in_block_of_cluster(T* own_shared, u32) {
    return own_shared;
}

#endif
#endif
