// Products of whole batches whose systems are packed: rows are cut into segments, and segments of
// falling length form slices of 32, one thread per segment.
//
// A block multiplies one piece at a time: one system, several small ones side by side, or some rows
// of a large one. A block takes a run of pieces.

// The description of a piece; 112 bytes, as packed/work.rs writes it.
struct __align__(16) PackedPiece {
    u64 values;     // byte offset of its first value
    u64 columns;    // byte offset of its first column
    u64 index;      // offset of its index, in entries
    u64 x;          // first element of the operand of right-hand side 0
    u64 y;          // first element of the result of right-hand side 0
    u64 x_stride;   // from one right-hand side to the next
    u64 y_stride;
    u32 nrows;
    u32 ncols;
    u32 nsegments;
    u32 flags;      // 1: sums have places of their own; 2: rows have any number of segments
    u32 index_len;  // entries in the index, a multiple of 8
    u32 begins[9];  // first step of each warp of the block, and the end
};

// The index of a piece, 16 bits per entry:
//   [end of each slice, in steps of 32 slots]
//   [place of each segment's sum]             if sums are placed
//   [first sum of each row, and the end]      if rows are cut

constexpr u32 SUMS_ARE_PLACED = 1;
constexpr u32 ROWS_ARE_CUT = 2;

// How a piece is stored and read; MODE is a sum of these.
//
// A step is 32 slots, one for each lane: 32 values and 32 columns. Values and columns lie in two
// arrays, or (JOINT) those of a step together. Columns count from the first column of the piece and
// have 16 bits, or 32 (WIDE). x is copied into shared memory and followed by a zero, or gathered
// from global memory (GATHERED).
constexpr u32 JOINT = 1;
constexpr u32 GATHERED = 2;
constexpr u32 WIDE = 4;

template <typename V, u32 MODE>
struct Steps {
    using Column = typename Select<(MODE & WIDE) != 0, u32, u16>::Type;
    static constexpr u32 VALUES = WARP_THREADS * sizeof(V);
    static constexpr u32 COLUMNS = WARP_THREADS * sizeof(Column);
    static constexpr u32 VALUE_STRIDE = (MODE & JOINT) ? VALUES + COLUMNS : VALUES;
    static constexpr u32 COLUMN_STRIDE = (MODE & JOINT) ? VALUES + COLUMNS : COLUMNS;

    static __device__ __forceinline__ const V* value(const u8* values, u64 step, u32 lane) {
        return reinterpret_cast<const V*>(values + step * VALUE_STRIDE) + lane;
    }

    static __device__ __forceinline__ const Column* column(const u8* columns, u64 step, u32 lane) {
        return reinterpret_cast<const Column*>(columns + step * COLUMN_STRIDE) + lane;
    }

    // The element of x that a column is multiplied by; 0 for padding, whose column is the number of
    // columns.
    static __device__ __forceinline__ V operand(const V* x, u32 column, u32 padding) {
        if constexpr ((MODE & GATHERED) != 0) {
            return column < padding ? x[column] : V(0);
        } else {
            return x[column];
        }
    }
};

__device__ __forceinline__ u32 slices_of(u32 nsegments) {
    return (nsegments + WARP_THREADS - 1) / WARP_THREADS;
}

// The pieces of this block.
struct Chunk {
    u32 first, last;

    __device__ __forceinline__ Chunk(const u32* chunks, u32 first_piece) {
        if (chunks == nullptr) {
            first = first_piece + blockIdx.x;
            last = first + 1;
        } else {
            first = load(chunks + blockIdx.x);
            last = load(chunks + blockIdx.x + 1);
        }
    }
};

// The current slice of a warp, and its end in steps. Loads through a plain pointer, so that the
// index may be in shared or global memory.
struct SliceCursor {
    const u16* ends;
    const u16* places; // of all segments; null if segment k has place k
    u32 nsegments;
    u32 slice;
    u32 end;

