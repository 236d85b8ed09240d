//! Sums of products in levels: what can be computed at the same time.

use std::ops::Range;

/// No place: the task has no factor, or the lane no task.
pub(super) const NONE: u32 = 0xffff;

/// `value[place] -= sum of left * right over the pairs`, then times `value[factor]`; inverted where
/// factor and place are one. In products with A, whose left operands are entries of A, `place` gets
/// `b[factor] - sum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) place: u32,
    pub(super) factor: u32,
    /// Its pairs among [`Tasks::pairs`].
    pub(super) pairs: Range<usize>,
    /// Counted from 0; it needs results of lower levels only.
    pub(super) level: u32,
}

/// Tasks, and the operands of their products.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    pub(super) tasks: Vec<Task>,
    /// Left operand in the low 16 bits, right one in the high ones.
    pub(super) pairs: Vec<u32>,
}
