//! Marginals of a chain by the forward-backward recursions, with probabilities rescaled at each
//! position.

use pulp::{Simd, WithSimd};

use super::sum_product::log_marginals;
use crate::interrupt::Interrupt;
use crate::linalg::{arch, exp_minus};
use crate::structured::model::{CACHED_ENTRIES, ChainScores, Work};

/// Marginals below this fraction of their row's sum are negligible compared with rounding errors.
const NEGLIGIBLE: f64 = 1e-20;

/// Scale below which underflow may have lost digits.
const SMALLEST: f64 = 1e-200;

/// The length of a row of labels is padded with zeros to a multiple of this, so that it consists of full SIMD vectors
/// on every machine.
const LANES: usize = 8;

/// Number of vectors that are summed in registers at a time.
const VECTORS: usize = 4;

/// Number of positions whose expected transitions are added to a large table of sums at a time, because reading the
/// table takes longer than the additions.
const BATCH: usize = 8;

/// Writes the marginals of p(y) ∝ exp(score of y), nodes then transitions in the order of the
/// scores, and returns ln Σ_y exp(score of y) (Rabiner 1989, with scaling).
///
/// Computes only one exponential per node and per entry of a table of transitions. If probabilities
/// underflow, the computation is repeated [in logarithms](log_marginals). If all positions share
/// their transitions, the expected counts of the transitions are the elementwise product of the
/// table and Σ_t f_t a_{t+1}ᵀ (up to scaling). Here f_t are the forward sums of position t, and
/// a_{t+1} are the node factors of position t + 1 times its backward sums. After an interrupt the
/// results are meaningless.
pub fn chain_marginals(scores: ChainScores<'_>, work: &mut Work, marginals: &mut [f64]) -> f64 {
    let (n_states, len) = (scores.n_states, scores.len());
    if len == 0 {
        marginals.fill(0.0);
        return 0.0;
    }
    let width = n_states.next_multiple_of(LANES);
    let (n_nodes, n_edges) = (len * width, n_states * width);
    let n_tables = scores.edges.len() / n_states * width;
    let Work { values, interrupt, .. } = &mut *work;
    values.resize(2 * n_nodes + n_tables + 2 * n_edges + (2 * BATCH + 2) * width, 0.0);
    let (factors, rest) = values.split_at_mut(n_nodes);
    let (forward, rest) = rest.split_at_mut(n_nodes);
    let (edges, rest) = rest.split_at_mut(n_tables);
    let (transposed, rest) = rest.split_at_mut(n_edges);
    let (sums, rest) = rest.split_at_mut(n_edges);
    let (shares, rest) = rest.split_at_mut(BATCH * width);
    let (aheads, rest) = rest.split_at_mut(BATCH * width);
    let (ahead, back) = rest.split_at_mut(width);
    let rows = Padded { factors, forward, edges, transposed, sums, shares, aheads, ahead, back };
    match arch().dispatch(Passes { scores, width, rows, marginals, interrupt }) {
        Some(log_sum) => log_sum,
        None if work.interrupt.is_raised() => 0.0,
        None => log_marginals(scores, work, marginals),
    }
}

/// Buffers with rows over the labels, padded with zeros.
struct Padded<'a> {
    /// exp(score − largest score of the position) for each node.
    factors: &'a mut [f64],
    forward: &'a mut [f64],
    /// exp(score − largest score of the table) for each transition.
    edges: &'a mut [f64],
    transposed: &'a mut [f64],
    /// The scaled sum Σ_t forward_t ahead_{t+1}ᵀ.
    sums: &'a mut [f64],
    /// Scaled forward sums of a batch of positions that `sums` does not contain yet; 0 if negligible.
    shares: &'a mut [f64],
    /// For each position of the batch, the row `ahead` of the next position.
    aheads: &'a mut [f64],
    /// Factors of the next position times its backward sums, scaled like the forward sums.
    ahead: &'a mut [f64],
    back: &'a mut [f64],
}

struct Passes<'a> {
    scores: ChainScores<'a>,
    /// Length of a padded row.
    width: usize,
    rows: Padded<'a>,
    marginals: &'a mut [f64],
    interrupt: &'a Interrupt,
}

