//! One matrix over ranks: [`Distributed`].

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use sparsebatch::gpu::{Guess, Pod};
use sparsebatch::{Csr, CsrPattern, Pattern, SolveOptions, SolveScalar, SpmvOptions};
use sparsebatch_mpi::{
    DistributedMatrix, DistributedOptions, MatrixFile, MatrixOptions, MpiError, Partition,
};

use crate::batch::{Batch, DType, Patterns};
use crate::context::Context;
use crate::ffi::{Carried, Input, Output};
use crate::ranks::Ranks;
use crate::report::Report;
use crate::status::{Failure, SB_ERROR_BUSY, SB_ERROR_INTERNAL, check_len};

/// The rows of this rank.
pub(crate) struct Rows {
    pub(crate) batch: Arc<Batch>,
    pub(crate) values: Input,
    pub(crate) options: SpmvOptions,
}

/// A solve of one system by all ranks.
pub(crate) struct DistributedCall {
    pub(crate) options: SolveOptions,
    pub(crate) pipelined: bool,
    pub(crate) block_lu: bool,
    pub(crate) guess: Guess,
    pub(crate) b: Input,
    pub(crate) x: Output,
}

/// What a matrix has: rows, columns and entries of all ranks, the first own row and own rows, the
/// first own column and own columns.
pub(crate) type Sizes = [u64; 7];

enum Matrix {
    F64(DistributedMatrix<'static, f64>),
    F32(DistributedMatrix<'static, f32>),
}

/// A matrix of which this rank has some rows.
pub(crate) struct Distributed {
    pub(crate) context: Arc<Context>,
    ranks: Arc<Ranks>,
    matrix: Mutex<Carried<Matrix>>,
}

macro_rules! each {
    ($matrix:expr, $own:ident => $call:expr) => {
        match $matrix {
            Matrix::F64($own) => $call,
            Matrix::F32($own) => $call,
        }
    };
}

impl Distributed {
    /// The matrix whose rows the ranks give, those of rank 0 first.
    pub(crate) fn new(ranks: &Arc<Ranks>, own: Result<Rows, Failure>) -> Result<Self, Failure> {
        let checked = own.and_then(|rows| {
            let pattern = one_pattern(&rows.batch)?;
            check_len("values", pattern.nnz(), rows.values.len())?;
            ranks.context.check_arrays(false, &[rows.values])?;
            Ok(rows)
        });
        let rows = ranks.together(checked)?;
        let matrix = match rows.batch.dtype {
            DType::F64 => Matrix::F64(made(ranks, &rows)?),
            DType::F32 => Matrix::F32(made(ranks, &rows)?),
        };
        Ok(Self::of(ranks, matrix))
    }

    /// The matrix of a file, of which every rank reads its rows.
    pub(crate) fn read(
        ranks: &Arc<Ranks>,
        own: Result<(DType, String, SpmvOptions), Failure>,
    ) -> Result<Self, Failure> {
        let (dtype, path, options) = ranks.together(own)?;
        let matrix = match dtype {
            DType::F64 => Matrix::F64(from_file(ranks, &path, options)?),
            DType::F32 => Matrix::F32(from_file(ranks, &path, options)?),
        };
        Ok(Self::of(ranks, matrix))
    }

    fn of(ranks: &Arc<Ranks>, matrix: Matrix) -> Self {
        let (context, ranks) = (Arc::clone(&ranks.context), Arc::clone(ranks));
        Self { context, ranks, matrix: Mutex::new(Carried::new(matrix)) }
    }

    fn matrix(&self) -> Result<MutexGuard<'_, Carried<Matrix>>, Failure> {
        self.matrix.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Failure::new(SB_ERROR_BUSY, "the matrix is in use by another call at this moment")
            }
            TryLockError::Poisoned(_) => Failure::new(
                SB_ERROR_INTERNAL,
                "the matrix was lost in an earlier fault: destroy it and create another",
            ),
        })
    }

    pub(crate) fn sizes(&self) -> Result<Sizes, Failure> {
        let matrix = self.matrix()?;
        Ok(each!(matrix.get(), matrix => {
            let rank = matrix.ranks().rank();
            let (rows, columns) = (matrix.rows(), matrix.columns());
            let (own_rows, own_columns) = (rows.range(rank), columns.range(rank));
            let [nrows, ncols] = [rows.len(), columns.len()].map(|size| size as u64);
            let own = [own_rows.start, own_rows.len(), own_columns.start, own_columns.len()];
            let [first_row, own_rows, first_col, own_cols] = own.map(|size| size as u64);
            [nrows, ncols, matrix.nnz(), first_row, own_rows, first_col, own_cols]
        }))
    }

    /// `y = A x` of the own elements.
    pub(crate) fn apply(&self, arrays: Result<(Input, Output), Failure>) -> Result<(), Failure> {
        let mut matrix = self.matrix()?;
        let arrays = arrays.and_then(|(x, y)| {
            self.context.check_arrays(false, &[x, y.as_input()])?;
            Ok((x, y))
        });
        let (x, y) = self.ranks.together(arrays)?;
        each!(matrix.get_mut(), matrix => self.apply_in(matrix, x, y))
    }

    fn apply_in<T: SolveScalar + Pod>(
        &self,
        matrix: &mut DistributedMatrix<'static, T>,
        x: Input,
        mut y: Output,
    ) -> Result<(), Failure> {
        let arrays =
            y.check_apart::<T>(x).and_then(|()| Ok((x.slice::<T>()?, y.slice_mut::<T>()?)));
        let (x, y) = self.ranks.together(arrays)?;
        self.run(|| {
            let multiplied = matrix.apply(T::ONE, x, T::ZERO, y);
            matrix.ranks().agree(multiplied)
        })
    }

    /// Solves; how many systems, none or one, did not converge, and the report.
    pub(crate) fn solve(
        &self,
        call: Result<DistributedCall, Failure>,
    ) -> Result<(usize, Report), Failure> {
        let mut matrix = self.matrix()?;
        let call = call.and_then(|call| {
            self.context.check_arrays(false, &[call.b, call.x.as_input()])?;
            Ok(call)
        });
        let call = self.ranks.together(call)?;
        each!(matrix.get_mut(), matrix => self.solve_in(matrix, call))
    }

    fn solve_in<T: SolveScalar + Pod>(
        &self,
        matrix: &mut DistributedMatrix<'static, T>,
        call: DistributedCall,
    ) -> Result<(usize, Report), Failure> {
        let DistributedCall { options, pipelined, block_lu, guess, b, mut x } = call;
        let fallback = options.fallback;
        let arrays =
            x.check_apart::<T>(b).and_then(|()| Ok((b.slice::<T>()?, x.slice_mut::<T>()?)));
        let (b, x) = self.ranks.together(arrays)?;
        if guess == Guess::Zero {
            x.fill(T::ZERO);
        }
        let options =
            DistributedOptions::new().solve(options).pipelined(pipelined).block_lu(block_lu);
        let report = self.run(|| matrix.solve(b, x, &options))?;
        let failed = usize::from(!report.converged());
        let local = matrix.parts().local;
        let report = report.into_batch((local.format, local.kernel));
        let context = Arc::clone(&self.context);
        Ok((failed, Report::new(context, Arc::new(report.into()), Arc::from([]), fallback)))
    }

    /// Work of all ranks on the threads of the context, while no other call uses the ranks.
    fn run<R>(&self, work: impl FnOnce() -> Result<R, MpiError>) -> Result<R, Failure> {
        let _alone = self.ranks.get()?;
        on_threads(&self.context, work)
    }
}

