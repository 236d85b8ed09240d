//! A distributed matrix from a file, of which every rank reads its rows.

use std::path::Path;

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_formats::Csr;
use sparsebatch_formats::io::MatrixIndex;
use sparsebatch_solvers::{Backend, GpuExecutor, SolveScalar};

use super::matrix::refused;
use super::{DistributedMatrix, MatrixOptions, Partition};
use crate::{Failure, MpiError, Ranks, RanksRef};

/// A matrix file that every rank has looked through, and who is to have which rows.
#[derive(Debug)]
pub struct MatrixFile {
    index: MatrixIndex,
    rows: Partition,
    columns: Partition,
}

impl MatrixFile {
    /// Every rank goes through a file that all of them can read, Matrix Market or an `.npz` in the
    /// format `csr`, to count the entries of its rows. Rows are divided by their entries; columns as
    /// the rows of a square matrix are, else evenly.
    ///
    /// # Errors
    /// [`MpiError::All`] or [`MpiError::Rank`] with the exit code 2 where the file cannot be read;
    /// [`MpiError::Unequal`] where ranks have found different files.
    pub fn open(
        ranks: &Ranks,
        path: impl AsRef<Path>,
        options: &MatrixOptions,
    ) -> Result<Self, MpiError> {
        let path = path.as_ref();
        let index = ranks.run(|| MatrixIndex::open(path, options.memory).map_err(of_input))?;
        let sizes = [index.nrows() as u64, index.ncols() as u64, index.entries()];
        let names = ["the number of rows", "the number of columns", "the number of entries"];
        let names = names.map(str::to_owned).into_iter();
        ranks.same(&names.zip(sizes.map(|size| size.to_string())).collect())?;
        let (nrows, ncols, size) = (index.nrows(), index.ncols(), ranks.size());
        let (group, entries) = (index.rows_of_group(), index.entries_of_groups());
        let rows = Partition::by_groups(nrows, group, entries, size);
        let columns = rows.of_columns(ncols);
        Ok(Self { index, rows, columns })
    }

    /// The same file with other parts of it for the ranks, which must not be
    /// [ordered](Partition::ordered).
    ///
    /// # Errors
    /// The failure of this rank where they are, or have other sizes.
    pub fn divided(self, rows: Partition, columns: Partition) -> Result<Self, Failure> {
        let fits = rows.len() == self.index.nrows() && columns.len() == self.index.ncols();
        if !fits || rows.is_ordered() || columns.is_ordered() {
            let (nrows, ncols) = (self.index.nrows(), self.index.ncols());
            return Err(refused(format!(
                "the partitions have {} rows and {} columns{}, expected {nrows} and {ncols} in the \
                 order of the file",
                rows.len(),
                columns.len(),
                if rows.is_ordered() || columns.is_ordered() { " in another order" } else { "" },
            )));
        }
        Ok(Self { rows, columns, ..self })
    }

    /// Which rank has which rows.
    pub fn rows(&self) -> &Partition {
        &self.rows
    }

    /// Which rank has which columns.
    pub fn columns(&self) -> &Partition {
        &self.columns
    }

    /// Number of entries, those that a symmetry implies among them and duplicates counted each.
    pub fn entries(&self) -> u64 {
        self.index.entries()
    }

    /// Every rank reads its rows. Memory is in proportion to their entries.
    ///
    /// # Errors
    /// [`MpiError::Rank`] with the exit code 2 where a rank cannot read or hold its rows; those of
    /// [`DistributedMatrix::from_rows`].
    pub fn read<'a, T: CpuScalar>(
        &self,
        ranks: impl Into<RanksRef<'a>>,
        options: &MatrixOptions,
    ) -> Result<DistributedMatrix<'a, T>, MpiError> {
        let ranks = ranks.into();
        let own = self.read_rows(&ranks)?.cast::<T>();
        DistributedMatrix::from_rows(ranks, own, &self.rows, &self.columns, options)
    }

    /// As [`MatrixFile::read`], on a backend.
    ///
    /// # Errors
    /// As [`MatrixFile::read`] and [`DistributedMatrix::from_rows_on`].
    pub fn read_on<'a, T: SolveScalar, E: GpuExecutor>(
        &self,
        ranks: impl Into<RanksRef<'a>>,
        backend: &Backend<E>,
        options: &MatrixOptions,
    ) -> Result<DistributedMatrix<'a, T>, MpiError> {
        let ranks = ranks.into();
        let own = self.read_rows(&ranks)?.cast::<T>();
        DistributedMatrix::from_rows_on(ranks, backend, own, &self.rows, &self.columns, options)
    }

    /// Every rank reads its rows, with all columns.
    ///
    /// # Errors
    /// As [`MatrixFile::read`].
    pub fn read_rows(&self, ranks: &Ranks) -> Result<Csr<f64>, MpiError> {
        let range = self.rows.range(ranks.rank());
        ranks.run(|| self.index.read_rows(range).map_err(of_input))
    }
}

/// A refusal by the system is an internal failure, as in one process; else the input is wrong.
fn of_input(error: sparsebatch_formats::FormatError) -> Failure {
    match error {
        sparsebatch_formats::FormatError::Memory { .. } => Failure::internal(error.to_string()),
        _ => refused(error),
    }
}
