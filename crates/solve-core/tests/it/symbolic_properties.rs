//! Factor patterns, orders and blocks against a dense boolean elimination.

use proptest::prelude::*;
use sparsebatch_formats::{CsrPattern, Pattern};
use sparsebatch_solve_core::symbolic::{
    DiagonalBlocks, FactorPattern, LowerPattern, NO_SOURCE, find_blocks, fixed_blocks, min_degree,
};

/// A square pattern with up to 24 rows, some diagonals missing, and an order of its rows.
fn pattern_and_order() -> impl Strategy<Value = (CsrPattern, Vec<u32>)> {
    (1usize..=24, 0.02f64..0.5).prop_flat_map(|(nrows, density)| {
        let stored = proptest::collection::vec(proptest::bool::weighted(density), nrows * nrows);
        let diagonal = proptest::collection::vec(proptest::bool::weighted(0.8), nrows);
        let order = Just((0..nrows as u32).collect::<Vec<_>>()).prop_shuffle();
        (stored, diagonal, order).prop_map(move |(mut stored, diagonal, order)| {
            for (row, keep) in diagonal.into_iter().enumerate() {
                stored[row * nrows + row] |= keep;
            }
            (from_dense(nrows, &stored), order)
        })
    })
}

fn from_dense(nrows: usize, stored: &[bool]) -> CsrPattern {
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::new();
    for row in stored.chunks(nrows) {
        col_idx.extend((0..nrows as i32).filter(|&col| row[col as usize]));
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).unwrap()
}

/// The permuted pattern as a dense boolean matrix, with the whole diagonal.
fn permuted_dense(pattern: &CsrPattern, order: &[u32]) -> Vec<bool> {
    let nrows = order.len();
    let view = pattern.view();
    let entry = |i: usize, j: usize| {
        i == j || view.position(order[i] as usize, order[j] as usize).is_some()
    };
    (0..nrows * nrows).map(|k| entry(k / nrows, k % nrows)).collect()
}

/// Eliminates without pivoting; returns the multiply-adds.
fn eliminate(dense: &mut [bool], nrows: usize) -> u64 {
    let mut flops = 0;
    for k in 0..nrows {
        for i in k + 1..nrows {
            for j in k + 1..nrows {
                if dense[i * nrows + k] && dense[k * nrows + j] {
                    dense[i * nrows + j] = true;
                    flops += 1;
                }
            }
        }
    }
    flops
}

fn factor_dense(factor: &FactorPattern) -> Vec<bool> {
    let nrows = factor.nrows();
    let mut dense = vec![false; nrows * nrows];
    for row in 0..nrows {
        for k in factor.row_ptr()[row] as usize..factor.row_ptr()[row + 1] as usize {
            dense[row * nrows + factor.cols()[k] as usize] = true;
        }
    }
    dense
}

/// Invariants 1 to 5 of [`FactorPattern`].
fn check_factor(factor: &FactorPattern, pattern: &CsrPattern, order: &[u32]) {
    let view = pattern.view();
    assert_eq!(factor.perm(), order);
    assert_eq!(factor.row_ptr()[0], 0);
    assert_eq!(factor.row_ptr()[factor.nrows()] as usize, factor.nnz());
    assert_eq!(factor.source().len(), factor.nnz());
    let mut sources = 0;
    for row in 0..factor.nrows() {
        let range = factor.row_ptr()[row] as usize..factor.row_ptr()[row + 1] as usize;
        let cols = &factor.cols()[range.clone()];
        assert!(cols.is_sorted_by(|a, b| a < b));
        assert_eq!(factor.cols()[factor.diag()[row] as usize], row as u32);
        assert_eq!(factor.lower(row).len() + 1 + factor.upper(row).len(), range.len());
        for k in range {
            let col = factor.cols()[k] as usize;
            let expected = view
                .position(order[row] as usize, order[col] as usize)
                .map_or(NO_SOURCE, |k| k as u32);
            assert_eq!(factor.source()[k], expected);
            sources += usize::from(expected != NO_SOURCE);
        }
    }
    assert_eq!(sources, pattern.nnz());
    assert_eq!(factor.fill(), factor.nnz() - pattern.nnz());
    let missing: Vec<u32> = order
        .iter()
        .copied()
        .filter(|&row| view.position(row as usize, row as usize).is_none())
        .collect();
    assert_eq!(factor.missing_diagonal(), missing);
}

