//! The time model of the automatic choice and its constants.
//!
//! A product takes
//!
//! ```text
//! launch + rounds * round + bytes / bandwidth + warps * warp + steps * step
//! ```
//!
//! - `rounds`: dependent accesses to memory of the longest thread beyond those that every product
//!   of the kernel has, which are part of `launch`;
//! - `bytes`: indices and values as read, x once, y read and written;
//! - `warps`, `steps`: warps started and batches of loads over all of them, what costs where much
//!   padding or many lanes without work go through the multiprocessors; of `csr-adaptive` batches
//!   and blocks. Their unit is a picosecond on the whole device.
//!
//! The constants are one row per kernel, for an NVIDIA H200. They were fitted to products in double
//! precision, timed 100 in a graph, with operands that are not in the cache, of 2026-11-20. Since
//! then `dia`, `ell`, `sell` and `csr-vector` ask for more at once: the first two numbers of these
//! are what the accesses that wait for one another let expect. The example `single_choice` of the
//! bench crate prints all of them anew from a file of rows. Other cards shift all rows alike in the
//! first place, and only comparisons matter.

use super::Family;

/// The constants of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Start, end and the accesses that every product has, in microseconds.
    pub launch_us: f64,
    /// A further dependent access, in microseconds.
    pub round_us: f64,
    /// Bytes per second, in units of 10^9.
    pub gb_per_s: f64,
    /// A warp, in picoseconds.
    pub warp_ps: f64,
    /// A step, in picoseconds.
    pub step_ps: f64,
}

/// What a product of a kernel does, in the terms of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Dependent rounds of the longest thread, beyond the first.
    pub rounds: f64,
    /// Bytes moved.
    pub bytes: f64,
    /// Warps.
    pub warps: f64,
    /// Batches of loads, over all warps.
    pub steps: f64,
}

impl Cost {
    /// The time of a product in microseconds.
    pub fn time_us(&self, work: &Work) -> f64 {
        let memory = work.bytes / self.gb_per_s * 1e-3;
        let threads = (work.warps * self.warp_ps + work.steps * self.step_ps) * 1e-6;
        self.launch_us + work.rounds * self.round_us + memory + threads
    }
}

/// The constants for NVIDIA H200.
pub fn cost(family: Family) -> Cost {
    let (launch_us, round_us, gb_per_s, warp_ps, step_ps) = match family {
        Family::Dia => (2.55, 0.600, 4308.0, 52.0, 0.0),
        Family::Ell => (2.50, 0.450, 4793.0, 30.0, 0.0),
        Family::Sell => (2.35, 0.479, 4794.0, 89.0, 0.0),
        Family::CsrScalar => (2.14, 0.212, 4792.0, 0.0, 35.0),
        Family::CsrVector => (2.45, 0.500, 4516.0, 106.0, 12.0),
        Family::CsrAdaptive => (3.00, 0.521, 4604.0, 104.0, 58.0),
        Family::Packed => (5.79, 0.450, 4294.0, 0.0, 3.0),
    };
    Cost { launch_us, round_us, gb_per_s, warp_ps, step_ps }
}
