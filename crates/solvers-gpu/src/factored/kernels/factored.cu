// Whole solves by CG or BiCGStab with a factorised preconditioner M, or by complete factors (LU),
// one group of threads per system, all in one launch. The methods are those of cg.cu, bicgstab.cu
// and lu.cu:
//
//   CG        r = b - A x, z = M r, p = z, rho = r'z
//             alpha = rho / p'Ap, x += alpha p, r -= alpha Ap
//             beta = r'z / rho, rho = r'z, p = z + beta p
//   BiCGStab  r = b - A x, r^ = r, p = r, rho = r^'r
//             p^ = M p, v = A p^, alpha = rho / r^'v, s = r - alpha v; half step: x += alpha p^
//             s^ = M s, t = A s^, omega = t's / t't, x += omega s^, r = s - omega t
//             beta = (r^'r / rho) (alpha / omega), rho = r^'r, p = r + beta (p - omega v)
//   LU        r = b - A x, x += M r; repeated until r passes: refinement (Wilkinson 1963; Higham,
//             Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12)
//
// M is ILU(0) (Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, algorithm 10.4),
// IC(0) (Meijerink and van der Vorst 1977, doi 10.1090/S0025-5718-1977-0438681-4) or block-Jacobi
// with inverses (Anzt et al. 2019, doi 10.1016/j.parco.2017.12.006), batched in one kernel as in
// Kashi et al. 2022; triangular solves by levels (Anderson and Saad 1989,
// doi 10.1142/S0129053389000056). On a pattern with all fill, the factors of ILU are those of LU
// without pivoting.
//
// `Factor` is the precision of M: it is computed in V, rounded once, and applied to vectors of V
// (Anzt et al. 2019, doi 10.1002/cpe.4460, for block-Jacobi).
//
// Arguments, places and order of sums: see factored_task.cuh. Traffic of a system, besides what is
// not in shared memory: its values, b twice, x once (twice with a guess), 25 B of outcome. All
// groups read programs and columns through the caches.

#include "factored.cuh"

template <typename Shape>
struct FactoredCg : FactoredGroup<FactoredCg<Shape>, Shape, false> {
    using Base = FactoredGroup<FactoredCg<Shape>, Shape, false>;
    using Base::Base;
    using Base::iteration;
    using Base::scratch;
    using Base::z;
    using typename Base::Threads;
    using V = typename Shape::V;

    V rho = 0, beta = 0;

    // Why there are no factors: a negative diagonal entry says more than a failed pivot.
    __device__ __forceinline__ u32 no_factors() {
        bool negative = false;
        this->own_rows([&](u32 row) {
            this->entries(row, [&](V value, u32 column) {
                negative = negative || (column == row && value < V(0));
            });
        });
        return Threads::any_thread(negative, scratch) ? INDEFINITE : Base::NO_FACTORS;
    }

    // z = M r; returns r'z.
    __device__ __forceinline__ V precondition() {
        V* const r = this->vector(1);
        this->apply(r, this->vector(3));
        V sums[1] = {};
        this->own_rows([&](u32 row) { sums[0] += r[row] * z[row]; });
        Threads::template sum<0>(sums, scratch);
        return sums[0];
    }

    __device__ __forceinline__ u32 begin() {
        V* const p = this->vector(2);
        this->own_rows([&](u32 row) { p[row] = 0; });
        beta = 0;
        rho = precondition();
        return V(0) < rho ? RUNNING : this->unless_lost(rho, not_positive(rho));
    }

    // One iteration; returns RUNNING, or why the system stops.
    __device__ __forceinline__ u32 iterate() {
        V* const x = this->vector(0);
        V* const r = this->vector(1);
        V* const p = this->vector(2);
        V* const q = this->vector(3);
        // z becomes the operand p: until the barrier only own rows are read.
        this->own_rows([&](u32 row) {
            p[row] = beta * p[row] + z[row];
            z[row] = p[row];
        });
        Threads::sync();
        V curvature[1] = {};
        this->own_rows([&](u32 row) {
            q[row] = this->times_z(row);
            curvature[0] += q[row] * p[row];
        });
        Threads::template sum<1>(curvature, scratch);
        ++iteration;
        const bool bad = !(V(0) < curvature[0]);
        const V alpha = bad ? V(0) : quotient(rho, curvature[0]);
        V rr[1] = {};
        this->own_rows([&](u32 row) {
            x[row] += alpha * p[row];
            const V next = r[row] - alpha * q[row];
            r[row] = next;
            rr[0] += next * next;
        });
        Threads::template sum<0>(rr, scratch);
        if (rr[0] <= this->square && !bad) {
            return PASSED;
        }
        if (!(rr[0] <= Precision<V>::LARGEST)) {
            return NON_FINITE;
        }
        if (bad) {
            return this->unless_lost(curvature[0], INDEFINITE);
        }
        if (iteration >= this->limit) {
            return MAX_ITERATIONS;
        }
        const V rz = precondition();
        beta = quotient(rz, rho);
        rho = rz;
        return V(0) < rho ? RUNNING : this->unless_lost(rho, not_positive(rho));
    }
};

