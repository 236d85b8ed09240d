// CG and BiCGStab between products of a plan, and the judgement of systems on entry and after they
// have stopped. Methods and tests are those of cg.cu and bicgstab.cu.
//
// - An iteration of CG: the product w = A p, then phases 0 to 2.
// - An iteration of BiCGStab, with p^ = M p and s^ = M s in `hat` (in p and r if there is no
//   preconditioner): the product v = A p^, phases 0 and 1, the product w = A s^, phases 2 to 4.
// - With a preconditioner of the caller, who computes M between launches: CG takes the product w =
//   A p, phases 0 and 1, m = M r, phases 2 and 3. BiCGStab takes hat = M p, the product v = A hat,
//   phases 0 and 1, m = M s, the product w = A m, phases 2 to 4.
// - Systems that have stopped wait for their judgement: phase 1 of `Verdict`, the product w = A x,
//   then phases 2 and 3. They restart from there if their true residual requires it. CG with a
//   preconditioner of the caller starts by m = M r and phase 4.
// - Solves begin with phase 0 of `Verdict`.
//
// Traffic of an iteration of CG in vectors: w, p, x, r and m read, x, r and p written; vectors that
// a phase reads again are mostly in the caches. No atomics except counters: bitwise repeatable.

#include "krylov.cuh"

// How M is applied: not at all; by the inverse of the diagonal, in `m`; by the caller.
constexpr u32 IDENTITY = 0;
constexpr u32 JACOBI = 1;
constexpr u32 GIVEN = 2;

// The preconditioned value of row i. The caller has computed it from all values, into `m`.
template <u32 PRECOND, typename V>
__device__ __forceinline__ V times_m(const KrylovTask<V>& task, u64 i, V value) {
    if constexpr (PRECOND == JACOBI) {
        return task.m[i] * value;
    } else if constexpr (PRECOND == GIVEN) {
        return task.m[i];
    } else {
        return value;
    }
}

// Phase 1 computes r and, unless it is the caller who makes m = M r of it, r'z; else phase 2 does.
template <typename Value, u32 PRECOND>
struct Cg {
    using V = Value;
    using Sum = V;
    KrylovTask<V> task;

    // Whether the caller computes m = M r between launches.
    static constexpr bool STARTS_FROM_M = PRECOND == GIVEN;
    static constexpr u32 DOT = STARTS_FROM_M ? 2 : 1; // the phase of r'z

    __device__ __forceinline__ static constexpr u32 count(u32 phase) {
        return phase > DOT ? 0 : phase == 1 && DOT == 1 ? 2 : 1;
    }

    template <u32 PHASE>
    __device__ __forceinline__ static bool takes(const State<V>& s) {
        return s.stop == RUNNING;
    }

    template <u32 PHASE>
    __device__ __forceinline__ void row(const State<V>& s, u32, u64 i,
                                        Sum (&sums)[MOST_SUMS]) const {
        if constexpr (PHASE == 0) {
            sums[0] += task.w[i] * task.p[i];
        } else if constexpr (PHASE == 1) {
            task.x[i] += s.alpha * task.p[i];
            const V r = task.r[i] - s.alpha * task.w[i];
            task.r[i] = r;
            sums[0] += r * r;
            if constexpr (DOT == 1) {
                sums[1] += times_m<PRECOND>(task, i, r) * r;
            }
        } else if constexpr (PHASE == DOT) {
            sums[0] += task.m[i] * task.r[i];
        } else {
            task.p[i] = times_m<PRECOND>(task, i, task.r[i]) + s.beta * task.p[i];
        }
    }

