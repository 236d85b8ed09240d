//! A campaign against the solvers: systems that are singular, graded, indefinite, poisoned,
//! permuted, huge and tiny, solved by every method. Every verdict is checked against a residual in
//! twice the precision, some also against an exact one. A misreport is printed with the data to
//! reproduce it, and the exit code is 1.
//!
//! | file | holds |
//! | --- | --- |
//! | `families.rs` | the systems |
//! | `exact.rs` | residuals in double-double and in integers |
//! | `judge.rs` | the check of verdicts |

mod exact;
mod families;
mod judge;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use sparsebatch::generate::rng;
use sparsebatch::{
    Backend, Batch, BatchSolver, Method, Order, PerSystem, Preconditioner, SolveOptions,
    SolveScalar,
};

pub use families::{FAMILIES, Family, System};
pub use judge::{Misreport, judge};

/// Solves adversarial systems and holds every verdict against residuals in twice the precision
#[derive(Parser)]
#[command(name = "campaign")]
struct Args {
    /// How long to go on
    #[arg(long, value_name = "H", conflicts_with = "systems")]
    hours: Option<f64>,
    /// How many systems to solve [default: 20000]
    #[arg(long, value_name = "N")]
    systems: Option<u64>,
    /// Number of the first batch; the same number makes the same systems
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Systems of a batch; a GPU compiles kernels for each, so that large batches are quicker there
    #[arg(long, value_name = "N", default_value_t = BATCH, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: u64,
    /// Solve on a GPU
    #[arg(long)]
    gpu: bool,
}

/// Counts of verdicts by family, and the misreports.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of systems solved.
    pub systems: u64,
    /// Number of systems whose residual was computed exactly.
    pub exact: u64,
    /// Number of systems by family and status.
    pub counts: BTreeMap<(&'static str, &'static str), u64>,
    /// The misreports.
    pub misreports: Vec<Misreport>,
}

/// Default number of systems of a batch.
const BATCH: u64 = 64;

/// Interval, in systems, at which one is also judged by exact arithmetic.
const EXACT_EVERY: u64 = 50;

/// Most misreports that are kept; a single one is a failure.
const MAX_MISREPORTS: usize = 20;

/// The solve options of a batch, a function of its number.
pub fn options_of(number: u64) -> (SolveOptions, bool) {
    let pick = |key: u64, n: u64| rng::mix(rng::mix(number) ^ key) % n;
    let methods = [Method::Auto, Method::Auto, Method::Cg, Method::BiCgStab, Method::Lu];
    let preconditioners = [
        Preconditioner::Auto,
        Preconditioner::None,
        Preconditioner::Jacobi,
        Preconditioner::BLOCK_JACOBI,
        Preconditioner::ILU0,
        Preconditioner::IC0,
    ];
    let floors = [None, None, Some(1.0), Some(4.0), Some(1e3)];
    let tolerances = [None, None, Some(1e-6), Some(1e-14), Some(0.0)];
    let mut options = SolveOptions::new()
        .method(methods[pick(1, 5) as usize])
        .preconditioner(preconditioners[pick(2, 6) as usize])
        .order([Order::Natural, Order::MinDegree, Order::Multicolor][pick(3, 3) as usize])
        .floor(floors[pick(4, 5) as usize])
        .max_iters([1000, 200, 3][pick(6, 3) as usize])
        .fallback(pick(7, 3) != 0);
    options.rel_tol = tolerances[pick(5, 5) as usize].map(PerSystem::All);
    (options, pick(8, 4) == 0)
}

/// Solves a batch of `size` systems and judges every verdict.
///
/// # Errors
/// When the solver refuses the batch; it should refuse none.
pub fn run_batch(
    backend: &Backend,
    number: u64,
    size: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let (options, single) = options_of(number);
    if single {
        run_in::<f32>(backend, number, size, &options, tally)
    } else {
        run_in::<f64>(backend, number, size, &options, tally)
    }
}

