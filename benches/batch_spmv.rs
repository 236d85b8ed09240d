//! Products of batches, uniform and ragged, in every format and layout, beside sprs, faer,
//! nalgebra-sparse and plain loops item by item on all cores. Answers are checked before timing.

mod common;
#[path = "common/peers.rs"]
mod peers;

use criterion::{BenchmarkId, Criterion, Throughput};
use peers::{PEER_PRODUCTS, PeerItem};
use rayon::prelude::*;
use sparsebatch_cpu_ref::{SpmvPlan, seq};
use sparsebatch_formats::{BatchCsr, BatchValues, Csr, Layout, Pattern, RaggedCsr, UniformBatch};
use sparsebatch_solve_core::{KernelChoice, SpmvOptions};

/// Items of the batches.
const ITEMS: usize = 2_000;

/// A uniform batch: the pattern of the 5-point Laplacian on a 16 x 16 grid, with different values
/// in each item.
fn uniform() -> BatchCsr<f64> {
    let a = common::laplace5(16);
    let values = common::vector(a.nnz() * ITEMS);
    let pattern = std::sync::Arc::clone(a.pattern());
    UniformBatch::try_new(pattern, ITEMS, BatchValues::ItemMajor(values))
        .expect("as many values as entries")
}

/// A ragged batch: Laplacians of different sizes and scattered matrices.
fn ragged() -> RaggedCsr<f64> {
    let kinds: Vec<Csr<f64>> =
        (4..32).map(common::laplace5).chain((1..16).map(|i| common::scattered(40 * i))).collect();
    let mut batch = RaggedCsr::new();
    for item in 0..ITEMS {
        batch.push(kinds[item * 7 % kinds.len()].view());
    }
    batch
}

/// Measures our plans in each layout; `batch` is in the source's own layout.
fn ours<'a, S>(
    criterion: &mut Criterion,
    name: &str,
    source: S,
    nnz: usize,
    layouts: &[Layout],
    oracle: impl Fn(&[f64], &mut [f64]),
) where
    S: Copy + Into<sparsebatch_cpu_ref::PlanSource<'a, f64>>,
{
    let mut group = criterion.benchmark_group(format!("batch_spmv/{name}"));
    println!("{name}: {ITEMS} items, {nnz} entries, {} flops a product", 2 * nnz);
    for &layout in layouts {
        for (kernel_name, format, kernel) in common::KERNELS {
            if matches!(kernel, KernelChoice::Blocks | KernelChoice::Runs) {
                continue;
            }
            let options = SpmvOptions::default().format(format).kernel(kernel).layout(layout);
            let plan = match SpmvPlan::new(source, &options) {
                Ok(plan) => plan,
                Err(error) => {
                    println!("{name}, {kernel_name}: {error}");
                    continue;
                }
            };
            let x = common::vector(plan.ncols());
            let (mut y, mut expected) = (vec![0.0; plan.nrows()], vec![0.0; plan.nrows()]);
            plan.apply(1.0, &x, 0.0, &mut y).expect("lengths fit");
            if layout == Layout::Interleaved {
                oracle(&common::deinterleave(&x, ITEMS), &mut expected);
                common::check_close(kernel_name, &expected, &common::deinterleave(&y, ITEMS));
            } else {
                oracle(&x, &mut expected);
                common::check_close(kernel_name, &expected, &y);
            }
            group.throughput(Throughput::BytesDecimal(plan.explain().product_bytes as u64));
            let id = BenchmarkId::new(format!("sparsebatch {layout:?}"), kernel_name);
            group.bench_function(id, |b| b.iter(|| plan.apply(1.0, &x, 0.0, &mut y)));
        }
    }
    group.finish();
}

/// Measures the peers item by item; rayon distributes the items.
fn theirs(criterion: &mut Criterion, name: &str, items: &[Csr<f64>]) {
    let mut group = criterion.benchmark_group(format!("batch_spmv/{name}"));
    let bytes: usize = items.iter().map(|a| a.bytes() + 8 * (a.nrows() + a.ncols())).sum();
    group.throughput(Throughput::BytesDecimal(bytes as u64));
    let mut slots: Vec<PeerItem> = items.par_iter().map(PeerItem::new).collect();
    for (peer, product) in PEER_PRODUCTS {
        for (a, slot) in items.iter().zip(&mut slots) {
            product(slot);
            common::check(peer, a, &slot.x, &common::reference(a, &slot.x), &slot.y);
        }
        group.bench_function(format!("rayon over {peer}"), |b| {
            b.iter(|| slots.par_iter_mut().with_min_len(16).for_each(product));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = peers::criterion();
    let batch = uniform();
    let oracle = |x: &[f64], y: &mut [f64]| {
        seq::batch_spmv(1.0, &batch, 1, x, 0.0, y).expect("lengths fit");
    };
    let layouts = [Layout::ItemMajor, Layout::Interleaved];
    let nnz = batch.pattern().nnz() * ITEMS;
    ours(&mut criterion, "uniform", &batch, nnz, &layouts, oracle);
    let items: Vec<Csr<f64>> = (0..ITEMS).map(|item| batch.to_matrix(item)).collect();
    theirs(&mut criterion, "uniform", &items);

    let batch = ragged();
    let oracle = |x: &[f64], y: &mut [f64]| {
        seq::batch_spmv(1.0, &batch, 1, x, 0.0, y).expect("lengths fit");
    };
    let (nnz, item_major) = (batch.total_nnz(), [Layout::ItemMajor]);
    ours(&mut criterion, "ragged", &batch, nnz, &item_major, oracle);
    let items: Vec<Csr<f64>> = (0..ITEMS).map(|item| batch.item(item).to_csr()).collect();
    theirs(&mut criterion, "ragged", &items);
    criterion.final_summary();
}
