//! Bounds on score differences at the optimum. For each bound, the free coordinates of β are moved to a dual point that
//! makes the bound tight (`docs/mathematics/cross-validation.md`).

use crate::dual::rounding::{TINY, gamma, norm_above};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::invert_in_place;
use crate::linalg::vectors::{axpy, dot};
use crate::multiclass::{MarginProblem, ScoreMap};
use crate::polytope::CappedBox;

/// Maximum number of moves. It is limited because the interrupt is not checked while the moves' matrix is inverted.
const MAX_MOVES: usize = 512;
/// Maximum total number of values (including zeros) in the rows of all examples that have a move. Also the maximum
/// number of weights.
const MAX_VALUES: usize = 1 << 22;
/// μ²/(4λg), where μ² is the weight of the damping term ‖z‖² in the choice of the steps.
const DAMPING: f64 = 0.05;

/// A dual point near the optimum, and the feasible moves of its coordinates.
pub(super) struct DirectionalBounds {
    known: CertifiedDistances,
    members: Vec<MoveGroup>,
    moves: Vec<Move>,
    /// The concatenated rows of all examples that have a move.
    rows: Vec<f64>,
    n_features: usize,
    n_classes: usize,
    /// Inverse of the damped Gram matrix of the moves' images, in units of the moves' sizes.
    inverse: Vec<f64>,
}

/// Upper bounds on distances, from a certificate.
#[derive(Debug, Clone, Copy)]
pub(super) struct CertifiedDistances {
    pub lambda: f64,
    /// P(w) − D(β), rounded up.
    pub gap: f64,
    /// An upper bound on ‖w − w*‖.
    pub radius: f64,
    /// An upper bound on ‖w − w(β)‖.
    pub distance: f64,
}

/// An example with moves, each of which shifts dual weight from one class (or the label) to
/// another.
struct MoveGroup {
    /// The example's share p_i of the loss.
    share: f64,
    norm: f64,
    /// An upper bound on the error of a margin.
    error: f64,
    /// Index of the example's first move.
    first: usize,
    /// Index after the example's last move.
    end: usize,
    /// The class (or the label) that all moves of the example share. A move changes this coordinate and its own.
    from: u32,
    /// The feasible decrease and increase of the coordinate `from`.
    room: Room,
}

struct Move {
    to: u32,
    room: Room,
    /// The largest step that is feasible for both coordinates.
    size: f64,
    /// p_i times the difference of the margins.
    slope: f64,
}

/// The feasible decrease and increase of a coordinate.
#[derive(Debug, Clone, Copy)]
struct Room {
    down: f64,
    up: f64,
}

/// A row whose score differences are bounded, and its inner products.
pub(super) struct RowProducts {
    row: Vec<f64>,
    norm: f64,
    /// Inner products of the row with the rows of all examples that have a move.
    products: Vec<f64>,
}

