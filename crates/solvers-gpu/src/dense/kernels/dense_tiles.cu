// Whole solves of small systems by elimination with partial pivoting, the matrix in tiles of tensor
// cores, all in one launch (dense_system.cuh). A warp solves a system.
//
// - Columns are eliminated eight at a time, a panel. The matrix is in registers, in tiles of 8 x 8 as
//   the products of tensor cores hold them: each lane has two neighbouring entries of a tile.
// - The panel's columns go to lanes by rows: a lane has whole rows of them, row(i) for each i below
//   ROWS. Its steps are those of Gauss and Jordan, in place: an eliminated column's place then holds,
//   for each row, the factor by which it has to add that step's pivot row.
// - The eight pivot rows, by these factors, are then added to all rows of the other columns at once,
//   as products of tiles.
// - nrows > N - 8: only the last tiles are incomplete.
#include "dense_system.cuh"

// c += a b for tiles of 8 x 8, 8 x 4 and 4 x 8. Lane l holds the entries 2 (l % 4) and the next one of
// row l / 4 of c, entry l % 4 of row l / 4 of a, entry l % 4 of column l / 4 of b.
__device__ __forceinline__ void multiply_tiles(Pair<double>& c, double a, double b) {
#if defined(SPARSEBATCH_EMU)
    const u32 lane = threadIdx.x % WARP_THREADS, row = lane / 4 * 4, column = lane % 4 * 8;
    for (u32 k = 0; k < 4; ++k) {
        const double own = __shfl_sync(ALL_LANES, a, row + k);
        c.first += own * __shfl_sync(ALL_LANES, b, column + k);
        c.second += own * __shfl_sync(ALL_LANES, b, column + 4 + k);
    }
#else
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c.first), "+d"(c.second)
        : "d"(a), "d"(b));
#endif
}

// About -1 / value, to a unit in the last place, for values of at least Magnitude::LEAST.
__device__ __forceinline__ double minus_reciprocal(double value) {
#if defined(SPARSEBATCH_EMU)
    return -1.0 / value;
#else
    // 1 / value = guess / (1 - e) = guess (1 + e + e^2 + ...), where |e| < 2^-20. Volatile, so that
    // the compiler does not move it behind the reduction.
    double guess;
    asm volatile("rcp.approx.ftz.f64 %0, %1;" : "=d"(guess) : "d"(value));
    const double e = 1.0 - value * guess;
    return -guess - guess * (e + e * e);
#endif
}

// One lane's part in the solves of its warp.
template <u32 N>
struct DenseTiles : DenseSystem<DenseTiles<N>, double, N, WARP_THREADS> {
    using System = DenseSystem<DenseTiles<N>, double, N, WARP_THREADS>;
    using typename System::Threads;
    using System::has;
    using System::matrix;
    using System::nrows;
    using System::row;
    using System::ROWS;
    using System::scratch;
    using System::thread;
    using System::x;
    // Rows and columns of a tile, and tiles side by side.
    static constexpr u32 TILE = 8, TILES = N / TILE;
    // Elements from one row of the matrix to the next in shared memory: 8 more than a multiple of 16,
    // so that pairs of two rows are in different banks.
    static constexpr u32 STRIDE = N % 16 == 8 ? N : N + 8;
    // Elements from one pivot row of a panel to the next: pairs of rows, two columns apart, are in
    // different banks.
    static constexpr u32 WIDTH = N + 2;
    // A pivot row of a step: its part in the panel, its element of the right-hand side, the
    // reciprocal of the pivot.
    static constexpr u32 STEP_WIDTH = TILE + 2;

    // Tiles of the matrix by columns, then by rows.
    using Tiles = Pair<double>[TILES][TILES];

    // Bytes of shared memory of a warp, as `DenseShape::group_bytes` (shape.rs) counts them.
    __device__ __forceinline__ static u32 bytes(u32 nrows) {
        return (nrows * STRIDE + TILE * WIDTH + 2 * STEP_WIDTH + N + 2) * u32(sizeof(double));
    }

    const u32 quad, lane_of_quad; // row within a tile, pair within a row
    double* const panel;          // N rows of TILE, or TILE pivot rows of WIDTH
    double* const pivots;         // two rows of STEP_WIDTH

