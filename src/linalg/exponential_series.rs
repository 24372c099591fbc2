//! Constants of the exponential function for vectors of both precisions.

/// Constants for exp(x) = 2ⁿ exp(r), where n is the integer nearest to x/ln 2, for vectors of any
/// width.
pub(super) trait Exponential: Sized + 'static {
    /// Floating-point numbers as large as ROUND are integers; the low bits of ROUND + n hold the exponent of 2ⁿ.
    const ROUND: Self;
    /// ln 2 in two parts. This part ends in zero bits, so that n · LN2_HIGH is exact.
    const LN2_HIGH: Self;
    /// The other part of ln 2.
    const LN2_LOW: Self;
    /// Smallest argument; smaller ones are raised to it, so that products with the exponential stay normal numbers.
    const LEAST: Self;
    /// The Taylor polynomial, starting with the highest degree.
    const TAYLOR: &[Self];
    /// Computes 2ⁿ from ROUND + n.
    fn power(shifted: Self) -> Self;
}

impl Exponential for f32 {
    const ROUND: f32 = 12_582_912.0 + 127.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const LEAST: f32 = -60.0;
    const TAYLOR: &[f32] = &[1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    #[inline(always)]
    fn power(shifted: f32) -> f32 {
        f32::from_bits(shifted.to_bits() << 23)
    }
}

impl Exponential for f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0 + 1023.0;
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const LEAST: f64 = -500.0;
    const TAYLOR: &[f64] = &[
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    #[inline(always)]
    fn power(shifted: f64) -> f64 {
        f64::from_bits(shifted.to_bits() << 52)
    }
}
