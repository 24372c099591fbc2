//! Solvers: verbs over the problem's blocks, driven by [`crate::run`]. None of them names a loss.

mod active_set;
mod away;
mod block_descent;
mod block_frank_wolfe;
mod block_subgradient;
mod consensus;
mod dual;
mod extragradient;
mod frank_wolfe;
mod margin_dual;
mod multiclass;
mod oracle;
mod path;
mod structured;
mod subgradient;

pub use away::{AwayFrankWolfe, AwayStep};
pub use block_descent::{BlockDescent, Options as BlockDescentOptions};
pub use block_frank_wolfe::{Atom, Block, BlockFrankWolfe, BlockOptions, BlockStep, Sampling};
pub use block_subgradient::BlockSubgradient;
pub use consensus::{Answer, Question, answer};
pub use dual::{BlockDual, Points, Survey};
pub use extragradient::{Extragradient, Projection};
pub use frank_wolfe::{FrankWolfe, Start, StepRule};
pub use margin_dual::MarginDual;
pub use multiclass::{DualPoint, Method, Settings, minimize};
pub use oracle::{DualOracle, MarginOracle, Vertex};
pub use path::{PathSettings, Piece, path};
pub use structured::{StructuredEnd, StructuredMethod, StructuredOptions, minimize_structured};
pub use subgradient::Subgradient;

use rayon::prelude::*;

use crate::data::Real;

/// Values of one piece of a reduction over weights.
const PIECE: usize = 1 << 14;

/// ‖w‖², summed in fixed pieces in double precision.
fn squared_norm<T: Real>(weights: &[T]) -> f64 {
    let pieces: Vec<f64> = weights
        .par_chunks(PIECE)
        .map(|piece| piece.iter().map(|weight| weight.widen().powi(2)).sum())
        .collect();
    pieces.iter().sum()
}
