//! A matrix whose rows are divided among ranks: [`DistributedMatrix`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sparsebatch_cpu_ref::{CpuScalar, Explain, SpmvPlan};
use sparsebatch_formats::io::MemoryLimit;
use sparsebatch_formats::{Csr, FormatError, Scalar};
use sparsebatch_solve_core::{ArgumentError, SpmvOptions, check_len};
use sparsebatch_solvers::gpu::StepVector;
use sparsebatch_solvers::{Backend, GpuExecutor, LinOp, OperatorError, SolveScalar};
use sparsebatch_spmv_gpu::SingleOptions;

use super::Partition;
use super::divide::{Divided, columns_of, divided, needed_columns, own_rows, renumbered, value};
use super::gpu::{GpuPart, on_gpu};
use super::halo::Halo;
use super::system::Facts;
use super::vectors::{by_chunks, fill_by_chunks, joined};
use crate::transport::Shared;
use crate::{Described, Failure, MpiError, Ranks, RanksRef};

/// Bytes that a stored entry takes at the most while a matrix is divided: the entry as given, once
/// more with its columns numbered anew, as part of the local or remote matrix, and in a plan.
const BYTES_PER_ENTRY: u128 = 48;

/// The rows of this rank of a matrix that all ranks hold together.
///
/// The columns are divided, too, since the elements of x are: the *local* part of the own rows has
/// the columns whose elements of x this rank has itself, the *remote* part those of other ranks, its
/// *halo*. Each part is a plan of its own, whose format and kernel are chosen for it. A product sends
/// the elements that others need, multiplies the local part meanwhile, waits, and adds the remote
/// part.
///
/// The parts lie in the memory of the CPU, or on one GPU for each rank
/// ([`DistributedMatrix::from_rows_on`]).
///
/// All ranks make the matrix and multiply it together. It is a [`LinOp`] on the vectors of a rank.
#[derive(Debug)]
pub struct DistributedMatrix<'a, T> {
    ranks: RanksRef<'a>,
    rows: Partition,
    columns: Partition,
    /// The own rows; columns are numbered anew: own ones first, then those of the halo.
    matrix: Csr<T>,
    plans: Plans<T>,
    halo: Halo,
    /// The positions of the halo, ascending.
    needed: Vec<i32>,
    /// The halo's elements of x.
    received: Vec<T>,
    sizes: [u64; 3],
    /// What solves find out about the entries, which never change; all ranks know it or none does.
    pub(super) facts: Option<Facts>,
    pub(super) is_positive_and_symmetric: Option<[bool; 2]>,
}

/// The plans of the parts.
#[derive(Debug)]
enum Plans<T> {
    Cpu(Box<CpuPart<T>>),
    Gpu(Box<dyn GpuPart<T>>),
}

/// The plans of a CPU.
#[derive(Debug)]
struct CpuPart<T> {
    local: SpmvPlan<T>,
    /// `None` where no element of other ranks is needed.
    remote: Option<Remote<T>>,
}

/// The remote part, of the rows that have entries in it.
#[derive(Debug)]
struct Remote<T> {
    plan: SpmvPlan<T>,
    /// These rows, among the own ones.
    rows: Vec<u32>,
    sums: Vec<T>,
}

/// How the parts of a [`DistributedMatrix`] are multiplied, and how much memory they may take.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MatrixOptions {
    /// Format and kernel of both parts on a CPU, for one right-hand side.
    pub spmv: SpmvOptions,
    /// Kernel of the local part on a GPU; that of the remote part is chosen.
    pub gpu: SingleOptions,
    /// The most memory to take on this rank.
    pub memory: MemoryLimit,
}

impl MatrixOptions {
    /// Formats and kernels chosen for each part, and the memory that is available.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets format and kernel.
    #[must_use]
    pub fn spmv(self, spmv: SpmvOptions) -> Self {
        Self { spmv, ..self }
    }

