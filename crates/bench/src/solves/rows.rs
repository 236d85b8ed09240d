//! The verdict on a contender's answers, and its row.

use sparsebatch_formats::{Batch, Pattern, Scalar};
use sparsebatch_solvers::{Outcome, SolveError, SolveOptions, Status};

use super::clock::SolveTiming;
use super::systems::{Systems, Verdict, check};
use super::{Real, Solve};
use sparsebatch_rows::{self, Machine, Row, Run, SCHEMA};

/// The label of a contender: library, backend and options.
pub(super) struct SolveLabel<'a> {
    pub(super) library: &'static str,
    pub(super) backend: Option<&'static str>,
    pub(super) automatic: bool,
    pub(super) options: &'a SolveOptions,
}

/// The preconditioner's name in rows; none for LU.
pub(super) fn preconditioner(options: &SolveOptions) -> Option<String> {
    (!options.method.is_direct()).then(|| options.preconditioner.name().to_owned())
}

impl SolveLabel<'_> {
    /// A row without experiment, configuration and the fields of some contenders only, which the
    /// caller sets.
    pub(super) fn row<T: Real>(
        &self,
        run: &Run,
        machine: &Machine,
        (case, systems): (&str, &Systems<T>),
        SolveTiming { timing, wall_ms }: &SolveTiming,
        Judged { verdict, outcomes }: &Judged,
    ) -> Row {
        let batch = &systems.batch;
        let nitems = batch.nitems();
        let rows = batch.row_offset(nitems) as u64;
        let (n, nnz) = match batch {
            Batch::Uniform(uniform) => {
                (uniform.pattern().nrows() as u64, uniform.pattern().nnz() as u64)
            }
            Batch::Ragged(ragged) => (rows, ragged.total_nnz() as u64),
        };
        let bytes = systems.bytes();
        let copy = (machine.copy_gb_per_s > 0.0).then_some(machine.copy_gb_per_s * 1e6);
        Row {
            schema: SCHEMA,
            suite: run.suite.to_owned(),
            experiment: None,
            case: case.to_owned(),
            library: self.library.to_owned(),
            configuration: String::new(),
            automatic: self.automatic,
            backend: self.backend.map(str::to_owned),
            operation: self.options.method.name().to_owned(),
            preconditioner: preconditioner(self.options),
            precision: <T as Scalar>::NAME.to_owned(),
            batch: nitems as u64,
            n,
            nnz,
            rows,
            columns: rows,
            median_ms: timing.median_ms,
            min_ms: timing.min_ms,
            max_ms: timing.max_ms,
            round_ms: sparsebatch_rows::short(&timing.round_ms),
            wall_ms: *wall_ms,
            rounds: timing.round_ms.len() as u64,
            products: timing.products as u64,
            timing: if wall_ms.is_none() { "wall" } else { "events" }.to_owned(),
            copies: 1,
            share_of_copy: None,
            share_moved: copy.map(|copy| bytes as f64 / timing.median_ms / copy),
            bytes_moved: Some(bytes),
            plan_ms: None,
            gflops: None,
            mean_iterations: outcomes.as_deref().map(|outcomes| {
                let sum: u64 = outcomes.iter().map(|outcome| u64::from(outcome.iterations)).sum();
                sum as f64 / outcomes.len().max(1) as f64
            }),
            max_relative_residual: Some(verdict.max_relative_residual),
            converged: Some(verdict.solved as u64),
            device_bytes: None,
            share_of_fitting: None,
            energy_j: None,
            machine: machine.clone(),
            run: run.id.clone(),
            date: run.date.clone(),
            commit: run.commit.clone(),
        }
    }
}

/// The verdict of the test of all solutions, and the outcomes of the systems if the contender
/// reports them.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) outcomes: Option<Vec<Outcome>>,
}

/// Solves the first and the last copy and tests all solutions. Returns the worse verdict, or
/// describes a wrong answer.
pub(super) fn judge<T: Real>(
    systems: &Systems<T>,
    contender: &mut impl Solve<T>,
    options: &SolveOptions,
) -> Result<Result<Judged, String>, SolveError> {
    let mut found: Option<Judged> = None;
    for copy in (0..contender.copies()).step_by((contender.copies() - 1).max(1)) {
        contender.restore(copy)?;
        contender.solve(copy)?;
        let answer = contender.answer(copy)?;
        let verdict = check(systems, &answer.x, answer.outcomes.as_deref(), options);
        if let Some(wrong) = verdict.wrong {
            return Ok(Err(wrong));
        }
        if found.as_ref().is_none_or(|first| verdict.solved < first.verdict.solved) {
            found = Some(Judged { verdict, outcomes: answer.outcomes });
        }
    }
    Ok(Ok(found.expect("there is a copy at least")))
}

/// The number of unsolved systems by status.
pub(super) fn unsolved(outcomes: &[Outcome]) -> Option<String> {
    let counts: Vec<String> = Status::ALL
        .iter()
        .copied()
        .filter(|&status| status != Status::Converged)
        .map(|status| (status, outcomes.iter().filter(|found| found.status == status).count()))
        .filter(|&(_, count)| count > 0)
        .map(|(status, count)| format!("{status} {count}"))
        .collect();
    (!counts.is_empty()).then(|| format!("not solved: {}", counts.join(", ")))
}
