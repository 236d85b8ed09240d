// Qualifiers, built-in variables and vector types.
#pragma once

// Kernel code sits in an unnamed namespace, so these need no `inline`. `__shared__` is left
// undefined on purpose: the build replaces it, and one that was missed must not compile.
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __managed__
#define __forceinline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif

#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif

#define threadIdx (::emu::thread_index)
#define blockIdx (::emu::block_index)
#define blockDim (::emu::block_dim)
#define gridDim (::emu::grid_dim)
#define warpSize 32

using uint3 = emu::Index3;

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

// Alignment as on the device: a misaligned vector access is an error there, and here.
#define EMU_VECTORS(T, name, a2, a4)                                                               \
    struct name##1 {                                                                               \
        T x;                                                                                       \
    };                                                                                             \
    struct alignas(a2) name##2 {                                                                   \
        T x, y;                                                                                    \
    };                                                                                             \
    struct alignas(a4) name##4 {                                                                   \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    inline name##1 make_##name##1(T x) { return {x}; }                                             \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                     \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned, uint, 8, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)
#undef EMU_VECTORS

struct int3 {
    int x, y, z;
};
struct float3 {
    float x, y, z;
};
struct double3 {
    double x, y, z;
};
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline double3 make_double3(double x, double y, double z) { return {x, y, z}; }

#undef assert
#define assert(condition)                                                                          \
    ((condition) ? (void)0                                                                         \
                 : ::emu::fail(::emu::Site{__FILE__, __LINE__}, "assertion failed: %s", #condition))

[[noreturn]] inline void __trap(EMU_SITE) { emu::fail(EMU_HERE, "__trap was called"); }
