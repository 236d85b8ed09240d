//! Radiation diffusion by batched solves: grey and multigroup Marshak waves on many rays at once,
//! compared with references, and flux-limited multigroup diffusion in a plane.
//!
//! `cargo run --release --example radiation_diffusion`; `-- --help` for options.
//! `docs/radiation-diffusion.md` has the equations.

pub mod args;
pub mod cases;
pub mod convergence;
mod coupled;
pub mod error;
mod figures;
pub mod march;
mod mesh;
pub mod operator;
mod output;
mod plot;
pub mod problem;
pub mod reference;
mod report;
pub mod run;
pub mod units;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Case};
use error::Error;

/// The exit code of a run that missed a reference.
const DISAGREES: u8 = 3;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    match execute(&Args::parse(), &mut std::io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DISAGREES),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.code())
        }
    }
}

/// Runs the requested cases; returns whether all references were met.
///
/// # Errors
/// [`Error`] for bad input, or an unsolved system.
pub fn execute(args: &Args, out: &mut dyn Write) -> Result<bool, Error> {
    let units = units::Units::new(args.opacity, args.source_temperature, args.epsilon)?;
    args.output.as_deref().map_or(Ok(()), output::check)?;
    let references = run::References::read(args)?;
    let (backend, reason) = run::backend(args.backend)?;
    report::head(out, &units, args, &reason)?;
    if args.runs(Case::Convergence) {
        for table in convergence::tables(args, &references, &backend)? {
            report::convergence(out, &table)?;
        }
        return Ok(true);
    }
    let mut runs = Vec::new();
    for case in [Case::Grey, Case::Multigroup, Case::Plane] {
        if args.runs(case) {
            let bar = report::progress();
            let mut progress = |done: usize, all: usize| {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            };
            let one = run::run(case, args, &references, &backend, &mut progress)?;
            bar.finish_and_clear();
            report::run(out, &one)?;
            runs.push(one);
        }
    }
    for file in figures::draw(&args.plots, &runs, &references)? {
        writeln!(out, "wrote {}", file.display())?;
    }
    if let Some(path) = &args.output {
        output::write(path, &runs, &units)?;
        writeln!(out, "wrote {}", path.display())?;
    }
    Ok(runs.iter().all(|run| run.agreements.iter().all(reference::Agreement::passes)))
}
