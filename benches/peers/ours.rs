//! Our side of the comparison with SciPy, MKL and Eigen; see `run.sh`.
//!
//! `cargo bench --bench peers -- write DIR` writes the matrices as raw little-endian arrays;
//! `... -- measure DIR THREADS` times every kernel and prints one JSON object per line.

#[path = "../common/mod.rs"]
mod common;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use common::Triad;
use serde_json::json;
use sparsebatch_cpu_ref::SpmvPlan;
use sparsebatch_formats::Csr;
use sparsebatch_solve_core::SpmvOptions;

/// Products per kernel; the medians are reported.
const REPEATS: usize = 15;

/// A name and the function that makes the matrix: only one matrix is in memory at a time.
type Case = (&'static str, fn() -> Csr<f64>);

fn cases() -> [Case; 3] {
    [
        ("laplace7 150^3", || common::laplace7(150)),
        ("laplace7 200^3", || common::laplace7(200)),
        ("pareto 300k", || common::scattered(300_000)),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir] => write(Path::new(dir)),
        ["measure", dir, threads] => {
            let threads = threads.parse()?;
            // The global pool runs all calls, so that no call crosses from one pool to another.
            rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
            measure(Path::new(dir), threads)
        }
        _ => {
            println!("peers: run benches/peers/run.sh");
            Ok(())
        }
    }
}

fn file_name(case: &str) -> String {
    case.replace([' ', '^'], "_")
}

fn write(dir: &Path) -> Result<(), Box<dyn Error>> {
    for (case, matrix) in cases() {
        let (a, dir) = (matrix(), dir.join(file_name(case)));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("case"), case)?;
        let x = common::vector(a.ncols());
        let integers = |v: &[i32]| v.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>();
        let reals = |v: &[f64]| v.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>();
        fs::write(dir.join("row_ptr"), integers(a.row_ptr()))?;
        fs::write(dir.join("col_idx"), integers(a.col_idx()))?;
        fs::write(dir.join("values"), reals(a.values()))?;
        fs::write(dir.join("x"), reals(&x))?;
        fs::write(dir.join("y"), reals(&common::reference(&a, &x)))?;
    }
    Ok(())
}

fn measure(dir: &Path, threads: usize) -> Result<(), Box<dyn Error>> {
    for (case, matrix) in cases() {
        if !dir.join(file_name(case)).exists() {
            continue;
        }
        let a = matrix();
        let x = common::vector(a.ncols());
        let expected = common::reference(&a, &x);
        let mut y = vec![0.0; a.nrows()];
        let mut triad = Triad::new(2 * a.nrows());
        for (name, format, kernel) in common::KERNELS {
            let options = SpmvOptions::default().format(format).kernel(kernel);
            let plan = match SpmvPlan::new(&a, &options) {
                Ok(plan) => plan,
                Err(error) => {
                    eprintln!("{case}, {name}: {error}");
                    continue;
                }
            };
            plan.apply(1.0, &x, 0.0, &mut y)?;
            common::check(name, &a, &x, &expected, &y);
            // Product and triad alternate, so that both meet the same load from other processes.
            let (mut products, mut triads) = (Vec::new(), Vec::new());
            for _ in 0..REPEATS {
                products.extend(common::time(1, || {
                    plan.apply(1.0, &x, 0.0, &mut y).expect("lengths fit");
                }));
                triads.extend(common::time(1, || triad.run()));
            }
            products.sort_unstable();
            triads.sort_unstable();
            let explain = plan.explain();
            let median = products[REPEATS / 2].as_secs_f64();
            let useful = explain.product_bytes as f64 / median;
            let bandwidth = triad.bytes() as f64 / triads[REPEATS / 2].as_secs_f64();
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let row = json!({
                "schema": 1, "suite": "peers", "case": case, "library": "sparsebatch",
                "configuration": format!("{name} ({} {})", explain.format, explain.kernel),
                "operation": "spmv", "precision": "f64", "batch": 1, "n": a.nrows(),
                "nnz": a.nnz(), "rows": a.nrows(), "columns": a.ncols(), "threads": threads,
                "median_ms": median * 1e3, "min_ms": ms(products[0]),
                "max_ms": ms(products[REPEATS - 1]), "bytes_moved": explain.product_bytes,
                "gflops": 2.0 * a.nnz() as f64 / median / 1e9, "gb_per_s": useful / 1e9,
                "triad_gb_per_s": bandwidth / 1e9, "share_of_triad": useful / bandwidth,
                "plan_ms": ms(explain.cost),
            });
            println!("{row}");
        }
    }
    Ok(())
}
