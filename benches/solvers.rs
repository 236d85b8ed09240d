//! Batched solves beside a user's alternatives: CG over sprs products, faer's CG, tuned scalar
//! loops, sparse Cholesky, the Thomas algorithm; BiCGStab beside tuned scalar loops.
//!
//! Every answer is checked system by system before anything is timed. Criterion measures each
//! contender separately; the table compares them in interleaved rounds, and its ratios are the ones
//! to quote. See `benches/README.md`.

mod common;
#[path = "common/rounds.rs"]
mod rounds;
#[path = "common/scalar_krylov.rs"]
mod scalar_krylov;
#[path = "common/solve_case.rs"]
mod solve_case;
#[path = "common/solve_peers.rs"]
mod solve_peers;
#[path = "common/solve_rows.rs"]
mod solve_rows;
#[path = "common/thomas.rs"]
mod thomas;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};
use sparsebatch_formats::generate::Family;

use solve_case::{Checked, REL_TOL, SolveCase};
use solve_peers::{Peer, peers};
use solve_rows::{Row, Run};

/// Family, rows, systems.
const CASES: [(Family, usize, usize); 7] = [
    (Family::Tri, 32, 10_000),
    (Family::Tri, 128, 10_000),
    (Family::Tri, 512, 10_000),
    (Family::Lap2d, 256, 10_000),
    (Family::Lap2d, 900, 1_000),
    (Family::Rand9, 54, 10_000),
    (Family::Rand9, 144, 10_000),
];

/// Relative excess over the tolerance, by rounding, that is accepted from a peer that tests only
/// the residual of its recurrence.
const UNVERIFIED_SLACK: f64 = 1e-3;

const USAGE: &str = "\
usage: cargo bench --bench solvers -- [FILTER]           criterion, then the table
       cargo bench --bench solvers -- --table [FILTER]   the table alone
   --rounds N     rounds of the table (default 7)
   --json FILE    append the table's rows to FILE as JSON lines (implies --table)
FILTER is plain text, part of a name such as `tri 128/faer cg`.";

