//! Plans: a matrix or batch analysed once and multiplied often.

mod engine;
mod explain;
mod options;

use std::sync::Arc;
use std::time::Instant;

use sparsebatch_formats::batch::{checked_len, count_systems};
use sparsebatch_formats::convert::FromCsr;
use sparsebatch_formats::{
    Batch, BatchCsr, BatchOf, CooPattern, Csr, CsrPattern, DiaPattern, EllPattern, HybPattern,
    Layout, Pattern, RaggedCsr, Scalar, SellPPattern,
};

use self::engine::{Engine, Packed, RaggedItems, SingleMatrix, Uniform};
pub use self::explain::Explain;
use self::options::{Choice, Facts, choose, csr_by_rows_or_parts, kernel_of, longest_row};
use sparsebatch_solve_core::{ArgumentError, FormatChoice, KernelChoice, SpmvOptions};

use crate::par::{DiaBlocks, RaggedRows, RowEntries, Schedule, SellRuns, WHOLE};
use crate::{CpuError, CpuScalar, check_threads};
use sparsebatch_solve_core::check_len;

/// Source of a plan: a matrix, or a uniform or ragged batch.
#[derive(Clone, Copy, Debug)]
pub enum PlanSource<'a, T> {
    /// One matrix.
    Matrix(&'a Csr<T>),
    /// A batch with one pattern.
    Uniform(&'a BatchCsr<T>),
    /// A batch of any matrices.
    Ragged(&'a RaggedCsr<T>),
}

impl<'a, T> From<&'a Csr<T>> for PlanSource<'a, T> {
    fn from(matrix: &'a Csr<T>) -> Self {
        Self::Matrix(matrix)
    }
}

impl<'a, T> From<&'a Batch<T>> for PlanSource<'a, T> {
    fn from(batch: &'a Batch<T>) -> Self {
        match batch {
            Batch::Uniform(batch) => Self::Uniform(batch),
            Batch::Ragged(batch) => Self::Ragged(batch),
        }
    }
}

impl<'a, T> From<&'a BatchCsr<T>> for PlanSource<'a, T> {
    fn from(batch: &'a BatchCsr<T>) -> Self {
        Self::Uniform(batch)
    }
}

impl<'a, T> From<&'a RaggedCsr<T>> for PlanSource<'a, T> {
    fn from(batch: &'a RaggedCsr<T>) -> Self {
        Self::Ragged(batch)
    }
}

/// A product `y = alpha*A*x + beta*y`, of one matrix or of every item of a batch, prepared once
/// and applied often.
///
/// The plan owns the values, in the format and layout that its kernel reads best; index arrays of
/// CSR are shared with the source, but for ragged batches, whose columns a plan has in 16 bits where
/// these suffice. It is a pure function of the source and the options: nothing is measured, and
/// neither the result nor the plan depends on the number of threads.
///
/// **Automatic choice.** A single matrix of more than 32,768 entries and rows takes the format
/// that moves the fewest bytes: DIA, if its diagonals are full (so that no fill is read) and long;
/// SELL-P that stores one column index per run of 8 consecutive columns; or CSR, which is also kept
/// when no other format saves 5 %. CSR is split by rows, or by CSR-I when one row holds more than
/// 65,536 entries. Batches and small matrices take CSR. COO, ELL and HYB run when named explicitly.
///
/// # Examples
/// ```
/// use sparsebatch_cpu_ref::SpmvPlan;
/// use sparsebatch_solve_core::SpmvOptions;
/// use sparsebatch_formats::Csr;
/// let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0])?;
/// let plan = SpmvPlan::new(&a, &SpmvOptions::default())?;
/// let mut y = [0.0; 2];
/// plan.apply(1.0, &[1.0, 10.0], 0.0, &mut y)?;
/// assert_eq!(y, [2.0, 31.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SpmvPlan<T> {
    engine: Box<dyn Engine<T>>,
    nrhs: usize,
    /// Whether products run on several threads: they are large enough, or `parts` was given.
    takes_threads: bool,
    /// Number of values that [`SpmvPlan::update_values`] takes.
    source_len: usize,
    explain: Explain,
}

