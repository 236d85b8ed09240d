//! What a plan chose.

use std::fmt;

use super::order::LuOrder;

/// What a plan chose and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLuExplain {
    /// The kernel, as it is compiled.
    pub kernel: String,
    /// Rows of each system.
    pub nrows: usize,
    /// Entries of each system.
    pub nnz: usize,
    /// The order of elimination.
    pub order: LuOrder,
    /// Entries of L + U, the diagonal counted once.
    pub factor_entries: usize,
    /// The most entries of L + U and of forward substitution that wait for each other in a row.
    pub depth: usize,
    /// Steps of factorisation and forward substitution, each of which ends with a barrier.
    pub steps: usize,
    /// Chunks of backward substitution, one after the other.
    pub chunks: usize,
    /// Lanes that have a system there.
    pub chunk_lanes: usize,
    /// Products of factorisation and solve.
    pub pairs: usize,
    /// Products with 0 beside them, where lanes beside them have more.
    pub padding: usize,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Systems that a block solves side by side.
    pub systems_per_block: u32,
    /// Systems that a multiprocessor holds at once, by the estimate.
    pub systems_per_multiprocessor: u32,
    /// Blocks of the launch; each takes systems until there are none left.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Cycles of a multiprocessor for the systems it holds, without refinement, by the estimate.
    pub cycles: u64,
    /// Bytes of the schedule on the device.
    pub pattern_bytes: u64,
    /// Bytes of outcomes, limits and tolerances on the device.
    pub workspace_bytes: u64,
}

impl GpuLuExplain {
    /// The shape, as rows of measurements name it: such as `lu(512 threads, 16 systems)`.
    pub fn shape(&self) -> String {
        let (threads, systems) = (self.threads_per_block, self.systems_per_block);
        format!("lu({threads} threads, {systems} systems)")
    }
}

impl fmt::Display for GpuLuExplain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lu: {} threads solve {} systems of {} rows and {} entries side by side, {} a \
             multiprocessor; {}: {} entries of L + U, {} waiting for each other, {} steps, {} chunks \
             of {} lanes, {} products ({} places of padding), about {} cycles; {} blocks of {} bytes of shared memory each; on \
             the device {} bytes of schedule, {} of outcomes and limits",
            self.threads_per_block,
            self.systems_per_block,
            self.nrows,
            self.nnz,
            self.systems_per_multiprocessor,
            self.order,
            self.factor_entries,
            self.depth,
            self.steps,
            self.chunks,
            self.chunk_lanes,
            self.pairs,
            self.padding,
            self.cycles,
            self.blocks,
            self.shared_bytes,
            self.pattern_bytes,
            self.workspace_bytes,
        )
    }
}
