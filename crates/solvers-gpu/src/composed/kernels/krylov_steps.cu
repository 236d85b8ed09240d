// Krylov methods with one vector that is divided among GPUs: what a GPU does with its elements between
// the products and the sums over all GPUs, which the host forms. CG (Hestenes, Stiefel 1952), pipelined
// CG (Ghysels, Vanroose 2014, doi:10.1016/j.parco.2013.06.001, algorithm 4), BiCGStab (van der Vorst
// 1992, doi:10.1137/0913035).
//
// - A block of STEP_THREADS threads takes the elements of one chunk of STEP_CHUNK elements, and the
//   grid has a block for each chunk.
// - Sums: each block writes those of its chunk to `partials`; the block that ends last adds them and
//   writes `sums`. They are in double, and their order is a function of n alone: bitwise repeatable.
// - `ticket` is 0 before and after each launch. `partials` holds 3 numbers for each chunk, `sums` 3.
// - PRECOND: NOTHING, M = I; DIAGONAL, `m` has the elements of M; GIVEN, `m` is M times the vector in
//   question, which was computed elsewhere. With NOTHING `m` is null.
// - No vectors overlap, but for those that a kernel names. n is more than 0.

constexpr u32 STEP_THREADS = 256;
constexpr u32 STEP_CHUNK = 8192;
constexpr u32 STEP_WARPS = STEP_THREADS / WARP_THREADS;
constexpr u32 STEP_ROUNDS = STEP_CHUNK / STEP_THREADS;
constexpr u32 NOTHING = 0, DIAGONAL = 1, GIVEN = 2;

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

// An element of M times a vector, of which `value` is the element.
template <u32 PRECOND, typename V>
__device__ __forceinline__ V preconditioned(const V* m, u64 i, V value) {
    if constexpr (PRECOND == DIAGONAL) {
        return m[i] * value;
    } else if constexpr (PRECOND == GIVEN) {
        return m[i];
    } else {
        return value;
    }
}

// steps_dot: sums[0] = a'b. Per element: reads 2 values.
template <typename V>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    steps_dot(u64 n, const V* __restrict__ a, const V* __restrict__ b, double* partials,
              u32* ticket, double* sums) {
    double own[1] = {};
    over_chunk(n, [&](u64 i) { own[0] += double(a[i]) * double(b[i]); });
    sums_of_chunks(own, partials, ticket, sums);
}

// steps_precondition: to = M from, of a diagonal M or of none. Per element: reads 1 value and that of
// M, writes 1.
template <typename V, u32 PRECOND>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    steps_precondition(u64 n, const V* __restrict__ m, const V* __restrict__ from,
                       V* __restrict__ to) {
    over_chunk(n, [&](u64 i) { to[i] = preconditioned<PRECOND>(m, i, from[i]); });
}

// cg_advance: x += alpha p, r -= alpha w; sums = r'r, r'M r, the second one not of a GIVEN M. Per
// element: reads 4 values and that of M, writes 2.
template <typename V, u32 PRECOND>
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
        if constexpr (PRECOND != GIVEN) {
            own[1] += double(residual) * double(preconditioned<PRECOND>(m, i, residual));
        }
    });
    sums_of_chunks(own, partials, ticket, sums);
}

// cg_squares: sums = r'r, r'M r. Per element: reads r and M.
template <typename V, u32 PRECOND>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    cg_squares(u64 n, const V* __restrict__ m, const V* __restrict__ r, double* partials,
               u32* ticket, double* sums) {
    double own[2] = {};
    over_chunk(n, [&](u64 i) {
        const V residual = r[i];
        own[0] += double(residual) * double(residual);
        own[1] += double(residual) * double(preconditioned<PRECOND>(m, i, residual));
    });
    sums_of_chunks(own, partials, ticket, sums);
}

// cg_direct: p = M r + beta p; p is not read where beta is 0. Per element: reads r, M and p, writes
// p.
template <typename V, u32 PRECOND>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    cg_direct(u64 n, V beta, const V* __restrict__ m, const V* __restrict__ r, V* __restrict__ p) {
    over_chunk(n, [&](u64 i) {
        const V z = preconditioned<PRECOND>(m, i, r[i]);
        p[i] = beta == V(0) ? z : z + beta * p[i];
    });
}

// pipelined_sums: sums = r'u, w'u, r'r. Per element: reads 3 values.
template <typename V>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    pipelined_sums(u64 n, const V* __restrict__ r, const V* __restrict__ u,
                   const V* __restrict__ w, double* partials, u32* ticket, double* sums) {
    double own[3] = {};
    over_chunk(n, [&](u64 i) {
        const double residual = r[i], z = u[i];
        own[0] += residual * z;
        own[1] += double(w[i]) * z;
        own[2] += residual * residual;
    });
    sums_of_chunks(own, partials, ticket, sums);
}

