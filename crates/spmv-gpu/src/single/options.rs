//! Options of a plan.

use sparsebatch_formats::convert::{
    DEFAULT_MAX_FILL, DiaOptions, EllOptions, HybOptions, HybWidth, SellPOptions,
};

use super::SingleKernel;
use super::adaptive::{BLOCK_ENTRIES, check_entries};
use sparsebatch_cuda::{DeviceInfo, GpuError};

/// The choices of a [`SinglePlan`](crate::SinglePlan).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SingleOptions {
    /// The kernel, and with it the format.
    pub kernel: SingleKernel,
    /// Lanes per row of `csr-vector`: 2, 4, 8, 16 or 32, the default.
    pub lanes: Option<u32>,
    /// Parts of `csr-balanced`, `coo` and the COO part of `hyb`, at least 1 and at most one per
    /// entry. By default one per warp of these kernels that the device holds at once, and at most
    /// one per 128 entries. The order of the sums of rows that straddle parts depends on the number
    /// of parts.
    pub parts: Option<u32>,
    /// Most entries of a block of `csr-adaptive`: 128, 256, 512, 1,024 or 2,048. By default the
    /// smallest number with which there are not many more blocks than run at once. The order of the
    /// sums depends on it.
    pub block_entries: Option<u32>,
    /// Stored slots per entry above which a format is refused.
    pub max_fill: f64,
    /// The split of `hyb`.
    pub hyb_width: HybWidth,
    /// Rows per slice of `sell-p`. Together with `threads_per_row` at most 1,024 threads.
    pub slice_size: usize,
    /// Threads per row of `sell-p`.
    pub threads_per_row: usize,
    /// Rows per window within which `sell` and `sell-p` sort rows by length. `None`: no sorting.
    pub sort_window: Option<usize>,
}

sparsebatch_formats::option_setters! {
    SingleOptions {
        kernel: SingleKernel,
        lanes: Option<u32>,
        parts: Option<u32>,
        block_entries: Option<u32>,
        max_fill: f64,
        hyb_width: HybWidth,
        slice_size: usize,
        threads_per_row: usize,
        sort_window: Option<usize>,
    }
}

impl Default for SingleOptions {
    fn default() -> Self {
        let sellp = SellPOptions::default();
        Self {
            kernel: SingleKernel::default(),
            lanes: None,
            parts: None,
            block_entries: None,
            max_fill: DEFAULT_MAX_FILL,
            hyb_width: HybOptions::default().width,
            slice_size: sellp.slice_size,
            threads_per_row: sellp.threads_per_row,
            sort_window: sellp.sort_window,
        }
    }
}

/// Warps that a multiprocessor holds at once, for the kernels that cut entries into parts:
/// `RESIDENT_BLOCKS` blocks of these kernels. One part per warp is a single wave.
const RESIDENT_WARPS: usize = 48;

/// Blocks of `csr-adaptive` per multiprocessor above which larger blocks are used.
const ADAPTIVE_BLOCKS: usize = 4;

/// Fewer entries than this are not worth a part of their own: four steps of a warp.
const MIN_PART_ENTRIES: usize = 128;

impl SingleOptions {
    /// The defaults with another kernel.
    pub fn with_kernel(kernel: SingleKernel) -> Self {
        Self { kernel, ..Self::default() }
    }

    /// Lanes per row, for the kernels that give a row several lanes.
    pub(super) fn chosen_lanes(&self, nrows: usize, nnz: usize) -> Result<u32, GpuError> {
        if self.kernel == SingleKernel::CsrSmart {
            return Ok(smart_lanes(nrows, nnz));
        }
        let lanes = self.lanes.unwrap_or(32);
        if !(2..=32).contains(&lanes) || !lanes.is_power_of_two() {
            return Err(GpuError::InvalidArgument {
                name: "lanes",
                expected: "2, 4, 8, 16 or 32".to_owned(),
                found: lanes.to_string(),
            });
        }
        Ok(lanes)
    }

