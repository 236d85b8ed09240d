//! What a plan chose.

use std::fmt;

use super::shape::ValuePlace;

/// What a plan chose and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuExplain {
    /// The kernel, as it is compiled.
    pub kernel: String,
    /// Rows of each system.
    pub nrows: usize,
    /// Entries of each system.
    pub nnz: usize,
    /// Threads that solve a system.
    pub threads_per_system: u32,
    /// Rows that each of them owns, whose x, r and p it has in registers.
    pub rows_per_thread: u32,
    /// Where the values are during a solve.
    pub values: ValuePlace,
    /// Places for values beyond the entries, a system.
    pub padding: usize,
    /// Systems that a block solves side by side.
    pub systems_per_block: u32,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Blocks of the launch; each takes systems until there are none left.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Bytes of the pattern on the device.
    pub pattern_bytes: u64,
    /// Bytes of outcomes, limits and tolerances on the device.
    pub workspace_bytes: u64,
}

impl fmt::Display for GpuExplain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cg: {} threads with {} rows each solve a system of {} rows and {} entries, its values \
             in {} ({} places of padding); {} blocks of {} threads, {} systems and {} bytes of \
             shared memory each; on the device {} bytes of pattern, {} of outcomes and limits",
            self.threads_per_system,
            self.rows_per_thread,
            self.nrows,
            self.nnz,
            self.values.name(),
            self.padding,
            self.blocks,
            self.threads_per_block,
            self.systems_per_block,
            self.shared_bytes,
            self.pattern_bytes,
            self.workspace_bytes,
        )
    }
}
