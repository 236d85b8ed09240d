// Whole solves by sparse LU without pivoting, front by front of an assembly tree, all in one launch:
// multifrontal factorisation (Duff, Reid 1983, doi 10.1145/356044.356047; Liu 1992, doi
// 10.1137/1034004), and refinement from the true residual (Higham, Accuracy and Stability of
// Numerical Algorithms, 2nd ed. 2002, chapter 12).
//
//   r = b - A x0;  P A P^T = L U;  repeat: x += P^T U^-1 L^-1 P r, r = b - A x
//
// A system ends by the rules of the CPU's solvers, applied to the residual recomputed from x. A
// system that does not pass is refined again while restarts and iterations are left. A zero or NaN
// pivot ends it.
//
// - A block solves a system. Its warps first take the fronts of subtrees, each warp those of its own;
//   then the block takes the fronts above them, one after the other.
// - A front of m rows, of which p are eliminated in it, is a dense matrix. Its p columns and p rows,
//   and all of it where there is room, are in shared memory. The right-hand side is one more column:
//   the first forward substitution is part of the factorisation.
// - What is left for the m - p other rows is added by the parent, child after child: the order of all
//   sums depends on the pattern and the kernel alone, so results are bitwise repeatable, whatever the
//   neighbours, the position in the batch, and the order of threads.
// - L, U and what is left of fronts are in device memory, mostly in L2, for one system a block at a
//   time, or for all systems where factors are kept.
//
// Arguments:
// - `nitems` items, nrhs >= 1. Dynamic shared memory: FrontalSystem::SCRATCH doubles and `capacity`
//   values, at least p (2 m - p + 2) for each front of a block, and WARPS times that for each front of
//   a warp.
// - `table`: HEADER words, see Header; then what they tell the places of. A front is FRONT words:
//     its first row, p, m, the place of its other rows in `rows`, the place of its children in
//     `children`, their number, the place of its entries in `entries`, their number, and where its
//     part of L + U, what is left of its matrix, and what is left of a right-hand side lie.
//   A child is five words: where what is left of its matrix lies, its number of rows, how many of these
//   are pivots of the front (they come first), the place in `maps` of their places in the front, which
//   ascend, followed by the number of each row of the front among the child's (NONE if it is not there),
//   and where what is left of a right-hand side lies. An entry is two: its number in A, and its place
//   in the columns and rows of the front, as Matrix lays them out. `lists`: the first front of each
//   warp, of the block, and the number of fronts. Rows are numbered in the order of elimination;
//   perm[k] is the row of A that is eliminated k-th.
// - `values`: `value_stride` elements from item to item, 0 if all items share them. `b`, `x`:
//   item-major, one right-hand side after the other.
// - `workspace`: `stride` values for each block. `kept`: nfactors + 1 values for each item, `kept_stride`
//   from item to item, 0 if all items share them; null if `flags` has neither FRONTAL_FACTOR nor
//   FRONTAL_KEPT.
#include "solver.cuh"

// A bit of `flags`: x holds initial guesses.
constexpr u32 FRONTAL_GUESS = 1;
// Only factorises, and writes the factors to `kept`; or takes them from there.
constexpr u32 FRONTAL_FACTOR = 2;
constexpr u32 FRONTAL_KEPT = 4;

// Words of a front, of a child, of an entry.
constexpr u32 FRONT = 11;
constexpr u32 CHILD = 5;
constexpr u32 ENTRY = 2;

// Rows of a front that a thread works on together.
constexpr u32 ROWS = 8;

// A row of a front that a child has not.
constexpr u32 NONE = 0xffffffffu;

// The first words of a table.
struct Header {
    u32 nrows, nfactors;  // nfactors: values of L + U and of the reciprocals of pivots
    u32 rests, vectors;   // values of what is left of matrices, and of right-hand sides
    u32 fronts, children, maps, rows, entries, perm, row_ptr, columns, lists; // where these begin
};
constexpr u32 HEADER = sizeof(Header) / sizeof(u32);

// Pivots whose reciprocal is a normal number.
template <typename V>
__device__ __forceinline__ bool has_normal_reciprocal(V pivot) {
    const double size = magnitude(double(pivot));
    const double most = sizeof(V) == 8 ? 1e300 : 1e36;
    return size < most && size * most > 1;
}

