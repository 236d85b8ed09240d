// What compiled kernels call at every access, for the library without a sanitizer: nothing.
//
// Kernels are compiled once. In the library with AddressSanitizer these names are the sanitizer's own
// (build.rs: WATCHED).

#include <cstddef>

#define EMU_UNWATCHED(name)                                                                        \
    __attribute__((visibility("hidden"))) void __asan_##name(const volatile void*) {}
#define EMU_UNWATCHED_RANGE(name)                                                                  \
    __attribute__((visibility("hidden"))) void __asan_##name(const volatile void*, size_t) {}

extern "C" {

EMU_UNWATCHED(load1)
EMU_UNWATCHED(load2)
EMU_UNWATCHED(load4)
EMU_UNWATCHED(load8)
EMU_UNWATCHED(load16)
EMU_UNWATCHED(store1)
EMU_UNWATCHED(store2)
EMU_UNWATCHED(store4)
EMU_UNWATCHED(store8)
EMU_UNWATCHED(store16)
EMU_UNWATCHED_RANGE(loadN)
EMU_UNWATCHED_RANGE(storeN)

__attribute__((visibility("hidden"))) void __asan_init() {}
__attribute__((visibility("hidden"))) void __asan_version_mismatch_check_v8() {}
__attribute__((visibility("hidden"))) void __asan_handle_no_return() {}

} // extern "C"
