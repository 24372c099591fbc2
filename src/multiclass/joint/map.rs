//! The scores of joint features: z_j ⊗ x for class features z_j, or arbitrary rows ψ(x_i, j).

use std::f64::consts::SQRT_2;
use std::ops::Range;

use super::combined::Combined;
use crate::data::Data;
use crate::data::Rows;
use crate::dual::rounding::gamma;
use crate::error::{Error, Result};
use crate::for_data;
use crate::linalg::SparseRows;
use crate::multiclass::{Layout, Linear, Order, RowSize, ScoreMap};

/// The map to the scores ⟨w, ψ(x_i, j)⟩ of joint features.
///
/// With class features z_j, ψ(x, j) = z_j ⊗ x̃: the weights V have one row per class feature, and
/// the scores are Z V x̃. This is Z times a [`Linear`] map with the p class features in place of
/// the classes, so a pass costs n d p + n p m multiplications instead of n d m. Without class
/// features, the rows of the matrix are the ψ(x_i, j) themselves, example by example and class by
/// class, and there is a single weight vector.
pub struct JointMap<'a> {
    inner: Linear<'a>,
    kind: FeatureKind<'a>,
    n_classes: usize,
    sizes: Vec<RowSize>,
}

enum FeatureKind<'a> {
    /// The matrix Z, with one row per class.
    Kronecker(Data<'a>),
    /// Row i m + j of the matrix is ψ(x_i, j).
    Rows,
}

impl<'a> JointMap<'a> {
    /// Creates the map with ψ(x, j) = z_j ⊗ x̃, where x̃ is x with the constant feature `bias`
    /// appended unless `bias` is 0; row j of `classes` is z_j.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the classes have no features.
    pub fn kronecker(rows: Data<'a>, classes: Data<'a>, bias: f64, order: Order) -> Result<Self> {
        if classes.n_cols() == 0 {
            return Err(Error::argument("class_features", "must have at least one column"));
        }
        let inner = Linear::new(rows, classes.n_cols(), bias, order);
        let n_classes = classes.n_rows();
        let class = (0..n_classes).map(|class| size_of_row(classes, class));
        let (norm, n_values) =
            class.fold((0.0_f64, 0), |(norm, n), size| (norm.max(size.norm), n.max(size.n_values)));
        let sizes = (0..inner.n_examples()).map(|example| {
            let row = inner.row_size(example);
            let norm = SQRT_2 * norm * row.norm * (1.0 + gamma(4));
            let n_products = row.n_values * (n_values + 1);
            RowSize { norm, n_values: row.n_values + n_values, n_products }
        });
        let sizes = sizes.collect();
        Ok(Self { inner, kind: FeatureKind::Kronecker(classes), n_classes, sizes })
    }

    /// Creates the map whose ψ(x_i, j) are the rows of a matrix, one for each example and class.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the number of rows is not a multiple of the number of classes.
    pub fn rows(rows: Data<'a>, n_classes: usize, order: Order) -> Result<Self> {
        if n_classes == 0 || !rows.n_rows().is_multiple_of(n_classes) {
            let message =
                format!("must have a row for each example and each of {n_classes} classes");
            return Err(Error::argument("class_features", message));
        }
        let inner = Linear::new(rows, 1, 0.0, order);
        let sizes = (0..rows.n_rows() / n_classes).map(|example| {
            let own = (0..n_classes).map(|class| inner.row_size(example * n_classes + class));
            let (norm, n_values) = own
                .fold((0.0_f64, 0), |(norm, n), size| (norm.max(size.norm), n.max(size.n_values)));
            RowSize { norm: SQRT_2 * norm * (1.0 + gamma(2)), n_values, n_products: n_values }
        });
        let sizes = sizes.collect();
        Ok(Self { inner, kind: FeatureKind::Rows, n_classes, sizes })
    }

    /// The order of the weights. Class features take the place of classes.
    pub fn layout(&self) -> Layout {
        self.inner.layout()
    }

    /// Number of rows of the inner map per example.
    fn stride(&self) -> usize {
        match self.kind {
            FeatureKind::Kronecker(_) => 1,
            FeatureKind::Rows => self.n_classes,
        }
    }

    /// Converts the scores of the class features to scores of the classes.
    fn finish(classes: Data<'_>, projected: &[f64], scores: &mut [f64]) {
        for (class, score) in scores.iter_mut().enumerate() {
            let mut sum = 0.0;
            for_data!(classes, rows => rows.visit_row(class, |at, value| sum += value * projected[at]));
            *score = sum;
        }
    }

    /// Converts a dual vector of an example into sparse vectors for the rows of the inner map.
    fn inner_duals(&self, dual: &[(u32, f64)], mut push: impl FnMut(usize, &[(u32, f64)])) {
        match self.kind {
            FeatureKind::Kronecker(classes) => push(0, &Combined::of(classes, 0, dual).entries()),
            FeatureKind::Rows => {
                dual.iter().for_each(|&(class, value)| push(class as usize, &[(0, value)]));
            }
        }
    }

