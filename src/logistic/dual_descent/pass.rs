//! Passes over the blocks of a problem with more than two classes.

use pulp::Simd;

use super::block_step::{Buffers, step, visit};
use crate::data::{Csr, Real};
use crate::linalg::{Element, Kernel, Lane, prefetch};
use crate::logistic::sparse_row::{add, fetch_first, score};

/// The constants of a block, and the entropy of its α.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DualExample<T> {
    /// Weight c of the example's loss.
    pub cost: T,
    /// Squared norm ‖x‖² of the row.
    pub square: T,
    /// Entropy H(α) of the example's distribution.
    pub entropy: T,
    pub label: u32,
}

/// Sums over the visits of a pass.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    /// Σ c KL(α ‖ softmax(s)).
    pub gap: f64,
    /// Σ c × loss.
    pub loss: f64,
}

impl<T: Real> DualExample<T> {
    /// c (‖x‖² + the square of a constant feature).
    #[inline(always)]
    pub fn curvature(&self, constant: T) -> T {
        self.cost * (self.square + constant)
    }

    /// Adds c (e_y − α) to the outputs. With two classes, there is one share: the share of the class that is not the
    /// label.
    #[inline(always)]
    pub fn subtract(&self, shares: &[T], outputs: &mut [f64]) {
        let (cost, label) = (self.cost.widen(), self.label as usize);
        if let ([share], [output]) = (shares, &mut *outputs) {
            *output += if label == 1 { cost } else { -cost } * share.widen();
            return;
        }
        let mut others = 0.0;
        for (class, (output, share)) in outputs.iter_mut().zip(shares).enumerate() {
            let share = if class == label { 0.0 } else { share.widen() };
            *output -= cost * share;
            others += share;
        }
        outputs[label] += cost * others;
    }
}

/// The blocks of a pass and the state that the pass changes.
pub(super) struct DualParts<'a, T> {
    pub rows: Csr<'a, T>,
    pub blocks: &'a mut [DualExample<T>],
    /// Features × padded outputs.
    pub weights: &'a mut [T],
    /// Examples × padded outputs.
    pub shares: &'a mut [T],
    /// The intercepts: the weights of the constant feature, multiplied by its value.
    pub intercepts: &'a mut [T],
    /// The square of the constant feature.
    pub constant: T,
    /// A block is not changed if its gap is at most this.
    pub ignored: f64,
}

/// Visits blocks in the given order.
pub(super) struct ClassPass<'a, T> {
    pub blocks: DualParts<'a, T>,
    pub order: &'a [u32],
    /// Blocks on which Newton's method did not converge.
    pub left: &'a mut Vec<u32>,
    pub buffer: &'a mut [T],
}

impl<T: Element> Kernel<T> for ClassPass<'_, T> {
    type Output = Found;

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S) -> Found
    where
        T: Lane<S>,
    {
        match self.blocks.intercepts.len() / <T as Lane<S>>::LANES {
            1 => self.narrow::<S, 1>(simd),
            2 => self.narrow::<S, 2>(simd),
            3 => self.narrow::<S, 3>(simd),
            4 => self.narrow::<S, 4>(simd),
            _ => self.wide(simd),
        }
    }
}

