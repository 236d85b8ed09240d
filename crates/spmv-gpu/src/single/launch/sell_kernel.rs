//! The kernel of `sell.cu` for a matrix.

use sparsebatch_cuda::{DeviceInfo, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{Pattern, SellPPattern};

use super::super::kernels;
use super::{ROW_BLOCK_THREADS, linear, spread_over};

/// `STEP_BLOCK_THREADS` of `sell.cu`.
const STEP_BLOCK_THREADS: u32 = 1024;
/// Resident blocks of `sell` in `sell.cu` for eight slots of a thread, and for four.
const RESIDENT_BLOCKS: [u64; 2] = [6, 12];
/// Most slots of a row for which four of a thread under way are enough.
const FEW_SLOTS: usize = 8;
/// Fewest slots of a row for which it pays that the warps of a block advance together. Measured on
/// an NVIDIA H200 with 262,144 rows and columns, which lie anywhere, beside [`SellKernel::Eight`]:
/// rows of 16 take the same time, in f64 rows of 64 0.88 of it and rows of 256 0.53.
const MANY_SLOTS: usize = 32;

/// How the rows of slices are summed up, in one order of additions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SellKernel {
    /// Eight slots of a thread are under way.
    Eight,
    /// Four are, of twice as many threads.
    Four,
    /// The warps of a block advance together.
    InStep,
}

impl SellKernel {
    /// The quickest kernel, measured on an NVIDIA H200. Where all rows are resident with eight
    /// slots each under way, those hide the latency. Of larger matrices whose columns lie anywhere
    /// the rows should gather from the same part of x at the same time: all of them are resident
    /// with four slots each, or else long rows advance together. Where neighbouring rows gather
    /// from neighbouring columns, only short rows gain by more threads. Rows of very different
    /// length were not measured for [`SellKernel::InStep`], whose blocks last as long as their
    /// longest slice.
    pub(super) fn of<T: Value>(info: &DeviceInfo, pattern: &SellPPattern) -> Self {
        let nrows = pattern.nrows() as u64;
        let resident = |blocks| {
            nrows <= blocks * u64::from(ROW_BLOCK_THREADS) * u64::from(info.multiprocessors)
        };
        let slots_of_row = pattern.stored_len() / pattern.nrows().max(1);
        let is_scattered = || is_scattered(pattern, 32 / size_of::<T>());
        match RESIDENT_BLOCKS.map(resident) {
            [true, _] => Self::Eight,
            [false, all] if is_scattered() => match all {
                true => Self::Four,
                false if slots_of_row >= MANY_SLOTS => Self::InStep,
                false => Self::Eight,
            },
            _ if slots_of_row <= FEW_SLOTS => Self::Four,
            _ => Self::Eight,
        }
    }

    /// The key of the kernel.
    pub(super) fn key<T: Value>(self) -> KernelKey {
        let name = match self {
            Self::Eight => format!("sell<{}, 8>", T::CPP),
            Self::Four => format!("sell<{}, 4>", T::CPP),
            Self::InStep => format!("sell_in_step<{}>", T::CPP),
        };
        KernelKey::new(&kernels::SELL, name)
    }

    /// The launch for `nrows` rows; `None` without rows.
    pub(super) fn config(self, info: &DeviceInfo, nrows: usize) -> Option<LaunchConfig> {
        match self {
            Self::Eight | Self::Four => spread_over(info, nrows as u64, ROW_BLOCK_THREADS),
            Self::InStep => linear(nrows as u64, STEP_BLOCK_THREADS),
        }
    }
}

/// Whether the rows of a slice gather from more sectors of x than half of their entries, in a
/// sample of slices; `columns` is the number of values in a sector.
fn is_scattered(pattern: &SellPPattern, columns: usize) -> bool {
    const SAMPLES: usize = 64;
    let step = pattern.nslices().div_ceil(SAMPLES).max(1);
    let (mut entries, mut sectors) = (0, 0);
    for bounds in pattern.slice_ptr().windows(2).step_by(step) {
        let slots = &pattern.col_idx()[bounds[0] as usize..bounds[1] as usize];
        let gathered = slots.iter().filter(|&&column| column >= 0);
        let mut of_slice: Vec<usize> = gathered.map(|&column| column as usize / columns).collect();
        entries += of_slice.len();
        of_slice.sort_unstable();
        of_slice.dedup();
        sectors += of_slice.len();
    }
    2 * sectors > entries
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::convert::SellPOptions;
    use sparsebatch_formats::generate::{banded, random};
    use sparsebatch_formats::{Csr, SellP};

    use super::*;

    fn of(matrix: &Csr<f64>, multiprocessors: u32) -> SellKernel {
        let options = SellPOptions::default().slice_size(32).threads_per_row(1);
        let sell = SellP::<f64>::from_csr(matrix, &options).unwrap();
        SellKernel::of::<f64>(
            &DeviceInfo { multiprocessors, ..DeviceInfo::default() },
            sell.pattern(),
        )
    }

    #[test]
    fn rows_that_are_resident_have_eight_slots_under_way() {
        let long = random(4096, 16_384, 40, 1).unwrap();
        assert_eq!(of(&long, 6), SellKernel::Eight);
        assert_eq!(of(&long, 5), SellKernel::Four);
        assert_eq!(of(&long, 3), SellKernel::Four);
        assert_eq!(of(&long, 2), SellKernel::InStep);
        let short = random(4096, 16_384, 31, 1).unwrap();
        assert_eq!(of(&short, 2), SellKernel::Eight);
    }

    #[test]
    fn neighbouring_rows_gather_from_neighbouring_columns() {
        for (width, multiprocessors, expected) in [
            (4, 132, SellKernel::Eight),
            (4, 5, SellKernel::Four),
            (8, 2, SellKernel::Four),
            (9, 5, SellKernel::Eight),
            (64, 2, SellKernel::Eight),
        ] {
            let matrix = banded(4096, width, 1).unwrap();
            assert_eq!(of(&matrix, multiprocessors), expected, "{width} {multiprocessors}");
        }
    }
}
