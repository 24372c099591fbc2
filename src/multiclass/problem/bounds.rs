//! The contributions of examples to a certificate, with bounds on the rounding errors.

use super::column_scales::ColumnScales;
use super::{LossSizes, MarginProblem, RowSize, ScoreMap};
use crate::data::Real;
use crate::dual::rounding::{Sum, TINY, gamma, norm_above, root_above};
use crate::dual::{BlockTerms, Bounded, Scales, Shares, Totals, objective};
use crate::linalg::Sparse;
use crate::linalg::vectors::dot_in_order;
use crate::polytope::lifted;
use crate::run::Certificate;

/// Sums of the contributions of some examples.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    losses: Losses,
    dual: Totals,
}

/// Σ p_i Φ_i of computed losses, and the sizes from which a bound on its error follows. The error
/// is bounded once for the whole sum, because bounding it for each example would take as long as
/// computing the losses.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    sum: Sum,
    /// Σ |p_i Φ_i|, from which the bound on the rounding errors of the products p_i Φ_i follows.
    size: f64,
    sizes: LossSizes,
    n_losses: usize,
}

impl Bounds {
    /// Adds the sums over another set of examples.
    pub fn join(&mut self, other: &Self) {
        self.losses.join(&other.losses);
        self.dual.join(&other.dual);
    }

    /// Adds the loss of an example, computed in double precision from exact scores.
    #[inline]
    pub fn add_loss(&mut self, problem: &MarginProblem<'_>, example: usize, loss: f64) {
        self.add_loss_of(problem, (example, problem.map().row_size(example)), loss);
    }

    /// Adds the loss of an example whose features have the given size.
    #[inline]
    pub fn add_loss_of(
        &mut self,
        problem: &MarginProblem<'_>,
        (example, size): (usize, RowSize),
        loss: f64,
    ) {
        let share = problem.shares().of(example);
        let Scales { cost, feature, n_features, .. } = problem.scales(example, size);
        let Losses { sum, size: total, sizes, n_losses } = &mut self.losses;
        let loss = share * loss;
        sum.add(Bounded::exact(loss));
        *total += loss.abs();
        sizes.share += share;
        sizes.cost += share * cost;
        sizes.feature += share * feature;
        sizes.rounded += share * (feature * (size.n_values + 8) as f64);
        sizes.n_products = sizes.n_products.max(n_features);
        *n_losses += 1;
    }

    /// Adds an example whose dual point is 0.
    #[inline]
    pub fn add_start(&mut self) {
        self.dual.add_start();
    }

    /// Adds an example's dual point, for shares whose λ may differ from the problem's.
    #[inline]
    pub fn add_dual(
        &mut self,
        problem: &MarginProblem<'_>,
        shares: &Shares,
        example: usize,
        beta: &Sparse,
    ) {
        let size = problem.map().row_size(example);
        self.add_dual_of(problem, shares, (example, size), beta);
    }

    /// Adds the dual point of an example whose features have the given size.
    #[inline]
    pub fn add_dual_of(
        &mut self,
        problem: &MarginProblem<'_>,
        shares: &Shares,
        (example, size): (usize, RowSize),
        beta: &Sparse,
    ) {
        if beta.is_empty() {
            return self.dual.add_start();
        }
        let length: f64 = beta.iter().map(|(_, value)| value.abs()).sum();
        let terms = BlockTerms {
            linear: problem.linear_term(example, beta),
            bend: shares.smoothing() * lifted::squared_norm_of(beta),
            length: length * (1.0 + gamma(beta.len())),
            n_entries: beta.len(),
            defect: problem.polytope().distance(beta, problem.label(example), problem.n_classes()),
            scales: problem.scales(example, size),
        };
        self.dual.add(shares, example, &terms);
    }

    /// The certificate at the computed w = w(β), at which the losses are evaluated: λ/2 ‖w‖² + the
    /// loss, rounded up, and D(β), rounded down.
    pub fn certificate<T: Real>(
        &self,
        problem: &MarginProblem<'_>,
        lambda: f64,
        weights: &[T],
    ) -> Certificate {
        let norm = norm_above(weights);
        let loss = self.losses.total(problem, norm);
        let dual = self.dual.value(lambda, norm + self.distance()).bound();
        Certificate { primal: objective(lambda, weights, loss), dual }
    }

    /// The certificate for any weights w, at which the losses were evaluated, and for a point β whose image w(β) is
    /// `image` up to its sign. Each entry of the image is computed by at most `n_sums` successive additions, and the
    /// sizes of the examples are in units of the columns. The dual value is D(tβ) for the t in [0, 1] that maximises
    /// it; t is also returned.
    ///
    /// Let w now be the computed image, e its error in units of the columns, and S the diagonal matrix of these units.
    /// Then ‖w(β)‖² = ‖w + Se‖² is at most ‖w‖² + 2 ‖Sw‖ ‖e‖ + (max S)² ‖e‖².
    pub fn certificate_apart(
        &self,
        problem: &MarginProblem<'_>,
        lambda: f64,
        weights: &[f64],
        (image, n_sums): (&[f64], usize),
        columns: &ColumnScales,
    ) -> (Certificate, f64) {
        let loss = self.losses.total(problem, columns.norm_above(weights));
        let [error, norm, scaled, largest, two] = [
            self.dual.distance_within(n_sums),
            norm_above(image),
            columns.norm_above(image),
            columns.largest(),
            2.0,
        ]
        .map(Bounded::exact);
        let farthest = largest * error;
        let square = norm * norm + two * scaled * error + farthest * farthest;
        // The root is rounded up by much more than products that underflow could change it.
        let norm = root_above(square.upper());
        let (dual, scale) = self.dual.value(lambda, norm).bound_along();
        (Certificate { primal: objective(lambda, weights, loss), dual }, scale)
    }

