//! Compares two files of rows: which measurements became faster or slower.

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use sparsebatch_formats::io::in_one_line;
use sparsebatch_rows::statistics::{geomean, rank_sum_p};
use sparsebatch_rows::summary::OURS;
use sparsebatch_rows::{Row, RowFile};

use rows::{Key, Rows};

/// Default threshold of a change: 0.05, five per cent.
pub const DEFAULT_THRESHOLD: f64 = 0.05;

/// Largest p-value of the rank-sum test at which a change counts as significant.
const SIGNIFICANT: f64 = 0.01;

/// The reason why two files of rows cannot be compared: nothing in them could show a regression.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareError {
    /// No row of a file has a measured time.
    NoTimes {
        /// The file.
        file: PathBuf,
    },
    /// No row of this library is in both files.
    NothingInCommon {
        /// The baseline file.
        a: PathBuf,
        /// The file that is compared with the baseline.
        b: PathBuf,
        /// A row of this library in `a`, in words, or a statement that it has none.
        only_a: String,
        /// The same for `b`.
        only_b: String,
    },
    /// No solve of this library in both files states the number of converged systems in both.
    NoConverged {
        /// The file that lacks the number.
        file: PathBuf,
        /// Number of solves of this library in both files.
        solves: usize,
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTimes { file } => {
                write!(f, "{}: expected rows with a time, found none", file.display())
            }
            Self::NothingInCommon { a, b, only_a, only_b } => write!(
                f,
                "{} and {}: expected rows of {OURS} that are in both, found {} and {}",
                a.display(),
                b.display(),
                in_one_line(only_a),
                in_one_line(only_b)
            ),
            Self::NoConverged { file, solves } => write!(
                f,
                "{}: expected `converged` in the rows of solves, found it in none of the {solves} that \
                 are in both files",
                file.display()
            ),
        }
    }
}

impl std::error::Error for CompareError {}

/// A comparison of two files of rows.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The threshold: the least relative change of a median that counts, as a share of the shorter
    /// time.
    pub threshold: f64,
    /// The baseline file.
    pub a: Side,
    /// The file that is compared with the baseline.
    pub b: Side,
    /// Whether both were measured on equal machines: device, driver and cores.
    pub same_machine: bool,
    /// Number of rows in both files.
    pub matched: usize,
    /// Number of rows in both files whose times differ by less than the threshold, or whose rounds
    /// do not confirm the difference.
    pub unchanged: usize,
    /// Rows that are faster in `b`, largest change first.
    pub faster: Vec<Change>,
    /// Rows that are slower in `b`, or leave more systems unsolved, largest change first.
    pub slower: Vec<Change>,
    /// Mean changes by suite and library.
    pub suites: Vec<SuiteChange>,
    /// Rows in `a` only, in words.
    pub only_a: Vec<String>,
    /// Rows in `b` only, in words.
    pub only_b: Vec<String>,
    /// Rows of this library in both files that are not judged, or by their times only, since one of
    /// them lacks the time or, for a solve, the number of converged systems; in words.
    pub unjudged: Vec<String>,
}

/// One file of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The file.
    pub file: PathBuf,
    /// Number of comparable rows: those with a time, except figures recorded elsewhere.
    pub rows: usize,
    /// Number of rows of older runs of the same measurements, which are not compared.
    pub older: usize,
    /// The machines in words.
    pub machines: Vec<String>,
    /// The reason why the file is incomplete, if it is.
    pub partial: Option<String>,
}

