//! Consensus training: the work of one partition in a round of the alternating direction method.
//!
//! The problem P(w) = λ/2 ‖w‖² + Σ_i p_i Φ_i(w) is split into partitions k with the shares S_k = Σ_{i in k} p_i, which
//! sum to 1. Partition k has weights w_k, which are constrained to equal w̄ (Boyd et al. 2011, 7.1). The regulariser
//! and the penalty ρ are split in proportion to the shares, λ_k = S_k λ and ρ_k = S_k ρ, and the multiplier is S_k a_k.
//! After division by S_k, a partition's subproblem is (`docs/mathematics/consensus.md`)
//!
//! > minimise λ/2 ‖w‖² + ⟨a, w − w̄⟩ + ρ/2 ‖w − w̄‖² + Σ_{i in k} (p_i/S_k) Φ_i(w).
//!
//! Up to a constant, this is the problem without a consensus term and with the regulariser (λ+ρ)/2 ‖w − w₀‖² around
//! w₀ = (ρ w̄ − a)/(λ+ρ) = −C t, where C = 1/(λ+ρ) and t = a − ρ w̄. Block descent solves it with weights that start
//! at w₀.
//!
//! Together, the partitions' β are a feasible dual point of the whole problem. With the partitions'
//! [images](Solution::image) u_k, λ w(β) = Σ_k S_k u_k. With the scalars [`Solution::dual_term`],
//! the dual is D(β) = Σ_k S_k dual_term_k − λ/2 ‖w(β)‖². w(β) could also be computed from the w_k,
//! because u_k = (λ+ρ) w_k − ρ w̄ + a_k and Σ_k S_k a_k = 0. For large ρ this is less accurate, so
//! the images are computed from β.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::problem::Bounds;
use super::solvers::{BlockDescentOptions, MarginBlocks, betas_of, block_descent, points_of};
use super::{MarginProblem, ScoreMap};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::Sparse;
use crate::names::find;
use crate::polytope::{Scratch, lifted};
use crate::run::{Epoch, Stopping, run};
use crate::solver::{Blocks, Proximal, SecondOrder, second_order};

/// The solver of a partition's subproblem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubproblemSolver {
    /// [Block descent](block_descent): visits the candidate classes of the rows that are not
    /// optimal.
    BlockDescent,
    /// The sequential dual method (Keerthi et al. 2008, Algorithm 2.1; Han and Berg 2012, section
    /// 2): each pass solves the block of every row exactly, one after another, over all classes.
    SequentialDual,
}

impl SubproblemSolver {
    /// Every solver by its name.
    pub const NAMES: &[(&str, Self)] =
        &[("block-descent", Self::BlockDescent), ("sequential-dual", Self::SequentialDual)];

    /// The solver called `name`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the known names.
    pub fn parse(name: &str) -> Result<Self> {
        find("solver", name, Self::NAMES)
    }

    fn options(self, seed: u64) -> BlockDescentOptions {
        match self {
            Self::BlockDescent => BlockDescentOptions { seed, ..Default::default() },
            Self::SequentialDual => BlockDescentOptions {
                seed,
                shrink: false,
                block_size: Some(1),
                ..Default::default()
            },
        }
    }
}

/// A partition's subproblem in one round. Vectors are stored class by class, with the constant feature last.
#[derive(Debug, Clone, Copy)]
pub struct Subproblem<'a> {
    /// The consensus weights w̄.
    pub consensus: &'a [f64],
    /// a, the partition's multiplier divided by its share.
    pub multiplier: &'a [f64],
    /// ρ, the penalty divided by the share; 0 means no consensus term.
    pub rho: f64,
    /// β of the last round (examples × classes), with each row in the loss's set; empty means 0.
    pub betas: &'a [f64],
    /// Whether to check each β against its projection onto the loss's set, for β from untrusted sources.
    pub check_betas: bool,
    /// The solver of the subproblem.
    pub solver: SubproblemSolver,
    /// Seed of the order of the examples.
    pub seed: u64,
    /// The accuracy to which the subproblem is solved.
    pub stopping: Stopping,
    /// Additional tolerated gap, relative to the loss at the consensus. It is meant for the first round, when the size
    /// of the losses is not yet known.
    pub relative_gap: f64,
}

