//! Plans over arrays that lie on the device, copies that nobody waits for, and products inside of
//! recorded graphs.

mod arrays;
mod graph;
mod pinned;
