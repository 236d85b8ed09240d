//! Tests that need a real GPU: repeated products, and their order on streams.

mod packed_runs;
mod stream_order;
