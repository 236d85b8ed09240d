//! The batches of the suite `flexible-batch`.

use sparsebatch_formats::generate::{random, rng};
use sparsebatch_formats::{Csr, FormatError, RaggedCsr};

use super::Size;
use crate::parallel;
use crate::parallel::in_parts;

/// Experiments of Anzt et al. 2017 (doi 10.1145/3148226.3148230) that the suite repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// The matrices of 800 rows and more, homogeneous batches of growing size.
    Fig3,
    /// Generated matrices of order 1,024, with rows of equal length or with the entries in few
    /// rows.
    Fig4,
    /// Large homogeneous batches of each matrix, ordered by entries per row.
    Fig5,
    /// Random mixes of the matrices of 800 rows and more, of growing size.
    Fig6,
    /// Random mixes of all matrices, of growing size.
    Fig7,
}

impl Experiment {
    /// All experiments.
    pub const ALL: [Self; 5] = [Self::Fig3, Self::Fig4, Self::Fig5, Self::Fig6, Self::Fig7];

    /// The name in rows and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fig3 => "fig3",
            Self::Fig4 => "fig4",
            Self::Fig5 => "fig5",
            Self::Fig6 => "fig6",
            Self::Fig7 => "fig7",
        }
    }

    /// Whether the batch is also measured as one block-diagonal matrix.
    pub(super) fn has_block_diagonal(self) -> bool {
        matches!(self, Self::Fig5 | Self::Fig6 | Self::Fig7)
    }

    /// Whether one call per system is also measured.
    pub(super) fn has_loops(self) -> bool {
        self != Self::Fig5
    }
}

/// Rows of the generated matrices.
pub(super) const ORDER: usize = 1_024;

/// Random stream of the values of generated matrices.
const VALUES: u64 = 41;

/// Fewest rows of a matrix in the mix of large ones.
const LARGE_ROWS: usize = 800;

/// Description of a batch that is made later.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProductCase {
    pub(super) name: String,
    pub(super) experiment: Option<Experiment>,
    pub(super) items: usize,
    members: Members,
}

/// The items of a batch.
#[derive(Clone, Debug, PartialEq)]
enum Members {
    /// Perturbed copies of the matrices with these indices.
    Copies(Vec<usize>),
    /// Generated matrices, all different, with `mean` entries per row.
    Generated { mean: usize, balanced: bool },
}

impl ProductCase {
    fn copies(name: &str, experiment: Option<Experiment>, items: usize, of: Vec<usize>) -> Self {
        Self { name: name.to_owned(), experiment, items, members: Members::Copies(of) }
    }

    /// Makes the batch. Nothing is shared between items.
    pub(super) fn batch(
        &self,
        matrices: &[(String, Csr<f64>)],
    ) -> Result<RaggedCsr<f64>, FormatError> {
        match &self.members {
            Members::Copies(members) => {
                let members: Vec<&Csr<f64>> =
                    members.iter().map(|&index| &matrices[index].1).collect();
                hetero(&members, self.items)
            }
            Members::Generated { mean, balanced } => {
                let make = |item: usize| match balanced {
                    true => random(ORDER, ORDER, *mean, item as u64),
                    false => accumulated(*mean, item as u64),
                };
                let made = parallel::map(self.items, make).into_iter();
                let mut batch = RaggedCsr::new();
                for matrix in made.collect::<Result<Vec<_>, _>>()? {
                    batch.push(matrix.view());
                }
                Ok(batch)
            }
        }
    }
}

/// As [`generate::hetero`](sparsebatch_formats::generate::hetero), on all cores.
fn hetero(matrices: &[&Csr<f64>], nitems: usize) -> Result<RaggedCsr<f64>, FormatError> {
    let draw =
        |item: u64| matrices[(rng::mix(rng::key(98, item)) % matrices.len() as u64) as usize];
    let items: Vec<&Csr<f64>> = (0..nitems as u64).map(draw).collect();
    let counts = |count: fn(&Csr<f64>) -> usize| -> Vec<usize> {
        items.iter().map(|matrix| count(matrix)).collect()
    };
    let (nrows, ncols, nnz) = (counts(Csr::nrows), counts(Csr::ncols), counts(Csr::nnz));
    let starts = counts(|matrix| matrix.nrows() + 1);
    let row_ptr = in_parts(&offsets(&starts), &|item, to: &mut [i32]| {
        to.copy_from_slice(items[item].row_ptr());
    });
    let entries = offsets(&nnz);
    let col_idx = in_parts(&entries, &|item, to: &mut [i32]| {
        to.copy_from_slice(items[item].col_idx());
    });
    let values = in_parts(&entries, &|item, to: &mut [f64]| {
        let (key, scale) = (rng::key(97, item as u64), 1.0 / f64::from(1u32 << 20));
        for (k, (to, value)) in (0..).zip(to.iter_mut().zip(items[item].values())) {
            *to = value * (1.0 + scale * rng::keyed(key, k));
        }
    });
    RaggedCsr::try_new(&nrows, &ncols, &nnz, row_ptr, col_idx, values)
}

