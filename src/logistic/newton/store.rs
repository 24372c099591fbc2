//! Passes over rows that are stored in blocks, in single precision.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::layout::{GROUP, RowBlocks};
use super::softmax::{BlockSums, BlockTargets, Precision, curve, softmax};
use super::tiles::{GRAIN, add_products, scores};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::linalg::{Aligned, Element};
use crate::logistic::LogisticProblem;
use crate::parallel::min_len;

/// Number of partial sums of a pass: enough for the threads of a desktop computer, and few enough that adding them up
/// is cheap.
const PARTS: usize = 16;
/// Minimum time of a pass over a part, in units of the time to read a value. A thread is woken for several such parts.
const PART_VALUES: usize = 1 << 15;
/// Approximate number of values in a block of rows, chosen so that the block and its scores fit in the second-level
/// cache.
const BLOCK: usize = 1 << 16;
/// The largest number of rows of a block.
const MOST_ROWS: usize = 896;

/// Reading a value takes as long as this number of additions to sums.
const SUMS_PER_VALUE: usize = 8;

/// The rows of a problem in blocks, with their probabilities from the last pass.
pub(super) struct Store<'a> {
    /// The order of the rows, and the units of their columns.
    pub layout: RowBlocks<'a>,
    /// The largest c_i; blocks store weights divided by it.
    weight: f64,
    blocks: Vec<Block>,
    parts: Vec<PassPart>,
    blocks_of_part: usize,
    /// Buffers of exact passes, one for each thread: the values of a block, and its scores.
    doubles: Mutex<Vec<(Aligned<f64>, Aligned<f64>)>>,
}

/// A block of rows.
struct Block {
    /// Index among all blocks.
    place: usize,
    /// A sample of k blocks consists of the blocks with rank below k.
    rank: usize,
    /// The values, one line per column; empty until a pass in single precision reads them.
    rows: Aligned<f32>,
    labels: Vec<u32>,
    weights: (Vec<f32>, Vec<f64>),
    /// Probabilities, one line per output.
    shares: Aligned<f32>,
}

/// Buffers and sums for a part, which is a group of blocks that one thread processes.
pub(super) struct PassPart {
    singles: Aligned<f32>,
    sums: Vec<f64>,
    totals: BlockSums,
}

/// The blocks that a pass visits, and the factor that scales its sums to all rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BlockSample {
    pub n_blocks: usize,
    pub factor: f64,
}

impl<'a> Store<'a> {
    pub fn new(problem: &LogisticProblem<'a>) -> Self {
        let (n_rows, n_outputs) = (problem.n_examples(), problem.n_outputs());
        let width = problem.n_features() + usize::from(problem.intercept());
        let most = (BLOCK / width.max(n_outputs).max(1)).min(n_rows / 12).min(MOST_ROWS);
        // Columns are an odd multiple of GRAIN apart. If their distance were a power of two, they would compete for a
        // few sets of the cache.
        let block_rows = ((most / GRAIN) | 1) * GRAIN;
        let n_blocks = n_rows.div_ceil(block_rows);
        let time = pass_time(block_rows, width, n_outputs * width).max(1);
        let blocks_of_part = n_blocks.div_ceil(PARTS).max(PART_VALUES.div_ceil(time));
        let n_parts = n_blocks.div_ceil(blocks_of_part);
        // The blocks of a sample are spread evenly over the parts, so that samples keep all threads busy.
        let mut ranks: Vec<usize> = (0..n_blocks).collect();
        ranks
            .sort_by_key(|block| (block % blocks_of_part, (block / blocks_of_part).reverse_bits()));
        let mut blocks: Vec<Block> = (0..n_blocks).map(Block::empty).collect();
        ranks.iter().enumerate().for_each(|(rank, block)| blocks[*block].rank = rank);
        let part = |_| PassPart {
            singles: Aligned::zeros(n_outputs * block_rows),
            sums: Vec::new(),
            totals: BlockSums::default(),
        };
        let weight = problem.largest_weight();
        Self {
            layout: RowBlocks::new(problem, block_rows),
            weight,
            blocks,
            parts: (0..n_parts).map(part).collect(),
            blocks_of_part,
            doubles: Mutex::default(),
        }
    }

