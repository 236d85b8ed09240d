// Whole solves by BiCGStab, one group of threads per system, all in one launch: van der Vorst 1992
// (doi 10.1137/0913035), right-preconditioned, so that the residual of the recurrence is that of
// the system; batched in one kernel as in Kashi, Nayak, Kulkarni, Scheinberg, Lin, Anzt, Batched
// sparse iterative solvers on GPU for the collision operator for fusion plasma simulations, IPDPS
// 2022.
//
//   r = b - A x, r^ = r, p = r, rho = r^'r
//   p^ = M p, v = A p^, alpha = rho / r^'v, s = r - alpha v; half step: if s passes, x += alpha p^
//   s^ = M s, t = A s^, omega = t's / t't, x += alpha p^ + omega s^, r = s - omega t
//   beta = (r^'r / rho) (alpha / omega), rho = r^'r, p = r + beta (p - omega v)
//
// M is the identity or the inverse of the diagonal (JACOBI). Arguments: see fused_task.cuh. Storage
// and traffic: see fused.cuh. VECTORS in shared memory: 1, for p^ and s^ in turn; or 3, for s^, p^
// and r^, where registers are short. With 3, p is not kept, since
//   p^ = M (r - beta omega v) + beta p^.
// The half step is tested with the sums of the full step; the CPU tests it before the second
// product, but here that product costs less than another sum. An iteration has five barriers where
// a group is a block; else only barriers of the warp.

#include "fused.cuh"

template <typename Shape>
struct BiCgStab : FusedGroup<BiCgStab<Shape>, Shape, true> {
    using Base = FusedGroup<BiCgStab<Shape>, Shape, true>;
    using Base::Base;
    using Base::beta;
    using Base::iteration;
    using Base::lane;
    using Base::operand;
    using Base::r;
    using Base::rho;
    using Base::scratch;
    using Base::stop;
    using Base::x;
    using typename Base::Threads;
    using W = typename Shape::W;
    static constexpr u32 ROWS = Shape::ROWS;
    static constexpr bool WEIGHTS_ARE_SQUARES = true;
    static constexpr bool GOES_ON = false;
    static constexpr bool APART = Shape::VECTORS == 3;
    static_assert(APART || Shape::VECTORS == 1, "what there is");
    // Offsets from s^ in shared memory.
    static constexpr u32 HAT = APART ? 1 : 0;
    static constexpr u32 P_HAT = HAT * Shape::VECTOR;
    static constexpr u32 SHADOW = 2 * Shape::VECTOR;

    W v[ROWS];
    W p[APART ? 1 : ROWS], shadow[APART ? 1 : ROWS];
    W omega = 0, shadow_square = 0;

    __device__ __forceinline__ W* own(u32 j) const { return operand + this->own_place(j); }

    __device__ __forceinline__ W shadow_at(u32 j) const {
        if constexpr (APART) {
            return own(j)[SHADOW];
        } else {
            return shadow[j];
        }
    }

    __device__ __forceinline__ W p_hat(u32 j) const {
        if constexpr (APART) {
            return own(j)[P_HAT];
        } else {
            return this->preconditioned(j, p[j]);
        }
    }