    /// Sets the kernel on a GPU.
    #[must_use]
    pub fn gpu(self, gpu: SingleOptions) -> Self {
        Self { gpu, ..self }
    }

    /// Sets the most memory to take.
    #[must_use]
    pub fn memory(self, memory: MemoryLimit) -> Self {
        Self { memory, ..self }
    }
}

/// What a rank has of a [`DistributedMatrix`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Parts {
    /// Own rows.
    pub rows: usize,
    /// Entries of the own rows.
    pub entries: usize,
    /// Elements of x that come from other ranks for a product.
    pub received: usize,
    /// Elements of x that go to other ranks, counted once for each rank.
    pub sent: usize,
    /// Ranks that elements come from or go to.
    pub neighbours: usize,
    /// The name of the GPU; `None` on a CPU.
    pub device: Option<String>,
    /// The plan of the local part.
    pub local: Explain,
    /// The plan of the remote part, if there is one.
    pub remote: Option<Explain>,
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, entries, received, sent, neighbours, device, local, remote } = self;
        write!(
            f,
            "{rows} rows, {entries} entries; {received} elements from and {sent} to {neighbours} \
             ranks; local {} by {}",
            local.format, local.kernel
        )?;
        if let Some(remote) = remote {
            write!(f, ", remote {} by {}", remote.format, remote.kernel)?;
        }
        device.as_ref().map_or(Ok(()), |device| write!(f, ", on {device}"))
    }
}

impl<'a, T: CpuScalar> DistributedMatrix<'a, T> {
    /// The matrix whose rows at the positions of this rank are `own`, with the columns by their
    /// positions among all. A square matrix that is to be solved with has one partition for rows
    /// and columns.
    ///
    /// Cost: a few passes over the entries, and one message to and from each rank whose elements of
    /// x are needed.
    ///
    /// # Errors
    /// [`MpiError::Unequal`] where partitions differ between ranks; [`MpiError::Rank`] with the exit
    /// code 2 where `own` does not fit its partition, exceeds the memory, or does not suit a format
    /// asked for by name.
    pub fn from_rows(
        ranks: impl Into<RanksRef<'a>>,
        own: Csr<T>,
        rows: &Partition,
        columns: &Partition,
        options: &MatrixOptions,
    ) -> Result<Self, MpiError> {
        let spmv = options.spmv.clone().nrhs(1);
        Self::assembled(ranks.into(), own, (rows, columns), options, |divided, _| {
            Plans::on_cpu(divided, &spmv)
        })
    }

