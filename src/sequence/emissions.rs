//! Scores of rows under weights that are mostly zero.

use pulp::{Simd, WithSimd};

use crate::data::Rows;
use crate::error::{Error, Result};
use crate::linalg::arch;
use crate::structured::fold::{WeightedSum, fold};
use crate::structured::label_weights::{Place, add_scores};

/// The nonzero weights of (feature, label) pairs, sorted by feature.
#[derive(Debug, Clone)]
pub struct LabelWeights {
    /// The index of the first weight of each feature, followed by the number of weights.
    pub offsets: Vec<usize>,
    /// The label of each weight, in increasing order for each feature.
    pub labels: Vec<u16>,
    /// The values of the weights.
    pub values: Vec<f64>,
}

/// The weights of [`LabelWeights`] in a layout for scoring: features with many labels have dense
/// rows.
#[derive(Debug, Clone)]
pub(super) struct EmissionTable {
    n_states: usize,
    places: Vec<Place>,
    rows: Vec<f64>,
    labels: Vec<u16>,
    values: Vec<f64>,
}

/// The features of a row, split by how their weights are stored.
#[derive(Debug, Default)]
pub(super) struct Parts {
    rows: Vec<(f64, usize)>,
    single: Vec<(f64, Place)>,
}

impl EmissionTable {
    /// Builds the table of a model's weights.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `emissions` for labels that are not below `n_states` and increasing,
    /// and for weights that are not finite.
    pub fn new(emissions: &LabelWeights, n_states: usize) -> Result<Self> {
        let LabelWeights { offsets, labels, values } = emissions;
        let rises = offsets.first() == Some(&0)
            && offsets.last() == Some(&labels.len())
            && offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let fail = |message: &str| Err(Error::argument("emissions", message));
        if !rises || labels.len() != values.len() {
            return fail("must be rows of labels, with a weight for each label");
        }
        if !values.iter().all(|value| value.is_finite()) {
            return fail("all weights must be finite");
        }
        let mut table = Self {
            n_states,
            places: Vec::with_capacity(offsets.len() - 1),
            rows: Vec::new(),
            labels: Vec::new(),
            values: Vec::new(),
        };
        for pair in offsets.windows(2) {
            let (labels, values) = (&labels[pair[0]..pair[1]], &values[pair[0]..pair[1]]);
            let increasing = labels.windows(2).all(|pair| pair[0] < pair[1]);
            if !increasing || labels.last().is_some_and(|label| usize::from(*label) >= n_states) {
                return fail("must be rows of increasing labels");
            }
            table.push(labels, values);
        }
        Ok(table)
    }

    fn push(&mut self, labels: &[u16], values: &[f64]) {
        if !Place::needs_row(labels.len(), self.n_states) {
            self.places.push(Place::single(self.values.len(), labels.len()));
            self.labels.extend_from_slice(labels);
            self.values.extend_from_slice(values);
            return;
        }
        let start = self.rows.len();
        self.places.push(Place::row(start));
        self.rows.resize(start + self.n_states, 0.0);
        let row = &mut self.rows[start..];
        labels.iter().zip(values).for_each(|(label, value)| row[usize::from(*label)] = *value);
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.places.len()
    }

    /// Writes the scores of all labels for a range of rows.
    pub fn scores<R: Rows>(
        &self,
        rows: &R,
        range: std::ops::Range<usize>,
        parts: &mut Parts,
        scores: &mut [f64],
    ) {
        arch().dispatch(Scores { table: self, rows, range, parts, scores });
    }
}

struct Scores<'a, R> {
    table: &'a EmissionTable,
    rows: &'a R,
    range: std::ops::Range<usize>,
    parts: &'a mut Parts,
    scores: &'a mut [f64],
}

impl<R: Rows> WithSimd for Scores<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { table, rows, range, parts, scores } = self;
        for (row, scores) in range.zip(scores.chunks_exact_mut(table.n_states)) {
            parts.rows.clear();
            parts.single.clear();
            rows.visit_row(
                row,
                #[inline(always)]
                |feature, x| {
                    let place = table.places[feature];
                    if place.is_row() {
                        parts.rows.push((x, place.start()));
                    } else {
                        parts.single.push((x, place));
                    }
                },
            );
            let terms = parts.rows.iter().map(
                #[inline(always)]
                |(x, start)| (*x, &table.rows[*start..]),
            );
            fold::<WeightedSum, S, f64>(simd, terms, scores);
            for (x, place) in &parts.single {
                let own = place.start()..place.start() + place.len();
                add_scores(*x, &table.labels[own.clone()], &table.values[own], scores);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Csr;

    #[test]
    fn scores_are_sums_of_weights() {
        for n_states in [1, 3, 8, 22] {
            let (mut offsets, mut labels, mut values) = (vec![0], Vec::new(), Vec::new());
            for feature in 0..12 {
                for label in
                    (0..n_states).filter(|label| (label * 7 + feature) % (feature + 1) == 0)
                {
                    labels.push(label as u16);
                    values.push(f64::from(feature as u32) - 0.5 * f64::from(label as u32));
                }
                offsets.push(labels.len());
            }
            let emissions = LabelWeights { offsets, labels, values };
            let table = EmissionTable::new(&emissions, n_states).unwrap();
            let columns = [0, 2, 3, 7, 11, 1, 5];
            let x = [1.0, -2.0, 0.5, 1.0, 4.0, 1.0, 2.0];
            let rows = Csr::new(&[0, 5, 5, 7], &columns, &x, 12).unwrap();
            let mut scores = vec![9.0; 3 * n_states];
            table.scores(&rows, 0..3, &mut Parts::default(), &mut scores);
            let mut expected = vec![0.0; 3 * n_states];
            for (entry, (column, x)) in columns.iter().zip(x).enumerate() {
                let own =
                    emissions.offsets[*column as usize]..emissions.offsets[*column as usize + 1];
                let row = if entry < 5 { 0 } else { 2 };
                for at in own {
                    expected[row * n_states + usize::from(emissions.labels[at])] +=
                        x * emissions.values[at];
                }
            }
            assert_eq!(scores, expected);
        }
    }

    #[test]
    fn weights_of_a_wrong_size_are_rejected() {
        let new = |offsets: &[usize], labels: &[u16], values: &[f64]| {
            let (offsets, labels, values) = (offsets.to_vec(), labels.to_vec(), values.to_vec());
            EmissionTable::new(&LabelWeights { offsets, labels, values }, 3)
                .map(|table| table.n_features())
        };
        assert_eq!(new(&[0, 2], &[0, 2], &[1.0, 2.0]).unwrap(), 1);
        assert!(new(&[0, 1], &[0, 2], &[1.0, 2.0]).is_err());
        assert!(new(&[0, 2], &[2, 0], &[1.0, 2.0]).is_err());
        assert!(new(&[0, 2], &[0, 3], &[1.0, 2.0]).is_err());
        assert!(new(&[0, 1], &[0], &[f64::NAN]).is_err());
        assert!(new(&[0, 1], &[0], &[]).is_err());
    }
}
