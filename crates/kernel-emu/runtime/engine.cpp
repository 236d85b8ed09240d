#include "engine.h"

#include "races.h"
#include "words.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace emu {

__thread Index3 thread_index;
__thread Index3 block_index;
__thread Index3 block_dim;
__thread Index3 grid_dim;
__thread u32 lane;
__thread Engine* engine;

namespace {

// Pauses in a row, by all threads together, after which nothing is expected to change any more.
constexpr u64 max_idle_pauses = u64{1} << 17;

// Calls of atomics and fences without a switch, after which the thread lets others run.
constexpr u32 calls_before_pause = 1024;

} // namespace

// ---- a launch -------------------------------------------------------------------------------

std::string Engine::launch(const EmuKernel& kernel, const LaunchShape& shape, void** arguments) {
    kernel_ = &kernel;
    shape_ = shape;
    arguments_ = arguments;
    error_.clear();
    current_ = nullptr;
    count_ = shape.block.x * shape.block.y * shape.block.z;
    random_.seed(static_cast<u32>(shape.seed ^ (shape.seed >> 32)));
    shared_ = &SharedMemory::of_this_thread();
    if (!prepare_threads()) return "no memory for the stacks of the threads";
    main_ = Fiber{};
    main_.adopt_thread();
    block_dim = shape.block;
    grid_dim = shape.grid;

    const u64 clusters = shape.only != nullptr
                             ? shape.only_count
                             : u64{shape.grid.x} * shape.grid.y * shape.grid.z / shape.cluster;
    std::vector<u64> order;
    if (shape.order == Order::random) {
        order.resize(clusters);
        for (u64 k = 0; k < clusters; k++) order[k] = k;
        std::shuffle(order.begin(), order.end(), random_);
    }
    for (u64 k = 0; k < clusters && error_.empty(); k++) {
        const u64 which = shape.order == Order::forward   ? k
                          : shape.order == Order::reverse ? clusters - 1 - k
                                                          : order[k];
        run_cluster((shape.only != nullptr ? shape.only[which] : which) * shape.cluster);
    }
    shared_->end_launch();
    return error_;
}

Index3 Engine::block_at(u64 k) const {
    const u64 gx = shape_.grid.x, gy = shape_.grid.y;
    return {static_cast<u32>(k % gx), static_cast<u32>(k / gx % gy), static_cast<u32>(k / (gx * gy))};
}

bool Engine::prepare_threads() {
    const u32 all = shape_.cluster * count_;
    if (!stacks_.reserve(all)) return false;
    if (threads_.size() < all) threads_.resize(all);
    const Index3 b = shape_.block;
    for (u32 k = 0; k < all; k++) {
        const u32 id = k % count_;
        Thread& t = threads_[k];
        t.block = k / count_;
        t.index = {id % b.x, id / b.x % b.y, id / (b.x * b.y)};
        t.id = id;
        t.lane = id % warp_size;
        t.warp = id / warp_size;
        t.fiber.stack = stacks_.stack(k);
        t.fiber.stack_bytes = StackPool::stack_bytes();
        t.fiber.prepare(&Engine::thread_main);
    }
    return true;
}

void Engine::run_cluster(u64 first) {
    shared_->begin_blocks(shape_.cluster, shape_.shared_bytes);
    exited_ = at_cluster_ = 0;
    // Engines are used again: where threads pause must not depend on earlier launches.
    idle_ = 0;
    calls_ = 0;
    bulk_copies_.clear();
    ready_blocks_ = cursor_ = 0;
    for (u32 k = 0; k < shape_.cluster; k++) {
        Block& b = blocks_[k];
        b.index = block_at(first + k);
        b.begun = shape_.cluster == 1;
        b.exited = b.at_barrier = b.ready_warps = 0;
        for (u32 w = 0; w * warp_size < count_; w++) {
            b.warps[w].exists = low_bits(count_ - w * warp_size);
            b.warps[w].exited = 0;
            b.warps[w].meetings = 0;
            b.warps[w].ready = 0;
        }
        for (u32 id = 0; id < count_; id++) {
            Thread& t = threads_of(k)[id];
            t.copies.clear();
            t.group_ends.clear();
            make_ready(t);
        }
        rewind(b);
    }
    release(this);
    resume(pick(true, true));
    // Back here: every thread has exited, one has failed, or none can go on.
    current_ = nullptr;
    acquire(&main_);
    if (!error_.empty()) return;
    if (exited_ != shape_.cluster * count_) {
        report_deadlock();
        return;
    }
    for (u32 k = 0; k < shape_.cluster && error_.empty(); k++) {
        if (!shared_->written_after_end(k)) continue;
        report(blocks_[k].index, nullptr, Site{},
               "its shared memory was written by another block of the cluster after it had ended");
    }
}

