//! Successive products on the stream of a GPU, each of which reads the result of the one before. A
//! launch may begin before those ahead have ended, but must not read or write too early.

use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError};
use sparsebatch_formats::generate::pareto;
use sparsebatch_formats::{Batch, Csr, RaggedCsr};
use sparsebatch_spmv_gpu::{
    PackedKernel, PackedOptions, PackedPlan, SingleKernel, SingleOptions, SinglePlan,
};
use sparsebatch_testing::random_vector;

const PRODUCTS: usize = 60;

/// Two sizes for which launches take most of the time of a product, and one that fills a device.
const ORDERS: [usize; 3] = [40, 3000, 60_000];

fn matrix(n: usize) -> Csr<f64> {
    pareto(n, n, 6, 1.5, n as u64).unwrap()
}

/// Alternates two vectors, with y added: each product depends on the two before.
fn iterate(
    device: &Device,
    n: usize,
    synchronize: bool,
    mut product: impl FnMut(usize, &DeviceBuffer<f64>, &mut DeviceBuffer<f64>) -> Result<(), GpuError>,
) -> Vec<u64> {
    let mut x = device.upload(&random_vector::<f64>(n, 1)).unwrap();
    let mut y = device.upload(&random_vector::<f64>(n, 2)).unwrap();
    for k in 0..PRODUCTS {
        product(k, &x, &mut y).unwrap();
        if synchronize {
            device.synchronize().unwrap();
        }
        std::mem::swap(&mut x, &mut y);
    }
    device.download(&x).unwrap().iter().map(|value| value.to_bits()).collect()
}

#[test]
fn every_kernel_for_one_matrix_waits_for_the_product_before() {
    let Some(device) = device_or_skip() else { return };
    for n in ORDERS {
        let a = matrix(n);
        for &kernel in SingleKernel::ALL {
            let options = SingleOptions::default().kernel(kernel);
            let mut plan = match SinglePlan::new(&device, a.view(), &options) {
                // The format would have too much padding.
                Err(GpuError::Format { .. }) => continue,
                plan => plan.unwrap(),
            };
            let mut run = |synchronize| {
                iterate(&device, n, synchronize, |_, x, y| plan.apply(0.05, x, 0.25, y))
            };

            let expected = run(true);
            for _ in 0..3 {
                assert_eq!(run(false), expected, "{kernel} of order {n}");
            }
        }
    }
}

#[test]
fn packed_products_wait_for_the_one_before_and_for_new_values() {
    let Some(device) = device_or_skip() else { return };
    for n in ORDERS {
        let mut batch = RaggedCsr::new();
        for _ in 0..3 {
            batch.push(matrix(n).view());
        }
        let values: Vec<Vec<f64>> =
            (0..5).map(|seed| random_vector(batch.values().len(), seed)).collect();
        let values: Vec<_> = values.iter().map(|values| device.upload(values).unwrap()).collect();
        let batch = Batch::Ragged(batch);
        for kernel in [None, Some(PackedKernel::Registers { depth: 4 })] {
            let options = PackedOptions::default().kernel(kernel);
            let plan = PackedPlan::new(device.clone(), &batch, options).unwrap();
            let run = |synchronize| {
                iterate(&device, 3 * n, synchronize, |_, x, y| plan.apply(0.05, x, 0.25, y))
            };
            let expected = run(true);
            for _ in 0..3 {
                assert_eq!(run(false), expected, "{kernel:?} of order {n}");
            }

            let mut plan = plan;
            let mut run = |synchronize| {
                iterate(&device, 3 * n, synchronize, |k, x, y| {
                    if k % 3 == 0 {
                        plan.update_from(&values[k / 3 % values.len()])?;
                    }
                    plan.apply(0.05, x, 0.25, y)
                })
            };
            let expected = run(true);
            for _ in 0..3 {
                assert_eq!(run(false), expected, "{kernel:?} of order {n} with new values");
            }
        }
    }
}