/// The parsed command line.
struct Arguments {
    criterion: bool,
    table: bool,
    filter: String,
    rounds: usize,
    json: Option<PathBuf>,
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed =
            Self { criterion: true, table: false, filter: String::new(), rounds: 7, json: None };
        let (mut mine, mut others) = (false, false);
        while let Some(argument) = arguments.next() {
            let mut value = |what| arguments.next().ok_or(format!("{argument} needs {what}"));
            match argument.as_str() {
                // `cargo bench` passes this argument and `cargo test` does not; under the latter
                // each solve runs once.
                "--bench" => parsed.table = true,
                "--table" => mine = true,
                "--rounds" => {
                    mine = true;
                    let rounds = value("a number")?;
                    let valid = rounds.parse().ok().filter(|&rounds| rounds > 0);
                    parsed.rounds = valid.ok_or(format!("--rounds: not positive: {rounds}"))?;
                }
                "--json" => {
                    mine = true;
                    parsed.json = Some(value("a file")?.into());
                }
                "--help" | "-h" => return Err(USAGE.to_owned()),
                option if option.starts_with('-') => others = true,
                _ => parsed.filter = argument,
            }
        }
        if mine && others {
            return Err(format!("criterion's options do not go with the table's\n{USAGE}"));
        }
        parsed.criterion = !mine;
        parsed.table = mine || (parsed.table && !others);
        Ok(parsed)
    }

    /// Whether the filter may select a case, decided before its systems are made.
    fn may_want(&self, family: Family, nrows: usize) -> bool {
        let name = format!("{} {nrows}/", family.name());
        let begins_with_a_family = CASES.iter().any(|c| self.filter.starts_with(c.0.name()));
        let is_this_case = name.starts_with(&self.filter) || self.filter.starts_with(&name);
        !begins_with_a_family || is_this_case
    }

    /// Whether the filter selects one of the peers of a case, which have `labels`.
    fn wants(&self, case: &SolveCase, labels: &[String]) -> bool {
        let mut names = labels.iter().map(|label| format!("{}/{label}", case.name));
        names.any(|name| name.contains(&self.filter))
    }
}

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => run(&arguments),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> ExitCode {
    let mut criterion = arguments.criterion.then(|| {
        Criterion::default()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(500))
            .configure_from_args()
    });
    let mut rows = Vec::new();
    for (family, nrows, nitems) in CASES {
        if !arguments.may_want(family, nrows) {
            continue;
        }
        let case = SolveCase::new(family, nrows, nitems);
        let mut peers = peers(&case);
        let labels: Vec<String> = peers.iter().map(Peer::label).collect();
        if !arguments.wants(&case, &labels) {
            continue;
        }
        let mut x = vec![0.0; case.rhs.len()];
        let checked: Vec<_> = peers.iter_mut().map(|p| check(&case, p, &mut x)).collect();
        if let Some(criterion) = &mut criterion {
            measure_alone(criterion, &case, &mut peers, &mut x);
        }
        if arguments.table {
            eprintln!("{}: {} rounds", case.name, arguments.rounds);
            rows.extend(measure_in_turn(&case, &mut peers, checked, &mut x, arguments.rounds));
        }
    }
    if let Some(criterion) = &mut criterion {
        criterion.final_summary();
    }
    if !arguments.table {
        return ExitCode::SUCCESS;
    }
    if rows.is_empty() {
        eprintln!("no contender's name contains {:?}\n{USAGE}", arguments.filter);
        return ExitCode::from(2);
    }
    solve_rows::print_table(&rows);
    if let Some(path) = &arguments.json
        && let Err(error) = Run::new().append(path, &rows)
    {
        eprintln!("{}: {error}", path.display());
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

/// Iterations, answer and time of a first solve.
struct First {
    iterations: usize,
    checked: Checked,
    time: Duration,
}

/// Solves once and stops the bench unless every system's true residual passes.
fn check(case: &SolveCase, peer: &mut Peer<'_>, x: &mut [f64]) -> First {
    x.fill(0.0);
    let start = Instant::now();
    let iterations = (peer.solve)(x);
    let time = start.elapsed();
    let checked = case.check(x);
    let slack = if peer.verifies { 0.0 } else { UNVERIFIED_SLACK };
    assert!(
        checked.max_relative_residual <= REL_TOL * (1.0 + slack),
        "{}, {}: relative residual {:e}, {} of {} systems converged",
        case.name,
        peer.label(),
        checked.max_relative_residual,
        checked.converged,
        case.nitems
    );
    First { iterations, checked, time }
}

/// Measures each contender with Criterion; resetting x to 0 is not counted.
fn measure_alone(
    criterion: &mut Criterion,
    case: &SolveCase,
    peers: &mut [Peer<'_>],
    x: &mut [f64],
) {
    let mut group = criterion.benchmark_group(&case.name);
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(case.nitems as u64));
    for peer in peers {
        group.bench_function(peer.label(), |bencher| {
            bencher.iter_custom(|calls| {
                let mut time = Duration::ZERO;
                for _ in 0..calls {
                    x.fill(0.0);
                    let start = Instant::now();
                    (peer.solve)(x);
                    time += start.elapsed();
                }
                time
            });
        });
    }
    group.finish();
}

/// Measures the contenders in interleaved rounds for the table.
fn measure_in_turn(
    case: &SolveCase,
    peers: &mut [Peer<'_>],
    first: Vec<First>,
    x: &mut [f64],
    rounds: usize,
) -> Vec<Row> {
    let estimates: Vec<Duration> = first.iter().map(|first| first.time).collect();
    let x = std::cell::RefCell::new(x);
    let samples = rounds::rounds(
        rounds,
        &estimates,
        |_| x.borrow_mut().fill(0.0),
        |contender| {
            (peers[contender].solve)(&mut x.borrow_mut());
        },
    );
    let ours = rounds::Samples { wall: samples[0].wall.clone(), cpu: samples[0].cpu.clone() };
    let measured = peers.iter().zip(first).zip(samples);
    measured
        .map(|((peer, first), samples)| {
            Row::new(case, peer, first.iterations, first.checked, samples, &ours)
        })
        .collect()
}
