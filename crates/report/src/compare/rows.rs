//! The rows of a file by what rows of two files are matched by.

use std::collections::{BTreeMap, BTreeSet};

use sparsebatch_rows::solves::reference::RECORDED;
use sparsebatch_rows::summary::OURS;
use sparsebatch_rows::{Machine, Row, RowFile};

use super::Side;

/// What rows are matched by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<'a> {
    pub(super) suite: &'a str,
    pub(super) experiment: Option<&'a str>,
    pub(super) case: &'a str,
    pub(super) batch: u64,
    pub(super) library: &'a str,
    pub(super) operation: &'a str,
    pub(super) preconditioner: Option<&'a str>,
    pub(super) backend: Option<&'a str>,
    pub(super) precision: &'a str,
    /// Absent where rows are matched as the choices of the library.
    pub(super) configuration: Option<&'a str>,
}

impl<'a> Key<'a> {
    pub(super) fn of(row: &'a Row) -> Self {
        Self {
            suite: &row.suite,
            experiment: row.experiment.as_deref(),
            case: &row.case,
            batch: row.batch,
            library: &row.library,
            operation: &row.operation,
            preconditioner: row.preconditioner.as_deref(),
            backend: row.backend.as_deref(),
            precision: &row.precision,
            configuration: Some(&row.configuration),
        }
    }

    pub(super) fn words(&self) -> String {
        let suite = match self.experiment {
            Some(experiment) => format!("{}, {experiment}", self.suite),
            None => self.suite.to_owned(),
        };
        let optional = [Some(self.library), self.configuration, Some(self.operation)];
        let more = [self.preconditioner, self.backend, Some(self.precision)];
        let words: Vec<&str> = optional.into_iter().chain(more).flatten().collect();
        format!("{suite}: {} x {}, {}", self.case, self.batch, words.join(" "))
    }
}

/// The rows of a file by what they are matched by, the newest of each.
pub(super) struct Rows<'a> {
    pub(super) newest: BTreeMap<Key<'a>, &'a Row>,
    /// Rows that were measured, without a time.
    pub(super) timeless: BTreeSet<Key<'a>>,
    pub(super) side: Side,
}

impl<'a> Rows<'a> {
    pub(super) fn of(file: &'a RowFile) -> Self {
        let mut newest: BTreeMap<Key<'a>, &Row> = BTreeMap::new();
        let (mut older, mut timeless) = (0, BTreeSet::new());
        for row in file.rows.iter().filter(|row| row.timing != RECORDED) {
            if !(row.median_ms.is_finite() && row.median_ms > 0.0) {
                timeless.insert(Key::of(row));
                continue;
            }
            let known = newest.entry(Key::of(row)).or_insert(row);
            if !std::ptr::eq(*known, row) {
                older += 1;
            }
            if row.date >= known.date {
                *known = row;
            }
        }
        let machines: BTreeSet<String> = newest.values().map(|row| words(&row.machine)).collect();
        let side = Side {
            file: file.path.clone(),
            rows: newest.len(),
            older,
            machines: machines.into_iter().collect(),
            partial: file.partial.clone(),
        };
        timeless.retain(|key| !newest.contains_key(key));
        Self { newest, timeless, side }
    }

    /// The first row of this library, in words.
    pub(super) fn example(&self) -> String {
        let ours = self.newest.keys().find(|key| key.library == OURS);
        ours.map_or_else(|| format!("none of {OURS}"), Key::words)
    }

    /// The library's own choices that have no row of the same configuration in the other file.
    pub(super) fn unmatched_choices(&self, other: &Self) -> BTreeMap<Key<'a>, &'a Row> {
        let unmatched = self
            .newest
            .iter()
            .filter(|(key, row)| row.automatic && !other.newest.contains_key(key));
        unmatched.map(|(key, row)| (Key { configuration: None, ..key.clone() }, *row)).collect()
    }
}

/// A machine in words.
fn words(machine: &Machine) -> String {
    let device = machine.device.as_deref().unwrap_or("unknown");
    let driver = machine.driver.as_ref().map_or(String::new(), |d| format!(", driver {d}"));
    format!("{device}{driver}, {} cores", machine.cores)
}