impl<T: CpuScalar> SpmvPlan<T> {
    /// Analyses a matrix or batch and copies its values into the format chosen.
    ///
    /// Cost: a few passes over the pattern and one over the values; [`Explain::cost`] tells how
    /// long they took.
    ///
    /// # Errors
    /// [`CpuError::Argument`] for a kernel that does not belong to the format, no right-hand side,
    /// interleaved vectors without a uniform batch, or a number of parts outside `1..=256`;
    /// [`CpuError::Format`] when the format would store more slots than the options allow, or when
    /// the number of systems or the length of the vectors is too large; [`CpuError::Forked`] in a
    /// forked process whose threads are in its parent.
    pub fn new<'a>(
        source: impl Into<PlanSource<'a, T>>,
        options: &SpmvOptions,
    ) -> Result<Self, CpuError> {
        T::spmv_plan(source.into(), options)
    }
}

impl<T: Scalar> SpmvPlan<T> {
    /// Body of [`SpmvPlan::new`], instantiated in its caller `CpuScalar::spmv_plan`.
    pub(crate) fn new_here(
        source: PlanSource<'_, T>,
        options: &SpmvOptions,
    ) -> Result<Self, CpuError> {
        let start = Instant::now();
        check_threads()?;
        check_options(&source, options)?;
        check_sizes(&source, options.nrhs)?;
        let choice = resolve(&source, options)?;
        let schedule = match choice.kernel {
            KernelChoice::CsrI | KernelChoice::Entries => Schedule::CsrI { parts: options.parts },
            _ => Schedule::Rows,
        };
        let (engine, shape) = match source {
            PlanSource::Matrix(matrix) => (
                single(matrix, &choice, schedule, options)?,
                [1, matrix.nrows(), matrix.ncols(), matrix.nnz()],
            ),
            PlanSource::Uniform(batch) => {
                let (pattern, nitems) = (batch.pattern(), batch.nitems());
                let sizes = [pattern.nrows(), pattern.ncols(), pattern.nnz()];
                let [nrows, ncols, nnz] = sizes.map(|size| size * nitems);
                (uniform(batch, choice.format, schedule, options)?, [nitems, nrows, ncols, nnz])
            }
            PlanSource::Ragged(batch) => {
                let nitems = batch.nitems();
                let (rows, cols) = (batch.row_offsets(), batch.col_offsets());
                (
                    ragged(batch, choice.format, schedule, options)?,
                    [nitems, rows[nitems], cols[nitems], batch.total_nnz()],
                )
            }
        };
        let work = (shape[1] + engine.size().stored_len.max(shape[3])).saturating_mul(options.nrhs);
        let mut plan = Self {
            nrhs: options.nrhs,
            takes_threads: work > WHOLE || options.parts.is_some(),
            source_len: source_values(&source).len(),
            explain: describe(engine.as_ref(), &source, choice, shape, options),
            engine,
        };
        plan.engine.set_values(source_values(&source));
        plan.explain.cost = start.elapsed();
        Ok(plan)
    }

    /// `y = alpha*A*x + beta*y` on all cores of the current rayon pool. Allocates nothing; does
    /// not read `y` when `beta` is 0.
    ///
    /// For a single matrix, `x` and `y` hold `nrhs` vectors one after the other. For a batch, they
    /// have the plan's layout, as drawn in [`sparsebatch_formats::batch`].
    ///
    /// # Errors
    /// [`CpuError::Argument`] when `x` or `y` does not fit; [`CpuError::Forked`] for a product that
    /// is shared between threads, in a forked process whose threads are in its parent. On an error
    /// `y` is untouched.
    pub fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<(), CpuError> {
        if self.takes_threads {
            check_threads()?;
        }
        check_len("x", self.explain.ncols * self.nrhs, x.len())?;
        check_len("y", self.explain.nrows * self.nrhs, y.len())?;
        self.engine.apply(alpha, self.nrhs, x, beta, y);
        Ok(())
    }

