//! The clock of solves.
//!
//! On a device a solve is timed twice. `median_ms` is the time between two events, as for products
//! (see `timing.rs`), with enough copies of the data to keep it out of the cache. `wall_ms` is the
//! time of one call between two synchronisations by the host's clock, launch and waiting included,
//! as most libraries' figures are taken. On the CPU there is the host's clock alone.

use std::time::{Duration, Instant};

use sparsebatch_cuda::device::Event;
use sparsebatch_cuda::{Device, Executor};
use sparsebatch_solvers::SolveError;

use super::{Real, Solve};
use crate::timing::{Pace, Timing, rounds};
use sparsebatch_rows::statistics::median;

/// The timing of a solve, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct SolveTiming {
    pub(crate) timing: Timing,
    /// Milliseconds of one call between two synchronisations, on a device.
    pub(crate) wall_ms: Option<f64>,
}

fn milliseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

/// Times one call by the host's clock.
fn wall<T: Real>(
    solve: &mut dyn Solve<T>,
    device: Option<&Device>,
    copy: usize,
) -> Result<f64, SolveError> {
    let wait = || device.map_or(Ok(()), Executor::synchronize);
    solve.restore(copy)?;
    wait()?;
    let begin = Instant::now();
    solve.solve(copy)?;
    wait()?;
    Ok(milliseconds(begin))
}

/// Times a solve: on `device` by its events and by the host's clock, else by the host's clock
/// alone.
///
/// # Errors
/// An error of a solve.
pub(crate) fn time<T: Real>(
    solve: &mut dyn Solve<T>,
    device: Option<&Device>,
) -> Result<SolveTiming, SolveError> {
    // Warms up: every copy once, and some milliseconds in all, since a device that has idled during
    // a compilation is slower at first.
    let warm = Duration::from_millis(if device.is_some() { 30 } else { 10 });
    let (begin, mut fastest, mut copy) = (Instant::now(), f64::INFINITY, 0);
    while copy < solve.copies().max(2) || begin.elapsed() < warm {
        fastest = fastest.min(wall(solve, device, copy)?);
        copy += 1;
    }
    let calls = rounds(Pace::Issued, fastest, 1).0;
    let walls: Vec<f64> =
        (0..calls).map(|call| wall(solve, device, copy + call)).collect::<Result<_, _>>()?;
    let Some(device) = device else {
        return Ok(SolveTiming { timing: Timing::of(walls, 1), wall_ms: None });
    };
    let (times, products) = events(solve, device, fastest)?;
    Ok(SolveTiming { timing: Timing::of(times, products), wall_ms: median(&walls) })
}

/// Times of rounds between events, and the number of solves in each.
fn events<T: Real>(
    solve: &mut dyn Solve<T>,
    device: &Device,
    estimate: f64,
) -> Result<(Vec<f64>, usize), SolveError> {
    let (count, products) = match (rounds(Pace::Issued, estimate, 1), solve.wants_restoring()) {
        ((count, _), true) => (count, 1),
        (both, false) => both,
    };
    let leads = estimate * products as f64 <= 5.0 && !solve.wants_restoring();
    let (start, end) = (Event::new(device)?, Event::new(device)?);
    let (mut times, mut turn) = (Vec::with_capacity(count), 0);
    let mut issue = |solve: &mut dyn Solve<T>| {
        turn += products;
        (turn - products..turn).try_for_each(|copy| solve.solve(copy))
    };
    for round in 0..count {
        if leads {
            issue(solve)?;
        }
        // The restoring copies keep the device busy until the first event.
        solve.restore(round)?;
        start.record(device)?;
        issue(solve)?;
        end.record(device)?;
        times.push(f64::from(start.elapsed_ms(&end)?) / products as f64);
    }
    device.synchronize()?;
    Ok((times, products))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solves::Answer;

    /// Sleeps for a millisecond, and counts.
    struct Sleeper {
        restored: usize,
        solved: usize,
    }

    impl Solve<f64> for Sleeper {
        fn copies(&self) -> usize {
            3
        }

        fn restore(&mut self, _copy: usize) -> Result<(), SolveError> {
            self.restored += 1;
            Ok(())
        }

        fn wants_restoring(&self) -> bool {
            true
        }

        fn solve(&mut self, _copy: usize) -> Result<(), SolveError> {
            self.solved += 1;
            assert_eq!(self.restored, self.solved);
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        }

        fn answer(&mut self, _copy: usize) -> Result<Answer<f64>, SolveError> {
            Ok(Answer { x: Vec::new(), outcomes: None })
        }
    }

    #[test]
    fn the_hosts_clock_times_single_calls_restored_each() {
        let mut sleeper = Sleeper { restored: 0, solved: 0 };

        let found = time(&mut sleeper, None).unwrap();

        assert!(found.timing.min_ms >= 1.0 && found.timing.median_ms >= found.timing.min_ms);
        assert_eq!(
            (found.timing.round_ms.len(), found.timing.products, found.wall_ms),
            (21, 1, None)
        );
        assert!(sleeper.solved >= 21 + 3);
    }
}