fn on_threads<R>(
    context: &Context,
    work: impl FnOnce() -> Result<R, MpiError>,
) -> Result<R, Failure> {
    let work = Carried::new(work);
    let done = context.run(|| Carried::new((work.take())()))?;
    Ok(done.take()?)
}

/// The pattern of a batch that has one item.
fn one_pattern(batch: &Batch) -> Result<&Arc<CsrPattern>, Failure> {
    match &batch.patterns {
        Patterns::Uniform { pattern, nitems: 1 } => Ok(pattern),
        patterns => Err(Failure::argument(format!(
            "batch has {} items, expected one of sb_batch_uniform: the rows of this rank",
            patterns.nitems()
        ))),
    }
}

fn options_of(options: &SpmvOptions) -> MatrixOptions {
    MatrixOptions::new().spmv(options.clone())
}

fn made<T: SolveScalar + Pod>(
    ranks: &Arc<Ranks>,
    rows: &Rows,
) -> Result<DistributedMatrix<'static, T>, Failure> {
    let shared = ranks.get()?.shared();
    let own = one_pattern(&rows.batch).and_then(|pattern| {
        let values = rows.values.slice::<T>()?.to_vec();
        Ok(Csr::from_parts(Arc::clone(pattern), values)?)
    });
    let own = ranks.together(own)?;
    let _alone = ranks.get()?;
    on_threads(&ranks.context, || {
        let counts: Vec<u64> = shared.all_gather(&(own.nrows() as u64))?;
        let starts = std::iter::once(0).chain(counts.iter().scan(0, |end, &count| {
            *end += count as usize;
            Some(*end)
        }));
        let made = Partition::at(starts.collect());
        let refused = |error: sparsebatch::ArgumentError| sparsebatch_mpi::Failure {
            code: 2,
            message: error.to_string(),
        };
        let rows_of_all = shared.agree(made.map_err(refused))?;
        let columns = rows_of_all.of_columns(own.ncols());
        let (backend, options) = (&ranks.context.backend, options_of(&rows.options));
        let shared = Arc::clone(&shared);
        DistributedMatrix::from_rows_on(shared, backend, own, &rows_of_all, &columns, &options)
    })
}

fn from_file<T: SolveScalar>(
    ranks: &Arc<Ranks>,
    path: &str,
    options: SpmvOptions,
) -> Result<DistributedMatrix<'static, T>, Failure> {
    let guard = ranks.get()?;
    let shared = guard.shared();
    on_threads(&ranks.context, || {
        let options = options_of(&options);
        let file = MatrixFile::open(&shared, Path::new(path), &options)?;
        file.read_on(Arc::clone(&shared), &ranks.context.backend, &options)
    })
}
