//! Fill and cost of the minimum-degree order on real and on large patterns.

use std::time::Instant;

use sparsebatch_formats::{CsrPattern, Pattern};
use sparsebatch_solve_core::symbolic::{FactorPattern, min_degree};

/// Entries of L + U by the minimum-degree order.
fn factor_entries(pattern: &CsrPattern) -> usize {
    let order = min_degree(pattern.view()).unwrap();
    FactorPattern::lu(pattern.view(), Some(&order), usize::MAX).unwrap().nnz()
}

/// Published entries of L + U by greedy minimum degree: 71, 943, 4106; ties may cost a few percent.
#[test]
fn reaction_networks_fill_as_published() {
    let Some(shared) = sparsebatch_testing::shared_dir() else {
        return;
    };
    for (network, natural, published) in
        [("alpha13", 169, 71), ("mid57", 3245, 943), ("sn156", 24_336, 4106)]
    {
        let path = shared.join(format!("astro/batch_{network}.bin"));
        let file = sparsebatch_formats::io::read_batch(path).unwrap();
        let pattern = file.batch.pattern(0).to_pattern();

        let in_file_order = FactorPattern::lu(pattern.view(), None, usize::MAX).unwrap();
        let entries = factor_entries(&pattern);

        println!("{network}: {} entries, L + U {entries}, published {published}", pattern.nnz());
        assert_eq!(in_file_order.nnz(), natural, "{network}");
        assert!(entries * 100 <= published * 104, "{network}: {entries} > {published} + 4 %");
    }
}

/// The graph Laplacian of a `width` x `width` grid.
fn grid(width: usize) -> CsrPattern {
    let nrows = width * width;
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::new();
    for row in 0..nrows {
        let (x, y) = (row % width, row / width);
        let neighbours = [
            (y > 0).then(|| row - width),
            (x > 0).then(|| row - 1),
            Some(row),
            (x + 1 < width).then_some(row + 1),
            (y + 1 < width).then_some(row + width),
        ];
        col_idx.extend(neighbours.into_iter().flatten().map(|col| col as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).unwrap()
}

/// Natural order fills the band, about `2 width^3` entries; minimum degree a fifth of that here.
#[test]
fn a_grid_fills_far_less_than_its_band() {
    let pattern = grid(100);

    let band = FactorPattern::lu(pattern.view(), None, usize::MAX).unwrap().nnz();
    let start = Instant::now();
    let entries = factor_entries(&pattern);

    println!("grid 100 x 100: band {band}, L + U {entries}, {:?}", start.elapsed());
    assert!(entries < 420_000, "{entries}");
    assert!(3 * entries < band, "{entries} of {band}");
}

/// A million entries in 20,000 rows: a random band, one far entry per row and five dense rows. The
/// order stays cheap although the factors are nearly dense; it took 2 s where a first version
/// that queued every change of a degree took 14 s.
#[test]
fn min_degree_copes_with_a_million_scattered_entries() {
    let nrows = 20_000;
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::new();
    for row in 0..nrows {
        let mut cols: Vec<i32> = if row % 4000 == 17 {
            (0..nrows as i32).collect()
        } else {
            // A band with a few far entries, as meshes with long-range coupling have.
            let far = random() % nrows;
            (0..50)
                .map(|_| ((row + random() % 200) % nrows) as i32)
                .chain([row as i32, far as i32])
                .collect()
        };
        cols.sort_unstable();
        cols.dedup();
        col_idx.extend(cols);
        row_ptr.push(col_idx.len() as i32);
    }
    let pattern = CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).unwrap();

    let start = Instant::now();
    let order = min_degree(pattern.view()).unwrap();
    let elapsed = start.elapsed();

    println!("{nrows} rows, {} entries: {elapsed:?}", pattern.nnz());
    let mut last: Vec<u32> = order[nrows - 5..].to_vec();
    last.sort_unstable();
    assert_eq!(last, [17, 4017, 8017, 12_017, 16_017]);
    assert!(elapsed.as_secs() < 30, "{elapsed:?}");
}
