// Host branch of the prelude's asynchronous copies (cp.async, cp.async.bulk, mbarrier).
//
// A copy happens when it is waited for, not when it is issued: a kernel that forgets the wait
// reads poisoned shared memory. The prelude declares the same functions around inline assembly
// where SPARSEBATCH_EMU is not defined.
#pragma once

inline void cp_async_4(void* shared, const void* global, EMU_SITE) {
    emu::copy_async(shared, global, 4, 4, EMU_HERE);
}
inline void cp_async_8(void* shared, const void* global, EMU_SITE) {
    emu::copy_async(shared, global, 8, 8, EMU_HERE);
}
inline void cp_async_16(void* shared, const void* global, EMU_SITE) {
    emu::copy_async(shared, global, 16, 16, EMU_HERE);
}
// Copies `source_bytes`, at most 16, and fills the rest of the 16 bytes with zeros.
inline void cp_async_16_zfill(void* shared, const void* global, unsigned source_bytes, EMU_SITE) {
    emu::copy_async(shared, global, 16, source_bytes, EMU_HERE);
}
inline void cp_async_commit() { emu::copy_commit(); }
// Waits until at most N of this thread's committed groups are pending.
template <int N> void cp_async_wait() {
    static_assert(N >= 0, "a count of groups");
    emu::copy_wait(N);
}
// Waits for all copies of this thread, committed or not.
inline void cp_async_wait_all() {
    emu::copy_commit();
    emu::copy_wait(0);
}

// mbarriers are 8 bytes in shared memory. Their content here differs from the device's.
template <class W> void mbarrier_init(W* mbarrier, unsigned count, EMU_SITE) {
    static_assert(sizeof(W) == 8, "an mbarrier has 8 bytes");
    emu::mbarrier_init(mbarrier, count, EMU_HERE);
}
template <class W> void mbarrier_arrive(W* mbarrier, EMU_SITE) {
    static_assert(sizeof(W) == 8, "an mbarrier has 8 bytes");
    emu::mbarrier_arrive(mbarrier, 0, EMU_HERE);
}
template <class W> void mbarrier_arrive_expect_tx(W* mbarrier, unsigned bytes, EMU_SITE) {
    static_assert(sizeof(W) == 8, "an mbarrier has 8 bytes");
    emu::mbarrier_arrive(mbarrier, bytes, EMU_HERE);
}
// True once the phase of this parity is complete; lets other threads run before it says no.
template <class W> bool mbarrier_try_wait_parity(W* mbarrier, unsigned parity, EMU_SITE) {
    static_assert(sizeof(W) == 8, "an mbarrier has 8 bytes");
    if (emu::mbarrier_phase_done(mbarrier, parity, EMU_HERE)) return true;
    emu::pause(EMU_HERE);
    return emu::mbarrier_phase_done(mbarrier, parity, EMU_HERE);
}
template <class W> void mbarrier_wait_parity(W* mbarrier, unsigned parity, EMU_SITE) {
    static_assert(sizeof(W) == 8, "an mbarrier has 8 bytes");
    emu::mbarrier_wait(mbarrier, parity, EMU_HERE);
}
template <class W>
void bulk_copy(void* shared, const void* global, unsigned bytes, W* mbarrier, EMU_SITE) {
    static_assert(sizeof(W) == 8, "an mbarrier has 8 bytes");
    emu::bulk_copy(shared, global, bytes, mbarrier, EMU_HERE);
}

inline void mbarrier_init_fence() {}
inline void fence_proxy_async() {}
