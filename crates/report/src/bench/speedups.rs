//! Speedups of ours over the peers, case by case.

use sparsebatch_rows::solves::summary as solves;
use sparsebatch_rows::{Row, summary, table as products};

use super::group::Group;
use crate::page::TableBlock;
use crate::table::Table;

/// The table of a group: each case from its newest run, ratios within that run.
pub(crate) fn table(group: &Group) -> TableBlock {
    if group.is_solves { of_solves(group) } else { of_products(group) }
}

fn ms(row: Option<&Row>) -> Option<f64> {
    row.map(|row| row.median_ms)
}

fn of_products(group: &Group) -> TableBlock {
    let cases = products::newest(&summary::compare(&group.rows));
    let ours = |case: &summary::Comparison<'_>| case.automatic.or(case.best).cloned();
    let ours: Vec<Option<Row>> = cases.iter().map(ours).collect();
    let configuration =
        |row: &Option<Row>| row.as_ref().map_or_else(String::new, |row| row.configuration.clone());
    let table = Table::new()
        .texts("case", cases.iter().map(|case| case.first.case.clone()))
        .numbers("batch", cases.iter().map(|case| Some(case.first.batch as f64)))
        .texts("ours", ours.iter().map(configuration))
        .numbers("ms", ours.iter().map(|row| ms(row.as_ref())))
        .numbers("min", ours.iter().map(|row| Some(row.as_ref()?.min_ms)))
        .numbers("max", ours.iter().map(|row| Some(row.as_ref()?.max_ms)))
        .numbers("share of copy", ours.iter().map(|row| row.as_ref()?.share_of_copy))
        .texts("best kernel", cases.iter().map(|c| configuration(&c.best.cloned())))
        .numbers("its ms", cases.iter().map(|case| ms(case.best)))
        .texts(
            "best peer",
            cases.iter().map(|case| {
                let name = |row: &Row| format!("{} {}", row.library, row.configuration);
                case.peer.map_or_else(String::new, name)
            }),
        )
        .numbers("peer ms", cases.iter().map(|case| ms(case.peer)))
        .numbers(
            "peer / ours",
            cases.iter().map(|case| case.automatic_ratio().or(case.best_ratio())),
        )
        .numbers("loop / ours", cases.iter().map(summary::Comparison::looped_ratio));
    let totals = summary::totals_text(&summary::totals(&cases));
    TableBlock {
        title: "Speed-ups".to_owned(),
        caption: format!(
            "Milliseconds of a product, median, minimum and maximum of the rounds; peer / ours above 1 \
             means that ours is faster. Over all cases: {totals}."
        ),
        table: table.without_gaps(),
    }
}

fn of_solves(group: &Group) -> TableBlock {
    let cases = sparsebatch_rows::solves::newest(&solves::compare(&group.rows));
    let text = |row: Option<&Row>, text: fn(&Row) -> String| row.map_or_else(String::new, text);
    let table = Table::new()
        .texts("case", cases.iter().map(|case| case.first.case.clone()))
        .numbers("batch", cases.iter().map(|case| Some(case.first.batch as f64)))
        .texts("method", cases.iter().map(|case| case.first.operation.clone()))
        .texts(
            "ours",
            cases.iter().map(|case| {
                case.ours.map_or_else(|| "not solved".to_owned(), |row| row.configuration.clone())
            }),
        )
        .texts(
            "preconditioner",
            cases.iter().map(|case| {
                case.ours.unwrap_or(case.first).preconditioner.clone().unwrap_or_default()
            }),
        )
        .numbers("ms", cases.iter().map(|case| ms(case.ours)))
        .numbers("min", cases.iter().map(|case| Some(case.ours?.min_ms)))
        .numbers("max", cases.iter().map(|case| Some(case.ours?.max_ms)))
        .numbers("call ms", cases.iter().map(|case| case.ours?.wall_ms))
        .numbers("iterations", cases.iter().map(|case| case.ours?.mean_iterations))
        .numbers("max residual", cases.iter().map(|case| case.ours?.max_relative_residual))
        .texts("recorded", cases.iter().map(|case| text(case.recorded, |r| r.library.clone())))
        .numbers("recorded ms", cases.iter().map(|case| ms(case.recorded)))
        .numbers("recorded / ours", cases.iter().map(solves::Solves::ratio))
        .texts("peer", cases.iter().map(|case| text(case.peer, |row| row.library.clone())))
        .numbers("peer ms", cases.iter().map(|case| ms(case.peer)))
        .numbers(
            "peer / ours",
            cases.iter().map(|case| Some(case.peer?.median_ms / case.ours?.median_ms)),
        )
        .numbers("CPU ms", cases.iter().map(|case| ms(case.cpu)));
    TableBlock {
        title: "Speed-ups".to_owned(),
        caption: "Milliseconds of a whole solve of the batch: median, minimum and maximum of the \
                  rounds; «call» is one call by the host's clock, launch and waiting included, which \
                  is what recorded figures are compared with. Ratios above 1 mean that ours is faster."
            .to_owned(),
        table: table.without_gaps(),
    }
}
