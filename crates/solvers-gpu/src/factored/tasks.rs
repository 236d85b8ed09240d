//! Sums of products in levels: the tasks of one level are independent. Positions have 16 bits.

use std::ops::Range;

/// Marks an absent position: a task without a factor, or a lane without a task.
pub(super) const NONE: u32 = 0xffff;

/// `value[place] -= sum of left * right over the pairs`, then multiplied by `value[factor]`.
/// `factor == place` marks a pivot, which is inverted. In products with A, whose left operands are
/// entries of A, `place` gets `b[factor] - sum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) place: u32,
    pub(super) factor: u32,
    /// Range of its pairs in [`Tasks::pairs`].
    pub(super) pairs: Range<usize>,
    /// Level, from 0; a task needs results of lower levels only.
    pub(super) level: u32,
}

/// Tasks, and the operands of their products.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    pub(super) tasks: Vec<Task>,
    /// Left operand in the low 16 bits, right operand in the high 16 bits.
    pub(super) pairs: Vec<u32>,
}
