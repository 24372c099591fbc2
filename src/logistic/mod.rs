//! Multinomial logistic regression: problem, certificate and solvers.
//!
//! Minimises P = ½‖W‖² + Σ_i c_i [log Σ_k exp(s_ik) − s_iy], s_i = W x_i + b, over W and an unpenalised intercept b.
//! The dual maximises D(α) = Σ_i c_i H(α_i) − ½‖Σ_i c_i (e_y − α_i) x_iᵀ‖² over one distribution α_i per example, where
//! H is the entropy. An intercept adds the constraint Σ_i c_i (e_y − α_i) = 0.

mod certificate;
mod certificate_pass;
mod columns;
mod dual_descent;
mod fit;
mod hand_over;
mod newton;
mod partition;
mod problem;
mod sparse_row;
mod terms;

pub use certificate::certificate;
pub use dual_descent::{DualDescent, DualDescentOptions, suits_dual_descent};
pub use fit::{InterceptCurvature, LogisticFit, LogisticMethod, fit_logistic, fit_logistic_path};
pub(crate) use partition::{PartialSums, hessian_product};
pub use problem::{LogisticModel, LogisticProblem, LogisticTotals};
use problem::{RowSpread, is_sparse};
