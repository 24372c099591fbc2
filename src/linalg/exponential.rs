//! The exponential function in a form that loops vectorise.

use pulp::{Simd, WithSimd};

use super::simd::arch;

/// exp(−x) for x ≥ 0, branch-free so that loops over it vectorise; relative error below 1e-14.
/// NaN stays NaN.
#[inline(always)]
pub(crate) fn exp_minus(x: f64) -> f64 {
    const LOG2_E: f64 = std::f64::consts::LOG2_E;
    // ln 2 in two parts, the first with trailing zeros: n · LN2_HIGH is exact.
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // Adding and subtracting 1.5 · 2⁵² rounds to the nearest integer, left in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let y = if -x < -700.0 { -700.0 } else { -x };
    let shifted = y * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (y - n * LN2_HIGH) - n * LN2_LOW;
    // Taylor's polynomial; |r| ≤ ln 2 / 2 leaves less than 1e-15 after degree 12.
    let mut p = 1.0 / 479_001_600.0;
    for factor in [
        39_916_800.0,
        3_628_800.0,
        362_880.0,
        40_320.0,
        5_040.0,
        720.0,
        120.0,
        24.0,
        6.0,
        2.0,
        1.0,
        1.0,
    ] {
        p = p * r + 1.0 / factor;
    }
    // 2ⁿ by its exponent bits; n ≥ −1010 keeps it normal.
    let exponent = (shifted.to_bits() as i64) << 52;
    f64::from_bits((exponent + (1023i64 << 52)) as u64) * p
}

/// Replaces every a by exp(a − shift), for a ≤ shift, and returns the sum.
pub(crate) fn exp_shifted(values: &mut [f64], shift: f64) -> f64 {
    struct Shifted<'a>(&'a mut [f64], f64);
    impl WithSimd for Shifted<'_> {
        type Output = f64;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> f64 {
            let Self(values, shift) = self;
            // As many sums as the widest vectors have places, whatever this machine has.
            let mut sums = [0.0; 8];
            for values in values.chunks_mut(8) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *value = exp_minus(shift - *value);
                    *sum += *value;
                }
            }
            sums.into_iter().sum()
        }
    }
    arch().dispatch(Shifted(values, shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_minus_is_exp() {
        for i in 0..70_000 {
            let x = f64::from(i) * 0.01;
            let expected = (-x).exp();
            assert!((exp_minus(x) - expected).abs() <= 1e-14 * expected, "{x}");
        }
        assert_eq!(exp_minus(0.0), 1.0);
        assert!(exp_minus(1e9) < 1e-300);
        assert!(exp_minus(f64::NAN).is_nan());
    }

    #[test]
    fn exp_shifted_is_exp_and_its_sum() {
        for n in [1, 8, 11, 26] {
            let given: Vec<f64> = (0..n).map(|i| -0.7 * f64::from(i)).collect();
            let mut values = given.clone();
            let sum = exp_shifted(&mut values, 0.5);
            for (value, given) in values.iter().zip(&given) {
                assert!((value - (given - 0.5).exp()).abs() <= 1e-14 * value);
            }
            assert!((sum - values.iter().sum::<f64>()).abs() <= 1e-14 * sum);
        }
    }
}
