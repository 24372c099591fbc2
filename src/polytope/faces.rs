//! The curvature of projections: the directions of the face that contains a point
//! (docs/mathematics/newton.md#curvature).
//!
//! A projection onto a polytope is piecewise linear. Its derivative at an argument is the
//! orthogonal projection onto the directions of the face that contains the result. In the
//! coordinates u = −α of the lifted point (β off the label, −1ᵀβ at the label) these directions are
//! the vectors whose sums over certain groups of classes are 0. For the top-k sets, there is also
//! the direction in which the size of the point changes.

use crate::dual::Curvatures;

/// Distance to a bound, relative to the largest sum, below which the bound counts as active.
/// Rounding errors can be this large.
const ACTIVE_TOL: f64 = 1e-9;

/// The face of a box with a bounded sum. Its only group has the classes whose β is neither 0 nor at
/// its bound, and the label if the sum is not at its bound.
pub(super) fn box_face(
    beta: &[f64],
    label: usize,
    (upper, cap): (f64, f64),
    curvatures: &mut Curvatures,
) {
    let open = beta.iter().sum::<f64>() < cap * (1.0 - ACTIVE_TOL);
    let is_free = move |class: usize, value: f64| {
        if class == label { open } else { value > 0.0 && value < upper }
    };
    let free = (0..).zip(beta).filter(move |&(class, value)| is_free(class as usize, *value));
    curvatures.add_group(free.map(|(class, _)| class));
}

/// A face with a single group: the label and all classes with β > 0. The face contains every direction that is
/// possible in any set of non-negative points, so its curvature bounds the curvature of any such set.
pub(super) fn largest_face(beta: &[f64], label: usize, curvatures: &mut Curvatures) {
    box_face(beta, label, (f64::INFINITY, f64::INFINITY), curvatures);
}

/// The sorted coordinates and the partial sums of the weights.
struct SortedSums<'a> {
    /// The classes with β > 0, largest first.
    order: &'a [usize],
    beta: &'a [f64],
    /// R_j = ρ_1 + .. + ρ_j for j = 0, .., m.
    bounds: &'a [f64],
}

/// A group of consecutive ranks: its start, its end, and the rate at which the sum of the group
/// grows with the size of the point.
type Stretch = (usize, usize, f64);

/// Sorts the classes with β > 0 by decreasing β.
fn sort_positive(beta: &[f64], label: usize, order: &mut Vec<usize>) {
    order.clear();
    order.extend((0..beta.len()).filter(|class| *class != label && beta[*class] > 0.0));
    order.sort_unstable_by(|&i, &j| beta[j].total_cmp(&beta[i]).then(i.cmp(&j)));
}

/// Computes R_0, .., R_m, the partial sums of the weights ρ_1, .., ρ_m.
fn partial_sums(rho: impl Iterator<Item = f64>, bounds: &mut Vec<f64>) {
    bounds.clear();
    bounds.push(0.0);
    bounds.extend(rho.scan(0.0, |sum, rho| {
        *sum += rho;
        Some(*sum)
    }));
}

/// The face of {β ≥ 0: the j largest sum to at most R_j}: one group between each active bound and
/// the next, and the label's group after the last active bound.
pub(super) fn face_below(
    beta: &[f64],
    label: usize,
    rho: impl Iterator<Item = f64>,
    (order, bounds): (&mut Vec<usize>, &mut Vec<f64>),
    curvatures: &mut Curvatures,
) {
    sort_positive(beta, label, order);
    partial_sums(rho, bounds);
    let (mut start, mut sum) = (0, 0.0);
    for end in 1..=order.len() {
        sum += beta[order[end - 1]];
        if sum >= bounds[end] - ACTIVE_TOL * bounds[bounds.len() - 1] {
            curvatures.add_group(order[start..end].iter().map(|class| *class as u32));
            start = end;
        }
    }
    let rest = order[start..].iter().chain(std::iter::once(&label));
    curvatures.add_group(rest.map(|class| *class as u32));
}

/// The face of conv({0} ∪ permutations of ρ) without the label's coordinate. It has groups between the active upper
/// bounds, the label's group, and groups between the active lower bounds. Unless the point has the maximum size, the
/// face also has the direction in which the point grows as a whole.
pub(super) fn face_between(
    beta: &[f64],
    label: usize,
    rho: impl Iterator<Item = f64>,
    (order, bounds): (&mut Vec<usize>, &mut Vec<f64>),
    curvatures: &mut Curvatures,
) {
    sort_positive(beta, label, order);
    partial_sums(rho, bounds);
    let sums = SortedSums { order, beta, bounds };
    let (groups, middle, size) = sums.stretches();
    let part = |rank: usize| sums.order[rank] as u32;
    for &(start, end, _) in &groups {
        curvatures.add_group((start..end).map(part));
    }
    let own = (middle.0..middle.1).map(part).chain(std::iter::once(label as u32));
    curvatures.add_group(own.clone());
    if size >= 1.0 - ACTIVE_TOL {
        return;
    }
    let (mut rates, mut total) = (Vec::new(), 0.0);
    for &(start, end, rate) in &groups {
        rates.extend((start..end).map(|rank| (part(rank), rate / (end - start) as f64)));
        total += rate;
    }
    let share = total / (middle.1 - middle.0 + 1) as f64;
    rates.extend(own.map(|part| (part, -share)));
    let norm = rates.iter().map(|(_, rate)| rate * rate).sum::<f64>().sqrt();
    if norm > 0.0 {
        curvatures.add_square(rates.into_iter().map(|(part, rate)| (part, rate / norm)));
    }
}

impl SortedSums<'_> {
    /// The groups of the face without the label, the ranks of the label's group, and the size of
    /// the point.
    fn stretches(&self) -> (Vec<Stretch>, (usize, usize), f64) {
        let Self { order, beta, bounds } = self;
        let (n, all) = (order.len(), bounds[bounds.len() - 1]);
        let mut sums = vec![0.0; n + 1];
        for end in 1..=n {
            sums[end] = sums[end - 1] + beta[order[end - 1]];
        }
        let size = (1..=n).map(|end| sums[end] / bounds[end]).fold(0.0, f64::max).min(1.0);
        let near = ACTIVE_TOL * all;
        let (mut groups, mut start) = (Vec::new(), 0);
        for end in 1..=n {
            if sums[end] >= size * bounds[end] - near {
                groups.push((start, end, bounds[end] - bounds[start]));
                start = end;
            }
        }
        // A lower bound is active if the coordinates after `rank` add up to no more than size · (R_m − R_{rank + 1}).
        // The index is rank + 1 because the label's coordinate may be one of the rank + 1 largest coordinates.
        let is_met = |rank: usize| sums[n] - sums[rank] <= size * (all - bounds[rank + 1]) + near;
        let met: Vec<usize> = (start..=n).filter(|rank| is_met(*rank)).collect();
        let middle = (start, met.first().copied().unwrap_or(n));
        for pair in met.windows(2) {
            groups.push((pair[0], pair[1], bounds[pair[1] + 1] - bounds[pair[0] + 1]));
        }
        (groups, middle, size)
    }
}
