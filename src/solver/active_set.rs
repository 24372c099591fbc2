//! Steps that move weight between the vertices of a convex combination (Lacoste-Julien and Jaggi 2015).

/// Largest weight of a vertex that a step may move away from. Above it, the step would be long, and
/// its direction would be a difference of nearly equal points.
const MAX_WEIGHT: f64 = 1.0 - 1e-6;

/// The direction of a step: how it changes the weights of the vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Towards a vertex.
    Towards(usize),
    /// Away from a vertex.
    Away(usize),
    /// Moves weight from the second vertex to the first vertex.
    Pairwise(usize, usize),
}

impl StepKind {
    /// Chooses the step with the larger slope: towards the vertex `to`, or away from the vertex `from`. If (nearly) all
    /// weight is on `from`, the step is towards `to`, because the direction of an away step would be mostly rounding
    /// error.
    pub fn better(to: usize, towards: f64, from: usize, away: f64, weight: f64) -> Self {
        if towards >= away || weight > MAX_WEIGHT { Self::Towards(to) } else { Self::Away(from) }
    }

    /// The longest step that keeps all weights non-negative.
    pub fn longest(self, weight: impl Fn(usize) -> f64) -> f64 {
        match self {
            Self::Towards(_) => 1.0,
            Self::Away(from) => weight(from) / (1.0 - weight(from)),
            Self::Pairwise(_, from) => weight(from),
        }
    }

    /// The weight of a vertex after a step. `full` marks the longest possible step. A weight that such a step removes
    /// becomes exactly 0.
    pub fn weight(self, index: usize, weight: f64, step: f64, full: bool) -> f64 {
        match self {
            Self::Towards(to) if full => f64::from(index == to),
            Self::Towards(to) => (1.0 - step) * weight + if index == to { step } else { 0.0 },
            Self::Away(from) | Self::Pairwise(_, from) if full && index == from => 0.0,
            Self::Away(from) => (1.0 + step) * weight - if index == from { step } else { 0.0 },
            Self::Pairwise(to, _) if index == to => weight + step,
            Self::Pairwise(_, from) if index == from => weight - step,
            Self::Pairwise(..) => weight,
        }
    }
}

/// The index of the largest value; if several are equal, the first.
pub fn largest(values: impl Iterator<Item = (usize, f64)>) -> Option<usize> {
    values.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(index, _)| index)
}
