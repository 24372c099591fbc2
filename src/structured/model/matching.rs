//! The structured model whose label is a matching between rows and columns.

use super::assignment::{NONE, assign};
use super::links::link;
use super::rows::CompactRows;
use super::{Model, PartSize, Work};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::linalg::{Sparse, TouchedVector};

/// Partial matchings between the rows and the columns of an example, such as the words of a sentence
/// and of its translation (Taskar et al. 2006): ⟨w, φ(x, z)⟩ = Σ_ab z_ab ⟨w, F_ab⟩.
///
/// Part a · columns + b is the pair (a, b). A label lists the column of each row's first link, or `u32::MAX` for an
/// unmatched row. If rows may have several links, the parts of all other links follow. The loss Σ_ab fn · gt_ab (1 −
/// z_ab) + fp · (1 − gt_ab) z_ab charges a cost fn for each missed pair of the truth and a cost fp for each wrong pair.
///
/// The truth gt may be any set of pairs. If it is not a matching, decoding never returns it, so no decoded label has a
/// loss of 0.
#[derive(Debug, Clone)]
pub struct Matching {
    rows: CompactRows,
    examples: Vec<Example>,
    labels: Vec<u32>,
    /// Whether the examples have labels; a label may be an empty matching.
    labelled: bool,
    /// The pairs of the truth, as increasing indices of parts.
    right: Vec<u32>,
    false_positive: f64,
    false_negative: f64,
    /// Maximum number of links of a row and of a column.
    max_links: [usize; 2],
}

/// The size of an example, and the indices at which its feature rows, its label and its correct pairs start.
#[derive(Debug, Clone, Copy)]
struct Example {
    n_rows: usize,
    n_columns: usize,
    first: usize,
    label: usize,
    right: usize,
}

/// Pairs (row, column) of several examples.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a> {
    /// All pairs, example by example.
    pub pairs: &'a [[u32; 2]],
    /// Example i has the pairs `offsets[i]..offsets[i + 1]`.
    pub offsets: &'a [usize],
}

impl Matching {
    /// Creates the model. Example i has the size `sizes[i]` = \[rows, columns\]. Its features F_ab are the next `rows ·
    /// columns` rows of `data`. In training, `truth` has its true pairs. A wrong pair costs `false_positive` and a
    /// missed pair `false_negative`; if both costs are 1, the loss is the number of pairs in which z and gt differ.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the invalid argument: `X`, `y`, `false_positive_cost` or
    /// `false_negative_cost`.
    pub fn new(
        data: Data<'_>,
        sizes: &[[u32; 2]],
        truth: Option<Pairs<'_>>,
        false_positive: f64,
        false_negative: f64,
    ) -> Result<Self> {
        let rows = CompactRows::new(data)?;
        check_cost("false_positive_cost", false_positive)?;
        check_cost("false_negative_cost", false_negative)?;
        let n_pairs =
            sizes.iter().map(|[n_rows, n_columns]| u64::from(*n_rows) * u64::from(*n_columns));
        if n_pairs.clone().any(|n| n >= u64::from(NONE))
            || n_pairs.sum::<u64>() != rows.len() as u64
        {
            let message = "an example needs one row of features for each of its pairs";
            return Err(Error::argument("X", message));
        }
        if let Some(Pairs { pairs, offsets }) = truth
            && (offsets.len() != sizes.len() + 1
                || offsets.first() != Some(&0)
                || offsets.last() != Some(&pairs.len())
                || offsets.windows(2).any(|pair| pair[0] > pair[1]))
        {
            let message =
                format!("must have a list of pairs for each of the {} examples", sizes.len());
            return Err(Error::argument("y", message));
        }
        let mut model = Self {
            rows,
            examples: Vec::with_capacity(sizes.len() + 1),
            labels: Vec::new(),
            labelled: truth.is_some(),
            right: Vec::new(),
            false_positive,
            false_negative,
            max_links: [1, 1],
        };
        let mut first = 0;
        for (index, size) in sizes.iter().enumerate() {
            let [n_rows, n_columns] = size.map(|size| size as usize);
            let (label, right) = (model.labels.len(), model.right.len());
            model.examples.push(Example { n_rows, n_columns, first, label, right });
            first += n_rows * n_columns;
            if let Some(Pairs { pairs, offsets }) = truth {
                model.add_truth(index, *size, &pairs[offsets[index]..offsets[index + 1]])?;
            }
        }
        let (label, right) = (model.labels.len(), model.right.len());
        model.examples.push(Example { n_rows: 0, n_columns: 0, first, label, right });
        Ok(model)
    }

    /// Sets the maximum number of links of a row and of a column; both are 1 by default.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for 0.
    pub fn with_max_links(mut self, max_links: [usize; 2]) -> Result<Self> {
        if max_links.contains(&0) {
            return Err(Error::argument("max_links", "must be at least 1"));
        }
        self.max_links = max_links;
        Ok(self)
    }

    /// Whether no row and no column may have more than one link.
    pub fn is_one_to_one(&self) -> bool {
        self.max_links == [1, 1]
    }

