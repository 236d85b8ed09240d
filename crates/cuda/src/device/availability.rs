//! Whether there is a GPU to use, and if not, why.
//!
//! The bindings panic where a library or one of its functions is missing. The order of the checks
//! here prevents that: library, version of the driver, GPUs, compiler.

use cudarc::driver::sys::{self, CUresult};

use super::driver::check;
use super::library::{self, NvrtcInfo};
use crate::{CudaVersion, GpuError};

/// The oldest driver that has all functions this crate calls.
pub const NEEDED_DRIVER: CudaVersion = CudaVersion { major: 12, minor: 8 };

/// The driver, the GPUs and the compiler of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// The newest CUDA that the driver supports.
    pub version: CudaVersion,
    /// The number of GPUs that the driver shows, at least 1.
    pub device_count: usize,
    /// The compiler of the kernels.
    pub nvrtc: NvrtcInfo,
}

/// Whether kernels can be compiled and run here. Never panics; makes no context.
///
/// # Errors
/// [`GpuError::NoDriver`], [`GpuError::DriverTooOld`], [`GpuError::NoDevice`] or
/// [`GpuError::NvrtcMissing`], checked in this order; [`GpuError::DriverTooOld`] also when NVRTC
/// has a newer major version than the driver, which cannot load such output; [`GpuError::Driver`]
/// when the driver does not start.
pub fn availability() -> Result<DriverInfo, GpuError> {
    let (version, device_count) = driver()?;
    if device_count == 0 {
        return Err(GpuError::NoDevice { ordinal: 0, count: 0 });
    }
    let nvrtc = library::nvrtc()?;
    check_version(version, CudaVersion { major: nvrtc.version.major, minor: 0 })?;
    Ok(DriverInfo { version, device_count, nvrtc })
}

/// The version of the driver and the number of GPUs, which may be 0.
///
/// # Errors
/// [`GpuError::NoDriver`], [`GpuError::DriverTooOld`]; [`GpuError::Driver`] when the driver does
/// not start.
pub fn driver() -> Result<(CudaVersion, usize), GpuError> {
    if !driver_is_present() {
        return Err(GpuError::NoDriver);
    }
    let mut number = 0;
    // SAFETY: (1) the library can be opened, and every version of it has this function; (2) the
    // pointer is to one integer.
    let result = unsafe { sys::cuDriverGetVersion(&mut number) };
    // The stub of a toolkit fails here or, if not, below.
    let found = match version_of(number) {
        Some(version) if result == CUresult::CUDA_SUCCESS => version,
        _ => return Err(GpuError::NoDriver),
    };
    check_version(found, NEEDED_DRIVER)?;
    // SAFETY: the library is open; 0 is the one value that the flags may have.
    let result = unsafe { sys::cuInit(0) };
    if result == CUresult::CUDA_ERROR_NO_DEVICE {
        return Ok((found, 0));
    }
    if result == CUresult::CUDA_ERROR_STUB_LIBRARY {
        return Err(GpuError::NoDriver);
    }
    check("cuInit", result)?;
    let mut count = 0;
    // SAFETY: (1) the driver is initialised; (2) the pointer is to one integer.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok((found, usize::try_from(count).unwrap_or(0)))
}

/// What tells the GPUs that the driver shows from all others, in the order of their numbers, such as
/// `GPU-5a0e…` in hexadecimal digits: two processes that see the same GPU see the same text. Makes
/// no context.
///
/// # Errors
/// Those of [`driver`].
pub fn uuids() -> Result<Vec<String>, GpuError> {
    let (_, count) = driver()?;
    let uuid = |ordinal: usize| {
        let mut device = 0;
        // SAFETY: (1) the driver is initialised; (2) the pointer is to one handle.
        let result = unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) };
        check("cuDeviceGet", result)?;
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: (1) the device is one that the driver shows; (2) the pointer is to one value.
        check("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) })?;
        let digits: String = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
        Ok(format!("GPU-{digits}"))
    };
    (0..count).map(uuid).collect()
}

fn check_version(found: CudaVersion, needed: CudaVersion) -> Result<(), GpuError> {
    if found >= needed { Ok(()) } else { Err(GpuError::DriverTooOld { found, needed }) }
}

/// Whether the driver's library can be opened.
pub(super) fn driver_is_present() -> bool {
    // SAFETY: opens and closes libraries by the names of the driver; their initialisers are
    // NVIDIA's and have no preconditions.
    unsafe { sys::is_culib_present() }
}

/// `1000 * major + 10 * minor`; `None` for 0, which no driver has.
fn version_of(number: i32) -> Option<CudaVersion> {
    let number = u32::try_from(number).ok().filter(|&number| number > 0)?;
    Some(CudaVersion { major: number / 1000, minor: number % 1000 / 10 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_drivers_number() {
        assert_eq!(version_of(12_080), Some(NEEDED_DRIVER));
        assert_eq!(version_of(13_000), Some(CudaVersion { major: 13, minor: 0 }));
        assert_eq!(version_of(0), None);
        assert_eq!(version_of(-1), None);
    }

    #[test]
    fn older_drivers_are_refused() {
        let (found, needed) = (CudaVersion { major: 12, minor: 4 }, NEEDED_DRIVER);

        assert_eq!(check_version(found, needed), Err(GpuError::DriverTooOld { found, needed }));
        assert_eq!(check_version(needed, needed), Ok(()));
        assert_eq!(check_version(CudaVersion { major: 13, minor: 0 }, needed), Ok(()));
    }

    #[test]
    fn a_machine_without_a_driver_is_told_so_without_a_panic() {
        let found = availability();

        if !driver_is_present() {
            assert_eq!(found, Err(GpuError::NoDriver));
            assert_eq!(uuids(), Err(GpuError::NoDriver));
            assert_eq!(crate::Device::new(0).map(|_| ()), Err(GpuError::NoDriver));
        }
    }
}
