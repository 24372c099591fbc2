//! Sign constraints on some weights.

use crate::error::{Error, Result};

/// A cone K of weight vectors in which each constrained weight has a fixed sign (w_j >= 0 or w_j <= 0). A fit restricts
/// its weights to K (`docs/mathematics/duality.md`, sign constraints).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SignCone {
    /// The index of each constrained weight, and whether it must be <= 0 instead of >= 0.
    constrained: Vec<(usize, bool)>,
    n_weights: usize,
}

impl SignCone {
    /// Creates the cone from `signs`, one per weight: 1 for w_j >= 0, -1 for w_j <= 0, and 0 for any w_j.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for any other sign.
    pub fn new(signs: &[i8]) -> Result<Self> {
        if signs.iter().any(|sign| !(-1..=1).contains(sign)) {
            return Err(Error::argument("signs", "must contain only -1, 0 and 1"));
        }
        let constrained = signs.iter().enumerate().filter(|(_, sign)| **sign != 0);
        let constrained = constrained.map(|(index, sign)| (index, *sign < 0)).collect();
        Ok(Self { constrained, n_weights: signs.len() })
    }

    /// Whether no weight is constrained.
    pub fn is_everything(&self) -> bool {
        self.constrained.is_empty()
    }

    /// Checks that the number of signs is `n_weights`, unless no weight is constrained.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the numbers differ.
    pub fn check(&self, n_weights: usize) -> Result<()> {
        if self.is_everything() || self.n_weights == n_weights {
            return Ok(());
        }
        let message = format!("must have one sign for each of the {n_weights} weights");
        Err(Error::argument("signs", message))
    }

    /// Replaces the weights by their projection Π_K(w) onto the cone.
    pub fn project(&self, weights: &mut [f64]) {
        for &(index, negative) in &self.constrained {
            weights[index] = clip(weights[index], negative);
        }
    }

    /// Replaces w by Π_K(w + slack), and `slack` by the part that the projection removes, with one
    /// number per constrained weight. `slack` may be empty at first.
    pub fn split(&self, weights: &mut [f64], slack: &mut Vec<f64>) {
        slack.resize(self.constrained.len(), 0.0);
        for (&(index, negative), slack) in self.constrained.iter().zip(slack) {
            let whole = weights[index] + *slack;
            weights[index] = clip(whole, negative);
            *slack = whole - weights[index];
        }
    }
}

fn clip(weight: f64, negative: bool) -> f64 {
    if negative { weight.min(0.0) } else { weight.max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_in_parts_give_the_projection_of_their_sum() {
        let cone = SignCone::new(&[1, 0, -1, 1]).unwrap();
        let (mut weights, mut slack) = (vec![0.0; 4], Vec::new());
        let mut whole = [0.0; 4];
        for step in [[-1.0, -1.0, 2.0, 0.5], [0.25, 0.0, -0.5, -1.0], [2.0, 3.0, -4.0, 0.25]] {
            for ((weight, sum), step) in weights.iter_mut().zip(&mut whole).zip(step) {
                *weight += step;
                *sum += step;
            }
            cone.split(&mut weights, &mut slack);
            let mut projected = whole;
            cone.project(&mut projected);
            assert_eq!(weights, projected);
            assert!(weights[0] >= 0.0 && weights[2] <= 0.0 && weights[3] >= 0.0);
        }
        assert_eq!(weights, [1.25, 2.0, -2.5, 0.0]);
        assert!(SignCone::new(&[2]).is_err() && cone.check(3).is_err() && cone.check(4).is_ok());
        assert!(SignCone::default().check(7).is_ok());
    }
}