impl WithSimd for Passes<'_> {
    type Output = Option<f64>;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> Option<f64> {
        let log_sum = self.exponentials(simd);
        let log_scales = self.forward(simd)?;
        self.backward(simd).then_some(log_sum + log_scales)
    }
}

impl Passes<'_> {
    /// Distance between the tables of consecutive positions; 0 if all positions share a table.
    fn stride(&self) -> usize {
        if self.scores.stride > 0 { self.scores.n_states * self.width } else { 0 }
    }

    /// Computes factors and edges. Returns the logarithm of the total scale by which the probability of every path was
    /// divided.
    #[inline(always)]
    fn exponentials<S: Simd>(&mut self, simd: S) -> f64 {
        let (scores, n_states, width) = (self.scores, self.scores.n_states, self.width);
        let mut log_sum = 0.0;
        let positions = scores.nodes.chunks_exact(n_states);
        for (factors, nodes) in self.rows.factors.chunks_exact_mut(width).zip(positions) {
            fill(factors, nodes);
            log_sum += powers(simd, factors);
            factors[n_states..].fill(0.0);
        }
        let tables = scores.edges.chunks_exact(n_states * n_states);
        let rows = self.rows.edges.chunks_exact_mut(n_states * width);
        for (table, (edges, logs)) in rows.zip(tables).enumerate() {
            let rows = edges.chunks_exact_mut(width).zip(logs.chunks_exact(n_states));
            rows.for_each(|(edges, logs)| fill(edges, logs));
            let largest = powers(simd, edges);
            edges.chunks_exact_mut(width).for_each(|edges| edges[n_states..].fill(0.0));
            // A shared table counts once for each transition.
            let times = if scores.stride > 0 { 1 } else { scores.len() - 1 };
            log_sum += if table < scores.len() { times as f64 * largest } else { 0.0 };
        }
        log_sum
    }

    #[inline(always)]
    fn forward<S: Simd>(&mut self, simd: S) -> Option<f64> {
        let (n_states, width, stride) = (self.scores.n_states, self.width, self.stride());
        let Padded { factors, forward, edges, .. } = &mut self.rows;
        let mut scales = LogProduct::default();
        for (t, factors) in factors.chunks_exact(width).enumerate() {
            if self.scores.checks_interrupt(t) && self.interrupt.is_raised() {
                return None;
            }
            let (before, forward) = forward.split_at_mut(t * width);
            let forward = &mut forward[..width];
            if t == 0 {
                forward.copy_from_slice(factors);
            } else {
                let before = &before[(t - 1) * width..][..n_states];
                product(simd, before, &edges[(t - 1) * stride..], forward);
                multiply(simd, forward, factors, 1.0);
            }
            let scale = total(simd, forward);
            // The condition is negated so that NaN also returns None.
            if !(scale > SMALLEST && scale < 1.0 / SMALLEST) {
                return None;
            }
            times(simd, forward, 1.0 / scale);
            scales.multiply(scale);
        }
        Some(scales.log())
    }

    /// Runs the backward pass. Returns false after an interrupt, or if the marginals reveal lost digits or NaN sums.
    #[inline(always)]
    fn backward<S: Simd>(&mut self, simd: S) -> bool {
        let (n_states, width, stride) = (self.scores.n_states, self.width, self.stride());
        let (nodes, counts) = self.marginals.split_at_mut(self.scores.nodes.len());
        let Padded { factors, forward, edges, transposed, sums, shares, aheads, ahead, back } =
            &mut self.rows;
        let is_batched = stride == 0 && self.scores.edges.len() > CACHED_ENTRIES;
        let (last, n_edges) = (self.scores.len() - 1, n_states * width);
        sums.fill(0.0);
        ahead.copy_from_slice(&factors[last * width..]);
        nodes[last * n_states..].copy_from_slice(&forward[last * width..][..n_states]);
        let mut exact = true;
        for t in (0..last).rev() {
            if self.scores.checks_interrupt(t) && self.interrupt.is_raised() {
                return false;
            }
            let edges = &edges[t * stride..][..n_edges];
            if stride > 0 || t + 1 == last {
                transpose(edges, transposed, n_states, width);
            }
            let (forward, factors) =
                (&forward[t * width..][..width], &factors[t * width..][..width]);
            product(simd, &ahead[..n_states], transposed, back);
            // The scale at which the marginals sum to 1.
            let inverse = 1.0 / dot(simd, back, forward);
            if is_batched {
                let place = (last - 1 - t) % BATCH;
                let own = &mut shares[place * width..][..width];
                scale_significant(forward, back, inverse, own);
                aheads[place * width..][..width].copy_from_slice(ahead);
                if place + 1 == BATCH || t == 0 {
                    add_batch(simd, &shares[..(place + 1) * width], aheads, sums, width);
                }
            } else {
                for (from, forth) in forward[..n_states].iter().enumerate() {
                    let share = forth * inverse;
                    if share * back[from] > NEGLIGIBLE {
                        add_row(simd, share, ahead, &mut sums[from * width..][..width]);
                    }
                }
            }
            if stride > 0 {
                let counts = &mut counts[t * n_states * n_states..];
                products(edges, sums, n_states, width, counts);
                sums.fill(0.0);
            }
            ahead.copy_from_slice(factors);
            multiply(simd, ahead, back, inverse);
            multiply(simd, back, forward, inverse);
            exact &= (total(simd, back) - 1.0).abs() < 1e-9;
            nodes[t * n_states..][..n_states].copy_from_slice(&back[..n_states]);
        }
        if stride == 0 {
            products(edges, sums, n_states, width, counts);
        }
        exact
    }
}

