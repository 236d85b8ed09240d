//! The generated cases of the suite `solvers`, by name.

use sparsebatch_formats::generate::{Family, MIX, rng};

/// The members of the mix `name`; `None` if it is not a mix.
pub fn members(name: &str) -> Option<&'static [(Family, usize)]> {
    match name {
        "mix" => Some(&MIX),
        "mix_spd" => Some(&MIX[..8]),
        _ => None,
    }
}

/// How many systems of each member a mix has.
pub fn counts(members: &[(Family, usize)], nitems: u64) -> Vec<u64> {
    let mut counts = vec![0; members.len()];
    for item in 0..nitems {
        counts[(rng::mix(rng::key(99, item)) % members.len() as u64) as usize] += 1;
    }
    counts
}

/// The name of a family at one size.
pub fn family_name((family, nrows): (Family, usize)) -> String {
    format!("{} {nrows}", family.name())
}

/// Whether a case is one of the families.
pub fn is_family(name: &str) -> bool {
    MIX.iter().any(|&member| family_name(member) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::Batch;
    use sparsebatch_formats::generate;

    #[test]
    fn mixes_are_counted_as_they_are_made() {
        let members = members("mix").unwrap();
        let Batch::Ragged(batch) = generate::mix(200).unwrap().batch else {
            panic!("a mix is ragged");
        };

        let counts = counts(members, 200);

        assert_eq!(counts.iter().sum::<u64>(), 200);
        let rows: u64 = members.iter().zip(&counts).map(|((_, n), count)| *n as u64 * count).sum();
        assert_eq!(rows, batch.row_offsets()[200] as u64);
        assert_eq!(super::members("tri 32"), None);
    }
}
