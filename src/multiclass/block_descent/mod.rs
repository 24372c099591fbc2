//! Exact block coordinate descent on the dual: Walrus for the cube, Crammer and Singer's step for the
//! simplex, and the like for every set that can be projected onto (SPEC 12, 13).

mod candidates;
mod certificate;
mod face;
mod few;
mod full;
mod kernels;
mod model;

use num_traits::{Float, Zero};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use self::candidates::Candidates;
use self::certificate::add_images;
use self::model::{Block, Changes, DenseModel, Model, Row, SparseModel};
use crate::data::{Data, Real};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::multiclass::MarginProblem;
use crate::polytope::Scratch;
use crate::run::{Certificate, Progress, Solver};

/// How block descent goes about it; nothing of this changes what it converges to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Of the order of the examples.
    pub seed: u64,
    /// Whether epochs may leave out examples and classes that the last certificate found at rest.
    pub shrink: bool,
    /// Examples whose scores are computed together; by default what suits the data.
    pub block_size: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, shrink: true, block_size: None }
    }
}

/// Block coordinate descent: for one example after the other, in random order, the dual is maximised
/// exactly over its β_i (SPEC 12; paper 001, Algorithm 1).
///
/// With C_i = p_i/λ, A_i = ‖x_i‖², h = C_i A_i + γ and the margins v at the current weights, that is
/// the projection with bias 1 of u = (v + C_i A_i (β_i + 1ᵀβ_i)) / h.
///
/// An epoch is one of two kinds, chosen from what the last certificate saw. While many classes of many
/// examples still move, it visits every example once and looks at all classes; scores are computed for
/// a block of examples at once (`full`). Later it visits, several times over, only the examples that
/// are not optimal and looks at their candidate classes alone (`few`), with conjugate gradient steps in
/// between for what single blocks solve slowly (`face`). Either way a certificate ends the epoch: it
/// looks at all classes of all examples and names the next candidates, so nothing is left out for good.
pub struct BlockDescent<'p>(Box<dyn Descent + 'p>);

trait Descent: Solver + Send {
    fn start(&mut self, origin: Vec<f64>, betas: &[f64], interrupt: &Interrupt) -> Result<()>;
    fn coefficients(&self) -> Vec<f64>;
    fn betas(&self) -> Vec<f64>;
}

impl<'p> BlockDescent<'p> {
    /// Starts at the dual point 0, in the precision of the data.
    pub fn new(problem: &'p MarginProblem<'p>, options: Options) -> Self {
        let (bias, m) = (problem.map().bias(), problem.n_classes());
        Self(match problem.map().data() {
            Data::Dense32(x) => boxed(problem, DenseModel::<_, f32>::new(x, bias, m), options),
            Data::Dense64(x) => boxed(problem, DenseModel::<_, f64>::new(x, bias, m), options),
            Data::Csr32(x) => boxed(problem, SparseModel::<_, f32>::new(x, bias, m), options),
            Data::Csr64(x) => boxed(problem, SparseModel::<_, f64>::new(x, bias, m), options),
        })
    }

    /// Moves to a dual point, β_i after β_i (examples × classes), each in the loss's set.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn start_at(&mut self, betas: &[f64], interrupt: &Interrupt) -> Result<()> {
        self.0.start(Vec::new(), betas, interrupt)
    }

    /// Like [`BlockDescent::start_at`], and replaces the regulariser by λ/2 ‖w − w₀‖² (SPEC 17).
    ///
    /// With the weights' origin w₀ (class after class, the constant feature's last) the weights of a
    /// dual point are w₀ + w(β), and nothing else of the block step changes.
    ///
    /// # Errors
    /// [`Interrupted`](crate::error::Error::Interrupted).
    pub fn start_around(
        &mut self,
        origin: Vec<f64>,
        betas: &[f64],
        interrupt: &Interrupt,
    ) -> Result<()> {
        self.0.start(origin, betas, interrupt)
    }

    /// The weights, class after class, the constant feature's last.
    pub fn coefficients(&self) -> Vec<f64> {
        self.0.coefficients()
    }

    /// β_i after β_i (examples × classes), each a point of the loss's set, 0 at its label.
    pub fn betas(&self) -> Vec<f64> {
        self.0.betas()
    }
}

impl Solver for BlockDescent<'_> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.0.advance(interrupt)
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.0.certify(interrupt)
    }
}

