//! The [`listed`](crate::listed) systems on the emulated GPU.

use kernel_emu::Order;

use crate::common::emulator::Emulator;
use crate::common::gpu;
use crate::listed;

#[test]
fn listed_systems_end_alike_on_both_backends() {
    listed::end_alike_on(&gpu(&Emulator::new(Order::Forward)));
}
