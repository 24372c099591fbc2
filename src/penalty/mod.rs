//! Penalties Ω on the output layer, which has one row per basis vector (Blondel et al. 2017, Table
//! 1; docs/mathematics/polynomial-networks.md#penalties).
//!
//! A penalty provides its value, the dual norm of a row, the atom that attains this dual norm (the
//! step of conditional gradient), and the projection onto its ball. Each penalty has its own file;
//! [`REGISTRY`] lists the names.

mod l1;
mod l1_l2;
mod l1_linf;

pub use l1::L1;
pub use l1_l2::L1L2;
pub use l1_linf::L1LInf;

use std::fmt;

use ndarray::{ArrayView2, ArrayViewMut2};

use crate::error::Result;
use crate::linalg::vectors::higham_gamma;
use crate::names::find;

/// A row-separable norm Ω(U) = Σ_r ω(u_r).
pub trait Penalty: Send + Sync + fmt::Debug {
    /// ω(u) of one row.
    fn row_norm(&self, row: &[f64]) -> f64;

    /// ω*(g), the dual norm of one row, which selects basis vectors (Blondel et al. 2017, (9)).
    fn dual_row_norm(&self, row: &[f64]) -> f64;

    /// Writes to `atom` the row u with ω(u) = 1 and ⟨u, g⟩ = ω*(g) (Blondel et al. 2017, Table 1).
    fn atom_row(&self, gradient: &[f64], atom: &mut [f64]);

    /// Projects `output` onto {Ω ≤ radius}; leaves it unchanged if it is already inside.
    fn project(&self, output: ArrayViewMut2<'_, f64>, radius: f64);

    /// How basis selection refines its start vector, which maximises max_c |g_c|.
    fn refinement(&self, start_gradient: &[f64]) -> Refinement;

    /// A smooth version of ω*(g). It equals ω*(g) if all |g_c| > smoothing. Writes its gradient to
    /// `weights`.
    fn smoothed_dual(&self, gradient: &[f64], smoothing: f64, weights: &mut [f64]) -> f64;

    /// The vertices of {ω ≤ 1}, one from each pair ±u. Exact basis selection tries all of them.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) if there are infinitely many, or too many
    /// to enumerate.
    fn half_of_vertices(&self, n_outputs: usize) -> Result<Vec<Vec<f64>>>;

    /// Ω(U).
    fn value(&self, output: ArrayView2<'_, f64>) -> f64 {
        output.rows().into_iter().map(|row| self.row_norm(&row.to_vec())).sum()
    }
}

/// A way to refine a basis vector (docs/mathematics/polynomial-networks.md#refinement).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Refinement {
    /// No refinement: the start vector is already optimal.
    None,
    /// Conditional gradient ascent on the dual norm.
    Ascent {
        /// Half the width of the interval around 0 in which |g_c| is smoothed, in the units of g.
        smoothing: f64,
    },
}

type PenaltyConstructor = fn() -> Box<dyn Penalty>;

/// Every penalty by its name.
pub const REGISTRY: &[(&str, PenaltyConstructor)] =
    &[("l1", || Box::new(L1)), ("l1/l2", || Box::new(L1L2)), ("l1/linf", || Box::new(L1LInf))];

/// The penalty called `name`.
///
/// # Errors
/// [`InvalidArgument`](crate::Error::InvalidArgument) listing the known names.
pub fn parse(name: &str) -> Result<Box<dyn Penalty>> {
    Ok(find("penalty", name, REGISTRY)?())
}

/// Shrinks U just enough for Ω(U) ≤ radius to hold in exact arithmetic. `n_roundings` is the number of roundings in the
/// computation of U, or of factors by which U is multiplied. Leaves U unchanged if Ω(U) exceeds the radius by at most
/// `tolerance` times the radius.
pub(super) fn pull_inside(
    penalty: &dyn Penalty,
    mut output: ArrayViewMut2<'_, f64>,
    radius: f64,
    (n_roundings, tolerance): (usize, f64),
) {
    let lost = 1.0 + 2.0 * higham_gamma(output.len() + n_roundings + 8);
    for _ in 0..4 {
        let value = penalty.value(output.view()) * lost;
        if value <= radius * (1.0 + tolerance) || value.is_nan() {
            return;
        }
        // If the norm has overflowed, scale down first.
        let scale = if value.is_finite() {
            radius / value * (1.0 - 4.0 * f64::EPSILON)
        } else {
            f64::EPSILON * f64::EPSILON
        };
        output.mapv_inplace(|u| u * scale);
    }
}

