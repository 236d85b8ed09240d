//! The groups of threads that were quickest on an NVIDIA H200, by the size of the systems and their number.

use sparsebatch_cuda::DeviceInfo;

use super::{GpuTuning, ValuePlace};
use sparsebatch_solve_core::Krylov;

/// Groups in the order of their sizes: threads and rows of each.
pub(super) type Table = &'static [(u32, u32)];

/// Few threads with many rows each beat many with few: their loads and sums overlap, and barriers
/// are cheaper.
const CHAINS: Table = &[(4, 4), (8, 4), (16, 4), (16, 8), (32, 8), (64, 8), (128, 8)];
/// With Jacobi 10,000 and 65,536 systems of 128 rows took 0.84 of the time of 16 threads each by BiCGStab, 0.94 and
/// 0.97 by CG.
const CHAINS_BY_JACOBI: Table = &[(4, 4), (8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
/// Where systems are few there is nothing to overlap with. 1,000 systems of 32 rows by CG took 0.79 of the
/// time of 8 threads each, 0.88 by BiCGStab, of 128 rows 0.79 by BiCGStab, on an NVIDIA H200; 4,000 of 32
/// rows 1.6 times as long.
const FEW_CHAINS: Table = &[(32, 1), (16, 4), (32, 4)];
/// Where all systems have room at once. 10,000 of 32 rows by CG took 0.70 of the time of 8 threads each, 0.80 with
/// Jacobi, 0.85 by BiCGStab, of 128 rows 0.93 by BiCGStab; 65,536 longer.
const SOME_CHAINS_BY_CG: Table = &[(4, 4), (4, 8)];
const SOME_CHAINS_BY_BICGSTAB: Table = &[(4, 4), (4, 8), (16, 4), (32, 4)];
/// Systems of a multiprocessor, up to which they are few, and up to which there are some.
const FEW_SYSTEMS: u64 = 8;
const SOME_SYSTEMS: u64 = 96;
const FIVE_A_ROW: Table = &[(8, 2), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
/// Random columns keep shared memory busy: values stay out of it as long as registers hold them.
const NINE_A_ROW: Table =
    &[(8, 2), (16, 2), (32, 2), (32, 4), (32, 5), (64, 4), (128, 4), (256, 4)];
const NINE_IN_SHARED: Table = &[(256, 8)];
const IN_SHARED: Table =
    &[(8, 2), (32, 2), (32, 4), (64, 4), (128, 4), (128, 8), (256, 8), (512, 8)];
/// Of iterations in f32, which take half of the registers: more rows a thread.
const CHAINS_IN_F32: Table = &[(8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (64, 16)];
/// BiCGStab with Jacobi has no registers for 16 rows: 10,000 systems of 1,024 took 0.74 of the time so, on an NVIDIA H200.
const CHAINS_IN_F32_BY_BICGSTAB_WITH_JACOBI: Table =
    &[(8, 4), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
const NINE_A_ROW_IN_F32: Table = &[(32, 2), (32, 4), (32, 5), (64, 4), (64, 8), (128, 8)];
/// Entries from which iterations in f32 are quicker, where systems are few and where they are not: below, what is
/// told in f64 of every system takes longer. 1,000 systems of 1,534 entries took 1.16 of the time by CG, of 3,070
/// 0.74; 10,000 of 94 entries 1.4, of 190 0.94, of 766 0.86, on an NVIDIA H200.
pub(super) const MIXED_OF_FEW: usize = 2500;
pub(super) const MIXED_OF_MANY: usize = 128;
const IN_GLOBAL: Table = &[(128, 8), (512, 8)];
/// Of all blocks of a cluster, which have [`THREADS_IN_CLUSTER`] each.
pub(super) const CLUSTERS: Table = &[(1024, 8), (2048, 8), (4096, 8)];
pub(super) const THREADS_IN_CLUSTER: u32 = 512;
/// The places of a system that a cluster has, by its entries: every thread walks those of the longest row of a slice.
pub(super) const MOST_PADDING: usize = 8;
/// For little systems whose rows have many entries, each shared by two threads: four systems of 22 to 54
/// rows took 0.55 to 0.75 of the time that four threads a row take, on an NVIDIA H200.
const LONG_ROWS: Table = &[(16, 1), (32, 1), (32, 2)];
const SHARERS: u32 = 2;
pub(super) const LONG: usize = 12;

/// What the rows of systems are like that a kernel is for.
#[derive(Clone, Copy, Debug)]
enum Rows {
    Chains,
    FiveEntries,
    NineEntries,
    NineEntriesInShared,
    Long,
    InShared,
    InGlobal,
}

impl Rows {
    /// The groups for them; the first that has rows enough is taken.
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
            (Self::Chains, Load::Few) => FEW_CHAINS,
            (Self::Chains, Load::Some) if !by_bicgstab => SOME_CHAINS_BY_CG,
            (Self::Chains, Load::Some) if !jacobi => SOME_CHAINS_BY_BICGSTAB,
            _ => &[],
        };
        of_load.iter().chain(table).copied()
    }
}

/// How many systems there are, and how they are solved.
pub(super) type Work = (Load, Krylov, bool);

/// What a kernel is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// Where values may be.
    pub(super) place: ValuePlace,
    /// Entries a row whose columns are in registers; 0 where they are in memory.
    pub(super) width: u32,
    /// Whether threads own rows side by side.
    pub(super) near: bool,
    /// Threads that share a row.
    pub(super) parts: u32,
    rows: Rows,
}

impl Kernel {
    const fn new(place: ValuePlace, width: u32, near: bool, rows: Rows) -> Self {
        let parts = if matches!(rows, Rows::Long) { SHARERS } else { 1 };
        Self { place, width, near, parts, rows }
    }

    /// The group for systems of so many rows.
    pub(super) fn group(&self, nrows: usize, mixed: bool, work: Work) -> Option<(u32, u32)> {
        let fits = |&(threads, rows): &(u32, u32)| (threads * rows) as usize >= nrows;
        self.rows.groups(mixed, work).find(fits)
    }
}

/// The first that fits is taken.
pub(super) const KERNELS: [Kernel; 8] = [
    Kernel::new(ValuePlace::Registers, 3, true, Rows::Chains),
    Kernel::new(ValuePlace::Registers, 5, true, Rows::FiveEntries),
    Kernel::new(ValuePlace::Registers, 5, false, Rows::FiveEntries),
    Kernel::new(ValuePlace::Registers, 9, false, Rows::NineEntries),
    Kernel::new(ValuePlace::Shared, 9, false, Rows::NineEntriesInShared),
    Kernel::new(ValuePlace::Shared, 0, false, Rows::Long),
    Kernel::new(ValuePlace::Shared, 0, false, Rows::InShared),
    Kernel::new(ValuePlace::Global, 0, false, Rows::InGlobal),
];

/// Threads own rows side by side where so many of them have both neighbours.
pub(super) const MANY_NEIGHBOURS: f64 = 0.75;

/// How many systems a multiprocessor gets, which have something to overlap with or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Few,
    Some,
    Many,
}

impl Load {
    /// Of so many systems.
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
