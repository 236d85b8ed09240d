//! Plans over arrays that lie on the device, copies that nobody waits for, and products inside of
//! recorded graphs.

#[path = "../common/mod.rs"]
mod common;

mod arrays;
mod graph;
mod pinned;
