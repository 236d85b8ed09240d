//! How good the automatic choice of `single` is on measured rows, and the constants that fit them.
//!
//! `single_choice <rows.jsonl> [--fit] [folder of matrices]...`: for every case of the rows what is
//! chosen, what it took, and the best of ours and of the peer. With `--fit` the constants of the
//! model are fitted to the rows first and printed in the order of `choose/cost.rs`.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use sparsebatch_bench::suites::single::for_each_matrix;
use sparsebatch_bench::{BenchError, Single};
use sparsebatch_rows::summary::OURS;
use sparsebatch_spmv_gpu::single::choose::cost::{Cost, cost};
use sparsebatch_spmv_gpu::single::choose::{Candidate, Family, MatrixShape, candidates, choose};

/// Times in microseconds by configuration.
#[derive(Default)]
struct Case {
    ours: BTreeMap<String, f64>,
    peer: BTreeMap<String, f64>,
}

/// A candidate that was measured.
struct Sample {
    candidate: Candidate,
    measured: f64,
    /// Of this case by any kernel of ours.
    best: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let fit = arguments.iter().any(|argument| argument == "--fit");
    arguments.retain(|argument| argument != "--fit");
    let [rows, folders @ ..] = arguments.as_slice() else {
        return Err("expected: <rows.jsonl> [--fit] [folder of matrices]...".into());
    };
    let cases = read(Path::new(rows))?;
    let options =
        Single { matrices: folders.iter().map(PathBuf::from).collect(), ..Single::default() };
    let mut samples: Vec<(String, Vec<Sample>)> = Vec::new();
    for_each_matrix(
        &options,
        |name| cases.contains_key(name),
        |name, matrix| {
            let case = &cases[name];
            let best = least(&case.ours);
            let shape = MatrixShape::new(matrix.view().pattern());
            let all = candidates(&shape, size_of::<f64>());
            let (choice, _) = choose(&shape, size_of::<f64>(), false);
            if !case.ours.contains_key(&choice.to_string()) {
                println!(
                    "{name}: {choice} would be chosen and was not measured, {:.2} us expected",
                    choice.time_us()
                );
            }
            let measured = all.into_iter().filter_map(|candidate| {
                let measured = *case.ours.get(&candidate.to_string())?;
                Some(Sample { candidate, measured, best })
            });
            samples.push((name.to_owned(), measured.collect()));
        },
    )?;
    let mut constants: Vec<(Family, Cost)> = Family::ALL.iter().map(|&f| (f, cost(f))).collect();
    if fit {
        for (family, cost) in &mut constants {
            let of_family: Vec<&Sample> = samples
                .iter()
                .flat_map(|(_, samples)| samples)
                .filter(|sample| sample.candidate.family == *family)
                .collect();
            *cost = fitted(*cost, &of_family);
            let numbers = cost.constants().map(|number| *number);
            let digits = [3, 3, 0, 0, 0, 0, 3, 3, 3, 4, 3, 4, 3];
            let printed: Vec<String> = std::iter::zip(numbers, digits)
                .map(|(number, digits)| format!("{number:.digits$}"))
                .collect();
            println!(
                "        Family::{family:?} => {}; blocks {}; {} products, typical error {:.0} %",
                printed[..7].join(", "),
                printed[7..].join(", "),
                of_family.len(),
                100.0 * (error(cost, &of_family).sqrt().exp() - 1.0)
            );
        }
    }
    report(&cases, &samples, &constants);
    Ok(())
}

fn read(path: &Path) -> Result<BTreeMap<String, Case>, BenchError> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for row in sparsebatch_rows::read(path)?.rows.into_iter().filter(|row| row.suite == "single") {
        let case = cases.entry(row.case).or_default();
        let times = if row.library == OURS { &mut case.ours } else { &mut case.peer };
        times.insert(row.configuration, 1e3 * row.median_ms);
    }
    Ok(cases)
}

fn least(times: &BTreeMap<String, f64>) -> f64 {
    times.values().copied().fold(f64::INFINITY, f64::min)
}

/// The mean square of the logarithm of expected over measured, where near-best kernels count most.
fn error(cost: &Cost, samples: &[&Sample]) -> f64 {
    let (mut sum, mut weights) = (0.0, 1e-9);
    for sample in samples {
        let weight = (sample.best / sample.measured).powi(3);
        sum += weight * (cost.time_us(&sample.candidate.work) / sample.measured).ln().powi(2);
        weights += weight;
    }
    sum / weights
}

/// Improves one constant after the other in steps that shrink.
fn fitted(start: Cost, samples: &[&Sample]) -> Cost {
    let mut best = start;
    if samples.is_empty() {
        return best;
    }
    let mut step = 1.5;
    while step > 1.002 {
        let before = error(&best, samples);
        for field in 0..best.constants().len() {
            for factor in [step, 1.0 / step] {
                let mut cost = best;
                *cost.constants()[field] *= factor;
                // No kernel moves more than the memory, or than the caches, can.
                let possible = cost.gb_per_s < 4800.0 && cost.gather_gb_per_s <= 50_000.0;
                if possible && error(&cost, samples) < error(&best, samples) {
                    best = cost;
                }
            }
        }
        if error(&best, samples) >= before {
            step = step.sqrt();
        }
    }
    best
}

fn report(
    cases: &BTreeMap<String, Case>,
    samples: &[(String, Vec<Sample>)],
    constants: &[(Family, Cost)],
) {
    let (mut regrets, mut ratios) = (Vec::new(), Vec::new());
    println!(
        "{:<30} {:<20} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "case", "chosen", "expected", "took", "best", "peer", "regret"
    );
    for (name, samples) in samples {
        let expected = |sample: &Sample| {
            let family = sample.candidate.family;
            let (_, cost) = constants.iter().find(|(f, _)| *f == family).expect("all families");
            cost.time_us(&sample.candidate.work)
        };
        let Some(chosen) = samples.iter().min_by(|a, b| expected(a).total_cmp(&expected(b))) else {
            println!("{name:<30} nothing measured");
            continue;
        };
        let (took, peer) = (chosen.measured, least(&cases[name].peer));
        let regret = took / chosen.best - 1.0;
        regrets.push(regret);
        ratios.push(peer / took);
        let behind = took > peer * 1.05 && took > peer + 0.3;
        println!(
            "{name:<30} {:<20} {:>9.2} {took:>9.2} {:>9.2} {peer:>9.2} {:>6.1}%{}",
            chosen.candidate.to_string(),
            expected(chosen),
            chosen.best,
            100.0 * regret,
            if behind { "  behind the peer" } else { "" }
        );
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let worst = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    println!(
        "{} cases: regret mean {:.1} %, worst {:.1} %; peer over ours: geometric mean {:.2}, worst {:.2}",
        regrets.len(),
        100.0 * mean(&regrets),
        100.0 * worst(&regrets),
        mean(&logs).exp(),
        ratios.iter().copied().fold(f64::INFINITY, f64::min)
    );
}
