// Nuclear burning in many zones on a GPU: rates, right-hand sides, matrices and the control of steps of a
// Rosenbrock method. A zone has a place, and leaves it when it has ended; `stride` places lie between
// two rates. What is per zone (results) is numbered by zones, what is per step by places.
//
// Common to all kernels:
// - A zone's numbers depend on no other zone, nor on the place it has or the shape of the launch: sums
//   run in the order of the tables, cut in pieces by the tables alone.
// - Zones side by side are evaluated by neighbouring threads, W by each: work item w is of the zones from W *
//   (w % (2^shift / W)) of the block on, so that rates of neighbours are read together, and tables once for all.
// - `stage` and `judge` may begin before the launch ahead of them has ended, and wait. What they read before that it
//   does not write: abundances, rates, which zones have ended, stages but the last. `judge` lets nobody begin
//   before it has ended: the next launch reads through the read-only cache what it reads and writes.
// - `pace` and `course` hold what each place has of its zone's step (below). A place whose zone ENDED, or
//   that never had one, is left alone; its matrix is I, its right-hand side 0.

// Numbers of a place in `pace`: the time, the step, the step that the error allows, the output time ahead,
// step and error of the last accepted step.
constexpr u32 PACE = 6;
constexpr u32 TIME = 0, STEP = 1, WANTED = 2, TARGET = 3, LAST_STEP = 4, LAST_ERROR = 5;

// Numbers of a place in `course`: its zone, the number of the output time ahead, flags.
constexpr u32 COURSE = 3;
constexpr u32 ZONE = 0, NEXT = 1, FLAGS = 2;
constexpr u32 ARRIVES = 1;   // the step ends at the output time ahead
constexpr u32 REJECTED = 2;  // the last step was
constexpr u32 HAS_LAST = 4;  // a step was accepted
constexpr u32 LOST = 8;      // a linear system of this step was not solved
constexpr u32 ENDED = 16;

// Results of a zone: counts of steps and how it ended; largest changes of the conserved sums, lowest
// abundance, and where it stood with which step.
constexpr u32 COUNTS = 4;
constexpr u32 STEPS = 0, REJECTIONS = 1, UNSOLVED = 2, OUTCOME = 3;
constexpr u32 FINISHED = 0, STEP_UNDERFLOW = 1, TOO_MANY_STEPS = 2;
constexpr u32 FIGURES = 5;

// What `settings` holds.
constexpr u32 RTOL = 0, ATOL = 1, ORDER = 2, FIXED_STEP = 3, SAFETY = 4, SHRINK = 5, GROW = 6;
constexpr u32 LEAST_STEP = 7, LEAST_FIRST_STEP = 8, LOST_FACTOR = 9;

// The most stages before the last.
constexpr u32 BEFORE = 7;

// Derivatives whose rates a thread asks for at once.
constexpr u32 AT_ONCE = 4;

// Where a reaction has no reverse: its rate stands there again.
constexpr u32 NO_REVERSE = 0x80000000u;

// What a span may have besides its count: it is of pieces, and not of terms; its sum is on the diagonal.
constexpr u32 LONG = 0x80000000u;
constexpr u32 ON_DIAGONAL = 0x40000000u;
constexpr u32 COUNT = ON_DIAGONAL - 1;

__device__ __forceinline__ double infinity() {
    return __longlong_as_double(0x7ff0000000000000ll);
}

__device__ __forceinline__ double absolute(double value) {
    return value < 0 ? -value : value;
}

__device__ __forceinline__ bool finite(double value) {
    return value - value == 0;
}

__device__ __forceinline__ double clamped(double value, double low, double high) {
    return minimum(maximum(value, low), high);
}

// The same in all lanes, whatever their number: partners add the same two values.
__device__ __forceinline__ double sum_of_lanes(double value) {
#pragma unroll
    for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, offset);
    }
    return value;
}

__device__ __forceinline__ double most_of_lanes(double value) {
#pragma unroll
    for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
        value = maximum(value, __shfl_xor_sync(ALL_LANES, value, offset));
    }
    return value;
}

// prefactor * rho^exponent * sum over sets of exp(a0 + a1/T9 + a2 T9^(-1/3) + a3 T9^(1/3) + a4 T9
// + a5 T9^(5/3) + a6 ln T9), the temperature held within the range of the fits: REACLIB, Cyburt et al.
// 2010, ApJS 189, 240, equation (1).
//
// A thread a rate of a zone; neighbours have the same rate. t9, rho: one a zone. Sets of rate r are
// set_ptr[r] .. set_ptr[r + 1], seven coefficients each. lambda[r * stride + zone], stride >= nzones,
// nzones * nrates < 2^32; `bad` holds 2^32 - 1 and gets the least zone * nrates + r whose rate is not
// finite. Any launch.
__global__ void rates(u32 nzones, u32 nrates, u32 stride, double t9_min, double t9_max,
                      const double* __restrict__ t9, const double* __restrict__ rho,
                      const u32* __restrict__ set_ptr, const double* __restrict__ sets,
                      const double* __restrict__ prefactors, const u32* __restrict__ exponents,
                      double* __restrict__ lambda, u32* __restrict__ bad) {
    const u64 all = u64(nzones) * nrates;
    for (u64 work = grid_thread(); work < all; work += grid_threads()) {
        const u32 rate = u32(work / nzones), zone = u32(work % nzones);
        const double t = clamped(load(t9 + zone), t9_min, t9_max);
        const double root = cbrt(t);
        const double powers[7] = {1.0, 1.0 / t, 1.0 / root, root, t, t * root * root, log(t)};
        double fit = 0;
        for (u32 set = load(set_ptr + rate); set < load(set_ptr + rate + 1); ++set) {
            double sum = 0;
#pragma unroll
            for (u32 k = 0; k < 7; ++k) {
                sum += load(sets + 7 * u64(set) + k) * powers[k];
            }
            fit += exp(sum);
        }
        double scale = load(prefactors + rate);
        for (u32 k = load(exponents + rate); k > 0; --k) {
            scale *= load(rho + zone);
        }
        const double value = scale * fit;
        lambda[u64(rate) * stride + zone] = value;
        if (!finite(value)) {
            atomicMin(bad, zone * nrates + rate);
        }
    }
}

