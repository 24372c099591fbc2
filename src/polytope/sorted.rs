//! Projection onto the weighted sets, by isotonic regression on the sorted margins
//! (docs/mathematics/polytopes.md#weighted-sets).

use super::root::{LinearPiece, root};

/// The sorted margins off the label, z_1 >= .. >= z_{m−1}, and the two isotonic fits, lo and hi, between which the
/// multiplier is clipped: b_j = z_j − clip(τ, lo_j, hi_j) with τ = bias·1ᵀb.
///
/// Both fits are for the set scaled by ζ, and include the derivatives with respect to ζ.
pub(super) struct Sorted<'a> {
    pub margins: &'a mut [f64],
    low: SortedFit<'a>,
    high: SortedFit<'a>,
    blocks: [&'a mut [f64]; 3],
}

/// The values of a fit, and their derivatives with respect to ζ.
struct SortedFit<'a> {
    values: &'a mut [f64],
    slopes: &'a mut [f64],
}

impl<'a> Sorted<'a> {
    /// Sorts the margins off the label; `order` receives their classes.
    pub fn new(v: &[f64], label: usize, order: &mut Vec<usize>, work: &'a mut Vec<f64>) -> Self {
        let n = v.len() - 1;
        order.clear();
        order.extend((0..v.len()).filter(|class| *class != label));
        order.sort_unstable_by(|&i, &j| v[j].total_cmp(&v[i]).then(i.cmp(&j)));
        work.resize(8 * n, 0.0);
        let mut parts = work.chunks_exact_mut(n);
        let mut part = || parts.next().expect("eight parts");
        let margins = part();
        for (margin, &class) in margins.iter_mut().zip(&*order) {
            *margin = v[class];
        }
        Self {
            margins,
            low: SortedFit { values: part(), slopes: part() },
            high: SortedFit { values: part(), slopes: part() },
            blocks: [part(), part(), part()],
        }
    }

    /// Computes lo = PAV(z − ρ) and hi = z, for Usunier's sets. PAV is the isotonic fit by pooling adjacent violators.
    pub fn fit_below(&mut self, rho: &[f64]) {
        self.low.isotonic(self.margins, rho, 1.0, &mut self.blocks);
        self.high.values.copy_from_slice(self.margins);
        for (low, &high) in self.low.values.iter_mut().zip(&*self.high.values) {
            *low = low.min(high);
        }
    }

    /// Computes lo = PAV(z_j − ζρ_j) and hi = PAV(z_j − ζρ_{j+1}), for the top-k sets, in which the label's coordinate
    /// is free.
    pub fn fit_between(&mut self, rho: &[f64], size: f64) {
        self.low.isotonic(self.margins, rho, size, &mut self.blocks);
        self.high.isotonic(self.margins, &rho[1..], size, &mut self.blocks);
    }

    /// The multiplier τ = bias·1ᵀb of a set whose points have sums up to `cap`
    /// (docs/mathematics/polytopes.md#weighted-sets, for any bias).
    pub fn multiplier(&self, bias: f64, cap: f64, guess: f64) -> f64 {
        root(0.0, bias * cap, guess, |tau| {
            let (mut sum, mut n_between) = (0.0, 0.0);
            for (&z, (&low, &high)) in self.entries() {
                sum += z - tau.max(low).min(high);
                n_between += if low < tau && tau < high { 1.0 } else { 0.0 };
            }
            let root = tau + (bias * sum - tau) / (1.0 + bias * n_between);
            LinearPiece { root, scale: tau + bias * sum.abs() }
        })
    }

    /// The derivative φ(ζ) = Σ_j ρ_j w_(j) of the maximum over a set scaled by ζ, as a linear piece of a function of ζ.
    /// Here w is (z − τ − b, 0), sorted.
    ///
    /// w_j = clip(τ, lo_j, hi_j) − τ decreases in j and changes sign where τ passes from lo to hi,
    /// which is the position of the label's 0 in the sorted list.
    pub fn pull(&self, rho: &[f64], size: f64, bias: f64, tau: f64) -> LinearPiece {
        let n = self.margins.len();
        let n_low = self.low.values.partition_point(|low| *low > tau);
        let first_high = self.high.values.partition_point(|high| *high >= tau).max(n_low);
        let n_between = (first_high - n_low) as f64;
        let moved: f64 = self.low.slopes[..n_low].iter().sum::<f64>()
            + self.high.slopes[first_high..].iter().sum::<f64>();
        let tau_slope = -bias * moved / (1.0 + bias * n_between);
        let (mut pull, mut slope, mut scale) = (0.0, 0.0, 0.0);
        let mut add = |rho: f64, w: f64, w_slope: f64| {
            pull += rho * w;
            slope += rho * w_slope;
            scale += rho * w.abs();
        };
        for (j, rho) in rho[..n_low].iter().enumerate() {
            add(*rho, self.low.values[j] - tau, self.low.slopes[j] - tau_slope);
        }
        for (j, rho) in (first_high..n).zip(&rho[first_high + 1..]) {
            add(*rho, self.high.values[j] - tau, self.high.slopes[j] - tau_slope);
        }
        LinearPiece::linear(size, pull, slope, scale + tau)
    }

    /// Writes b at the multiplier τ to `beta`, at the classes in `order`.
    pub fn write(&self, tau: f64, order: &[usize], beta: &mut [f64]) {
        for ((&z, (&low, &high)), &class) in self.entries().zip(order) {
            beta[class] = (z - tau.max(low).min(high)).max(0.0);
        }
    }

    fn entries(&self) -> impl Iterator<Item = (&f64, (&f64, &f64))> {
        self.margins.iter().zip(self.low.values.iter().zip(&*self.high.values))
    }
}

impl SortedFit<'_> {
    /// The non-increasing least squares fit of z − ζρ, by pooling adjacent violators.
    fn isotonic(&mut self, z: &[f64], rho: &[f64], size: f64, blocks: &mut [&mut [f64]; 3]) {
        let [sums, weights, counts] = blocks;
        let mut n_blocks = 0;
        for (&z, &rho) in z.iter().zip(rho) {
            (sums[n_blocks], weights[n_blocks], counts[n_blocks]) = (z - size * rho, rho, 1.0);
            while n_blocks > 0
                && sums[n_blocks - 1] * counts[n_blocks] <= sums[n_blocks] * counts[n_blocks - 1]
            {
                sums[n_blocks - 1] += sums[n_blocks];
                weights[n_blocks - 1] += weights[n_blocks];
                counts[n_blocks - 1] += counts[n_blocks];
                n_blocks -= 1;
            }
            n_blocks += 1;
        }
        let mut start = 0;
        for block in 0..n_blocks {
            let end = start + counts[block] as usize;
            self.values[start..end].fill(sums[block] / counts[block]);
            self.slopes[start..end].fill(-weights[block] / counts[block]);
            start = end;
        }
    }
}