    /// Makes the plans by `plan`.
    fn assembled(
        ranks: RanksRef<'a>,
        own: Csr<T>,
        (rows, columns): (&Partition, &Partition),
        options: &MatrixOptions,
        plan: impl FnOnce(Divided<'_, T>, &Halo) -> Result<Plans<T>, Failure>,
    ) -> Result<Self, MpiError> {
        ranks.same(&described::<T>(rows, columns))?;
        let needed = ranks.run(|| {
            check_fit(&ranks, &own, rows, columns)?;
            let bytes = BYTES_PER_ENTRY * own.nnz() as u128;
            let what = || format!("{} rows of {} entries", own.nrows(), own.nnz());
            options.memory.check(what, bytes).map_err(refused)?;
            Ok(needed_columns(&own, columns.range(ranks.rank())))
        })?;
        let halo = Halo::new::<T>(&ranks, columns, &needed)?;
        let own_columns = columns.range(ranks.rank());
        let entries = own.nnz();
        let made = ranks.run(|| {
            let matrix = renumbered(own, own_columns.clone(), &needed).map_err(refused)?;
            let plans = plan(divided(&matrix, own_columns.len()).map_err(refused)?, &halo)?;
            Ok((matrix, plans))
        });
        let (matrix, plans) = made?;
        let longest = (0..matrix.nrows()).map(|row| matrix.row(row).0.len()).max().unwrap_or(0);
        let all: Vec<[u64; 2]> = ranks.all_gather(&[entries as u64, longest as u64])?;
        let nnz = all.iter().map(|[nnz, _]| nnz).sum();
        let longest = all.iter().map(|[_, longest]| *longest).max().unwrap_or(0);
        let sizes = [rows.len() as u64, nnz, longest];
        let plans = connected(&ranks, plans, &halo);
        let received = vec![T::ZERO; needed.len()];
        let (rows, columns) = (rows.clone(), columns.clone());
        Ok(Self {
            ranks,
            rows,
            columns,
            matrix,
            plans,
            halo,
            needed,
            received,
            sizes,
            facts: None,
            is_positive_and_symmetric: None,
        })
    }

    /// As [`DistributedMatrix::from_rows`], from a matrix of which every rank has all rows, in the
    /// order that the partitions do not change.
    ///
    /// # Errors
    /// As [`DistributedMatrix::from_rows`].
    pub fn from_matrix(
        ranks: impl Into<RanksRef<'a>>,
        whole: &Csr<T>,
        rows: &Partition,
        columns: &Partition,
        options: &MatrixOptions,
    ) -> Result<Self, MpiError> {
        let ranks = ranks.into();
        let own = ranks.run(|| own_part(&ranks, whole, rows, columns))?;
        Self::from_rows(ranks, own, rows, columns, options)
    }

    /// `y = alpha A x + beta y`, on all ranks together; `x` has an element for each own column, `y`
    /// one for each own row. `y` is not read where `beta` is 0.
    ///
    /// A row's local entries are added first, then its remote ones: bits depend on the partition,
    /// and on nothing else.
    ///
    /// # Errors
    /// The failure of this rank alone, for vectors of another length; the other ranks go on, with
    /// NaN in the place of its elements, unless the ranks [agree](Ranks::agree) to end.
    pub fn apply(&mut self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<(), Failure> {
        let fits = check_len("x", self.own_columns(), x.len())
            .and_then(|()| check_len("y", self.own_rows(), y.len()));
        if let Err(error) = fits {
            // The other ranks wait for elements.
            let Self { ranks, plans, halo, .. } = self;
            match plans {
                Plans::Cpu(_) => halo.exchange_nothing(ranks),
                Plans::Gpu(part) => part.skip((ranks, halo)),
            }
            return Err(refused(error));
        }
        let Self { ranks, plans, halo, received, .. } = self;
        let CpuPart { local, remote } = match plans {
            Plans::Cpu(part) => &mut **part,
            Plans::Gpu(part) => return through_gpu(&mut **part, (ranks, halo), alpha, x, beta, y),
        };
        let mut multiplied = Ok(());
        halo.exchange(ranks, x, received, &mut || {
            multiplied = local.apply(alpha, x, beta, y);
        });
        multiplied.map_err(refused)?;
        if let Some(Remote { plan, rows, sums }) = remote {
            plan.apply(alpha, received, T::ZERO, sums).map_err(refused)?;
            for (&row, &sum) in rows.iter().zip(&*sums) {
                y[row as usize] += sum;
            }
        }
        Ok(())
    }

    /// The elements of x that the own rows need: the own ones, then those of the halo.
    pub(super) fn with_halo(&mut self, x: &[T]) -> Vec<T> {
        self.halo.exchange(&self.ranks, x, &mut self.received, &mut || ());
        joined(x, &self.received)
    }

    /// What this rank has, and how it multiplies.
    pub fn parts(&self) -> Parts {
        let (local, remote) = match &self.plans {
            Plans::Gpu(part) => part.explain(),
            Plans::Cpu(part) => {
                let CpuPart { local, remote } = &**part;
                let remote = remote.as_ref().map(|remote| remote.plan.explain().clone());
                (local.explain().clone(), remote)
            }
        };
        Parts {
            rows: self.own_rows(),
            entries: self.matrix.nnz(),
            received: self.received.len(),
            sent: self.halo.sent(),
            neighbours: self.halo.neighbours(),
            device: self.device(),
            local,
            remote,
        }
    }

    /// The name of the GPU, if the parts are on one.
    pub(super) fn device(&self) -> Option<String> {
        match &self.plans {
            Plans::Gpu(part) => Some(part.device()),
            Plans::Cpu(_) => None,
        }
    }

    /// The diagonal of the own rows of a square matrix; 0 where none is stored.
    pub(super) fn diagonal(&self) -> Vec<T> {
        let matrix = &self.matrix;
        let mut diagonal = vec![T::ZERO; matrix.nrows()];
        fill_by_chunks(&mut diagonal, |rows, diagonal| {
            for (row, d) in rows.zip(diagonal) {
                *d = value(matrix, row, row).unwrap_or(T::ZERO);
            }
        });
        diagonal
    }

    /// Whether a square matrix is symmetric, entry by entry. Every rank sends the entries of its
    /// remote part to the ranks that have the rows of their mirror images.
    pub(super) fn is_symmetric(&self) -> Result<bool, MpiError> {
        let start = self.rows.range(self.ranks.rank()).start;
        let own = self.own_columns();
        let matrix = &self.matrix;
        let of_rows = |rows: Range<usize>| {
            let (mut is_symmetric, mut remote) = (true, Vec::new());
            for row in rows {
                let (cols, values) = matrix.row(row);
                for (&col, &entry) in cols.iter().zip(values) {
                    match (col as usize).checked_sub(own) {
                        None => is_symmetric &= value(matrix, col as usize, row) == Some(entry),
                        Some(place) => remote.push((place, (start + row) as i32, entry.to_f64())),
                    }
                }
            }
            (is_symmetric, remote)
        };
        let parts = by_chunks(self.matrix.nrows(), of_rows);
        let mut is_symmetric = parts.iter().all(|(is_symmetric, _)| *is_symmetric);
        let mut sent: Vec<Vec<(u32, i32, f64)>> = vec![Vec::new(); self.ranks.size()];
        for (place, row, value) in parts.into_iter().flat_map(|(_, remote)| remote) {
            let position = self.needed[place] as usize;
            let owner = self.rows.rank_of(position);
            sent[owner].push(((position - self.rows.range(owner).start) as u32, row, value));
        }
        let packed: Result<Vec<Vec<u8>>, _> = sent.iter().map(postcard::to_stdvec).collect();
        for bytes in self.ranks.transport().all_to_all(packed?) {
            let entries: Vec<(u32, i32, f64)> = postcard::from_bytes(&bytes)?;
            is_symmetric &= entries.iter().all(|&(row, col, entry)| {
                let col = self.needed.binary_search(&col).ok();
                let found = col.and_then(|col| value(&self.matrix, row as usize, own + col));
                found.is_some_and(|found| found.to_f64() == entry)
            });
        }
        Ok(self.ranks.all_gather(&is_symmetric)?.into_iter().all(|symmetric| symmetric))
    }

    /// The block of own rows and own columns, for preconditioners.
    pub(super) fn block(&self) -> Result<Csr<T>, FormatError> {
        columns_of(&self.matrix, 0..self.own_columns())
    }
}

/// On a CPU or a GPU.
impl<'a, T: SolveScalar> DistributedMatrix<'a, T> {
    /// As [`DistributedMatrix::from_rows`], with the parts in the memory of a backend: the CPU, or
    /// one GPU for each rank, which several ranks may share. Ranks may have different ones.
    ///
    /// On a GPU, elements of x that others need travel beside the product of the local part: from GPU
    /// to GPU where all ranks are threads of one process, else through page-locked memory of the
    /// host. Solves keep their vectors there ([`DistributedMatrix::solve`]).
    ///
    /// # Errors
    /// As [`DistributedMatrix::from_rows`]; [`MpiError::Rank`] or [`MpiError::All`] for several GPUs
    /// in a rank, for a format or kernel of the CPU asked for on a GPU, and for what a GPU reports.
    pub fn from_rows_on<E: GpuExecutor>(
        ranks: impl Into<RanksRef<'a>>,
        backend: &Backend<E>,
        own: Csr<T>,
        rows: &Partition,
        columns: &Partition,
        options: &MatrixOptions,
    ) -> Result<Self, MpiError> {
        let ranks = ranks.into();
        let executor = ranks.agree(executor_of(backend, options))?;
        let Some(executor) = executor else {
            return Self::from_rows(ranks, own, rows, columns, options);
        };
        Self::assembled(ranks, own, (rows, columns), options, |divided, halo| {
            Ok(Plans::Gpu(on_gpu(executor, &divided, halo, &options.gpu)?))
        })
    }

    /// As [`DistributedMatrix::from_matrix`], on a backend.
    ///
    /// # Errors
    /// As [`DistributedMatrix::from_rows_on`].
    pub fn from_matrix_on<E: GpuExecutor>(
        ranks: impl Into<RanksRef<'a>>,
        backend: &Backend<E>,
        whole: &Csr<T>,
        rows: &Partition,
        columns: &Partition,
        options: &MatrixOptions,
    ) -> Result<Self, MpiError> {
        let ranks = ranks.into();
        let own = ranks.run(|| own_part(&ranks, whole, rows, columns))?;
        Self::from_rows_on(ranks, backend, own, rows, columns, options)
    }
}

/// Products on a GPU whose vectors stay there.
impl<T: CpuScalar> DistributedMatrix<'_, T> {
    /// Copies x to the GPU, for [`DistributedMatrix::multiply_loaded`].
    ///
    /// # Errors
    /// The failure of this rank alone, for a vector of another length, a matrix on a CPU, and what
    /// the GPU reports.
    pub fn load(&mut self, x: &[T]) -> Result<(), Failure> {
        check_len("x", self.own_columns(), x.len()).map_err(refused)?;
        self.gpu()?.load(x)
    }

    /// Starts `y = A x` of the x that was loaded, on all ranks together; [`DistributedMatrix::wait`] and
    /// [`DistributedMatrix::store`] wait for it. The others go on where a rank fails, with NaN in the
    /// place of its elements.
    ///
    /// # Errors
    /// As [`DistributedMatrix::load`].
    pub fn multiply_loaded(&mut self) -> Result<(), Failure> {
        let Self { ranks, plans, halo, .. } = self;
        match plans {
            Plans::Gpu(part) => part.multiply((ranks, halo), T::ONE, T::ZERO),
            Plans::Cpu(_) => {
                halo.exchange_nothing(ranks);
                Err(not_on_gpu())
            }
        }
    }

    /// Whether elements of x go from GPU to GPU: where all ranks are threads of one process and have
    /// a GPU each that reaches the memory of the others. Otherwise they go by way of the host.
    pub fn has_direct_exchange(&self) -> bool {
        matches!(&self.plans, Plans::Gpu(part) if part.is_connected())
    }

    /// Waits until the GPU has done all that was started.
    ///
    /// # Errors
    /// As [`DistributedMatrix::load`].
    pub fn wait(&mut self) -> Result<(), Failure> {
        self.gpu()?.wait()
    }

    /// Copies y of the last product to the host.
    ///
    /// # Errors
    /// As [`DistributedMatrix::load`].
    pub fn store(&mut self, y: &mut [T]) -> Result<(), Failure> {
        check_len("y", self.own_rows(), y.len()).map_err(refused)?;
        self.gpu()?.store(y)
    }

    /// The part of this rank on its GPU.
    pub(super) fn gpu(&mut self) -> Result<&mut dyn GpuPart<T>, Failure> {
        match &mut self.plans {
            Plans::Gpu(part) => Ok(&mut **part),
            Plans::Cpu(_) => Err(not_on_gpu()),
        }
    }

    /// `to = scale A from` of vectors of a Krylov method on the GPU.
    pub(super) fn multiply_vectors(
        &mut self,
        scale: T,
        vectors: (StepVector, StepVector),
    ) -> Result<(), Failure> {
        let Self { ranks, plans, halo, .. } = self;
        match plans {
            Plans::Gpu(part) => part.multiply_vectors((ranks, halo), scale, vectors),
            Plans::Cpu(_) => {
                halo.exchange_nothing(ranks);
                Err(not_on_gpu())
            }
        }
    }
}

impl<'a, T> DistributedMatrix<'a, T> {
    /// Whether the parts of this rank are on a GPU.
    pub fn is_on_gpu(&self) -> bool {
        matches!(self.plans, Plans::Gpu(_))
    }

