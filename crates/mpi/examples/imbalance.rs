//! How even the shares of ranks are that several rules choose, by the measured time of each system.
//!
//! `RAYON_NUM_THREADS=1 cargo run --release -p sparsebatch-mpi --example imbalance METHOD FILE...`
//!
//! METHOD is that of `sparsebatch solve --solver`. Each system of the files is solved in a batch of
//! copies of itself by one core: its cost is the time of one copy. A batch of 100 items a rank is
//! made of these systems, divided among 2 to 1,000 ranks by each rule, and the cost of the dearest
//! share over the mean cost is printed: 1 is even, 2 takes twice the time. `docs/design/scale.md`
//! has results.

use std::error::Error;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use sparsebatch_formats::io::{LoadOptions, load};
use sparsebatch_formats::{Batch, BatchValues, UniformBatch};
use sparsebatch_mpi::{cost, shares, timed};
use sparsebatch_solvers::{BatchSolver, Method, SolveOptions};

/// Copies of a system that are solved side by side, several for each SIMD lane.
const COPIES: usize = 32;

/// Solves of which the fastest counts.
const REPEATS: usize = 7;

/// Items for each rank.
const EACH: usize = 100;

const RANKS: [usize; 4] = [2, 8, 64, 1000];

/// A system, and what its solve took.
struct System {
    entries: usize,
    iterations: u32,
    nanoseconds: u64,
}

/// How the systems lie in the batch.
#[derive(Clone, Copy)]
enum Order {
    /// In the order of the files, each repeated by its neighbours, as in the zones of a mesh.
    Mesh,
    /// Drawn at random.
    Random,
}

/// By what shares are chosen.
#[derive(Clone, Copy)]
enum Rule {
    /// Every item is as dear as another.
    Counts,
    /// Entries: the rule of a first solve.
    Entries,
    /// Entries times iterations of the last solve.
    Iterations,
    /// As `MpiSolver::shares_after`, by iterations and the time of each rank, after so many solves,
    /// the last of them so many steps ago. In each step the systems move along the mesh by a tenth
    /// of a rank's items.
    After { solves: usize, ago: usize },
    /// The time of each item: what consecutive shares can reach.
    Time,
}

const RULES: [(&str, Rule); 8] = [
    ("equal counts", Rule::Counts),
    ("entries (a first solve)", Rule::Entries),
    ("entries x iterations", Rule::Iterations),
    ("iterations and times of one solve", Rule::After { solves: 1, ago: 0 }),
    ("of two solves", Rule::After { solves: 2, ago: 0 }),
    ("of solves until the step before", Rule::After { solves: 2, ago: 1 }),
    ("of solves until ten steps before", Rule::After { solves: 2, ago: 10 }),
    ("time of each item (the best)", Rule::Time),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let method: Method = arguments.next().ok_or("usage: imbalance METHOD FILE...")?.parse()?;
    let paths: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let loaded = load(&paths, LoadOptions::default())?;
    let rows = loaded.batch.row_offset(loaded.batch.nitems());
    let b = loaded.rhs.unwrap_or_else(|| vec![1.0; rows]);
    let options = SolveOptions::new().method(method);
    let systems = (0..loaded.batch.nitems())
        .map(|item| measured(&loaded.batch, item, &b, &options))
        .collect::<Result<Vec<_>, _>>()?;

    describe(&systems);
    println!("\n| items | rule | {} |", RANKS.map(|ranks| format!("{ranks} ranks")).join(" | "));
    println!("| --- | --- |{}", " --- |".repeat(RANKS.len()));
    for (order_name, order) in [("mesh", Order::Mesh), ("random", Order::Random)] {
        for (name, rule) in RULES {
            // Random items have no neighbours to move to.
            if matches!((order, rule), (Order::Random, Rule::After { ago: 1.., .. })) {
                continue;
            }
            let mut line = format!("| {order_name} | {name} |");
            for ranks in RANKS {
                write!(line, " {:.2} |", imbalance(&systems, order, rule, ranks))?;
            }
            println!("{line}");
        }
    }
    Ok(())
}