    /// Returns a vector and the factor of its inner products: A_iᵀ δ and 1 or, for z_j ⊗ x̃, Σ_j δ_j z_j and ‖x̃‖².
    fn image(&self, example: usize, dual: &[(u32, f64)]) -> (Combined, f64) {
        match self.kind {
            FeatureKind::Kronecker(classes) => {
                (Combined::of(classes, 0, dual), self.inner.design().squared_norm(example))
            }
            FeatureKind::Rows => {
                (Combined::of(self.inner.design().data, example * self.n_classes, dual), 1.0)
            }
        }
    }
}

impl ScoreMap for JointMap<'_> {
    fn n_examples(&self) -> usize {
        self.sizes.len()
    }

    fn n_classes(&self) -> usize {
        self.n_classes
    }

    fn n_weights(&self) -> usize {
        self.inner.n_weights()
    }

    fn cost(&self) -> usize {
        let classes = match self.kind {
            FeatureKind::Kronecker(classes) => for_data!(classes, rows => rows.n_stored()),
            FeatureKind::Rows => 0,
        };
        self.inner.cost().saturating_add(classes.saturating_mul(self.n_examples()))
    }

    fn load(&mut self, weights: &[f64]) {
        self.inner.load(weights);
    }

    fn load_exact(&mut self, weights: &[f64]) {
        self.inner.load_exact(weights);
    }

    fn scores(&self, examples: Range<usize>, scores: &mut [f64]) {
        let stride = self.stride();
        let rows = examples.start * stride..examples.end * stride;
        let FeatureKind::Kronecker(classes) = self.kind else {
            return self.inner.scores(rows, scores);
        };
        let width = self.inner.n_classes();
        let mut projected = vec![0.0; rows.len() * width];
        self.inner.scores(rows, &mut projected);
        for (projected, scores) in projected.chunks(width).zip(scores.chunks_mut(self.n_classes)) {
            Self::finish(classes, projected, scores);
        }
    }

    fn exact_scores(&self, examples: Range<usize>, buffer: &mut Vec<f64>, scores: &mut [f64]) {
        let stride = self.stride();
        let rows = examples.start * stride..examples.end * stride;
        let FeatureKind::Kronecker(classes) = self.kind else {
            return self.inner.exact_scores(rows, buffer, scores);
        };
        let width = self.inner.n_classes();
        let mut projected = vec![0.0; rows.len() * width];
        self.inner.exact_scores(rows, buffer, &mut projected);
        for (projected, scores) in projected.chunks(width).zip(scores.chunks_mut(self.n_classes)) {
            Self::finish(classes, projected, scores);
        }
    }

    fn epsilon(&self) -> f64 {
        self.inner.epsilon()
    }

    fn row_size(&self, example: usize) -> RowSize {
        self.sizes[example]
    }

    fn add_images(&mut self, duals: &SparseRows, image: &mut [f64]) {
        let mut inner = SparseRows::default();
        inner.restart(duals.first * self.stride());
        for dual in duals.rows() {
            match self.kind {
                FeatureKind::Kronecker(_) if dual.is_empty() => inner.push([]),
                FeatureKind::Kronecker(_) => {
                    self.inner_duals(dual, |_, entries| inner.push(entries.iter().copied()));
                }
                FeatureKind::Rows => {
                    let mut row = vec![None; self.n_classes];
                    dual.iter().for_each(|&(class, value)| row[class as usize] = Some((0, value)));
                    row.into_iter().for_each(|entry| inner.push(entry));
                }
            }
        }
        self.inner.add_images(&inner, image);
    }

    fn example_scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        match self.kind {
            FeatureKind::Kronecker(classes) => {
                let mut projected = vec![0.0; self.inner.n_classes()];
                self.inner.example_scores(example, weights, &mut projected);
                Self::finish(classes, &projected, scores);
            }
            FeatureKind::Rows => {
                for (class, score) in scores.iter_mut().enumerate() {
                    let row = example * self.n_classes + class;
                    self.inner.example_scores(row, weights, std::slice::from_mut(score));
                }
            }
        }
    }

    fn adds_terms(&self) -> bool {
        matches!(self.kind, FeatureKind::Rows)
    }

    fn add_image(&self, example: usize, dual: &[(u32, f64)], weights: &mut [f64]) {
        let first = example * self.stride();
        self.inner_duals(dual, |row, dual| self.inner.add_image(first + row, dual, weights));
    }

    fn image_norm(&self, example: usize, dual: &[(u32, f64)]) -> f64 {
        let (image, factor) = self.image(example, dual);
        factor * image.squared_norm()
    }

    fn add_spread(&self, example: usize, dual: &[(u32, f64)], scores: &mut [f64]) {
        let (image, factor) = self.image(example, dual);
        let (rows, first) = match self.kind {
            FeatureKind::Kronecker(classes) => (classes, 0),
            FeatureKind::Rows => (self.inner.design().data, example * self.n_classes),
        };
        for (class, score) in scores.iter_mut().enumerate() {
            *score += factor * image.dot(rows, first + class);
        }
    }
}

/// The size of a row of a matrix.
fn size_of_row(rows: Data<'_>, row: usize) -> RowSize {
    let (mut square, mut largest, mut n_values) = (0.0, 0.0_f64, 0);
    for_data!(rows, rows => rows.visit_row(row, |_, value| {
        square += value * value;
        largest = largest.max(value.abs());
        n_values += 1;
    }));
    RowSize::of(square, largest, n_values)
}