    template <u32 PHASE>
    __device__ __forceinline__ void conclude(State<V>& s, u32 system, const Sum (&sums)[MOST_SUMS],
                                             bool leads) const {
        const bool bad = PHASE == 0 ? !(V(0) < sums[0]) : !(V(0) < s.along);
        if constexpr (PHASE == 0) {
            s.along = sums[0];
            s.alpha = bad ? V(0) : s.rho / sums[0];
        } else if constexpr (PHASE == DOT && DOT > 1) {
            const V rz = sums[0];
            s.stop = !(V(0) < rz)             ? unless_lost(rz, not_positive(rz))
                     : s.iteration >= s.limit ? MAX_ITERATIONS
                                              : RUNNING;
            go_on(s, rz);
        } else {
            // Where r'z comes later, so do the tests of it.
            const V rr = sums[0], rz = DOT == 1 ? sums[1] : V(1);
            ++s.iteration;
            if (leads) {
                record(task, system, s, rr);
            }
            s.stop = rr <= s.square && !bad                  ? PASSED
                     : !(rr <= Precision<V>::LARGEST)        ? NON_FINITE
                     : bad                                   ? unless_lost(s.along, INDEFINITE)
                     : !(V(0) < rz)                          ? not_positive(rz)
                     : DOT == 1 && s.iteration >= s.limit    ? MAX_ITERATIONS
                                                             : RUNNING;
            if constexpr (DOT == 1) {
                go_on(s, rz);
            }
        }
    }

    __device__ __forceinline__ static void go_on(State<V>& s, V rz) {
        s.beta = rz / s.rho;
        s.rho = rz;
    }

    // Starts from r: sets the search direction in row i, and returns the row's contribution to rho.
    __device__ __forceinline__ static V start(const KrylovTask<V>& task, u64 i, V r) {
        const V z = times_m<PRECOND>(task, i, r);
        task.p[i] = z;
        return z * r;
    }

    __device__ __forceinline__ static u32 started(const State<V>& s) {
        return V(0) < s.rho ? RUNNING : unless_lost(s.rho, not_positive(s.rho));
    }

    // Whether a system that broke down may restart.
    static constexpr bool RETRIES = false;
};

template <typename Value, u32 PRECOND>
struct BiCgStab {
    using V = Value;
    using Sum = V;
    KrylovTask<V> task;

    __device__ __forceinline__ static constexpr u32 count(u32 phase) {
        return phase < 2 ? 1 : phase < 4 ? 2 : 0;
    }

    template <u32 PHASE>
    __device__ __forceinline__ static bool takes(const State<V>& s) {
        return s.stop == RUNNING;
    }

    template <u32 PHASE>
    __device__ __forceinline__ void row(const State<V>& s, u32, u64 i,
                                        Sum (&sums)[MOST_SUMS]) const {
        if constexpr (PHASE == 0) {
            sums[0] += task.v[i] * task.shadow[i];
        } else if constexpr (PHASE == 1) {
            const V r = task.r[i] - s.alpha * task.v[i];
            task.r[i] = r;
            if constexpr (PRECOND == JACOBI) {
                task.hat[i] = task.m[i] * r;
            }
            sums[0] += r * r;
        } else if constexpr (PHASE == 2) {
            const V t = task.w[i];
            sums[0] += t * task.r[i];
            sums[1] += t * t;
        } else if constexpr (PHASE == 3) {
            const V half = task.r[i];
            V p_hat;
            if constexpr (PRECOND == GIVEN) {
                p_hat = task.hat[i];
            } else {
                p_hat = times_m<PRECOND>(task, i, task.p[i]);
            }
            task.x[i] += s.alpha * p_hat + s.omega * times_m<PRECOND>(task, i, half);
            const V r = half - s.omega * task.w[i];
            task.r[i] = r;
            sums[0] += r * r;
            sums[1] += r * task.shadow[i];
        } else {
            const V p = task.r[i] + s.beta * (task.p[i] - s.omega * task.v[i]);
            task.p[i] = p;
            if constexpr (PRECOND == JACOBI) {
                task.hat[i] = task.m[i] * p;
            }
        }
    }

