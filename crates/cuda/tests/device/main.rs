//! What needs a real GPU: its memory, launches, streams and graphs.

mod layer;
