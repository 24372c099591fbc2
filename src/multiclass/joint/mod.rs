//! Features of rows and classes together, ψ(x, j), in place of weights of each class's own: maps, block
//! descent, and one call (`docs/mathematics/class-features.md`).

mod combined;
mod descent;
mod fit;
mod map;

pub use descent::JointDescent;
pub use fit::{JointFit, fit_joint};
pub use map::JointMap;