// A number of each of W zones side by side, from a multiple of W numbers on: read and written in one access.
template <u32 W>
struct alignas(W * sizeof(double)) Zones {
    double of[W];

    __device__ __forceinline__ static Zones get(const double* from) {
        return *reinterpret_cast<const Zones*>(from);
    }

    __device__ __forceinline__ void put(double* to) const { *reinterpret_cast<Zones*>(to) = *this; }

    // From memory to shared memory, asynchronously.
    __device__ __forceinline__ static void fetch(double* to, const double* from) {
        if constexpr (W == 2) {
            cp_async_16(to, from);
        } else {
            cp_async_8(to, from);
        }
    }
};

// A thread's part in a block of 2^shift zones, and which zones it has throughout: the threads of a block are a multiple
// of those that the zones take.
template <u32 W>
struct Part {
    u32 zone, worker, workers;
    u32 place; // of the first zone
    u32 own;   // the same, or of other zones that exist
    u32 last;  // place that exists

    __device__ __forceinline__ Part(u32 shift, u32 nplaces) {
        const u32 teams = (1u << shift) / W;
        zone = threadIdx.x % teams * W;
        worker = threadIdx.x / teams;
        workers = blockDim.x / teams;
        place = (blockIdx.x << shift) + zone;
        last = nplaces - 1;
        own = minimum(place, last - last % W);
    }

    // The k-th zone, or another one that exists.
    __device__ __forceinline__ u32 at(u32 k) const { return minimum(own + k, last); }
};

// Sums of many numbers with small integers as factors. Sum e has the terms from the lower half of spans[e] on, as
// many as COUNT of the upper half says; where LONG is set so many pieces, whose terms are piece_ptr[p] ..
// piece_ptr[p + 1]. A term is the number of what is added, times 256, and its factor as a signed byte.
struct Sums {
    u32 npieces;
    const u32* piece_ptr;
    const u64* spans;
    const u32* terms;

    // `values` and the result are of some zones among 2^shift.
    template <u32 W>
    __device__ __forceinline__ Zones<W> of(u32 first, u32 count, const double* values,
                                           u32 shift) const {
        Zones<W> sum = {};
#pragma unroll 4
        for (u32 k = first; k < first + count; ++k) {
            const u32 term = load(terms + k);
            const double factor = double(i32(term << 24) >> 24);
            const auto value = Zones<W>::get(values + ((term >> 8) << shift));
#pragma unroll
            for (u32 z = 0; z < W; ++z) {
                sum.of[z] += factor * value.of[z];
            }
        }
        return sum;
    }

    template <u32 W>
    __device__ __forceinline__ Zones<W> piece(u32 number, const double* values, u32 shift) const {
        const u32 first = load(piece_ptr + number);
        return of<W>(first, load(piece_ptr + number + 1) - first, values, shift);
    }

    // Where all pieces are in place.
    template <u32 W>
    __device__ __forceinline__ Zones<W> whole(u64 span, const double* values, const double* pieces,
                                              u32 shift) const {
        const u32 first = u32(span), count = u32(span >> 32) & COUNT;
        if ((span >> 32 & LONG) == 0) {
            return of<W>(first, count, values, shift);
        }
        Zones<W> sum = {};
        for (u32 p = first; p < first + count; ++p) {
            const auto piece = Zones<W>::get(pieces + (p << shift));
#pragma unroll
            for (u32 z = 0; z < W; ++z) {
                sum.of[z] += piece.of[z];
            }
        }
        return sum;
    }
};

// lambda * Y * Y * Y * Y; `factors` has 16 bits for each Y, and stands for 1 where there are fewer.
template <u32 W>
__device__ __forceinline__ Zones<W> product(Zones<W> lambda, u64 factors, const double* y,
                                            u32 shift) {
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
        const auto factor = Zones<W>::get(y + (u32(factors >> (16 * k) & 0xffff) << shift));
#pragma unroll
        for (u32 z = 0; z < W; ++z) {
            lambda.of[z] *= factor.of[z];
        }
    }
    return lambda;
}

// What `counts` has: systems by status, accepted by the rounding floor, and by iterations, the last number being
// for that many and more.
constexpr u32 STATUSES = 16, ITERATIONS = 64;
constexpr u32 FLOOR = STATUSES, FIRST_ITERATIONS = STATUSES + 1;

