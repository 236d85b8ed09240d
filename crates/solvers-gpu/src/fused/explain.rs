//! What a plan chose.

use std::fmt;

use super::shape::ValuePlace;

/// What a plan chose and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuExplain {
    /// `cg` or `bicgstab`.
    pub method: &'static str,
    /// The launches of a solve, the one with the most work first.
    pub bins: Vec<GpuBin>,
    /// Bytes of patterns, and of where systems are, on the device.
    pub pattern_bytes: u64,
    /// Bytes of outcomes, limits and tolerances on the device.
    pub workspace_bytes: u64,
}

/// Systems that one launch solves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuBin {
    /// The kernel, as it is compiled.
    pub kernel: String,
    /// Systems, right-hand sides counted one by one.
    pub systems: usize,
    /// Different patterns.
    pub patterns: usize,
    /// Rows of the largest system.
    pub nrows: usize,
    /// Entries of the largest system.
    pub nnz: usize,
    /// Threads that solve a system.
    pub threads_per_system: u32,
    /// Those of them that share the entries of each row.
    pub threads_per_row: u32,
    /// Rows that each of them owns, or so many together, whose parts of the vectors they have in
    /// registers.
    pub rows_per_thread: u32,
    /// Where the values are during a solve.
    pub values: ValuePlace,
    /// Vectors in shared memory.
    pub vectors: u32,
    /// Whether iterations are in f32 within f64; a second launch solves in f64 what they leave.
    pub is_mixed: bool,
    /// Places for values beyond the entries, all patterns together.
    pub padding: usize,
    /// Blocks that have a system together, a cluster that reaches over into each other's shared memory; 1:
    /// a block has whole systems.
    pub blocks_per_system: u32,
    /// Systems that a block solves side by side.
    pub systems_per_block: u32,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Blocks of the launch; each takes systems until there are none left.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl GpuExplain {
    /// The kernels, the one with the most work first.
    pub fn kernels(&self) -> String {
        self.bins.iter().map(|bin| bin.kernel.as_str()).collect::<Vec<_>>().join("; ")
    }

    /// Method and shape of the launch with the most work, as rows of measurements name them: such as
    /// `cg(32x4,registers)` for 32 threads a system with 4 rows each.
    pub fn shape(&self) -> String {
        let Some(bin) = self.bins.first() else {
            return self.method.to_owned();
        };
        let (threads, rows) = (bin.threads_per_system, bin.rows_per_thread);
        let blocks = match bin.blocks_per_system {
            1 => String::new(),
            blocks => format!(",{blocks} blocks"),
        };
        let more = match self.bins.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let place = bin.values.key();
        let inner = if self.is_mixed() { ",f32 inner" } else { "" };
        format!("{}({threads}x{rows},{place}{inner}{blocks}){more}", self.method)
    }

    /// Whether some systems iterate in f32 within f64; of a ragged batch the largest need not be among them.
    pub fn is_mixed(&self) -> bool {
        self.bins.iter().any(|bin| bin.is_mixed)
    }
}

impl fmt::Display for GpuExplain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.method)?;
        for (number, bin) in self.bins.iter().enumerate() {
            write!(f, "{} {bin}", if number > 0 { ";" } else { "" })?;
        }
        write!(
            f,
            "; on the device {} bytes of patterns, {} of outcomes and limits",
            self.pattern_bytes, self.workspace_bytes
        )
    }
}

impl GpuBin {
    fn cluster(&self) -> String {
        match self.blocks_per_system {
            1 => String::new(),
            blocks => {
                format!(", vectors in distributed shared memory of a cluster of {blocks} blocks")
            }
        }
    }
}

impl fmt::Display for GpuBin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} systems of up to {} rows and {} entries ({} patterns), {} threads ({} a row) with {} rows \
             each for one, its values in {} ({} places of padding), iterations in {}{}; {} blocks of {} threads, {} systems \
             and {} bytes of shared memory each",
            self.systems,
            self.nrows,
            self.nnz,
            self.patterns,
            self.threads_per_system,
            self.threads_per_row,
            self.rows_per_thread,
            self.values.name(),
            self.padding,
            if self.is_mixed { "f32, what they leave in f64" } else { "the working precision" },
            self.cluster(),
            self.blocks,
            self.threads_per_block,
            self.systems_per_block,
            self.shared_bytes,
        )
    }
}
