//! What emulation costs: time per launch and per CUDA thread.
//!
//! `cargo run --release -p kernel-emu --example speed`

use kernel_emu::{Args, Order};
use std::time::Instant;

fn main() {
    let nrows = 1000i32;
    let (row_ptr, nnz): (Vec<i32>, usize) = ((0..=nrows).map(|r| 7 * r).collect(), 7000);
    let col_idx: Vec<i32> = (0..nnz).map(|k| ((k * 37) % 1000) as i32).collect();
    let (values, x) = (vec![1.0f64; nnz], vec![1.0f64; 1000]);
    let mut y = vec![0.0f64; 1000];
    let (row_ptr, col_idx) = (row_ptr.as_ptr(), col_idx.as_ptr());
    let (values, x, y) = (values.as_ptr(), x.as_ptr(), y.as_mut_ptr());
    let n = 1000u32;

    for (name, lanes) in [
        ("demo_csr_scalar<double>", 1),
        ("demo_csr_vector<double,8>", 8),
        ("demo_csr_vector<double,32>", 32),
    ] {
        report(name, nrows as u32 * lanes, |order| {
            let args =
                Args::new().arg(&nrows).arg(&row_ptr).arg(&col_idx).arg(&values).arg(&x).arg(&y);
            let grid = (nrows as u32 * lanes).div_ceil(128);
            // SAFETY: types as in spmv.cu; the arrays are those of a matrix of nrows rows.
            unsafe { args.launch(name, [grid, 1, 1], [128, 1, 1], 0, order) }
        });
    }
    report("demo_block_sum<double,1024>", 1024, |order| {
        let args = Args::new().arg(&n).arg(&x).arg(&y);
        // SAFETY: types as in block.cu; 1000 values in, one out.
        unsafe { args.launch("demo_block_sum<double,1024>", [1, 1, 1], [1024, 1, 1], 0, order) }
    });
}

/// Prints the median time of 21 launches in each order.
fn report(name: &str, threads: u32, launch: impl Fn(Order) -> Result<(), String>) {
    for order in [Order::Forward, Order::Reverse, Order::Random(1)] {
        let mut times: Vec<f64> = (0..21)
            .map(|_| {
                let start = Instant::now();
                launch(order).expect("the kernel is right");
                start.elapsed().as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let per_thread = times[10] / f64::from(threads) * 1e9;
        println!("{name:28} {order:?}: {:8.3} ms, {per_thread:6.0} ns/thread", times[10] * 1e3);
    }
}