    /// The ranks that hold it.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The ranks, for as long as they are needed.
    pub(super) fn held_ranks(&self) -> RanksRef<'a> {
        self.ranks.clone()
    }

    /// Which rank has which rows.
    pub fn rows(&self) -> &Partition {
        &self.rows
    }

    /// Which rank has which columns, and so elements of x.
    pub fn columns(&self) -> &Partition {
        &self.columns
    }

    /// The number of rows of this rank.
    pub fn own_rows(&self) -> usize {
        self.rows.range(self.ranks.rank()).len()
    }

    /// The number of columns of this rank.
    pub fn own_columns(&self) -> usize {
        self.columns.range(self.ranks.rank()).len()
    }

    /// The number of entries of all ranks.
    pub fn nnz(&self) -> u64 {
        self.sizes[1]
    }

    /// The entries of the longest row.
    pub(super) fn longest_row(&self) -> usize {
        self.sizes[2] as usize
    }

    /// The own rows; columns are own ones first, then those of the halo.
    pub(super) fn matrix(&self) -> &Csr<T> {
        &self.matrix
    }
}

/// The product as an operator; its failures are those of one rank.
impl<T: CpuScalar> LinOp<T> for DistributedMatrix<'_, T> {
    fn apply(&mut self, x: &[T], y: &mut [T]) -> Result<(), OperatorError> {
        self.apply(T::ONE, x, T::ZERO, y).map_err(|failure| failure.message.into())
    }
}

