//! The one error type of this crate.

use std::fmt;

use sparsebatch_formats::FormatError;

/// A CUDA version, as supported by a driver or of NVRTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    /// The major version, before the point.
    pub major: u32,
    /// The minor version, after the point.
    pub minor: u32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why the GPU could not be used, or refused a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// There is no NVIDIA driver on this machine, or only the stub of the toolkit.
    #[error("no NVIDIA driver found (libcuda): install the driver of the GPU, or run on the CPU")]
    NoDriver,
    /// The driver shows no GPU with this index.
    #[error(
        "no GPU number {ordinal}, the driver shows {count}: \
         see `nvidia-smi` and the variable CUDA_VISIBLE_DEVICES, or run on the CPU"
    )]
    NoDevice {
        /// Index of the requested GPU, from 0.
        ordinal: usize,
        /// Number of GPUs that the driver shows.
        count: usize,
    },
    /// The driver lacks functions that this crate calls, or cannot load the compiler's output.
    #[error("the NVIDIA driver supports CUDA {found}, but {needed} is needed: update the driver")]
    DriverTooOld {
        /// The newest CUDA version that the driver supports.
        found: CudaVersion,
        /// The oldest CUDA version that works.
        needed: CudaVersion,
    },
    /// The compiler of the kernels was not found.
    #[error(
        "NVRTC, the compiler of the kernels, was not found ({hint}): \
         `pip install nvidia-cuda-nvrtc`, or set SPARSEBATCH_NVRTC to libnvrtc.so.13 or its folder"
    )]
    NvrtcMissing {
        /// Where the compiler was searched for, or why a file was rejected.
        hint: String,
    },
    /// A kernel does not compile.
    #[error(
        "kernel {kernel} does not compile for {architecture} ({options}): {}",
        first_error(log)
    )]
    Compile {
        /// Source file and name expression.
        kernel: String,
        /// The architecture, such as `sm_90`.
        architecture: String,
        /// The options of the compiler, with spaces between them.
        options: String,
        /// The full output of the compiler.
        log: String,
    },
    /// An allocation was refused. The device stays usable.
    #[error(
        "out of GPU memory: {needed} bytes needed, {free} bytes free: \
         process the batch in chunks, or free other buffers"
    )]
    OutOfMemory {
        /// Bytes requested.
        needed: u64,
        /// Bytes free on the device.
        free: u64,
    },
    /// The driver refused a call. The device stays usable.
    #[error("{call} failed with code {code}: {message}")]
    Driver {
        /// The function of the CUDA driver.
        call: &'static str,
        /// Its result.
        code: u32,
        /// The driver's text for it.
        message: String,
    },
    /// A fault on the device destroyed the context. Every later call of this process fails too.
    #[error(
        "the GPU context was lost, detected by {call} (code {code}: {message}): \
         end the process and start again"
    )]
    ContextLost {
        /// The function of the CUDA driver that met the fault, often later than its cause.
        call: &'static str,
        /// Its result.
        code: u32,
        /// The driver's text for it.
        message: String,
    },
    /// An array or buffer does not have the required length.
    #[error("{name} has {found} entries, expected {expected}")]
    Length {
        /// The array, by its name in the call.
        name: &'static str,
        /// The required length.
        expected: usize,
        /// The actual length.
        found: usize,
    },
    /// An argument is outside its range.
    #[error("{name} is {found}, expected {expected}")]
    InvalidArgument {
        /// The argument.
        name: &'static str,
        /// The accepted range.
        expected: String,
        /// The value given.
        found: String,
    },
    /// A plan is given values for a pattern other than the one it was made for.
    #[error("item {item} has another pattern than the one that the plan was made for")]
    OtherPattern {
        /// The first such item.
        item: usize,
    },
    /// A matrix could not be converted to the requested format.
    #[error("{reason}")]
    Format {
        /// The message of the error from `sparsebatch-formats`.
        reason: String,
    },
}

impl From<FormatError> for GpuError {
    fn from(error: FormatError) -> Self {
        Self::Format { reason: error.to_string() }
    }
}

/// Checks the length of an array.
///
/// # Errors
/// [`GpuError::Length`] where `found` is not `expected`.
pub fn check_len(name: &'static str, expected: usize, found: usize) -> Result<(), GpuError> {
    if expected == found { Ok(()) } else { Err(GpuError::Length { name, expected, found }) }
}

/// The first line of a compiler's log that contains `error`, for an error message; else the first
/// line.
fn first_error(log: &str) -> &str {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines().find(|line| line.contains("error")).or_else(|| lines().next()).unwrap_or("no log")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<GpuError> {
        let (found, needed) =
            (CudaVersion { major: 12, minor: 4 }, CudaVersion { major: 12, minor: 8 });
        let message = "an illegal memory access was encountered".to_owned();
        vec![
            GpuError::NoDriver,
            GpuError::NoDevice { ordinal: 2, count: 1 },
            GpuError::DriverTooOld { found, needed },
            GpuError::NvrtcMissing { hint: "no libnvrtc in any folder".to_owned() },
            GpuError::Compile {
                kernel: "csr.cu: csr_vector<double, 8>".to_owned(),
                architecture: "sm_90".to_owned(),
                options: "-DA=1".to_owned(),
                log: "\n\ncsr.cu(3): warning: x\ncsr.cu(7): error: expected a \";\"\n".to_owned(),
            },
            GpuError::OutOfMemory { needed: 1 << 40, free: 1 << 30 },
            GpuError::Driver { call: "cuLaunchKernel", code: 1, message: "invalid".to_owned() },
            GpuError::ContextLost { call: "cuStreamSynchronize", code: 700, message },
            GpuError::Length { name: "x", expected: 3, found: 4 },
            GpuError::InvalidArgument {
                name: "block",
                expected: "1 to 1024 threads".to_owned(),
                found: "2048".to_owned(),
            },
            GpuError::OtherPattern { item: 3 },
            FormatError::TooLarge { what: "nnz", found: 1 << 31, limit: (1 << 31) - 1 }.into(),
        ]
    }

    #[test]
    fn every_error_is_one_line_without_a_full_stop() {
        for error in all() {
            let text = error.to_string();

            assert!(!text.is_empty() && !text.contains('\n') && !text.ends_with('.'), "{text}");
        }
    }

    #[test]
    fn texts_say_what_to_do() {
        let texts: Vec<String> = all().iter().map(ToString::to_string).collect();

        assert!(texts[0].contains("install the driver"));
        assert!(texts[1].contains("CUDA_VISIBLE_DEVICES"));
        assert!(texts[2].contains("CUDA 12.4, but 12.8 is needed: update"));
        assert!(texts[3].contains("SPARSEBATCH_NVRTC"));
        assert!(texts[5].contains("1099511627776 bytes needed, 1073741824 bytes free"));
        assert!(texts[7].contains("code 700"));
    }

    #[test]
    fn compile_error_quotes_the_first_error_line() {
        let text = all()[4].to_string();

        assert_eq!(
            text,
            "kernel csr.cu: csr_vector<double, 8> does not compile for sm_90 (-DA=1): \
             csr.cu(7): error: expected a \";\""
        );
    }

    #[test]
    fn refusals_of_a_format_keep_their_text() {
        let text = all().last().unwrap().to_string();

        assert_eq!(text, "nnz is 2147483648, the largest supported is 2147483647");
    }

    #[test]
    fn versions_are_ordered_by_major_first() {
        let newer = CudaVersion { major: 13, minor: 0 };

        assert!(newer > CudaVersion { major: 12, minor: 8 });
    }
}
