//! The kernels by name.

use std::fmt;
use std::str::FromStr;

use sparsebatch_cuda::GpuError;

/// A way to multiply one matrix on the device. The kernels' sources state their requirements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SingleKernel {
    /// `auto`: the kernel that a [model](super::choose) of the kernels' times predicts to be the
    /// fastest for the matrix.
    #[default]
    Auto,
    /// `csr-scalar`: CSR, a thread per row. For rows of very few entries.
    CsrScalar,
    /// `csr-unrolled`: CSR, a thread per row, four entries at a time.
    CsrUnrolled,
    /// `csr-vector`: CSR, a fixed number of lanes per row, a warp unless
    /// [`SingleOptions::lanes`](field@crate::SingleOptions::lanes) says otherwise. For long rows.
    CsrVector,
    /// `csr-smart`: as `csr-vector`, with the smallest power of two of lanes, from 2 to 32, that is
    /// at least the mean row length. For rows of like length.
    CsrSmart,
    /// `csr-tile`: CSR, a warp per row. The span of x that the row touches is copied into shared
    /// memory when it is short.
    CsrTile,
    /// `csr-balanced`: CSR-I, a warp for each of many equal parts of the entries. For rows of very
    /// different length.
    CsrBalanced,
    /// `csr-adaptive`: CSR, a block of threads for each of many runs of rows with about the same
    /// number of entries, or for part of a long row. One launch for any row lengths.
    CsrAdaptive,
    /// `coo`: coordinates, segmented reduction over equal parts of the entries.
    Coo,
    /// `ell`: ELLPACK, a thread per row. For rows of equal length.
    Ell,
    /// `dia`: diagonals, a thread per row. For matrices whose entries fill few diagonals.
    Dia,
    /// `hyb`: ELLPACK for the usual part of the rows, coordinates for the rest.
    Hyb,
    /// `sell`: slices of 32 rows, each padded to its own width, a thread per row. For rows whose
    /// neighbours are of like length.
    Sell,
    /// `sell-p`: slices of rows, each padded to its own width, several threads per row.
    SellP,
    /// `packed`: the kernel of [batches](crate::packed). Rows are cut into segments of similar
    /// length; columns have 16 bits where these suffice.
    Packed,
}

impl SingleKernel {
    /// All kernels; [`SingleKernel::Auto`] stands for one of them.
    pub const ALL: &[Self] = &[
        Self::CsrScalar,
        Self::CsrUnrolled,
        Self::CsrVector,
        Self::CsrSmart,
        Self::CsrTile,
        Self::CsrBalanced,
        Self::CsrAdaptive,
        Self::Coo,
        Self::Ell,
        Self::Dia,
        Self::Hyb,
        Self::Sell,
        Self::SellP,
        Self::Packed,
    ];

    /// Whether the kernel reads CSR arrays as they are. `auto` may take another one.
    pub fn reads_csr(self) -> bool {
        matches!(
            self,
            Self::CsrScalar
                | Self::CsrUnrolled
                | Self::CsrVector
                | Self::CsrSmart
                | Self::CsrTile
                | Self::CsrBalanced
                | Self::CsrAdaptive
        )
    }

    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::CsrScalar => "csr-scalar",
            Self::CsrUnrolled => "csr-unrolled",
            Self::CsrVector => "csr-vector",
            Self::CsrSmart => "csr-smart",
            Self::CsrTile => "csr-tile",
            Self::CsrBalanced => "csr-balanced",
            Self::CsrAdaptive => "csr-adaptive",
            Self::Coo => "coo",
            Self::Ell => "ell",
            Self::Dia => "dia",
            Self::Hyb => "hyb",
            Self::Sell => "sell",
            Self::SellP => "sell-p",
            Self::Packed => "packed",
        }
    }
}

impl fmt::Display for SingleKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SingleKernel {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        let all = || Self::ALL.iter().copied().chain([Self::Auto]);
        all().find(|kernel| kernel.name() == text).ok_or_else(|| {
            let names: Vec<&str> = all().map(Self::name).collect();
            GpuError::InvalidArgument {
                name: "kernel",
                expected: format!("one of {}", names.join(", ")),
                found: text.to_owned(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kernel in SingleKernel::ALL.iter().copied().chain([SingleKernel::Auto]) {
            assert_eq!(kernel.to_string().parse(), Ok(kernel));
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let error = "csr".parse::<SingleKernel>().unwrap_err().to_string();

        assert!(error.starts_with("kernel is csr, expected one of csr-scalar, "), "{error}");
    }
}
