//! Reports of many systems as bytes that travel between processes of the same library.

use sparsebatch_solve_core::{Outcome, Status};

use crate::report::{BatchReport, Rung, SystemReport};

/// Bytes of one system.
const RECORD: usize = 27;

/// The flags of a system.
const BY_FLOOR: u8 = 1;
const SINGULAR: u8 = 2;
const OVER_BUDGET: u8 = 4;

impl BatchReport {
    /// This report without its systems; these in 27 bytes each; and their histories, one a system,
    /// or none where no system has one.
    #[doc(hidden)]
    pub fn packed(&self) -> (Self, Vec<u8>, Vec<Vec<f64>>) {
        let without = Self {
            systems: Vec::new(),
            reason: self.reason.clone(),
            schemes: self.schemes.clone(),
            device: self.device.clone(),
            kernel: self.kernel.clone(),
            runs: self.runs.clone(),
            product_cost: self.product_cost.clone(),
            ..*self
        };
        let mut records = Vec::with_capacity(RECORD * self.systems.len());
        self.systems.iter().for_each(|system| records.extend_from_slice(&record(system)));
        let has_history = self.systems.iter().any(|system| !system.outcome.history.is_empty());
        let histories = self.systems.iter().filter(|_| has_history);
        (without, records, histories.map(|system| system.outcome.history.clone()).collect())
    }

    /// Reverses [`BatchReport::packed`] for this report without its systems; `None` for bytes that
    /// no report has.
    #[doc(hidden)]
    pub fn unpacked(mut self, records: &[u8], histories: Vec<Vec<f64>>) -> Option<Self> {
        let count = records.len() / RECORD;
        let is_whole = records.len() == count * RECORD;
        if !is_whole || !(histories.is_empty() || histories.len() == count) {
            return None;
        }
        self.systems.reserve_exact(count);
        for record in records.chunks_exact(RECORD) {
            self.systems.push(system_of(record)?);
        }
        for (system, history) in self.systems.iter_mut().zip(histories) {
            system.outcome.history = history;
        }
        Some(self)
    }
}

/// A system without its history.
fn record(system: &SystemReport) -> [u8; RECORD] {
    let SystemReport { outcome, rung, singular, over_budget } = system;
    let flags = u8::from(outcome.accepted_by_floor) * BY_FLOOR
        + u8::from(*singular) * SINGULAR
        + u8::from(*over_budget) * OVER_BUDGET;
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&outcome.residual_norm.to_le_bytes());
    record[8..16].copy_from_slice(&outcome.rhs_norm.to_le_bytes());
    record[16..20].copy_from_slice(&outcome.iterations.to_le_bytes());
    record[20..24].copy_from_slice(&outcome.restarts.to_le_bytes());
    record[24..].copy_from_slice(&[outcome.status as u8, *rung as u8, flags]);
    record
}

fn system_of(record: &[u8]) -> Option<SystemReport> {
    let f64_at = |at: usize| Some(f64::from_le_bytes(record[at..at + 8].try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(record[at..at + 4].try_into().ok()?));
    let flags = record[26];
    let outcome = Outcome {
        status: *Status::ALL.get(usize::from(record[24]))?,
        iterations: u32_at(16)?,
        restarts: u32_at(20)?,
        residual_norm: f64_at(0)?,
        rhs_norm: f64_at(8)?,
        accepted_by_floor: flags & BY_FLOOR != 0,
        history: Vec::new(),
    };
    Some(SystemReport {
        outcome,
        rung: *Rung::ALL.get(usize::from(record[25]))?,
        singular: flags & SINGULAR != 0,
        over_budget: flags & OVER_BUDGET != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_system_survives() {
        for (place, &status) in Status::ALL.iter().enumerate() {
            for (at, &rung) in Rung::ALL.iter().enumerate() {
                let outcome = Outcome {
                    status,
                    iterations: u32::MAX - place as u32,
                    restarts: 7 + at as u32,
                    residual_norm: -0.0,
                    rhs_norm: 1.5e300,
                    accepted_by_floor: at % 2 == 0,
                    history: Vec::new(),
                };
                let system = SystemReport {
                    outcome,
                    rung,
                    singular: at % 3 == 0,
                    over_budget: place % 2 == 0,
                };
                let read = system_of(&record(&system)).unwrap();
                assert_eq!(format!("{read:?}"), format!("{system:?}"));
            }
        }
    }

    #[test]
    fn codes_that_no_system_has_are_refused() {
        let system = SystemReport::first(Outcome::not_begun());
        for (at, code) in [(24, Status::ALL.len()), (25, Rung::ALL.len())] {
            let mut record = record(&system);
            assert!(system_of(&record).is_some());
            record[at] = code as u8;
            assert_eq!(system_of(&record), None);
        }
    }
}