/// Returns the level θ ≥ 0 at which Σ max(a_i − θ, 0) = radius, given a ≥ 0 with Σ a_i > radius.
///
/// Takes linear time on average: partitions the values around a pivot, and continues with the side
/// that contains the level.
fn soft_threshold_level(a: &mut [f64], radius: f64) -> f64 {
    let (mut start, mut end) = (0, a.len());
    // The number of entries known to be above the level, and their sum.
    let (mut count, mut sum) = (0usize, 0.0);
    while start < end {
        let middle = start + (end - start) / 2;
        let (above, pivot, _) =
            a[start..end].select_nth_unstable_by(middle - start, |x, y| y.total_cmp(x));
        let pivot = *pivot;
        let (n_above, sum_above) = (above.len() + 1, above.iter().sum::<f64>() + pivot);
        if sum + sum_above - (count + n_above) as f64 * pivot < radius {
            count += n_above;
            sum += sum_above;
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    if count == 0 { 0.0 } else { ((sum - radius) / count as f64).max(0.0) }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;
    use proptest::prelude::*;

    use super::*;

    fn matrix() -> impl Strategy<Value = Array2<f64>> {
        // Multiples of 1/2, so that ties are likely.
        prop::collection::vec((-8i32..=8).prop_map(|v| f64::from(v) / 2.0), 12)
            .prop_map(|values| Array2::from_shape_vec((4, 3), values).unwrap())
    }

    proptest! {
        /// p = Proj(v) iff Ω(p) ≤ τ and ⟨v − p, p⟩ = τ Ω*(v − p) (or v is inside).
        #[test]
        fn projections_satisfy_their_optimality_conditions(v in matrix(), radius in 0.1..12.0f64) {
            for (name, build) in REGISTRY {
                let penalty = build();
                let mut p = v.clone();
                penalty.project(p.view_mut(), radius);
                prop_assert!(penalty.value(p.view()) <= radius * (1.0 + 1e-12));
                if penalty.value(v.view()) <= radius {
                    prop_assert_eq!(&p, &v);
                    continue;
                }
                let residual = &v - &p;
                let dual = residual
                    .rows()
                    .into_iter()
                    .map(|row| penalty.dual_row_norm(&row.to_vec()))
                    .fold(0.0, f64::max);
                let inner = (&residual * &p).sum();
                prop_assert!((inner - radius * dual).abs() < 1e-9, "{name}: {inner} {}", radius * dual);
            }
        }

        /// ⟨u, g⟩ ≤ ω(u) ω*(g), with equality at the atom.
        #[test]
        fn atoms_attain_the_dual_norm(
            g in prop::collection::vec(-3.0..3.0f64, 4),
            u in prop::collection::vec(-3.0..3.0f64, 4),
        ) {
            let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
            for (_, build) in REGISTRY {
                let penalty = build();
                let mut atom = vec![0.0; 4];
                penalty.atom_row(&g, &mut atom);
                prop_assert!((penalty.row_norm(&atom) - 1.0).abs() < 1e-12);
                prop_assert!((dot(&atom, &g) - penalty.dual_row_norm(&g)).abs() < 1e-12);
                prop_assert!(dot(&u, &g) <= penalty.row_norm(&u) * penalty.dual_row_norm(&g) + 1e-12);
            }
        }

        /// ω*(g) = max |⟨u, g⟩| over the vertices.
        #[test]
        fn the_vertices_attain_the_dual_norm(g in prop::collection::vec(-3.0..3.0f64, 1..6)) {
            for (_, build) in REGISTRY {
                let penalty = build();
                // The ball of l1/l2 has infinitely many vertices.
                let Ok(vertices) = penalty.half_of_vertices(g.len()) else { continue };
                let product = |u: &Vec<f64>| u.iter().zip(&g).map(|(u, g)| u * g).sum::<f64>().abs();
                let largest = vertices.iter().map(product).fold(0.0, f64::max);
                prop_assert!((largest - penalty.dual_row_norm(&g)).abs() < 1e-12);
                prop_assert!(vertices.iter().all(|u| penalty.row_norm(u) == 1.0));
            }
        }

        /// Also tests points far outside the ball, whose projections have few correct digits.
        #[test]
        fn points_pulled_inside_a_set_are_feasible(v in matrix(), radius in 0.1..12.0f64, exponent in 0..20) {
            for (name, build) in REGISTRY {
                let penalty = build();
                let mut p = &v * 10f64.powi(exponent);
                penalty.project(p.view_mut(), radius);
                pull_inside(&*penalty, p.view_mut(), radius, (0, 0.0));
                let exact: f64 = penalty.value(p.view()) * (1.0 + 1e-15);
                prop_assert!(exact <= radius, "{name} {exact} {radius}");
            }
        }

        #[test]
        fn the_threshold_level_matches_a_sort(a in prop::collection::vec(0.0..3.0f64, 1..20), share in 0.01..0.99f64) {
            let radius = share * a.iter().sum::<f64>();
            prop_assume!(radius > 0.0);
            let level = soft_threshold_level(&mut a.clone(), radius);
            let kept: f64 = a.iter().map(|x| (x - level).max(0.0)).sum();
            prop_assert!((kept - radius).abs() < 1e-10);
        }
    }

    #[test]
    fn too_many_vertices_are_rejected() {
        assert!(parse("l1/l2").unwrap().half_of_vertices(2).is_err());
        let penalty = parse("l1/linf").unwrap();
        assert_eq!(penalty.half_of_vertices(16).unwrap().len(), 1 << 15);
        let message = penalty.half_of_vertices(17).unwrap_err().to_string();
        assert!(message.contains("16 outputs"), "{message}");
    }

    #[test]
    fn zero_gradients_have_an_atom_and_no_dual_norm() {
        for (_, build) in REGISTRY {
            let penalty = build();
            let mut atom = [0.0; 3];
            penalty.atom_row(&[0.0; 3], &mut atom);
            assert!(atom.iter().all(|a| a.is_finite()));
            assert_eq!(penalty.dual_row_norm(&[0.0; 3]), 0.0);
        }
    }
}
