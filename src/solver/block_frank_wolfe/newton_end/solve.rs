//! Solves the restricted problem by a proximal point method on its dual, with Newton steps on each
//! inner problem.

use super::problem::{Plane, PlaneBlock, Restricted};
use super::system::hessian;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::cholesky::Factor;
use crate::linalg::vectors::long_dot;
use crate::linalg::{Sparse, squared_norm};
use crate::polytope::Capped;
use crate::solver::newton::{
    FIRST_WIDTH, NARROWER, SHORT_STEP, SMALLEST_WIDTH, SOLVED_SHARE, WIDER, zero_of_derivative,
};

/// The maximum number of Newton steps for one restricted problem.
const MAX_STEPS: usize = 100;

/// Scores, dual points and residual of the inner problem at given weights.
struct Evaluation {
    /// l_ik − ⟨w, z_ik⟩, block by block.
    scores: Vec<f64>,
    /// The points of the blocks' simplices that maximise the inner problem.
    points: Vec<f64>,
    /// w − w(points), the gradient of the inner problem.
    residual: Vec<f64>,
    primal: f64,
    dual: f64,
}

impl Restricted {
    /// Solves the problem to a duality gap of `goal` (in units of the original objective, divided by λ), or as closely
    /// as rounding allows, starting from `weights` and the weights of the planes. Overwrites these weights with the
    /// best values found.
    pub fn solve(
        &mut self,
        weights: &mut Vec<f64>,
        goal: f64,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let unit = self.unit_width();
        let (mut width, mut centre) = (FIRST_WIDTH * unit, self.centre());
        let mut at = self.evaluate(weights, &centre, width);
        let (mut primal, mut dual) = ((at.primal, weights.clone()), (at.dual, at.points.clone()));
        let mut exhausted = false;
        for _ in 0..MAX_STEPS {
            interrupt.check()?;
            let gap = primal.0 - dual.0;
            if gap <= goal {
                break;
            }
            if exhausted || 0.5 * squared_norm(&at.residual) <= SOLVED_SHARE * gap.max(goal) {
                centre = at.points;
                width = (NARROWER * width).max(SMALLEST_WIDTH * unit);
                at = self.evaluate(weights, &centre, width);
            }
            let matrix = hessian(self, &at.points, width, interrupt)?;
            let mut direction: Vec<f64> = at.residual.iter().map(|value| -value).collect();
            Factor::new(matrix, self.n_weights, interrupt)?.solve(&mut direction);
            let slope = long_dot(&at.residual, &direction);
            let step = self.step(weights, (&centre, width), &at, &direction, slope)?;
            exhausted = step == 0.0 || -slope <= f64::EPSILON * at.primal.abs();
            weights.iter_mut().zip(&direction).for_each(|(weight, d)| *weight += step * d);
            if step > 0.0 && step < SHORT_STEP {
                width *= WIDER;
            }
            at = self.evaluate(weights, &centre, width);
            if at.primal < primal.0 {
                primal = (at.primal, weights.clone());
            }
            if at.dual > dual.0 {
                dual = (at.dual, at.points.clone());
            }
        }
        *weights = primal.1;
        self.set_centre(&dual.1);
        Ok(())
    }

