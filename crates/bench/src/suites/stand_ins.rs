//! What stands in where the matrices of the sources are not there, and the names of those.

use sparsebatch_formats::generate::{MIX, Problem, random};
use sparsebatch_formats::{Csr, FormatError};

use super::cases::{ORDER, accumulated};
use crate::recorder::Gap;

/// The matrices of Anzt et al. 2017 (doi 10.1145/3148226.3148230).
pub(super) const FLEXIBLE_BATCH: [&str; 32] = [
    "pivtol",
    "tomography",
    "west0989",
    "G45",
    "GD02_a",
    "Si2",
    "ck656",
    "ex25",
    "jgl011",
    "lock_700",
    "fs_541_1",
    "mbeacxc",
    "dwt_918",
    "mcfe",
    "dwt_607",
    "rbsa480",
    "gr_30_30",
    "bcsstk34",
    "cage8",
    "ex27",
    "can_838",
    "bcsstm34",
    "USAir97",
    "bp_1600",
    "rotor2",
    "msc00726",
    "nos3",
    "G2",
    "dwt_992",
    "ex2",
    "tols90",
    "bcsstk02",
];

/// The matrices of Table 3 of Bell and Garland 2009 (doi 10.1145/1654059.1654078), of Table I of
/// Anzt, Tomov and Dongarra 2014 (UT-EECS-14-727) and of Table I of Mazzucchi 2025, each once.
/// `dense2` and `Trefethen_20000` are generated.
pub(super) const SINGLE: [&str; 43] = [
    "pdb1HYS",
    "consph",
    "cant",
    "pwtk",
    "rma10",
    "qcd5_4",
    "shipsec1",
    "mac_econ_fwd500",
    "mc2depi",
    "cop20k_A",
    "scircuit",
    "webbase-1M",
    "rail4284",
    "audikw_1",
    "bone010",
    "boneS10",
    "bmw3_2",
    "bmwcra_1",
    "cage10",
    "crankseg_2",
    "Cube_Coup_dt0",
    "dielFilterV2real",
    "F1",
    "Fault_639",
    "Hook_1498",
    "inline_1",
    "ldoor",
    "m_t1",
    "ML_Geer",
    "pkustk14",
    "cage14",
    "rajat31",
    "bcsstk13",
    "trans5",
    "af23560",
    "cont11_l",
    "sme3Db",
    "TSOPF_RS_b2383",
    "helm2d03",
    "great-britain_osm",
    "neos3",
    "ins2",
    "torso1",
];

/// The gap of the matrices of a list that are not among those found; none where all are.
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

/// Generated matrices in place of small real ones: the first system of every family of
/// [`generate::MIX`](sparsebatch_formats::generate::MIX), and two of order 1,024 with 8 entries a row
/// on average, in rows of like lengths and accumulated in few rows.
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
        for names in [&FLEXIBLE_BATCH[..], &SINGLE] {
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len());
        }
    }
}