    /// The number of parts of `nnz` entries; 0 if there are none.
    pub(super) fn chosen_parts(&self, nnz: usize, info: &DeviceInfo) -> Result<u32, GpuError> {
        if self.parts == Some(0) {
            return Err(GpuError::InvalidArgument {
                name: "parts",
                expected: "at least 1".to_owned(),
                found: "0".to_owned(),
            });
        }
        let wanted = self.parts.map_or_else(|| default_parts(nnz, info), |parts| parts as usize);
        Ok(wanted.min(nnz) as u32)
    }

    /// The most entries of a block of `csr-adaptive`.
    pub(super) fn chosen_block_entries(
        &self,
        nnz: usize,
        info: &DeviceInfo,
    ) -> Result<u32, GpuError> {
        let enough = info.multiprocessors as usize * ADAPTIVE_BLOCKS;
        let smallest = |&entries: &u32| nnz.div_ceil(entries as usize) <= enough;
        let [_, usual @ ..] = BLOCK_ENTRIES;
        match self.block_entries {
            Some(entries) => check_entries(entries),
            None => Ok(usual.into_iter().find(smallest).unwrap_or(BLOCK_ENTRIES[4])),
        }
    }

    pub(super) fn ell(&self) -> EllOptions {
        EllOptions { max_fill: self.max_fill }
    }

    pub(super) fn dia(&self) -> DiaOptions {
        DiaOptions { max_fill: self.max_fill }
    }

    pub(super) fn hyb(&self) -> HybOptions {
        HybOptions::default().width(self.hyb_width).max_fill(self.max_fill)
    }

    pub(super) fn sell(&self) -> SellPOptions {
        SellPOptions::default()
            .slice_size(32)
            .threads_per_row(1)
            .sort_window(self.sort_window)
            .max_fill(self.max_fill)
    }

    pub(super) fn sellp(&self) -> Result<SellPOptions, GpuError> {
        let threads = self.slice_size.saturating_mul(self.threads_per_row);
        if threads > 1024 {
            return Err(GpuError::InvalidArgument {
                name: "slice_size * threads_per_row",
                expected: "at most 1024 threads".to_owned(),
                found: threads.to_string(),
            });
        }
        Ok(SellPOptions::default()
            .slice_size(self.slice_size)
            .threads_per_row(self.threads_per_row)
            .sort_window(self.sort_window)
            .max_fill(self.max_fill))
    }
}

/// The smallest power of two that is at least the mean row length, in 2..=32.
fn smart_lanes(nrows: usize, nnz: usize) -> u32 {
    [2, 4, 8, 16].into_iter().find(|&lanes| nnz <= lanes as usize * nrows).unwrap_or(32)
}

fn default_parts(nnz: usize, info: &DeviceInfo) -> usize {
    let warps = info.multiprocessors as usize * RESIDENT_WARPS;
    warps.min(nnz.div_ceil(MIN_PART_ENTRIES)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smart_lanes_cover_the_mean_row() {
        let cases = [
            ((0, 0), 2),
            ((10, 0), 2),
            ((10, 20), 2),
            ((10, 21), 4),
            ((10, 80), 8),
            ((10, 81), 16),
            ((10, 161), 32),
            ((1, 1000), 32),
        ];

        for ((nrows, nnz), expected) in cases {
            assert_eq!(smart_lanes(nrows, nnz), expected, "{nrows} rows, {nnz} entries");
        }
    }

    #[test]
    fn parts_fill_the_device_but_stay_worth_a_warp() {
        let info = DeviceInfo { multiprocessors: 100, ..DeviceInfo::default() };
        let parts =
            |parts, nnz| SingleOptions { parts, ..Default::default() }.chosen_parts(nnz, &info);

        assert_eq!(parts(None, 0), Ok(0));
        assert_eq!(parts(None, 1), Ok(1));
        assert_eq!(parts(None, 1281), Ok(11));
        assert_eq!(parts(None, 100_000_000), Ok(4800));
        assert_eq!(parts(Some(7), 1000), Ok(7));
        assert_eq!(parts(Some(7), 5), Ok(5));
        assert!(matches!(parts(Some(0), 5), Err(GpuError::InvalidArgument { name: "parts", .. })));
    }
}
