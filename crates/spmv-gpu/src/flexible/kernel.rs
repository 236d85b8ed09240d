//! The kernels and the storage that each reads.

use std::fmt;
use std::str::FromStr;

use super::kernels;
use sparsebatch_cuda::{GpuError, KernelKey, Value};

/// A kernel of the flexible batched product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlexibleKernel {
    /// COO, threads over entries; a segmented scan per warp, atomics between warps: the order of
    /// the sums, and so the last bits of a result, vary from run to run. Balanced for any row
    /// lengths.
    Coo,
    /// CSR, one thread per row. For rows of fewer than about four entries.
    CsrScalar,
    /// CSR, one warp per row. For rows of 32 entries or more.
    CsrVector,
    /// CSR. For each problem, the number of lanes per row is the smallest power of two that is at
    /// least the mean number of entries per row, at most 32.
    CsrSmart,
    /// CSR-I: the warps of a block take equal parts of the problem's entries. Balanced for any row
    /// lengths, and repeatable.
    CsrI,
    /// ELL, one thread per row. For rows of about equal lengths.
    Ell,
    /// SELL-P, one warp per slice. For rows whose lengths differ little between neighbours.
    SellP,
}

/// How a batch is stored for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Row pointers, and a column per entry.
    Csr,
    /// A row and a column per entry.
    Coo,
    /// Every row of a problem is padded to the length of its longest row; stored column by column.
    Ell,
    /// Slices of `32 / threads_per_row` rows. Each row is padded to the length of the longest row
    /// of its slice, rounded up to a multiple of `threads_per_row` slots.
    SellP {
        /// Lanes that share a row: 1, 2, 4 or 8.
        threads_per_row: u32,
    },
}

impl FlexibleKernel {
    /// All kernels.
    pub const ALL: &[Self] = &[
        Self::Coo,
        Self::CsrScalar,
        Self::CsrVector,
        Self::CsrSmart,
        Self::CsrI,
        Self::Ell,
        Self::SellP,
    ];

    /// The name in reports and on the command line, such as `batch-csr-i`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coo => "batch-coo",
            Self::CsrScalar => "batch-csr-scalar",
            Self::CsrVector => "batch-csr-vector",
            Self::CsrSmart => "batch-csr-smart",
            Self::CsrI => "batch-csr-i",
            Self::Ell => "batch-ell",
            Self::SellP => "batch-sell-p",
        }
    }

    /// Whether two runs give the same bits.
    pub fn is_repeatable(self) -> bool {
        self != Self::Coo
    }

    /// The storage that the kernel reads; `threads_per_row` is for SELL-P.
    pub fn storage(self, threads_per_row: u32) -> Storage {
        match self {
            Self::Coo => Storage::Coo,
            Self::CsrScalar | Self::CsrVector | Self::CsrSmart | Self::CsrI => Storage::Csr,
            Self::Ell => Storage::Ell,
            Self::SellP => Storage::SellP { threads_per_row },
        }
    }

    /// The kernel instance for the value type, 16-bit (`compact`) or 32-bit indices, and a storage
    /// that the kernel reads.
    pub(super) fn key<T: Value>(self, compact: bool, storage: Storage) -> KernelKey {
        let types = format!("{}, {}", T::CPP, if compact { "u16" } else { "u32" });
        match (self, storage) {
            (Self::Coo, _) => KernelKey::new(&kernels::BATCH_COO, format!("batch_coo<{types}>")),
            (Self::CsrScalar, _) => {
                KernelKey::new(&kernels::BATCH_CSR, format!("batch_csr<{types}, 1>"))
            }
            (Self::CsrVector, _) => {
                KernelKey::new(&kernels::BATCH_CSR, format!("batch_csr<{types}, 32>"))
            }
            (Self::CsrSmart, _) => {
                KernelKey::new(&kernels::BATCH_CSR, format!("batch_csr<{types}, 0>"))
            }
            (Self::CsrI, _) => KernelKey::new(&kernels::BATCH_CSR, format!("batch_csr_i<{types}>")),
            (Self::Ell, _) => KernelKey::new(&kernels::BATCH_ELL, format!("batch_ell<{types}>")),
            (Self::SellP, storage) => {
                let Storage::SellP { threads_per_row } = storage else {
                    unreachable!("a plan checks that its storage is the kernel's")
                };
                let expression = format!("batch_sellp<{types}, {threads_per_row}>");
                KernelKey::new(&kernels::BATCH_SELLP, expression)
            }
        }
    }
}

impl fmt::Display for FlexibleKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FlexibleKernel {
    type Err = GpuError;

    /// # Errors
    /// [`GpuError::InvalidArgument`] naming all kernels.
    fn from_str(text: &str) -> Result<Self, GpuError> {
        Self::ALL.iter().copied().find(|kernel| kernel.name() == text).ok_or_else(|| {
            GpuError::InvalidArgument {
                name: "kernel",
                expected: format!(
                    "one of {}",
                    Self::ALL.iter().map(|kernel| kernel.name()).collect::<Vec<_>>().join(", ")
                ),
                found: format!("{text:?}"),
            }
        })
    }
}

impl Storage {
    /// # Errors
    /// [`GpuError::InvalidArgument`] when there is no kernel for this number of threads per row.
    pub(super) fn check(self) -> Result<(), GpuError> {
        match self {
            Self::SellP { threads_per_row } if ![1, 2, 4, 8].contains(&threads_per_row) => {
                Err(GpuError::InvalidArgument {
                    name: "threads_per_row",
                    expected: "1, 2, 4 or 8".to_owned(),
                    found: threads_per_row.to_string(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether the indices of a matrix of this size fit 16 bits. In padded storages no entry may
    /// have the column of padding, all ones.
    pub(super) fn is_compact(self, nrows: usize, ncols: usize) -> bool {
        match self {
            Self::Csr => ncols <= 1 << 16,
            Self::Coo => nrows <= 1 << 16 && ncols <= 1 << 16,
            Self::Ell | Self::SellP { .. } => ncols < 1 << 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_their_names() {
        for &kernel in FlexibleKernel::ALL {
            assert_eq!(kernel.to_string().parse(), Ok(kernel));
        }
        let error = "csr".parse::<FlexibleKernel>().unwrap_err().to_string();

        assert!(error.starts_with("kernel is \"csr\", expected one of batch-coo, "), "{error}");
    }

    #[test]
    fn padding_needs_a_column_that_no_entry_has() {
        let sell_p = Storage::SellP { threads_per_row: 4 };

        assert!(Storage::Csr.is_compact(1 << 20, 65_536) && !Storage::Csr.is_compact(1, 65_537));
        assert!(Storage::Coo.is_compact(65_536, 65_536) && !Storage::Coo.is_compact(65_537, 1));
        assert!(Storage::Ell.is_compact(1 << 20, 65_535) && !Storage::Ell.is_compact(1, 65_536));
        assert!(sell_p.is_compact(1, 65_535) && !sell_p.is_compact(1, 65_536));
    }

    #[test]
    fn only_listed_threads_per_row_have_kernels() {
        for threads_per_row in [0, 3, 16] {
            let error = Storage::SellP { threads_per_row }.check().unwrap_err().to_string();

            assert!(error.ends_with("expected 1, 2, 4 or 8"), "{error}");
        }
        assert_eq!(Storage::SellP { threads_per_row: 8 }.check(), Ok(()));
    }
}