proptest! {
    #[test]
    fn lu_pattern_is_that_of_a_dense_boolean_elimination((pattern, order) in pattern_and_order()) {
        let nrows = order.len();
        let mut dense = permuted_dense(&pattern, &order);
        let flops = eliminate(&mut dense, nrows);

        let factor = FactorPattern::lu(pattern.view(), Some(&order), nrows * nrows).unwrap();

        check_factor(&factor, &pattern, &order);
        prop_assert_eq!(factor_dense(&factor), dense);
        prop_assert_eq!(factor.flops(), flops);
        let entries = factor.nnz();
        prop_assert!(FactorPattern::lu(pattern.view(), Some(&order), entries).is_ok());
        prop_assert!(FactorPattern::lu(pattern.view(), Some(&order), entries - 1).is_err());
    }

    #[test]
    fn ilu0_pattern_is_that_of_the_matrix_and_its_diagonal(
        (pattern, order) in pattern_and_order()
    ) {
        let factor = FactorPattern::ilu0(pattern.view(), Some(&order)).unwrap();

        check_factor(&factor, &pattern, &order);
        prop_assert_eq!(factor_dense(&factor), permuted_dense(&pattern, &order));
        prop_assert_eq!(factor.fill(), factor.missing_diagonal().len());
    }

    #[test]
    fn ic0_pattern_is_the_lower_triangle((pattern, order) in pattern_and_order()) {
        let nrows = order.len();
        let dense = permuted_dense(&pattern, &order);

        let factor = LowerPattern::ic0(pattern.view(), Some(&order)).unwrap();

        let mut found = vec![false; nrows * nrows];
        for row in 0..nrows {
            let range = factor.row_ptr()[row] as usize..factor.row_ptr()[row + 1] as usize;
            prop_assert!(factor.cols()[range.clone()].is_sorted_by(|a, b| a < b));
            prop_assert_eq!(factor.cols()[factor.diagonal(row)] as usize, row);
            for k in range {
                let col = factor.cols()[k] as usize;
                found[row * nrows + col] = true;
                let entry = pattern.view().position(order[row] as usize, order[col] as usize);
                prop_assert_eq!(factor.source()[k], entry.map_or(NO_SOURCE, |k| k as u32));
            }
        }
        let lower: Vec<bool> = (0..nrows * nrows)
            .map(|k| k % nrows <= k / nrows && dense[k])
            .collect();
        prop_assert_eq!(found, lower);
        // The columns hold every entry below the diagonal once, rows ascending.
        prop_assert_eq!(factor.rows().len(), factor.nnz() - nrows);
        for col in 0..nrows {
            let column = factor.column(col);
            prop_assert!(factor.rows()[column.clone()].is_sorted_by(|a, b| a < b));
            for k in column {
                let pos = factor.pos()[k] as usize;
                prop_assert_eq!(factor.cols()[pos] as usize, col);
                prop_assert!(factor.strict(factor.rows()[k] as usize).contains(&pos));
            }
        }
    }

    #[test]
    fn min_degree_is_a_permutation_and_repeatable((pattern, _) in pattern_and_order()) {
        let order = min_degree(pattern.view()).unwrap();

        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert!(sorted.iter().copied().eq(0..pattern.nrows() as u32));
        prop_assert_eq!(min_degree(pattern.view()).unwrap(), order);
    }

    /// A tree has an order without fill, and minimum degree finds one.
    #[test]
    fn min_degree_of_a_tree_has_no_fill(parents in proptest::collection::vec(any::<u32>(), 1..60)) {
        let nrows = parents.len() + 1;
        let mut stored = vec![false; nrows * nrows];
        for row in 0..nrows {
            stored[row * nrows + row] = true;
        }
        for (child, parent) in (1..).zip(parents) {
            let parent = parent as usize % child;
            stored[child * nrows + parent] = true;
            stored[parent * nrows + child] = true;
        }
        let pattern = from_dense(nrows, &stored);

        let order = min_degree(pattern.view()).unwrap();
        let factor = FactorPattern::lu(pattern.view(), Some(&order), pattern.nnz()).unwrap();

        prop_assert_eq!(factor.fill(), 0);
    }

    #[test]
    fn blocks_cover_the_rows_and_hold_the_entries(
        (pattern, _) in pattern_and_order(),
        size in 1usize..10,
    ) {
        let nrows = pattern.nrows();
        let view = pattern.view();
        for starts in [fixed_blocks(nrows, size).unwrap(), find_blocks(view, size).unwrap()] {
            prop_assert!(starts.windows(2).all(|pair| pair[1] - pair[0] <= size as u32));

            let blocks = DiagonalBlocks::try_new(view, &starts).unwrap();

            prop_assert_eq!(blocks.nrows(), nrows);
            for block in 0..blocks.nblocks() {
                let rows = blocks.rows(block);
                let source = blocks.block_source(block);
                prop_assert_eq!(source.len(), rows.len() * rows.len());
                for (k, &found) in source.iter().enumerate() {
                    let (i, j) = (k / rows.len(), k % rows.len());
                    let entry = view.position(rows.start + i, rows.start + j);
                    prop_assert_eq!(found, entry.map_or(NO_SOURCE, |k| k as u32));
                }
            }
        }
    }
}
