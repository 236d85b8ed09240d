// confirm: which systems of a plan are CONVERGED. Their residuals passed as computed, but may not
// pass together with a bound of their rounding errors. Where the bound from |A||x| does not decide,
// the residual is evaluated in twofold precision (evaluate.cuh). The system is then CONVERGED or
// STAGNATED; x is unchanged.
//
// A block takes CONFIRM_THREADS systems at a time. First each of its warps has systems of its own, of
// which it adds up |A||x| and |b| over all rows, the entries in the order of memory: the 1-norm of
// |b| + |A||x| is at least the 2-norm, and most residuals pass with the larger bound, too. Systems
// that do not are evaluated by the block, one after the other. ROW_LANES threads share a row then; the
// rows of a warp are spread over the system, so that all threads have some. The order of sums
// depends on the number of rows only, and no verdict on whether a system passed before. Traffic: A, b
// and x of each system that converged, once to three times, and 17 B of its outcome; 50 B of every
// outcome where they are packed.
//
// Launch: blocks of CONFIRM_THREADS; any grid. Arguments:
// - row_ptr, col_idx: patterns in the order of CSR; each has nrows + 1 words of `row_ptr`, from 0
//   on.
// - items: null if all items share one pattern of `nrows` rows; the values of item i then begin at
//   i * value_stride, its rows at i * nrhs * nrows. Else four words per item: nrows | offset in
//   row_ptr << 32, offset in col_idx, offset of the first value in units of value_stride, offset of
//   the first row.
// - Strides: value_step between the entries of an item, row_step between rows, nrows * row_step
//   between right-hand sides.
// - Arrays of tolerances are null or hold one per system; arrays of outcomes hold one per system.
// - packed: null, or where the outcomes of all `packed_systems` systems go, so that they are copied at
//   once (`Packed`). The first `nsystems` of them are confirmed.

#include "evaluate.cuh"

constexpr u32 CONFIRM_THREADS = 256;
constexpr u32 CONFIRM_WARPS = CONFIRM_THREADS / WARP_THREADS;
constexpr u32 ROW_LANES = 8;

// Entries that a thread reads at once: of a row of a system that all threads have (more take
// registers from other blocks), and of a system that a warp has.
constexpr u32 ROW_ENTRIES = 3;
constexpr u32 SURE_ENTRIES = 4;

// A warp has a system of its own only if there are so many for the block, and of so many rows at
// most: all threads are quicker with few systems, and with large ones.
constexpr u32 SURE_SYSTEMS = CONFIRM_WARPS / 2;
constexpr u32 SURE_ROWS = 512;

// The sums of `is_sure` are computed to better than this factor, whatever the order.
constexpr double SURE_FACTOR = 1.01;

// What the threads of a block share.
struct ConfirmShared {
    double partials[CONFIRM_WARPS][MOST_SUMS];
    u32 longest, count, left;
    u32 numbers[CONFIRM_THREADS], unsure[CONFIRM_THREADS];
};

// One system, as threads of a block see it.
template <typename V, typename Index>
struct ConfirmedSystem {
    u32 nrows;
    const u32* row_ptr;
    const Index* col_idx;
    const V* values;
    u64 value_step, row_step;
    const V *b, *x;

    // Calls of_row(row, exists) for each row that this thread shares in, with all lanes of a warp
    // at once.
    template <typename OfRow>
    __device__ __forceinline__ void rows(OfRow of_row) const {
        constexpr u32 OF_WARP = WARP_THREADS / ROW_LANES;
        const u32 lane = threadIdx.x % WARP_THREADS;
        for (u32 first = threadIdx.x / WARP_THREADS * OF_WARP; first < nrows;
             first += CONFIRM_WARPS * OF_WARP) {
            const u32 row = first + lane / ROW_LANES;
            of_row(row, row < nrows);
        }
    }

    // The right-hand side of a row in the one thread that counts it; 0 in the others.
    __device__ __forceinline__ double own_b(u32 row, bool exists) const {
        return exists && threadIdx.x % ROW_LANES == 0 ? double(b[u64(row) * row_step]) : 0.0;
    }

