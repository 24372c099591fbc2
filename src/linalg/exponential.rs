//! The exponential function, written so that loops over it vectorise.

use pulp::{Simd, WithSimd};

use super::simd::arch;

/// Returns exp(−x) for x ≥ 0, with a relative error below 1e-14; x above 700 counts as 700. NaN stays NaN. The code has
/// no branches, so loops over it vectorise.
#[inline(always)]
pub(crate) fn exp_minus(x: f64) -> f64 {
    const LOG2_E: f64 = std::f64::consts::LOG2_E;
    // ln 2 in two parts. The first ends in zero bits, so that n · LN2_HIGH is exact.
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // Adding and then subtracting 1.5 · 2⁵² rounds to the nearest integer. After the addition, the
    // integer is in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let y = if -x < -700.0 { -700.0 } else { -x };
    let shifted = y * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (y - n * LN2_HIGH) - n * LN2_LOW;
    // Taylor polynomial: for |r| ≤ ln 2 / 2 the remainder after degree 12 is below 1e-15.
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
    // Build 2ⁿ from its exponent bits; n ≥ −1010 keeps it a normal number.
    let exponent = (shifted.to_bits() as i64) << 52;
    f64::from_bits((exponent + (1023i64 << 52)) as u64) * p
}

/// Returns −ln x for 0 < x ≤ 1, with a relative error below 1e-14. Subnormal numbers count as the smallest normal
/// number. The code has no branches, so loops over it vectorise.
#[inline(always)]
pub(crate) fn minus_ln(x: f64) -> f64 {
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // The bits of √½. The mantissa is scaled to a value between √½ and √2.
    const ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    const ONE: u64 = 1023 << 52;
    // The sum of 2⁵² and an integer has the integer in its low bits.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let x = if x > f64::MIN_POSITIVE { x } else { f64::MIN_POSITIVE };
    let shifted = x.to_bits() + (ONE - ROOT);
    let n = f64::from_bits((shifted >> 52) | WHOLE.to_bits()) - (WHOLE + 1023.0);
    let m = f64::from_bits((shifted & ((1 << 52) - 1)) + ROOT);
    // ln m = 2 artanh f, as a series in f² ≤ 0.0295.
    let f = (m - 1.0) / (m + 1.0);
    let square = f * f;
    let mut p = 1.0 / 21.0;
    for factor in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        p = p * square + 1.0 / factor;
    }
    -(n * LN2_HIGH + (n * LN2_LOW + 2.0 * f * p))
}

/// Number of lanes of the widest supported vectors. The same number is used on every machine.
const LANES: usize = 8;

/// Replaces the vector a by softmax(a) and returns log Σ_c exp(a_c).
pub(crate) fn softmax(values: &mut [f64]) -> f64 {
    struct Softmax<'a>(&'a mut [f64]);
    impl WithSimd for Softmax<'_> {
        type Output = f64;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> f64 {
            let (whole, rest) = self.0.as_chunks_mut::<LANES>();
            let mut last = [f64::NEG_INFINITY; LANES];
            last[..rest.len()].copy_from_slice(rest);
            let mut largest = last;
            for values in whole.iter() {
                for (largest, value) in largest.iter_mut().zip(values) {
                    *largest = if *value > *largest { *value } else { *largest };
                }
            }
            // The maximum may miss a NaN, but a NaN makes the sum NaN, and therefore all results.
            let shift = largest.into_iter().fold(f64::NEG_INFINITY, f64::max);
            let mut sums = [0.0; LANES];
            for values in whole.iter_mut() {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *value = exp_minus(shift - *value);
                    *sum += *value;
                }
            }
            if !rest.is_empty() {
                // `map` of an array would compile to a call without vector instructions.
                for value in &mut last {
                    *value = exp_minus(shift - *value);
                }
            }
            sums.iter_mut().zip(&last[..rest.len()]).for_each(|(sum, value)| *sum += value);
            let sum: f64 = sums.into_iter().sum();
            let share = 1.0 / sum;
            whole.as_flattened_mut().iter_mut().for_each(|value| *value *= share);
            rest.iter_mut().zip(last).for_each(|(value, last)| *value = last * share);
            shift + sum.ln()
        }
    }
    arch().dispatch(Softmax(values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{Aligned, Element, Kernel, Lane};

    #[test]
    fn exp_minus_matches_exp() {
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
    fn minus_ln_matches_ln() {
        for i in 1..=10_000 {
            let x = f64::from(i) / 10_000.0;
            for x in [x, x.powi(20), 1.0 - x * 1e-6, x * 1e-300] {
                let expected = -x.ln();
                let wrong = (minus_ln(x) - expected).abs();
                assert!(wrong <= 1e-14 * expected, "{x:e} {wrong:e}");
            }
        }
        assert_eq!(minus_ln(1.0), 0.0);
        assert!((708.0..709.0).contains(&minus_ln(0.0)));
    }

    #[test]
    fn softmax_divides_exponentials_by_their_sum() {
        for n in [1, 8, 11, 26] {
            let given: Vec<f64> = (0..n).map(|i| 3.0 - 0.7 * f64::from(i * i % 13)).collect();
            let mut values = given.clone();
            let value = softmax(&mut values);
            let sum: f64 = given.iter().map(|given| given.exp()).sum();
            assert!((value - sum.ln()).abs() <= 1e-14 * (1.0 + value.abs()), "{value} {sum}");
            for (value, given) in values.iter().zip(&given) {
                assert!((value - given.exp() / sum).abs() <= 2e-14 * value);
            }
        }
        // NaN or infinity in a full SIMD vector, and in the remainder.
        for (at, bad) in [0, 1, 8].into_iter().flat_map(|at| [(at, f64::NAN), (at, f64::INFINITY)])
        {
            for n in [2, 9].into_iter().filter(|n| *n > at) {
                let mut values = vec![0.5; n];
                values[at] = bad;
                assert!(softmax(&mut values).is_nan());
                assert!(values.iter().all(|value| value.is_nan()), "{at} {bad} {n}");
            }
        }
    }

    struct Exponentials<'a, T>(&'a mut [T]);

    impl<T: Element> Kernel<T> for Exponentials<'_, T> {
        type Output = ();
        #[inline(always)]
        fn compute<S: Simd>(self, simd: S)
        where
            T: Lane<S>,
        {
            for values in T::vectors_mut(self.0).0 {
                *values = T::exponential(simd, *values);
            }
        }
    }

    fn check_vectors<T: Element>(lowest: f64, precision: f64) {
        let mut values = Aligned::<T>::zeros(4096);
        for (place, value) in values.iter_mut().enumerate() {
            *value = T::narrow(lowest * place as f64 / 4096.0);
        }
        let given = values.to_vec();
        T::dispatch(Exponentials(&mut values));
        for (value, x) in values.iter().zip(&given) {
            let expected = x.widen().exp();
            assert!((value.widen() - expected).abs() <= precision * expected, "{x:?} {value:?}");
        }
        assert_eq!(values[0], T::one());
        values.fill(T::narrow(-1e30));
        T::dispatch(Exponentials(&mut values));
        assert!(values.iter().all(|value| *value > T::zero() && value.widen() < 1e-25));
    }

    #[test]
    fn exponentials_of_vectors_match_exp() {
        check_vectors::<f32>(-59.9, 3e-7);
        check_vectors::<f64>(-499.0, 1e-15);
    }
}
