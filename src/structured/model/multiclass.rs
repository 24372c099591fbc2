//! The structured model of multi-class classification: a label is one class.

use super::chain::{check_labels, first_maximum};
use super::rows::CompactRows;
use super::{Model, PartSize, Work};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::linalg::{Sparse, TouchedVector};

/// One label in 0..K for each row x, with ⟨w, φ(x, y)⟩ = ⟨W_y, x⟩.
///
/// The weights are W by feature, then class; parts are classes. The loss of a prediction ŷ is `costs`\[y\]\[ŷ\] or,
/// without costs, 1 if ŷ is wrong.
#[derive(Debug, Clone)]
pub struct Multiclass {
    rows: CompactRows,
    labels: Option<Vec<u32>>,
    n_classes: usize,
    costs: Option<Vec<f64>>,
}

impl Multiclass {
    /// Creates the model from rows, labels (for training), and K × K costs with a row for each true label. Without
    /// costs, every wrong label costs 1.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the invalid argument: `X`, `y`, `n_classes` or `costs`.
    pub fn new(
        data: Data<'_>,
        labels: Option<&[u32]>,
        n_classes: usize,
        costs: Option<&[f64]>,
    ) -> Result<Self> {
        let rows = CompactRows::new(data)?;
        if n_classes == 0 || u32::try_from(n_classes).is_err() {
            let message = format!("must be between 1 and 2³² − 1 (is {n_classes})");
            return Err(Error::argument("n_classes", message));
        }
        if let Some(labels) = labels {
            check_labels(labels, rows.len(), n_classes)?;
        }
        if let Some(costs) = costs {
            check_costs(costs, n_classes)?;
        }
        let (labels, costs) = (labels.map(<[u32]>::to_vec), costs.map(<[f64]>::to_vec));
        Ok(Self { rows, labels, n_classes, costs })
    }
}

fn check_costs(costs: &[f64], n_classes: usize) -> Result<()> {
    let fail = |message: String| Err(Error::argument("costs", message));
    if costs.len() != n_classes * n_classes {
        return fail(format!("must be {n_classes} × {n_classes}, one row for each true label"));
    }
    if costs.iter().any(|cost| !cost.is_finite() || *cost < 0.0) {
        return fail("must be finite and not negative".into());
    }
    if costs.iter().step_by(n_classes + 1).any(|cost| *cost != 0.0) {
        return fail("a true label must cost 0: the diagonal must be zero".into());
    }
    Ok(())
}

impl Model for Multiclass {
    fn n_examples(&self) -> usize {
        self.rows.len()
    }

    fn is_labelled(&self) -> bool {
        self.labels.is_some()
    }

    fn n_weights(&self) -> usize {
        self.rows.n_features() * self.n_classes
    }

    fn n_parts(&self, _: usize) -> usize {
        self.n_classes
    }

    fn size(&self, _: usize) -> PartSize {
        let (norm, n_features) = self.rows.largest();
        PartSize { norm, n_features, n_parts: 1, depth: 1 }
    }

    fn scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        self.rows.scores(example..example + 1, self.n_classes, weights, scores);
    }

    fn scores_at(&self, example: usize, parts: &[u32], weights: &[f64], scores: &mut [f64]) {
        for &class in parts {
            let class = class as usize;
            scores[class] = self.rows.score(example, class, self.n_classes, weights);
        }
    }

    fn add_costs(&self, example: usize, scores: &mut [f64]) -> f64 {
        let Some(labels) = &self.labels else { return 0.0 };
        let right = labels[example] as usize;
        if let Some(costs) = &self.costs {
            let costs = &costs[right * self.n_classes..];
            scores.iter_mut().zip(costs).for_each(|(score, cost)| *score += cost);
        } else {
            let kept = scores[right];
            scores.iter_mut().for_each(|score| *score += 1.0);
            scores[right] = kept;
        }
        0.0
    }

    /// The class with the largest score; ties go to the smallest class.
    fn decode(&self, _: usize, scores: &[f64], _: &mut Work, label: &mut Vec<u32>) {
        label.clear();
        label.push(first_maximum(scores));
    }

    fn parts(&self, _: usize, label: &[u32], parts: &mut Sparse) {
        parts.clear();
        parts.extend(label.iter().map(|class| (*class, 1.0)));
    }

    fn truth(&self, example: usize) -> &[u32] {
        self.labels.as_ref().map_or(&[], |labels| &labels[example..=example])
    }

    fn add_image(
        &self,
        example: usize,
        delta: &[(u32, f64)],
        scale: f64,
        image: &mut TouchedVector,
    ) {
        self.rows.add_image(example, delta.iter().copied(), self.n_classes, scale, image);
    }
}