// A front, and where its parts lie.
template <typename V>
struct Front {
    u32 first, pivots, size;
    const u32* rows;
    const u32* children;
    u32 child_count;
    const u32* entries;
    u32 entry_count;
    V* lower;    // lower[k * size + i]: row i of column k, L below the pivots and U above
    V* upper;    // upper[k * others + j]: column pivots + j of row k
    V* inverses; // of the pivots
    V* rest;     // rest[i * (others + 1) + j]: what is left; the last column is the right-hand side
    V* vector;   // what is left of a right-hand side that is solved for alone

    __device__ __forceinline__ u32 others() const { return size - pivots; }
};

// What a child leaves to a front.
template <typename V>
struct Child {
    const V* rest;
    const V* vector;
    u32 rows, pivots;   // pivots: how many of the rows are pivots of the front
    const u32* places;  // of its rows in the front
    const u32* numbers; // of the rows of the front among its rows
};

// The threads that work on a front: a block or a warp.
template <typename V>
struct Crew {
    u32 thread, threads, warp, warps, lane;
    V* memory; // shared memory of the crew, `capacity` values
    u32 capacity;

    __device__ __forceinline__ void sync() const {
        if (warps > 1) {
            __syncthreads();
        } else {
            __syncwarp();
        }
    }
};

// One thread's part in the solves of its block.
template <typename V, u32 THREADS>
struct FrontalSystem {
    using Threads = Team<THREADS>;
    static constexpr u32 WARPS = THREADS / WARP_THREADS;
    // Doubles of shared memory ahead of the fronts.
    static constexpr u32 SCRATCH = Threads::SCRATCH;

    const u32 thread, lane;
    const SystemLimits& limits;
    const u32* const table;
    Header sizes;
    double* const scratch;
    V* const memory;
    const u32 capacity;
    V* const rests;
    V* const vectors;
    V* const work; // a right-hand side, then its solution, in the order of elimination
    V* const r;    // the residual
    V* factors;
    const V* values;
    const V* b;
    V* x;

    bool has_pivots, is_plain;
    u32 state, iteration, restarts;
    double threshold, rhs_norm, residual;

    __device__ __forceinline__ FrontalSystem(const u32* all_table, const Header& header,
                                             const SystemLimits& all_limits, u8* shared,
                                             u32 all_capacity, V* workspace)
        : thread(threadIdx.x), lane(threadIdx.x % WARP_THREADS), limits(all_limits),
          table(all_table), sizes(header), scratch(reinterpret_cast<double*>(shared)),
          memory(reinterpret_cast<V*>(scratch + SCRATCH)), capacity(all_capacity),
          rests(workspace), vectors(rests + header.rests), work(vectors + header.vectors),
          r(work + header.nrows), factors(r + header.nrows), has_pivots(false), is_plain(false) {}

    __device__ __forceinline__ Front<V> front(u32 number) const {
        const u32* const words = table + sizes.fronts + number * FRONT;
        Front<V> found;
        found.first = load(words);
        found.pivots = load(words + 1);
        found.size = load(words + 2);
        found.rows = table + sizes.rows + load(words + 3);
        found.children = table + sizes.children + load(words + 4) * CHILD;
        found.child_count = load(words + 5);
        found.entries = table + sizes.entries + load(words + 6) * ENTRY;
        found.entry_count = load(words + 7);
        found.lower = factors + load(words + 8);
        found.upper = found.lower + found.pivots * found.size;
        found.inverses = found.upper + found.pivots * found.others();
        found.rest = rests + load(words + 9);
        found.vector = vectors + load(words + 10);
        return found;
    }

    __device__ __forceinline__ Crew<V> block() const {
        return {thread, THREADS, thread / WARP_THREADS, WARPS, lane, memory, capacity};
    }

    __device__ __forceinline__ Crew<V> own_warp() const {
        const u32 share = capacity / WARPS;
        return {lane, WARP_THREADS, 0, 1, lane, memory + thread / WARP_THREADS * share, share};
    }

