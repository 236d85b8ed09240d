//! Kernel shapes by name, such as `32x4:registers`.

use std::str::FromStr;

use sparsebatch_solvers::gpu::{GpuTuning, ValuePlace};

use crate::BenchError;

/// The places where a kernel may keep the matrix values.
const PLACES: [ValuePlace; 3] = [ValuePlace::Registers, ValuePlace::Shared, ValuePlace::Global];

/// A shape of the solver's kernel, its parts separated by colons: `THREADSxROWS`, threads per
/// system by rows per thread; a place for the matrix values (`registers`, `shared`, `global`);
/// `vN`, vectors in shared memory; `rN`, resident blocks per multiprocessor; `cN`, blocks of the
/// cluster that solves a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning(pub GpuTuning);

impl FromStr for Tuning {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let wrong = || BenchError::Option {
            option: "--tuning",
            expected: "shapes like 32x4, 16x8:registers, shared, 32x4:v1:r8, separated by commas"
                .to_owned(),
            found: text.to_owned(),
        };
        let mut tuning = GpuTuning::default();
        for part in text.split(':') {
            take(&mut tuning, part).ok_or_else(wrong)?;
        }
        Ok(Self(tuning))
    }
}

/// Sets the option that a part of a name states; `None` for an unknown part.
fn take(tuning: &mut GpuTuning, part: &str) -> Option<()> {
    let number = |letter: char| part.strip_prefix(letter).and_then(|rest| rest.parse().ok());
    if let Some(place) = PLACES.iter().find(|place| place.key() == part) {
        tuning.values = Some(*place);
    } else if let Some(vectors) = number('v') {
        tuning.vectors = Some(vectors);
    } else if let Some(cluster) = number('c') {
        tuning.cluster = Some(cluster);
    } else if let Some(resident) = number('r') {
        tuning.resident = Some(resident);
    } else {
        let (threads, rows) = part.split_once('x')?;
        tuning.group = Some((threads.parse().ok()?, rows.parse().ok()?));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read() {
        let tuning = |text: &str| text.parse::<Tuning>().map(|tuning| tuning.0);
        let shape = |group, values| GpuTuning::default().group(group).values(values);

        assert_eq!(tuning("32x4").unwrap(), shape(Some((32, 4)), None));
        let both = shape(Some((16, 8)), Some(ValuePlace::Registers));
        assert_eq!(tuning("16x8:registers").unwrap(), both);
        assert_eq!(tuning("global").unwrap(), shape(None, Some(ValuePlace::Global)));
        let more = shape(Some((64, 2)), None).vectors(Some(3)).resident(Some(8));
        assert_eq!(tuning("64x2:v3:r8").unwrap(), more);
        let cluster = shape(Some((2048, 8)), None).cluster(Some(4));
        assert_eq!(tuning("2048x8:c4").unwrap(), cluster);
        for wrong in
            ["", "32", "32x", "32x4:", "x4", "32x4:l2", "-1x4", "32x4x2", "v", "r-1", "r1x"]
        {
            let error = tuning(wrong).unwrap_err().to_string();
            assert!(error.starts_with("--tuning is "), "{error}");
        }
    }
}
