//! Newton's method with the entropy in place of the square: multinomial logistic regression.

use std::ops::ControlFlow;

use dualgap::data::{Data, Dense};
use dualgap::dual::rounding::Bounded;
use dualgap::dual::{Curvatures, Shares};
use dualgap::interrupt::Interrupt;
use dualgap::linalg::Design;
use dualgap::logistic::{LogisticMethod, LogisticProblem, fit_logistic};
use dualgap::run::{Certificate, Epoch, Outcome, run};
use dualgap::solver::{Blocks, Newton, Proximal, Summed, Target};
use ndarray::{Array2, ArrayView1};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A relative error of objectives that is far larger than their rounding errors.
const ROUNDING: f64 = 1e-12;

/// The losses log Σ_k exp(s_k) − s_y, whose dual points are u = p − e_y for distributions p.
struct Entropies<'a> {
    data: Data<'a>,
    labels: &'a [u32],
    n_classes: usize,
    shares: Shares,
    /// Whether the curvature is wrong: that of equal probabilities.
    is_flat: bool,
}

/// Sums of losses and entropies, weighted by the shares.
#[derive(Default)]
struct Sums {
    loss: f64,
    entropy: f64,
}

/// Writes the softmax of the scores, and returns the logarithm of the sum of their exponentials.
fn softmax(scores: &[f64], point: &mut [f64]) -> f64 {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    point.iter_mut().zip(scores).for_each(|(p, score)| *p = (score - largest).exp());
    let sum: f64 = point.iter().sum();
    point.iter_mut().for_each(|p| *p /= sum);
    largest + sum.ln()
}

impl Blocks for Entropies<'_> {
    type Work = Vec<f64>;
    type Terms = Sums;

    fn design(&self) -> Design<'_> {
        Design { data: self.data, bias: 0.0 }
    }

    fn n_parts(&self) -> usize {
        self.n_classes
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn unit_width(&self) -> f64 {
        1.0
    }

    fn maximise(
        &self,
        block: usize,
        scores: &[f64],
        proximal: Proximal<'_>,
        point: &mut [f64],
        _: &mut Vec<f64>,
    ) {
        assert_eq!(proximal.width, 0.0, "the entropy is smooth without a proximal term");
        softmax(scores, point);
        point[self.labels[block] as usize] -= 1.0;
    }

    fn add_terms(
        &self,
        block: usize,
        scores: &[f64],
        point: &[f64],
        terms: &mut Sums,
        p: &mut Vec<f64>,
    ) {
        let (label, share) = (self.labels[block] as usize, self.shares.of(block));
        p.resize(self.n_classes, 0.0);
        terms.loss += share * (softmax(scores, p) - scores[label]);
        p.copy_from_slice(point);
        p[label] += 1.0;
        let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        terms.entropy += share * entropy;
    }

    fn certificate(
        &self,
        terms: &[Sums],
        weights: &[f64],
        image: Summed<'_>,
    ) -> (Certificate, f64) {
        let half = |values: &[f64]| {
            0.5 * self.shares.lambda() * values.iter().map(|value| value * value).sum::<f64>()
        };
        let sum = |of: fn(&Sums) -> f64| terms.iter().map(of).sum::<f64>();
        let primal = half(weights) + sum(|terms| terms.loss);
        let dual = sum(|terms| terms.entropy) - half(image.image);
        (Certificate { primal: primal * (1.0 + ROUNDING), dual: dual - ROUNDING * dual.abs() }, 1.0)
    }

    fn curvature(
        &self,
        block: usize,
        point: &[f64],
        curvatures: &mut Curvatures,
        p: &mut Vec<f64>,
    ) {
        p.clear();
        p.extend_from_slice(point);
        p[self.labels[block] as usize] += 1.0;
        if self.is_flat {
            p.fill(1.0 / self.n_classes as f64);
        }
        curvatures.add_diagonal((0..).zip(p.iter().copied()));
        curvatures.subtract_square((0..).zip(p.iter().copied()));
    }
}

#[test]
fn newton_with_the_entropy_finds_the_optimum_of_logistic_regression() {
    let interrupt = Interrupt::default();
    // The last two systems are too large for a factorisation. The last one has more than 2000 active parts, so its
    // first preconditioner is a diagonal.
    for (n, d, n_classes, c) in
        [(300, 7, 3, 1.0), (300, 7, 4, 100.0), (100, 700, 3, 0.1), (1000, 700, 3, 0.1)]
    {
        let mut rng = Pcg64Mcg::new(n as u128);
        let x = Array2::from_shape_simple_fn((n, d), || rng.random_range(-1.0..1.0));
        let label = |row: ArrayView1<'_, f64>| {
            let scores =
                row.iter().take(n_classes).map(|value| value + rng.random_range(-0.3..0.3));
            let largest = scores.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
            largest.map_or(0, |(class, _)| class as u32)
        };
        let labels: Vec<u32> = x.rows().into_iter().map(label).collect();
        let data = Data::Dense64(Dense::new(x.view()).unwrap());
        let target = Target { tol: 1e-10, max_epochs: 20 };
        let mut observe = |_: &Epoch| ControlFlow::Continue(());

        let problem = LogisticProblem::new(data, &labels, n_classes, vec![c; n], false).unwrap();
        let method = LogisticMethod::Newton;
        let looser = Target { tol: 1e-8, max_epochs: 100 };
        let fit = fit_logistic(&problem, method, looser, None, &interrupt, &mut observe).unwrap();
        let expected = fit.trace.certificate.unwrap();

        let mut solve = |is_flat: bool| {
            // The entropy is strongly convex with constant 1, so there is no proximal term.
            let shares = Shares::new(n, 1.0 / (c * n as f64)).unwrap().with_smoothing(1.0).unwrap();
            let blocks = Entropies { data, labels: &labels, n_classes, shares, is_flat };
            let null = Bounded::exact((n_classes as f64).ln());
            let stopping = target.stopping(null);
            let mut newton = Newton::new(&blocks, stopping, null.upper());
            let trace = run(&mut newton, stopping, &interrupt, &mut observe).unwrap();
            (trace.outcome, trace.epochs.len(), newton.best().certificate)
        };
        let (outcome, n_steps, found) = solve(false);
        assert_eq!(outcome, Outcome::Converged, "{n} x {d}, {n_classes} classes: {found:?}");
        assert!(n_steps <= 12);
        // With a wrong curvature, convergence is not quadratic.
        let n_wrong = solve(true).1;
        assert!(n_steps < n_wrong, "{n} x {d}, {n_classes} classes: {n_steps}, {n_wrong}");
        assert!(found.primal < 0.9 * (n_classes as f64).ln());
        // The optimum lies between the bound and the objective of each fit.
        assert!(found.dual <= expected.primal);
        assert!(expected.dual <= found.primal);
    }
}