    // Calls `visit` with every front and its crew: the children of a front come before it, or after
    // it if DOWN.
    template <bool DOWN, typename Visit>
    __device__ __forceinline__ void for_fronts(Visit visit) {
        const u32* const lists = table + sizes.lists;
        const u32 warp = thread / WARP_THREADS;
        Threads::sync();
#pragma unroll 1
        for (u32 half = 0; half < 2; ++half) {
            const bool is_block = (half != 0) != DOWN;
            const u32 list = is_block ? WARPS : warp;
            const u32 begin = load(lists + list), end = load(lists + list + 1);
            const Crew<V> crew = is_block ? block() : own_warp();
#pragma unroll 1
            for (u32 k = begin; k < end; ++k) {
                visit(front(DOWN ? begin + end - 1 - k : k), crew);
            }
            Threads::sync();
        }
    }

    __device__ __forceinline__ Child<V> child(const Front<V>& own, u32 number) const {
        const u32* const words = own.children + number * CHILD;
        Child<V> found;
        found.rest = rests + load(words);
        found.rows = load(words + 1);
        found.pivots = load(words + 2);
        found.places = table + sizes.maps + load(words + 3);
        found.numbers = found.places + found.rows;
        found.vector = vectors + load(words + 4);
        return found;
    }

    // A front in shared memory while it is eliminated. An odd stride keeps rows in different banks.
    struct Matrix {
        V* lower;  // lower[k * stride + i]: row i of column k
        V* upper;  // upper[k * width + j]: column pivots + j of row k; the last is the right-hand side
        V* rest;   // rest[i * width + j]: row pivots + i, where there is room
        u32 pivots, size, stride, width;
        bool is_whole; // whether there is room for `rest`

        __device__ __forceinline__ V* at(u32 row, u32 column) const {
            return column < pivots ? lower + column * stride + row
                   : row < pivots  ? upper + row * width + column - pivots
                                   : rest + (row - pivots) * width + column - pivots;
        }
    };

    // The entries of A, the right-hand side, and what the children left; the latter in the rows and
    // columns of the pivots alone if there is room for nothing else.
    __device__ __forceinline__ Matrix assemble(const Front<V>& own, const Crew<V>& crew,
                                               bool has_rhs) {
        const u32 width = own.others() + 1, stride = own.size | 1;
        const u32 panels = own.pivots * (stride + width), all = panels + own.others() * width;
        V* const upper = crew.memory + own.pivots * stride;
        const bool is_whole = all <= crew.capacity;
        const Matrix matrix{crew.memory, upper, crew.memory + panels, own.pivots, own.size,
                            stride,      width, is_whole};
        for (u32 k = crew.thread; k < (is_whole ? all : panels); k += crew.threads) {
            crew.memory[k] = V(0);
        }
        crew.sync();
        for (u32 k = crew.thread; k < own.entry_count; k += crew.threads) {
            const u32* const entry = own.entries + ENTRY * k;
            crew.memory[load(entry + 1)] = load(values + load(entry));
        }
        for (u32 k = crew.thread; has_rhs && k < own.pivots; k += crew.threads) {
            upper[k * width + width - 1] = work[own.first + k];
        }
        for (u32 k = 0; k < own.child_count; ++k) {
            crew.sync();
            add(child(own, k), matrix, crew);
        }
        crew.sync();
        return matrix;
    }

    // Adds what a child left. A lane has a column.
    __device__ __forceinline__ void add(const Child<V>& part, const Matrix& matrix,
                                        const Crew<V>& crew) {
        const u32 width = part.rows + 1;
        for (u32 first = 0; first < width; first += WARP_THREADS) {
            const u32 j = first + crew.lane, own = minimum(j, part.rows);
            const u32 column = own < part.rows ? load(part.places + own) : matrix.size;
            // Only the first rows meet pivots in columns behind those of the pivots.
            const bool is_all = matrix.is_whole || first < part.pivots;
            const u32 rows = is_all ? part.rows : part.pivots;
            for (u32 i = crew.warp * ROWS; i < rows; i += crew.warps * ROWS) {
                V values[ROWS];
                u32 places[ROWS];
#pragma unroll
                for (u32 r = 0; r < ROWS; ++r) {
                    const u32 row = minimum(i + r, rows - 1);
                    values[r] = part.rest[row * width + own];
                    places[r] = load(part.places + row);
                }
#pragma unroll
                for (u32 r = 0; r < ROWS; ++r) {
                    const bool is_here =
                        matrix.is_whole || column < matrix.pivots || places[r] < matrix.pivots;
                    if (i + r < rows && j < width && is_here) {
                        *matrix.at(places[r], column) += values[r];
                    }
                }
            }
        }
    }

