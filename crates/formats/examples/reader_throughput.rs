//! Measures the Matrix Market reader: MB/s of unpacked text, and the peak of the process's memory
//! against the size of the matrix.
//!
//! `cargo run --release -p sparsebatch-formats --no-default-features --example reader_throughput -- FILE...`
//!
//! Gzip files are unpacked to memory first, so that the rate is the reader's; every file is read
//! seven times and the median counts. Memory is measured for a single plain file only.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sparsebatch_formats::io::{read_matrix_market, read_matrix_market_from};

type Failure = Box<dyn std::error::Error>;

/// A line such as `VmHWM: 1234 kB` of this process's status, in bytes; Linux only.
fn status(field: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? * 1024.0)
}

/// Reads one plain file from disk and compares the memory taken with the matrix.
fn memory(path: &Path) -> Result<(), Failure> {
    let before = status("VmHWM:");
    let matrix = read_matrix_market(path)?;
    if let (Some(before), Some(after)) = (before, status("VmHWM:")) {
        println!(
            "{}: {} entries, matrix {:.1} MB, peak {:.1} MB, ratio {:.2}",
            path.display(),
            matrix.nnz(),
            matrix.bytes() as f64 / 1e6,
            (after - before) / 1e6,
            (after - before) / matrix.bytes() as f64
        );
    }
    Ok(())
}

/// The median time to read `text`.
fn seconds(text: &[u8], path: &Path) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for _ in 0..7 {
        let start = Instant::now();
        std::hint::black_box(read_matrix_market_from(text, path)?);
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[3])
}

fn main() -> Result<(), Failure> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if let [single] = paths.as_slice()
        && single.extension().is_some_and(|ending| ending == "mtx")
    {
        memory(single)?;
    }
    let (mut bytes, mut time) = (0.0, 0.0);
    for path in &paths {
        let file = std::fs::read(path)?;
        let mut text = Vec::new();
        if file.starts_with(&[0x1f, 0x8b]) {
            flate2::read::MultiGzDecoder::new(&file[..]).read_to_end(&mut text)?;
        } else {
            text = file;
        }
        match seconds(&text, path) {
            Ok(seconds) => {
                let rate = text.len() as f64 / seconds / 1e6;
                println!(
                    "{rate:8.1} MB/s  {:12} bytes  {}",
                    text.len(),
                    path.display()
                );
                bytes += text.len() as f64;
                time += seconds;
            }
            Err(refused) => println!("skipped: {refused}"),
        }
    }
    println!("{:8.1} MB/s over {:.1} MB", bytes / time / 1e6, bytes / 1e6);
    Ok(())
}
