//! The complete dual variable α of an example: −β off the label and 1ᵀβ at the label (`docs/mathematics/duality.md`).
//! The label's coordinate is the reason for the rank-one term of projections.

use crate::linalg::Sparse;

/// ‖α‖² = ‖β‖² + (1ᵀβ)², given ‖β‖² and 1ᵀβ.
#[inline(always)]
pub(crate) fn squared_norm(squares: f64, sum: f64) -> f64 {
    squares + sum * sum
}

/// ‖α‖² of a sparse β.
pub(crate) fn squared_norm_of(beta: &[(u32, f64)]) -> f64 {
    let (square, sum) = beta
        .iter()
        .fold((0.0, 0.0), |(square, sum), (_, weight)| (square + weight * weight, sum + weight));
    squared_norm(square, sum)
}

/// ⟨α, u⟩ and ‖u‖², where α is the complete variable of `beta`, and u is the complete variable of a sparse vertex.
/// `sum` is 1ᵀβ.
pub(crate) fn products(beta: &[f64], sum: f64, vertex: &[(u32, f64)]) -> (f64, f64) {
    let (mut cross, mut square, mut total) = (0.0, 0.0, 0.0);
    for &(class, weight) in vertex {
        cross += weight * beta[class as usize];
        square += weight * weight;
        total += weight;
    }
    (cross + sum * total, squared_norm(square, total))
}

/// Replaces the margins v by v − γ(β + 1ᵀβ), the gradient of a smoothed dual off the label. These are the margins of
/// the shifted scores s + γα. Returns 1ᵀβ.
pub(crate) fn shift(margins: &mut [f64], beta: &[f64], label: usize, smoothing: f64) -> f64 {
    let sum: f64 = beta.iter().sum();
    for (margin, beta) in margins.iter_mut().zip(beta) {
        *margin -= smoothing * (beta + sum);
    }
    margins[label] = 0.0;
    sum
}

/// [`shift`] for a sparse β.
pub(crate) fn shift_by(margins: &mut [f64], beta: &[(u32, f64)], label: usize, smoothing: f64) {
    if smoothing == 0.0 || beta.is_empty() {
        return;
    }
    let sum: f64 = beta.iter().map(|(_, weight)| weight).sum();
    margins.iter_mut().for_each(|margin| *margin -= smoothing * sum);
    for &(class, weight) in beta {
        margins[class as usize] -= smoothing * weight;
    }
    margins[label] = 0.0;
}

/// Writes scale · α for a sparse β.
pub(crate) fn scaled(beta: &[(u32, f64)], label: usize, scale: f64, alpha: &mut Sparse) {
    alpha.clear();
    alpha.extend(scaled_entries(beta, label, scale));
}

/// scale · α as (class, value) pairs, with the label's pair last.
pub(crate) fn scaled_entries(
    beta: &[(u32, f64)],
    label: usize,
    scale: f64,
) -> impl Iterator<Item = (u32, f64)> + use<'_> {
    let sum: f64 = beta.iter().map(|(_, weight)| weight).sum();
    let at_label = (!beta.is_empty()).then_some((label as u32, scale * sum));
    beta.iter().map(move |&(class, weight)| (class, -scale * weight)).chain(at_label)
}
