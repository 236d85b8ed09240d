//! How a launch is shaped: [`DenseShape`].

use std::fmt;

use sparsebatch_cuda::DeviceInfo;
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::ArgumentError;

use crate::GpuSolveError;

/// Most rows of a system that [`DenseSolver`](crate::DenseSolver) takes.
pub const MOST_DENSE_ROWS: usize = 64;

/// Threads of a warp.
const LANES: u32 = 32;

/// Places that a thread loads together: `PLACES` of dense_system.cuh.
const LOADED_PLACES: usize = 8;

/// Rows and columns of a tile of [`DenseForm::Tiles`], and columns that a panel has.
const TILE: usize = 8;

/// Where a group of threads holds the matrix of its system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenseForm {
    /// Each thread has whole rows in its registers, and takes multiples of a pivot row from them.
    Rows,
    /// A warp has tiles of 8 x 8 in its registers, and takes eight pivot rows at once by products
    /// on tensor cores. For f64 and 17 to 56 rows.
    Tiles,
}

/// A kernel: its columns in registers, its threads per system, and its form.
type Kernel = (u32, u32, DenseForm);

const fn rows(columns: u32, threads: u32) -> Kernel {
    (columns, threads, DenseForm::Rows)
}

const fn tiles(columns: u32) -> Kernel {
    (columns, LANES, DenseForm::Tiles)
}

/// Kernels in the order of their columns: the quickest on an NVIDIA H200 for 10,000 full systems
/// (`benches/results/dense/2026-11-30-h200.jsonl`).
const IN_F64: &[Kernel] = &[
    rows(8, 8),
    rows(16, 16),
    tiles(24),
    tiles(32),
    tiles(40),
    tiles(48),
    tiles(56),
    rows(64, 64),
];
const IN_F32: &[Kernel] = &[
    rows(8, 8),
    rows(16, 8),
    rows(24, 16),
    rows(32, 16),
    rows(40, 32),
    rows(48, 32),
    rows(56, 32),
    rows(64, 32),
];

/// The kernels that both precisions have. Where threads or a form are asked for, one of these may be
/// taken as well. Among kernels of equal columns the quickest in f64 stands first.
const ALL: &[Kernel] = &[
    rows(8, 8),
    rows(16, 16),
    rows(16, 8),
    rows(24, 16),
    rows(24, 32),
    rows(24, 8),
    rows(32, 32),
    rows(32, 16),
    rows(40, 32),
    rows(48, 32),
    rows(56, 32),
    rows(56, 64),
    rows(64, 64),
];

/// Choices that a plan makes by itself where they are `None`. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DenseTuning {
    /// Threads per system: 8, 16, 32 or 64, as far as there is a kernel for the number of rows.
    pub threads: Option<u32>,
    /// Where the matrix is held, as far as there is a kernel for the number of rows.
    pub form: Option<DenseForm>,
    /// The most blocks of the launch. Default: what the device can hold at once.
    pub max_blocks: Option<u32>,
}

sparsebatch_formats::option_setters! {
    DenseTuning {
        threads: Option<u32>,
        form: Option<DenseForm>,
        max_blocks: Option<u32>,
    }
}

/// The shape of a launch of [`DenseSolver`](crate::DenseSolver).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DenseShape {
    /// Columns of the matrix in registers, padding included.
    pub columns: u32,
    /// Rows per thread: of the matrix; where that is in tiles, of vectors and panels.
    pub rows_per_thread: u32,
    /// Where the matrix is held.
    pub form: DenseForm,
    /// Threads that solve a system.
    pub(super) threads: u32,
    /// Threads of a block.
    pub(super) block: u32,
}

