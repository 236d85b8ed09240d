//! sparsebatch.
