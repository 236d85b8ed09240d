#include "engine.h"

#include "races.h"

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

u32 low_bits(u32 count) { return count >= 32 ? ~0u : (1u << count) - 1; }
u32 lowest(u32 mask) { return static_cast<u32>(__builtin_ctz(mask)); }
u32 highest(u32 mask) { return 31u - static_cast<u32>(__builtin_clz(mask)); }

std::string format_index(Index3 i) {
    return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

std::string format_mask(u32 mask) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08x", mask);
    return text;
}

std::string format_site(Site site) {
    if (site.file == nullptr) return {};
    return std::string(site.file) + ":" + std::to_string(site.line);
}

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

    const u64 blocks = shape.only != nullptr ? shape.only_count
                                             : u64{shape.grid.x} * shape.grid.y * shape.grid.z;
    std::vector<u64> order;
    if (shape.order == Order::random) {
        order.resize(blocks);
        for (u64 k = 0; k < blocks; k++) order[k] = k;
        std::shuffle(order.begin(), order.end(), random_);
    }
    for (u64 k = 0; k < blocks && error_.empty(); k++) {
        const u64 which = shape.order == Order::forward   ? k
                          : shape.order == Order::reverse ? blocks - 1 - k
                                                          : order[k];
        run_block(block_at(shape.only != nullptr ? shape.only[which] : which));
    }
    shared_->end_launch();
    return error_;
}

Index3 Engine::block_at(u64 k) const {
    const u64 gx = shape_.grid.x, gy = shape_.grid.y;
    return {static_cast<u32>(k % gx), static_cast<u32>(k / gx % gy), static_cast<u32>(k / (gx * gy))};
}

bool Engine::prepare_threads() {
    if (!stacks_.reserve(count_)) return false;
    if (threads_.size() < count_) threads_.resize(count_);
    const Index3 b = shape_.block;
    for (u32 id = 0; id < count_; id++) {
        Thread& t = threads_[id];
        t.index = {id % b.x, id / b.x % b.y, id / (b.x * b.y)};
        t.id = id;
        t.lane = id % warp_size;
        t.warp = id / warp_size;
        t.fiber.stack = stacks_.stack(id);
        t.fiber.stack_bytes = StackPool::stack_bytes();
        t.fiber.prepare(&Engine::thread_main);
    }
    return true;
}

void Engine::run_block(Index3 block) {
    block_index = block;
    shared_->begin_block(shape_.shared_bytes);
    exited_ = at_block_ = 0;
    idle_ = 0;
    bulk_copies_.clear();
    ready_warps_ = 0;
    for (u32 w = 0; w * warp_size < count_; w++) {
        warps_[w].exists = low_bits(count_ - w * warp_size);
        warps_[w].exited = 0;
        warps_[w].meetings = 0;
        warps_[w].ready = 0;
    }
    for (u32 id = 0; id < count_; id++) {
        threads_[id].copies.clear();
        threads_[id].group_ends.clear();
        make_ready(threads_[id]);
    }
    rewind();
    release(this);
    resume(pick(true));
    // Back here: every thread has exited, one has failed, or none can go on.
    current_ = nullptr;
    acquire(&main_);
    if (!error_.empty()) return;
    if (exited_ != count_) {
        report_deadlock();
        return;
    }
    const std::string damage = shared_->damage();
    if (!damage.empty()) report(nullptr, Site{}, "shared memory out of bounds: " + damage);
}

// The body of every fiber: one round per block.
void Engine::thread_main() {
    fiber_started(engine->main_);
    for (;;) {
        acquire(engine);
        engine->kernel_->entry(engine->arguments_);
        engine->leave();
    }
}

void Engine::leave() {
    Thread& t = *current_;
    t.state = State::exited;
    exited_++;
    warps_[t.warp].exited |= 1u << t.lane;
    progress();
    if (at_block_ > 0) {
        stop(barrier_site_, "the barrier is reached by only part of the block: this thread waits "
                            "there, and another has exited");
    }
    resume(pick(false));
}

// ---- choosing who runs ----------------------------------------------------------------------

void Engine::make_ready(Thread& t) {
    t.state = State::ready;
    warps_[t.warp].ready |= 1u << t.lane;
    ready_warps_ |= 1u << t.warp;
}

