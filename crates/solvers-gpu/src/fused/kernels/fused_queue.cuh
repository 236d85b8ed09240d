// The queue of systems that cg.cu and bicgstab.cu solve: which one a group solves, which comes
// next, and where their data are in device memory; see fused.cuh.
#pragma once

#include "fused_task.cuh"

template <typename Shape>
struct FusedQueue : Shape {
    using V = typename Shape::V;
    using Shape::CLUSTER;
    using Shape::IS_CLUSTER;
    using Shape::KEEPS_VALUES;
    using Shape::LEFT;
    using Shape::MIXED;
    using Shape::OWN_THREADS;
    using Shape::PARTS;
    using Shape::ROWS;
    using Shape::SCATTERED;
    using Shape::TEAM;
    using typename Shape::Threads;
    static constexpr u32 GROUPS_OF_BLOCK = TEAM < WARP_THREADS ? WARP_THREADS / TEAM : 1;
    // Whether the words of the current and the next item are in shared memory, behind the scratch
    // memory of sums.
    static constexpr bool NOTES = SCATTERED && KEEPS_VALUES;
    static constexpr u32 SCRATCH = Threads::SCRATCH + (NOTES ? GROUPS_OF_BLOCK * 2 * ITEM_WORDS : 0);

    const FusedTask<V>& task;
    const u32 member; // number of this thread in the group
    const u32 lane, part;
    u32 system = 0;
    u32 number = 0; // of the current system in the queue, for MIXED
    // `next`: number of the next system in the queue, whose values are being copied. `behind`:
    // place in the queue after that one, once thread 0 has asked for it; past the end before.
    u32 next, behind;
    bool asked = false;
    // Data of the current system if SCATTERED without NOTES; before the first system, the first
    // pattern's.
    u32 own_rows = 0, pattern = 0;
    u64 first_value = 0, first_row = 0, first_place = 0;
    // The same with NOTES: words of two items, and the offset of the current one.
    u64* const notes;
    u32 side = 0;

    __device__ __forceinline__ FusedQueue(const FusedTask<V>& all, double* partials)
        : task(all), member(own_number()), lane(member / PARTS), part(member % PARTS),
          next(in_queue(first_place_in_queue())), behind(all.nsystems),
          notes(reinterpret_cast<u64*>(partials + Threads::SCRATCH) +
                threadIdx.x / TEAM % GROUPS_OF_BLOCK * 2 * ITEM_WORDS) {
        if constexpr (NOTES) {
            if (member == 0) {
                notes[4] = 0;
            }
            ask_for_notes();
        } else if constexpr (SCATTERED) {
            size_up();
        }
    }

    // The number of this thread in its group.
    __device__ __forceinline__ static u32 own_number() {
        return IS_CLUSTER ? cluster_rank() * OWN_THREADS + threadIdx.x : threadIdx.x % TEAM;
    }

    __device__ __forceinline__ u32 nrows() const {
        if constexpr (NOTES) {
            return u32(own_note(3));
        } else if constexpr (SCATTERED) {
            return own_rows;
        } else {
            return task.nrows;
        }
    }

    // Number of entries of the current pattern.
    __device__ __forceinline__ u32 nentries() const {
        if constexpr (SCATTERED) {
            return u32(load(task.patterns + u64(pattern) * PATTERN_WORDS) >> 32);
        } else {
            return task.entries;
        }
    }

    __device__ __forceinline__ u64 place_of_pattern() const { return NOTES ? own_note(4) : first_place; }

    __device__ __forceinline__ const u32* own_starts() const {
        return SCATTERED ? task.starts + pattern * (ROWS + 1) : task.starts;
    }

    __device__ __forceinline__ const u16* own_columns() const {
        return SCATTERED ? task.columns + place_of_pattern() : task.columns;
    }

    __device__ __forceinline__ const u16* own_order() const {
        return SCATTERED ? task.order + place_of_pattern() : task.order;
    }

    __device__ __forceinline__ void size_up() {
        const u64* const words = task.patterns + u64(pattern) * PATTERN_WORDS;
        own_rows = u32(load(words));
        first_place = load(words + 1);
    }

    // Number of a system in the batch, its pattern and sizes, and the offsets of its first value
    // and row.
    struct Item {
        u32 system, pattern, nrows, entries;
        u64 first_value, first_row;
    };

    __device__ __forceinline__ u32 item_of(u32 number) const {
        return task.nrhs == 1 ? number : number / task.nrhs;
    }