template <typename Shape>
struct FactoredBiCgStab : FactoredGroup<FactoredBiCgStab<Shape>, Shape, true> {
    using Base = FactoredGroup<FactoredBiCgStab<Shape>, Shape, true>;
    using Base::Base;
    using Base::iteration;
    using Base::scratch;
    using Base::z;
    using typename Base::Threads;
    using V = typename Shape::V;

    V rho = 0, beta = 0, omega = 0, shadow_square = 0;

    __device__ __forceinline__ u32 begin() {
        V* const r = this->vector(1);
        V* const p = this->vector(2);
        V* const v = this->vector(3);
        V* const shadow = this->vector(4);
        V sums[1] = {};
        this->own_rows([&](u32 row) {
            p[row] = v[row] = 0;
            shadow[row] = r[row];
            sums[0] += r[row] * r[row];
        });
        rho = shadow_square = sum_apart<Threads>(sums[0], scratch);
        beta = omega = 0;
        return RUNNING;
    }

    // One iteration; returns RUNNING, or why the system stops. z is p^, then s^.
    __device__ __forceinline__ u32 iterate() {
        V* const x = this->vector(0);
        V* const r = this->vector(1);
        V* const p = this->vector(2);
        V* const v = this->vector(3);
        V* const shadow = this->vector(4);
        V* const t = this->vector(5);
        this->own_rows([&](u32 row) { p[row] = r[row] + beta * (p[row] - omega * v[row]); });
        this->apply(p, v);
        V along[1] = {};
        this->own_rows([&](u32 row) {
            v[row] = this->times_z(row);
            along[0] += v[row] * shadow[row];
        });
        Threads::template sum<0>(along, scratch);
        ++iteration;
        if (!(along[0] < V(0) || V(0) < along[0])) {
            return this->unless_lost(along[0], BREAKDOWN_ALPHA);
        }
        const V alpha = quotient(rho, along[0]);
        V ss[1] = {};
        this->own_rows([&](u32 row) {
            x[row] += alpha * z[row];
            const V next = r[row] - alpha * v[row];
            r[row] = next;
            ss[0] += next * next;
        });
        Threads::template sum<1>(ss, scratch);
        if (ss[0] <= this->square) {
            return PASSED;
        }
        this->apply(r, t);
        V sums[2] = {};
        this->own_rows([&](u32 row) {
            t[row] = this->times_z(row);
            sums[0] += t[row] * r[row];
            sums[1] += t[row] * t[row];
        });
        Threads::template sum<0>(sums, scratch);
        const V ts = sums[0], tt = sums[1];
        if (!((ts < V(0) || V(0) < ts) && V(0) < tt)) {
            return this->unless_lost(ts + tt, BREAKDOWN_OMEGA);
        }
        omega = quotient(ts, tt);
        V next[2] = {};
        this->own_rows([&](u32 row) {
            x[row] += omega * z[row];
            const V own = r[row] - omega * t[row];
            r[row] = own;
            next[0] += own * own;
            next[1] += own * shadow[row];
        });
        Threads::template sum<1>(next, scratch);
        const V rr = next[0];
        if (rr <= this->square) {
            return PASSED;
        }
        if (!(rr <= Precision<V>::LARGEST)) {
            return NON_FINITE;
        }
        constexpr V TINY = V(Precision<V>::EPSILON * Precision<V>::EPSILON);
        // |r^'r| <= eps ||r^|| ||r||
        if (next[1] * next[1] <= TINY * (shadow_square * rr)) {
            return BREAKDOWN_RHO;
        }
        if (iteration >= this->limit) {
            return MAX_ITERATIONS;
        }
        beta = quotient(next[1], rho) * quotient(alpha, omega);
        rho = next[1];
        return RUNNING;
    }
};

// Refinement of a solution by complete factors.
template <typename Shape>
struct FactoredLu : FactoredGroup<FactoredLu<Shape>, Shape, false> {
    using Base = FactoredGroup<FactoredLu<Shape>, Shape, false>;
    using Base::Base;
    using Base::iteration;
    using Base::z;
    using typename Base::V;
    static constexpr u32 NO_FACTORS = ZERO_PIVOT;

    __device__ __forceinline__ u32 begin() { return RUNNING; }

    // One solve with r; the caller then recomputes r.
    __device__ __forceinline__ u32 iterate() {
        V* const x = this->vector(0);
        V* const r = this->vector(1);
        this->apply(r, r);
        this->own_rows([&](u32 row) { x[row] += z[row]; });
        ++iteration;
        return iteration >= this->limit ? MAX_ITERATIONS : PASSED;
    }
};

// Values of a kernel's METHOD.
constexpr u32 METHOD_CG = 0;
constexpr u32 METHOD_BICGSTAB = 1;
constexpr u32 METHOD_LU = 2;