    // 0 if x is finite in this row, else NaN: if a column is empty, no entry sees an infinite x.
    __device__ __forceinline__ double unless_finite(u32 row) const {
        const V own = x[u64(row) * row_step];
        return double(own - own);
    }

    // Calls visit(value, operand) for this thread's entries of a row.
    template <typename Visit>
    __device__ __forceinline__ void entries(u32 row, bool exists, Visit visit) const {
        if (!exists) {
            return;
        }
        const u32 end = load(row_ptr + row + 1);
        for (u32 k = load(row_ptr + row) + threadIdx.x % ROW_LANES; k < end;
             k += ROW_LANES * ROW_ENTRIES) {
            V value[ROW_ENTRIES], operand[ROW_ENTRIES];
            u32 columns[ROW_ENTRIES];
#pragma unroll
            for (u32 i = 0; i < ROW_ENTRIES; ++i) {
                const u32 own = minimum(k + i * ROW_LANES, end - 1);
                columns[i] = load(col_idx + own);
                value[i] = values[own * value_step];
            }
#pragma unroll
            for (u32 i = 0; i < ROW_ENTRIES; ++i) {
                operand[i] = x[columns[i] * row_step];
            }
#pragma unroll
            for (u32 i = 0; i < ROW_ENTRIES; ++i) {
                if (k + i * ROW_LANES < end) {
                    visit(double(value[i]), double(operand[i]));
                }
            }
        }
    }

    // Whether the plain residual passes with a bound of its errors that is cheaper and larger than
    // that of `find_plain`. For the lanes of a warp.
    __device__ __forceinline__ bool is_sure(Evaluated found, double residual) const {
        const u32 lane = threadIdx.x % WARP_THREADS, end = load(row_ptr + nrows);
        double sum = 0;
        u32 longest = 0;
        for (u32 row = lane; row < nrows; row += WARP_THREADS) {
            sum += magnitude(double(b[u64(row) * row_step])) + unless_finite(row);
            longest = maximum(longest, load(row_ptr + row + 1) - load(row_ptr + row));
        }
        for (u32 k = lane; k < end; k += WARP_THREADS * SURE_ENTRIES) {
            V value[SURE_ENTRIES], operand[SURE_ENTRIES];
            u32 columns[SURE_ENTRIES];
#pragma unroll
            for (u32 i = 0; i < SURE_ENTRIES; ++i) {
                const u32 own = minimum(k + i * WARP_THREADS, end - 1);
                columns[i] = load(col_idx + own);
                value[i] = values[own * value_step];
            }
#pragma unroll
            for (u32 i = 0; i < SURE_ENTRIES; ++i) {
                operand[i] = x[columns[i] * row_step];
            }
#pragma unroll
            for (u32 i = 0; i < SURE_ENTRIES; ++i) {
                // One that is counted again makes the sum no smaller.
                sum += magnitude(double(value[i]) * double(operand[i]));
            }
        }
        found.nrows = nrows;
        found.longest_row = most_of_lanes(longest);
        found.plain = SURE_FACTOR * sum_of_lanes(sum);
        return found.template judge_plain<V>(residual) == CONVERGED;
    }

