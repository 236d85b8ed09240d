// The shared memory of the block that runs, with guards between its objects.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emu {

// 227 KiB: what one block may have on sm_90.
constexpr size_t max_shared_bytes = 232448;

// One per operating-system thread.
class SharedMemory {
  public:
    static SharedMemory& of_this_thread();

    SharedMemory();
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    // Poisons the dynamic part with NaN bytes and forgets the static objects.
    void begin_block(size_t dynamic_bytes);
    // The object of this tag; poisoned when the block asks for the first time. Null: too large.
    void* object(const void* tag, size_t bytes, size_t alignment);
    // Whether the range lies in the dynamic part or in one static object.
    bool holds(const void* at, size_t bytes) const;
    // Empty, or what was written outside of the objects.
    std::string damage() const;
    // Lets code outside of launches use the memory.
    void end_launch();

    void* dynamic_base() const { return dynamic_; }
    size_t used_bytes() const { return used_; }

  private:
    struct Object {
        const void* tag;
        char* at;
        size_t bytes;
    };

    void guard(char* from, size_t bytes);

    char* memory_ = nullptr;
    char* dynamic_ = nullptr;
    size_t dynamic_bytes_ = 0;
    char* next_ = nullptr; // end of the last object, after its guard
    size_t used_ = 0;
    std::vector<Object> objects_;
};

} // namespace emu
