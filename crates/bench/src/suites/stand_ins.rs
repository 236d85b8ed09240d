//! Generated matrices that replace missing matrices of the sources, and the names of the latter.

use sparsebatch_corpus::List;
use sparsebatch_formats::generate::{MIX, Problem, random};
use sparsebatch_formats::{Csr, FormatError};

use super::cases::{ORDER, accumulated};
use sparsebatch_rows::Gap;

/// The matrices of Table 3 of Bell and Garland 2009 (doi 10.1145/1654059.1654078), of Table I of
/// Anzt, Tomov and Dongarra 2014 (UT-EECS-14-727) and of Table I of Mazzucchi 2025, each once.
/// `dense2` and `Trefethen_20000` are generated.
pub(super) fn single() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for &name in [List::BellGarland, List::SellP, List::Mazzucchi].iter().flat_map(|l| l.members())
    {
        if !["dense2", "Trefethen_20000"].contains(&name) && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The gap for the matrices of a list that were not found; `None` if all were found.
pub(super) fn missing<'a>(
    wanted: &[&'a str],
    found: impl Fn(&str) -> bool,
    instead: &str,
) -> Option<Gap> {
    let absent: Vec<&'a str> = wanted.iter().copied().filter(|name| !found(name)).collect();
    if absent.is_empty() {
        return None;
    }
    let configuration = format!("{} of {} matrices", absent.len(), wanted.len());
    let reason = format!("not in the folders of --matrices; {instead}: {}", absent.join(", "));
    Some(Gap::new("all", "SuiteSparse collection", &configuration, reason))
}

/// Generated matrices that replace small real ones: the first system of every family of
/// [`generate::MIX`](sparsebatch_formats::generate::MIX), and two matrices of order 1,024 with 8
/// entries per row on average, one with rows of similar length and one with the entries
/// concentrated in few rows.
///
/// # Errors
/// When memory is short.
pub(super) fn small() -> Result<Vec<(String, Csr<f64>)>, FormatError> {
    let mut found = Vec::new();
    for (family, nrows) in MIX {
        let problem = Problem::new(family, nrows)?;
        let mut values = Vec::new();
        problem.push_values(0, &mut values);
        let pattern = problem.pattern().clone();
        found.push((format!("{} {nrows}", family.name()), Csr::from_parts(pattern, values)?));
    }
    found.push(("balanced 8".to_owned(), random(ORDER, ORDER, 8, 0)?));
    found.push(("accumulated 8".to_owned(), accumulated(8, 0)?));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let gap = missing(&["a", "b", "c"], |name| name == "b", "others stand in").unwrap();

        assert_eq!(gap.configuration, "2 of 3 matrices");
        assert_eq!(gap.reason, "not in the folders of --matrices; others stand in: a, c");
        assert_eq!(missing(&["a"], |_| true, ""), None);
    }

    #[test]
    fn stand_ins_have_small_and_large_orders() {
        let found = small().unwrap();

        assert_eq!(found.len(), 14);
        assert_eq!((found[0].0.as_str(), found[0].1.nrows()), ("tri 32", 32));
        assert_eq!(found[12].1.nnz() / ORDER, 8);
        assert!(found.iter().all(|(_, matrix)| matrix.nrows() <= ORDER));
    }

    #[test]
    fn no_matrix_is_named_twice() {
        for names in [List::Flexible.members(), &single()] {
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len());
        }
        assert_eq!(single().len(), 43);
    }
}