/// A row of both files whose time changed.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The suite.
    pub suite: String,
    /// The published experiment.
    pub experiment: Option<String>,
    /// The case.
    pub case: String,
    /// Number of systems.
    pub batch: u64,
    /// Our library or a peer.
    pub library: String,
    /// Kernel and format in `a`.
    pub configuration: String,
    /// Kernel and format in `b`, if the library chose others.
    pub configuration_b: Option<String>,
    /// `spmv`, or the method.
    pub operation: String,
    /// Preconditioner of a solve.
    pub preconditioner: Option<String>,
    /// Backend of our solves.
    pub backend: Option<String>,
    /// `f64` or `f32`.
    pub precision: String,
    /// Median, minimum and maximum in `a`, in milliseconds.
    pub a_ms: [f64; 3],
    /// Median, minimum and maximum in `b`, in milliseconds.
    pub b_ms: [f64; 3],
    /// The speed of `b` over that of `a`: 2 where `b` takes half the time.
    pub speed: f64,
    /// The p-value of the one-sided Wilcoxon rank-sum test over the rounds, under the hypothesis
    /// that neither row is slower; `None` if a row lacks its rounds.
    pub p: Option<f64>,
    /// Numbers of converged systems in `a` and in `b`, if `b` leaves more systems unsolved.
    pub unsolved: Option<[u64; 2]>,
}

/// The rows of one suite and library in both files.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteChange {
    /// The suite.
    pub suite: String,
    /// The published experiment.
    pub experiment: Option<String>,
    /// Our library or a peer.
    pub library: String,
    /// Number of rows.
    pub rows: usize,
    /// Geometric mean of the speeds of `b` over those of `a`.
    pub speed: f64,
}

