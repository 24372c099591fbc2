//! The methods by name.

/// The steps of a method.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum FrankWolfeMethod {
    /// Towards the vertex of the linear oracle. The point is not kept as a combination of vertices.
    FrankWolfe,
    /// Away from an active vertex if that has the larger slope (Guélat and Marcotte 1986).
    Away,
    /// From the worst active vertex to that of the oracle (Lacoste-Julien and Jaggi 2015).
    #[default]
    Pairwise,
    /// Away steps whose oracle searches the active vertices and a random share of all (Kerdreux et
    /// al. 2018).
    RandomizedAway {
        /// Share of the vertices, more than 0 and at most 1.
        share: f64,
    },
}

impl FrankWolfeMethod {
    /// The methods by their names, with all vertices searched.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("frank-wolfe", Self::FrankWolfe),
        ("away", Self::Away),
        ("pairwise", Self::Pairwise),
        ("randomized-away", Self::RandomizedAway { share: 1.0 }),
    ];
}
