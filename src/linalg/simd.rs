//! SIMD vectors for kernels, and the choice of the instruction set at run time.

use std::sync::OnceLock;

use pulp::bytemuck::cast_slice_mut;
use pulp::{Arch, Simd, WithSimd};

use crate::data::Real;
use crate::error::{Error, Result};

/// The environment variable that chooses the instruction set of all kernels.
const VARIABLE: &str = "DUALGAP_SIMD";

/// The values of the variable; the first is the default.
const NAMES: [&str; 4] = ["auto", "avx512", "avx2", "scalar"];

/// The instruction set of all kernels in this process: the set named by `DUALGAP_SIMD`, or the widest set that this
/// machine supports.
///
/// Kernels sum in vectors, so models computed with different instruction sets differ in their last
/// digits. The choice is made once per process, so that a fit never mixes two instruction sets.
pub(crate) fn arch() -> Arch {
    static CHOSEN: OnceLock<Arch> = OnceLock::new();
    // The Python module reports an unknown or unsupported name when it is imported. In a Rust program, such a name
    // counts as `auto`.
    *CHOSEN.get_or_init(|| chosen().unwrap_or_else(|_| Arch::new()))
}

/// The name of the instruction set that the kernels of this process use: `avx512`, `avx2`, `neon`
/// or `scalar`.
///
/// # Errors
/// [`Error::InvalidArgument`] naming `DUALGAP_SIMD` if its value is not one of `auto`, `avx512`,
/// `avx2` and `scalar`, or if this machine does not support that instruction set.
pub fn instruction_set() -> Result<&'static str> {
    chosen().map(|_| match arch() {
        Arch::Scalar => "scalar",
        #[cfg(target_arch = "x86_64")]
        Arch::V3(_) => "avx2",
        #[cfg(target_arch = "x86_64")]
        Arch::V4(_) => "avx512",
        #[cfg(target_arch = "aarch64")]
        Arch::Neon(_) => "neon",
        _ => "other",
    })
}

fn chosen() -> Result<Arch> {
    let name = std::env::var_os(VARIABLE).unwrap_or_default();
    parse(&name.to_string_lossy())
}

fn parse(name: &str) -> Result<Arch> {
    let here = match name {
        "" | "auto" => Some(Arch::new()),
        "scalar" => Some(Arch::Scalar),
        #[cfg(target_arch = "x86_64")]
        "avx2" => pulp::x86::V3::try_new().map(Arch::V3),
        #[cfg(target_arch = "x86_64")]
        "avx512" => pulp::x86::V4::try_new().map(Arch::V4),
        _ => None,
    };
    here.ok_or_else(|| {
        let what = if NAMES.contains(&name) { "this machine does not support" } else { "unknown:" };
        let message = format!("{what} {name:?}; use one of {}", NAMES.join(", "));
        Error::argument(VARIABLE, message)
    })
}

/// A stored value that kernels can process in vectors.
pub trait Element: Real {
    /// Runs the kernel with the widest vectors of the chosen instruction set.
    fn dispatch<K: Kernel<Self>>(kernel: K) -> K::Output;
    /// Number of values in one of these vectors.
    fn lanes() -> usize;
}

/// A computation on vectors, written once for all instruction sets.
pub trait Kernel<T> {
    /// The result type.
    type Output;
    /// Runs the computation. All functions that it calls must be inlined, or they are compiled
    /// without vector instructions.
    fn compute<S: Simd>(self, simd: S) -> Self::Output
    where
        T: Lane<S>;
}