    template <u32 PHASE>
    __device__ __forceinline__ void conclude(State<V>& s, u32 system, const Sum (&sums)[MOST_SUMS],
                                             bool leads) const {
        const V along = PHASE == 0 ? sums[0] : s.along;
        const bool bad_alpha = !(along < V(0) || V(0) < along);
        if constexpr (PHASE == 0) {
            s.along = along;
            s.alpha = bad_alpha ? V(0) : s.rho / along;
            s.flags &= ~(HALF | BAD_OMEGA);
        } else if constexpr (PHASE == 1) {
            s.flags |= sums[0] <= s.square && !bad_alpha ? HALF : 0;
        } else if constexpr (PHASE == 2) {
            const V ts = sums[0], tt = sums[1];
            const bool half = (s.flags & HALF) != 0;
            const bool bad = !half && !((ts < V(0) || V(0) < ts) && V(0) < tt);
            s.flags |= bad ? BAD_OMEGA : 0;
            s.turn = ts + tt;
            s.omega = half || bad || bad_alpha ? V(0) : ts / tt;
        } else {
            constexpr V TINY = V(Precision<V>::EPSILON * Precision<V>::EPSILON);
            const V rr = sums[0], next = sums[1];
            ++s.iteration;
            if (leads) {
                record(task, system, s, rr);
            }
            const bool passed = rr <= s.square || (s.flags & HALF) != 0;
            s.stop = passed && !bad_alpha               ? PASSED
                     : bad_alpha                        ? unless_lost(along, BREAKDOWN_ALPHA)
                     : (s.flags & BAD_OMEGA) != 0       ? unless_lost(s.turn, BREAKDOWN_OMEGA)
                     : !(rr <= Precision<V>::LARGEST)   ? NON_FINITE
                     // |r^'r| <= eps ||r^|| ||r||
                     : next * next <= TINY * (s.shadow_square * rr) ? BREAKDOWN_RHO
                     : s.iteration >= s.limit                       ? MAX_ITERATIONS
                                                                    : RUNNING;
            s.beta = s.stop == RUNNING ? next / s.rho * (s.alpha / s.omega) : V(0);
            s.rho = next;
        }
    }

    __device__ __forceinline__ static V start(const KrylovTask<V>& task, u64 i, V r) {
        task.shadow[i] = r;
        task.p[i] = r;
        if constexpr (PRECOND == JACOBI) {
            task.hat[i] = task.m[i] * r;
        }
        return r * r;
    }

    __device__ __forceinline__ static u32 started(const State<V>&) { return RUNNING; }

    static constexpr bool RETRIES = true;
    static constexpr bool STARTS_FROM_M = false;
};

// Whether a system is new or has stopped, and has not ended.
template <typename V>
__device__ __forceinline__ bool is_due(const State<V>& s) {
    return s.stop != RUNNING && s.stop != IDLE;
}

// Phase 0 enters a system: norm of its right-hand side, threshold and limit. Phase 1 brings x into
// the scaling in which it is returned, phase 2 judges it by the true residual, given w = A x, phase
// 3 starts the method; where the method starts from m = M r, phase 4 does.
template <typename Method>
struct Verdict {
    using V = typename Method::V;
    using Sum = double;
    KrylovTask<V> task;

    __device__ __forceinline__ static constexpr u32 count(u32 phase) {
        return phase == 0 ? 4 : phase == 1 ? 0 : phase == 2 ? 3 : 1; // phases 3 and 4
    }

    template <u32 PHASE>
    __device__ __forceinline__ static bool takes(const State<V>& s) {
        if constexpr (PHASE == 0) {
            return true;
        } else if constexpr (PHASE == 1) {
            return is_due(s) && (s.scale != 0 || ((s.flags & FRESH) != 0 && s.rhs_norm == 0));
        } else if constexpr (PHASE == 2) {
            return is_due(s);
        } else {
            return s.stop == STARTING;
        }
    }

    // For x = 0 the residual is b. If the system may end on it, A x decides all the same, since A
    // may hold NaN.
    __device__ __forceinline__ static bool is_b(const State<V>& s) {
        return (s.flags & (FRESH | FROM_GUESS)) == FRESH && !(s.rhs_norm <= s.threshold) &&
               is_finite(s.rhs_norm);
    }