/// The logarithm of a product. Factors are multiplied as long as the product cannot overflow or underflow, so that few
/// logarithms are computed.
struct LogProduct {
    log: f64,
    rest: f64,
}

impl Default for LogProduct {
    fn default() -> Self {
        Self { log: 0.0, rest: 1.0 }
    }
}

impl LogProduct {
    #[inline(always)]
    fn multiply(&mut self, factor: f64) {
        self.rest *= factor;
        // Inside this range, a further factor cannot cause overflow or underflow.
        if !(1e-100..1e100).contains(&self.rest) {
            self.log += self.rest.ln();
            self.rest = 1.0;
        }
    }

    fn log(&self) -> f64 {
        self.log + self.rest.ln()
    }
}

/// Returns the sum of values.
#[inline(always)]
fn total<S: Simd>(simd: S, values: &[f64]) -> f64 {
    let mut sums = simd.splat_f64s(0.0);
    S::as_simd_f64s(values).0.iter().for_each(
        #[inline(always)]
        |value| sums = simd.add_f64s(sums, *value),
    );
    simd.reduce_sum_f64s(sums)
}

/// Returns the inner product ⟨a, b⟩.
#[inline(always)]
fn dot<S: Simd>(simd: S, a: &[f64], b: &[f64]) -> f64 {
    let mut sums = simd.splat_f64s(0.0);
    S::as_simd_f64s(a).0.iter().zip(S::as_simd_f64s(b).0).for_each(
        #[inline(always)]
        |(a, b)| sums = simd.mul_add_e_f64s(*a, *b, sums),
    );
    simd.reduce_sum_f64s(sums)
}

/// Multiplies all values by `scale`.
#[inline(always)]
fn times<S: Simd>(simd: S, values: &mut [f64], scale: f64) {
    let scale = simd.splat_f64s(scale);
    for value in S::as_mut_simd_f64s(values).0 {
        *value = simd.mul_f64s(*value, scale);
    }
}

/// Multiplies each value by `scale` and by the same entry of `others`.
#[inline(always)]
fn multiply<S: Simd>(simd: S, values: &mut [f64], others: &[f64], scale: f64) {
    let scale = simd.splat_f64s(scale);
    for (value, other) in S::as_mut_simd_f64s(values).0.iter_mut().zip(S::as_simd_f64s(others).0) {
        *value = simd.mul_f64s(*value, simd.mul_f64s(*other, scale));
    }
}

/// Writes the logarithms of a row, padded with −∞.
#[inline(always)]
fn fill(row: &mut [f64], logs: &[f64]) {
    row[..logs.len()].copy_from_slice(logs);
    row[logs.len()..].fill(f64::NEG_INFINITY);
}

