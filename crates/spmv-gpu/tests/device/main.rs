//! What needs a real GPU: products many times over, and their order on streams.

mod packed_runs;
mod stream_order;
