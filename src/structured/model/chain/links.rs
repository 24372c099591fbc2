//! The links of a chain: its transitions, first labels and last labels, and which of them have weights.

use crate::error::{Error, Result};

/// The score of a forbidden transition. It is below the score of any allowed path, but finite, so that differences of
/// such scores are defined.
pub const FORBIDDEN: f64 = -1e30;

/// The kind of a transition, a first label or a last label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainLink {
    /// The link must not occur in a label.
    Forbidden,
    /// The link may occur, and has a weight.
    Weighted,
    /// The link may occur, and scores 0.
    Free,
}

/// The kinds of all links: transitions \[a, b\] between K labels, first labels and last labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    n_states: usize,
    links: Vec<ChainLink>,
    boundaries: bool,
    plain: bool,
}

impl Links {
    /// Gives weights to all transitions and, if `boundaries` is set, to first and last labels.
    pub fn all(n_states: usize, boundaries: bool) -> Self {
        let ends = if boundaries { ChainLink::Weighted } else { ChainLink::Free };
        let mut links = vec![ChainLink::Weighted; n_states * n_states];
        links.resize(n_states * (n_states + 2), ends);
        Self { n_states, links, boundaries, plain: true }
    }

    /// Reads K × K codes of transitions, then K codes of first and K of last labels: 0 is forbidden, 1 has a weight, 2
    /// is free.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `transitions` for a wrong number of codes or an unknown code.
    pub fn from_codes(n_states: usize, codes: &[u8]) -> Result<Self> {
        let fail = |message: &str| Err(Error::argument("transitions", message));
        if codes.len() != n_states * (n_states + 2) {
            return fail("must have a code for each transition, first and last label");
        }
        if codes.iter().any(|code| *code > 2) {
            return fail("codes must be 0, 1 or 2");
        }
        let kinds = [ChainLink::Forbidden, ChainLink::Weighted, ChainLink::Free];
        let links: Vec<ChainLink> = codes.iter().map(|code| kinds[usize::from(*code)]).collect();
        let boundaries = links[n_states * n_states..].contains(&ChainLink::Weighted);
        let plain = links[..n_states * n_states].iter().all(|link| *link == ChainLink::Weighted);
        Ok(Self { n_states, links, boundaries, plain })
    }

    /// Number K of labels.
    pub fn n_states(&self) -> usize {
        self.n_states
    }

    /// Number of weights: K² for transitions, and 2 K for first and last labels if any of these has a weight.
    pub fn n_weights(&self) -> usize {
        let n_edges = self.n_states * self.n_states;
        if self.boundaries { n_edges + 2 * self.n_states } else { n_edges }
    }

    /// Whether first and last labels have weights.
    pub fn has_boundaries(&self) -> bool {
        self.boundaries
    }

    /// Whether all transitions have weights.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns the kind of the link with this index. Indices run over transitions, then first labels, then last labels.
    pub fn of(&self, index: usize) -> ChainLink {
        self.links[index]
    }

    /// Returns the score of one link, given the weights of all links.
    #[inline]
    pub fn score(&self, index: usize, weights: &[f64]) -> f64 {
        match self.links[index] {
            ChainLink::Weighted => weights[index],
            ChainLink::Free => 0.0,
            ChainLink::Forbidden => FORBIDDEN,
        }
    }

    /// Returns the indices of the boundary links of label 0 at position t of a sequence: as the first label if t is the
    /// first position, and as the last label if t is the last position.
    pub fn at_ends(&self, t: usize, len: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let first = self.n_states * self.n_states;
        let start = (t == 0).then_some(first);
        let end = (t + 1 == len).then_some(first + self.n_states);
        start.into_iter().chain(end)
    }

    /// Checks that a label has no forbidden links. The error names the sequence.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming `y`.
    pub fn check_label(&self, sequence: usize, label: &[u32]) -> Result<()> {
        let (n_states, n_edges) = (self.n_states, self.n_states * self.n_states);
        let pairs = label.windows(2).map(|pair| pair[0] as usize * n_states + pair[1] as usize);
        let first = label.first().map(|first| n_edges + *first as usize);
        let last = label.last().map(|last| n_edges + n_states + *last as usize);
        let mut links = pairs.chain(first).chain(last);
        match links.find(|index| self.links[*index] == ChainLink::Forbidden) {
            None => Ok(()),
            Some(index) => {
                let what = match index.checked_sub(n_edges) {
                    None => format!("class {} after {}", index % n_states, index / n_states),
                    Some(rest) if rest < n_states => format!("class {rest} at the beginning"),
                    Some(rest) => format!("class {} at the end", rest - n_states),
                };
                let message = format!("label {sequence} has {what}, which transitions forbid");
                Err(Error::argument("y", message))
            }
        }
    }
}
