//! The shape of a launch, as fields and as text.

use std::fmt;

use super::shape::ValuePlace;

/// How the threads of a system share its rows, and where its data are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FusedShape {
    /// Threads that share the entries of each row.
    pub threads_per_row: u32,
    /// Rows whose vector elements a thread holds in registers; where several threads share a row,
    /// each of them holds these elements.
    pub rows_per_thread: u32,
    /// Where the values are during a solve.
    pub values: ValuePlace,
    /// Number of vectors in shared memory.
    pub vectors: u32,
    /// Whether f64 solves iterate in f32; a second launch solves the systems left in f64.
    pub is_mixed: bool,
    /// Places for values beyond the number of entries, summed over all patterns.
    pub padding: usize,
    /// Blocks that solve a system together, a cluster whose blocks read each other's shared memory.
    /// 1: a block solves whole systems.
    pub blocks_per_system: u32,
}

impl FusedShape {
    pub(crate) fn name(&self, threads: u32) -> String {
        let (rows, place) = (self.rows_per_thread, self.values.key());
        let inner = if self.is_mixed { ", f32 inner" } else { "" };
        let blocks = match self.blocks_per_system {
            1 => String::new(),
            blocks => format!(", {blocks} blocks"),
        };
        format!("{threads} threads x {rows} rows, {place}{inner}{blocks}")
    }
}

impl fmt::Display for FusedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = match self.blocks_per_system {
            1 => String::new(),
            blocks => {
                format!(", vectors in distributed shared memory of a cluster of {blocks} blocks")
            }
        };
        write!(
            f,
            "{} a row, with {} rows each, values in {} ({} places of padding), iterations in {}{cluster}",
            self.threads_per_row,
            self.rows_per_thread,
            self.values.name(),
            self.padding,
            if self.is_mixed { "f32, what they leave in f64" } else { "the working precision" },
        )
    }
}
