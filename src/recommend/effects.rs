//! Linear weights shared by a group of ratings in one row, such as the ratings that a user gave on one day or that an
//! item received in one season (timeSVD++, Koren 2009, "Collaborative filtering with temporal dynamics", equation 9).
//!
//! The weights of each group have a Gaussian posterior N(z, S) over the m outputs; all groups of a side share the prior
//! N(0, Σ). The update is the block update (docs/mathematics/recommender.md#block-update) with all coefficients 1.

use std::ops::Range;

use ndarray::Array2;

use super::prior::{indefinite, inverse};
use crate::error::{Error, Result};
use crate::linalg::cholesky::invert_in_place;

/// Groups of ratings. All ratings of a group belong to the same row of a side. There are no groups if `n` is 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Groups<'a> {
    /// Group of each rating, below `n`. Groups are numbered row by row.
    pub of: &'a [u32],
    /// Number of groups.
    pub n: usize,
}

/// The groups of one side.
#[derive(Debug, Default)]
pub(super) struct SortedGroups {
    /// Group of each rating, sorted by the side's rows.
    pub of: Vec<u32>,
    /// The first group of each row, followed by the total number of groups.
    pub offsets: Vec<usize>,
}

impl SortedGroups {
    /// Finds the groups of each row. The ratings must be sorted by row; `rows` holds the start of each row's ratings,
    /// followed by the total number of ratings.
    pub fn new(of: Vec<u32>, n: usize, rows: &[usize]) -> Result<Self> {
        let mut offsets = vec![0; rows.len()];
        for row in 0..rows.len() - 1 {
            let own = of.get(rows[row]..rows[row + 1]).unwrap_or_default();
            if own.iter().any(|&group| (group as usize) < offsets[row]) {
                return Err(Error::argument("ratings", "groups must be numbered row by row"));
            }
            offsets[row + 1] = own.iter().max().map_or(offsets[row], |&last| last as usize + 1);
        }
        if let Some(end) = offsets.last_mut() {
            *end = n;
        }
        Ok(Self { of, offsets })
    }
}

/// The weights of one side's groups.
#[derive(Debug, Clone)]
pub(super) struct Effects {
    m: usize,
    /// Means z of the weights, groups × outputs.
    pub means: Vec<f64>,
    /// Variances of the weights (the diagonals of S), groups × outputs.
    pub variances: Vec<f64>,
    covariance: Array2<f64>,
    /// Sum of S + z zᵀ over the groups, at the last update.
    scatter: Array2<f64>,
    /// Sum of log det S over the groups.
    log_det: f64,
}

/// Prior variance at the start.
const START_VARIANCE: f64 = 0.3;

/// Added to the diagonal of Σ, which therefore stays positive definite even if all weights are 0.
const FLOOR: f64 = 1e-6;

impl Effects {
    /// Creates n groups at the prior mean.
    pub fn new(n: usize, m: usize) -> Self {
        let covariance = Array2::eye(m) * START_VARIANCE;
        Self {
            m,
            means: vec![0.0; n * m],
            variances: vec![START_VARIANCE; n * m],
            scatter: &covariance * n as f64,
            covariance,
            log_det: n as f64 * m as f64 * START_VARIANCE.ln(),
        }
    }

    fn n(&self) -> f64 {
        self.means.len() as f64 / self.m as f64
    }

    /// Returns the sum of KL(N(z, S) ‖ N(0, Σ)) over the groups, plus a term that keeps Σ away from
    /// 0.
    pub fn divergence(&self) -> Result<f64> {
        let precision = inverse(&self.covariance)?;
        let floor = Array2::<f64>::eye(self.m) * (FLOOR * self.n());
        let trace = (&precision.matrix * &(&self.scatter + &floor)).sum();
        let rest = self.n() * (precision.log_det - self.m as f64) - self.log_det;
        Ok(0.5 * (trace + rest))
    }

    /// Sets Σ to its optimum for the current weights.
    pub fn learn_prior(&mut self) {
        self.covariance = &self.scatter / self.n().max(1.0) + Array2::<f64>::eye(self.m) * FLOOR;
    }

    /// Inverse covariance of the prior, which the updates of all groups share.
    pub fn precision(&self) -> Result<Vec<f64>> {
        Ok(inverse(&self.covariance)?.matrix.into_raw_vec_and_offset().0)
    }