    /// The problem.
    pub fn problem(&self) -> &LogisticProblem<'a> {
        &self.layout.problem
    }

    /// Changes the weights of the losses. The blocks store these weights relative to the largest weight, so the
    /// blocks stay valid. Returns the ratio of the new weights to the old ones.
    pub fn set_factor(&mut self, factor: f64) -> Result<f64> {
        self.layout.problem = self.layout.problem.with_factor(factor)?;
        let before = std::mem::replace(&mut self.weight, self.layout.problem.largest_weight());
        Ok(self.weight / before)
    }

    /// Number of values of a gradient.
    pub fn len(&self) -> usize {
        self.problem().n_outputs() * self.layout.width()
    }

    /// The maximum number of successive additions in the computation of an entry of a gradient, or of the sums of
    /// losses and entropies.
    pub fn depth(&self) -> usize {
        // Within a block, each lane sums its own rows, except where rows are read directly.
        let lanes = if self.layout.is_direct() { 1 } else { <f64 as Element>::lanes() };
        self.layout.block_rows / lanes + lanes + self.blocks_of_part + self.parts.len()
    }

    /// All rows.
    pub fn all(&self) -> BlockSample {
        BlockSample { n_blocks: self.blocks.len(), factor: 1.0 }
    }

    /// A sample of about this fraction of the rows.
    pub fn sample(&self, share: f64) -> BlockSample {
        let most = self.blocks.len();
        let n_blocks = ((most as f64 * share).ceil() as usize).clamp(1, most);
        BlockSample { n_blocks, factor: most as f64 / n_blocks as f64 }
    }

    /// Number of rows of a sample, including padding rows.
    pub fn n_rows(&self, sample: BlockSample) -> usize {
        sample.n_blocks * self.layout.block_rows
    }

    /// Computes Σ c_i loss_i and its gradient over a sample, in single precision.
    pub fn pass(
        &mut self,
        weights: &[f64],
        sample: BlockSample,
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<BlockSums> {
        let narrow: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
        self.visit(sample, (self.len(), interrupt), |layout, block, part| {
            block.pack(layout);
            let PassPart { singles, sums, totals, .. } = part;
            let targets = BlockTargets { labels: &block.labels, weights: &block.weights.0 };
            let work = (&mut singles[..], &mut block.shares[..], &mut sums[..]);
            totals.join(&add_losses(layout, (&block.rows, targets), &narrow, work));
        })?;
        Ok(self.collect(sample.factor, gradient))
    }

    /// [`Self::pass`] in double precision over all rows.
    pub fn exact_pass(
        &mut self,
        weights: &[f64],
        gradient: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<BlockSums> {
        let buffers = std::mem::take(&mut self.doubles);
        let held = || buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_direct = self.layout.is_direct();
        self.visit(self.all(), (self.len(), interrupt), |layout, block, part| {
            let PassPart { singles, sums, totals } = part;
            let known = held().pop();
            let (mut rows, mut scores) = known.unwrap_or_else(|| {
                let n_values = if is_direct { 0 } else { layout.width() * layout.block_rows };
                (Aligned::zeros(n_values), Aligned::zeros(singles.len()))
            });
            let targets = BlockTargets { labels: &block.labels, weights: &block.weights.1 };
            if is_direct {
                layout.scores(block.place, weights, &mut scores);
                totals.join(&softmax(&mut scores, targets, &mut block.shares));
                layout.add_products(block.place, &scores, sums);
            } else {
                layout.fill(block.place, &mut rows[..]);
                let work = (&mut scores[..], &mut block.shares[..], &mut sums[..]);
                totals.join(&add_losses(layout, (&rows[..], targets), weights, work));
            }
            held().push((rows, scores));
        })?;
        self.doubles = buffers;
        Ok(self.collect(1.0, gradient))
    }

    /// Multiplies a direction by the losses' Hessian at the weights of the last pass, over a sample of the rows of that
    /// pass.
    pub fn product(
        &mut self,
        direction: &[f64],
        sample: BlockSample,
        product: &mut Vec<f64>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let largest = direction.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let size = if largest > 0.0 { largest } else { 1.0 };
        let narrow: Vec<f32> = direction.iter().map(|value| (value / size) as f32).collect();
        self.visit(sample, (self.len(), interrupt), |layout, block, part| {
            block.pack(layout);
            let (width, n_rows) = (layout.width(), layout.block_rows);
            let PassPart { singles, sums, .. } = part;
            scores((&block.rows[..], n_rows), (&narrow, width), singles);
            let targets = BlockTargets { labels: &block.labels, weights: &block.weights.0 };
            curve(singles, targets, &block.shares);
            add_products((&singles[..], &block.rows[..], n_rows), (sums, width), false);
        })?;
        self.collect(sample.factor * size, product);
        Ok(())
    }

    /// Sums `n_sums` values over the blocks of a sample; `add` adds the values of one block.
    pub fn sums(
        &mut self,
        sample: BlockSample,
        (n_sums, interrupt): (usize, &Interrupt),
        add: impl Fn(&RowBlocks<'_>, Lines<'_>, &mut [f64]) + Sync,
    ) -> Result<Vec<f64>> {
        self.visit(sample, (0, interrupt), |layout, block, _| block.pack(layout))?;
        self.sums_of_shares(sample, (n_sums, interrupt), add)
    }

    /// [`Self::sums`] of values that do not depend on the rows' values, which may be missing.
    pub fn sums_of_shares(
        &mut self,
        sample: BlockSample,
        (n_sums, interrupt): (usize, &Interrupt),
        add: impl Fn(&RowBlocks<'_>, Lines<'_>, &mut [f64]) + Sync,
    ) -> Result<Vec<f64>> {
        self.visit(sample, (n_sums, interrupt), |layout, block, part| {
            let lines =
                Lines { rows: &block.rows, shares: &block.shares, weights: &block.weights.0 };
            add(layout, lines, &mut part.sums);
        })?;
        let mut sums = Vec::new();
        self.collect(sample.factor, &mut sums);
        Ok(sums)
    }

    /// Visits the blocks of a sample, in parallel over the parts; all sums start at 0.
    fn visit(
        &mut self,
        sample: BlockSample,
        (n_sums, interrupt): (usize, &Interrupt),
        visit: impl Fn(&RowBlocks<'_>, &mut Block, &mut PassPart) + Sync,
    ) -> Result<()> {
        let Self { layout, weight, blocks, parts, blocks_of_part, .. } = self;
        let n_numbers = pass_time(layout.block_rows * *blocks_of_part, layout.width(), n_sums);
        let inverse = 1.0 / *weight;
        let parts = parts.par_iter_mut().zip(blocks.par_chunks_mut(*blocks_of_part));
        parts.with_min_len(min_len(n_numbers)).for_each(|(part, blocks)| {
            part.sums.clear();
            part.totals = BlockSums::default();
            for block in blocks.iter_mut().filter(|block| block.rank < sample.n_blocks) {
                // Parts without a block in the sample allocate no memory.
                part.sums.resize(n_sums, 0.0);
                if interrupt.is_raised() {
                    break;
                }
                block.set_targets(layout, inverse);
                visit(layout, block, part);
            }
        });
        interrupt.check()
    }

    /// Adds up the sums of all parts in order, multiplied by a factor and the unit of the weights.
    fn collect(&self, factor: f64, sums: &mut Vec<f64>) -> BlockSums {
        let factor = factor * self.weight;
        let mut totals = BlockSums::default();
        sums.clear();
        for part in &self.parts {
            totals.join(&part.totals);
            if sums.is_empty() {
                sums.extend_from_slice(&part.sums);
            } else {
                sums.iter_mut().zip(&part.sums).for_each(|(sum, value)| *sum += value);
            }
        }
        sums.iter_mut().for_each(|sum| *sum *= factor);
        totals.scaled(factor)
    }
}

/// The time of a pass over rows that adds to `n_sums` sums, in values read.
fn pass_time(n_rows: usize, width: usize, n_sums: usize) -> usize {
    n_rows * width.max(n_sums / SUMS_PER_VALUE)
}

/// The data of a block from which sums over its rows are computed.
#[derive(Clone, Copy)]
pub(super) struct Lines<'b> {
    /// A line of values for each column.
    pub rows: &'b [f32],
    /// A line of probabilities for each output.
    pub shares: &'b [f32],
    /// The c_i, in units of the largest.
    pub weights: &'b [f32],
}

/// Adds the losses of a block, and their gradient, to the sums.
fn add_losses<T: Precision + Element>(
    layout: &RowBlocks<'_>,
    (rows, targets): (&[T], BlockTargets<'_, T>),
    weights: &[T],
    (values, shares, sums): (&mut [T], &mut [f32], &mut [f64]),
) -> BlockSums {
    let (width, n_rows) = (layout.width(), layout.block_rows);
    if weights.iter().all(|weight| weight.is_zero()) {
        values.fill(T::zero());
    } else {
        scores((rows, n_rows), (weights, width), values);
    }
    let totals = softmax(values, targets, shares);
    add_products((&*values, rows, n_rows), (sums, width), false);
    totals
}

impl Block {
    fn empty(place: usize) -> Self {
        Self {
            place,
            rank: place,
            rows: Aligned::zeros(0),
            labels: Vec::new(),
            weights: (Vec::new(), Vec::new()),
            shares: Aligned::zeros(0),
        }
    }

    /// Copies the values of the rows, unless that has been done.
    fn pack(&mut self, layout: &RowBlocks<'_>) {
        if self.rows.is_empty() {
            self.rows = Aligned::zeros(layout.width() * layout.block_rows);
            layout.fill(self.place, &mut self.rows[..]);
        }
    }

    /// Copies the labels and weights, unless that has been done.
    fn set_targets(&mut self, layout: &RowBlocks<'_>, inverse: f64) {
        if !self.labels.is_empty() {
            return;
        }
        let (problem, n_rows) = (&layout.problem, layout.block_rows);
        self.shares = Aligned::zeros(problem.n_outputs() * n_rows);
        self.labels.reserve_exact(n_rows);
        self.weights.1.reserve_exact(n_rows);
        for place in (0..n_rows).step_by(GROUP) {
            let rows = layout.rows_at(self.place * n_rows + place);
            self.labels.extend_from_slice(&problem.labels()[rows.clone()]);
            self.labels.resize(place + GROUP, 0);
            self.weights.1.extend(rows.map(|row| problem.weight(row) * inverse));
            self.weights.1.resize(place + GROUP, 0.0);
        }
        self.weights.0 = self.weights.1.iter().map(|weight| *weight as f32).collect();
    }
}
