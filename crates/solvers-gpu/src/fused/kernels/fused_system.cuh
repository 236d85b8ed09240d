// Storage of the systems that cg.cu and bicgstab.cu solve, loading of their values, and the product
// with the matrix; see fused.cuh.
#pragma once

#include "fused_queue.cuh"

template <typename Shape>
struct FusedSystem : FusedQueue<Shape> {
    using Queue = FusedQueue<Shape>;
    using Queue::lane;
    using Queue::member;
    using Queue::nentries;
    using Queue::next;
    using Queue::next_item;
    using Queue::NOTES;
    using Queue::nrows;
    using Queue::own_columns;
    using Queue::own_order;
    using Queue::own_starts;
    using Queue::own_values;
    using Queue::part;
    using Queue::pattern;
    using Queue::place_in_vectors_of;
    using Queue::task;
    using Queue::turn;
    using Queue::value_step;
    using typename Queue::Item;
    using V = typename Shape::V;
    using W = typename Shape::W;
    using Shape::EXCHANGES;
    using Shape::FAR;
    using Shape::GATHERS;
    using Shape::GROUP;
    using Shape::IS_BLOCK;
    using Shape::IS_CLUSTER;
    using Shape::KEEPS_COLUMNS;
    using Shape::KEEPS_VALUES;
    using Shape::MIXED;
    using Shape::NEAR;
    using Shape::NONE;
    using Shape::OWN;
    using Shape::OWN_SLOTS;
    using Shape::OWN_THREADS;
    using Shape::PARTS;
    using Shape::PLACE;
    using Shape::ROWS;
    using Shape::SCATTERED;
    using Shape::TEAM;
    using Shape::VECTOR;
    using Shape::VECTORS;
    using Shape::WIDTH;
    using typename Shape::Threads;
    static constexpr u32 KEPT = KEEPS_COLUMNS ? ROWS * WIDTH : 1;
    static constexpr u32 PLACES = FAR > 0 ? ROWS * FAR : 1;
    // MIXED: whether products with the unrounded A read columns from memory: one warp with long
    // rows has no registers to unpack them in. 10,000 systems of 144 rows with 9 entries took 0.93
    // of the time this way, of 54 rows 1.03.
    static constexpr bool BY_LISTS = WIDTH > 5 && GROUP == WARP_THREADS && ROWS > 2;

    const u8* const shared_memory;
    W* const operand;
    V* const solution; // as returned, slot by slot; the operand's memory unless MIXED
    V* const staged;
    double* const scratch;

    W a[KEEPS_VALUES ? KEPT : 1];
    u32 places[(PLACES + 1) / 2]; // byte offsets of columns in shared memory, two in a word
    u32 starts[KEEPS_COLUMNS || IS_CLUSTER ? 1 : ROWS + 1];

