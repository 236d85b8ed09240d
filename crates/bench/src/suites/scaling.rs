//! The suite `scaling`: the cost of products and solves against the systems of a batch, the rows of
//! a system and the entries of a matrix, over decades, so that laws of growth are seen.

use std::io::Write;
use std::path::PathBuf;

use sparsebatch_formats::generate::Family;

pub use super::Size;
use super::families::Systemed;
use super::products::{self, ProductSource};
use super::{check_names, wanted};
use crate::parallel;
use crate::phases::Phase::Making;
use crate::phases::timed;
use crate::session::{Backend, Bench, Target};
use crate::solves::session::{SolveProblem, SolveSession};
use crate::{BenchError, Outcome};
use sparsebatch_rows::growth;

/// The quantity that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The number of systems of a batch.
    Batch,
    /// The rows of each system of a small batch.
    Rows,
    /// The entries of one matrix.
    Entries,
}

impl Axis {
    /// All axes.
    pub const ALL: [Self; 3] = [Self::Batch, Self::Rows, Self::Entries];

    /// The name, which is also that of the experiment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Rows => "rows",
            Self::Entries => "entries",
        }
    }
}

impl std::str::FromStr for Axis {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let found = Self::ALL.into_iter().find(|axis| axis.name() == text);
        found.ok_or_else(|| BenchError::Option {
            option: "--experiment",
            expected: format!("one of {}", Self::ALL.map(Self::name).join(", ")),
            found: text.to_owned(),
        })
    }
}

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct Scaling {
    /// Families by name (`tri`, `lap2d`, `rand9`, `spd`); all when empty.
    pub cases: Vec<String>,
    /// The quantity that grows; when absent each axis in turn.
    pub axis: Option<Axis>,
    /// Extent of the suite.
    pub size: Size,
    /// The largest value of the growing quantity; larger points are left out.
    pub most: Option<usize>,
    /// The devices to measure; when absent the GPU if there is one, else the processor.
    pub backend: Option<Backend>,
    /// The file that the rows are written to.
    pub output: Option<PathBuf>,
}

/// Description of a batch that is made later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// A family, its rows per system, and the number of systems.
    Family(Family, usize, usize),
    /// One symmetric matrix: its rows, and its random entries per row.
    Symmetric(usize, usize),
}

impl Point {
    fn family(self) -> &'static str {
        match self {
            Self::Family(family, ..) => family.name(),
            Self::Symmetric(..) => "spd",
        }
    }

    fn make(self) -> Result<Systemed, BenchError> {
        match self {
            Self::Family(family, nrows, nitems) => Systemed::family(family, nrows, nitems),
            Self::Symmetric(nrows, draws) => Systemed::symmetric(nrows, draws),
        }
    }
}

/// Systems of a batch on the axis of rows.
const SYSTEMS: usize = 8;

/// The powers of ten from `10^from` to `10^to`.
fn decades(from: u32, to: u32) -> impl Iterator<Item = usize> {
    (from..=to).map(|power| 10usize.pow(power))
}

/// The points of an axis, over four decades.
fn points(axis: Axis, size: Size) -> Vec<Point> {
    use Family::{Lap2d, Rand9, Tri};
    let is_small = size == Size::Small;
    match axis {
        Axis::Batch => {
            let families: &[(Family, usize)] = match is_small {
                true => &[(Tri, 32)],
                false => &[(Tri, 128), (Lap2d, 256), (Rand9, 54)],
            };
            let of = |&(family, nrows): &(Family, usize)| {
                decades(0, 4).map(move |nitems| Point::Family(family, nrows, nitems))
            };
            families.iter().flat_map(of).collect()
        }
        Axis::Rows => {
            let tri = decades(1, 5).map(|nrows| Point::Family(Tri, nrows, SYSTEMS));
            // Square grids whose sides grow by a factor of about the square root of ten.
            let sides: &[usize] = if is_small { &[] } else { &[3, 10, 32, 100, 316] };
            let lap2d = sides.iter().map(|side| Point::Family(Lap2d, side * side, SYSTEMS));
            let rand9: &[usize] = if is_small { &[] } else { &[10, 100, 1_000, 10_000, 100_000] };
            let rand9 = rand9.iter().map(|&nrows| Point::Family(Rand9, nrows, SYSTEMS));
            tri.chain(lap2d).chain(rand9).collect()
        }
        Axis::Entries => {
            // From a diagonal matrix to a full one.
            let (nrows, draws): (usize, &[usize]) = match is_small {
                true => (1_000, &[0, 5, 50, 500]),
                false => (10_000, &[0, 5, 50, 500, 10_000]),
            };
            draws.iter().map(|&draws| Point::Symmetric(nrows, draws)).collect()
        }
    }
}

