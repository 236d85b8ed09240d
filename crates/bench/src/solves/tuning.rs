//! Kernel shapes by name, such as `32x4:registers`.

use std::str::FromStr;

use sparsebatch_solvers::gpu::{GpuTuning, ValuePlace};

use crate::BenchError;

/// The places of values, with their names.
const PLACES: [(&str, ValuePlace); 3] = [
    ("registers", ValuePlace::Registers),
    ("shared", ValuePlace::Shared),
    ("global", ValuePlace::Global),
];

/// The name of a place.
pub(crate) fn place_name(place: ValuePlace) -> &'static str {
    PLACES.iter().find(|(_, known)| *known == place).map_or("?", |(name, _)| name)
}

/// A shape of the solver's kernel: `THREADSxROWS`, threads per system by rows per thread, a place
/// for values (`registers`, `shared`, `global`), or both with a colon between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning(pub GpuTuning);

impl FromStr for Tuning {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let wrong = || BenchError::Option {
            option: "--tuning",
            expected: "shapes like 32x4, 16x8:registers, shared, with commas between".to_owned(),
            found: text.to_owned(),
        };
        let place =
            |name: &str| PLACES.iter().find(|(known, _)| *known == name).map(|(_, place)| *place);
        let (group, values) = match text.split_once(':') {
            Some((group, name)) => (Some(group), Some(place(name).ok_or_else(wrong)?)),
            None => match place(text) {
                Some(place) => (None, Some(place)),
                None => (Some(text), None),
            },
        };
        let group = group.map(|group| {
            let (threads, rows) = group.split_once('x')?;
            Some((threads.parse().ok()?, rows.parse().ok()?))
        });
        match group {
            Some(None) => Err(wrong()),
            group => Ok(Self(GpuTuning { group: group.flatten(), values, ..GpuTuning::default() })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read() {
        let tuning = |text: &str| text.parse::<Tuning>().map(|tuning| tuning.0);
        let shape = |group, values| GpuTuning { group, values, ..GpuTuning::default() };

        assert_eq!(tuning("32x4").unwrap(), shape(Some((32, 4)), None));
        let both = shape(Some((16, 8)), Some(ValuePlace::Registers));
        assert_eq!(tuning("16x8:registers").unwrap(), both);
        assert_eq!(tuning("global").unwrap(), shape(None, Some(ValuePlace::Global)));
        for wrong in ["", "32", "32x", "32x4:", "x4", "32x4:l2", "-1x4", "32x4x2"] {
            let error = tuning(wrong).unwrap_err().to_string();
            assert!(error.starts_with("--tuning is "), "{error}");
        }
    }

    #[test]
    fn places_have_their_names() {
        for (name, place) in PLACES {
            assert_eq!(place_name(place), name);
        }
    }
}
