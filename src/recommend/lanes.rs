//! Inner loops over slices whose length is a multiple of [`LANES`]: they vectorise without remainders,
//! and sums keep one order on every machine.

/// Doubles handled together: one AVX-512 register, two of AVX2.
pub(super) const LANES: usize = 8;

/// The least multiple of [`LANES`] that holds `length` values.
pub(super) const fn padded(length: usize) -> usize {
    length.div_ceil(LANES) * LANES
}

/// ⟨a, b⟩.
#[inline(always)]
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (a, b) in lanes(a).iter().zip(lanes(b)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// ⟨a, b⟩ + 2 (⟨c, d⟩ + ⟨e, f⟩), with one sum over the lanes.
#[inline(always)]
pub(super) fn triple_dot(
    (a, b): (&[f64], &[f64]),
    (c, d): (&[f64], &[f64]),
    (e, f): (&[f64], &[f64]),
) -> f64 {
    let mut sums = [0.0; LANES];
    for ((c, d), (e, f)) in lanes(c).iter().zip(lanes(d)).zip(lanes(e).iter().zip(lanes(f))) {
        for lane in 0..LANES {
            sums[lane] += 2.0 * (c[lane] * d[lane] + e[lane] * f[lane]);
        }
    }
    for (a, b) in lanes(a).iter().zip(lanes(b)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// y += scale · x.
#[inline(always)]
pub(super) fn axpy(y: &mut [f64], scale: f64, x: &[f64]) {
    for (y, x) in y.as_chunks_mut::<LANES>().0.iter_mut().zip(lanes(x)) {
        // Through a copy: the compiler cannot know that x and y do not overlap.
        let mut sum = *y;
        for lane in 0..LANES {
            sum[lane] += scale * x[lane];
        }
        *y = sum;
    }
}

#[inline(always)]
fn lanes(values: &[f64]) -> &[[f64; LANES]] {
    values.as_chunks().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_lanes_are_sums() {
        let a: Vec<f64> = (0..24).map(f64::from).collect();
        let b: Vec<f64> = (0..24).map(|i| 1.0 / (1.0 + f64::from(i))).collect();
        let plain: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
        assert!((dot(&a, &b) - plain).abs() < 1e-12);
        assert!(
            (triple_dot((&a, &b), (&a, &b), (&b, &b)) - plain - 2.0 * (plain + dot(&b, &b))).abs()
                < 1e-12
        );
        let mut y = b.clone();
        axpy(&mut y, 2.0, &a);
        assert_eq!(y[5], b[5] + 10.0);
    }
}
