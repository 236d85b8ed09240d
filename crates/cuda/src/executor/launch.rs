//! The shape of a launch, and its limits.

use crate::{DeviceInfo, GpuError};

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Whether the launch may begin before the previous launch on the stream has ended
    /// (programmatic dependent launch, from compute capability 9.0; ignored on other devices). Only
    /// for kernels that themselves wait for the previous launch.
    pub overlaps: bool,
    /// Number of adjacent blocks in x that form a cluster: they run at the same time and access
    /// each other's shared memory. 1: no clusters. More than 1 needs compute capability 9.0.
    pub cluster: u32,
}

impl LaunchConfig {
    /// A one-dimensional launch without dynamic shared memory and clusters.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            overlaps: false,
            cluster: 1,
        }
    }

    /// Checks the shape against the limits of CUDA and of a device.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when a dimension is 0 or too large, a block has more threads
    /// than the device allows, the dynamic shared memory exceeds the limit of a block, the device
    /// does not support the cluster size, or the cluster size does not divide the number of blocks
    /// in x.
    pub fn check(&self, info: &DeviceInfo) -> Result<(), GpuError> {
        let refuse = |name, expected: String, found: String| {
            Err(GpuError::InvalidArgument { name, expected, found })
        };
        let [x, y, z] = self.grid;
        if x == 0 || x > i32::MAX as u32 || y == 0 || z == 0 || y > 65_535 || z > 65_535 {
            let expected = "1 to 2147483647 by 65535 by 65535 blocks".to_owned();
            return refuse("grid", expected, format!("{:?}", self.grid));
        }
        let threads: u64 = self.block.iter().map(|&n| u64::from(n)).product();
        if threads == 0 || threads > u64::from(info.max_threads_per_block) || self.block[2] > 64 {
            let expected = format!("1 to {} threads", info.max_threads_per_block);
            return refuse("block", expected, format!("{:?}", self.block));
        }
        if self.shared_bytes > info.shared_bytes_per_block {
            let expected = format!("at most {} bytes", info.shared_bytes_per_block);
            return refuse("shared_bytes", expected, self.shared_bytes.to_string());
        }
        let most = info.most_blocks_of_cluster();
        if self.cluster == 0 || self.cluster > most {
            let expected = format!("1 to {most} blocks on this device");
            return refuse("cluster", expected, self.cluster.to_string());
        }
        if !x.is_multiple_of(self.cluster) {
            let expected = format!("a divisor of the {x} blocks in x");
            return refuse("cluster", expected, self.cluster.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> DeviceInfo {
        DeviceInfo {
            compute_capability: (9, 0),
            max_threads_per_block: 1024,
            shared_bytes_per_block: 232_448,
            ..DeviceInfo::default()
        }
    }

    #[test]
    fn launch_shapes_within_the_limits_pass() {
        let wide = LaunchConfig {
            grid: [1, 65_535, 1],
            block: [32, 32, 1],
            shared_bytes: 232_448,
            overlaps: true,
            cluster: 1,
        };
        let clustered = LaunchConfig { cluster: 8, ..LaunchConfig::linear(16, 1024) };

        assert_eq!(LaunchConfig::linear(i32::MAX as u32, 1024).check(&info()), Ok(()));
        assert_eq!(wide.check(&info()), Ok(()));
        assert_eq!(clustered.check(&info()), Ok(()));
    }

    #[test]
    fn launch_shapes_outside_the_limits_are_refused_by_name() {
        let fine = LaunchConfig::linear(1, 32);
        let cases = [
            ("grid", LaunchConfig { grid: [0, 1, 1], ..fine }),
            ("grid", LaunchConfig { grid: [1, 65_536, 1], ..fine }),
            ("grid", LaunchConfig { grid: [1 << 31, 1, 1], ..fine }),
            ("block", LaunchConfig { block: [0, 1, 1], ..fine }),
            ("block", LaunchConfig { block: [1025, 1, 1], ..fine }),
            ("block", LaunchConfig { block: [u32::MAX, u32::MAX, 1], ..fine }),
            ("block", LaunchConfig { block: [1, 1, 65], ..fine }),
            ("shared_bytes", LaunchConfig { shared_bytes: 232_449, ..fine }),
            ("cluster", LaunchConfig { cluster: 0, ..fine }),
            ("cluster", LaunchConfig { cluster: 2, ..fine }),
            ("cluster", LaunchConfig { cluster: 4, ..LaunchConfig::linear(6, 32) }),
            ("cluster", LaunchConfig { cluster: 16, ..LaunchConfig::linear(16, 32) }),
        ];

        for (expected, config) in cases {
            match config.check(&info()) {
                Err(GpuError::InvalidArgument { name, .. }) => assert_eq!(name, expected),
                other => panic!("{config:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn clusters_are_refused_where_there_are_none() {
        let older = DeviceInfo { compute_capability: (8, 9), ..info() };
        let pair = LaunchConfig { cluster: 2, ..LaunchConfig::linear(2, 32) };

        assert_eq!(LaunchConfig::linear(2, 32).check(&older), Ok(()));
        let refused = pair.check(&older);
        assert!(matches!(refused, Err(GpuError::InvalidArgument { name: "cluster", .. })));
    }
}