    // Sets the directions to 0 and r^ to r.
    __device__ __forceinline__ void begin_at_rest() {
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            v[j] = 0;
            if constexpr (APART) {
                own(j)[P_HAT] = 0;
                own(j)[SHADOW] = r[j];
            } else {
                p[j] = 0;
                shadow[j] = r[j];
            }
        }
        omega = 0;
    }

    __device__ __forceinline__ W weight(u32 j) const { return r[j] * r[j]; }

    __device__ __forceinline__ u32 begin_from(bool) {
        shadow_square = rho;
        return RUNNING;
    }

    // One iteration of all groups of the team; `stop` tells why a system stops.
    __device__ __forceinline__ void iterate() {
        this->keep_packed();
        const W back = beta * omega;
        W hat[ROWS];
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            if constexpr (APART) {
                const W turned = this->preconditioned(j, r[j] - back * v[j]);
                hat[j] = turned + beta * own(j)[P_HAT];
                own(j)[P_HAT] = hat[j];
            } else {
                p[j] = r[j] + beta * (p[j] - omega * v[j]);
                hat[j] = this->preconditioned(j, p[j]);
                this->put(j, hat[j]);
            }
        }
        this->sync_parts();
        this->template multiply<HAT>(hat, v);
        W along[1] = {this->sum_of([&](u32 j) { return v[j] * shadow_at(j); })};
        Threads::template sum<0>(along, scratch);
        const bool bad_alpha = !(along[0] < W(0) || W(0) < along[0]);
        const W alpha = bad_alpha ? W(0) : quotient(rho, along[0]);
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            r[j] -= alpha * v[j];
            hat[j] = this->preconditioned(j, r[j]);
            this->put(j, hat[j]);
        }
        this->sync_parts();
        W t[ROWS];
        this->multiply(hat, t);
        bool is_sure;
        const W inverse = reciprocal(rho, is_sure);
        W sums[3] = {};
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            sums[0] += t[j] * r[j];
            sums[1] += t[j] * t[j];
            sums[2] += r[j] * r[j];
        }
        Threads::template sum_side_by_side<1>(sums, scratch);
        const W ts = sums[0], tt = sums[1];
        const bool half = sums[2] <= this->square && !bad_alpha;
        const bool bad_omega = !half && !((ts < W(0) || W(0) < ts) && W(0) < tt);
        omega = half || bad_omega || bad_alpha ? W(0) : quotient(ts, tt);
        const W turn = quotient(alpha, omega);
        W next[2] = {};
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            x[j] += alpha * p_hat(j) + omega * this->preconditioned(j, r[j]);
            r[j] -= omega * t[j];
            next[0] += r[j] * r[j];
            next[1] += r[j] * shadow_at(j);
        }
        Threads::template sum_side_by_side<0>(next, scratch);
        const W rr = next[0];
        ++iteration;
        if (stop != RUNNING) {
            return;
        }
        constexpr W TINY = W(Precision<W>::EPSILON * Precision<W>::EPSILON);
        const bool passed = (rr <= this->square || half) && !bad_alpha;
        const bool lost = !(rr <= Precision<W>::LARGEST);
        // |r^'r| <= eps ||r^|| ||r||
        const bool bad_rho = next[1] * next[1] <= TINY * (shadow_square * rr);
        if (passed || bad_alpha || bad_omega || lost || bad_rho || iteration >= this->until) {
            stop = passed      ? PASSED
                   : bad_alpha ? this->unless_lost(along[0], BREAKDOWN_ALPHA)
                   : bad_omega ? this->unless_lost(ts + tt, BREAKDOWN_OMEGA)
                   : lost      ? NON_FINITE
                   : bad_rho   ? BREAKDOWN_RHO
                               : this->after_many(rr);
            if (stop != RUNNING) {
                return;
            }
        }
        beta = quotient(next[1], rho, inverse, is_sure) * turn;
        rho = next[1];
    }
};

template <typename V, u32 GROUP, u32 ROWS, u32 WIDTH, u32 PLACE, bool JACOBI, bool NEAR,
          u32 VECTORS, bool SCATTERED, u32 PARTS, typename W, bool LEFT, u32 CLUSTER>
using BiCgStabShape = FusedShape<V, GROUP, ROWS, WIDTH, PLACE, JACOBI, NEAR, VECTORS, SCATTERED, PARTS,
                                 W, LEFT, CLUSTER>;

template <typename V, u32 GROUP, u32 ROWS, u32 WIDTH, u32 PLACE, bool JACOBI, bool NEAR,
          u32 VECTORS, bool SCATTERED = false, u32 RESIDENT = 0, u32 PARTS = 1, typename W = V,
          bool LEFT = false, u32 CLUSTER = 1,
          typename Shape = BiCgStabShape<V, GROUP, ROWS, WIDTH, PLACE, JACOBI, NEAR, VECTORS, SCATTERED,
                                         PARTS, W, LEFT, CLUSTER>,
          typename Bounds = FusedBounds<
              Shape, (VECTORS == 3 ? 2 : 4) + (JACOBI && NEAR ? 2 : 0),
              sizeof(W) != sizeof(V)                                                ? 64
              : (WIDTH == 9 && ROWS <= 2) || (WIDTH == 3 && ROWS == 4 && !JACOBI) ? 56
                                                                                    : 40,
              RESIDENT>>
__global__ void __launch_bounds__(Bounds::THREADS, Bounds::BLOCKS)
    bicgstab(FUSED_PARAMETERS(V)) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    __shared__ double scratch[FusedSystem<Shape>::SCRATCH];
    const FusedTask<V> task FUSED_TASK;
    solve_all<BiCgStab<Shape>>(task, dynamic_shared, scratch);
}
