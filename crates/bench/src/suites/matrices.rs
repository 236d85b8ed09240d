//! The matrices of the suites over single matrices.

use std::path::PathBuf;

use sparsebatch_corpus::List;
use sparsebatch_formats::generate::{Stencil, banded, dense, laplace, pareto, random, trefethen};
use sparsebatch_formats::{Csr, FormatError, io};

use super::{Size, files};
use crate::BenchError;
use crate::parallel;
use crate::phases::Phase::Making;
use crate::phases::timed;

/// Description of a matrix that is made or read later.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MatrixSource {
    pub(super) name: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Laplace(Stencil, Vec<usize>),
    Dense(usize, usize),
    Pareto(usize, f64),
    Banded(usize, usize),
    Random(usize, usize),
    Trefethen(usize),
    File(PathBuf),
}

/// Seed of the generated values and positions.
const SEED: u64 = 1;

/// Entries of the shortest rows of the Pareto family.
const PARETO_MIN: usize = 32;

impl MatrixSource {
    /// Whether the matrix is measured when no case is named: it is generated or belongs to `list`.
    pub(super) fn is_usual(&self, list: List) -> bool {
        !self.is_file() || list.members().contains(&self.name.as_str())
    }

    /// A matrix of a file.
    pub(super) fn file(name: String, path: PathBuf) -> Self {
        Self { name, kind: Kind::File(path) }
    }

    /// Whether the matrix is read from a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File(_))
    }

    /// Makes or reads the matrix.
    pub(super) fn matrix(&self) -> Result<Csr<f64>, FormatError> {
        match &self.kind {
            Kind::Laplace(stencil, grid) => laplace(*stencil, grid),
            Kind::Dense(nrows, ncols) => dense(*nrows, *ncols, SEED),
            Kind::Pareto(nrows, shape) => pareto(*nrows, *nrows, PARETO_MIN, *shape, SEED),
            Kind::Banded(nrows, bands) => banded(*nrows, *bands, SEED),
            Kind::Random(nrows, row_len) => random(*nrows, *nrows, *row_len, SEED),
            Kind::Trefethen(nrows) => trefethen(*nrows),
            Kind::File(path) => io::read_matrix_market(path),
        }
    }

    /// A Laplacian of Table 2 of Bell and Garland 2009, or another one of these stencils.
    pub(super) fn laplace(stencil: Stencil, grid: &[usize]) -> Self {
        let extents: Vec<String> = grid.iter().map(ToString::to_string).collect();
        let name = format!("laplace {}-point {}", stencil.points(), extents.join("x"));
        Self { name, kind: Kind::Laplace(stencil, grid.to_vec()) }
    }

    /// A dense matrix with all entries stored, as in Figure 8 there.
    pub(super) fn dense(nrows: usize, ncols: usize) -> Self {
        Self { name: format!("dense {nrows}x{ncols}"), kind: Kind::Dense(nrows, ncols) }
    }

    /// A matrix with heavy-tailed row lengths, as in Figure 9 there.
    pub(super) fn pareto(nrows: usize, shape: f64) -> Self {
        Self { name: format!("pareto {shape}"), kind: Kind::Pareto(nrows, shape) }
    }

    /// A matrix of adjacent diagonals, as in Figure 10 there.
    pub(super) fn banded(nrows: usize, bands: usize) -> Self {
        Self { name: format!("banded {bands}"), kind: Kind::Banded(nrows, bands) }
    }

    /// A matrix with `row_len` entries in every row, at random columns.
    pub(super) fn random(nrows: usize, row_len: usize) -> Self {
        Self { name: format!("random {row_len} of {nrows}"), kind: Kind::Random(nrows, row_len) }
    }

    /// Trefethen's matrix of the first 20,000 primes.
    pub(super) fn trefethen() -> Self {
        Self { name: "Trefethen_20000".to_owned(), kind: Kind::Trefethen(20_000) }
    }
}

/// `sources` and the files of `folders`. A file replaces an earlier source of the same name.
///
/// # Errors
/// Folders that cannot be read.
pub(super) fn with_files(
    mut sources: Vec<MatrixSource>,
    folders: &[PathBuf],
) -> Result<Vec<MatrixSource>, BenchError> {
    for folder in folders {
        for (name, path) in files(folder)? {
            sources.retain(|source| source.name != name);
            sources.push(MatrixSource::file(name, path));
        }
    }
    Ok(sources)
}

/// Number of sources that are made or read in parallel.
const AT_ONCE: usize = 8;

