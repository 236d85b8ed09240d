//! The cases of the suite `throughput`.

use std::fmt;
use std::str::FromStr;

use sparsebatch_formats::generate::Stencil;
use sparsebatch_spmv_gpu::SingleKernel;

use super::super::Size;
use super::super::host_kernels::HostKernel;
use super::super::matrices::{MatrixSource, laplacians};
use crate::BenchError;

/// Figures of Bell and Garland 2009 (doi 10.1145/1654059.1654078) that the suite repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThroughputExperiment {
    /// Figure 1: strided vectors.
    Strided,
    /// Figure 8: dense matrices with the same number of entries, from few long rows to many short
    /// ones.
    Dense,
    /// Figure 9: matrices with heavy-tailed row lengths.
    Pareto,
    /// Figure 10: banded matrices, a thread against a warp per row.
    Banded,
    /// Figures 11 and 12: the Laplacians of Table 2.
    Laplace,
    /// Figures 13 to 15: unstructured matrices, from files.
    Unstructured,
}

impl ThroughputExperiment {
    /// All experiments.
    pub const ALL: [Self; 6] =
        [Self::Strided, Self::Dense, Self::Pareto, Self::Banded, Self::Laplace, Self::Unstructured];

    /// The name: the number of its first figure.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strided => "fig1",
            Self::Dense => "fig8",
            Self::Pareto => "fig9",
            Self::Banded => "fig10",
            Self::Laplace => "fig11",
            Self::Unstructured => "fig13",
        }
    }

    /// The formats and kernels of the source that suit its matrices, and our automatic choice.
    pub(super) fn kernels(self) -> Vec<SingleKernel> {
        use SingleKernel::{Auto, Coo, CsrScalar, CsrVector, Dia, Ell, Hyb};
        let mut kernels = vec![Auto, CsrScalar, CsrVector, Coo, Ell, Hyb];
        if matches!(self, Self::Banded | Self::Laplace) {
            kernels.push(Dia);
        }
        kernels
    }

    /// The equivalents of [`ThroughputExperiment::kernels`] on the processor.
    pub(super) fn host_kernels(self) -> Vec<HostKernel> {
        use HostKernel::{Auto, Coo, Csr, CsrI, Dia, DiaBlocks, Ell, Hyb};
        let mut kernels = vec![Auto, Csr, CsrI, Coo, Ell, Hyb];
        if matches!(self, Self::Banded | Self::Laplace) {
            kernels.extend([Dia, DiaBlocks]);
        }
        kernels
    }

    /// Whether products that bypass the cache of a multiprocessor for x are measured too.
    pub(super) fn has_gathers(self) -> bool {
        matches!(self, Self::Laplace | Self::Unstructured)
    }
}

impl fmt::Display for ThroughputExperiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ThroughputExperiment {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let found = Self::ALL.into_iter().find(|experiment| experiment.name() == text);
        found.ok_or_else(|| BenchError::Option {
            option: "--experiment",
            expected: format!("one of {}", Self::ALL.map(Self::name).join(", ")),
            found: text.to_owned(),
        })
    }
}

/// The data of a case, made later.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Subject {
    /// `count` elements at a distance of `stride`.
    Strided {
        /// Number of elements.
        count: usize,
        /// Distance between consecutive elements.
        stride: usize,
    },
    /// A matrix.
    Matrix(MatrixSource),
}

/// A case of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThroughputCase {
    pub(super) name: String,
    pub(super) experiment: ThroughputExperiment,
    pub(super) subject: Subject,
}

impl ThroughputCase {
    pub(super) fn of_matrix(experiment: ThroughputExperiment, source: MatrixSource) -> Self {
        Self { name: source.name.clone(), experiment, subject: Subject::Matrix(source) }
    }

    /// The matrix of the case, if it has one.
    pub(super) fn source(&self) -> Option<MatrixSource> {
        match &self.subject {
            Subject::Matrix(source) => Some(source.clone()),
            Subject::Strided { .. } => None,
        }
    }
}

/// Base-2 logarithms of the rows of the dense matrices, and of their number of entries.
fn dense_shapes(size: Size) -> (Vec<u32>, u32) {
    match size {
        Size::Small => (vec![2, 6, 9, 12, 16], 18),
        Size::Paper => ((2..=22).step_by(4).collect(), 22),
        Size::Full => ((0..=22).collect(), 22),
    }
}