/// Operations on vectors of an element type, for one instruction set.
pub trait Lane<S: Simd>: Real {
    /// A vector.
    type Vector: Copy;
    /// Number of values in a vector.
    const LANES: usize;
    /// A vector with the same value in all lanes.
    fn splat(simd: S, value: Self) -> Self::Vector;
    /// The sum of the values of a vector.
    fn total(simd: S, vector: Self::Vector) -> Self;
    /// Returns a + b.
    fn plus(simd: S, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns a − b.
    fn minus(simd: S, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns a·b, elementwise.
    fn times(simd: S, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns a / b, elementwise.
    fn over(simd: S, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The larger of each pair of values.
    fn larger(simd: S, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The smaller of each pair of values.
    fn smaller(simd: S, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns, elementwise, `yes` if a = b, and `no` otherwise.
    fn if_equal(
        simd: S,
        pair: [Self::Vector; 2],
        yes: Self::Vector,
        no: Self::Vector,
    ) -> Self::Vector;
    /// The largest value of a vector.
    fn largest(simd: S, vector: Self::Vector) -> Self;
    /// The distance from 0 beyond which [`Self::exponential`] returns a constant.
    fn farthest() -> Self;
    /// exp(x) for x ≤ 0, accurate to about the precision of the values, and exactly 1 for x = 0. Below
    /// −[`Self::farthest`], x counts as −[`Self::farthest`].
    fn exponential(simd: S, x: Self::Vector) -> Self::Vector;
    /// a·b + c, rounded once if the processor has an instruction for that.
    fn fused(simd: S, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// Returns the values of a slice of vectors as a slice of numbers.
    fn values_mut(vectors: &mut [Self::Vector]) -> &mut [Self];
    /// A vector that starts with the given values. The other lanes are 0.
    fn partial(simd: S, values: &[Self]) -> Self::Vector;
    /// Splits a slice into full vectors and the remaining values.
    fn vectors(values: &[Self]) -> (&[Self::Vector], &[Self]);
    /// Splits a mutable slice into full vectors and the remaining values.
    fn vectors_mut(values: &mut [Self]) -> (&mut [Self::Vector], &mut [Self]);
}

macro_rules! element {
    (
        $real:ident, $vector:ident, $lanes:ident, $splat:ident, $total:ident, $add:ident, $sub:ident,
        $mul:ident, $div:ident, $max:ident, $min:ident, $equal:ident, $select:ident, $largest:ident,
        $fused:ident, $partial:ident, $view:ident, $view_mut:ident
    ) => {
        impl<S: Simd> Lane<S> for $real {
            type Vector = S::$vector;
            const LANES: usize = S::$lanes;
            #[inline(always)]
            fn splat(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }
            #[inline(always)]
            fn total(simd: S, vector: S::$vector) -> Self {
                simd.$total(vector)
            }
            #[inline(always)]
            fn plus(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn minus(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$sub(a, b)
            }
            #[inline(always)]
            fn times(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn over(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$div(a, b)
            }
            #[inline(always)]
            fn larger(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$max(a, b)
            }
            #[inline(always)]
            fn smaller(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$min(a, b)
            }
            #[inline(always)]
            fn if_equal(
                simd: S,
                [a, b]: [S::$vector; 2],
                yes: S::$vector,
                no: S::$vector,
            ) -> S::$vector {
                simd.$select(simd.$equal(a, b), yes, no)
            }
            #[inline(always)]
            fn farthest() -> Self {
                -<$real as Exponential>::LEAST
            }
            #[inline(always)]
            fn largest(simd: S, vector: S::$vector) -> Self {
                simd.$largest(vector)
            }
            #[inline(always)]
            fn exponential(simd: S, x: S::$vector) -> S::$vector {
                let splat = |value| simd.$splat(value);
                // Adding and subtracting `round` leaves the nearest integer. The low bits of `shifted` hold the biased
                // exponent.
                let round = <$real as Exponential>::ROUND;
                let x = simd.$max(x, splat(<$real as Exponential>::LEAST));
                let shifted = simd.$fused(x, splat(std::$real::consts::LOG2_E), splat(round));
                let n = simd.$add(shifted, splat(-round));
                let high = splat(-<$real as Exponential>::LN2_HIGH);
                let low = splat(-<$real as Exponential>::LN2_LOW);
                let r = simd.$fused(n, low, simd.$fused(n, high, x));
                let mut p = splat(<$real as Exponential>::TAYLOR[0]);
                for factor in &<$real as Exponential>::TAYLOR[1..] {
                    p = simd.$fused(p, r, splat(*factor));
                }
                let mut power = [shifted];
                for value in cast_slice_mut::<_, $real>(&mut power) {
                    *value = <$real as Exponential>::power(*value);
                }
                simd.$mul(p, power[0])
            }
            #[inline(always)]
            fn fused(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$fused(a, b, c)
            }
            #[inline(always)]
            fn values_mut(vectors: &mut [S::$vector]) -> &mut [Self] {
                cast_slice_mut(vectors)
            }
            #[inline(always)]
            fn partial(simd: S, values: &[Self]) -> S::$vector {
                simd.$partial(values)
            }
            #[inline(always)]
            fn vectors(values: &[Self]) -> (&[S::$vector], &[Self]) {
                S::$view(values)
            }
            #[inline(always)]
            fn vectors_mut(values: &mut [Self]) -> (&mut [S::$vector], &mut [Self]) {
                S::$view_mut(values)
            }
        }
        impl Element for $real {
            fn dispatch<K: Kernel<Self>>(kernel: K) -> K::Output {
                struct Dispatched<K>(K);
                impl<K: Kernel<$real>> WithSimd for Dispatched<K> {
                    type Output = K::Output;
                    #[inline(always)]
                    fn with_simd<S: Simd>(self, simd: S) -> K::Output {
                        self.0.compute(simd)
                    }
                }
                arch().dispatch(Dispatched(kernel))
            }
            fn lanes() -> usize {
                struct Lanes;
                impl Kernel<$real> for Lanes {
                    type Output = usize;
                    fn compute<S: Simd>(self, _: S) -> usize {
                        S::$lanes
                    }
                }
                Self::dispatch(Lanes)
            }
        }
    };
}

element!(
    f32,
    f32s,
    F32_LANES,
    splat_f32s,
    reduce_sum_f32s,
    add_f32s,
    sub_f32s,
    mul_f32s,
    div_f32s,
    max_f32s,
    min_f32s,
    equal_f32s,
    select_f32s,
    reduce_max_f32s,
    mul_add_e_f32s,
    partial_load_f32s,
    as_simd_f32s,
    as_mut_simd_f32s
);
element!(
    f64,
    f64s,
    F64_LANES,
    splat_f64s,
    reduce_sum_f64s,
    add_f64s,
    sub_f64s,
    mul_f64s,
    div_f64s,
    max_f64s,
    min_f64s,
    equal_f64s,
    select_f64s,
    reduce_max_f64s,
    mul_add_e_f64s,
    partial_load_f64s,
    as_simd_f64s,
    as_mut_simd_f64s
);

/// Constants for exp(x) = 2ⁿ exp(r), where n is the integer nearest to x/ln 2, for vectors of any
/// width.
trait Exponential: Sized + 'static {
    /// Floating-point numbers as large as ROUND are integers; the low bits of ROUND + n hold the exponent of 2ⁿ.
    const ROUND: Self;
    /// The higher part of ln 2, which is stored in two parts. It ends in zero bits, so that n ·
    /// LN2_HIGH is exact.
    const LN2_HIGH: Self;
    /// The lower part of ln 2.
    const LN2_LOW: Self;
    /// Smallest argument; smaller arguments are raised to it, so that products with the exponential stay normal
    /// numbers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_chosen_by_name_and_unknown_names_are_rejected() {
        assert!(matches!(parse("scalar"), Ok(Arch::Scalar)));
        assert_eq!(format!("{:?}", parse("auto").unwrap()), format!("{:?}", Arch::new()));
        let message = parse("sse9").unwrap_err().to_string();
        assert!(message.contains("DUALGAP_SIMD") && message.contains("avx2"), "{message}");
    }
}
