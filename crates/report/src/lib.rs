//! Pages and comparisons of sparsebatch's measurements.
//!
//! | start from | for |
//! | --- | --- |
//! | [`bench_page()`] | the page of `sparsebatch report`: figures and tables of suites' rows |
//! | [`solve_page()`] | the page of `solve --report`: how the systems of one solve ended |
//! | [`compare()`] | changes in speed between two files of rows |
//! | [`Page`] | pages as such: sections, tables, figures, and their HTML |
//!
//! A page is one file. Charts are drawn by Apache ECharts, of which `assets/echarts/build.sh` makes
//! the part that is used; their options are made here.
#![forbid(unsafe_code)]

mod bench;
mod compare;
mod history;
mod page;
mod solve;
mod table;

pub use bench::bench_page;
pub use compare::{
    Change, CompareError, Comparison, DEFAULT_THRESHOLD, Side, SuiteChange, compare,
};
pub use history::{History, HistoryError};
pub use page::{Block, Chart, Figure, Page, Section, TableBlock};
pub use solve::{Solve, SolvedSystem, solve_page};
pub use table::{Column, Table};