    /// Puts new values into the plan, without analysis. `values` has the same length, order and
    /// layout as the values of the matrix or batch that the plan was made from.
    ///
    /// # Errors
    /// [`CpuError::Argument`] for another number of values; [`CpuError::Forked`] in a forked process
    /// whose threads are in its parent. On an error the plan keeps the old values.
    pub fn update_values(&mut self, values: &[T]) -> Result<(), CpuError> {
        check_threads()?;
        check_len("values", self.source_len, values.len())?;
        self.engine.set_values(values);
        Ok(())
    }

    /// What was chosen, why, and what it costs.
    pub fn explain(&self) -> &Explain {
        &self.explain
    }

    /// Rows of all systems; with [`SpmvPlan::nrhs`], the length of `y`.
    pub fn nrows(&self) -> usize {
        self.explain.nrows
    }

    /// Columns of all systems; with [`SpmvPlan::nrhs`], the length of `x`.
    pub fn ncols(&self) -> usize {
        self.explain.ncols
    }

    /// Right-hand sides per system.
    pub fn nrhs(&self) -> usize {
        self.nrhs
    }
}

fn source_values<'a, T: Scalar>(source: &PlanSource<'a, T>) -> &'a [T] {
    match source {
        PlanSource::Matrix(matrix) => matrix.values(),
        PlanSource::Uniform(batch) => batch.values().into_array(),
        PlanSource::Ragged(batch) => batch.values(),
    }
}

fn check_options<T>(source: &PlanSource<'_, T>, options: &SpmvOptions) -> Result<(), CpuError> {
    if options.nrhs == 0 {
        return Err(CpuError::Argument(ArgumentError::OutOfRange {
            name: "nrhs",
            expected: "at least one right-hand side",
            found: "0".to_owned(),
        }));
    }
    if options.layout == Layout::Interleaved && !matches!(source, PlanSource::Uniform(_)) {
        return Err(CpuError::Argument(ArgumentError::OutOfRange {
            name: "layout",
            expected: "ItemMajor, or a uniform batch",
            found: "Interleaved".to_owned(),
        }));
    }
    Ok(())
}

/// Checks that the total numbers of systems, entries and vector values can be represented.
fn check_sizes<T: Scalar>(source: &PlanSource<'_, T>, nrhs: usize) -> Result<(), CpuError> {
    let (nitems, vectors, nnz) = match source {
        PlanSource::Matrix(a) => (1, (a.nrows() + a.ncols()) as u128, a.nnz() as u128),
        PlanSource::Uniform(batch) => {
            let nnz = batch.pattern().nnz() as u128 * batch.nitems() as u128;
            (batch.nitems(), batch.total_rows() + batch.total_cols(), nnz)
        }
        PlanSource::Ragged(batch) => {
            let vectors = batch.total_rows() + batch.total_cols();
            (batch.nitems(), vectors, batch.total_nnz() as u128)
        }
    };
    count_systems(nitems, 1)?;
    checked_len("number of values of x and y", vectors, nrhs)?;
    checked_len("number of entries", nnz, 1)?;
    Ok(())
}

