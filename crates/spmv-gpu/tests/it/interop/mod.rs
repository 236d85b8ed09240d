//! Plans over arrays that lie on the device, and products inside of
//! recorded graphs.

mod arrays;
mod graph;
