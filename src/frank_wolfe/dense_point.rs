//! A problem whose point is stored as a vector, for any function and any set.

use rand_pcg::Pcg64Mcg;

use super::function::SmoothFunction;
use super::oracle::LinearOracle;
use super::problem::{Direction, Problem, Weighted};
use super::search::{Along, StepSize, backtracking, secant};
use super::vertex::{Vertex, bounded_dot, sum_of_sizes};
use crate::dual::rounding::gamma;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::linalg::vectors::{axpy, dot};

/// A function on a set, with the current point x.
pub(super) struct DensePoint<'a> {
    f: &'a dyn SmoothFunction,
    oracle: &'a dyn LinearOracle,
    rule: StepSize,
    x: Vec<f64>,
    gradient: Vec<f64>,
    value: f64,
    /// For a quadratic function with the Hessian H: the gradient at 0. The gradient at x is H x
    /// plus this vector.
    offset: Option<Vec<f64>>,
    images: Images,
    /// The curvature along the last direction, divided by the squared norm of this direction.
    curvature: Option<f64>,
}

impl<'a> DensePoint<'a> {
    /// Creates the problem at the point x.
    pub fn new(
        f: &'a dyn SmoothFunction,
        oracle: &'a dyn LinearOracle,
        rule: StepSize,
        x: Vec<f64>,
    ) -> Result<Self> {
        let n = x.len();
        let quadratic = f.is_quadratic()
            && matches!(rule, StepSize::Auto | StepSize::Exact | StepSize::OpenLoop);
        let offset = if quadratic {
            let mut offset = vec![0.0; n];
            f.value_and_gradient(&vec![0.0; n], &mut offset)?;
            Some(offset)
        } else {
            None
        };
        let (gradient, images) = (vec![0.0; n], Images::default());
        Ok(Self { f, oracle, rule, x, gradient, value: 0.0, offset, images, curvature: None })
    }

    /// Returns x.
    pub fn into_point(self) -> Vec<f64> {
        self.x
    }

    /// Returns an error if the user's function has returned numbers that are not finite.
    fn check(&self) -> Result<()> {
        if self.value.is_finite() && self.gradient.iter().all(|g| g.is_finite()) {
            return Ok(());
        }
        Err(Error::numerical("f: the value or the gradient is not finite at a point of the set"))
    }

    fn evaluate(&mut self) -> Result<()> {
        self.value = self.f.value_and_gradient(&self.x, &mut self.gradient)?;
        self.check()
    }

    /// Returns a direction as a vector.
    fn direction(&self, direction: &Direction<'_, Vertex>) -> Vertex {
        let n = self.x.len();
        let moved = |vertex: &Vertex, sign: f64| {
            let mut difference: Vec<f64> = self.x.iter().map(|x| -sign * x).collect();
            vertex.add_to(sign, &mut difference);
            Vertex::Dense(difference)
        };
        match direction {
            Direction::Towards(to) => moved(to, 1.0),
            Direction::Away(from) => moved(from, -1.0),
            Direction::Pairwise(to, from) => to.minus(from, n),
        }
    }

    /// Moves x, and updates the value and the gradient of a quadratic function.
    fn walk_quadratic(
        &mut self,
        direction: &Direction<'_, Vertex>,
        (longest, fixed): (f64, Option<f64>),
    ) -> Result<f64> {
        let way = self.direction(direction);
        let slope = -way.dot(&self.gradient);
        if slope <= 0.0 && fixed.is_none() {
            return Ok(0.0);
        }
        let (plus, minus) = match direction {
            Direction::Towards(to) => (Some(*to), None),
            Direction::Away(from) => (None, Some(*from)),
            Direction::Pairwise(to, from) => (Some(*to), Some(*from)),
        };
        let n = self.x.len();
        for vertex in [plus, minus].into_iter().flatten() {
            self.images.prepare((self.f, self.oracle), vertex, &self.gradient)?;
        }
        let (plus, minus) = (plus.map(|v| self.images.of(v)), minus.map(|v| self.images.of(v)));
        let zeros: &[f64] = self.offset.as_deref().unwrap_or(&[]);
        // H times the direction is a difference of two of these vectors: H v for vertices v, and H x = gradient −
        // offset.
        let entries = self.gradient.iter().zip(zeros).map(|(g, o)| g - o);
        let image: Vec<f64> = match (plus, minus) {
            (Some(to), Some(from)) => to.iter().zip(from).map(|(a, b)| a - b).collect(),
            (Some(to), None) => to.iter().zip(entries).map(|(a, hx)| a - hx).collect(),
            (None, Some(from)) => entries.zip(from).map(|(hx, a)| hx - a).collect(),
            (None, None) => vec![0.0; n],
        };
        let curvature = way.dot(&image);
        let best = if curvature > 0.0 { (slope / curvature).min(longest) } else { longest };
        let step = fixed.unwrap_or(best);
        way.add_to(step, &mut self.x);
        axpy(&mut self.gradient, step, &image);
        self.value -= step * slope - 0.5 * step * step * curvature;
        Ok(step)
    }

