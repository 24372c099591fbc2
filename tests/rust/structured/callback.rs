//! Oracles written by users: a correct one reaches the optimum of the built-in model that it
//! imitates, and one that does not maximise is detected.

use std::ops::ControlFlow;

use dualgap::data::{Data, Dense};
use dualgap::dual::Shares;
use dualgap::interrupt::Interrupt;
use dualgap::solver::{BlockOptions, Fit, Method, Step, StepRule, Target, minimize};
use dualgap::structured::{CallbackDual, Multiclass, Oracle, StructuredDual};
use dualgap::{Error, Result};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const CLASSES: usize = 3;

/// An oracle that tries each class. If `wrong` is true, its results are wrong from the second call on.
struct Classes {
    x: Array2<f64>,
    labels: Vec<u32>,
    wrong: bool,
}

impl Classes {
    fn random(wrong: bool) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(4);
        let labels: Vec<u32> = (0..24).map(|i| i % CLASSES as u32).collect();
        let x = Array2::from_shape_fn((24, 4), |(i, k)| {
            f64::from(u32::from(i % CLASSES == k)) + random.random_range(-1.0..1.0)
        });
        Self { x, labels, wrong }
    }
}

impl Oracle for Classes {
    fn vertices(
        &self,
        blocks: &[u32],
        weights: &[f64],
        found: &mut dyn FnMut(&[f64], f64),
    ) -> Result<()> {
        for &block in blocks {
            let (x, label) = (self.x.row(block as usize), self.labels[block as usize] as usize);
            let score = |class: usize| -> f64 {
                let terms = x.iter().enumerate().map(|(k, x)| x * weights[k * CLASSES + class]);
                terms.sum::<f64>() + f64::from(u32::from(class != label))
            };
            let moved = weights.iter().any(|weight| *weight != 0.0);
            let best =
                (0..CLASSES).fold(0, |best, j| if score(j) > score(best) { j } else { best });
            let class = if self.wrong && moved { (best + 1) % CLASSES } else { best };
            let mut features = vec![0.0; weights.len()];
            for (k, x) in x.iter().enumerate().filter(|_| class != label) {
                features[k * CLASSES + class] += x;
                features[k * CLASSES + label] -= x;
            }
            found(&features, f64::from(u32::from(class != label)));
        }
        Ok(())
    }
}

fn fit(oracle: &dyn Oracle, method: Method) -> Result<Fit> {
    let mut dual = CallbackDual::new(oracle, 4 * CLASSES, Shares::new(24, 0.05).unwrap());
    let target = Target { tol: 1e-3, max_epochs: 2000 };
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    minimize(&mut dual, method, target, None, &Interrupt::default(), go_on)
}

#[test]
fn every_method_reaches_the_optimum_of_the_built_in_model() {
    let oracle = Classes::random(false);
    let data = Data::Dense64(Dense::new(oracle.x.view()).unwrap());
    let model = Multiclass::new(data, Some(&oracle.labels), CLASSES, None).unwrap();
    let mut dual = StructuredDual::new(&model, Shares::new(24, 0.05).unwrap()).unwrap();
    let pairwise = BlockOptions { step: Step::Pairwise, ..BlockOptions::default() };
    let cached = BlockOptions { cache: true, ..pairwise };
    let (target, interrupt) = (Target { tol: 1e-8, max_epochs: 5000 }, Interrupt::default());
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    let method = Method::BlockFrankWolfe(pairwise);
    let best = minimize(&mut dual, method, target, None, &interrupt, go_on).unwrap();
    let best = best.trace.certificate.unwrap();
    for method in [
        Method::BlockFrankWolfe(pairwise),
        Method::BlockFrankWolfe(cached),
        Method::FrankWolfe(StepRule::FrankWolfe),
        Method::AwayFrankWolfe { step: Step::Pairwise, subsample: 0.5, seed: 1 },
        Method::Subgradient { averaging: true, seed: 1 },
    ] {
        let fitted = fit(&oracle, method).unwrap();
        let end = fitted.trace.certificate.unwrap();
        assert!((fitted.null_objective - 1.0).abs() < 1e-12);
        assert!(end.gap() < 1e-2, "{method:?}: {end:?}");
        assert!(end.dual <= best.primal + 1e-9 && end.primal >= best.dual - 1e-9, "{method:?}");
    }
}

#[test]
fn an_oracle_that_does_not_maximise_is_detected() {
    let error = fit(&Classes::random(true), Method::BlockFrankWolfe(BlockOptions::default()));
    let Err(Error::InvalidArgument { argument, message }) = error else { panic!("accepted") };
    assert_eq!(argument, "model");
    assert!(message.contains("must return a maximiser"), "{message}");
}