    template <u32 PHASE>
    __device__ __forceinline__ void row(const State<V>& s, u32, u64 i,
                                        Sum (&sums)[MOST_SUMS]) const {
        if constexpr (PHASE == 0) {
            Norm::add(double(task.b[i]), sums);
            sums[3] += task.x[i] != V(0) ? 1.0 : 0.0;
        } else if constexpr (PHASE == 1) {
            task.x[i] = (s.flags & FRESH) != 0 ? V(0) : task.x[i] * V(power_of_two(s.scale));
        } else if constexpr (PHASE == 2) {
            // The products have been summed before b is added: products that cancel must not absorb
            // b.
            const V r = is_b(s) ? task.b[i] : task.b[i] - task.w[i];
            task.r[i] = r;
            Norm::add(double(r), sums);
        } else if constexpr (PHASE == 3) {
            V r = task.r[i];
            if (s.scale != 0) {
                const V down = V(power_of_two(-s.scale));
                task.x[i] *= down;
                r *= down;
                task.r[i] = r;
            }
            if constexpr (!Method::STARTS_FROM_M) {
                sums[0] += double(Method::start(task, i, r));
            }
        } else {
            sums[0] += double(Method::start(task, i, task.r[i]));
        }
    }

    template <u32 PHASE>
    __device__ __forceinline__ void conclude(State<V>& s, u32 system, const Sum (&sums)[MOST_SUMS],
                                             bool leads) const {
        if constexpr (PHASE == 0) {
            enter(s, system, sums);
        } else if constexpr (PHASE == 2) {
            judge(s, system, Norm::of(sums), leads);
        } else if constexpr (PHASE == 4 || !Method::STARTS_FROM_M) {
            s.rho = V(sums[0]);
            s.shadow_square = s.rho;
            const bool is_flawed = task.flawed != nullptr && load(task.flawed + system) != 0;
            s.stop = is_flawed ? ZERO_DIAGONAL : Method::started(s);
        }
    }

    __device__ __forceinline__ void enter(State<V>& s, u32 system,
                                          const Sum (&sums)[MOST_SUMS]) const {
        s = {};
        s.rhs_norm = Norm::of(sums);
        s.threshold = task.limits.threshold(system, s.rhs_norm);
        s.limit = task.limits.iterations(system);
        s.flags = FRESH | (sums[3] != 0 ? FROM_GUESS : 0);
        s.stop = VACANT;
    }

    // The rules are those of examine() in fused.cuh.
    __device__ __forceinline__ void judge(State<V>& s, u32 system, double residual,
                                          bool leads) const {
        const bool fresh = (s.flags & FRESH) != 0;
        const bool is_sound = is_finite(residual) && is_finite(s.rhs_norm);
        const double nan = __longlong_as_double(0x7ff8000000000000ll);
        residual = is_finite(residual) && (is_sound || !fresh) ? residual : nan;
        const bool accepted = residual <= s.threshold;
        const bool by_floor = !fresh && !accepted && task.limits.floor >= 0 &&
                              residual <= task.limits.floor * Precision<V>::EPSILON * s.size;
        const bool has_left = s.iteration < s.limit;
        const bool may_start = s.stop == PASSED || (Method::RETRIES && s.stop >= BREAKDOWN_RHO &&
                                                    s.stop <= BREAKDOWN_ALPHA);
        u32 status = s.stop;
        if (!is_sound) {
            status = NON_FINITE;
        } else if (accepted || by_floor) {
            status = CONVERGED;
        } else if (fresh) {
            status = has_left ? STARTING : MAX_ITERATIONS;
        } else if (may_start && has_left && s.restarts < task.limits.max_restarts) {
            status = STARTING;
            ++s.restarts;
        } else if (s.stop == PASSED) {
            status = has_left ? STAGNATED : MAX_ITERATIONS;
        }
        if (fresh) {
            const int exponent = exponent_of(s.rhs_norm);
            constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
            const bool is_safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
            s.scale = is_safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
            s.square = V(s.threshold * power_of_two(-s.scale));
            s.square *= s.square;
            s.flags &= ~FRESH;
        }
        s.stop = status == STARTING ? STARTING : IDLE;
        if (leads) {
            if (status == STARTING) {
                task.outcomes.residual_norms[system] = residual;
                task.outcomes.rhs_norms[system] = s.rhs_norm;
            } else {
                task.outcomes.record(system, status, s.iteration, s.restarts, by_floor, residual,
                                s.rhs_norm);
                atomicAdd(task.remaining, ~0u); // one less
            }
        }
    }
};

