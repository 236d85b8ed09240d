// Whole solves by sparse LU without pivoting of systems of any patterns, a team of WARPS warps for
// each, all in one launch: factorisation by columns, left-looking (Gilbert, Peierls 1988; the
// pattern is known), and refinement from the true residual (Higham, Accuracy and Stability of
// Numerical Algorithms, 2nd ed. 2002, chapter 12).
//
//   r = b - A x0;  P A P^T = L U;  repeat: x += P^T U^-1 L^-1 P r, r = b - A x
//
// A system ends by the rules of the CPU's solvers, applied to the residual recomputed from x. A
// system that does not pass is refined again while restarts and iterations are left. A zero or NaN
// pivot ends it.
//
// - L + U, column by column, and 3 + WARPS vectors are in shared memory, with the rows of the
//   entries. A column is updated by one earlier column after the other, the lanes having an entry
//   each. The warps of a team have consecutive columns, a panel. Each first subtracts the columns
//   ahead of the panel, then, in rounds, those of the panel that are complete; a warp that has
//   subtracted all completes its own.
// - One warp substitutes.
// - Factors serve all right-hand sides of an item and all refinements. The matrix is read again, mostly
//   from L2, for each residual.
// - The products of an entry are subtracted one by one in an order that depends on the pattern alone:
//   bitwise repeatable, whatever the neighbours, the position in the batch, and the order of threads.
//   Sums of norms depend on WARPS, too.
// - Traffic of an item: its values, b and its table at least twice, x once (twice with an initial
//   guess), 25 B of outcome for each right-hand side.
//
// Arguments:
// - `nitems` items of the launch, nrhs >= 1. A block has a team for each `team_bytes` of its
//   dynamic shared memory, which are a multiple of 16 and at least LuColumns::bytes for each item;
//   one team if it has several warps.
// - `items`: five words each: the class, the first value, the first row of b and of x, the number of
//   the item in the batch, and where its part of `kept` begins.
// - `classes`: two words each: nrows | nnz << 32, and nfactors | offset << 24, where its table begins
//   in `tables`.
// - A table has, with n rows, of which 2n + 2 < 2^16: the n rows in the order of elimination; the
//   offsets of the n + 1 columns of L + U; the offset of each diagonal entry; the row of each entry,
//   in the order of elimination, ascending within a column; the place of each entry of A in L + U; the
//   offsets of the n + 1 rows of A; the columns of its entries.
// - `b`, `x`: item after item, one right-hand side after the other.
// - `flags`: LU_COLUMNS_GUESS, LU_COLUMNS_FACTOR, LU_COLUMNS_KEPT, LU_COLUMNS_SHARED. `kept` has
//   nfactors + n + 1 values for each item, or is null if neither FACTOR nor KEPT is set.
#include "solver.cuh"

// A bit of `flags`: x holds initial guesses.
constexpr u32 LU_COLUMNS_GUESS = 1;
// Only factorises, and writes the factors to `kept`; or takes them from there.
constexpr u32 LU_COLUMNS_FACTOR = 2;
constexpr u32 LU_COLUMNS_KEPT = 4;
// `values` are those of one item, for all items.
constexpr u32 LU_COLUMNS_SHARED = 8;

// Pivots whose reciprocal is a normal number.
template <typename V>
__device__ __forceinline__ bool has_normal_reciprocal(V pivot) {
    const double size = magnitude(double(pivot));
    const double most = sizeof(V) == 8 ? 1e300 : 1e36;
    return size < most && size * most > 1;
}

// One thread's part in the solves of its team.
template <typename V, u32 WARPS>
struct LuColumns {
    static constexpr u32 THREADS = WARPS * WARP_THREADS;
    using Threads = Team<THREADS>;
    // Doubles ahead of the arrays: scratch memory of sums, and two stamps for each warp.
    static constexpr u32 HEAD = WARPS > 1 ? Threads::SCRATCH + WARPS : 0;

    // Bytes of shared memory of a system, as `ColumnTable::bytes` (table.rs) counts them.
    __device__ __forceinline__ static u32 bytes(u32 n, u32 nfactors) {
        return (HEAD * 8 + (nfactors + (3 + WARPS) * n) * u32(sizeof(V)) +
                (nfactors + 2 * n + 1) * 2 + 15) / 16 * 16;
    }

