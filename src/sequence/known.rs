//! Labels that are known before decoding.

use crate::error::{Error, Result};
use crate::structured::FORBIDDEN;

/// The label of each position, or a negative number if the label is unknown.
#[derive(Debug, Clone, Copy)]
pub struct KnownLabels<'a>(&'a [i32]);

impl<'a> KnownLabels<'a> {
    /// Checks the labels of `n_rows` positions.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `known` for a wrong number of labels, or for a label that does not exist.
    pub fn new(labels: &'a [i32], n_rows: usize, n_states: usize) -> Result<Self> {
        let exists = |label: &i32| usize::try_from(*label).map_or(true, |label| label < n_states);
        if labels.len() == n_rows && labels.iter().all(exists) {
            return Ok(Self(labels));
        }
        Err(Error::argument("known", "must be a label of the model or -1 for each position"))
    }

    /// Forbids all other labels at positions with a known label. `nodes` contains the scores of the positions from
    /// `start` on.
    pub(super) fn restrict(self, start: usize, nodes: &mut [f64], n_states: usize) {
        for (nodes, label) in nodes.chunks_exact_mut(n_states).zip(&self.0[start..]) {
            if let Ok(label) = usize::try_from(*label) {
                let kept = nodes[label];
                nodes.fill(FORBIDDEN);
                nodes[label] = kept;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_labels_have_finite_scores() {
        let known = [-1, 1, -1, 0];
        let known = KnownLabels::new(&known, 4, 2).unwrap();
        let mut nodes = vec![1.0, 2.0, 3.0, 4.0];
        known.restrict(2, &mut nodes, 2);
        assert_eq!(nodes, [1.0, 2.0, 3.0, FORBIDDEN]);
        known.restrict(0, &mut nodes, 2);
        assert_eq!(nodes, [1.0, 2.0, FORBIDDEN, FORBIDDEN]);
        assert!(KnownLabels::new(&[2], 1, 2).is_err());
        assert!(KnownLabels::new(&[1], 2, 2).is_err());
    }
}
