//! The numbers of one visit to an example's candidate classes.

use super::candidates::Candidates;
use super::dual_block::DualBlock;
use crate::data::Real;
use crate::multiclass::MarginProblem;

/// Numbers of a visit, one for each candidate of the example; class and score of the label come last.
#[derive(Debug)]
pub(super) struct Buffers<T> {
    pub classes: Vec<u32>,
    /// The numbers that the visit reads.
    pub n_numbers: usize,
    pub scores: Vec<T>,
    pub change: Vec<T>,
    pub margins: Vec<f64>,
    pub target: Vec<f64>,
    pub projection: Vec<f64>,
}

impl<T> Default for Buffers<T> {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            n_numbers: 0,
            scores: Vec::new(),
            change: Vec::new(),
            margins: Vec::new(),
            target: Vec::new(),
            projection: Vec::new(),
        }
    }
}

impl<T: Real> Buffers<T> {
    /// Turns scores into slopes v_j − γ(β_j + 1ᵀβ) and drops the candidates that cannot gain: β_j = 0 and a
    /// slope below `low` and all of those with β_j > 0. Returns whether anything can move.
    pub fn shrink(
        &mut self,
        problem: &MarginProblem<'_>,
        dual: &DualBlock,
        betas: &mut Candidates<T>,
        at: usize,
        low: f64,
    ) -> bool {
        let (example, smoothing) = (dual.example as usize, problem.shares().smoothing());
        let (classes, values) = betas.row_mut(at);
        let mut count = classes.len();
        let own = self.scores[count].widen();
        self.margins.clear();
        let (mut low, tight) = (low, low == f64::INFINITY);
        let costs = problem.cost_row(example);
        for ((class, value), score) in classes.iter().zip(&*values).zip(&self.scores) {
            let cost = costs.map_or(1.0, |costs| costs[*class as usize]);
            let beta = value.widen();
            let margin = cost + score.widen() - own - smoothing * (beta + dual.sum);
            if beta > 0.0 {
                low = low.min(margin);
            }
            self.margins.push(margin);
        }
        let mut place = 0;
        while place < count {
            if values[place] == T::zero() && self.margins[place] < low {
                count -= 1;
                classes.swap(place, count);
                values.swap(place, count);
                self.margins.swap_remove(place);
            } else {
                place += 1;
            }
        }
        self.classes.clear();
        self.classes.extend_from_slice(&classes[..count]);
        let alone = count == 1 && tight && values[0] > T::zero() && self.margins[0] >= 0.0;
        betas.truncate(at, count);
        self.classes.push(problem.label(example) as u32);
        count > 0 && !alone
    }

    /// u = (v + C_i A_i (β + 1ᵀβ)) / h for the candidates, the label's own coordinate last.
    pub fn aim(&mut self, problem: &MarginProblem<'_>, dual: &DualBlock, values: &[T]) {
        let steepness = dual.curvature + problem.shares().smoothing();
        self.target.clear();
        // The slopes hold −γ(β + 1ᵀβ) already, so that h rather than C_i A_i brings the point back.
        let target = |(slope, beta): (&f64, &T)| slope / steepness + beta.widen() + dual.sum;
        self.target.extend(self.margins.iter().zip(values).map(target));
        self.target.push(0.0);
        self.projection.resize(self.target.len(), 0.0);
    }

    /// Replaces β by the projection and writes the change of the weights' coefficients. Returns by how
    /// much the dual rises, or nothing where β stays as it is.
    pub fn replace(
        &mut self,
        problem: &MarginProblem<'_>,
        dual: &mut DualBlock,
        betas: &mut Candidates<T>,
        at: usize,
    ) -> Option<f64> {
        let (mut moved, mut total, mut sum) = (0.0, 0.0, 0.0);
        let (mut along, mut squares) = (0.0, 0.0);
        self.change.clear();
        let values = betas.row_mut(at).1;
        for ((value, new), slope) in values.iter_mut().zip(&self.projection).zip(&self.margins) {
            let new = T::narrow(*new);
            let change = new.widen() - value.widen();
            *value = new;
            moved += change.abs();
            total += change;
            sum += new.widen();
            along += change * slope;
            squares += change * change;
            self.change.push(T::narrow(-dual.weight * change));
        }
        if moved == 0.0 {
            return None;
        }
        dual.sum = sum;
        self.change.push(T::narrow(dual.weight * total));
        let steepness = dual.curvature + problem.shares().smoothing();
        Some(dual.weight * (along - 0.5 * steepness * (squares + total * total)))
    }
}