// The body of every fiber: one round per block.
void Engine::thread_main() {
    fiber_started(engine->main_);
    for (;;) {
        acquire(engine);
        engine->enter();
        engine->kernel_->entry(engine->arguments_);
        engine->leave();
    }
}

void Engine::enter() {
    Block& b = block();
    if (b.begun) return;
    b.begun = true;
    // Nothing stays of what others wrote before the block was there for certain.
    const Unseen unseen;
    shared_->poison_block(current_->block);
}

void Engine::leave() {
    Thread& t = *current_;
    Block& b = block();
    t.state = State::exited;
    exited_++;
    b.exited++;
    b.warps[t.warp].exited |= 1u << t.lane;
    progress();
    if (b.at_barrier > 0) {
        stop(b.barrier_site, "the barrier is reached by only part of the block: this thread waits "
                             "there, and another has exited");
    }
    if (at_cluster_ > 0) {
        stop(cluster_site_, "the cluster barrier is reached by only part of the cluster: others wait "
                            "there, and this thread has exited");
    }
    if (b.exited == count_) end_block(t.block);
    resume(error_.empty() ? pick(false, false) : nullptr);
}

void Engine::end_block(u32 number) {
    const Unseen unseen;
    const std::string damage = shared_->damage(number);
    if (!damage.empty()) {
        report(blocks_[number].index, nullptr, Site{}, "shared memory out of bounds: " + damage);
    } else if (shape_.cluster > 1) {
        shared_->end_block(number);
    }
}

// ---- choosing who runs ----------------------------------------------------------------------

void Engine::make_ready(Thread& t) {
    Block& b = blocks_[t.block];
    t.state = State::ready;
    b.warps[t.warp].ready |= 1u << t.lane;
    b.ready_warps |= 1u << t.warp;
    ready_blocks_ |= 1u << t.block;
}

// The next choice in the block starts from the first thread of the order.
void Engine::rewind(Block& b) {
    const u32 before_first = shape_.order == Order::reverse ? 0 : 31;
    b.cursor = before_first;
    for (u32 w = 0; w * warp_size < count_; w++) b.warps[w].last = before_first;
}

u32 Engine::next_bit(u32 mask, u32 after) {
    switch (shape_.order) {
    case Order::forward: {
        const u32 above = mask & ~low_bits(after + 1);
        return lowest(above != 0 ? above : mask);
    }
    case Order::reverse: {
        const u32 below = mask & low_bits(after);
        return highest(below != 0 ? below : mask);
    }
    case Order::random: break;
    }
    for (u32 skip = static_cast<u32>(random_()) % static_cast<u32>(__builtin_popcount(mask)); skip > 0;
         skip--) {
        mask &= mask - 1;
    }
    return lowest(mask);
}

// The next thread to run, no longer marked as ready; null when there is none.
Thread* Engine::pick(bool leave_warp, bool leave_block) {
    if (ready_blocks_ == 0) return nullptr;
    if (shape_.cluster > 1) {
        if (shape_.order == Order::random) leave_block = leave_block || random_() % 4 == 0;
        if (leave_block || blocks_[cursor_].ready_warps == 0) {
            cursor_ = next_bit(ready_blocks_, cursor_);
        }
    }
    Block& b = blocks_[cursor_];
    if (shape_.order == Order::random) leave_warp = leave_warp || random_() % 4 == 0;
    if (leave_warp || b.warps[b.cursor].ready == 0) b.cursor = next_bit(b.ready_warps, b.cursor);
    Warp& w = b.warps[b.cursor];
    w.last = next_bit(w.ready, w.last);
    w.ready &= ~(1u << w.last);
    if (w.ready == 0) b.ready_warps &= ~(1u << b.cursor);
    if (b.ready_warps == 0) ready_blocks_ &= ~(1u << cursor_);
    return &threads_of(cursor_)[b.cursor * warp_size + w.last];
}

void Engine::resume(Thread* next) {
    ticks_++;
    Thread* from = current_;
    if (next == from) return;
    if (from != nullptr) release(&main_);
    current_ = next;
    if (next != nullptr) {
        block_index = blocks_[next->block].index;
        thread_index = next->index;
        lane = next->lane;
    }
    switch_fiber(from != nullptr ? from->fiber : main_, next != nullptr ? next->fiber : main_);
}

void Engine::give_way(bool leave_warp, bool leave_block) { resume(pick(leave_warp, leave_block)); }

void Engine::pause(Site site) {
    Thread& t = *current_;
    calls_ = 0;
    if (++idle_ > max_idle_pauses) {
        stop(site, shape_.cluster > 1
                       ? "waits for something that never comes: no thread of the cluster makes progress"
                       : "waits for something that never comes: no thread of the block makes progress");
    }
    make_ready(t);
    give_way(true, true);
}

