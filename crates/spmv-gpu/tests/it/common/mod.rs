//! What the tests of this crate share.

pub(crate) mod arrays;
pub(crate) mod matrices;
pub(crate) mod replays;
pub(crate) mod systems;
