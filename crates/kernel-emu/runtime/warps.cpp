// Operations of a warp: lanes gather, and the last one to arrive computes what all get.
#include "engine.h"

#include "races.h"
#include "words.h"

namespace emu {

u64 Engine::meet_warp(u32 mask, WarpOp op, u64 value, u32 source, Site site) {
    Thread& t = *current_;
    Warp& w = block().warps[t.warp];
    const u32 bit = 1u << t.lane;
    if ((mask & bit) == 0) {
        stop(site, ("the calling lane is not in its own mask " + format_mask(mask)).c_str());
    }
    // Lanes that a last, partial warp does not have may stand in the mask.
    mask &= w.exists;
    if ((mask & w.exited) != 0) {
        const std::string text = "lane " + std::to_string(lowest(mask & w.exited)) + " of the mask " +
                                 format_mask(mask) + " has exited";
        stop(site, text.c_str());
    }
    u32 k = 0;
    while (k < w.meetings && w.meeting[k].mask != mask) k++;
    Meeting& m = w.meeting[k];
    if (k == w.meetings) {
        m = {mask, 0, op};
        w.meetings++;
    } else if (m.op != op) {
        const Thread& other = threads_of(t.block)[t.warp * warp_size + lowest(m.arrived)];
        stop(site, ("the lanes of the mask call different intrinsics: lane " +
                    std::to_string(other.lane) + " is at " + format_site(other.site))
                       .c_str());
    }
    m.arrived |= bit;
    t.state = State::at_warp;
    t.site = site;
    t.mask = mask;
    t.value = value;
    t.source = source;
    release(&t.value);
    if (m.arrived == mask) {
        complete(w, m);
        m = w.meeting[--w.meetings];
        progress();
    }
    give_way(false);
    acquire(&t.result);
    return t.result;
}

void Engine::complete(Warp& w, const Meeting& m) {
    Thread* const lanes = &threads_of(current_->block)[current_->warp * warp_size];
    const auto each = [&](auto&& visit) {
        for (u32 rest = m.mask; rest != 0; rest &= rest - 1) visit(lanes[lowest(rest)]);
    };
    // All lanes get the same result, folded over the lanes.
    const auto fold = [&](u64 start, auto&& join) {
        u64 all = start;
        each([&](Thread& t) { all = join(all, t.value); });
        each([&](Thread& t) { t.result = all; });
    };
    each([&](Thread& t) { acquire(&t.value); });
    each([&](Thread& t) { release(&t.result); });
    const u64 first = lanes[lowest(m.mask)].value;
    const auto as_signed = [](u64 v) { return static_cast<int>(static_cast<u32>(v)); };
    switch (m.op) {
    case WarpOp::sync: break;
    case WarpOp::shuffle:
        each([&](Thread& t) {
            if ((m.mask >> t.source & 1u) == 0) {
                const std::string text = "shuffle: lane " + std::to_string(t.lane) + " reads lane " +
                                         std::to_string(t.source) + ", which is not in the mask " +
                                         format_mask(m.mask);
                stop(t.site, text.c_str());
            }
            t.result = lanes[t.source].value;
        });
        break;
    case WarpOp::ballot:
    case WarpOp::any:
    case WarpOp::all: {
        u32 votes = 0;
        each([&](Thread& t) { votes |= (t.value != 0 ? 1u : 0u) << t.lane; });
        const u64 result = m.op == WarpOp::ballot ? votes
                           : m.op == WarpOp::any  ? u64{votes != 0}
                                                  : u64{votes == m.mask};
        each([&](Thread& t) { t.result = result; });
        break;
    }
    case WarpOp::match_any:
        each([&](Thread& t) {
            u32 same = 0;
            each([&](Thread& o) { same |= (o.value == t.value ? 1u : 0u) << o.lane; });
            t.result = same;
        });
        break;
    case WarpOp::match_all: {
        bool same = true;
        each([&](Thread& t) { same = same && t.value == first; });
        each([&](Thread& t) { t.result = same ? m.mask : 0u; });
        break;
    }
    case WarpOp::add: fold(0, [](u64 a, u64 b) { return u64{static_cast<u32>(a + b)}; }); break;
    case WarpOp::min_signed:
        fold(first, [&](u64 a, u64 b) { return as_signed(b) < as_signed(a) ? b : a; });
        break;
    case WarpOp::max_signed:
        fold(first, [&](u64 a, u64 b) { return as_signed(a) < as_signed(b) ? b : a; });
        break;
    case WarpOp::min_unsigned: fold(first, [](u64 a, u64 b) { return b < a ? b : a; }); break;
    case WarpOp::max_unsigned: fold(first, [](u64 a, u64 b) { return a < b ? b : a; }); break;
    case WarpOp::bit_and: fold(first, [](u64 a, u64 b) { return a & b; }); break;
    case WarpOp::bit_or: fold(first, [](u64 a, u64 b) { return a | b; }); break;
    case WarpOp::bit_xor: fold(0, [](u64 a, u64 b) { return a ^ b; }); break;
    }
    // The lanes go on in the order of the launch, from its first one.
    w.last = shape_.order == Order::reverse ? 0 : 31;
    each([&](Thread& t) { make_ready(t); });
}

} // namespace emu
