//! Maximum-weight sets of links in which a row and a column may have several links (simple
//! b-matchings). They are found as a minimum-cost flow, by shortest augmenting paths (Edmonds and
//! Karp 1972; Tomizawa 1971).

use super::Work;
use super::assignment::NONE;

/// Writes the links of largest total weight in which no row has more than `limits[0]`, no column more than `limits[1]`
/// and no pair more than one. Only pairs of positive weight are linked. The output first has the column of each row's
/// first link, or `u32::MAX` for a row without links. All other links follow as row · `n_columns` + column.
///
/// `weights` has `n_columns` numbers for each row. As in `assign`, rows are added one by one. Each
/// row gains one link at a time.
pub(super) fn link(
    weights: &[f64],
    n_columns: usize,
    limits: [usize; 2],
    work: &mut Work,
    label: &mut Vec<u32>,
) {
    label.clear();
    let Some(n_rows) = weights.len().checked_div(n_columns) else { return };
    let (n_values, n_indices) = (2 * (n_rows + n_columns), 3 * (n_rows + n_columns));
    work.values.clear();
    work.values.resize(n_values, 0.0);
    work.indices.clear();
    work.indices.resize(n_indices + weights.len(), 0);
    let (prices, distances) = work.values.split_at_mut(n_rows + n_columns);
    let (counts, rest) = work.indices.split_at_mut(n_rows + n_columns);
    let (before, rest) = rest.split_at_mut(n_rows + n_columns);
    let (open, linked) = rest.split_at_mut(n_rows + n_columns);
    let mut search = LinkSearch {
        weights,
        n_rows,
        n_columns,
        limits,
        prices,
        distances,
        counts,
        before,
        open,
        linked,
    };
    for row in 0..n_rows {
        search.enter(row);
    }
    label.resize(n_rows, NONE);
    for (part, weight) in weights.iter().enumerate() {
        // Because of rounding, a linked pair may have a weight of 0 or less.
        if search.linked[part] == 0 || *weight <= 0.0 {
            continue;
        }
        match &mut label[part / n_columns] {
            first if *first == NONE => *first = (part % n_columns) as u32,
            _ => label.push(part as u32),
        }
    }
}

/// State of the search. Nodes are the rows, then the columns. The prices are at least 0, and 0 for a node with free
/// capacity. The prices of a pair's two nodes sum to at least the pair's weight if the pair is not linked, and to at
/// most this weight if the pair is linked. This proves that the links are optimal for the rows added so far.
struct LinkSearch<'a> {
    weights: &'a [f64],
    n_rows: usize,
    n_columns: usize,
    limits: [usize; 2],
    prices: &'a mut [f64],
    /// Minimum cost of a path from the entering row to each node.
    distances: &'a mut [f64],
    /// Number of links of each node.
    counts: &'a mut [u32],
    /// The node that precedes each node on its path.
    before: &'a mut [u32],
    /// Whether a node's distance is not final.
    open: &'a mut [u32],
    /// Whether a pair is linked.
    linked: &'a mut [u32],
}

impl LinkSearch<'_> {
    /// Adds a row, and links it while that increases the total weight.
    fn enter(&mut self, row: usize) {
        let weights = &self.weights[row * self.n_columns..][..self.n_columns];
        let columns = weights.iter().zip(&self.prices[self.n_rows..]);
        self.prices[row] = columns.fold(0.0, |price: f64, (w, p)| price.max(w - p));
        for _ in 0..self.limits[0].min(self.n_columns) {
            if self.prices[row] <= 0.0 {
                return;
            }
            let (end, cost) = self.cheapest(row);
            self.update_prices(cost);
            if end < self.n_rows {
                self.prices[end] = 0.0;
            }
            if end == row {
                return;
            }
            self.augment(row, end);
        }
    }

    /// Returns the end of the cheapest path from a row, and its cost. The end is a column with free capacity, or a row
    /// that then loses a link (the added row itself, if it gains none).
    fn cheapest(&mut self, first: usize) -> (usize, f64) {
        self.distances.fill(f64::INFINITY);
        self.open.fill(1);
        self.distances[first] = 0.0;
        let (mut end, mut cost) = (first, self.prices[first]);
        let mut node = first;
        loop {
            self.open[node] = 0;
            if node < self.n_rows {
                let last = self.distances[node] + self.prices[node];
                if last < cost {
                    (end, cost) = (node, last);
                }
                self.relax_row(node);
            } else if (self.counts[node] as usize) < self.limits[1] {
                return (node, self.distances[node]);
            } else {
                self.relax_column(node);
            }
            let mut nearest = (node, cost);
            for (at, distance) in self.distances.iter().enumerate() {
                if self.open[at] == 1 && *distance < nearest.1 {
                    nearest = (at, *distance);
                }
            }
            if nearest.1 >= cost {
                return (end, cost);
            }
            node = nearest.0;
        }
    }

    /// Relaxes the columns that a row can link to.
    fn relax_row(&mut self, row: usize) {
        let (n_rows, base) = (self.n_rows, self.distances[row] + self.prices[row]);
        let own = row * self.n_columns..(row + 1) * self.n_columns;
        for (column, (weight, linked)) in
            self.weights[own.clone()].iter().zip(&self.linked[own]).enumerate()
        {
            let node = n_rows + column;
            let distance = (base + self.prices[node] - weight).max(self.distances[row]);
            if *linked == 0 && self.open[node] == 1 && distance < self.distances[node] {
                (self.distances[node], self.before[node]) = (distance, row as u32);
            }
        }
    }

    /// Relaxes the rows from which a column can drop a link.
    fn relax_column(&mut self, node: usize) {
        let (column, base) = (node - self.n_rows, self.distances[node] - self.prices[node]);
        for row in 0..self.n_rows {
            let pair = row * self.n_columns + column;
            if self.linked[pair] == 1 && self.open[row] == 1 {
                let distance = base + self.weights[pair] - self.prices[row];
                let distance = distance.max(self.distances[node]);
                if distance < self.distances[row] {
                    (self.distances[row], self.before[row]) = (distance, node as u32);
                }
            }
        }
    }

    /// Changes the prices of nodes whose distance is below `cost`, so that the inequalities of all prices still hold.
    fn update_prices(&mut self, cost: f64) {
        for (node, distance) in self.distances.iter().enumerate() {
            let change = cost - distance;
            if self.open[node] == 0 && change > 0.0 {
                let price = &mut self.prices[node];
                *price =
                    if node < self.n_rows { (*price - change).max(0.0) } else { *price + change };
            }
        }
    }

    /// Swaps the links along the augmenting path that ends in a node: links its unlinked pairs, and unlinks its
    /// linked pairs.
    fn augment(&mut self, first: usize, end: usize) {
        self.counts[first] += 1;
        let mut node = end;
        if end < self.n_rows {
            self.counts[end] -= 1;
        } else {
            self.counts[end] += 1;
        }
        while node != first {
            let before = self.before[node] as usize;
            let (row, column) = (node.min(before), node.max(before) - self.n_rows);
            self.linked[row * self.n_columns + column] ^= 1;
            node = before;
        }
    }
}
