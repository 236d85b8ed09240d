// Whole solves by sparse LU without pivoting, front by front of an assembly tree, all in one
// launch: multifrontal factorisation (Duff, Reid 1983, doi 10.1145/356044.356047; Liu 1992, doi
// 10.1137/1034004), and refinement from the true residual (Higham, Accuracy and Stability of
// Numerical Algorithms, 2nd ed. 2002, chapter 12).
//
//   r = b - A x0;  P A P^T = L U;  repeat: x += P^T U^-1 L^-1 P r, r = b - A x
//
// A system ends by the rules of the CPU's solvers, applied to the residual recomputed from x. A
// system that does not pass is refined again while restarts and iterations are left. A zero or NaN
// pivot ends it.
//
// - A block solves a system. Its warps first take the fronts of subtrees, each warp those of its
//   own; then the block takes the fronts above them, one after the other.
// - A front of m rows, of which p are eliminated in it, is a dense matrix. Its p columns and p
//   rows, and all of it where there is room, are in shared memory. The right-hand side is one more
//   column: the first forward substitution is part of the factorisation.
// - What is left for the m - p other rows is added by the parent, child after child. The order of
//   all sums depends on the pattern alone, not on THREADS: results are bitwise repeatable, whatever
//   the neighbours, the position in the batch, the number of systems, and the order of threads.
// - L, U and what is left of fronts are in device memory, mostly in L2, for one system a block at a
//   time, or for all systems where factors are kept.
//
// Arguments:
// - `nitems` items, nrhs >= 1. Dynamic shared memory: FrontalSystem::SCRATCH doubles, HEAD values
//   for each warp, `capacity` values, an even share for each warp, and ROWS (PIVOTS + 2) values to
//   spare. `capacity` is at least (2 m + 1) Front::stride() for each front of a block, and WARPS
//   times that for each front of a warp. p is at most PIVOTS.
// - `table`: HEADER words, see Header; then what they tell the places of. A front is FRONT words:
//     its first row, p, m, the place of its other rows in `rows`, the place of its children in
//     `children`, their number, the place of its entries in `entries`, their number, and where its
//     part of L + U, what is left of its matrix, and what is left of a right-hand side lie.
//   A child is five words: where what is left of its matrix lies, its number of rows, how many of
//   these are pivots of the front (they come first), the place in `maps` of their places in the
//   front, which ascend, and where what is left of a right-hand side lies. In `maps` the places are
//   followed by the target of each element of what is left of the matrix, two of 16 bits in a word,
//   if all of the front is in shared memory; else by the number of each row of the front among the
//   child's (NONE if it is not there). An entry is two words: its number in A, and its place in
//   shared memory, as Matrix lays it out. `lists`: the first front of each warp, of the block, and
//   the number of fronts. Rows are numbered in the order of elimination; perm[k] is the row of A
//   that is eliminated k-th.
// - `values`: `value_stride` elements from item to item, 0 if all items share them. `b`, `x`:
//   item-major, one right-hand side after the other.
// - `workspace`: `stride` values for each block. `kept`: nfactors + 1 values for each item, the
//   last 0 if a pivot is missing, an even `kept_stride` from item to item, 0 if all items share
//   them; null if `flags` has neither FRONTAL_FACTOR nor FRONTAL_KEPT.
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

// Most pivots of a front.
constexpr u32 PIVOTS = 16;

// Threads that share a column of U in a backward substitution, sums of each row there, and threads
// that sum norms: whatever the crew, so that all have the same bits.
constexpr u32 HALF = PIVOTS;
constexpr u32 PARTS = 8;
constexpr u32 CHAINS = 128;

// Values of shared memory of each warp beside a front.
constexpr u32 HEAD = PARTS * HALF;

// Two neighbours, read and written together.
template <typename V>
struct __align__(2 * sizeof(V)) Pair {
    V first, second;
};

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

