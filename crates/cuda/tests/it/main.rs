//! The runtime without a GPU: the compiler of kernels, kernels over vectors in the emulation, host
//! memory.

mod nvrtc;
mod pinned;
mod vector;
