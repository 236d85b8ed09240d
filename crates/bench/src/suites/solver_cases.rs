//! The batches of the suite `solvers`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use sparsebatch_formats::generate::{self, Family, MIX, Problem};
use sparsebatch_formats::{Batch, FormatError, Pattern, io};

use super::Size;
use sparsebatch_rows::solves::families::family_name;

use crate::BenchError;
use crate::solves::systems::Systems;

/// The source of the systems of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SystemSource {
    /// A family, and its rows per system.
    Family(Family, usize),
    /// The mix of all families.
    Mix,
    /// The mix of the symmetric families.
    MixSpd,
    /// A `.batch` file; a larger batch repeats its systems in order.
    Set(PathBuf),
}

/// A case, and the batch sizes at which it is measured, ascending.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SolverCase {
    pub(crate) name: String,
    pub(crate) source: SystemSource,
    pub(crate) batches: Vec<usize>,
}

/// The cases of a size; `batches` replaces the suite's own batch sizes unless it is empty.
///
/// # Errors
/// When a folder of sets cannot be read or contains none.
pub(crate) fn cases(
    size: Size,
    batches: &[usize],
    sets: &[PathBuf],
) -> Result<Vec<SolverCase>, BenchError> {
    let sizes = |full: &[usize]| {
        let mut sizes = match (batches, size) {
            ([], Size::Small) => vec![full[0].min(1000)],
            ([], _) => full.to_vec(),
            (given, _) => given.to_vec(),
        };
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    };
    let mut cases = Vec::new();
    for member in MIX {
        let full: &[usize] = match member.0 {
            Family::Tri | Family::Penta => &[1000, 10_000, 65_536],
            Family::Lap2d | Family::Rand9 | Family::Aniso2d | Family::Jump2d => {
                &[1000, 10_000, 40_000]
            }
        };
        let source = SystemSource::Family(member.0, member.1);
        cases.push(SolverCase { name: family_name(member), source, batches: sizes(full) });
    }
    for (name, source) in [("mix", SystemSource::Mix), ("mix_spd", SystemSource::MixSpd)] {
        cases.push(SolverCase { name: name.to_owned(), source, batches: sizes(&[10_000]) });
    }
    for folder in sets {
        for (name, path) in set_files(folder)? {
            cases.push(SolverCase {
                name,
                source: SystemSource::Set(path),
                batches: sizes(&[10_000]),
            });
        }
    }
    Ok(cases)
}

/// Cases of families at sizes other than the suite's own, from names such as `lap2d 10000`, with
/// these batch sizes or small ones.
pub(crate) fn others(names: &[String], batches: &[usize], known: &[SolverCase]) -> Vec<SolverCase> {
    let mut batches = if batches.is_empty() { vec![100, 1000] } else { batches.to_vec() };
    batches.sort_unstable();
    batches.dedup();
    let is_new = |name: &&String| known.iter().all(|case| case.name != **name);
    let case = |name: &String| {
        let (family, nrows) = name.split_once(' ')?;
        let family = Family::ALL.into_iter().find(|known| known.name() == family)?;
        let nrows = nrows.parse().ok()?;
        Problem::new(family, nrows).ok()?;
        let (name, source) = (family_name((family, nrows)), SystemSource::Family(family, nrows));
        Some(SolverCase { name, source, batches: batches.clone() })
    };
    names.iter().filter(is_new).filter_map(case).collect()
}

/// The batch files of a folder with their names: `NAME.batch` and `batch_NAME.bin`.
fn set_files(folder: &Path) -> Result<Vec<(String, PathBuf)>, BenchError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(BenchError::io(folder))? {
        let path = entry.map_err(BenchError::io(folder))?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bin = file.strip_prefix("batch_").and_then(|file| file.strip_suffix(".bin"));
        if let Some(name) = file.strip_suffix(".batch").or(bin) {
            found.push((name.to_owned(), path));
        }
    }
    if found.is_empty() {
        return Err(BenchError::Option {
            option: "--sets",
            expected: "a folder with files NAME.batch or batch_NAME.bin".to_owned(),
            found: folder.display().to_string(),
        });
    }
    found.sort();
    Ok(found)
}

impl SolverCase {
    /// Whether the matrices are symmetric, if that is known before they are made.
    pub(crate) fn is_symmetric(&self) -> Option<bool> {
        match self.source {
            SystemSource::Family(family, _) => Some(family != Family::Rand9),
            SystemSource::Mix => Some(false),
            SystemSource::MixSpd => Some(true),
            SystemSource::Set(_) => None,
        }
    }

    /// The systems of the largest batch.
    ///
    /// # Errors
    /// When memory is short or a file is not a batch.
    pub(crate) fn systems(&self) -> Result<Systems<f64>, BenchError> {
        let nitems = self.batches.last().copied().unwrap_or(0);
        let mixed = |made: Result<generate::GeneratedBatch<f64>, FormatError>| {
            made.map(|made| Systems { batch: made.batch, b: made.rhs.into() })
        };
        Ok(match &self.source {
            SystemSource::Family(family, nrows) => family_systems(*family, *nrows, nitems)?,
            SystemSource::Mix => mixed(generate::mix(nitems))?,
            SystemSource::MixSpd => mixed(generate::mix_spd(nitems))?,
            SystemSource::Set(path) => {
                let file = io::read_batch(path)?;
                match &file.batch {
                    Batch::Uniform(batch) if batch.nitems() > 0 => {
                        Systems::in_turn(batch, &file.rhs, nitems)?
                    }
                    _ => {
                        return Err(BenchError::Option {
                            option: "--sets",
                            expected: "uniform batches with at least one system".to_owned(),
                            found: path.display().to_string(),
                        });
                    }
                }
            }
        })
    }
}