// The next choice starts from the first thread of the order.
void Engine::rewind() {
    const u32 before_first = shape_.order == Order::reverse ? 0 : 31;
    cursor_ = before_first;
    for (u32 w = 0; w * warp_size < count_; w++) warps_[w].last = before_first;
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
Thread* Engine::pick(bool leave_warp) {
    if (ready_warps_ == 0) return nullptr;
    if (shape_.order == Order::random) leave_warp = leave_warp || random_() % 4 == 0;
    if (leave_warp || warps_[cursor_].ready == 0) cursor_ = next_bit(ready_warps_, cursor_);
    Warp& w = warps_[cursor_];
    w.last = next_bit(w.ready, w.last);
    w.ready &= ~(1u << w.last);
    if (w.ready == 0) ready_warps_ &= ~(1u << cursor_);
    return &threads_[cursor_ * warp_size + w.last];
}

void Engine::resume(Thread* next) {
    ticks_++;
    Thread* from = current_;
    if (next == from) return;
    if (from != nullptr) release(&main_);
    current_ = next;
    if (next != nullptr) {
        thread_index = next->index;
        lane = next->lane;
    }
    switch_fiber(from != nullptr ? from->fiber : main_, next != nullptr ? next->fiber : main_);
}

void Engine::give_way(bool leave_warp) { resume(pick(leave_warp)); }

void Engine::pause(Site site) {
    Thread& t = *current_;
    calls_ = 0;
    if (++idle_ > max_idle_pauses) {
        stop(site, "waits for something that never comes: no thread of the block makes progress");
    }
    make_ready(t);
    give_way(true);
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
    if (exited_ > 0) {
        stop(site, "the barrier is reached by only part of the block: other threads have exited");
    }
    if (at_block_ == 0) {
        barrier_site_ = site;
        barrier_op_ = op;
        barrier_votes_ = 0;
    } else if (op != barrier_op_ || site.line != barrier_site_.line ||
               std::strcmp(site.file, barrier_site_.file) != 0) {
        const std::string text = "the threads of the block wait at different barriers: others at " +
                                 format_site(barrier_site_);
        stop(site, text.c_str());
    }
    barrier_votes_ += predicate != 0;
    t.state = State::at_block;
    t.site = site;
    // Two addresses: a thread that is late to leave this barrier learns nothing from the next one.
    char* const meeting_point = &barrier_parity_[barriers_ % 2];
    release(meeting_point);
    if (++at_block_ == count_) release_block();
    give_way(true);
    acquire(meeting_point);
    // Nobody can complete the next barrier before this thread has read the result of this one.
    return barrier_result_;
}

void Engine::release_block() {
    const u32 votes = barrier_votes_;
    switch (barrier_op_) {
    case BarrierOp::sync: barrier_result_ = 0; break;
    case BarrierOp::count: barrier_result_ = static_cast<int>(votes); break;
    case BarrierOp::any: barrier_result_ = votes > 0; break;
    case BarrierOp::all: barrier_result_ = votes == count_; break;
    }
    at_block_ = 0;
    barriers_++;
    progress();
    for (u32 id = 0; id < count_; id++) make_ready(threads_[id]);
    rewind();
}

u64 Engine::meet_warp(u32 mask, WarpOp op, u64 value, u32 source, Site site) {
    Thread& t = *current_;
    Warp& w = warps_[t.warp];
    const u32 bit = 1u << t.lane;
    if ((mask & bit) == 0) {
        stop(site, ("the calling lane is not in its own mask " + format_mask(mask)).c_str());
    }
    // Lanes that a last, partial warp does not have may stand in the mask.
    mask &= w.exists;
    if ((mask & w.exited) != 0) {
        const std::string text = "lane " + std::to_string(lowest(mask & w.exited)) + " of the mask " +
                                 format_mask(mask) + " has exited";
        stop(site, text.c_str());
    }
    u32 k = 0;
    while (k < w.meetings && w.meeting[k].mask != mask) k++;
    Meeting& m = w.meeting[k];
    if (k == w.meetings) {
        m = {mask, 0, op};
        w.meetings++;
    } else if (m.op != op) {
        const Thread& other = threads_[t.warp * warp_size + lowest(m.arrived)];
        stop(site, ("the lanes of the mask call different intrinsics: lane " +
                    std::to_string(other.lane) + " is at " + format_site(other.site))
                       .c_str());
    }
    m.arrived |= bit;
    t.state = State::at_warp;
    t.site = site;
    t.mask = mask;
    t.value = value;
    t.source = source;
    release(&t.value);
    if (m.arrived == mask) {
        complete(w, m);
        m = w.meeting[--w.meetings];
        progress();
    }
    give_way(false);
    acquire(&t.result);
    return t.result;
}

void Engine::complete(Warp& w, const Meeting& m) {
    Thread* const lanes = &threads_[static_cast<size_t>(&w - warps_) * warp_size];
    const auto each = [&](auto&& visit) {
        for (u32 rest = m.mask; rest != 0; rest &= rest - 1) visit(lanes[lowest(rest)]);
    };
    // All lanes get the same result, folded over the lanes.
    const auto fold = [&](u64 start, auto&& join) {
        u64 all = start;
        each([&](Thread& t) { all = join(all, t.value); });
        each([&](Thread& t) { t.result = all; });
    };
    each([&](Thread& t) { acquire(&t.value); });
    each([&](Thread& t) { release(&t.result); });
    const u64 first = lanes[lowest(m.mask)].value;
    const auto as_signed = [](u64 v) { return static_cast<int>(static_cast<u32>(v)); };
    switch (m.op) {
    case WarpOp::sync: break;
    case WarpOp::shuffle:
        each([&](Thread& t) {
            if ((m.mask >> t.source & 1u) == 0) {
                const std::string text = "shuffle: lane " + std::to_string(t.lane) + " reads lane " +
                                         std::to_string(t.source) + ", which is not in the mask " +
                                         format_mask(m.mask);
                stop(t.site, text.c_str());
            }
            t.result = lanes[t.source].value;
        });
        break;
    case WarpOp::ballot:
    case WarpOp::any:
    case WarpOp::all: {
        u32 votes = 0;
        each([&](Thread& t) { votes |= (t.value != 0 ? 1u : 0u) << t.lane; });
        const u64 result = m.op == WarpOp::ballot ? votes
                           : m.op == WarpOp::any  ? u64{votes != 0}
                                                  : u64{votes == m.mask};
        each([&](Thread& t) { t.result = result; });
        break;
    }
    case WarpOp::match_any:
        each([&](Thread& t) {
            u32 same = 0;
            each([&](Thread& o) { same |= (o.value == t.value ? 1u : 0u) << o.lane; });
            t.result = same;
        });
        break;
    case WarpOp::match_all: {
        bool same = true;
        each([&](Thread& t) { same = same && t.value == first; });
        each([&](Thread& t) { t.result = same ? m.mask : 0u; });
        break;
    }
    case WarpOp::add: fold(0, [](u64 a, u64 b) { return u64{static_cast<u32>(a + b)}; }); break;
    case WarpOp::min_signed:
        fold(first, [&](u64 a, u64 b) { return as_signed(b) < as_signed(a) ? b : a; });
        break;
    case WarpOp::max_signed:
        fold(first, [&](u64 a, u64 b) { return as_signed(a) < as_signed(b) ? b : a; });
        break;
    case WarpOp::min_unsigned: fold(first, [](u64 a, u64 b) { return b < a ? b : a; }); break;
    case WarpOp::max_unsigned: fold(first, [](u64 a, u64 b) { return a < b ? b : a; }); break;
    case WarpOp::bit_and: fold(first, [](u64 a, u64 b) { return a & b; }); break;
    case WarpOp::bit_or: fold(first, [](u64 a, u64 b) { return a | b; }); break;
    case WarpOp::bit_xor: fold(0, [](u64 a, u64 b) { return a ^ b; }); break;
    }
    // The lanes go on in the order of the launch, from its first one.
    w.last = shape_.order == Order::reverse ? 0 : 31;
    each([&](Thread& t) { make_ready(t); });
}

// ---- errors ---------------------------------------------------------------------------------

void* Engine::static_shared(const void* tag, size_t bytes, size_t alignment) {
    void* at = nullptr;
    {
        const Unseen unseen;
        at = shared_->object(tag, bytes, alignment);
    }
    if (at == nullptr) {
        stop(Site{}, ("the block needs more than " + std::to_string(max_shared_bytes) +
                      " bytes of shared memory: " + std::to_string(shared_->used_bytes()) + " and " +
                      std::to_string(bytes))
                         .c_str());
    }
    return at;
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
    if (!shared_->holds(copy.to, copy.bytes)) {
        stop(copy.site, ("the destination of a copy of " + size + " is not in shared memory").c_str());
    }
}

std::string Engine::where(const Thread& t) const {
    return "thread " + format_index(t.index) + ", lane " + std::to_string(t.lane);
}

void Engine::report(const Thread* t, Site site, const std::string& text) {
    std::string name = kernel_->expression;
    if (name.front() == '(' && name.back() == ')') name = name.substr(1, name.size() - 2);
    error_ = "kernel " + name + ", block " + format_index(block_index);
    if (t != nullptr) error_ += ", " + where(*t);
    if (site.file != nullptr) error_ += ", " + format_site(site);
    error_ += ": " + text;
}

void Engine::stop(Site site, const char* text) {
    report(current_, site, text);
    resume(nullptr);
    __builtin_unreachable();
}

// No thread can run: names the first lane that waits and a lane that it waits for.
void Engine::report_deadlock() {
    for (u32 id = 0; id < count_; id++) {
        const Thread& t = threads_[id];
        if (t.state != State::at_warp) continue;
        for (u32 rest = t.mask; rest != 0; rest &= rest - 1) {
            const Thread& other = threads_[t.warp * warp_size + lowest(rest)];
            const std::string name = "lane " + std::to_string(other.lane) + " of the mask " +
                                     format_mask(t.mask);
            if (other.state == State::exited) {
                return report(&t, t.site, name + " has exited without arriving here");
            }
            if (other.state == State::at_block) {
                return report(&t, t.site, name + " waits at the block barrier of " +
                                              format_site(other.site) + " instead");
            }
            if (other.state == State::at_warp && other.mask != t.mask) {
                return report(&t, t.site, "the lanes disagree on the mask: " + name + " waits at " +
                                              format_site(other.site) + " with the mask " +
                                              format_mask(other.mask));
            }
        }
    }
    report(nullptr, barrier_site_, "the barrier is reached by only part of the block");
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
void* dynamic_shared_base() { return SharedMemory::of_this_thread().dynamic_base(); }
void* static_shared_object(const void* tag, size_t bytes, size_t alignment) {
    return engine->static_shared(tag, bytes, alignment);
}

} // namespace emu