// How the systems of a stage ended, place by place, as the solvers of the library write it: a status, iterations,
// twice the restarts plus 1 where the floor accepted, norms of residual and right-hand side; and the tally of all.
// `worst` holds the bits of the largest relative residual of a system that converged. No statuses: nothing was
// solved.
struct Ended {
    const u8* statuses;
    const u32* iterations;
    const u32* restarts;
    const double* residual_norms;
    const double* rhs_norms;
    u64* counts;
    u64* worst;

    // Counts the system of a lane, for the whole warp; whether it was not solved.
    __device__ __forceinline__ bool count(u32 place, bool counts_here) const {
        constexpr u32 NONE = 0xffffffffu;
        const u32 lane = threadIdx.x % WARP_THREADS;
        u32 kind = NONE, status = 0;
        double residual = 0;
        if (counts_here) {
            status = minimum(u32(statuses[place]), STATUSES - 1);
            const u32 by_floor = status == 0 ? restarts[place] & 1 : 0;
            kind = minimum(iterations[place], ITERATIONS - 1) << 8 | by_floor << 7 | status;
            const double size = rhs_norms[place];
            residual = status == 0 && size > 0 ? residual_norms[place] / size : 0;
        }
        const u32 alike = __match_any_sync(ALL_LANES, kind);
        if (kind != NONE && u32(__ffs(i32(alike))) == lane + 1) {
            const u64 systems = __popc(alike);
            atomicAdd(counts + status, systems);
            atomicAdd(counts + FIRST_ITERATIONS + (kind >> 8), systems);
            if ((kind >> 7 & 1) != 0) {
                atomicAdd(counts + FLOOR, systems);
            }
        }
        residual = most_of_lanes(residual);
        if (lane == 0 && residual > 0) {
            atomicMax(worst, u64(__double_as_longlong(residual)));
        }
        return status != 0;
    }
};

// Whether no zone of a block is on its way.
__device__ __forceinline__ bool all_ended(u32 first, u32 nplaces, u32 shift, const u32* course) {
    for (u32 place = first; place < minimum(first + (1u << shift), nplaces); ++place) {
        if ((course[u64(place) * COURSE + FLAGS] & ENDED) == 0) {
            return false;
        }
    }
    return true;
}

// Adds stage j to a number of some zones, and to what is carried.
template <u32 W>
__device__ __forceinline__ void add_stage(Zones<W>& value, Zones<W>& more, const double* weights,
                                          u32 j, const double* u, u32 n, const Part<W>& part) {
#pragma unroll
    for (u32 k = 0; k < W; ++k) {
        const double stage = u[u64(part.at(k)) * n];
        value.of[k] += load(weights + j) * stage;
        more.of[k] += load(weights + BEFORE + 1 + j) * stage;
    }
}

// The right-hand side of a stage, for every place:
//
//   b = f(y + sum_j a_j u_j) + sum_j c_j / h u_j,  j < before
//
// a block for 2^shift places. `weights` has a_0 .. a_6, 0, c_0 .. c_6, 0. The rate of reaction r is the lower half of
// flow_rates[r], that of its reverse the upper, their factors are at 2 r and 2 r + 1; a rate and its reverse are
// subtracted before anything is summed. y, u_j and b are place after place, n values each; u_j from `before` on are not
// read. 0 where the zone has ended or a system of the step was not solved. `statuses` to `worst` are of the systems
// of the stage before, see `Ended`: zones whose system was not solved are marked. A term numbers the rate of
// a reaction. Shared memory: (n + nrates + max(n + 1, npieces)) * 2^shift doubles.
// `stride` is even. Two blocks a multiprocessor: what one reads takes its time.
template <u32 W>
__global__ void __launch_bounds__(W > 1 ? 640 : 1024, 2)
    stage(u32 nplaces, u32 stride, u32 n, u32 nrates, u32 nreactions, u32 npieces, u32 shift,
          const u64* __restrict__ flow_rates, const u64* __restrict__ flow_factors,
          const u32* __restrict__ piece_ptr, const u64* __restrict__ spans,
          const u32* __restrict__ terms, const double* __restrict__ y,
          const double* __restrict__ lambda, const double* __restrict__ pace, u32* course,
          const u8* statuses, const u32* iterations, const u32* restarts,
          const double* residual_norms, const double* rhs_norms, u64* counts, u64* worst,
          u32 before, const double* __restrict__ weights, const double* u0, const double* u1,
          const double* u2, const double* u3, const double* u4, const double* u5,
          const double* u6, double* __restrict__ b) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    const u32 first = blockIdx.x << shift, zones = 1u << shift;
    double* const net = reinterpret_cast<double*>(dynamic_shared); // rates before
    double* const carried = net + (nrates << shift);
    double* const y_now = carried + (n << shift);
    double* const pieces = y_now; // when the abundances are done with
    const double* const u[BEFORE] = {u0, u1, u2, u3, u4, u5, u6};
    const Sums sums{npieces, piece_ptr, spans, terms};
    const Part<W> part(shift, nplaces);
    const u32 zone = part.zone;
    // The launch just ahead of this changes neither rates nor which zones have ended, nor any but the last stage.
    const bool idles = all_ended(first, nplaces, shift, course);
    const u32 last = before > 0 ? before - 1 : 0;
    if (!idles) {
        for (u32 rate = part.worker; rate < nrates; rate += part.workers) {
            Zones<W>::fetch(net + (rate << shift) + zone, lambda + u64(rate) * stride + part.own);
        }
        for (u32 i = part.worker; i <= n; i += part.workers) {
            Zones<W> value, more = {};
#pragma unroll
            for (u32 k = 0; k < W; ++k) {
                value.of[k] = i < n ? y[u64(part.at(k)) * n + i] : 1;
            }
#pragma unroll
            for (u32 j = 0; j < BEFORE - 1; ++j) {
                if (j < last && i < n) {
                    add_stage(value, more, weights, j, u[j] + i, n, part);
                }
            }
            value.put(y_now + (i << shift) + zone);
            if (i < n) {
                more.put(carried + (i << shift) + zone);
            }
        }
    }
    wait_for_launches_ahead();
    let_next_launch_begin();
    if (idles) {
        for (u32 work = threadIdx.x; work < n << shift; work += blockDim.x) {
            const u32 place = first + (work & (zones - 1));
            if (place < nplaces) {
                b[u64(place) * n + (work >> shift)] = 0;
            }
        }
        return;
    }

    // The last warp, which has the least to do else; its first lanes have a zone each.
    if (statuses != nullptr && threadIdx.x + WARP_THREADS >= blockDim.x) {
        const Ended ended{statuses, iterations, restarts, residual_norms, rhs_norms, counts, worst};
        const u32 place = first + threadIdx.x % WARP_THREADS;
        const bool exists = threadIdx.x % WARP_THREADS < zones && place < nplaces;
        u32* const flags = course + u64(minimum(place, nplaces - 1)) * COURSE + FLAGS;
        if (ended.count(place, exists && (*flags & ENDED) == 0)) {
            *flags |= LOST;
        }
    }
    const double* of_last = u0;
