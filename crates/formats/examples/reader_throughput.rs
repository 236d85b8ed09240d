//! Measures the Matrix Market reader: MB/s of unpacked text, and the peak of the process's memory
//! against the size of the matrix.
//!
//! ```text
//! cargo run --release -p sparsebatch-formats --no-default-features \
//!     --example reader_throughput -- FILE...
//! ```
//!
//! Gzip files are unpacked to memory first, so that the rate is the reader's; every file is read
//! seven times and the median counts. Memory is measured for a single plain file only.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sparsebatch_formats::io::{MemoryLimit, read_matrix_market, read_matrix_market_from};

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

/// Seconds this process has had a core for, where the system tells: on a machine that others use
/// too, the clock on the wall says little.
fn core_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9)
}

/// Seconds to read `text` once: the median of wall-clock times, and the mean of processor time
/// (whose clock is coarse).
fn seconds(text: &[u8], path: &Path) -> Result<[f64; 2], Failure> {
    const REPEATS: usize = 7;
    let mut times = Vec::new();
    let before = core_seconds();
    for _ in 0..REPEATS {
        let start = Instant::now();
        std::hint::black_box(read_matrix_market_from(text, path, MemoryLimit::available())?);
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let wall = times[REPEATS / 2];
    let core = before.zip(core_seconds());
    let core = core.map_or(wall, |(from, to)| (to - from) / REPEATS as f64);
    Ok([wall, core])
}

fn main() -> Result<(), Failure> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if let [single] = paths.as_slice()
        && single.extension().is_some_and(|ending| ending == "mtx")
    {
        memory(single)?;
    }
    let (mut bytes, mut total) = (0.0, [0.0; 2]);
    println!("MB/s by the wall, of core time; bytes of text; file");
    for path in &paths {
        let file = std::fs::read(path)?;
        let mut text = Vec::new();
        if file.starts_with(&[0x1f, 0x8b]) {
            flate2::read::MultiGzDecoder::new(&file[..]).read_to_end(&mut text)?;
        } else {
            text = file;
        }
        match seconds(&text, path) {
            Ok(times) => {
                let size = text.len() as f64;
                let [wall, core] = times.map(|time| size / time / 1e6);
                println!("{wall:8.1} {core:8.1} {size:12} {}", path.display());
                bytes += size;
                (total[0], total[1]) = (total[0] + times[0], total[1] + times[1]);
            }
            Err(refused) => println!("skipped: {refused}"),
        }
    }
    let [wall, core] = total.map(|time| bytes / time / 1e6);
    println!("{wall:8.1} {core:8.1} {bytes:12} all");
    Ok(())
}