    // Shared memory: panel, pivot rows of steps, x, scratch, the matrix.
    __device__ __forceinline__ DenseTiles(u32 all_rows, const SystemLimits& all_limits, u8* shared)
        : System(all_rows, all_limits, elements(shared) + TILE * WIDTH + 2 * STEP_WIDTH,
                 elements(shared) + TILE * WIDTH + 2 * STEP_WIDTH + N + 2,
                 elements(shared) + TILE * WIDTH + 2 * STEP_WIDTH + N),
          quad(thread / 4), lane_of_quad(thread % 4), panel(elements(shared)),
          pivots(elements(shared) + TILE * WIDTH) {}

    __device__ __forceinline__ static double* elements(u8* shared) {
        return reinterpret_cast<double*>(shared);
    }

    __device__ __forceinline__ static Pair<double>* pairs(double* first) {
        return reinterpret_cast<Pair<double>*>(first);
    }

    // This lane's row of the tiles t.
    __device__ __forceinline__ u32 tile_row(u32 t) const { return TILE * t + quad; }

    // This lane's entries of a tile of the given matrix; unspecified beyond its rows.
    __device__ __forceinline__ const Pair<double>& given(u32 t, u32 column) const {
        const u32 of_row = t + 1 < TILES ? tile_row(t) : minimum(tile_row(t), nrows - 1);
        return pairs(matrix + of_row * STRIDE + column * TILE)[lane_of_quad];
    }

    // Where pair k of a row of the panel lies, so that neither whole rows nor tiles meet conflicts.
    __device__ __forceinline__ Pair<double>& in_panel(u32 of_row, u32 k) const {
        return pairs(panel)[of_row * (TILE / 2) + (k ^ (of_row / 2 % 4))];
    }

