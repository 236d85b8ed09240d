//! Solvers of batches in host memory: [`Host`].

use std::sync::Arc;

use sparsebatch::batch::Values;
use sparsebatch::gpu::{Guess, Pod};
use sparsebatch::{AdjointSolver, BatchReport, BatchSolver, SolveError, SolveOptions, SolveScalar};

use crate::batch::{Batch, Patterns, Place, with_values};
use crate::context::Context;
use crate::ffi::{DeviceOutcomes, Input};
use crate::limits::Inactive;
use crate::report::AnyReport;
use crate::solver::{By, Call, Engine};
use crate::status::{Failure, check_len};

/// A solver and the batch with its current values.
pub(crate) struct Host<T> {
    /// Those that it was made with.
    options: SolveOptions,
    /// Those with the current limits.
    limits: SolveOptions,
    solver: BatchSolver<T>,
    batch: sparsebatch::Batch<T>,
    place: Place,
    adjoint: Option<AdjointSolver<T>>,
    /// The diagonal entries, once matrices were shifted.
    diagonal: Option<Vec<usize>>,
    /// Whether the batch has values of its own, not those of the caller.
    has_own_values: bool,
}

impl<T: SolveScalar + Pod> Host<T> {
    pub(crate) fn new(
        batch: &Batch,
        values: Input,
        options: SolveOptions,
    ) -> Result<Self, Failure> {
        let is_ragged = matches!(batch.patterns, Patterns::Ragged(_));
        let values = match is_ragged {
            true => Values::from(values.slice()?.to_vec()),
            false => Values::of_owner(values.borrowed::<T>()?),
        };
        let own = with_values(&batch.patterns, batch.place, values)?;
        let context = &batch.context;
        let solver = context.run(|| BatchSolver::on(&context.backend, &own, &options))??;
        Ok(Self {
            limits: options.clone(),
            options,
            solver,
            batch: own,
            place: batch.place,
            adjoint: None,
            diagonal: None,
            has_own_values: is_ragged,
        })
    }

    /// Solves with slices of the caller.
    fn solve_slices(
        &mut self,
        context: &Context,
        by: By,
        b: &[T],
        x: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        match by {
            By::Values => self.solver.solve(&self.batch, b, x),
            By::Kept => self.solver.solve_again(b, x),
            By::Near => self.solver.solve_near(&self.batch, b, x),
            By::KeptTransposed => self.solver.solve_transposed_again(b, x),
            By::Transposed => {
                let adjoint = match &mut self.adjoint {
                    Some(adjoint) => adjoint,
                    none => {
                        let mut made =
                            AdjointSolver::on(&context.backend, &self.batch, &self.options)?;
                        made.replace_limits(&self.limits)?;
                        none.insert(made)
                    }
                };
                adjoint.solve(&self.batch, b, x)
            }
        }
    }

    /// Gives the batch values of its own, which `write` writes.
    fn write_values(&mut self, len: usize, write: impl FnOnce(&mut [T])) -> Result<(), Failure> {
        match &mut self.batch {
            sparsebatch::Batch::Ragged(ragged) => write(ragged.values_mut()),
            sparsebatch::Batch::Uniform(uniform) if self.has_own_values => {
                write(uniform.values_mut());
            }
            sparsebatch::Batch::Uniform(uniform) => {
                let mut values = vec![T::ZERO; len];
                write(&mut values);
                let (pattern, nitems) = (Arc::clone(uniform.pattern()), uniform.nitems());
                let patterns = Patterns::Uniform { pattern, nitems };
                self.batch = with_values(&patterns, self.place, Values::from(values))?;
                self.has_own_values = true;
            }
        }
        Ok(())
    }

    /// The number of values.
    fn nvalues(&self) -> usize {
        match &self.batch {
            sparsebatch::Batch::Uniform(uniform) => uniform.values().into_array().len(),
            sparsebatch::Batch::Ragged(ragged) => ragged.total_nnz(),
        }
    }
}

/// The diagonal entries of a batch, row by row: their positions in a uniform batch's pattern, or
/// among all entries of a ragged one.
fn diagonal_of<T: SolveScalar>(batch: &sparsebatch::Batch<T>) -> Result<Vec<usize>, Failure> {
    let items = match batch {
        sparsebatch::Batch::Uniform(_) => 1,
        sparsebatch::Batch::Ragged(ragged) => ragged.nitems(),
    };
    let mut diagonal = Vec::new();
    let mut start = 0;
    for item in 0..items.min(batch.nitems()) {
        let pattern = batch.pattern(item);
        for row in 0..pattern.nrows() {
            let position = pattern.position(row, row).ok_or_else(|| {
                Failure::argument(format!(
                    "item {item} has no entry on the diagonal of row {row} (counted from 0), \
                     which a shift needs"
                ))
            })?;
            diagonal.push(start + position);
        }
        start += pattern.nnz();
    }
    Ok(diagonal)
}

