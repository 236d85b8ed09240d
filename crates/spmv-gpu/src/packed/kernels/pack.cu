// Packing of a batch in CSR for packed.cu: where rows are cut, the sizes of the pieces, and the
// copy itself. Everything is a function of the patterns alone, so that a batch is packed in the
// same way every time, and a row is cut in the same way whatever its neighbours.

// Consecutive rows of one matrix; six words of 64 bits each, as packed/pieces.rs writes them.
struct Part {
    u64 row_ptr;   // first row pointer
    u64 entries;   // first entry of the matrix: row pointers count from there
    u64 first_row; // among all rows of the batch
    u64 first_col; // among all columns of the batch
    u32 nrows;
    u32 ncols;
    u32 cut_ahead; // cuts are decided for `cut_nrows` rows together,
    u32 cut_nrows; // `cut_ahead` of which precede this part
};

// What is packed together: consecutive parts, or one part repeated; two words.
struct PackSource {
    u64 first_part;
    u32 nparts;
    u32 repeated; // not 0: the first part is repeated nparts times
};

// One packing job, with source, mode and targets; nine words including its source.
struct PackJob {
    PackSource source;
    u64 values;       // first value of the batch; parts count from there
    u64 to_values;    // byte offset of the values
    u64 to_columns;   // byte offset of the columns
    u64 to_index;     // offset of the index, in entries
    u32 set_values;   // values from one repetition to the next
    u32 nsegments;
    u32 first_column; // packed columns count from it
    u32 padding;      // the column of padding
    u32 flags;        // of the piece: 1: sums have places of their own; 2: rows are cut
    u32 what;         // 1: write values; 2: write columns and index; 4: columns have 32 bits;
                      // 8: values and columns of a step together
};

// Segments have at most USUAL_CUT entries, or up to MAX_CUT where a part would otherwise have more
// than MANY_SEGMENTS of them: a thread takes one entry after the other.
constexpr u32 MAX_CUT = 256;
constexpr u32 USUAL_CUT = 32;
constexpr u32 MANY_SEGMENTS = 4096;
constexpr u32 SUM_BYTES = 4; // cost of a sum in shared memory, in bytes read
constexpr u32 SUMS_ARE_PLACED = 1;
constexpr u32 ROWS_ARE_CUT = 2;
constexpr u32 WRITE_VALUES = 1;
constexpr u32 WRITE_INDICES = 2;
constexpr u32 WIDE_COLUMNS = 4;
constexpr u32 JOINT_STEPS = 8;
constexpr u32 INDEX_ALIGNMENT = 8; // index lengths are padded to a multiple of this
constexpr u32 SHARES = 8;
constexpr u32 MEASURES = 4 + SHARES / 2;

__device__ __forceinline__ u32 divide_up(u32 a, u32 b) {
    return (a + b - 1) / b;
}

// The number of the rows' segments of each length, and where each length begins among segments
// sorted by falling length: `before[l]` segments and `steps[l]` steps of slices precede those of
// length l.
struct Lengths {
    u32 count[MAX_CUT + 1];
    u32 before[MAX_CUT + 1];
    u32 steps[MAX_CUT + 1];

    // Slices whose first segment has length l.
    __device__ __forceinline__ u32 slices(u32 l) const {
        return divide_up(before[l] + count[l], WARP_THREADS) - divide_up(before[l], WARP_THREADS);
    }

    // Fills `before` and `steps` from `count`, called by one warp. Returns the steps of all slices.
    __device__ __forceinline__ u32 add_up(u32 lane) {
        constexpr u32 EACH = MAX_CUT / WARP_THREADS;
        // This lane handles the lengths from `longest` down.
        const u32 longest = MAX_CUT - lane * EACH;
        u32 own = 0;
        for (u32 k = 0; k < EACH; ++k) {
            own += count[longest - k];
        }
        u32 segments = prefix_sum(own, lane) - own;
        for (u32 k = 0; k < EACH; ++k) {
            before[longest - k] = segments;
            segments += count[longest - k];
        }
        u32 own_steps = 0;
        for (u32 k = 0; k < EACH; ++k) {
            own_steps += (longest - k) * slices(longest - k);
        }
        const u32 through = prefix_sum(own_steps, lane);
        u32 at = through - own_steps;
        for (u32 k = 0; k < EACH; ++k) {
            steps[longest - k] = at;
            at += (longest - k) * slices(longest - k);
        }
        return __shfl_sync(ALL_LANES, through, WARP_THREADS - 1);
    }

