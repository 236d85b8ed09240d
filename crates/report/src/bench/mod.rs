//! The page of a bench: rows as figures and tables.
//!
//! | file | holds |
//! | --- | --- |
//! | `group.rs` | the rows of one suite on one device, and how contenders are named |
//! | `summary.rs` | machines, runs, peers, partial files and gaps |
//! | `roofline.rs`, `bars.rs`, `curves.rs`, `profile.rs`, `speedups.rs` | a figure or table each |
//! | `growth.rs`, `versus.rs` | laws of growth, the GPU against the processor |
//! | `rows.rs` | the table of all rows |

mod bars;
mod curves;
mod group;
mod growth;
mod profile;
mod roofline;
mod rows;
mod speedups;
mod summary;
mod versus;

use sparsebatch_rows::{Row, RowFile};

use crate::history::{self, History};
use crate::page::{Block, Page, Section};
use group::groups;

/// The page for files of rows and for residual histories as `solve --history` writes them.
///
/// If a case was measured several times, figures show the newest rows; the table at the end has
/// all.
pub fn bench_page(files: &[RowFile], histories: &[History]) -> Page {
    let rows: Vec<Row> = files.iter().flat_map(|file| &file.rows).cloned().collect();
    let groups = groups(&rows);
    let runs = summary::runs(&rows).len();
    let mut sections = vec![summary::section(files, &rows, &groups)];
    let rooflines = roofline::figures(&groups);
    sections.push(Section {
        title: "Roofline".to_owned(),
        blocks: rooflines.into_iter().map(|figure| Block::Figure(Box::new(figure))).collect(),
    });
    for group in &groups {
        let mut blocks = vec![Block::Text(summary::of_group(group))];
        let figures = [bars::figure(group), curves::figure(group), profile::figure(group)];
        blocks.extend(figures.into_iter().flatten().map(|figure| Block::Figure(Box::new(figure))));
        blocks.push(Block::Table(speedups::table(group)));
        sections.push(Section { title: group.title(), blocks });
    }
    let comparisons = [versus::table(&rows), growth::table(&rows)];
    for table in comparisons.into_iter().flatten() {
        sections.push(Section { title: table.title.clone(), blocks: vec![Block::Table(table)] });
    }
    sections.push(Section {
        title: "Convergence histories".to_owned(),
        blocks: vec![Block::Figure(Box::new(history::figure(histories)))],
    });
    sections.push(Section {
        title: "All rows".to_owned(),
        blocks: [Some(rows::table(&rows)), summary::gap_table(files)]
            .into_iter()
            .flatten()
            .map(Block::Table)
            .collect(),
    });
    Page {
        title: "Measurements of sparsebatch".to_owned(),
        lead: format!("{} rows of {runs} runs, ours and those of peers.", rows.len()),
        sections,
    }
}