/// Offsets of consecutive parts of these lengths, with the total length at the end.
fn offsets(lengths: &[usize]) -> Vec<usize> {
    let ends = lengths.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// A matrix of order 1,024 with `mean` entries per row on average, concentrated in few rows. Full
/// rows at equal distances hold the entries beyond the diagonal, the last of them in part; the
/// other rows have the diagonal only. Values are uniform in [-1, 1).
pub(super) fn accumulated(mean: usize, seed: u64) -> Result<Csr<f64>, FormatError> {
    let beyond = mean.saturating_sub(1) * ORDER;
    let full = beyond.div_ceil(ORDER - 1);
    let distance = ORDER / full.max(1);
    let (mut row_ptr, mut cols, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut left = beyond;
    for row in 0..ORDER {
        let is_full = row % distance == 0 && row / distance < full;
        let extra = if is_full { left.min(ORDER - 1) } else { 0 };
        left -= extra;
        // The row has the diagonal and the first `extra` other columns.
        let others = (0..ORDER).filter(|&col| col != row).take(extra);
        let mut columns: Vec<i32> = others.chain([row]).map(|col| col as i32).collect();
        columns.sort_unstable();
        cols.extend(columns);
        row_ptr.push(cols.len() as i32);
    }
    values.extend((0..cols.len() as u64).map(|k| 2.0 * rng::uniform(VALUES, seed, k) - 1.0));
    Csr::try_new(ORDER, ORDER, row_ptr, cols, values)
}

/// Batch sizes up to a limit, at each decade and half decade.
fn sweep(size: Size, limit: usize) -> Vec<usize> {
    let steps: &[usize] = match size {
        Size::Small => &[1, 100, 1_000],
        Size::Paper => &[1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000],
        Size::Full => &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000],
    };
    let mut sizes: Vec<usize> = steps.iter().copied().filter(|&items| items < limit).collect();
    sizes.push(limit);
    sizes
}

/// Default number of items of a batch.
pub(super) fn default_items(size: Size, experiment: Option<Experiment>) -> usize {
    match (experiment, size) {
        // The source uses a thousand matrices.
        (Some(Experiment::Fig4), Size::Small) => 100,
        (Some(Experiment::Fig4), _) | (_, Size::Small) => 1_000,
        (None | Some(Experiment::Fig5), _) | (_, Size::Paper) => 10_000,
        (_, Size::Full) => 20_000,
    }
}

/// The cases of an experiment, or of the suite itself, on matrices in ASCII order of their names.
pub(super) fn cases(
    matrices: &[(String, Csr<f64>)],
    experiment: Option<Experiment>,
    size: Size,
    items: usize,
) -> Vec<ProductCase> {
    let all: Vec<usize> = (0..matrices.len()).collect();
    let mut large = all.clone();
    large.retain(|&index| matrices[index].1.nrows() >= LARGE_ROWS);
    let each = |of: &[usize], items| -> Vec<ProductCase> {
        of.iter()
            .map(|&index| ProductCase::copies(&matrices[index].0, experiment, items, vec![index]))
            .collect()
    };
    let mix = |name, of: &[usize], items| ProductCase::copies(name, experiment, items, of.to_vec());
    match experiment {
        _ if matrices.is_empty() && experiment != Some(Experiment::Fig4) => Vec::new(),
        None => {
            let mut cases = vec![mix("hetero_all", &all, items)];
            if !large.is_empty() {
                cases.push(mix("hetero_800_1024", &large, items));
            }
            cases.extend(each(&all, items));
            cases
        }
        Some(Experiment::Fig3) => {
            let sizes = sweep(size, items);
            large.iter().flat_map(|&i| sizes.iter().flat_map(move |&n| each(&[i], n))).collect()
        }
        Some(Experiment::Fig4) => generated(experiment, size, items),
        Some(Experiment::Fig5) => {
            let density = |&index: &usize| {
                let matrix = &matrices[index].1;
                matrix.nnz() as f64 / matrix.nrows().max(1) as f64
            };
            let mut ordered = all.clone();
            ordered.sort_by(|a, b| density(a).total_cmp(&density(b)));
            each(&ordered, items)
        }
        Some(Experiment::Fig6) if large.is_empty() => Vec::new(),
        Some(Experiment::Fig6) => {
            sweep(size, items).into_iter().map(|n| mix("hetero_800_1024", &large, n)).collect()
        }
        Some(Experiment::Fig7) => {
            sweep(size, items).into_iter().map(|n| mix("hetero_all", &all, n)).collect()
        }
    }
}

fn generated(experiment: Option<Experiment>, size: Size, items: usize) -> Vec<ProductCase> {
    let means: &[usize] = match size {
        Size::Small => &[1, 8, 64],
        Size::Paper => &[1, 2, 4, 8, 16, 32, 64],
        Size::Full => &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64],
    };
    let kinds = [("balanced", true), ("accumulated", false)];
    kinds
        .into_iter()
        .flat_map(|(kind, balanced)| {
            means.iter().map(move |&mean| ProductCase {
                name: format!("{kind} {mean}"),
                experiment,
                items,
                members: Members::Generated { mean, balanced },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::read_all;
    use sparsebatch_testing::shared_dir;

    /// Entries and rows of a batch, counted by the random draw that defines it.
    fn counted(case: &ProductCase, matrices: &[(String, Csr<f64>)]) -> (usize, usize) {
        let Members::Copies(members) = &case.members else { panic!("generated") };
        (0..case.items as u64).fold((0, 0), |(nnz, rows), item| {
            let draw = rng::mix(rng::key(98, item)) % members.len() as u64;
            let matrix = &matrices[members[draw as usize]].1;
            (nnz + matrix.nnz(), rows + matrix.nrows())
        })
    }

    #[test]
    fn the_mixes_are_the_published_ones() {
        let Some(shared) = shared_dir() else { return };
        let matrices = read_all(&shared.join("matrices/small")).unwrap();
        assert_eq!(matrices.len(), 24);

        let found = cases(&matrices, None, Size::Paper, 10_000);

        let names: Vec<&str> = found.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names[..4], ["hetero_all", "hetero_800_1024", "G2", "G45"]);
        assert_eq!(found.len(), 26);
        assert_eq!(counted(&found[0], &matrices), (148_534_070, 6_315_058));
        assert_eq!(counted(&found[1], &matrices), (136_156_285, 9_237_748));
        assert_eq!(counted(&found[2], &matrices), (383_520_000, 8_000_000));

        let small = ProductCase { items: 50, ..found[0].clone() };
        let batch = small.batch(&matrices).unwrap();
        let rows = batch.row_offsets()[batch.nitems()];
        assert_eq!((batch.total_nnz(), rows), counted(&small, &matrices));
    }

    #[test]
    fn copies_made_on_all_cores_are_those_of_the_generator() {
        let matrices = [accumulated(2, 1).unwrap(), random(30, 40, 3, 1).unwrap()];

        let found = hetero(&[&matrices[0], &matrices[1]], 90).unwrap();

        assert_eq!(found, sparsebatch_formats::generate::hetero(&matrices, 90).unwrap());
        assert!(found.total_nnz() > 1 << 16);
        assert_eq!(hetero(&[], 0).unwrap().nitems(), 0);
    }

    #[test]
    fn generated_matrices_have_the_mean_they_are_named_after() {
        for mean in [1, 2, 8, 64] {
            let matrix = accumulated(mean, 3).unwrap();

            assert_eq!(matrix.nnz(), mean * ORDER, "mean {mean}");
            let view = matrix.view();
            let longest = (0..ORDER).map(|row| view.pattern().row(row).len()).max();
            assert_eq!(longest, Some(if mean == 1 { 1 } else { ORDER }));
        }
        assert_ne!(accumulated(2, 1).unwrap().values(), accumulated(2, 2).unwrap().values());
    }

    #[test]
    fn sweeps_end_at_the_limit() {
        assert_eq!(sweep(Size::Paper, 100), [1, 5, 10, 50, 100]);
        assert_eq!(sweep(Size::Small, 2_000), [1, 100, 1_000, 2_000]);
    }

    #[test]
    fn experiments_need_no_matrices_only_where_they_make_them() {
        for experiment in Experiment::ALL {
            let items = default_items(Size::Paper, Some(experiment));
            let found = cases(&[], Some(experiment), Size::Paper, items);

            assert_eq!(found.is_empty(), experiment != Experiment::Fig4);
        }
    }

    #[test]
    fn figures_are_ordered_by_entries_a_row() {
        let eye = Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![1.0; 2]).unwrap();
        let full = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![1.0; 4]).unwrap();
        let matrices = [("full".to_owned(), full), ("eye".to_owned(), eye)];

        let found = cases(&matrices, Some(Experiment::Fig5), Size::Paper, 10);

        assert_eq!(found[0].name, "eye");
        assert!(cases(&matrices, Some(Experiment::Fig6), Size::Paper, 10).is_empty());
    }
}
