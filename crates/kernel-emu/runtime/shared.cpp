#include "shared.h"

#include "fiber.h"

#include <algorithm>
#include <cstdint>
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
constexpr size_t arena_bytes = 3 * max_shared_bytes;

char* align_up(char* at, size_t alignment) {
    const auto address = reinterpret_cast<uintptr_t>(at);
    return at + ((address + alignment - 1) / alignment * alignment - address);
}

} // namespace

SharedMemory& SharedMemory::of_this_thread() {
    thread_local SharedMemory memory;
    return memory;
}

SharedMemory::SharedMemory() {
    memory_ = static_cast<char*>(std::aligned_alloc(guard_bytes, arena_bytes / guard_bytes * guard_bytes));
    if (memory_ == nullptr) throw std::bad_alloc();
    dynamic_ = memory_ + guard_bytes;
    next_ = dynamic_;
}

SharedMemory::~SharedMemory() {
    end_launch();
    std::free(memory_);
}

void SharedMemory::guard(char* from, size_t bytes) {
#ifdef EMU_ASAN
    __asan_poison_memory_region(from, bytes);
#else
    std::memset(from, poison, bytes);
#endif
}

void SharedMemory::begin_block(size_t dynamic_bytes) {
    end_launch();
    objects_.clear();
    dynamic_bytes_ = dynamic_bytes;
    used_ = dynamic_bytes;
    std::memset(dynamic_, poison, dynamic_bytes);
    guard(memory_, guard_bytes);
    guard(dynamic_ + dynamic_bytes, guard_bytes);
    next_ = dynamic_ + dynamic_bytes + guard_bytes;
}

void* SharedMemory::object(const void* tag, size_t bytes, size_t alignment) {
    for (const Object& o : objects_) {
        if (o.tag == tag) return o.at;
    }
    if (used_ + bytes > max_shared_bytes) return nullptr;
    char* at = align_up(next_, std::max<size_t>(alignment, 16));
    if (at + bytes + guard_bytes > memory_ + arena_bytes / guard_bytes * guard_bytes) return nullptr;
    // The gap that the alignment left belongs to the guard below the object.
    guard(next_, static_cast<size_t>(at - next_));
    std::memset(at, poison, bytes);
    guard(at + bytes, guard_bytes);
    next_ = at + bytes + guard_bytes;
    used_ += bytes;
    objects_.push_back({tag, at, bytes});
    return at;
}

bool SharedMemory::holds(const void* pointer, size_t bytes) const {
    const char* at = static_cast<const char*>(pointer);
    const auto within = [&](const char* from, size_t length) {
        return at >= from && bytes <= length && at <= from + (length - bytes);
    };
    if (within(dynamic_, dynamic_bytes_)) return true;
    return std::any_of(objects_.begin(), objects_.end(),
                       [&](const Object& o) { return within(o.at, o.bytes); });
}

std::string SharedMemory::damage() const {
#ifndef EMU_ASAN
    const auto first_change = [](const char* from, const char* to) -> const char* {
        static const std::vector<char> intact(guard_bytes, static_cast<char>(poison));
        while (from < to) {
            const size_t part = std::min<size_t>(guard_bytes, static_cast<size_t>(to - from));
            if (std::memcmp(from, intact.data(), part) != 0) {
                return std::find_if(from, from + part, [](char c) {
                    return c != static_cast<char>(poison);
                });
            }
            from += part;
        }
        return nullptr;
    };
    if (const char* at = first_change(memory_, dynamic_)) {
        return "written " + std::to_string(dynamic_ - at) + " bytes before the dynamic shared memory";
    }
    const char* from = dynamic_ + dynamic_bytes_;
    size_t length = dynamic_bytes_;
    const char* what = "the dynamic shared memory";
    for (size_t k = 0; k <= objects_.size(); k++) {
        const char* to = k < objects_.size() ? objects_[k].at : next_;
        if (const char* at = first_change(from, to)) {
            return "written " + std::to_string(at - from) + " bytes past the end of " + what + " (" +
                   std::to_string(length) + " bytes)";
        }
        if (k == objects_.size()) break;
        from = objects_[k].at + objects_[k].bytes;
        length = objects_[k].bytes;
        what = "a static shared variable";
    }
#endif
    return {};
}

void SharedMemory::end_launch() {
#ifdef EMU_ASAN
    __asan_unpoison_memory_region(memory_, arena_bytes / guard_bytes * guard_bytes);
#endif
}

} // namespace emu