    /// The certificate at w = w₀ + v with v = w(β), where w and w₀ are stored class by class. The objective is λ/2 ‖v‖²
    /// plus the loss at w, and the dual value is D(β) − λ ⟨w₀, v⟩.
    pub fn certificate_around(
        &self,
        problem: &MarginProblem<'_>,
        lambda: f64,
        weights: &[f64],
        origin: &[f64],
    ) -> Certificate {
        let loss = self.losses.total(problem, norm_above(weights));
        let image: Vec<f64> = weights.iter().zip(origin).map(|(w, origin)| w - origin).collect();
        let (around, depth) = (norm_above(origin), gamma(self.dual.depth()));
        // The sum starts at w₀, so its rounding errors are also relative to the size of w₀.
        let lost = depth * (around + norm_above(weights));
        let norm = norm_above(&image) + lost;
        let primal = Bounded::exact(0.5 * lambda) * Bounded::exact(norm) * Bounded::exact(norm);
        let distance = self.distance() + lost;
        let inner = dot_in_order(&image, origin);
        let error = around * (distance + gamma(image.len() + 2) * norm);
        let inner = Bounded::new(inner, error) * Bounded::exact(lambda);
        let dual = self.dual.value(lambda, norm + distance).bound();
        let primal = (primal + loss).upper();
        Certificate { primal, dual: (Bounded::exact(dual) - inner).lower() }
    }

    /// A bound on the distance of w(β) from its computed image.
    pub fn distance(&self) -> f64 {
        self.dual.distance()
    }

    /// The contribution of the dual points to the dual, without the regulariser, rounded down.
    pub fn dual_terms(&self) -> f64 {
        self.dual.linear()
    }
}

impl Losses {
    fn join(&mut self, other: &Self) {
        self.sum.join(&other.sum);
        self.size += other.size;
        self.n_losses += other.n_losses;
        let (sizes, more) = (&mut self.sizes, &other.sizes);
        sizes.share += more.share;
        sizes.cost += more.cost;
        sizes.feature += more.feature;
        sizes.rounded += more.rounded;
        sizes.n_products = sizes.n_products.max(more.n_products);
    }

    /// The sum of the losses, computed from weights with a norm of at most `norm`.
    fn total(&self, problem: &MarginProblem<'_>, norm: f64) -> Bounded {
        // Turns a computed sum of non-negative products into an upper bound. Products may have been rounded or
        // underflown, and sums rounded.
        let (grown, underflown) = (1.0 + gamma(self.n_losses + 8), self.n_losses as f64 * TINY);
        let above = |sum: f64| (sum + underflown) * grown;
        let sizes = LossSizes {
            share: above(self.sizes.share),
            cost: above(self.sizes.cost),
            feature: above(self.sizes.feature),
            rounded: above(self.sizes.rounded),
            ..self.sizes
        };
        let mut sum = self.sum;
        sum.widen(problem.losses_error(&sizes, norm, f64::EPSILON));
        sum.widen(gamma(1) * above(self.size) + underflown);
        sum.total()
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::data::{Data, Dense};
    use crate::interrupt::Interrupt;
    use crate::multiclass::{Linear, Order};
    use crate::polytope::{MaxHinge, Polytope, TopK};

    #[test]
    fn joint_and_separate_error_bounds_are_equal() {
        let (n, m, d) = (90, 4, 3);
        let value = |row: usize, column: usize| ((7 * row + 3 * column) % 11) as f64 - 4.3;
        let x = Array2::from_shape_fn((n, d), |(row, column)| value(row, column));
        let labels: Vec<u32> = (0..n).map(|row| (row % m) as u32).collect();
        let sets: [Box<dyn Polytope>; 2] = [Box::new(MaxHinge), Box::new(TopK::new(2).unwrap())];
        for (set, smoothing) in sets.into_iter().zip([0.0, 0.3]) {
            let data = Data::Dense64(Dense::new(x.view()).unwrap());
            let map = Linear::new(data, m, 0.7, Order::Examples);
            let shares = Shares::new(n, 0.1).unwrap().with_smoothing(smoothing).unwrap();
            let shares = shares
                .with_sample_weights(&(0..n).map(|row| (row % 3) as f64).collect::<Vec<_>>())
                .unwrap();
            let mut problem = MarginProblem::new(map, &labels, set, shares).unwrap();
            let weights: Vec<f64> =
                (0..problem.map().n_weights()).map(|at| 0.3 * (at % 5) as f64 - 0.5).collect();
            let interrupt = Interrupt::default();
            let one_by_one = problem.mean_loss(&weights, &interrupt).unwrap();
            let losses = problem
                .for_margins(&weights, &interrupt, |example, margins, work, problem| {
                    problem.loss(example, margins, work)
                })
                .unwrap();
            let mut parts = [Bounds::default(); 2];
            for (example, loss) in losses.iter().enumerate() {
                parts[example / 64].add_loss(&problem, example, *loss);
            }
            let mut all = Bounds::default();
            parts.iter().for_each(|part| all.join(part));
            let total = all.losses.total(&problem, norm_above(&weights));
            assert!((total.value() - one_by_one.value()).abs() <= 1e-15 * total.value());
            let width = |bounds: Bounded| bounds.upper() - bounds.lower();
            let ratio = width(total) / width(one_by_one);
            assert!((0.98..1.02).contains(&ratio), "{ratio}");
        }
    }
}