    /// The weights of all groups, n × m.
    pub fn table(&self) -> Array2<f64> {
        let n = self.means.len() / self.m;
        Array2::from_shape_fn((n, self.m), |(group, c)| self.means[group * self.m + c])
    }

    /// Stores the sums computed while all groups were updated.
    pub fn store_sums(&mut self, sums: EffectSums) {
        (self.scatter, self.log_det) = (sums.scatter, sums.log_det);
    }
}

/// Sums over the groups of one task.
#[derive(Debug, Clone)]
pub(super) struct EffectSums {
    scatter: Array2<f64>,
    log_det: f64,
}

impl EffectSums {
    pub fn new(m: usize) -> Self {
        Self { scatter: Array2::zeros((m, m)), log_det: 0.0 }
    }

    pub fn add(&mut self, other: &Self) {
        self.scatter += &other.scatter;
        self.log_det += other.log_det;
    }
}

/// The groups that one task updates.
pub(super) struct OwnEffects<'a> {
    pub means: &'a mut [f64],
    pub variances: &'a mut [f64],
    /// Index of the first group.
    pub first: usize,
}

/// The terms that groups add to the outputs of a row's ratings (the shifts), and scratch memory for updating the row's
/// groups.
#[derive(Debug, Default)]
pub(super) struct Shifts {
    /// Mean and variance of the shift of each rating and output, n_ratings × m.
    pub means: Vec<f64>,
    pub variances: Vec<f64>,
    /// Expected output E o and the parameters κ and ω of its bound, for each rating and output.
    pub outputs: Vec<f64>,
    pub kappa: Vec<f64>,
    pub omega: Vec<f64>,
    /// Normal equations of all groups of the row.
    matrix: Vec<f64>,
    vector: Vec<f64>,
}

impl Shifts {
    /// Sets the shifts of n ratings and m outputs to 0.
    pub fn clear(&mut self, n: usize, m: usize) {
        for values in [&mut self.means, &mut self.variances] {
            values.clear();
            values.resize(n * m, 0.0);
        }
    }

    /// Adds the weights of each rating's group to the rating's shifts. `means` and `variances` start with group
    /// `first`.
    pub fn add(&mut self, groups: &[u32], first: usize, (means, variances): (&[f64], &[f64])) {
        let m = self.means.len() / groups.len().max(1);
        for (rating, &group) in groups.iter().enumerate() {
            let (to, from) = (rating * m, (group as usize - first) * m);
            for c in 0..m {
                self.means[to + c] += means[from + c];
                self.variances[to + c] += variances[from + c];
            }
        }
    }

    /// Updates the groups of a row from the recorded bounds of its ratings.
    pub fn update(
        &mut self,
        own: &mut OwnEffects<'_>,
        (groups, ends): (&[u32], Range<usize>),
        precision: &[f64],
        sums: &mut EffectSums,
    ) -> Result<()> {
        let m = sums.scatter.ncols();
        let (start, from, to) = (ends.start, ends.start - own.first, ends.end - own.first);
        self.matrix.clear();
        self.matrix.extend((from..to).flat_map(|_| precision));
        self.vector.clear();
        self.vector.resize((to - from) * m, 0.0);
        for (rating, &group) in groups.iter().enumerate() {
            let at = group as usize - start;
            for c in 0..m {
                let (omega, slot) = (self.omega[rating * m + c], at * m + c);
                let z = own.means[(from + at) * m + c];
                self.matrix[slot * m + c] += omega;
                self.vector[slot] +=
                    self.kappa[rating * m + c] - omega * (self.outputs[rating * m + c] - z);
            }
        }
        let rows = self.matrix.chunks_exact_mut(m * m).zip(self.vector.chunks_exact(m));
        for ((matrix, vector), group) in rows.zip(from..to) {
            sums.log_det -= invert_in_place(matrix, m).ok_or_else(indefinite)?;
            let z = &mut own.means[group * m..(group + 1) * m];
            for (c, z) in z.iter_mut().enumerate() {
                let row = &matrix[c * m..(c + 1) * m];
                *z = row.iter().zip(vector).map(|(s, h)| s * h).sum();
                own.variances[group * m + c] = row[c];
            }
            for ((c, d), sum) in sums.scatter.indexed_iter_mut() {
                *sum += matrix[c * m + d] + z[c] * z[d];
            }
        }
        Ok(())
    }
}