/// Replaces logarithms by exp(log − largest logarithm); returns the largest logarithm.
#[inline(always)]
fn powers<S: Simd>(simd: S, values: &mut [f64]) -> f64 {
    let mut most = simd.splat_f64s(f64::NEG_INFINITY);
    for logs in S::as_simd_f64s(values).0 {
        most = simd.max_f64s(*logs, most);
    }
    let largest = simd.reduce_max_f64s(most);
    for chunk in values.as_chunks_mut::<LANES>().0 {
        for value in chunk {
            *value = exp_minus(largest - *value);
        }
    }
    largest
}

/// Writes Σ_i x_i row_i to `out`, for rows as long as `out`.
#[inline(always)]
fn product<S: Simd>(simd: S, x: &[f64], rows: &[f64], out: &mut [f64]) {
    let is_large = x.len() * out.len() > CACHED_ENTRIES;
    let (rows, out) = (S::as_simd_f64s(rows).0, S::as_mut_simd_f64s(out).0);
    if is_large {
        return streamed(simd, x, rows, out);
    }
    let n_vectors = out.len();
    for first in (0..n_vectors).step_by(VECTORS) {
        let own = (first, n_vectors);
        match n_vectors - first {
            1 => columns::<S, 1>(simd, x, rows, own, out),
            2 => columns::<S, 2>(simd, x, rows, own, out),
            3 => columns::<S, 3>(simd, x, rows, own, out),
            _ => columns::<S, VECTORS>(simd, x, rows, own, out),
        }
    }
}

/// Computes [`product`] of a table that does not fit into the cache, in the order of its memory.
#[inline(always)]
fn streamed<S: Simd>(simd: S, x: &[f64], rows: &[S::f64s], out: &mut [S::f64s]) {
    out.fill(simd.splat_f64s(0.0));
    let n_vectors = out.len();
    for (x, rows) in x.chunks(4).zip(rows.chunks(4 * n_vectors)) {
        let mut all = [simd.splat_f64s(0.0); 4];
        all.iter_mut().zip(x).for_each(
            #[inline(always)]
            |(all, x)| *all = simd.splat_f64s(*x),
        );
        let row = |k: usize| &rows[k.min(x.len() - 1) * n_vectors..][..n_vectors];
        let rows = row(0).iter().zip(row(1)).zip(row(2)).zip(row(3));
        for (out, (((a, b), c), d)) in out.iter_mut().zip(rows) {
            let low = simd.mul_add_e_f64s(all[0], *a, *out);
            let high = simd.mul_add_e_f64s(all[1], *b, simd.mul_f64s(all[2], *c));
            *out = simd.add_f64s(low, simd.mul_add_e_f64s(all[3], *d, high));
        }
    }
}

/// Computes N vectors of [`product`]'s columns, with separate sums for even and odd rows, which
/// halves the latency.
#[inline(always)]
fn columns<S: Simd, const N: usize>(
    simd: S,
    x: &[f64],
    rows: &[S::f64s],
    (first, n_vectors): (usize, usize),
    out: &mut [S::f64s],
) {
    let (mut even, mut odd) = ([simd.splat_f64s(0.0); N], [simd.splat_f64s(0.0); N]);
    let (pairs, rest) = x.as_chunks::<2>();
    let mut two = rows.chunks_exact(2 * n_vectors);
    for ([a, b], rows) in pairs.iter().zip(two.by_ref()) {
        add_vectors(simd, *a, &rows[first..], &mut even);
        add_vectors(simd, *b, &rows[n_vectors + first..], &mut odd);
    }
    if let [x] = rest {
        add_vectors(simd, *x, &rows[2 * pairs.len() * n_vectors + first..], &mut even);
    }
    for (out, (even, odd)) in out[first..first + N].iter_mut().zip(even.into_iter().zip(odd)) {
        *out = simd.add_f64s(even, odd);
    }
}

/// Adds x · row to `sums`, in registers.
#[inline(always)]
fn add_vectors<S: Simd, const N: usize>(simd: S, x: f64, row: &[S::f64s], sums: &mut [S::f64s; N]) {
    let x = simd.splat_f64s(x);
    for (sum, value) in sums.iter_mut().zip(&row[..N]) {
        *sum = simd.mul_add_e_f64s(x, *value, *sum);
    }
}

