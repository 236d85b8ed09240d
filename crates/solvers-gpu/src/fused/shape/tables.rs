//! The fastest groups of threads on an NVIDIA H200, by the size and number of systems.

use sparsebatch_cuda::DeviceInfo;

use super::{GpuTuning, ValuePlace};
use sparsebatch_solve_core::Krylov;

/// Groups in ascending order of size: `(threads, rows per thread)`.
pub(super) type Table = &'static [(u32, u32)];

/// Few threads with many rows each beat many threads with few: their loads and reductions overlap,
/// and barriers are cheaper.
const CHAINS: Table = &[(4, 4), (8, 4), (16, 4), (16, 8), (32, 8), (64, 8), (128, 8)];
/// With Jacobi, 32 threads for 128 rows took 0.84 of the time of 16 threads by BiCGStab, for 10,000
/// and 65,536 systems, and 0.94 and 0.97 by CG.
const CHAINS_BY_JACOBI: Table = &[(4, 4), (8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
/// Few systems have nothing to overlap with. 1,000 systems of 32 rows took 0.79 of the time of 8
/// threads each by CG, 0.88 by BiCGStab; of 128 rows 0.79 by BiCGStab (NVIDIA H200). 4,000 systems
/// of 32 rows took 1.6 times as long.
const FEW_CHAINS: Table = &[(32, 1), (16, 4), (32, 4)];
/// Without preconditioner 1,000 systems of 64 rows took 0.93 of the time of 16 threads each by CG;
/// with Jacobi 1.02, by BiCGStab 1.00 (NVIDIA H200).
const FEW_CHAINS_BY_PLAIN_CG: Table = &[(32, 1), (32, 2), (32, 4)];
/// For batches whose systems are all resident at once. 10,000 systems of 32 rows took 0.70 of the
/// time of 8 threads each by CG, 0.80 with Jacobi, 0.85 by BiCGStab; of 128 rows 0.93 by BiCGStab.
/// 65,536 systems took longer.
const SOME_CHAINS_BY_CG: Table = &[(4, 4), (4, 8)];
const SOME_CHAINS_BY_BICGSTAB: Table = &[(4, 4), (4, 8), (16, 4), (32, 4)];
/// Most systems per multiprocessor for [`Load::Few`] and for [`Load::Some`].
const FEW_SYSTEMS: u64 = 8;
const SOME_SYSTEMS: u64 = 96;
const FIVE_A_ROW: Table = &[(8, 2), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
/// Random columns keep shared memory busy: values stay in registers as long as these hold them.
const NINE_A_ROW: Table =
    &[(8, 2), (16, 2), (32, 2), (32, 4), (32, 5), (64, 4), (128, 4), (256, 4)];
const NINE_IN_SHARED: Table = &[(256, 8)];
const IN_SHARED: Table =
    &[(8, 2), (32, 2), (32, 4), (64, 4), (128, 4), (128, 8), (256, 8), (512, 8)];
/// For iterations in f32, which take half of the registers: more rows per thread.
const CHAINS_IN_F32: Table = &[(8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (64, 16)];
/// BiCGStab with Jacobi has no registers for 16 rows per thread: 10,000 systems of 1,024 rows took
/// 0.74 of the time with 8, on an NVIDIA H200.
const CHAINS_IN_F32_BY_BICGSTAB_WITH_JACOBI: Table =
    &[(8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
const NINE_A_ROW_IN_F32: Table = &[(32, 2), (32, 4), (32, 5), (64, 4), (64, 8), (128, 8)];
/// Entries per system from which iterations in f32 are faster, where systems are few and where they
/// are not. Below, the checks of every system in f64 cost more than f32 saves. With f32, 1,000
/// systems of 1,534 entries took 1.16 of the time by CG, of 3,070 entries 0.74; 10,000 systems of
/// 94 entries 1.4, of 190 0.94, of 766 0.86, on an NVIDIA H200.
pub(super) const MIXED_OF_FEW: usize = 2500;
pub(super) const MIXED_OF_MANY: usize = 128;
const IN_GLOBAL: Table = &[(128, 8), (512, 8)];
/// Threads and rows of a whole cluster, whose blocks have [`THREADS_IN_CLUSTER`] threads each.
pub(super) const CLUSTERS: Table = &[(1024, 8), (2048, 8), (4096, 8)];
pub(super) const THREADS_IN_CLUSTER: u32 = 512;
/// The most places per entry in a cluster: every thread walks the length of its slice's longest
/// row.
pub(super) const MOST_PADDING: usize = 8;
/// For small systems with long rows, each row shared by two threads: four systems of 22 to 54 rows
/// took 0.55 to 0.75 of the time of four threads per row, on an NVIDIA H200.
const LONG_ROWS: Table = &[(16, 1), (32, 1), (32, 2)];
const SHARERS: u32 = 2;
pub(super) const LONG: usize = 12;

/// The kind of rows that a kernel is made for.
#[derive(Clone, Copy, Debug)]
enum RowClass {
    Chains,
    FiveEntries,
    NineEntries,
    NineEntriesInShared,
    Long,
    InShared,
    InGlobal,
}

impl RowClass {
    /// The candidate groups; the first with enough rows is taken.
    fn groups(self, mixed: bool, (load, method, jacobi): Work) -> impl Iterator<Item = (u32, u32)> {
        let by_bicgstab = method == Krylov::BiCgStab;
        let table = match self {
            Self::Chains if mixed && jacobi && by_bicgstab => CHAINS_IN_F32_BY_BICGSTAB_WITH_JACOBI,
            Self::Chains if mixed => CHAINS_IN_F32,
            Self::Chains if jacobi => CHAINS_BY_JACOBI,
            Self::Chains => CHAINS,
            Self::FiveEntries => FIVE_A_ROW,
            Self::NineEntries if mixed => NINE_A_ROW_IN_F32,
            Self::NineEntries => NINE_A_ROW,
            Self::NineEntriesInShared => NINE_IN_SHARED,
            Self::Long => LONG_ROWS,
            Self::InShared => IN_SHARED,
            Self::InGlobal => IN_GLOBAL,
        };
        let of_load: Table = match (self, load) {
            (Self::Chains, _) if mixed => &[],
            (Self::Chains, Load::Few) if by_bicgstab || jacobi => FEW_CHAINS,
            (Self::Chains, Load::Few) => FEW_CHAINS_BY_PLAIN_CG,
            (Self::Chains, Load::Some) if !by_bicgstab => SOME_CHAINS_BY_CG,
            (Self::Chains, Load::Some) if !jacobi => SOME_CHAINS_BY_BICGSTAB,
            _ => &[],
        };
        of_load.iter().chain(table).copied()
    }
}

/// Load, method, and whether Jacobi is used.
pub(super) type Work = (Load, Krylov, bool);

/// A kernel variant and the systems it is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// Where values are kept.
    pub(super) place: ValuePlace,
    /// Entries per row where columns are in registers; 0 where they are in memory.
    pub(super) width: u32,
    /// Whether threads own consecutive rows.
    pub(super) near: bool,
    /// Threads that share each row.
    pub(super) parts: u32,
    rows: RowClass,
}

impl Kernel {
    const fn new(place: ValuePlace, width: u32, near: bool, rows: RowClass) -> Self {
        let parts = if matches!(rows, RowClass::Long) { SHARERS } else { 1 };
        Self { place, width, near, parts, rows }
    }

    /// The group for systems of `nrows` rows.
    pub(super) fn group(&self, nrows: usize, mixed: bool, work: Work) -> Option<(u32, u32)> {
        let fits = |&(threads, rows): &(u32, u32)| (threads * rows) as usize >= nrows;
        self.rows.groups(mixed, work).find(fits)
    }
}

/// In order of preference: the first that fits is taken.
pub(super) const KERNELS: [Kernel; 8] = [
    Kernel::new(ValuePlace::Registers, 3, true, RowClass::Chains),
    Kernel::new(ValuePlace::Registers, 5, true, RowClass::FiveEntries),
    Kernel::new(ValuePlace::Registers, 5, false, RowClass::FiveEntries),
    Kernel::new(ValuePlace::Registers, 9, false, RowClass::NineEntries),
    Kernel::new(ValuePlace::Shared, 9, false, RowClass::NineEntriesInShared),
    Kernel::new(ValuePlace::Shared, 0, false, RowClass::Long),
    Kernel::new(ValuePlace::Shared, 0, false, RowClass::InShared),
    Kernel::new(ValuePlace::Global, 0, false, RowClass::InGlobal),
];

/// Least share of rows with both neighbours for threads to own consecutive rows.
pub(super) const MANY_NEIGHBOURS: f64 = 0.75;

/// The number of systems per multiprocessor: whether their work can overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Few,
    Some,
    Many,
}

impl Load {
    /// The load of `systems` systems.
    pub(crate) fn of(systems: usize, info: &DeviceInfo, tuning: &GpuTuning) -> Self {
        let each = (systems as u64).div_ceil(u64::from(info.multiprocessors.max(1)));
        match tuning.few {
            Some(true) => Self::Few,
            None if each <= FEW_SYSTEMS => Self::Few,
            None if each <= SOME_SYSTEMS => Self::Some,
            Some(false) | None => Self::Many,
        }
    }
}
