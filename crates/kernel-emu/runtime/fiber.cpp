#include "fiber.h"

#include <cstdint>
#include <sys/mman.h>

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifndef EMU_UCONTEXT
// Saves the registers that a call preserves, exchanges the stacks, restores them. The caller-saved
// registers are dead here because the compiler sees an ordinary call.
extern "C" void emu_switch_stack(void** save, void* load);
asm(R"(
    .text
    .p2align 4
    .type emu_switch_stack, @function
emu_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_switch_stack, .-emu_switch_stack
)");
#endif

namespace emu {

namespace {

constexpr size_t page_bytes = 4096;

} // namespace

void Fiber::prepare(void (*entry)()) {
#ifdef EMU_ASAN
    // An abandoned fiber leaves the shadow of its frames behind.
    __asan_unpoison_memory_region(stack, stack_bytes);
    sanitizer = nullptr;
#endif
#ifdef EMU_TSAN
    if (sanitizer != nullptr) __tsan_destroy_fiber(sanitizer);
    sanitizer = __tsan_create_fiber(0);
#endif
#ifdef EMU_UCONTEXT
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
#else
    // From the top: a null return address for `entry`, the address of `entry`, six registers.
    // `entry` starts as after a call: its stack pointer is 8 below a multiple of 16.
    auto top = (reinterpret_cast<uintptr_t>(stack) + stack_bytes) & ~uintptr_t{15};
    auto* slot = reinterpret_cast<void**>(top - 16);
    slot[1] = nullptr;
    slot[0] = reinterpret_cast<void*>(entry);
    for (int k = 1; k <= 6; k++) *(slot - k) = nullptr;
    stack_pointer = slot - 6;
#endif
}

void Fiber::adopt_thread() {
#ifdef EMU_TSAN
    sanitizer = __tsan_get_current_fiber();
#endif
}

void fiber_started(Fiber& starter) {
#ifdef EMU_ASAN
    const void* low = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &low, &bytes);
    if (starter.stack_bytes == 0 || starter.stack == low) {
        starter.stack = const_cast<char*>(static_cast<const char*>(low));
        starter.stack_bytes = bytes;
    }
#else
    (void)starter;
#endif
}

void switch_fiber(Fiber& from, Fiber& to) {
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&from.sanitizer, to.stack, to.stack_bytes);
#endif
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(to.sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef EMU_UCONTEXT
    swapcontext(&from.context, &to.context);
#else
    emu_switch_stack(&from.stack_pointer, to.stack_pointer);
#endif
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(from.sanitizer, nullptr, nullptr);
#endif
}

size_t StackPool::stack_bytes() {
#if defined(EMU_ASAN) || defined(EMU_TSAN)
    return size_t{256} << 10;
#else
    return size_t{64} << 10;
#endif
}

bool StackPool::reserve(size_t count) {
    if (count <= count_) return true;
    const size_t stride = stack_bytes() + page_bytes;
    void* memory = mmap(nullptr, count * stride, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    for (size_t k = 0; k < count; k++) {
        if (mprotect(static_cast<char*>(memory) + k * stride, page_bytes, PROT_NONE) != 0) {
            munmap(memory, count * stride);
            return false;
        }
    }
    if (memory_ != nullptr) munmap(memory_, count_ * stride);
    memory_ = static_cast<char*>(memory);
    count_ = count;
    return true;
}

char* StackPool::stack(size_t k) const {
    return memory_ + k * (stack_bytes() + page_bytes) + page_bytes;
}

StackPool::~StackPool() {
    if (memory_ != nullptr) munmap(memory_, count_ * (stack_bytes() + page_bytes));
}

} // namespace emu