    const u32 n, nnz, nfactors, thread, lane, warp;
    const SystemLimits& limits;
    double* const scratch;
    u32* const stamps;
    V* const factors;  // L + U; a diagonal entry is the pivot
    V* const r;        // the residual
    V* const x;
    V* const inverses; // of the pivots, if `is_plain`
    V* const work;     // of this warp: a column, or the solution of a substitution
    u16* const rows;   // of the entries of L + U
    u16* const starts; // of the columns
    u16* const diagonals;
    const u16* const perm;     // the row that is eliminated k-th
    const u16* const targets;  // the place of each entry of A
    const u16* const row_ptr;  // of A
    const u16* const columns;  // of A
    const V* const values;

    const V* b;
    bool has_pivots, is_plain;
    u32 state, iteration, restarts;
    double threshold, rhs_norm, residual;

    __device__ __forceinline__ LuColumns(u32 nrows, u32 entries, u32 all_factors,
                                         const SystemLimits& all_limits, u8* shared, const u16* table,
                                         const V* all_values)
        : n(nrows), nnz(entries), nfactors(all_factors), thread(threadIdx.x % THREADS),
          lane(threadIdx.x % WARP_THREADS), warp(thread / WARP_THREADS), limits(all_limits),
          scratch(reinterpret_cast<double*>(shared)),
          stamps(reinterpret_cast<u32*>(scratch + HEAD - (WARPS > 1 ? WARPS : 0))),
          factors(reinterpret_cast<V*>(scratch + HEAD)), r(factors + nfactors), x(r + n),
          inverses(x + n), work(inverses + (1 + warp) * n),
          rows(reinterpret_cast<u16*>(inverses + (1 + WARPS) * n)), starts(rows + nfactors),
          diagonals(starts + n + 1), perm(table), targets(table + 3 * n + 1 + nfactors),
          row_ptr(targets + nnz), columns(row_ptr + n + 1), values(all_values) {}

    // Takes the table of L + U into shared memory.
    __device__ __forceinline__ void fetch_table() {
        // Starts, diagonals and rows follow the permutation.
        const u16* const table = perm + n;
        for (u32 k = thread; k < 2 * n + 1; k += THREADS) {
            starts[k] = load(table + k);
        }
        for (u32 k = thread; k < nfactors; k += THREADS) {
            rows[k] = load(table + 2 * n + 1 + k);
        }
    }

    // Takes the factors that keep() wrote.
    __device__ __forceinline__ void fetch_factors(const V* kept) {
        fetch_table();
        for (u32 k = thread; k < nfactors; k += THREADS) {
            factors[k] = load(kept + k);
        }
        for (u32 k = thread; k < n; k += THREADS) {
            inverses[k] = load(kept + nfactors + k);
        }
        const V code = load(kept + nfactors + n);
        has_pivots = code != V(0);
        is_plain = code == V(2);
        Threads::sync();
    }

    // Writes the factors, and what is known of their pivots: 0 that one is missing, 2 that all have
    // normal reciprocals, else 1.
    __device__ __forceinline__ void keep(V* kept) const {
        for (u32 k = thread; k < nfactors; k += THREADS) {
            kept[k] = factors[k];
        }
        for (u32 k = thread; k < n; k += THREADS) {
            kept[nfactors + k] = inverses[k];
        }
        if (thread == 0) {
            kept[nfactors + n] = !has_pivots ? V(0) : is_plain ? V(2) : V(1);
        }
    }

    // Takes the matrix and the table of L + U into shared memory.
    __device__ __forceinline__ void fetch() {
        fetch_table();
        for (u32 k = thread; k < nfactors; k += THREADS) {
            factors[k] = V(0);
        }
        Threads::sync();
        for (u32 k = thread; k < nnz; k += THREADS) {
            factors[load(targets + k)] = load(values + k);
        }
        Threads::sync();
    }

    // The first entries of L in a column, one for each lane.
    struct Entries {
        u32 k, first, end; // the column, and its entries
        u32 row;
        V value;
    };