impl<T: SolveScalar + Pod> Engine for Host<T> {
    fn set_values(&mut self, values: Input) -> Result<(), Failure> {
        check_len("values", self.nvalues(), values.len())?;
        match &mut self.batch {
            sparsebatch::Batch::Ragged(ragged) => {
                ragged.values_mut().copy_from_slice(values.slice()?);
            }
            sparsebatch::Batch::Uniform(uniform) => {
                let (pattern, nitems) = (Arc::clone(uniform.pattern()), uniform.nitems());
                let patterns = Patterns::Uniform { pattern, nitems };
                let values = Values::of_owner(values.borrowed::<T>()?);
                self.batch = with_values(&patterns, self.place, values)?;
                self.has_own_values = false;
            }
        }
        Ok(())
    }

    fn shift(&mut self, jacobian: Input, dt: Input) -> Result<(), Failure> {
        let (nvalues, nitems) = (self.nvalues(), self.batch.nitems());
        check_len("jacobian", nvalues, jacobian.len())?;
        if dt.len() != 1 {
            check_len("dt", nitems, dt.len())?;
            if self.place == Place::Shared {
                return Err(Failure::unsupported(
                    "a time step for each item of values that all items share: give one",
                ));
            }
        }
        let (jacobian, dt) = (jacobian.slice::<T>()?, dt.slice::<T>()?);
        let diagonal = match self.diagonal.take() {
            Some(diagonal) => diagonal,
            None => diagonal_of(&self.batch)?,
        };
        let rows: Option<Vec<usize>> = match &self.batch {
            sparsebatch::Batch::Ragged(ragged) => Some(ragged.row_offsets().to_vec()),
            sparsebatch::Batch::Uniform(_) => None,
        };
        let (place, nnz) = (self.place, nvalues.checked_div(nitems).unwrap_or(0));
        let step = |item: usize| T::ONE / if dt.len() == 1 { dt[0] } else { dt[item] };
        self.write_values(nvalues, |values| {
            values.iter_mut().zip(jacobian).for_each(|(value, &entry)| *value = -entry);
            match (&rows, place) {
                (Some(rows), _) => {
                    for item in 0..nitems {
                        let own = &diagonal[rows[item]..rows[item + 1]];
                        own.iter().for_each(|&place| values[place] += step(item));
                    }
                }
                (None, Place::ItemMajor) => {
                    for (item, values) in values.chunks_exact_mut(nnz.max(1)).enumerate() {
                        let inverse = step(item);
                        diagonal.iter().for_each(|&place| values[place] += inverse);
                    }
                }
                (None, Place::Interleaved) => {
                    for &place in &diagonal {
                        let entries = &mut values[place * nitems..][..nitems];
                        let items = entries.iter_mut().enumerate();
                        items.for_each(|(item, value)| *value += step(item));
                    }
                }
                (None, Place::Shared) => {
                    diagonal.iter().for_each(|&place| values[place] += step(0));
                }
            }
        })?;
        self.diagonal = Some(diagonal);
        Ok(())
    }

    fn factor(&mut self, context: &Context) -> Result<(), Failure> {
        let (solver, batch) = (&mut self.solver, &self.batch);
        Ok(context.run(|| solver.factor(batch))??)
    }

    fn keeps_factors(&self) -> bool {
        self.solver.keeps_factors()
    }

    fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), Failure> {
        self.solver.replace_limits(options)?;
        if let Some(adjoint) = &mut self.adjoint {
            adjoint.replace_limits(options)?;
        }
        self.limits = options.clone();
        Ok(())
    }

    fn solve(
        &mut self,
        context: &Context,
        call: Call,
        inactive: Option<&Inactive>,
    ) -> Result<AnyReport, Failure> {
        let Call { by, guess, b, mut x } = call;
        // Before x is written to.
        let rows = self.batch.vector_len(self.options.nrhs)?;
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        x.check_apart::<T>(b)?;
        let (b, x) = (b.slice::<T>()?, x.slice_mut::<T>()?);
        if guess == Guess::Zero {
            x.fill(T::ZERO);
        }
        let mut solve = |x: &mut [T]| self.solve_slices(context, by, b, x);
        let report = context.run(|| match inactive {
            Some(inactive) => inactive.keeping(x, solve),
            None => solve(x),
        })??;
        Ok(Arc::new(report.into()))
    }

    fn enqueue(&mut self, _: Call) -> Result<(), Failure> {
        Err(Failure::unsupported("enqueue with arrays in host memory: use sb_solver_solve"))
    }

    fn finish(&mut self, _: &Context) -> Result<AnyReport, Failure> {
        Err(Failure::unsupported("finish with arrays in host memory: use sb_solver_solve"))
    }

    fn prepare_guesses(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn device_outcomes(&self) -> Result<DeviceOutcomes, Failure> {
        Err(Failure::unsupported("outcomes on a device of data in host memory: use sb_report"))
    }
}
