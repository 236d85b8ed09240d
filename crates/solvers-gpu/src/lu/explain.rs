//! The shape of the launch, in fields and in words.

use std::fmt;

use super::order::LuOrder;

/// The schedule of a system's factorisation and solve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LuShape {
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
    /// Systems that a multiprocessor holds at once, by the estimate.
    pub systems_per_multiprocessor: u32,
    /// Cycles of a multiprocessor for the systems it holds, without refinement, by the estimate.
    pub cycles: u64,
}

impl fmt::Display for LuShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} entries of L + U, {} waiting for each other, {} steps, {} chunks of {} lanes, {} products ({} places \
             of padding), about {} cycles, {} systems a multiprocessor",
            self.order,
            self.factor_entries,
            self.depth,
            self.steps,
            self.chunks,
            self.chunk_lanes,
            self.pairs,
            self.padding,
            self.cycles,
            self.systems_per_multiprocessor,
        )
    }
}
