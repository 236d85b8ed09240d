//! The runtime without a GPU: the compiler of kernels, kernels over vectors in the emulation, host
//! memory, the executor that counts memory.

mod meter;
mod nvrtc;
mod pinned;
mod vector;
