//! The processor: its memory, its largest cache, and the copy and read bandwidth of its threads.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sparsebatch_peers::{copy, sum};

use crate::session::host_cores;
use sparsebatch_rows::Machine;

/// Bandwidths of all threads of the current pool, in 1e9 bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostBandwidth {
    /// Bandwidth of a copy, counting bytes read and bytes written.
    pub copy_gb_per_s: f64,
    /// Read bandwidth, measured by a sum.
    pub read_gb_per_s: f64,
    /// Bytes of each of the two arrays.
    pub bytes: usize,
}

/// Timed repetitions, after one warm-up.
const REPETITIONS: usize = 5;

/// Measures the bandwidth of a copy and of a sum on all threads, over two arrays that together are
/// twice the largest cache, at most 512 MiB each and a quarter of the memory available: the median
/// of five. `None` when there is no memory for them.
pub fn measure_bandwidth() -> Option<HostBandwidth> {
    let most = (512 << 20).min(available_memory().unwrap_or(1 << 30) / 8).max(1 << 20);
    let len = last_level_cache().unwrap_or(64 << 20).clamp((64 << 20).min(most), most) / 8;
    let (source, mut target) = (filled(len, 1.0)?, filled(len, 0.0)?);
    let copied = median_of(|| {
        copy(&source, &mut target);
        black_box(&target);
    });
    let read = median_of(|| {
        black_box(sum(&source));
    });
    let gb_per_s = |bytes: usize, time: Duration| bytes as f64 / time.as_secs_f64() * 1e-9;
    Some(HostBandwidth {
        copy_gb_per_s: gb_per_s(16 * len, copied),
        read_gb_per_s: gb_per_s(8 * len, read),
        bytes: 8 * len,
    })
}

fn median_of(mut call: impl FnMut()) -> Duration {
    call();
    let mut times = [Duration::ZERO; REPETITIONS];
    for time in &mut times {
        let begin = Instant::now();
        call();
        *time = begin.elapsed();
    }
    times.sort();
    times[REPETITIONS / 2]
}

fn filled(len: usize, value: f64) -> Option<Vec<f64>> {
    let mut array = Vec::new();
    array.try_reserve_exact(len).ok()?;
    array.resize(len, value);
    Some(array)
}

/// Bytes of memory that this process may still take, if the system tells.
pub fn available_memory() -> Option<usize> {
    sparsebatch_formats::io::available_memory().and_then(|bytes| usize::try_from(bytes).ok())
}

/// Bytes of the largest cache, if the system tells.
pub fn last_level_cache() -> Option<usize> {
    let folder = "/sys/devices/system/cpu/cpu0/cache";
    let sizes = std::fs::read_dir(folder).ok()?.filter_map(|entry| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("size")).ok()?;
        let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    });
    sizes.max()
}

/// The processor as rows describe it, with the threads of the current pool, without bandwidths.
pub fn machine() -> Machine {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = model.map_or("processor", |(_, name)| name.trim());
    let threads = rayon::current_num_threads();
    let device = Some(format!("{name}, {threads} threads"));
    let l2_bytes = last_level_cache().map(|bytes| bytes as u64);
    Machine { device, cores: host_cores(), l2_bytes, ..Machine::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_take_every_number_once() {
        let numbers: Vec<f64> = (1..=100).map(f64::from).collect();

        assert_eq!(sum(&numbers), 5050.0);
        assert_eq!((sum(&numbers[..7]), sum(&[])), (28.0, 0.0));
    }

    #[test]
    fn bandwidths_are_numbers_that_a_machine_can_have() {
        let found = measure_bandwidth().unwrap();

        assert!(found.copy_gb_per_s > 0.01 && found.copy_gb_per_s < 1e5, "{found:?}");
        assert!(found.read_gb_per_s > 0.01 && found.read_gb_per_s < 1e5, "{found:?}");
        assert!(found.bytes >= 1 << 20);
    }
}
