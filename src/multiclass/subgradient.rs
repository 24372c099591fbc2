//! Projected stochastic subgradient (Pegasos), the baseline of the paper's comparison.

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::squared_norm;
use crate::multiclass::{Problem, Workspace};
use crate::run::{Certificate, Progress, Solver};

/// w ← (1 − 1/t) w + (1/t) w(u) over randomly permuted examples, u a subgradient of the example's loss,
/// then the projection on the ball ‖w‖² ≤ P(0)/λ that holds the optimum (SPEC 10.3).
///
/// With the step 1/(λt) every subgradient seen has the same weight, and the ball only shrinks them; so
/// after whole epochs w = w(α) for a feasible α, and the dual objective comes along for nothing.
pub struct Subgradient<'p, 'a> {
    problem: &'p mut Problem<'a>,
    random: Pcg64Mcg,
    order: Vec<usize>,
    model: Scaled,
    largest_squared_norm: f64,
    steps: f64,
    /// Σ p_i ⟨Δ_i, β_i⟩ of the dual point.
    linear: f64,
    /// An upper bound on Σ p_i ‖α_i‖² (Jensen), since α is not kept.
    square: f64,
    best_dual: f64,
    margins: Vec<f64>,
    work: Workspace,
}

/// w = scale · weights, so that shrinking costs one multiplication.
struct Scaled {
    weights: Vec<f64>,
    scale: f64,
    /// ‖w‖².
    squared_norm: f64,
}

impl Scaled {
    /// w ← factor · w.
    fn shrink(&mut self, factor: f64) {
        self.scale *= factor;
        self.squared_norm *= factor * factor;
        if self.scale < 1e-100 {
            self.flatten();
        }
    }

    /// Multiplies the scale into the weights.
    fn flatten(&mut self) {
        let scale = std::mem::replace(&mut self.scale, 1.0);
        self.weights.iter_mut().for_each(|weight| *weight *= scale);
    }
}

impl<'p, 'a> Subgradient<'p, 'a> {
    /// Starts at 0. The problem's weights are in the order for examples.
    pub fn new(problem: &'p mut Problem<'a>, seed: u64) -> Self {
        let smoothing = std::mem::replace(&mut problem.smoothing, 0.0);
        let largest_squared_norm = problem.null_objective() / problem.lambda;
        problem.smoothing = smoothing;
        Self {
            random: Pcg64Mcg::new(u128::from(seed)),
            order: (0..problem.n_examples()).collect(),
            model: Scaled {
                weights: vec![0.0; problem.features.layout().len()],
                scale: 1.0,
                squared_norm: 0.0,
            },
            largest_squared_norm,
            steps: 0.0,
            linear: 0.0,
            square: 0.0,
            best_dual: 0.0,
            margins: vec![0.0; problem.n_classes()],
            work: Workspace::default(),
            problem,
        }
    }

    /// w.
    pub fn weights(&self) -> &[f64] {
        &self.model.weights
    }

    fn step(&mut self, example: usize) {
        let (problem, model): (&Problem<'_>, _) = (self.problem, &mut self.model);
        self.steps += 1.0;
        let rate = 1.0 / self.steps;
        let share = problem.importance(example) * self.order.len() as f64;
        self.work.vertex.clear();
        if share > 0.0 {
            problem.features.example_scores(example, &model.weights, &mut self.margins);
            self.margins.iter_mut().for_each(|score| *score *= model.scale);
            problem.margins(example, &mut self.margins);
            problem.subgradient(example, &self.margins, &mut self.work);
        }
        let subgradient = &self.work.vertex;
        self.linear += rate * (share * problem.linear_term(example, subgradient) - self.linear);
        let (mut square, mut sum, mut along) = (0.0, 0.0, 0.0);
        for &(class, weight) in subgradient {
            square += weight * weight;
            sum += weight;
            // ⟨A_i w, α⟩ = Σ β_j (s_y − s_j), read off the margins.
            along +=
                weight * (problem.cost(example, class as usize) - self.margins[class as usize]);
        }
        square += sum * sum;
        self.square += rate * (share * square - self.square);
        model.shrink(1.0 - rate);
        let push = rate * share / problem.lambda;
        model.squared_norm += 2.0 * push * (1.0 - rate) * along
            + push * push * square * problem.features.squared_norm(example);
        let image: Vec<_> = problem.dual(example, subgradient, push / model.scale).collect();
        problem.features.add_image(example, &image, &mut model.weights);
        if model.squared_norm > self.largest_squared_norm {
            let factor = (self.largest_squared_norm / model.squared_norm).sqrt();
            model.shrink(factor);
            // α shrinks with w: the set holds 0, so it stays feasible.
            self.linear *= factor;
            self.square *= factor * factor;
        }
    }
}

impl Solver for Subgradient<'_, '_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let mut order = self.order.clone();
        order.shuffle(&mut self.random);
        for example in order {
            interrupt.check()?;
            self.step(example);
        }
        Ok(Progress::Epoch(self.certify(interrupt)?))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.model.flatten();
        self.model.squared_norm = squared_norm(&self.model.weights);
        let loss = self.problem.mean_loss(&self.model.weights, interrupt)?;
        let regularizer = 0.5 * self.problem.lambda * self.model.squared_norm;
        let dual = self.linear - regularizer - 0.5 * self.problem.smoothing * self.square;
        self.best_dual = self.best_dual.max(dual);
        Ok(Certificate { primal: regularizer + loss, dual: self.best_dual })
    }
}
