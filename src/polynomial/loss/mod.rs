//! Losses of a row's outputs (docs/mathematics/polynomial-networks.md#losses). There is one file
//! per loss; [`REGISTRY`] lists their names.

mod binary_logistic;
mod logistic;
mod smoothed_hinge;
mod squared;
mod squared_hinge;

pub use binary_logistic::BinaryLogistic;
pub use logistic::Logistic;
pub use smoothed_hinge::SmoothedHinge;
pub use squared::Squared;
pub use squared_hinge::SquaredHinge;

use std::fmt;

use crate::error::Result;
use crate::names::find;

/// The target that a loss compares with the outputs of one row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossTarget<'a> {
    /// The index of the correct output.
    Class(usize),
    /// A value per output (−1 or +1 for the binary losses).
    Values(&'a [f64]),
}

/// The kind of target of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// The class of the row: [`LossTarget::Class`].
    Classes,
    /// −1 or +1 for each output: [`LossTarget::Values`].
    Signs,
    /// Any number for each output: [`LossTarget::Values`].
    Values,
}

impl TargetKind {
    /// Returns the name: "classes", "signs" or "values".
    pub fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Signs => "signs",
            Self::Values => "values",
        }
    }
}

/// A convex, smooth loss of the outputs o in R^m of one row.
pub trait OutputLoss: Send + Sync + fmt::Debug {
    /// Returns the loss ℓ(y, o), and writes ∂ℓ/∂o to `gradient`.
    fn value_and_gradient(
        &self,
        target: LossTarget<'_>,
        outputs: &[f64],
        gradient: &mut [f64],
    ) -> f64;

    /// Returns the loss ℓ(y, o) without its gradient.
    fn value(&self, target: LossTarget<'_>, outputs: &[f64]) -> f64;

    /// Lipschitz constant of the gradient with respect to ‖·‖₂, for `n_outputs` outputs.
    fn smoothness(&self, n_outputs: usize) -> f64;

    /// The kind of target that the loss expects.
    fn target_kind(&self) -> TargetKind;

    /// Whether the targets are classes.
    fn takes_classes(&self) -> bool {
        self.target_kind() == TargetKind::Classes
    }
}

type OutputLossConstructor = fn() -> Box<dyn OutputLoss>;

/// Every loss with its name, in the order of the documentation.
pub const REGISTRY: &[(&str, OutputLossConstructor)] = &[
    ("logistic", || Box::new(Logistic)),
    ("smoothed-hinge", || Box::new(SmoothedHinge)),
    ("squared-hinge", || Box::new(SquaredHinge)),
    ("squared", || Box::new(Squared)),
    ("binary-logistic", || Box::new(BinaryLogistic)),
];

/// The loss called `name`.
///
/// # Errors
/// [`InvalidArgument`](crate::Error::InvalidArgument) with the known names.
pub fn parse(name: &str) -> Result<Box<dyn OutputLoss>> {
    Ok(find("loss", name, REGISTRY)?())
}

impl LossTarget<'_> {
    fn class(self) -> usize {
        match self {
            Self::Class(class) => class,
            Self::Values(_) => unreachable!("targets are checked against OutputLoss::target_kind"),
        }
    }
}

impl<'a> LossTarget<'a> {
    fn values(self) -> &'a [f64] {
        match self {
            Self::Values(values) => values,
            Self::Class(_) => unreachable!("targets are checked against OutputLoss::target_kind"),
        }
    }
}

/// Computes log Σ_c exp(a_c). Subtracts the maximum first, to avoid overflow.
fn log_sum_exp(a: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = a.clone().fold(f64::NEG_INFINITY, f64::max);
    max + a.map(|a| (a - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gradients_match_finite_differences(
            outputs in prop::collection::vec(-3.0..3.0f64, 4),
            values in prop::collection::vec(-2.0..2.0f64, 4),
            class in 0..4usize,
        ) {
            let signs: Vec<f64> = values.iter().map(|v| if *v > 0.0 { 1.0 } else { -1.0 }).collect();
            for (name, build) in REGISTRY {
                let loss = build();
                let target = match loss.target_kind() {
                    TargetKind::Classes => LossTarget::Class(class),
                    TargetKind::Signs => LossTarget::Values(&signs),
                    TargetKind::Values => LossTarget::Values(&values),
                };
                let mut gradient = vec![0.0; 4];
                let value = loss.value_and_gradient(target, &outputs, &mut gradient);
                prop_assert!((value - loss.value(target, &outputs)).abs() < 1e-12 * (1.0 + value));
                for c in 0..4 {
                    let step = 1e-5;
                    let mut high = outputs.clone();
                    high[c] += step;
                    let mut low = outputs.clone();
                    low[c] -= step;
                    let slope =
                        (loss.value(target, &high) - loss.value(target, &low)) / (2.0 * step);
                    // The second derivative of the squared hinge jumps. The tolerance allows for one jump.
                    prop_assert!((slope - gradient[c]).abs() < 1e-4, "{name} {slope} {}", gradient[c]);
                }
                if loss.takes_classes() {
                    prop_assert!(gradient.iter().sum::<f64>().abs() < 1e-12);
                }
            }
        }

        #[test]
        fn the_smoothness_constant_bounds_the_gradient_change(
            a in prop::collection::vec(-4.0..4.0f64, 3),
            b in prop::collection::vec(-4.0..4.0f64, 3),
        ) {
            for (_, build) in REGISTRY {
                let loss = build();
                let signs = [1.0, -1.0, 1.0];
                let target =
                    if loss.takes_classes() { LossTarget::Class(1) } else { LossTarget::Values(&signs) };
                let (mut ga, mut gb) = ([0.0; 3], [0.0; 3]);
                loss.value_and_gradient(target, &a, &mut ga);
                loss.value_and_gradient(target, &b, &mut gb);
                let norm = |x: &[f64], y: &[f64]| -> f64 {
                    x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()
                };
                prop_assert!(norm(&ga, &gb) <= loss.smoothness(3) * norm(&a, &b) + 1e-12);
            }
        }
    }

    #[test]
    fn extreme_outputs_stay_finite() {
        for (name, build) in REGISTRY {
            let loss = build();
            let signs = [1.0, -1.0];
            let target = if loss.takes_classes() {
                LossTarget::Class(0)
            } else {
                LossTarget::Values(&signs)
            };
            for outputs in [[1e4, -1e4], [-1e4, 1e4], [0.0, 0.0]] {
                let mut gradient = [0.0; 2];
                let value = loss.value_and_gradient(target, &outputs, &mut gradient);
                assert!(value.is_finite() && value >= 0.0, "{name} {value}");
                assert!(gradient.iter().all(|g| g.is_finite()), "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_name_is_rejected() {
        assert!(parse("hinge").unwrap_err().to_string().contains("smoothed-hinge"));
    }
}
