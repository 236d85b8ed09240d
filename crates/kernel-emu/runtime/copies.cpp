// Asynchronous copies: queued when issued, performed when waited for.

#include "engine.h"
#include "races.h"

#include <cstring>

namespace emu {

namespace {

void perform(const Copy& c) {
    std::memcpy(c.to, c.from, c.source_bytes);
    std::memset(static_cast<char*>(c.to) + c.source_bytes, 0, c.bytes - c.source_bytes);
}

// What the 8 bytes of an mbarrier hold here.
struct Barrier {
    u32 count = 0;          // arrivals that complete a phase
    u32 pending = 0;        // arrivals still missing
    u32 expected_bytes = 0; // announced for the phase that runs
    u32 phase = 0;

    static constexpr u32 max_count = 0x3fff;
    static constexpr u32 max_bytes = (1u << 20) - 1; // as on the device
    static constexpr u64 mark = 0x2a;                // tells an initialised barrier from poison

    static Barrier load(const void* at, Site site) {
        check_address(at, site);
        u64 bits;
        std::memcpy(&bits, at, sizeof bits);
        if (bits >> 56 != mark) fail(site, "the mbarrier is not initialised");
        Barrier b;
        b.count = static_cast<u32>(bits & max_count);
        b.pending = static_cast<u32>(bits >> 14 & max_count);
        b.expected_bytes = static_cast<u32>(bits >> 28 & 0x7ffffff);
        b.phase = static_cast<u32>(bits >> 55 & 1);
        return b;
    }

    void store(void* at) const {
        const u64 bits = u64{count} | u64{pending} << 14 | u64{expected_bytes} << 28 |
                         u64{phase} << 55 | mark << 56;
        std::memcpy(at, &bits, sizeof bits);
    }

    static void check_address(const void* at, Site site) {
        if (reinterpret_cast<size_t>(at) % 8 != 0) fail(site, "an mbarrier is aligned to 8 bytes");
        if (!engine->in_own_shared(at, 8)) {
            fail(site, "the mbarrier is not in shared memory");
        }
    }
};

// Ends the phase if everything has arrived; performs its copies.
bool complete_phase(void* at, Barrier& b, Site site) {
    if (b.pending != 0) return false;
    std::vector<Copy>& queue = engine->bulk_copies();
    u64 bytes = 0;
    for (const Copy& c : queue) {
        if (c.mbarrier == at) bytes += c.bytes;
    }
    if (bytes > b.expected_bytes) {
        fail(site, "%llu bytes are copied to the mbarrier, %u were announced", bytes,
             b.expected_bytes);
    }
    if (bytes < b.expected_bytes) return false;
    std::vector<Copy> others;
    for (const Copy& c : queue) {
        if (c.mbarrier == at) {
            perform(c);
        } else {
            others.push_back(c);
        }
    }
    queue.swap(others);
    b.phase ^= 1;
    b.pending = b.count;
    b.expected_bytes = 0;
    b.store(at);
    // The copied bytes are there for all that wait for this phase.
    release(at);
    engine->progress();
    return true;
}

} // namespace

void copy_async(void* shared, const void* global, u32 bytes, u32 source_bytes, Site site) {
    const Copy copy{shared, global, bytes, source_bytes, nullptr, site};
    engine->check_copy(copy, bytes);
    const Unseen unseen;
    engine->thread().copies.push_back(copy);
}

void copy_commit() {
    const Unseen unseen;
    Thread& t = engine->thread();
    t.group_ends.push_back(t.copies.size());
}

void copy_wait(u32 groups_left_pending) {
    Thread& t = engine->thread();
    if (t.group_ends.size() <= groups_left_pending) return;
    const size_t groups = t.group_ends.size() - groups_left_pending;
    const size_t end = t.group_ends[groups - 1];
    for (size_t k = 0; k < end; k++) perform(t.copies[k]);
    const Unseen unseen;
    t.copies.erase(t.copies.begin(), t.copies.begin() + static_cast<std::ptrdiff_t>(end));
    t.group_ends.erase(t.group_ends.begin(),
                       t.group_ends.begin() + static_cast<std::ptrdiff_t>(groups));
    for (size_t& e : t.group_ends) e -= end;
}

void mbarrier_init(void* mbarrier, u32 count, Site site) {
    Barrier::check_address(mbarrier, site);
    if (count == 0 || count > Barrier::max_count) fail(site, "an mbarrier of %u arrivals", count);
    Barrier b;
    b.count = b.pending = count;
    b.store(mbarrier);
}

void mbarrier_arrive(void* mbarrier, u32 expected_bytes, Site site) {
    maybe_preempt();
    Barrier b = Barrier::load(mbarrier, site);
    release(mbarrier);
    if (b.pending == 0 && !complete_phase(mbarrier, b, site)) {
        fail(site, "more arrivals than the %u of the mbarrier's phase", b.count);
    }
    b.pending--;
    b.expected_bytes += expected_bytes;
    if (b.expected_bytes > Barrier::max_bytes) {
        fail(site, "an mbarrier counts up to %u bytes", Barrier::max_bytes);
    }
    b.store(mbarrier);
    engine->progress();
    // With copies, the phase ends when someone waits for it.
    if (b.expected_bytes == 0) complete_phase(mbarrier, b, site);
}

bool mbarrier_phase_done(void* mbarrier, u32 parity, Site site) {
    Barrier b = Barrier::load(mbarrier, site);
    const bool done = b.phase != (parity & 1) || complete_phase(mbarrier, b, site);
    if (done) acquire(mbarrier);
    return done;
}

void mbarrier_wait(void* mbarrier, u32 parity, Site site) {
    while (!mbarrier_phase_done(mbarrier, parity, site)) pause(site);
}

void bulk_copy(void* shared, const void* global, u32 bytes, void* mbarrier, Site site) {
    maybe_preempt();
    Barrier::load(mbarrier, site);
    const Copy copy{shared, global, bytes, bytes, mbarrier, site};
    engine->check_copy(copy, 16);
    const Unseen unseen;
    engine->bulk_copies().push_back(copy);
}

} // namespace emu