/// Systems that one thread makes at a time.
const CHUNK: usize = 64;

/// As [`Problem::batch`], on all cores.
fn family_systems(
    family: Family,
    nrows: usize,
    nitems: usize,
) -> Result<Systems<f64>, FormatError> {
    let problem = Problem::new(family, nrows)?;
    let pattern = Arc::clone(problem.pattern());
    let mut values = vec![0.0; pattern.nnz() * nitems];
    let mut b = vec![0.0; nrows * nitems];
    let chunks = values
        .par_chunks_mut((CHUNK * pattern.nnz()).max(1))
        .zip(b.par_chunks_mut((CHUNK * nrows).max(1)));
    chunks.enumerate().for_each(|(chunk, (values, b))| {
        let (mut made, mut rhs) = (Vec::with_capacity(values.len()), Vec::with_capacity(b.len()));
        let first = chunk * CHUNK;
        for item in first..(first + CHUNK).min(nitems) {
            problem.push_values(item as u64, &mut made);
            problem.push_rhs(item as u64, &mut rhs);
        }
        values.copy_from_slice(&made);
        b.copy_from_slice(&rhs);
    });
    Systems::uniform(pattern, nitems, values, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paper_size_has_every_problem_and_batch() {
        let cases = cases(Size::Paper, &[], &[]).unwrap();

        let sizes: Vec<_> = cases.iter().map(|case| (case.name.as_str(), &case.batches)).collect();
        assert_eq!(sizes.len(), 14);
        assert_eq!(sizes[0], ("tri 32", &vec![1000, 10_000, 65_536]));
        assert_eq!(sizes[7], ("lap2d 900", &vec![1000, 10_000, 40_000]));
        assert_eq!(sizes[11], ("rand9 992", &vec![1000, 10_000, 40_000]));
        assert_eq!(sizes[13], ("mix_spd", &vec![10_000]));
        let small = super::cases(Size::Small, &[], &[]).unwrap();
        assert!(small.iter().all(|case| case.batches == [1000]));
        let given = super::cases(Size::Paper, &[50, 7, 50], &[]).unwrap();
        assert!(given.iter().all(|case| case.batches == [7, 50]));
    }

    #[test]
    fn families_have_other_sizes_where_they_are_asked_for() {
        let known = cases(Size::Paper, &[], &[]).unwrap();
        let names = [
            "lap2d 10000",
            "rand9 20000",
            "penta 32",
            "lap2d 900",
            "lap2d 10001",
            "penta",
            "mix 3",
            "tri",
        ];
        let names = names.map(str::to_owned);

        let found = others(&names, &[], &known);

        let names_of =
            |cases: &[SolverCase]| cases.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        assert_eq!(names_of(&found), ["lap2d 10000", "rand9 20000", "penta 32"]);
        assert_eq!(found[0].batches, [100, 1000]);
        assert_eq!(others(&names, &[7, 3, 7], &known)[1].batches, [3, 7]);
    }

    #[test]
    fn systems_made_on_all_cores_are_those_of_the_generator() {
        for (family, nrows) in [(Family::Tri, 32), (Family::Penta, 33), (Family::Rand9, 54)] {
            let expected = Problem::new(family, nrows).unwrap().batch(150).unwrap();

            let found = family_systems(family, nrows, 150).unwrap();

            assert_eq!((found.batch, &*found.b), (expected.batch, &expected.rhs[..]));
        }
        assert_eq!(family_systems(Family::Tri, 32, 0).unwrap().b[..], [0.0; 0]);
    }

    #[test]
    fn sets_are_found_by_name_and_taken_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let made = Problem::new(Family::Tri, 4).unwrap().batch(3).unwrap();
        let file = io::BatchFile { batch: made.batch, rhs: made.rhs };
        for name in ["b.batch", "batch_a.bin"] {
            io::write_batch(folder.path().join(name), &file.batch, &file.rhs).unwrap();
        }
        std::fs::write(folder.path().join("notes.txt"), "").unwrap();

        let cases = cases(Size::Paper, &[7], &[folder.path().to_owned()]).unwrap();

        let sets = &cases[14..];
        assert_eq!(sets.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let systems = sets[0].systems().unwrap();
        assert!(systems.is_symmetric());
        assert_eq!(systems.b[..4], systems.b[12..16]);
        assert_eq!(systems.values()[..10], systems.values()[60..]);
        let empty = tempfile::tempdir().unwrap();
        let error = super::cases(Size::Paper, &[], &[empty.path().to_owned()]).unwrap_err();
        assert!(error.to_string().contains("--sets is "), "{error}");
    }
}