/// Solution of a partition's subproblem.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Σ_i (p_i/S) Φ_i(w̄), the loss at the consensus, rounded up.
    pub loss: f64,
    /// Σ_i (p_i/S) (⟨Δ_i, β_i⟩ − γ/2 (‖β_i‖² + (1ᵀβ_i)²)), rounded down.
    pub dual_term: f64,
    /// u = Σ_i (p_i/S) A_iᵀ α_i, λ times this partition's part of w(β).
    pub image: Vec<f64>,
    /// A bound on the norm of the rounding error of u.
    pub image_error: f64,
    /// The duality gap of the subproblem.
    pub gap: f64,
    /// Number of passes over the examples.
    pub n_epochs: usize,
    /// w, the solution of the subproblem.
    pub weights: Vec<f64>,
    /// β (examples × classes), for the next round.
    pub betas: Vec<f64>,
}

/// Solves a partition's subproblem. `problem` contains only the examples of the partition, with the λ of the whole
/// problem.
///
/// # Errors
/// [`Error::InvalidArgument`] for vectors of the wrong size, β outside the loss's set, and a ρ that is negative or not
/// finite; errors of [`run`].
pub fn solve(
    mut problem: MarginProblem<'_>,
    subproblem: &Subproblem<'_>,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Solution> {
    let Subproblem { consensus, multiplier, rho, mut stopping, relative_gap, .. } = *subproblem;
    check(&problem, subproblem)?;
    let weights = problem.map().layout().arrange(consensus);
    let loss = problem.mean_loss(&weights, interrupt)?;
    stopping.floor += relative_gap * loss.value();
    let lambda = problem.shares().lambda() + rho;
    problem.shares_mut().set_lambda(lambda)?;
    let centre = |(consensus, multiplier): (&f64, &f64)| rho * consensus - multiplier;
    let origin = consensus.iter().zip(multiplier).map(centre).map(|w| w / lambda);
    let mut solver = block_descent(&problem, subproblem.solver.options(subproblem.seed));
    let start = match subproblem.betas {
        [] => Cow::Owned(vec![0.0; problem.n_examples() * problem.n_classes()]),
        betas if subproblem.check_betas => Cow::Owned(feasible(&problem, betas)?),
        betas => Cow::Borrowed(betas),
    };
    solver.start_around(origin.collect(), &start, interrupt)?;
    let trace = run(&mut *solver, stopping, interrupt, observe)?;
    let (betas, weights) = (solver.betas(), solver.coefficients());
    drop(solver);
    let PartialImage { image, image_error, dual_term } = image(&mut problem, &betas, interrupt)?;
    Ok(Solution {
        loss: loss.upper(),
        dual_term,
        image,
        image_error,
        gap: trace.gap().unwrap_or(f64::INFINITY),
        n_epochs: trace.epochs.len(),
        weights,
        betas,
    })
}

/// The contribution of a partition to a Newton step on the whole problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Expansion {
    /// The loss at the given weights, rounded up.
    pub loss: f64,
    /// The dual term of `betas`; see [`Solution::dual_term`].
    pub dual_term: f64,
    /// The image of `betas`; see [`Solution::image`].
    pub image: Vec<f64>,
    /// A bound on the error of `image`; see [`Solution::image_error`].
    pub image_error: f64,
    /// The maximisers of the inner problem (the one with the proximal term): examples × classes.
    pub betas: Vec<f64>,
    /// The sums that the Hessian is made of; see [`second_order`].
    pub sums: Vec<f64>,
    /// The unit of widths; see [`Blocks::unit_width`].
    pub unit: f64,
}

/// Evaluates a partition at the given weights (stored class by class), with a proximal term of the given width around
/// `betas`.
///
/// # Errors
/// [`Error::InvalidArgument`] for weights or β of the wrong size, β outside the loss's set, and a width that is not
/// positive; [`Error::Interrupted`].
pub fn expand(
    mut problem: MarginProblem<'_>,
    weights: &[f64],
    betas: &[f64],
    width: f64,
    interrupt: &Interrupt,
) -> Result<Expansion> {
    let n_betas = problem.n_examples() * problem.n_classes();
    if betas.len() != n_betas {
        return Err(Error::argument("betas", format!("must be {n_betas} numbers")));
    }
    if !(width > 0.0 && width.is_finite()) {
        return Err(Error::argument("width", "must be positive and finite"));
    }
    // The layout of the map may pad the weights.
    let n_weights = problem.n_classes() * problem.map().layout().n_features;
    if weights.len() != n_weights || !weights.iter().all(|w| w.is_finite()) {
        return Err(Error::argument("weights", "must be one finite number per class and feature"));
    }
    problem.shares_mut().set_lambda(1.0)?;
    let arranged = problem.map().layout().arrange(weights);
    let loss = problem.mean_loss(&arranged, interrupt)?.upper();
    let centre = points_of(&problem, feasible(&problem, betas)?);
    let blocks = MarginBlocks::new(&problem);
    let unit = blocks.unit_width();
    let proximal = Proximal { centre: &centre, width };
    let SecondOrder { points, sums } = second_order(&blocks, weights, proximal, interrupt)?;
    let betas = betas_of(&problem, points);
    let PartialImage { image, image_error, dual_term } = image(&mut problem, &betas, interrupt)?;
    Ok(Expansion { loss, dual_term, image, image_error, betas, sums, unit })
}