    // An element of the row or the column of a pivot: *target - sum of a[q * a_step] * b[q * b_step]
    // over the pivots q before.
    struct Dot {
        V* target;
        const V* a;
        const V* b;
        u32 a_step, b_step;

        // `which`: rows of column k from k on, then the columns behind k of row k.
        __device__ __forceinline__ Dot(const Matrix& matrix, u32 k, u32 which) {
            const u32 in_column = matrix.size - k, in_panel = matrix.pivots - k - 1;
            V* const column = matrix.lower + k * matrix.stride;
            a_step = matrix.stride;
            b_step = 1;
            if (which < in_column) {
                target = column + k + which;
                a = matrix.lower + k + which;
                b = column;
            } else if (which < in_column + in_panel) {
                V* const other = column + (which - in_column + 1) * matrix.stride;
                target = other + k;
                a = matrix.lower + k;
                b = other;
            } else {
                const u32 j = which - in_column - in_panel;
                target = matrix.upper + k * matrix.width + j;
                a = matrix.lower + k;
                b = matrix.upper + j;
                b_step = matrix.width;
            }
        }
    };

    // Eliminates the pivots of a front in its rows and columns (Crout: a column of L and a row of U at
    // a time).
    __device__ __forceinline__ void eliminate(const Front<V>& own, const Matrix& matrix,
                                              const Crew<V>& crew) {
#pragma unroll 1
        for (u32 k = 0; k < matrix.pivots; ++k) {
            const u32 all = matrix.size + matrix.pivots - 2 * k - 1 + matrix.width;
            for (u32 e = crew.thread; k > 0 && e < all; e += 2 * crew.threads) {
                const u32 f = e + crew.threads;
                Dot first(matrix, k, e), second(matrix, k, f < all ? f : e);
                V sum = *first.target, other = *second.target;
                for (u32 q = 0; q < k; ++q) {
                    sum -= first.a[q * first.a_step] * first.b[q * first.b_step];
                    other -= second.a[q * second.a_step] * second.b[q * second.b_step];
                }
                *first.target = sum;
                if (f < all) {
                    *second.target = other;
                }
            }
            crew.sync();
            V* const column = matrix.lower + k * matrix.stride;
            const V pivot = column[k], inverse = V(1) / pivot;
            has_pivots = has_pivots && (pivot < V(0) || V(0) < pivot);
            const bool is_normal = has_normal_reciprocal(pivot);
            is_plain = is_plain && is_normal;
            for (u32 i = k + 1 + crew.thread; i < matrix.size; i += crew.threads) {
                column[i] = is_normal ? column[i] * inverse : column[i] / pivot;
            }
            if (crew.thread == 0) {
                own.inverses[k] = inverse;
            }
            crew.sync();
        }
    }