#pragma unroll
    for (u32 j = 1; j < BEFORE; ++j) {
        of_last = j == last ? u[j] : of_last;
    }
    for (u32 i = part.worker; i < n && before > 0; i += part.workers) {
        auto value = Zones<W>::get(y_now + (i << shift) + zone);
        auto more = Zones<W>::get(carried + (i << shift) + zone);
        add_stage(value, more, weights, last, of_last + i, n, part);
        value.put(y_now + (i << shift) + zone);
        more.put(carried + (i << shift) + zone);
    }
    cp_async_wait_all();
    __syncthreads();
    // The net flow takes the place of the rate.
#pragma unroll 2
    for (u32 r = part.worker; r < nreactions; r += part.workers) {
        const u64 both = load(flow_rates + r);
        const u32 forth = u32(both), back = u32(both >> 32);
        double* const place = net + (forth << shift) + zone;
        const double* const reverse = net + ((back & ~NO_REVERSE) << shift) + zone;
        auto value = product(Zones<W>::get(place), load(flow_factors + 2 * r), y_now + zone, shift);
        const auto less =
            product(Zones<W>::get(reverse), load(flow_factors + 2 * r + 1), y_now + zone, shift);
#pragma unroll
        for (u32 k = 0; k < W; ++k) {
            value.of[k] = (back & NO_REVERSE) != 0 ? value.of[k] : value.of[k] - less.of[k];
        }
        value.put(place);
    }
    __syncthreads();
    for (u32 p = part.worker; p < npieces; p += part.workers) {
        sums.piece<W>(p, net + zone, shift).put(pieces + (p << shift) + zone);
    }
    __syncthreads();
    bool idle[W];
    double by_step[W];
#pragma unroll
    for (u32 k = 0; k < W; ++k) {
        idle[k] = (course[u64(part.at(k)) * COURSE + FLAGS] & (ENDED | LOST)) != 0;
        // Without stages before it there may be no step yet.
        by_step[k] = before == 0 ? 0.0 : 1.0 / pace[u64(part.at(k)) * PACE + STEP];
    }
    for (u32 i = part.worker; i < n; i += part.workers) {
        const auto sum = sums.whole<W>(load(spans + i), net + zone, pieces + zone, shift);
        const auto more = Zones<W>::get(carried + (i << shift) + zone);
#pragma unroll
        for (u32 k = 0; k < W; ++k) {
            if (part.place + k < nplaces) {
                b[u64(part.place + k) * n + i] =
                    idle[k] ? 0 : sum.of[k] + more.of[k] * by_step[k];
            }
        }
    }
}