void Engine::maybe_preempt() {
    ticks_++;
    // A loop of atomics may wait for another thread.
    if (++calls_ >= calls_before_pause) return pause(Site{});
    if (shape_.order != Order::random || random_() % 8 != 0) return;
    make_ready(*current_);
    give_way(false);
}

// ---- barriers -------------------------------------------------------------------------------

int Engine::meet_block(BarrierOp op, int predicate, Site site) {
    Thread& t = *current_;
    Block& b = block();
    if (b.exited > 0) {
        stop(site, "the barrier is reached by only part of the block: other threads have exited");
    }
    if (b.at_barrier == 0) {
        b.barrier_site = site;
        b.barrier_op = op;
        b.barrier_votes = 0;
    } else if (op != b.barrier_op || site.line != b.barrier_site.line ||
               std::strcmp(site.file, b.barrier_site.file) != 0) {
        const std::string text = "the threads of the block wait at different barriers: others at " +
                                 format_site(b.barrier_site);
        stop(site, text.c_str());
    }
    b.barrier_votes += predicate != 0;
    t.state = State::at_block;
    t.site = site;
    // Two addresses: a thread that is late to leave this barrier learns nothing from the next one.
    char* const meeting_point = &b.barrier_parity[b.barriers % 2];
    release(meeting_point);
    if (++b.at_barrier == count_) release_block(b);
    give_way(true);
    acquire(meeting_point);
    // Nobody can complete the next barrier before this thread has read the result of this one.
    return b.barrier_result;
}

void Engine::release_block(Block& b) {
    const u32 votes = b.barrier_votes;
    switch (b.barrier_op) {
    case BarrierOp::sync: b.barrier_result = 0; break;
    case BarrierOp::count: b.barrier_result = static_cast<int>(votes); break;
    case BarrierOp::any: b.barrier_result = votes > 0; break;
    case BarrierOp::all: b.barrier_result = votes == count_; break;
    }
    b.at_barrier = 0;
    b.barriers++;
    progress();
    const u32 number = static_cast<u32>(&b - blocks_);
    for (u32 id = 0; id < count_; id++) make_ready(threads_of(number)[id]);
    rewind(b);
}

void Engine::meet_cluster(Site site) {
    Thread& t = *current_;
    if (exited_ > 0) {
        stop(site, "the cluster barrier is reached by only part of the cluster: other threads have "
                   "exited");
    }
    if (at_cluster_ == 0) {
        cluster_site_ = site;
    } else if (site.line != cluster_site_.line || std::strcmp(site.file, cluster_site_.file) != 0) {
        const std::string text =
            "the threads of the cluster wait at different barriers: others at " +
            format_site(cluster_site_);
        stop(site, text.c_str());
    }
    t.state = State::at_cluster;
    t.site = site;
    // Two addresses, as in meet_block.
    char* const meeting_point = &cluster_parity_[cluster_barriers_ % 2];
    release(meeting_point);
    const bool last = ++at_cluster_ == shape_.cluster * count_;
    if (last) release_cluster();
    // All start again from the first block of the order.
    give_way(true, last);
    acquire(meeting_point);
}

void Engine::release_cluster() {
    at_cluster_ = 0;
    cluster_barriers_++;
    progress();
    for (u32 k = 0; k < shape_.cluster; k++) {
        for (u32 id = 0; id < count_; id++) make_ready(threads_of(k)[id]);
        rewind(blocks_[k]);
    }
    cursor_ = shape_.order == Order::reverse || shape_.cluster == 1 ? 0 : 31;
}

// ---- errors ---------------------------------------------------------------------------------

void* Engine::static_shared(const void* tag, size_t bytes, size_t alignment) {
    void* at = nullptr;
    {
        const Unseen unseen;
        at = shared_->object(current_->block, tag, bytes, alignment);
    }
    if (at == nullptr) {
        stop(Site{}, ("the block needs more than " + std::to_string(max_shared_bytes) +
                      " bytes of shared memory: " + std::to_string(shared_->used_bytes()) + " and " +
                      std::to_string(bytes))
                         .c_str());
    }
    return at;
}

const void* Engine::in_block_of_cluster(const void* own, u32 rank, Site site) {
    if (rank >= shape_.cluster) {
        stop(site, ("the cluster has no block " + std::to_string(rank) + ", but " +
                    std::to_string(shape_.cluster))
                       .c_str());
    }
    if (!in_own_shared(own, 0)) stop(site, "the address is not in the block's own shared memory");
    maybe_preempt();
    return shared_->same_place(own, current_->block, rank);
}