    // The sums over the threads of the block, the same in all.
    __device__ __forceinline__ static void add_up(double (&sums)[MOST_SUMS], ConfirmShared& shared) {
        const u32 warp = threadIdx.x / WARP_THREADS;
        __syncthreads(); // the previous sums have been read
#pragma unroll
        for (u32 i = 0; i < MOST_SUMS; ++i) {
            const double of_warp = sum_of_lanes(sums[i]);
            if (threadIdx.x % WARP_THREADS == 0) {
                shared.partials[warp][i] = of_warp;
            }
        }
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < MOST_SUMS; ++i) {
            sums[i] = 0;
#pragma unroll
            for (u32 k = 0; k < CONFIRM_WARPS; ++k) {
                sums[i] += shared.partials[k][i];
            }
        }
    }

    // || |b| + |A||x| ||, and the longest row.
    __device__ __forceinline__ void find_plain(Evaluated& found, ConfirmShared& shared) const {
        double sums[MOST_SUMS] = {};
        u32 longest = 0;
        rows([&](u32 row, bool exists) {
            double plain = magnitude(own_b(row, exists));
            entries(row, exists, [&](double value, double operand) { plain += magnitude(value * operand); });
#pragma unroll
            for (u32 offset = ROW_LANES / 2; offset > 0; offset /= 2) {
                plain += __shfl_xor_sync(ALL_LANES, plain, offset);
            }
            if (exists && threadIdx.x % ROW_LANES == 0) {
                Norm::add(plain + unless_finite(row), sums);
                longest = maximum(longest, load(row_ptr + row + 1) - load(row_ptr + row));
            }
        });
        shared.longest = 0;
        __syncthreads();
        atomicMax(&shared.longest, longest);
        add_up(sums, shared);
        found.nrows = nrows;
        found.longest_row = shared.longest;
        found.plain = Norm::of(sums);
    }

    // The residual in twofold precision.
    __device__ __forceinline__ void find_twofold(Evaluated& found, ConfirmShared& shared) const {
        double sums[MOST_SUMS] = {};
        rows([&](u32 row, bool exists) {
            TwofoldRow own{own_b(row, exists)};
            entries(row, exists, [&](double value, double operand) { own.subtract(value, operand); });
            own.template join<ROW_LANES>();
            double error;
            const double residual = own.finish(error);
            if (exists && threadIdx.x % ROW_LANES == 0) {
                Norm::add(residual + unless_finite(row), sums);
                sums[3] += error;
            }
        });
        add_up(sums, shared);
        found.norm = Norm::of(sums);
        found.error = sums[3];
    }
};

// The systems of a launch.
template <typename V, typename Index>
struct ConfirmedSystems {
    u32 nrhs, nrows;
    const u32* row_ptr;
    const Index* col_idx;
    const u64* items;
    const V* values;
    u64 value_stride, value_step, row_step;
    const V *b, *x;
    const SystemLimits& limits;
    const SystemOutcomes& outcomes;

    __device__ __forceinline__ ConfirmedSystem<V, Index> system(u32 number) const {
        const u32 item = number / nrhs;
        const u64* const words = items + 4 * u64(item);
        const bool listed = items != nullptr;
        const u32 own_rows = listed ? u32(load(words)) : nrows;
        const u64 value = listed ? load(words + 2) : item;
        const u64 row = (listed ? load(words + 3) : u64(item) * nrhs * nrows) +
                        u64(number % nrhs) * own_rows * row_step;
        return {own_rows,
                row_ptr + (listed ? load(words) >> 32 : 0),
                col_idx + (listed ? load(words + 1) : 0),
                values + value * value_stride,
                value_step,
                row_step,
                b + row,
                x + row};
    }

    // Reads what a residual is compared with.
    __device__ __forceinline__ void expect(u32 number, Evaluated& found) const {
        found.rhs_norm = outcomes.rhs_norms[number];
        found.floor = limits.floor;
        found.threshold = limits.threshold(number, found.rhs_norm);
    }

    // Whether a warp is sure that a system converged. The floor was not needed then.
    __device__ __forceinline__ bool is_sure(u32 number) const {
        const ConfirmedSystem<V, Index> all = system(number);
        if (all.nrows == 0 || all.nrows > SURE_ROWS) {
            return false;
        }
        Evaluated found;
        expect(number, found);
        if (!all.is_sure(found, outcomes.residual_norms[number])) {
            return false;
        }
        if (threadIdx.x % WARP_THREADS == 0) {
            outcomes.restarts[number] &= ~1u;
        }
        return true;
    }