/// Solves copies of a system.
fn measured(
    batch: &Batch<f64>,
    item: usize,
    b: &[f64],
    options: &SolveOptions,
) -> Result<System, Box<dyn Error>> {
    let matrix = batch.to_csr(item);
    let pattern = matrix.pattern().clone();
    let values = BatchValues::ItemMajor(matrix.values().repeat(COPIES));
    let copies = Batch::Uniform(UniformBatch::try_new(pattern, COPIES, values)?);
    let b = b[batch.rows(item)].repeat(COPIES);
    let mut solver = BatchSolver::new(&copies, options)?;
    let mut fastest = f64::INFINITY;
    let mut iterations = 0;
    for _ in 0..REPEATS {
        let report = solver.solve(&copies, &b, &mut vec![0.0; b.len()])?;
        fastest = fastest.min(report.solve_time.as_secs_f64());
        iterations = report.systems[0].outcome.iterations;
    }
    let nanoseconds = (1e9 * fastest / COPIES as f64) as u64;
    Ok(System { entries: matrix.nnz(), iterations, nanoseconds: nanoseconds.max(1) })
}

/// Prints the spread of the systems, and how well entries and iterations tell their time.
fn describe(systems: &[System]) {
    let spread = |what: &str, of: &dyn Fn(&System) -> f64| {
        let mut all: Vec<f64> = systems.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let at = |part: usize| all[(all.len() - 1) * part / 10];
        println!(
            "{what}: least {:.3}, median {:.3}, nine of ten below {:.3}, most {:.3}, mean {:.3}",
            at(0),
            at(5),
            at(9),
            at(10),
            mean
        );
    };
    println!("{} systems", systems.len());
    spread("entries", &|system| system.entries as f64);
    spread("iterations", &|system| f64::from(system.iterations));
    spread("microseconds", &|system| system.nanoseconds as f64 / 1e3);
    spread("nanoseconds for each unit of cost", &|system| {
        system.nanoseconds as f64 / cost(system.entries, system.iterations) as f64
    });
}

/// The cost of the dearest share over the mean.
fn imbalance(systems: &[System], order: Order, rule: Rule, ranks: usize) -> f64 {
    let items = EACH * ranks;
    // The system at a place of the batch, some steps ago.
    let at = |item: usize, ago: usize| {
        let place = match order {
            Order::Mesh => (item + ago * EACH / 10) % items * systems.len() / items,
            Order::Random => (scrambled(item as u64) % systems.len() as u64) as usize,
        };
        &systems[place]
    };
    let by = |of: &dyn Fn(&System) -> u64| {
        let costs: Vec<u64> = (0..items).map(|item| of(at(item, 0))).collect();
        shares(&costs, ranks)
    };
    let time = |share: Range<usize>, ago: usize| -> Duration {
        Duration::from_nanos(share.map(|item| at(item, ago).nanoseconds).sum())
    };
    let chosen = match rule {
        Rule::Counts => by(&|_| 1),
        Rule::Entries => by(&|system| cost(system.entries, 0)),
        Rule::Iterations => {
            by(&|system| system.entries as u64 * (u64::from(system.iterations) + 1))
        }
        Rule::Time => by(&|system| system.nanoseconds),
        Rule::After { solves, ago } => {
            let mut chosen = by(&|system| cost(system.entries, 0));
            for ago in (ago..ago + solves).rev() {
                let work = |item: usize| cost(at(item, ago).entries, at(item, ago).iterations);
                let of_rank = |share: Range<usize>| {
                    let costs: Vec<u64> = share.clone().map(work).collect();
                    timed(&costs, time(share, ago))
                };
                let costs: Vec<u64> = chosen.into_iter().flat_map(of_rank).collect();
                chosen = shares(&costs, ranks);
            }
            chosen
        }
    };
    let taken: Vec<f64> = chosen.into_iter().map(|share| time(share, 0).as_secs_f64()).collect();
    let mean = taken.iter().sum::<f64>() / ranks as f64;
    taken.into_iter().fold(0.0, f64::max) / mean
}

/// A number without visible order (the finaliser of splitmix64).
fn scrambled(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