fn boxed<'p, M: Model + 'p>(
    problem: &'p MarginProblem<'p>,
    model: M,
    options: Options,
) -> Box<dyn Descent + 'p> {
    Box::new(State::new(problem, model, options))
}

/// Neighbouring duals that are visited one after the other. They are neighbours by chance; reading
/// memory in order is faster than in a new random order each epoch.
const GROUP: usize = 8;

/// Share of all (example, class) pairs above which an epoch looks at all of them: the blocked products
/// of a full pass cost a fraction of as many single ones.
const FULL_SHARE: f64 = 0.2;

struct State<'p, M: Model> {
    problem: &'p MarginProblem<'p>,
    model: M,
    /// The weights in double precision as of the last certificate, where `model` is less precise.
    exact: Option<M::Exact>,
    /// w₀, class after class; empty where it is 0.
    origin: Vec<f64>,
    options: Options,
    random: Pcg64Mcg,
    /// The dual blocks, in a random order.
    duals: Vec<Dual>,
    /// β_i for each of them.
    betas: Candidates<M::Value>,
    /// The dual blocks that the last certificate found not to be optimal; all before the first.
    due: Option<Vec<u32>>,
    /// Steps of the conjugate gradient method that are worth trying at once.
    gradient_steps: usize,
    work: Work<M::Value>,
}

/// What is kept of an example's dual block beside β_i.
#[derive(Debug, Clone, Copy, Default)]
struct Dual {
    /// i.
    example: u32,
    /// C_i = p_i/λ.
    weight: f64,
    /// C_i A_i.
    curvature: f64,
    /// 1ᵀβ_i.
    sum: f64,
    /// The last multiplier of its projection.
    multiplier: f64,
    /// Whether its block is optimal whatever the weights.
    settled: bool,
}

/// Buffers of an epoch.
struct Work<T> {
    block_size: usize,
    previous: Block<T>,
    next: Block<T>,
    scores: Vec<T>,
    changes: Changes<T>,
    corrections: Vec<(T, usize)>,
    current: Vec<T>,
    /// A dense row of β.
    beta: Vec<T>,
    target: Vec<f64>,
    projection: Vec<f64>,
    row: Row<T>,
    few: few::Buffers<T>,
    scratch: Scratch,
}

impl<'p, M: Model> State<'p, M> {
    fn new(problem: &'p MarginProblem<'p>, model: M, options: Options) -> Self {
        let (n, m) = (problem.n_examples(), problem.n_classes());
        let block_size = options.block_size.unwrap_or_else(|| model.block_size());
        let block_size = block_size.clamp(1, M::LARGEST_BLOCK);
        let padded = model.padded();
        let work = Work {
            block_size,
            previous: Block::default(),
            next: Block::default(),
            scores: vec![M::Value::zero(); block_size * padded],
            changes: Changes::new(block_size, padded),
            corrections: Vec::new(),
            current: vec![M::Value::zero(); padded],
            beta: vec![M::Value::zero(); m],
            target: vec![0.0; m],
            projection: vec![0.0; m],
            row: model.new_row(),
            few: few::Buffers::default(),
            scratch: Scratch::default(),
        };
        let mut random = Pcg64Mcg::new(u128::from(options.seed));
        let mut examples: Vec<u32> = (0..n as u32).collect();
        examples.shuffle(&mut random);
        let dual = |&example: &u32| Dual { example, ..Dual::default() };
        let mut state = Self {
            random,
            duals: examples.iter().map(dual).collect(),
            betas: Candidates::new(n),
            due: None,
            gradient_steps: face::FIRST_STEPS,
            problem,
            model,
            exact: None,
            origin: Vec::new(),
            options,
            work,
        };
        (0..n).for_each(|at| state.settle(at));
        state
    }

    /// Examples without weight never count; those whose row is 0 have their optimal vertex at once.
    fn settle(&mut self, at: usize) {
        let dual = &mut self.duals[at];
        let example = dual.example as usize;
        let squared_norm = self.model.squared_norm(example);
        dual.weight = self.problem.shares().of(example) / self.problem.shares().lambda();
        dual.curvature = dual.weight * squared_norm;
        dual.settled = self.problem.shares().of(example) == 0.0;
        if dual.settled || squared_norm > 0.0 || self.problem.shares().smoothing() > 0.0 {
            return;
        }
        dual.settled = true;
        let target = &mut self.work.target;
        target.fill(0.0);
        self.problem.margins(example, target);
        let (mut vertex, label) = (Vec::new(), self.problem.label(example));
        self.problem.polytope().vertex(target, label, &mut self.work.scratch, &mut vertex);
        let (classes, weights): (Vec<u32>, Vec<f64>) = vertex.into_iter().unzip();
        dual.sum = weights.iter().sum();
        let values: Vec<_> = weights.iter().map(|weight| Real::narrow(*weight)).collect();
        self.betas.append(at, &[classes.len() as u32], &classes, &values);
    }

