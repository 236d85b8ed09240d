//! Products recorded in graphs.
#![allow(unsafe_code, reason = "launches graphs")]
#![allow(dead_code, reason = "each test file uses a part of this one")]

use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError};
use sparsebatch_testing::random_vector;

/// Records two products, the second adding to the first, and runs both several times with other
/// vectors. The results equal those of unrecorded products, bit for bit. `apply` takes x, beta and
/// y.
pub(crate) fn check_replays(
    device: &Device,
    (ncols, nrows): (usize, usize),
    mut apply: impl FnMut(&DeviceBuffer<f64>, f64, &mut DeviceBuffer<f64>) -> Result<(), GpuError>,
) {
    let mut x = device.alloc::<f64>(ncols).unwrap();
    let mut y = device.upload(&vec![7.0; nrows]).unwrap();
    let graph = device
        .capture(|_| {
            apply(&x, 0.0, &mut y)?;
            apply(&x, -0.5, &mut y)
        })
        .unwrap();
    assert_eq!(device.download(&y).unwrap(), vec![7.0; nrows], "recording runs nothing");
    for seed in 1..4 {
        device.copy_from_host(&random_vector(ncols, seed), &mut x).unwrap();
        apply(&x, 0.0, &mut y).unwrap();
        apply(&x, -0.5, &mut y).unwrap();
        let expected = device.download(&y).unwrap();
        for _ in 0..20 {
            device.copy_from_host(&vec![f64::NAN; nrows], &mut y).unwrap();
            // SAFETY: the vectors and all that `apply` uses live to the end of this function.
            unsafe { graph.launch() }.unwrap();
            assert!(device.download(&y).unwrap() == expected, "seed {seed}");
        }
    }
}
