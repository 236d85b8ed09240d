// What ThreadSanitizer has to know: which thread waits for which.
#pragma once

#ifdef EMU_TSAN

#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace emu {

// What the thread has done so far comes before what follows `acquire` of the same address.
inline void release(void* address) { __tsan_release(address); }
inline void acquire(void* address) { __tsan_acquire(address); }

// While one exists, memory functions called by the runtime are not taken for the kernel's.
struct Unseen {
    Unseen() {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Unseen() {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
};

} // namespace emu

#else

namespace emu {

inline void release(void*) {}
inline void acquire(void*) {}
struct Unseen {
    Unseen() {}
};

} // namespace emu

#endif