impl DirectionalBounds {
    /// Finds the moves at a dual point (examples × classes), given its weights in the order of the
    /// map's layout; None if there are no moves or too many.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn new(
        problem: &MarginProblem<'_>,
        betas: &[f64],
        weights: &[f64],
        known: CertifiedDistances,
        interrupt: &Interrupt,
    ) -> Result<Option<Self>> {
        let Some(set) = problem.polytope().whole_box() else { return Ok(None) };
        let layout = problem.map().layout();
        let is_large = layout.len() > MAX_VALUES;
        if problem.shares().smoothing() > 0.0 || known.gap <= 0.0 || is_large {
            return Ok(None);
        }
        let (n_features, n_classes) = (layout.n_features, layout.n_classes);
        let (members, moves, rows, inverse) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut bounds = Self { known, members, moves, rows, n_features, n_classes, inverse };
        let (norm, mut scores) = (norm_above(weights), vec![0.0; n_classes]);
        for (example, beta) in betas.chunks_exact(n_classes).enumerate() {
            interrupt.check()?;
            let is_free = beta.iter().any(|value| *value > 0.0 && *value < set.cap.min(set.upper));
            if !is_free || problem.shares().of(example) == 0.0 {
                continue;
            }
            problem.map().example_scores(example, weights, &mut scores);
            problem.margins(example, &mut scores);
            bounds.add(problem, example, beta, &scores, set, norm);
            if bounds.moves.len() > MAX_MOVES || bounds.rows.len() > MAX_VALUES {
                return Ok(None);
            }
        }
        Ok(bounds.invert(interrupt)?.then_some(bounds))
    }

    /// Adds the moves of an example, given its β, its margins, and an upper bound on the norm of
    /// the weights.
    fn add(
        &mut self,
        problem: &MarginProblem<'_>,
        example: usize,
        beta: &[f64],
        margins: &[f64],
        set: CappedBox,
        norm: f64,
    ) {
        let (label, share) = (problem.label(example), problem.shares().of(example));
        let rooms = rooms(problem, example, beta, set);
        let span = |room: &Room| room.down.min(room.up);
        let from = (0..rooms.len()).fold(label, |best, class| {
            if span(&rooms[class]) > span(&rooms[best]) { class } else { best }
        });
        let first = self.moves.len();
        for (to, room) in rooms.iter().enumerate().filter(|(to, _)| *to != from) {
            let size = span(room).min(span(&rooms[from]));
            if size > 0.0 {
                let slope = share * (margins[to] - margins[from]);
                self.moves.push(Move { to: to as u32, room: *room, size, slope });
            }
        }
        let end = self.moves.len();
        if end == first {
            return;
        }
        let size = problem.map().row_size(example);
        let scales = problem.scales(example, size);
        let rounded = gamma(size.n_values + 8) * (scales.cost + scales.feature * norm);
        let tiny = 4.0 * (size.n_products + 2) as f64 * TINY * (1.0 + scales.feature);
        let error = (rounded + tiny) * (1.0 + gamma(4));
        let (from, room) = (from as u32, rooms[from]);
        self.members.push(MoveGroup { share, norm: size.norm, error, first, end, from, room });
        problem.map().design().append_rows([example], self.n_features, &mut self.rows);
    }

    /// Inverts G Gᵀ + damping, where the rows of G are the images of the moves; returns whether
    /// that was possible.
    fn invert(&mut self, interrupt: &Interrupt) -> Result<bool> {
        let n = self.moves.len();
        if n == 0 {
            return Ok(false);
        }
        self.inverse = vec![0.0; n * n];
        for (at, one) in self.members.iter().enumerate() {
            interrupt.check()?;
            for (before, other) in self.members[..=at].iter().enumerate() {
                let product = dot(self.row(at), self.row(before)) * one.share * other.share;
                for i in one.first..one.end {
                    let (a, b) = (&self.moves[i], one.from);
                    for j in other.first..other.end {
                        let (c, d) = (&self.moves[j], other.from);
                        let alike = same(a.to, c.to) + same(b, d) - same(a.to, d) - same(b, c.to);
                        let entry = product * a.size * c.size * alike;
                        self.inverse[i * n + j] = entry;
                        self.inverse[j * n + i] = entry;
                    }
                }
            }
        }
        let damping = DAMPING * 4.0 * self.known.lambda * self.known.gap;
        (0..n).for_each(|i| self.inverse[i * n + i] += damping);
        let done = invert_in_place(&mut self.inverse, n).is_some();
        Ok(done && self.inverse.iter().all(|entry| entry.is_finite()))
    }

    fn row(&self, member: usize) -> &[f64] {
        &self.rows[member * self.n_features..][..self.n_features]
    }

    /// The inner products of an example's row with the rows of all examples that have a move.
    pub fn row_products(&self, problem: &MarginProblem<'_>, example: usize) -> RowProducts {
        let mut row = Vec::with_capacity(self.n_features);
        problem.map().design().append_rows([example], self.n_features, &mut row);
        let products = (0..self.members.len()).map(|member| dot(&row, self.row(member))).collect();
        RowProducts { norm: problem.map().row_size(example).norm, row, products }
    }

    /// An upper bound on the increase of the score of class `to` relative to the score of class
    /// `from` when the optimal weights replace the current weights.
    ///
    /// Let q = (e_to − e_from) x̃ᵀ, let ζ be a change of β, and let ϱ = −q − λ w(ζ). If w = w(β), then
    /// ⟨q, w* − w⟩ ≤ g/t − ⟨ζ, slopes⟩ + t ‖ϱ‖²/4λ for every t > 0 for which β + tζ is feasible. A further term covers
    /// the distance of w from w(β).
    pub fn rise(&self, query: &RowProducts, from: u32, to: u32) -> f64 {
        let steps = self.steps(query, from, to);
        let CertifiedDistances { lambda, gap, radius, distance } = self.known;
        let residual = self.residual_norm(query, (from, to), &steps);
        let (slope, error) = self.slope(&steps);
        let bend = (residual * residual + TINY) / (4.0 * lambda) * (1.0 + gamma(8)) + TINY;
        let longest = self.longest(&steps);
        let length = longest.min((gap / bend).sqrt());
        if !(length > 0.0 && length.is_finite()) {
            return f64::INFINITY;
        }
        let quadratic = gap / length + length * bend + 0.5 * residual * distance;
        let linear = gap / length + residual * radius;
        let bound = (quadratic.min(linear) + error) * (1.0 + gamma(16)) - slope;
        let bound = bound + gamma(4) * bound.abs() + 8.0 * TINY;
        // If the steps overflow, there is no bound.
        if bound.is_nan() { f64::INFINITY } else { bound }
    }

    /// The steps ζ that minimise the damped ‖ϱ‖².
    fn steps(&self, query: &RowProducts, from: u32, to: u32) -> Vec<f64> {
        let n = self.moves.len();
        let mut right = vec![0.0; n];
        for (member, product) in self.members.iter().zip(&query.products) {
            let own = same(member.from, to) - same(member.from, from);
            let places = member.first..member.end;
            for (right, step) in right[places.clone()].iter_mut().zip(&self.moves[places]) {
                let sign = own - same(step.to, to) + same(step.to, from);
                *right = -sign * member.share * step.size * product;
            }
        }
        let rows = self.inverse.chunks_exact(n).zip(&self.moves);
        rows.map(|(row, step)| step.size * dot(row, &right)).collect()
    }

    /// A bound on ‖ϱ‖ = ‖q + λ w(ζ)‖.
    fn residual_norm(&self, query: &RowProducts, (from, to): (u32, u32), steps: &[f64]) -> f64 {
        let d = self.n_features;
        let mut residual = vec![0.0; d * self.n_classes];
        let add = |residual: &mut [f64], class: u32, scale: f64, row: &[f64]| {
            axpy(&mut residual[class as usize * d..][..d], scale, row);
        };
        add(&mut residual, to, 1.0, &query.row);
        add(&mut residual, from, -1.0, &query.row);
        let (mut size, mut largest) = (query.norm, 1.0_f64);
        for (at, member) in self.members.iter().enumerate() {
            let row = self.row(at);
            let (mut total, mut length) = (0.0, 0.0);
            let own = member.first..member.end;
            for (step, change) in self.moves[own.clone()].iter().zip(&steps[own]) {
                add(&mut residual, step.to, -member.share * change, row);
                total += change;
                length += change.abs();
            }
            add(&mut residual, member.from, member.share * total, row);
            size += member.share * length * member.norm;
            largest = largest.max(member.norm);
        }
        let n_terms = steps.len() + 2;
        let lost = gamma(n_terms + 8) * std::f64::consts::SQRT_2 * size * (1.0 + gamma(n_terms));
        let tiny = 4.0 * (n_terms * residual.len()) as f64 * TINY * largest;
        (norm_above(&residual) + lost + tiny) * (1.0 + gamma(4))
    }

    /// ⟨ζ, slopes⟩ and a bound on its error.
    fn slope(&self, steps: &[f64]) -> (f64, f64) {
        let (mut sum, mut size, mut error) = (0.0, 0.0, 0.0);
        for member in &self.members {
            let own = member.first..member.end;
            for (step, change) in self.moves[own.clone()].iter().zip(&steps[own]) {
                let term = change * step.slope;
                sum += term;
                size += term.abs();
                error += 2.0 * member.share * member.error * change.abs();
                error += 4.0 * (1.0 + change.abs()) * TINY;
            }
        }
        let n = steps.len();
        (sum, (error + gamma(n + 4) * size + n as f64 * TINY) * (1.0 + gamma(n + 4)))
    }

    /// The largest t for which β + tζ is feasible.
    fn longest(&self, steps: &[f64]) -> f64 {
        let mut longest = f64::INFINITY;
        let mut keep = |room: &Room, change: f64| {
            let limit = if change < 0.0 { room.down / -change } else { room.up / change };
            // 0/0 means that the coordinate is fixed and does not change.
            longest = if change == 0.0 { longest } else { limit.min(longest) };
        };
        for member in &self.members {
            let own = member.first..member.end;
            let (mut sum, mut size) = (0.0, 0.0);
            for (step, change) in self.moves[own.clone()].iter().zip(&steps[own.clone()]) {
                keep(&step.room, *change);
                sum -= change;
                size += change.abs();
            }
            let lost = gamma(own.len() + 2) * size;
            keep(&member.room, sum - lost);
            keep(&member.room, sum + lost);
        }
        longest * (1.0 - gamma(8))
    }
}