    /// The width at which the proximal term is as large as the losses at w = 0. A move from the
    /// start to another vertex has the squared length 2.
    fn unit_width(&self) -> f64 {
        let largest = |block: &PlaneBlock| {
            block.planes.iter().fold(0.0, |largest: f64, plane| largest.max(plane.linear))
        };
        let sums = self.blocks.iter().map(|block| (block.scale * largest(block), block.scale));
        let (linear, square) = sums.fold((0.0, 0.0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
        if linear > 0.0 { 0.5 * linear / square } else { 1.0 }
    }

    /// The planes' weights, block by block.
    fn centre(&self) -> Vec<f64> {
        self.blocks.iter().flat_map(|block| &block.planes).map(|plane| plane.weight).collect()
    }

    fn set_centre(&mut self, points: &[f64]) {
        let planes = self.blocks.iter_mut().flat_map(|block| &mut block.planes);
        for (plane, weight) in planes.zip(points) {
            plane.weight = *weight;
            plane.n_idle = if *weight > 0.0 { 0 } else { plane.n_idle + 1 };
        }
    }

    /// Evaluates the inner problem with the proximal term width/2 ‖a − centre‖², where a are the points of the blocks.
    fn evaluate(&self, weights: &[f64], centre: &[f64], width: f64) -> Evaluation {
        let planes = || self.blocks.iter().flat_map(|block| &block.planes);
        let score = |plane: &Plane| plane.linear - along(&plane.image, weights);
        let scores: Vec<f64> = planes().map(score).collect();
        let points = self.maximisers(&scores, centre, width);
        let (mut image, mut linear, mut loss) = (vec![0.0; weights.len()], 0.0, 0.0);
        for ((block, scores), points) in self.split(&scores).zip(self.split(&points).map(|p| p.1)) {
            loss += block.scale * scores.iter().fold(0.0, |largest: f64, s| largest.max(*s));
            for (plane, point) in block.planes.iter().zip(points).filter(|(_, a)| **a > 0.0) {
                linear += block.scale * point * plane.linear;
                for (index, value) in &plane.image {
                    image[*index as usize] += block.scale * point * value;
                }
            }
        }
        let residual = weights.iter().zip(&image).map(|(weight, image)| weight - image).collect();
        let primal = 0.5 * squared_norm(weights) + loss;
        Evaluation { scores, points, residual, primal, dual: linear - 0.5 * squared_norm(&image) }
    }

    /// The projections of centre + scores/width onto the blocks' simplices.
    fn maximisers(&self, scores: &[f64], centre: &[f64], width: f64) -> Vec<f64> {
        let simplex = Capped { upper: 1.0, floor: 1.0, cap: 1.0, bias: 0.0 };
        let mut points: Vec<f64> =
            centre.iter().zip(scores).map(|(centre, score)| centre + score / width).collect();
        let mut rest = &mut points[..];
        for block in &self.blocks {
            let (own, others) = rest.split_at_mut(block.planes.len());
            rest = others;
            if !block.is_free() {
                own.fill(1.0);
                continue;
            }
            // Subtract the largest score first, so that the differences keep their digits.
            let largest = own.iter().fold(f64::NEG_INFINITY, |largest: f64, v| largest.max(*v));
            own.iter_mut().for_each(|value| *value -= largest);
            let tau = simplex.multiplier(own, -1.0);
            own.iter_mut().for_each(|value| *value = (*value - tau).max(0.0));
        }
        points
    }

    /// The step along a direction at which the derivative of the inner problem is close to 0.
    fn step(
        &self,
        weights: &[f64],
        (centre, width): (&[f64], f64),
        at: &Evaluation,
        direction: &[f64],
        slope: f64,
    ) -> Result<f64> {
        let planes = self.blocks.iter().flat_map(|block| &block.planes);
        let changes: Vec<f64> = planes.map(|plane| -along(&plane.image, direction)).collect();
        let (own, square) = (long_dot(weights, direction), squared_norm(direction));
        zero_of_derivative(slope, |step| {
            let moved: Vec<f64> = at
                .scores
                .iter()
                .zip(&changes)
                .map(|(score, change)| score + step * change)
                .collect();
            let points = self.maximisers(&moved, centre, width);
            let mut sum = own + step * square;
            for ((block, points), (_, changes)) in self.split(&points).zip(self.split(&changes)) {
                let inner: f64 = points.iter().zip(changes).map(|(a, change)| a * change).sum();
                sum += block.scale * inner;
            }
            Ok(sum)
        })
    }
}

/// The inner product ⟨image, weights⟩.
fn along(image: &Sparse, weights: &[f64]) -> f64 {
    image.iter().map(|(index, value)| value * weights[*index as usize]).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Test problem: blocks of three planes. Each column of entries has its own scale.
    fn restricted(values: &[f64], scales: &[f64]) -> Restricted {
        let d = scales.len();
        let block = |values: &[f64]| {
            let mut planes: Vec<Plane> = (0..)
                .zip(values.chunks(d + 1))
                .map(|(k, values)| {
                    let entries =
                        (0..).zip(&values[1..]).map(|(j, value)| (j, value * scales[j as usize]));
                    let vertex = vec![(k, 1.0)];
                    let (linear, image) = (values[0].abs(), entries.collect());
                    Plane { vertex, linear, image, weight: 0.0, n_idle: 0 }
                })
                .collect();
            (planes[0].linear, planes[0].weight) = (0.0, 1.0);
            planes[0].image.clear();
            PlaneBlock { scale: 0.7, planes }
        };
        Restricted { n_weights: d, blocks: values.chunks(3 * (d + 1)).map(block).collect() }
    }

    proptest! {
        #[test]
        fn restricted_problems_are_solved_for_weights_of_any_scale(
            values in prop::collection::vec(-1.0..1.0f64, 12 * 3 * 6),
            exponents in prop::collection::vec(-4..5_i32, 5),
        ) {
            let scales: Vec<f64> = exponents.iter().map(|exponent| 10.0_f64.powi(*exponent)).collect();
            let mut problem = restricted(&values, &scales);
            let (mut weights, null) = (vec![0.0; 5], problem.evaluate(&[0.0; 5], &problem.centre(), 1.0).primal);
            problem.solve(&mut weights, 1e-6 * null, &Interrupt::default()).unwrap();
            let points = problem.centre();
            let primal = problem.evaluate(&weights, &points, 1.0).primal;
            // With an infinite width, the points stay at the centre.
            let dual = problem.evaluate(&weights, &points, f64::INFINITY).dual;
            prop_assert!(primal - dual <= 1.1e-6 * null, "{primal} {dual}");
            prop_assert!(dual <= primal * (1.0 + 1e-9));
            for block in &problem.blocks {
                let sum: f64 = block.planes.iter().map(|plane| plane.weight).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9);
            }
        }
    }
}