    // Judges a system by all threads of the block.
    __device__ __forceinline__ void judge(u32 number, ConfirmShared& shared) const {
        const ConfirmedSystem<V, Index> all = system(number);
        Evaluated found;
        all.find_plain(found, shared);
        expect(number, found);
        double residual = outcomes.residual_norms[number];
        bool by_floor = false;
        u32 status = found.template judge_plain<V>(residual);
        if (status == RUNNING) {
            all.find_twofold(found, shared);
            expect(number, found); // rather than in registers meanwhile
            status = found.template judge_twofold<V>(by_floor);
            residual = found.reported_norm();
        }
        __syncthreads(); // all threads have read the residual
        if (threadIdx.x == 0) {
            outcomes.statuses[number] = u8(status);
            outcomes.restarts[number] = (outcomes.restarts[number] & ~1u) | by_floor;
            outcomes.residual_norms[number] = residual;
        }
    }
};

// The outcomes of `count` systems, array by array from the widest type on; the host knows this order
// (HostOutcomes).
struct Packed {
    u64* words;
    u64 count;

    __device__ __forceinline__ void store(u64 number, const SystemOutcomes& outcomes) const {
        double* const norms = reinterpret_cast<double*>(words);
        u32* const counts = reinterpret_cast<u32*>(words + 2 * count);
        u8* const statuses = reinterpret_cast<u8*>(words + 3 * count);
        norms[number] = outcomes.residual_norms[number];
        norms[count + number] = outcomes.rhs_norms[number];
        counts[number] = outcomes.iterations[number];
        counts[count + number] = outcomes.restarts[number];
        statuses[number] = outcomes.statuses[number];
    }
};

template <typename V, typename Index>
__global__ void __launch_bounds__(CONFIRM_THREADS)
    confirm(u32 nsystems, u32 nrhs, u32 nrows, const u32* __restrict__ row_ptr,
            const Index* __restrict__ col_idx, const u64* __restrict__ items,
            const V* __restrict__ values, u64 value_stride, u64 value_step, u64 row_step,
            const V* __restrict__ b, const V* __restrict__ x,
            SystemLimits limits, SystemOutcomes outcomes, u64* packed, u32 packed_systems) {
    __shared__ ConfirmShared shared;
    const ConfirmedSystems<V, Index> all{nrhs,         nrows,      row_ptr,  col_idx, items, values,
                                         value_stride, value_step, row_step, b,       x,     limits,
                                         outcomes};
    // Each block takes contiguous systems.
    const u32 count_of_all = packed != nullptr ? packed_systems : nsystems;
    const u32 each = (count_of_all + gridDim.x - 1) / gridDim.x;
    const u64 begin = u64(blockIdx.x) * each, end = minimum(begin + each, u64(count_of_all));
    for (u64 first = begin; first < end; first += CONFIRM_THREADS) {
        const u64 own = first + threadIdx.x;
        const bool exists = own < minimum(end, u64(nsystems));
        const bool asks = exists && outcomes.statuses[exists ? own : first] == CONVERGED;
        if (threadIdx.x == 0) {
            shared.count = shared.left = 0;
        }
        __syncthreads();
        if (asks) {
            shared.numbers[atomicAdd(&shared.count, 1u)] = threadIdx.x;
        }
        __syncthreads();
        const u32 count = shared.count;
        for (u32 k = threadIdx.x / WARP_THREADS; k < count; k += CONFIRM_WARPS) {
            const u32 number = shared.numbers[k];
            const bool done = count >= SURE_SYSTEMS && all.is_sure(u32(first) + number);
            if (!done && threadIdx.x % WARP_THREADS == 0) {
                shared.unsure[atomicAdd(&shared.left, 1u)] = number;
            }
        }
        __syncthreads();
        const u32 left = shared.left;
        for (u32 k = 0; k < left; ++k) {
            all.judge(u32(first) + shared.unsure[k], shared);
        }
        __syncthreads(); // all threads have read the lists, and verdicts are written
        if (packed != nullptr && own < end) {
            Packed{packed, packed_systems}.store(own, outcomes);
        }
    }
}