/// A failure by what was asked for.
pub(super) fn refused(error: impl fmt::Display) -> Failure {
    Failure { code: 2, message: error.to_string() }
}

/// What ranks must have in common.
fn described<T: Scalar>(rows: &Partition, columns: &Partition) -> Described {
    let of = |parts: &Partition| {
        format!("{} for {} ranks ({:016x})", parts.len(), parts.ranks(), parts.digest())
    };
    vec![
        ("the type of the values".to_owned(), T::NAME.to_owned()),
        ("the partition of rows".to_owned(), of(rows)),
        ("the partition of columns".to_owned(), of(columns)),
    ]
}

fn check_ranks(ranks: &Ranks, partition: &Partition) -> Result<(), Failure> {
    if partition.ranks() == ranks.size() {
        return Ok(());
    }
    Err(refused(ArgumentError::OutOfRange {
        name: "partition",
        expected: "a part for each rank",
        found: format!("for {} ranks of {}", partition.ranks(), ranks.size()),
    }))
}

fn check_fit<T: Scalar>(
    ranks: &Ranks,
    own: &Csr<T>,
    rows: &Partition,
    columns: &Partition,
) -> Result<(), Failure> {
    check_ranks(ranks, rows)?;
    check_ranks(ranks, columns)?;
    check_len("own rows", rows.range(ranks.rank()).len(), own.nrows()).map_err(refused)?;
    check_len("columns", columns.len(), own.ncols()).map_err(refused)
}