// I / (gamma h) - J(y) for every place, `nnz` values in the order of CSR; I where the zone has ended. A
// block for 2^shift places: the derivatives of all rates first, then for each entry the sum of those
// that it has. `partial_rates` and `partial_factors` hold a derivative each: a rate with its other
// factors. `stride` is even. Shared memory: (n + 1 + npartials + npieces) * 2^shift doubles.
template <u32 W>
__global__ void __launch_bounds__(1024 / W, 2)
    matrix(u32 nplaces, u32 stride, u32 n, u32 nnz, u32 npartials, u32 npieces, u32 shift,
           double gamma, const u32* __restrict__ partial_rates,
           const u64* __restrict__ partial_factors, const u32* __restrict__ piece_ptr,
           const u64* __restrict__ spans, const u32* __restrict__ terms,
           const double* __restrict__ y, const double* __restrict__ lambda,
           const double* __restrict__ pace, const u32* __restrict__ course,
           double* __restrict__ values) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    let_next_launch_begin();
    const Part<W> part(shift, nplaces);
    const u32 zone = part.zone;
    double* const y_now = reinterpret_cast<double*>(dynamic_shared);
    double* const slopes = y_now + ((n + 1) << shift);
    double* const pieces = slopes + (npartials << shift);
    const Sums sums{npieces, piece_ptr, spans, terms};
    if (!all_ended(blockIdx.x << shift, nplaces, shift, course)) {
        for (u32 i = part.worker; i <= n; i += part.workers) {
            Zones<W> value;
#pragma unroll
            for (u32 k = 0; k < W; ++k) {
                value.of[k] = i < n ? y[u64(part.at(k)) * n + i] : 1.0;
            }
            value.put(y_now + (i << shift) + zone);
        }
        __syncthreads();
        const double* const rates_here = lambda + part.own;
        // What several derivatives need is asked for at once.
        for (u32 p = part.worker; p < npartials; p += part.workers * AT_ONCE) {
            Zones<W> rate[AT_ONCE];
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; ++k) {
                const u32 own = minimum(p + k * part.workers, npartials - 1);
                rate[k] = Zones<W>::get(rates_here + u64(load(partial_rates + own)) * stride);
            }
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; ++k) {
                const u32 own = p + k * part.workers;
                if (own < npartials) {
                    product(rate[k], load(partial_factors + own), y_now + zone, shift)
                        .put(slopes + (own << shift) + zone);
                }
            }
        }
        __syncthreads();
        for (u32 p = part.worker; p < npieces; p += part.workers) {
            sums.piece<W>(p, slopes + zone, shift).put(pieces + (p << shift) + zone);
        }
        __syncthreads();
    }
    bool ended[W];
    double diagonal[W];
#pragma unroll
    for (u32 k = 0; k < W; ++k) {
        ended[k] = (course[u64(part.at(k)) * COURSE + FLAGS] & ENDED) != 0;
        diagonal[k] = ended[k] ? 1.0 : 1.0 / (gamma * pace[u64(part.at(k)) * PACE + STEP]);
    }
#pragma unroll 2
    for (u32 e = part.worker; e < nnz; e += part.workers) {
        const u64 span = load(spans + e);
        const auto sum = sums.whole<W>(span, slopes + zone, pieces + zone, shift);
#pragma unroll
        for (u32 k = 0; k < W; ++k) {
            if (part.place + k < nplaces) {
                const double value = ended[k] ? 0.0 : -sum.of[k];
                values[u64(part.place + k) * nnz + e] =
                    (span >> 32 & ON_DIAGONAL) != 0 ? value + diagonal[k] : value;
            }
        }
    }
}

// Cuts the step so that it ends at the output time ahead, or halves what is left before a step that would
// end shortly before it.
__device__ __forceinline__ u32 aim(double* pace, u32 flags, double target) {
    const double left = target - pace[TIME], wanted = pace[WANTED];
    const bool arrives = wanted >= left * (1.0 - 1e-10);
    pace[TARGET] = target;
    pace[STEP] = arrives ? left : wanted > 0.5 * left ? 0.5 * left : wanted;
    return arrives ? flags | ARRIVES : flags & ~ARRIVES;
}

// Puts every zone at its place, place and zone having one number, with a first step: explicit Euler by
// ten times the tolerance. A warp a zone; `slopes` holds f(y). Zone z has the output times
// time_ptr[z] .. time_ptr[z + 1].
__global__ void begin(u32 nzones, u32 n, const double* __restrict__ settings,
                      const double* __restrict__ y, const double* __restrict__ slopes,
                      const u32* __restrict__ time_ptr, const double* __restrict__ times,
                      double* __restrict__ pace, u32* __restrict__ course,
                      u32* __restrict__ counts, double* __restrict__ figures) {
    const u32 zone = u32(grid_thread() / WARP_THREADS), lane = threadIdx.x % WARP_THREADS;
    if (zone >= nzones) {
        return;
    }
    // The largest inverse of a step, in units of which the least step is a maximum, too.
    double most = 0;
    for (u32 i = lane; i < n; i += WARP_THREADS) {
        const double value = y[u64(zone) * n + i], slope = slopes[u64(zone) * n + i];
        const double weight = load(settings + ATOL) + load(settings + RTOL) * absolute(value);
        most = maximum(most, absolute(slope) / weight);
    }
    most = most_of_lanes(most);
    if (lane != 0) {
        return;
    }
    const u32 first = load(time_ptr + zone), last = load(time_ptr + zone + 1) - 1;
    const double end = load(times + last), fixed = load(settings + FIXED_STEP);
    // Where nothing changes any step will do.
    const double step = most > 0 ? 10.0 / most : infinity();
    double own[PACE] = {};
    own[WANTED] = fixed > 0 ? fixed : clamped(step, load(settings + LEAST_FIRST_STEP) * end, end);
    const u32 flags = aim(own, 0, load(times + first));
    for (u32 k = 0; k < PACE; ++k) {
        pace[u64(zone) * PACE + k] = own[k];
    }
    course[u64(zone) * COURSE + ZONE] = zone;
    course[u64(zone) * COURSE + NEXT] = 0;
    course[u64(zone) * COURSE + FLAGS] = flags;
    for (u32 k = 0; k < COUNTS; ++k) {
        counts[u64(zone) * COUNTS + k] = 0;
    }
    for (u32 k = 0; k < FIGURES; ++k) {
        figures[u64(zone) * FIGURES + k] = 0;
    }
}

