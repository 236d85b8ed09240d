//! Timing on a shared machine: every round runs all contenders in turn, and contenders are compared
//! within rounds.

use std::time::{Duration, Instant};

/// Least time of a contender in a round: shorter calls are repeated.
const LEAST_TIME: Duration = Duration::from_millis(20);

/// Measurements of one contender: one entry per round, in ms per call.
#[derive(Default)]
pub(crate) struct Samples {
    pub(crate) wall: Vec<f64>,
    /// Processor time of all threads; empty if the system does not report it.
    pub(crate) cpu: Vec<f64>,
}

/// Runs `call(contender)` in `rounds` rounds over all contenders. `before` runs before each call,
/// outside the clock, and `estimates` are the estimated times of a call.
pub(crate) fn rounds(
    rounds: usize,
    estimates: &[Duration],
    mut before: impl FnMut(usize),
    mut call: impl FnMut(usize),
) -> Vec<Samples> {
    let mut samples: Vec<Samples> = estimates.iter().map(|_| Samples::default()).collect();
    for _ in 0..rounds {
        for (contender, estimate) in estimates.iter().enumerate() {
            let repeats = (LEAST_TIME.as_secs_f64() / estimate.as_secs_f64()).ceil();
            let repeats = repeats.clamp(1.0, 20.0) as usize;
            let (mut wall, mut cpu) = (Duration::ZERO, Some(Duration::ZERO));
            for _ in 0..repeats {
                before(contender);
                let cpu_start = cpu_time();
                let start = Instant::now();
                call(contender);
                wall += start.elapsed();
                cpu = cpu
                    .zip(cpu_time().zip(cpu_start))
                    .map(|(sum, (end, start))| sum + end.saturating_sub(start));
            }
            let ms = |time: Duration| time.as_secs_f64() * 1e3 / repeats as f64;
            samples[contender].wall.push(ms(wall));
            samples[contender].cpu.extend(cpu.map(ms));
        }
    }
    samples
}

/// Processor time of all threads of this process, from Linux's scheduler statistics. The figure of
/// a running thread dates from its last timer tick.
pub(crate) fn cpu_time() -> Option<Duration> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let statistics = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += statistics.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanoseconds))
}

/// The median; NaN for an empty slice.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len => (sorted[(len - 1) / 2] + sorted[len / 2]) / 2.0,
    }
}

/// The median over rounds of `other / base`; NaN without rounds.
pub(crate) fn median_ratio(other: &[f64], base: &[f64]) -> f64 {
    let ratios: Vec<f64> = other.iter().zip(base).map(|(o, b)| o / b).collect();
    median(&ratios)
}

/// Bytes read and written per second by a plain copy on all threads, in GB/s; median of 5.
pub(crate) fn copy_bandwidth() -> f64 {
    use rayon::prelude::*;
    let chunk = 1 << 15;
    let source = vec![1.0f64; 1 << 23];
    let mut target = vec![0.0f64; source.len()];
    let times = crate::common::time(5, || {
        target
            .par_chunks_mut(chunk)
            .zip(source.par_chunks(chunk))
            .for_each(|(target, source)| target.copy_from_slice(source));
        std::hint::black_box(&mut target);
    });
    16.0 * source.len() as f64 / times[2].as_secs_f64() / 1e9
}