// What pipelined_advance updates.
template <typename V>
struct Pipeline {
    V *x, *r, *u, *w, *p, *s, *q, *z;
};

// pipelined_advance: z = n + beta z, q = m + beta q, s = w + beta s, p = u + beta p; x += alpha p,
// r -= alpha s, u -= alpha q, w -= alpha z. Where beta is 0, z, q, s and p are not read. Per element:
// reads 10 values, writes 8.
template <typename V>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    pipelined_advance(u64 count, V alpha, V beta, const V* __restrict__ m, const V* __restrict__ n,
                      Pipeline<V> of) {
    over_chunk(count, [&](u64 i) {
        const V w = of.w[i], u = of.u[i];
        V z = n[i], q = m[i], s = w, p = u;
        if (beta != V(0)) {
            z += beta * of.z[i];
            q += beta * of.q[i];
            s += beta * of.s[i];
            p += beta * of.p[i];
        }
        of.z[i] = z;
        of.q[i] = q;
        of.s[i] = s;
        of.p[i] = p;
        of.x[i] += alpha * p;
        of.r[i] -= alpha * s;
        of.u[i] = u - alpha * q;
        of.w[i] = w - alpha * z;
    });
}

// bicgstab_start: shadow = r, p = v = 0; sums[0] = r'r. Per element: reads 1 value, writes 3.
template <typename V>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    bicgstab_start(u64 n, const V* __restrict__ r, V* __restrict__ shadow, V* __restrict__ p,
                   V* __restrict__ v, double* partials, u32* ticket, double* sums) {
    double own[1] = {};
    over_chunk(n, [&](u64 i) {
        const V residual = r[i];
        shadow[i] = residual;
        p[i] = v[i] = V(0);
        own[0] += double(residual) * double(residual);
    });
    sums_of_chunks(own, partials, ticket, sums);
}

// bicgstab_direct: p = r + beta (p - omega v), and p_hat = M p of a DIAGONAL M. Per element: reads 3
// values and that of M, writes 1 or 2.
template <typename V, u32 PRECOND>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    bicgstab_direct(u64 n, V beta, V omega, const V* __restrict__ r, const V* __restrict__ v,
                    const V* __restrict__ m, V* __restrict__ p, V* __restrict__ p_hat) {
    over_chunk(n, [&](u64 i) {
        const V direction = r[i] + beta * (p[i] - omega * v[i]);
        p[i] = direction;
        if constexpr (PRECOND == DIAGONAL) {
            p_hat[i] = m[i] * direction;
        }
    });
}

// bicgstab_half: r -= alpha v, and s_hat = M r of a DIAGONAL M. Per element: reads 2 values and that
// of M, writes 1 or 2.
template <typename V, u32 PRECOND>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    bicgstab_half(u64 n, V alpha, const V* __restrict__ v, const V* __restrict__ m,
                  V* __restrict__ r, V* __restrict__ s_hat) {
    over_chunk(n, [&](u64 i) {
        const V s = r[i] - alpha * v[i];
        r[i] = s;
        if constexpr (PRECOND == DIAGONAL) {
            s_hat[i] = m[i] * s;
        }
    });
}

// bicgstab_middle: sums = t's, t't, s's, where s is the residual in the middle of an iteration. Per
// element: reads 2 values.
template <typename V>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    bicgstab_middle(u64 n, const V* __restrict__ t, const V* __restrict__ s, double* partials,
                    u32* ticket, double* sums) {
    double own[3] = {};
    over_chunk(n, [&](u64 i) {
        const double product = t[i], residual = s[i];
        own[0] += product * residual;
        own[1] += product * product;
        own[2] += residual * residual;
    });
    sums_of_chunks(own, partials, ticket, sums);
}

// bicgstab_advance: x += alpha p_hat + omega s_hat, r -= omega t; sums = r'r, r'shadow. With NOTHING
// p_hat is p and s_hat is r as it was before. Per element: reads 6 values, with NOTHING 5, writes 2.
template <typename V, u32 PRECOND>
__global__ void __launch_bounds__(STEP_THREADS, 4)
    bicgstab_advance(u64 n, V alpha, V omega, const V* __restrict__ p_hat, const V* s_hat,
                     const V* __restrict__ t, const V* __restrict__ shadow, V* __restrict__ x,
                     V* r, double* partials, u32* ticket, double* sums) {
    double own[2] = {};
    over_chunk(n, [&](u64 i) {
        const V s = r[i];
        const V second = PRECOND == NOTHING ? s : s_hat[i];
        x[i] = x[i] + alpha * p_hat[i] + omega * second;
        const V residual = s - omega * t[i];
        r[i] = residual;
        own[0] += double(residual) * double(residual);
        own[1] += double(residual) * double(shadow[i]);
    });
    sums_of_chunks(own, partials, ticket, sums);
}