/// Resolves `Auto` to a format and a kernel.
fn resolve<T: Scalar>(
    source: &PlanSource<'_, T>,
    options: &SpmvOptions,
) -> Result<Choice, CpuError> {
    let single = matches!(source, PlanSource::Matrix(_));
    let mut choice = match (options.format, options.kernel) {
        (FormatChoice::Auto, KernelChoice::Auto) => match source {
            PlanSource::Matrix(matrix) => {
                choose(Facts::of(matrix.view().pattern(), size_of::<T>()))
            }
            PlanSource::Uniform(batch) => {
                csr_by_rows_or_parts(longest_row(batch.pattern().view()), batch.pattern().nnz())
            }
            PlanSource::Ragged(batch) => csr_by_rows_or_parts(
                (0..batch.nitems())
                    .map(|item| longest_row(batch.item(item).pattern()))
                    .max()
                    .unwrap_or(0),
                batch.total_nnz(),
            ),
        },
        (format, kernel) => Choice {
            format: match (format, kernel) {
                (FormatChoice::Auto, KernelChoice::Entries) => FormatChoice::Coo,
                (FormatChoice::Auto, KernelChoice::Blocks) => FormatChoice::Dia,
                (FormatChoice::Auto, KernelChoice::Runs) => FormatChoice::SellP,
                (FormatChoice::Auto, _) => FormatChoice::Csr,
                (format, _) => format,
            },
            kernel,
            why: "asked for by name".to_owned(),
        },
    };
    choice.kernel = kernel_of(choice.format, choice.kernel, single)?;
    Ok(choice)
}

fn describe<T: Scalar>(
    engine: &dyn Engine<T>,
    source: &PlanSource<'_, T>,
    choice: Choice,
    [nitems, nrows, ncols, nnz]: [usize; 4],
    options: &SpmvOptions,
) -> Explain {
    let size = engine.size();
    let entries = source_values(source).len();
    let vectors = (nrows + ncols) * options.nrhs * size_of::<T>();
    Explain {
        format: match choice.format {
            FormatChoice::Auto => unreachable!("resolved"),
            FormatChoice::Csr => CsrPattern::NAME,
            FormatChoice::Coo => CooPattern::NAME,
            FormatChoice::Ell => EllPattern::NAME,
            FormatChoice::Dia => DiaPattern::NAME,
            FormatChoice::Hyb => HybPattern::NAME,
            FormatChoice::SellP => SellPPattern::NAME,
        },
        kernel: match (options.layout, choice.kernel) {
            (Layout::Interleaved, _) => "interleaved",
            (_, KernelChoice::Auto) => unreachable!("resolved"),
            (_, KernelChoice::Rows) => "rows",
            (_, KernelChoice::CsrI) => "csr-i",
            (_, KernelChoice::Entries) => "entries",
            (_, KernelChoice::Blocks) => "blocks",
            (_, KernelChoice::Runs) => "runs",
        },
        why: choice.why,
        nitems,
        nrows,
        ncols,
        nnz,
        stored_len: size.stored_len,
        padding: size.stored_len - entries,
        plan_bytes: size.matrix_bytes + size.other_bytes,
        matrix_bytes: size.matrix_bytes,
        product_bytes: size.matrix_bytes + vectors,
        cost: std::time::Duration::ZERO,
    }
}

fn single<T: Scalar>(
    matrix: &Csr<T>,
    choice: &Choice,
    schedule: Schedule,
    options: &SpmvOptions,
) -> Result<Box<dyn Engine<T>>, CpuError> {
    fn convert<P: RowEntries + FromCsr, T: Scalar>(
        matrix: &Csr<T>,
        schedule: Schedule,
        options: &P::Options,
    ) -> Result<Box<dyn Engine<T>>, CpuError> {
        let (pattern, map) = P::from_csr(matrix.view().pattern(), options)?;
        Ok(Box::new(SingleMatrix::new(Arc::new(pattern), map, schedule)?))
    }
    let csr = || Arc::clone(matrix.pattern());
    match (choice.format, choice.kernel) {
        (FormatChoice::Csr | FormatChoice::Auto, _) => {
            let map = sparsebatch_formats::convert::SlotMap::Identity;
            Ok(Box::new(SingleMatrix::new(csr(), map, schedule)?))
        }
        (FormatChoice::Coo, _) => convert::<CooPattern, T>(matrix, schedule, &()),
        (FormatChoice::Ell, _) => {
            convert::<EllPattern, T>(matrix, schedule, &options.ell_options())
        }
        (FormatChoice::Hyb, _) => {
            convert::<HybPattern, T>(matrix, schedule, &options.hyb_options())
        }
        (FormatChoice::Dia, KernelChoice::Rows) => {
            convert::<DiaPattern, T>(matrix, schedule, &options.dia_options())
        }
        (FormatChoice::Dia, _) => {
            let blocks = DiaBlocks::new(matrix.pattern(), &options.dia_options())?;
            Ok(Box::new(Packed { matrix: blocks, csr: csr() }))
        }
        (FormatChoice::SellP, KernelChoice::Rows) => {
            convert::<SellPPattern, T>(matrix, schedule, &options.sellp_options())
        }
        (FormatChoice::SellP, _) => Ok(Box::new(Packed {
            matrix: SellRuns::new(matrix.pattern(), options.max_fill)?,
            csr: csr(),
        })),
    }
}

