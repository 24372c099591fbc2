//! The Frank-Wolfe methods and their names.

/// The steps of a method.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum FrankWolfeMethod {
    /// Steps towards the vertex that the linear oracle returns. The method does not track the weights of the vertices.
    FrankWolfe,
    /// Also steps away from an active vertex, if that direction is steeper (Guélat and Marcotte
    /// 1986).
    Away,
    /// Moves weight from the worst active vertex to the oracle's vertex (Lacoste-Julien and Jaggi
    /// 2015).
    #[default]
    Pairwise,
    /// Away steps whose oracle searches only the active vertices and a random share of all vertices
    /// (Kerdreux et al. 2018).
    RandomizedAway {
        /// Share of the vertices to search, more than 0 and at most 1.
        share: f64,
    },
}

impl FrankWolfeMethod {
    /// Every method with its name; "randomized-away" searches all vertices.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("frank-wolfe", Self::FrankWolfe),
        ("away", Self::Away),
        ("pairwise", Self::Pairwise),
        ("randomized-away", Self::RandomizedAway { share: 1.0 }),
    ];
}
