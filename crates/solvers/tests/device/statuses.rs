//! The listed systems on a real GPU: every status there, as on the CPU.

use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_solvers::{Backend, Gpu};

#[test]
fn listed_systems_end_alike_on_both_backends() {
    let Some(device) = device_or_skip() else { return };
    crate::listed::end_alike_on(&Backend::Gpu(Gpu::new(device)));
}
