//! Composed solves on the GPU, run by the emulation and compared with the CPU's.

mod agreement;
mod history;
mod independence;
mod operators;
mod plan;
mod support;
mod trial;

mod honesty {
    crate::common::honesty_tests!(super::trial::Composed);
}

mod statuses {
    crate::common::statuses_tests!(super::trial::Composed);
}
