//! The time model of the automatic choice and its constants.
//!
//! The time of a product is a latency plus a term that the resource most in demand dominates:
//!
//! ```text
//! latency + sqrt(memory^2 + issue^2 + occupancy^2)
//! latency   = launch + max(rounds * round + meetings * meeting, chain)
//! memory    = bytes / bandwidth + gathers / gather bandwidth + steps * step
//! issue     = warps * warp
//! occupancy = waves * wave
//! chain     = additions * addition + groups * group + group additions * group addition
//! ```
//!
//! - `rounds`: dependent memory accesses of the longest thread, beyond those that every product of
//!   the kernel has, which are part of `launch`;
//! - `bytes`: indices and values as read, x once, y read and written;
//! - `gathers`: bytes of x that are read again, which come from the cache;
//! - `warps`, `steps`: warps started, and batches of loads over all warps. They count where much
//!   padding or many idle lanes go through the multiprocessors. Their costs are in picoseconds of
//!   the whole device;
//! - `waves`: how often the device is filled with blocks. A single wave pays the latency once.
//!
//! For `csr-adaptive`, `warps` are blocks, which the device starts one by one; `steps` are the
//! additions of rows that wait; `launch` grows with the threads of a block and the loads of each
//! thread; only this kernel has the terms of `chain` and `meetings`, see [`Blocks`](super::Blocks).
//!
//! The constants are one row per kernel, for an NVIDIA H200. They were fitted to measurements of
//! 2026-11-20, those of `ell` and `sell` to ones of 2026-12-01: products in double precision, timed
//! 100 in a graph, with operands that are not in the cache. Launches overlap by programmatic
//! dependent launch: the start of a product is hidden behind the end of the product before, so
//! `launch` is less than for a product alone. The example `single_choice` of the bench crate
//! prints all constants anew from a file of rows. On another card, all rows shift alike to first
//! order, and only comparisons matter. Gathers of `csr-scalar` and `csr-unrolled` count as if
//! neighbouring rows gathered from neighbouring columns: where they do not, as with four entries a
//! row in any of 131,072 columns, `csr-unrolled` is expected to take 4.3 us and takes 7.4.

use super::Family;

/// The constants of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Start, end and the accesses that every product has, in microseconds.
    pub launch_us: f64,
    /// A further dependent access, in microseconds.
    pub round_us: f64,
    /// Memory bandwidth, in units of 10^9 bytes per second.
    pub gb_per_s: f64,
    /// Bandwidth of gathers from the cache, in units of 10^9 bytes per second.
    pub gather_gb_per_s: f64,
    /// Cost of a warp, in picoseconds.
    pub warp_ps: f64,
    /// Cost of a step, in picoseconds.
    pub step_ps: f64,
    /// Cost of a wave, in microseconds.
    pub wave_us: f64,
    /// Constants of `csr-adaptive` alone.
    pub chain: ChainCost,
}

/// Constants of `csr-adaptive`, in microseconds; 0 for other kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChainCost {
    /// Extra cost of blocks of 256 threads; proportional to the threads of a block.
    pub threads_us: f64,
    /// Extra cost of eight loads per thread over four.
    pub loads_us: f64,
    /// Cost of an addition.
    pub addition_us: f64,
    /// Cost of a group of rows that wait.
    pub group_us: f64,
    /// Cost of an addition in such a group.
    pub group_addition_us: f64,
    /// Cost of the meeting of the blocks that share a row.
    pub meeting_us: f64,
}

/// What a product of a kernel does, in the terms of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelledWork {
    /// Dependent rounds of the longest thread, beyond the first.
    pub rounds: f64,
    /// Bytes moved.
    pub bytes: f64,
    /// Bytes gathered from the cache.
    pub gathers: f64,
    /// Warps.
    pub warps: f64,
    /// Batches of loads, over all warps.
    pub steps: f64,
    /// Blocks over the blocks that the device holds at once, rounded up.
    pub waves: f64,
    /// Work of `csr-adaptive` alone.
    pub chain: Chain,
}

/// Further work of a product of `csr-adaptive`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chain {
    /// Threads of a block, divided by 256.
    pub threads: f64,
    /// 1 if each thread has eight loads, 0 for four.
    pub loads: f64,
    /// Additions of a row, one after the other.
    pub additions: f64,
    /// Groups of rows that wait, one after the other.
    pub groups: f64,
    /// Additions of these groups, one after the other.
    pub group_additions: f64,
    /// 1 if blocks share a row, else 0.
    pub meetings: f64,
}

