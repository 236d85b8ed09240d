// A stack and the registers saved on it; switching between two of them.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
// EMU_TSAN is defined by the build when the kernels, not the runtime, are compiled with
// ThreadSanitizer.

#if !defined(__x86_64__) || defined(EMU_FORCE_UCONTEXT)
#define EMU_UCONTEXT 1
#include <ucontext.h>
#endif

namespace emu {

struct Fiber {
#ifdef EMU_UCONTEXT
    ucontext_t context;
#else
    void* stack_pointer = nullptr;
#endif
    // Empty for the fiber that is the operating-system thread itself.
    char* stack = nullptr;
    size_t stack_bytes = 0;
    void* sanitizer = nullptr; // AddressSanitizer: saved fake stack; ThreadSanitizer: its fiber

    // Makes the next switch to this fiber call `entry`, which must not return.
    void prepare(void (*entry)());
    // For the operating-system thread: makes it known to the sanitizers.
    void adopt_thread();
};

// Suspends `from`, which runs now, and resumes `to`.
void switch_fiber(Fiber& from, Fiber& to);

// To be called first thing in a new fiber; `starter` is the fiber that switched to it.
void fiber_started(Fiber& starter);

// Memory for `count` stacks with a guard page below each.
class StackPool {
  public:
    StackPool() = default;
    ~StackPool();
    StackPool(const StackPool&) = delete;
    StackPool& operator=(const StackPool&) = delete;

    // False when the system has no memory.
    bool reserve(size_t count);
    char* stack(size_t k) const;
    static size_t stack_bytes();

  private:
    char* memory_ = nullptr;
    size_t count_ = 0;
};

} // namespace emu
