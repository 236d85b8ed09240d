// Masks of lanes, and what messages say of threads and places.
#pragma once

#include "engine.h"

#include <cstdio>
#include <string>

namespace emu {

inline u32 low_bits(u32 count) { return count >= 32 ? ~0u : (1u << count) - 1; }
inline u32 lowest(u32 mask) { return static_cast<u32>(__builtin_ctz(mask)); }
inline u32 highest(u32 mask) { return 31u - static_cast<u32>(__builtin_clz(mask)); }

inline std::string format_index(Index3 i) {
    return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

inline std::string format_mask(u32 mask) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08x", mask);
    return text;
}

inline std::string format_site(Site site) {
    if (site.file == nullptr) return {};
    return std::string(site.file) + ":" + std::to_string(site.line);
}

} // namespace emu