    __device__ __forceinline__ FusedSystem(const FusedTask<V>& all, const u8* memory, u8* own,
                                          double* partials)
        : Queue(all, partials), shared_memory(memory), operand(reinterpret_cast<W*>(own)),
          solution(reinterpret_cast<V*>(operand + (MIXED ? VECTORS * VECTOR : 0))),
          staged(MIXED ? solution + NONE + 1 : solution + VECTORS * VECTOR), scratch(partials) {
        if constexpr (KEEPS_COLUMNS) {
            constexpr u32 GROUPS = GROUP < WARP_THREADS ? WARP_THREADS / GROUP : 1;
            constexpr u32 BYTES = Shape::bytes(PLACE == IN_SHARED ? KEPT * GROUP : 0);
            static_assert((GROUPS - 1) * BYTES + VECTOR * sizeof(W) <= 0x10000,
                          "places have 16 bits");
        }
        take_pattern(NOTES ? task.columns : own_columns());
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
            if (is_first_of_block()) {
                operand[v * VECTOR + OWN_SLOTS] = 0;
            }
        }
        if (MIXED && member == 0) {
            solution[NONE] = 0;
        }
        if (KEEPS_VALUES && member == 0) {
            *waiting_values() = 0;
        }
    }

    __device__ __forceinline__ static u32 slot(u32 j, u32 lane) { return j * GROUP + lane; }

    // Whether this thread is the first of its group in its block.
    __device__ __forceinline__ bool is_first_of_block() const {
        return (IS_CLUSTER ? threadIdx.x : member) == 0;
    }

    // Offset in this block's shared memory of a slot, or of the value staged for a place: each
    // block of a cluster has its share of every GROUP places.
    __device__ __forceinline__ static u32 in_block(u32 place) {
        return IS_CLUSTER ? place / GROUP * OWN_THREADS + place % OWN_THREADS : place;
    }

    // Offset of own slot j in shared memory.
    __device__ __forceinline__ u32 own_place(u32 j) const {
        return IS_CLUSTER ? j * OWN_THREADS + threadIdx.x : slot(j, lane);
    }

    // Address of the operand of a column, in whichever block it is; for padding, of this block's 0.
    __device__ __forceinline__ const W* operand_of(u32 column) const {
        if constexpr (IS_CLUSTER) {
            const u32 rank = (column == NONE ? lane : column % GROUP) / OWN_THREADS;
            return in_block_of_cluster(operand + in_block(column), rank);
        } else {
            return operand + column;
        }
    }

    // The row in slot j of a lane. Blocks of a cluster own contiguous rows, so that with a banded
    // matrix few operands are in other blocks.
    __device__ __forceinline__ u32 row(u32 j, u32 lane) const {
        if constexpr (IS_CLUSTER) {
            const u32 slices = (nrows() + GROUP - 1) / GROUP;
            const u32 first = lane / OWN_THREADS * slices + j;
            return j < slices ? first * OWN_THREADS + lane % OWN_THREADS : slot(j, lane);
        } else {
            return NEAR ? lane * ROWS + j : slot(j, lane);
        }
    }

    __device__ __forceinline__ static u32 slot_of(u32 row) {
        return NEAR ? slot(row % ROWS, row / ROWS) : row;
    }

    // Loads the columns, or the starts of the slices, into registers; with PARTS the columns into
    // shared memory.
    __device__ __forceinline__ void take_pattern(const u16* columns) {
        if constexpr (KEEPS_COLUMNS) {
            const u32 first = u32(reinterpret_cast<const u8*>(operand) - shared_memory);
            const auto place_of = [&](u32 f) {
                const u32 j = f / (FAR > 0 ? FAR : 1);
                const u32 k = j * WIDTH + OWN + f % (FAR > 0 ? FAR : 1);
                const u32 column = load(columns + lane + k * GROUP);
                return first + (column == NONE ? slot(j, lane) : column) * u32(sizeof(W));
            };
            if constexpr (FAR > 0) {
#pragma unroll
                for (u32 f = 0; f < PLACES; f += 2) {
                    places[f / 2] = place_of(f) | (f + 1 < PLACES ? place_of(f + 1) << 16 : 0);
                }
            }
        } else if constexpr (PARTS > 1) {
            const u32 count = nentries();
            for (u32 k = member; k < count; k += TEAM) {
                shared_columns()[k] = load(columns + k);
            }
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                starts[j] = first_entry(j);
            }
        } else if constexpr (!IS_CLUSTER) {
#pragma unroll
            for (u32 j = 0; j <= ROWS; ++j) {
                starts[j] = load(own_starts() + j);
            }
        }
    }

    // Where slice j begins. A cluster loads it each time: its rows need the registers.
    __device__ __forceinline__ u32 start(u32 j) const {
        return IS_CLUSTER ? load(own_starts() + j) : starts[IS_CLUSTER ? 0 : j];
    }

    __device__ __forceinline__ u16* shared_columns() const {
        return reinterpret_cast<u16*>(staged + task.entries);
    }

    __device__ __forceinline__ u32 first_entry(u32 j) const {
        const u32* const firsts = SCATTERED ? task.firsts + u64(pattern) * NONE : task.firsts;
        return load(firsts + slot(j, lane));
    }

    // Makes system `number` of the queue the current one.
    __device__ __forceinline__ void turn_to(u32 number) {
        if (turn(number)) {
            take_pattern(own_columns());
        }
    }

    // Where matrix values are staged until they go to registers.
    __device__ __forceinline__ V* waiting_values() const { return staged + skewed(NONE); }

    // The staged matrix values of own slots, by place.
    struct OwnWaiting {
        const V* values;
        const u16* order;

        __device__ __forceinline__ V operator()(u32 k) const { return values[load(order + k * GROUP)]; }
    };

    __device__ __forceinline__ OwnWaiting own_waiting_values() const {
        return {waiting_values(), apart(own_order() + lane)};
    }

    __device__ __forceinline__ V waiting_b(u32 j) const {
        return row(j, lane) < nrows() ? staged[skewed(row(j, lane))] : V(0);
    }

    __device__ __forceinline__ void take_waiting_b(V (&b)[ROWS]) const {
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            b[j] = waiting_b(j);
        }
    }

    // Starts copies of the values and b of the next system; where MIXED it is about to become the
    // current one.
    __device__ __forceinline__ void send_for_next() {
        if (next < task.nsystems) {
            const Item at = next_item();
            const u64 value_step = SCATTERED ? task.value_step : 1;
            const u64 row_step = SCATTERED ? task.row_step : 1;
            const V* value = task.values + at.first_value + lane * value_step;
            for (u32 k = lane; k < at.entries; k += GROUP) {
                cp_async_value(waiting_values() + waiting(k), value);
                value += GROUP * value_step;
            }
            const V* b = task.b + at.first_row + lane * row_step;
            for (u32 k = lane; k < at.nrows; k += GROUP) {
                cp_async_value(staged + skewed(k), b);
                b += GROUP * row_step;
            }
        }
    }

    __device__ __forceinline__ u64 place_in_vectors(u32 j) const {
        return place_in_vectors_of(row(j, lane));
    }

    // Address of the operand of far entry f, with columns in registers.
    __device__ __forceinline__ const W* place(u32 f) const {
        return reinterpret_cast<const W*>(shared_memory + bytes_of_place(f));
    }

    __device__ __forceinline__ u32 bytes_of_place(u32 f) const {
        return places[f / 2] >> f % 2 * 16 & 0xffffu;
    }

    // The solution at the column of far entry f, where MIXED.
    __device__ __forceinline__ V solution_at(u32 f) const {
        const u32 first = u32(reinterpret_cast<const u8*>(operand) - shared_memory);
        return *reinterpret_cast<const V*>(reinterpret_cast<const u8*>(solution) +
                                           (bytes_of_place(f) - first) * (sizeof(V) / sizeof(W)));
    }

    // Keeps the compiler from unpacking the offsets before the iterations, into twice the
    // registers.
    __device__ __forceinline__ void keep_packed() {
#if !defined(SPARSEBATCH_EMU)
        if constexpr (FAR > 0) {
#pragma unroll
            for (u32 k = 0; k < (PLACES + 1) / 2; ++k) {
                asm volatile("" : "+r"(places[k]));
            }
        }
#endif
    }

    __device__ __forceinline__ W kept(u32 k) const {
        return KEEPS_VALUES ? a[KEEPS_VALUES ? k : 0] : staged[k * GROUP + lane];
    }

    // The sum over the threads that share a row.
    template <typename T>
    __device__ __forceinline__ static T of_row(T sum) {
#pragma unroll
        for (u32 offset = PARTS / 2; offset > 0; offset /= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, offset);
        }
        return sum;
    }

    // Calls visit(value, address in the solution) for this thread's entries of own row j, and for
    // padding: value 0, and the address of a 0. During products the operand is where the solution
    // is otherwise.
    template <typename Visit>
    __device__ __forceinline__ void entries(u32 j, Visit visit) const {
        if constexpr (KEEPS_COLUMNS) {
            const u16* const columns = apart(own_columns() + lane);
            if constexpr (MIXED) {
                const OwnWaiting values = own_waiting_values();
#pragma unroll
                for (u32 k = 0; k < WIDTH; ++k) {
                    const u32 place = j * WIDTH + k;
                    visit(values(place), solution + load(columns + place * GROUP));
                }
            } else {
#pragma unroll
                for (u32 k = j * WIDTH; k < (j + 1) * WIDTH; ++k) {
                    visit(kept(k), solution + load(columns + k * GROUP));
                }
            }
        } else if constexpr (PARTS > 1) {
            const u16* const columns = shared_columns();
            const u32 first = starts[j] & 0xffffu, end = first + (starts[j] >> 16);
#pragma unroll 4
            for (u32 k = first + part; k < end; k += PARTS) {
                visit(staged[k], operand + columns[k]);
            }
        } else if constexpr (PLACE == IN_SHARED) {
            const u16* const columns = own_columns();
            const u32 end = start(j + 1);
#pragma unroll 4
            for (u32 place = start(j) + lane; place < end; place += GROUP) {
                visit(staged[in_block(place)], operand_of(load(columns + place)));
            }
        } else {
            const u16* const columns = own_columns();
            const V* value = own_values() + first_entry(j) * value_step();
            const u32 end = start(j + 1);
#pragma unroll 4
            for (u32 place = start(j) + lane; place < end; place += GROUP) {
                const u32 column = load(columns + place);
                visit(column == NONE ? V(0) : load(value), operand_of(column));
                value += value_step();
            }
        }
    }

    // Writes own part j of vector OPERAND to shared memory, if products read it there.
    template <u32 OPERAND = 0>
    __device__ __forceinline__ void put(u32 j, W value) {
        if (part == 0 && (GATHERS || (EXCHANGES && (j == 0 || j + 1 == ROWS)))) {
            operand[OPERAND * VECTOR + own_place(j)] = value;
        }
    }

    // The barrier between put and multiply.
    __device__ __forceinline__ static void sync_parts() {
        if constexpr (GATHERS || EXCHANGES) {
            Threads::sync();
        }
    }

    // Own rows of A times vector OPERAND in shared memory, whose own parts are `own`.
    template <u32 OPERAND = 0, typename Own>
    __device__ __forceinline__ void multiply(const Own& own, W (&product)[ROWS]) const {
        if constexpr (KEEPS_COLUMNS) {
            multiply_kept(
                operand + OPERAND * VECTOR, own, product, [&](u32 k) { return kept(k); },
                [&](u32 f) { return place(f)[OPERAND * VECTOR]; });
        } else {
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                W sum = 0;
                entries(j, [&](V value, const V* at) { sum += value * at[OPERAND * VECTOR]; });
                product[j] = of_row(sum);
            }
        }
    }

    // Own rows of the unrounded A times the solution, where MIXED.
    __device__ __forceinline__ void multiply_unrounded(V (&product)[ROWS]) const {
        if constexpr (BY_LISTS) {
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                V sum = 0;
                entries(j, [&](V value, const V* at) { sum += value * *at; });
                product[j] = sum;
            }
        } else {
            V own[ROWS];
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                own[j] = solution[slot(j, lane)];
            }
            const OwnWaiting values = own_waiting_values();
            multiply_kept(
                solution, own, product, [&](u32 k) { return values(k); },
                [&](u32 f) { return solution_at(f); });
        }
    }

    // Own rows of A, all of WIDTH entries, times a vector. `value` gives the matrix values, `far`
    // the far operands.
    template <typename T, typename ValueOf, typename FarOf>
    __device__ __forceinline__ void multiply_kept(const T* vector, const T (&own)[ROWS],
                                                  T (&product)[ROWS], ValueOf value,
                                                  FarOf far) const {
        T before = 0, behind = 0;
        if constexpr (EXCHANGES) {
            // At both ends any operand of the system will do: its matrix value is 0.
            before = vector[lane == 0 ? 0 : slot(ROWS - 1, lane - 1)];
            behind = vector[lane + 1 == GROUP ? lane : lane + 1];
        } else if constexpr (NEAR) {
            before = __shfl_up_sync(ALL_LANES, own[ROWS - 1], 1, GROUP);
            behind = __shfl_down_sync(ALL_LANES, own[0], 1, GROUP);
        }
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            T sum = value(j * WIDTH) * own[j];
            if constexpr (NEAR) {
                sum += value(j * WIDTH + 1) * (j > 0 ? own[j > 0 ? j - 1 : 0] : before);
                sum += value(j * WIDTH + 2) *
                       (j + 1 < ROWS ? own[j + 1 < ROWS ? j + 1 : 0] : behind);
            }
#pragma unroll
            for (u32 f = 0; f < FAR; ++f) {
                sum += value(j * WIDTH + OWN + f) * far(j * FAR + f);
            }
            product[j] = sum;
        }
    }

    // Brings the matrix values to where PLACE keeps them, and loads b.
    __device__ __forceinline__ void fetch(V (&b)[ROWS]) {
        if constexpr (KEEPS_VALUES) {
            const OwnWaiting values = own_waiting_values();
#pragma unroll
            for (u32 k = 0; k < KEPT; ++k) {
                a[k] = W(values(k));
            }
            take_waiting_b(b);
        } else if constexpr (PARTS > 1) {
            // The previous system's values are no longer read; a barrier precedes reads of these.
            const V* const values = own_values();
            const u32 count = nentries();
#pragma unroll 4
            for (u32 k = member; k < count; k += TEAM) {
                cp_async_value(staged + k, values + k * value_step());
            }
            cp_async_wait_all();
        } else if constexpr (PLACE == IN_SHARED) {
            const V* const values = own_values();
            const u16* const order = own_order();
            const u16* const columns = own_columns();
#pragma unroll
            for (u32 j = 0; j < ROWS; ++j) {
                const V* const first = values + first_entry(j) * value_step();
                const u32 begin = KEEPS_COLUMNS ? j * WIDTH * GROUP : start(KEEPS_COLUMNS ? 0 : j);
                const u32 end =
                    KEEPS_COLUMNS ? (j + 1) * WIDTH * GROUP : start(KEEPS_COLUMNS ? 0 : j + 1);
                for (u32 place = begin + lane; place < end; place += GROUP) {
                    V* const own = staged + in_block(place);
                    if (load(columns + place) == NONE) {
                        *own = 0;
                    } else {
                        cp_async_value(own, first + load(order + place) * value_step());
                    }
                }
            }
            cp_async_wait_all();
        }
        if constexpr (!KEEPS_VALUES) {
            take_b(b);
        }
    }

    __device__ __forceinline__ void take_b(V (&b)[ROWS]) const {
#pragma unroll
        for (u32 j = 0; j < ROWS; ++j) {
            b[j] = row(j, lane) < nrows() ? load(task.b + place_in_vectors(j)) : V(0);
        }
    }
};