    // Starts at the slice that begins at step `begin`. Called by whole warps.
    __device__ __forceinline__ SliceCursor(const u16* index, u32 all_segments, u32 flags, u32 begin,
                                           u32 lane)
        : ends(index), nsegments(all_segments), slice(0) {
        const u32 nslices = slices_of(nsegments);
        places = (flags & SUMS_ARE_PLACED) ? index + nslices : nullptr;
        for (u32 at = 0; at < nslices; at += WARP_THREADS) {
            const bool before =
                at + lane < nslices && ends[at + lane] <= begin;
            const u32 passed = __popc(__ballot_sync(ALL_LANES, before));
            slice += passed;
            if (passed < WARP_THREADS) {
                break;
            }
        }
        find_end();
    }

    __device__ __forceinline__ void find_end() {
        end = slice < slices_of(nsegments) ? ends[slice] : 0xffffffffu;
    }

    // Stores the sum of this lane's segment and moves on to the next slice.
    template <typename V>
    __device__ __forceinline__ void finish(V* sums, V sum, u32 lane) {
        const u32 segment = slice * WARP_THREADS + lane;
        if (segment < nsegments) {
            sums[places != nullptr ? places[segment] : segment] = sum;
        }
        ++slice;
        find_end();
    }
};

// The sum of a row: that of its segment, or, if rows are cut, of its segments in their order.
template <typename V>
struct RowSums {
    const V* sums;
    const u16* starts; // null if rows are not cut

    __device__ __forceinline__ RowSums(const V* of_segments, const u16* index, u32 nsegments,
                                       u32 flags)
        : sums(of_segments), starts(nullptr) {
        if (flags & ROWS_ARE_CUT) {
            starts = index + slices_of(nsegments) + ((flags & SUMS_ARE_PLACED) ? nsegments : 0);
        }
    }

    __device__ __forceinline__ V operator()(u32 row) const {
        if (starts == nullptr) {
            return sums[row];
        }
        const u32 stop = starts[row + 1];
        V sum = V(0);
        for (u32 s = starts[row]; s < stop; ++s) {
            sum += sums[s];
        }
        return sum;
    }
};

// Writes y for this thread's rows from the k-th on. beta == 0 does not read y.
template <typename V>
__device__ __forceinline__ void finish_rows(const RowSums<V>& row_sums, u32 k, u32 nrows, V alpha,
                                            V beta, V* y) {
#pragma unroll 2
    for (u32 row = k * blockDim.x + threadIdx.x; row < nrows; row += blockDim.x) {
        update(alpha, row_sums(row), beta, y + row);
    }
}

