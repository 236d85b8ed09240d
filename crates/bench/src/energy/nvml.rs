//! The counter of a GPU: NVML's total energy since the driver was loaded.

use cudarc::driver::result::device;
use sparsebatch_cuda::{Device, Executor};

use super::Meter;

/// The energy counter of a GPU, in millijoules.
#[derive(Debug)]
pub(crate) struct Nvml {
    library: nvml_wrapper::Nvml,
    uuid: String,
}

/// The UUID of a GPU in NVML's notation.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("GPU-{}", parts.join("-"))
}

impl Nvml {
    /// Opens the counter of a device.
    ///
    /// # Errors
    /// In words: NVML is not found, does not know the device, or the device has no such counter.
    pub(crate) fn open(on: &Device) -> Result<Self, String> {
        let library = nvml_wrapper::Nvml::init()
            .map_err(|error| format!("libnvidia-ml.so.1 cannot be used: {error}"))?;
        let ordinal = i32::try_from(on.info().ordinal).map_err(|error| error.to_string())?;
        // CUDA may hide devices or number them in another order than NVML, so the UUID identifies
        // the device.
        let uuid = device::get(ordinal).and_then(device::get_uuid);
        let uuid = uuid.map_err(|error| format!("the GPU does not tell its UUID: {error:?}"))?;
        let found = Self { library, uuid: uuid_text(uuid.bytes.map(|byte| byte as u8)) };
        found.read()?;
        Ok(found)
    }
}

impl Meter for Nvml {
    fn read(&self) -> Result<Vec<u64>, String> {
        let device = self.library.device_by_uuid(self.uuid.as_str());
        let energy = device.and_then(|device| device.total_energy_consumption());
        energy
            .map(|energy| vec![energy])
            .map_err(|error| format!("NVML does not tell the energy of {}: {error}", self.uuid))
    }

    fn joules(&self, before: &[u64], after: &[u64]) -> f64 {
        1e-3 * after[0].saturating_sub(before[0]) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_nvml_does() {
        let bytes = std::array::from_fn(|place| place as u8 + 0xf0);

        assert_eq!(uuid_text(bytes), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
    }
}
