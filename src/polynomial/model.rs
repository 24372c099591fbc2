//! The model: a shared basis H, an output layer U, and optional linear terms (Blondel et al. 2017,
//! (3) and (4); docs/mathematics/polynomial-networks.md#model).

use ndarray::ArrayView2;

use super::kernel::PolynomialKernel;
use crate::error::{Error, Result};
use crate::linalg::vectors::axpy;

/// A model with the outputs o(x)_c = Σ_r u_rc K(h_r, x) + ⟨w_c, x⟩ + b_c.
#[derive(Debug, Clone, PartialEq)]
pub struct PolynomialModel {
    /// The kernel K, evaluated between a basis vector and a row.
    pub kernel: PolynomialKernel,
    /// Whether the basis vectors have an entry for an additional feature that is always 1
    /// (docs/mathematics/polynomial-networks.md#linear-terms).
    pub augmented: bool,
    /// Number of features, without the additional feature.
    pub n_features: usize,
    /// Number of outputs m.
    pub n_outputs: usize,
    /// Number of basis vectors k.
    pub n_bases: usize,
    /// H, with a row per feature: (n_features + augmented) × k.
    pub basis: Vec<f64>,
    /// Output weights U, basis vectors × outputs.
    pub output: Vec<f64>,
    /// Linear weights and, in the last row, intercepts: (n_features + 1) × m.
    pub linear: Option<Vec<f64>>,
}

impl PolynomialModel {
    /// The null model: no basis vectors, and all linear weights 0.
    pub fn new(
        kernel: PolynomialKernel,
        augmented: bool,
        n_features: usize,
        n_outputs: usize,
        linear: bool,
    ) -> Self {
        Self {
            kernel,
            augmented,
            n_features,
            n_outputs,
            n_bases: 0,
            basis: Vec::new(),
            output: Vec::new(),
            linear: linear.then(|| vec![0.0; (n_features + 1) * n_outputs]),
        }
    }

    /// Builds a model from its layers. `basis` has the shape k × (n_features + augmented), with a basis vector in each
    /// row; `output` has the shape k × m, and `linear` the shape (n_features + 1) × m.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `X` if the shapes of the layers do not match each other or the features, or if
    /// a weight is not finite.
    pub fn from_layers(
        kernel: PolynomialKernel,
        augmented: bool,
        n_features: usize,
        (basis, output): (ArrayView2<'_, f64>, ArrayView2<'_, f64>),
        linear: Option<ArrayView2<'_, f64>>,
    ) -> Result<Self> {
        let fits = basis.ncols() == n_features + usize::from(augmented)
            && basis.nrows() == output.nrows()
            && linear.is_none_or(|linear| linear.dim() == (n_features + 1, output.ncols()));
        if !fits || output.ncols() == 0 {
            return Err(Error::argument("X", "the model was fitted with different features"));
        }
        let layers = [Some(basis), Some(output), linear];
        if layers.into_iter().flatten().flatten().any(|value| !value.is_finite()) {
            return Err(Error::argument("X", "the model has weights that are not finite"));
        }
        Ok(Self {
            kernel,
            augmented,
            n_features,
            n_outputs: output.ncols(),
            n_bases: basis.nrows(),
            basis: basis.t().iter().copied().collect(),
            output: output.iter().copied().collect(),
            linear: linear.map(|linear| linear.iter().copied().collect()),
        })
    }

    /// Number of entries of a basis vector.
    pub fn basis_length(&self) -> usize {
        self.n_features + usize::from(self.augmented)
    }

    /// Appends a basis vector with its row of the output layer.
    pub fn push(&mut self, vector: &[f64], output: &[f64]) {
        let k = self.n_bases;
        let mut basis = Vec::with_capacity(self.basis.len() + vector.len());
        for (feature, value) in vector.iter().enumerate() {
            basis.extend_from_slice(&self.basis[feature * k..(feature + 1) * k]);
            basis.push(*value);
        }
        self.basis = basis;
        self.output.extend_from_slice(output);
        self.n_bases += 1;
    }

    /// Keeps the basis vectors for which `keep` is true.
    pub fn retain(&mut self, keep: &[bool]) {
        let (k, m) = (self.n_bases, self.n_outputs);
        let filter = |values: &[f64]| -> Vec<f64> {
            values.iter().zip(keep).filter(|(_, keep)| **keep).map(|(value, _)| *value).collect()
        };
        if k > 0 {
            self.basis = self.basis.chunks_exact(k).flat_map(filter).collect();
        }
        self.output = (0..k)
            .filter(|&r| keep[r])
            .flat_map(|r| self.output[r * m..(r + 1) * m].iter().copied())
            .collect();
        self.n_bases = keep.iter().filter(|keep| **keep).count();
    }
}

/// The largest |⟨h_r, b⟩| over the basis vectors h_r, for a unit vector b. A value of 1 means that
/// b is a duplicate. The basis is feature-major: each h_r is a column.
pub(super) fn largest_overlap(basis: &[f64], k: usize, vector: &[f64]) -> f64 {
    if k == 0 {
        return 0.0;
    }
    let mut overlaps = vec![0.0; k];
    for (h, v) in basis.chunks_exact(k).zip(vector) {
        axpy(&mut overlaps, *v, h);
    }
    overlaps.into_iter().map(f64::abs).fold(0.0, f64::max)
}
