//! The clock: warm-up, rounds between device events, recorded sequences.
//!
//! A round is one or several products between two events of the device. Unless products are slow, a
//! like number of products precedes the first event: the device is then busy when it reaches that
//! event, and the time includes no launch latency that a stream of products would not have.
//! Products alternate between the copies of a contender. All rounds count, outliers too.

use std::time::{Duration, Instant};

use sparsebatch_cuda::device::{Device, Event, Graph};
use sparsebatch_cuda::{Executor, GpuError};

use crate::contender::Timed;
use sparsebatch_rows::statistics::median;

/// Products are launch-bound if a copy would move their data in less time than this.
pub(crate) const LAUNCH_BOUND_MS: f64 = 0.020;

/// Most products of a recorded sequence.
pub(crate) const RECORDED: usize = 100;

/// Milliseconds of a recorded round, long compared with the launch of a graph.
const RECORDED_ROUND_MS: f64 = 2.0;

/// Most milliseconds of a recorded round that is lengthened to use every copy.
const ALL_COPIES_MS: f64 = 10.0;

/// The way in which products are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// One by one.
    Issued,
    /// Up to this many products recorded in a graph and started together.
    Recorded(usize),
}

impl Pace {
    /// The pace for products of `useful_bytes`, the same for all contenders.
    pub(crate) fn of(useful_bytes: f64, copy_gb_per_s: f64) -> Self {
        if useful_bytes / copy_gb_per_s / 1e6 < LAUNCH_BOUND_MS {
            Self::Recorded(RECORDED)
        } else {
            Self::Issued
        }
    }
}

/// The timing of a product, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) median_ms: f64,
    pub(crate) min_ms: f64,
    pub(crate) max_ms: f64,
    /// Milliseconds per product of each round, in order.
    pub(crate) round_ms: Vec<f64>,
    pub(crate) products: usize,
    pub(crate) recorded: bool,
    /// Why products were not recorded that should have been.
    pub(crate) refused: Option<String>,
}

impl Timing {
    /// The timing from rounds by the host's clock, or of products that were issued one by one.
    pub(crate) fn of(round_ms: Vec<f64>, products: usize) -> Self {
        Self {
            median_ms: median(&round_ms).unwrap_or(f64::NAN),
            min_ms: round_ms.iter().copied().fold(f64::INFINITY, f64::min),
            max_ms: round_ms.iter().copied().fold(0.0, f64::max),
            round_ms,
            products,
            recorded: false,
            refused: None,
        }
    }
}

/// Number of copies needed for the data of a product to be evicted from the cache before its next
/// turn: three caches full in total.
pub(crate) fn copies(useful_bytes: f64, l2_bytes: u64) -> usize {
    let wanted = (3.0 * l2_bytes as f64 / useful_bytes.max(1.0)).ceil();
    (wanted as usize).clamp(1, RECORDED)
}

/// Number of rounds and of products per round, from an estimate of one product's time and the
/// number of copies.
///
/// Long rounds are fewer: all of them take less than half a second unless five take longer, since
/// the median of such rounds needs no more.
pub(crate) fn rounds(pace: Pace, estimate_ms: f64, copies: usize) -> (usize, usize) {
    let estimate = estimate_ms.max(1e-4);
    let products = match pace {
        // A round of 0.2 ms is long beside the resolution of events.
        Pace::Issued => ((0.2 / estimate).ceil() as usize).clamp(1, 200),
        // Each launch of a graph begins with the first copy.
        Pace::Recorded(most) => {
            let turns = copies.min((ALL_COPIES_MS / estimate) as usize);
            ((RECORDED_ROUND_MS / estimate) as usize).max(turns).clamp(1, most.max(1))
        }
    };
    let rounds = match estimate * products as f64 {
        ..5.0 => 21,
        5.0..30.0 => 11,
        _ => 5,
    };
    (rounds, products)
}

/// Multiplies every copy, for some milliseconds in all, and returns the time of a product after
/// that.
fn warm_up(device: &Device, contender: &mut dyn Timed) -> Result<f64, GpuError> {
    let begin = Instant::now();
    let copies = contender.copies();
    let (start, end) = (Event::new(device)?, Event::new(device)?);
    loop {
        start.record(device)?;
        (0..copies).try_for_each(|copy| contender.product(copy))?;
        end.record(device)?;
        device.synchronize()?;
        if begin.elapsed() >= Duration::from_millis(10) {
            return Ok(f64::from(start.elapsed_ms(&end)?) / copies as f64);
        }
    }
}