// A power of two that brings a pivot to where its reciprocal is a normal number: 1 for most.
template <typename V>
__device__ __forceinline__ V scale_of(V pivot) {
    constexpr double MOST = sizeof(V) == 8 ? 1e290 : 1e30;
    constexpr double DOWN = sizeof(V) == 8 ? 0x1p-200 : 0x1p-60;
    const double size = magnitude(double(pivot));
    return size > MOST ? V(DOWN) : size * MOST < 1 ? V(1 / DOWN) : V(1);
}

// A front, and where its parts begin.
struct Front {
    u32 first, pivots, size;
    u32 rows, children, child_count, entries, entry_count;
    u32 lines;  // its part of L + U as Matrix has it, then the reciprocals of the scaled pivots
    u32 rest;   // what is left of its matrix, row by row; the last column is the right-hand side
    u32 vector; // what is left of a right-hand side that is solved for alone

    __device__ __forceinline__ u32 others() const { return size - pivots; }

    // Values of a line: of two and twice an odd number, so that lanes that read two values each of
    // 8 lines find them in different banks.
    __device__ __forceinline__ u32 stride() const { return (pivots + 1) / 4 * 4 + 2; }

    __device__ __forceinline__ u32 line_values() const { return (2 * size + 1) * stride(); }
};

// What a child leaves to a front.
template <typename V>
struct Child {
    const V* rest;
    const V* vector;
    u32 rows, pivots;   // pivots: how many of the rows are pivots of the front
    const u32* places;  // of its rows in the front
    const u32* numbers; // of the rows of the front among its rows, where the front is not all in
                        // shared memory
    const u32* targets; // where it is: the place of each element of `rest` there, two in a word
};

// The threads that work on a front: a block or a warp.
template <typename V>
struct Crew {
    u32 thread, threads, warp, warps, lane;
    V* head;   // HEAD values of shared memory
    V* memory; // `capacity` more
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
    V* const heads;
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

    bool has_pivots;
    u32 state, iteration, restarts;
    double threshold, rhs_norm, residual;

    __device__ __forceinline__ FrontalSystem(const u32* all_table, const Header& header,
                                             const SystemLimits& all_limits, u8* shared,
                                             u32 all_capacity, V* workspace)
        : thread(threadIdx.x), lane(threadIdx.x % WARP_THREADS), limits(all_limits),
          table(all_table), sizes(header), scratch(reinterpret_cast<double*>(shared)),
          heads(reinterpret_cast<V*>(scratch + SCRATCH)), memory(heads + WARPS * HEAD),
          capacity(all_capacity),
          rests(workspace), vectors(rests + header.rests), work(vectors + header.vectors),
          r(work + header.nrows), factors(r + header.nrows), has_pivots(false) {}

    __device__ __forceinline__ Front front(u32 number) const {
        const u32* const words = table + sizes.fronts + number * FRONT;
        return {load(words),     load(words + 1), load(words + 2), load(words + 3),
                load(words + 4), load(words + 5), load(words + 6), load(words + 7),
                load(words + 8), load(words + 9), load(words + 10)};
    }

    __device__ __forceinline__ Crew<V> block() const {
        return {thread, THREADS, thread / WARP_THREADS, WARPS, lane, heads, memory, capacity};
    }