/// The rows of this rank of a whole matrix that its partitions fit.
fn own_part<T: Scalar>(
    ranks: &Ranks,
    whole: &Csr<T>,
    rows: &Partition,
    columns: &Partition,
) -> Result<Csr<T>, Failure> {
    let expected = [(rows.len(), whole.nrows()), (columns.len(), whole.ncols())];
    for (name, (expected, found)) in ["rows", "columns"].into_iter().zip(expected) {
        check_len(name, expected, found).map_err(refused)?;
    }
    check_ranks(ranks, rows)?;
    own_rows(whole, rows, columns, ranks.rank()).map_err(refused)
}

impl<T: CpuScalar> Plans<T> {
    fn on_cpu(divided: Divided<'_, T>, spmv: &SpmvOptions) -> Result<Self, Failure> {
        let Divided { local, remote } = divided;
        let local = SpmvPlan::new(&*local, spmv).map_err(refused)?;
        let remote = remote.map(|(remote, rows)| {
            let plan = SpmvPlan::new(&remote, spmv).map_err(refused)?;
            let sums = vec![T::ZERO; rows.len()];
            Ok::<_, Failure>(Remote { plan, rows, sums })
        });
        Ok(Self::Cpu(Box::new(CpuPart { local, remote: remote.transpose()? })))
    }
}