    // Writes what is left for the other rows. A lane has a column of some rows.
    __device__ __forceinline__ void update(const Front<V>& own, const Matrix& matrix,
                                           const Crew<V>& crew) {
        const u32 others = own.others(), width = matrix.width;
        const u32 across = (width + WARP_THREADS - 1) / WARP_THREADS;
        const u32 tasks = (others + ROWS - 1) / ROWS * across;
        for (u32 task = crew.warp; task < tasks; task += crew.warps) {
            const u32 first = task / across * ROWS;
            const u32 j = task % across * WARP_THREADS + crew.lane;
            const u32 column = minimum(j, width - 1);
            u32 rows[ROWS];
            V sums[ROWS];
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                rows[i] = minimum(first + i, others - 1);
                sums[i] = matrix.is_whole ? matrix.rest[rows[i] * width + column] : V(0);
            }
            for (u32 k = 0; !matrix.is_whole && k < own.child_count; ++k) {
                gather(child(own, k), matrix, rows, column, sums);
            }
            const V* lower = matrix.lower + matrix.pivots;
            const V* upper = matrix.upper + column;
            for (u32 k = 0; k < matrix.pivots; ++k) {
                const V factor = *upper;
#pragma unroll
                for (u32 i = 0; i < ROWS; ++i) {
                    sums[i] -= lower[rows[i]] * factor;
                }
                lower += matrix.stride;
                upper += width;
            }
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                if (first + i < others && j < width) {
                    own.rest[rows[i] * width + column] = sums[i];
                }
            }
        }
    }

    // Adds what a child left for some other rows of its front in a column of these.
    __device__ __forceinline__ void gather(const Child<V>& part, const Matrix& matrix,
                                           const u32 (&rows)[ROWS], u32 column,
                                           V (&sums)[ROWS]) const {
        const u32* const numbers = part.numbers + matrix.pivots;
        const u32 own = column + 1 < matrix.width ? load(numbers + column) : part.rows;
        V values[ROWS];
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            const u32 row = load(numbers + rows[i]);
            const bool is_there = row != NONE && own != NONE;
            values[i] = is_there ? part.rest[row * (part.rows + 1) + own] : V(0);
        }
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            sums[i] += values[i];
        }
    }

    // Writes a front's part of L + U, and of the right-hand side.
    __device__ __forceinline__ void write(const Front<V>& own, const Matrix& matrix,
                                          const Crew<V>& crew) {
        const u32 others = own.others();
        for (u32 k = crew.warp; k < matrix.pivots; k += crew.warps) {
            const V* const column = matrix.lower + k * matrix.stride;
            const V* const row = matrix.upper + k * matrix.width;
            for (u32 i = crew.lane; i < own.size; i += WARP_THREADS) {
                own.lower[k * own.size + i] = column[i];
            }
            for (u32 j = crew.lane; j < others; j += WARP_THREADS) {
                own.upper[k * others + j] = row[j];
            }
            if (crew.lane == 0) {
                work[own.first + k] = row[others];
            }
        }
    }

    // Factorises, and replaces `work` by L^-1 work where it is a right-hand side.
    __device__ __forceinline__ void factor(bool has_rhs) {
        has_pivots = is_plain = true;
        for_fronts<false>([&](const Front<V>& own, const Crew<V>& crew) {
            const Matrix matrix = assemble(own, crew, has_rhs);
            eliminate(own, matrix, crew);
            update(own, matrix, crew);
            write(own, matrix, crew);
            crew.sync();
        });
        has_pivots = !Threads::any_thread(!has_pivots);
        is_plain = !Threads::any_thread(!is_plain);
    }

    // Copies the rows and columns of the pivots of a front, for substitutions of one warp.
    __device__ __forceinline__ void fetch_pivots(const Front<V>& own, const Crew<V>& crew,
                                                 V* pivots) const {
        for (u32 k = crew.warp; k < own.pivots; k += crew.warps) {
            if (crew.lane < own.pivots) {
                pivots[k * own.pivots + crew.lane] = own.lower[k * own.size + crew.lane];
            }
        }
    }

    // work = L^-1 work.
    __device__ __forceinline__ void forward() {
        for_fronts<false>([&](const Front<V>& own, const Crew<V>& crew) {
            V* const v = crew.memory;
            V* const pivots = v + own.size;
            for (u32 i = crew.thread; i < own.size; i += crew.threads) {
                v[i] = i < own.pivots ? work[own.first + i] : V(0);
            }
            fetch_pivots(own, crew, pivots);
            for (u32 k = 0; k < own.child_count; ++k) {
                crew.sync();
                const Child<V> part = child(own, k);
                for (u32 i = crew.thread; i < part.rows; i += crew.threads) {
                    v[load(part.places + i)] += part.vector[i];
                }
            }
            crew.sync();
            if (crew.warp == 0) {
                V y = crew.lane < own.pivots ? v[crew.lane] : V(0);
                for (u32 k = 0; k < own.pivots; ++k) {
                    const V solved = __shfl_sync(ALL_LANES, y, k);
                    if (crew.lane > k && crew.lane < own.pivots) {
                        y -= pivots[k * own.pivots + crew.lane] * solved;
                    }
                }
                if (crew.lane < own.pivots) {
                    v[crew.lane] = y;
                    work[own.first + crew.lane] = y;
                }
            }
            crew.sync();
            for (u32 i = own.pivots + crew.thread; i < own.size; i += crew.threads) {
                V sum = v[i];
                for (u32 k = 0; k < own.pivots; ++k) {
                    sum -= own.lower[k * own.size + i] * v[k];
                }
                own.vector[i - own.pivots] = sum;
            }
            crew.sync();
        });
    }

    // work = U^-1 work.
    __device__ __forceinline__ void backward() {
        for_fronts<true>([&](const Front<V>& own, const Crew<V>& crew) {
            const u32 others = own.others();
            V* const v = crew.memory;
            V* const y = v + others;
            V* const pivots = y + own.pivots;
            for (u32 j = crew.thread; j < others; j += crew.threads) {
                v[j] = work[load(own.rows + j)];
            }
            fetch_pivots(own, crew, pivots);
            crew.sync();
            for (u32 first = crew.warp * ROWS; first < own.pivots; first += crew.warps * ROWS) {
                V sums[ROWS] = {};
                for (u32 j = crew.lane; j < others; j += WARP_THREADS) {
                    const V known = v[j];
#pragma unroll
                    for (u32 i = 0; i < ROWS; ++i) {
                        const u32 row = minimum(first + i, own.pivots - 1);
                        sums[i] += own.upper[row * others + j] * known;
                    }
                }
#pragma unroll
                for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
#pragma unroll
                    for (u32 i = 0; i < ROWS; ++i) {
                        sums[i] += __shfl_xor_sync(ALL_LANES, sums[i], offset);
                    }
                }
#pragma unroll
                for (u32 i = 0; i < ROWS; ++i) {
                    if (crew.lane == i && first + i < own.pivots) {
                        y[first + i] = work[own.first + first + i] - sums[i];
                    }
                }
            }
            crew.sync();
            if (crew.warp == 0) {
                const bool is_pivot = crew.lane < own.pivots;
                V solution = is_pivot ? y[crew.lane] : V(0);
                const V inverse = is_pivot ? own.inverses[crew.lane] : V(0);
                const V pivot = is_pivot ? pivots[crew.lane * (own.pivots + 1)] : V(1);
                for (u32 k = own.pivots; k-- > 0;) {
                    const V quotient = is_plain ? solution * inverse : solution / pivot;
                    const V solved = __shfl_sync(ALL_LANES, quotient, k);
                    if (crew.lane == k) {
                        solution = solved;
                    } else if (crew.lane < k) {
                        solution -= pivots[k * own.pivots + crew.lane] * solved;
                    }
                }
                if (is_pivot) {
                    work[own.first + crew.lane] = solution;
                }
            }
            crew.sync();
        });
    }

    // The norm of r, without spurious overflow or underflow: NaN when an element is NaN, infinite
    // when one is.
    __device__ __forceinline__ double norm() const {
        const double sum = sum_of([](double value) { return value * value; });
        if (sum >= 1e-280 && sum < 1e280) {
            return __dsqrt_rn(sum);
        }
        double most = 0;
        for (u32 i = thread; i < sizes.nrows; i += THREADS) {
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

    // The sum of part(r_i), the same in all threads.
    template <typename Part>
    __device__ __forceinline__ double sum_of(Part part) const {
        double sum = 0;
        for (u32 i = thread; i < sizes.nrows; i += THREADS) {
            sum += part(double(r[i]));
        }
        return sum_apart<Threads>(sum, scratch);
    }

    // r = b - A x and its norm, NaN where that is not finite; or r = |A||x| + |b| and its norm.
    // Products are summed first: large ones that cancel must not absorb b.
    template <bool MAGNITUDES>
    __device__ __forceinline__ double multiply() {
        Threads::sync();
        const u32* const row_ptr = table + sizes.row_ptr;
        const u32* const columns = table + sizes.columns;
        for (u32 row = thread; row < sizes.nrows; row += THREADS) {
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
    __device__ __forceinline__ void enter(u64 system, bool has_guess) {
        Threads::sync();
        for (u32 i = thread; i < sizes.nrows; i += THREADS) {
            r[i] = load(b + i);
        }
        Threads::sync();
        state = RUNNING;
        iteration = restarts = 0;
        rhs_norm = norm();
        threshold = limits.threshold(system, rhs_norm);
        bool moved = false;
        for (u32 i = thread; i < sizes.nrows; i += THREADS) {
            if (has_guess && rhs_norm != 0) {
                moved = moved || x[i] != V(0);
            } else {
                x[i] = V(0);
            }
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

    // One solve for the residual, with a factorisation before it unless there is one. Returns how it
    // ended.
    __device__ __forceinline__ u32 refine(u64 system, bool is_factored) {
        const int exponent = exponent_of(rhs_norm);
        constexpr int MOST = Precision<V>::LARGEST_EXPONENT;
        const bool safe = maximum(exponent, -exponent) <= Precision<V>::SAFE_EXPONENT;
        const int scale = safe ? 0 : maximum(-MOST, minimum(MOST, exponent));
        const V down = V(power_of_two(-scale)), up = V(power_of_two(scale));
        const u32* const perm = table + sizes.perm;
        for (u32 k = thread; k < sizes.nrows; k += THREADS) {
            work[k] = r[load(perm + k)] * down;
        }
        if (!is_factored) {
            factor(true);
        }
        if (!has_pivots) {
            return ZERO_PIVOT;
        }
        if (is_factored) {
            forward();
        }
        backward();
        for (u32 k = thread; k < sizes.nrows; k += THREADS) {
            x[load(perm + k)] += work[k] * up;
        }
        ++iteration;
        return iteration >= limits.iterations(system) ? MAX_ITERATIONS : PASSED;
    }

    // The code of what is known of kept pivots: 0 that one is missing, 2 that all have normal
    // reciprocals, else 1.
    __device__ __forceinline__ V code() const {
        return !has_pivots ? V(0) : is_plain ? V(2) : V(1);
    }

    __device__ __forceinline__ void take_code(V known) {
        has_pivots = known != V(0);
        is_plain = known == V(2);
    }
};

template <typename V, u32 THREADS>
__global__ void __launch_bounds__(THREADS, 512 / THREADS)
    multifrontal(u32 nitems, u32 nrhs, u32 capacity, const u32* __restrict__ table,
                 const V* __restrict__ values, u64 value_stride, const V* __restrict__ b, V* x,
                 V* workspace, u64 stride, V* kept, u64 kept_stride, u32 flags,
                 SystemLimits limits, SystemOutcomes outcomes) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    using System = FrontalSystem<V, THREADS>;
    Header header;
    header.nrows = load(table);
    header.nfactors = load(table + 1);
    header.rests = load(table + 2);
    header.vectors = load(table + 3);
    header.fronts = load(table + 4);
    header.children = load(table + 5);
    header.maps = load(table + 6);
    header.rows = load(table + 7);
    header.entries = load(table + 8);
    header.perm = load(table + 9);
    header.row_ptr = load(table + 10);
    header.columns = load(table + 11);
    header.lists = load(table + 12);
    System system(table, header, limits, dynamic_shared, capacity, workspace + blockIdx.x * stride);
    for (u64 item = blockIdx.x; item < nitems; item += gridDim.x) {
        system.values = values + item * value_stride;
        V* const own_kept = kept + item * kept_stride;
        if ((flags & (FRONTAL_FACTOR | FRONTAL_KEPT)) != 0) {
            system.factors = own_kept;
        }
        if ((flags & FRONTAL_FACTOR) != 0) {
            system.factor(false);
            if (system.thread == 0) {
                own_kept[header.nfactors] = system.code();
            }
            continue;
        }
        bool is_factored = (flags & FRONTAL_KEPT) != 0;
        if (is_factored) {
            system.take_code(load(own_kept + header.nfactors));
        }
        for (u32 rhs = 0; rhs < nrhs; ++rhs) {
            const u64 number = item * nrhs + rhs;
            system.b = b + number * header.nrows;
            system.x = x + number * header.nrows;
            system.enter(number, (flags & FRONTAL_GUESS) != 0);
            system.judge(number, outcomes, true, PASSED);
            while (system.state == RUNNING) {
                const u32 stop = system.refine(number, is_factored);
                is_factored = true;
                system.residual = system.template multiply<false>();
                system.judge(number, outcomes, false, stop);
            }
        }
    }
}
