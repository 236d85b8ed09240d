//! Products of single matrices: every format and kernel beside sprs, faer, nalgebra-sparse and
//! plain loops on the same data. Every answer is checked against the oracle before it is timed.

mod common;
#[path = "common/peers.rs"]
mod peers;

use criterion::{BenchmarkId, Criterion, Throughput};
use peers::{PEER_PRODUCTS, PeerItem};
use sparsebatch_cpu_ref::SpmvPlan;
use sparsebatch_formats::Csr;
use sparsebatch_solve_core::{FormatChoice, KernelChoice, SpmvOptions};

fn cases() -> [(&'static str, Csr<f64>); 2] {
    [("laplace7_100", common::laplace7(100)), ("scattered_100k", common::scattered(100_000))]
}

fn products(criterion: &mut Criterion) {
    for (case, a) in cases() {
        let x = common::vector(a.ncols());
        let expected = common::reference(&a, &x);
        let mut y = vec![0.0; a.nrows()];
        let mut group = criterion.benchmark_group(format!("spmv/{case}"));
        let csr_bytes = a.bytes() + 8 * (a.nrows() + a.ncols());
        println!(
            "{case}: {} rows, {} entries, {} flops a product",
            a.nrows(),
            a.nnz(),
            2 * a.nnz()
        );

        let mut triad = common::Triad::new(2 * a.nrows());
        group.throughput(Throughput::BytesDecimal(triad.bytes() as u64));
        group.bench_function("triad, 24 bytes an element", |b| b.iter(|| triad.run()));

        for (name, format, kernel) in common::KERNELS {
            let options = SpmvOptions::default().format(format).kernel(kernel);
            let plan = match SpmvPlan::new(&a, &options) {
                Ok(plan) => plan,
                Err(error) => {
                    println!("{case}, {name}: {error}");
                    continue;
                }
            };
            plan.apply(1.0, &x, 0.0, &mut y).expect("lengths fit");
            common::check(name, &a, &x, &expected, &y);
            println!("{name}: {}", plan.explain());
            group.throughput(Throughput::BytesDecimal(plan.explain().product_bytes as u64));
            group.bench_function(BenchmarkId::new("sparsebatch", name), |b| {
                b.iter(|| plan.apply(1.0, &x, 0.0, &mut y));
            });
        }

        group.throughput(Throughput::BytesDecimal(csr_bytes as u64));
        let mut item = PeerItem::new(&a);
        for (name, product) in PEER_PRODUCTS {
            product(&mut item);
            common::check(name, &a, &x, &expected, &item.y);
            group.bench_function(name, |b| b.iter(|| product(&mut item)));
        }
        common::plain_rayon(&a, &x, &mut y);
        common::check("plain rayon loop", &a, &x, &expected, &y);
        group.bench_function("plain rayon loop", |b| {
            b.iter(|| common::plain_rayon(&a, &x, &mut y));
        });
        group.finish();
    }
}

/// Measures the cost of a plan beside that of the products it speeds up.
fn plans(criterion: &mut Criterion) {
    let a = common::laplace7(100);
    let mut group = criterion.benchmark_group("plan/laplace7_100");
    group.throughput(Throughput::Elements(a.nnz() as u64));
    for (name, format, kernel) in common::KERNELS {
        let options = SpmvOptions::default().format(format).kernel(kernel);
        group.bench_function(BenchmarkId::new("new", name), |b| {
            b.iter(|| SpmvPlan::new(&a, &options));
        });
    }
    let runs = SpmvOptions::default().format(FormatChoice::SellP).kernel(KernelChoice::Runs);
    let mut plan = SpmvPlan::new(&a, &runs).expect("a stencil fits SELL-P");
    group.bench_function("update_values/sellp runs", |b| {
        b.iter(|| plan.update_values(a.values()));
    });
    group.finish();
}

fn main() {
    let mut criterion = peers::criterion();
    products(&mut criterion);
    plans(&mut criterion);
    criterion.final_summary();
}