/// The GPU of a rank, if it has one.
fn executor_of<'b, E: GpuExecutor>(
    backend: &'b Backend<E>,
    options: &MatrixOptions,
) -> Result<Option<&'b E>, Failure> {
    let refuse = |name, expected, found: String| {
        Err(refused(ArgumentError::OutOfRange { name, expected, found }))
    };
    let gpu = match backend {
        Backend::Gpu(gpu) => gpu,
        Backend::Gpus(gpus) => {
            return refuse("GPUs of a rank", "one", gpus.each().len().to_string());
        }
        _ => return Ok(None),
    };
    if options.spmv.clone().nrhs(1) != SpmvOptions::default().nrhs(1) {
        let found = "one of a CPU".to_owned();
        return refuse("format or kernel", "auto, or MatrixOptions::gpu, on a GPU", found);
    }
    Ok(Some(&gpu.executor))
}

/// Lets GPUs copy elements from each other, where all ranks are threads of one process and reach
/// their partners' memory.
fn connected<T: Scalar>(ranks: &Ranks, mut plans: Plans<T>, halo: &Halo) -> Plans<T> {
    let own: Option<Shared> = match &plans {
        Plans::Gpu(part) => part.mailbox(),
        Plans::Cpu(_) => None,
    };
    let Some(shared) = ranks.transport().share(own.unwrap_or_else(|| Arc::new(()))) else {
        return plans;
    };
    let offsets = halo.offsets(ranks);
    let reaches = match &plans {
        Plans::Gpu(part) => part.reaches(halo, &shared),
        Plans::Cpu(_) => false,
    };
    let is_alone = ranks.transport().any(!reaches);
    if let (Plans::Gpu(part), false) = (&mut plans, is_alone) {
        part.connect(halo, ranks.rank(), &shared, &offsets);
    }
    plans
}

fn not_on_gpu() -> Failure {
    refused(ArgumentError::OutOfRange {
        name: "the matrix",
        expected: "on a GPU",
        found: "on a CPU".to_owned(),
    })
}

/// `y = alpha A x + beta y` on a GPU, of vectors of the host.
fn through_gpu<T: CpuScalar>(
    part: &mut dyn GpuPart<T>,
    exchange: (&Ranks, &mut Halo),
    alpha: T,
    x: &[T],
    beta: T,
    y: &mut [T],
) -> Result<(), Failure> {
    let loaded = part.load(x).and_then(|()| match beta == T::ZERO {
        true => Ok(()),
        false => part.load_y(y),
    });
    if let Err(failure) = loaded {
        part.skip(exchange);
        return Err(failure);
    }
    part.multiply(exchange, alpha, beta)?;
    part.store(y)
}
