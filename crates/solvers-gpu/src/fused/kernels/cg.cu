// Whole solves by conjugate gradients, one group of threads per system, all in one launch: Hestenes
// and Stiefel 1952 (doi 10.6028/jres.049.044), batched in one kernel as in Aggarwal, Kashi, Nayak,
// Anzt 2021 (doi 10.1109/ScalA54577.2021.00010).
//
//   r = b - A x, z = M r, p = z, rho = r'z
//   alpha = rho / p'Ap, x += alpha p, r -= alpha Ap, beta = r'z / rho, rho = r'z, p = z + beta p
//
// M is the identity or the inverse of the diagonal (JACOBI). Arguments: see fused_task.cuh. Storage
// and traffic: see fused.cuh, with one vector in shared memory, p. An iteration has three barriers
// where a group is a block; else only barriers of the warp.

#include "fused.cuh"

template <typename Shape>
struct Cg : FusedGroup<Cg<Shape>, Shape, false> {
    using Base = FusedGroup<Cg<Shape>, Shape, false>;
    using Base::Base;
    using Base::beta;
    using Base::iteration;
    using Base::lane;
    using Base::m;
    using Base::operand;
    using Base::r;
    using Base::rho;
    using Base::scratch;
    using Base::stop;
    using Base::x;
    using typename Base::Threads;
    using W = typename Shape::W;
    static constexpr u32 ROWS = Shape::ROWS;
    static constexpr bool JACOBI = Shape::JACOBI;
    static constexpr bool WEIGHTS_ARE_SQUARES = !JACOBI;
    static constexpr bool GOES_ON = true;

    // In a cluster, where registers are short, p is in shared memory only.
    static constexpr bool APART = Shape::IS_CLUSTER;

    W own_p[APART ? 1 : ROWS];

    __device__ __forceinline__ W& p(u32 j) {
        if constexpr (APART) {
            return operand[this->own_place(j)];
        } else {
            return own_p[j];
        }
    }

    __device__ __forceinline__ void begin_at_rest() {
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            p(j) = 0;
        }
    }

    __device__ __forceinline__ W weight(u32 j) const {
        return this->preconditioned(j, r[j]) * r[j];
    }

    __device__ __forceinline__ u32 begin_from(bool fresh) const {
        return fresh && !(W(0) < rho) ? this->unless_lost(rho, not_positive(rho)) : RUNNING;
    }

    // Continues from the true residual `r`, whose r'z is `rz`. `times` converts the
    // recurrence's vectors to the scale of `r`.
    __device__ __forceinline__ void go_on(W rz, W times) {
        const W before = rho * times * times;
        beta = W(0) < before ? beta * (rz / before) : W(0);
        rho = rz;
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            p(j) *= times;
        }
    }

    // One iteration of all groups of the team; `stop` tells why a system stops.
    __device__ __forceinline__ void iterate() {
        this->keep_packed();
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            const W direction = beta * p(j) + this->preconditioned(j, r[j]);
            p(j) = direction;
            if constexpr (!APART) {
                this->put(j, direction);
            }
        }
        this->sync_parts();
        bool is_sure;
        const W inverse = reciprocal(rho, is_sure);
        W ap[ROWS];
        this->multiply(own_p, ap);
        W curvature[1] = {this->sum_of([&](u32 j) { return ap[j] * p(j); })};
        Threads::template sum<0>(curvature, scratch);
        const bool bad = !(W(0) < curvature[0]);
        const W alpha = bad ? W(0) : quotient(rho, curvature[0]);
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            x[j] += alpha * p(j);
            r[j] -= alpha * ap[j];
        }
        W sums[JACOBI ? 2 : 1];
        sums[0] = this->sum_of([&](u32 j) { return r[j] * r[j]; });
        if constexpr (JACOBI) {
            sums[1] = this->sum_of([&](u32 j) { return m[j] * r[j] * r[j]; });
        }
        if constexpr (JACOBI) {
            Threads::template sum_side_by_side<1>(sums, scratch);
        } else {
            Threads::template sum<1>(sums, scratch);
        }
        const W rr = sums[0], rz = sums[JACOBI ? 1 : 0];
        ++iteration;
        if (stop != RUNNING) {
            return;
        }
        const bool passed = rr <= this->square && !bad;
        const bool lost = !(rr <= Precision<W>::LARGEST);
        const bool broken = !(W(0) < rz);
        if (passed || lost || bad || broken || iteration >= this->until) {
            stop = passed   ? PASSED
                   : lost   ? NON_FINITE
                   : bad    ? this->unless_lost(curvature[0], INDEFINITE)
                   : broken ? not_positive(rz)
                            : this->after_many(rr);
        }
        beta = quotient(rz, rho, inverse, is_sure);
        rho = rz;
    }
};

template <typename V, u32 GROUP, u32 ROWS, u32 WIDTH, u32 PLACE, bool JACOBI, bool NEAR,
          bool SCATTERED, u32 PARTS, typename W, bool LEFT, u32 CLUSTER>
using CgShape =
    FusedShape<V, GROUP, ROWS, WIDTH, PLACE, JACOBI, NEAR, 1, SCATTERED, PARTS, W, LEFT, CLUSTER>;

template <typename V, u32 GROUP, u32 ROWS, u32 WIDTH, u32 PLACE, bool JACOBI, bool NEAR,
          bool SCATTERED = false, u32 RESIDENT = 0, u32 PARTS = 1, typename W = V, bool LEFT = false,
          u32 CLUSTER = 1,
          typename Shape = CgShape<V, GROUP, ROWS, WIDTH, PLACE, JACOBI, NEAR, SCATTERED, PARTS, W, LEFT,
                                   CLUSTER>,
          typename Bounds =
              FusedBounds<Shape, 2,
                          (sizeof(W) != sizeof(V) ? (GROUP == 32 && ROWS == 8 ? 80 : 64)
                           : GROUP * PARTS > WARP_THREADS && !(JACOBI && WIDTH == 3 && GROUP < 128) ? 64
                                                                                     : 40),
                          RESIDENT>>
__global__ void __launch_bounds__(Bounds::THREADS, Bounds::BLOCKS) cg(FUSED_PARAMETERS(V)) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    __shared__ double scratch[FusedSystem<Shape>::SCRATCH];
    const FusedTask<V> task FUSED_TASK;
    solve_all<Cg<Shape>>(task, dynamic_shared, scratch);
}
