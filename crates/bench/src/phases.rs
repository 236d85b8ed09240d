//! The time of a suite by phase.
//!
//! Each thread has its clock. Work inside [`timed`] counts for its own phase, not for the enclosing
//! one.

use std::cell::RefCell;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A phase of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Reads and generates matrices, batches and vectors, and converts their layouts on the host.
    Making,
    /// Converts, analyses and uploads matrices, and makes solvers.
    Planning,
    /// Compiles kernels of the GPU beforehand.
    Compiling,
    /// Copies vectors and systems to the GPU.
    Uploading,
    /// Computes products once and compares them, or recomputes residuals.
    Checking,
    /// Warms up and measures.
    Measuring,
    /// Measures bandwidths.
    Ceilings,
    /// Everything else.
    Other,
}

impl Phase {
    const ALL: [Self; 8] = [
        Self::Making,
        Self::Planning,
        Self::Compiling,
        Self::Uploading,
        Self::Checking,
        Self::Measuring,
        Self::Ceilings,
        Self::Other,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Making => "matrices",
            Self::Planning => "plans",
            Self::Compiling => "compiling",
            Self::Uploading => "uploads",
            Self::Checking => "checks",
            Self::Measuring => "measuring",
            Self::Ceilings => "ceilings",
            Self::Other => "other",
        }
    }
}

/// Time of each phase so far, and the current phase.
struct Clock {
    spent: [Duration; Phase::ALL.len()],
    current: Phase,
    since: Instant,
}

impl Clock {
    fn new() -> Self {
        Self { spent: Default::default(), current: Phase::Other, since: Instant::now() }
    }

    /// Switches to another phase; returns the previous one.
    fn enter(&mut self, phase: Phase) -> Phase {
        let now = Instant::now();
        self.spent[self.current as usize] += now - self.since;
        self.since = now;
        std::mem::replace(&mut self.current, phase)
    }
}

thread_local! {
    static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

fn enter(phase: Phase) -> Phase {
    CLOCK.with_borrow_mut(|clock| clock.get_or_insert_with(Clock::new).enter(phase))
}

/// Runs `work` and counts its time for a phase.
pub(crate) fn timed<R>(phase: Phase, work: impl FnOnce() -> R) -> R {
    let before = enter(phase);
    let result = work();
    enter(before);
    result
}

/// A line with the seconds of this thread since its first phase or the last call: the total, then
/// each phase, longest first; phases of less than 0.05 s are left out.
pub(crate) fn line() -> String {
    let mut clock = CLOCK.take().unwrap_or_else(Clock::new);
    clock.enter(Phase::Other);
    let spent = clock.spent;
    let mut found: Vec<(Phase, f64)> =
        Phase::ALL.into_iter().zip(spent.map(|spent| spent.as_secs_f64())).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut text = format!("{:.1} s", found.iter().map(|(_, spent)| spent).sum::<f64>());
    for (number, (phase, spent)) in found.iter().filter(|(_, spent)| *spent >= 0.05).enumerate() {
        let sign = if number == 0 { ": " } else { ", " };
        write!(text, "{sign}{} {spent:.1}", phase.name())
            .expect("writing to a string does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_for_the_innermost_phase() {
        let sleep = || std::thread::sleep(Duration::from_millis(120));
        timed(Phase::Planning, || {
            timed(Phase::Checking, || {
                sleep();
                sleep();
            });
            sleep();
        });

        let line = line();
        let (total, rest) = line.split_once(" s: checks ").unwrap();
        let (checks, plans) = rest.split_once(", plans ").unwrap();
        let [total, checks, plans] =
            [total, checks, plans].map(|text| text.parse::<f64>().unwrap());
        assert!(checks >= 0.2 && plans >= 0.1 && checks > plans, "{line}");
        assert!(total >= 0.3 && (total - checks - plans).abs() < 0.15, "{line}");
    }
}