fn uniform<T: Scalar>(
    batch: &BatchCsr<T>,
    format: FormatChoice,
    schedule: Schedule,
    options: &SpmvOptions,
) -> Result<Box<dyn Engine<T>>, CpuError> {
    fn convert<P: RowEntries + FromCsr, T: Scalar>(
        batch: &BatchCsr<T>,
        schedule: Schedule,
        layout: Layout,
        options: &P::Options,
    ) -> Result<Box<dyn Engine<T>>, CpuError> {
        let csr = batch.pattern();
        let (pattern, map) = P::from_csr(csr.view(), options)?;
        Ok(Box::new(Uniform::new(
            (Arc::new(pattern), map),
            csr.nnz(),
            (batch.nitems(), batch.is_shared()),
            (batch.layout(), layout),
            schedule,
        )?))
    }
    let layout = options.layout;
    match format {
        FormatChoice::Csr | FormatChoice::Auto => {
            convert::<CsrPattern, T>(batch, schedule, layout, &())
        }
        FormatChoice::Coo => convert::<CooPattern, T>(batch, schedule, layout, &()),
        FormatChoice::Ell => {
            convert::<EllPattern, T>(batch, schedule, layout, &options.ell_options())
        }
        FormatChoice::Dia => {
            convert::<DiaPattern, T>(batch, schedule, layout, &options.dia_options())
        }
        FormatChoice::Hyb => {
            convert::<HybPattern, T>(batch, schedule, layout, &options.hyb_options())
        }
        FormatChoice::SellP => {
            convert::<SellPPattern, T>(batch, schedule, layout, &options.sellp_options())
        }
    }
}

fn ragged<T: Scalar>(
    batch: &RaggedCsr<T>,
    format: FormatChoice,
    schedule: Schedule,
    options: &SpmvOptions,
) -> Result<Box<dyn Engine<T>>, CpuError> {
    fn convert<P: RowEntries + FromCsr, T: Scalar>(
        batch: &RaggedCsr<T>,
        schedule: Schedule,
        options: &P::Options,
    ) -> Result<Box<dyn Engine<T>>, CpuError> {
        Ok(Box::new(RaggedItems::<P, T>::new(batch, options, schedule)?))
    }
    match format {
        FormatChoice::Csr | FormatChoice::Auto if schedule == Schedule::Rows => {
            Ok(Box::new(RaggedRows::new(batch)))
        }
        FormatChoice::Csr | FormatChoice::Auto => convert::<CsrPattern, T>(batch, schedule, &()),
        FormatChoice::Coo => convert::<CooPattern, T>(batch, schedule, &()),
        FormatChoice::Ell => convert::<EllPattern, T>(batch, schedule, &options.ell_options()),
        FormatChoice::Dia => convert::<DiaPattern, T>(batch, schedule, &options.dia_options()),
        FormatChoice::Hyb => convert::<HybPattern, T>(batch, schedule, &options.hyb_options()),
        FormatChoice::SellP => {
            convert::<SellPPattern, T>(batch, schedule, &options.sellp_options())
        }
    }
}
