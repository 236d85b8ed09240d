//! The GPU against the processor, from the suite `gpu-vs-cpu`.

use sparsebatch_rows::Row;
use sparsebatch_rows::versus::{Versus, versus};

use crate::page::TableBlock;
use crate::table::Table;

/// The suite whose rows are shown.
const SUITE: &str = "gpu-vs-cpu";

/// The table of all batches that were measured on both; `None` if there is no such batch.
pub(crate) fn table(rows: &[Row]) -> Option<TableBlock> {
    let rows: Vec<Row> = rows.iter().filter(|row| row.suite == SUITE).cloned().collect();
    let mut found = versus(&rows);
    let has_gpu = |versus: &Versus<'_>| [versus.gpu, versus.vectors, versus.whole] != [None; 3];
    found.retain(|versus| versus.cpu.is_some() && has_gpu(versus));
    if found.is_empty() {
        return None;
    }
    let texts = |text: fn(&Versus<'_>) -> String| found.iter().map(text);
    let numbers = |number: fn(&Versus<'_>) -> Option<f64>| found.iter().map(number);
    let table = Table::new()
        .texts("case", texts(|versus| versus.first.case.clone()))
        .numbers("batch", numbers(|versus| Some(versus.first.batch as f64)))
        .texts("operation", texts(|versus| versus.first.operation.clone()))
        .numbers("CPU ms", numbers(|versus| Some(versus.cpu?.median_ms)))
        .numbers("GPU ms", numbers(|versus| Some(versus.gpu?.median_ms)))
        .numbers("speed-up", numbers(|versus| versus.speed_up(versus.gpu)))
        .numbers("vectors on the host, ms", numbers(|versus| Some(versus.vectors?.median_ms)))
        .numbers("its speed-up", numbers(|versus| versus.speed_up(versus.vectors)))
        .numbers("all on the host, ms", numbers(|versus| Some(versus.whole?.median_ms)))
        .numbers("speed-up of that", numbers(|versus| versus.speed_up(versus.whole)))
        .texts("run", texts(|versus| versus.first.run.clone()));
    Some(TableBlock {
        title: "GPU against CPU".to_owned(),
        caption: "Milliseconds of a product or solve by this library on all cores and on the GPU of \
                  the same run: with data on the GPU; with vectors on the host; with all data on the \
                  host, so that matrices are copied and plans made anew. Speed-ups are over the CPU."
            .to_owned(),
        table: table.without_gaps(),
    })
}