fn run_in<T: SolveScalar>(
    backend: &Backend,
    number: u64,
    size: u64,
    options: &SolveOptions,
    tally: &mut Tally,
) -> Result<(), String> {
    let systems: Vec<System<T>> =
        (0..size).map(|k| families::system(rng::mix(number) ^ k)).collect();
    let batch: Batch<T> = systems.iter().map(|system| system.matrix.clone()).collect();
    let b: Vec<T> = systems.iter().flat_map(|system| system.b.clone()).collect();
    let mut x: Vec<T> = systems.iter().flat_map(|system| system.x0.clone()).collect();
    let mut solver = BatchSolver::on(backend, &batch, options).map_err(|e| e.to_string())?;
    let report = solver.solve(&batch, &b, &mut x).map_err(|e| e.to_string())?;
    for (k, (system, ended)) in systems.iter().zip(&report.systems).enumerate() {
        let rows = batch.rows(k);
        let is_exact = tally.systems.is_multiple_of(EXACT_EVERY);
        tally.systems += 1;
        tally.exact += u64::from(is_exact);
        let count = (system.family.name(), ended.outcome.status.name());
        *tally.counts.entry(count).or_default() += 1;
        if let Err(what) = judge(system, options, &x[rows], ended, is_exact)
            && tally.misreports.len() < MAX_MISREPORTS
        {
            let (place, precision) = (k as u64, T::NAME);
            tally.misreports.push(Misreport { batch: number, place, precision, what });
        }
    }
    Ok(())
}

/// Runs the program.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let backend = match args.gpu {
        false => Backend::Cpu,
        true => match sparsebatch::gpu::Device::new(0) {
            Ok(device) => Backend::Gpu(sparsebatch::Gpu::new(device).or_cpu(true)),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        },
    };
    let start = Instant::now();
    let limit = args.hours.map(|hours| Duration::from_secs_f64((hours * 3600.0).max(0.0)));
    let systems = args.systems.unwrap_or(20_000);
    let mut tally = Tally::default();
    let mut number = args.seed;
    let goes_on = |tally: &Tally| match limit {
        Some(limit) => start.elapsed() < limit,
        None => tally.systems < systems,
    };
    while goes_on(&tally) {
        if let Err(error) = run_batch(&backend, number, args.batch, &mut tally) {
            println!("batch {number} was refused: {error}");
            return ExitCode::from(1);
        }
        number += 1;
    }
    for ((family, status), count) in &tally.counts {
        println!("{family:<14} {status:<24} {count:>9}");
    }
    for misreport in &tally.misreports {
        println!("MISREPORTED {misreport}");
    }
    println!(
        "{} systems in {:.0} s, {} of them held against exact residuals, {} misreported",
        tally.systems,
        start.elapsed().as_secs_f64(),
        tally.exact,
        tally.misreports.len()
    );
    ExitCode::from(u8::from(!tally.misreports.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short version of the campaign that `cargo run --release --example campaign -- --hours 1`
    /// runs.
    #[test]
    fn no_system_is_misreported() {
        let mut tally = Tally::default();
        // The last two batches contained systems whose x of 1e30 was kept, and called better than
        // the guess.
        for number in (1..=38).chain([5_001_716, 5_014_247]) {
            run_batch(&Backend::Cpu, number, BATCH, &mut tally).unwrap();
        }

        assert!(tally.misreports.is_empty(), "{:#?}", tally.misreports);
        assert_eq!(tally.systems, 40 * BATCH);
        // All families occurred, and most statuses.
        let families: std::collections::BTreeSet<_> = tally.counts.keys().map(|k| k.0).collect();
        assert_eq!(families.len(), FAMILIES.len());
        let statuses: std::collections::BTreeSet<_> = tally.counts.keys().map(|k| k.1).collect();
        assert!(statuses.len() >= 6, "{statuses:?}");
    }
}
