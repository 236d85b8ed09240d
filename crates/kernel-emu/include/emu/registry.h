// The table of kernels that can be launched by name.
#pragma once

#include <type_traits>
#include <utility>

#include "engine.h"

extern "C" {

// One registered template instance. Read by src/ffi.rs: same fields, same order.
struct EmuKernel {
    const char* expression;
    const char* module;
    void (*entry)(void** arguments); // runs one CUDA thread
    const unsigned* parameter_bytes;
    unsigned parameter_count;
};

} // extern "C"

namespace emu {

void add_kernel(const EmuKernel& kernel);

template <class T> using bare = std::remove_cv_t<T>;

// Unpacks the arguments of one kernel, as cuLaunchKernel does: a pointer to each.
template <class... A> struct Unpack {
    static constexpr u32 bytes[sizeof...(A) + 1] = {static_cast<u32>(sizeof(A))..., 0};

    template <void (*kernel)(A...), size_t... K>
    static void call(void** arguments, std::index_sequence<K...>) {
        (void)arguments;
        kernel(*static_cast<const bare<A>*>(arguments[K])...);
    }
};

template <auto kernel> struct Entry;
template <class... A, void (*kernel)(A...)> struct Entry<kernel> {
    static void run(void** arguments) {
        Unpack<A...>::template call<kernel>(arguments, std::index_sequence_for<A...>{});
    }
    static EmuKernel record(const char* expression, const char* module) {
        return {expression, module, &run, Unpack<A...>::bytes, static_cast<u32>(sizeof...(A))};
    }
};

} // namespace emu

// Registers a template instance under its C++ name expression: EMU_REGISTER((csr<double, 8>)).
// EMU_MODULE is defined by the generated source file of the module.
#define EMU_REGISTER(...)                                                                          \
    ::emu::add_kernel(::emu::Entry<__VA_ARGS__>::record(#__VA_ARGS__, EMU_MODULE));