/// Times a contender.
///
/// # Errors
/// An error of a product or of recording.
pub(crate) fn time(contender: &mut dyn Timed, pace: Pace) -> Result<Timing, GpuError> {
    let device = contender.device();
    let estimate = warm_up(&device, contender)?;
    let (mut count, mut products) = rounds(pace, estimate, contender.copies());
    let (mut graph, mut refused) = (None, None);
    if pace != Pace::Issued {
        let record = |_: &Device| (0..products).try_for_each(|copy| contender.product(copy));
        match device.capture(record) {
            Ok(recorded) => graph = Some(recorded),
            Err(error @ GpuError::ContextLost { .. }) => return Err(error),
            Err(error) => {
                refused = Some(error.to_string());
                (count, products) = rounds(Pace::Issued, estimate, contender.copies());
            }
        }
    }
    let leads = estimate * products as f64 <= 5.0;
    let (start, end) = (Event::new(&device)?, Event::new(&device)?);
    let mut turn = 0;
    let mut issue = |contender: &mut dyn Timed| match &graph {
        Some(graph) => replay(graph, contender),
        None => {
            turn += products;
            (turn - products..turn).try_for_each(|copy| contender.product(copy))
        }
    };
    // Slow products are warm by now, but the first launch of a graph uploads it to the device.
    if leads || graph.is_some() {
        issue(contender)?;
        device.synchronize()?;
    }
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        if leads {
            issue(contender)?;
        }
        start.record(&device)?;
        issue(contender)?;
        end.record(&device)?;
        times.push(f64::from(start.elapsed_ms(&end)?) / products as f64);
    }
    // The graph may be freed only when none of its work is running.
    device.synchronize()?;
    Ok(Timing { recorded: graph.is_some(), refused, ..Timing::of(times, products) })
}

/// Starts products that were recorded from `contender`.
#[expect(unsafe_code, reason = "what a graph uses cannot be seen in its type")]
fn replay(graph: &Graph, _contender: &mut dyn Timed) -> Result<(), GpuError> {
    // SAFETY: the graph holds products of this contender alone, which is borrowed; their memory is
    // the contender's and its operands', by the contract of `Multiply`; `time` waits for the work
    // before it returns, and freeing memory waits for it where an error comes first.
    unsafe { graph.launch() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_operands_are_copied_until_they_fill_three_caches() {
        let l2 = 50 << 20;

        assert_eq!(copies(1e9, l2), 1);
        assert_eq!(copies((150 << 20) as f64, l2), 1);
        assert_eq!(copies((50 << 20) as f64, l2), 3);
        assert_eq!(copies(10e6, l2), 16);
        assert_eq!(copies(100.0, l2), RECORDED);
        assert_eq!(copies(0.0, l2), RECORDED);
    }

    #[test]
    fn short_products_share_a_round_and_slow_ones_have_fewer() {
        assert_eq!(rounds(Pace::Issued, 0.5, 3), (21, 1));
        assert_eq!(rounds(Pace::Issued, 0.05, 3), (21, 4));
        assert_eq!(rounds(Pace::Issued, 0.0, 3), (21, 200));
        assert_eq!(rounds(Pace::Issued, 10.0, 3), (11, 1));
        assert_eq!(rounds(Pace::Issued, 40.0, 3), (5, 1));
        assert_eq!(rounds(Pace::Recorded(100), 0.005, 3), (21, 100));
        assert_eq!(rounds(Pace::Recorded(100), 0.05, 3), (21, 40));
        assert_eq!(rounds(Pace::Recorded(1), 88.0, 1), (5, 1));
    }

    #[test]
    fn all_copies_have_their_turn_in_a_recorded_round() {
        assert_eq!(rounds(Pace::Recorded(100), 0.05, 70), (21, 70));
        assert_eq!(rounds(Pace::Recorded(100), 0.05, 100), (11, 100));
        // A round with all copies may take 10 ms.
        assert_eq!(rounds(Pace::Recorded(100), 1.0, 100), (11, 10));
        assert_eq!(rounds(Pace::Recorded(100), 20.0, 100), (11, 1));
    }

    #[test]
    fn only_small_products_are_recorded() {
        assert_eq!(Pace::of(50e6, 4000.0), Pace::Recorded(RECORDED));
        assert_eq!(Pace::of(100e6, 4000.0), Pace::Issued);
    }
}