    /// Appends the true label of an example.
    fn add_truth(&mut self, example: usize, size: [u32; 2], pairs: &[[u32; 2]]) -> Result<()> {
        let [n_rows, n_columns] = size;
        let fail = |[a, b]: [u32; 2], what: &str| {
            Err(Error::argument("y", format!("example {example}: the pair ({a}, {b}) {what}")))
        };
        let mut pairs = pairs.to_vec();
        pairs.sort_unstable();
        if let Some(pair) = pairs.iter().find(|[a, b]| *a >= n_rows || *b >= n_columns) {
            return fail(*pair, &format!("is outside its {n_rows} × {n_columns} candidates"));
        }
        if let Some(twice) = pairs.windows(2).find(|two| two[0] == two[1]) {
            return fail(twice[0], "occurs twice");
        }
        let first = self.labels.len();
        self.labels.resize(first + n_rows as usize, NONE);
        let mut taken = vec![false; n_columns as usize];
        for [row, column] in pairs {
            let part = row * n_columns + column;
            self.right.push(part);
            let matched = &mut self.labels[first + row as usize];
            if *matched == NONE && !std::mem::replace(&mut taken[column as usize], true) {
                *matched = column;
            } else {
                self.labels.push(part);
            }
        }
        Ok(())
    }

    /// Returns the numbers of rows and columns of an example.
    pub fn size(&self, example: usize) -> (usize, usize) {
        let Example { n_rows, n_columns, .. } = self.examples[example];
        (n_rows, n_columns)
    }
}

fn check_cost(name: &'static str, cost: f64) -> Result<()> {
    if cost.is_finite() && cost >= 0.0 {
        return Ok(());
    }
    Err(Error::argument(name, format!("must be finite and not negative (is {cost})")))
}

impl Model for Matching {
    fn n_examples(&self) -> usize {
        self.examples.len() - 1
    }

    fn is_labelled(&self) -> bool {
        self.labelled
    }

    fn n_weights(&self) -> usize {
        self.rows.n_features()
    }

    fn n_parts(&self, example: usize) -> usize {
        let (n_rows, n_columns) = self.size(example);
        n_rows * n_columns
    }

    fn size(&self, example: usize) -> PartSize {
        let (norm, n_features) = self.rows.largest();
        let truth = self.truth(example).len();
        if self.is_one_to_one() {
            let n_parts = self.n_parts(example).isqrt().max(truth);
            // The shortest path for each row adds at most one price per pair.
            return PartSize { norm, n_features, n_parts, depth: 4 * n_parts * n_parts };
        }
        let (n_rows, n_columns) = self.size(example);
        let [of_rows, of_columns] = self.max_links;
        let (of_rows, of_columns) = (of_rows.min(n_columns), of_columns.min(n_rows));
        let n_links = n_rows * of_rows;
        let n_parts = n_links.min(n_columns * of_columns).max(truth);
        // There is one path for each link, and each path visits a node at most once.
        PartSize { norm, n_features, n_parts, depth: 4 * n_links * (n_rows + n_columns) }
    }

    fn scores(&self, example: usize, weights: &[f64], scores: &mut [f64]) {
        let pairs = self.examples[example].first..self.examples[example + 1].first;
        self.rows.scores(pairs, 1, weights, scores);
    }

    fn scores_at(&self, example: usize, parts: &[u32], weights: &[f64], scores: &mut [f64]) {
        let first = self.examples[example].first;
        for &part in parts {
            let part = part as usize;
            scores[part] = self.rows.score(first + part, 0, 1, weights);
        }
    }

    fn add_costs(&self, example: usize, scores: &mut [f64]) -> f64 {
        if self.labels.is_empty() {
            return 0.0;
        }
        let right = &self.right[self.examples[example].right..self.examples[example + 1].right];
        let mut at = 0;
        for &part in right {
            let part = part as usize;
            scores[at..part].iter_mut().for_each(|score| *score += self.false_positive);
            scores[part] -= self.false_negative;
            at = part + 1;
        }
        scores[at..].iter_mut().for_each(|score| *score += self.false_positive);
        self.false_negative * right.len() as f64
    }

    /// Finds the matching, or set of links, with the largest score by shortest augmenting paths. Pairs with scores of
    /// at most 0 are left out.
    fn decode(&self, example: usize, scores: &[f64], work: &mut Work, label: &mut Vec<u32>) {
        let (n_rows, n_columns) = self.size(example);
        if !self.is_one_to_one() {
            return link(scores, n_columns, self.max_links, work, label);
        }
        assign(scores, n_columns, work, label);
        label.resize(n_rows, NONE);
    }

    fn parts(&self, example: usize, label: &[u32], parts: &mut Sparse) {
        let (n_rows, n_columns) = self.size(example);
        let (columns, others) = label.split_at(n_rows.min(label.len()));
        parts.clear();
        for (row, column) in columns.iter().enumerate().filter(|(_, column)| **column != NONE) {
            parts.push(((row * n_columns) as u32 + column, 1.0));
        }
        if !others.is_empty() {
            parts.extend(others.iter().map(|part| (*part, 1.0)));
            parts.sort_unstable_by_key(|(part, _)| *part);
        }
    }

    fn truth(&self, example: usize) -> &[u32] {
        &self.labels[self.examples[example].label..self.examples[example + 1].label]
    }

    fn add_image(
        &self,
        example: usize,
        delta: &[(u32, f64)],
        scale: f64,
        image: &mut TouchedVector,
    ) {
        let first = self.examples[example].first;
        for &(part, value) in delta {
            let delta = std::iter::once((0, value));
            self.rows.add_image(first + part as usize, delta, 1, scale, image);
        }
    }
}