impl<T: Element> ClassPass<'_, T> {
    #[inline(always)]
    fn narrow<S: Simd, const V: usize>(mut self, simd: S) -> Found
    where
        T: Lane<S>,
    {
        let zero = T::splat(simd, T::zero());
        let (mut a, mut b, mut c, mut d) = ([zero; V], [zero; V], [zero; V], [zero; V]);
        let mut buffers = Buffers { scores: &mut a, logs: &mut b, shares: &mut c, targets: &mut d };
        let mut found = Found::default();
        for at in 0..self.order.len() {
            self.visit(simd, at, V, &mut buffers, &mut found);
        }
        found
    }

    #[inline(always)]
    fn wide<S: Simd>(mut self, simd: S) -> Found
    where
        T: Lane<S>,
    {
        let stride = self.blocks.intercepts.len() / <T as Lane<S>>::LANES;
        let buffer = std::mem::take(&mut self.buffer);
        let (a, rest) = T::vectors_mut(buffer).0.split_at_mut(stride);
        let (b, rest) = rest.split_at_mut(stride);
        let (c, d) = rest.split_at_mut(stride);
        let mut buffers = Buffers { scores: a, logs: b, shares: c, targets: &mut d[..stride] };
        let mut found = Found::default();
        for at in 0..self.order.len() {
            self.visit(simd, at, stride, &mut buffers, &mut found);
        }
        found
    }

    #[inline(always)]
    fn visit<S: Simd>(
        &mut self,
        simd: S,
        at: usize,
        stride: usize,
        buffers: &mut Buffers<'_, T::Vector>,
        found: &mut Found,
    ) where
        T: Lane<S>,
    {
        let lanes = <T as Lane<S>>::LANES;
        let example = self.order[at] as usize;
        self.fetch(at + 1, stride * lanes);
        let DualParts { rows, blocks, weights, shares, intercepts, constant, ignored } =
            &mut self.blocks;
        let (row, weights) = (rows.row(example), T::vectors_mut(weights).0);
        let intercepts = T::vectors_mut(intercepts).0;
        score(simd, weights, stride, row, intercepts, buffers.scores);
        let block = &mut blocks[example];
        let own = T::values_mut(buffers.scores)[block.label as usize];
        let present = &mut T::vectors_mut(shares).0[example * stride..][..stride];
        let visited = visit(simd, buffers, present, block.entropy);
        let cost = block.cost.widen();
        let gap = cost * visited.divergence.widen();
        found.gap += gap;
        found.loss += cost * (visited.log_sum - own).widen();
        if gap <= *ignored {
            return;
        }
        match step(simd, buffers, present, block.curvature(*constant)) {
            Some(entropy) => block.entropy = entropy,
            None => return self.left.push(example as u32),
        }
        // A share close to 1 has lost the digits of its distance from 1. The change of the label's share is therefore
        // computed as minus the sum of the other changes.
        let zero = T::splat(simd, T::zero());
        let sum = buffers.scores.iter().fold(zero, |sum, change| T::plus(simd, sum, *change));
        let own = &mut T::values_mut(buffers.scores)[block.label as usize];
        *own = *own - T::total(simd, sum);
        let (cost, constant) = (T::splat(simd, block.cost), T::splat(simd, *constant));
        buffers.scores.iter_mut().for_each(|change| *change = T::times(simd, *change, cost));
        add::<S, T, false>(simd, (weights, stride, 0), row, buffers.scores);
        for (intercept, change) in intercepts.iter_mut().zip(buffers.scores.iter()) {
            *intercept = T::fused(simd, constant, *change, *intercept);
        }
    }

    /// Prefetches the row, the shares and the first weights of a visit.
    #[inline(always)]
    fn fetch(&self, at: usize, padded: usize) {
        let Some(&example) = self.order.get(at) else { return };
        let DualParts { rows, blocks, weights, shares, .. } = &self.blocks;
        let (columns, values) = rows.row(example as usize);
        for line in (0..padded).step_by(64 / size_of::<T>()) {
            prefetch(shares, example as usize * padded + line);
        }
        prefetch(blocks, example as usize);
        for at in (0..32).step_by(16) {
            prefetch(columns, at);
            prefetch(values, at);
        }
        fetch_first(columns, weights, padded);
    }
}

/// Adds rows to the weights of each class. Each row is multiplied by its change for that class.
pub(super) struct AddRows<'a, T> {
    pub rows: Csr<'a, T>,
    pub first: usize,
    pub weights: &'a mut [T],
    pub changes: &'a [T],
    pub padded: usize,
}

impl<T: Element> Kernel<T> for AddRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn compute<S: Simd>(self, simd: S)
    where
        T: Lane<S>,
    {
        let Self { rows, first, weights, changes, padded } = self;
        let stride = padded / <T as Lane<S>>::LANES;
        let weights = T::vectors_mut(weights).0;
        for (row, change) in (first..).zip(T::vectors(changes).0.chunks_exact(stride)) {
            add::<S, T, true>(simd, (&mut *weights, stride, 0), rows.row(row), change);
        }
    }
}
