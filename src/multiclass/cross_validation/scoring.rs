//! Scores of predictions, and bounds on the scores of the optimum
//! (`docs/mathematics/cross-validation.md`).

use std::cell::OnceCell;

use super::directional_bounds::{DirectionalBounds, RowProducts};
use crate::dual::rounding::{TINY, gamma, norm_above, root_above};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::multiclass::{MarginProblem, ScoreMap};
use crate::run::Certificate;

/// A metric of predictions on held-out rows; larger is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The share of rows that are classified correctly.
    Accuracy,
    /// The share of a class's rows that are classified correctly, averaged over the classes.
    BalancedAccuracy,
    /// The share of rows whose true class has one of the k largest scores.
    TopK(usize),
    /// Minus the mean cost of the predicted classes.
    Cost,
}

/// The score of a model, and bounds on the optimal model's score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bracket {
    /// The score of the fitted model, or of the weights of its dual point if their bounds are narrower.
    pub score: f64,
    /// A lower bound on the optimal model's score.
    pub lower: f64,
    /// An upper bound on the optimal model's score.
    pub upper: f64,
    /// Number of rows for which the optimal model may predict another class.
    pub n_undecided: usize,
}

impl Bracket {
    /// The distance between the bounds.
    pub fn width(&self) -> f64 {
        self.upper - self.lower
    }
}

/// An upper bound on ‖w − w*‖ for weights within `distance` of the weights w(β) of a dual point,
/// from their certificate: λ/2 ‖w − w*‖² + λ/2 ‖w(β) − w*‖² ≤ P(w) − D(β).
pub fn radius(certificate: &Certificate, lambda: f64, distance: f64) -> f64 {
    root_above((gap_above(certificate) / lambda * (1.0 + gamma(2))).next_up()) + distance
}

/// An upper bound on ‖w − w*‖ for any weights, from their certificate: λ/2 ‖w − w*‖² ≤ P(w) − D(β).
pub fn radius_of_any(certificate: &Certificate, lambda: f64) -> f64 {
    root_above((2.0 * gap_above(certificate) / lambda * (1.0 + gamma(2))).next_up())
}

/// The gap of a certificate, rounded up.
pub fn gap_above(certificate: &Certificate) -> f64 {
    (certificate.gap() * (1.0 + gamma(2))).next_up()
}

/// A ball that contains the optimal weights, with optional directional bounds.
#[derive(Clone, Copy)]
pub struct Ball<'w> {
    /// The centre, in the order of the map's layout.
    weights: &'w [f64],
    /// An upper bound on the norm of the centre.
    norm: f64,
    radius: f64,
    bounds: Option<&'w DirectionalBounds>,
}

impl<'w> Ball<'w> {
    /// Creates the ball around weights in the order of the map's layout.
    pub fn new(weights: &'w [f64], radius: f64) -> Self {
        Self { weights, norm: norm_above(weights), radius, bounds: None }
    }

    /// Adds the directional bounds of a dual point.
    pub(super) fn with_bounds(self, bounds: &'w DirectionalBounds) -> Self {
        Self { bounds: Some(bounds), ..self }
    }

    /// Bounds on the changes of an example's score differences.
    fn change<'d>(
        &'d self,
        problem: &'d MarginProblem<'d>,
        example: usize,
        interrupt: &'d Interrupt,
    ) -> ScoreChange<'d> {
        let size = problem.map().row_size(example);
        let wide = std::f64::consts::SQRT_2 * size.norm * (1.0 + gamma(8));
        let tiny = 4.0 * (size.n_values + 2) as f64 * TINY;
        let rounding = wide * gamma(size.n_values + 4) * self.norm + tiny;
        let reach = (wide * self.radius + rounding) * (1.0 + gamma(2));
        let query = OnceCell::new();
        let bounds =
            self.bounds.map(|bounds| RowQuery { bounds, problem, example, query, interrupt });
        ScoreChange { reach, rounding, bounds }
    }
}

/// Bounds on how much the difference between two scores of an example can change when the optimal
/// weights replace the current weights.
struct ScoreChange<'w> {
    /// The bound from the ball, including rounding errors:
    /// |⟨(e_j − e_k) x̃ᵀ, W − W*⟩| ≤ √2 ‖x̃‖ ‖W − W*‖.
    reach: f64,
    /// A bound on the rounding errors.
    rounding: f64,
    bounds: Option<RowQuery<'w>>,
}

/// Directional bounds for one example.
struct RowQuery<'w> {
    bounds: &'w DirectionalBounds,
    problem: &'w MarginProblem<'w>,
    example: usize,
    /// Computed only if the ball cannot rule out a class.
    query: OnceCell<RowProducts>,
    interrupt: &'w Interrupt,
}

impl RowQuery<'_> {
    /// An upper bound on the increase of the score of class `to` relative to the score of `from`;
    /// infinite after an interrupt.
    fn rise(&self, from: usize, to: usize) -> f64 {
        if self.interrupt.is_raised() {
            return f64::INFINITY;
        }
        let query = self.query.get_or_init(|| self.bounds.row_products(self.problem, self.example));
        self.bounds.rise(query, from as u32, to as u32)
    }
}

