//! Helpers for tests that need a GPU or its compiler.
//!
//! Without them a test prints that it was skipped and passes. `SPARSEBATCH_REQUIRE_GPU=1`,
//! `SPARSEBATCH_REQUIRE_GPUS=1` (as many as a test needs) and `SPARSEBATCH_REQUIRE_NVRTC=1` turn the
//! skip into a failure, so that a run on a machine meant to have them cannot pass by doing nothing.

use std::fmt::Display;

use crate::Device;
use crate::device::library::{self, NvrtcInfo};

/// The first GPU, or `None` after printing why the test is skipped.
///
/// # Panics
/// Without a GPU when `SPARSEBATCH_REQUIRE_GPU` is 1.
pub fn device_or_skip() -> Option<Device> {
    or_skip(Device::new(0), "SPARSEBATCH_REQUIRE_GPU")
}

/// The first `count` GPUs, or `None` after printing why the test is skipped.
///
/// # Panics
/// With fewer GPUs when `SPARSEBATCH_REQUIRE_GPUS` is 1.
pub fn devices_or_skip(count: usize) -> Option<Vec<Device>> {
    or_skip((0..count).map(Device::new).collect::<Result<_, _>>(), "SPARSEBATCH_REQUIRE_GPUS")
}

/// The compiler, or `None` after printing why the test is skipped.
///
/// # Panics
/// Without NVRTC when `SPARSEBATCH_REQUIRE_NVRTC` is 1.
pub fn nvrtc_or_skip() -> Option<NvrtcInfo> {
    or_skip(library::nvrtc(), "SPARSEBATCH_REQUIRE_NVRTC")
}

/// The number of systems in a batch that a test solves on the device: the smaller of `usual` and
/// `SPARSEBATCH_TEST_SYSTEMS`. The variable is meant for sanitizers, under which kernels take a
/// hundred times as long.
///
/// # Panics
/// When `SPARSEBATCH_TEST_SYSTEMS` is not a number.
pub fn systems(usual: usize) -> usize {
    fewer(usual, std::env::var("SPARSEBATCH_TEST_SYSTEMS").ok().as_deref())
}

fn fewer(usual: usize, most: Option<&str>) -> usize {
    let number = |text: &str| text.parse().expect("SPARSEBATCH_TEST_SYSTEMS is a number");
    usual.min(most.map_or(usual, number))
}

fn or_skip<T, E: Display>(found: Result<T, E>, variable: &str) -> Option<T> {
    let required = std::env::var_os(variable).is_some_and(|value| value == "1");
    or_fail(found, required.then_some(variable))
}

fn or_fail<T, E: Display>(found: Result<T, E>, required_by: Option<&str>) -> Option<T> {
    match (found, required_by) {
        (Ok(found), _) => Some(found),
        (Err(error), Some(variable)) => panic!("{variable} is 1, but: {error}"),
        (Err(error), None) => {
            println!("skipped: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_returned_and_what_is_absent_skipped() {
        assert_eq!(or_fail(Ok::<_, &str>(1), Some("V")), Some(1));
        assert_eq!(or_fail(Err::<i32, _>("no"), None), None);
    }

    #[test]
    fn systems_are_as_many_as_usual_or_fewer() {
        assert_eq!([None, Some("12"), Some("1000")].map(|most| fewer(300, most)), [300, 12, 300]);
    }

    #[test]
    #[should_panic(expected = "V is 1, but: no")]
    fn what_is_required_and_absent_fails() {
        or_fail(Err::<i32, _>("no"), Some("V"));
    }
}