impl Cost {
    /// The time of a product in microseconds.
    pub fn time_us(&self, work: &ModelledWork) -> f64 {
        let (unit, chain) = (&self.chain, &work.chain);
        let rows = chain.additions * unit.addition_us
            + chain.groups * unit.group_us
            + chain.group_additions * unit.group_addition_us;
        let blocks = work.rounds * self.round_us + chain.meetings * unit.meeting_us;
        let launch = self.launch_us + chain.threads * unit.threads_us + chain.loads * unit.loads_us;
        let memory = (work.bytes / self.gb_per_s + work.gathers / self.gather_gb_per_s) * 1e-3
            + work.steps * self.step_ps * 1e-6;
        let issue = work.warps * self.warp_ps * 1e-6;
        let occupancy = work.waves * self.wave_us;
        launch + rows.max(blocks) + memory.hypot(issue).hypot(occupancy)
    }

    /// All constants one by one, those of `csr-adaptive` last.
    pub fn constants(&mut self) -> [&mut f64; 13] {
        let chain = &mut self.chain;
        [
            &mut self.launch_us,
            &mut self.round_us,
            &mut self.gb_per_s,
            &mut self.gather_gb_per_s,
            &mut self.warp_ps,
            &mut self.step_ps,
            &mut self.wave_us,
            &mut chain.threads_us,
            &mut chain.loads_us,
            &mut chain.addition_us,
            &mut chain.group_us,
            &mut chain.group_addition_us,
            &mut chain.meeting_us,
        ]
    }
}

/// The constants for NVIDIA H200.
pub fn cost(family: Family) -> Cost {
    let (launch_us, round_us, gb_per_s, gather_gb_per_s, warp_ps, step_ps, wave_us) = match family {
        Family::Dia => (1.056, 0.923, 4799.0, 50000.0, 233.0, 52.0, 0.279),
        Family::Ell => (1.570, 0.429, 4799.0, 10581.0, 399.0, 0.0, 0.0),
        Family::Sell => (1.783, 0.624, 4799.0, 18876.0, 351.0, 0.0, 0.0),
        Family::CsrScalar => (1.665, 0.300, 4280.0, 50000.0, 0.0, 18.0, 0.0),
        Family::CsrUnrolled => (1.457, 0.447, 4799.0, 50000.0, 0.0, 98.0, 0.437),
        Family::CsrVector => (1.209, 0.537, 4796.0, 7096.0, 175.0, 100.0, 0.856),
        Family::CsrBalanced => (4.000, 0.050, 3340.0, 50000.0, 0.0, 0.0, 0.0),
        Family::CsrAdaptive => (1.313, 0.188, 4060.0, 6218.0, 741.0, 128.0, 0.352),
        Family::Packed => (3.778, 0.450, 4790.0, 3811.0, 0.0, 0.0, 0.0),
    };
    let chain = match family {
        Family::CsrAdaptive => ChainCost {
            threads_us: 0.427,
            loads_us: 0.739,
            addition_us: 0.0320,
            group_us: 0.222,
            group_addition_us: 0.0085,
            meeting_us: 1.02,
        },
        _ => ChainCost::default(),
    };
    Cost { launch_us, round_us, gb_per_s, gather_gb_per_s, warp_ps, step_ps, wave_us, chain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_most_in_demand_rules() {
        let cost = Cost { launch_us: 1.0, gb_per_s: 1000.0, wave_us: 4.0, ..cost(Family::Dia) };
        let work = ModelledWork { bytes: 3e6, waves: 1.0, ..ModelledWork::default() };

        assert!((cost.time_us(&work) - 6.0).abs() < 1e-12);
    }

    #[test]
    fn rows_of_warps_and_rows_of_blocks_do_not_wait_for_one_another() {
        let cost = cost(Family::CsrAdaptive);
        let rows = Chain { additions: 10.0, groups: 1.0, ..Chain::default() };
        let chains = [rows, Chain { meetings: 1.0, ..Chain::default() }];
        let time = |chain| cost.time_us(&ModelledWork { chain, ..ModelledWork::default() });

        let both = Chain { meetings: 1.0, ..rows };
        assert_eq!(time(both), chains.map(time).into_iter().fold(0.0, f64::max));
    }
}