impl ScoreChange<'_> {
    /// Whether, at the optimum, the score of class `to` may reach the score of class `from`, which is not smaller at
    /// the current weights.
    fn may_overtake(&self, scores: &[f64], from: usize, to: usize) -> bool {
        let lead = scores[from] - scores[to];
        let rise =
            |bounds: &RowQuery<'_>| (bounds.rise(from, to) + self.rounding) * (1.0 + gamma(2));
        lead <= self.reach && self.bounds.as_ref().is_none_or(|bounds| lead <= rise(bounds))
    }
}

/// A row's contribution to the score of this model, and bounds on its contribution at the optimum.
#[derive(Debug, Clone, Copy, Default)]
struct Gain {
    own: f64,
    lower: f64,
    upper: f64,
    undecided: bool,
}

impl Measure {
    /// The score of the ball's centre on some rows, with bounds on the optimal model's score.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no row, and [`Error::Interrupted`].
    pub fn bracket(
        self,
        problem: &MarginProblem<'_>,
        ball: &Ball<'_>,
        rows: &[u32],
        interrupt: &Interrupt,
    ) -> Result<Bracket> {
        if rows.is_empty() {
            return Err(Error::argument("cv", "a fold has no row to score"));
        }
        let mut scores = vec![0.0; problem.n_classes()];
        let (mut sums, mut n_undecided) = (ScoreSums::new(self, problem.n_classes()), 0);
        for &row in rows {
            let example = row as usize;
            problem.map().example_scores(example, ball.weights, &mut scores);
            let change = ball.change(problem, example, interrupt);
            let gain = self.gain(problem, example, &scores, &change);
            n_undecided += usize::from(gain.undecided);
            sums.add(problem.label(example), gain);
            // Checked after the row, because bounds are infinite after an interrupt.
            interrupt.check()?;
        }
        let [score, lower, upper] = sums.means();
        Ok(Bracket { score, lower, upper, n_undecided })
    }

    fn gain(
        self,
        problem: &MarginProblem<'_>,
        example: usize,
        scores: &[f64],
        change: &ScoreChange<'_>,
    ) -> Gain {
        let label = problem.label(example);
        let best = argmax(scores);
        let others = (0..scores.len()).filter(|class| *class != best);
        if let Self::TopK(k) = self {
            let undecided =
                others.into_iter().any(|class| change.may_overtake(scores, best, class));
            return top_k(k, label, scores, change, undecided);
        }
        let value = |class: usize| match (self, problem.cost_row(example)) {
            (Self::Cost, Some(costs)) => -costs[class],
            (Self::Cost, None) => -f64::from(class != label),
            _ => f64::from(class == label),
        };
        let own = value(best);
        let mut gain = Gain { own, lower: own, upper: own, undecided: false };
        for class in others {
            let value = value(class);
            let counts = !gain.undecided || value < gain.lower || value > gain.upper;
            // The optimal model may predict any class whose score may reach the largest score.
            if counts && change.may_overtake(scores, best, class) {
                gain.undecided = true;
                (gain.lower, gain.upper) = (gain.lower.min(value), gain.upper.max(value));
            }
        }
        gain
    }
}

/// A row's contribution to the top-k score: whether its label is among the k highest-scoring classes. Ties go to the
/// first class.
fn top_k(
    k: usize,
    label: usize,
    scores: &[f64],
    change: &ScoreChange<'_>,
    undecided: bool,
) -> Gain {
    let (mut above, mut surely, mut possibly) = (0, 0, 0);
    for (class, score) in scores.iter().enumerate().filter(|(class, _)| *class != label) {
        let lead = score - scores[label];
        above += usize::from(lead > 0.0 || lead == 0.0 && class < label);
        surely += usize::from(lead > 0.0 && !change.may_overtake(scores, class, label));
        possibly += usize::from(lead > 0.0 || change.may_overtake(scores, label, class));
    }
    let within = |n_above: usize| f64::from(n_above < k);
    Gain { own: within(above), lower: within(possibly), upper: within(surely), undecided }
}

/// The class with the largest score. Ties go to the first class.
fn argmax(scores: &[f64]) -> usize {
    let best = |best: usize, class: usize| if scores[class] > scores[best] { class } else { best };
    (1..scores.len()).fold(0, best)
}

/// Sums of gains, separate for each label if all labels have equal weight.
struct ScoreSums {
    per_label: bool,
    sums: Vec<[f64; 3]>,
    counts: Vec<usize>,
}

impl ScoreSums {
    fn new(measure: Measure, n_classes: usize) -> Self {
        let per_label = measure == Measure::BalancedAccuracy;
        let n_sums = if per_label { n_classes } else { 1 };
        Self { per_label, sums: vec![[0.0; 3]; n_sums], counts: vec![0; n_sums] }
    }

    fn add(&mut self, label: usize, gain: Gain) {
        let slot = if self.per_label { label } else { 0 };
        self.counts[slot] += 1;
        let values = [gain.own, gain.lower, gain.upper];
        self.sums[slot].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }

    fn means(&self) -> [f64; 3] {
        let n_present = self.counts.iter().filter(|count| **count > 0).count();
        let mut means = [0.0; 3];
        for (sums, count) in self.sums.iter().zip(&self.counts).filter(|(_, count)| **count > 0) {
            means.iter_mut().zip(sums).for_each(|(mean, sum)| *mean += sum / *count as f64);
        }
        means.map(|mean| mean / n_present as f64)
    }
}