    /// Moves x by a line search that evaluates the function.
    fn walk_by_search(
        &mut self,
        way: &Vertex,
        (longest, fixed): (f64, Option<f64>),
        interrupt: &Interrupt,
    ) -> Result<f64> {
        let start = Along { value: self.value, derivative: way.dot(&self.gradient) };
        if start.derivative >= 0.0 && fixed.is_none() {
            return Ok(0.0);
        }
        let own = match (fixed, self.rule) {
            (Some(step), _) => Some(step),
            (None, StepSize::Auto | StepSize::Exact) => {
                let dense = way.to_dense(self.x.len());
                self.f.line_search(&self.x, &dense, longest)?.map(|step| step.clamp(0.0, longest))
            }
            _ => None,
        };
        if own.is_none() && self.rule == StepSize::Exact {
            let message = "\"exact\" requires a quadratic function or a function with a line_search method; \
                           use \"secant\"";
            return Err(Error::argument("line_search", message));
        }
        let (origin, rule) = (self.x.clone(), self.rule);
        let square = way.squared_norm();
        let guess = self.curvature.map(|curvature| -start.derivative / (curvature * square));
        let first = guess.filter(|guess| *guess > 0.0).map_or(longest, |g| g.min(longest));
        let mut evaluate = |step: f64| -> Result<Along> {
            interrupt.check()?;
            self.x.copy_from_slice(&origin);
            way.add_to(step, &mut self.x);
            self.evaluate()?;
            Ok(Along { value: self.value, derivative: way.dot(&self.gradient) })
        };
        let step = if let Some(step) = own {
            evaluate(step)?;
            step
        } else if rule == StepSize::Backtracking {
            // Starts at twice the estimated step, so that steps can grow again.
            backtracking(start, (2.0 * first).min(longest), &mut evaluate)?
        } else {
            secant(start, first, longest, &mut evaluate)?
        };
        if step > 0.0 {
            let change = way.dot(&self.gradient) - start.derivative;
            let curvature = change / (step * square);
            self.curvature = Some(curvature).filter(|c| *c > 0.0 && c.is_finite());
        } else {
            self.x = origin;
            self.evaluate()?;
        }
        Ok(step)
    }
}

impl Problem for DensePoint<'_> {
    type Atom = Vertex;

    fn refresh(&mut self, active: &[Weighted<Vertex>], _: &Interrupt) -> Result<()> {
        if !active.is_empty() {
            self.x.fill(0.0);
            active.iter().for_each(|each| each.atom.add_to(each.weight, &mut self.x));
        }
        self.evaluate()
    }

    fn is_incremental(&self) -> bool {
        self.offset.is_some()
    }

    fn value(&self) -> f64 {
        self.value
    }

    fn slope_here(&self) -> f64 {
        dot(&self.gradient, &self.x)
    }

    fn slope(&self, atom: &Vertex) -> f64 {
        atom.dot(&self.gradient)
    }

    fn vertex(&mut self, _: f64, _: &Interrupt) -> Result<Vertex> {
        self.oracle.vertex(&self.gradient)
    }

    fn sampled_vertex(&mut self, share: f64, random: &mut Pcg64Mcg) -> Option<Vertex> {
        self.oracle.sampled_vertex(&self.gradient, share, random)
    }

    fn lower_bound(&mut self, vertex: &Vertex, _: f64, interrupt: &Interrupt) -> Result<f64> {
        let smallest = self.oracle.lower_bound(&self.gradient, vertex, interrupt)?;
        let here = bounded_dot(&self.gradient, &self.x);
        // The error of the value counts twice: in the bound, and in the objective, which may exceed the computed value.
        let rounding = self.f.rounding(&self.x, self.value);
        let sizes = self.oracle.radius().map_or(0.0, |radius| sum_of_sizes(&self.x) + radius);
        let slack = (rounding.gradient * sizes + 2.0 * rounding.value) * (1.0 + gamma(8));
        if smallest - slack > here.upper() {
            return Err(Error::argument(
                "oracle",
                format!(
                    "its vertex has the slope {smallest:e}, but the current point of the set has the smaller \
                 slope {:e}: vertex must minimise, and x0 must be in the set",
                    here.value(),
                ),
            ));
        }
        Ok(((self.value - slack).next_down() - (here.upper() - smallest).next_up()).next_down())
    }

    fn bounds_are_cheap(&self) -> bool {
        self.oracle.bounds_are_cheap()
    }

    fn walk(
        &mut self,
        direction: &Direction<'_, Vertex>,
        longest: f64,
        fixed: Option<f64>,
        interrupt: &Interrupt,
    ) -> Result<f64> {
        if self.offset.is_some() {
            self.walk_quadratic(direction, (longest, fixed))
        } else {
            let way = self.direction(direction);
            self.walk_by_search(&way, (longest, fixed), interrupt)
        }
    }

    fn is_same(&self, a: &Vertex, b: &Vertex) -> bool {
        a == b
    }
}