/// The generated cases of an experiment; [`ThroughputExperiment::Unstructured`] has none.
pub(super) fn generated(experiment: ThroughputExperiment, size: Size) -> Vec<ThroughputCase> {
    let small = size == Size::Small;
    let pick = |paper, reduced| if small { reduced } else { paper };
    let matrices: Vec<MatrixSource> = match experiment {
        ThroughputExperiment::Strided => {
            let strides: &[usize] = match size {
                Size::Small => &[1, 2, 8, 33],
                Size::Paper => &[1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 33],
                Size::Full => &[1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16, 17, 20, 24, 28, 32, 33],
            };
            let count = pick(1 << 22, 1 << 18);
            let case = |&stride: &usize| ThroughputCase {
                name: format!("stride {stride}"),
                experiment,
                subject: Subject::Strided { count, stride },
            };
            return strides.iter().map(case).collect();
        }
        ThroughputExperiment::Dense => {
            let (rows, entries) = dense_shapes(size);
            rows.iter().map(|&rows| MatrixSource::dense(1 << rows, 1 << (entries - rows))).collect()
        }
        ThroughputExperiment::Pareto => {
            let shapes: &[f64] = match size {
                Size::Small => &[1.0, 2.0, 4.0],
                Size::Paper => &[1.0, 1.5, 2.0, 3.0, 4.0],
                Size::Full => &[1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0],
            };
            shapes.iter().map(|&shape| MatrixSource::pareto(pick(30_000, 3_000), shape)).collect()
        }
        ThroughputExperiment::Banded => {
            let bands: &[usize] = match size {
                Size::Small => &[1, 4, 16, 64],
                Size::Paper => &[1, 2, 4, 8, 16, 32, 64],
                Size::Full => &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96],
            };
            bands.iter().map(|&bands| MatrixSource::banded(pick(262_144, 26_214), bands)).collect()
        }
        ThroughputExperiment::Laplace => {
            use Stencil::{Point7, Point27};
            let mut found = laplacians(size);
            if size == Size::Full {
                found.extend([
                    MatrixSource::laplace(Point7, &[200; 3]),
                    MatrixSource::laplace(Point27, &[150; 3]),
                ]);
            }
            found
        }
        ThroughputExperiment::Unstructured => Vec::new(),
    };
    matrices.into_iter().map(|source| ThroughputCase::of_matrix(experiment, source)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrices(
        experiment: ThroughputExperiment,
        size: Size,
    ) -> Vec<sparsebatch_formats::Csr<f64>> {
        let made = |case: ThroughputCase| match case.subject {
            Subject::Matrix(source) => source.matrix().unwrap(),
            Subject::Strided { .. } => panic!("{} is no matrix", case.name),
        };
        generated(experiment, size).into_iter().map(made).collect()
    }

    #[test]
    fn dense_matrices_have_equally_many_entries() {
        let found = matrices(ThroughputExperiment::Dense, Size::Small);

        assert!(found.iter().all(|matrix| matrix.nnz() == 1 << 18));
        let (rows, entries) = dense_shapes(Size::Paper);
        assert_eq!((rows.first(), rows.last(), entries), (Some(&2), Some(&22), 22));
    }

    #[test]
    fn the_laplacians_are_those_of_table_2() {
        let counts: Vec<(usize, usize)> = matrices(ThroughputExperiment::Laplace, Size::Paper)
            .iter()
            .map(|matrix| (matrix.nrows(), matrix.nnz()))
            .collect();

        let nnz = [2_999_998, 4_996_000, 6_940_000, 8_988_004, 26_463_592];
        assert_eq!(counts, nnz.map(|nnz| (1_000_000, nnz)));
    }

    #[test]
    fn bands_are_as_wide_as_they_say() {
        let found = matrices(ThroughputExperiment::Banded, Size::Small);

        let longest = |matrix: &sparsebatch_formats::Csr<f64>| {
            (0..matrix.nrows()).map(|row| matrix.view().pattern().row(row).len()).max()
        };
        let lengths: Vec<Option<usize>> = found.iter().map(longest).collect();
        assert_eq!(lengths, [Some(1), Some(4), Some(16), Some(64)]);
        assert!(found.iter().all(|matrix| matrix.nrows() == 26_214));
    }

    #[test]
    fn rows_have_32_entries_and_a_tail_that_grows_with_a_smaller_exponent() {
        let found = matrices(ThroughputExperiment::Pareto, Size::Small);

        // The Pareto variate is at least 1, so the shortest row has one entry more than the minimum
        // of 32.
        for matrix in &found {
            let shortest = (0..3_000).map(|row| matrix.view().pattern().row(row).len()).min();
            assert_eq!((matrix.nrows(), shortest), (3_000, Some(33)));
        }
        assert!(found[0].nnz() > found[1].nnz() && found[1].nnz() > found[2].nnz());
    }

    #[test]
    fn names_tell_cases_apart() {
        for size in [Size::Small, Size::Paper, Size::Full] {
            let all = ThroughputExperiment::ALL.into_iter().flat_map(|e| generated(e, size));
            let mut names: Vec<String> = all.map(|case| case.name).collect();
            let count = names.len();
            names.sort();
            names.dedup();

            assert_eq!(names.len(), count);
        }
    }
}
