//! Plans over arrays on the device, and products in recorded graphs.

mod arrays;
mod graph;