    /// h = C_i A_i + γ.
    fn steepness(&self, at: usize) -> f64 {
        self.duals[at].curvature + self.problem.shares().smoothing()
    }

    /// Whether a sum of β is the largest possible.
    fn is_tight(&self, sum: f64) -> bool {
        self.problem.is_tight(sum, M::Value::epsilon().widen())
    }

    /// Whether the next epoch had better look at all classes of all examples.
    fn is_broad(&self) -> bool {
        let n_pairs = self.duals.len() * self.problem.n_classes();
        let wide = |due: &Vec<u32>| {
            let candidates = due.iter().map(|at| self.betas.row(*at as usize).0.len());
            candidates.sum::<usize>() as f64 > FULL_SHARE * n_pairs as f64
        };
        let restricts = self.options.shrink && self.problem.polytope().capped_box().is_some();
        !restricts || self.due.as_ref().is_none_or(wide)
    }
}

impl<M: Model> Solver for State<'_, M> {
    fn advance(&mut self, interrupt: &Interrupt) -> Result<Progress> {
        self.exact = None;
        // What candidates alone do not move, all classes may.
        let moved = !self.is_broad() && self.descend_on_candidates(interrupt)?
            || self.descend_fully(interrupt)?;
        let certificate = self.certify(interrupt)?;
        // Where nothing changes any more, the working precision is used up.
        let exhausted = !moved || self.due.as_ref().is_some_and(Vec::is_empty);
        Ok(if exhausted { Progress::Exhausted(certificate) } else { Progress::Epoch(certificate) })
    }

    fn certify(&mut self, interrupt: &Interrupt) -> Result<Certificate> {
        self.certificate(interrupt)
    }
}

impl<M: Model> Descent for State<'_, M> {
    fn start(&mut self, origin: Vec<f64>, betas: &[f64], interrupt: &Interrupt) -> Result<()> {
        let (m, d) = (self.problem.n_classes(), self.model.n_features());
        let mut started = Candidates::new(self.duals.len());
        for (at, dual) in self.duals.iter_mut().enumerate() {
            if dual.settled {
                started.copy(at, &self.betas);
                continue;
            }
            let start = &betas[dual.example as usize * m..][..m];
            let dense = &mut self.work.beta;
            dense.iter_mut().zip(start).for_each(|(beta, start)| *beta = Real::narrow(*start));
            dual.sum = dense.iter().map(|beta| beta.widen()).sum();
            started.gather(at, dense);
        }
        self.betas = started;
        self.work.beta.fill(M::Value::zero());
        (self.exact, self.due) = (None, None);
        self.origin = origin;
        let origin = &self.origin;
        self.model.load(|feature, class| origin.get(class * d + feature).copied().unwrap_or(0.0));
        add_images(self.problem, &self.duals, &self.betas, &mut self.model, interrupt)
    }

    fn coefficients(&self) -> Vec<f64> {
        let (m, d) = (self.problem.n_classes(), self.model.n_features());
        let weight = |feature: usize, class: usize| match &self.exact {
            Some(exact) => exact.weight(feature, class),
            None => self.model.weight(feature, class),
        };
        let mut coefficients = vec![0.0; m * d];
        // Feature by feature, as the models keep their weights.
        for feature in 0..d {
            for class in 0..m {
                coefficients[class * d + feature] = weight(feature, class);
            }
        }
        coefficients
    }

    fn betas(&self) -> Vec<f64> {
        let m = self.problem.n_classes();
        let mut betas = vec![0.0; self.duals.len() * m];
        for (at, dual) in self.duals.iter().enumerate() {
            let row = &mut betas[dual.example as usize * m..][..m];
            let (classes, values) = self.betas.row(at);
            for (class, value) in classes.iter().zip(values) {
                row[*class as usize] = value.widen();
            }
        }
        betas
    }
}