    __device__ __forceinline__ Entries entries(u32 k, u32 begin, u32 end) const {
        Entries found{k, begin + lane, end, 0, V(0)};
        if (found.first < end) {
            found.row = rows[found.first];
            found.value = factors[found.first];
        }
        return found;
    }

    __device__ __forceinline__ Entries lower(u32 k) const {
        return entries(k, diagonals[k] + 1u, starts[k + 1]);
    }

    __device__ __forceinline__ Entries upper(u32 k) const {
        return entries(k, starts[k], diagonals[k]);
    }

    // work -= by * the column. Its first entries have been read; nothing that later columns need but
    // `work` is written.
    __device__ __forceinline__ void subtract(const Entries& column, V by) {
        if (column.first < column.end) {
            work[column.row] -= column.value * by;
        }
        for (u32 q = column.first + WARP_THREADS; q < column.end; q += WARP_THREADS) {
            work[rows[q]] -= factors[q] * by;
        }
        __syncwarp();
    }

    __device__ __forceinline__ void factor() {
        bool bad = false, plain = true;
        u32 turn = 0; // rounds so far
        if constexpr (WARPS > 1) {
            if (thread < 2 * WARPS) {
                stamps[thread] = 0;
            }
            Threads::sync();
        }
        for (u32 panel = 0; panel < n; panel += WARPS) {
            const u32 j = panel + warp;
            bool is_done = j >= n;
            u32 p = 0, first = 0, diagonal = 0, end = 0;
            if (!is_done) {
                p = first = starts[j];
                diagonal = diagonals[j];
                end = starts[j + 1];
            }
            // The column that is subtracted next; n if there is none.
            const auto next_column = [&] { return p < diagonal ? u32(rows[p]) : n; };
            u32 k = next_column();
            for (u32 q = first + lane; q < end; q += WARP_THREADS) {
                work[rows[q]] = factors[q];
            }
            Entries next{};
            if (k < panel) {
                next = lower(k);
            }
            __syncwarp();
#pragma unroll 1
            while (k < panel) {
                const Entries column = next;
                ++p;
                k = next_column();
                // Read ahead: columns ahead of the panel do not change any more.
                if (k < panel) {
                    next = lower(k);
                }
                subtract(column, work[column.k]);
            }
            u32 complete = 0; // the columns of the panel that are complete
            for (;;) {
                if (!is_done && k == n) {
                    const V pivot = work[j];
                    const bool is_normal = has_normal_reciprocal(pivot);
                    const V inverse = V(1) / pivot;
                    bad = bad || !(pivot < V(0) || V(0) < pivot);
                    plain = plain && is_normal;
                    for (u32 q = first + lane; q < end; q += WARP_THREADS) {
                        const V value = work[rows[q]];
                        const V of_l = is_normal ? value * inverse : value / pivot;
                        factors[q] = q <= diagonal ? value : of_l;
                    }
                    if (lane == 0) {
                        inverses[j] = inverse;
                        if constexpr (WARPS > 1) {
                            stamps[(turn + 1) % 2 * WARPS + warp] = turn + 1;
                        }
                    }
                    is_done = true;
                    __syncwarp();
                }
                if constexpr (WARPS == 1) {
                    break;
                } else {
                    if (!Threads::any_thread(!is_done)) {
                        break;
                    }
                    // The stamps of the other parity may be written from here on.
                    ++turn;
                    const bool is_new = stamps[turn % 2 * WARPS + lane % WARPS] == turn;
                    complete |= __ballot_sync(ALL_LANES, is_new && lane < WARPS);
#pragma unroll 1
                    while (k < n && (complete >> (k - panel) & 1) != 0) {
                        subtract(lower(k), work[k]);
                        ++p;
                        k = next_column();
                    }
                }
            }
            if constexpr (WARPS > 1) {
                ++turn;
            }
        }
        if constexpr (WARPS > 1) {
            bad = Threads::any_thread(bad);
            plain = !Threads::any_thread(!plain);
        }
        has_pivots = !bad;
        is_plain = plain;
    }

