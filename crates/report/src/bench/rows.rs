//! The table of all rows.

use sparsebatch_rows::Row;

use crate::page::TableBlock;
use crate::table::Table;

/// The table of every row of every file, with all fields.
pub(crate) fn table(rows: &[Row]) -> TableBlock {
    let texts = |text: fn(&Row) -> &str| rows.iter().map(move |row| text(row).to_owned());
    let maybe = |text: fn(&Row) -> &Option<String>| {
        rows.iter().map(move |row| text(row).clone().unwrap_or_default())
    };
    let numbers = |number: fn(&Row) -> Option<f64>| rows.iter().map(number);
    let counts = |count: fn(&Row) -> u64| rows.iter().map(move |row| Some(count(row) as f64));
    let table = Table::new()
        .texts("suite", texts(|row| &row.suite))
        .texts("experiment", maybe(|row| &row.experiment))
        .texts("case", texts(|row| &row.case))
        .texts("library", texts(|row| &row.library))
        .texts("configuration", texts(|row| &row.configuration))
        .texts("automatic", rows.iter().map(|row| if row.automatic { "yes" } else { "" }))
        .texts("backend", maybe(|row| &row.backend))
        .texts("operation", texts(|row| &row.operation))
        .texts("preconditioner", maybe(|row| &row.preconditioner))
        .texts("precision", texts(|row| &row.precision))
        .numbers("batch", counts(|row| row.batch))
        .numbers("rows", counts(|row| row.rows))
        .numbers("nnz", counts(|row| row.nnz))
        .numbers("median ms", numbers(|row| Some(row.median_ms)))
        .numbers("min ms", numbers(|row| Some(row.min_ms)))
        .numbers("max ms", numbers(|row| Some(row.max_ms)))
        .numbers("call ms", numbers(|row| row.wall_ms))
        .numbers("plan ms", numbers(|row| row.plan_ms))
        .numbers("GFLOP/s", numbers(|row| row.gflops))
        .numbers("share of copy", numbers(|row| row.share_of_copy))
        .numbers("share moved", numbers(|row| row.share_moved))
        .numbers("bytes moved", numbers(|row| Some(row.bytes_moved? as f64)))
        .numbers("iterations", numbers(|row| row.mean_iterations))
        .numbers("converged", numbers(|row| Some(row.converged? as f64)))
        .numbers("max residual", numbers(|row| row.max_relative_residual))
        .numbers("device bytes", numbers(|row| Some(row.device_bytes? as f64)))
        .numbers("share of fitting", numbers(|row| row.share_of_fitting))
        .numbers("joules", numbers(|row| row.energy_j))
        .numbers("rounds", counts(|row| row.rounds))
        .texts("timing", texts(|row| &row.timing))
        .texts("device", maybe(|row| &row.machine.device))
        .texts("run", texts(|row| &row.run))
        .texts("commit", texts(|row| &row.commit));
    TableBlock {
        title: "Rows".to_owned(),
        caption: "Every measurement of every file. Headings sort; the filter looks at all columns."
            .to_owned(),
        table: table.without_gaps(),
    }
}
