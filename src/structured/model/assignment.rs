//! Maximum-weight bipartite matching, by shortest augmenting paths (Jonker and Volgenant 1987).

use super::Work;
use crate::interrupt::Interrupt;

/// Marks an unmatched row or column.
pub(in crate::structured) const NONE: u32 = u32::MAX;

/// Writes to `matched` the column of each row, or `u32::MAX`, in a matching of largest total
/// weight. Rows and columns may stay unmatched: only pairs of positive weight are matched.
///
/// `weights` has `n_columns` numbers for each row. Rows are added one by one. A new row may
/// displace matched rows along the path of minimum cost. The path ends at a free column or at a row
/// that then becomes unmatched.
/// Takes O(rows² columns) time in the worst case, and hardly more than reading the weights if few
/// rows compete for the same columns.
pub fn assign(weights: &[f64], n_columns: usize, work: &mut Work, matched: &mut Vec<u32>) {
    matched.clear();
    if let Some(n_rows) = weights.len().checked_div(n_columns) {
        let (n_values, n_indices) = buffers(n_rows, n_columns);
        work.values.resize(n_values, 0.0);
        work.indices.resize(n_indices, 0);
        let Work { values, indices, interrupt } = &mut *work;
        solve(weights, n_columns, (values, indices), interrupt);
        let rows = work.indices.iter().zip(weights.chunks_exact(n_columns));
        // Because of rounding, a matched pair may have a weight of 0 or less.
        matched.extend(rows.map(|(column, weights)| match weights.get(*column as usize) {
            Some(weight) if *weight > 0.0 => *column,
            _ => NONE,
        }));
    }
}

/// Returns a matching of largest total weight, and non-negative prices of the columns that prove it
/// optimal. After an interrupt, the matching covers only some of the rows.
pub(crate) fn assignment_prices(
    weights: &[f64],
    n_columns: usize,
    interrupt: &Interrupt,
) -> (Vec<u32>, Vec<f64>) {
    let n_rows = weights.len() / n_columns;
    let (n_values, n_indices) = buffers(n_rows, n_columns);
    let (mut values, mut indices) = (vec![0.0; n_values], vec![0; n_indices]);
    solve(weights, n_columns, (&mut values, &mut indices), interrupt);
    indices.truncate(n_rows);
    (indices, values[n_rows..][..n_columns].to_vec())
}

/// Returns the lengths of the buffers `values` and `indices` that [`solve`] needs.
pub(in crate::structured) fn buffers(n_rows: usize, n_columns: usize) -> (usize, usize) {
    (n_rows + 2 * n_columns, n_rows + 4 * n_columns)
}

/// Writes the column that each row is matched with to the start of `indices`. Writes non-negative prices of the rows,
/// then of the columns, to the start of `values`. The prices prove the matching optimal: the prices of every pair sum
/// to at least its weight. After an interrupt, the matching covers only some of the rows.
pub(in crate::structured) fn solve(
    weights: &[f64],
    n_columns: usize,
    (values, indices): (&mut [f64], &mut [u32]),
    interrupt: &Interrupt,
) {
    let n_rows = weights.len() / n_columns;
    values.fill(0.0);
    indices.fill(NONE);
    let (row_prices, columns) = values.split_at_mut(n_rows);
    let (prices, distances) = columns.split_at_mut(n_columns);
    let (matched, lists) = indices.split_at_mut(n_rows);
    let (owners, lists) = lists.split_at_mut(n_columns);
    let (before, lists) = lists.split_at_mut(n_columns);
    let (open, closed) = lists.split_at_mut(n_columns);
    let mut search = AssignmentSearch {
        weights,
        n_columns,
        row_prices,
        prices,
        distances: &mut distances[..n_columns],
        matched,
        owners,
        before,
        open,
        closed,
    };
    for row in 0..n_rows {
        if interrupt.is_raised() {
            return;
        }
        search.enter(row);
    }
}

/// The state of the search. The pair (a, b) has the reduced cost price_a + price_b − weight >= 0, which is 0 for
/// matched pairs. All prices are at least 0, and 0 for unmatched rows and columns.
struct AssignmentSearch<'a> {
    weights: &'a [f64],
    n_columns: usize,
    row_prices: &'a mut [f64],
    prices: &'a mut [f64],
    /// Minimum cost of a path from the entering row to each column.
    distances: &'a mut [f64],
    /// The column of each row (`matched`), and the row of each column (`owners`).
    matched: &'a mut [u32],
    owners: &'a mut [u32],
    /// The row that precedes each column on its path.
    before: &'a mut [u32],
    /// The columns whose distance is not yet final (`open`), and the columns whose distance is final (`closed`).
    open: &'a mut [u32],
    closed: &'a mut [u32],
}

impl AssignmentSearch<'_> {
    /// Adds a row, with the smallest price at which all its reduced costs are at least 0.
    fn enter(&mut self, first: usize) {
        let n_columns = self.n_columns;
        let weights = &self.weights[first * n_columns..][..n_columns];
        let price =
            weights.iter().zip(&*self.prices).fold(0.0, |price: f64, (w, p)| price.max(w - p));
        self.row_prices[first] = price;
        if price == 0.0 {
            return;
        }
        self.distances.fill(f64::INFINITY);
        self.open.iter_mut().zip(0..).for_each(|(open, column)| *open = column);
        let (mut n_open, mut n_closed) = (n_columns, 0);
        // The cheapest path so far ends at the row `loser` and leaves it unmatched. At first, this is the entering row,
        // at the cost of its price.
        let (mut row, mut reached) = (first, 0.0);
        let (mut loser, mut minimum) = (first, price);
        let free = loop {
            let weights = &self.weights[row * n_columns..][..n_columns];
            let base = reached + self.row_prices[row];
            let (mut next, mut best) = (n_open, minimum);
            for (at, &column) in self.open[..n_open].iter().enumerate() {
                let column = column as usize;
                let distance = base + self.prices[column] - weights[column];
                if distance < self.distances[column] {
                    self.distances[column] = distance;
                    self.before[column] = row as u32;
                }
                if self.distances[column] < best {
                    (next, best) = (at, self.distances[column]);
                }
            }
            if next == n_open {
                break None;
            }
            let column = self.open[next] as usize;
            if self.owners[column] == NONE {
                minimum = best;
                break Some(column);
            }
            self.closed[n_closed] = column as u32;
            n_closed += 1;
            n_open -= 1;
            self.open.swap(next, n_open);
            (row, reached) = (self.owners[column] as usize, best);
            if reached + self.row_prices[row] < minimum {
                (loser, minimum) = (row, reached + self.row_prices[row]);
            }
        };
        self.row_prices[first] -= minimum;
        self.update_prices(minimum, n_closed);
        let end = match free {
            Some(column) => column as u32,
            None => std::mem::replace(&mut self.matched[loser], NONE),
        };
        self.reassign(end);
    }

    /// Changes the prices of the reached columns and their rows, so that no reduced cost is
    /// negative.
    fn update_prices(&mut self, minimum: f64, n_closed: usize) {
        for &column in &self.closed[..n_closed] {
            let change = (minimum - self.distances[column as usize]).max(0.0);
            self.prices[column as usize] += change;
            self.row_prices[self.owners[column as usize] as usize] -= change;
        }
    }

    /// Matches each column on the path to `column` with the row before it.
    fn reassign(&mut self, mut column: u32) {
        while column != NONE {
            let row = self.before[column as usize];
            self.owners[column as usize] = row;
            column = std::mem::replace(&mut self.matched[row as usize], column);
        }
    }
}
