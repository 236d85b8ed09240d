//! The [`listed`](crate::backends::listed) systems on the emulated GPU.

use kernel_emu::{Emulator, Order};

use crate::backends::common::gpu;
use crate::backends::listed;

#[test]
fn listed_systems_end_alike_on_both_backends() {
    listed::end_alike_on(&gpu(&Emulator::new(Order::Forward)));
}