impl DenseShape {
    /// The shape for systems of `nrows` rows with elements of `size` bytes.
    pub(super) fn choose(
        nrows: usize,
        size: usize,
        tuning: &DenseTuning,
    ) -> Result<Self, GpuSolveError> {
        if tuning.max_blocks == Some(0) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "max_blocks",
                expected: "at least 1",
                found: "0".to_owned(),
            }));
        }
        if nrows > MOST_DENSE_ROWS {
            return Err(GpuSolveError::Unsupported {
                what: "dense elimination of a system of more than 64 rows",
                instead: "take the sparse LU, or LU with partial pivoting on the CPU",
            });
        }
        let own = if size == 4 { IN_F32 } else { IN_F64 };
        let is_any = tuning.threads.is_none() && tuning.form.is_none();
        let is_asked = |&&(columns, threads, form): &&Kernel| {
            let needs = if form == DenseForm::Tiles { columns as usize - TILE + 1 } else { 0 };
            (needs..=columns as usize).contains(&nrows)
                && tuning.threads.is_none_or(|asked| asked == threads)
                && tuning.form.is_none_or(|asked| asked == form)
        };
        let others: &[Kernel] = if is_any { &[] } else { ALL };
        let found = own.iter().chain(others).filter(is_asked).min_by_key(|kernel| kernel.0);
        let Some(&(columns, threads, form)) = found else {
            let (name, found) = match (tuning.threads, tuning.form) {
                (Some(threads), _) => ("threads", threads.to_string()),
                (None, form) => ("form", form.map_or_else(String::new, |form| format!("{form:?}"))),
            };
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name,
                expected: "what there is a kernel for with this number of rows",
                found,
            }));
        };
        Ok(Self {
            columns,
            rows_per_thread: columns.div_ceil(threads),
            form,
            threads,
            block: threads.max(2 * LANES),
        })
    }

    /// Systems that a block solves side by side.
    pub(super) fn systems_per_block(&self) -> u32 {
        self.block / self.threads
    }

    /// The kernel for elements of the type `value`.
    pub(super) fn expression(&self, value: &str) -> String {
        match self.form {
            DenseForm::Rows => format!("dense<{value}, {}, {}>", self.columns, self.threads),
            DenseForm::Tiles => format!("dense_tiles<{}>", self.columns),
        }
    }

    /// Elements from one row of the matrix to the next in shared memory: `STRIDE` of the kernels.
    fn row_stride(&self) -> usize {
        let columns = self.columns as usize;
        match self.form {
            DenseForm::Rows => columns + 1,
            DenseForm::Tiles if columns % 16 == TILE => columns,
            DenseForm::Tiles => columns + TILE,
        }
    }

    /// Where each entry of a pattern lies in the dense matrix, in the order in which the threads of
    /// a group load the places.
    pub(super) fn places(&self, pattern: CsrPatternRef<'_>) -> Vec<u16> {
        let stride = self.row_stride();
        let columns = |row: usize| &pattern.col_idx()[pattern.row(row)];
        let at = |row: usize, column: i32| (row * stride + column as usize) as u16;
        let places = (0..pattern.nrows())
            .flat_map(|row| columns(row).iter().map(move |&column| at(row, column)));
        let threads = self.threads as usize;
        let together = LOADED_PLACES * threads;
        let mut ordered = vec![0; pattern.nnz().next_multiple_of(together)];
        for (entry, place) in places.enumerate() {
            let (first, rest) = (entry / together * together, entry % together);
            ordered[first + rest % threads * LOADED_PLACES + rest / threads] = place;
        }
        ordered
    }

    /// Bytes of shared memory of a system, as `DenseGroup::bytes` (dense.cu) and
    /// `DenseTiles::bytes` (dense_tiles.cu) count them.
    fn group_bytes(&self, nrows: usize, size: usize) -> u32 {
        let columns = self.columns as usize;
        let matrix = nrows.max(1) * self.row_stride();
        let warps = self.threads.div_ceil(LANES) as usize;
        let scratch = if warps > 1 { 5 * warps } else { 1 };
        let bytes = match self.form {
            DenseForm::Rows => {
                let values = matrix + 2 * warps * (columns + 2) + 2 * columns;
                values * size + scratch * 8 + 2 * warps * 4
            }
            DenseForm::Tiles => {
                let panel = TILE * (columns + 2);
                (matrix + panel + 2 * (TILE + 2) + columns + 2) * size
            }
        };
        bytes.next_multiple_of(16) as u32
    }

    /// Bytes of shared memory of a block.
    pub(super) fn shared_bytes(&self, nrows: usize, size: usize) -> u32 {
        self.group_bytes(nrows, size) * self.systems_per_block()
    }

    /// Blocks for `nitems` items: as many as the device can hold at once, `resident` for each
    /// multiprocessor, as far as there is work. More would wait for the first ones to end.
    pub(super) fn blocks(
        &self,
        nitems: usize,
        resident: u32,
        info: &DeviceInfo,
        tuning: &DenseTuning,
    ) -> u32 {
        let needed = (nitems as u64).div_ceil(u64::from(self.systems_per_block()));
        let most = u64::from(info.multiprocessors) * u64::from(resident);
        let allowed = u64::from(tuning.max_blocks.unwrap_or(u32::MAX));
        needed.min(most).min(allowed).max(1) as u32
    }
}

impl fmt::Display for DenseShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (columns, rows) = (self.columns, self.rows_per_thread);
        match self.form {
            DenseForm::Rows => write!(f, "{columns} columns in registers, {rows} rows a thread"),
            DenseForm::Tiles => write!(f, "{columns} columns in tiles of tensor cores"),
        }
    }
}