    __device__ __forceinline__ Crew<V> own_warp() const {
        const u32 share = capacity / WARPS, warp = thread / WARP_THREADS;
        return {lane, WARP_THREADS, 0, 1, lane, heads + warp * HEAD, memory + warp * share, share};
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

    __device__ __forceinline__ Child<V> child(const Front& own, u32 number) const {
        const u32* const words = table + sizes.children + (own.children + number) * CHILD;
        Child<V> found;
        found.rest = rests + load(words);
        found.rows = load(words + 1);
        found.pivots = load(words + 2);
        found.places = table + sizes.maps + load(words + 3);
        found.numbers = found.places + found.rows;
        found.targets = found.numbers;
        found.vector = vectors + load(words + 4);
        return found;
    }

    // A front in shared memory while it is eliminated. Row i of L and column j of U are lines of an
    // element for each pivot: entry (i, j) is element j of row line i below the diagonal of the
    // pivots, and element i of column line j elsewhere. The last column line is the right-hand
    // side.
    struct Matrix {
        V* lines; // the row lines, then the column lines
        V* rest;  // rest[i * width + j]: entry (pivots + i, pivots + j), where there is room
        u32 pivots, size, stride, width;
        bool is_whole; // whether there is room for `rest`

        __device__ __forceinline__ V* row(u32 i) const { return lines + i * stride; }

        __device__ __forceinline__ V* column(u32 j) const { return lines + (size + j) * stride; }
    };

    // The entries of A, the right-hand side, and what the children left; the latter in the rows and
    // columns of the pivots alone if there is room for nothing else.
    __device__ __forceinline__ Matrix assemble(const Front& own, const Crew<V>& crew,
                                               bool has_rhs) {
        const u32 width = own.others() + 1, lines = own.line_values();
        const u32 all = lines + own.others() * width;
        const bool is_whole = all <= crew.capacity;
        const Matrix matrix{crew.memory, crew.memory + lines, own.pivots, own.size, own.stride(),
                            width,       is_whole};
        for (u32 k = crew.thread; k < (is_whole ? all : lines); k += crew.threads) {
            crew.memory[k] = V(0);
        }
        crew.sync();
        for (u32 k = crew.thread; k < own.entry_count; k += crew.threads) {
            const u32* const entry = table + sizes.entries + (own.entries + k) * ENTRY;
            crew.memory[load(entry + 1)] = load(values + load(entry));
        }
        for (u32 k = crew.thread; has_rhs && k < own.pivots; k += crew.threads) {
            matrix.column(own.size)[k] = work[own.first + k];
        }
        for (u32 k = 0; k < own.child_count; ++k) {
            crew.sync();
            const Child<V> part = child(own, k);
            if (is_whole) {
                add_all(part, crew);
            } else {
                add_lines(part, matrix, crew);
            }
        }
        crew.sync();
        return matrix;
    }

    // Adds what a child left to a front that is all in shared memory.
    __device__ __forceinline__ void add_all(const Child<V>& part, const Crew<V>& crew) const {
        const u32 count = part.rows * (part.rows + 1);
        const u16* const targets = reinterpret_cast<const u16*>(part.targets);
        for (u32 first = crew.thread; first < count; first += ROWS * crew.threads) {
            V values[ROWS];
            u32 places[ROWS];
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r) {
                const u32 k = first + r * crew.threads;
                const bool is_there = k < count;
                values[r] = is_there ? part.rest[k] : V(0);
                places[r] = is_there ? load(targets + k) : 0;
            }
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r) {
                if (first + r * crew.threads < count) {
                    crew.memory[places[r]] += values[r];
                }
            }
        }
    }

    // Adds what a child left in the rows and columns of the pivots. A lane has a column.
    __device__ __forceinline__ void add_lines(const Child<V>& part, const Matrix& matrix,
                                              const Crew<V>& crew) const {
        const u32 width = part.rows + 1;
        for (u32 first = 0; first < width; first += WARP_THREADS) {
            const u32 j = first + crew.lane, own = minimum(j, part.rows);
            const u32 column = own < part.rows ? load(part.places + own) : matrix.size;
            // Only the first rows meet pivots in columns behind those of the pivots.
            const u32 rows = first < part.pivots ? part.rows : part.pivots;
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
                    const u32 row = places[r];
                    if (i + r < rows && j < width && column < minimum(row, matrix.pivots)) {
                        matrix.row(row)[column] += values[r];
                    } else if (i + r < rows && j < width && row < matrix.pivots) {
                        matrix.column(column)[row] += values[r];
                    }
                }
            }
        }
    }

    // line[k] - sum of line[q] * other[q] over q < k.
    __device__ __forceinline__ static V reduced(const V* line, const V* other, u32 k) {
        V sum = line[k];
        u32 q = 0;
        for (; q + 2 <= k; q += 2) {
            const Pair<V> a = *reinterpret_cast<const Pair<V>*>(line + q);
            const Pair<V> b = *reinterpret_cast<const Pair<V>*>(other + q);
            sum -= a.first * b.first;
            sum -= a.second * b.second;
        }
        return q < k ? sum - line[q] * other[q] : sum;
    }

    // Eliminates the pivots in their own rows and columns (Crout), by one warp: a lane has a row or
    // a column. Leaves the scales and reciprocals of the pivots in the head.
    __device__ __forceinline__ void factor_pivots(const Front& own, const Matrix& matrix,
                                                  const Crew<V>& crew) {
        const u32 number = crew.lane % HALF;
        const bool is_row = crew.lane >= HALF;
        V* const line = is_row ? matrix.row(number) : matrix.column(number);
#pragma unroll 1
        for (u32 k = 0; k < matrix.pivots; ++k) {
            const bool is_here = number < matrix.pivots && (is_row ? number > k : number >= k);
            V found = V(0);
            if (is_here) {
                found = reduced(line, is_row ? matrix.column(k) : matrix.row(k), k);
            }
            const V pivot = __shfl_sync(ALL_LANES, found, k), scale = scale_of(pivot);
            bool is_sure;
            const V inverse = reciprocal(pivot * scale, is_sure);
            has_pivots = has_pivots && (pivot < V(0) || V(0) < pivot);
            if (is_here) {
                line[k] = is_row ? found * scale * inverse : found;
            }
            if (crew.lane == 0) {
                crew.head[k] = inverse;
                crew.head[HALF + k] = scale;
                factors[own.lines + own.line_values() + k] = inverse;
            }
            __syncwarp();
        }
    }

    // Eliminates the pivots in the other rows and columns: a thread has one of these.
    __device__ __forceinline__ void solve_others(const Front& own, const Matrix& matrix,
                                                 const Crew<V>& crew) const {
        const u32 others = own.others();
        for (u32 e = crew.thread; e < others + matrix.width; e += crew.threads) {
            const bool is_row = e < others;
            V* const line =
                is_row ? matrix.row(matrix.pivots + e) : matrix.column(matrix.pivots + e - others);
            const V* other = is_row ? matrix.column(0) : matrix.row(0);
#pragma unroll 1
            for (u32 k = 0; k < matrix.pivots; ++k) {
                const V found = reduced(line, other, k);
                line[k] = is_row ? found * crew.head[HALF + k] * crew.head[k] : found;
                other += matrix.stride;
            }
        }
    }

    // Eliminates the pivots of a front in its rows and columns.
    __device__ __forceinline__ void eliminate(const Front& own, const Matrix& matrix,
                                              const Crew<V>& crew) {
        if (crew.warp == 0) {
            factor_pivots(own, matrix, crew);
        }
        crew.sync();
        solve_others(own, matrix, crew);
        crew.sync();
    }

    // Writes what is left for the other rows. A lane has a column of some rows.
    __device__ __forceinline__ void update(const Front& own, const Matrix& matrix,
                                           const Crew<V>& crew) {
        const u32 others = own.others(), width = matrix.width;
        const u32 across = (width + WARP_THREADS - 1) / WARP_THREADS;
        const u32 tasks = (others + ROWS - 1) / ROWS * across;
        for (u32 task = crew.warp; task < tasks; task += crew.warps) {
            const u32 first = task / across * ROWS;
            const u32 j = task % across * WARP_THREADS + crew.lane;
            const u32 column = minimum(j, width - 1);
            V sums[ROWS];
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                const u32 row = minimum(first + i, others - 1);
                sums[i] = matrix.is_whole ? matrix.rest[row * width + column] : V(0);
            }
            for (u32 k = 0; !matrix.is_whole && k < own.child_count; ++k) {
                gather(child(own, k), matrix, first, column, sums);
            }
            subtract(matrix, first, column, sums);
            V* const rest = rests + own.rest + first * width + column;
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                if (first + i < others && j < width) {
                    rest[i * width] = sums[i];
                }
            }
        }
    }

    // Subtracts the products of some rows of L and a column of U. Rows beyond the last are lines of
    // other things, and of no use.
    __device__ __forceinline__ void subtract(const Matrix& matrix, u32 first, u32 column,
                                             V (&sums)[ROWS]) const {
        const V* const above = matrix.column(matrix.pivots + column);
        const V* const rows = matrix.row(matrix.pivots + first);
        u32 k = 0;
#pragma unroll 2
        for (; k + 2 <= matrix.pivots; k += 2) {
            const Pair<V> factors_of_u = *reinterpret_cast<const Pair<V>*>(above + k);
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                const Pair<V> of_l =
                    *reinterpret_cast<const Pair<V>*>(rows + i * matrix.stride + k);
                sums[i] -= of_l.first * factors_of_u.first;
                sums[i] -= of_l.second * factors_of_u.second;
            }
        }
        if (k < matrix.pivots) {
            const V factor = above[k];
#pragma unroll
            for (u32 i = 0; i < ROWS; ++i) {
                sums[i] -= rows[i * matrix.stride + k] * factor;
            }
        }
    }

    // Adds what a child left for some other rows of its front in a column of these.
    __device__ __forceinline__ void gather(const Child<V>& part, const Matrix& matrix,
                                           u32 first, u32 column, V (&sums)[ROWS]) const {
        const u32* const numbers = part.numbers + matrix.pivots;
        const u32 others = matrix.size - matrix.pivots;
        const u32 own = column + 1 < matrix.width ? load(numbers + column) : part.rows;
        V values[ROWS];
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            const u32 row = load(numbers + minimum(first + i, others - 1));
            const bool is_there = row != NONE && own != NONE;
            values[i] = is_there ? part.rest[row * (part.rows + 1) + own] : V(0);
        }
