//! The exact Moreau envelope of a loss.

use super::{Polytope, Scratch, lifted};

/// Φ_m(s) = max over β in B of ⟨b, v⟩ − γ/2 (‖b‖² + (1ᵀb)²), where b is β off the label: the loss smoothed by γ > 0
/// (docs/mathematics/duality.md#smoothing). The maximiser is written to `beta`; it equals ∇Φ_m off the label.
///
/// The term (1ᵀb)² comes from the label's coordinate of the dual variable.
pub fn envelope(
    set: &dyn Polytope,
    v: &[f64],
    label: usize,
    gamma: f64,
    scratch: &mut Scratch,
    beta: &mut [f64],
) -> f64 {
    let mut scaled = std::mem::take(&mut scratch.margins);
    scaled.clear();
    scaled.extend(v.iter().map(|v| v / gamma));
    set.project(&scaled, label, 1.0, scratch, beta);
    // By concavity, Φ_m(s) ≤ Φ(v − γ(b + 1ᵀb)) + γ/2 (‖b‖² + (1ᵀb)²) for every b, with equality at
    // the maximiser. An error in b, which is large for tiny γ, can only raise the value.
    scaled.copy_from_slice(v);
    let sum = lifted::shift(&mut scaled, beta, label, gamma);
    let squares: f64 = beta.iter().map(|b| b * b).sum();
    let value = set.support(&scaled, label, scratch);
    scratch.margins = scaled;
    value + 0.5 * gamma * lifted::squared_norm(squares, sum)
}