    static __device__ __forceinline__ u32 prefix_sum(u32 value, u32 lane) {
#pragma unroll
        for (u32 offset = 1; offset < WARP_THREADS; offset *= 2) {
            const u32 other = __shfl_up_sync(ALL_LANES, value, offset);
            value += lane >= offset ? other : 0;
        }
        return value;
    }
};

// Bytes that a product reads for the rows of a part when they are cut at `cut` entries, and the
// cost of its sums. Called by one warp; `lengths` is its own.
__device__ __forceinline__ u64 cost_of_cut(const i32* row_ptr, u32 nrows, u32 cut, u32 value_bytes,
                                           Lengths& lengths, u32 lane) {
    for (u32 l = lane; l <= MAX_CUT; l += WARP_THREADS) {
        lengths.count[l] = 0;
    }
    __syncwarp();
    u32 nsegments = 0;
    bool is_cut = false;
    for (u32 row = lane; row < nrows; row += WARP_THREADS) {
        const u32 len = u32(load(row_ptr + row + 1) - load(row_ptr + row));
        const u32 full = len / cut, rest = len - full * cut;
        if (full != 0) {
            atomicAdd(&lengths.count[cut], full);
        }
        if (rest != 0) {
            atomicAdd(&lengths.count[rest], 1u);
        }
        nsegments += full + (rest != 0);
        is_cut = is_cut || len > cut || len == 0;
    }
    __syncwarp();
    const u32 steps = lengths.add_up(lane);
    __syncwarp();
    nsegments = __shfl_sync(ALL_LANES, warp_sum(nsegments), 0);
    is_cut = __any_sync(ALL_LANES, is_cut);
    return u64(steps) * WARP_THREADS * (value_bytes + 2) + u64(2 + SUM_BYTES) * nsegments +
           (is_cut ? 2 * u64(nrows) : 0);
}

// pack_cut: chooses where the rows of each part are cut. The product of the rows for which the cut
// is decided together, taken by itself, shall read least.
//
// Needs: blocks of WARPS*32 threads; a warp takes one part at a time.
template <u32 WARPS>
__global__ void __launch_bounds__(WARPS* WARP_THREADS)
    pack_cut(u64 nparts, const Part* __restrict__ parts, const i32* __restrict__ all_row_ptr,
             u32 value_bytes, u32* cuts) {
    __shared__ Lengths all_lengths[WARPS];
    const u32 lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    Lengths& lengths = all_lengths[warp];
    for (u64 number = u64(blockIdx.x) * WARPS + warp; number < nparts;
         number += u64(gridDim.x) * WARPS) {
        const u32 nrows = parts[number].cut_nrows;
        const i32* row_ptr = all_row_ptr + parts[number].row_ptr - parts[number].cut_ahead;
        u32 longest = 1;
        for (u32 row = lane; row < nrows; row += WARP_THREADS) {
            longest = maximum(longest, u32(load(row_ptr + row + 1) - load(row_ptr + row)));
        }
#pragma unroll
        for (u32 offset = WARP_THREADS / 2; offset > 0; offset /= 2) {
            longest = maximum(longest, __shfl_xor_sync(ALL_LANES, longest, offset));
        }
        const u32 nnz = nrows == 0 ? 0 : u32(load(row_ptr + nrows) - load(row_ptr));
        const u32 mean = maximum(1u, divide_up(nnz, maximum(nrows, 1u)));
        // Candidates: 1 to 8, then multiples of a quarter of the mean row length, then the largest
        // cut.
        const u32 most =
            minimum(longest, minimum(maximum(nnz / MANY_SEGMENTS, USUAL_CUT), MAX_CUT));
        u32 candidate = lane + 1;
        if (lane >= 8) {
            const u32 quarters = lane < 16 ? lane - 7 : lane == 16 ? 12 : lane == 17 ? 16 : 32;
            candidate = lane == 19 ? most : mean * quarters / 4;
        }
        const bool counts = lane < 20 && candidate >= 1 && candidate <= most;
        u32 best = most;
        u64 least = ~0ull;
        for (u32 left = __ballot_sync(ALL_LANES, counts); left != 0; left &= left - 1) {
            const u32 cut = __shfl_sync(ALL_LANES, candidate, __ffs(left) - 1);
            const u64 cost = cost_of_cut(row_ptr, nrows, cut, value_bytes, lengths, lane);
            if (cost < least) {
                least = cost;
                best = cut;
            }
        }
        if (lane == 0) {
            cuts[number] = best;
        }
    }
}