impl Scaling {
    /// The wanted points, each with its axis.
    fn points(&self) -> Vec<(Axis, Point)> {
        let axes = self.axis.map_or_else(|| Axis::ALL.to_vec(), |axis| vec![axis]);
        let all = axes
            .into_iter()
            .flat_map(|axis| points(axis, self.size).into_iter().map(move |point| (axis, point)));
        let fits = |&(axis, point): &(Axis, Point)| {
            let size = match (axis, point) {
                (Axis::Batch, Point::Family(_, _, nitems)) => nitems,
                (_, Point::Family(_, nrows, _)) => nrows,
                (_, Point::Symmetric(nrows, draws)) => nrows * (2 * draws + 1).min(nrows),
            };
            self.most.is_none_or(|most| size <= most) && wanted(&self.cases, point.family())
        };
        all.filter(fits).collect()
    }
}

/// Runs the suite. Prints a line per measurement to `report`.
///
/// # Errors
/// Unknown names, no point at all, an output that cannot be written, and the reason why there is no
/// GPU, if one was requested, or why it was lost.
pub fn scaling(options: &Scaling, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    check_names("--case", &options.cases, ["tri", "lap2d", "rand9", "spd"])?;
    let points = options.points();
    if points.is_empty() {
        return Err(BenchError::Option {
            option: "--case",
            expected: "families of the requested size and experiment".to_owned(),
            found: options.cases.join(","),
        });
    }
    let target = Target::of(options.backend)?;
    let make = |at: usize| Ok((points[at].0, points[at].1.make()?));
    let made = timed(Making, || parallel::map(points.len(), make));
    let made = made.into_iter().collect::<Result<Vec<_>, BenchError>>()?;
    let (effort, output) = (options.size.effort(), options.output.as_deref());
    let mut bench = Bench::start("scaling", &target, effort, false, output, &mut *report)?;
    let ended = (|| {
        bench.compile_batches(made.iter().map(|(_, made)| made.batch()))?;
        made.iter().try_for_each(|(axis, made)| {
            let oracle = |y: &[f64]| made.wrong(y);
            let problem = made.problem(Some(axis.name()), &oracle);
            products::measure(
                &mut bench,
                &problem,
                ProductSource::Batch(made.batch()),
                made.x(),
                None,
            )
        })
    })();
    if ended.is_err() {
        return bench.finish(ended);
    }
    let mut session = SolveSession::of(bench, false)?;
    let jobs: Vec<_> = made.iter().map(|(_, made)| (&made.systems, made.solve())).collect();
    let ended = (|| {
        session.compile(&jobs)?;
        made.iter().try_for_each(|(axis, made)| {
            session.experiment(Some(axis.name()));
            let problem = SolveProblem::new(&made.name, &made.systems);
            let solve = made.solve();
            session.gpu(&problem, &solve, None)?;
            session.cpu(&problem, &solve)
        })
    })();
    let outcome = session.finish(ended)?;
    writeln!(report, "{}", growth::text(&outcome.rows)).map_err(BenchError::Print)?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_axis_has_four_decades_at_paper_size() {
        for axis in [Axis::Batch, Axis::Rows] {
            let found = points(axis, Size::Paper);
            let sizes = found.iter().filter(|point| point.family() == "tri").map(|point| {
                let Point::Family(_, nrows, nitems) = *point else { panic!("of a family") };
                if axis == Axis::Batch { nitems } else { nrows }
            });
            let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
            assert_eq!(most / least, 10_000, "{}", axis.name());
        }
        let entries = points(Axis::Entries, Size::Paper);
        let (first, last) = (entries[0], entries[entries.len() - 1]);
        // A diagonal matrix and a full one.
        let rows = 10_000;
        assert_eq!((first, last), (Point::Symmetric(rows, 0), Point::Symmetric(rows, rows)));
    }

    #[test]
    fn points_beyond_the_most_are_left_out() {
        let options = Scaling { size: Size::Small, most: Some(100), ..Scaling::default() };

        let found = options.points();

        let of = |axis| found.iter().filter(|(found, _)| *found == axis).count();
        assert_eq!((of(Axis::Batch), of(Axis::Rows), of(Axis::Entries)), (3, 2, 0));
    }

    #[test]
    fn axes_are_found_by_their_names() {
        for axis in Axis::ALL {
            assert_eq!(axis.name().parse::<Axis>().unwrap(), axis);
        }
        assert!("columns".parse::<Axis>().is_err());
    }
}