// packed_spmv: y = alpha*A*x + beta*y for all systems of a batch.
//
// Block b takes the pieces chunks[b] .. chunks[b + 1], or, if chunks is null, the piece first_piece
// + b, one after the other. In each piece a warp takes consecutive slices, about as many slots as
// every other warp. DEPTH loads of values and columns are under way at any time, across the ends of
// slices.
//
// Traffic per piece and right-hand side: 8 + 2 bytes per slot (f64), 2 per segment or row where
// flags require them, x and y once; x is read into shared memory first. beta == 0 does not read y.
// No atomics, sums in a fixed order: bitwise repeatable, whatever the neighbours.
//
// Needs:
// - Blocks of WARPS*32 threads; room_bytes of dynamic shared memory, at least UnitRoom::bytes for
//   every piece.
// - Columns of padding are ncols (a zero lies there).
// - Every slice has slots; every piece has segments or cut rows.
template <typename V, u32 DEPTH, u32 WARPS, u32 MODE>
__global__ void __launch_bounds__(WARPS* WARP_THREADS)
    packed_spmv(const u32* __restrict__ chunks, u32 first_piece,
                const PackedPiece* __restrict__ pieces,
                const u8* __restrict__ all_values, const u8* __restrict__ all_columns,
                const u16* __restrict__ all_index, u32 nrhs, u32 room_bytes, V alpha,
                const V* x, V beta, V* y) {
    using Step = Steps<V, MODE>;
    extern __shared__ u64 packed_shared[];
    V* sums = reinterpret_cast<V*>(packed_shared);
    const u32 lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    const Chunk chunk(chunks, first_piece);
    for (u32 number = chunk.first; number < chunk.last; ++number) {
        const PackedPiece* piece = pieces + number;
        const u32 nrows = piece->nrows, ncols = piece->ncols, nsegments = piece->nsegments;
        const u32 flags = piece->flags;
        const u32 begin = piece->begins[warp], end = piece->begins[warp + 1];
        const u8* values = all_values + piece->values;
        const u8* columns = all_columns + piece->columns;
        const u16* index = all_index + piece->index;
        V* staged_x = sums + nsegments;
        for (u32 rhs = 0; rhs < nrhs; ++rhs) {
            // Values and columns are requested before x is copied.
            V value[DEPTH];
            u32 column[DEPTH];
#pragma unroll
            for (u32 d = 0; d < DEPTH; ++d) {
                if (begin + d < end) {
                    value[d] = __ldcs(Step::value(values, begin + d, lane));
                    column[d] = load(Step::column(columns, begin + d, lane));
                }
            }
            const V* x_here = x + piece->x + u64(rhs) * piece->x_stride;
            const V* operand = x_here;
            if constexpr ((MODE & GATHERED) == 0) {
#pragma unroll 4
                for (u32 c = threadIdx.x; c < ncols; c += blockDim.x) {
                    staged_x[c] = load(x_here + c);
                }
                if (threadIdx.x == 0) {
                    staged_x[ncols] = V(0);
                }
                operand = staged_x;
            }
            SliceCursor cursor(index, nsegments, flags, begin, lane);
            __syncthreads();
            V sum = V(0);
            for (u32 at = begin; at < end; at += DEPTH) {
#pragma unroll
                for (u32 d = 0; d < DEPTH; ++d) {
                    const u32 step = at + d;
                    if (step < end) {
                        sum += value[d] * Step::operand(operand, column[d], ncols);
                        if (step + DEPTH < end) {
                            value[d] = __ldcs(Step::value(values, step + DEPTH, lane));
                            column[d] = load(Step::column(columns, step + DEPTH, lane));
                        }
                        if (step + 1 == cursor.end) {
                            cursor.finish(sums, sum, lane);
                            sum = V(0);
                        }
                    }
                }
            }
            __syncthreads();
            V* y_here = y + piece->y + u64(rhs) * piece->y_stride;
            finish_rows(RowSums<V>(sums, index, nsegments, flags), 0, nrows, alpha, beta, y_here);
            // x and the sums may be overwritten from here on.
            __syncthreads();
        }
    }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Destination of a warp's bulk copies: STAGES parts of STEPS steps each.
template <typename V, u32 MODE, u32 STEPS, u32 STAGES>
struct __align__(16) Staging {
    using Step = Steps<V, MODE>;
    static constexpr u32 PART = STEPS * (Step::VALUES + Step::COLUMNS);
    u8 parts[STAGES][PART];

    __device__ __forceinline__ u8* values(u32 s) { return parts[s]; }
    __device__ __forceinline__ u8* columns(u32 s) {
        return parts[s] + ((MODE & JOINT) ? Step::VALUES : STEPS * Step::VALUES);
    }
};

// Starts the bulk copies into a warp's staging: the warp's steps of one piece after the other.
// Called by one lane. At most one piece ahead of the warp.
template <typename V, u32 MODE, u32 STEPS, u32 STAGES>
struct Producer {
    using Step = Steps<V, MODE>;
    Staging<V, MODE, STEPS, STAGES>* stage;
    u64* arrived;
    const u8* values;
    const u8* columns;
    u32 unit;     // the unit whose steps are copied
    u32 at, end;  // its steps that are not copied yet
    u32 vacant;   // number of parts that wait for a copy
    u32 next;     // the first of these parts

    // Starts copies until all parts are taken or all steps of the units before `stop` are under
    // way. enter(producer) sets values, columns, at and end.
    template <typename Enter>
    __device__ __forceinline__ void fill(u32 stop, Enter enter) {
        while (vacant > 0) {
            while (at >= end) {
                if (unit + 1 >= stop) {
                    return;
                }
                ++unit;
                enter(*this);
            }
            const u32 n = minimum(end - at, STEPS);
            mbarrier_arrive_expect_tx(arrived + next, n * (Step::VALUES + Step::COLUMNS));
            bulk_copy(stage->values(next), values + u64(at) * Step::VALUE_STRIDE,
                      n * Step::VALUE_STRIDE, arrived + next);
            if constexpr ((MODE & JOINT) == 0) {
                bulk_copy(stage->columns(next), columns + u64(at) * Step::COLUMN_STRIDE,
                          n * Step::COLUMN_STRIDE, arrived + next);
            }
            at += n;
            --vacant;
            next = next + 1 == STAGES ? 0 : next + 1;
        }
    }
};

// Shared memory of a unit of work, a piece with one right-hand side: [sums][x, 0][index], without x
// if it is gathered. Units alternate between the two ends of the room, so that small units are
// loaded before their turn.
struct UnitRoom {
    u32 sums_bytes, x_bytes, bytes;

    template <typename V, u32 MODE>
    static __device__ __forceinline__ UnitRoom of(const PackedPiece& piece) {
        const auto rounded = [](u32 bytes) { return (bytes + 15) / 16 * 16; };
        UnitRoom room;
        room.sums_bytes = rounded(piece.nsegments * u32(sizeof(V)));
        room.x_bytes = (MODE & GATHERED) ? 0 : rounded((piece.ncols + 1) * u32(sizeof(V)));
        room.bytes = room.sums_bytes + room.x_bytes + piece.index_len * u32(sizeof(u16));
        return room;
    }

    __device__ __forceinline__ u8* begin(u8* room, u32 room_bytes, u32 unit) const {
        return room + (unit % 2 == 0 ? 0 : room_bytes - bytes);
    }
};

// packed_stream: as packed_spmv, but the data of a piece are copied into shared memory while the
// preceding piece is multiplied. Values and columns come in bulk copies, STAGES of STEPS steps
// under way per warp, also across pieces; x and the index come early if the room holds both pieces,
// else when the preceding piece is done. y is loaded into registers meanwhile, OLD_ROWS of each
// thread. The index, values and columns of the first piece are requested before the preceding
// launches have ended.
//
// Needs:
// - sm_90; blocks of WARPS*32 threads.
// - Dynamic shared memory of WARPS times Staging and room_bytes, a multiple of 16 of at least
//   UnitRoom::bytes for every piece.
// - Values, columns and index of a piece begin at multiples of 16 bytes.
template <typename V, u32 STEPS, u32 STAGES, u32 WARPS, u32 MODE>
__global__ void __launch_bounds__(WARPS* WARP_THREADS)
    packed_stream(const u32* __restrict__ chunks, u32 first_piece,
                  const PackedPiece* __restrict__ pieces,
                  const u8* __restrict__ all_values, const u8* __restrict__ all_columns,
                  const u16* __restrict__ all_index, u32 nrhs, u32 room_bytes, V alpha,
                  const V* x, V beta, V* y) {
    using Step = Steps<V, MODE>;
    using Stage = Staging<V, MODE, STEPS, STAGES>;
    using Produce = Producer<V, MODE, STEPS, STAGES>;
    constexpr u32 DESCRIBED = 3;
    constexpr u32 DESCRIPTION_PARTS = sizeof(PackedPiece) / 16;
    constexpr u32 OLD_ROWS = 8;
    constexpr u32 THREADS = WARPS * WARP_THREADS;
    extern __shared__ uint4 stream_shared[];
    __shared__ PackedPiece described[DESCRIBED];
    __shared__ u64 arrived[WARPS][STAGES];
    __shared__ u64 indexed[2];
    const u32 lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    Stage* stages = reinterpret_cast<Stage*>(stream_shared);
    u8* room = reinterpret_cast<u8*>(stages + WARPS);
    let_next_launch_begin();

    const Chunk chunk(chunks, first_piece);
    const u32 first = chunk.first, nunits = (chunk.last - chunk.first) * nrhs;

    const auto piece_of = [&](u32 unit) -> const PackedPiece& {
        return described[unit % DESCRIBED];
    };
    const auto fetch_description = [&](u32 unit) {
        if (unit < nunits) {
            for (u32 part = threadIdx.x; part < DESCRIPTION_PARTS; part += THREADS) {
                cp_async_16(reinterpret_cast<uint4*>(&described[unit % DESCRIBED]) + part,
                            reinterpret_cast<const uint4*>(pieces + first + unit / nrhs) + part);
            }
        }
    };
    // Index and x of a unit whose description has arrived.
    const auto fetch_index = [&](u32 unit) {
        const PackedPiece& piece = piece_of(unit);
        const UnitRoom own = UnitRoom::of<V, MODE>(piece);
        if (threadIdx.x == 0) {
            const u32 bytes = piece.index_len * u32(sizeof(u16));
            mbarrier_arrive_expect_tx(&indexed[unit % 2], bytes);
            bulk_copy(own.begin(room, room_bytes, unit) + own.sums_bytes + own.x_bytes,
                      all_index + piece.index, bytes, &indexed[unit % 2]);
        }
    };
    const auto fetch_x = [&](u32 unit) {
        if constexpr ((MODE & GATHERED) == 0) {
            const PackedPiece& piece = piece_of(unit);
            const UnitRoom own = UnitRoom::of<V, MODE>(piece);
            const u32 ncols = piece.ncols;
            u8* begin = own.begin(room, room_bytes, unit);
            V* to = reinterpret_cast<V*>(begin + own.sums_bytes);
            const V* from = x + piece.x + u64(unit % nrhs) * piece.x_stride;
#pragma unroll 4
            for (u32 c = threadIdx.x; c < ncols; c += THREADS) {
                cp_async_value(to + c, from + c);
            }
            if (threadIdx.x == 0) {
                to[ncols] = V(0);
            }
        }
    };
    const auto enter = [&](Produce& producer) {
        const PackedPiece& piece = piece_of(producer.unit);
        producer.values = all_values + piece.values;
        producer.columns = all_columns + piece.columns;
        producer.at = piece.begins[warp];
        producer.end = piece.begins[warp + 1];
    };

    if (lane == 0) {
#pragma unroll
        for (u32 s = 0; s < STAGES; ++s) {
            mbarrier_init(&arrived[warp][s], 1);
        }
    }
    if (threadIdx.x == 0) {
        mbarrier_init(&indexed[0], 1);
        mbarrier_init(&indexed[1], 1);
    }
    if (lane == 0) {
        mbarrier_init_fence();
    }
    fetch_description(0);
    fetch_description(1);
    cp_async_wait_all();
    __syncthreads();
    Produce producer{&stages[warp], arrived[warp], nullptr, nullptr,
                                        0xffffffffu,   0,             0,       STAGES,  0};
    if (lane == 0) {
        producer.fill(minimum(nunits, 1u), enter);
    }
    if (nunits > 0) {
        fetch_index(0);
        wait_for_launches_ahead();
        fetch_x(0);
    }

    u32 parities = 0;
    u32 s = 0;
    for (u32 unit = 0; unit < nunits; ++unit) {
        const PackedPiece& piece = piece_of(unit);
        const UnitRoom own = UnitRoom::of<V, MODE>(piece);
        const u32 nrows = piece.nrows;
        V* y_here = y + piece.y + u64(unit % nrhs) * piece.y_stride;
        V old_y[OLD_ROWS];
        if (beta != V(0)) {
#pragma unroll
            for (u32 k = 0; k < OLD_ROWS; ++k) {
                const u32 row = k * THREADS + threadIdx.x;
                old_y[k] = row < nrows ? y_here[row] : V(0);
            }
        }
        // x of this unit and the description of the next one have arrived; the room of the
        // preceding unit may be overwritten.
        cp_async_wait_all();
        fence_proxy_async();
        __syncthreads();
        const bool has_next = unit + 1 < nunits;
        const bool next_fits =
            has_next && own.bytes + UnitRoom::of<V, MODE>(piece_of(unit + 1)).bytes <= room_bytes;
        fetch_description(unit + 2);
        if (next_fits) {
            fetch_x(unit + 1);
            fetch_index(unit + 1);
        }
        if (lane == 0) {
            producer.fill(minimum(nunits, unit + 2), enter);
        }

        const u32 flags = piece.flags, nsegments = piece.nsegments, padding = piece.ncols;
        const u32 begin = piece.begins[warp], end = piece.begins[warp + 1];
        u8* begin_of_unit = own.begin(room, room_bytes, unit);
        V* sums = reinterpret_cast<V*>(begin_of_unit);
        const V* x_here = (MODE & GATHERED)
                              ? x + piece.x + u64(unit % nrhs) * piece.x_stride
                              : reinterpret_cast<const V*>(begin_of_unit + own.sums_bytes);
        const u16* index =
            reinterpret_cast<const u16*>(begin_of_unit + own.sums_bytes + own.x_bytes);
        mbarrier_wait_parity(&indexed[unit % 2], (unit / 2) & 1);
        SliceCursor cursor(index, nsegments, flags, begin, lane);
        V sum = V(0);
        for (u32 at = begin; at < end; at += STEPS) {
            mbarrier_wait_parity(&arrived[warp][s], (parities >> s) & 1);
            parities ^= 1u << s;
            const u8* values = stages[warp].values(s);
            const u8* columns = stages[warp].columns(s);
            // Whole parts within a slice are the common case.
            const bool within = at + STEPS <= cursor.end;
            const u32 steps = within ? STEPS : minimum(end - at, STEPS);
            V value[STEPS], operand[STEPS];
            if (within) {
#pragma unroll
                for (u32 d = 0; d < STEPS; ++d) {
                    value[d] = *Step::value(values, d, lane);
                    operand[d] = Step::operand(x_here, *Step::column(columns, d, lane), padding);
                }
            } else {
#pragma unroll
                for (u32 d = 0; d < STEPS; ++d) {
                    value[d] = *Step::value(values, d, lane);
                    const u32 column = d < steps ? *Step::column(columns, d, lane) : padding;
                    operand[d] = Step::operand(x_here, column, padding);
                }
            }
            // All lanes have read the part: the next copy may overwrite it, if there is one.
            if (has_next || at + STAGES * STEPS < end) {
                fence_proxy_async();
                __syncwarp();
                if (lane == 0) {
                    ++producer.vacant;
                    producer.fill(minimum(nunits, unit + 2), enter);
                }
            }
            s = s + 1 == STAGES ? 0 : s + 1;
            if (within) {
#pragma unroll
                for (u32 d = 0; d < STEPS; ++d) {
                    sum += value[d] * operand[d];
                }
                if (at + STEPS == cursor.end) {
                    cursor.finish(sums, sum, lane);
                    sum = V(0);
                }
            } else {
#pragma unroll
                for (u32 d = 0; d < STEPS; ++d) {
                    if (d < steps) {
                        sum += value[d] * operand[d];
                        if (at + d + 1 == cursor.end) {
                            cursor.finish(sums, sum, lane);
                            sum = V(0);
                        }
                    }
                }
            }
        }
        __syncthreads();
        const RowSums<V> row_sums(sums, index, nsegments, flags);
#pragma unroll
        for (u32 k = 0; k < OLD_ROWS; ++k) {
            const u32 row = k * THREADS + threadIdx.x;
            if (row < nrows) {
                y_here[row] = scaled_row(alpha, row_sums(row), beta, &old_y[k]);
            }
        }
        finish_rows(row_sums, OLD_ROWS, nrows, alpha, beta, y_here);
        if (has_next && !next_fits) {
            fence_proxy_async();
            __syncthreads();
            fetch_x(unit + 1);
            fetch_index(unit + 1);
        }
    }
}

#endif
