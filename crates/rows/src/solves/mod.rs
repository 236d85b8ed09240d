//! Rows of batched solves.
//!
//! | file | holds |
//! | --- | --- |
//! | `families.rs` | the generated cases by name |
//! | `reference.rs` | figures of other libraries that were recorded elsewhere |
//! | `summary.rs`, `table.rs` | the rows of a case beside each other, and the targets |

pub mod families;
pub mod reference;
pub mod summary;
pub mod table;

pub use summary::compare;
pub use table::newest;