    // Elements of vectors by rows, from those by tiles that all four lanes of a row of tiles have;
    // unspecified beyond N rows.
    __device__ __forceinline__ void to_rows(const double (&of_tiles)[TILES],
                                            double (&of_rows)[ROWS]) const {
        Threads::sync();
#pragma unroll
        for (u32 t = 0; t < TILES; ++t) {
            if (lane_of_quad == 0) {
                panel[tile_row(t)] = of_tiles[t];
            }
        }
        Threads::sync();
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            of_rows[i] = panel[minimum(row(i), N - 1)];
        }
    }

    // product = A x, or |A||x|, 0 beyond the rows.
    template <bool MAGNITUDES>
    __device__ __forceinline__ void multiply(double (&product)[ROWS]) const {
        double sums[TILES] = {};
#pragma unroll 2
        for (u32 column = 0; column < TILES; ++column) {
            const Pair<double> operand = pairs(x + column * TILE)[lane_of_quad];
#pragma unroll
            for (u32 t = 0; t < TILES; ++t) {
                const Pair<double> entries = given(t, column);
                const double first = entries.first * operand.first;
                const double second = entries.second * operand.second;
                sums[t] += MAGNITUDES ? magnitude(first) : first;
                sums[t] += MAGNITUDES ? magnitude(second) : second;
            }
        }
#pragma unroll
        for (u32 lanes = 1; lanes < 4; lanes *= 2) {
#pragma unroll
            for (u32 t = 0; t < TILES; ++t) {
                sums[t] += __shfl_xor_sync(ALL_LANES, sums[t], lanes);
            }
        }
        to_rows(sums, product);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            product[i] = has(i) ? product[i] : 0;
        }
    }

    // Takes the matrix into registers, its rows scaled, and the right-hand side r * down likewise.
    __device__ __forceinline__ void take(Tiles& a, double (&y)[ROWS], const double (&r)[ROWS],
                                         double down) const {
        using Bits = Magnitude<double>;
        constexpr int MOST = Precision<double>::LARGEST_EXPONENT;
        double scales[TILES], of_rows[ROWS];
#pragma unroll
        for (u32 t = 0; t < TILES; ++t) {
            const bool exists = t + 1 < TILES || tile_row(t) < nrows;
            u32 most = 0;
#pragma unroll
            for (u32 column = 0; column < TILES; ++column) {
                const Pair<double> entries = given(t, column);
                a[column][t] = exists ? entries : Pair<double>{0, 0};
                most = maximum(most, magnitude_bits(a[column][t].first));
                most = maximum(most, magnitude_bits(a[column][t].second));
            }
            most = maximum(most, __shfl_xor_sync(ALL_LANES, most, 1));
            most = maximum(most, __shfl_xor_sync(ALL_LANES, most, 2));
            const int found = int(most >> Bits::FRACTION);
            const bool plain = found > 0 && found < int(2 * Bits::BIAS + 1);
            const int exponent = plain ? found - int(Bits::BIAS) : 0;
            scales[t] = power_of_two(-maximum(-MOST, minimum(MOST, exponent)));
#pragma unroll
            for (u32 column = 0; column < TILES; ++column) {
                a[column][t].first *= scales[t];
                a[column][t].second *= scales[t];
            }
        }
        to_rows(scales, of_rows);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            y[i] = has(i) ? r[i] * down * of_rows[i] : 0;
        }
    }

    // This lane's part in the steps of a panel. Steps overlap: what a step does to all but the next
    // column is done while the next pivot is found.
    struct Steps {
        double a[ROWS][TILE];
        double first[ROWS];    // of `a`, up to date
        double multiple[ROWS]; // factor of the last pivot row, still to be applied to `a`
        double y[ROWS], inverses[ROWS];
        u32 column[ROWS];
        u32 bits[ROWS]; // that count in a key: none of a row that was a pivot
    };

    // The key of a row's entry in the first column.
    __device__ __forceinline__ u32 key(const Steps& own, u32 i) const {
        const u32 upper = u32(u64(__double_as_longlong(own.first[i])) >> 32);
        return (upper & own.bits[i]) | (63u - row(i) % 64);
    }

    __device__ __forceinline__ Pair<double>* pivot_row_of(u32 step) const {
        return pairs(pivots + step % 2 * STEP_WIDTH);
    }

    // Completes step k, whose pivot row stays in shared memory: the other columns move down by one,
    // and the last one becomes the multiples of the pivot row.
    __device__ __forceinline__ void complete(u32 k, Steps& own) const {
        const Pair<double>* const turn = pivot_row_of(k);
        const double rhs = turn[TILE / 2].first;
#pragma unroll
        for (u32 c = 2; c < TILE; c += 2) {
            const Pair<double> entries = turn[c / 2];
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                own.a[i][c - 1] = own.a[i][c] + own.multiple[i] * entries.first;
                own.a[i][c] = own.a[i][c + 1] + own.multiple[i] * entries.second;
            }
        }
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            own.a[i][TILE - 1] = own.multiple[i];
            own.y[i] += own.multiple[i] * rhs;
        }
    }

    // Eliminates column k, the first of the panel's, from all rows but the pivot's and from the
    // right-hand side, after completing the step before where there is one. Returns whether there is
    // a pivot.
    template <bool FOLLOWS>
    __device__ __forceinline__ bool eliminate_column(u32 k, Steps& own) const {
        u32 largest = key(own, 0);
        double candidate = own.first[0];
#pragma unroll
        for (u32 i = 1; i < ROWS; ++i) {
            const u32 other = key(own, i);
            candidate = other > largest ? own.first[i] : candidate;
            largest = maximum(largest, other);
        }
        // Each lane prepares its candidate while the largest is found.
        const double inverse = minus_reciprocal(candidate);
        const u32 best = System::largest_key(largest);
        if constexpr (FOLLOWS) {
            complete(k - 1, own);
        }
        const u32 pivot_row = 63u - best % 64;
        Pair<double>* const turn = pivot_row_of(k);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            if (pivot_row == row(i)) {
                turn[0] = Pair<double>{own.first[i], own.a[i][1]};
#pragma unroll
                for (u32 c = 2; c < TILE; c += 2) {
                    turn[c / 2] = Pair<double>{own.a[i][c], own.a[i][c + 1]};
                }
                turn[TILE / 2] = Pair<double>{own.y[i], inverse};
                own.inverses[i] = inverse;
                own.column[i] = k;
                own.bits[i] = 0;
                own.first[i] = 0;
            }
        }
        Threads::sync();
        const double scale = turn[TILE / 2].second, second = turn[0].second;
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            own.multiple[i] = own.first[i] * scale;
            own.first[i] = own.a[i][1] + own.multiple[i] * second;
        }
        return best >= Magnitude<double>::LEAST;
    }

    // Adds the multiples of the pivot rows of panel PANEL to the columns behind it.
    template <u32 PANEL>
    __device__ __forceinline__ void update(Tiles& tiles, const Steps& own) const {
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
#pragma unroll
            for (u32 c = 0; c < TILE; c += 2) {
                if (row(i) < N) {
                    in_panel(row(i), c / 2) = Pair<double>{own.a[i][c], own.a[i][c + 1]};
                }
            }
        }
        Threads::sync();
        Pair<double> multiples[TILES];
        u32 steps[TILES]; // in which the lane's row was a pivot, below TILE for this panel
