//! Helpers shared by the tests of this crate.

pub(crate) mod arrays;
pub(crate) mod matrices;
pub(crate) mod replays;
pub(crate) mod systems;
