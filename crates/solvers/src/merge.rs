//! The report of a batch whose items were solved in several places: [`BatchReport::merged`].

use std::cmp::Reverse;

use sparsebatch_solve_core::ProductCost;

use crate::choose::rank_of;
use crate::report::{BatchReport, Machine, RungRun, SchemeRun};

/// Most different texts of one kind that a merged report holds.
const MOST_TEXTS: usize = 8;

impl BatchReport {
    /// One report of solves of consecutive parts of a batch, in the order of the items; `None` where
    /// there is no report.
    ///
    /// Systems follow each other. Schemes and rungs are counted together; of their reasons, kernels
    /// and devices each different text stands once, eight at most. The solves ran side by side: times
    /// are those of the slowest. A report of no systems adds nothing but its times.
    pub fn merged(reports: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut reports = reports.into_iter();
        let mut merged = Merged::new(reports.next()?);
        reports.for_each(|report| merged.add(report));
        Some(merged.finish())
    }
}

/// Reports that were merged so far.
struct Merged {
    report: BatchReport,
    devices: Texts,
    kernels: Texts,
    /// One entry for each of `report.schemes`: reasons and kernels.
    schemes: Vec<[Texts; 2]>,
    /// One entry for each of `report.runs`: kernels, and why the CPU or the composed engine solved.
    runs: Vec<[Texts; 3]>,
    /// Time of all solves, which the time in products is a share of.
    solve_seconds: f64,
}

impl Merged {
    fn new(report: BatchReport) -> Self {
        let of_scheme = |run: &SchemeRun| [&run.reason, &run.kernel].map(|text| Texts::of(text));
        Self {
            devices: Texts::of(&report.device),
            kernels: Texts::of(&report.kernel),
            schemes: report.schemes.iter().map(of_scheme).collect(),
            runs: report.runs.iter().map(texts_of_run).collect(),
            solve_seconds: report.solve_time.as_secs_f64(),
            report,
        }
    }

    fn add(&mut self, other: BatchReport) {
        if self.report.systems.is_empty() && !other.systems.is_empty() {
            let times = (self.report.plan_time, self.report.solve_time, self.solve_seconds);
            *self = Self::new(other);
            self.add_times(times.0, times.1, times.2);
            return;
        }
        let seconds = other.solve_time.as_secs_f64();
        self.add_times(other.plan_time, other.solve_time, seconds);
        if other.systems.is_empty() {
            return;
        }
        self.report.systems.extend(other.systems);
        if self.report.backend != other.backend {
            self.report.backend = Machine::GpuAndCpu;
        }
        self.devices.add(&other.device);
        self.kernels.add(&other.kernel);
        other.schemes.into_iter().for_each(|run| self.add_scheme(run));
        other.runs.into_iter().for_each(|run| self.add_run(run));
        self.report.product_cost = match (self.report.product_cost.take(), other.product_cost) {
            (Some(one), Some(other)) => Some(one.beside(&other)),
            (one, other) => one.or(other),
        };
    }

    fn add_times(&mut self, plan: std::time::Duration, solve: std::time::Duration, seconds: f64) {
        self.report.plan_time = self.report.plan_time.max(plan);
        self.report.solve_time = self.report.solve_time.max(solve);
        self.solve_seconds += seconds;
    }

    fn add_scheme(&mut self, run: SchemeRun) {
        match self.report.schemes.iter().position(|own| own.scheme == run.scheme) {
            Some(at) => {
                self.report.schemes[at].systems += run.systems;
                self.schemes[at][0].add(&run.reason);
                self.schemes[at][1].add(&run.kernel);
            }
            None => {
                self.schemes.push([&run.reason, &run.kernel].map(|text| Texts::of(text)));
                self.report.schemes.push(run);
            }
        }
    }

    fn add_run(&mut self, run: RungRun) {
        match self.report.runs.iter().position(|own| own.rung == run.rung) {
            Some(at) => {
                let own = &mut self.report.runs[at];
                own.systems += run.systems;
                own.chunks = own.chunks.max(run.chunks);
                own.device_bytes += run.device_bytes;
                own.gpus.extend(run.gpus.iter().cloned());
                if own.backend != run.backend {
                    own.backend = Machine::GpuAndCpu;
                }
                for (own, other) in self.runs[at].iter_mut().zip(texts_of_run(&run)) {
                    own.add_all(other);
                }
            }
            None => {
                self.runs.push(texts_of_run(&run));
                self.report.runs.push(run);
            }
        }
    }

    fn finish(self) -> BatchReport {
        let mut report = self.report;
        report.device = self.devices.joined();
        report.kernel = self.kernels.joined();
        for (run, [reasons, kernels]) in report.schemes.iter_mut().zip(self.schemes) {
            run.reason = reasons.joined();
            run.kernel = kernels.joined();
        }
        for (run, [kernels, cpu, composed]) in report.runs.iter_mut().zip(self.runs) {
            run.kernel = kernels.joined();
            run.cpu_reason = cpu.joined_if_any();
            run.composed_reason = composed.joined_if_any();
        }
        report.schemes.sort_by_key(|run| (Reverse(run.systems), rank_of(run.scheme)));
        report.runs.sort_by_key(|run| run.rung);
        if let Some(first) = report.schemes.first() {
            report.scheme = first.scheme;
            report.reason.clone_from(&first.reason);
        }
        if let Some(ProductCost { share_of_solve, product_time, .. }) = &mut report.product_cost {
            let seconds = self.solve_seconds.max(f64::MIN_POSITIVE);
            *share_of_solve = (product_time.as_secs_f64() / seconds).min(1.0);
        }
        report
    }
}

