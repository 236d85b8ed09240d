//! Tables and figures over the rows of a fixture.

use std::path::{Path, PathBuf};

use sparsebatch_rows::summary::{compare, totals};
use sparsebatch_rows::table;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn the_table_is_the_one_beside_the_rows() {
    let expected = std::fs::read_to_string(data("rows.md")).unwrap();

    let found = table(&[sparsebatch_rows::read(&data("rows.jsonl")).unwrap()]);

    assert_eq!(found, expected);
}

#[test]
fn cases_are_compared_within_their_runs() {
    let rows = sparsebatch_rows::read(&data("rows.jsonl")).unwrap().rows;

    let cases = compare(&rows);

    let names: Vec<String> = cases.iter().map(|case| case.name()).collect();
    let expected =
        ["hetero_all", "hetero_all", "G2", "hetero_all x 100", "banded 4", "laplace 7-point"];
    assert_eq!(names, expected);
    assert_eq!(cases[0].best_ratio(), Some(0.7 / 0.8));
    assert_eq!(cases[1].automatic_ratio(), Some(0.6 / 0.4));
    assert_eq!(cases[1].looped_ratio(), Some(88.0 / 0.4));
    assert_eq!(cases[1].regret(), Some(0.0));
    assert_eq!(cases[2].automatic_ratio(), Some(0.5));
    assert_eq!(cases[2].best.unwrap().configuration, "batch-ell");
    assert!((cases[2].regret().unwrap() - 0.25).abs() < 1e-12);
    // Less than 0.3 microseconds apart.
    assert_eq!((cases[4].automatic_ratio(), cases[4].best_ratio()), (Some(1.0), Some(1.0)));
}

#[test]
fn totals_name_the_worst_case() {
    let rows = sparsebatch_rows::read(&data("rows.jsonl")).unwrap().rows;
    let cases = compare(&rows);

    let found = totals(&cases[4..]);

    assert!((found.automatic_ratio.unwrap() - 1.2f64.sqrt()).abs() < 1e-12);
    assert!((found.best_ratio.unwrap() - 1.5f64.sqrt()).abs() < 1e-12);
    assert_eq!(found.worst, Some(("banded 4".to_owned(), 1.0)));
    assert!((found.mean_regret.unwrap() - (0.05 + 0.25) / 2.0).abs() < 1e-12);
    assert_eq!(found.worst_regret.unwrap().0, "laplace 7-point");
    assert_eq!(totals(&[]), sparsebatch_rows::summary::Totals::default());
}
