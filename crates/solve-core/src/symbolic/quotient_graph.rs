//! The elimination behind [`min_degree`](super::min_degree()), whose documentation lists the steps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The quotient graph during the elimination. Each index is at first a live variable; later it is
/// either merged into another variable or an element.
pub(super) struct QuotientGraph {
    /// Number of rows that each supervariable stands for.
    weight: Vec<u32>,
    /// Whether each index is a variable that is still to be eliminated.
    live: Vec<bool>,
    /// Variables adjacent to each variable and not covered by a common element.
    adjacent: Vec<Vec<u32>>,
    /// Elements adjacent to each variable.
    elements: Vec<Vec<u32>>,
    /// Upper bound on the number of rows adjacent to each variable, its own excluded.
    degree: Vec<u32>,
    /// Variables of each element, empty once it is absorbed.
    boundary: Vec<Vec<u32>>,
    /// Number of rows of each element's variables, 0 once it is absorbed.
    boundary_weight: Vec<u32>,
    /// The rows of each variable: a linked list from the variable to `last_row`.
    next_row: Vec<u32>,
    last_row: Vec<u32>,
    /// Packed keys (degree, variable): for every live variable a key not above its degree; see
    /// [`enqueue`](Self::enqueue).
    queue: BinaryHeap<Reverse<u64>>,
    /// The least degree with which each variable is in the queue.
    queued: Vec<u32>,
    /// Number of rows that are neither eliminated nor left out as dense.
    left: u32,
    dense: Vec<u32>,
    scratch: Scratch,
}

/// Marks that are cleared by moving on to a new stamp.
struct Scratch {
    /// Stamp of the last pivot whose boundary holds the variable.
    in_boundary: Vec<u32>,
    /// Stamp of the last pivot for which `outside` is valid.
    outside_stamp: Vec<u32>,
    /// `|L_e \ L_p|` for the elements e next to the boundary of the pivot p.
    outside: Vec<u32>,
    /// Stamp of the last comparison that marked the index.
    compared: Vec<u64>,
    comparison: u64,
    /// (hash of the neighbours, variable) of the boundary's variables.
    hashes: Vec<(u64, u32)>,
    /// Hash table: the last position in `hashes` of each bucket; `previous` links each position to
    /// the one before in its bucket.
    bucket: Vec<u32>,
    previous: Vec<u32>,
    group: Vec<(u64, u32)>,
}

const NONE: u32 = u32::MAX;

impl QuotientGraph {
    /// Builds the graph from the neighbours of each row, each once, without the row itself.
    pub(super) fn new(mut adjacent: Vec<Vec<u32>>) -> Self {
        let nrows = adjacent.len();
        let limit = (10.0 * (nrows as f64).sqrt()).max(16.0) as usize;
        let is_dense: Vec<bool> = adjacent.iter().map(|row| row.len() > limit).collect();
        let mut dense: Vec<u32> = (0..nrows as u32).filter(|&i| is_dense[i as usize]).collect();
        dense.sort_by_key(|&i| adjacent[i as usize].len());
        for (row, &row_is_dense) in adjacent.iter_mut().zip(&is_dense) {
            if row_is_dense {
                *row = Vec::new();
            } else if !dense.is_empty() {
                row.retain(|&col| !is_dense[col as usize]);
            }
        }
        let mut graph = Self {
            weight: vec![1; nrows],
            live: is_dense.iter().map(|dense| !dense).collect(),
            elements: vec![Vec::new(); nrows],
            degree: adjacent.iter().map(|row| row.len() as u32).collect(),
            boundary: vec![Vec::new(); nrows],
            boundary_weight: vec![0; nrows],
            next_row: vec![NONE; nrows],
            last_row: (0..nrows as u32).collect(),
            queue: BinaryHeap::with_capacity(nrows),
            queued: vec![u32::MAX; nrows],
            left: (nrows - dense.len()) as u32,
            dense,
            adjacent,
            scratch: Scratch {
                in_boundary: vec![0; nrows],
                outside_stamp: vec![0; nrows],
                outside: vec![0; nrows],
                compared: vec![0; nrows],
                comparison: 0,
                hashes: Vec::new(),
                bucket: vec![NONE; nrows.next_power_of_two()],
                previous: Vec::new(),
                group: Vec::new(),
            },
        };
        for variable in 0..nrows {
            if graph.live[variable] {
                graph.enqueue(variable);
            }
        }
        graph
    }