// Moves on by the step, and takes the next one from its error: the predictive controller of Gustafsson,
// Hairer and Wanner 1996, Solving Ordinary Differential Equations II, equation (8.25).
__device__ __forceinline__ u32 accept(double* pace, u32 flags, double error,
                                      const double* settings) {
    pace[TIME] = (flags & ARRIVES) != 0 ? pace[TARGET] : pace[TIME] + pace[STEP];
    if (load(settings + FIXED_STEP) > 0) {
        return flags;
    }
    const double exponent = 1.0 / load(settings + ORDER), safety = load(settings + SAFETY);
    const double step = pace[STEP];
    error = maximum(error, 1e-6);
    double factor = safety * pow(error, -exponent);
    if ((flags & HAS_LAST) != 0) {
        const double predicted =
            step / pace[LAST_STEP] * pow(pace[LAST_ERROR] / (error * error), exponent);
        factor = minimum(factor, safety * predicted);
    }
    const double most = (flags & REJECTED) != 0 ? 1.0 : load(settings + GROW);
    const double next = step * clamped(factor, load(settings + SHRINK), most);
    // A step that an output time cut short says little of what is possible.
    const bool was_cut = step < 0.99 * pace[WANTED];
    pace[WANTED] = was_cut ? maximum(next, pace[WANTED]) : next;
    pace[LAST_STEP] = step;
    pace[LAST_ERROR] = maximum(error, 1e-2);
    return (flags | HAS_LAST) & ~REJECTED;
}

