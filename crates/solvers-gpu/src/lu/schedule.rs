//! The schedule of a plan: the order and the launch with the least estimated time, and what the
//! kernel reads.

use rayon::prelude::*;
use sparsebatch_cuda::DeviceInfo;
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solve_core::symbolic::FactorPattern;

use super::backward::Sharing;
use super::banks::Names;
use super::graph::{Places, targets};
use super::grid::{LuGrid, LuTuning, check_size, check_tuning};
use super::order::{LuOrder, TRIED};
use super::program::BlockProgram;
use super::shape::{LuPrograms, Ordered};
use crate::GpuSolveError;

/// The schedule of a plan.
pub(super) struct Schedule {
    pub(super) order: LuOrder,
    pub(super) pattern: FactorPattern,
    pub(super) places: Places,
    pub(super) grid: LuGrid,
    /// Places of the entries of A, then those of fill, then those of the pivots.
    pub(super) targets: Vec<u16>,
    pub(super) words: Vec<u32>,
    /// Where the words of each warp begin, program by program.
    pub(super) starts: Vec<u32>,
    /// Where the words of backward substitution begin; `groups`: its number of groups of chunks;
    /// `sharing`: how systems share a warp.
    pub(super) first_chunk: usize,
    pub(super) groups: usize,
    pub(super) sharing: Sharing,
    /// Counts for factorisation and forward substitution; `pairs` includes backward substitution.
    pub(super) steps: usize,
    pub(super) depth: usize,
    pub(super) pairs: usize,
    pub(super) padding: usize,
    /// Estimated cycles of a multiprocessor for the systems that it has at once.
    pub(super) cycles: u64,
}

/// Programs, as a kernel reads them.
pub(super) struct Listed {
    pub(super) words: Vec<u32>,
    /// Where the words of each warp begin, program by program.
    pub(super) starts: Vec<u32>,
    /// The numbers of the places that the words use.
    pub(super) names: Names,
}

/// Lists programs that work on the same values, for `systems` systems side by side.
pub(super) fn list(
    programs: &[BlockProgram],
    places: Places,
    systems: u32,
    value_bytes: usize,
) -> Listed {
    let reads: Vec<Vec<u32>> = programs.iter().flat_map(BlockProgram::reads).collect();
    let names = Names::spread(places, value_bytes, systems, &reads);
    let (mut words, mut starts) = (Vec::new(), Vec::new());
    for program in programs {
        program.append(systems, &names, &mut words, &mut starts);
    }
    Listed { words, starts, names }
}

impl Schedule {
    /// The schedule with the least estimated time among those that the tuning allows.
    pub(super) fn choose(
        a: CsrPatternRef<'_>,
        value_bytes: usize,
        nsystems: u64,
        info: &DeviceInfo,
        tuning: &LuTuning,
    ) -> Result<Self, GpuSolveError> {
        check_tuning(tuning)?;
        let orders = tuning.order.map_or(TRIED.to_vec(), |order| vec![order]);
        let mut permutations: Vec<(LuOrder, Option<Vec<u32>>)> = Vec::new();
        check_size(a, value_bytes, info)?;
        for order in orders {
            let permutation = order.permutation(a)?;
            if permutations.iter().all(|(_, other)| *other != permutation) {
                permutations.push((order, permutation));
            }
        }
        let candidates: Vec<_> = permutations
            .into_par_iter()
            .map(|(order, permutation)| {
                let ordered = Ordered::new(a, order, permutation, value_bytes, info)?;
                let time = ordered.time(a.nnz(), value_bytes, info, tuning);
                Ok(time.map(|time| (ordered, time)))
            })
            .collect();
        let mut best: Option<(Ordered, u64)> = None;
        let mut refusal = None;
        for candidate in candidates {
            match candidate {
                Ok(Some((ordered, time))) => {
                    if best.as_ref().is_none_or(|(_, least)| time < *least) {
                        best = Some((ordered, time));
                    }
                }
                Ok(None) => {}
                // Another order may have less fill.
                Err(error @ GpuSolveError::Unsupported { .. }) => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        let best = best.and_then(|(ordered, _)| {
            let shape = ordered.best_shape(a.nnz(), value_bytes, nsystems, info, tuning)?;
            Some(Self::new(ordered, &shape, value_bytes))
        });
        best.ok_or_else(|| {
            refusal.unwrap_or_else(|| {
                GpuSolveError::Argument(ArgumentError::OutOfRange {
                    name: "tuning",
                    expected: "blocks whose values fit in their shared memory",
                    found: format!("{tuning:?}"),
                })
            })
        })
    }

    fn new(ordered: Ordered, shape: &LuPrograms, value_bytes: usize) -> Self {
        let Ordered { order, pattern, places, graph, backward, .. } = ordered;
        let grid = shape.grid;
        let Listed { mut words, starts, names } =
            list(&shape.programs, places, grid.systems, value_bytes);
        let first_chunk = words.len();
        let (chunks, groups) =
            backward.words(&pattern, places, grid.systems, &names, shape.sharing);
        words.extend(chunks);
        let pivots = pattern.diag().iter().copied();
        let (pairs, padding) = shape.programs[0].pairs_and_padding();
        Self {
            order,
            places,
            grid,
            targets: targets(&pattern)
                .into_iter()
                .chain(pivots)
                .map(|place| names.of(place) as u16)
                .collect(),
            words,
            starts,
            first_chunk,
            groups,
            sharing: shape.sharing,
            steps: shape.programs[0].steps,
            depth: graph.depth(),
            pairs: pairs + backward.products(),
            padding,
            cycles: shape.cycles(),
            pattern,
        }
    }
}