/// Compares b with a. Rows are the same where suite, experiment, case, batch, library,
/// configuration, operation, preconditioner, backend and precision are, and where they are what the
/// library chose by itself; of several runs the newest counts.
///
/// A row changed if its medians differ by more than `threshold`, a share of the shorter one, and
/// its rounds confirm it: if the one-sided Wilcoxon rank-sum test over them (Mann and Whitney 1947)
/// has a p-value of at most 0.01, or if the median of one is beyond the slowest, or the fastest,
/// round of the other. The latter criterion needs no stored rounds, which older files lack, and
/// also serves rows of few rounds. A row also became slower if fewer systems converge.
///
/// # Errors
/// When nothing could show a regression: [`CompareError`].
pub fn compare(a: &RowFile, b: &RowFile, threshold: f64) -> Result<Comparison, CompareError> {
    let (a, b) = (Rows::of(a), Rows::of(b));
    for rows in [&a, &b] {
        if rows.newest.is_empty() {
            return Err(CompareError::NoTimes { file: rows.side.file.clone() });
        }
    }
    let mut pairs: Vec<(&Row, &Row)> =
        a.newest.iter().filter_map(|(key, &row)| Some((row, *b.newest.get(key)?))).collect();
    let (choices_a, choices_b) = (a.unmatched_choices(&b), b.unmatched_choices(&a));
    pairs.extend(choices_a.iter().filter_map(|(key, &row)| Some((row, *choices_b.get(key)?))));
    let unjudged = unjudged(&a, &b, &pairs)?;
    let in_pairs: BTreeSet<*const Row> =
        pairs.iter().flat_map(|&(a, b)| [std::ptr::from_ref(a), std::ptr::from_ref(b)]).collect();
    let only = |rows: &Rows<'_>| -> Vec<String> {
        let alone = |row: &Row| !in_pairs.contains(&std::ptr::from_ref(row));
        let is_timeless = |key: &Key<'_>| a.timeless.contains(key) || b.timeless.contains(key);
        let alone = rows.newest.iter().filter(|(key, row)| alone(row) && !is_timeless(key));
        alone.map(|(key, _)| key.words()).collect()
    };
    let (only_a, only_b) = (only(&a), only(&b));
    let mut comparison = Comparison {
        threshold,
        same_machine: a.side.machines == b.side.machines,
        a: a.side,
        b: b.side,
        matched: pairs.len(),
        unchanged: 0,
        faster: Vec::new(),
        slower: Vec::new(),
        suites: suites(&pairs),
        only_a,
        only_b,
        unjudged,
    };
    for (a, b) in pairs {
        let change = Change::of(a, b);
        match change.verdict(threshold) {
            Verdict::Faster => comparison.faster.push(change),
            Verdict::Slower => comparison.slower.push(change),
            Verdict::Unchanged => comparison.unchanged += 1,
        }
    }
    comparison.faster.sort_by(|a, b| b.speed.total_cmp(&a.speed));
    comparison.slower.sort_by(|a, b| {
        (a.unsolved.is_none(), a.speed)
            .partial_cmp(&(b.unsolved.is_none(), b.speed))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(comparison)
}

/// The rows of this library in both files that lack a time or a number of converged systems, in
/// words.
///
/// # Errors
/// When no row of this library is in both files, or no solve among them states the number of
/// converged systems in both.
fn unjudged(
    a: &Rows<'_>,
    b: &Rows<'_>,
    pairs: &[(&Row, &Row)],
) -> Result<Vec<String>, CompareError> {
    let ours = || pairs.iter().filter(|(row, _)| row.library == OURS);
    if ours().next().is_none() {
        let (only_a, only_b) = (a.example(), b.example());
        let (a, b) = (a.side.file.clone(), b.side.file.clone());
        return Err(CompareError::NothingInCommon { a, b, only_a, only_b });
    }
    let solves = || ours().filter(|(row, _)| row.operation != "spmv");
    let silent = || solves().filter(|(a, b)| a.converged.is_none() || b.converged.is_none());
    if solves().next().is_some() && silent().count() == solves().count() {
        let file = if solves().all(|(a, _)| a.converged.is_none()) { a } else { b };
        let (file, solves) = (file.side.file.clone(), solves().count());
        return Err(CompareError::NoConverged { file, solves });
    }
    let timeless = |one: &Rows<'_>, other: &Rows<'_>, name: &str| -> Vec<String> {
        let keys = one.timeless.iter().filter(|key| key.library == OURS);
        let keys = keys.filter(|key| other.newest.contains_key(key));
        keys.map(|key| format!("{}: no time in {name}", key.words())).collect()
    };
    let silent = silent().map(|(a, b)| {
        let name = if b.converged.is_none() { "b" } else { "a" };
        format!("{}: no `converged` in {name}", Key::of(a).words())
    });
    Ok([timeless(a, b, "a"), timeless(b, a, "b"), silent.collect()].concat())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Faster,
    Slower,
    Unchanged,
}

impl Change {
    fn of(a: &Row, b: &Row) -> Self {
        let other = (a.configuration != b.configuration).then(|| b.configuration.clone());
        let unsolved = match (a.converged, b.converged) {
            (Some(a), Some(b)) if b < a => Some([a, b]),
            _ => None,
        };
        Self {
            suite: a.suite.clone(),
            experiment: a.experiment.clone(),
            case: a.case.clone(),
            batch: a.batch,
            library: a.library.clone(),
            configuration: a.configuration.clone(),
            configuration_b: other,
            operation: a.operation.clone(),
            preconditioner: a.preconditioner.clone(),
            backend: a.backend.clone(),
            precision: a.precision.clone(),
            a_ms: [a.median_ms, a.min_ms, a.max_ms],
            b_ms: [b.median_ms, b.min_ms, b.max_ms],
            speed: a.median_ms / b.median_ms,
            p: if a.median_ms <= b.median_ms {
                rank_sum_p(&a.round_ms, &b.round_ms)
            } else {
                rank_sum_p(&b.round_ms, &a.round_ms)
            },
            unsolved,
        }
    }

    fn verdict(&self, threshold: f64) -> Verdict {
        let is_slower = |[fast, _, fast_max]: [f64; 3], [slow, slow_min, _]: [f64; 3]| {
            // An unknown spread counts as zero.
            let or = |bound: f64, median: f64| if bound.is_nan() { median } else { bound };
            let is_beyond = slow > or(fast_max, fast) || or(slow_min, slow) > fast;
            slow > fast * (1.0 + threshold)
                && (is_beyond || self.p.is_some_and(|p| p <= SIGNIFICANT))
        };
        if self.unsolved.is_some() || is_slower(self.a_ms, self.b_ms) {
            Verdict::Slower
        } else if is_slower(self.b_ms, self.a_ms) {
            Verdict::Faster
        } else {
            Verdict::Unchanged
        }
    }

    /// Whether the row is of this library rather than of a peer.
    pub fn is_ours(&self) -> bool {
        self.library == OURS
    }

    /// The changed row in words.
    pub fn name(&self) -> String {
        let key = Key {
            suite: &self.suite,
            experiment: self.experiment.as_deref(),
            case: &self.case,
            batch: self.batch,
            library: &self.library,
            operation: &self.operation,
            preconditioner: self.preconditioner.as_deref(),
            backend: self.backend.as_deref(),
            precision: &self.precision,
            configuration: Some(&self.configuration),
        };
        match &self.configuration_b {
            Some(configuration) => format!("{}, now {configuration}", key.words()),
            None => key.words(),
        }
    }
}

impl Comparison {
    /// The rows of this library that became slower. Slower rows of peers point to the machine
    /// instead.
    pub fn regressions(&self) -> impl Iterator<Item = &Change> {
        self.slower.iter().filter(|change| change.is_ours())
    }
}

fn suites(pairs: &[(&Row, &Row)]) -> Vec<SuiteChange> {
    let mut speeds: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for (a, b) in pairs {
        let key = (&a.suite, &a.experiment, a.library != OURS, &a.library);
        speeds.entry(key).or_default().push(a.median_ms / b.median_ms);
    }
    let change =
        |((suite, experiment, _, library), speeds): ((&String, _, _, &String), Vec<f64>)| {
            let experiment: &Option<String> = experiment;
            Some(SuiteChange {
                suite: suite.clone(),
                experiment: experiment.clone(),
                library: library.clone(),
                rows: speeds.len(),
                speed: geomean(speeds)?,
            })
        };
    speeds.into_iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_rows::solves::reference::RECORDED;

    fn row(case: &str, ms: [f64; 3]) -> Row {
        let [median, min, max] = ms;
        let line = format!(
            r#"{{"schema":1,"suite":"single","case":"{case}","library":"sparsebatch",
            "configuration":"ell","operation":"spmv","precision":"f64","batch":1,"nnz":2,"rows":1,
            "median_ms":{median},"min_ms":{min},"max_ms":{max},"gflops":1.0,"bytes_moved":3,
            "share_of_copy":0.5,"machine":{{"device":"a GPU","cores":2}},"date":"d","commit":"c"}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    fn file(name: &str, rows: Vec<Row>) -> RowFile {
        RowFile { path: name.into(), rows, gaps: Vec::new(), partial: None }
    }

    fn compared(a: Vec<Row>, b: Vec<Row>) -> Comparison {
        compare(&file("a", a), &file("b", b), DEFAULT_THRESHOLD).unwrap()
    }

    fn refused(a: Vec<Row>, b: Vec<Row>) -> String {
        compare(&file("a", a), &file("b", b), DEFAULT_THRESHOLD).unwrap_err().to_string()
    }

    /// Makes a row with these rounds.
    fn rounds(round_ms: &[f64]) -> Row {
        let median = sparsebatch_rows::statistics::median(round_ms).unwrap();
        let min = round_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let max = round_ms.iter().copied().fold(0.0, f64::max);
        Row { round_ms: round_ms.to_vec(), ..row("x", [median, min, max]) }
    }

    #[test]
    fn names_with_line_ends_are_told_in_one_line() {
        let broken = Row { case: "b\n\u{1b}".to_owned(), ..row("b", [1.0; 3]) };

        let error = refused(vec![row("a", [1.0; 3])], vec![broken]);

        assert!(error.contains("single: b\\n\\u{1b} x 1"), "{error:?}");
    }

    #[test]
    fn a_change_is_beyond_threshold_and_spread() {
        let before = [1.0, 0.9, 1.2];
        let after = |ms: [f64; 3]| {
            let found = compared(vec![row("x", before)], vec![row("x", ms)]);
            (found.faster.len(), found.slower.len(), found.unchanged)
        };

        assert_eq!(after([1.5, 1.3, 1.6]), (0, 1, 0));
        // One round was fast.
        assert_eq!(after([3.0, 0.5, 3.1]), (0, 1, 0));
        // Without rounds this may be chance: both medians lie in the spread of the other.
        assert_eq!(after([1.15, 0.95, 1.6]), (0, 0, 1));
        assert_eq!(after([0.5, 0.4, 0.6]), (1, 0, 0));
        assert_eq!(after([0.5, 0.4, 2.0]), (1, 0, 0));
        assert_eq!(after([0.92, 0.8, 1.1]), (0, 0, 1));
        // Below the threshold.
        let exact = |a: f64, b: f64| {
            let found = compared(vec![row("x", [a; 3])], vec![row("x", [b; 3])]);
            (found.faster.len(), found.slower.len())
        };
        assert_eq!(exact(1.0, 1.04), (0, 0));
        assert_eq!(exact(1.0, 1.06), (0, 1));
        assert_eq!(exact(1.06, 1.0), (1, 0));
    }

    #[test]
    fn rounds_tell_a_change_from_chance() {
        let judged = |before: &[f64], after: &[f64]| {
            let found = compared(vec![rounds(before)], vec![rounds(after)]);
            (found.faster.len(), found.slower.len())
        };
        // A slow round before, a fast one after: the medians lie in the spread of the other.
        let before = [1.0, 1.01, 1.02, 1.0, 0.99, 1.01, 1.0, 1.02, 1.03, 1.0, 9.0];
        let after = [3.0, 3.1, 0.9, 3.0, 3.05, 3.0, 3.1, 3.0, 2.95, 3.0, 3.0];
        let noise = [0.7, 1.3, 0.8, 1.2, 1.1, 1.15, 1.4, 0.9, 1.12, 1.1, 1.08];

        assert_eq!(judged(&before, &after), (0, 1));
        assert_eq!(judged(&after, &before), (1, 0));
        assert_eq!(judged(&before, &noise), (0, 0));
        let found = compared(vec![rounds(&before)], vec![rounds(&after)]);
        assert!(found.slower[0].p.unwrap() < 0.01, "{:?}", found.slower[0].p);
        assert_eq!(compared(vec![row("x", [1.0; 3])], vec![row("x", [2.0; 3])]).slower[0].p, None);
    }

    #[test]
    fn rows_of_one_file_only_are_named() {
        let one = |case: &str| row(case, [1.0; 3]);

        let found = compared(vec![one("x"), one("z")], vec![one("y"), one("z")]);

        assert_eq!(found.matched, 1);
        assert_eq!(found.only_a, ["single: x x 1, sparsebatch ell spmv f64"]);
        assert_eq!(found.only_b, ["single: y x 1, sparsebatch ell spmv f64"]);
    }

    #[test]
    fn what_could_show_no_regression_is_refused() {
        let one = |case: &str| row(case, [1.0; 3]);
        let peer = || Row { library: "cuSPARSE".to_owned(), ..one("x") };
        let timeless = || Row { median_ms: f64::NAN, ..one("x") };
        let recorded = || Row { timing: RECORDED.to_owned(), ..one("x") };

        assert_eq!(
            refused(vec![one("x")], vec![one("y")]),
            "a and b: expected rows of sparsebatch that are in both, found single: x x 1, sparsebatch \
             ell spmv f64 and single: y x 1, sparsebatch ell spmv f64"
        );
        assert!(refused(vec![peer()], vec![peer()]).contains("found none of sparsebatch and none"));
        assert_eq!(
            refused(vec![one("x")], vec![timeless()]),
            "b: expected rows with a time, found none"
        );
        assert!(
            refused(vec![recorded()], vec![one("x")]).starts_with("a: expected rows with a time")
        );
        let solve = |converged| Row { operation: "cg".to_owned(), converged, ..one("x") };
        assert_eq!(
            refused(vec![solve(Some(1)), one("y")], vec![solve(None), one("y")]),
            "b: expected `converged` in the rows of solves, found it in none of the 1 that are in both \
             files"
        );
        assert!(refused(vec![solve(None)], vec![solve(None)]).starts_with("a: expected `conv"));
    }

    #[test]
    fn rows_of_which_something_is_missing_are_named() {
        let solve = |case: &str, converged| Row {
            operation: "cg".to_owned(),
            converged,
            ..row(case, [1.0; 3])
        };
        let timeless = Row { median_ms: f64::NAN, ..row("z", [1.0; 3]) };

        let found = compared(
            vec![solve("x", Some(4)), solve("y", Some(4)), row("z", [1.0; 3])],
            vec![solve("x", Some(4)), solve("y", None), timeless],
        );

        assert_eq!((found.matched, found.only_a.len()), (2, 0));
        assert_eq!(
            found.unjudged,
            [
                "single: z x 1, sparsebatch ell spmv f64: no time in b",
                "single: y x 1, sparsebatch ell cg f64: no `converged` in b"
            ]
        );
    }

    #[test]
    fn choices_are_compared_where_the_library_chose_otherwise() {
        let mut a = row("x", [1.0; 3]);
        a.automatic = true;
        let mut b = Row { configuration: "dia".to_owned(), ..row("x", [2.0; 3]) };
        b.automatic = true;

        let found = compared(vec![a.clone()], vec![b.clone()]);

        assert_eq!((found.matched, found.slower.len()), (1, 1));
        assert_eq!(found.slower[0].configuration_b.as_deref(), Some("dia"));
        assert!(found.slower[0].name().ends_with("now dia"));
        b.automatic = false;
        assert!(refused(vec![a], vec![b]).contains("in both"));
    }

    #[test]
    fn systems_that_no_longer_converge_are_a_regression() {
        let solve = |converged: u64| Row { converged: Some(converged), ..row("x", [1.0; 3]) };

        let found = compared(vec![solve(10)], vec![solve(9)]);

        assert_eq!(found.slower[0].unsolved, Some([10, 9]));
        assert!(compared(vec![solve(9)], vec![solve(10)]).slower.is_empty());
    }

    #[test]
    fn of_several_runs_the_newest_counts() {
        let old = Row { date: "2026-01-01".to_owned(), ..row("x", [9.0; 3]) };
        let new = Row { date: "2026-02-01".to_owned(), ..row("x", [1.0; 3]) };

        let found = compared(vec![new, old], vec![row("x", [1.0; 3])]);

        assert_eq!((found.a.rows, found.a.older, found.unchanged), (1, 1, 1));
    }

    #[test]
    fn peers_do_not_make_a_regression_and_machines_are_compared() {
        let peer = |ms: f64| Row { library: "cuSPARSE".to_owned(), ..row("x", [ms; 3]) };
        let mut other = peer(2.0);
        other.machine.driver = Some("600".to_owned());

        let found = compared(vec![peer(1.0), row("y", [4.0; 3])], vec![other, row("y", [1.0; 3])]);

        assert_eq!((found.slower.len(), found.regressions().count()), (1, 0));
        assert!(!found.same_machine);
        assert_eq!(found.suites.len(), 2);
        assert_eq!((found.suites[0].library.as_str(), found.suites[0].speed), ("sparsebatch", 4.0));
    }

    #[test]
    fn recorded_figures_are_left_out() {
        let recorded = || Row { timing: RECORDED.to_owned(), ..row("x", [1.0; 3]) };
        let with = |ms: f64| vec![recorded(), row("y", [ms; 3])];

        let found = compared(with(1.0), with(1.0));

        assert_eq!((found.a.rows, found.matched), (1, 1));
    }
}
