// Atomic functions, for the types that CUDA has them for.
//
// One launch runs on one operating-system thread, so a plain read and write is atomic. In random
// order every atomic function is also a point where other threads may run.
#pragma once

namespace emu {

// T in a parameter that takes no part in deduction, so that `atomicAdd(&u32_value, 1)` works.
template <class T> struct Same {
    using type = T;
};
template <class T> using same = typename Same<T>::type;

template <class T, class... Allowed>
constexpr bool one_of = (std::is_same_v<T, Allowed> || ...);

template <class T, class F> T read_modify_write(T* at, F change) {
    maybe_preempt();
    // Relaxed atomics compile to plain accesses, and tell ThreadSanitizer that they are atomic.
    T old;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    T now = change(old);
    __atomic_store(at, &now, __ATOMIC_RELAXED);
    return old;
}

} // namespace emu

#define EMU_ATOMIC(name, result, ...)                                                              \
    template <class T> T name(T* at, emu::same<T> value) {                                         \
        static_assert(emu::one_of<T, __VA_ARGS__>, "CUDA has no " #name " for this type");         \
        return emu::read_modify_write(at, [&](T old) { return static_cast<T>(result); });          \
    }                                                                                              \
    template <class T> T name##_block(T* at, emu::same<T> value) { return name(at, value); }

EMU_ATOMIC(atomicAdd, old + value, int, unsigned, unsigned long long, float, double)
EMU_ATOMIC(atomicSub, old - value, int, unsigned)
EMU_ATOMIC(atomicMax, old < value ? value : old, int, unsigned, long long, unsigned long long)
EMU_ATOMIC(atomicMin, value < old ? value : old, int, unsigned, long long, unsigned long long)
EMU_ATOMIC(atomicExch, value, int, unsigned, unsigned long long, float)
EMU_ATOMIC(atomicAnd, old & value, int, unsigned, unsigned long long)
EMU_ATOMIC(atomicOr, old | value, int, unsigned, unsigned long long)
EMU_ATOMIC(atomicXor, old ^ value, int, unsigned, unsigned long long)
EMU_ATOMIC(atomicInc, old >= value ? 0u : old + 1u, unsigned)
EMU_ATOMIC(atomicDec, (old == 0u || old > value) ? value : old - 1u, unsigned)
#undef EMU_ATOMIC

template <class T> T atomicCAS(T* at, emu::same<T> expected, emu::same<T> value) {
    static_assert(emu::one_of<T, int, unsigned, unsigned long long, unsigned short>,
                  "CUDA has no atomicCAS for this type");
    return emu::read_modify_write(at, [&](T old) { return old == expected ? value : old; });
}