// A row of a job.
struct PackRow {
    u32 part;  // index among the parts of the job
    u32 cut;
    u32 len;
    u64 entry; // offset of its first entry in the matrix
};

// The rows of a job.
struct PackRows {
    const PackSource& job;
    const Part* parts;
    const u32* cuts;
    const i32* row_ptr;
    u32 nrows;

    __device__ __forceinline__ PackRows(const PackSource& of, const Part* all_parts,
                                        const u32* all_cuts, const i32* all_row_ptr)
        : job(of), parts(all_parts + of.first_part), cuts(all_cuts + of.first_part),
          row_ptr(all_row_ptr) {
        if (job.repeated != 0) {
            nrows = job.nparts * parts->nrows;
        } else {
            const Part& last = parts[job.nparts - 1];
            nrows = u32(last.first_row - parts->first_row) + last.nrows;
        }
    }

    __device__ __forceinline__ PackRow operator()(u32 row) const {
        PackRow found{0, 0, 0, 0};
        const Part* part = parts;
        if (job.repeated != 0) {
            found.part = row / parts->nrows;
            row -= found.part * parts->nrows;
        } else if (job.nparts > 1) {
            // The last part that starts at or before the row, and so has rows.
            u32 low = 0, high = job.nparts;
            while (high - low > 1) {
                const u32 middle = (low + high) / 2;
                if (u32(parts[middle].first_row - parts->first_row) <= row) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            found.part = low;
            part = parts + low;
            row -= u32(part->first_row - parts->first_row);
        }
        const i32* pointers = row_ptr + part->row_ptr + row;
        found.cut = cuts[job.repeated != 0 ? 0 : found.part];
        found.entry = u64(load(pointers));
        found.len = u32(load(pointers + 1) - load(pointers));
        return found;
    }
};

// Counts the segments of rows by length. Starts and ends with a barrier.
__device__ __forceinline__ void count_lengths(const PackRows& rows, Lengths& lengths) {
    __syncthreads();
    for (u32 l = threadIdx.x; l <= MAX_CUT; l += blockDim.x) {
        lengths.count[l] = 0;
    }
    __syncthreads();
    for (u32 number = threadIdx.x; number < rows.nrows; number += blockDim.x) {
        const PackRow row = rows(number);
        const u32 full = row.len / row.cut, rest = row.len - full * row.cut;
        if (full != 0) {
            atomicAdd(&lengths.count[row.cut], full);
        }
        if (rest != 0) {
            atomicAdd(&lengths.count[rest], 1u);
        }
    }
    __syncthreads();
}

// pack_measure: the sizes of each job. Writes MEASURES numbers per job: segments, steps of 32
// slots, flags, rows; then, in 16 bits each, at most 65535, the first step of each eighth of the
// steps, moved to the nearest start of a slice.
//
// Needs: a block per job.
__global__ void __launch_bounds__(128)
    pack_measure(const PackSource* __restrict__ sources, const Part* __restrict__ parts,
                 const u32* __restrict__ cuts, const i32* __restrict__ row_ptr, u32* measures) {
    __shared__ Lengths lengths;
    __shared__ u32 nsteps;
    const PackSource& job = sources[blockIdx.x];
    const PackRows rows(job, parts, cuts, row_ptr);
    u32* measure = measures + u64(blockIdx.x) * MEASURES;
    count_lengths(rows, lengths);
    if (threadIdx.x < WARP_THREADS) {
        const u32 steps = lengths.add_up(threadIdx.x);
        if (threadIdx.x == 0) {
            nsteps = steps;
        }
    }
    // Rows of falling length are in order already. For several parts side by side this is not
    // tested.
    bool is_placed = job.nparts > 1, is_cut = false;
    for (u32 number = threadIdx.x; number < rows.nrows; number += blockDim.x) {
        const PackRow row = rows(number);
        is_cut = is_cut || row.len > row.cut || row.len == 0;
        if (job.nparts == 1 && row.len != 0) {
            u32 next = number + 1, len = 0;
            while (len == 0 && next < rows.nrows) {
                len = rows(next).len;
                ++next;
            }
            const u32 rest = row.len % row.cut;
            is_placed = is_placed || minimum(len, row.cut) > (rest == 0 ? row.cut : rest);
        }
    }
    const bool any_placed = __syncthreads_or(is_placed), any_cut = __syncthreads_or(is_cut);
    if (threadIdx.x < SHARES) {
        const u32 share = u32(u64(nsteps) * threadIdx.x / SHARES);
        u32 begin = 0;
        for (u32 l = MAX_CUT; l > 0; --l) {
            const u32 end = lengths.steps[l] + l * lengths.slices(l);
            if (lengths.steps[l] <= share && share < end) {
                const u32 past = (share - lengths.steps[l]) % l;
                begin = share - past + (2 * past < l ? 0 : l);
            }
        }
        reinterpret_cast<u16*>(measure + 4)[threadIdx.x] = u16(minimum(begin, 0xffffu));
    }
    if (threadIdx.x == 0) {
        measure[0] = lengths.before[1] + lengths.count[1];
        measure[1] = nsteps;
        measure[2] = (any_placed ? SUMS_ARE_PLACED : 0) | (any_cut ? ROWS_ARE_CUT : 0);
        measure[3] = rows.nrows;
    }
}

// The sum of `value` over the preceding lanes with the same `key`; `total` becomes the sum over all
// lanes with this key. Called by whole warps.
__device__ __forceinline__ u32 sum_before(u32 key, u32 value, u32 lane, u32& total) {
    u32 before = 0;
    total = 0;
    for (u32 other = 0; other < WARP_THREADS; ++other) {
        const u32 its_key = __shfl_sync(ALL_LANES, key, other);
        const u32 its_value = __shfl_sync(ALL_LANES, value, other);
        if (its_key == key) {
            before += other < lane ? its_value : 0;
            total += its_value;
        }
    }
    return before;
}

// pack_fill: copies the jobs' values, columns and indices to their places, restricted to the kinds
// of output in `mask`.
//
// Needs: a block per job; dynamic shared memory of 2*nsegments + nrows + 1 entries of 16 bits for
// every job, which has at most 65534 of each; blocks of 32*k threads, at most 256.
template <typename V>
__global__ void __launch_bounds__(256)
    pack_fill(const PackJob* __restrict__ jobs, u32 mask, const Part* __restrict__ parts,
              const u32* __restrict__ cuts, const i32* __restrict__ row_ptr,
              const i32* __restrict__ all_columns, const V* __restrict__ all_values,
              u8* to_values, u8* to_columns, u16* to_index) {
    extern __shared__ u16 pack_shared[];
    __shared__ Lengths lengths;
    const PackJob& job = jobs[blockIdx.x];
    const PackRows rows(job.source, parts, cuts, row_ptr);
    const bool repeated = job.source.repeated != 0;
    const u32 nsegments = job.nsegments, nslices = divide_up(nsegments, WARP_THREADS);
    const u32 lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    const u32 warps = blockDim.x / WARP_THREADS;
    u16* order = pack_shared;             // the segments, longest first
    u16* row_of = order + nsegments;      // the row of each segment
    u16* first_segment = row_of + nsegments;
    const u32 what = job.what & mask;
    if ((what & (WRITE_VALUES | WRITE_INDICES)) == 0) {
        return;
    }
    const bool writes_indices = (what & WRITE_INDICES) != 0;
    const bool is_wide = (job.what & WIDE_COLUMNS) != 0, is_joint = (job.what & JOINT_STEPS) != 0;
    const u32 value_bytes = WARP_THREADS * sizeof(V);
    const u32 column_bytes = WARP_THREADS * (is_wide ? sizeof(u32) : sizeof(u16));
    const u32 value_stride = value_bytes + (is_joint ? column_bytes : 0);
    const u32 column_stride = column_bytes + (is_joint ? value_bytes : 0);
    u16* ends = to_index + job.to_index;
    u16* places = ends + nslices;
    u16* row_starts = places + ((job.flags & SUMS_ARE_PLACED) ? nsegments : 0);

    count_lengths(rows, lengths);
    if (warp == 0) {
        lengths.add_up(lane);
    }
    __syncthreads();
    if (writes_indices) {
        for (u32 l = threadIdx.x + 1; l <= MAX_CUT; l += blockDim.x) {
            const u32 first = divide_up(lengths.before[l], WARP_THREADS), n = lengths.slices(l);
            for (u32 k = 0; k < n; ++k) {
                ends[first + k] = u16(lengths.steps[l] + (k + 1) * l);
            }
        }
    }
    // The first step of a slice, given the length of its first segment.
    const auto first_step = [&](u32 slice, u32 l, u32 segments_before) {
        return lengths.steps[l] + (slice - divide_up(segments_before, WARP_THREADS)) * l;
    };
    __syncthreads();
    u32* next = lengths.count; // where the next segment of each length goes
    for (u32 l = threadIdx.x; l <= MAX_CUT; l += blockDim.x) {
        next[l] = l == 0 ? 0 : lengths.before[l];
    }
    __syncthreads();
    if (warp == 0) {
        u32 segments = 0;
        for (u32 base = 0; base < rows.nrows; base += WARP_THREADS) {
            const u32 number = base + lane;
            PackRow row{0, 1, 0, 0};
            if (number < rows.nrows) {
                row = rows(number);
            }
            const u32 full = row.len / row.cut, rest = row.len - full * row.cut;
            const u32 own = full + (rest != 0);
            const u32 through = Lengths::prefix_sum(own, lane);
            const u32 first = segments + through - own;
            if (number < rows.nrows) {
                first_segment[number] = u16(first);
            }
            segments += __shfl_sync(ALL_LANES, through, WARP_THREADS - 1);
            u32 total;
            const u32 before_full = sum_before(row.cut, full, lane, total);
            const u32 at = next[row.cut] + before_full;
            __syncwarp();
            if (before_full == 0 && full != 0) {
                next[row.cut] = at + total;
            }
            for (u32 k = 0; k < full; ++k) {
                order[at + k] = u16(first + k);
                row_of[at + k] = u16(number);
            }
            __syncwarp();
            const u32 before_rest = sum_before(rest, rest != 0, lane, total);
            const u32 at_rest = next[rest] + before_rest;
            __syncwarp();
            if (rest != 0) {
                if (before_rest == 0) {
                    next[rest] = at_rest + total;
                }
                order[at_rest] = u16(first + full);
                row_of[at_rest] = u16(number);
            }
            __syncwarp();
        }
        if (lane == 0) {
            first_segment[rows.nrows] = u16(segments);
        }
    }
    __syncthreads();

    if (writes_indices) {
        if (job.flags & SUMS_ARE_PLACED) {
            for (u32 at = threadIdx.x; at < nsegments; at += blockDim.x) {
                places[at] = order[at];
            }
        }
        if (job.flags & ROWS_ARE_CUT) {
            for (u32 row = threadIdx.x; row <= rows.nrows; row += blockDim.x) {
                row_starts[row] = first_segment[row];
            }
        }
        // Pads the index, which is copied in whole multiples.
        const u32 starts = (job.flags & ROWS_ARE_CUT) ? rows.nrows + 1 : 0;
        const u32 len = u32(row_starts - ends) + starts;
        if (threadIdx.x == 0) {
            for (u32 k = len; k % INDEX_ALIGNMENT != 0; ++k) {
                ends[k] = 0;
            }
        }
    }
    for (u32 slice = warp; slice < nslices; slice += warps) {
        const u32 at = slice * WARP_THREADS + lane;
        u32 len = 0, shift = 0;
        u64 value = 0, column = 0;
        if (at < nsegments) {
            const u32 number = row_of[at];
            const PackRow row = rows(number);
            const u32 skipped = (order[at] - first_segment[number]) * row.cut;
            len = minimum(row.cut, row.len - skipped);
            const Part& part = rows.parts[repeated ? 0 : row.part];
            column = part.entries + row.entry + skipped;
            value = job.values + row.entry + skipped +
                    (repeated ? u64(row.part) * job.set_values : part.entries);
            shift = repeated ? row.part * part.ncols
                                      : u32(part.first_col - rows.parts->first_col);
            shift -= job.first_column;
        }
        // The first lane has the longest segment.
        const u32 steps = __shfl_sync(ALL_LANES, len, 0);
        const u32 start = first_step(slice, steps, lengths.before[steps]);
        u8* value_at = to_values + job.to_values + u64(start) * value_stride + lane * sizeof(V);
        u8* column_at = to_columns + job.to_columns + u64(start) * column_stride +
                        lane * (is_wide ? sizeof(u32) : sizeof(u16));
        if (what & WRITE_VALUES) {
            for (u32 step = 0; step < steps; ++step) {
                const V stored = step < len ? load(all_values + value + step) : V(0);
                *reinterpret_cast<V*>(value_at + u64(step) * value_stride) = stored;
            }
        }
        if (writes_indices) {
            for (u32 step = 0; step < steps; ++step) {
                const u32 stored =
                    step < len ? u32(load(all_columns + column + step)) + shift : job.padding;
                u8* at_step = column_at + u64(step) * column_stride;
                if (is_wide) {
                    *reinterpret_cast<u32*>(at_step) = stored;
                } else {
                    *reinterpret_cast<u16*>(at_step) = u16(stored);
                }
            }
        }
    }
}

// pack_window: the first and the last column of each job's entries, of its first part alone.
// Without entries the first is larger than the last.
//
// Needs: a block per job.
__global__ void __launch_bounds__(128)
    pack_window(const PackSource* __restrict__ sources, const Part* __restrict__ parts,
                const i32* __restrict__ row_ptr, const i32* __restrict__ columns, u32* windows) {
    __shared__ u32 window[2];
    const Part& part = parts[sources[blockIdx.x].first_part];
    if (threadIdx.x == 0) {
        window[0] = 0xffffffffu;
        window[1] = 0;
    }
    __syncthreads();
    const i32* pointers = row_ptr + part.row_ptr;
    const u64 begin = part.entries + u64(load(pointers));
    const u64 end = part.entries + u64(load(pointers + part.nrows));
    u32 first = 0xffffffffu, last = 0;
    for (u64 k = begin + threadIdx.x; k < end; k += blockDim.x) {
        const u32 column = u32(load(columns + k));
        first = minimum(first, column);
        last = maximum(last, column);
    }
    atomicMin(&window[0], first);
    atomicMax(&window[1], last);
    __syncthreads();
    if (threadIdx.x < 2) {
        windows[2 * u64(blockIdx.x) + threadIdx.x] = window[threadIdx.x];
    }
}

// pack_copy: to[0..n] = from[0..n]. Any one-dimensional grid.
__global__ void __launch_bounds__(256)
    pack_copy(u64 n, const i32* __restrict__ from, i32* to) {
    for (u64 at = grid_thread(); at < n; at += grid_threads()) {
        to[at] = load(from + at);
    }
}

// pack_nothing: does nothing. After this launch, a launch that may begin before the preceding one
// has ended still comes after everything ahead of this one.
__global__ void pack_nothing() {}
