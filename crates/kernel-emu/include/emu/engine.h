// What kernel code asks of the scheduler. Implemented in runtime/.
#pragma once

#include <cstddef>

namespace emu {

using u32 = unsigned int;
using u64 = unsigned long long;

struct Index3 {
    u32 x, y, z;
};

// Where in the kernel source a thread is; shown in messages.
struct Site {
    const char* file;
    int line;
};

// The last parameters of every intrinsic that can wait or fail: the caller's file and line.
#define EMU_SITE const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_HERE (::emu::Site{emu_file, emu_line})

// The built-in variables of the CUDA thread that runs on this operating-system thread.
extern __thread Index3 thread_index;
extern __thread Index3 block_index;
extern __thread Index3 block_dim;
extern __thread Index3 grid_dim;
extern __thread u32 lane;

constexpr u32 warp_size = 32;

enum class WarpOp : unsigned char {
    sync,
    shuffle,
    ballot,
    any,
    all,
    match_any,
    match_all,
    add,
    min_signed,
    max_signed,
    min_unsigned,
    max_unsigned,
    bit_and,
    bit_or,
    bit_xor,
};

enum class BarrierOp : unsigned char { sync, count, any, all };

// Ends the launch with an error. Never returns: the fibers of the block are abandoned.
[[noreturn]] void fail(Site site, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Waits until all lanes of `mask` have arrived with the same operation; returns this lane's result.
u64 warp_meet(u32 mask, WarpOp op, u64 value, u32 source_lane, Site site);

// Waits until all threads of the block have arrived; returns the reduction of `predicate`.
int block_meet(BarrierOp op, int predicate, Site site);

// Waits until all threads of all blocks of the cluster have arrived.
void cluster_meet(Site site);

// The number of the block in its cluster, and the place of `own_shared` in the shared memory of another
// block of it; in random order, sometimes lets other threads run.
u32 cluster_rank();
const void* in_block_of_cluster(const void* own_shared, u32 rank, Site site);

// Lets other threads run. Without progress anywhere for very long, ends the launch with an error.
void pause(Site site);

// In random order, sometimes lets other threads run; else nothing.
void maybe_preempt();

// A memory fence: matters to ThreadSanitizer, and may let other threads run.
void fence();

// Counts the switches between threads; stands for a clock.
u64 ticks();

// Shared memory. `tag` is the identity of a static shared variable.
void* dynamic_shared_base();
void* static_shared_object(const void* tag, size_t bytes, size_t alignment);

// Lanes of the calling thread's warp that have not exited.
u32 live_lanes();

// Asynchronous copies. Nothing is copied before the matching wait.
void copy_async(void* shared, const void* global, u32 bytes, u32 source_bytes, Site site);
void copy_commit();
void copy_wait(u32 groups_left_pending);
void bulk_copy(void* shared, const void* global, u32 bytes, void* mbarrier, Site site);
void mbarrier_init(void* mbarrier, u32 count, Site site);
void mbarrier_arrive(void* mbarrier, u32 expected_bytes, Site site);
bool mbarrier_phase_done(void* mbarrier, u32 parity, Site site);
void mbarrier_wait(void* mbarrier, u32 parity, Site site);

template <class T> T* dynamic_shared() {
    return reinterpret_cast<T*>(dynamic_shared_base());
}

template <class T> T& static_shared(const void* tag, size_t alignment) {
    void* at = static_shared_object(tag, sizeof(T), alignment > alignof(T) ? alignment : alignof(T));
    return *reinterpret_cast<T*>(at);
}

} // namespace emu
