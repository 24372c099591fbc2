//! Sequences with unknown labels, and the label costs that a logistic loss uses (as logarithms).

use super::{Chain, FORBIDDEN};
use crate::error::{Error, Result};
use crate::structured::model::Model;

impl Chain {
    /// Declares which labels are known; labels of other rows are placeholders. Must be called
    /// before [`with_links`](Self::with_links), which checks only sequences whose labels are all
    /// known.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `y` unless there is an entry for each row.
    pub fn with_known(mut self, known: &[bool]) -> Result<Self> {
        if known.len() != self.emissions.rows().len() {
            return Err(Error::argument("y", "must have an entry for each row"));
        }
        self.known = known.contains(&false).then(|| known.to_vec());
        Ok(self)
    }

    /// Whether some labels are unknown.
    pub fn has_unknown(&self) -> bool {
        self.known.is_some()
    }

    /// Whether all labels of a sequence are known.
    pub fn is_known(&self, example: usize) -> bool {
        self.known.as_ref().is_none_or(|known| !known[self.rows_of(example)].contains(&false))
    }

    /// Forbids all labels of a sequence that contradict its known labels.
    pub(in crate::structured) fn forbid_others(&self, example: usize, scores: &mut [f64]) {
        let Some(known) = &self.known else { return };
        let positions = scores.chunks_exact_mut(self.n_states()).zip(self.truth(example));
        for ((nodes, right), known) in positions.zip(&known[self.rows_of(example)]) {
            for (label, node) in nodes.iter_mut().enumerate() {
                if *known && label != *right as usize {
                    *node = FORBIDDEN;
                }
            }
        }
    }

    /// Writes the logarithms of the costs of all labels at all rows of a sequence: 0 for true
    /// labels and at rows whose label is unknown. Leaves `costs` empty if all costs are 1.
    pub(in crate::structured) fn log_costs(&self, example: usize, costs: &mut Vec<f64>) {
        costs.clear();
        let Some(all) = &self.costs else { return };
        for (row, right) in self.rows_of(example).zip(self.truth(example)) {
            let is_known = self.known.as_ref().is_none_or(|known| known[row]);
            let cost = if is_known { all[row].ln().max(FORBIDDEN) } else { 0.0 };
            let start = costs.len();
            costs.resize(start + self.n_states(), cost);
            costs[start + *right as usize] = 0.0;
        }
    }

    /// Returns the same sequences with these labels, all of which then count as known. Errors at rows whose label was
    /// unknown cost nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `y` for forbidden labels.
    pub fn completed(&self, labels: Vec<u32>) -> Result<Self> {
        super::check_labels(&labels, self.emissions.rows().len(), self.n_states())?;
        let mut chain = self.clone();
        if let Some(known) = chain.known.take() {
            let costs = chain.costs.get_or_insert_with(|| vec![1.0; known.len()]);
            costs.iter_mut().zip(known).for_each(|(cost, known)| *cost *= f64::from(known));
        }
        chain.labels = Some(labels);
        let links = chain.links.clone();
        chain.with_links(links)
    }

    /// Returns the labels of a sequence that agree with the known labels and have the best score at the given weights.
    pub fn complete(&self, example: usize, weights: &[f64]) -> Vec<u32> {
        let (mut scores, mut label) = (vec![0.0; self.n_parts(example)], Vec::new());
        self.scores(example, weights, &mut scores);
        self.forbid_others(example, &mut scores);
        self.decode(example, &scores, &mut Default::default(), &mut label);
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Dense};
    use crate::structured::Hamming;

    fn chain() -> Chain {
        let values = ndarray::arr2(&[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]);
        let rows = Data::Dense64(Dense::new(values.view()).unwrap());
        Chain::new(rows, &[0, 2, 3], Some(&[0, 1, 1]), 2, false, Hamming::Count).unwrap()
    }

    #[test]
    fn unknown_labels_cost_nothing() {
        assert!(!chain().with_known(&[true; 3]).unwrap().has_unknown());
        assert!(chain().with_known(&[true; 2]).is_err());
        let chain = chain().with_known(&[true, false, true]).unwrap();
        assert!(chain.has_unknown() && !chain.is_known(0) && chain.is_known(1));
        let mut scores = vec![0.0; 8];
        chain.forbid_others(0, &mut scores);
        assert_eq!(scores, [0.0, FORBIDDEN, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        // W[feature][label], then the transitions.
        let weights = [-1.0, 5.0, 3.0, 2.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(chain.complete(0, &weights), [0, 0]);
        let weights = [-1.0, 5.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(chain.complete(0, &weights), [0, 1]);
        let completed = chain.completed(vec![0, 0, 1]).unwrap();
        assert!(!completed.has_unknown());
        let mut costs = vec![0.0; 8];
        completed.add_costs(0, &mut costs);
        assert_eq!(costs, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(chain.completed(vec![0, 2, 1]).is_err());
    }

    #[test]
    fn costs_apply_only_to_wrong_labels() {
        let mut costs = vec![7.0];
        chain().log_costs(0, &mut costs);
        assert!(costs.is_empty());
        let chain = chain().with_known(&[true, false, true]).unwrap();
        let chain = chain.with_costs(&[2.0, 3.0, 0.0]).unwrap();
        chain.log_costs(0, &mut costs);
        assert_eq!(costs, [0.0, 2_f64.ln(), 0.0, 0.0]);
        chain.log_costs(1, &mut costs);
        assert_eq!(costs, [FORBIDDEN, 0.0]);
    }
}