#pragma unroll
        for (u32 i = 0; i < ROWS; ++i) {
            sums[i] += values[i];
        }
    }

    // Writes a front's part of L + U, and of the right-hand side.
    __device__ __forceinline__ void write(const Front& own, const Matrix& matrix,
                                          const Crew<V>& crew) {
        const u32 pairs = own.line_values() / 2;
        Pair<V>* const lines = reinterpret_cast<Pair<V>*>(factors + own.lines);
        const Pair<V>* const found = reinterpret_cast<const Pair<V>*>(matrix.lines);
#pragma unroll 4
        for (u32 k = crew.thread; k < pairs; k += crew.threads) {
            lines[k] = found[k];
        }
        for (u32 k = crew.thread; k < matrix.pivots; k += crew.threads) {
            work[own.first + k] = matrix.column(own.size)[k];
        }
    }

    // Factorises, and replaces `work` by L^-1 work where it is a right-hand side.
    __device__ __forceinline__ void factor(bool has_rhs) {
        has_pivots = true;
        for_fronts<false>([&](const Front& own, const Crew<V>& crew) {
            const Matrix matrix = assemble(own, crew, has_rhs);
            eliminate(own, matrix, crew);
            update(own, matrix, crew);
            write(own, matrix, crew);
            crew.sync();
        });
        has_pivots = !Threads::any_thread(!has_pivots);
    }

    // work = L^-1 work.
    __device__ __forceinline__ void forward() {
        for_fronts<false>([&](const Front& own, const Crew<V>& crew) {
            V* const v = crew.memory;
            const V* const rows = factors + own.lines;
            V entries[PIVOTS];
            fetch(rows + crew.lane * own.stride(), 1, own, crew, entries);
            for (u32 i = crew.thread; i < own.size; i += crew.threads) {
                v[i] = i < own.pivots ? work[own.first + i] : V(0);
            }
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
#pragma unroll
                for (u32 k = 0; k < PIVOTS; ++k) {
                    if (k < own.pivots) {
                        const V solved = __shfl_sync(ALL_LANES, y, k);
                        y = crew.lane > k ? y - entries[k] * solved : y;
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
#pragma unroll 4
                for (u32 k = 0; k < own.pivots; ++k) {
                    sum -= rows[i * own.stride() + k] * v[k];
                }
                vectors[own.vector + i - own.pivots] = sum;
            }
            crew.sync();
        });
    }

    // Of a lane of the first warp that has a pivot: element k * step for each pivot k.
    __device__ __forceinline__ static void fetch(const V* first, u32 step, const Front& own,
                                                 const Crew<V>& crew, V (&entries)[PIVOTS]) {
#pragma unroll
        for (u32 k = 0; k < PIVOTS; ++k) {
            const bool is_there = crew.warp == 0 && crew.lane < own.pivots && k < own.pivots;
            entries[k] = is_there ? first[k * step] : V(0);
        }
    }

    // work = U^-1 work.
    __device__ __forceinline__ void backward() {
        for_fronts<true>([&](const Front& own, const Crew<V>& crew) {
            const u32 others = own.others(), stride = own.stride(), row = crew.thread % HALF;
            const V* const columns = factors + own.lines + own.size * stride;
            V* const sums = crew.head;
            V* const v = crew.memory;
            V entries[PIVOTS];
            fetch(columns + crew.lane, stride, own, crew, entries);
            for (u32 j = crew.thread; j < others; j += crew.threads) {
                v[j] = work[load(table + sizes.rows + own.rows + j)];
            }
            crew.sync();
            const V* const above = columns + own.pivots * stride + minimum(row, own.pivots - 1);
            for (u32 part = crew.thread / HALF; part < PARTS; part += crew.threads / HALF) {
                V sum = V(0);
#pragma unroll 4
                for (u32 j = part; j < others; j += PARTS) {
                    sum += above[j * stride] * v[j];
                }
                sums[part * HALF + row] = sum;
            }
            crew.sync();
            if (crew.warp == 0) {
                const bool is_pivot = crew.lane < own.pivots;
                V solution = is_pivot ? work[own.first + crew.lane] : V(0);
#pragma unroll
                for (u32 part = 0; part < PARTS; ++part) {
                    solution -= sums[part * HALF + row];
                }
                const V* const inverses = factors + own.lines + own.line_values();
                const V inverse = is_pivot ? inverses[crew.lane] : V(0);
                const V scale = scale_of(is_pivot ? columns[crew.lane * (stride + 1)] : V(1));
#pragma unroll
                for (u32 k = PIVOTS; k-- > 0;) {
                    if (k < own.pivots) {
                        const V quotient = solution * scale * inverse;
                        const V solved = __shfl_sync(ALL_LANES, quotient, k);
                        const V next = solution - entries[k] * solved;
                        solution = crew.lane == k ? solved : crew.lane < k ? next : solution;
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
        for (u32 i = thread; thread < CHAINS && i < sizes.nrows; i += CHAINS) {
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

    // Ends the system if it is finished. `fresh`: no step was made yet; otherwise `stop` says how
    // the last one ended. May overwrite r where the system goes on, which is then found again.
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

    // One solve for the residual, with a factorisation before it unless there is one. Returns how
    // it ended.
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
};

template <typename V, u32 THREADS, u32 BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
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
                own_kept[header.nfactors] = system.has_pivots ? V(1) : V(0);
            }
            continue;
        }
        bool is_factored = (flags & FRONTAL_KEPT) != 0;
        if (is_factored) {
            system.has_pivots = own_kept[header.nfactors] != V(0);
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