// The group of a METHOD, and its vectors: x, r, z; for CG also p and A p; for BiCGStab also p, v,
// r^ and t.
template <typename V, typename Factor, u32 GROUP, u32 METHOD, bool BLOCKS, u32 PLACE, bool RAGGED>
struct FactoredMethod {
    static_assert(METHOD == METHOD_CG, "a method");
    using Shape = FactoredShape<V, Factor, GROUP, BLOCKS, PLACE, RAGGED, 5>;
    using Group = FactoredCg<Shape>;
};

template <typename V, typename Factor, u32 GROUP, bool BLOCKS, u32 PLACE, bool RAGGED>
struct FactoredMethod<V, Factor, GROUP, METHOD_BICGSTAB, BLOCKS, PLACE, RAGGED> {
    using Shape = FactoredShape<V, Factor, GROUP, BLOCKS, PLACE, RAGGED, 7>;
    using Group = FactoredBiCgStab<Shape>;
};

template <typename V, typename Factor, u32 GROUP, bool BLOCKS, u32 PLACE, bool RAGGED>
struct FactoredMethod<V, Factor, GROUP, METHOD_LU, BLOCKS, PLACE, RAGGED> {
    using Shape = FactoredShape<V, Factor, GROUP, BLOCKS, PLACE, RAGGED, 3>;
    using Group = FactoredLu<Shape>;
};

// Most threads per block, and blocks that a multiprocessor holds at the registers that they may
// use.
template <u32 GROUP, bool INVERTS>
struct FactoredBounds {
    static constexpr u32 THREADS = GROUP > 128 ? GROUP : 128;
    static constexpr u32 BLOCKS = GROUP > 128 ? 1 : INVERTS ? 4 : 5;
};

// Solves the systems of a launch.
template <typename Group, typename Task>
__device__ __forceinline__ void solve_all(const Task& task, u8* shared, double* scratch) {
    Group group(task, reinterpret_cast<typename Group::V*>(shared), scratch);
    group.run();
    Group::leave(task.queue);
}

template <typename V, u32 GROUP, u32 METHOD, bool BLOCKS, u32 PLACE, typename Factor = V>
__global__ void __launch_bounds__(FactoredBounds<GROUP, BLOCKS>::THREADS,
                                  FactoredBounds<GROUP, BLOCKS>::BLOCKS)
    factored(u32 nsystems, u32 nrows, u32 nrhs, u32 nnz, u32 nfactors,
             const u32* __restrict__ words, const u32* __restrict__ starts,
             const u32* __restrict__ index,
             const typename Select<PLACE == ALL_GLOBAL, u32, u16>::Type* __restrict__ columns,
             const u32* __restrict__ sources, V* workspace, Factor* kept, u8* refused,
             const V* __restrict__ values, u64 value_stride, const V* __restrict__ b,
             V* __restrict__ x, u32 flags, SystemLimits limits, u32* queue,
             SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    __shared__ double scratch[Team<GROUP>::SCRATCH];

    using Method = FactoredMethod<V, Factor, GROUP, METHOD, BLOCKS, PLACE, false>;
    const FactoredTask<V, Factor, typename Method::Shape::Index> task{
        nsystems,  nrhs,   {nrows, nnz, nfactors, words, starts, index, columns, sources},
        nullptr,   nullptr, 0,
        0,         workspace, kept,
        refused,   values, value_stride,
        b,         x,      flags,
        limits,    queue,  outcomes};
    solve_all<typename Method::Group>(task, dynamic_shared, scratch);
}

// The same for systems of several patterns. Each is solved as by the kernel for its pattern alone, bit
// for bit.
template <typename V, u32 GROUP, u32 METHOD, bool BLOCKS, u32 PLACE, typename Factor = V>
__global__ void __launch_bounds__(FactoredBounds<GROUP, BLOCKS>::THREADS,
                                  FactoredBounds<GROUP, BLOCKS>::BLOCKS)
    factored_ragged(u32 nsystems, u32 nrhs, const u64* __restrict__ items,
                    const u64* __restrict__ patterns, const u32* __restrict__ words,
                    const u32* __restrict__ starts, const u32* __restrict__ index,
                    const typename Select<PLACE == ALL_GLOBAL, u32, u16>::Type* __restrict__ columns,
                    const u32* __restrict__ sources, V* workspace, u64 shared_stride,
                    u64 workspace_stride, Factor* kept, u8* refused,
                    const V* __restrict__ values, const V* __restrict__ b, V* __restrict__ x,
                    u32 flags, SystemLimits limits, u32* queue, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    __shared__ double scratch[Team<GROUP>::SCRATCH];

    using Method = FactoredMethod<V, Factor, GROUP, METHOD, BLOCKS, PLACE, true>;
    const FactoredTask<V, Factor, typename Method::Shape::Index> task{
        nsystems,         nrhs,      {0, 0, 0, words, starts, index, columns, sources},
        items,            patterns,  shared_stride,
        workspace_stride, workspace, kept,
        refused,          values,    0,
        b,                x,         flags,
        limits,           queue,     outcomes};
    solve_all<typename Method::Group>(task, dynamic_shared, scratch);
}