fn check(problem: &MarginProblem<'_>, subproblem: &Subproblem<'_>) -> Result<()> {
    let n_weights = problem.n_classes() * problem.map().layout().n_features;
    let n_betas = problem.n_examples() * problem.n_classes();
    if !(subproblem.rho >= 0.0 && subproblem.rho.is_finite()) {
        return Err(Error::argument("rho", "must be finite and not negative"));
    }
    for (name, vector) in
        [("consensus", subproblem.consensus), ("multiplier", subproblem.multiplier)]
    {
        if vector.len() != n_weights || !vector.iter().all(|value| value.is_finite()) {
            return Err(Error::argument(name, format!("must be {n_weights} finite numbers")));
        }
    }
    let betas = subproblem.betas;
    if !(betas.is_empty() || betas.len() == n_betas) || !betas.iter().all(|beta| *beta >= 0.0) {
        return Err(Error::argument("betas", format!("must be {n_betas} non-negative numbers")));
    }
    Ok(())
}

/// Largest accepted distance of β from its set: the error of values stored in single precision.
const STORAGE_ERROR: f64 = 1e-6;

/// The projections of all β onto the loss's set.
///
/// # Errors
/// [`Error::InvalidArgument`] naming `betas` if one of them is farther from the set than rounding
/// errors can explain.
fn feasible(problem: &MarginProblem<'_>, betas: &[f64]) -> Result<Vec<f64>> {
    let (mut found, mut scratch) = (vec![0.0; betas.len()], Scratch::default());
    let n_classes = problem.n_classes();
    let rows = betas.chunks_exact(n_classes).zip(found.chunks_exact_mut(n_classes));
    for (example, (beta, found)) in rows.enumerate() {
        let label = problem.label(example);
        problem.polytope().project(beta, label, 0.0, &mut scratch, found);
        let farther =
            |limit| beta.iter().zip(&*found).any(|(beta, found)| (beta - found).abs() > limit);
        let (far, moved) = (farther(STORAGE_ERROR), farther(8.0 * f64::EPSILON));
        if far || beta[label] != 0.0 {
            let message =
                format!("the values of example {example} are not a dual point of this loss");
            return Err(Error::argument("betas", message));
        }
        // β that are already feasible, such as β from an earlier run with this loss, are kept bit for bit.
        if !moved {
            found.copy_from_slice(beta);
        }
    }
    Ok(found)
}

/// The contribution of a partition's β to the dual.
struct PartialImage {
    image: Vec<f64>,
    image_error: f64,
    dual_term: f64,
}

/// Computes the image of all β, and their contribution to the dual without the regulariser.
fn image(
    problem: &mut MarginProblem<'_>,
    betas: &[f64],
    interrupt: &Interrupt,
) -> Result<PartialImage> {
    // λ w(β) equals w(β) computed with λ = 1.
    problem.shares_mut().set_lambda(1.0)?;
    let layout = problem.map().layout();
    let (mut weights, mut bounds) = (vec![0.0; layout.len()], Bounds::default());
    let (mut sparse, mut alpha) = (Sparse::new(), Sparse::new());
    for (example, beta) in betas.chunks_exact(problem.n_classes()).enumerate() {
        interrupt.check()?;
        let entries = (0..).zip(beta).filter(|(_, value)| **value != 0.0);
        sparse.clear();
        sparse.extend(entries.map(|(class, value)| (class, *value)));
        bounds.add_dual(problem, problem.shares(), example, &sparse);
        let share = problem.shares().of(example);
        lifted::scaled(&sparse, problem.label(example), share, &mut alpha);
        problem.map().add_image(example, &alpha, &mut weights);
    }
    let image = layout.by_class(&weights);
    Ok(PartialImage { image, image_error: bounds.distance(), dual_term: bounds.dual_terms() })
}