    // System `number` of the queue, from the words of its item.
    template <typename Word>
    __device__ __forceinline__ Item item(u32 number, Word word) const {
        const u32 rhs = number - item_of(number) * task.nrhs;
        const u64 name = word(0), sizes = word(3);
        return Item{u32(name) * task.nrhs + rhs,
                    u32(name >> 32),
                    u32(sizes),
                    u32(sizes >> 32),
                    word(1) * task.value_stride,
                    word(2) + u64(rhs) * u32(sizes) * task.row_step};
    }

    __device__ __forceinline__ Item item(u32 number) const {
        if constexpr (SCATTERED) {
            const u64* const words = task.items + u64(item_of(number)) * ITEM_WORDS;
            return item(number, [&](u32 i) { return load(words + i); });
        } else {
            return Item{number,
                        0,
                        task.nrows,
                        task.entries,
                        item_of(number) * task.value_stride,
                        u64(number) * task.nrows};
        }
    }

    // Word i of the current item.
    __device__ __forceinline__ u64 own_note(u32 i) const { return notes[side + i]; }

    // Starts copies of the next item's words, which are complete when other copies are.
    __device__ __forceinline__ void ask_for_notes() {
        if (NOTES && member == 0 && next < task.nsystems) {
            u64* const to = notes + ITEM_WORDS - side;
            const u64* const from = task.items + u64(item_of(next)) * ITEM_WORDS;
#pragma unroll
            for (u32 i = 0; i < ITEM_WORDS; ++i) {
                cp_async_8(to + i, from + i);
            }
        }
    }

    // The next system. Where MIXED it is read from the notes, which have arrived and are visible to
    // the group.
    __device__ __forceinline__ Item next_item() const {
        if constexpr (NOTES && MIXED) {
            return item(next, [&](u32 i) { return notes[ITEM_WORDS - side + i]; });
        } else {
            return item(next);
        }
    }

    // Makes system `number` of the queue the current one. Returns whether the pattern changes.
    __device__ __forceinline__ bool turn(u32 number) {
        this->number = number;
        if constexpr (NOTES) {
            const u64 before = own_note(4);
            side = ITEM_WORDS - side;
            system = u32(own_note(0)) * task.nrhs + number - item_of(number) * task.nrhs;
            return own_note(4) != before;
        } else if constexpr (SCATTERED) {
            const Item at = item(number);
            const bool is_other = at.pattern != pattern;
            if (is_other) {
                pattern = at.pattern;
                size_up();
            }
            system = at.system;
            first_value = at.first_value;
            first_row = at.first_row;
            return is_other;
        } else {
            system = number;
            return false;
        }
    }

    // Each group of the launch starts at its own place in the queue; later places, if any, go to
    // whichever group asks first.
    __device__ __forceinline__ static u32 first_place_in_queue() {
        return blockIdx.x / CLUSTER * GROUPS_OF_BLOCK + threadIdx.x / TEAM;
    }

    // Number of groups of the launch.
    __device__ __forceinline__ static u32 groups() { return gridDim.x / CLUSTER * GROUPS_OF_BLOCK; }

    __device__ __forceinline__ static bool are_more_than_groups(u32 nsystems) {
        return nsystems > groups();
    }

    // The system at this place of the queue; nsystems or more if there is none.
    __device__ __forceinline__ u32 in_queue(u32 place) const {
        if constexpr (LEFT) {
            return place < task.left[0] ? task.left[1 + place] : task.nsystems;
        }
        return place;
    }

    // Thread 0 asks for the place after that of the next system; the answer comes some time later.
    __device__ __forceinline__ void ask(bool wanted) {
        if (wanted && !asked && next < task.nsystems && are_more_than_groups(task.nsystems)) {
            asked = true;
            if (member == 0) {
                behind = groups() + atomicAdd(task.queue, 1u);
            }
        }
    }

    __device__ __forceinline__ const V* own_values() const {
        if constexpr (SCATTERED) {
            return task.values + first_value;
        } else {
            return task.values + item_of(system) * task.value_stride;
        }
    }

    // Stride between the entries in `values`.
    __device__ __forceinline__ u64 value_step() const { return SCATTERED ? task.value_step : 1; }

    // Offset of a row in b and x.
    __device__ __forceinline__ u64 place_in_vectors_of(u32 row) const {
        if constexpr (NOTES) {
            const u32 rhs = task.nrhs == 1 ? 0 : system % task.nrhs;
            return own_note(2) + (u64(rhs) * nrows() + row) * task.row_step;
        } else if constexpr (SCATTERED) {
            return first_row + row * task.row_step;
        } else {
            return u64(system) * task.nrows + row;
        }
    }
};
