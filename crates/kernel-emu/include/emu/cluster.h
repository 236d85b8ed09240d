// Host branch of the prelude's functions for clusters: blocks that run together and reach each other's
// shared memory.
#pragma once

inline unsigned cluster_rank() { return emu::cluster_rank(); }
inline void cluster_sync(EMU_SITE) { emu::cluster_meet(EMU_HERE); }

// The same place in the shared memory of block `rank` of the cluster.
template <class T> T* in_block_of_cluster(T* own_shared, unsigned rank, EMU_SITE) {
    const void* at = emu::in_block_of_cluster(own_shared, rank, EMU_HERE);
    return static_cast<T*>(const_cast<void*>(at));
}
