// Block barriers and warp intrinsics.
#pragma once

inline void __syncthreads(EMU_SITE) { emu::block_meet(emu::BarrierOp::sync, 0, EMU_HERE); }
inline int __syncthreads_count(int predicate, EMU_SITE) {
    return emu::block_meet(emu::BarrierOp::count, predicate, EMU_HERE);
}
inline int __syncthreads_or(int predicate, EMU_SITE) {
    return emu::block_meet(emu::BarrierOp::any, predicate, EMU_HERE);
}
inline int __syncthreads_and(int predicate, EMU_SITE) {
    return emu::block_meet(emu::BarrierOp::all, predicate, EMU_HERE);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE) {
    emu::warp_meet(mask, emu::WarpOp::sync, 0, 0, EMU_HERE);
}

// Hardware may report any subset of the lanes that includes the caller. This reports the caller
// alone: the smallest answer, and the one that code written for a full warp does not survive.
inline unsigned __activemask() { return 1u << emu::lane; }

inline int __any_sync(unsigned mask, int predicate, EMU_SITE) {
    return static_cast<int>(emu::warp_meet(mask, emu::WarpOp::any, predicate != 0, 0, EMU_HERE));
}
inline int __all_sync(unsigned mask, int predicate, EMU_SITE) {
    return static_cast<int>(emu::warp_meet(mask, emu::WarpOp::all, predicate != 0, 0, EMU_HERE));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_SITE) {
    return static_cast<unsigned>(
        emu::warp_meet(mask, emu::WarpOp::ballot, predicate != 0, 0, EMU_HERE));
}

namespace emu {

// Types that travel between lanes: 4 and 8 bytes, as on the device.
template <class T> u64 to_bits(T value) {
    static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "shuffles move 4- and 8-byte numbers");
    u64 bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> T from_bits(u64 bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline void check_width(int width, Site site) {
    if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
        fail(site, "the width of a shuffle is a power of two up to 32, not %d", width);
    }
}

template <class T> T shuffle(u32 mask, T value, u32 source, Site site) {
    return from_bits<T>(warp_meet(mask, WarpOp::shuffle, to_bits(value), source, site));
}

} // namespace emu

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_SITE) {
    emu::check_width(width, EMU_HERE);
    const unsigned w = static_cast<unsigned>(width);
    const unsigned from = (emu::lane & ~(w - 1)) | (static_cast<unsigned>(source) & (w - 1));
    return emu::shuffle(mask, value, from, EMU_HERE);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_SITE) {
    emu::check_width(width, EMU_HERE);
    const unsigned from = emu::lane + (delta & 31u);
    const unsigned last = emu::lane | static_cast<unsigned>(width - 1);
    return emu::shuffle(mask, value, from <= last ? from : emu::lane, EMU_HERE);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_SITE) {
    emu::check_width(width, EMU_HERE);
    const unsigned first = emu::lane & ~static_cast<unsigned>(width - 1);
    const unsigned back = delta & 31u;
    return emu::shuffle(mask, value, emu::lane >= first + back ? emu::lane - back : emu::lane,
                        EMU_HERE);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, EMU_SITE) {
    emu::check_width(width, EMU_HERE);
    // Earlier groups of lanes can be read, later ones not.
    const unsigned from = emu::lane ^ (static_cast<unsigned>(lane_mask) & 31u);
    const unsigned last = emu::lane | static_cast<unsigned>(width - 1);
    return emu::shuffle(mask, value, from <= last ? from : emu::lane, EMU_HERE);
}

template <class T> unsigned __match_any_sync(unsigned mask, T value, EMU_SITE) {
    return static_cast<unsigned>(
        emu::warp_meet(mask, emu::WarpOp::match_any, emu::to_bits(value), 0, EMU_HERE));
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* predicate, EMU_SITE) {
    const unsigned same = static_cast<unsigned>(
        emu::warp_meet(mask, emu::WarpOp::match_all, emu::to_bits(value), 0, EMU_HERE));
    *predicate = same != 0;
    return same;
}

#define EMU_REDUCE(name, T, op)                                                                    \
    inline T name(unsigned mask, T value, EMU_SITE) {                                              \
        return static_cast<T>(emu::warp_meet(mask, emu::WarpOp::op,                                \
                                             static_cast<unsigned>(value), 0, EMU_HERE));          \
    }
EMU_REDUCE(__reduce_add_sync, unsigned, add)
EMU_REDUCE(__reduce_add_sync, int, add)
EMU_REDUCE(__reduce_min_sync, unsigned, min_unsigned)
EMU_REDUCE(__reduce_min_sync, int, min_signed)
EMU_REDUCE(__reduce_max_sync, unsigned, max_unsigned)
EMU_REDUCE(__reduce_max_sync, int, max_signed)
EMU_REDUCE(__reduce_and_sync, unsigned, bit_and)
EMU_REDUCE(__reduce_or_sync, unsigned, bit_or)
EMU_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef EMU_REDUCE

// Memory is always coherent here: a fence is only a point where other threads may run.
inline void __threadfence() { emu::fence(); }
inline void __threadfence_block() { emu::fence(); }
inline void __threadfence_system() { emu::fence(); }
inline void __nanosleep(unsigned, EMU_SITE) { emu::pause(EMU_HERE); }
inline long long clock64() { return static_cast<long long>(emu::ticks()); }
inline int clock() { return static_cast<int>(emu::ticks()); }
