//! The depth-first search behind [`FactorPattern::lu`](super::FactorPattern::lu).

/// Finds the columns of one row of the factors by a depth-first search through rows of U.
pub(super) struct Reach {
    /// The last row whose search visited a column, `u32::MAX` for none.
    seen: Vec<u32>,
    /// One past the last entry of each row of U that the search has to look at.
    end: Vec<u32>,
    pruned: Vec<bool>,
    stack: Vec<u32>,
    /// The result: ascending columns, the diagonal always among them.
    pub(super) found: Vec<u32>,
}

impl Reach {
    /// A search for factors with `nrows` rows.
    pub(super) fn new(nrows: usize) -> Self {
        Self {
            seen: vec![u32::MAX; nrows],
            end: vec![0; nrows],
            pruned: vec![false; nrows],
            stack: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Overwrites `found` with the columns of row `position`, given its entries in `P A P^T`.
    pub(super) fn row(
        &mut self,
        position: usize,
        row: &[(u32, u32)],
        row_ptr: &[u32],
        diag: &[u32],
        cols: &[u32],
    ) {
        let stamp = position as u32;
        self.found.clear();
        self.visit(stamp, stamp);
        for &(col, _) in row {
            self.visit(col, stamp);
            // Rows on the stack are all above this one, hence finished.
            while let Some(k) = self.stack.pop() {
                let k = k as usize;
                debug_assert!(self.end[k] <= row_ptr[k + 1]);
                for p in diag[k] + 1..self.end[k] {
                    self.visit(cols[p as usize], stamp);
                }
            }
        }
        self.found.sort_unstable();
    }

    #[inline]
    fn visit(&mut self, col: u32, stamp: u32) {
        if self.seen[col as usize] != stamp {
            self.seen[col as usize] = stamp;
            self.found.push(col);
            if col < stamp {
                self.stack.push(col);
            }
        }
    }

    /// Records the finished row `position`. Where both `l[position][k]` and `u[k][position]` are
    /// entries, row `position` of U holds every entry of row k right of `position`. Later searches
    /// that visit k reach those entries through `position`.
    pub(super) fn prune(&mut self, position: usize, row_ptr: &[u32], diag: &[u32], cols: &[u32]) {
        self.end[position] = row_ptr[position + 1];
        for p in row_ptr[position]..diag[position] {
            let k = cols[p as usize] as usize;
            if self.pruned[k] {
                continue;
            }
            let upper = diag[k] as usize + 1..row_ptr[k + 1] as usize;
            let start = upper.start as u32;
            if let Ok(slot) = cols[upper].binary_search(&(position as u32)) {
                self.pruned[k] = true;
                self.end[k] = start + slot as u32 + 1;
            }
        }
    }
}