// Accepts or rejects the steps, and lets zones go that have ended. A warp a place.
//
// `weights` are those of the last stage, whose solution is `last`, the error estimate. Where `projects`,
// abundances are brought back to the sums of a_i Y and z_i Y that `start` has, by changes proportional to
// them. Abundances at output time k of a zone go to out[(time_ptr[zone] + k) * n ..]. `left` is the number
// of zones on their way, `tried` the most steps tried in a zone. u_j from `before` on are not read. `statuses` to
// `worst` are of the systems of the last stage, see `Ended`. Shared memory: n doubles a warp.
__global__ void judge(u32 nplaces, u32 n, u32 before, u32 max_steps, u32 projects,
                      const double* __restrict__ settings, const double* __restrict__ weights,
                      const double* __restrict__ a, const double* __restrict__ z,
                      const double* __restrict__ start, const u32* __restrict__ time_ptr,
                      const double* __restrict__ times, const double* u0, const double* u1,
                      const double* u2, const double* u3, const double* u4, const double* u5,
                      const double* u6, const double* last, double* __restrict__ y,
                      double* __restrict__ pace, u32* course, const u8* statuses,
                      const u32* iterations, const u32* restarts, const double* residual_norms,
                      const double* rhs_norms, u64* all_counts, u64* worst,
                      u32* __restrict__ counts, double* __restrict__ figures,
                      double* __restrict__ out, u32* __restrict__ left, u32* __restrict__ tried) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    const u32 place = u32(grid_thread() / WARP_THREADS), lane = threadIdx.x % WARP_THREADS;
    // The launch just ahead of this makes the last stage, and ends no zone.
    const bool idles = place >= nplaces || (course[u64(place) * COURSE + FLAGS] & ENDED) != 0;
    const double* const u[BEFORE] = {u0, u1, u2, u3, u4, u5, u6};
    // A lane has every 32nd abundance throughout, so that lanes need not wait for each other.
    double* const y_new = reinterpret_cast<double*>(dynamic_shared) + threadIdx.x / WARP_THREADS * n;
    double* const y_old = y + u64(place) * n;
    for (u32 i = lane; i < n && !idles; i += WARP_THREADS) {
        const u64 at = u64(place) * n + i;
        double value = y_old[i];
#pragma unroll
        for (u32 j = 0; j < BEFORE; ++j) {
            if (j < before) {
                value += load(weights + j) * u[j][at];
            }
        }
        y_new[i] = value;
    }
    wait_for_launches_ahead();
    if (idles) {
        return;
    }
    const Ended ended{statuses, iterations, restarts, residual_norms, rhs_norms, all_counts, worst};
    const bool unsolved = __any_sync(ALL_LANES, ended.count(place, lane == 0)) != 0;
    double error = 0;
    for (u32 i = lane; i < n; i += WARP_THREADS) {
        const double estimate = last[u64(place) * n + i], value = y_new[i] + estimate;
        const double size = maximum(absolute(y_old[i]), absolute(value));
        const double part =
            absolute(estimate) / (load(settings + ATOL) + load(settings + RTOL) * size);
        // A step with NaN or infinities is worth nothing.
        error = finite(part) && finite(value) ? maximum(error, part) : infinity();
        y_new[i] = value;
    }
    error = most_of_lanes(error);

    double own[PACE];
    for (u32 k = 0; k < PACE; ++k) {
        own[k] = pace[u64(place) * PACE + k];
    }
    const u32 zone = course[u64(place) * COURSE + ZONE];
    u32 next = course[u64(place) * COURSE + NEXT], flags = course[u64(place) * COURSE + FLAGS];
    u32 count[COUNTS];
    for (u32 k = 0; k < COUNTS; ++k) {
        count[k] = counts[u64(zone) * COUNTS + k];
    }
    double figure[FIGURES];
    for (u32 k = 0; k < FIGURES; ++k) {
        figure[k] = figures[u64(zone) * FIGURES + k];
    }
    const u32 first_time = load(time_ptr + zone), ntimes = load(time_ptr + zone + 1) - first_time;
    const bool lost = unsolved || (flags & LOST) != 0;
    if (lost) {
        ++count[UNSOLVED];
        own[WANTED] = load(settings + LOST_FACTOR) * own[STEP];
        flags = (flags & ~LOST) | REJECTED;
    } else if (load(settings + FIXED_STEP) > 0 || error <= 1.0) {
        ++count[STEPS];
        const double* const y_start = start + u64(zone) * n;
        if (projects != 0) {
            double aa = 0, az = 0, zz = 0, lack_a = 0, lack_z = 0;
            for (u32 i = lane; i < n; i += WARP_THREADS) {
                const double size = absolute(y_new[i]), lack = y_start[i] - y_new[i];
                const double a_i = load(a + i), z_i = load(z + i);
                aa += a_i * a_i * size;
                az += a_i * z_i * size;
                zz += z_i * z_i * size;
                lack_a += a_i * lack;
                lack_z += z_i * lack;
            }
            aa = sum_of_lanes(aa);
            az = sum_of_lanes(az);
            zz = sum_of_lanes(zz);
            lack_a = sum_of_lanes(lack_a);
            lack_z = sum_of_lanes(lack_z);
            const double determinant = aa * zz - az * az;
            double alpha = 0, zeta = 0;
            // With Z proportional to A, as in an alpha chain, nucleons are charge.
            if (determinant > 1e-10 * aa * zz) {
                alpha = (zz * lack_a - az * lack_z) / determinant;
                zeta = (aa * lack_z - az * lack_a) / determinant;
            } else if (aa > 0) {
                alpha = lack_a / aa;
            }
            for (u32 i = lane; i < n; i += WARP_THREADS) {
                y_new[i] += absolute(y_new[i]) * (alpha * load(a + i) + zeta * load(z + i));
            }
        }
        double first_a = 0, first_z = 0, now_a = 0, now_z = 0, lowest = 0;
        for (u32 i = lane; i < n; i += WARP_THREADS) {
            const double value = y_new[i], a_i = load(a + i), z_i = load(z + i);
            first_a += a_i * y_start[i];
            first_z += z_i * y_start[i];
            now_a += a_i * value;
            now_z += z_i * value;
            lowest = minimum(lowest, value);
            y_old[i] = value;
        }
        first_a = sum_of_lanes(first_a);
        first_z = sum_of_lanes(first_z);
        now_a = absolute(sum_of_lanes(now_a) - first_a);
        now_z = absolute(sum_of_lanes(now_z) - first_z);
        lowest = -most_of_lanes(-lowest);
        // Neutrons alone have no charge to lose.
        figure[0] = maximum(figure[0], first_a == 0 ? now_a : now_a / absolute(first_a));
        figure[1] = maximum(figure[1], first_z == 0 ? now_z : now_z / absolute(first_z));
        figure[2] = minimum(figure[2], lowest);
        const bool arrives = (flags & ARRIVES) != 0;
        flags = accept(own, flags, error, settings);
        if (arrives) {
            double* const state = out + (u64(first_time) + next) * n;
            for (u32 i = lane; i < n; i += WARP_THREADS) {
                state[i] = y_new[i];
            }
            ++next;
        }
    } else {
        ++count[REJECTIONS];
        const double factor =
            load(settings + SAFETY) * pow(error, -1.0 / load(settings + ORDER));
        own[WANTED] = clamped(factor, load(settings + SHRINK), 1.0) * own[STEP];
        flags |= REJECTED;
    }
    const u32 tries = count[STEPS] + count[REJECTIONS] + count[UNSOLVED];
    if (next == ntimes) {
        count[OUTCOME] = FINISHED;
        flags |= ENDED;
    } else if (tries >= max_steps) {
        count[OUTCOME] = TOO_MANY_STEPS;
        flags |= ENDED;
    } else {
        flags = aim(own, flags, load(times + first_time + next));
        const double end = load(times + first_time + ntimes - 1);
        const bool moves = own[TIME] + own[STEP] > own[TIME] &&
                           own[STEP] > load(settings + LEAST_STEP) * end;
        if (!moves) {
            count[OUTCOME] = STEP_UNDERFLOW;
            flags |= ENDED;
        }
    }
    figure[3] = own[TIME];
    figure[4] = own[STEP];
    __syncwarp(); // all lanes have read what the first one writes
    if (lane == 0) {
        for (u32 k = 0; k < PACE; ++k) {
            pace[u64(place) * PACE + k] = own[k];
        }
        course[u64(place) * COURSE + NEXT] = next;
        course[u64(place) * COURSE + FLAGS] = flags;
        for (u32 k = 0; k < COUNTS; ++k) {
            counts[u64(zone) * COUNTS + k] = count[k];
        }
        for (u32 k = 0; k < FIGURES; ++k) {
            figures[u64(zone) * FIGURES + k] = figure[k];
        }
        atomicMax(tried, tries);
        if ((flags & ENDED) != 0) {
            atomicSub(left, 1u);
        }
    }
}

