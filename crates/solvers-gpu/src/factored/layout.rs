//! The pattern as the kernels read it: programs, row pointers, columns.

use rayon::prelude::*;
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::symbolic::DiagonalBlocks;

use super::lists::{Segment, segments};
use super::programs::{FactoredProgram, Factors};
use super::streams::{PADDING_WORDS, SliceLanes, Streams};
use crate::GpuSolveError;

/// Rows of a chunk, whose columns are interleaved.
const CHUNK: usize = 32;

/// Flag of a segment that ends a level.
const ENDS_LEVEL: u32 = 1 << 31;

/// Marks an absent column, in rows shorter than others of their chunk.
const NO_COLUMN: u32 = u32::MAX;

/// The schedule of factorisation and application, in the format of `factored_task.cuh`.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub(super) words: Vec<u32>,
    pub(super) starts: Vec<u32>,
}

impl Words {
    /// The schedule for groups of `threads` threads; `wide`: as lists with 32-bit positions, else
    /// as streams whose slices have words for these lanes.
    pub(super) fn new(
        factors: &Factors,
        nrows: usize,
        threads: u32,
        (wide, lanes): (bool, SliceLanes),
    ) -> Result<Self, GpuSolveError> {
        let mut made = Self::default();
        match factors {
            Factors::Blocks(blocks) => made.push_blocks(blocks),
            Factors::Sums(sums) if wide => {
                for program in [&sums.factorisation, &sums.application] {
                    made.push_list(program, threads);
                }
            }
            Factors::Sums(sums) => {
                // A padding pair multiplies the 0 behind the factors by itself, or by the 0 behind
                // z.
                let zero = sums.sources.len() as u32;
                let warps = threads as usize / 32;
                for (program, right) in
                    [(&sums.factorisation, zero), (&sums.application, nrows as u32)]
                {
                    let tasks = program.to_narrow();
                    let streams = Streams::new(&tasks, warps, lanes);
                    let first = made.starts.len();
                    streams.append(zero | right << 16, &mut made.words, &mut made.starts);
                    // Without tasks there is one empty stream, which all warps share.
                    made.starts.resize(first + warps, made.starts[first]);
                }
                made.words.resize(made.words.len() + PADDING_WORDS, 0);
            }
        }
        if u32::try_from(made.words.len()).is_err() {
            return Err(GpuSolveError::Unsupported {
                what: "a preconditioner whose schedule has more than 4294967295 words",
                instead: "take jacobi",
            });
        }
        Ok(made)
    }

    fn push_blocks(&mut self, blocks: &DiagonalBlocks) {
        for block in 0..blocks.nblocks() {
            let rows = blocks.rows(block);
            for _ in rows.clone() {
                let place = blocks.dense_ptr()[block] as u32;
                self.words.extend([rows.start as u32, rows.len() as u32, place, 0]);
            }
        }
        self.starts.extend([self.words.len() as u32, blocks.nblocks() as u32]);
        self.words.extend((0..blocks.nblocks()).map(|block| blocks.rows(block).start as u32));
    }

    fn push_list(&mut self, program: &FactoredProgram, threads: u32) {
        let mut by_level: Vec<Vec<usize>> = vec![Vec::new(); program.nlevels()];
        for (number, task) in program.tasks.iter().enumerate() {
            by_level[task.level as usize].push(number);
        }
        let by_level = by_level.into_par_iter();
        let levels: Vec<Vec<Segment>> =
            by_level.map(|level| segments(&program.tasks, level, threads)).collect();
        // Segments, tasks and pairs are read as 64-bit words.
        self.words.resize(self.words.len().next_multiple_of(2), 0);
        let head = self.words.len();
        self.starts.push(head as u32);
        let nsegments: usize = levels.iter().map(Vec::len).sum();
        let tasks = head + 4 + 2 * nsegments;
        let pairs = tasks + 4 * program.tasks.len();
        self.words.reserve(pairs - head + 2 * program.pairs.len());
        self.words.extend([nsegments as u32, tasks as u32, pairs as u32, 0]);
        let mut end = 0;
        for level in &levels {
            for (number, segment) in level.iter().enumerate() {
                end += segment.tasks.len() as u32;
                let ends_level = if number + 1 == level.len() { ENDS_LEVEL } else { 0 };
                self.words.extend([end, segment.shift | ends_level]);
            }
        }
        for &task in levels.iter().flatten().flat_map(|segment| &segment.tasks) {
            let task = &program.tasks[task];
            let range = [task.pairs.start as u32, task.pairs.len() as u32];
            self.words.extend([task.place, task.factor, range[0], range[1]]);
        }
        for &(left, right) in &program.pairs {
            self.words.extend([left, right]);
        }
    }
}