fn texts_of_run(run: &RungRun) -> [Texts; 3] {
    [Some(&run.kernel), run.cpu_reason.as_ref(), run.composed_reason.as_ref()]
        .map(|text| text.map_or_else(Texts::default, |text| Texts::of(text)))
}

/// Different texts, in the order in which they came.
#[derive(Default)]
struct Texts {
    first: Vec<String>,
    /// Whether there were more than [`MOST_TEXTS`].
    more: bool,
}

impl Texts {
    fn of(text: &str) -> Self {
        Self { first: vec![text.to_owned()], more: false }
    }

    fn add(&mut self, text: &str) {
        if self.first.iter().any(|known| known == text) {
            return;
        }
        match self.first.len() < MOST_TEXTS {
            true => self.first.push(text.to_owned()),
            false => self.more = true,
        }
    }

    fn add_all(&mut self, other: Self) {
        other.first.iter().for_each(|text| self.add(text));
        self.more |= other.more;
    }

    fn joined(self) -> String {
        let mut all = self.first.join("; ");
        if self.more {
            all.push_str("; ...");
        }
        all
    }

    fn joined_if_any(self) -> Option<String> {
        (!self.first.is_empty()).then(|| self.joined())
    }
}

/// Reads the name of a format, which is one of those that reports have.
#[cfg(feature = "serde")]
pub(crate) fn known_format<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<&'static str, D::Error> {
    use serde::Deserialize;
    use serde::de::Error;
    use sparsebatch_solve_core::FormatChoice;

    // Of the GPU's packed and SELL-P products, and of operators of the caller.
    const OTHERS: [&str; 3] = ["packed", "sell-p", "operator"];
    let name = String::deserialize(deserializer)?;
    let mut known = FormatChoice::NAMES.iter().map(|(known, _)| *known).chain(OTHERS);
    let known = known.find(|known| *known == name);
    known.ok_or_else(|| D::Error::custom(format!("no format of products is called {name:?}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sparsebatch_formats::{Batch, Csr};

    use super::*;
    use crate::{Method, SolveOptions, Status, solve};

    /// A batch of 2 x 2 systems with these diagonals and 1 beside them.
    fn batch(diagonals: &[f64]) -> Batch<f64> {
        let matrix = |&d: &f64| {
            Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![d, 1.0, 1.0, d]).unwrap()
        };
        diagonals.iter().map(matrix).collect()
    }

    fn solved(diagonals: &[f64], options: &SolveOptions) -> BatchReport {
        solve(&batch(diagonals), &vec![1.0; 2 * diagonals.len()], None, options).unwrap().report
    }

    #[test]
    fn parts_of_a_batch_have_the_report_of_the_whole() {
        let options = SolveOptions::new().method(Method::Cg);
        let diagonals = [4.0, 0.5, f64::NAN, 3.0, 2.0];

        let whole = solved(&diagonals, &options);
        let parts = [&diagonals[..0], &diagonals[..2], &diagonals[2..2], &diagonals[2..]];
        let merged = BatchReport::merged(parts.map(|part| solved(part, &options))).unwrap();

        // Norms of systems that are not finite are NaN.
        assert_eq!(format!("{:?}", merged.systems), format!("{:?}", whole.systems));
        assert_eq!(merged.status_counts(), whole.status_counts());
        assert!(merged.status_counts().contains(&(Status::NonFinite, 1)));
        assert_eq!((merged.scheme, &merged.schemes), (whole.scheme, &whole.schemes));
        assert_eq!((merged.backend, &merged.device), (whole.backend, &whole.device));
        let rungs = |report: &BatchReport| -> Vec<_> {
            report.runs.iter().map(|run| (run.rung, run.systems)).collect()
        };
        assert_eq!(rungs(&merged), rungs(&whole));
        assert!(BatchReport::merged([]).is_none());
    }

    #[test]
    fn times_are_those_of_the_slowest() {
        let part = |plan, solve| {
            let mut report = solved(&[4.0], &SolveOptions::new());
            report.plan_time = Duration::from_millis(plan);
            report.solve_time = Duration::from_millis(solve);
            report
        };
        let empty = BatchReport { systems: Vec::new(), ..part(9, 1) };

        let merged = BatchReport::merged([empty, part(1, 5), part(3, 2)]).unwrap();

        assert_eq!(merged.plan_time, Duration::from_millis(9));
        assert_eq!(merged.solve_time, Duration::from_millis(5));
        assert_eq!(merged.systems.len(), 2);
    }

    #[test]
    fn different_texts_stand_once_and_are_bounded() {
        let on = |device: usize| {
            let mut report = solved(&[4.0], &SolveOptions::new());
            report.device = format!("device {device}");
            report
        };

        let few = BatchReport::merged([0, 1, 0].map(on)).unwrap();
        let many = BatchReport::merged((0..100).map(on)).unwrap();

        assert_eq!(few.device, "device 0; device 1");
        assert!(many.device.ends_with("device 7; ..."), "{}", many.device);
    }

    #[test]
    fn costs_of_products_add_up() {
        let part = |products, milliseconds| {
            let mut report = solved(&[4.0], &SolveOptions::new());
            let time = Duration::from_millis(milliseconds);
            report.product_cost = Some(ProductCost::new(products, time, time));
            report.solve_time = 2 * time;
            report
        };

        let merged = BatchReport::merged([part(3, 4), part(5, 8)]).unwrap();

        let cost = merged.product_cost.unwrap();
        assert_eq!((cost.products, cost.product_time), (5, Duration::from_millis(12)));
        assert!((cost.share_of_solve - 0.5).abs() < 1e-12, "{}", cost.share_of_solve);
    }
}