#pragma unroll
        for (u32 t = 0; t < TILES; ++t) {
            multiples[t] = in_panel(tile_row(t), lane_of_quad);
            const u32 first = TILE * t / WARP_THREADS;
            steps[t] = __shfl_sync(ALL_LANES, own.column[first], tile_row(t) % WARP_THREADS) -
                       PANEL * TILE;
        }
        Threads::sync();
#pragma unroll
        for (u32 t = 0; t < TILES; ++t) {
            if (steps[t] < TILE) {
                Pair<double>* const to = pairs(panel + steps[t] * WIDTH) + lane_of_quad;
#pragma unroll
                for (u32 behind = PANEL + 1; behind < TILES; ++behind) {
                    to[behind * (TILE / 2)] = tiles[behind][t];
                }
            }
        }
        Threads::sync();
#pragma unroll
        for (u32 behind = PANEL + 1; behind < TILES; ++behind) {
            const double* const from = panel + 2 * lane_of_quad * WIDTH + behind * TILE + quad;
            const Pair<double> operand = {from[0], from[WIDTH]};
#pragma unroll
            for (u32 t = 0; t < TILES; ++t) {
                multiply_tiles(tiles[behind][t], multiples[t].first, operand.first);
            }
#pragma unroll
            for (u32 t = 0; t < TILES; ++t) {
                multiply_tiles(tiles[behind][t], multiples[t].second, operand.second);
            }
        }
    }

    // Eliminates all columns of the panels from PANEL on. Returns whether each has a pivot.
    template <u32 PANEL = 0>
    __device__ __forceinline__ bool eliminate(Tiles& tiles, Steps& own) const {
        // The panel has been read.
        Threads::sync();
#pragma unroll
        for (u32 t = 0; t < TILES; ++t) {
            in_panel(tile_row(t), lane_of_quad) = tiles[PANEL][t];
        }
        Threads::sync();
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
#pragma unroll
            for (u32 c = 0; c < TILE; c += 2) {
                const Pair<double> entries = in_panel(minimum(row(i), N - 1), c / 2);
                own.a[i][c] = entries.first;
                own.a[i][c + 1] = entries.second;
            }
            own.first[i] = own.a[i][0];
        }
        constexpr u32 BEGIN = PANEL * TILE;
        constexpr bool IS_LAST = PANEL + 1 == TILES;
        const u32 end = IS_LAST ? nrows : BEGIN + TILE;
        bool has_pivots = eliminate_column<false>(BEGIN, own);
#pragma unroll 1
        for (u32 k = BEGIN + 1; k < end; ++k) {
            has_pivots = eliminate_column<true>(k, own) && has_pivots;
        }
        complete(end - 1, own);
        if constexpr (!IS_LAST) {
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                own.a[i][0] = own.first[i];
            }
            update<PANEL>(tiles, own);
            has_pivots = eliminate<PANEL + 1>(tiles, own) && has_pivots;
        }
        return has_pivots;
    }

    // As DenseSystem says.
    __device__ __forceinline__ bool solve(const double (&r)[ROWS], double down,
                                          double (&y)[ROWS], double (&inverses)[ROWS],
                                          u32 (&column)[ROWS]) const {
        Tiles tiles;
        Steps own;
        take(tiles, own.y, r, down);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            own.column[i] = NOT_YET;
            own.bits[i] = has(i) ? 0x7fffffc0u : 0;
        }
        const bool has_pivots = eliminate(tiles, own);
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            y[i] = own.y[i];
            inverses[i] = -own.inverses[i];
            column[i] = own.column[i];
        }
        return has_pivots;
    }
};

// Blocks of two warps that a multiprocessor shall have registers for.
template <u32 N>
constexpr u32 TILES_BLOCKS = N <= 32 ? 8 : N <= 40 ? 6 : 4;

template <u32 N>
__global__ void __launch_bounds__(DENSE_THREADS<WARP_THREADS>, TILES_BLOCKS<N>)
    dense_tiles(u32 nitems, u32 nrows, u32 nrhs, u32 nnz, const uint4* __restrict__ places,
                const double* __restrict__ values, u64 value_stride, const double* __restrict__ b,
                double* __restrict__ x, u32 flags, SystemLimits limits, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    solve_items<DenseTiles<N>>(dynamic_shared, nitems, nrows, nrhs, nnz, places, values,
                               value_stride, b, x, flags, limits, outcomes);
}