    // x += P^T U^-1 L^-1 P r, by the first warp. The others go ahead.
    __device__ __forceinline__ void substitute(V down, V up) {
        if (warp != 0) {
            return;
        }
        for (u32 k = lane; k < n; k += WARP_THREADS) {
            work[k] = r[load(perm + k)] * down;
        }
        __syncwarp();
        if (n == 0) {
            return;
        }
        Entries next = lower(0);
#pragma unroll 1
        for (u32 k = 0; k < n; ++k) {
            const Entries column = next;
            if (k + 1 < n) {
                next = lower(k + 1);
            }
            subtract(column, work[k]);
        }
        next = upper(n - 1);
#pragma unroll 1
        for (u32 k = n; k-- > 0;) {
            const Entries column = next;
            const V inverse = inverses[k];
            if (k > 0) {
                next = upper(k - 1);
            }
            const V solution = is_plain ? work[k] * inverse : work[k] / factors[diagonals[k]];
            if (lane == k % WARP_THREADS) {
                x[load(perm + k)] += solution * up;
            }
            subtract(column, solution);
        }
    }

    // The norm of r, without spurious overflow or underflow: NaN when an element is NaN, infinite when
    // one is.
    __device__ __forceinline__ double norm() const {
        const double sum = sum_of([](double value) { return value * value; });
        if (sum >= 1e-280 && sum < 1e280) {
            return __dsqrt_rn(sum);
        }
        double most = 0;
        for (u32 i = thread; i < n; i += THREADS) {
            most = maximum(most, magnitude(double(r[i])));
        }
        most = Threads::largest(most, scratch);
        if (sum != sum || most == 0 || !is_finite(most)) {
            return sum != sum ? sum : most;
        }
        const int exponent = exponent_of(most);
        const double down = power_of_two(-exponent);
        const double scaled = sum_of([&](double value) {
            const double part = value * down;
            return part * part;
        });
        return __dsqrt_rn(scaled) * power_of_two(exponent);
    }

    // The sum of part(r_i), the same in all lanes.
    template <typename Part>
    __device__ __forceinline__ double sum_of(Part part) const {
        double sum = 0;
        for (u32 i = thread; i < n; i += THREADS) {
            sum += part(double(r[i]));
        }
        double sums[1] = {sum};
        Threads::sync();
        Threads::template sum<0>(sums, scratch);
        return sums[0];
    }

    // r = b - A x and its norm, NaN where that is not finite; or r = |A||x| + |b| and its norm. Products
    // are summed first: large ones that cancel must not absorb b.
    template <bool MAGNITUDES>
    __device__ __forceinline__ double multiply() {
        Threads::sync();
        for (u32 row = thread; row < n; row += THREADS) {
            const u32 end = load(row_ptr + row + 1);
            V sum = V(0);
            for (u32 k = load(row_ptr + row); k < end; ++k) {
                const V product = load(values + k) * x[load(columns + k)];
                sum += MAGNITUDES ? V(magnitude(double(product))) : product;
            }
            const V own = load(b + row);
            r[row] = MAGNITUDES ? V(magnitude(double(own))) + sum : own - sum;
        }
        Threads::sync();
        const double found = norm();
        return MAGNITUDES || is_finite(found) ? found : found - found;
    }

    // Starts a system: its guess, its criteria, the residual in r.
    __device__ __forceinline__ void enter(u64 system, const V* guess) {
        Threads::sync();
        for (u32 i = thread; i < n; i += THREADS) {
            r[i] = load(b + i);
        }
        Threads::sync();
        state = RUNNING;
        iteration = restarts = 0;
        rhs_norm = norm();
        threshold = limits.threshold(system, rhs_norm);
        bool moved = false;
        for (u32 i = thread; i < n; i += THREADS) {
            const V start = guess != nullptr && rhs_norm != 0 ? guess[i] : V(0);
            x[i] = start;
            moved = moved || start != V(0);
        }
        moved = Threads::any_thread(moved);
        // From x = 0 the residual is b. A x is still computed where the system would end at once,
        // since A may hold NaN.
        const bool is_b = !moved && !(rhs_norm <= threshold) && is_finite(rhs_norm);
        residual = is_b ? rhs_norm : multiply<false>();
    }