// settle: gives systems that did not converge the better of their guess and their x, and tells how
// far they are. x is kept if its residual is clearly smaller than that of the guess, by the rule of
// the CPU's solvers (verdict, keep_better). Residuals are evaluated in twofold precision; the CPU
// does so only where rounding errors of the plain evaluation may exceed a thousandth.
//
// Launch: blocks of CONFIRM_THREADS; any grid, a block takes a system at a time. Arguments as for
// `confirm`, and
// - numbers: `count` systems, each once; bit 32 is set where elements of the guess that are not
//   finite count as 0.
// - guesses: null where systems started from 0, which they did as well where b is 0.
// - norms: for each of the systems the norm of its residual (NaN if that is not finite),
//   || |b| + |A||x| ||, ||A||_F, and 1 where x has become the guess.
template <typename V, typename Index>
__global__ void __launch_bounds__(CONFIRM_THREADS)
    settle(u32 count, const u64* __restrict__ numbers, u32 nrhs, u32 nrows,
           const u32* __restrict__ row_ptr, const Index* __restrict__ col_idx,
           const u64* __restrict__ items, const V* __restrict__ values, u64 value_stride,
           u64 value_step, u64 row_step, const V* __restrict__ b, V* guesses, V* x,
           SystemLimits limits, SystemOutcomes outcomes, double* norms) {
    __shared__ ConfirmShared shared;
    const ConfirmedSystems<V, Index> all{nrhs,         nrows,      row_ptr,  col_idx, items, values,
                                         value_stride, value_step, row_step, b,       x,     limits,
                                         outcomes};
    for (u32 k = blockIdx.x; k < count; k += gridDim.x) {
        const u64 word = load(numbers + k);
        const u32 number = u32(word);
        ConfirmedSystem<V, Index> own = all.system(number);
        V* const own_x = x + (own.x - x);
        V* const guess = guesses + (own.x - x);
        double of_guess = outcomes.rhs_norms[number];
        const bool from_zero = guesses == nullptr || of_guess == 0;
        Evaluated found;
        found.nrows = own.nrows;
        if (!from_zero && word >> 32 != 0) {
            for (u32 row = threadIdx.x; row < own.nrows; row += CONFIRM_THREADS) {
                V& element = guess[row * row_step];
                element = is_finite(element) ? element : V(0);
            }
            __syncthreads();
        }
        // The guess, x, and what x becomes where it is not better.
        bool restored = false;
#pragma unroll 1
        for (u32 turn = from_zero ? 1 : 0; turn < 3; ++turn) {
            own.x = turn == 0 ? guess : own_x;
            own.find_twofold(found, shared);
            if (turn == 0) {
                of_guess = found.reported_norm();
                continue;
            }
            const double error =
                found.error + found.of_norm(found.error) + found.of_norm(found.norm);
            const bool is_accurate = error <= ROUGH * found.norm;
            if (turn == 2 || (is_accurate && found.norm <= (1 - 4 * ROUGH) * of_guess)) {
                break;
            }
            restored = true;
            for (u32 row = threadIdx.x; row < own.nrows; row += CONFIRM_THREADS) {
                own_x[row * row_step] = from_zero ? V(0) : guess[row * row_step];
            }
            __syncthreads();
        }
        own.find_plain(found, shared);
        double sums[MOST_SUMS] = {};
        const u32 entries = load(own.row_ptr + own.nrows);
        for (u32 entry = threadIdx.x; entry < entries; entry += CONFIRM_THREADS) {
            Norm::add(double(own.values[entry * value_step]), sums);
        }
        own.add_up(sums, shared);
        if (threadIdx.x == 0) {
            // The residual of 0 is b, whatever the order of sums.
            const bool is_rhs = restored && from_zero && is_finite(found.norm);
            const double residual =
                is_rhs ? outcomes.rhs_norms[number] : found.reported_norm();
            norms[4 * u64(k)] = outcomes.residual_norms[number] = residual;
            norms[4 * u64(k) + 1] = found.plain;
            norms[4 * u64(k) + 2] = Norm::of(sums);
            norms[4 * u64(k) + 3] = restored;
        }
    }
}
