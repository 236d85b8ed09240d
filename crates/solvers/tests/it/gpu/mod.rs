//! Solves on the GPU, run by the emulation and compared with the CPU's.

mod agreement;
mod independence;
mod mixed;
mod plan;
mod scattered;
mod trial;

mod honesty {
    crate::common::honesty_tests!(super::trial::Fused);
}

mod statuses {
    crate::common::statuses_tests!(super::trial::Fused);
}