// || |A||x| + |b| ||, the size of the terms that cancel in a residual, for rounding floors, of
// systems that are about to be judged. A is in CSR, systems and values as in batches: `entries`
// holds where the values of each item begin and, unless all items share one pattern, its columns.
template <typename Value>
struct Sizes {
    using V = Value;
    using Sum = double;
    KrylovTask<V> task;
    const i32* row_ptr;
    const i32* col_idx;
    const V* values;
    const u64* entries;
    u32 is_uniform, nrhs;

    __device__ __forceinline__ static constexpr u32 count(u32) { return 3; }

    template <u32 PHASE>
    __device__ __forceinline__ static bool takes(const State<V>& s) {
        return is_due(s) && (s.flags & FRESH) == 0;
    }

    template <u32 PHASE>
    __device__ __forceinline__ void row(const State<V>&, u32 system, u64 i,
                                        Sum (&sums)[MOST_SUMS]) const {
        const u32 item = system / nrhs;
        const u64 first = load(task.firsts + system);
        const u64 before = is_uniform ? 0 : load(task.firsts + u64(item) * nrhs) / nrhs + item;
        const i32* const ends = row_ptr + before + (i - first);
        const u64 entry = load(entries + item);
        const V* const a = values + entry;
        const i32* const columns = col_idx + (is_uniform ? 0 : entry);
        double size = magnitude(double(task.b[i]));
        for (i32 k = load(ends); k < load(ends + 1); ++k) {
            size += magnitude(double(load(a + k))) *
                    magnitude(double(task.x[first + u64(load(columns + k))]));
        }
        Norm::add(size, sums);
    }

    template <u32 PHASE>
    __device__ __forceinline__ void conclude(State<V>& s, u32, const Sum (&sums)[MOST_SUMS],
                                             bool) const {
        s.size = Norm::of(sums);
    }
};

#define SIZES_PARAMETERS(V)                                                                        \
    const u64 *blocks, const u32 *order, const u64 *firsts, u64 *states, u32 *tickets,             \
        double *partials, V *x, const V *b, const i32 *row_ptr, const i32 *col_idx,                \
        const V *values, const u64 *entries, u32 is_uniform, u32 nrhs
#define SIZES_TASK                                                                                 \
    {                                                                                              \
        {blocks, order, firsts, states, tickets, partials, x, b}, row_ptr, col_idx, values,        \
            entries, is_uniform, nrhs                                                              \
    }

template <typename V>
__global__ void __launch_bounds__(KRYLOV_THREADS, KRYLOV_BLOCKS) krylov_sizes(SIZES_PARAMETERS(V)) {
    whole_systems<Sizes<V>, 0, 0>(Sizes<V> SIZES_TASK);
}

template <typename V>
__global__ void __launch_bounds__(KRYLOV_THREADS, KRYLOV_BLOCKS)
    krylov_sizes_part(SIZES_PARAMETERS(V), u32 part_rows) {
    part_of_system<Sizes<V>, 0>(Sizes<V> SIZES_TASK, part_rows);
}

template <typename Phases, u32 FIRST, u32 LAST>
__global__ void __launch_bounds__(KRYLOV_THREADS, KRYLOV_BLOCKS) krylov(KRYLOV_PARAMETERS(typename Phases::V)) {
    whole_systems<Phases, FIRST, LAST>(Phases{KRYLOV_TASK});
}

template <typename Phases, u32 PHASE>
__global__ void __launch_bounds__(KRYLOV_THREADS, KRYLOV_BLOCKS)
    krylov_part(KRYLOV_PARAMETERS(typename Phases::V), u32 part_rows) {
    part_of_system<Phases, PHASE>(Phases{KRYLOV_TASK}, part_rows);
}
