//! Block Frank-Wolfe (BCFW): the same dual, one example at a time (SPEC 10.3, 15).

use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::{DualPoint, Start, squared_norm};
use crate::error::Result;
use crate::problem::{Problem, Workspace};
use crate::run::{Certificate, Interrupt, Progress, Solver};

/// Frank-Wolfe on one example's dual block at a time, in random order, with closed-form line search.
///
/// The dual blocks are kept as sparse combinations of the vertices found so far.
pub struct BlockFrankWolfe<'p, 'a> {
    problem: &'p mut Problem<'a>,
    random: Pcg64Mcg,
    order: Vec<usize>,
    weights: Vec<f64>,
    /// β_i as (class, weight) pairs by increasing class.
    duals: Vec<Vec<(usize, f64)>>,
    margins: Vec<f64>,
    work: Workspace,
    difference: Vec<(usize, f64)>,
}

impl<'p, 'a> BlockFrankWolfe<'p, 'a> {
    /// Starts at the dual point 0 unless told otherwise. The problem's weights are in the order for
    /// examples.
    pub fn new(problem: &'p mut Problem<'a>, seed: u64, start: Option<DualPoint>) -> Self {
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let sparse = |row: &[f64]| {
            row.iter().copied().enumerate().filter(|(_, weight)| *weight != 0.0).collect()
        };
        let (weights, duals) = match start {
            Some(start) => (start.at.weights, start.beta.chunks_exact(m).map(sparse).collect()),
            None => (vec![0.0; problem.features.layout().len()], vec![Vec::new(); n]),
        };
        Self {
            random: Pcg64Mcg::new(u128::from(seed)),
            order: (0..n).collect(),
            weights,
            duals,
            margins: vec![0.0; m],
            work: Workspace::default(),
            difference: Vec::new(),
            problem,
        }
    }

    /// w(α).
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Where the run stands, with β if that is wanted.
    pub fn into_dual(self, keep_dual: bool) -> DualPoint {
        let (linear, square) = self.dual_terms();
        let m = self.margins.len();
        let mut beta = vec![0.0; if keep_dual { self.duals.len() * m } else { 0 }];
        for (row, dual) in beta.chunks_exact_mut(m).zip(&self.duals) {
            dual.iter().for_each(|&(class, weight)| row[class] = weight);
        }
        DualPoint { at: Start { weights: self.weights, linear, square }, beta }
    }

    /// Σ p_i ⟨Δ_i, β_i⟩ and Σ p_i ‖α_i‖².
    fn dual_terms(&self) -> (f64, f64) {
        let terms = self.duals.iter().enumerate().map(|(example, beta)| {
            let share = self.problem.importance(example);
            (share * self.problem.linear_term(example, beta), share * lifted_norm(beta))
        });
        terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
    }

    /// The best step from β_i towards the vertex its margins point to.
    fn step(&mut self, example: usize) {
        let problem: &Problem<'_> = self.problem;
        let share = problem.importance(example);
        if share == 0.0 {
            return;
        }
        let (lambda, smoothing) = (problem.lambda, problem.smoothing);
        problem.features.example_scores(example, &self.weights, &mut self.margins);
        problem.margins(example, &mut self.margins);
        let beta = &mut self.duals[example];
        shift(&mut self.margins, beta, problem.label(example), smoothing);
        problem.vertex(example, &self.margins, &mut self.work);
        subtract(&self.work.vertex, beta, &mut self.difference);
        let slope: f64 =
            self.difference.iter().map(|&(class, value)| value * self.margins[class]).sum();
        if slope <= 0.0 {
            return;
        }
        let squared_norm = lifted_norm(&self.difference);
        let curvature =
            (share / lambda * problem.features.squared_norm(example) + smoothing) * squared_norm;
        let step = if curvature > 0.0 { (slope / curvature).min(1.0) } else { 1.0 };
        self.difference.iter_mut().for_each(|(_, value)| *value *= step);
        let image: Vec<_> = problem.dual(example, &self.difference, share / lambda).collect();
        problem.features.add_image(example, &image, &mut self.weights);
        add(beta, &self.difference);
    }
}

impl Solver for BlockFrankWolfe<'_, '_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        let mut order = std::mem::take(&mut self.order);
        order.shuffle(&mut self.random);
        for example in &order {
            interrupt.check()?;
            self.step(*example);
        }
        self.order = order;
        Ok(Progress::Epoch(self.certify(interrupt)?))
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        let loss = self.problem.mean_loss(&self.weights, interrupt)?;
        let regularizer = 0.5 * self.problem.lambda * squared_norm(&self.weights);
        let (linear, square) = self.dual_terms();
        let dual = linear - regularizer - 0.5 * self.problem.smoothing * square;
        Ok(Certificate { primal: regularizer + loss, dual })
    }
}

/// v − γ(β + 1ᵀβ) off the label (SPEC 10.3), for a sparse β.
fn shift(margins: &mut [f64], beta: &[(usize, f64)], label: usize, smoothing: f64) {
    if smoothing == 0.0 || beta.is_empty() {
        return;
    }
    let sum: f64 = beta.iter().map(|(_, weight)| weight).sum();
    margins.iter_mut().for_each(|margin| *margin -= smoothing * sum);
    for &(class, weight) in beta {
        margins[class] -= smoothing * weight;
    }
    margins[label] = 0.0;
}

/// ‖α‖² = ‖β‖² + (1ᵀβ)².
fn lifted_norm(beta: &[(usize, f64)]) -> f64 {
    let (square, sum) = beta
        .iter()
        .fold((0.0, 0.0), |(square, sum), (_, weight)| (square + weight * weight, sum + weight));
    square + sum * sum
}

/// a − b as pairs by increasing class, without zeros.
fn subtract(a: &[(usize, f64)], b: &[(usize, f64)], difference: &mut Vec<(usize, f64)>) {
    difference.clear();
    difference.extend(a);
    difference.extend(b.iter().map(|&(class, weight)| (class, -weight)));
    difference.sort_unstable_by_key(|&(class, _)| class);
    difference.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        kept.1 += if same { later.1 } else { 0.0 };
        same
    });
    difference.retain(|(_, value)| *value != 0.0);
}

/// β += difference; what is left at 0 goes.
fn add(beta: &mut Vec<(usize, f64)>, difference: &[(usize, f64)]) {
    for &(class, value) in difference {
        match beta.binary_search_by_key(&class, |&(class, _)| class) {
            Ok(found) => beta[found].1 += value,
            Err(place) => beta.insert(place, (class, value)),
        }
    }
    // A full step takes the old vertex's entries to 0, up to rounding.
    beta.retain(|(_, weight)| *weight > 1e-15);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_vectors_subtract_and_add() {
        let (a, b) = ([(0, 1.0), (2, 0.5), (3, 1.0)], [(1, 0.25), (2, 0.5), (4, 1.0)]);
        let mut difference = Vec::new();
        subtract(&a, &b, &mut difference);
        assert_eq!(difference, [(0, 1.0), (1, -0.25), (3, 1.0), (4, -1.0)]);
        let mut sum = b.to_vec();
        add(&mut sum, &difference);
        assert_eq!(sum, a);
        assert_eq!(lifted_norm(&b), 0.0625 + 0.25 + 1.0 + 1.75 * 1.75);
    }
}