/// Writes the scaled forward sums to `shares`, or 0 for negligible marginals.
#[inline(always)]
fn scale_significant(forward: &[f64], back: &[f64], scale: f64, shares: &mut [f64]) {
    for ((share, forth), back) in shares.iter_mut().zip(forward).zip(back) {
        let scaled = forth * scale;
        *share = if scaled * back > NEGLIGIBLE { scaled } else { 0.0 };
    }
}

/// Adds Σ_k shares_k aheads_kᵀ to the table `sums`.
#[inline(always)]
fn add_batch<S: Simd>(simd: S, shares: &[f64], aheads: &[f64], sums: &mut [f64], width: usize) {
    for (from, sums) in sums.chunks_exact_mut(width).enumerate() {
        for (shares, ahead) in shares.chunks_exact(width).zip(aheads.chunks_exact(width)) {
            if shares[from] > 0.0 {
                add_row(simd, shares[from], ahead, sums);
            }
        }
    }
}

/// Adds x · row to `sums`.
#[inline(always)]
fn add_row<S: Simd>(simd: S, x: f64, row: &[f64], sums: &mut [f64]) {
    let (row, x) = (S::as_simd_f64s(row).0, simd.splat_f64s(x));
    for (sum, value) in S::as_mut_simd_f64s(sums).0.iter_mut().zip(row) {
        *sum = simd.mul_add_e_f64s(x, *value, *sum);
    }
}

/// Writes the transpose of a table with padded rows.
#[inline(always)]
fn transpose(table: &[f64], transposed: &mut [f64], n_states: usize, width: usize) {
    for (to, row) in transposed.chunks_exact_mut(width).enumerate() {
        let from = table[to..].iter().step_by(width);
        row.iter_mut().zip(from).for_each(|(entry, edge)| *entry = *edge);
        row[n_states..].fill(0.0);
    }
}

/// Writes the elementwise product of two padded tables, without the padding.
#[inline(always)]
fn products(a: &[f64], b: &[f64], n_states: usize, width: usize, out: &mut [f64]) {
    let rows = a.chunks_exact(width).zip(b.chunks_exact(width));
    for (out, (a, b)) in out.chunks_exact_mut(n_states).zip(rows) {
        out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = a * b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tables_have_the_marginals_of_the_recursion_in_logarithms() {
        let n_states = 401;
        assert!(n_states * n_states > CACHED_ENTRIES);
        // First one table for all transitions, then one for each transition.
        compare_with_logarithms(n_states, 11, 0);
        compare_with_logarithms(n_states, 3, n_states * n_states);
    }

    fn compare_with_logarithms(n_states: usize, len: usize, stride: usize) {
        let noise = |i: usize| (i * 2654435761 % 1000) as f64 / 50.0;
        let nodes: Vec<f64> = (0..len * n_states).map(noise).collect();
        let n_tables = if stride > 0 { len - 1 } else { 1 };
        let edges: Vec<f64> = (0..n_tables * n_states * n_states).map(|i| noise(i + 7)).collect();
        let scores = ChainScores { nodes: &nodes, edges: &edges, stride, n_states };
        let mut found = vec![0.0; nodes.len() + edges.len()];
        let (mut work, mut expected) = (Work::default(), found.clone());
        let sum = chain_marginals(scores, &mut work, &mut found);
        assert!((sum - log_marginals(scores, &mut work, &mut expected)).abs() < 1e-10);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() <= 1e-10 * expected + 1e-15, "{found} {expected}");
        }
    }

    #[test]
    fn an_interrupt_ends_both_recursions() {
        let (nodes, edges) = (vec![0.0; 6], vec![0.0; 4]);
        let scores = ChainScores { nodes: &nodes, edges: &edges, stride: 0, n_states: 2 };
        let (mut work, mut marginals) = (Work::default(), vec![0.0; 10]);
        for recursion in [chain_marginals, log_marginals] {
            work.interrupt = Interrupt::default();
            assert!((recursion(scores, &mut work, &mut marginals) - 8_f64.ln()).abs() < 1e-12);
            work.interrupt.raise();
            assert_eq!(recursion(scores, &mut work, &mut marginals), 0.0);
        }
    }
}
