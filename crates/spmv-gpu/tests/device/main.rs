//! What needs a real GPU: its memory, launches, streams and graphs, and products many times over.

mod layer;
mod packed_runs;
mod stream_order;
