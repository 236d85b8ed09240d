//! The copy bandwidth of the processor.

use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::super::error::CliError;
use super::super::output::bytes;
use super::super::replicate::available_memory;
use super::run::Copy;

/// The bandwidth of a copy on all threads, over two arrays that together are twice the last-level
/// cache, at most 512 MiB each and a quarter of the memory available: the median of five.
pub(super) fn copy_bandwidth() -> Result<Copy, CliError> {
    let most = (512 << 20).min(available_memory().unwrap_or(1 << 30) / 8).max(1 << 20);
    let len = last_level_cache().unwrap_or(64 << 20).clamp((64 << 20).min(most), most) / 8;
    let source = filled(len, 1.0)?;
    let mut target = filled(len, 0.0)?;
    let mut times: Vec<Duration> = (0..6)
        .map(|_| {
            let start = Instant::now();
            target
                .par_chunks_mut(CHUNK)
                .zip(source.par_chunks(CHUNK))
                .for_each(|(to, from)| to.copy_from_slice(from));
            start.elapsed()
        })
        .collect();
    if std::hint::black_box(&target)[len - 1] != 1.0 {
        return Err(CliError::Internal("the copy did not copy".to_owned()));
    }
    // The first copy warms up.
    let times = &mut times[1..];
    times.sort();
    Ok(Copy {
        gb_s: (16 * len) as f64 / times[times.len() / 2].as_secs_f64() * 1e-9,
        bytes: 8 * len,
    })
}

/// Numbers per piece of a copy: 512 KiB.
const CHUNK: usize = 1 << 16;

fn filled(len: usize, value: f64) -> Result<Vec<f64>, CliError> {
    let mut array = Vec::new();
    array
        .try_reserve_exact(len)
        .map_err(|_| CliError::Internal(format!("no memory for an array of {}", bytes(8 * len))))?;
    array.resize(len, value);
    Ok(array)
}

/// Bytes of the largest cache, where the system says so.
fn last_level_cache() -> Option<usize> {
    let folder = "/sys/devices/system/cpu/cpu0/cache";
    let sizes = std::fs::read_dir(folder).ok()?.filter_map(|entry| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("size")).ok()?;
        let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    });
    sizes.max()
}
