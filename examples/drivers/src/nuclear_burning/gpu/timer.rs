//! The time of a round by part.

use std::time::{Duration, Instant};

use sparsebatch::gpu::Device;
use sparsebatch::gpu::device::Event;

use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::outcome::Shares;

/// A part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Rates and right-hand sides.
    Rates,
    /// Matrices.
    Jacobian,
    /// Factorisations and solves.
    Solve,
    /// Everything else.
    Control,
}

/// Measures the parts of some rounds.
pub trait Timer {
    /// Starts the measurement of a round.
    ///
    /// # Errors
    /// An error of the device.
    fn begin(&mut self) -> Result<(), BurningError>;

    /// Marks the end of a part of the round; does nothing outside a measured round.
    ///
    /// # Errors
    /// An error of the device.
    fn end_of(&mut self, part: Part) -> Result<(), BurningError>;

    /// Ends the measurement of a round.
    fn end(&mut self);

    /// The times of all measured parts. Waits for the last one.
    ///
    /// # Errors
    /// An error of the device.
    fn shares(&mut self) -> Result<Shares, BurningError>;
}

fn add(shares: &mut Shares, part: Part, time: Duration) {
    match part {
        Part::Rates => shares.rates += time,
        Part::Jacobian => shares.jacobian += time,
        Part::Solve => shares.solve += time,
        Part::Control => shares.control += time,
    }
}

/// A timer by events of a GPU, which the host does not wait for until a later round is measured.
pub struct Events {
    device: Device,
    /// Events at the start of a round, then at the end of each part.
    events: Vec<Event>,
    parts: Vec<Part>,
    running: bool,
    shares: Shares,
}

impl Events {
    /// A timer on the stream of a device.
    pub fn new(device: &Device) -> Self {
        let device = device.clone();
        let (events, parts, shares) = (Vec::new(), Vec::new(), Shares::default());
        Self { device, events, parts, running: false, shares }
    }

    fn record(&mut self, number: usize) -> Result<(), BurningError> {
        if self.events.len() == number {
            self.events.push(Event::new(&self.device)?);
        }
        Ok(self.events[number].record(&self.device)?)
    }

    fn collect(&mut self) -> Result<(), BurningError> {
        for (pair, &part) in self.events.windows(2).zip(&self.parts) {
            let seconds = f64::from(pair[0].elapsed_ms(&pair[1])?) * 1e-3;
            add(&mut self.shares, part, Duration::from_secs_f64(seconds.max(0.0)));
        }
        self.parts.clear();
        Ok(())
    }
}

impl Timer for Events {
    fn begin(&mut self) -> Result<(), BurningError> {
        self.collect()?;
        self.running = true;
        self.record(0)
    }

    fn end_of(&mut self, part: Part) -> Result<(), BurningError> {
        if self.running {
            self.parts.push(part);
            self.record(self.parts.len())?;
        }
        Ok(())
    }

    fn end(&mut self) {
        self.running = false;
    }

    fn shares(&mut self) -> Result<Shares, BurningError> {
        self.collect()?;
        Ok(self.shares)
    }
}

/// A timer by the clock of the host, for executors whose launches run at once.
#[derive(Default)]
pub struct Clock {
    since: Option<Instant>,
    shares: Shares,
}

impl Clock {
    /// A timer without measurements.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Timer for Clock {
    fn begin(&mut self) -> Result<(), BurningError> {
        self.since = Some(Instant::now());
        Ok(())
    }

    fn end_of(&mut self, part: Part) -> Result<(), BurningError> {
        if let Some(since) = self.since.replace(Instant::now()) {
            add(&mut self.shares, part, since.elapsed());
        }
        Ok(())
    }

    fn end(&mut self) {
        self.since = None;
    }

    fn shares(&mut self) -> Result<Shares, BurningError> {
        Ok(self.shares)
    }
}
