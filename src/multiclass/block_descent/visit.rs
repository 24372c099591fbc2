//! The numbers of one visit to an example's candidate classes.

use super::candidates::Candidates;
use super::dual_block::DualBlock;
use crate::linalg::Element;
use crate::multiclass::MarginProblem;
use crate::polytope::Capped;

/// Numbers of a visit, one for each candidate of the example; class and score of the label come last.
///
/// Room for all classes, of which a visit uses the first few: vectors that grow and shrink with each visit would
/// be read just after their lengths were written, in other pieces than they were written in, and wait for it.
#[derive(Debug)]
pub(super) struct Buffers<T> {
    pub classes: Vec<u32>,
    pub scores: Vec<T>,
    pub change: Vec<T>,
    pub margins: Vec<f64>,
    pub target: Vec<f64>,
    pub projection: Vec<f64>,
}

/// A block's set as a visit needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisitBounds {
    /// The sum of β from which it cannot rise further.
    pub tight: f64,
    /// The slope below which β_j = 0 cannot rise where it can.
    pub lowest: f64,
    /// The simplex of the max hinge, whose projections are short enough to be worth no call.
    pub simplex: Option<Capped>,
}

impl VisitBounds {
    /// The slope below which β_j = 0 cannot rise, whatever those with β_j > 0 have: with a sum that is fixed,
    /// classes compete with each other alone, and in a box with 0 as well. Other sets may need a class for the
    /// sake of others.
    #[inline(always)]
    pub fn lowest_slope(&self, sum: f64) -> f64 {
        if sum >= self.tight { f64::INFINITY } else { self.lowest }
    }
}

impl<T: Element> Buffers<T> {
    /// Room for so many classes.
    pub fn new(n_classes: usize) -> Self {
        let n = n_classes + 1;
        Self {
            classes: vec![0; n],
            scores: vec![T::zero(); n],
            change: vec![T::zero(); n],
            margins: vec![0.0; n],
            target: vec![0.0; n],
            projection: vec![0.0; n],
        }
    }

    /// Turns the scores of an example's candidates into slopes v_j − γ(β_j + 1ᵀβ) and drops the candidates that
    /// cannot gain: β_j = 0 and a slope below that of `bounds` and of all classes with β_j > 0. Returns the
    /// number of those that are left, or nothing where none of them can move.
    #[inline(always)]
    pub fn shrink(
        &mut self,
        problem: &MarginProblem<'_>,
        dual: &DualBlock,
        betas: &mut Candidates<T>,
        at: usize,
        bounds: VisitBounds,
    ) -> Option<usize> {
        let (example, smoothing) = (dual.example as usize, problem.shares().smoothing());
        let (classes, values, averages) = betas.row_with_average(at);
        let n = classes.len();
        let lowest = bounds.lowest_slope(dual.sum);
        let (mut low, base) = (lowest, -self.scores[n].widen() - smoothing * dual.sum);
        let costs = problem.cost_row(example);
        let margins = &mut self.margins[..n];
        for (((margin, class), value), score) in
            margins.iter_mut().zip(&*classes).zip(&*values).zip(&self.scores)
        {
            let cost = costs.map_or(1.0, |costs| costs[*class as usize]);
            let beta = value.widen();
            *margin = cost + (score.widen() + base) - smoothing * beta;
            if beta > 0.0 && *margin < low {
                low = *margin;
            }
        }
        let (mut count, mut place) = (n, 0);
        while place < count {
            if values[place] == T::zero() && margins[place] < low {
                count -= 1;
                classes.swap(place, count);
                values.swap(place, count);
                averages.swap(place, count);
                margins[place] = margins[count];
            } else {
                place += 1;
            }
        }
        let alone =
            count == 1 && lowest == f64::INFINITY && values[0] > T::zero() && margins[0] >= 0.0;
        if count < n {
            self.classes[..count].copy_from_slice(&classes[..count]);
            self.classes[count] = problem.label(example) as u32;
            betas.truncate(at, count);
        }
        (count > 0 && !alone).then_some(count)
    }

    /// u = (v + C_i A_i (β + 1ᵀβ)) / h for the candidates, the label's own coordinate last.
    #[inline(always)]
    pub fn aim(&mut self, steepness: f64, sum: f64, values: &[T]) {
        let scale = steepness.recip();
        // The slopes hold −γ(β + 1ᵀβ) already, so that h rather than C_i A_i brings the point back.
        let slopes = self.margins.iter().zip(values);
        for (target, (slope, beta)) in self.target.iter_mut().zip(slopes) {
            *target = slope * scale + (beta.widen() + sum);
        }
        self.target[values.len()] = 0.0;
    }

    /// Replaces β by the projection and writes the change of the weights' coefficients. Returns by how
    /// much the dual rises, or nothing where β stays as it is.
    #[inline(always)]
    pub fn replace(
        &mut self,
        steepness: f64,
        dual: &mut DualBlock,
        values: &mut [T],
    ) -> Option<f64> {
        let (mut moved, mut total, mut sum) = (0.0, 0.0, 0.0);
        let (mut along, mut squares) = (0.0, 0.0);
        let numbers = self.projection.iter().zip(&self.margins).zip(&mut self.change);
        for (value, ((new, slope), step)) in values.iter_mut().zip(numbers) {
            let new = T::narrow(*new);
            let change = new.widen() - value.widen();
            *value = new;
            moved += change.abs();
            total += change;
            sum += new.widen();
            along += change * slope;
            squares += change * change;
            *step = T::narrow(-dual.weight * change);
        }
        if moved == 0.0 {
            return None;
        }
        dual.sum = sum;
        self.change[values.len()] = T::narrow(dual.weight * total);
        Some(dual.weight * (along - 0.5 * steepness * (squares + total * total)))
    }
}