    // Ends the system if it is finished. `fresh`: no step was made yet; otherwise `stop` says how the
    // last one ended. May overwrite r where the system goes on, which is then found again.
    __device__ __forceinline__ void judge(u64 system, const SystemOutcomes& outcomes, bool fresh,
                                          u32 stop) {
        bool accepted = residual <= threshold, by_floor = false, lost = false;
        if (!fresh && !accepted && limits.floor >= 0) {
            const double size = multiply<true>();
            lost = true;
            by_floor = residual <= limits.floor * Precision<V>::EPSILON * size;
            accepted = by_floor;
        }
        u32 status = RUNNING;
        if (residual != residual || !is_finite(rhs_norm)) {
            status = NON_FINITE;
            residual = __longlong_as_double(0x7ff8000000000000ll);
        } else if (accepted) {
            status = CONVERGED;
        } else if (fresh) {
            status = limits.iterations(system) == 0 ? MAX_ITERATIONS : RUNNING;
        } else if (stop != PASSED) {
            status = stop;
        } else if (restarts < limits.max_restarts) {
            ++restarts;
        } else {
            status = STAGNATED;
        }
        if (status != RUNNING) {
            if (thread == 0) {
                outcomes.record(system, status, iteration, restarts, by_floor, residual, rhs_norm);
            }
            state = IDLE;
        } else if (lost) {
            multiply<false>();
        }
    }

    // One solve for the residual, if there are pivots. Returns how that ended.
    __device__ __forceinline__ u32 refine(u64 system) {
        if (!has_pivots) {
            return ZERO_PIVOT;
        }
        const int exponent = exponent_of(rhs_norm);
        constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
        const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
        const int scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
        substitute(V(power_of_two(-scale)), V(power_of_two(scale)));
        ++iteration;
        return iteration >= limits.iterations(system) ? MAX_ITERATIONS : PASSED;
    }
};

template <typename V, u32 WARPS>
__global__ void __launch_bounds__((WARPS == 1 ? 4 : WARPS) * WARP_THREADS,
                                  WARPS == 1 ? 5 : 16 / WARPS)
    lu_columns(u32 nitems, u32 nrhs, u32 team_bytes, const u64* __restrict__ items,
               const u64* __restrict__ classes, const u16* __restrict__ tables,
               const V* __restrict__ values, const V* __restrict__ b, V* __restrict__ x, V* kept,
               u32 flags, SystemLimits limits, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    using System = LuColumns<V, WARPS>;
    constexpr u32 THREADS = System::THREADS;
    u8* const shared = dynamic_shared + threadIdx.x / THREADS * team_bytes;
    for (u64 at = grid_thread() / THREADS; at < nitems; at += grid_threads() / THREADS) {
        const u64* const item = items + 5 * at;
        const u64* const of_class = classes + 2 * load(item);
        const u64 sizes = load(of_class), rest = load(of_class + 1);
        const u32 n = u32(sizes), nfactors = u32(rest & 0xffffff);
        System system(n, u32(sizes >> 32), nfactors, limits, shared, tables + (rest >> 24),
                      values + ((flags & LU_COLUMNS_SHARED) != 0 ? 0 : load(item + 1)));
        const u64 first_row = load(item + 2), first_system = load(item + 3) * nrhs;
        V* const own_kept = kept + load(item + 4);
        if ((flags & LU_COLUMNS_FACTOR) != 0) {
            System::Threads::sync();
            system.fetch();
            system.factor();
            system.keep(own_kept);
            continue;
        }
        bool is_factored = false;
        for (u32 rhs = 0; rhs < nrhs; ++rhs) {
            const u64 number = first_system + rhs, row = first_row + u64(rhs) * n;
            V* const own_x = x + row;
            system.b = b + row;
            system.enter(number, (flags & LU_COLUMNS_GUESS) != 0 ? own_x : nullptr);
            system.judge(number, outcomes, true, PASSED);
            while (system.state == RUNNING) {
                if (!is_factored && (flags & LU_COLUMNS_KEPT) != 0) {
                    system.fetch_factors(own_kept);
                } else if (!is_factored) {
                    system.fetch();
                    system.factor();
                }
                is_factored = true;
                const u32 stop = system.refine(number);
                system.residual = system.template multiply<false>();
                system.judge(number, outcomes, false, stop);
            }
            System::Threads::sync();
            for (u32 i = system.thread; i < n; i += THREADS) {
                own_x[i] = system.x[i];
            }
        }
    }
}
