// The shared memory of the blocks that run, with guards between its objects.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emu {

// 227 KiB: what one block may have on sm_90.
constexpr size_t max_shared_bytes = 232448;

// One per operating-system thread. The blocks of a cluster have memory of their own each, in which every
// object has the same place.
class SharedMemory {
  public:
    static SharedMemory& of_this_thread();

    SharedMemory() = default;
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    // Poisons the dynamic parts of so many blocks with NaN bytes and forgets the static objects.
    void begin_blocks(size_t blocks, size_t dynamic_bytes);
    // Poisons what a block has so far, again.
    void poison_block(size_t block);
    // The object of this tag; poisoned when a block asks for the first time. Null: too large.
    void* object(size_t block, const void* tag, size_t bytes, size_t alignment);
    // Whether the range lies in the block's dynamic part or in one of its static objects.
    bool holds(size_t block, const void* at, size_t bytes) const;
    // The place in the memory of block `to` that `at` has in that of `from`.
    const void* same_place(const void* at, size_t from, size_t to) const;
    // Empty, or what was written outside of the objects.
    std::string damage(size_t block) const;
    // The block has ended: what others read there is poison.
    void end_block(size_t block);
    // Whether something was written to the memory of a block that had ended.
    bool written_after_end(size_t block) const;
    // Lets code outside of launches use the memory.
    void end_launch();

    void* dynamic_base(size_t block) const;
    size_t used_bytes() const { return used_; }

  private:
    // Places are counted from the start of a block's memory.
    struct Object {
        const void* tag;
        size_t at, bytes;
    };
    struct Memory {
        char* start;
        bool ended;      // or not of this cluster
        size_t poisoned; // bytes, when it ended
    };

    std::vector<Memory> memories_;
    size_t dynamic_bytes_ = 0;
    size_t next_ = 0; // end of the last object, after its guard
    size_t used_ = 0;
    std::vector<Object> objects_;
};

} // namespace emu