// The matrices of all places as dense ones, column by column: entry k of the pattern where
// entry_of[column * n + row] is k, 0 where it is negative. A thread an entry of a dense matrix; any launch.
__global__ void densify(u32 nplaces, u32 n, u32 nnz, const i32* __restrict__ entry_of,
                        const double* __restrict__ values, double* __restrict__ dense) {
    const u32 each = n * n;
    const u64 all = u64(nplaces) * each;
    for (u64 work = grid_thread(); work < all; work += grid_threads()) {
        const i32 entry = load(entry_of + u32(work % each));
        dense[work] = entry < 0 ? 0.0 : values[work / each * nnz + entry];
    }
}

// The status of a dense solve: whether a pivot was missing, by `info`, and whether x is finite. A warp a
// place.
__global__ void judge_dense(u32 nplaces, u32 n, const i32* __restrict__ info,
                            const double* __restrict__ x, u8* __restrict__ statuses) {
    constexpr u8 CONVERGED = 0, NON_FINITE = 5, SINGULAR = 9;
    const u32 place = u32(grid_thread() / WARP_THREADS), lane = threadIdx.x % WARP_THREADS;
    if (place >= nplaces) {
        return;
    }
    bool lost = false;
    for (u32 i = lane; i < n; i += WARP_THREADS) {
        lost = lost || !finite(x[u64(place) * n + i]);
    }
    lost = __any_sync(ALL_LANES, lost) != 0;
    if (lane == 0) {
        statuses[place] = info[place] != 0 ? SINGULAR : lost ? NON_FINITE : CONVERGED;
    }
}

// The places of the zones that are still on their way, in their order, and how many. One block.
__global__ void survivors(u32 nplaces, const u32* __restrict__ course, u32* __restrict__ moves,
                          u32* __restrict__ count) {
    __shared__ u32 of_warp[WARP_THREADS];
    const u32 warp = threadIdx.x / WARP_THREADS, lane = threadIdx.x % WARP_THREADS;
    u32 base = 0;
    for (u32 first = 0; first < nplaces; first += blockDim.x) {
        const u32 place = first + threadIdx.x;
        const bool stays = place < nplaces && (course[u64(place) * COURSE + FLAGS] & ENDED) == 0;
        const u32 ballot = __ballot_sync(ALL_LANES, stays);
        if (lane == 0) {
            of_warp[warp] = __popc(ballot);
        }
        __syncthreads();
        u32 before = 0, all = 0;
        for (u32 k = 0; k < blockDim.x / WARP_THREADS; ++k) {
            before += k < warp ? of_warp[k] : 0;
            all += of_warp[k];
        }
        if (stays) {
            moves[base + before + __popc(ballot & ((1u << lane) - 1))] = place;
        }
        base += all;
        __syncthreads(); // all have read the counts
    }
    if (threadIdx.x == 0) {
        *count = base;
    }
}

// Moves zones to the first places, from one set of arrays to another: the zone at moves[k] to k. Places
// from *count on hold none. A thread a number of a place; neighbours have the same number.
__global__ void move(u32 nplaces, u32 n, u32 nrates, u32 stride, u32 new_stride,
                     const u32* __restrict__ count, const u32* __restrict__ moves,
                     const double* __restrict__ y, const double* __restrict__ lambda,
                     const double* __restrict__ pace, const u32* __restrict__ course,
                     double* __restrict__ new_y, double* __restrict__ new_lambda,
                     double* __restrict__ new_pace, u32* __restrict__ new_course) {
    const u32 stay = *count;
    const u64 all = u64(nplaces) * (nrates + n + 1);
    for (u64 work = grid_thread(); work < all; work += grid_threads()) {
        if (work < u64(nplaces) * nrates) {
            const u32 to = u32(work % nplaces);
            const u64 rate = work / nplaces;
            const u32 from = to < stay ? moves[to] : 0;
            new_lambda[rate * new_stride + to] = to < stay ? lambda[rate * stride + from] : 0;
        } else if (work < u64(nplaces) * (nrates + n)) {
            const u64 k = work - u64(nplaces) * nrates;
            const u32 to = u32(k / n), i = u32(k % n);
            new_y[k] = to < stay ? y[u64(moves[to]) * n + i] : 0;
        } else {
            const u64 to = work - u64(nplaces) * (nrates + n);
            for (u32 k = 0; k < PACE; ++k) {
                new_pace[to * PACE + k] = to < stay ? pace[u64(moves[to]) * PACE + k] : 1;
            }
            for (u32 k = 0; k < COURSE; ++k) {
                new_course[to * COURSE + k] = to < stay ? course[u64(moves[to]) * COURSE + k] : ENDED;
            }
        }
    }
}
