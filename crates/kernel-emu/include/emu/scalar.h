// Scalar functions: arithmetic, bits, loads with cache hints.
#pragma once

// min and max follow CUDA: mixed integer types meet in their common type, and a NaN loses
// against a number.
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    static_assert(std::is_arithmetic_v<T>, "min takes numbers");
    if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(std::fmin(static_cast<T>(a), static_cast<T>(b)));
    } else {
        return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
    }
}

template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    static_assert(std::is_arithmetic_v<T>, "max takes numbers");
    if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(std::fmax(static_cast<T>(a), static_cast<T>(b)));
    } else {
        return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
    }
}

inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fdividef(float a, float b) { return a / b; }
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }
inline float rsqrt(float a) { return 1.0f / std::sqrt(a); }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
inline int __clzll(long long v) {
    return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v));
}
inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int bit = 0; bit < 32; bit++) r |= ((v >> bit) & 1u) << (31 - bit);
    return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}

namespace emu {
template <class To, class From> To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace emu
inline long long __double_as_longlong(double v) { return emu::bits_as<long long>(v); }
inline double __longlong_as_double(long long v) { return emu::bits_as<double>(v); }
inline int __float_as_int(float v) { return emu::bits_as<int>(v); }
inline unsigned __float_as_uint(float v) { return emu::bits_as<unsigned>(v); }
inline float __int_as_float(int v) { return emu::bits_as<float>(v); }
inline float __uint_as_float(unsigned v) { return emu::bits_as<float>(v); }
inline int __double2int_rn(double v) { return static_cast<int>(std::nearbyint(v)); }
inline int __float2int_rn(float v) { return static_cast<int>(std::nearbyint(v)); }

// Cache hints are plain accesses.
template <class T> T __ldg(const T* at) { return *at; }
template <class T> T __ldca(const T* at) { return *at; }
template <class T> T __ldcg(const T* at) { return *at; }
template <class T> T __ldcs(const T* at) { return *at; }
template <class T> T __ldlu(const T* at) { return *at; }
template <class T> T __ldcv(const T* at) { return *at; }
template <class T> void __stwb(T* at, std::common_type_t<T> v) { *at = v; }
template <class T> void __stcg(T* at, std::common_type_t<T> v) { *at = v; }
template <class T> void __stcs(T* at, std::common_type_t<T> v) { *at = v; }
template <class T> void __stwt(T* at, std::common_type_t<T> v) { *at = v; }