    /// Ensures that the queue holds a key not above the variable's degree. Degrees mostly grow:
    /// then the old key stays and is corrected when it is popped.
    fn enqueue(&mut self, variable: usize) {
        let degree = self.degree[variable];
        if degree < self.queued[variable] {
            self.queued[variable] = degree;
            let key = u64::from(degree) << 32 | variable as u64;
            self.queue.push(Reverse(key));
        }
    }

    /// Takes the live variable of least degree, the lowest index first, from the queue.
    fn next_pivot(&mut self) -> Option<usize> {
        while let Some(Reverse(key)) = self.queue.pop() {
            let variable = (key & u64::from(u32::MAX)) as usize;
            let degree = (key >> 32) as u32;
            if !self.live[variable] || degree != self.queued[variable] {
                continue;
            }
            if degree == self.degree[variable] {
                return Some(variable);
            }
            self.queued[variable] = u32::MAX;
            self.enqueue(variable);
        }
        None
    }

    /// Eliminates all variables and returns the order.
    pub(super) fn order(mut self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.weight.len());
        let mut stamp = 0;
        while let Some(pivot) = self.next_pivot() {
            stamp += 1;
            self.eliminate(pivot, stamp);
            let mut row = pivot as u32;
            while row != NONE {
                order.push(row);
                row = self.next_row[row as usize];
            }
        }
        order.extend_from_slice(&self.dense);
        order
    }

    fn eliminate(&mut self, pivot: usize, stamp: u32) {
        let mut boundary = self.form_element(pivot, stamp);
        self.count_outside(&boundary, stamp);
        for &i in &boundary {
            self.update_variable(i as usize, pivot, stamp);
        }
        self.left -= self.weight[pivot];
        self.merge_equal_variables();
        boundary.retain(|&i| self.live[i as usize]);
        let weight: u32 = boundary.iter().map(|&i| self.weight[i as usize]).sum();
        for &i in &boundary {
            let i = i as usize;
            let own = self.weight[i];
            self.degree[i] = (self.degree[i] + weight - own).min(self.left - own);
            self.enqueue(i);
        }
        self.boundary[pivot] = boundary;
        self.boundary_weight[pivot] = weight;
    }

    /// Step 1: turns the variable `pivot` into an element and returns its boundary.
    fn form_element(&mut self, pivot: usize, stamp: u32) -> Vec<u32> {
        self.live[pivot] = false;
        let mut boundary = Vec::new();
        let (live, in_boundary) = (&self.live, &mut self.scratch.in_boundary);
        let mut add = |variables: Vec<u32>| {
            for i in variables {
                if live[i as usize] && in_boundary[i as usize] != stamp {
                    in_boundary[i as usize] = stamp;
                    boundary.push(i);
                }
            }
        };
        add(std::mem::take(&mut self.adjacent[pivot]));
        for element in std::mem::take(&mut self.elements[pivot]) {
            self.boundary_weight[element as usize] = 0;
            add(std::mem::take(&mut self.boundary[element as usize]));
        }
        boundary
    }

    /// `outside[e] = |L_e \ L_p|` for every element e next to the boundary of p.
    fn count_outside(&mut self, boundary: &[u32], stamp: u32) {
        let scratch = &mut self.scratch;
        for &i in boundary {
            for &element in &self.elements[i as usize] {
                let e = element as usize;
                if scratch.outside_stamp[e] != stamp {
                    scratch.outside_stamp[e] = stamp;
                    scratch.outside[e] = self.boundary_weight[e];
                }
                // Absorbed elements have weight 0 and are dropped by `update_variable`.
                scratch.outside[e] = scratch.outside[e].saturating_sub(self.weight[i as usize]);
            }
        }
    }

    /// Step 2 for one variable of the boundary, and mass elimination. Leaves in `degree` the bound
    /// without `|L_p \ i|`, which is known only after all variables have been seen.
    fn update_variable(&mut self, i: usize, pivot: usize, stamp: u32) {
        let scratch = &mut self.scratch;
        let (mut outside, mut hash) = (0u64, 0u64);
        let (boundary, boundary_weight) = (&mut self.boundary, &mut self.boundary_weight);
        self.elements[i].retain(|&element| {
            let e = element as usize;
            if scratch.outside[e] == 0 {
                boundary_weight[e] = 0;
                boundary[e] = Vec::new();
                return false;
            }
            outside += u64::from(scratch.outside[e]);
            hash = hash.wrapping_add(mix(element));
            true
        });
        let (live, weight) = (&self.live, &self.weight);
        self.adjacent[i].retain(|&variable| {
            let v = variable as usize;
            if !live[v] || scratch.in_boundary[v] == stamp {
                return false;
            }
            outside += u64::from(weight[v]);
            hash = hash.wrapping_add(mix(variable));
            true
        });
        if outside == 0 {
            self.absorb(i, pivot);
            return;
        }
        self.elements[i].push(pivot as u32);
        self.degree[i] = self.degree[i].min(u32::try_from(outside).unwrap_or(u32::MAX));
        scratch.hashes.push((hash, i as u32));
    }

    /// Merges the variables of the boundary that have equal neighbours.
    fn merge_equal_variables(&mut self) {
        let hashes = std::mem::take(&mut self.scratch.hashes);
        let mut group = std::mem::take(&mut self.scratch.group);
        let mask = self.scratch.bucket.len() as u64 - 1;
        self.scratch.previous.clear();
        for (&(hash, _), position) in hashes.iter().zip(0..) {
            let last = &mut self.scratch.bucket[(hash & mask) as usize];
            self.scratch.previous.push(*last);
            *last = position;
        }
        for &(hash, _) in &hashes {
            let bucket = &mut self.scratch.bucket[(hash & mask) as usize];
            let mut position = std::mem::replace(bucket, NONE);
            group.clear();
            while position != NONE {
                group.push(hashes[position as usize]);
                position = self.scratch.previous[position as usize];
            }
            if group.len() > 1 {
                group.sort_unstable();
                for equal in group.chunk_by(|a, b| a.0 == b.0) {
                    self.merge_equal_in(equal);
                }
            }
        }
        self.scratch.hashes = hashes;
        self.scratch.hashes.clear();
        self.scratch.group = group;
    }

    /// Merges variables with equal neighbours within a group of equal hashes, each into the first
    /// of its kind.
    fn merge_equal_in(&mut self, group: &[(u64, u32)]) {
        for (position, &(_, i)) in group.iter().enumerate() {
            let i = i as usize;
            if !self.live[i] || position + 1 == group.len() {
                continue;
            }
            self.scratch.comparison += 1;
            for &k in self.elements[i].iter().chain(&self.adjacent[i]) {
                self.scratch.compared[k as usize] = self.scratch.comparison;
            }
            for &(_, j) in &group[position + 1..] {
                if self.live[j as usize] && self.has_neighbours_of(j as usize, i) {
                    self.absorb(j as usize, i);
                }
            }
        }
    }

    /// Whether j has the neighbours of i, which the last comparison marked. Elements and variables
    /// never share an index, so that one mark serves both.
    fn has_neighbours_of(&self, j: usize, i: usize) -> bool {
        self.elements[i].len() == self.elements[j].len()
            && self.adjacent[i].len() == self.adjacent[j].len()
            && self.elements[j]
                .iter()
                .chain(&self.adjacent[j])
                .all(|&k| self.scratch.compared[k as usize] == self.scratch.comparison)
    }

    /// Moves the rows of variable j to i, which is a variable or the pivot.
    fn absorb(&mut self, j: usize, i: usize) {
        self.live[j] = false;
        self.weight[i] += self.weight[j];
        self.next_row[self.last_row[i] as usize] = j as u32;
        self.last_row[i] = self.last_row[j];
        self.elements[j] = Vec::new();
        self.adjacent[j] = Vec::new();
    }
}

/// Spreads an index over 64 bits, so that sums of different sets rarely agree.
fn mix(index: u32) -> u64 {
    let x = (u64::from(index) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}
