//! Energy of a product or solve in joules, by the machine's counters.
//!
//! Counters are coarse: calls run for at least a second between two readings. A counter covers the
//! whole GPU or processor, its idle power included.

mod nvml;
mod rapl;

pub(crate) use nvml::Nvml;
pub(crate) use rapl::{POWERCAP, Rapl};

use std::time::Instant;

/// Energy counters of a device.
pub(crate) trait Meter {
    /// Reads all counters.
    ///
    /// # Errors
    /// The reason why they cannot be read, in one sentence.
    fn read(&self) -> Result<Vec<u64>, String>;

    /// Joules between two readings, which must be less than one full range of each counter apart.
    fn joules(&self, before: &[u64], after: &[u64]) -> f64;
}

/// Energy counters, and the time that calls run between two readings.
pub(crate) struct EnergyMeter {
    meter: Box<dyn Meter>,
    /// Least time in seconds.
    seconds: f64,
}

impl EnergyMeter {
    /// Reads `meter` at intervals of at least `seconds`.
    pub(crate) fn new(meter: impl Meter + 'static, seconds: f64) -> Self {
        Self { meter: Box::new(meter), seconds }
    }

    /// Measures the joules of one call; `None` without a meter, and a reason in words where the
    /// counters cannot be read. A call takes about `call_ms`.
    ///
    /// # Errors
    /// An error of a call.
    pub(crate) fn measure<S, E>(
        this: Option<&Self>,
        call_ms: f64,
        state: &mut S,
        call: impl FnMut(&mut S, usize) -> Result<(), E>,
        wait: impl FnMut(&mut S) -> Result<(), E>,
    ) -> Result<Joules, E> {
        let Some(Self { meter, seconds }) = this else { return Ok(None) };
        let duration = Duration { seconds: *seconds, call_ms };
        joules_of(&**meter, duration, state, call, wait).map(Some)
    }
}

/// Joules of one call or the reason why they are unknown; `None` where energy is not measured.
pub(crate) type Joules = Option<Result<f64, String>>;

/// The time that calls run between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Duration {
    /// Least time in seconds.
    seconds: f64,
    /// Approximate milliseconds of one call.
    call_ms: f64,
}

/// Milliseconds of calls that are issued before each wait.
const AHEAD_MS: f64 = 20.0;

/// Joules of one call, or why the counters cannot be read. `call` gets its index from 0; `wait`
/// waits for the calls that were issued.
///
/// # Errors
/// An error of a call.
fn joules_of<S, E>(
    meter: &dyn Meter,
    Duration { seconds, call_ms }: Duration,
    state: &mut S,
    mut call: impl FnMut(&mut S, usize) -> Result<(), E>,
    mut wait: impl FnMut(&mut S) -> Result<(), E>,
) -> Result<Result<f64, String>, E> {
    let ahead = ((AHEAD_MS / call_ms.max(1e-4)) as usize).clamp(1, 10_000);
    wait(state)?;
    let before = match meter.read() {
        Ok(before) => before,
        Err(reason) => return Ok(Err(reason)),
    };
    let (begin, mut calls) = (Instant::now(), 0);
    while calls == 0 || begin.elapsed().as_secs_f64() < seconds {
        (calls..calls + ahead).try_for_each(|turn| call(state, turn))?;
        wait(state)?;
        calls += ahead;
    }
    Ok(meter.read().map(|after| meter.joules(&before, &after) / calls as f64))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A meter in joules that shows a counter of the test.
    struct Counted<'a>(&'a Cell<u64>);

    impl Meter for Counted<'_> {
        fn read(&self) -> Result<Vec<u64>, String> {
            Ok(vec![self.0.get()])
        }

        fn joules(&self, before: &[u64], after: &[u64]) -> f64 {
            (after[0] - before[0]) as f64
        }
    }

    struct Broken;

    impl Meter for Broken {
        fn read(&self) -> Result<Vec<u64>, String> {
            Err("no permission".to_owned())
        }

        fn joules(&self, _: &[u64], _: &[u64]) -> f64 {
            unreachable!("nothing was read")
        }
    }

    #[test]
    fn joules_are_those_of_one_call() {
        let (counter, waits) = (Cell::new(7), Cell::new(0));
        let duration = Duration { seconds: 0.01, call_ms: 10.0 };
        let mut turns = 0;

        let found = joules_of(
            &Counted(&counter),
            duration,
            &mut turns,
            |turns: &mut usize, turn| {
                assert_eq!(*turns, turn);
                *turns += 1;
                counter.set(counter.get() + 3);
                std::thread::sleep(std::time::Duration::from_millis(4));
                Ok::<_, ()>(())
            },
            |_| {
                waits.set(waits.get() + 1);
                Ok(())
            },
        );

        assert_eq!(found, Ok(Ok(3.0)));
        // Two calls are issued before each wait: 20 ms (`AHEAD_MS`) for calls of 10 ms. A call
        // takes 4 ms at least.
        assert!(turns >= 2 && turns % 2 == 0 && waits.get() == 1 + turns / 2, "{turns}");
    }

    #[test]
    fn counters_that_cannot_be_read_run_nothing() {
        let duration = Duration { seconds: 1.0, call_ms: 1.0 };
        let call = |_: &mut (), _| panic!("called");

        let found = joules_of::<_, ()>(&Broken, duration, &mut (), call, |_| Ok(()));

        assert_eq!(found, Ok(Err("no permission".to_owned())));
    }
}