void Engine::check_copy(const Copy& copy, u32 alignment) {
    const auto aligned = [&](const void* at) {
        return reinterpret_cast<uintptr_t>(at) % alignment == 0;
    };
    const std::string size = std::to_string(copy.bytes) + " bytes";
    const std::string multiple = " of a copy of " + size + " is not a multiple of " +
                                 std::to_string(alignment);
    if (!aligned(copy.to)) stop(copy.site, ("the shared address" + multiple).c_str());
    if (!aligned(copy.from)) stop(copy.site, ("the global address" + multiple).c_str());
    if (copy.bytes % alignment != 0) stop(copy.site, ("the size" + multiple).c_str());
    if (copy.source_bytes > copy.bytes) {
        stop(copy.site, ("a copy of " + size + " cannot take " + std::to_string(copy.source_bytes) +
                         " bytes from its source")
                            .c_str());
    }
    if (!in_own_shared(copy.to, copy.bytes)) {
        stop(copy.site, ("the destination of a copy of " + size + " is not in shared memory").c_str());
    }
}

std::string Engine::where(const Thread& t) const {
    return "thread " + format_index(t.index) + ", lane " + std::to_string(t.lane);
}

void Engine::report(Index3 block, const Thread* t, Site site, const std::string& text) {
    std::string name = kernel_->expression;
    if (name.front() == '(' && name.back() == ')') name = name.substr(1, name.size() - 2);
    error_ = "kernel " + name + ", block " + format_index(block);
    if (t != nullptr) error_ += ", " + where(*t);
    if (site.file != nullptr) error_ += ", " + format_site(site);
    error_ += ": " + text;
}

void Engine::stop(Site site, const char* text) {
    report(block_index, current_, site, text);
    resume(nullptr);
    __builtin_unreachable();
}

// No thread can run: names the first lane that waits and a lane that it waits for.
void Engine::report_deadlock() {
    const u32 all = shape_.cluster * count_;
    for (u32 k = 0; k < all; k++) {
        const Thread& t = threads_[k];
        if (t.state != State::at_warp) continue;
        const Index3 block = blocks_[t.block].index;
        for (u32 rest = t.mask; rest != 0; rest &= rest - 1) {
            const Thread& other = threads_of(t.block)[t.warp * warp_size + lowest(rest)];
            const std::string name = "lane " + std::to_string(other.lane) + " of the mask " +
                                     format_mask(t.mask);
            if (other.state == State::exited) {
                return report(block, &t, t.site, name + " has exited without arriving here");
            }
            if (other.state == State::at_block || other.state == State::at_cluster) {
                const std::string which = other.state == State::at_block ? "block" : "cluster";
                return report(block, &t, t.site, name + " waits at the " + which + " barrier of " +
                                                     format_site(other.site) + " instead");
            }
            if (other.state == State::at_warp && other.mask != t.mask) {
                return report(block, &t, t.site, "the lanes disagree on the mask: " + name +
                                                     " waits at " + format_site(other.site) +
                                                     " with the mask " + format_mask(other.mask));
            }
        }
    }
    for (u32 k = 0; k < all; k++) {
        const Thread& t = threads_[k];
        if (t.state != State::at_block) continue;
        std::string text = "the barrier is reached by only part of the block";
        if (at_cluster_ > 0) {
            text += ": others wait at the cluster barrier of " + format_site(cluster_site_);
        }
        return report(blocks_[t.block].index, nullptr, t.site, text);
    }
    report(blocks_[0].index, nullptr, cluster_site_,
           "the cluster barrier is reached by only part of the cluster");
}

// ---- the functions that kernels call --------------------------------------------------------

void fail(Site site, const char* format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    std::vsnprintf(text, sizeof text, format, list);
    va_end(list);
    engine->stop(site, text);
}

u64 warp_meet(u32 mask, WarpOp op, u64 value, u32 source, Site site) {
    return engine->meet_warp(mask, op, value, source, site);
}
int block_meet(BarrierOp op, int predicate, Site site) {
    return engine->meet_block(op, predicate, site);
}
void cluster_meet(Site site) { engine->meet_cluster(site); }
u32 cluster_rank() { return engine->thread().block; }
const void* in_block_of_cluster(const void* own_shared, u32 rank, Site site) {
    return engine->in_block_of_cluster(own_shared, rank, site);
}
void pause(Site site) { engine->pause(site); }
void maybe_preempt() { engine->maybe_preempt(); }
void fence() {
    engine->maybe_preempt();
    // Stricter readers of the memory model would ask for an atomic between two fences.
    acquire(&engine);
    release(&engine);
}
u64 ticks() { return engine->ticks(); }
u32 live_lanes() { return engine->live_lanes(); }
void* dynamic_shared_base() { return engine->dynamic_shared(); }
void* static_shared_object(const void* tag, size_t bytes, size_t alignment) {
    return engine->static_shared(tag, bytes, alignment);
}

} // namespace emu