/// The pattern of A for products by rows.
#[derive(Clone, Debug)]
pub(super) struct RowLists {
    /// Row pointers, then the offset of each chunk's columns, then the length of `columns`.
    pub(super) index: Vec<u32>,
    /// Columns of a chunk's rows, interleaved; `NO_COLUMN` where a row is shorter than others.
    pub(super) columns: Vec<u32>,
}

impl RowLists {
    pub(super) fn new(a: CsrPatternRef<'_>) -> Result<Self, GpuSolveError> {
        let nrows = a.nrows();
        let mut index: Vec<u32> = a.row_ptr().iter().map(|&first| first as u32).collect();
        let mut columns = Vec::new();
        for first in (0..nrows).step_by(CHUNK) {
            let rows = first..(first + CHUNK).min(nrows);
            let width = rows.clone().map(|row| a.row(row).len()).max().unwrap_or(0);
            let begin = columns.len();
            index.push(begin as u32);
            if begin + width * CHUNK > u32::MAX as usize {
                return Err(GpuSolveError::Unsupported {
                    what: "a matrix whose row lengths differ so much",
                    instead: "solve on the CPU",
                });
            }
            columns.resize(begin + width * CHUNK, NO_COLUMN);
            for row in rows {
                for (k, entry) in a.row(row).enumerate() {
                    columns[begin + k * CHUNK + row - first] = a.col_idx()[entry] as u32;
                }
            }
        }
        index.push(columns.len() as u32);
        Ok(Self { index, columns })
    }

    /// The columns in 16 bits; the caller ensures that they fit.
    pub(super) fn narrow_columns(&self) -> Vec<u16> {
        self.columns.iter().map(|&column| column as u16).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};
    use sparsebatch_solve_core::{Preconditioner, Scheme};

    #[test]
    fn columns_of_32_rows_stand_side_by_side() {
        // Row 0 has two entries, the others one; there is a chunk of 32 rows and one of 2.
        let row_ptr = [0].into_iter().chain(2..36).collect();
        let col_idx = [0, 33].into_iter().chain(1..34).collect();
        let a = CsrPattern::try_new(34, 34, row_ptr, col_idx).unwrap();

        let rows = RowLists::new(a.view()).unwrap();

        assert_eq!(rows.index[..3], [0, 2, 3]);
        assert_eq!(rows.index[35..], [0, 64, 96]);
        assert_eq!(rows.columns[..3], [0, 1, 2]);
        assert_eq!(rows.columns[32..34], [33, NO_COLUMN]);
        assert_eq!(rows.columns[64..67], [32, 33, NO_COLUMN]);
        assert_eq!(rows.narrow_columns()[33], u16::MAX);
    }

    #[test]
    fn lists_hold_every_task_in_its_level() {
        // A full matrix of two rows: the second depends on the first.
        let a = CsrPattern::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1]).unwrap();
        let factors = Factors::new(a.view(), Scheme::Cg(Preconditioner::ILU0)).unwrap();
        let Factors::Sums(sums) = &factors else { unreachable!("incomplete factors") };

        let made = Words::new(&factors, 2, 512, (true, SliceLanes::All)).unwrap();

        for (program, &start) in
            [&sums.factorisation, &sums.application].into_iter().zip(&made.starts)
        {
            let head = start as usize;
            let [nsegments, tasks, pairs] = [0, 1, 2].map(|k| made.words[head + k] as usize);
            assert_eq!((head % 2, tasks % 2, pairs % 2), (0, 0, 0));
            let (mut seen, mut level, mut first) = (0, 0, 0);
            for segment in made.words[head + 4..tasks].chunks(2) {
                let numbers = first..segment[0];
                first = segment[0];
                for number in numbers {
                    let task = &made.words[tasks + 4 * number as usize..][..4];
                    let own = program
                        .tasks
                        .iter()
                        .find(|own| own.place == task[0] && own.level as usize == level)
                        .unwrap();
                    let listed: Vec<(u32, u32)> = (task[2]..task[2] + task[3])
                        .map(|pair| pairs + 2 * pair as usize)
                        .map(|at| (made.words[at], made.words[at + 1]))
                        .collect();
                    assert_eq!(
                        (task[1], listed.as_slice()),
                        (own.factor, &program.pairs[own.pairs.clone()])
                    );
                    seen += 1;
                }
                level += usize::from(segment[1] & ENDS_LEVEL != 0);
            }
            assert_eq!((seen, level), (program.tasks.len(), program.nlevels()));
            assert_eq!(tasks, head + 4 + 2 * nsegments);
        }
    }
}
