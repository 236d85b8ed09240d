// The scheduler: one cluster of blocks at a time, its threads as fibers. Without clusters each block is
// one of its own.
#pragma once

#include "../include/emu/engine.h"
#include "../include/emu/registry.h"
#include "fiber.h"
#include "shared.h"

#include <random>
#include <string>
#include <vector>

namespace emu {

constexpr u32 max_block_threads = 1024;
constexpr u32 max_block_warps = max_block_threads / warp_size;
constexpr u32 max_cluster_blocks = 8;

enum class Order : u32 { forward = 0, reverse = 1, random = 2 };

enum class State : unsigned char { ready, at_warp, at_block, at_cluster, exited };

struct Copy {
    void* to;
    const void* from;
    u32 bytes, source_bytes;
    void* mbarrier;
    Site site;
};

struct Thread {
    Fiber fiber;
    Index3 index{};
    u32 id = 0, lane = 0, warp = 0; // in its block
    u32 block = 0;                  // in its cluster
    State state = State::ready;
    Site site{}; // where it waits

    // What it brings to a warp operation, and takes from it.
    u32 mask = 0, source = 0;
    u64 value = 0, result = 0;

    // Asynchronous copies: pending ones in order of issue, and the end of each committed group.
    std::vector<Copy> copies;
    std::vector<size_t> group_ends;
};

// Lanes that gather for one warp operation.
struct Meeting {
    u32 mask, arrived;
    WarpOp op;
};

struct Warp {
    u32 exists = 0, exited = 0, ready = 0;
    u32 last = 0; // lane that ran last
    u32 meetings = 0;
    Meeting meeting[warp_size];
};

// A block of the cluster that runs.
struct Block {
    Index3 index{};
    Warp warps[max_block_warps];
    u32 ready_warps = 0, cursor = 0;
    u32 exited = 0, at_barrier = 0;
    bool begun = false; // a thread of it has run
    Site barrier_site{};
    BarrierOp barrier_op = BarrierOp::sync;
    u32 barrier_votes = 0;
    u64 barriers = 0;
    char barrier_parity[2] = {};
    int barrier_result = 0;
};

struct LaunchShape {
    Index3 grid, block;
    u32 shared_bytes;
    u32 cluster; // blocks in x
    Order order;
    u64 seed;
    const u64* only; // numbers of the clusters that run; null: all
    u64 only_count;
};

class Engine {
  public:
    // Runs a kernel. Empty, or why it stopped.
    std::string launch(const EmuKernel& kernel, const LaunchShape& shape, void** arguments);

    u64 meet_warp(u32 mask, WarpOp op, u64 value, u32 source, Site site);
    int meet_block(BarrierOp op, int predicate, Site site);
    void meet_cluster(Site site);
    const void* in_block_of_cluster(const void* own, u32 rank, Site site);
    void pause(Site site);
    void maybe_preempt();
    u64 ticks() { return ++ticks_; }
    u32 live_lanes() const { return warp().exists & ~warp().exited; }
    void* static_shared(const void* tag, size_t bytes, size_t alignment);
    void* dynamic_shared() const { return shared_->dynamic_base(current_->block); }
    bool in_own_shared(const void* at, size_t bytes) const {
        return shared_->holds(current_->block, at, bytes);
    }
    void progress() { idle_ = 0; }
    void check_copy(const Copy& copy, u32 alignment);
    [[noreturn]] void stop(Site site, const char* text);

    Thread& thread() { return *current_; }
    std::vector<Copy>& bulk_copies() { return bulk_copies_; }

  private:
    static void thread_main();
    bool prepare_threads();
    void run_cluster(u64 first);
    void enter();              // the current thread begins
    void leave();              // the current thread has exited
    void end_block(u32 number); // all its threads have exited
    void make_ready(Thread& t);
    // Run someone else; returns when this thread is resumed.
    void give_way(bool leave_warp, bool leave_block = false);
    Thread* pick(bool leave_warp, bool leave_block);
    void resume(Thread* next);
    void complete(Warp& w, const Meeting& m);
    void release_block(Block& b);
    void release_cluster();
    void rewind(Block& b);
    u32 next_bit(u32 mask, u32 after);
    void report(Index3 block, const Thread* t, Site site, const std::string& text);
    void report_deadlock();
    std::string where(const Thread& t) const;
    Block& block() { return blocks_[current_->block]; }
    const Warp& warp() const { return blocks_[current_->block].warps[current_->warp]; }
    Thread* threads_of(u32 block) { return &threads_[size_t{block} * count_]; }
    Index3 block_at(u64 k) const;

    StackPool stacks_;
    std::vector<Thread> threads_; // of all blocks of the cluster, block by block
    Block blocks_[max_cluster_blocks];
    Fiber main_;
    Thread* current_ = nullptr; // null while the scheduler itself runs
    SharedMemory* shared_ = nullptr;

    const EmuKernel* kernel_ = nullptr;
    LaunchShape shape_{};
    void** arguments_ = nullptr;
    u32 count_ = 0; // threads of a block
    u32 ready_blocks_ = 0, cursor_ = 0;
    u32 exited_ = 0, at_cluster_ = 0;
    Site cluster_site_{};
    u64 cluster_barriers_ = 0;
    char cluster_parity_[2] = {};
    u64 ticks_ = 0, idle_ = 0;
    u32 calls_ = 0;
    std::minstd_rand random_;
    std::vector<Copy> bulk_copies_;
    std::string error_;
};

// The engine of the launch that runs on this operating-system thread.
extern __thread Engine* engine;

} // namespace emu
