//! Joint features of rows and classes, ψ(x, j), instead of separate weights for each class: maps,
//! block descent, and fits (`docs/mathematics/class-features.md`).

mod combined;
mod descent;
mod fit;
mod map;

pub use descent::JointDescent;
pub use fit::{fit_joint, joint_method};
pub use map::JointMap;