/// Maximum number of values in all kept images together.
const MAX_KEPT: usize = 1 << 25;

/// Products of the Hessian with vertices. They are kept because the methods use the same vertices again and again.
#[derive(Default)]
struct Images {
    kept: Vec<Image>,
    n_values: usize,
    clock: usize,
}

struct Image {
    vertex: Vertex,
    product: Vec<f64>,
    used: usize,
}

impl Image {
    /// Number of stored values.
    fn size(&self) -> usize {
        self.product.len() + self.vertex.n_stored()
    }
}

impl Images {
    /// Computes the image of a vertex, unless it is already kept. If that costs little, also computes the images of
    /// other vertices that are nearly as good for this gradient. The images of the last two vertices are always kept.
    fn prepare(
        &mut self,
        (f, oracle): (&dyn SmoothFunction, &dyn LinearOracle),
        vertex: &Vertex,
        gradient: &[f64],
    ) -> Result<()> {
        self.clock += 1;
        if let Some(known) = self.kept.iter_mut().find(|image| image.vertex == *vertex) {
            known.used = self.clock;
            return Ok(());
        }
        let (n, count) = (gradient.len(), f.n_products_at_a_time());
        let mut wanted = vec![vertex.clone()];
        if count > 1 && 2 * count * n <= MAX_KEPT {
            // Requests twice as many vertices as needed, because the images of some of them may be stored already.
            let best = oracle.best_vertices(gradient, 2 * count)?;
            let is_new =
                |v: &Vertex| v != vertex && self.kept.iter().all(|image| image.vertex != *v);
            wanted.extend(best.into_iter().filter(is_new).take(count - 1));
        }
        let products = f.hessian_products(&wanted)?;
        if products.len() != wanted.len() || products.iter().any(|product| product.len() != n) {
            let message = "hessian_products must return one vector per vertex";
            return Err(Error::argument("f", message));
        }
        for (index, (vertex, product)) in wanted.into_iter().zip(products).enumerate() {
            // A step needs the images that the last two calls requested. The images of the other vertices count as
            // older, so they are removed first.
            let used = if index == 0 { self.clock } else { self.clock.saturating_sub(2) };
            self.keep(Image { vertex, product, used });
        }
        Ok(())
    }

    /// Adds an image. If the images take too much memory, removes those that were used least recently.
    fn keep(&mut self, image: Image) {
        self.n_values += image.size();
        self.kept.push(image);
        while self.n_values > MAX_KEPT && self.kept.len() > 2 {
            let images = self.kept.iter().enumerate();
            let Some((oldest, _)) = images.min_by_key(|(_, image)| image.used) else { break };
            self.n_values -= self.kept[oldest].size();
            self.kept.swap_remove(oldest);
        }
    }

    /// Returns the image of a vertex that [`Self::prepare`] has prepared.
    fn of(&self, vertex: &Vertex) -> &[f64] {
        self.kept.iter().find(|image| image.vertex == *vertex).map_or(&[], |image| &image.product)
    }
}
