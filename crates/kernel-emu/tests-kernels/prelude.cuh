// What the test kernels share. Has the shape of the project's prelude: types, and the asynchronous
// copies, which the emulator defines itself.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef SPARSEBATCH_EMU
#error "the test kernels run in the emulator only"
#endif

constexpr u32 full_warp = 0xffffffffu;

// Sum over groups of WIDTH lanes, in the first lane of each.
template <int WIDTH, typename V> __device__ __forceinline__ V group_sum(V value) {
#pragma unroll
    for (int offset = WIDTH / 2; offset > 0; offset /= 2) {
        value += __shfl_down_sync(full_warp, value, offset, WIDTH);
    }
    return value;
}

// Not inline and not a template: each module must get its own.
__device__ u32 ceil_div(u32 a, u32 b) { return (a + b - 1) / b; }