/// The matrices of the wanted sources, one after the other. Several are made in parallel when the
/// first of them is requested; those of full size, which are large, are made one at a time.
pub(super) fn made(
    sources: &[MatrixSource],
    is_wanted: impl Fn(&MatrixSource) -> bool,
    size: Size,
) -> impl Iterator<Item = (&MatrixSource, Result<Csr<f64>, FormatError>)> {
    let wanted: Vec<&MatrixSource> = sources.iter().filter(|source| is_wanted(source)).collect();
    let at_once = if size == Size::Full { 1 } else { AT_ONCE.min(rayon::current_num_threads()) };
    let groups: Vec<Vec<&MatrixSource>> = wanted.chunks(at_once).map(<[_]>::to_vec).collect();
    groups.into_iter().flat_map(|group| {
        let matrices = timed(Making, || parallel::map(group.len(), |at| group[at].matrix()));
        group.into_iter().zip(matrices)
    })
}

/// The Laplacians of Table 2 of Bell and Garland 2009; about a tenth as large at small size.
pub(super) fn laplacians(size: Size) -> Vec<MatrixSource> {
    use Stencil::{Point3, Point5, Point7, Point9, Point27};
    let (line, square, cube) = match size {
        Size::Small => (100_000, 300, 46),
        Size::Paper | Size::Full => (1_000_000, 1_000, 100),
    };
    vec![
        MatrixSource::laplace(Point3, &[line]),
        MatrixSource::laplace(Point5, &[square; 2]),
        MatrixSource::laplace(Point7, &[cube; 3]),
        MatrixSource::laplace(Point9, &[square; 2]),
        MatrixSource::laplace(Point27, &[cube; 3]),
    ]
}

/// The generated matrices of the suite `single`.
///
/// From Bell and Garland 2009 (doi 10.1145/1654059.1654078): the Laplacians of Table 2, and points
/// of the families of Figures 8 (dense, about 4 million entries), 9 (Pareto, 30,000 rows) and 10
/// (banded, 262,144 rows). `Trefethen_20000` is generated by its definition. Full size adds
/// stencils of up to 200 million entries; at small size everything is about a tenth as large.
pub(super) fn generated(size: Size) -> Vec<MatrixSource> {
    use Stencil::{Point7, Point27};
    let small = size == Size::Small;
    let pick = |paper, reduced| if small { reduced } else { paper };
    let mut found = laplacians(size);
    let shapes: &[(usize, usize)] = match small {
        true => &[(16, 16_384), (512, 512), (65_536, 4)],
        false => &[(4, 1_048_576), (64, 65_536), (2_048, 2_048), (65_536, 64), (1_048_576, 4)],
    };
    found.extend(shapes.iter().map(|&(nrows, ncols)| MatrixSource::dense(nrows, ncols)));
    let pareto_rows = pick(30_000, 3_000);
    found.extend([1.0, 1.5, 2.0, 4.0].map(|shape| MatrixSource::pareto(pareto_rows, shape)));
    let banded_rows = pick(262_144, 26_214);
    found.extend([1, 4, 16, 32, 64].map(|bands| MatrixSource::banded(banded_rows, bands)));
    found.push(MatrixSource::trefethen());
    if size == Size::Full {
        found.extend([
            MatrixSource::laplace(Point7, &[200; 3]),
            MatrixSource::laplace(Point27, &[150; 3]),
            MatrixSource::laplace(Point7, &[300; 3]),
            MatrixSource::laplace(Point27, &[195; 3]),
        ]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_matrices_apart() {
        for size in [Size::Small, Size::Paper, Size::Full] {
            let mut names: Vec<String> = generated(size).into_iter().map(|s| s.name).collect();
            let count = names.len();
            names.sort();
            names.dedup();

            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn the_laplacians_are_those_of_table_2() {
        let found = generated(Size::Paper);
        let nnz = |index: usize| found[index].matrix().unwrap().nnz();

        assert_eq!(found[4].name, "laplace 27-point 100x100x100");
        assert_eq!([0, 1, 2, 3].map(nnz), [2_999_998, 4_996_000, 6_940_000, 8_988_004]);
        assert_eq!(nnz(4), 26_463_592);
    }

    #[test]
    fn matrices_are_made_together_and_come_in_their_order() {
        let sources: Vec<MatrixSource> =
            (1..30).map(|bands| MatrixSource::banded(100, bands)).collect();
        let missing = MatrixSource::file("none".to_owned(), PathBuf::from("/none"));
        let sources = [sources, vec![missing]].concat();
        let is_wanted = |source: &MatrixSource| source.name != "banded 3";
        for size in [Size::Small, Size::Full] {
            let found: Vec<_> = made(&sources, is_wanted, size).collect();

            assert_eq!(found.len(), 29);
            assert!(found[28].1.is_err());
            for (source, matrix) in &found[..28] {
                assert_eq!(matrix.as_ref().unwrap(), &source.matrix().unwrap());
            }
            assert_eq!((&*found[1].0.name, &*found[2].0.name), ("banded 2", "banded 4"));
        }
    }

    #[test]
    fn small_matrices_can_all_be_made() {
        for source in generated(Size::Small) {
            assert!(source.matrix().unwrap().nnz() < 3_000_000, "{}", source.name);
        }
    }
}
