#include "shared.h"

#include "fiber.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace emu {

namespace {

constexpr unsigned char poison = 0xff; // a NaN in every floating-point type, -1 as an integer
constexpr size_t guard_bytes = 1024;   // also the largest alignment
constexpr size_t arena_bytes = 3 * max_shared_bytes / guard_bytes * guard_bytes;
constexpr size_t dynamic_at = guard_bytes;

size_t align_up(size_t at, size_t alignment) { return (at + alignment - 1) / alignment * alignment; }

void guard(char* from, size_t bytes) {
#ifdef EMU_ASAN
    __asan_poison_memory_region(from, bytes);
#else
    std::memset(from, poison, bytes);
#endif
}

// The first byte that is not poison; null: all are.
const char* first_change(const char* from, const char* to) {
    static const std::vector<char> intact(guard_bytes, static_cast<char>(poison));
    while (from < to) {
        const size_t part = std::min<size_t>(guard_bytes, static_cast<size_t>(to - from));
        if (std::memcmp(from, intact.data(), part) != 0) {
            return std::find_if(from, from + part,
                                [](char c) { return c != static_cast<char>(poison); });
        }
        from += part;
    }
    return nullptr;
}

} // namespace

SharedMemory& SharedMemory::of_this_thread() {
    thread_local SharedMemory memory;
    return memory;
}

SharedMemory::~SharedMemory() {
    end_launch();
    for (const Memory& m : memories_) std::free(m.start);
}

void* SharedMemory::dynamic_base(size_t block) const { return memories_[block].start + dynamic_at; }

void SharedMemory::begin_blocks(size_t blocks, size_t dynamic_bytes) {
    end_launch();
    // Aligned to the largest alignment, so that objects of all blocks can have the same places.
    while (memories_.size() < blocks) {
        char* start = static_cast<char*>(std::aligned_alloc(guard_bytes, arena_bytes));
        if (start == nullptr) throw std::bad_alloc();
        memories_.push_back({start, true, 0});
    }
    objects_.clear();
    dynamic_bytes_ = dynamic_bytes;
    used_ = dynamic_bytes;
    next_ = dynamic_at + dynamic_bytes + guard_bytes;
    for (size_t block = 0; block < memories_.size(); block++) {
        Memory& m = memories_[block];
        m.ended = block >= blocks;
        m.poisoned = 0;
        if (m.ended) continue;
        std::memset(m.start + dynamic_at, poison, dynamic_bytes);
        guard(m.start, guard_bytes);
        guard(m.start + dynamic_at + dynamic_bytes, guard_bytes);
    }
}

void SharedMemory::poison_block(size_t block) {
    char* start = memories_[block].start;
    std::memset(start + dynamic_at, poison, dynamic_bytes_);
    for (const Object& o : objects_) std::memset(start + o.at, poison, o.bytes);
}

void* SharedMemory::object(size_t block, const void* tag, size_t bytes, size_t alignment) {
    char* own = memories_[block].start;
    for (const Object& o : objects_) {
        if (o.tag == tag) return own + o.at;
    }
    if (used_ + bytes > max_shared_bytes) return nullptr;
    const size_t at = align_up(next_, std::max<size_t>(alignment, 16));
    if (at + bytes + guard_bytes > arena_bytes) return nullptr;
    for (const Memory& m : memories_) {
        if (m.ended) continue;
        // The gap that the alignment left belongs to the guard below the object.
        guard(m.start + next_, at - next_);
        std::memset(m.start + at, poison, bytes);
        guard(m.start + at + bytes, guard_bytes);
    }
    next_ = at + bytes + guard_bytes;
    used_ += bytes;
    objects_.push_back({tag, at, bytes});
    return own + at;
}

bool SharedMemory::holds(size_t block, const void* pointer, size_t bytes) const {
    const char* at = static_cast<const char*>(pointer);
    const char* own = memories_[block].start;
    const auto within = [&](const char* from, size_t length) {
        return at >= from && bytes <= length && at <= from + (length - bytes);
    };
    if (within(own + dynamic_at, dynamic_bytes_)) return true;
    return std::any_of(objects_.begin(), objects_.end(),
                       [&](const Object& o) { return within(own + o.at, o.bytes); });
}

const void* SharedMemory::same_place(const void* at, size_t from, size_t to) const {
    return memories_[to].start + (static_cast<const char*>(at) - memories_[from].start);
}

std::string SharedMemory::damage(size_t block) const {
#ifndef EMU_ASAN
    const char* own = memories_[block].start;
    const char* dynamic = own + dynamic_at;
    if (const char* at = first_change(own, dynamic)) {
        return "written " + std::to_string(dynamic - at) + " bytes before the dynamic shared memory";
    }
    const char* from = dynamic + dynamic_bytes_;
    size_t length = dynamic_bytes_;
    const char* what = "the dynamic shared memory";
    for (size_t k = 0; k <= objects_.size(); k++) {
        const char* to = own + (k < objects_.size() ? objects_[k].at : next_);
        if (const char* at = first_change(from, to)) {
            return "written " + std::to_string(at - from) + " bytes past the end of " + what + " (" +
                   std::to_string(length) + " bytes)";
        }
        if (k == objects_.size()) break;
        from = own + objects_[k].at + objects_[k].bytes;
        length = objects_[k].bytes;
        what = "a static shared variable";
    }
#else
    (void)block;
    (void)first_change;
#endif
    return {};
}

void SharedMemory::end_block(size_t block) {
    Memory& m = memories_[block];
    m.ended = true;
    m.poisoned = next_;
    guard(m.start, next_);
}

bool SharedMemory::written_after_end(size_t block) const {
#ifndef EMU_ASAN
    const Memory& m = memories_[block];
    return first_change(m.start, m.start + m.poisoned) != nullptr;
#else
    (void)block;
    return false;
#endif
}

void SharedMemory::end_launch() {
#ifdef EMU_ASAN
    for (const Memory& m : memories_) __asan_unpoison_memory_region(m.start, arena_bytes);
#endif
}

} // namespace emu
