//! The exponents of growth from the suite `scaling`.

use sparsebatch_rows::Row;
use sparsebatch_rows::growth::{Growth, growths};

use crate::page::TableBlock;
use crate::table::Table;

/// The table of all growth laws; `None` without rows of the suite.
pub(crate) fn table(rows: &[Row]) -> Option<TableBlock> {
    let laws = growths(rows);
    if laws.is_empty() {
        return None;
    }
    let texts = |text: fn(&Growth) -> &str| laws.iter().map(move |law| text(law).to_owned());
    let numbers = |number: fn(&Growth) -> Option<f64>| laws.iter().map(number);
    let table = Table::new()
        .texts("grows", texts(|law| &law.axis))
        .texts("family", texts(|law| &law.family))
        .texts("operation", texts(|law| &law.operation))
        .texts("library", texts(|law| &law.library))
        .texts("device", texts(|law| &law.device))
        .numbers("sizes", numbers(|law| Some(law.points as f64)))
        .numbers("from", numbers(|law| Some(law.range[0])))
        .numbers("to", numbers(|law| Some(law.range[1])))
        .numbers("ms at the least", numbers(|law| Some(law.ms[0])))
        .numbers("ms at the largest", numbers(|law| Some(law.ms[1])))
        .numbers("exponent", numbers(|law| law.exponent))
        .numbers("exponent, upper half", numbers(|law| law.exponent_large));
    Some(TableBlock {
        title: "Laws of growth".to_owned(),
        caption: "Time grows as size to the power of the exponent: the slope of the straight line \
                  through the points on logarithmic axes by least squares, over all sizes and over \
                  the upper half of their range. Of each family the newest run."
            .to_owned(),
        table: table.without_gaps(),
    })
}