fn same(a: u32, b: u32) -> f64 {
    f64::from(u8::from(a == b))
}

/// The feasible decrease and increase of each entry of an example's β. The entry at the label
/// represents the slack: the cap minus the sum of the other entries.
///
/// The results apply to the dual point of the certificate, which is the feasible point nearest to the stored point.
fn rooms(problem: &MarginProblem<'_>, example: usize, beta: &[f64], set: CappedBox) -> Vec<Room> {
    let (label, m) = (problem.label(example), beta.len());
    let entries = (0u32..).zip(beta.iter().copied());
    let stored: Vec<(u32, f64)> = entries.filter(|(_, value)| *value != 0.0).collect();
    let sum: f64 = stored.iter().map(|(_, value)| value).sum();
    let lost = problem.polytope().distance(&stored, label, m) + gamma(m + 4) * sum;
    let upper = if set.upper < set.cap { set.upper } else { f64::INFINITY };
    let inside = |room: f64| ((room - lost) * (1.0 - gamma(4))).max(0.0);
    let room = |(class, value): (usize, &f64)| match class == label {
        true => Room { down: inside(set.cap - sum), up: f64::INFINITY },
        false => Room { down: inside(*value), up: inside(upper - value) },
    };
    beta.iter().enumerate().map(room).collect()
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use ndarray::Array2;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::super::scoring::{gap_above, radius};
    use super::*;
    use crate::data::{Csr, Data, Dense};
    use crate::dual::Shares;
    use crate::multiclass::solvers::{BlockDescentOptions, block_descent};
    use crate::multiclass::{Costs, Linear, Order};
    use crate::polytope::{Cube, MaxHinge, Polytope, Usunier};
    use crate::run::{Certificate, Stopping, run};

    struct Case {
        x: Array2<f64>,
        /// `x` as a CSR matrix in single precision.
        single: Vec<f32>,
        columns: Vec<i32>,
        offsets: Vec<i64>,
        is_sparse: bool,
        labels: Vec<u32>,
        weights: Vec<f64>,
        costs: Costs,
        lambda: f64,
        bias: f64,
    }

    impl Case {
        fn random(seed: u64) -> Self {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let (n, d, m) = (30, random.random_range(1..6), random.random_range(3..6));
            let labels: Vec<u32> = (0..n).map(|i| (i % m) as u32).collect();
            let costs = (0..m * m).map(|at| match at % (m + 1) {
                0 => 0.0,
                _ => random.random_range(0.2..2.0),
            });
            let costs = Costs::PerLabel(costs.collect());
            let x = Array2::from_shape_fn((n, d), |_| random.random_range(-1.0..1.0));
            Self {
                costs,
                single: x.iter().map(|value| *value as f32).collect(),
                columns: (0..n * d).map(|at| (at % d) as i32).collect(),
                offsets: (0..=n).map(|row| (row * d) as i64).collect(),
                is_sparse: seed >= 40,
                x,
                labels,
                weights: (0..n).map(|_| random.random_range(0.0..2.0)).collect(),
                lambda: 10.0_f64.powf(random.random_range(-4.0..0.0)),
                bias: random.random_range(0.0..2.0),
            }
        }

        fn problem(&self, set: Box<dyn Polytope>) -> MarginProblem<'_> {
            let (columns, d) = (&self.columns, self.x.ncols());
            let data = match self.is_sparse {
                true => Data::Csr32(Csr::new(&self.offsets, columns, &self.single, d).unwrap()),
                false => Data::Dense64(Dense::new(self.x.view()).unwrap()),
            };
            let m = *self.labels.iter().max().unwrap() as usize + 1;
            let map = Linear::new(data, m, self.bias, Order::Examples);
            let shares = Shares::new(self.labels.len(), self.lambda).unwrap();
            let shares = shares.with_sample_weights(&self.weights).unwrap();
            let problem = MarginProblem::new(map, &self.labels, set, shares).unwrap();
            problem.with_costs(self.costs.clone()).unwrap()
        }
    }

    /// Weights in the order of the layout, β, and the certified distances.
    fn fit(problem: &MarginProblem<'_>, tol: f64) -> (Vec<f64>, Vec<f64>, CertifiedDistances) {
        let mut solver = block_descent(problem, BlockDescentOptions::default());
        let stopping =
            Stopping { max_epochs: 3000, relative: tol, floor: 0.0, null_objective: None };
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        run(&mut *solver, stopping, &Interrupt::default(), go_on).unwrap();
        let certificate: Certificate = solver.certify(&Interrupt::default()).unwrap();
        let (lambda, distance) = (problem.shares().lambda(), solver.distance());
        let radius = radius(&certificate, lambda, distance);
        let known = CertifiedDistances { lambda, gap: gap_above(&certificate), radius, distance };
        (problem.map().layout().arrange(&solver.coefficients()), solver.betas(), known)
    }

    #[test]
    fn no_difference_of_scores_rises_more_than_its_bound() {
        let (mut n_tight, mut n_asked, mut n_sparse) = (0, 0, 0);
        for seed in 0..46 {
            let case = Case::random(seed);
            let set: Box<dyn Polytope> = match seed % 3 {
                0 => Box::new(Cube),
                1 => Box::new(MaxHinge),
                _ => Box::new(Usunier::new(2).unwrap()),
            };
            let problem = case.problem(set);
            let (optimum, _, exact) = fit(&problem, 1e-13);
            for tol in [1e-1, 1e-3, 1e-5, 1e-7] {
                let (weights, betas, known) = fit(&problem, tol);
                let bounds = DirectionalBounds::new(
                    &problem,
                    &betas,
                    &weights,
                    known,
                    &Interrupt::default(),
                );
                let Some(bounds) = bounds.unwrap() else { continue };
                let m = problem.n_classes();
                let (mut before, mut after) = (vec![0.0; m], vec![0.0; m]);
                for example in 0..problem.n_examples() {
                    let query = bounds.row_products(&problem, example);
                    problem.map().example_scores(example, &weights, &mut before);
                    problem.map().example_scores(example, &optimum, &mut after);
                    let wide = std::f64::consts::SQRT_2 * query.norm;
                    for (from, to) in (0..m * m).map(|at| (at / m, at % m)).filter(|(a, b)| a != b)
                    {
                        let rise = bounds.rise(&query, from as u32, to as u32);
                        let seen = (after[to] - after[from]) - (before[to] - before[from]);
                        assert!(
                            seen <= rise + wide * exact.radius + 1e-12,
                            "{seed} {tol} {seen} {rise}"
                        );
                        n_tight += usize::from(rise < 0.2 * wide * known.radius);
                        n_asked += 1;
                        n_sparse += usize::from(case.is_sparse);
                    }
                }
            }
        }
        assert!(n_tight > n_asked / 10, "{n_tight} of {n_asked}");
        assert!(n_sparse > n_asked / 20, "{n_sparse} of {n_asked}");
    }
}
