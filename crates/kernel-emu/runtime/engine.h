// The scheduler: one block at a time, its threads as fibers.
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

enum class Order : u32 { forward = 0, reverse = 1, random = 2 };

enum class State : unsigned char { ready, at_warp, at_block, exited };

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
    u32 id = 0, lane = 0, warp = 0;
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

struct LaunchShape {
    Index3 grid, block;
    u32 shared_bytes;
    Order order;
    u64 seed;
    const u64* only; // numbers of the blocks that run; null: all
    u64 only_count;
};

class Engine {
  public:
    // Runs a kernel. Empty, or why it stopped.
    std::string launch(const EmuKernel& kernel, const LaunchShape& shape, void** arguments);

    u64 meet_warp(u32 mask, WarpOp op, u64 value, u32 source, Site site);
    int meet_block(BarrierOp op, int predicate, Site site);
    void pause(Site site);
    void maybe_preempt();
    u64 ticks() { return ++ticks_; }
    u32 live_lanes() const { return warp().exists & ~warp().exited; }
    void* static_shared(const void* tag, size_t bytes, size_t alignment);
    void progress() { idle_ = 0; }
    void check_copy(const Copy& copy, u32 alignment);
    [[noreturn]] void stop(Site site, const char* text);

    Thread& thread() { return *current_; }
    std::vector<Copy>& bulk_copies() { return bulk_copies_; }

  private:
    static void thread_main();
    bool prepare_threads();
    void run_block(Index3 block);
    void leave();              // the current thread has exited
    void make_ready(Thread& t);
    void give_way(bool leave_warp); // run someone else; returns when this thread is resumed
    Thread* pick(bool leave_warp);
    void resume(Thread* next);
    void complete(Warp& w, const Meeting& m);
    void release_block();
    void rewind();
    u32 next_bit(u32 mask, u32 after);
    void report(const Thread* t, Site site, const std::string& text);
    void report_deadlock();
    std::string where(const Thread& t) const;
    const Warp& warp() const { return warps_[current_->warp]; }
    Index3 block_at(u64 k) const;

    StackPool stacks_;
    std::vector<Thread> threads_;
    Warp warps_[max_block_warps];
    Fiber main_;
    Thread* current_ = nullptr; // null while the scheduler itself runs
    SharedMemory* shared_ = nullptr;

    const EmuKernel* kernel_ = nullptr;
    LaunchShape shape_{};
    void** arguments_ = nullptr;
    u32 count_ = 0; // threads of a block
    u32 ready_warps_ = 0, cursor_ = 0;
    u32 exited_ = 0, at_block_ = 0;
    Site barrier_site_{};
    BarrierOp barrier_op_ = BarrierOp::sync;
    u32 barrier_votes_ = 0;
    u64 barriers_ = 0;
    char barrier_parity_[2] = {};
    int barrier_result_ = 0;
    u64 ticks_ = 0, idle_ = 0;
    u32 calls_ = 0;
    std::minstd_rand random_;
    std::vector<Copy> bulk_copies_;
    std::string error_;
};

// The engine of the launch that runs on this operating-system thread.
extern __thread Engine* engine;

} // namespace emu
